package provider_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// mutant is one row of the outcome table changed: a text that is in its file
// exactly once, and what is put in its place.
type mutant struct{ file, old, new string }

// mutants changes every row of what a status says, of what an answer proves, and
// of what that leads to.
func mutants(t *testing.T) []mutant {
	t.Helper()
	judge := "provider/judge.go"
	all := []mutant{
		{judge, "if status/100 == 2 {\n\t\treturn answered", "if status == 200 {\n\t\treturn answered"},
		{judge, "return unproven\n}", "return turnedAway\n}"},
		{judge, "return status/100 == 2 || status/100 == 4", "return true"},
		{judge, "case said.word == earlier, said.word == unclear, said.word == lingers:", "case said.word == unclear, said.word == lingers:"},
		{judge, "case said.word == earlier, said.word == unclear, said.word == lingers:", "case said.word == earlier, said.word == lingers:"},
		{judge, "case said.word == earlier, said.word == unclear, said.word == lingers:", "case said.word == earlier, said.word == unclear:"},
		{judge, "o.Lingers = said.word == lingers", "o.Lingers = false"},
		{judge, "case said.word == transient && c != answered:", "case false:"},
		{judge, "case said.word == transient && c != answered:", "case said.word == transient:"},
		{judge, "case c == answered && err != nil:", "case false:"},
		{judge, "case c == answered && preparing && no == nothing && said.word != settled && said.word != ambiguous:", "case c == answered && preparing:"},
		{judge, "case a.status/100 == 4 && said.word == pending && said.named && l.id(said.reference, document) != \"\":", "case false:"},
		{judge, "status == http.StatusConflict || slices.Contains(r.statuses, status)", "true || slices.Contains(r.statuses, status)"},
		{judge, "case said.moved():\n\t\to.Reason", "case false:\n\t\to.Reason"},
		{judge, "case no != nothing:\n\t\to = l.refusal", "case false:\n\t\to = l.refusal"},
		{judge, "case c == turnedAway:\n\t\to.Verdict = zabor.TurnedAway", "case false:\n\t\to.Verdict = zabor.TurnedAway"},
		{judge, "o.Verdict = zabor.Misdirected", "o.Verdict = zabor.TurnedAway"},
		{judge, "o.Pause = a.status/100 == 3", "o.Pause = false"},
		{judge, "if said.word == pending {\n\t\treturn zabor.Outcome{Verdict: zabor.Begun", "if said.word == pending {\n\t\treturn zabor.Outcome{Verdict: zabor.Done"},
		{judge, "return zabor.Outcome{Verdict: zabor.Done, Reference: reference}", "return zabor.Outcome{Verdict: zabor.Begun, Reference: reference}"},
		{judge, "if no == malformed {", "if false {"},
		{judge, "o.StoredRefusal = o.Verdict == zabor.Refused && l.Key.storesNo()", "o.StoredRefusal = o.Verdict == zabor.Refused"},
		{judge, "case reference == \"\":", "case false:"},
		{judge, "case id == \"\":", "case false:"},

		{"outcome.go", "case Done, Begun:\n\t\treturn adopt", "case Done:\n\t\treturn adopt"},
		{"outcome.go", "case Done, Begun:\n\t\treturn adopt", "case Begun:\n\t\treturn adopt"},
		{"outcome.go", "case Refused, Malformed:", "case Refused:"},
		{"outcome.go", "case Refused, Malformed:", "case Malformed:"},
		{"outcome.go", "if replay && !o.StoredRefusal {", "if replay {"},
		{"outcome.go", "if replay && !o.StoredRefusal {", "if !o.StoredRefusal {"},
		{"outcome.go", "if replay && !o.StoredRefusal {", "if false {"},
		{"outcome.go", "row.follow(Declined, ByCall, o.Reason)", "row.follow(Held, ByCall, o.Reason)"},
		{"outcome.go", "if o.Verdict == Malformed {", "if o.Verdict == Refused {"},
		{"outcome.go", "max(0, row.Unproven-1), o.Answer", "row.Unproven, o.Answer"},
		{"outcome.go", "case Unsent, TurnedAway:", "case Unsent:"},
		{"outcome.go", "case Unsent, TurnedAway:", "case TurnedAway:"},
		{"outcome.go", "nothingDone(row, o.Reason, !o.Unauthorized)", "nothingDone(row, o.Reason, true)"},
		{"outcome.go", "row.follow(Released, ByCall, reason)", "row.follow(Doubt, ByCall, reason)"},
		{"outcome.go", "next.Unproven = max(0, row.Unproven-1)\n\tswitch", "switch"},
		{"outcome.go", "case row.Open.Replays > 0:", "case false:"},
		{"outcome.go", "next.Tries = max(0, row.Tries-1)", "next.Tries = row.Tries"},
		{"outcome.go", "row.follow(Held, ByCall, o.Reason)", "row.follow(Doubt, ByCall, o.Reason)"},
		{"outcome.go", "row.TwoStep() && row.Prepared == \"\"", "row.TwoStep()"},
		{"outcome.go", "row.TwoStep() && row.Prepared == \"\"", "row.Prepared == \"\""},
		{"outcome.go", "next := row.follow(Doubt, ByCall, o.Reason)", "next := row.follow(Released, ByCall, o.Reason)"},
		{"outcome.go", "next.Open.Lingers || o.Lingers", "next.Open.Lingers"},
		{"outcome.go", "case row.State == Settled:\n", "case false:\n"},
		{"outcome.go", "case o.Verdict == Done:\n\t\tnext.State = Settled", "case false:\n\t\tnext.State = Settled"},
		{"outcome.go", "\t\tnext.State = Pending\n", "\t\tnext.State = Settled\n"},
		{"outcome.go", "next.OtherReference = o.Reference", "next.Reference = o.Reference"},
	}
	source, err := os.ReadFile("judge.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range regexp.MustCompile(`(?m)^\tcase (\d{3}(?:, \d{3})*):\n\t\treturn`).FindAllStringSubmatch(string(source), -1) {
		for _, status := range strings.Split(line[1], ", ") {
			less := strings.Replace(strings.Replace(", "+line[1], ", "+status, "", 1), ", ", "", 1)
			all = append(all, mutant{judge, "case " + line[1] + ":", "case " + less + ":"})
		}
	}
	return all
}

// Each row of the outcome table has a test that fails without it. All rows take
// minutes; by default the one of the day is tried, and each is looked for.
func TestMutants(t *testing.T) {
	all := mutants(t)
	if len(all) < 70 {
		t.Errorf("%d mutants: are the lists of statuses among them?", len(all))
	}
	root := t.TempDir()
	copyModule(t, root)
	day := int(time.Now().Unix()/(24*60*60)) % len(all)
	run := all[day : day+1]
	if os.Getenv("ZABOR_SOAK") != "" {
		run = all
		if out, err := tryMutant(t, root); err != nil {
			t.Fatalf("the tests fail without a mutant: %v\n%s", err, out)
		}
	}
	for _, m := range all {
		if data, err := os.ReadFile(filepath.Join(root, m.file)); err != nil || strings.Count(string(data), m.old) != 1 {
			t.Errorf("%s: %q is not there once, %v", m.file, m.old, err)
		}
	}
	for _, m := range run {
		path := filepath.Join(root, m.file)
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		write(t, path, strings.Replace(string(data), m.old, m.new, 1))
		out, err := tryMutant(t, root)
		write(t, path, string(data))
		switch {
		case err == nil:
			t.Errorf("%s: no test fails with %q in place of %q", m.file, m.new, m.old)
		case !strings.Contains(out, "--- FAIL"):
			t.Errorf("%s, %q in place of %q: %v\n%s", m.file, m.new, m.old, err, out)
		}
	}
}

// tryMutant runs the tests of the table in root.
func tryMutant(t *testing.T, root string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "go", "test", "-count=1", "-vet=off", "-run", "^(TestAfter|TestAdopt|TestCallOutcomes|TestCallStatuses|TestCallRedirects|TestStored|TestLookup|TestRules|TestPrepare)", ".", "./provider")
	cmd.Dir = root
	out, err := cmd.CombinedOutput()
	if ctx.Err() != nil {
		return string(out), errors.Join(err, ctx.Err())
	}
	return string(out), err
}

// copyModule puts the two packages of the table, what they need, and those of
// their tests that need nothing else into root.
func copyModule(t *testing.T, root string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "list", "-deps", "-f", `{{if and .Module .Module.Main}}{{.ImportPath}}{{end}}`, ".")
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	files := []string{"go.mod", "go.sum", "outcome_test.go"}
	for _, name := range strings.Fields(string(out)) {
		dir := strings.TrimPrefix(strings.TrimPrefix(name, "zabor"), "/")
		for _, pattern := range []string{"*.go", "profiles/*.yaml"} {
			found, err := filepath.Glob(filepath.Join("..", dir, pattern))
			if err != nil {
				t.Fatal(err)
			}
			for _, path := range found {
				rel := strings.TrimPrefix(path, "../")
				if !strings.HasSuffix(path, "_test.go") || dir == "provider" && internalTest(t, path) {
					files = append(files, rel)
				}
			}
		}
	}
	for _, file := range files {
		data, err := os.ReadFile(filepath.Join("..", file))
		if err != nil {
			t.Fatal(err)
		}
		to := filepath.Join(root, file)
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			t.Fatal(err)
		}
		write(t, to, string(data))
	}
}

func internalTest(t *testing.T, path string) bool {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return regexp.MustCompile(`(?m)^package provider$`).Match(data)
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(fmt.Errorf("write: %w", err))
	}
}

package doctor

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"unicode"

	"zabor/internal/app"
)

// Trees that no framework would run: each is examined to its end, and what of it is
// not understood is said.
func TestOddTrees(t *testing.T) {
	t.Parallel()
	var bomb strings.Builder
	bomb.WriteString("a: &a [x, x, x, x, x, x, x, x, x]\n")
	for c := 'b'; c < 'l'; c++ {
		fmt.Fprintf(&bomb, "%c: &%c [%s]\n", c, c, strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*%c, ", c-1), 9), ", "))
	}
	noise := make([]byte, 100_000)
	for i := range noise {
		noise[i] = byte(i * i * 31 >> 3)
	}
	for _, tt := range []struct {
		name    string
		symfony bool
		file    string
		content string
		make    func(path string) error // in place of content
		want    string                  // "severity" of ZB100 at the file; empty: nothing is said of it
	}{
		{name: "a .env of noise", file: ".env", content: string(noise), want: "warning"},
		{name: "a job of noise", file: "app/Jobs/X.php", content: "<?php class X {" + string(noise), want: "note"},
		{name: "a job that breaks off", file: "app/Jobs/X.php", content: "<?php\nclass X {{{{", want: "note"},
		{name: "configuration that breaks off", file: "config/queue.php", content: "<?php return [", want: "warning"},
		{name: "a huge job", file: "app/Jobs/X.php", content: "<?php\n" + strings.Repeat("function a() { return 1; }\n", 100_000), want: "note"},
		{name: "a file of a terabyte", file: "app/Jobs/X.php", make: func(path string) error {
			if err := os.WriteFile(path, nil, 0o600); err != nil {
				return err
			}
			return os.Truncate(path, 1<<40)
		}, want: "note"},
		{name: "deep brackets", file: "config/queue.php", content: "<?php return " + strings.Repeat("[", 100_000) + strings.Repeat("]", 100_000) + ";", want: "warning"},
		{name: "deep YAML", symfony: true, file: "config/packages/x.yaml", content: strings.Repeat("[", 100_000), want: "warning"},
		{name: "a YAML bomb", symfony: true, file: "config/packages/x.yaml", content: bomb.String()},
		{name: "YAML within itself", symfony: true, file: "config/packages/x.yaml", content: "a: &a [*a]\n"},
		{name: "YAML of noise", symfony: true, file: "config/packages/x.yaml", content: string(noise), want: "warning"},
		{name: "a pipe", file: "config/queue.php", make: func(path string) error { return syscall.Mkfifo(path, 0o600) }, want: "warning"},
		{name: "a link to what contains it", file: "app/up", make: func(path string) error { return os.Symlink("../..", path) }},
		{name: "a link to itself", file: "app/Jobs/X.php", make: func(path string) error { return os.Symlink("X.php", path) }},
		{name: "a link to nothing", file: "app/Jobs/X.php", make: func(path string) error { return os.Symlink("/nowhere", path) }},
		{name: "an empty file", file: "config/queue.php", content: ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			folder := base(t, tt.symfony)
			path := filepath.Join(folder, tt.file)
			if tt.make == nil {
				write(t, path, tt.content)
			} else {
				if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
					t.Fatal(err)
				}
				if err := tt.make(path); err != nil {
					t.Fatal(err)
				}
			}
			p, err := app.Open(folder, app.Options{})
			if err != nil {
				t.Fatal(err)
			}
			found := Examine(p, Options{Zabor: true})
			got := ""
			if i := slices.IndexFunc(found, func(f Finding) bool { return f.Code == "ZB100" && strings.HasSuffix(f.Where, tt.file) }); i >= 0 {
				got = string(found[i].Severity)
			}
			if got != tt.want {
				t.Errorf("ZB100 at %s: %q, want %q\n%s", tt.file, got, tt.want, texted(found))
			}
			var b bytes.Buffer
			if err := (Report{Findings: found, Values: Values(p)}).Text(&b, true); err != nil {
				t.Fatal(err)
			}
			for line := range strings.Lines(b.String()) {
				if len([]rune(line)) > 1000 || strings.ContainsFunc(strings.TrimSuffix(line, "\n"), func(r rune) bool { return !unicode.IsPrint(r) }) {
					t.Errorf("a person is shown %.200q", line)
				}
			}
		})
	}
}

// What a file has in it moves no terminal's cursor.
func TestTextIsForATerminal(t *testing.T) {
	t.Parallel()
	folder := base(t, false)
	write(t, filepath.Join(folder, ".env"), "APP_ENV=production\nQUEUE_CONNECTION=redis\nREDIS_PREFIX=\"\x1b[31mx\"\nREDIS_QUEUE_RETRY_AFTER=30 # \x1b[2J\x1b]0;title\x07 \u202eback\n")
	p, err := app.Open(folder, app.Options{})
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := (Report{Findings: Examine(p, Options{Zabor: true}), Values: Values(p)}).Text(&b, true); err != nil {
		t.Fatal(err)
	}
	if text := b.String(); !strings.Contains(text, "ZB110") || !strings.Contains(text, "[2J") || strings.ContainsAny(text, "\x1b\x07\u202e\t") {
		t.Errorf("%q", text)
	}
}

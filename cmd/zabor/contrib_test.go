package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-yaml"
)

func contrib(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("../../contrib", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// The YAML is YAML, and runs nothing as root.
func TestContribYAML(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"docker/compose.yaml", "kubernetes/zabor.yaml", "prometheus/zabor.rules.yaml"} {
		d := yaml.NewDecoder(strings.NewReader(contrib(t, name)))
		documents := 0
		for {
			var one map[string]any
			if err := d.Decode(&one); err != nil {
				if err.Error() != "EOF" {
					t.Errorf("%s: %v", name, err)
				}
				break
			}
			documents++
		}
		if documents == 0 {
			t.Errorf("%s is empty", name)
		}
	}
	pods := contrib(t, "kubernetes/zabor.yaml")
	for _, want := range []string{"kind: StatefulSet", "runAsNonRoot: true", "path: /livez", "path: /readyz", "readOnlyRootFilesystem: true"} {
		if !strings.Contains(pods, want) {
			t.Errorf("kubernetes/zabor.yaml has no %s", want)
		}
	}
	if image := contrib(t, "docker/Dockerfile"); !regexp.MustCompile(`(?m)^USER [1-9]`).MatchString(image) || strings.LastIndex(image, "FROM scratch") < 0 {
		t.Error("the image is not one of a program alone, for a user who is not root")
	}
}

// systemd reads the unit, and has nothing to say about it but that this host has
// no such program and no such user.
func TestContribUnit(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("systemd-analyze"); err != nil {
		t.Skip("install the package systemd")
	}
	unit := filepath.Join(t.TempDir(), "zabor.service")
	text := strings.Replace(contrib(t, "systemd/zabor.service"), "/usr/bin/zabor", "/bin/true", 1)
	if err := os.WriteFile(unit, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	out, _ := exec.CommandContext(t.Context(), "systemd-analyze", "verify", "--man=no", unit).CombinedOutput()
	for line := range strings.Lines(string(out)) {
		if strings.Contains(line, "zabor.service") {
			t.Errorf("systemd: %s", line)
		}
	}
}

var metricName = regexp.MustCompile(`\bzabor_[a-z0-9_]+`)

// Every metric that the rules and the dashboard ask for is one that zabor has.
func TestContribMetrics(t *testing.T) {
	t.Parallel()
	var known []string
	sources, err := filepath.Glob("../../metrics/*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, source := range sources {
		text, err := os.ReadFile(source)
		if err != nil || strings.HasSuffix(source, "_test.go") {
			continue
		}
		for _, found := range regexp.MustCompile(`"(zabor_[a-z0-9_]+)"`).FindAllStringSubmatch(string(text), -1) {
			known = append(known, found[1])
		}
	}
	documented := metricName.FindAllString(contrib(t, "../docs/metrics.md"), -1)
	for _, name := range known {
		if !slices.Contains(documented, name) {
			t.Errorf("%s is not in docs/metrics.md", name)
		}
	}
	var board struct {
		Panels []struct {
			ID      int
			Title   string
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal([]byte(contrib(t, "grafana/zabor.json")), &board); err != nil {
		t.Fatal(err)
	}
	asked := map[string]string{"zabor.rules.yaml": contrib(t, "prometheus/zabor.rules.yaml")}
	for _, p := range board.Panels {
		for _, target := range p.Targets {
			asked["panel "+p.Title] += target.Expr + "\n"
		}
	}
	if len(known) < 15 || len(board.Panels) < 10 {
		t.Fatalf("%d metrics, %d panels", len(known), len(board.Panels))
	}
	for where, text := range asked {
		for _, name := range metricName.FindAllString(text, -1) {
			base := name
			for _, part := range []string{"_bucket", "_sum", "_count"} {
				if trimmed := strings.TrimSuffix(name, part); slices.Contains(known, trimmed) {
					base = trimmed
				}
			}
			if !slices.Contains(known, base) {
				t.Errorf("%s asks for %s, which zabor does not have", where, name)
			}
		}
	}
	if _, err := exec.LookPath("promtool"); err == nil {
		if out, err := exec.CommandContext(t.Context(), "promtool", "check", "rules", "../../contrib/prometheus/zabor.rules.yaml").CombinedOutput(); err != nil {
			t.Errorf("promtool: %s", out)
		}
	}
}

// The rules are what Prometheus reads: each has a name, an expression, and says what
// to do.
func TestContribRules(t *testing.T) {
	t.Parallel()
	var rules struct {
		Groups []struct {
			Name  string
			Rules []struct {
				Alert, Expr, For    string
				Labels, Annotations map[string]string
			}
		}
	}
	if err := yaml.UnmarshalWithOptions([]byte(contrib(t, "prometheus/zabor.rules.yaml")), &rules, yaml.Strict()); err != nil {
		t.Fatal(err)
	}
	for _, g := range rules.Groups {
		for _, r := range g.Rules {
			if r.Alert == "" || r.Expr == "" || r.Labels["severity"] == "" || r.Annotations["summary"] == "" || r.Annotations["description"] == "" {
				t.Errorf("incomplete: %+v", r)
			}
			if r.For != "" {
				if _, err := time.ParseDuration(r.For); err != nil {
					t.Errorf("%s: %v", r.Alert, err)
				}
			}
			if strings.Count(r.Expr, "(") != strings.Count(r.Expr, ")") || strings.Count(r.Expr, "{") != strings.Count(r.Expr, "}") {
				t.Errorf("%s: unbalanced: %s", r.Alert, r.Expr)
			}
		}
	}
}

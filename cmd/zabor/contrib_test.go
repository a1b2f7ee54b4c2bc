package main

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-yaml"

	"zabor"
	"zabor/audit"
	"zabor/internal/config"
	"zabor/internal/serve"
	"zabor/metrics"
	"zabor/sqlstore"
)

func contrib(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("../../contrib", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// Whoever stops a worker of the examples waits for longer than the worker of the
// example configuration says that it may need.
func TestContribGrace(t *testing.T) {
	t.Parallel()
	env := config.Env{Lookup: func(name string) (string, bool) {
		switch {
		case strings.HasSuffix(name, "_FILE"), name == "CREDENTIALS_DIRECTORY":
			return "", false
		case strings.HasSuffix(name, "_HASH"):
			return "$argon2id$v=19$m=19456,t=2,p=1$c2FsdHNhbHQ$AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA", true
		case strings.HasSuffix(name, "_DSN"):
			return "redis://127.0.0.1:6379/messages/symfony", true
		case strings.HasSuffix(name, "_URL"):
			return "slack://token@channel", true
		case name == "DB_PORT":
			return "3306", true
		case name == "ZABOR_KEY":
			return strings.Repeat("k", 32), true
		case name == "APP_KEY", strings.HasPrefix(name, "ZABOR_"):
			return "", true
		}
		return "test_example", true
	}}
	file, err := config.Load("../../zabor.example.yaml", env)
	if err != nil {
		t.Fatal(err)
	}
	file.Traces = &config.Traces{}
	needs := serve.SecondsToStop(file)
	if needs < 30 {
		t.Fatalf("the example needs %d seconds to stop", needs)
	}
	for _, tt := range []struct {
		file, grace string // its one group is seconds
	}{
		{"systemd/zabor.service", `(?m)^TimeoutStopSec=(\d+)$`},
		{"supervisor/zabor.conf", `(?m)^stopwaitsecs=(\d+)$`},
		{"docker/compose.yaml", `stop_grace_period: (\d+)s\n`},
		{"kubernetes/zabor.yaml", `terminationGracePeriodSeconds: (\d+)\n`},
	} {
		found := regexp.MustCompile(tt.grace).FindAllStringSubmatch(contrib(t, tt.file), -1)
		if len(found) != 1 {
			t.Errorf("%s: %d graces", tt.file, len(found))
			continue
		}
		if got, _ := strconv.Atoi(found[0][1]); got <= needs {
			t.Errorf("%s waits %d s, and a stop may take %d s", tt.file, got, needs)
		}
	}
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

// served are the metrics that processes answer with once everything has happened to
// them, with the labels of each.
func served(t *testing.T) map[string][]string {
	t.Helper()
	store, err := sqlstore.Open("sqlite://" + filepath.Join(t.TempDir(), "fence.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	if err := store.Setup().Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	m := metrics.New("v", "h")
	fence := zabor.Fence{Store: m.Store(store), Secret: make([]byte, zabor.MinSecret), Observer: zabor.Observer{Called: m.Called}}
	for range 2 { // a call and a repeat
		if _, err := fence.Do(t.Context(), zabor.Effect{
			Key: zabor.Key{Order: "1", Step: "charge"}, Provider: "stripe", Fingerprint: zabor.Fingerprint{Message: "m", Request: "f"},
			Render:  func(zabor.ProviderKeys, string) ([]byte, error) { return []byte("{}"), nil },
			Timeout: 10 * time.Second, MaxAttempts: 3, HoldAfter: time.Hour, PendingFor: time.Hour, MissingRow: zabor.Captured,
		}, func(context.Context, zabor.Row) zabor.Outcome {
			return zabor.Outcome{Verdict: zabor.Done, Reference: "pay_1"}
		}); err != nil {
			t.Fatal(err)
		}
	}
	away := errors.New("away")
	_, _ = m.Lookup(func(context.Context, zabor.Row) (zabor.Finding, error) { return zabor.Finding{}, away })(t.Context(), zabor.Row{Endpoint: zabor.Endpoint{Provider: "stripe"}})
	m.Alert(zabor.Alert{Code: "held", Severity: zabor.Warning})
	m.Taken("payments")
	m.Watch(metrics.State{
		Rows: func(context.Context) ([]metrics.Rows, error) {
			return []metrics.Rows{{State: zabor.Held, N: 1, Older: []int64{1, 0, 0, 0, 0}}}, nil
		},
		Queues: []metrics.Queue{{Name: "payments", Depth: func(context.Context) (ready, reserved, delayed int64, err error) { return 1, 0, 0, nil },
			Oldest: func(context.Context) (time.Time, error) { return time.Now(), nil }}},
		Paused: func(string) time.Duration { return 0 }, Providers: []string{"stripe"}, AlertsLost: func() int64 { return 0 }, Unsaved: func() int { return 0 },
	})
	kinds, severities := audit.Kinds()
	names := map[string]string{}
	for i, kind := range kinds {
		names[string(kind)] = string(severities[i])
	}
	m.Audits(names).Ended(metrics.Audit{}, time.Second, nil)
	store.Close()
	if _, err := fence.Store.Load(t.Context(), zabor.Key{Order: "1", Step: "charge"}); err == nil {
		t.Fatal("a closed store answers")
	}
	families, err := m.Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	all := map[string][]string{}
	for _, f := range families {
		if !strings.HasPrefix(f.GetName(), "zabor_") {
			continue
		}
		all[f.GetName()] = nil
		for _, l := range f.GetMetric()[0].GetLabel() {
			all[f.GetName()] = append(all[f.GetName()], l.GetName())
		}
		slices.Sort(all[f.GetName()])
	}
	return all
}

// The documentation has every metric that is served, with its labels, and no other.
// What the rules and the Grafana dashboard ask for is held against it by
// tools/rules, with Prometheus's own parser.
func TestMetricsAreDocumented(t *testing.T) {
	t.Parallel()
	documented := map[string][]string{}
	for _, line := range regexp.MustCompile("(?m)^\\| (`zabor_[^|]*) \\|([a-z, ]*)\\|").FindAllStringSubmatch(contrib(t, "../docs/metrics.md"), -1) {
		for _, name := range regexp.MustCompile(`zabor_[a-z_]+`).FindAllString(line[1], -1) {
			documented[name] = strings.FieldsFunc(line[2], func(r rune) bool { return r == ' ' || r == ',' })
			slices.Sort(documented[name])
		}
	}
	real := served(t)
	for name, labels := range real {
		if got, there := documented[name]; !there || !slices.Equal(got, labels) {
			t.Errorf("%s has the labels %q, and is documented with %q", name, labels, got)
		}
	}
	for name := range documented {
		if _, there := real[name]; !there {
			t.Errorf("%s is documented, and not served", name)
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
		}
	}
}

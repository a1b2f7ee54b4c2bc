package doctor

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"zabor/internal/app"
)

// base is an application in which only the examples of docs/doctor.md are wrong.
func base(t *testing.T, symfony bool) string {
	t.Helper()
	files := map[string]string{
		"composer.json":     `{"require": {"laravel/framework": "^11.0"}}`,
		".env":              "APP_NAME=Shop\nAPP_ENV=production\nQUEUE_CONNECTION=redis\n",
		"app/Jobs/Mail.php": "<?php\nnamespace App\\Jobs;\nclass Mail implements \\Illuminate\\Contracts\\Queue\\ShouldQueue { public function handle() {} }\n",
	}
	if symfony {
		files = map[string]string{
			"composer.json":                  `{"require": {"symfony/messenger": "7.2.*"}}`,
			".env":                           "APP_ENV=prod\nMESSENGER_CONSUMER_NAME=x\nDATABASE_URL=mysql://shop@127.0.0.1/shop\n",
			"config/packages/messenger.yaml": "framework:\n    messenger:\n        transports:\n            async: 'redis://localhost/async'\n        routing:\n            App\\Message\\ChargeOrder: async\n",
			"src/Message/ChargeOrder.php":    "<?php\nnamespace App\\Message;\nclass ChargeOrder {}\n",
			"src/Handler/ChargeHandler.php":  "<?php\nnamespace App\\Handler;\nuse App\\Message\\ChargeOrder;\n#[\\Symfony\\Component\\Messenger\\Attribute\\AsMessageHandler]\nclass ChargeHandler { public function __invoke(ChargeOrder $m, \\Stripe\\StripeClient $stripe) { $stripe->charges->create([]); } }\n",
		}
	}
	folder := t.TempDir()
	for name, content := range files {
		write(t, filepath.Join(folder, name), content)
	}
	return folder
}

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

var (
	section = regexp.MustCompile(`(?m)^## (ZB\d{3}): (.*)$`)
	example = regexp.MustCompile("(?ms)^```\\w+ (bad|good) (\\S+)\n(.*?)^```")
)

// docs/doctor.md has a section for each code, with a bad and a good example and
// where it comes from; the examples that are files of an application are tried:
// the rule finds the bad one, and is silent about the good one.
func TestDocs(t *testing.T) {
	t.Parallel()
	content, err := os.ReadFile("../docs/doctor.md")
	if err != nil {
		t.Fatal(err)
	}
	text := string(content)
	starts := section.FindAllStringSubmatchIndex(text, -1)
	sections := map[string]string{}
	for i, at := range starts {
		end := len(text)
		if i+1 < len(starts) {
			end = starts[i+1][0]
		}
		sections[text[at[2]:at[3]]] = text[at[0]:end]
	}
	if len(sections) != len(Rules()) {
		t.Errorf("%d sections, %d rules", len(sections), len(Rules()))
	}
	for _, rule := range Rules() {
		body := sections[rule.Code]
		if !strings.HasPrefix(body, "## "+rule.Code+": "+rule.Name+"\n") {
			t.Errorf("%s: no section with its name %q", rule.Code, rule.Name)
			continue
		}
		if rule.Incident != "" && !strings.Contains(body, "From: "+rule.Incident+"\n") || !strings.Contains(body, "From: ") {
			t.Errorf("%s: does not say that it comes from %q", rule.Code, rule.Incident)
		}
		if !strings.Contains(body, "bad") || !strings.Contains(body, "good") {
			t.Errorf("%s: no example of both kinds", rule.Code)
		}
		kinds := map[string]bool{}
		for _, e := range example.FindAllStringSubmatch(body, -1) {
			kind, name, code := e[1], e[2], e[3]
			kinds[kind] = true
			folder := base(t, strings.HasPrefix(name, "src/") || strings.HasSuffix(name, ".yaml"))
			write(t, filepath.Join(folder, name), code)
			p, err := app.Open(folder, app.Options{})
			if err != nil {
				t.Fatal(err)
			}
			found := slices.ContainsFunc(Examine(p, Options{Zabor: true}), func(f Finding) bool { return f.Code == rule.Code && strings.HasSuffix(f.Where, name) })
			if found != (kind == "bad") {
				t.Errorf("%s: the %s example: found is %v\n%s", rule.Code, kind, found, code)
			}
		}
		if rule.check != nil && rule.Code != "ZB100" && len(kinds) != 2 {
			t.Errorf("%s: its examples are not tried", rule.Code)
		}
	}
}

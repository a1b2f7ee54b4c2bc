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

// What hit people who run queues, in the words of the public report: each is a
// source that the rule of that code finds, and its twin that it does not. The
// policies of a Redis (sidekiq/sidekiq#2883, B027; fleetyards/fleetyards#4335, B029;
// rq/rq#1280, B031) are in TestEviction, a forbidden CONFIG is in
// TestConfigForbidden, and a live consumer's name in TestQueuesOnServer.
func TestReports(t *testing.T) {
	t.Parallel()
	redis := func(prefix string, cacheDB int) map[string]string {
		text := `<?php
return ['redis' => ['client' => 'phpredis', 'options' => ['prefix' => '` + prefix + `'],
    'default' => ['host' => 'redis', 'port' => 6379, 'database' => 0],
    'cache' => ['host' => 'redis', 'port' => 6379, 'database' => ` + string(rune('0'+cacheDB)) + `],
]];`
		return map[string]string{
			"config/database.php": text,
			"config/cache.php":    "<?php\nreturn ['default' => 'redis', 'prefix' => 'shop_', 'stores' => ['redis' => ['driver' => 'redis', 'connection' => 'cache']]];\n",
			"config/queue.php":    "<?php\nreturn ['default' => 'redis', 'connections' => ['redis' => ['driver' => 'redis', 'connection' => 'default', 'queue' => 'default', 'retry_after' => 90]]];\n",
		}
	}
	dsn := func(options string) map[string]string {
		return map[string]string{"config/packages/messenger.yaml": "framework:\n    messenger:\n        transports:\n            async: 'redis://localhost/async" + options + "'\n        routing:\n            App\\Message\\ChargeOrder: async\n"}
	}
	job := func(body string) map[string]string {
		return map[string]string{"app/Jobs/Pay.php": "<?php\nnamespace App\\Jobs;\nuse Illuminate\\Support\\Facades\\Cache;\nuse Illuminate\\Support\\Facades\\Http;\nclass Pay implements \\Illuminate\\Contracts\\Queue\\ShouldQueue {\npublic function handle() {\n" + body + "\n}\n}\n"}
	}
	const post = "Http::post('https://api.stripe.com/v1/charges', []);"
	for _, tt := range []struct {
		report    string
		code      string
		symfony   bool
		bad, good map[string]string
	}{
		{"laravel/horizon#72 B033: cache:clear is FLUSHDB", "ZB130", false, redis("", 0), redis("", 1)},
		{"laravel/horizon#1059 B035: a prefix is no separation", "ZB130", false, redis("shop_", 0), redis("shop_", 1)},
		{"symfony/symfony#35358 B137: two consumers of one name", "ZB140", true, dsn("/symfony/worker"), map[string]string{
			"config/packages/messenger.yaml": "framework:\n    messenger:\n        transports:\n            async: 'redis://localhost/async/symfony/%env(MESSENGER_CONSUMER_NAME)%'\n        routing:\n            App\\Message\\ChargeOrder: async\n"}},
		{"symfony/symfony#53406 B139: stream_max_entries trims what is being handled", "ZB141", true, dsn("?stream_max_entries=100"), dsn("?stream_max_entries=0")},
		{"opsmill/infrahub#9450 B083: a lock is the only guard", "ZB151", false,
			job("Cache::lock('pay')->get(function () {});\n" + post), job("\\DB::table('fences')->insert(['order_id' => 1]);\nCache::lock('pay')->get(function () {});\n" + post)},
	} {
		t.Run(tt.report, func(t *testing.T) {
			t.Parallel()
			for kind, files := range map[string]map[string]string{"bad": tt.bad, "good": tt.good} {
				folder := base(t, tt.symfony)
				for name, content := range files {
					write(t, filepath.Join(folder, name), content)
				}
				p, err := app.Open(folder, app.Options{})
				if err != nil {
					t.Fatal(err)
				}
				found := Examine(p, Options{Zabor: true})
				if got := slices.ContainsFunc(found, func(f Finding) bool { return f.Code == tt.code }); got != (kind == "bad") {
					t.Errorf("the %s one: %s found is %t\n%s", kind, tt.code, got, texted(found))
				}
			}
		})
	}
}

// The effective setting counts, not the wished one, and its origin is told
// (celery/celery#5306, B015).
func TestReportOfTheEffectiveValue(t *testing.T) {
	t.Parallel()
	folder := base(t, false)
	write(t, filepath.Join(folder, "config/queue.php"), "<?php\nreturn ['default' => 'redis', 'connections' => ['redis' => ['driver' => 'redis', 'connection' => 'default', 'queue' => 'default', 'retry_after' => env('RETRY_AFTER', 900)]]];\n")
	write(t, filepath.Join(folder, "app/Jobs/Mail.php"), "<?php\nnamespace App\\Jobs;\nclass Mail implements \\Illuminate\\Contracts\\Queue\\ShouldQueue { public $timeout = 120; public function handle() {} }\n")
	for _, tt := range []struct {
		value string
		found bool
	}{{"30", true}, {"600", false}} {
		p, err := app.Open(folder, app.Options{Lookup: func(name string) (string, bool) { return tt.value, name == "RETRY_AFTER" }})
		if err != nil {
			t.Fatal(err)
		}
		text := ""
		for _, f := range Examine(p, Options{Zabor: true}) {
			if f.Code == "ZB110" {
				text += f.Found
			}
		}
		if (text != "") != tt.found || tt.found && (!strings.Contains(text, "30") || !strings.Contains(text, "the environment (RETRY_AFTER)")) {
			t.Errorf("with RETRY_AFTER=%s in the environment: %q", tt.value, text)
		}
	}
}

// Every code is tried in both directions: one that a file shows in a bad shop or in
// an example of docs/doctor.md, one that a server shows in the tables of these
// tests, or of the command's script.
func TestEveryCodeIsTried(t *testing.T) {
	t.Parallel()
	tried := map[string]bool{}
	for _, shop := range []string{"laravel8", "laravel11", "symfony54", "symfony7"} {
		for _, place := range marked(t, "testdata/"+shop+"/bad") {
			tried[place[strings.LastIndexByte(place, ' ')+1:]] = true
		}
	}
	for _, file := range []string{"servers_test.go", "app_servers_test.go", "doctor_test.go", "output_test.go"} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`"(ZB\d{3}) (?:error|warning|note)"`).FindAllStringSubmatch(string(text), -1) {
			tried[m[1]] = true
		}
	}
	script, err := os.ReadFile("../cmd/zabor/testdata/script/doctor.txtar") // what the command adds
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile(`(?m)^stdout (ZB\d{3})$`).FindAllStringSubmatch(string(script), -1) {
		tried[m[1]] = true
	}
	docs, err := os.ReadFile("../docs/doctor.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range strings.Split(string(docs), "\n## ") {
		if code, _, ok := strings.Cut(part, ":"); ok && len(example.FindAllString(part, -1)) >= 2 {
			tried[code] = true
		}
	}
	for _, r := range Rules() {
		if !tried[r.Code] {
			t.Errorf("%s (%s): no test has it found", r.Code, r.Name)
		}
	}
	for code := range tried {
		if !slices.ContainsFunc(Rules(), func(r Rule) bool { return r.Code == code }) {
			t.Errorf("%s is tried and is no rule", code)
		}
	}
}

package app

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// project writes files and reads them.
func project(t testing.TB, o Options, files map[string]string) *Project {
	t.Helper()
	folder := t.TempDir()
	for name, content := range files {
		path := filepath.Join(folder, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	p, err := Open(folder, o)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// What PHP expressions of configuration files come to, and where it was decided.
func TestEvaluate(t *testing.T) {
	t.Parallel()
	lookup := func(name string) (string, bool) {
		v, ok := map[string]string{"SET": "7", "YES": "(true)", "NOTHING": "null", "EMPTY": "", "NAME": "My Shop"}[name]
		return v, ok
	}
	for _, c := range []struct{ expression, want, from string }{
		{`'it\'s'`, "it's", "f.php:1"},
		{`"a\tb"`, "a\tb", "f.php:1"},
		{`1_000`, "1000", "f.php:1"},
		{`0x10`, "16", "f.php:1"},
		{`-5`, "-5", "f.php:1"},
		{`60 * 60 + 1`, "3601", "f.php:1"},
		{`env('SET', 9)`, "7", "the environment (SET), read in f.php:1"},
		{`(int) env('SET', 9)`, "7", "the environment (SET), read in f.php:1"},
		{`env('OTHER', 9)`, "9", "f.php:1 (OTHER is not set)"},
		{`env('YES')`, "true", "the environment (YES), read in f.php:1"},
		{`env('NOTHING', 5)`, "null", "the environment (NOTHING), read in f.php:1"},
		{`env('EMPTY', 5)`, `""`, "the environment (EMPTY), read in f.php:1"},
		{`Str::slug(env('NAME', 'laravel'), '_').'_database_'`, "my_shop_database_", "the environment (NAME), read in f.php:1"},
		{`Str::slug((string) env('NAME', 'laravel')).'-cache-'`, "my-shop-cache-", "the environment (NAME), read in f.php:1"},
		{`env('OTHER') ?: 'x'`, "x", "f.php:1"},
		{`env('OTHER') ?? 'x'`, "x", "f.php:1"},
		{`true ? 'a' : 'b'`, "a", "f.php:1"},
		{`storage_path('framework')`, "storage/framework", "f.php:1"},
		{`App\Jobs\X::class`, `App\Jobs\X`, "f.php:1"},
		{`['a', 'k' => 2]`, "[0, k]", "f.php:1"},
		{`[...explode(',', 'a,b'), 'c']`, "[0, 1, 2]", "f.php:1"},
		{`array_merge(['a' => 1], ['b' => 2])`, "[a, b]", "f.php:1"},
		{`Redis::SERIALIZER_PHP`, "not known (Redis::SERIALIZER_PHP)", "f.php:1"},
		{`config('app.name')`, "not known (config('app.name'))", "f.php:1"},
		{`'x'.gethostname()`, "not known ('x'.gethostname())", "f.php:1"},
	} {
		s := parsePHP("f.php", []byte("<?php return "+c.expression+";"))
		if len(s.broken) > 0 {
			t.Errorf("%s: %v", c.expression, s.broken)
		}
		e := evaluator{syntax: s, env: &environment{lookup: lookup}}
		v := e.returned()
		if v.String() != c.want || v.From.String() != c.from {
			t.Errorf("%s: %s from %s, want %s from %s", c.expression, v, v.From, c.want, c.from)
		}
	}
}

// Newer syntax that means nothing here is read; what is not understood is said,
// with its line, and the rest of the project is read.
func TestSyntax(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		source string
		line   int // of the notice; 0: none
	}{
		{"<?php\nfinal readonly class A { public function __construct(private ?B $b = new B()) {} }", 0},
		{"<?php\n#[A(b: 'c'), D]\nenum E: string implements F { case G = 'g'; const H = self::G; }", 0},
		{"<?php\nclass A { const string B = 'b'; public private(set) string $c = ''; }", 0},
		{"<?php\nclass A { public function __construct(public protected(set) int $c) {} }", 0},
		{"<?php\nfunction f((A&B)|null $x): never {}", 0},
		{"<?php\n\nclass A {\n    public string $x { get => 'a'; }\n}", 0},
		{"<?php\nclass {", 2},
	} {
		s := parsePHP("f.php", []byte(c.source))
		switch {
		case c.line == 0 && len(s.broken) > 0:
			t.Errorf("%q: %v", c.source, s.broken)
		case c.line > 0 && (len(s.broken) != 1 || s.broken[0].Line != c.line):
			t.Errorf("%q: %v, want a notice of line %d", c.source, s.broken, c.line)
		}
	}
}

// Calls with what they are called on, through chains, properties and types.
func TestCalls(t *testing.T) {
	t.Parallel()
	s := parsePHP("f.php", []byte(`<?php
namespace App;
use Illuminate\Support\Facades\Http;
use Stripe\StripeClient;
class A {
    private $late;
    public function __construct(private StripeClient $stripe, B $b) { $this->late = $b; }
    public function run(C $c) {
        Http::timeout(5)
            ->post('https://x', ['k' => $c]);
        $this->stripe->charges->create([]);
        $this->late?->go();
        $d = new D(1);
        $d->end(name: 'x');
        strlen('a');
    }
}`))
	classes := s.classes()
	if len(s.broken) > 0 || len(classes) != 1 {
		t.Fatalf("%v %v", classes, s.broken)
	}
	got := []string{}
	for _, c := range classes[0].Method("run").Calls {
		got = append(got, strings.Join([]string{c.Class, strings.Join(c.Via, "."), c.Name, strings.Repeat("<", len(c.Chain())-1)}, " "))
	}
	want := []string{
		`Illuminate\Support\Facades\Http  post <`, `Illuminate\Support\Facades\Http  timeout `,
		`Stripe\StripeClient charges create `, `App\B  go `, `App\D  new `, `App\D  end `, `  strlen `,
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("%q\nwant\n%q", got, want)
	}
	if line := classes[0].Method("run").Calls[0].Line; line != 10 {
		t.Errorf("post is on line %d, want 10", line)
	}
}

// Laravel with a cached configuration reads neither config/ nor .env.
func TestCachedConfiguration(t *testing.T) {
	t.Parallel()
	p := project(t, Options{}, map[string]string{
		"artisan": "", ".env": "APP_ENV=local\nQUEUE_CONNECTION=sync\n",
		"config/queue.php":           "<?php return ['default' => env('QUEUE_CONNECTION')];",
		"bootstrap/cache/config.php": "<?php return array(\n  'app' => array('env' => 'staging'),\n  'queue' => array(\n    'default' => 'redis',\n  ),\n);",
	})
	if v := p.Config.Get("queue.default"); v.Str() != "redis" || v.From.String() != "bootstrap/cache/config.php:4" || !p.Cached {
		t.Errorf("queue.default is %s (%s), cached %v", v, v.From, p.Cached)
	}
	if p.Environment.Str() != "staging" {
		t.Errorf("environment %s", p.Environment)
	}
}

// The environment wins over .env, and the value says so (celery/celery#5306).
func TestEnvironmentWins(t *testing.T) {
	t.Parallel()
	files := map[string]string{
		"artisan": "", ".env": "# the shop\nREDIS_QUEUE_RETRY_AFTER=30\nQUEUE_CONNECTION=redis\n", "composer.json": `{"require": {"laravel/framework": "^11.0"}}`,
	}
	for _, c := range []struct {
		lookup     func(string) (string, bool)
		want, from string
	}{
		{nil, "30", ".env:2 (REDIS_QUEUE_RETRY_AFTER)"},
		{func(name string) (string, bool) { return "120", name == "REDIS_QUEUE_RETRY_AFTER" }, "120", "the environment (REDIS_QUEUE_RETRY_AFTER)"},
	} {
		q := project(t, Options{Lookup: c.lookup}, files).Queue("")
		if q == nil || q.Reserve.String() != c.want || q.Reserve.From.String() != c.from {
			t.Errorf("%+v, want %s from %s", q, c.want, c.from)
		}
	}
	delete(files, ".env")
	q := project(t, Options{}, files).Queue("redis")
	if got := q.Reserve.From.String(); q.Reserve.Str() != "90" || got != "default of Laravel 11 (REDIS_QUEUE_RETRY_AFTER is not set), not set in config/queue.php" {
		t.Errorf("%s from %s", q.Reserve, got)
	}
}

// Symfony's files in their order, its placeholders, and the options of a DSN.
func TestSymfony(t *testing.T) {
	t.Parallel()
	files := map[string]string{
		"composer.json": `{"require": {"symfony/messenger": "5.4.*"}}`,
		".env":          "APP_ENV=dev\nDSN=redis://one:6379/a\nN=5\n", ".env.local": "DSN=redis://two:6379/b/g/c\n", ".env.prod": "N=6\n",
		"config/services.yaml": "parameters:\n    env(FALLBACK): redis://three\n    app.stream: s\n",
		"config/packages/messenger.yaml": `framework:
    messenger:
        transports:
            async:
                dsn: '%env(resolve:DSN)%'
                options: {stream: '%app.stream%', redeliver_timeout: '%env(int:N)%'}
            other: '%env(FALLBACK)%'
            lost: '%env(NOWHERE)%'
when@prod:
    framework:
        messenger:
            transports:
                async:
                    options: {claim_interval: 100}
when@dev:
    framework:
        messenger:
            transports: {async: 'sync://'}
`,
	}
	p := project(t, Options{}, files)
	if p.Environment.Str() != "prod" || len(p.Notices) > 0 {
		t.Errorf("environment %s, notices %v", p.Environment, p.Notices)
	}
	queues := p.Queues()
	if len(queues) != 3 {
		t.Fatalf("%d transports", len(queues))
	}
	async := queues[0]
	for name, want := range map[string]string{
		"stream": "b .env.local:1 (DSN)", "group": "g .env.local:1 (DSN)", "consumer": "c .env.local:1 (DSN)",
		"redeliver_timeout": "6 .env.prod:1 (N)", "claim_interval": "100 config/packages/messenger.yaml:14",
		"delete_after_ack": "false default of Symfony 5, not set in config/packages/messenger.yaml",
	} {
		if got := async.Options[name].String() + " " + async.Options[name].From.String(); got != want {
			t.Errorf("%s is %s, want %s", name, got, want)
		}
	}
	if queues[1].Redis.Server() != "three:6379" || queues[2].Driver != "" || queues[2].DSN.Known() {
		t.Errorf("other is at %s, lost is %s", queues[1].Redis.Server(), queues[2].DSN)
	}

	debug := filepath.Join(t.TempDir(), "framework.json")
	if err := os.WriteFile(debug, []byte(`{"messenger": {"transports": {"async": {"dsn": "redis://four:6379/x", "options": []}}}}`), 0o644); err != nil {
		t.Fatal(err)
	}
	queues = project(t, Options{DebugConfig: debug, Environment: "staging"}, files).Queues()
	if len(queues) != 1 || queues[0].Redis.Server() != "four:6379" {
		t.Errorf("debug:config: %+v", queues)
	}
}

// Whatever a file holds, reading it ends, and does not panic.
func FuzzPHP(f *testing.F) {
	for _, seed := range []string{
		"<?php return ['a' => env('B', 1)];", "<?php class A extends B { use C; public $d = 1; function e() { F::g()->h(); } }",
		"<?php #[A] enum B: int { case C = 1; }", "<?php return [...$a, ...[1]];", "<?php return <<<X\n a {$b} \n X;", "<?php const string A = 1;", "<?php return 'a", "<", "<?php 1; ?>a<",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, content []byte) {
		s := parsePHP("f.php", content)
		s.classes()
		e := evaluator{syntax: s, env: &environment{}}
		e.returned()
	})
}

// Whatever a YAML or dotenv file holds, reading it ends, and does not panic.
func FuzzYAML(f *testing.F) {
	for _, seed := range []string{"a: {b: [1, '%env(C)%']}\nwhen@prod:\n  a: !php/const X\n", "a: &a [1]\nb: *a\n<<: *a\n", "- - - 1\n? x\n: y\n", "a: |\n  b\n--- \n...", "\t- {"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, content []byte) { parseYAML("f.yaml", content) })
}

func FuzzEnv(f *testing.F) {
	for _, seed := range []string{"A=1\nexport B=\"${A}x\"\n# c\nC='$A'\n", "A=$A$A\nA=${A}${A}", "=\n\"", "A=\"b\nc\"", "A=$(rm -rf /)"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, content []byte) {
		folder := t.TempDir()
		if err := os.WriteFile(filepath.Join(folder, ".env"), content, 0o600); err != nil {
			t.Fatal(err)
		}
		p := &Project{Root: folder, files: map[string][]byte{}, env: &environment{values: map[string]variable{}}}
		p.load(".env")
	})
}

// Where releases are switched by a symbolic link, what it points to is read.
func TestSymbolicLink(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	release, current := filepath.Join(folder, "release"), filepath.Join(folder, "current")
	if err := os.CopyFS(release, os.DirFS("../../doctor/testdata/laravel8/good")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(release, current); err != nil {
		t.Fatal(err)
	}
	p, err := Open(current, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if c := p.Class(`App\Jobs\ChargeOrder`); c == nil || c.File != "app/Jobs/ChargeOrder.php" {
		t.Errorf("the job is %+v", c)
	}
}

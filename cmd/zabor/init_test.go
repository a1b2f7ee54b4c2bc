package main

import (
	"bytes"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"zabor/internal/exit"
)

// What init prints of an application passes config check, says where each value
// was found, and holds no secret.
func TestInit(t *testing.T) {
	t.Parallel()
	for shop, want := range map[string][]string{
		"laravel8": {
			`fence: "mysql://${DB_USERNAME}@${DB_HOST}:${DB_PORT}/${DB_DATABASE}"`, `redis: "redis://${REDIS_HOST}:${REDIS_PORT}/${REDIS_DB:-0}"`,
			`prefix: "shop_database_" # .env:1 (APP_NAME)`, `horizon: "shop_horizon:" # config/horizon.php:7`, `retry_after: 180s # config/queue.php:45`,
			`{prefix: "shop_database_shop_cache", db: 1}`, `# message: 'App\Jobs\ChargeOrder'`, `# order: order.id`, `# 'App\Jobs\SendLoginAlert': default`,
		},
		"laravel11": {`retry_after: 120s # .env:40 (REDIS_QUEUE_RETRY_AFTER)`, `timezone: "UTC" # .env:5 (APP_TIMEZONE)`, `# order: orderId`, `# amount: cents`},
		"symfony54": {
			`fence: "${DATABASE_URL}"`, `dsn: "${MESSENGER_TRANSPORT_DSN}?stream=shop&delete_after_ack=true"`, `redeliver_timeout: 300s # config/packages/messenger.yaml:11`,
			`failed: {queue_name: "failed"}`, `# message: 'App\Message\RefundOrder'`, `# order: orderId`,
		},
		"symfony7": {`dsn: "${MESSENGER_TRANSPORT_DSN}" # .env.local:2`, `redeliver_timeout: 300s # config/packages/messenger.yaml:20`, `'App\Enum\Currency': {Euro: "EUR", Dollar: "USD"} # src/Enum/Currency.php:5`},
	} {
		t.Run(shop, func(t *testing.T) {
			t.Parallel()
			folder := "../../doctor/testdata/" + shop + "/good"
			var out, log bytes.Buffer
			if code := run(t.Context(), []string{"init", folder}, &out, &log); code != exit.Good {
				t.Fatalf("exit %d\n%s", code, log.String())
			}
			flat := strings.Join(strings.Fields(out.String()), " ")
			for _, text := range want {
				if !strings.Contains(flat, text) {
					t.Errorf("no %s in\n%s", text, out.String())
				}
			}
			for _, secret := range []string{"s3cret", "secret@", "8d2f37a1c64b0e95"} {
				if strings.Contains(out.String(), secret) {
					t.Errorf("%q is printed", secret)
				}
			}
			file, env := filepath.Join(t.TempDir(), "zabor.yaml"), filepath.Join(t.TempDir(), "env")
			if err := os.WriteFile(file, out.Bytes(), 0o600); err != nil {
				t.Fatal(err)
			}
			var variables []byte
			for _, name := range []string{".env", ".env.local"} {
				content, _ := os.ReadFile(filepath.Join(folder, name)) // not every shop has both
				variables = append(append(variables, content...), '\n')
			}
			if err := os.WriteFile(env, variables, 0o600); err != nil {
				t.Fatal(err)
			}
			var checked bytes.Buffer
			if code := run(t.Context(), []string{"config", "check", "-c", file, "--env-file", env}, &checked, &log); code != exit.Good {
				t.Errorf("config check: exit %d\n%s%s\n%s", code, checked.String(), log.String(), out.String())
			}
		})
	}
}

// Where the application notes a tenant beside its messages, the steps have it as their
// scope.
func TestInitTenants(t *testing.T) {
	t.Parallel()
	const charge = "<?php\nnamespace App\\Jobs;\nclass ChargeOrder implements \\Illuminate\\Contracts\\Queue\\ShouldQueue { public function __construct(public int $orderId) {} public function handle(\\Stripe\\StripeClient $stripe) { $stripe->paymentIntents->create([]); } }\n"
	const handler = "<?php\nnamespace App\\MessageHandler;\nuse App\\Message\\Charge;\n#[\\Symfony\\Component\\Messenger\\Attribute\\AsMessageHandler]\nclass ChargeHandler { public function __invoke(Charge $m, \\Stripe\\StripeClient $stripe) { $stripe->paymentIntents->create([]); } }\n"
	for name, tt := range map[string]struct {
		files map[string]string
		want  string // empty: no scope
	}{
		"none":                  {map[string]string{"composer.json": `{"require":{"laravel/framework":"^11.0"}}`}, ""},
		"stancl/tenancy":        {map[string]string{"composer.json": `{"require":{"laravel/framework":"^11.0","stancl/tenancy":"^3.8"}}`}, "#     scope: '/tenant_id'    # composer.json:1"},
		"spatie, version 3":     {map[string]string{"composer.json": `{"require":{"laravel/framework":"^10.0","spatie/laravel-multitenancy":"^3.0"}}`}, "scope: '/tenantId'"},
		"spatie, version 4":     {map[string]string{"composer.json": `{"require":{"laravel/framework":"^11.0","spatie/laravel-multitenancy":"^4.0"}}`}, "scope: '/context/tenantId'"},
		"its own payload":       {map[string]string{"composer.json": `{"require":{"laravel/framework":"^11.0"}}`, "app/Providers/Queue.php": "<?php\nclass Q { function boot() {\napp('queue')->createPayloadUsing(function () {\n$id = company_id();\nreturn ['company_id' => $id];\n});\n} }"}, "scope: '/company_id'    # app/Providers/Queue.php:3"},
		"its own, not a tenant": {map[string]string{"composer.json": `{"require":{"laravel/framework":"^11.0"}}`, "app/Providers/Queue.php": "<?php\nclass Q { function boot() { Queue::createPayloadUsing(fn () => ['request_id' => 1]);\n$x = ['tenant_id' => 2]; } }"}, ""},
		"the context":           {map[string]string{"composer.json": `{"require":{"laravel/framework":"^11.0"}}`, "app/Http/Tenant.php": "<?php\nclass T { function handle() { Context::add('tenant_id', 7); } }"}, "scope: '/context/tenant_id'"},
		"a stamp": {map[string]string{
			"composer.json": `{"require":{"symfony/messenger":"7.2.*"}}`, "src/Message/Charge.php": "<?php\nnamespace App\\Message;\nclass Charge { public function __construct(public int $orderId) {} }\n", "src/MessageHandler/H.php": handler,
			"src/Stamp/TenantStamp.php": "<?php\nnamespace App\\Stamp;\nclass TenantStamp implements \\Symfony\\Component\\Messenger\\Stamp\\StampInterface { public function __construct(public readonly string $id) {} }\n",
		}, `scope: '/App\Stamp\TenantStamp/id'`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			folder := t.TempDir()
			files := map[string]string{"app/Jobs/ChargeOrder.php": charge}
			maps.Copy(files, tt.files)
			for file, content := range files {
				path := filepath.Join(folder, file)
				if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			var out, log bytes.Buffer
			if code := run(t.Context(), []string{"init", folder}, &out, &log); code != exit.Good || !strings.Contains(out.String(), "#     order: orderId") {
				t.Fatalf("exit %d\n%s%s", code, out.String(), log.String())
			}
			if has := strings.Contains(out.String(), "#     scope:"); has != (tt.want != "") || !strings.Contains(out.String(), tt.want) {
				t.Errorf("want %q in\n%s", tt.want, out.String())
			}
		})
	}
}

// A DSN that is written out in messenger.yaml loses its password.
func TestInitSecrets(t *testing.T) {
	t.Parallel()
	for dsn, want := range map[string]string{
		"redis://:p%40ss@h:6379/s":      `"redis://:${REDIS_PASSWORD}@h:6379/s"`,
		"redis://p%40ss@h:6379/s":       `"redis://${REDIS_PASSWORD}@h:6379/s"`,
		"redis://u:p%40ss@h:6379/s":     `"redis://u:${REDIS_PASSWORD}@h:6379/s"`,
		"redis://h:6379/s?auth=p%40ss":  `"redis://h:6379/s?auth=${REDIS_PASSWORD}"`,
		"redis://%env(P)%@h:6379/s":     `"redis://${P}@h:6379/s"`,
		"redis://u:%env(P)%@h/s?lazy=1": `"redis://u:${P}@h/s?lazy=1"`,
	} {
		folder := t.TempDir()
		for name, content := range map[string]string{
			"composer.json": `{"require": {"symfony/messenger": "7.2.*"}}`, ".env": "APP_ENV=prod\nP=hidden\n",
			"config/packages/messenger.yaml": "framework:\n    messenger:\n        transports:\n            a: '" + dsn + "'\n",
		} {
			path := filepath.Join(folder, name)
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		var out, log bytes.Buffer
		if code := run(t.Context(), []string{"init", folder}, &out, &log); code != exit.Good {
			t.Fatalf("exit %d\n%s", code, log.String())
		}
		if !strings.Contains(out.String(), "dsn: "+want) || strings.Contains(out.String(), "p%40ss") || strings.Contains(out.String(), "hidden") {
			t.Errorf("%s: want %s in\n%s", dsn, want, out.String())
		}
	}
}

// What init takes from places that an application rarely has.
func TestInitPlaces(t *testing.T) {
	t.Parallel()
	queue := func(edit ...string) func(string) map[string]string {
		return func(folder string) map[string]string {
			content, err := os.ReadFile(filepath.Join(folder, "config/queue.php"))
			if err != nil {
				t.Fatal(err)
			}
			text := strings.NewReplacer(edit...).Replace(string(content))
			if text == string(content) {
				t.Fatalf("%q is not in config/queue.php", edit)
			}
			return map[string]string{"config/queue.php": text}
		}
	}
	driver := func(text string) func(string) map[string]string {
		return queue("'driver' => env('QUEUE_FAILED_DRIVER', 'database-uuids')", "'driver' => "+text)
	}
	for name, tt := range map[string]struct {
		shop  string
		files func(folder string) map[string]string // written over the shop's
		args  []string
		want  []string
		not   []string
	}{
		"sessions in Redis":       {shop: "laravel8", want: []string{`{prefix: "shop_database_shop_cache", db: 0} # sessions redis`}},
		"failed jobs in a file":   {shop: "laravel8", files: driver("'file'"), want: []string{"# the application's driver is file", "What has failed so far is not in it"}},
		"failed jobs in DynamoDB": {shop: "laravel8", files: driver("'dynamodb'"), want: []string{"# the application's driver is dynamodb"}},
		"failed jobs nowhere":     {shop: "laravel8", files: driver("null"), want: []string{"# the application's driver is null"}},
		"failed jobs in a table":  {shop: "laravel8", files: driver("'database'"), not: []string{"the application's driver"}},
		"a cached configuration": {shop: "laravel8", files: func(string) map[string]string {
			return map[string]string{"bootstrap/cache/config.php": "<?php return array(\n  'app' => array('name' => 'Cached', 'env' => 'production'),\n  'queue' => array(\n    'default' => 'redis',\n" +
				"    'connections' => array('redis' => array('driver' => 'redis', 'connection' => 'default', 'queue' => 'cached', 'retry_after' => 77)),\n  ),\n" +
				"  'database' => array('redis' => array('options' => array('prefix' => 'cached_'), 'default' => array('host' => 'cached.example', 'port' => '6379', 'database' => '0'))),\n);"}
		}, want: []string{`scope: cached-production`, `prefix: "cached_" # bootstrap/cache/config.php:`, `retry_after: 77s # bootstrap/cache/config.php:`, `cached.example`}, not: []string{"shop_database_", "180s"}},
		"the payment's own connection": {shop: "laravel8", files: func(folder string) map[string]string {
			files := queue("        'redis' => [", "        'slow' => ['driver' => 'redis', 'connection' => 'cache', 'queue' => 'slow', 'retry_after' => 333],\n\n        'redis' => [")(folder)
			for _, name := range []string{"app/Jobs/ChargeOrder.php", "app/Jobs/RefundOrder.php"} {
				content, err := os.ReadFile(filepath.Join(folder, name))
				if err != nil {
					t.Fatal(err)
				}
				files[name] = strings.Replace(string(content), "    public $timeout", "    public $connection = 'slow';\n\n    public $timeout", 1)
			}
			return files
		}, want: []string{`connection: "slow"`, `"slow": # Laravel's queue`, `retry_after: 333s`, `${REDIS_PORT}/${REDIS_CACHE_DB}`}, not: []string{`connection: "redis"`}},
		"the queue that the job asks for": {shop: "laravel8", files: func(folder string) map[string]string {
			content, err := os.ReadFile(filepath.Join(folder, "app/Jobs/ChargeOrder.php"))
			if err != nil {
				t.Fatal(err)
			}
			return map[string]string{
				"app/Jobs/ChargeOrder.php": strings.Replace(string(content), "$this->order = $order;", "$this->order = $order;\n        $this->onQueue('billing');", 1),
				"app/Http/Controllers/Refunds.php": "<?php\nnamespace App\\Http\\Controllers;\nuse App\\Jobs\\RefundOrder;\nclass Refunds\n{\n    public function store($id)\n    {\n" +
					"        RefundOrder::dispatch($id)->onQueue('refunds');\n    }\n}\n",
			}
		}, want: []string{`"billing": # Laravel's queue laravel:`, `"refunds": # Laravel's queue laravel:`}, not: []string{`"default":`}},
		"a model, a refund": {shop: "laravel8", want: []string{`"default": # Laravel's queue; no onQueue() was found`, `load: "SELECT … FROM orders WHERE id = :order"`, `part: PART`}},
		"a currency": {shop: "laravel8", files: func(folder string) map[string]string {
			content, err := os.ReadFile(filepath.Join(folder, "app/Jobs/ChargeOrder.php"))
			if err != nil {
				t.Fatal(err)
			}
			return map[string]string{"app/Jobs/ChargeOrder.php": strings.NewReplacer("private $order;", "private $order;\n\n    private string $currency;", "(Order $order)", "(Order $order, string $currency)",
				"$this->order = $order;", "$this->order = $order;\n        $this->currency = $currency;").Replace(string(content))}
		}, want: []string{`currency: currency`}},
		"Symfony's debug:config": {shop: "symfony54", files: func(folder string) map[string]string {
			return map[string]string{"framework.json": `{"messenger": {"transports": {"charges": {"dsn": "redis://debugged:6379/charges", "options": []}}, "failure_transport": null, "routing": {"App\\Message\\ChargeOrder": {"senders": ["charges"]}}}}`}
		}, args: []string{"--debug-config", "framework.json"}, want: []string{`"charges":`, `redis://debugged:6379/charges`}, not: []string{"stream=shop"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			folder := t.TempDir()
			if err := os.CopyFS(folder, os.DirFS("../../doctor/testdata/"+tt.shop+"/good")); err != nil {
				t.Fatal(err)
			}
			if tt.files != nil {
				for name, content := range tt.files(folder) {
					path := filepath.Join(folder, name)
					if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
						t.Fatal(err)
					}
					if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
						t.Fatal(err)
					}
				}
			}
			args := []string{"init", folder}
			for _, arg := range tt.args {
				if strings.HasSuffix(arg, ".json") {
					arg = filepath.Join(folder, arg)
				}
				args = append(args, arg)
			}
			var out, log bytes.Buffer
			if code := run(t.Context(), args, &out, &log); code != exit.Good {
				t.Fatalf("exit %d\n%s", code, log.String())
			}
			flat := strings.Join(strings.Fields(out.String()), " ")
			for _, text := range tt.want {
				if !strings.Contains(flat, text) {
					t.Errorf("no %s in\n%s", text, out.String())
				}
			}
			for _, text := range tt.not {
				if strings.Contains(flat, text) {
					t.Errorf("%s in\n%s", text, out.String())
				}
			}
		})
	}
}

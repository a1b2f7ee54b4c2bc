package doctor

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"zabor/internal/app"
)

// Who calls, what is called, and how a worker is started: each found or not at the
// line that ends with the code.
func TestCallers(t *testing.T) {
	t.Parallel()
	job := func(head, body string) string {
		return "<?php\nnamespace App\\Jobs;\nclass Pay implements \\Illuminate\\Contracts\\Queue\\ShouldQueue {\n" + head + "\npublic function handle(\\Stripe\\StripeClient $s) {\n" + body + "\n}\n}\n"
	}
	queue := "<?php\nreturn ['default' => 'redis', 'connections' => ['redis' => ['driver' => 'redis', 'connection' => 'default', 'retry_after' => 90]]];\n"
	for _, tt := range []struct {
		name  string
		files map[string]string
		want  string // "file:line code"; empty: none of those codes
		codes []string
	}{
		{"a list of queues, no connection named", map[string]string{"config/queue.php": queue, "compose.yaml": "services:\n  worker:\n    command: php artisan queue:work --timeout=120 --queue=high,default\n"}, "compose.yaml:3 ZB110", []string{"ZB110"}},
		{"a list of queues, and a timeout of 0", map[string]string{"config/queue.php": queue, "worker.conf": "[program:w]\ncommand=php artisan queue:work --queue=high,default --timeout=0\n"}, "worker.conf:2 ZB110", []string{"ZB110"}},
		{"a connection that is not configured", map[string]string{"config/queue.php": queue, "compose.yaml": "services:\n  worker:\n    command: php artisan queue:work other --timeout=120\n"}, "compose.yaml:3 ZB110", []string{"ZB110"}},
		{"a shorter time-out", map[string]string{"config/queue.php": queue, "compose.yaml": "services:\n  worker:\n    command: php artisan queue:work --timeout=60 --queue=high,default\n"}, "", []string{"ZB110"}},
		{"another job's own limit", map[string]string{"app/Jobs/Pay.php": job("", "$s->charges->create([]);"),
			"app/Jobs/Short.php": "<?php\nnamespace App\\Jobs;\nclass Short implements \\Illuminate\\Contracts\\Queue\\ShouldQueue { public $timeout = 5; public function handle() {} }\n",
			"compose.yaml":       "services:\n  worker:\n    command: php artisan queue:work --timeout=600\n", "config/queue.php": strings.Replace(queue, "90", "900", 1)}, "", []string{"ZB111"}},
		{"the job's own limit", map[string]string{"app/Jobs/Pay.php": job("public $timeout = 30;", "$s->charges->create([]);")}, "app/Jobs/Pay.php:6 ZB111", []string{"ZB111"}},
		{"a random key among options", map[string]string{"app/Jobs/Pay.php": job("", "$o = ['idempotency_key' => uniqid('a', true)];\n$s->charges->create([], $o);")}, "app/Jobs/Pay.php:6 ZB152", []string{"ZB152"}},
		{"an order's key among options", map[string]string{"app/Jobs/Pay.php": job("", "$o = ['idempotency_key' => 'charge-'.$this->order->id];\n$s->charges->create([], $o);")}, "", []string{"ZB152"}},
		{"a command that sleeps", map[string]string{"app/Jobs/Pay.php": job("", "$s->charges->create([]);"), "app/Console/Commands/Bill.php": "<?php\nnamespace App\\Console\\Commands;\nclass Bill extends \\Illuminate\\Console\\Command {\npublic function handle() {\nPay::dispatch();\nsleep(2);\n}\n}\n"}, "", []string{"ZB161"}},
		{"a controller that sleeps", map[string]string{"app/Jobs/Pay.php": job("", "$s->charges->create([]);"), "app/Http/Controllers/Bill.php": "<?php\nnamespace App\\Http\\Controllers;\nclass Bill extends Controller {\npublic function store() {\nPay::dispatch();\nsleep(2);\n}\n}\n"}, "app/Http/Controllers/Bill.php:6 ZB161", []string{"ZB161"}},
		{"a product and a price", map[string]string{"app/Jobs/Pay.php": job("", "$s->products->create([]);\n$s->prices->create([]);\n$s->webhookEndpoints->create([]);\n$s->paymentMethods->create([]);\n$s->setupIntents->create([]);")}, "", []string{"ZB150"}},
		{"an intent that is fetched and captured", map[string]string{"app/Jobs/Pay.php": job("", "$i = $s->paymentIntents->retrieve('pi');\n$i->capture();")}, "app/Jobs/Pay.php:7 ZB150", []string{"ZB150"}},
		{"a client by its setting's name", map[string]string{"app/Jobs/Pay.php": job("", "$c = $this->container->get(\\YooKassa\\Client::class);\n$c->createRefund([], 'r-1');")}, "app/Jobs/Pay.php:7 ZB150", []string{"ZB150"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			folder := base(t, false)
			for name, content := range tt.files {
				write(t, filepath.Join(folder, name), content)
			}
			p, err := app.Open(folder, app.Options{})
			if err != nil {
				t.Fatal(err)
			}
			got := slices.DeleteFunc(places(folder, Examine(p, Options{Zabor: true}), false), func(s string) bool {
				return !slices.ContainsFunc(tt.codes, func(code string) bool { return strings.HasSuffix(s, " "+code) })
			})
			if strings.Join(got, ", ") != tt.want {
				t.Errorf("found %q, want %q", got, tt.want)
			}
		})
	}
}

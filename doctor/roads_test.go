package doctor

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"zabor/internal/app"
)

// The roads by which a job comes to a provider, and calls that only look like one.
func TestRoads(t *testing.T) {
	t.Parallel()
	job := func(head, body string) string {
		return "<?php\nnamespace App\\Jobs;\n" + head + "class Pay implements \\Illuminate\\Contracts\\Queue\\ShouldQueue {\n" + body + "\n}\n"
	}
	curl := func(options string) string {
		return "public function handle() {\n$c = curl_init('https://api.stripe.com/v1/charges');\n" + options + "\n$answer = curl_exec($c);\n}"
	}
	for _, tt := range []struct {
		name  string
		files map[string]string
		want  string // file:line of ZB150; empty: none
	}{
		{"an SDK", map[string]string{"app/Jobs/Pay.php": job("", "public function handle(\\Stripe\\StripeClient $s) {\n$s->charges->create([]); }")}, "app/Jobs/Pay.php:5"},
		{"a trait of the job", map[string]string{
			"app/Jobs/Pay.php":        job("", "use \\App\\Billing\\Charges;\npublic function handle() { $this->charge(); }"),
			"app/Billing/Charges.php": "<?php\nnamespace App\\Billing;\ntrait Charges {\nprivate \\Stripe\\StripeClient $s;\nprotected function charge() {\n$this->s->charges->create([]);\n}\n}\n",
		}, "app/Billing/Charges.php:6"},
		{"a trait of a service, whose own method calls", map[string]string{
			"app/Jobs/Pay.php":         job("use App\\Billing\\Gateway;\n", "public function handle(Gateway $g) { $g->pay(); }"),
			"app/Billing/Gateway.php":  "<?php\nnamespace App\\Billing;\nclass Gateway {\nuse Attempts;\nprivate \\Stripe\\StripeClient $s;\nprotected function charge() {\n$this->s->charges->create([]);\n}\n}\n",
			"app/Billing/Attempts.php": "<?php\nnamespace App\\Billing;\ntrait Attempts { public function pay() { $this->charge(); } }\n",
		}, "app/Billing/Gateway.php:7"},
		{"a parent class", map[string]string{
			"app/Jobs/Pay.php":  "<?php\nnamespace App\\Jobs;\nclass Pay extends Base {}\n",
			"app/Jobs/Base.php": "<?php\nnamespace App\\Jobs;\nabstract class Base implements \\Illuminate\\Contracts\\Queue\\ShouldQueue {\npublic function handle(\\Stripe\\StripeClient $s) {\n$s->charges->create([]);\n}\n}\n",
		}, "app/Jobs/Base.php:5"},
		{"raw curl", map[string]string{"app/Jobs/Pay.php": job("", curl("curl_setopt($c, CURLOPT_POSTFIELDS, ['amount' => 1]);"))}, "app/Jobs/Pay.php:7"},
		{"raw curl, options at once", map[string]string{"app/Jobs/Pay.php": job("", curl("curl_setopt_array($c, [CURLOPT_CUSTOMREQUEST => 'POST']);"))}, "app/Jobs/Pay.php:7"},
		{"raw curl that reads", map[string]string{"app/Jobs/Pay.php": job("", curl("curl_setopt($c, CURLOPT_RETURNTRANSFER, true);"))}, ""},
		{"raw curl of another host", map[string]string{"app/Jobs/Pay.php": job("", strings.Replace(curl("curl_setopt($c, CURLOPT_POST, true);"), "api.stripe.com/v1/charges", "hooks.example.com/x", 1))}, ""},
		{"raw curl through the proxy", map[string]string{"app/Jobs/Pay.php": job("", curl("curl_setopt_array($c, [CURLOPT_POST => true, CURLOPT_HTTPHEADER => ['Zabor-Order: 1']]);"))}, ""},
		{"classes and traits in a circle", map[string]string{
			"app/Jobs/Pay.php": strings.Replace(job("", "use T;\npublic function handle() { $this->handle(); $this->none(); }"), "class Pay", "class Pay extends Round", 1),
			"app/Jobs/R.php":   "<?php\nnamespace App\\Jobs;\nclass Round extends Pay { use T; }\ntrait T { use U; }\ntrait U { use T; public function none() { $this->handle(); } }\ninterface I extends J {}\ninterface J extends I {}\n",
		}, ""},
		{"a service locator is not followed", map[string]string{"app/Jobs/Pay.php": job("", "public function handle() { app('payments')->pay(); }")}, ""},
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
			want := []string{}
			if tt.want != "" {
				want = append(want, tt.want+" ZB150")
			}
			got := slices.DeleteFunc(places(folder, Examine(p, Options{Zabor: true}), false), func(s string) bool { return !strings.HasSuffix(s, " ZB150") })
			differ(t, got, want)
		})
	}
}

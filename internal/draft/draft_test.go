package draft

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"zabor/doctor"
	"zabor/internal/app"
)

// Whatever key of an application's configuration is missing, empty, not known or of
// another kind: doctor and init come to an end, and init's file keeps its form.
func TestWithoutEachKey(t *testing.T) {
	t.Parallel()
	all := os.Getenv("ZABOR_SOAK") != "" // else one of several keys
	for _, shop := range []string{"laravel8/good", "laravel8/bad", "laravel11/good", "laravel11/bad", "symfony54/good", "symfony54/bad", "symfony7/good", "symfony7/bad", "skeleton/laravel11", "skeleton/symfony7"} {
		t.Run(shop, func(t *testing.T) {
			t.Parallel()
			p, err := app.Open("../../doctor/testdata/"+shop, app.Options{})
			if err != nil {
				t.Fatal(err)
			}
			others := map[string]*app.Value{
				"null": {Kind: app.Null}, "unknown": {Kind: app.Unknown, Text: "f()"}, "empty": {Kind: app.String},
				"a text": {Kind: app.String, Text: "x"}, "a number": {Kind: app.Int, Text: "-1"}, "an empty list": {Kind: app.Map},
				"a list": {Kind: app.Map, Keys: []string{"0"}, Items: map[string]*app.Value{"0": {Kind: app.String, Text: "x"}}},
			}
			names := slices.Sorted(maps.Keys(others))
			tried, every := 0, 16
			if p.Framework == app.Symfony {
				every = 3
			}
			var each func(v *app.Value, path string)
			each = func(v *app.Value, path string) {
				keys := v.Keys
				for i, key := range keys {
					item, at := v.Items[key], path+"."+key
					if tried++; !all && tried%every != 0 {
						if item.Kind == app.Map {
							each(item, at)
						}
						continue
					}
					delete(v.Items, key)
					v.Keys = slices.Delete(slices.Clone(keys), i, i+1)
					read(t, p, at+": missing")
					v.Keys = keys
					for n, name := range names {
						if all || n == tried/every%len(names) {
							v.Items[key] = others[name]
							read(t, p, at+": "+name)
						}
					}
					v.Items[key] = item
					if item.Kind == app.Map {
						each(item, at)
					}
				}
			}
			each(p.Config, shop)
			if tried < 15 {
				t.Errorf("only %d were tried", tried)
			}
		})
	}
}

// read runs what reads the whole of a project.
func read(t *testing.T, p *app.Project, what string) {
	t.Helper()
	defer func() {
		if fault := recover(); fault != nil {
			t.Errorf("%s: panic: %v", what, fault)
		}
	}()
	doctor.Examine(p, doctor.Options{})
	doctor.Values(p)
	doctor.Payments(p)
	p.DatabaseAddress()
	if text := Of(p); strings.Count(text, "\nfence: ") != 1 || strings.Contains(text, "@:") || strings.Contains(text, "://@/") {
		t.Errorf("%s: init writes\n%s", what, text)
	}
}

// The forms in which Laravel's databases are written.
func TestDatabases(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ connection, want string }{
		"hosts for reading and writing": {`'driver' => 'mysql', 'read' => ['host' => ['10.0.0.1']], 'write' => ['host' => ['10.0.0.2', '10.0.0.3']], 'port' => 3306, 'database' => 'shop', 'username' => 'app', 'password' => 'x'`,
			`fence: "mysql://${DB_USERNAME}:${DB_PASSWORD}@10.0.0.2:3306/shop"`},
		"a host for writing": {`'driver' => 'pgsql', 'read' => ['host' => '10.0.0.1'], 'write' => ['host' => '10.0.0.2'], 'database' => 'shop', 'username' => 'app'`,
			`fence: "postgres://${DB_USERNAME}@10.0.0.2/shop"`},
		"a socket": {`'driver' => 'mysql', 'unix_socket' => '/run/mysqld/mysqld.sock', 'database' => 'shop', 'username' => 'app'`,
			`fence: "mysql://${DB_USERNAME}@localhost/shop?unix_socket=/run/mysqld/mysqld.sock"`},
		"a list of hosts":  {`'driver' => 'mysql', 'host' => ['10.0.0.2'], 'database' => 'shop', 'username' => 'app'`, `fence: "mysql://${DB_USERNAME}@10.0.0.2/shop"`},
		"no host":          {`'driver' => 'mysql', 'database' => 'shop', 'username' => 'app'`, `fence: "${ZABOR_FENCE}"`},
		"an empty list":    {`'driver' => 'mysql', 'host' => [], 'database' => 'shop', 'username' => 'app'`, `fence: "${ZABOR_FENCE}"`},
		"a driver unknown": {`'driver' => 'sqlsrv', 'host' => 'h', 'database' => 'shop'`, `fence: "${ZABOR_FENCE}"`},
		"no driver":        {`'host' => 'h', 'database' => 'shop'`, `fence: "${ZABOR_FENCE}"`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			folder := t.TempDir()
			if err := os.CopyFS(folder, os.DirFS("../../doctor/testdata/laravel8/good")); err != nil {
				t.Fatal(err)
			}
			text := "<?php return ['default' => 'shop', 'connections' => ['shop' => [" + tt.connection + "]], 'redis' => ['default' => ['host' => 'redis']]];"
			if err := os.WriteFile(filepath.Join(folder, "config/database.php"), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			p, err := app.Open(folder, app.Options{})
			if err != nil {
				t.Fatal(err)
			}
			if text := Of(p); !strings.Contains(text, tt.want) {
				t.Errorf("no %s in\n%s", tt.want, text)
			}
			if a := p.DatabaseAddress(); (a != nil) != !strings.Contains(tt.want, "ZABOR_FENCE") || strings.Contains(fmt.Sprint(a), "10.0.0.1") {
				t.Errorf("doctor's address is %v", a)
			}
		})
	}
}

// Only a charge has the skeleton of a new charge: for a capture or a payout it would be
// one that nobody asked for.
func TestRequests(t *testing.T) {
	t.Parallel()
	for class, want := range map[string]string{
		`App\Jobs\ChargeOrder`:               "charge",
		`App\Jobs\PayOrder`:                  "charge",
		`App\Jobs\BookOrder`:                 "charge",
		`App\Jobs\RefundOrder`:               "refund",
		`App\Jobs\CaptureOrder`:              "capture",
		`App\Jobs\PayoutSeller`:              "payout",
		`App\Message\PaymentCaptureMessage`:  "capture",
		`App\Message\ChargeRefunded`:         "refund",
		`App\Capture\Message\ChargeCustomer`: "charge",
	} {
		step := stepNameOf(doctor.Payment{Message: class})
		if step != want {
			t.Errorf("%s: step %s, want %s", class, step, want)
		}
		for _, step := range []string{step, step + "-2"} {
			if got := requestOf("stripe", step); strings.Contains(got, "payment_intents") != (want == "charge") {
				t.Errorf("%s, step %s:\n%s", class, step, got)
			}
			if got := requestOf("acquirer", step); !strings.Contains(got, "path: /…") || strings.Contains(got, "payment_intents") {
				t.Errorf("%s, step %s at another provider:\n%s", class, step, got)
			}
		}
	}
}

package main

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"zabor/doctor"
	"zabor/internal/app"
	"zabor/internal/exit"
)

// Whatever key of an application's configuration is missing, empty, not known or of
// another kind: doctor and init come to an end, and init's file keeps its form.
func TestInitAndDoctorWithoutEachKey(t *testing.T) {
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
					used(t, p, at+": missing")
					v.Keys = keys
					for n, name := range names {
						if all || n == tried/every%len(names) {
							v.Items[key] = others[name]
							used(t, p, at+": "+name)
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

// used runs what reads the whole of a project.
func used(t *testing.T, p *app.Project, what string) {
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
	w := initWriter{Project: p, payments: doctor.Payments(p)}
	w.write()
	if text := w.text.String(); strings.Count(text, "\nfence: ") != 1 || strings.Contains(text, "@:") || strings.Contains(text, "://@/") {
		t.Errorf("%s: init writes\n%s", what, text)
	}
}

// The forms in which Laravel's databases are written.
func TestInitDatabases(t *testing.T) {
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
			w := initWriter{Project: p}
			w.write()
			if !strings.Contains(w.text.String(), tt.want) {
				t.Errorf("no %s in\n%s", tt.want, w.text.String())
			}
			if a := p.DatabaseAddress(); (a != nil) != !strings.Contains(tt.want, "ZABOR_FENCE") || strings.Contains(fmt.Sprint(a), "10.0.0.1") {
				t.Errorf("doctor's address is %v", a)
			}
		})
	}
}

// The step that init writes is what the call does: a charge's request stands in no
// other, and what cancels is no step.
func TestInitStepsAreWhatTheCallsDo(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ want, not []string }{
		"stripe-mirakl-connector": {[]string{"#   capture: ", "#   transfer: "}, []string{"prepare:", "#   charge", "message: 'App\\Message\\CancelPendingPaymentMessage'"}},
		"ru-recurrent":            {[]string{"#   charge: ", "message: 'App\\Message\\ChargeRebill'", "'App\\Message\\CancelOrder': default"}, []string{"message: 'App\\Message\\CancelOrder'"}},
		"cashier-saas":            {[]string{"#   charge: ", "message: 'App\\Jobs\\ChargeOverage'", "message: 'App\\Jobs\\InvoiceSeats'", "'App\\Jobs\\SyncCustomer': default"}, []string{"'App\\Jobs\\ChargeOverage': default"}},
		"invoiceninja":            {[]string{"message: 'App\\Jobs\\Cron\\AutoBill'", "'App\\Jobs\\Util\\CreateWebhooks': default"}, nil},
		"ru-subscriptions":        {[]string{"account: \"${YOOKASSA_ACCOUNT}\"", "currency: RUB", "amount: {value: \"{{major}}\""}, []string{"EUR"}},
		"pixelfed":                {[]string{"'App\\Jobs\\DeliverActivity': default"}, []string{"# steps:"}},
		"solidinvoice":            {[]string{"'App\\Message\\SendInvoice': default", "dsn: \"redis://localhost/messages\""}, []string{"# steps:"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			content, err := txtar.ParseFile("../../doctor/testdata/public/" + name + ".txtar")
			if err != nil {
				t.Fatal(err)
			}
			folder := t.TempDir()
			for _, f := range content.Files {
				file := filepath.Join(folder, f.Name)
				if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(file, f.Data, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			var out, log bytes.Buffer
			if code := run(t.Context(), []string{"init", folder}, &out, &log); code != exit.Good {
				t.Fatalf("exit %d: %s", code, log.String())
			}
			for _, text := range tt.want {
				if !strings.Contains(out.String(), text) {
					t.Errorf("no %s in\n%s", text, out.String())
				}
			}
			for _, text := range tt.not {
				if strings.Contains(out.String(), text) {
					t.Errorf("%s in\n%s", text, out.String())
				}
			}
		})
	}
}

// A failure transport that is the queue's own stream is not written: zabor would refuse it.
func TestInitLeavesNoCircle(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	if err := os.CopyFS(folder, os.DirFS("../../doctor/testdata/symfony7/good")); err != nil {
		t.Fatal(err)
	}
	text := "framework:\n    messenger:\n        failure_transport: failed\n        transports:\n            payments: 'redis://localhost:6379/messages'\n            again: 'redis://127.0.0.1/messages'\n            failed: 'redis://127.0.0.1'\n"
	if err := os.WriteFile(filepath.Join(folder, "config/packages/messenger.yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	var out, log bytes.Buffer
	if code := run(t.Context(), []string{"init", folder}, &out, &log); code != exit.Good {
		t.Fatalf("exit %d: %s", code, log.String())
	}
	if said := out.String(); strings.Count(said, "ZB143") != 2 || !strings.Contains(said, `failed: {stream: "messages_failed"}`) || strings.Contains(said, `{stream: "messages"}`) || strings.Count(said, "dsn: ") != 1 {
		t.Errorf("%s", said)
	}
}

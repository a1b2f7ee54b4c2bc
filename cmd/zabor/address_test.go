package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"zabor/dashboard/backend"
	"zabor/internal/config"
	"zabor/internal/console"
	"zabor/internal/exit"
)

// wrongAddresses are addresses of Redis that cannot be used, each in the place where
// the configuration takes it.
var wrongAddresses = map[string]string{
	"a # in the password":          "redis: \"redis://:hun#ter@127.0.0.1:6379/0\"\nqueues: {payments: {laravel: {retry_after: 90s}}}\n",
	"a / in the password":          "redis: \"redis://:hun/ter@127.0.0.1:6379/0\"\nqueues: {payments: {laravel: {retry_after: 90s}}}\n",
	"a % in the password":          "redis: \"redis://:hun%ter@127.0.0.1:6379/0\"\nqueues: {payments: {laravel: {retry_after: 90s}}}\n",
	"a database that is no number": "redis: \"redis://127.0.0.1/abc\"\nqueues: {payments: {laravel: {retry_after: 90s}}}\n",
	"an unknown option":            "redis: \"redis://127.0.0.1/0?foo=1\"\nqueues: {payments: {laravel: {retry_after: 90s}}}\n",
	"a cluster with a database":    "redis: \"redis://127.0.0.1/3?cluster=true\"\nqueues: {payments: {laravel: {retry_after: 90s}}}\n",
	"a port that is no number":     "redis: \"redis://127.0.0.1:abc/0\"\nqueues: {payments: {laravel: {retry_after: 90s}}}\n",
	"two @ in a DSN":               "queues: {async: {symfony: {dsn: \"redis://hun@ter@127.0.0.1/messages\"}}}\n",
	"an unknown option of a DSN":   "queues: {async: {symfony: {dsn: \"redis://127.0.0.1/messages?foo=1\"}}}\n",
	"a port of a DSN":              "queues: {async: {symfony: {dsn: \"redis://127.0.0.1:abc/messages\"}}}\n",
	"a number of a DSN":            "queues: {async: {symfony: {dsn: \"redis://127.0.0.1/messages?dbindex=x\"}}}\n",
	"the second of two queues":     "redis: \"redis://127.0.0.1/0\"\nqueues: {a: {laravel: {retry_after: 90s}}, b: {symfony: {dsn: \"redis://127.0.0.1/m?foo=1\"}}}\n",
}

// An address that cannot be used is a finding with its line in every command that
// opens the queues, and no command ends in a panic or shows a password.
func TestAddressesThatDoNotParse(t *testing.T) {
	t.Parallel()
	const rest = `encryption_key: 0123456789abcdef0123456789abcdef
providers:
  acquirer: {profile: custom, base_url: "https://pay.example.com", timeout: 2s, reference: /id, settled: {pointer: /status, values: [paid]}}
steps:
  charge: {message: 'App\Jobs\ChargeOrder', order: orderId, amount: amountCents, currency: EUR, provider: acquirer, request: {path: /payments, json: {amount: "{{minor}}"}}}
`
	parent := t.TempDir()
	var number atomic.Int32
	for name, address := range wrongAddresses {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			folder := filepath.Join(parent, fmt.Sprint(number.Add(1))) // the test's own name has signs of its own
			if err := os.Mkdir(folder, 0o700); err != nil {
				t.Fatal(err)
			}
			file := filepath.Join(folder, "zabor.yaml")
			text := "fence: \"sqlite://" + filepath.Join(folder, "fence.db") + "\"\n" + address + rest
			if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			line := "2:"
			if strings.Contains(name, "second") {
				line = "3:"
			}
			command := func(args ...string) (int, string) {
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				var out, log bytes.Buffer
				code := run(ctx, append(args, "-c", file), &out, &log)
				return code, out.String() + log.String()
			}
			if code, said := command("migrate"); code != exit.Good {
				t.Fatalf("migrate: exit %d\n%s", code, said)
			}
			for _, args := range [][]string{
				{"config", "check"}, {"config", "check", "--live"}, {"doctor"}, {"peek"}, {"worker", "--drain"}, {"serve"}, {"audit"}, {"import", "--dry-run"},
				{"failed", "list"}, {"fence", "list"}, {"fence", "show", "1", "charge"},
			} {
				code, said := command(args...)
				if strings.Contains(strings.ReplaceAll(said, folder, ""), "hun") || strings.Contains(said, "ter@") {
					t.Errorf("%v shows a part of the password:\n%s", args, said)
				}
				if args[0] == "fence" {
					continue // it opens no queue
				}
				if code != exit.WrongUsage || !strings.Contains(said, "zabor.yaml:"+line) || !strings.Contains(said, "%23 for #") {
					t.Errorf("%v: exit %d, want %d with the line and what to write\n%s", args, code, exit.WrongUsage, said)
				}
			}
		})
	}
}

// A fault of zabor's own is one line with the place in the source.
func TestFaultIsOneLine(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	code := -1
	func() {
		defer func() { code = console.Fault(&out, version, recover()) }()
		list := make([]int, 1)
		list[len(os.Args)+1] = 1
	}()
	text := out.String()
	if code != exit.OwnFault || strings.Count(text, "\n") != 1 || !strings.Contains(text, "address_test.go:") || !strings.Contains(text, "index out of range") || !strings.Contains(text, version) {
		t.Errorf("exit %d: %q", code, text)
	}
}

// With encryption_key the tables are as they must be for every command that looks.
func TestDoctorHasTheEncryptionKeys(t *testing.T) {
	t.Parallel()
	s := newShop(t, databases[0].open(t), options{})
	s.edit("lanes: 1\n", "lanes: 1\nencryption_key: 0123456789abcdef0123456789abcdef\n")
	put(t, newMessage(s.o.redis, "laravel", "1001"))
	s.worker("--drain").exit(exit.Good)
	for name, look := range map[string]func() string{
		"doctor": func() string {
			out, _ := s.command(exit.BadAnswer, "doctor", "--json") // of Redis, which keeps nothing here
			return out
		},
		"config check --live": func() string { return fmt.Sprint(s.liveOf(exit.Good)) },
		"the dashboard": func() string {
			file, err := config.Load(s.file, config.Env{Lookup: os.LookupEnv})
			if err != nil {
				t.Fatal(err)
			}
			if err := (&backend.Backend{File: file, Store: s.store}).Doctor(t.Context()); err != nil {
				t.Fatal(err)
			}
			report, _, err := s.store.Meta().Get(t.Context(), "last doctor of "+file.Scope)
			if err != nil {
				t.Fatal(err)
			}
			return string(report)
		},
	} {
		if said := look(); !strings.Contains(said, "ZB") && !strings.Contains(said, "fence") || strings.Contains(said, "ZB176") {
			t.Errorf("%s: %s", name, said)
		}
	}
	s.edit("0123456789abcdef0123456789abcdef", "fedcba9876543210fedcba9876543210")
	if out, _ := s.command(exit.BadAnswer, "doctor"); !strings.Contains(out, "ZB176") {
		t.Errorf("with another key: %s", out)
	}
}

// Places are compared by server, database and key, with their defaults: no queue feeds
// itself or another, and a reserve of weeks is mentioned.
func TestAddressesOfQueuesAreCompared(t *testing.T) {
	t.Parallel()
	const rest = `encryption_key: 0123456789abcdef0123456789abcdef
providers:
  acquirer: {profile: custom, base_url: "https://pay.example.com", timeout: 2s, reference: /id, settled: {pointer: /status, values: [paid]}}
steps:
  charge: {message: 'App\Jobs\ChargeOrder', order: orderId, amount: amountCents, currency: EUR, provider: acquirer, request: {path: /payments, json: {amount: "{{minor}}"}}}
`
	for name, tt := range map[string]struct {
		queues string
		code   int
		said   string
	}{
		"failed is the queue's own stream":          {"queues: {async: {symfony: {dsn: \"redis://h/messages/g/c\"}, failed: {stream: messages}}}\n", exit.WrongUsage, "queues.async.failed.stream: messages is the stream of queue async"},
		"failed is the default stream":              {"queues: {async: {symfony: {dsn: \"redis://h\"}, failed: {stream: messages}}}\n", exit.WrongUsage, "queues.async.failed.stream: "},
		"failed is another queue's stream":          {"queues: {a: {symfony: {dsn: \"redis://h/a\"}, failed: {stream: b}}, b: {symfony: {dsn: \"redis://h/b\"}, failed: {stream: c}}}\n", exit.WrongUsage, "queues.a.failed.stream: b is the stream of queue b"},
		"failed is alike on another server":         {"queues: {a: {symfony: {dsn: \"redis://h/a\"}, failed: {stream: b}}, b: {symfony: {dsn: \"redis://i/b\"}, failed: {stream: c}}}\n", exit.Good, "is valid"},
		"failed is alike in another database":       {"queues: {a: {symfony: {dsn: \"redis://h/a\"}, failed: {stream: b}}, b: {symfony: {dsn: \"redis://h/b?dbindex=1\"}, failed: {stream: c}}}\n", exit.Good, "is valid"},
		"two queues of one stream":                  {"queues: {a: {symfony: {dsn: \"redis://localhost/m\"}}, b: {symfony: {dsn: \"redis://127.0.0.1:6379/m?group=other\"}}}\n", exit.WrongUsage, "queues.b.symfony.dsn: m in database 0 is queue a too"},
		"two queues that share a failure transport": {"queues: {a: {symfony: {dsn: \"redis://h/a\"}, failed: {stream: f}}, b: {symfony: {dsn: \"redis://h/b\"}, failed: {stream: f}}}\n", exit.Good, "is valid"},
		"forwarded into a failure transport":        {"bus: {forward: {'App\\Other': f}}\nqueues: {a: {symfony: {dsn: \"redis://h/a\"}, failed: {stream: f}}}\n", exit.WrongUsage, "f is the failure transport of queue a"},
		"a reserve in milliseconds":                 {"redis: \"redis://h/0\"\nqueues: {payments: {laravel: {retry_after: 3600000}}}\n", exit.Good, "queues.payments.laravel.retry_after: is 41 days"},
		"a DSN's reserve in milliseconds":           {"queues: {a: {symfony: {dsn: \"redis://h/a?redeliver_timeout=90000000\"}}}\n", exit.Good, "queues.a.symfony.dsn: is 1041 days"},
		"a reserve of a day":                        {"redis: \"redis://h/0\"\nqueues: {payments: {laravel: {retry_after: 86400}}}\n", exit.Good, "is valid"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			folder := t.TempDir()
			file := filepath.Join(folder, "zabor.yaml")
			if err := os.WriteFile(file, []byte("fence: \"sqlite://"+filepath.Join(folder, "fence.db")+"\"\n"+tt.queues+rest), 0o600); err != nil {
				t.Fatal(err)
			}
			var out, log bytes.Buffer
			code := run(t.Context(), []string{"config", "check", "-c", file}, &out, &log)
			said := out.String() + log.String()
			if code != tt.code || !strings.Contains(said, tt.said) || strings.Contains(name, "a day") && strings.Contains(said, "days") {
				t.Errorf("exit %d, want %d and %q\n%s", code, tt.code, tt.said, said)
			}
		})
	}
}

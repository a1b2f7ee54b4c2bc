package config

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"zabor"
	"zabor/provider"
	"zabor/step"
)

// base is a small valid file.
const base = `fence: sqlite:///var/lib/zabor/fence.db
redis: redis://127.0.0.1:6379/0
queues:
  payments:
    laravel: {retry_after: 90s}
providers:
  acquirer:
    profile: custom
    base_url: https://pay.example.com
    headers: {Authorization: "Bearer ${TOKEN}"}
    timeout: 10s
    reference: /id
    settled: {pointer: /status, values: [paid]}
steps:
  charge:
    message: 'App\Jobs\Charge'
    order: order.id
    amount: cents
    currency: EUR
    provider: acquirer
    request: {path: /payments, json: {amount: "{{minor}}"}}
`

func environment(set map[string]string) Env {
	return Env{Lookup: func(name string) (string, bool) { v, ok := set[name]; return v, ok }}
}

var baseEnv = map[string]string{"TOKEN": "topsecret", "SLASH": "topsecret/1"}

// change is base with one text in place of another, which must be there once.
func change(t *testing.T, old, new string) string {
	t.Helper()
	if strings.Count(base, old) != 1 {
		t.Fatalf("%q is %d times in the base", old, strings.Count(base, old))
	}
	return strings.Replace(base, old, new, 1)
}

func TestBase(t *testing.T) {
	c, err := Parse("zabor.yaml", []byte(base), environment(baseEnv))
	if err != nil {
		t.Fatal(err)
	}
	if got, want := c.Lanes, 8; got != want {
		t.Errorf("lanes=%d, want %d", got, want)
	}
	if steps := c.Compiled(); len(steps) != 1 || steps[0].Name() != "charge" || !steps[0].Matches(`App\Jobs\Charge`) {
		t.Errorf("steps %v", steps)
	}
	p, ok := c.Profile("acquirer")
	if !ok || p.Headers["Authorization"] != "Bearer topsecret" {
		t.Errorf("profile %+v, %v", p, ok)
	}
}

// What the file says arrives in the effect of a message.
func TestAStepIsMadeAsTheFileSays(t *testing.T) {
	file := strings.NewReplacer(
		"queues:", "enums: {Note: {Gift: present}}\nscope: shop\nattempts: 5\nhold_after: 1h\npending_for: 2d\nqueues:",
		"    order: order.id", "    step: pay\n    part: number\n    scope: tenant\n    defaults: {tenant: eu, cents: 1_9, ratio: 1.50}\n    prepare: {path: /new, form: {at: '{{.at}}', note: '{{.note}}'}}\n    volatile: [at]\n    settled: 'UPDATE orders SET note = :note WHERE id = :order'\n    order: order.id",
		"{path: /payments,", "{path: '/payments/{{prepared}}',",
		"    reference: /id", "    account: main\n    key: {header: Idempotency-Key, life: 24h, replays: all}\n    lookup: {path: '/payments/{{provider_key}}', absent_after: 2m}\n    reference: /id",
	).Replace(base)
	if _, err := Parse("z", []byte(file), environment(baseEnv)); err == nil || !strings.Contains(err.Error(), "the number 1_9 cannot stand here") {
		t.Fatalf("error %v, want one about 1_9", err)
	}
	c, err := Parse("z", []byte(strings.Replace(file, "1_9", "1999", 1)), environment(baseEnv))
	if err != nil {
		t.Fatal(err)
	}
	e, err := c.Compiled()[0].Effect(t.Context(), step.Message{Data: map[string]any{"order": map[string]any{"id": int64(7)}, "number": "2", "at": "noon", "note": step.Enum{Class: "Note", Case: "Gift"}}})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := e.Key, (zabor.Key{Scope: "shop/eu", Order: "7", Step: "pay:2"}); got != want {
		t.Errorf("key %+v, want %+v", got, want)
	}
	if got, want := e.Amount, (zabor.Money{Minor: 1999, Currency: "EUR"}); got != want {
		t.Errorf("amount %+v, want %+v", got, want)
	}
	if e.Provider != "acquirer" || e.Account != "main" || e.MaxAttempts != 5 {
		t.Errorf("provider %s, account %s, attempts %d", e.Provider, e.Account, e.MaxAttempts)
	}
	if e.Timeout != 20*time.Second || e.AbsentAfter != 2*time.Minute || e.HoldAfter != time.Hour || e.PendingFor != 48*time.Hour {
		t.Errorf("timeout %s of two requests, absent_after %s, hold_after %s, pending_for %s", e.Timeout, e.AbsentAfter, e.HoldAfter, e.PendingFor)
	}
	if got, want := e.ReplayFor, 24*time.Hour-24*time.Hour/10; got != want {
		t.Errorf("replays for %s, want %s: the key's life less a tenth", got, want)
	}
	first, err := e.Prepare(zabor.ProviderKeys{})
	if err != nil {
		t.Fatal(err)
	}
	if r, err := provider.Thaw(first); err != nil || r.Path != "/new" || string(r.Body) != "at=noon&note=present" {
		t.Errorf("prepare %+v, %v", r, err)
	}
	if strings.Contains(e.Fingerprint.Fields, "body.at") || strings.Contains(e.Fingerprint.Fields, "message.at") || !strings.Contains(e.Fingerprint.Fields, "prepare.body.note") {
		t.Errorf("fields %s", e.Fingerprint.Fields)
	}
	if got, want := c.Compiled()[0].Timeout(), 20*time.Second; got != want {
		t.Errorf("time-out %s, want %s", got, want)
	}
	row := zabor.Row{Key: e.Key, State: zabor.Settled, Open: zabor.Open{HookData: e.HookData}} // with its part in the step
	hook, err := c.Hook(row)
	if err != nil || hook.SQL != "UPDATE orders SET note = ? WHERE id = ?" || hook.Rows != 1 || !slices.Equal(hook.Args, []any{"present", "7"}) {
		t.Errorf("hook %+v, %v", hook, err)
	}
	for _, other := range []zabor.Row{{Key: e.Key, State: zabor.Declined}, {Key: zabor.Key{Scope: "shop", Step: "other"}, State: zabor.Settled}} {
		if hook, err := c.Hook(other); hook != nil || err != nil {
			t.Errorf("%s as %s has the hook %+v, %v", other.Key, other.State, hook, err)
		}
	}
	if _, err := c.Hook(zabor.Row{Key: zabor.Key{Scope: "shop", Step: "gone"}, State: zabor.Settled, HookDue: "settled"}); err == nil {
		t.Error("a due hook of a step that is gone is forgotten")
	}
	if hook, err := c.Hook(zabor.Row{Key: zabor.Key{Scope: "shop2", Order: "7", Step: "pay:2"}, State: zabor.Settled, Open: zabor.Open{HookData: e.HookData}}); hook != nil || err == nil {
		t.Errorf("a row of another installation has the hook %+v, error %v", hook, err)
	}
	c.Scope = "shop"
	row.Scope = "shop-2"
	if hook, err := c.Hook(row); hook != nil || err == nil {
		t.Errorf("a row of another installation has the hook %+v, %v", hook, err)
	}
	row.Scope = "shop/7"
	if hook, err := c.Hook(row); hook == nil || err != nil {
		t.Errorf("a row of a scope in this installation has the hook %+v, %v", hook, err)
	}
	if got, want := c.Steps["charge"].Defaults["ratio"].Value, any(json.Number("1.50")); got != want {
		t.Errorf("ratio %#v, want %#v", got, want)
	}
}

// Two shapes of message may share one step, where they have the same hooks, and
// database: may name the fence's own.
func TestStepsOfOneName(t *testing.T) {
	file := strings.TrimSuffix(base, "\n") + `
    settled: DELETE FROM a
  again:
    message: Again
    step: charge
    order: id
    provider: acquirer
    request: {path: /x}
    settled: {sql: DELETE FROM a}
database: sqlite:///var/lib/zabor/fence.db
`
	c, err := Parse("z", []byte(file), environment(baseEnv))
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range c.Compiled() {
		if s.Name() != "charge" {
			t.Errorf("step %s, want charge", s.Name())
		}
	}
}

// Every error of a file, as it is printed.
func TestErrors(t *testing.T) {
	const steps = "    request: {path: /payments, json: {amount: \"{{minor}}\"}}\n"
	for _, test := range []struct {
		name     string
		old, new string // in base
		want     string // one line each
	}{
		// Keys.
		{"unknown key", "redis: ", "rediss: ", `zabor.yaml:2:1: rediss: unknown key: did you mean redis?
zabor.yaml:5:14: queues.payments.laravel: a Laravel queue needs the address of its Redis: write redis: at the top of the file, such as redis://127.0.0.1:6379/0`},
		{"unknown key within a flow", "{retry_after: 90s}", "{retry_aftr: 90s}", `zabor.yaml:5:15: queues.payments.laravel.retry_aftr: unknown key: did you mean retry_after?`},
		{"swapped letters", "timeout: 10s", "tiemout: 10s", `zabor.yaml:11:5: providers.acquirer.tiemout: unknown key: did you mean timeout?`},
		{"a key like none", "timeout: 10s", "zzz: 10s", `zabor.yaml:11:5: providers.acquirer.zzz: unknown key: the keys here are profile, account, secret, base_url, proxy, headers, timeout, key, reference, settled, pending, declined, malformed, rules, prepare, echo, amount, currency, lookup, list, hold_after, pending_for`},
		{"a key of elsewhere", "order: order.id", "order: order.id\n    lanes: 3", `zabor.yaml:18:5: steps.charge.lanes: unknown key: the keys here are step, message, order, scope, part, defaults, load, amount, currency, provider, prepare, request, volatile, captured, pending, settled, declined, held, then`},
		{"a key twice", "timeout: 10s", "timeout: 10s\n    timeout: 20s", `zabor.yaml:12:5: providers.acquirer.timeout: stands here twice: take one of them out`},
		{"a missing key", "fence: sqlite:///var/lib/zabor/fence.db\n", "", `zabor.yaml:1:1: fence: is missing: write it: Database of the fence: mysql://, mariadb://, postgres://, postgresql://, pgsql:// or sqlite://`},
		{"a missing key within", "    order: order.id\n", "", `zabor.yaml:16:5: steps.charge.order: is missing: write it: Property that holds the order's id`},
		{"an empty key", "redis: redis://127.0.0.1:6379/0", "redis:", `zabor.yaml:2:7: redis: no value: write one, or take the key out`},

		// Types.
		{"text for a number", "queues:", "lanes: eight\nqueues:", `zabor.yaml:3:8: lanes: "eight" is not a whole number: write 1 to 1024`},
		{"a float for a number", "queues:", "lanes: 8.5\nqueues:", `zabor.yaml:3:8: lanes: the number 8.5 is not a whole number: write 1 to 1024`},
		{"octal", "queues:", "lanes: 010\nqueues:", `zabor.yaml:3:8: lanes: the number 010 is not a whole number: write 1 to 1024`},
		{"too many", "queues:", "lanes: 1025\nqueues:", `zabor.yaml:3:8: lanes: the number 1025 is out of bounds: write 1 to 1024`},
		{"none", "queues:", "lanes: 0\nqueues:", `zabor.yaml:3:8: lanes: the number 0 is out of bounds: write 1 to 1024`},
		{"no attempts", "queues:", "attempts: 0\nqueues:", `zabor.yaml:3:11: attempts: the number 0 is out of bounds: write 1 to 1000`},
		{"a number for a duration", "queues:", "hold_after: 30\nqueues:", `zabor.yaml:3:13: hold_after: the number 30 is not a duration: write a number with its unit: 90s, 5m, 1h or 90d`},
		{"text for a duration", "queues:", "hold_after: soon\nqueues:", `zabor.yaml:3:13: hold_after: "soon" is not a duration: write a number with its unit: 90s, 5m, 1h or 90d`},
		{"text for a framework's duration", "90s", "soon", `zabor.yaml:5:28: queues.payments.laravel.retry_after: "soon" is not a duration: write 90s, 1h, or the framework's seconds, 90`},
		{"yes for true", "    laravel:", "    shared: yes\n    laravel:", `zabor.yaml:5:13: queues.payments.shared: "yes" is not true or false: write true or false`},
		{"a number for text", "    reference: /id", "    account: 12345\n    reference: /id", `zabor.yaml:12:14: providers.acquirer.account: the number 12345 where text belongs: write it in quotes: "12345"`},
		{"a truth for text", "    reference: /id", "    account: true\n    reference: /id", `zabor.yaml:12:14: providers.acquirer.account: true where text belongs: write it in quotes: "true"`},
		{"a list for text", "order: order.id", "order: [order.id]", `zabor.yaml:17:12: steps.charge.order: a list where text belongs: write one text`},
		{"text for a list", "values: [paid]", "values: paid", `zabor.yaml:13:41: providers.acquirer.settled.values: "paid" where a list belongs: write [paid]`},
		{"text for a group", "settled: {pointer: /status, values: [paid]}", "settled: paid", `zabor.yaml:13:14: providers.acquirer.settled: "paid" where a group of settings belongs: write keys: pointer, values`},
		{"a list for a map", "steps:\n  charge:", "steps:\n  - charge:", `zabor.yaml:15:3: steps: a list where a map belongs: write name: value`},
		{"a word", "    laravel:", "    missing_row: capturee\n    laravel:", `zabor.yaml:5:18: queues.payments.missing_row: "capturee" is not known here: did you mean capture?`},
		{"an amount of several", "amount: cents", "amount: {major: a, minor: b}", `zabor.yaml:18:13: steps.charge.amount: an amount is the path to it: write a path to minor units, such as cents, or {major: total} for a decimal`},
		{"an empty list of classes", `message: 'App\Jobs\Charge'`, `message: []`, `zabor.yaml:16:14: steps.charge.message: the list is empty: write at least one class`},

		// Classes.
		{"double quotes that YAML refuses", `'App\Jobs\Charge'`, `"App\Jobs\Charge"`, `zabor.yaml:16:19: not YAML: found unknown escape character 'J': use single quotes: 'App\Jobs\Charge'; in double quotes a backslash begins an escape`},
		{"double quotes that YAML takes", `'App\Jobs\Charge'`, `"App\Notify"`, `zabor.yaml:16:14: steps.charge.message: "App\Notify" is in double quotes: use single quotes: 'App\Jobs\Charge'; in double quotes a backslash begins an escape`},
		{"no class", `'App\Jobs\Charge'`, `'App/Jobs/Charge'`, `zabor.yaml:16:14: steps.charge.message: "App/Jobs/Charge" is not the name of a class: write it as PHP does: 'App\Jobs\Charge'`},
		{"a pattern for a step", `'App\Jobs\Charge'`, `'App\Jobs\*'`, `zabor.yaml:16:14: steps.charge.message: "App\\Jobs\\*" is not the name of a class: write it as PHP does: 'App\Jobs\Charge'`},
		{"a class twice", "steps:\n", "steps:\n  again: {message: ['App\\Jobs\\Other', 'App\\Jobs\\Charge'], order: id, provider: acquirer, request: {path: /p}}\n",
			`zabor.yaml:17:14: steps.charge.message: App\Jobs\Charge is a message of step again too: a message has one step: take it out of one of them`},

		// YAML itself.
		{"an anchor", "order: order.id", "order: &o order.id", `zabor.yaml:17:12: steps.charge.order: YAML's anchors, aliases and tags are not read here: write the value out`},
		{"a merge", "{retry_after: 90s}", "{<<: *x, retry_after: 90s}", `zabor.yaml:5:15: queues.payments.laravel: YAML's merge keys are not read here: write the keys out`},
		{"two documents", "steps:\n", "---\nsteps:\n", `zabor.yaml:15:1: the file holds several documents: take the line --- out`},
		{"a bracket", "values: [paid]}", "values: [paid}", `zabor.yaml:13:46: not YAML: a list or a map is not closed: close it by ] or }`},

		// Addresses.
		{"an unknown scheme", "sqlite:///var", "postgre:///var", `zabor.yaml:1:8: fence: the address begins with none of the known schemes: did you mean postgres://?`},
		{"no scheme", "redis://127.0.0.1:6379/0", "127.0.0.1:6379", `zabor.yaml:2:8: redis: the address begins with none of the known schemes: begin it with one of redis://, rediss://, unix://`},
		{"an empty address", "redis: redis://127.0.0.1:6379/0", `redis: "${NONE:-}"`, `zabor.yaml:2:8: redis: the address is empty: write one that begins with one of redis://, rediss://, unix://`},

		// Variables.
		{"an unknown variable", "${TOKEN}", "${TOKEM}", `zabor.yaml:10:30: providers.acquirer.headers.Authorization: "Bearer ${TOKEM}": TOKEM is not set: set it, or TOKEM_FILE to the name of a file that holds it, or write ${TOKEM:-text} for a default`},
		{"no closing brace", "${TOKEN}", "${TOKEN", `zabor.yaml:10:30: providers.acquirer.headers.Authorization: "Bearer ${TOKEN": ${ has no closing brace: write ${NAME}, or $${ for a dollar and a brace`},
		{"a variable that is no number", "queues:", "lanes: ${TOKEN}\nqueues:", `zabor.yaml:3:8: lanes: "${TOKEN}" is not a whole number: write 1 to 1024`},
		{"a variable within a template", "{{minor}}", "{{${TOKEN}}}", `zabor.yaml:21:47: steps.charge.request.json.amount: "{{${TOKEN}}}": ${TOKEN} stands between {{ and }}: put it outside`},
		{"a variable in another's error", "https://pay.example.com", "https://user:${TOKEN}@pay.example.com", `zabor.yaml:9:15: providers.acquirer.base_url: "https://user:xxxxx@pay.example.com" holds a user: put credentials into headers`},
		{"a variable that is quoted", "provider: acquirer", "provider: ${TOKEN}", `zabor.yaml:20:15: steps.charge.provider: there is no provider "${TOKEN}": write one of acquirer, or write it into providers:`},
		{"a scheme in a variable", "https://pay.example.com", "${TOKEN}://pay.example.com", `zabor.yaml:9:15: providers.acquirer.base_url: "${TOKEN}://pay.example.com": write https://host or https://host/path`},

		{"a gap of a template for an address", "https://pay.example.com", "https://…", `zabor.yaml:9:15: providers.acquirer.base_url: "https://%E2%80%A6": its host is not in ASCII: write the provider's host, one of other letters in its xn-- form`},
		{"a gap of a template in a path", "/payments", "/…", `zabor.yaml:21:21: steps.charge.request.path: "…" must be percent-encoded`},

		// Queues.
		{"both frameworks", "    laravel: {retry_after: 90s}", "    laravel: {retry_after: 90s}\n    symfony: {dsn: redis://localhost/messages}", `zabor.yaml:5:5: queues.payments: a queue is Laravel's or Symfony's, and this one is both: make two queues of it`},
		{"no framework", "    laravel: {retry_after: 90s}", "    missing_row: doubt", `zabor.yaml:5:5: queues.payments: the queue is neither Laravel's nor Symfony's: write laravel: {…} or symfony: {dsn: …}`},
		{"capture and shared", "    laravel:", "    shared: true\n    missing_row: capture\n    laravel:", `zabor.yaml:6:18: queues.payments.missing_row: capture and shared: true exclude each other: a message that a PHP worker has had may have been charged by it: take missing_row out`},
		{"a comma", "  payments:", "  'a,b':", `zabor.yaml:5:5: queues.a,b: the queue's name has a comma, at which Laravel divides names: write one queue for each`},
		{"a time zone", "{retry_after: 90s}", "{timezone: Mars}", `zabor.yaml:5:25: queues.payments.laravel.timezone: "Mars" is not a time zone: write UTC or a name such as Europe/Berlin`},
		{"Symfony's table for Laravel", "    laravel:", "    failed: {queue_name: failed}\n    laravel:", `zabor.yaml:5:26: queues.payments.failed.queue_name: a failure transport of Laravel has none: take it out`},
		{"a stream and a table", "    laravel: {retry_after: 90s}", "    symfony: {dsn: redis://localhost/messages}\n    failed: {stream: failed, table: t}", `zabor.yaml:6:37: queues.payments.failed.table: a failure transport of a stream has none: take it out`},
		{"two timeouts", "    laravel: {retry_after: 90s}", "    symfony: {dsn: redis://localhost/messages?redeliver_timeout=60, redeliver_timeout: 90}", `zabor.yaml:5:88: queues.payments.symfony.redeliver_timeout: 1m30s here and another redeliver_timeout in the DSN: take it out here, or out of the DSN`},

		// The reserve (I2).
		{"a short reserve", "90s", "12s", `zabor.yaml:5:28: queues.payments.laravel.retry_after: queue payments keeps a message for 12s, and step charge at provider acquirer may take 12.1s: 1 × timeout 10s makes a lease of 11s, with a margin of 1.1s: write more than 12.1s, here and for the framework, or a shorter timeout in providers.acquirer`},
		{"a short reserve in a DSN", "    laravel: {retry_after: 90s}", "    symfony: {dsn: 'redis://localhost/messages?redeliver_timeout=12'}", `zabor.yaml:5:20: queues.payments.symfony.dsn: queue payments keeps a message for 12s, and step charge at provider acquirer may take 12.1s: 1 × timeout 10s makes a lease of 11s, with a margin of 1.1s: write more than 12.1s, here and for the framework, or a shorter timeout in providers.acquirer`},
		{"a reserve of the default", "timeout: 10s", "timeout: 80s", `zabor.yaml:5:28: queues.payments.laravel.retry_after: queue payments keeps a message for 1m30s, and step charge at provider acquirer may take 1m36.8s: 1 × timeout 1m20s makes a lease of 1m28s, with a margin of 8.8s: write more than 1m36.8s, here and for the framework, or a shorter timeout in providers.acquirer`},

		{"a reserve for two requests", base, strings.Replace(strings.Replace(base, "timeout: 10s", "timeout: 40s", 1), steps, "    request: {path: '/payments/{{prepared}}'}\n    prepare: {path: /payments/new}\n", 1), `zabor.yaml:5:28: queues.payments.laravel.retry_after: queue payments keeps a message for 1m30s, and step charge at provider acquirer may take 1m36.8s: 2 × timeout 40s makes a lease of 1m28s, with a margin of 8.8s: write more than 1m36.8s, here and for the framework, or a shorter timeout in providers.acquirer`},

		// Providers.
		{"an unknown profile", "profile: custom", "profile: stripee", `zabor.yaml:8:14: providers.acquirer.profile: "stripee" is not a known profile: did you mean stripe?`},
		{"a bad pointer", "reference: /id", "reference: id", `zabor.yaml:12:16: providers.acquirer.reference: "id" is not a JSON pointer: it begins with a slash, such as /data/0/id`},
		{"a bad status", "    reference: /id", "    declined: {statuses: [409]}\n    reference: /id", `zabor.yaml:12:26: providers.acquirer.declined.statuses: 409 is not a definite no: only a 4xx other than 401, 407, 408, 409, 421, 423, 424, 425 and 429 can be`},
		{"no way to a yes", "    settled: {pointer: /status, values: [paid]}\n", "", `zabor.yaml:8:5: providers.acquirer: settled: no values: without them no answer is ever a yes`},

		// Steps.
		{"a slash in the scope", "redis: ", "scope: a/b\nredis: ", `zabor.yaml:2:8: scope: "a/b" has a slash, which divides it from a step's scope: write another sign, such as -`},
		{"a long scope", "redis: ", "scope: " + strings.Repeat("s", 65) + "\nredis: ", `zabor.yaml:2:8: scope: it is 65 bytes long: at most 64, together with a slash and a step's scope: write a shorter one`},
		{"a slash in a variable", "redis: ", "scope: \"${SLASH}\"\nredis: ", `zabor.yaml:2:8: scope: "${SLASH}" has a slash, which divides it from a step's scope: write another sign, such as -`},
		{"no room for a step's scope", base, strings.Replace("scope: "+strings.Repeat("s", 63)+"\n"+base, "order: order.id", "order: order.id\n    scope: tenant", 1), `zabor.yaml:19:12: steps.charge.scope: the top-level scope of 63 bytes leaves no room for it: at most 64, a slash and the step's scope together: shorten the top-level scope`},
		{"a path as default", "order: order.id", "order: order.id\n    defaults: {order.id: 7}", `zabor.yaml:18:26: steps.charge.defaults.order.id: the class's defaults are those of its own properties, and this is a path: write the property's name alone`},
		{"a colon in the name", "  charge:\n", "  'charge:it':\n", `zabor.yaml:16:5: steps.charge:it: step: "charge:it" has a colon: it is what divides a step from its part`},
		{"an unknown provider", "provider: acquirer", "provider: aquirer", `zabor.yaml:20:15: steps.charge.provider: there is no provider "aquirer": did you mean acquirer?`},
		{"a template that is no provider", "provider: acquirer", `provider: "stripe-{{.m}}"`, `zabor.yaml:20:15: steps.charge.provider: there is no provider "stripe-{{.m}}": write one of acquirer, or write it into providers:`},
		{"a bad path", "order: order.id", "order: order..id", `zabor.yaml:17:12: steps.charge.order: "order..id" is not the path of a property: order.id is one`},
		{"a template that does not end", "{{minor}}", "{{minor", `zabor.yaml:21:47: steps.charge.request.json.amount: unclosed action`},
		{"an unknown function", "{{minor}}", "{{cents}}", `zabor.yaml:21:47: steps.charge.request.json.amount: {{cents}} is unknown: write {{.cents}} for a property of the message, or one of {{order}} {{step}} {{scope}} {{minor}} {{major}} {{currency}} {{provider_key}} {{prepared}} {{reference}}`},
		{"a write in load", "    amount: cents", "    load: \"UPDATE orders SET a = 1\"\n    amount: cents", `zabor.yaml:18:11: steps.charge.load: UPDATE: one SELECT that only reads is wanted: a column of that name must be quoted`},
		{"an unknown currency", "currency: EUR", "currency: EUX", `zabor.yaml:19:15: steps.charge.currency: "EUX" is not a currency of ISO 4217: three letters such as EUR are`},
		{"a refund without a part", "  charge:\n", "  refund:\n", `zabor.yaml:16:5: steps.refund.part: is missing: an order can have more than one refund, and the second would be taken for the first: write part: with the property that tells them apart, such as refundId, or part: none where an order has only one`},
		{"a capture by its path", "path: /payments,", `path: "/payments/{{.id}}/Capture",`, `zabor.yaml:16:5: steps.charge.part: is missing: an order can have more than one capture, and the second would be taken for the first: write part: with the property that tells them apart, such as refundId, or part: none where an order has only one`},
		{"no backoff", "queues:", "backoff: []\nqueues:", `zabor.yaml:3:10: backoff: the list is empty: write at least one wait, such as [10s, 1m, 5m]`},
		{"a bad wait", "queues:", "backoff: [10s, 5]\nqueues:", `zabor.yaml:3:16: backoff[1]: the number 5 is not a duration: write a number with its unit: 90s, 5m, 1h or 90d`},
		{"a bad prepare", steps, steps + "    prepare: {path: nowhere}\n", `zabor.yaml:22:21: steps.charge.prepare.path: "nowhere": it begins with a slash`},

		{"a prepare that nothing confirms", steps, steps + "    prepare: {path: /new}\n", `zabor.yaml:22:14: steps.charge.prepare: the request after it does not confirm the id that it gets: write {{prepared}} there`},
		{"nothing to confirm", "path: /payments,", "path: '/payments/{{prepared}}',", `zabor.yaml:16:5: steps.charge: prepare: it is missing: {{prepared}} in the request is the id that it gets: write prepare: with the request that gets it`},
		{"a hook that reads", steps, steps + "    settled: SELECT 1\n", `zabor.yaml:22:14: steps.charge.settled: it begins with SELECT: one INSERT, UPDATE or DELETE is wanted`},
		{"two statements in a hook", steps, steps + "    held: {sql: 'DELETE FROM a; COMMIT', rows: -1}\n", `zabor.yaml:22:11: steps.charge.held: something stands behind the semicolon: one INSERT, UPDATE or DELETE is wanted`},
		{"a hook on the fence", steps, steps + "    captured: DELETE FROM zabor_fences\n", `zabor.yaml:22:15: steps.charge.captured: zabor_fences is the fence's own: a hook writes the application's tables`},
		{"a hook in another database", base, strings.Replace(base, steps, steps+"    pending: DELETE FROM a\n", 1) + "database: mysql://localhost/shop\n", `zabor.yaml:22:14: steps.charge.pending: a hook runs in the transaction of the fence's row, and the application's database is another one here: put the fence's tables into the application's database, or take the hook out`},
		{"a volatile field that is none", steps, steps + "    volatile: [amuont]\n", `zabor.yaml:22:15: steps.charge.volatile: no body and no query has the field "amuont" at its top: a property of the message is written with a point before it, such as .requestedAt`},
		{"volatile money", steps, steps + "    volatile: [.cents]\n", `zabor.yaml:22:15: steps.charge.volatile: .cents: the key or the money is made of it, and always counts: take it out`},
		{"one step with two hooks", steps, steps + "    settled: DELETE FROM a\n  again:\n    message: Again\n    step: charge\n    order: id\n    provider: acquirer\n    request: {path: /x}\n    settled: {sql: DELETE FROM a, rows: 2}\n",
			`zabor.yaml:22:14: steps.charge.settled: steps again and charge are both the step charge of the key, and this hook is not the same in both: write the same hook into both, or into neither`},
		{"one step with a hook and without", steps, steps + "    held: DELETE FROM a\n  too:\n    message: Too\n    step: charge\n    order: id\n    provider: acquirer\n    request: {path: /x}\n",
			`zabor.yaml:24:5: steps.too.held: steps charge and too are both the step charge of the key, and this hook is not the same in both: write the same hook into both, or into neither`},

		// The rest.
		{"a step that is refused", "steps:\n", "bus: {refuse: ['App\\Jobs\\*']}\nsteps:\n", `zabor.yaml:14:16: bus.refuse[0]: App\Jobs\Charge is a message of step charge: take one of them out`},
		{"a step that is forwarded", "steps:\n", "bus: {forward: {'App\\Jobs\\Charge': default}}\nsteps:\n", `zabor.yaml:14:36: bus.forward.App\Jobs\Charge: App\Jobs\Charge is a message of step charge: take one of them out`},
		{"a forward in a circle", "steps:\n", "bus: {forward: {Mail: payments}}\nsteps:\n", `zabor.yaml:14:23: bus.forward.Mail: queue payments is one that zabor takes from: the message would come back and be forwarded for ever: write a queue that only the PHP workers take from; for Symfony its stream`},
		{"a step that goes on in a circle", "    order: ", "    then: payments\n    order: ", `zabor.yaml:17:11: steps.charge.then: queue payments is one that zabor takes from: the message would come back, and go on for ever: write a queue that only the PHP workers take from; for Symfony its stream`},
		{"a forward to nowhere", "steps:\n", "bus: {forward: {Mail: ''}}\nsteps:\n", `zabor.yaml:14:23: bus.forward.Mail: there is no queue to forward to: write the name of a queue that the PHP workers take from`},
		{"forwarded and refused", "steps:\n", "bus: {forward: {'Mail*': mail}, refuse: [Login, MailToAll]}\nsteps:\n", `zabor.yaml:14:26: bus.forward.Mail*: a message that is forwarded here is refused by bus.refuse[1], MailToAll, too: take one of them out; the star alone takes the rest and may stand beside others`},
		{"forwarded within what is refused", "steps:\n", "bus: {forward: {MailToAll: mail}, refuse: ['Mail*']}\nsteps:\n", `zabor.yaml:14:28: bus.forward.MailToAll: a message that is forwarded here is refused by bus.refuse[0], Mail*, too: take one of them out; the star alone takes the rest and may stand beside others`},
		{"two stars", "steps:\n", "bus: {forward: {'*': mail}, refuse: ['*']}\nsteps:\n", `zabor.yaml:14:22: bus.forward.*: a message that is forwarded here is refused by bus.refuse[0], *, too: take one of them out; the star alone takes the rest and may stand beside others`},
		{"an alert to nowhere", "queues:", "alerts: [nowhere]\nqueues:", `zabor.yaml:3:10: alerts[0]: this is not an address: write scheme://…, or the webhook's address as it was given to you`},
		{"a port alone", "queues:", "metrics: {listen: '9464'}\nqueues:", `zabor.yaml:3:19: metrics.listen: this is not host:port: write host:port, such as 127.0.0.1:8070`},
		{"a role", "queues:", "dashboard: {listen: '127.0.0.1:1', users: {a: {password: x, role: root}}}\nqueues:", `zabor.yaml:3:67: dashboard.users.a.role: "root" is not known here: write one of viewer, operator`},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := Parse("zabor.yaml", []byte(change(t, test.old, test.new)), environment(baseEnv))
			var errs Errors
			if !errors.As(err, &errs) {
				t.Fatalf("error %v, want findings", err)
			}
			if got := errs.Error(); got != test.want {
				t.Errorf("\ngot  %s\nwant %s", got, test.want)
			}
			if strings.Contains(err.Error(), "topsecret") {
				t.Errorf("the error shows a variable's value: %v", err)
			}
		})
	}
}

// A file is told all that is wrong with it at once, in its own order.
func TestAllFindingsAtOnce(t *testing.T) {
	const file = `scope: a/b
fence: mysq://localhost/shop
lanes: 0
lanse: 1
queues:
  payments:
    laravel: {retry_after: 5s}
    missing_row: perhaps
providers:
  acquirer: {profile: custom, base_url: "${BASE}", timeout: 10s, reference: /id, settled: {pointer: /s, values: [paid]}}
steps:
  refund: {message: 'App\Refund', order: id, provider: acquirer, request: {path: refunds}}
`
	_, err := Parse("z.yaml", []byte(file), environment(map[string]string{"BASE": "https://pay.example.com"}))
	want := `z.yaml:1:8: scope: "a/b" has a slash, which divides it from a step's scope: write another sign, such as -
z.yaml:2:8: fence: the address begins with none of the known schemes: did you mean mysql://?
z.yaml:3:8: lanes: the number 0 is out of bounds: write 1 to 1024
z.yaml:4:1: lanse: unknown key: did you mean lanes?
z.yaml:7:14: queues.payments.laravel: a Laravel queue needs the address of its Redis: write redis: at the top of the file, such as redis://127.0.0.1:6379/0
z.yaml:7:28: queues.payments.laravel.retry_after: queue payments keeps a message for 5s, and step refund at provider acquirer may take 12.1s: 1 × timeout 10s makes a lease of 11s, with a margin of 1.1s: write more than 12.1s, here and for the framework, or a shorter timeout in providers.acquirer
z.yaml:8:18: queues.payments.missing_row: "perhaps" is not known here: write one of doubt, capture
z.yaml:12:11: steps.refund.part: is missing: an order can have more than one refund, and the second would be taken for the first: write part: with the property that tells them apart, such as refundId, or part: none where an order has only one
z.yaml:12:82: steps.refund.request.path: "refunds": it begins with a slash`
	if err == nil || err.Error() != want {
		t.Errorf("\ngot  %v\nwant %s", err, want)
	}
}

func TestDurations(t *testing.T) {
	for _, test := range []struct {
		in      string
		seconds bool // of a framework
		want    time.Duration
		ok      bool
	}{
		{"90s", false, 90 * time.Second, true},
		{"1h", false, time.Hour, true},
		{"90d", false, 90 * 24 * time.Hour, true},
		{"1d12h", false, 36 * time.Hour, true},
		{"1h30m5s", false, time.Hour + 30*time.Minute + 5*time.Second, true},
		{"250ms", false, 250 * time.Millisecond, true},
		{"0", false, 0, true},
		{"90", false, 0, false},
		{"90", true, 90 * time.Second, true},
		{"90s", true, 90 * time.Second, true},
		{"090", true, 0, false},
		{"-5", true, 0, false},
		{"1.5h", false, 0, false},
		{"5s1m", false, 0, false},
		{"90 s", false, 0, false},
		{"1w", false, 0, false},
		{"", false, 0, false},
		{"999999d", false, 0, false}, // beyond what a duration holds
	} {
		if got, ok := parseDuration(test.in, test.seconds); ok != test.ok || ok && got != test.want {
			t.Errorf("parseDuration(%q, %v)=%s, %v; want %s, %v", test.in, test.seconds, got, ok, test.want, test.ok)
		}
	}
}

func TestReserveOfADSN(t *testing.T) {
	for dsn, want := range map[Address]time.Duration{
		"redis://localhost/messages":                                          0,
		"redis://localhost/messages?redeliver_timeout=60":                     time.Minute,
		"redis://a/messages?redeliver_timeout=60,redis://b":                   time.Minute,
		"redis://a/m?redeliver_timeout=60,redis://b?redeliver_timeout=90&x=y": 90 * time.Second,
		"redis:?host[a:26379]&redeliver_timeout=60&sentinel_master=m":         time.Minute,
		"redis://localhost/messages?redeliver_timeout=soon":                   0,
	} {
		if got, found := redeliverTimeout(dsn); got != want || found != (want > 0) {
			t.Errorf("%s: %s, %v; want %s", dsn, got, found, want)
		}
	}
}

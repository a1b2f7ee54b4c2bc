package config

import (
	"os"
	"strings"
	"testing"
	"time"

	"zabor/provider"
)

// documented is the file in docs/providers.md.
func documented(t *testing.T) string {
	t.Helper()
	data, err := os.ReadFile("../../docs/providers.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(data), "```yaml\n")
	file, _, ok := strings.Cut(rest, "```")
	if !ok {
		t.Fatal("there is no example")
	}
	return file
}

// The documented profile says all that a custom one can, and means what it says.
func TestCustomProfile(t *testing.T) {
	c, err := Parse("zabor.yaml", []byte(documented(t)), environment(map[string]string{"ACQUIRER_TOKEN": "t0ken"}))
	if err != nil {
		t.Fatal(err)
	}
	p, ok := c.Profile("acquirer")
	if !ok {
		t.Fatal("no profile")
	}
	switch {
	case p.Key.Mark != "Idempotent-Replayed" || p.Key.Life != 24*time.Hour || p.Headers["Authorization"] != "Bearer t0ken":
		t.Errorf("key %+v", p.Key)
	case len(p.Rules) != 3 || p.Rules[0].Means != "earlier" || p.Rules[0].Values["/error/code"][0] != "duplicate_reference" || p.Rules[1].Header["X-Not-Executed"] != "true":
		t.Errorf("rules %+v", p.Rules)
	case p.Malformed.Values[0] != "invalid_request" || p.Prepare.Reference != "/intent_id" || p.Echo != (provider.Echo{Key: "/metadata/key", Order: "/metadata/order"}):
		t.Errorf("%+v %+v %+v", p.Malformed, p.Prepare, p.Echo)
	case p.Lookup.Prepared != "/intents/{{prepared}}" || p.Lookup.Reference != "/payments/{{reference}}" || p.Lookup.Carried != "/metadata/key" || p.PendingFor != 240*time.Hour:
		t.Errorf("look-up %+v", p.Lookup)
	case p.List.Path != "/payments?limit=100&since={{since}}" || p.List.Items != "/data" || p.List.Made != "/created" || p.List.Key != "/metadata/key" || p.List.Orders[0] != "/metadata/order" ||
		p.List.Paths[0] != "/intents" || p.List.Next != (provider.Next{Parameter: "cursor", Cursor: "/next"}):
		t.Errorf("list %+v", p.List)
	}
}

func TestCustomProfileRefused(t *testing.T) {
	for _, tt := range []struct{ from, to, want string }{
		{"means: earlier", "means: before", "providers.acquirer.rules[0].means"},
		{"/error/code: [duplicate_reference]", "error: [x]", "not a JSON pointer"},
		{`{means: transient, header: {X-Not-Executed: "true"}}`, `{means: transient, statuses: [503]}`, "transient by a status alone"},
		{"values: [invalid_request]", "values: [invalid_request], statuses: [429]", "429 is not a definite no"},
		{"mark: Idempotent-Replayed", "mark: 'a b'", "providers.acquirer.key.mark"},
		{"echo: {key: /metadata/key,", "echo: {key: metadata,", "providers.acquirer.echo.key"},
		{`path: "/payments?key={{provider_key}}"`, `path: "/payments?key={{.cents}}"`, "sees only the row"},
		{"carried: /metadata/key", "carried: key", "lookup.carried"},
		{"items: /data\n      made", "items: data\n      made", "providers.acquirer.list.items"},
		{"next: {parameter: cursor, cursor: /next}", "next: {cursor: /next}", "providers.acquirer.list.next"},
		{`path: "/payments?limit=100`, `path: "payments?limit=100`, "providers.acquirer.list.path"},
		{"pending_for: 240h", "pending_for: 1ms", "out of bounds"},
		{"absent_after: 10m", "body: {a: 1}\n      absent_after: 10m", "lookup.body: unknown key"},
	} {
		file := strings.Replace(documented(t), tt.from, tt.to, 1)
		_, err := Parse("zabor.yaml", []byte(file), environment(map[string]string{"ACQUIRER_TOKEN": "t0ken"}))
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %s", tt.to, err, tt.want)
		}
	}
}

// A request that moves no money is no payment, and one that moves it is no first
// request of two.
func TestHarmlessRequests(t *testing.T) {
	for _, tt := range []struct{ steps, want string }{
		{`request: {path: /v1/payment_intents, form: {amount: "{{minor}}"}}`, `steps.charge.request: POST /v1/payment_intents by itself moves no money: write "true" at /confirm into it, or put it into prepare`},
		{`request: {path: /v1/payment_intents, form: {amount: "{{minor}}", confirm: "false"}}`, "by itself moves no money"},
		{`request: {path: "/v1/payment_intents?x=1", form: {amount: "{{minor}}"}}`, "it has a query"},
		{`request: {path: /v1/payment_intents, form: {amount: "{{minor}}", confirm: "true"}}`, ""},
		{`request: {path: /v1/payment_intents, form: {amount: "{{minor}}", confirm: "{{.now}}"}}`, ""},
		{`prepare: {path: /v1/payment_intents, form: {amount: "{{minor}}", confirm: "true"}}
    request: {path: "/v1/payment_intents/{{prepared}}/confirm"}`, `steps.charge.prepare: POST /v1/payment_intents moves the money (charge with the customer), before an id was saved`},
		{`request: {path: /v1/transfers/tr_1/reversals, form: {amount: "{{minor}}"}}`, "steps.charge.request: POST /v1/transfers/tr_1/reversals: what a reversal's answers prove is not known"},
		{`request: {path: /v1/charges/ch_1/dispute, form: {amount: "{{minor}}"}}`, "the profile has no line about it"},
		{`prepare: {path: /v1/payment_intents, form: {amount: "{{minor}}"}}
    request: {path: "/v1/payment_intents/{{prepared}}/confirm"}`, ""},
	} {
		file := strings.Replace(builtinFile, `request: {path: /v1/payment_intents, form: {amount: "{{minor}}", confirm: "true"}}`, tt.steps, 1)
		_, err := Parse("zabor.yaml", []byte(file), environment(map[string]string{"STRIPE_SECRET": "sk_test_1"}))
		if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("%s: %v, want %q", tt.steps, err, tt.want)
		}
	}
}

// A profile's own horizons win where they are longer.
func TestHorizons(t *testing.T) {
	for _, tt := range []struct {
		top  string
		want time.Duration
	}{{"pending_for: 1h\n", 336 * time.Hour}, {"pending_for: 400h\n", 400 * time.Hour}} {
		c, err := Parse("zabor.yaml", []byte(tt.top+builtinFile), environment(map[string]string{"STRIPE_SECRET": "sk_test_1"}))
		if err != nil {
			t.Fatal(err)
		}
		if got := c.Compiled()[0].PendingFor("card"); got != tt.want {
			t.Errorf("%s: %s, want %s", tt.top, got, tt.want)
		}
	}
}

func TestLimits(t *testing.T) {
	codes := func(file string) string {
		c, err := Parse("zabor.yaml", []byte(file), environment(map[string]string{"STRIPE_SECRET": "sk_test_1", "ACQUIRER_TOKEN": "t"}))
		if err != nil {
			t.Fatal(err)
		}
		var all []string
		for _, l := range c.Limits() {
			all = append(all, l.Step+" "+l.Provider+" "+l.Code)
		}
		return strings.Join(all, ", ")
	}
	custom := documented(t)
	without := func(file, from, to string) string {
		i := strings.Index(file, from)
		j := strings.Index(file[i:], to)
		return file[:i] + file[i+j:]
	}
	noKey := without(custom, "    key: {", "    reference: /id")
	for _, tt := range []struct{ name, file, want string }{
		{"a key and a look-up that finds nothing", builtinFile, "charge card not-carried, charge card key-life"},
		{"a key and a look-up", strings.Replace(builtinFile, `confirm: "true"`, `confirm: "true", "metadata[zabor_key]": "{{provider_key}}"`, 1), "charge card key-life"},
		{"two steps", custom, "charge acquirer key-life"},
		{"no key", noKey, "charge acquirer look-up-only"},
		{"neither", without(noKey, "    lookup:", "    pending_for"), "charge acquirer held, charge acquirer lost-commits"},
		{"no look-up", without(custom, "    lookup:", "    pending_for"), "charge acquirer held-later, charge acquirer key-life"},
	} {
		if got := codes(tt.file); got != tt.want {
			t.Errorf("%s: %s, want %s", tt.name, got, tt.want)
		}
	}
}

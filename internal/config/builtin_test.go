package config

import (
	"strings"
	"testing"
	"time"

	"zabor/provider"
)

const builtinFile = `fence: "sqlite:///tmp/fence.db"
redis: redis://127.0.0.1:6379/0
queues:
  payments: {laravel: {retry_after: 10m}}
providers:
  card: {profile: stripe, secret: "${STRIPE_SECRET}"}
steps:
  charge:
    message: 'App\Jobs\Charge'
    order: id
    amount: cents
    currency: EUR
    provider: card
    request: {path: /v1/payment_intents, form: {amount: "{{minor}}", confirm: "true"}}
`

func TestBuiltinProvider(t *testing.T) {
	env := map[string]string{"STRIPE_SECRET": "sk_test_1"}
	c, err := Parse("zabor.yaml", []byte(builtinFile), environment(env))
	if err != nil {
		t.Fatal(err)
	}
	p, ok := c.Profile("card")
	if !ok || p.BaseURL != "https://api.stripe.com" || p.Headers["Authorization"] != "Bearer sk_test_1" || p.Calls[0].Key.Life != 24*time.Hour {
		t.Errorf("profile at %s, %v", p.BaseURL, ok)
	}
	if _, err := provider.New("card", p, provider.Options{}); err != nil {
		t.Error(err)
	}
}

func TestBuiltinProviderRefused(t *testing.T) {
	for _, tt := range []struct{ name, card, secret, want string }{
		{"another setting", `{profile: stripe, secret: "${STRIPE_SECRET}", timeout: 10s}`, "sk_1", `zabor.yaml:6:55: providers.card.timeout: the profile stripe says so itself: take it out, or write profile: custom`},
		{"an address", `{profile: stripe, secret: "${STRIPE_SECRET}", base_url: "https://evil.example"}`, "sk_1", "providers.card.base_url: the profile stripe says so itself"},
		{"no secret", `{profile: stripe}`, "", "providers.card: secret: missing"},
		{"an empty secret", `{profile: stripe, secret: "${STRIPE_SECRET}"}`, "", "zabor.yaml:6:35: providers.card.secret: missing"},
		{"a newline in it", `{profile: stripe, secret: "${STRIPE_SECRET}"}`, "sk_verysecret\n", "newline"},
		{"no account", `{profile: yookassa, secret: "${STRIPE_SECRET}"}`, "sk_1", "providers.card: account: missing: write the shop id"},
		{"not callable", `{profile: braintree, secret: "${STRIPE_SECRET}"}`, "sk_1", "providers.card.profile: Braintree is known and cannot be called: without a key"},
	} {
		file := strings.Replace(builtinFile, `{profile: stripe, secret: "${STRIPE_SECRET}"}`, tt.card, 1)
		_, err := Parse("zabor.yaml", []byte(file), environment(map[string]string{"STRIPE_SECRET": tt.secret}))
		if err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "verysecret") {
			t.Errorf("%s: %v, want %s", tt.name, err, tt.want)
		}
	}
}

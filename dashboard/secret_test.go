package dashboard

import (
	"fmt"
	"strings"
	"testing"
)

// What a message holds that zabor cannot run is shown without its secrets too,
// however it is packed; and what cannot be unpacked is not shown.
func TestNothingSecretInWhatCannotBeRun(t *testing.T) {
	t.Parallel()
	const job = `O:15:"App\Jobs\Charge":4:{s:7:"orderId";s:4:"1001";s:11:"` + "\x00*\x00" + `apiToken";s:9:"hidden-01";s:4:"card";a:2:{s:3:"cvc";s:3:"987";s:6:"expiry";s:5:"01/30";}s:4:"note";s:14:"paid by cnon:x";}`
	slashed := strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\x00", `\0`).Replace(job)
	quoted := func(s string) string { return fmt.Sprintf("%q", s) }
	jsonText := func(s string) string { return strings.ReplaceAll(quoted(s), `\x00`, `\u0000`) }
	for name, tt := range map[string]struct {
		body        string
		shown, not_ []string
	}{
		"Laravel":         {`{"uuid":"u-1","data":{"commandName":"App\\Jobs\\Charge","command":` + jsonText(job) + `}}`, []string{"u-1", "1001", "apiToken", "01/30"}, []string{"hidden-01", "987", "cnon:x"}},
		"Symfony":         {`{"body":` + jsonText(slashed) + `,"headers":[]}`, []string{"1001", "apiToken"}, []string{"hidden-01", "987", "cnon:x"}},
		"JSON in JSON":    {`{"body":"{\"order\":\"1001\",\"password\":\"hidden-01\"}"}`, []string{"1001", "password"}, []string{"hidden-01"}},
		"cut off":         {`{"data":{"command":` + jsonText(job[:len(job)-3]) + `}}`, []string{"PHP's serialization"}, []string{"hidden-01", "987", "1001"}},
		"no JSON":         {`{"data":{"command":` + jsonText(job), []string{"PHP's serialization"}, []string{"hidden-01", "987"}},
		"serialized bare": {job, []string{"1001"}, []string{"hidden-01", "987"}},
		"fields in text":  {`{"order":"1001","password":"hidden-01","cvc": "987"`, []string{"1001"}, []string{"hidden-01", "987"}},
	} {
		var all []string
		for _, f := range bodyFields("", []byte(tt.body)) {
			all = append(all, f.Name+"="+f.Value)
		}
		text := strings.Join(all, "\n")
		for _, word := range tt.shown {
			if !strings.Contains(text, word) {
				t.Errorf("%s: %q is not shown:\n%s", name, word, text)
			}
		}
		for _, word := range tt.not_ {
			if strings.Contains(text, word) {
				t.Errorf("%s: %q is shown:\n%s", name, word, text)
			}
		}
	}
	for name, value := range map[string]any{"source": "x1", "source_id": "x1", "payment_method_nonce": "x1", "RebillId": 12, "access_key": "x1", "db.pwd": "x1", "passphrase": "x1"} {
		if got := fields(map[string]any{"a": map[string]any{name: value}}); len(got) != 1 || got[0].Value != hidden {
			t.Errorf("%s: %v", name, got)
		}
	}
	if got := fields(map[string]any{"source": map[string]any{"type": "token", "token": "x1"}}); len(got) != 2 || got[0].Value != hidden || got[1].Value != "token" {
		t.Errorf("a source that is no text: %v", got)
	}
}

// A secret in a text is masked by its look, and what is none stays.
func TestSecretsInTexts(t *testing.T) {
	t.Parallel()
	for _, secret := range []string{
		"sk_live_51NxAbC", "rk_test_9", "whsec_abcdef", "tok_1NxAbC", "cnon:card-nonce-ok", "Bearer abc.def-123456", "bearer 0123456789", "pi_3Nx_secret_9z",
		"eyJhbGciOi.eyJzdWIi.c2ln", "live_" + strings.Repeat("aB3-", 9), "EAAA" + strings.Repeat("l2", 12),
	} {
		if got, want := readable("401 for "+secret+" at line 7"), "401 for "+mask+" at line 7"; got != want {
			t.Errorf("%s: %q, want %q", secret, got, want)
		}
	}
	for text, want := range map[string]string{
		"Authorization: Basic dXNlcjpwYXNz\nnext":                    "Authorization: " + mask + "\nnext",
		"Cookie: a=b; c=d\nnext":                                     "Cookie: " + mask + "\nnext",
		"cannot connect to mysql://shop:hunter2@db:3306/shop":        "cannot connect to mysql://shop:" + mask + "@db:3306/shop",
		`{"api_key":"k-1","order":"7"}`:                              `{"api_key":"` + mask + `","order":"7"}`,
		"['password' => 'hunter2', 'user' => 'shop']":                "['password' => '" + mask + "', 'user' => 'shop']",
		"POST /pay?access_key=k-1&order=7":                           "POST /pay?access_key=" + mask + "&order=7",
		"pi_3NxAbC ch_1 cus_9 pm_1 order 1001: card_declined":        "pi_3NxAbC ch_1 cus_9 pm_1 order 1001: card_declined",
		"Basic authentication failed; a bearer of bad news":          "Basic authentication failed; a bearer of bad news",
		`App\Jobs\TokenRefresh failed: no token was given`:           `App\Jobs\TokenRefresh failed: no token was given`,
		"look order 1001 up at stripe, by the key k3yofthisrow22":    "look order 1001 up at stripe, by the key k3yofthisrow22",
		"held: https://pay.example.com/v1/charges?order=7#x answers": "held: https://pay.example.com/v1/charges?order=7#x answers",
	} {
		if got := readable(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

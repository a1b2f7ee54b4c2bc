package provider

import (
	"errors"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"

	"zabor"
)

// accounts are credentials of a form that each provider takes.
func (b Builtin) forTest(t testing.TB) Profile {
	t.Helper()
	account := ""
	if b.Account != "" {
		account = "acc-1"
	}
	p, err := b.Profile(account, "s3cret")
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// Every file is a profile that can be used, or says why not; every setting in it
// says why it is so.
func TestBuiltins(t *testing.T) {
	all := Builtins()
	if len(all) != 19 {
		t.Errorf("%d providers are known", len(all))
	}
	for _, b := range all {
		if b.Title == "" || b.Covers == "" || len(b.Why) == 0 {
			t.Errorf("%s: title, covers and why are not all there", b.Name)
		}
		if b.Uncallable != "" {
			if _, err := b.Profile("a", "s3cret"); err == nil || !strings.Contains(err.Error(), b.Uncallable) {
				t.Errorf("%s: %v", b.Name, err)
			}
			continue
		}
		pr := mustNew(t, b.forTest(t), Options{})
		for _, l := range pr.lines {
			if again := l.Key.replayFor(pr.timeout); again > 0 && again > l.Key.Life-2*pr.Timeout() {
				t.Errorf("%s, %s: sent again for %s of a key's life of %s", b.Name, l.Name, again, l.Key.Life)
			}
		}
		if got := strings.Join(slices.Collect(maps.Values(b.forTest(t).Headers)), " "); !strings.Contains(got, "s3cret") && (b.Auth == AuthBearer || b.Auth == AuthHeader) {
			t.Errorf("%s: the secret is in none of the headers", b.Name)
		}
		data, err := os.ReadFile(filepath.Join("profiles", b.Name+".yaml"))
		if err != nil {
			t.Fatal(err)
		}
		var raw struct{ Profile map[string]any }
		if err := yaml.Unmarshal(data, &raw); err != nil {
			t.Fatal(err)
		}
		for _, name := range append(slices.Sorted(maps.Keys(raw.Profile)), "auth", "list") {
			if b.Why[name] == "" && name != "calls" && name != "after" && !(name == "list" && b.Base.List != nil) {
				t.Errorf("%s: nothing says why %s is so", b.Name, name)
			}
		}
		for _, s := range b.Sheets() {
			for _, f := range s.Facts {
				if f.Source == "" && f.Unverified == "" {
					t.Errorf("%s, %s: nothing says where %s is from", b.Name, s.Name, f.Part)
				}
			}
		}
		for _, page := range []string{b.Console.URL, b.Console.Test} {
			if found, err := url.Parse(b.Console.Find("a b&c", "acc-1", page == b.Console.Test)); err != nil || page != "" && (found.Scheme != "https" || strings.ContainsAny(found.String(), "{} ")) {
				t.Errorf("%s: the console is at %s, %v", b.Name, found, err)
			}
		}
		if b.Console.URL != "" && (b.Why["console"] == "" || b.Console.How == "" || len(b.Console.Terms) == 0) {
			t.Errorf("%s: nothing says why the console is so, or what it finds anything by", b.Name)
		}
		for _, term := range b.Console.Terms {
			if name, _ := term.of(zabor.Row{}); term.By == "" || name == "" || strings.Count(term.Type, "{") != 1 {
				t.Errorf("%s: the search term %+v is not one of the row's", b.Name, term)
			}
			if _, err := parsePointer(term.In); term.In != "" && err != nil {
				t.Errorf("%s: the search term %+v: %v", b.Name, term, err)
			}
		}
		for name := range b.Why {
			if _, ok := raw.Profile[name]; !ok && name != "auth" && name != "lookup" && name != "list" && name != "console" && b.Uncallable == "" {
				t.Errorf("%s: why %s, and there is none", b.Name, name)
			}
		}
	}
}

func TestBuiltinProfile(t *testing.T) {
	for _, tt := range []struct {
		name, account, secret string
		header, value, base   string
		test                  bool
		err                   string
	}{
		{"stripe", "", "sk_live_1", "Authorization", "Bearer sk_live_1", "https://api.stripe.com", false, ""},
		{"stripe", "", "sk_test_1", "Authorization", "Bearer sk_test_1", "https://api.stripe.com", true, ""},
		{"stripe", "", "", "", "", "", false, "secret: missing"},
		{"stripe", "", "sk_live_1\n", "", "", "", false, "newline"},
		{"yookassa", "100500", "live_x", "Authorization", "Basic MTAwNTAwOmxpdmVfeA==", "https://api.yookassa.ru/v3", false, ""},
		{"yookassa", "", "live_x", "", "", "", false, "account: missing; write the shop id"},
		{"yookassa", "a:b", "live_x", "", "", "", false, "colon"},
		{"adyen", "1797a841-Shop", "AQE1", "X-API-Key", "AQE1", "https://1797a841-Shop-checkout-live.adyenpayments.com/checkout/v72", false, ""},
		{"adyen", "test", "AQE1", "X-API-Key", "AQE1", "https://checkout-test.adyen.com/v72", true, ""},
		{"adyen", "evil.example/", "AQE1", "", "", "", false, "host's name"},
		{"checkout", "", "sk_sbox_1", "Authorization", "Bearer sk_sbox_1", "https://api.sandbox.checkout.com", true, ""},
		{"razorpay", "rzp_test_1", "x", "Authorization", "Basic cnpwX3Rlc3RfMTp4", "https://api.razorpay.com", true, ""},
		{"square", "sandbox", "EAAA", "Authorization", "Bearer EAAA", "https://connect.squareupsandbox.com", true, ""},
		{"paypal", "sandbox:A1", "x", "", "", "https://api-m.sandbox.paypal.com", true, ""},
		{"paypal", "A1", "x", "", "", "https://api-m.paypal.com", false, ""},
		{"worldpay", "try:u", "p", "Authorization", "Basic dTpw", "https://try.access.worldpay.com", true, ""},
		{"tbank", "1DEMO", "p", "", "", "https://securepay.tinkoff.ru/v2", true, ""},
		{"braintree", "", "x", "", "", "", false, "profile: Braintree is known and cannot be called"},
	} {
		b, ok := BuiltinNamed(tt.name)
		if !ok {
			t.Fatalf("no %s", tt.name)
		}
		p, err := b.Profile(tt.account, tt.secret)
		if tt.err != "" {
			if err == nil || !strings.Contains(err.Error(), tt.err) || tt.secret != "" && strings.Contains(err.Error(), tt.secret) {
				t.Errorf("%s: error %v, want %s", tt.name, err, tt.err)
			}
			continue
		}
		if err != nil || p.Headers[tt.header] != tt.value || p.BaseURL != tt.base || b.IsTest(tt.account, tt.secret) != tt.test {
			t.Errorf("%s: %q at %s, %v, want %q at %s", tt.name, p.Headers[tt.header], p.BaseURL, err, tt.value, tt.base)
		}
	}
	if _, ok := BuiltinNamed("nobody"); ok {
		t.Error("there is a profile nobody")
	}
}

// Minor units that are not those of ISO 4217 are written, read, and demanded in
// what is sent.
func TestUnits(t *testing.T) {
	x := Units{0: {"MGA"}, 2: {"ISK", "KWD", "rest"}}
	for _, tt := range []struct {
		m     zabor.Money
		want  int64
		major string
		ok    bool
	}{
		{zabor.Money{Minor: 1999, Currency: "EUR"}, 1999, "19.99", true}, {zabor.Money{Minor: 1999, Currency: "ISK"}, 199900, "1999.00", true},
		{zabor.Money{Minor: 1900, Currency: "MGA"}, 19, "19", true}, {zabor.Money{Minor: 1999, Currency: "MGA"}, 0, "", false},
		{zabor.Money{Minor: 1230, Currency: "KWD"}, 123, "1.23", true}, {zabor.Money{Minor: 1 << 62, Currency: "ISK"}, 0, "4611686018427387904.00", false},
		{zabor.Money{Minor: 1999, Currency: "JPY"}, 0, "", false}, {zabor.Money{Minor: 1999, Currency: "XXY"}, 0, "", false},
	} {
		got, err := x.minor(tt.m)
		if got != tt.want || (err == nil) != tt.ok {
			t.Errorf("%v: %d, %v, want %d", tt.m, got, err, tt.want)
		}
		if got, err := x.major(tt.m); got != tt.major || (err == nil) != (tt.major != "") {
			t.Errorf("%v: %q, %v, want %q", tt.m, got, err, tt.major)
		}
	}
	if got, err := x.parse("199900", "ISK"); got != 1999 || err != nil {
		t.Errorf("%d, %v", got, err)
	}
	if got, err := x.parse("199901", "ISK"); err == nil {
		t.Errorf("half a króna was read as %d", got)
	}

	profile := testProfile("http://127.0.0.1:1")
	profile.Amount.Units = x
	pr := mustNew(t, profile, Options{})
	row := testRow(t)
	row.Amount.Currency = "ISK" // the request says 1999
	if got := pr.Call(t.Context(), row); got.Verdict != zabor.Malformed || !strings.Contains(got.Reason, "199900") {
		t.Errorf("%+v", got)
	}
	template, err := NewTemplate(RequestSpec{Path: "/x", JSON: map[string]any{"amount": "{{minor}}"}})
	if err != nil {
		t.Fatal(err)
	}
	r, err := template.Render(Vars{Money: row.Amount, Units: x})
	if err != nil || string(r.Body) != `{"amount":199900}` || pr.lines[0].sameMoneyAsked(r.Open(), row) != nil {
		t.Errorf("%s, %v", r.Body, err)
	}
	if _, err := template.Render(Vars{Money: zabor.Money{Minor: 1999, Currency: "MGA"}, Units: x}); err == nil || !strings.Contains(err.Error(), "fraction") {
		t.Errorf("error %v", err)
	}
}

func TestKeyPlaces(t *testing.T) {
	for _, tt := range []struct{ body, want, err string }{
		{`{"a":1}`, `{"key":"k","a":1}`, ""}, {` {}`, `{"key":"k"}`, ""}, {`{"key":"k"}`, `{"key":"k"}`, ""},
		{`{"key":"other"}`, "", "another one"}, {`[1]`, "", "JSON object"}, {``, "", "JSON object"},
	} {
		got, err := withField([]byte(tt.body), "key", "k")
		if string(got) != tt.want || (err == nil) != (tt.err == "") || err != nil && !strings.Contains(err.Error(), tt.err) {
			t.Errorf("%s: %s, %v", tt.body, got, err)
		}
	}
	profile := testProfile("http://127.0.0.1:1")
	profile.Key = Key{Header: "Idempotency-Key", UUID: true}
	pr := mustNew(t, profile, Options{})
	req, err := pr.keyed(t.Context(), pr.lines[0], Request{Method: "POST", Path: "/x"}, "abcdefghijklmnopqrstuvwxyz")
	if err != nil {
		t.Fatal(err)
	}
	want, _ := zabor.UUIDFromProviderKey("abcdefghijklmnopqrstuvwxyz")
	if got := req.Header.Get("Idempotency-Key"); got != want || len(got) != 36 {
		t.Errorf("%q, want %q", got, want)
	}
	_, err = pr.send(t.Context(), pr.lines[0], Request{Method: "POST", Path: "/x"}, "not base32!")
	if _, unsent := errors.AsType[unsentError](err); !unsent {
		t.Errorf("error %v", err)
	}
}

// Silence of a look-up that could not have found the request proves nothing.
func TestAbsenceOfWhatCannotBeFound(t *testing.T) {
	b, _ := BuiltinNamed("stripe")
	pr := mustNew(t, b.forTest(t), Options{})
	for _, tt := range []struct {
		body string
		want bool
	}{{"confirm=true&metadata%5Bzabor_key%5D=abcdefghijklmnopqrstuvwxyz", true}, {"confirm=true&amount=1", false}} {
		row := testRow(t)
		var err error
		if row.Open.Request, err = Freeze(Request{Method: "POST", Path: "/v1/payment_intents", ContentType: "application/x-www-form-urlencoded", Body: []byte(tt.body)}); err != nil {
			t.Fatal(err)
		}
		lines, sent, err := pr.linesOfRow(row)
		if err != nil {
			t.Fatal(err)
		}
		if got := pr.absent(lines[0], sent, row); got.Absent != tt.want {
			t.Errorf("%s: %+v", tt.body, got)
		}
	}
}

package provider

import (
	"testing"
	"time"
)

// What says whose requests they are and where they go is the same for the same, and
// shows no secret.
func TestPlace(t *testing.T) {
	t.Parallel()
	place := func(name, account, secret string) string {
		t.Helper()
		b, ok := BuiltinNamed(name)
		if !ok {
			t.Fatal("no such profile")
		}
		p, err := b.Profile(account, secret)
		if err != nil {
			t.Fatal(err)
		}
		return mustNew(t, p, Options{}).Place()
	}
	for _, tt := range []struct {
		name string
		a, b [2]string // accounts and secrets
		same bool
		what string
	}{
		{"stripe", [2]string{"", "sk_live_1"}, [2]string{"", "sk_live_1"}, true, "the same secret"},
		{"stripe", [2]string{"", "sk_live_1"}, [2]string{"", "sk_live_2"}, false, "another secret, which alone says whose account it is"},
		{"adyen", [2]string{"shop", "one"}, [2]string{"shop", "two"}, true, "another secret of an account that is in the address"},
		{"adyen", [2]string{"shop", "one"}, [2]string{"other", "one"}, false, "another account in the address"},
		{"adyen", [2]string{"test", "one"}, [2]string{"test", "two"}, false, "another secret where all accounts have one address"},
		{"square", [2]string{"production", "one"}, [2]string{"sandbox", "one"}, false, "another system"},
		{"square", [2]string{"production", "one"}, [2]string{"production", "two"}, false, "another secret of what is no account"},
		{"yookassa", [2]string{"100500", "one"}, [2]string{"100500", "two"}, true, "another secret of the account that it is checked against"},
		{"yookassa", [2]string{"100500", "one"}, [2]string{"100501", "one"}, false, "another account"},
		{"paypal", [2]string{"A1", "one"}, [2]string{"A1", "two"}, true, "another secret of the client"},
		{"paypal", [2]string{"A1", "one"}, [2]string{"sandbox:A1", "one"}, false, "another system"},
		{"tbank", [2]string{"terminal", "one"}, [2]string{"terminal", "two"}, true, "another secret of the terminal"},
	} {
		a, b := place(tt.name, tt.a[0], tt.a[1]), place(tt.name, tt.b[0], tt.b[1])
		if (a == b) != tt.same || len(a) != 20 {
			t.Errorf("%s, %s: %q and %q, the same: want %v", tt.name, tt.what, a, b, tt.same)
		}
	}
	own := testProfile("https://pay.example.com/v1")
	here := mustNew(t, own, Options{}).Place()
	for what, change := range map[string]func(*Profile){
		"base_url": func(p *Profile) { p.BaseURL = "https://pay.example.com/v2" },
		"secret":   func(p *Profile) { p.Headers = Headers{"Authorization": "Bearer other"} },
		"header":   func(p *Profile) { p.Headers = Headers{"Authorization": "Bearer s3cret", "X-Merchant": "7"} },
	} {
		p := own
		change(&p)
		if mustNew(t, p, Options{}).Place() == here {
			t.Errorf("another %s is the same place", what)
		}
	}
	same := own
	same.Timeout, same.Headers = time.Second, Headers{"authorization": "Bearer s3cret"}
	if mustNew(t, same, Options{}).Place() != here {
		t.Error("another time-out and another spelling are another place")
	}
}

// A secret that is rotated is another place from the next look on.
func TestPlaceOfRotatedCredentials(t *testing.T) {
	t.Parallel()
	profile := testProfile("https://pay.example.com")
	var next *Profile
	pr := mustNew(t, profile, Options{Rotated: func() (Profile, bool) {
		if next == nil {
			return Profile{}, false
		}
		defer func() { next = nil }()
		return *next, true
	}})
	before := pr.Place()
	other := profile
	other.Headers = Headers{"Authorization": "Bearer two"}
	next = &other
	after := pr.Place()
	if before == after || after != pr.Place() {
		t.Errorf("places %q, %q, %q", before, after, pr.Place())
	}
	if want := mustNew(t, other, Options{}).Place(); after != want {
		t.Errorf("place %q, want that of a start with the new secret, %q", after, want)
	}
}

package provider

import (
	"testing"
	"time"

	"zabor"
)

// Other credentials are those of the next request, and what cannot be sent leaves
// the ones that are there.
func TestRotatedCredentials(t *testing.T) {
	t.Parallel()
	p := newPeer(t, after(says(answerOf(200, paid))))
	profile := testProfile("http://" + p.addr)
	profile.Headers = Headers{"Authorization": "Bearer one"}
	var next *Profile
	pr := mustNew(t, profile, Options{Rotated: func() (Profile, bool) {
		if next == nil {
			return Profile{}, false
		}
		defer func() { next = nil }()
		return *next, true
	}})
	for _, tt := range []struct{ now, want string }{
		{"", "Bearer one"}, {"Bearer two", "Bearer two"}, {"", "Bearer two"}, {"Bearer \x00", "Bearer two"},
	} {
		if tt.now != "" {
			other := profile
			other.Headers = Headers{"Authorization": tt.now}
			next = &other
		}
		if got := pr.Call(within(t, 30*time.Second), testRow(t)); got.Verdict != zabor.Done {
			t.Fatalf("outcome %+v", got)
		}
		posts := p.posts()
		if got := posts[len(posts)-1].Header.Get("Authorization"); got != tt.want {
			t.Errorf("%q was sent, want %q", got, tt.want)
		}
	}
}

// A signature and an access token are made with the secret as it is when a request
// is made.
func TestRotatedSecret(t *testing.T) {
	t.Parallel()
	profile := testProfile("http://127.0.0.1:1")
	profile.Auth.Signature = &Signature{Account: "a", Secret: "one", AccountName: "Account", SecretName: "Password", Name: "Token"}
	rotated := false
	pr := mustNew(t, profile, Options{Rotated: func() (Profile, bool) {
		if !rotated {
			return Profile{}, false
		}
		other := profile
		other.Auth.Signature = &Signature{Account: "a", Secret: "two", AccountName: "Account", SecretName: "Password", Name: "Token"}
		return other, true
	}})
	sign := func() string {
		r, err := pr.signed(Request{Method: "POST", Path: "/", ContentType: "application/json", Body: []byte(`{"x":1}`)})
		if err != nil {
			t.Fatal(err)
		}
		return string(r.Body)
	}
	pr.token.text = "an access token of the old secret"
	before := sign()
	if before != sign() {
		t.Fatal("the signature is not stable")
	}
	rotated = true
	if sign() == before || pr.token.text != "" {
		t.Errorf("signed with the old secret, or its access token %q is kept", pr.token.text)
	}
}

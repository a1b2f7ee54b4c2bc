package provider

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"zabor"
)

// The example in developer.tbank.ru/eacq/intro/developer/token, in other values:
// what is of the top level is sorted by name, with the password among it.
func TestSignature(t *testing.T) {
	s := &Signature{Account: "Terminal", Secret: "1111", AccountName: "TerminalKey", SecretName: "Password", Name: "Token"}
	digest := func(text string) string {
		sum := sha256.Sum256([]byte(text))
		return hex.EncodeToString(sum[:])
	}
	for _, tt := range []struct{ body, signed, err string }{
		{`{"Amount":19200,"OrderId":"00000","Description":"Подарок"}`, "19200" + "Подарок" + "00000" + "1111" + "Terminal", ""},
		{`{"Receipt":{"Items":[{"Name":"a"}]},"Amount":1000,"DATA":{},"Flag":true}`, "1000" + "true" + "1111" + "Terminal", ""},
		{`{"TerminalKey":"Terminal","Amount":1}`, "1" + "1111" + "Terminal", ""},
		{``, "1111" + "Terminal", ""},
		{`{"TerminalKey":"Another"}`, "", "another one"},
		{`{"Token":"x"}`, "1111" + "Terminal", ""},
		{`{"Password":"x"}`, "", "never sent"},
		{`{"Amount":null}`, "", "Amount cannot be signed"},
		{`[1]`, "", "JSON object"},
	} {
		got, err := s.sign([]byte(tt.body))
		if tt.err != "" {
			if err == nil || !strings.Contains(err.Error(), tt.err) || strings.Contains(err.Error(), "1111") {
				t.Errorf("%s: error %v, want %s", tt.body, err, tt.err)
			}
			continue
		}
		if err != nil || !strings.Contains(string(got), `"Token":"`+digest(tt.signed)+`"`) || !strings.Contains(string(got), `"TerminalKey":"Terminal"`) {
			t.Errorf("%s: %s, %v, want a digest of %s", tt.body, got, err, tt.signed)
		}
		if rest := strings.TrimPrefix(tt.body, "{"); !strings.Contains(tt.body, "Token") && !strings.HasSuffix(string(got), rest) {
			t.Errorf("%s: %s, what was there is changed", tt.body, got)
		}
	}
	if text := fmt.Sprintf("%v %+v %#v", Auth{Signature: s}, Auth{Signature: s}, Profile{Auth: Auth{Signature: s}}); strings.Contains(text, "1111") {
		t.Errorf("the secret is printed: %s", text)
	}
}

// granting is a provider that wants an access token and the server before it.
func granting(t *testing.T, handle http.HandlerFunc) *Provider {
	t.Helper()
	server := httptest.NewServer(handle)
	t.Cleanup(server.Close)
	profile := testProfile(server.URL)
	profile.Headers = nil
	profile.Auth.Grant = &Grant{Path: "/token", Account: "me", Secret: "s3cret"}
	return mustNew(t, profile, Options{})
}

// One access token serves many calls and look-ups; one that is refused is asked
// for anew; where there is none, nothing is sent.
func TestGrant(t *testing.T) {
	var asked, sent atomic.Int64
	var life, status atomic.Int64
	life.Store(3600)
	p := granting(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/token" {
			user, secret, _ := r.BasicAuth()
			if n := asked.Add(1); user != "me" || secret != "s3cret" || r.FormValue("grant_type") != "client_credentials" || n > 100 {
				t.Errorf("asked for a token as %q %q, %q", user, secret, r.FormValue("grant_type"))
			}
			if s := status.Load(); s != 0 {
				w.WriteHeader(int(s))
			}
			fmt.Fprintf(w, `{"access_token":"t%d","token_type":"Bearer","expires_in":%d}`, asked.Load(), life.Load())
			return
		}
		if got, want := r.Header.Get("Authorization"), fmt.Sprintf("Bearer t%d", asked.Load()); got != want {
			t.Errorf("sent with %q, want %q", got, want)
		}
		switch n := sent.Add(1); {
		case r.Method == http.MethodGet:
			fmt.Fprint(w, `{"data":[]}`)
		case n == 4:
			w.WriteHeader(http.StatusUnauthorized)
		default:
			fmt.Fprint(w, paid)
		}
	})
	call := func(want zabor.Verdict, tokens int64) {
		t.Helper()
		if got := p.Call(t.Context(), testRow(t)); got.Verdict != want || asked.Load() != tokens || strings.Contains(got.Reason, "s3cret") {
			t.Errorf("%s (%s) after %d tokens, want %s after %d", got.Verdict, got.Reason, asked.Load(), want, tokens)
		}
	}
	call(zabor.Done, 1)
	call(zabor.Done, 1)
	if _, err := p.Lookup(t.Context(), testRow(t)); err != nil || asked.Load() != 1 {
		t.Errorf("look-up: %v after %d tokens", err, asked.Load())
	}
	call(zabor.TurnedAway, 1) // 401
	call(zabor.Done, 2)
	p.forgetToken()
	life.Store(0)
	call(zabor.Done, 3)
	call(zabor.Done, 4)
	status.Store(401)
	before := sent.Load()
	call(zabor.Unsent, 5)
	status.Store(500)
	call(zabor.Unsent, 6)
	if sent.Load() != before {
		t.Error("something was sent without an access token")
	}
}

func TestGrantAnswers(t *testing.T) {
	for _, answer := range []string{``, `{}`, `<html>`, `{"access_token":"a b"}`, `{"access_token":"a\nb"}`, `{"access_token":"a","token_type":"mac"}`} {
		p := granting(t, func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/token" {
				t.Errorf("%s: sent", answer)
			}
			fmt.Fprint(w, answer)
		})
		if got := p.Call(t.Context(), testRow(t)); got.Verdict != zabor.Unsent {
			t.Errorf("%s: %+v", answer, got)
		}
	}
	gone := newPeer(t, func(*peer, net.Conn) {})
	profile := testProfile("http://" + gone.addr)
	profile.Auth.Grant = &Grant{Path: "/token", Account: "me", Secret: "s3cret"}
	if got := mustNew(t, profile, Options{}).Call(t.Context(), testRow(t)); got.Verdict != zabor.Unsent {
		t.Errorf("%+v", got)
	}
	profile.Auth.Grant.Secret = ""
	if _, err := New("x", profile, Options{}); err == nil {
		t.Error("a grant without a secret is taken")
	}
}

// Account and secret go into the form when a request is sent, in calls and look-ups, and
// nowhere else.
func TestFields(t *testing.T) {
	t.Parallel()
	p := newPeer(t, after(says(answerOf(200, `{"id":"p1","status":"paid","amount":1999,"currency":"EUR"}`))))
	profile := testProfile("http://" + p.addr)
	profile.Auth.Fields = &Fields{Account: "shop", Secret: "pa&ss=1", AccountName: "userName", SecretName: "password"}
	profile.Lookup = &Lookup{Prepared: "/state", Form: map[string]string{"order": "{{prepared}}"}, AbsentAfter: time.Minute}
	pr := mustNew(t, profile, Options{})
	row := testRow(t)
	for _, tt := range []struct{ kind, body, want string }{
		{formType, "amount=1999", "password=pa%26ss%3D1&userName=shop&amount=1999"}, {"", "", "password=pa%26ss%3D1&userName=shop"},
		{"application/json", `{"amount":1999}`, ""}, {formType, "amount=1999&password=x", ""}, {formType, "userName=x", ""},
	} {
		var err error
		if row.Open.Request, err = Freeze(Request{Method: "POST", Path: "/pay", ContentType: tt.kind, Body: []byte(tt.body)}); err != nil {
			t.Fatal(err)
		}
		before := len(p.posts())
		o := pr.Call(within(t, 10*time.Second), row)
		posts := p.posts()[before:]
		if tt.want == "" {
			if o.Verdict != zabor.Malformed || len(posts) != 0 || strings.Contains(o.Reason, "pa&ss") {
				t.Errorf("%s: %+v, %d sent", tt.body, o, len(posts))
			}
			continue
		}
		if o.Verdict != zabor.Done || len(posts) != 1 || posts[0].body != tt.want || posts[0].Header.Get("Content-Type") != formType {
			t.Errorf("%s: %+v, sent %+v, want %s", tt.body, o, posts, tt.want)
		}
		preview, err := pr.Preview(row)
		if err != nil || strings.Contains(preview.Body, "pa%26ss") || strings.Contains(preview.Body, "pa&ss") {
			t.Errorf("shown: %+v, %v", preview, err)
		}
	}
	row.Open.PrepareKey, row.Prepared = "p", "o 1"
	if found, err := pr.Lookup(t.Context(), row); err != nil || found.Outcome.Verdict != zabor.Done {
		t.Errorf("%+v, %v", found, err)
	}
	if posts := p.posts(); posts[len(posts)-1].body != "password=pa%26ss%3D1&userName=shop&order=o+1" || posts[len(posts)-1].Method != "POST" {
		t.Errorf("asked with %s", posts[len(posts)-1].body)
	}
	if text := fmt.Sprintf("%v %+v %#v", profile.Auth, profile.Auth, profile); strings.Contains(text, "pa&ss") {
		t.Errorf("printed: %s", text)
	}
}

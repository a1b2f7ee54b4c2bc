package main

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"zabor"
	"zabor/internal/config"
	"zabor/internal/connect"
	"zabor/internal/exit"
	"zabor/provider"
)

// A provider's secret that is in a file is the one that the file has when a request
// is made, in calls and in look-ups, without a restart.
func TestASecretIsReadAgain(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	seen := map[string]string{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		seen[r.Method] = r.Header.Get("Authorization")
		fmt.Fprint(w, `{"id":"pay_1","status":"paid"}`)
	}))
	t.Cleanup(server.Close)
	file := filepath.Join(t.TempDir(), "token")
	write := func(text string, age time.Duration) { writeSecret(t, file, text, age) }
	write("one\n", time.Hour)
	text := "fence: sqlite:///fence.db\nproviders:\n  acquirer:\n    profile: custom\n    base_url: " + server.URL +
		"\n    headers: {Authorization: 'Bearer ${TOKEN}'}\n    reference: /id\n    settled: {pointer: /status, values: [paid]}\n" +
		"    lookup: {path: '/payments/{{provider_key}}', absent_after: 1m}\n"
	c, err := config.Parse("zabor.yaml", []byte(text), config.Env{Lookup: func(name string) (string, bool) { return file, name == "TOKEN_FILE" }})
	if err != nil {
		t.Fatal(err)
	}
	providers, err := connect.OpenProviders(c, c.Rotation(func(error) {}))
	if err != nil {
		t.Fatal(err)
	}
	request, err := provider.Freeze(provider.Request{Method: "POST", Path: "/payments", ContentType: "application/json", Body: []byte("{}")})
	if err != nil {
		t.Fatal(err)
	}
	row := zabor.Row{Key: zabor.Key{Order: "1", Step: "charge"}, Endpoint: zabor.Endpoint{Provider: "acquirer"}, ProviderKey: "abcdefghijklmnopqrstuvwxyz", Tries: 1, Unproven: 1, Open: zabor.Open{Request: request}}
	wants := func(want string) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if o := providers.Call(ctx, row); o.Verdict != zabor.Done {
			t.Errorf("call: %+v", o)
		}
		if _, err := providers.Lookup(ctx, row); err != nil {
			t.Error(err)
		}
		mu.Lock()
		defer mu.Unlock()
		if seen["POST"] != want || seen["GET"] != want {
			t.Errorf("sent with %q, want %q", seen, want)
		}
	}
	wants("Bearer one")
	write("two\n", time.Minute)
	wants("Bearer two")
	write("", 30*time.Second) // unusable: what there was is used on
	wants("Bearer two")
	write("three", 10*time.Second)
	wants("Bearer three")
}

// writeSecret writes a file with a secret as if that had been so long ago.
func writeSecret(t *testing.T, file, text string, age time.Duration) {
	t.Helper()
	then := time.Now().Add(-age)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(file, then, then); err != nil {
		t.Fatal(err)
	}
}

// The token of the proxy's callers is the one that its file has when they call, and
// one that could not be used changes nothing.
func TestTheProxysTokenIsReadAgain(t *testing.T) {
	t.Parallel()
	const one, two, three = "0123456789abcdef-one", "0123456789abcdef-two", "0123456789abcdef-three"
	s := newShop(t, databases[0].open(t), options{proxy: true})
	text, err := os.ReadFile(s.file)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(s.file, []byte(strings.Replace(string(text), "proxy: {", "proxy: {token: '${TOKEN}', ", 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "token")
	writeSecret(t, file, one+"\n", time.Hour)
	p := startIn(t, []string{"TOKEN_FILE=" + file}, "proxy", "-c", s.file)
	p.logged("the proxy listens")
	knows := func(token string, others ...string) {
		t.Helper()
		for _, tt := range append(others, "", token) {
			want := 401
			if tt == token {
				want = 404
			}
			r, err := http.NewRequestWithContext(t.Context(), "GET", "http://"+s.listen+"/fences/1001/charge", http.NoBody)
			if err != nil {
				t.Fatal(err)
			}
			r.Header.Set("Authorization", "Bearer "+tt)
			resp, err := http.DefaultTransport.RoundTrip(r)
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			if resp.StatusCode != want {
				t.Errorf("with token %q: status %d, want %d", tt, resp.StatusCode, want)
			}
		}
	}
	knows(one, two, three)
	writeSecret(t, file, two, time.Minute)
	knows(two, one, three)
	writeSecret(t, file, "guess", 50*time.Second)
	knows(two, one, "guess")
	writeSecret(t, file, "", 40*time.Second)
	knows(two, one)
	writeSecret(t, file, "\n", 35*time.Second)
	knows(two, one)
	writeSecret(t, file, three, 30*time.Second)
	knows(three, one, two)
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	knows(three, one, two)
	p.signal(syscall.SIGTERM)
	p.exit(exit.Good)
	if log := p.log.String(); strings.Contains(log, "0123456789abcdef") {
		t.Errorf("the log has a token:\n%s", log)
	}
}

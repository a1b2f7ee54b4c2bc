package main

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"zabor"
	"zabor/internal/config"
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
	write := func(text string, age time.Duration) {
		t.Helper()
		then := time.Now().Add(-age)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(file, then, then); err != nil {
			t.Fatal(err)
		}
	}
	write("one\n", time.Hour)
	text := "fence: sqlite:///fence.db\nproviders:\n  acquirer:\n    profile: custom\n    base_url: " + server.URL +
		"\n    headers: {Authorization: 'Bearer ${TOKEN}'}\n    reference: /id\n    settled: {pointer: /status, values: [paid]}\n" +
		"    lookup: {path: '/payments/{{provider_key}}', absent_after: 1m}\n"
	c, err := config.Parse("zabor.yaml", []byte(text), config.Env{Lookup: func(name string) (string, bool) { return file, name == "TOKEN_FILE" }})
	if err != nil {
		t.Fatal(err)
	}
	p := &program{log: slog.New(slog.DiscardHandler)}
	providers, err := p.providers(c)
	if err != nil {
		t.Fatal(err)
	}
	request, err := provider.Freeze(provider.Request{Method: "POST", Path: "/payments", ContentType: "application/json", Body: []byte("{}")})
	if err != nil {
		t.Fatal(err)
	}
	row := zabor.Row{Key: zabor.Key{Order: "1", Step: "charge"}, Provider: "acquirer", ProviderKey: "abcdefghijklmnopqrstuvwxyz", Request: request, Captures: 1}
	wants := func(want string) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if o := call(providers)(ctx, row); o.Verdict != zabor.Done {
			t.Errorf("call: %+v", o)
		}
		if _, err := lookup(providers)(ctx, row); err != nil {
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

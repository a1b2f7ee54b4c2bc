package main

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"testing"

	"zabor/internal/exit"
	"zabor/internal/preflight"
)

// liveOf runs config check --live and gives the checks by what they are of. It must
// change nothing.
func (s *shop) liveOf(code int) map[string]preflight.Check {
	s.t.Helper()
	before := s.dump()
	out, _ := s.command(code, "config", "check", "--live", "--json")
	for name, value := range s.dump() {
		if before[name] != value {
			s.t.Errorf("the check has changed %s", name)
		}
	}
	var r struct{ Live []preflight.Check }
	if err := json.Unmarshal([]byte(out), &r); err != nil {
		s.t.Fatalf("%v: %s", err, out)
	}
	all := map[string]preflight.Check{}
	for _, c := range r.Live {
		if old, twice := all[c.What]; !twice || old.Status != preflight.Wrong {
			all[c.What] = c
		}
	}
	return all
}

// What the servers would refuse later is found before a start: statements, grants,
// and a provider that does not take the credentials. Nothing is executed.
func TestConfigCheckLive(t *testing.T) {
	t.Parallel()
	for _, database := range databases {
		t.Run(database.name, func(t *testing.T) {
			t.Parallel()
			s := newShop(t, database.open(t), options{})
			s.withHooks(false)
			statuses := func(got map[string]preflight.Check, want map[string]preflight.Status) {
				t.Helper()
				for what, status := range want {
					if c := got[what]; c.Status != status {
						t.Errorf("%s is %+v, want %s", what, c, status)
					}
				}
			}
			statuses(s.liveOf(exit.Good), map[string]preflight.Status{
				"fence, table zabor_fences": preflight.Good, "queues.payments.failed, table failed_jobs": preflight.Good, "queues.async.failed, table messenger_messages": preflight.Good,
				"steps.charge.settled": preflight.Good, "steps.charge.captured": preflight.Good, "providers.acquirer": preflight.Good, "queues.payments": preflight.Warning,
			})
			// A column that is not there, a table that is not there.
			s.edit("SET state = 'paid'", "SET stat = 'paid'")
			s.exec("DROP TABLE messenger_messages")
			s.exec("CREATE TABLE messenger_messages2 (id INTEGER)")
			out, _ := s.command(exit.BadAnswer, "config", "check", "--live")
			for _, text := range []string{"wrong  steps.charge.settled: ", "stat", "wrong  queues.async.failed, table messenger_messages: there is no such table", "zabor has never taken from it"} {
				if !strings.Contains(out, text) {
					t.Errorf("no %q in\n%s", text, out)
				}
			}
		})
	}
}

// A user without the rights that zabor needs.
func TestConfigCheckLiveGrants(t *testing.T) {
	t.Parallel()
	for _, database := range databases[1:] {
		t.Run(database.name, func(t *testing.T) {
			t.Parallel()
			s := newShop(t, database.open(t), options{})
			s.withHooks(false)
			u, err := url.Parse(s.fence)
			if err != nil {
				t.Fatal(err)
			}
			name := "limited" + strings.TrimPrefix(u.Path, "/")
			name = name[:min(len(name), 30)]
			schema, user := "", "'"+name+"'@'%'"
			s.exec(map[string]string{"mysql": "CREATE USER " + user + " IDENTIFIED BY 'pw'", "postgres": "CREATE USER " + name + " PASSWORD 'pw'"}[s.store.Dialect()])
			if s.store.Dialect() == "postgres" {
				user = name
			}
			t.Cleanup(func() {
				if s.store.Dialect() == "mysql" {
					_, _ = s.store.DB().Exec("DROP USER " + user)
				}
			})
			for _, grant := range []string{"SELECT, INSERT ON " + schema + "zabor_fences", "SELECT, INSERT, UPDATE ON zabor_meta", "SELECT, INSERT ON zabor_notes", "SELECT, INSERT, DELETE ON zabor_unreadable",
				"SELECT, INSERT, DELETE ON failed_jobs", "SELECT, INSERT, UPDATE, DELETE ON messenger_messages", "SELECT ON orders", "INSERT ON payments"} {
				s.exec("GRANT " + grant + " TO " + user)
			}
			limited := *u
			limited.User = url.UserPassword(name, "pw")
			s.edit(s.fence, limited.String())
			got := s.liveOf(exit.BadAnswer)
			if c := got["fence, table zabor_fences"]; c.Status != preflight.Wrong || !strings.Contains(c.Found, "UPDATE") || strings.Contains(c.Found, "SELECT") {
				t.Errorf("zabor_fences: %+v", c)
			}
			if c := got["steps.charge.settled"]; c.Status != preflight.Wrong {
				t.Errorf("a hook that may not run: %+v", c)
			}
			if c := got["fence, table zabor_notes"]; c.Status != preflight.Good {
				t.Errorf("zabor_notes: %+v", c)
			}
			if c := got["queues.payments.failed, table failed_jobs"]; s.store.Dialect() == "postgres" && (c.Status != preflight.Wrong || !strings.Contains(c.Found, "SEQUENCE")) {
				t.Errorf("failed_jobs without its sequence: %+v", c)
			}
		})
	}
}

// What a provider answers to the harmless question, and servers that are away.
func TestConfigCheckLiveProvider(t *testing.T) {
	t.Parallel()
	s := newShop(t, databases[0].open(t), options{})
	status, asked := http.StatusUnauthorized, 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if asked++; r.Method != http.MethodGet {
			t.Errorf("the provider was asked %s %s", r.Method, r.URL)
		}
		w.WriteHeader(status)
		if status == http.StatusOK {
			w.Write([]byte(`{"data":[]}`))
		}
	}))
	t.Cleanup(server.Close)
	s.edit("base_url: "+s.url, "base_url: "+server.URL)
	if c := s.liveOf(exit.BadAnswer)["providers.acquirer"]; c.Status != preflight.Wrong || !strings.Contains(c.Found, "401") {
		t.Errorf("401: %+v", c)
	}
	status = http.StatusOK
	if c := s.liveOf(exit.Good)["providers.acquirer"]; c.Status != preflight.Good || asked != 2 {
		t.Errorf("200: %+v after %d requests", c, asked)
	}
	content, err := os.ReadFile(s.file)
	if err != nil {
		t.Fatal(err)
	}
	without := strings.Split(string(content), "\n")
	for i, line := range without {
		if strings.HasPrefix(line, "    lookup:") {
			without = append(without[:i], without[i+1:]...)
			break
		}
	}
	if err := os.WriteFile(s.file, []byte(strings.Join(without, "\n")), 0o600); err != nil {
		t.Fatal(err)
	}
	if c := s.liveOf(exit.Good)["providers.acquirer"]; c.Status != preflight.Unchecked || asked != 2 {
		t.Errorf("without a look-up: %+v after %d requests", c, asked)
	}
	if err := os.WriteFile(s.file, content, 0o600); err != nil {
		t.Fatal(err)
	}
	s.edit(server.URL, "http://127.0.0.1:1")
	if c := s.liveOf(exit.NotReached)["providers.acquirer"]; c.Status != preflight.Unreachable {
		t.Errorf("no provider: %+v", c)
	}
	s.edit("http://127.0.0.1:1", server.URL)
	s.edit(s.o.redis.Addr, "127.0.0.1:1")
	if c := s.liveOf(exit.NotReached)["Redis of queue async"]; s.o.redis.Addr == "" || c.Status == preflight.Wrong {
		t.Errorf("no Redis: %+v", c)
	}
}

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"zabor/internal/exit"
	"zabor/internal/servers"
)

// inbox is where alerts arrive; status is what it answers.
type inbox struct {
	*httptest.Server
	mu   sync.Mutex
	text []string
}

func newInbox(t *testing.T, status int) *inbox {
	in := &inbox{}
	in.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		in.mu.Lock()
		defer in.mu.Unlock()
		in.text = append(in.text, string(body))
		w.WriteHeader(status)
	}))
	t.Cleanup(in.Close)
	return in
}

func (in *inbox) address() string {
	return "generic://" + strings.TrimPrefix(in.URL, "http://") + "/hooks/s3cretpath?disabletls=yes"
}

func (in *inbox) all() string {
	in.mu.Lock()
	defer in.mu.Unlock()
	return strings.Join(in.text, "\n\n")
}

// add appends to the configuration of s.
func (s *shop) add(text string) {
	s.t.Helper()
	f, err := os.OpenFile(s.file, os.O_APPEND|os.O_WRONLY, 0)
	if err == nil {
		_, err = f.WriteString(text)
	}
	if err == nil {
		err = f.Close()
	}
	if err != nil {
		s.t.Fatal(err)
	}
}

// push puts a Laravel job on the queue payments, and returns its bytes.
func (s *shop) push(id, class string) string {
	s.t.Helper()
	payload, err := json.Marshal(map[string]any{"uuid": id, "displayName": class, "job": class + "@handle", "data": map[string]any{"orderId": id}, "attempts": 0})
	if err != nil {
		s.t.Fatal(err)
	}
	for key, value := range map[string]any{"": payload, ":notify": 1} {
		if err := s.redis.RPush(s.t.Context(), "laravel_database_queues:payments"+key, value).Err(); err != nil {
			s.t.Fatal(err)
		}
	}
	return string(payload)
}

// What has no step is forwarded or parked by its class, and a person is told of
// what is parked.
func TestTheBusAndItsAlerts(t *testing.T) {
	t.Parallel()
	in := newInbox(t, http.StatusOK)
	s := newShop(t, "sqlite://"+filepath.Join(t.TempDir(), "fence.db"), options{})
	s.add(fmt.Sprintf("bus: {forward: {'App\\Jobs\\Mail*': default}, refuse: ['App\\Message\\Login*']}\nalerts: [%q]\n", in.address()))
	mail := s.push("m-1", `App\Jobs\Mailing`)
	s.push("m-2", `App\Message\LoginRequest`)
	s.push("m-3", `App\Jobs\Unknown`)
	w := s.worker("--drain")
	w.exit(exit.Good)
	if got, err := s.redis.LRange(t.Context(), "laravel_database_queues:default", 0, -1).Result(); err != nil || len(got) != 1 || got[0] != mail {
		t.Errorf("queue default holds %q, %v; want %q", got, err, mail)
	}
	for _, want := range []string{"refused\n", "m-2", "parked\n", "m-3", "next: zabor failed list"} {
		if !strings.Contains(in.all(), want) {
			t.Errorf("no alert says %q:\n%s", want, in.all())
		}
	}
	if laravel, _ := s.failed(); laravel != 2 {
		t.Errorf("%d failed jobs, want 2", laravel)
	}
	if strings.Contains(w.log.String(), "s3cretpath") {
		t.Error("the log holds the address")
	}
}

func TestAlertTest(t *testing.T) {
	t.Parallel()
	servers.Need(t, "redis-server", "redis-server")
	good, bad := newInbox(t, http.StatusOK), newInbox(t, http.StatusForbidden)
	file := filepath.Join(t.TempDir(), "zabor.yaml")
	for _, tt := range []struct {
		alerts string
		code   int
		want   string
	}{
		{fmt.Sprintf("[%q, '']", good.address()), exit.Good, "alerts[0] (generic " + good.Listener.Addr().String() + "): delivered"},
		{fmt.Sprintf("[%q, %q]", good.address(), bad.address()), exit.BadAnswer, "alerts[1] (generic " + bad.Listener.Addr().String() + "): not delivered: "},
		{"[]", exit.WrongUsage, "there are no alert addresses"},
		{"['https://hooks.slack.com/services/s3cretpath']", exit.WrongUsage, "alerts[0]: this is not the whole webhook of Slack"},
	} {
		if err := os.WriteFile(file, []byte("fence: sqlite://fence.db\nalerts: "+tt.alerts+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		p := start(t, "alert", "test", "-c", file)
		p.exit(tt.code)
		if log := p.log.String(); !strings.Contains(log, tt.want) || strings.Contains(log, "s3cretpath") {
			t.Errorf("%s: %s\nwant %q and no secret", tt.alerts, log, tt.want)
		}
	}
	if got := good.all(); strings.Count(got, "this is a test") != 2 {
		t.Errorf("arrived:\n%s", got)
	}
	p := start(t, "alert", "test", "--json", "-c", file)
	p.exit(exit.WrongUsage)
}

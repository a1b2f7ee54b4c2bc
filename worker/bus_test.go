package worker_test

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"sync"
	"testing"

	"zabor"
	"zabor/worker"
)

func (q *watched) Forward(ctx context.Context, m *worker.Message, queue string) error {
	q.s.note("forward to " + queue)
	return q.Source.Forward(ctx, m, queue)
}

// alerts takes what the worker alerts of.
type alerts struct {
	mu   sync.Mutex
	list []zabor.Alert
}

func (s *shop) alerts() *alerts {
	a := &alerts{}
	s.Fence.Alert = func(one zabor.Alert) {
		s.Told(one)
		a.mu.Lock()
		defer a.mu.Unlock()
		a.list = append(a.list, one)
	}
	return a
}

func (a *alerts) codes() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	var codes []string
	for _, one := range a.list {
		codes = append(codes, one.Code)
	}
	return codes
}

func (s *shop) listed(queue string) []string {
	s.t.Helper()
	list, err := s.redis.LRange(s.t.Context(), "queues:"+queue, 0, -1).Result()
	if err != nil {
		s.t.Fatal(err)
	}
	return list
}

func (s *shop) reason() (why string) {
	s.t.Helper()
	if err := s.store.DB().QueryRow("SELECT exception FROM failed_jobs").Scan(&why); err != nil {
		s.t.Fatal(err)
	}
	return why
}

// What becomes of a message without a step, by its class.
func TestBus(t *testing.T) {
	t.Parallel()
	bus := worker.Bus{
		Forward: map[string]string{`App\Jobs\Mail`: "default", `App\Jobs\*`: "jobs", `App\*`: "app"},
		Refuse:  []string{"Login*", `Csrf`},
	}
	star := worker.Bus{Forward: map[string]string{"*": "rest"}, Refuse: []string{"Login*"}}
	for _, tt := range []struct {
		name, class string
		bus         worker.Bus
		event       string
		alert       string
		reason      string
	}{
		{"named", `App\Jobs\Mail`, bus, "forward to default", "", ""},
		{"the longest pattern", `App\Jobs\Mailing`, bus, "forward to jobs", "", ""},
		{"a shorter pattern", `App\Models\Mail`, bus, "forward to app", "", ""},
		{"another case is another class", `app\Jobs\Mail`, bus, "park", "parked", `no step is configured for app\Jobs\Mail`},
		{"refused", "LoginMessage", bus, "park", "refused", "must not be on a bus"},
		{"refused by name", "Csrf", bus, "park", "refused", "must not be on a bus"},
		{"longer than the name", "CsrfToken", bus, "park", "parked", "no step is configured for CsrfToken"},
		{"no bus", "Mail", worker.Bus{}, "park", "parked", "no step is configured for Mail"},
		{"a star takes the rest", "Mail", star, "forward to rest", "", ""},
		{"a star does not take what is refused", "LoginMessage", star, "park", "refused", "must not be on a bus"},
		{"a step comes before a star", "Charge", star, "acked", "", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := newShop(t)
			s.Bus = tt.bus
			a := s.alerts()
			to, forwards := strings.CutPrefix(tt.event, "forward to ")
			n := 1
			if forwards {
				n = 10 // the patterns are in a map, whose order is another each time
			}
			for range n {
				s.push("payments", tt.class, map[string]any{"order": "1", "cents": 1999})
			}
			before := s.listed("payments")
			s.drained()
			if events := s.noted(); len(events) == 0 || events[len(events)-1] != tt.event {
				t.Errorf("events %q, want %q at the end", events, tt.event)
			}
			if codes := a.codes(); !slices.Equal(codes, strings.Fields(tt.alert)) {
				t.Errorf("alerts %q, want %q", codes, tt.alert)
			}
			if forwards {
				if got := s.listed(to); !slices.Equal(got, before) {
					t.Errorf("queue %s holds\n%q, want\n%q", to, got, before)
				}
			}
			if tt.reason != "" && !strings.Contains(s.reason(), tt.reason) {
				t.Errorf("parked because %s", s.reason())
			}
		})
	}
}

// A job of a chain cannot be run here; its class is forwarded all the same, and
// stays in the failure transport where the bus does not know it.
func TestBusForwardsWhatItCannotRun(t *testing.T) {
	t.Parallel()
	for name, bus := range map[string]worker.Bus{
		"forward": {Forward: map[string]string{`App\Jobs\Mail`: "default"}},
		"park":    {},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newShop(t)
			s.Bus = bus
			payload, err := json.Marshal(map[string]any{
				"uuid": "u-1", "displayName": `App\Jobs\Mail`, "job": `Illuminate\Queue\CallQueuedHandler@call`, "attempts": 0,
				"data": map[string]any{"commandName": `App\Jobs\Mail`, "command": `O:13:"App\Jobs\Mail":1:{s:7:"chained";a:1:{i:0;s:1:"x";}}`},
			})
			if err != nil {
				t.Fatal(err)
			}
			s.pushRaw("payments", string(payload))
			s.drained()
			if name == "park" {
				s.wantEvents("park")
				return
			}
			s.wantEvents("forward to default")
			if got := s.listed("default"); !slices.Equal(got, []string{string(payload)}) {
				t.Errorf("queue default holds\n%q, want\n%q", got, payload)
			}
		})
	}
}

// What is no message is kept, whatever the bus forwards.
func TestBusForwardsNothingUnreadable(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.Bus = worker.Bus{Forward: map[string]string{"*": "default"}}
	s.pushRaw("payments", "{")
	s.drained()
	s.wantEvents("unreadable", "ack")
}

// A step's parked message raises an alert that names order and step.
func TestParkAlerts(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	a := s.alerts()
	s.push("payments", "Charge", map[string]any{"order": "7"})
	s.drained()
	if codes := a.codes(); !slices.Equal(codes, []string{"parked"}) {
		t.Fatalf("alerts %q", codes)
	}
	got := a.list[0]
	if got.Key != (zabor.Key{Order: "7", Step: "charge"}) || !strings.Contains(got.Text, "there is no cents") || !strings.Contains(got.Text, "queue payments") || got.Next != "zabor failed list" {
		t.Errorf("alert %+v", got)
	}
}

// One alert for one thing: of a row that is held, and of another request under its
// key, the fence tells, and the parking of the message is no second alert. Whoever
// retries the message of a held row is told that it was parked again.
func TestOneAlertForARowAndItsMessage(t *testing.T) {
	t.Parallel()
	misdirected := zabor.Outcome{Verdict: zabor.Misdirected, Reason: "404"}
	for _, tt := range []struct {
		name   string
		answer zabor.Outcome
		again  int // cents that a second message wants; 0: there is none
		want   []string
	}{
		{"held", misdirected, 0, []string{"held", "provider-paused"}},
		{"held, and retried", misdirected, 1999, []string{"held", "parked", "provider-paused"}},
		{"malformed", zabor.Outcome{Verdict: zabor.Malformed, Reason: "422"}, 0, []string{"malformed"}},
		{"malformed, and retried", zabor.Outcome{Verdict: zabor.Malformed, Reason: "422"}, 1999, []string{"malformed", "parked"}},
		{"another request", zabor.Outcome{Verdict: zabor.Done, Reference: "p"}, 2999, []string{"other-request"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := newShop(t)
			a := s.alerts()
			s.answer = func(context.Context, zabor.Row) zabor.Outcome { return tt.answer }
			s.charge("1")
			s.drained()
			if tt.again > 0 {
				s.push("payments", "Charge", map[string]any{"order": "1", "cents": tt.again})
				s.drained()
			}
			got := a.codes()
			slices.Sort(got)
			if !slices.Equal(got, tt.want) {
				t.Errorf("alerts %q, want %q", got, tt.want)
			}
		})
	}
}

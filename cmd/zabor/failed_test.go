package main

import (
	"bytes"
	"encoding/json"
	"strings"
	"syscall"
	"testing"

	"zabor"
)

// failedCommand runs zabor failed and gives its standard output.
func (s *shop) failedCommand(code int, args ...string) string {
	s.t.Helper()
	var out, errs bytes.Buffer
	if got := run(s.t.Context(), append([]string{"failed", args[0], "-c", s.file}, args[1:]...), &out, &errs); got != code {
		s.t.Fatalf("zabor failed %q: exit code %d, want %d\n%s%s", args, got, code, out.String(), errs.String())
	}
	return out.String()
}

// What a real worker parks, from each framework, is listed with its key; retried,
// it meets the fence, which calls nothing for what is held.
func TestFailedMessagesMeetTheFence(t *testing.T) {
	t.Parallel()
	for _, d := range databases {
		t.Run(d.name, func(t *testing.T) {
			t.Parallel()
			s := newShop(t, d.open(t), options{})
			var messages []message
			for i, f := range frameworks {
				order := string(rune('1' + i))
				if err := writeRow(s.fence, zabor.Held, key(order)); err != nil {
					t.Fatal(err)
				}
				messages = append(messages, newMessage(s.o.redis, f.name, order))
			}
			put(t, messages...)
			w := s.worker()
			eventually(t, "all is parked", func() bool { laravel, symfony := s.failed(); return laravel == 1 && symfony == 2 })
			w.signal(syscall.SIGTERM)
			w.exit(0)
			var list []failedJSON
			if err := json.Unmarshal([]byte(s.failedCommand(0, "list", "--json")), &list); err != nil {
				t.Fatal(err)
			}
			if len(list) != 3 {
				t.Fatalf("listed %+v, want 3", list)
			}
			for _, m := range list {
				if m.Key == nil || m.Key.Step != "charge" || m.Key.Scope != "test" || m.FailedAt == nil || m.Reason == "" || m.Class == "" || strings.Contains(m.Reason, "\n") {
					t.Errorf("message %+v", m)
				}
				if state := s.state(string(m.Key.Order)); state != zabor.Held {
					t.Errorf("order %s is %s, want held", m.Key.Order, state)
				}
			}
			// All together they stay where they are: PHP would make these calls.
			if out := s.failedCommand(0, "retry", "--all"); !strings.Contains(out, "3 messages are left where they are") || strings.Count(out, "left where it is: ") != 3 || !strings.Contains(out, "its row is held") {
				t.Errorf("retry printed %q", out)
			}
			if laravel, symfony := s.failed(); laravel+symfony != 3 {
				t.Errorf("%d and %d messages are left, want all", laravel, symfony)
			}
			if out := s.failedCommand(0, "retry", list[0].ID, list[1].ID, list[2].ID); !strings.Contains(out, "3 of 3 done") {
				t.Errorf("retry printed %q", out)
			}
			if laravel, symfony := s.failed(); laravel+symfony != 0 {
				t.Errorf("%d and %d messages are left", laravel, symfony)
			}
			w = s.worker()
			eventually(t, "all is parked again", func() bool { laravel, symfony := s.failed(); return laravel == 1 && symfony == 2 })
			w.signal(syscall.SIGTERM)
			w.exit(0)
			if n := s.provider.Stats().Posts; n != 0 {
				t.Errorf("%d requests for what is held, want none", n)
			}
			s.empty()
		})
	}
}

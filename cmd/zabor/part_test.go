package main

import (
	"os"
	"strings"
	"syscall"
	"testing"

	"zabor"
)

// Two parts of a step are two charges of an order, and each is one however often
// it is asked for.
func TestParts(t *testing.T) {
	t.Parallel()
	s := newShop(t, databases[0].open(t), options{lanes: 4})
	content, err := os.ReadFile(s.file)
	if err != nil {
		t.Fatal(err)
	}
	text := strings.Replace(string(content), "    order: orderId\n", "    order: orderId\n    part: refundId\n", 1)
	if err := os.WriteFile(s.file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	var messages []message
	for _, part := range []string{"R-1", "R-2", "R-1", "R-2"} {
		m := newMessage(s.o.redis, "laravel", target)
		m.Properties["refundId"] = part
		messages = append(messages, m)
	}
	put(t, messages...)
	w := s.worker()
	eventually(t, "all messages are acked", func() bool { return s.provider.Stats().Charges >= 2 && s.depth() == depth{} })
	w.signal(syscall.SIGTERM)
	w.exit(0)
	if charges := s.provider.Charges(target); len(charges) != 2 {
		t.Errorf("charges %v, want two", charges)
	}
	for _, step := range []string{"charge:R-1", "charge:R-2"} {
		row, err := s.store.Load(t.Context(), zabor.Key{Scope: "test", Order: target, Step: step})
		if err != nil || row.State != zabor.Settled || row.Tries != 1 {
			t.Errorf("%s: %+v, %v; want it settled by one call", step, row, err)
		}
	}
}

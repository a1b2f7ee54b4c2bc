package step

import "testing"

// A request with a card is sensitive, and one without a card is not.
func TestACardIsSensitive(t *testing.T) {
	s := newStep(t, func(s *Spec) {
		s.Request.JSON = map[string]any{"amount": "{{minor}}", "source": "{{.source}}"}
	})
	for source, want := range map[string]bool{"4242424242424242": true, "4242-4242-4242-4242": true, "pm_1": false} {
		e := effect(t, s, Message{Data: map[string]any{"orderId": int64(7), "cents": int64(1999), "source": source}})
		if e.Sensitive != want {
			t.Errorf("%s: sensitive %v, want %v", source, e.Sensitive, want)
		}
	}
}

package dashboard

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"zabor"
)

// Somebody interrupts the command while the message is moved: the history must not say
// of one that lies where it lay that it was moved.
func TestMoveInterrupted(t *testing.T) {
	t.Parallel()
	for name, forget := range map[string]bool{messageRetried: false, messageForgotten: true} {
		o := newOffice(t, nil)
		key := zabor.Key{Scope: "shop", Order: "1001", Step: "charge"}
		ctx, cancel := context.WithCancel(t.Context())
		move := Move{Message: FailedMessage{FailedID: FailedID{Queue: "payments", ID: "7"}, Key: &key}, Forget: forget, By: "ops"}
		err := move.Do(ctx, o.store, "shop", func(ctx context.Context) error {
			cancel()
			return ctx.Err()
		})
		if !errors.Is(err, context.Canceled) || errors.Is(err, ErrNotNoted) {
			t.Errorf("%s: %v, want that it was interrupted", name, err)
		}
		notes, err := o.store.History().Of(t.Context(), key)
		if err != nil {
			t.Fatal(err)
		}
		var kinds []string
		for _, n := range notes {
			kinds = append(kinds, n.Kind)
		}
		if want := []string{name, messageLeft}; !slices.Equal(kinds, want) {
			t.Errorf("noted %q, want %q", kinds, want)
		} else if last := notes[1]; last.By != "ops" || !strings.Contains(last.Text, "message 7 of queue payments") {
			t.Errorf("noted by %s: %s", last.By, last.Text)
		}
		cancel()
	}
}

// The list does not repeat the key that stands beside the reason.
func TestFirstLine(t *testing.T) {
	t.Parallel()
	key := zabor.Key{Scope: "shop", Order: "1", Step: "charge"}
	for _, one := range []FailedMessage{{Key: &key, Reason: "shop:1/charge: held\nstack"}, {Reason: "held"}, {Key: &key, Reason: "held"}} {
		if got := one.FirstLine(); got != "held" {
			t.Errorf("%q", got)
		}
	}
}

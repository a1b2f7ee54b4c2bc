package dashboard

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// A page waits for a number that it has none of, and for no other for long; what
// was decided meanwhile is never hidden by an older reading.
func TestKeptNumbers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var k kept[int]
		next, slow := 1, 3*time.Second
		read := func(context.Context) (int, error) {
			n := next
			time.Sleep(slow) // the bubble's clock
			if n < 0 {
				return 0, errors.New("the database is away")
			}
			return n, nil
		}
		set := func(n int) {
			synctest.Wait() // a reading that has begun has read it
			next = n
		}
		get := func(want int, fails bool, took time.Duration) {
			t.Helper()
			begun := time.Now()
			n, at, err := k.get(t.Context(), read)
			if n != want || (err != nil) != fails || time.Since(begun) != took {
				t.Errorf("%d, read at %s, %v, after %s; want %d after %s", n, at, err, time.Since(begun), want, took)
			}
		}
		get(1, false, slow)
		set(2)
		time.Sleep(50 * time.Second)
		get(1, false, 0) // counting took three seconds: it may be a minute old
		time.Sleep(15 * time.Second)
		get(2, false, slow) // and was not shown any more after that
		set(3)
		slow = time.Second
		time.Sleep(59 * time.Second)
		get(2, false, 0)
		k.until = time.Time{}
		get(2, false, patience) // young enough to be shown while it is counted
		time.Sleep(2 * time.Second)
		get(3, false, 0)

		// A reading that began before a decision is not shown after it.
		k.until = time.Time{}
		set(4)
		get(3, false, patience)
		set(5)
		k.forget()
		get(5, false, slow)
		time.Sleep(time.Minute)
		get(5, false, slow)

		set(-1)
		time.Sleep(2 * time.Minute)
		get(5, true, slow)
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		if _, _, err := k.get(ctx, read); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("whoever is gone gets %v", err)
		}
		time.Sleep(2 * slow)
	})
}

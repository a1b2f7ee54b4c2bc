package sqlstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"zabor"
	"zabor/seal"
)

const (
	theKey   = "the encryption key of these tests: long enough"
	otherKey = "another encryption key of these tests: long enough"
)

// encrypted is a migrated store with encryption_key as given.
func encrypted(t testing.TB, address, keys string) *Store {
	t.Helper()
	s := migrated(t, address)
	s.Encrypt(parseKeys(t, keys))
	return s
}

func parseKeys(t testing.TB, text string) *seal.Keys {
	t.Helper()
	keys, err := seal.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return keys
}

// payingRow has something in everything that is encrypted.
func payingRow(order string) zabor.Row {
	row := testRow(order, 1)
	row.Open.Request = []byte(`{"v":1,"body":"customer=Zoe"}`)
	row.Open.HookData = []byte(`{"customer":"Zoe"}`)
	row.Answer = &zabor.Answer{Status: 201, Header: []zabor.HeaderField{{Name: "Location", Value: "/customers/Zoe"}}, Body: []byte(`{"payer":"Zoe"}`)}
	return row
}

// Nothing of a request, a message or an answer stands in the table, and what was
// written before there was a key is read as before.
func TestNothingIsReadInTheTable(t *testing.T) {
	for _, d := range databases {
		t.Run(d.name, func(t *testing.T) {
			t.Parallel()
			address := d.address(t)
			before := payingRow("1")
			if _, err := migrated(t, address).Insert(t.Context(), before, zabor.Write{}); err != nil {
				t.Fatal(err)
			}
			s := encrypted(t, address, theKey)
			row := payingRow("2")
			if _, err := s.Insert(t.Context(), row, zabor.Write{}); err != nil {
				t.Fatal(err)
			}
			if err := s.Quarantine().Save(t.Context(), Unreadable{Queue: "q", Bytes: []byte("for Zoe"), Reason: "no JSON"}); err != nil {
				t.Fatal(err)
			}
			for order, n := range map[string]int{"1": 4, "2": 0} {
				var request, header, hook, body []byte
				err := s.DB().QueryRow(s.dialect.sql("SELECT request, answer_header, hook_data, answer_body FROM zabor_fences WHERE order_id = ?"), []byte(order)).
					Scan(&request, &header, &hook, &body)
				if err != nil {
					t.Fatal(err)
				}
				if got := bytes.Count(bytes.Join([][]byte{request, header, hook, body}, nil), []byte("Zoe")); got != n {
					t.Errorf("row %s: Zoe stands in %d of its columns, want %d", order, got, n)
				}
			}
			var kept []byte
			if err := s.DB().QueryRow("SELECT bytes FROM zabor_unreadable").Scan(&kept); err != nil || bytes.Contains(kept, []byte("Zoe")) {
				t.Errorf("%v; the unreadable message is kept as %q", err, kept)
			}
			unreadable, err := s.Quarantine().List(t.Context(), "q", KeptUnreadable{}, 0)
			if err != nil || len(unreadable) != 1 || string(unreadable[0].Bytes) != "for Zoe" {
				t.Errorf("%+v, %v", unreadable, err)
			}
			for _, want := range []zabor.Row{before, row} {
				got, err := s.Load(t.Context(), want.Key)
				if err != nil || !bytes.Equal(got.Open.Request, want.Open.Request) || !bytes.Equal(got.Open.HookData, want.Open.HookData) || got.Open.Sealed.Why != "" ||
					got.Answer == nil || fmt.Sprint(*got.Answer) != fmt.Sprint(*want.Answer) {
					t.Errorf("%+v, %v; want %+v", got, err, want)
				}
			}
		})
	}
}

// With another key, or none, a row is read without what is encrypted, says why,
// and a write leaves that as it was. What is moved to another row is not opened.
func TestAnotherKey(t *testing.T) {
	for _, d := range databases {
		t.Run(d.name, func(t *testing.T) {
			t.Parallel()
			address := d.address(t)
			s := encrypted(t, address, theKey)
			row, victim := payingRow("1"), payingRow("2")
			for _, r := range []zabor.Row{row, victim} {
				if _, err := s.Insert(t.Context(), r, zabor.Write{}); err != nil {
					t.Fatal(err)
				}
			}
			for _, keys := range []string{otherKey, ""} {
				wrong := encrypted(t, address, keys)
				got, err := wrong.Load(t.Context(), row.Key)
				if err != nil || got.Open.Request != nil || got.Open.HookData != nil || got.Answer.Readable() || !strings.Contains(got.Open.Sealed.Why, parseKeys(t, theKey).ID()) || !strings.Contains(got.Answer.Why, parseKeys(t, theKey).ID()) {
					t.Fatalf("with %q: %+v, %v; want all of it sealed, by the key %s", keys, got, err, parseKeys(t, theKey).ID())
				}
				next := got
				next.Claim = zabor.Claim{Epoch: got.Claim.Epoch + 1, ID: [16]byte{9}}
				next.State = zabor.Doubt
				if err := wrong.Swap(t.Context(), got, next, zabor.Write{}); err != nil {
					t.Fatal(err)
				}
				got, err = s.Load(t.Context(), row.Key)
				if err != nil || got.State != zabor.Doubt || !bytes.Equal(got.Open.Request, row.Open.Request) || !bytes.Equal(got.Open.HookData, row.Open.HookData) ||
					got.Answer == nil || fmt.Sprint(*got.Answer) != fmt.Sprint(*row.Answer) || got.Open.Sealed.Why != "" {
					t.Errorf("after a write with %q: %+v, %v", keys, got, err)
				}
			}
			rotated, err := encrypted(t, address, otherKey+","+theKey).Load(t.Context(), row.Key)
			if err != nil || !bytes.Equal(rotated.Open.Request, row.Open.Request) {
				t.Errorf("with the key behind a comma: %+v, %v", rotated, err)
			}
			var request []byte
			if err := s.DB().QueryRow(s.dialect.sql("SELECT request FROM zabor_fences WHERE order_id = ?"), []byte("1")).Scan(&request); err != nil {
				t.Fatal(err)
			}
			if _, err := s.DB().Exec(s.dialect.sql("UPDATE zabor_fences SET request = ? WHERE order_id = ?"), request, []byte("2")); err != nil {
				t.Fatal(err)
			}
			moved, err := s.Load(t.Context(), victim.Key)
			if err != nil || moved.Open.Request != nil || !strings.Contains(moved.Open.Sealed.Why, "moved here") || moved.Answer == nil {
				t.Errorf("a request that was moved to another row: %+v, %v", moved, err)
			}
		})
	}
}

// A start with another key than the table was written with is refused, and with
// none too: what should be encrypted would be written as it is.
func TestCheckDemandsTheKey(t *testing.T) {
	onEach(t, func(t *testing.T, s *Store) {
		start := func(keys string) error {
			s.Encrypt(parseKeys(t, keys))
			if err := s.Setup().Check(t.Context()); err != nil {
				return err
			}
			return s.Setup().RememberKey(t.Context())
		}
		for i, step := range []struct {
			keys string
			good bool
		}{
			{"", true},
			{theKey, true}, {theKey, true},
			{"", false}, {otherKey, false},
			{theKey + "," + otherKey, true}, // everywhere first
			{otherKey + "," + theKey, true},
			{otherKey, true}, {theKey, false},
			{"," + otherKey, true}, // none any more
			{"", true}, {theKey, true},
		} {
			err := start(step.keys)
			var problem *Problem
			if step.good != (err == nil) || err != nil && (!errors.As(err, &problem) || !errors.Is(err, seal.ErrSealed)) {
				t.Fatalf("start %d with %.8q…: %v", i, step.keys, err)
			}
			if err != nil && (strings.Contains(err.Error(), theKey) || strings.Contains(err.Error(), otherKey)) {
				t.Errorf("the error holds a key: %v", err)
			}
		}
	})
}

// A doubtful call whose request cannot be read is not sent again and not called
// anew: the look-up, and in the end a person, decides it.
func TestAnotherKeyNeverCalls(t *testing.T) {
	onEach(t, func(t *testing.T, s *Store) {
		s.Encrypt(parseKeys(t, theKey))
		calls := 0
		effect := func(order string) zabor.Effect {
			return zabor.Effect{
				Key: zabor.Key{Order: order, Step: "charge"}, Provider: "acquirer", Fingerprint: zabor.Fingerprint{Message: "m", Request: "f"},
				Render:  func(zabor.ProviderKeys, string) ([]byte, error) { return []byte("pay"), nil },
				Timeout: time.Second, MaxAttempts: 3, AbsentAfter: time.Second, HoldAfter: time.Minute, ReplayFor: time.Hour, MissingRow: zabor.Captured,
			}
		}
		unknown := func(context.Context, zabor.Row) zabor.Outcome {
			calls++
			return zabor.Outcome{Reason: "time-out"}
		}
		fence := &zabor.Fence{Store: s, Secret: make([]byte, zabor.MinSecret)}
		for _, order := range []string{"doubt", "released"} {
			if _, err := fence.Do(t.Context(), effect(order), unknown); !errors.Is(err, zabor.ErrInDoubt) {
				t.Fatal(err)
			}
		}
		mustExec(t, s.DB(), "UPDATE zabor_fences SET send_until = send_until - 10000000")
		row, err := s.Load(t.Context(), effect("released").Key)
		if err != nil {
			t.Fatal(err)
		}
		_, err = fence.Decide(t.Context(), zabor.Decision{Key: row.Key, Seen: row.Claim, Action: zabor.Release, By: "ops", Reason: "looked", CheckedProvider: true})
		if err != nil {
			t.Fatal(err)
		}

		s.Encrypt(parseKeys(t, otherKey))
		found := zabor.Finding{}
		resolver := &zabor.Resolver{
			Fence: fence, Replay: unknown,
			Lookup: func(context.Context, zabor.Row) (zabor.Finding, error) { return found, nil },
		}
		if err := resolver.Round(t.Context()); err != nil {
			t.Fatal(err)
		}
		_, err = fence.Do(t.Context(), effect("released"), unknown)
		if !errors.Is(err, zabor.ErrReleased) || zabor.Park(err) || !strings.Contains(err.Error(), parseKeys(t, theKey).ID()) {
			t.Errorf("a released row: error %v, want one that names the key %s and brings the message back", err, parseKeys(t, theKey).ID())
		}
		mustExec(t, s.DB(), "UPDATE zabor_fences SET send_until = send_until - 3600000000, state_since = state_since - 3600000000, watched = 3600000000, due_at = 0 WHERE due_at IS NOT NULL")
		if err := resolver.Round(t.Context()); err != nil {
			t.Fatal(err)
		}
		held, err := s.Load(t.Context(), effect("doubt").Key)
		if err != nil || held.State != zabor.Held || !strings.Contains(held.Reason, parseKeys(t, theKey).ID()) {
			t.Errorf("%s: %s, %v; want it held, with the key's name", held.State, held.Reason, err)
		}
		if calls != 2 {
			t.Errorf("calls=%d, want 2", calls)
		}
	})
}

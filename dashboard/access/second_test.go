package access

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"zabor"
	"zabor/sqlstore"
)

// A release by two persons on a real table: kept over a restart, refused where it
// must be, and recorded with both.
func TestSecondPerson(t *testing.T) {
	t.Parallel()
	dsn := "sqlite://" + filepath.Join(t.TempDir(), "fence.db")
	open := func() *sqlstore.Store {
		s, err := sqlstore.Open(dsn)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() })
		return s
	}
	s := open()
	if err := s.Setup().Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	f := &zabor.Fence{Store: s, Secret: make([]byte, zabor.MinSecret)}
	key := zabor.Key{Order: "1", Step: "charge"}
	_, err := f.Do(t.Context(), zabor.Effect{
		Key: key, Provider: "p", Fingerprint: zabor.Fingerprint{Message: "m", Request: "f"}, Timeout: time.Second, MaxAttempts: 3, HoldAfter: time.Hour, PendingFor: time.Hour,
		MissingRow: zabor.Captured, Render: func(zabor.ProviderKeys, string) ([]byte, error) { return []byte("{}"), nil },
	}, func(context.Context, zabor.Row) zabor.Outcome { return zabor.Outcome{Verdict: zabor.Unsent} })
	t.Log(err) // it is free now; a person holds it
	row, err := s.Load(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	decide := func(d zabor.Decision) zabor.Row {
		t.Helper()
		row, err := f.Decide(t.Context(), d)
		if err != nil {
			t.Fatal(err)
		}
		return row
	}
	row = decide(zabor.Decision{Key: key, Seen: row.Claim, Action: zabor.Hold, By: "anna", Reason: "look"})

	anna, boris, view := Identity{"anna", Operator}, Identity{"boris", Operator}, Identity{"vera", Viewer}
	notes := func() []zabor.Note {
		t.Helper()
		all, err := open().History().Of(t.Context(), key) // another process
		if err != nil {
			t.Fatal(err)
		}
		return all
	}
	note := func(make func(Identity, zabor.Claim, string) (zabor.Note, error), who Identity, reason string) {
		t.Helper()
		n, err := make(who, row.Claim, reason)
		if err == nil {
			err = s.Note(t.Context(), key, n)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	release := zabor.Decision{Key: key, Seen: row.Claim, Action: zabor.Release, Reason: "seen at the provider", CheckedProvider: true}

	refused := func(why string, who Identity, d zabor.Decision, want error) {
		t.Helper()
		if got, err := Confirm(notes(), who, d); err == nil || want != nil && !errors.Is(err, want) || got.By != d.By {
			t.Errorf("%s: by %q, %v, want %v", why, got.By, err, want)
		}
	}
	refused("nothing proposed", boris, release, ErrNotProposed)
	if _, err := Propose(view, row.Claim, "x"); err == nil {
		t.Error("a viewer proposes")
	}
	if _, err := Propose(anna, row.Claim, ""); err == nil {
		t.Error("a proposal without a reason")
	}
	note(Propose, anna, "not at the provider")
	refused("by the same person", anna, release, ErrSamePerson)
	refused("by a viewer", view, release, nil)
	refused("another decision", boris, zabor.Decision{Key: key, Seen: row.Claim, Action: zabor.Settle}, nil)
	note(Withdraw, boris, "wait")
	refused("withdrawn", boris, release, ErrNotProposed)
	note(Propose, anna, "not at the provider")
	old := row
	row = decide(zabor.Decision{Key: key, Seen: row.Claim, Action: zabor.Release, By: "cli", Reason: "r", CheckedProvider: true})
	row = decide(zabor.Decision{Key: key, Seen: row.Claim, Action: zabor.Hold, By: "cli", Reason: "r"})
	release.Seen = row.Claim
	refused("proposed for an earlier row", boris, release, ErrNotProposed)

	note(Propose, anna, "not at the provider")
	if p, waits := Proposed(notes(), row.Claim); !waits || p.By != "anna" || p.Reason != "not at the provider" || p.At.IsZero() {
		t.Errorf("proposed: %+v %v", p, waits)
	}
	both, err := Confirm(notes(), boris, release)
	if err != nil {
		t.Fatal(err)
	}
	stale := both
	stale.Seen = old.Claim
	if _, err := f.Decide(t.Context(), stale); !errors.Is(err, zabor.ErrStale) {
		t.Errorf("with an old epoch: %v, want %v", err, zabor.ErrStale)
	}
	row = decide(both)
	all := notes()
	last := all[len(all)-1]
	if row.State != zabor.Released || last.By != "anna, confirmed by boris" || !strings.Contains(last.Text, "not at the provider (boris: seen at the provider)") {
		t.Errorf("%s, by %q: %s", row.State, last.By, last.Text)
	}
}

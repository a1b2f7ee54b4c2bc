package zabor_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"zabor"
	"zabor/sqlstore"
)

func (w *world) decide(d zabor.Decision) (zabor.Row, error) {
	if d.By == "" {
		d.By, d.Reason = "ops", "looked at it"
	}
	return w.fence.Decide(w.t.Context(), d)
}

// held leaves order held after a call of which nothing is known, late enough for
// a person to release it.
func (w *world) held(order string) zabor.Row {
	w.t.Helper()
	e := effect(order)
	e.Timeout, e.AbsentAfter = time.Microsecond, 0
	w.fence.Do(w.t.Context(), e, w.answers(zabor.Outcome{}))
	w.swap(w.row(e.Key), func(r *zabor.Row) { r.State = zabor.Held })
	waitFor(w.t, "end of the lease", func() bool { r := w.row(e.Key); return r.ReadAt.After(r.Open.SendUntil) })
	return w.row(e.Key)
}

func TestWhatAPersonMayDecide(t *testing.T) {
	refused := map[zabor.Action][]zabor.State{
		zabor.Settle:  {},
		zabor.Decline: {zabor.Settled, zabor.Declined},
		zabor.Release: {zabor.Settled, zabor.Pending},
		zabor.Hold:    {zabor.Settled, zabor.Declined, zabor.Held},
	}
	after := map[zabor.Action]zabor.State{zabor.Settle: zabor.Settled, zabor.Decline: zabor.Declined, zabor.Release: zabor.Released, zabor.Hold: zabor.Held}
	eachStore(t, func(t *testing.T, s *sqlstore.Store) {
		w := newWorld(t, s)
		held := w.held("1001")
		for action, not := range refused {
			for _, state := range []zabor.State{zabor.Captured, zabor.Pending, zabor.Settled, zabor.Declined, zabor.Released, zabor.Doubt, zabor.Held, "later-version"} {
				row := w.swap(w.row(held.Key), func(r *zabor.Row) {
					r.State, r.Cause, r.Reference, r.OtherReference, r.Generation = state, zabor.ByCall, "", "", 1
					if state == zabor.Settled || state == zabor.Pending {
						r.Reference = "pay_1"
					}
				})
				d := zabor.Decision{Key: row.Key, Seen: row.Claim, Action: action, CheckedProvider: true}
				if action == zabor.Settle {
					d.Reference = "pay_2"
				}
				got, err := w.decide(d)
				want := error(nil)
				for _, s := range not {
					if s == state {
						want = zabor.ErrRefused
					}
				}
				if !errors.Is(err, want) {
					t.Errorf("%s of %s: error %v, want %v", action, state, err, want)
				}
				if now := w.row(row.Key); err == nil && (now.State != after[action] || now.Cause != zabor.ByPerson || now.Claim != got.Claim) {
					t.Errorf("%s of %s: the row is %s by %s", action, state, now.State, now.Cause)
				} else if err != nil && now.Claim != row.Claim {
					t.Errorf("%s of %s was refused and has changed the row", action, state)
				}
			}
		}
		notes, err := s.History().Of(t.Context(), held.Key)
		if err != nil {
			t.Fatal(err)
		}
		// Those of machines are beside them.
		notes = slices.DeleteFunc(notes, func(n zabor.Note) bool { return n.By == "" })
		if want := 4*8 - 7; len(notes) != want {
			t.Errorf("%d notes, want %d: one for each decision", len(notes), want)
		}
		for _, n := range notes {
			if n.By != "ops" || !strings.Contains(n.Text, "looked at it") || n.Kind == "" {
				t.Errorf("note %+v does not say who, what and why", n)
			}
		}
	})
}

// A decision on a page that has grown old is refused.
func TestADecisionOnAnOldPage(t *testing.T) {
	eachStore(t, func(t *testing.T, s *sqlstore.Store) {
		w := newWorld(t, s)
		row := w.held("1001")
		w.swap(row, func(r *zabor.Row) { r.State, r.Reference = zabor.Settled, "pay_1" })
		_, err := w.decide(zabor.Decision{Key: row.Key, Seen: row.Claim, Action: zabor.Release, CheckedProvider: true})
		if !errors.Is(err, zabor.ErrStale) {
			t.Errorf("error %v, want %v", err, zabor.ErrStale)
		}
		if now := w.row(row.Key); now.State != zabor.Settled {
			t.Errorf("the row is %s, want settled", now.State)
		}
	})
}

// Releasing what may have been called demands the proof, and the time for it.
func TestReleaseOfADoubtfulRow(t *testing.T) {
	eachStore(t, func(t *testing.T, s *sqlstore.Store) {
		w := newWorld(t, s)
		row := w.held("1001")
		release := zabor.Decision{Key: row.Key, Seen: row.Claim, Action: zabor.Release}
		if _, err := w.decide(release); !errors.Is(err, zabor.ErrRefused) {
			t.Errorf("without the proof: error %v, want %v", err, zabor.ErrRefused)
		}
		release.CheckedProvider = true
		early := w.doubtful("1002")
		if _, err := w.decide(zabor.Decision{Key: early, Seen: w.row(early).Claim, Action: zabor.Release, CheckedProvider: true}); !errors.Is(err, zabor.ErrRefused) {
			t.Errorf("before absence can be proof: error %v, want %v", err, zabor.ErrRefused)
		}
		// The lease is over, and absence is no proof yet.
		row = w.swap(w.row(row.Key), func(r *zabor.Row) { r.Open.AbsentAfter = time.Hour })
		release.Seen = row.Claim
		if _, err := w.decide(release); !errors.Is(err, zabor.ErrRefused) {
			t.Errorf("before the look-up's lag is over: error %v, want %v", err, zabor.ErrRefused)
		}
		row = w.swap(w.row(row.Key), func(r *zabor.Row) { r.Open.AbsentAfter = 0 })
		release.Seen = row.Claim
		if _, err := w.decide(release); err != nil {
			t.Fatal(err)
		}
		// Exactly one more call, under the same key.
		e := effect("1001")
		w.calls = 0
		for _, want := range []error{zabor.ErrInDoubt, zabor.ErrInDoubt} {
			if _, err := w.fence.Do(t.Context(), e, w.answers(zabor.Outcome{})); !errors.Is(err, want) {
				t.Errorf("error %v, want %v", err, want)
			}
		}
		if now := w.row(e.Key); w.calls != 1 || now.ProviderKey != row.ProviderKey || now.Generation != 1 {
			t.Errorf("calls=%d generation=%d, want 1 and 1, and the same key: %s, was %s", w.calls, now.Generation, now.ProviderKey, row.ProviderKey)
		}
	})
}

// Whatever released a row and left it without tries: a person's release allows one more
// call, and takes the proof that any release takes. The caller has no message ids, as the
// proxy has none.
func TestReleaseOfASpentRow(t *testing.T) {
	eachStore(t, func(t *testing.T, s *sqlstore.Store) {
		for _, cause := range []zabor.Cause{zabor.ByAbsence, zabor.ByCall} {
			w := newWorld(t, s)
			e := effect("1001 " + string(cause))
			e.MaxAttempts = 1
			w.fence.Do(t.Context(), e, w.answers(zabor.Outcome{}))
			w.leasesEnd(time.Hour)
			w.swap(w.row(e.Key), func(r *zabor.Row) { r.State, r.Cause = zabor.Released, cause })
			if _, err := w.fence.Do(t.Context(), e, w.answers(done)); !errors.Is(err, zabor.ErrSpent) {
				t.Fatalf("error %v, want %v", err, zabor.ErrSpent)
			}
			d := zabor.Decision{Key: e.Key, Seen: w.row(e.Key).Claim, Action: zabor.Release}
			if _, err := w.decide(d); !errors.Is(err, zabor.ErrRefused) {
				t.Errorf("released by %s, a release without proof: %v, want it refused", cause, err)
			}
			d.CheckedProvider = true
			row, err := w.decide(d)
			if err != nil || !d.Made(row) {
				t.Fatalf("released by %s, and then by a person: %v", cause, err)
			}
			d.Seen = row.Claim
			if _, err := w.decide(d); !errors.Is(err, zabor.ErrRefused) {
				t.Errorf("released twice by a person: %v, want it refused", err)
			}
			for range 2 {
				if _, err := w.fence.Do(t.Context(), e, w.answers(zabor.Outcome{})); !errors.Is(err, zabor.ErrInDoubt) {
					t.Errorf("after the release: %v, want the doubt of one more call", err)
				}
			}
			if w.calls != 2 {
				t.Errorf("calls=%d, want 2", w.calls)
			}
		}
	})
}

// The wanted new attempt after a no has another key and takes another request.
func TestReleaseOfADeclinedRow(t *testing.T) {
	eachStore(t, func(t *testing.T, s *sqlstore.Store) {
		w := newWorld(t, s)
		e := effect("1001")
		w.fence.Do(t.Context(), e, w.answers(zabor.Outcome{Verdict: zabor.Refused}))
		before := w.row(e.Key)
		if _, err := w.decide(zabor.Decision{Key: e.Key, Seen: before.Claim, Action: zabor.Release}); err != nil {
			t.Fatal(err)
		}
		e.Fingerprint = zabor.Fingerprint{Message: "another card", Request: "another request"}
		var sent zabor.Row
		_, err := w.fence.Do(t.Context(), e, func(_ context.Context, row zabor.Row) zabor.Outcome { sent = row; return done })
		if err != nil {
			t.Fatal(err)
		}
		if sent.Generation != 2 || sent.ProviderKey == before.ProviderKey || !strings.Contains(string(sent.Open.Request), sent.ProviderKey) {
			t.Errorf("sent %q as generation %d under %s; want generation 2 under its own key", sent.Open.Request, sent.Generation, sent.ProviderKey)
		}
	})
}

// A key that a person has declined before any row is never called.
func TestForbid(t *testing.T) {
	eachStore(t, func(t *testing.T, s *sqlstore.Store) {
		w := newWorld(t, s)
		e := effect("1001")
		if _, err := w.decide(zabor.Decision{Key: e.Key, Action: zabor.Release}); !errors.Is(err, zabor.ErrNoRow) {
			t.Errorf("release without a row: error %v, want %v", err, zabor.ErrNoRow)
		}
		if _, err := w.decide(zabor.Decision{Key: e.Key, Action: zabor.Decline}); err != nil {
			t.Fatal(err)
		}
		if row, err := w.fence.Do(t.Context(), e, w.answers(done)); err != nil || row.State != zabor.Declined || w.calls != 0 {
			t.Errorf("%s, %v, calls=%d; want declined, acked, without a call", row.State, err, w.calls)
		}
	})
}

// A person's decline of what may have been called asks for the proof that its release
// asks for, and raises no generation (fault 7).
func TestReleaseOfWhatAPersonDeclined(t *testing.T) {
	eachStore(t, func(t *testing.T, s *sqlstore.Store) {
		w := newWorld(t, s)
		e := effect("1001")
		e.ReplayFor = 24 * time.Hour
		k := e.Key
		if _, err := w.fence.Do(t.Context(), e, w.answers(zabor.Outcome{})); !errors.Is(err, zabor.ErrInDoubt) {
			t.Fatal(err)
		}
		first := w.row(k)
		decide := func(action zabor.Action, checked bool) error {
			_, err := w.decide(zabor.Decision{Key: k, Seen: w.row(k).Claim, Action: action, CheckedProvider: checked})
			return err
		}
		if err := decide(zabor.Decline, false); !errors.Is(err, zabor.ErrRefused) {
			t.Errorf("declined without the proof: %v", err)
		}
		if err := decide(zabor.Decline, true); !errors.Is(err, zabor.ErrRefused) {
			t.Errorf("declined while the first request may be on its way: %v", err)
		}
		w.shift(k, -time.Hour)
		if err := decide(zabor.Decline, true); err != nil {
			t.Fatal(err)
		}
		if err := decide(zabor.Release, false); !errors.Is(err, zabor.ErrRefused) {
			t.Errorf("released without the proof: %v", err)
		}
		if err := w.fence.Forwarded(t.Context(), k, 1); err != nil { // its message went on as declined
			t.Fatal(err)
		}
		was := w.row(k)
		if err := decide(zabor.Release, true); err != nil {
			t.Fatal(err)
		}
		if row := w.row(k); row.State != zabor.Released || row.Generation != 1 || row.ProviderKey != was.ProviderKey || row.Fingerprint != was.Fingerprint {
			t.Errorf("%s of generation %d under the key %q for %q, want released, 1, %q, %q", row.State, row.Generation, row.ProviderKey, row.Fingerprint, was.ProviderKey, was.Fingerprint)
		}
		calls := 0
		row, err := w.fence.Do(t.Context(), e, func(_ context.Context, row zabor.Row) zabor.Outcome {
			calls++
			if until := w.row(k).Open.ReplayUntil; until.After(first.Open.ReplayUntil) {
				t.Errorf("it may be sent again until %s, want at most until %s: the provider's key counts from its first use", until, first.Open.ReplayUntil)
			}
			if row.ProviderKey != was.ProviderKey {
				t.Errorf("called under the key %q, want that of the first request, %q", row.ProviderKey, was.ProviderKey)
			}
			return done
		})
		if err != nil || calls != 1 || row.State != zabor.Settled {
			t.Errorf("%v after %d calls: %s, want settled after 1", err, calls, row.State)
		}
		if row.Forwarded {
			t.Error("the paid order's message does not go on, as that of the declined one did")
		}
	})
}

// A person's decline of a pending row keeps key, request and reference: its payment may
// turn up after all.
func TestReleaseOfAPendingRowThatAPersonDeclined(t *testing.T) {
	eachStore(t, func(t *testing.T, s *sqlstore.Store) {
		w := newWorld(t, s)
		e := effect("1001")
		if _, err := w.fence.Do(t.Context(), e, w.answers(zabor.Outcome{Verdict: zabor.Begun, Reference: "pay_1"})); err != nil {
			t.Fatal(err)
		}
		was := w.row(e.Key)
		if _, err := w.decide(zabor.Decision{Key: e.Key, Seen: was.Claim, Action: zabor.Decline}); !errors.Is(err, zabor.ErrRefused) {
			t.Errorf("declined without the proof: %v", err)
		}
		w.shift(e.Key, -time.Hour)
		if _, err := w.decide(zabor.Decision{Key: e.Key, Seen: w.row(e.Key).Claim, Action: zabor.Decline, CheckedProvider: true}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.decide(zabor.Decision{Key: e.Key, Seen: w.row(e.Key).Claim, Action: zabor.Release, CheckedProvider: true}); err != nil {
			t.Fatal(err)
		}
		if row := w.row(e.Key); row.State != zabor.Released || row.Generation != 1 || row.ProviderKey != was.ProviderKey || row.Fingerprint != was.Fingerprint || row.Reference != "pay_1" {
			t.Errorf("%s, generation %d for %v with the reference %q; want released, 1, the same request and pay_1", row.State, row.Generation, row.Fingerprint, row.Reference)
		}
	})
}

// A payment that was pending and then declined has a reference; the new attempt
// that a person wants has its own.
func TestANewAttemptHasItsOwnReference(t *testing.T) {
	eachStore(t, func(t *testing.T, s *sqlstore.Store) {
		w := newWorld(t, s)
		r := w.resolver()
		e := effect("1001")
		if _, err := w.fence.Do(t.Context(), e, w.answers(zabor.Outcome{Verdict: zabor.Begun, Reference: "pay_1"})); err != nil {
			t.Fatal(err)
		}
		r.finds["1001"] = zabor.Finding{Outcome: zabor.Outcome{Verdict: zabor.Refused, Reason: "no funds"}}
		r.after(time.Second)
		row := w.row(e.Key)
		if row.State != zabor.Declined || row.Reference != "pay_1" {
			t.Fatalf("%s %q, want declined pay_1", row.State, row.Reference)
		}
		if _, err := w.decide(zabor.Decision{Key: e.Key, Seen: row.Claim, Action: zabor.Release}); err != nil {
			t.Fatal(err)
		}
		row, err := w.fence.Do(t.Context(), e, w.answers(zabor.Outcome{Verdict: zabor.Done, Reference: "pay_2"}))
		if err != nil || row.State != zabor.Settled || row.Reference != "pay_2" || row.OtherReference != "" {
			t.Errorf("%v: %s %q beside %q, want settled by pay_2 alone", err, row.State, row.Reference, row.OtherReference)
		}
		if n, _ := w.alerted("two-references"); n != 0 {
			t.Error("an alert about two references")
		}
		notes, err := s.History().Of(t.Context(), e.Key)
		if err != nil || !slices.ContainsFunc(notes, func(n zabor.Note) bool { return strings.Contains(n.Text, "pay_1") }) {
			t.Errorf("%v: nothing remembers pay_1 in %+v", err, notes)
		}
	})
}

// What a provider had answered is gone with a person's decline: that a payment is
// being processed would be given to whoever asks for it again.
func TestDeclineOfAPendingRow(t *testing.T) {
	eachStore(t, func(t *testing.T, s *sqlstore.Store) {
		w := newWorld(t, s)
		e := effect("1001")
		processing := &zabor.Answer{Status: 202, Body: []byte("processing")}
		if _, err := w.fence.Do(t.Context(), e, w.answers(zabor.Outcome{Verdict: zabor.Begun, Reference: "pay_1", Answer: processing})); err != nil {
			t.Fatal(err)
		}
		row := w.row(e.Key)
		if row.State != zabor.Pending || row.Answer == nil {
			t.Fatalf("%s, answer %+v; want pending, with its answer", row.State, row.Answer)
		}
		w.shift(e.Key, -time.Hour)
		if _, err := w.decide(zabor.Decision{Key: e.Key, Seen: row.Claim, Action: zabor.Decline, CheckedProvider: true}); err != nil {
			t.Fatal(err)
		}
		if row, err := w.fence.Do(t.Context(), e, w.answers(done)); err != nil || row.State != zabor.Declined || row.Answer != nil || row.Reference != "pay_1" {
			t.Errorf("%v: %s, answer %+v, reference %q; want declined, without an answer", err, row.State, row.Answer, row.Reference)
		}
	})
}

// A no about the request's form tells the shop nothing, since nobody has decided;
// a person's decline of it does, once.
func TestDeclineOfAMalformedRow(t *testing.T) {
	eachStore(t, func(t *testing.T, s *sqlstore.Store) {
		w := newWorld(t, s)
		var bound []string
		w.fence.Hook = func(row zabor.Row) (*zabor.Hook, error) {
			bound = append(bound, string(row.State)+" "+string(row.Open.HookData))
			return nil, nil
		}
		e := effect("1001")
		e.HookData = []byte("{}")
		w.fence.Do(t.Context(), e, w.answers(zabor.Outcome{Verdict: zabor.Malformed}))
		row := w.row(e.Key)
		if row.State != zabor.Declined || row.Cause != zabor.ByForm || row.Open.HookData == nil {
			t.Fatalf("%s by %s with hook data %q, want declined by form, with what its hooks bind", row.State, row.Cause, row.Open.HookData)
		}
		decline := zabor.Decision{Key: row.Key, Seen: row.Claim, Action: zabor.Decline}
		if decline.Made(row) {
			t.Error("a no about the form counts as a person's decline")
		}
		if _, err := w.decide(decline); err != nil {
			t.Fatal(err)
		}
		if got, want := strings.Join(bound, ", "), "captured {}, declined {}"; got != want {
			t.Errorf("hooks %s, want %s", got, want)
		}
		row = w.row(e.Key)
		if row.Cause != zabor.ByPerson || row.Open.HookData != nil || !decline.Made(row) {
			t.Errorf("by %s with hook data %q", row.Cause, row.Open.HookData)
		}
		if _, err := w.fence.Do(t.Context(), e, w.answers(done)); err != nil || w.calls != 1 {
			t.Errorf("%v after %d calls; want it acked without a call", err, w.calls)
		}

		// No send may have acted: the new attempt takes the request as it
		// has become, and needs no other proof.
		row = w.row(e.Key)
		if _, err := w.decide(zabor.Decision{Key: row.Key, Seen: row.Claim, Action: zabor.Release}); err != nil {
			t.Fatal(err)
		}
		e.Fingerprint = zabor.Fingerprint{Message: "m2", Request: "corrected"}
		again, err := w.fence.Do(t.Context(), e, w.answers(done))
		if err != nil || again.State != zabor.Settled || again.Generation != 1 {
			t.Errorf("%v: %s of generation %d, want settled, 1: a person's decline raises none", err, again.State, again.Generation)
		}
	})
}

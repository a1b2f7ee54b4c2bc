// Package zabortest has the tests that every implementation of zabor's
// interfaces must pass. It is imported by tests only.
package zabortest

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"zabor"
)

// Store tests a [zabor.Store]. open gives each test a store on an empty table of
// its own, and closes it when the test ends.
func Store(t *testing.T, open func(t *testing.T) zabor.Store) {
	for _, c := range []struct {
		name string
		test func(*testing.T, zabor.Store)
	}{
		{"insert", storeInsert},
		{"insert again", storeInsertAgain},
		{"swap", storeSwap},
		{"swap again", storeSwapAgain},
		{"one winner of an insert", storeInsertRace},
		{"one winner of a swap", storeSwapRace},
		{"keys are bytes", storeKeys},
		{"all fields", storeFields},
		{"nothing and empty", storeEmpty},
		{"an unknown state", storeUnknownState},
		{"times", storeTimes},
		{"too long", storeTooLong},
		{"reason", storeReason},
		{"no row", storeNoRow},
		{"samples", storeSamples},
		{"note", storeNote},
		{"hooks", storeHooks},
		{"cancelled", storeCancelled},
		{"two orders with one reference", storeReferences},
		{"one winner of a reference", storeReferenceRace},
		{"marks", storeMarks},
		{"an open row is erased when it is finished", storeErased},
		{"a digest", storeDigest},
		{"leases", storeWatch},
		{"leases of many at once", storeWatchRace},
		{"whose rows are leased", storeWatchWhose},
		{"when a row is due", storeWatchDue},
		{"watched time", storeWatched},
	} {
		t.Run(c.name, func(t *testing.T) { c.test(t, open(t)) })
	}
}

// newRow is a captured row of order/charge.
func newRow(order string) zabor.Row {
	row := zabor.Row{
		Key:         zabor.Key{Order: order, Step: "charge"},
		State:       zabor.Captured,
		Cause:       zabor.ByCall,
		Claim:       zabor.Claim{Epoch: 1, ID: newID()},
		Endpoint:    zabor.Endpoint{Provider: "stripe"},
		Generation:  1,
		ProviderKey: "abcdefghijklmnopqrstuvwxyz",
		Fingerprint: zabor.Fingerprint{Message: "m", Request: "f"},
		Tries:       1,
		Unproven:    1,
		Open:        zabor.Open{Lease: time.Minute},
	}
	row.Open.Send = row.Claim.ID
	return row
}

// seen is row after a look that has watched it for add more.
func seen(row zabor.Row, add, dueIn time.Duration) zabor.Seen {
	row.Open.Watched += add
	row.Open.Silent += add
	return zabor.Seen{Row: row, DueIn: dueIn}
}

func newID() (id [16]byte) {
	rand.Read(id[:])
	return id
}

// follow is row one write later, by a writer of its own.
func follow(row zabor.Row, state zabor.State) zabor.Row {
	row.Claim = zabor.Claim{Epoch: row.Claim.Epoch + 1, ID: newID()}
	row.State = state
	if !row.Unfinished() {
		row.Open = zabor.Open{}
	}
	return row
}

func insert(t *testing.T, s zabor.Store, row zabor.Row) zabor.Row {
	t.Helper()
	got, err := s.Insert(t.Context(), row, zabor.Write{Lease: row.Open.Lease})
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func mustInsert(t *testing.T, s zabor.Store, row zabor.Row) {
	t.Helper()
	if got := insert(t, s, row); got.Claim != row.Claim {
		t.Fatalf("insert %s: claim %v is there, want this insert's %v", row.Key, got.Claim, row.Claim)
	}
}

func swap(t *testing.T, s zabor.Store, prev, next zabor.Row) {
	t.Helper()
	if err := s.Swap(t.Context(), prev, next, zabor.Write{}); err != nil {
		t.Fatal(err)
	}
}

func load(t *testing.T, s zabor.Store, k zabor.Key) zabor.Row {
	t.Helper()
	row, err := s.Load(t.Context(), k)
	if err != nil {
		t.Fatal(err)
	}
	return row
}

func wantErr(t *testing.T, got, want error) {
	t.Helper()
	if !errors.Is(got, want) {
		t.Fatalf("error %v, want %v", got, want)
	}
}

// wantRow compares what a write sent with what is in the table, but for the
// times that the database sets.
func wantRow(t *testing.T, got, want zabor.Row) {
	t.Helper()
	if got.ReadAt.IsZero() {
		t.Error("ReadAt is zero after a read")
	}
	got.CapturedAt, got.StateSince, got.ReadAt = want.CapturedAt, want.StateSince, want.ReadAt
	got.Open.SendUntil, got.Open.ReplayUntil = want.Open.SendUntil, want.Open.ReplayUntil
	if !reflect.DeepEqual(got, want) {
		t.Errorf("row:\n got %+v\nwant %+v", got, want)
	}
}

func storeInsert(t *testing.T, s zabor.Store) {
	first := newRow("1001")
	mustInsert(t, s, first)
	wantRow(t, load(t, s, first.Key), first)

	second := newRow("1001")
	second.Reason = "the other"
	got := insert(t, s, second)
	wantRow(t, got, first)
	wantRow(t, load(t, s, first.Key), first)
}

func storeInsertAgain(t *testing.T, s zabor.Store) {
	row := newRow("1001")
	mustInsert(t, s, row)
	mustInsert(t, s, row) // as after an answer that was lost

	next := follow(row, zabor.Doubt)
	swap(t, s, row, next)
	if got := insert(t, s, row); got.Claim != next.Claim || got.State != zabor.Doubt {
		t.Fatalf("insert after the row went on: %s %v, want the doubt of %v", got.State, got.Claim, next.Claim)
	}
}

func storeSwap(t *testing.T, s zabor.Store) {
	row := newRow("1001")
	other := newRow("1002")
	mustInsert(t, s, row)
	mustInsert(t, s, other)
	settled := follow(row, zabor.Settled)
	settled.Reference = "pi_1"
	swap(t, s, row, settled)
	wantRow(t, load(t, s, row.Key), settled)
	wantRow(t, load(t, s, other.Key), other)

	// Whoever has lost the claim releases nothing: laravel/framework#59567.
	for name, prev := range map[string]zabor.Claim{
		"an earlier claim":      row.Claim,
		"another's id":          {Epoch: settled.Claim.Epoch, ID: newID()},
		"an epoch yet to come":  {Epoch: settled.Claim.Epoch + 1, ID: settled.Claim.ID},
		"the right id, earlier": {Epoch: row.Claim.Epoch, ID: settled.Claim.ID},
	} {
		before := row
		before.Claim = prev
		late := follow(before, zabor.Doubt)
		if err := s.Swap(t.Context(), before, late, zabor.Write{}); !errors.Is(err, zabor.ErrStale) {
			t.Errorf("%s: error %v, want %v", name, err, zabor.ErrStale)
		}
	}
	wantRow(t, load(t, s, row.Key), settled)

	gap := follow(settled, zabor.Doubt)
	gap.Claim.Epoch++
	if err := s.Swap(t.Context(), settled, gap, zabor.Write{}); err == nil || errors.Is(err, zabor.ErrStale) {
		t.Errorf("an epoch left out: error %v, want a refusal", err)
	}
	absent := newRow("1003")
	wantErr(t, s.Swap(t.Context(), absent, follow(absent, zabor.Doubt), zabor.Write{}), zabor.ErrStale)
}

func storeSwapAgain(t *testing.T, s zabor.Store) {
	row := newRow("1001")
	mustInsert(t, s, row)
	next := follow(row, zabor.Released)
	swap(t, s, row, next)
	swap(t, s, row, next) // as after an answer that was lost
	wantRow(t, load(t, s, row.Key), next)
}

const racers = 64

// race runs f in many goroutines at once.
func race(f func(i int)) {
	start := make(chan struct{})
	var all sync.WaitGroup
	for i := range racers {
		all.Go(func() {
			<-start
			f(i)
		})
	}
	close(start)
	all.Wait()
}

func storeInsertRace(t *testing.T, s zabor.Store) {
	var rows, got [racers]zabor.Row
	var errs [racers]error
	for i := range rows {
		rows[i] = newRow("1001")
	}
	race(func(i int) { got[i], errs[i] = s.Insert(t.Context(), rows[i], zabor.Write{Lease: time.Minute}) })
	winners := 0
	for i := range rows {
		if errs[i] != nil {
			t.Fatal(errs[i])
		}
		if got[i].Claim == rows[i].Claim {
			winners++
		}
		if got[i].Claim != got[0].Claim {
			t.Errorf("insert %d found claim %v, insert 0 found %v", i, got[i].Claim, got[0].Claim)
		}
	}
	if winners != 1 {
		t.Fatalf("winners=%d, want 1", winners)
	}
}

func storeSwapRace(t *testing.T, s zabor.Store) {
	row := newRow("1001")
	mustInsert(t, s, row)
	var errs [racers]error
	var next [racers]zabor.Row
	for i := range next {
		next[i] = follow(row, zabor.Doubt)
	}
	race(func(i int) { errs[i] = s.Swap(t.Context(), row, next[i], zabor.Write{}) })
	winners := 0
	for i, err := range errs {
		switch {
		case err == nil:
			winners++
			if got := load(t, s, row.Key); got.Claim != next[i].Claim {
				t.Errorf("claim %v is there, want the winner's %v", got.Claim, next[i].Claim)
			}
		case !errors.Is(err, zabor.ErrStale):
			t.Fatal(err)
		}
	}
	if winners != 1 {
		t.Fatalf("winners=%d, want 1", winners)
	}
}

// differentOrders are order ids of which text columns, numbers and normal forms
// would take some for one.
func differentOrders() []string {
	every := make([]byte, 255)
	for i := range every {
		every[i] = byte(i)
	}
	return []string{
		"A1", "a1", "7", "07", "007", "7.0", "7e0", "x", "x ", " x", "x\t", "x\x00", "x\x00\x00", "\x00",
		"caf\u00e9", "cafe\u0301", "cafe", "ß", "ss", "SS", "ı", "i", "I", "İ", "\u212a", "k", "K",
		"\xff", "\xfe", "\xc3\x28", "\xed\xa0\x80", "😀", "😁", "\ufeffx", "x\u200b", "%", "_", "\\", "'", `"`, "?", "$1", ":order",
		strings.Repeat("9", 255), strings.Repeat("9", 254), strings.Repeat("9", 254) + "8",
		strings.Repeat("é", 127) + "x", string(every), string(every[1:]),
	}
}

func storeKeys(t *testing.T, s zabor.Store) {
	var want []zabor.Key
	for _, order := range differentOrders() {
		want = append(want,
			zabor.Key{Order: order, Step: "charge"},
			zabor.Key{Scope: "shop", Order: order, Step: "charge"},
			zabor.Key{Scope: "shop", Order: order, Step: "charge:" + order[:min(len(order), 100)]})
	}
	want = append(want,
		zabor.Key{Scope: "a", Order: "bc", Step: "d"}, zabor.Key{Scope: "ab", Order: "c", Step: "d"}, zabor.Key{Scope: "a", Order: "b", Step: "cd"},
		zabor.Key{Scope: strings.Repeat("\xff", zabor.MaxScope), Order: strings.Repeat("\xff", zabor.MaxOrder), Step: strings.Repeat("\xff", zabor.MaxStep)})
	for _, k := range want {
		row := newRow("")
		row.Key = k
		got := insert(t, s, row)
		if got.Claim != row.Claim {
			t.Fatalf("insert %q: the row of %q is there", k, got.Key)
		}
		if got := load(t, s, k); got.Key != k || got.Claim != row.Claim {
			t.Fatalf("load %q: got %q", k, got.Key)
		}
	}
	slices.SortFunc(want, zabor.Key.Compare)
	var got []zabor.Key
	by := newID()
	for len(got) < len(want) {
		rows := watch(t, s, zabor.Watch{By: by, Limit: 7})
		if len(rows) == 0 || len(rows) > 7 {
			t.Fatalf("leased %d rows after %d of %d", len(rows), len(got), len(want))
		}
		for _, row := range rows {
			got = append(got, row.Key)
		}
	}
	slices.SortFunc(got, zabor.Key.Compare)
	if !slices.Equal(got, want) {
		t.Errorf("keys:\n got %q\nwant %q", got, want)
	}
}

// fullRow has a value in every field.
func fullRow() zabor.Row {
	binary := "\x00\xff'\"\\\n" + "é"
	return zabor.Row{
		Key:         zabor.Key{Scope: "shop/7", Order: "1001", Step: "refund:R-7"},
		State:       zabor.Captured,
		Cause:       zabor.ByCall,
		Reason:      "why: “é” 😀 'x' \n",
		Claim:       zabor.Claim{Epoch: 1, ID: [16]byte{0, 0xff, 0x20, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 0x20, 0}},
		Endpoint:    zabor.Endpoint{Provider: "stripe-" + binary, Account: "acct " + binary + " ", Address: "at 7"},
		Generation:  2,
		ProviderKey: "abcdefghijklmnopqrstuvwxyz",
		Amount:      zabor.Money{Minor: -1 << 53, Currency: "EUR"},
		Fingerprint: zabor.Fingerprint{Message: "message " + binary, Request: "request " + binary, Fields: "fields " + binary},
		Prepared:    "pi " + binary, Reference: "ch " + binary + " ", OtherReference: "ch2 " + binary,
		Answer: &zabor.Answer{
			Status: 201,
			Header: []zabor.HeaderField{{Name: "Content-Type", Value: `text/plain; x="<&>"`}, {Name: "X", Value: ""}, {Name: "X", Value: "é"}},
			Body:   []byte("body " + binary),
		},
		HookDue: "settled", Parked: "uuid " + binary, Forwarded: true,
		Tries: 5, Unproven: 3,
		Open: zabor.Open{
			Request: []byte("request " + binary), PrepareKey: "7bcdefghijklmnopqrstuvwxyz", HookData: []byte("hook " + binary), HookDone: true,
			Send: [16]byte{0x20, 0xff, 0, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 0, 0x20}, Replays: 3, Lingers: true,
			Lease: 11*time.Second + time.Microsecond, AbsentAfter: 2 * time.Minute, HoldAfter: 30 * time.Minute, PendingFor: 72 * time.Hour,
		},
	}
}

// wantFull demands a value in every field of v that a writer sets.
func wantFull(t *testing.T, v reflect.Value) {
	t.Helper()
	for i := range v.NumField() {
		switch name := v.Type().Field(i).Name; name {
		case "CapturedAt", "SendUntil", "StateSince", "ReadAt", "ReplayUntil", "Watcher", "Watched", "Silent": // the store's own
		case "Sealed": // in place of what is here
		case "Open", "Fingerprint":
			wantFull(t, v.Field(i))
		default:
			if v.Field(i).IsZero() {
				t.Fatalf("%s is not tested", name)
			}
		}
	}
}

func storeFields(t *testing.T, s zabor.Store) {
	row := fullRow()
	wantFull(t, reflect.ValueOf(row))
	mustInsert(t, s, row)
	wantRow(t, load(t, s, row.Key), row)
	leased := watch(t, s, zabor.Watch{By: newID(), Limit: 10})
	if len(leased) != 1 {
		t.Fatalf("%d open rows, want 1", len(leased))
	}
	wantRow(t, leased[0], row)

	other := newRow(row.Order) // every field is written by a swap too
	other.Key = row.Key
	other.Claim.Epoch = row.Claim.Epoch + 1
	swap(t, s, row, other)
	wantRow(t, load(t, s, row.Key), other)
	again := row
	again.Claim = zabor.Claim{Epoch: other.Claim.Epoch + 1, ID: newID()}
	swap(t, s, other, again)
	wantRow(t, load(t, s, row.Key), again)
}

func storeEmpty(t *testing.T, s zabor.Store) {
	nothing := newRow("1001")
	mustInsert(t, s, nothing)
	got := load(t, s, nothing.Key)
	if got.Open.Request != nil || got.Answer != nil {
		t.Errorf("request %v and answer %v, want neither", got.Open.Request, got.Answer)
	}
	empty := newRow("1002")
	empty.Open.Request = []byte{}
	empty.Answer = &zabor.Answer{}
	mustInsert(t, s, empty)
	got = load(t, s, empty.Key)
	if got.Open.Request == nil || len(got.Open.Request) != 0 {
		t.Errorf("request %v, want an empty one", got.Open.Request)
	}
	if got.Answer == nil || got.Answer.Status != 0 || len(got.Answer.Body) != 0 || len(got.Answer.Header) != 0 {
		t.Errorf("answer %+v, want an empty one", got.Answer)
	}
	big := newRow("1003")
	big.Open.Request = bytes.Repeat([]byte{0, 0xff}, 1<<20)
	mustInsert(t, s, big)
	if got := load(t, s, big.Key); !bytes.Equal(got.Open.Request, big.Open.Request) {
		t.Errorf("request of %d bytes came back as %d", len(big.Open.Request), len(got.Open.Request))
	}
}

func storeUnknownState(t *testing.T, s zabor.Store) {
	row := newRow("1001")
	row.State, row.Cause = "quarantined", "oracle"
	mustInsert(t, s, row)
	wantRow(t, load(t, s, row.Key), row)
}

func storeTimes(t *testing.T, s zabor.Store) {
	row := newRow("1001")
	row.Open.Lease = time.Minute
	if _, err := s.Insert(t.Context(), row, zabor.Write{Lease: row.Open.Lease}); err != nil {
		t.Fatal(err)
	}
	first := load(t, s, row.Key)
	if off := time.Since(first.CapturedAt).Abs(); off > time.Minute {
		t.Errorf("captured at %s, %s from now", first.CapturedAt, off)
	}
	if got := first.Open.SendUntil.Sub(first.CapturedAt); got < time.Minute || got > time.Minute+time.Second {
		t.Errorf("the lease ends %s after the capture, want 1m", got)
	}
	if got := first.StateSince.Sub(first.CapturedAt).Abs(); got > time.Second {
		t.Errorf("in its state since %s after the capture", got)
	}
	if first.ReadAt.Before(first.CapturedAt) {
		t.Errorf("read at %s, before the capture at %s", first.ReadAt, first.CapturedAt)
	}
	if first.CapturedAt.Location() != time.UTC {
		t.Errorf("times are in %s, want UTC", first.CapturedAt.Location())
	}
	waitClock(t, s, row.Key, first.StateSince)

	same := follow(row, zabor.Captured) // no lease, same state: no time moves
	swap(t, s, row, same)
	got := load(t, s, row.Key)
	if !got.Open.SendUntil.Equal(first.Open.SendUntil) || !got.StateSince.Equal(first.StateSince) || !got.CapturedAt.Equal(first.CapturedAt) {
		t.Errorf("times moved without a lease and without a new state: %+v, want %+v", got, first)
	}

	doubt := follow(same, zabor.Doubt) // a shorter lease does not move it back
	doubt.CapturedAt, doubt.StateSince, doubt.Open.SendUntil = time.Unix(1, 0), time.Unix(2, 0), time.Unix(3, 0)
	if err := s.Swap(t.Context(), same, doubt, zabor.Write{Lease: time.Second}); err != nil {
		t.Fatal(err)
	}
	got = load(t, s, row.Key)
	if !got.Open.SendUntil.Equal(first.Open.SendUntil) || !got.CapturedAt.Equal(first.CapturedAt) {
		t.Errorf("send_until %s, captured at %s; want %s and %s", got.Open.SendUntil, got.CapturedAt, first.Open.SendUntil, first.CapturedAt)
	}
	if !got.StateSince.After(first.StateSince) {
		t.Errorf("in doubt since %s, want later than %s", got.StateSince, first.StateSince)
	}

	again := follow(doubt, zabor.Captured)
	if err := s.Swap(t.Context(), doubt, again, zabor.Write{Lease: time.Hour}); err != nil {
		t.Fatal(err)
	}
	got = load(t, s, row.Key)
	if left := got.Open.SendUntil.Sub(got.ReadAt); left < 59*time.Minute || left > time.Hour {
		t.Errorf("the new lease has %s left, want an hour", left)
	}
	if !got.CapturedAt.Equal(first.CapturedAt) {
		t.Errorf("captured at %s, want the first capture's %s", got.CapturedAt, first.CapturedAt)
	}

	none := newRow("1002") // taken over from before: no claim may send
	if _, err := s.Insert(t.Context(), none, zabor.Write{}); err != nil {
		t.Fatal(err)
	}
	if got := load(t, s, none.Key); !got.Open.SendUntil.IsZero() {
		t.Errorf("send_until %s without a lease, want none", got.Open.SendUntil)
	}
}

// waitClock waits until the database's clock has moved on from then.
func waitClock(t *testing.T, s zabor.Store, k zabor.Key, then time.Time) {
	t.Helper()
	deadline := time.Now().Add(10 * time.Second)
	for !load(t, s, k).ReadAt.After(then.Add(time.Millisecond)) {
		if time.Now().After(deadline) {
			t.Fatalf("the database's clock stands still at %s", then)
		}
	}
}

func storeTooLong(t *testing.T, s zabor.Store) {
	row := newRow("1001")
	mustInsert(t, s, row)
	for name, change := range map[string]func(*zabor.Row){
		"reference": func(r *zabor.Row) { r.Reference = strings.Repeat("r", 100_000) },
		"prepared":  func(r *zabor.Row) { r.Prepared = strings.Repeat("r", 100_000) },
		"parked":    func(r *zabor.Row) { r.Parked = strings.Repeat("r", 100_000) },
		"account":   func(r *zabor.Row) { r.Account = strings.Repeat("r", 100_000) },
		"address":   func(r *zabor.Row) { r.Endpoint.Address = strings.Repeat("r", 100) },
		"state":     func(r *zabor.Row) { r.State = zabor.State(strings.Repeat("r", 100)) },
		"no state":  func(r *zabor.Row) { r.State = "" },
		"request":   func(r *zabor.Row) { r.State, r.Open.Request = zabor.Captured, make([]byte, 4<<20+1) },
		"hook data": func(r *zabor.Row) { r.State, r.Open.HookData = zabor.Captured, make([]byte, 4<<20+1) },
		"answer":    func(r *zabor.Row) { r.Answer = &zabor.Answer{Body: make([]byte, 4<<20+1)} },
	} {
		next := follow(row, zabor.Settled)
		change(&next)
		if err := s.Swap(t.Context(), row, next, zabor.Write{}); !errors.Is(err, zabor.ErrUnfit) {
			t.Errorf("swap, %s: error %v, want %v", name, err, zabor.ErrUnfit)
		}
		fresh := newRow("1002")
		change(&fresh)
		if _, err := s.Insert(t.Context(), fresh, zabor.Write{}); !errors.Is(err, zabor.ErrUnfit) {
			t.Errorf("insert, %s: error %v, want %v", name, err, zabor.ErrUnfit)
		}
	}
	for name, k := range map[string]zabor.Key{
		"order":    {Order: strings.Repeat("o", zabor.MaxOrder+1), Step: "charge"},
		"step":     {Order: "1", Step: strings.Repeat("s", zabor.MaxStep+1)},
		"scope":    {Scope: strings.Repeat("s", zabor.MaxScope+1), Order: "1", Step: "charge"},
		"no order": {Step: "charge"},
	} {
		long := newRow("")
		long.Key = k
		if _, err := s.Insert(t.Context(), long, zabor.Write{}); !errors.Is(err, zabor.ErrUnfit) {
			t.Errorf("insert, key with %s: error %v, want %v", name, err, zabor.ErrUnfit)
		}
	}
	wantRow(t, load(t, s, row.Key), row)
	_, err := s.Load(t.Context(), zabor.Key{Order: "1002", Step: "charge"})
	wantErr(t, err, zabor.ErrNoRow)
}

func storeReason(t *testing.T, s zabor.Store) {
	for i, reason := range []string{strings.Repeat("é", 100_000), "x" + strings.Repeat("😀", 100_000), "a\x00b", "a\xffb"} {
		row := newRow(fmt.Sprint("r", i))
		row.Reason = reason
		mustInsert(t, s, row)
		got := load(t, s, row.Key).Reason
		if got == "" || got[0] != reason[0] || strings.ToValidUTF8(got, "") != got || len(got) > 2000 {
			t.Errorf("reason %.10q… came back as %.10q…, %d bytes", reason, got, len(got))
		}
	}
}

func storeNoRow(t *testing.T, s zabor.Store) {
	_, err := s.Load(t.Context(), zabor.Key{Order: "1001", Step: "charge"})
	wantErr(t, err, zabor.ErrNoRow)
}

// watch leases for ten seconds unless w says otherwise.
func watch(t *testing.T, s zabor.Store, w zabor.Watch) []zabor.Row {
	t.Helper()
	if w.For == 0 {
		w.For = zabor.LookupTime
	}
	if w.Limit == 0 {
		w.Limit = 100
	}
	rows, err := s.Watch(t.Context(), w)
	if err != nil {
		t.Fatal(err)
	}
	return rows
}

// orders are the order ids of rows, in their order.
func orders(rows []zabor.Row) []string {
	var ids []string
	for _, row := range rows {
		ids = append(ids, row.Order)
	}
	return ids
}

func sorted(ids []string) []string {
	slices.Sort(ids)
	return ids
}

// watched ends a look at rows.
func watched(t *testing.T, s zabor.Store, by [16]byte, seen ...zabor.Seen) {
	t.Helper()
	if err := s.Watched(t.Context(), by, seen); err != nil {
		t.Fatal(err)
	}
}

// dueNow is row in doubt, due at once.
func dueNow(t *testing.T, s zabor.Store, order string, state zabor.State, change ...func(*zabor.Row)) zabor.Row {
	t.Helper()
	row := newRow(order)
	row.State = state
	for _, c := range change {
		c(&row)
	}
	mustInsert(t, s, row)
	return row
}

func storeSamples(t *testing.T, s zabor.Store) {
	settleAt := func(order, provider, account, address string, state zabor.State, cause zabor.Cause) {
		row := newRow(order)
		row.Endpoint = zabor.Endpoint{Provider: provider, Account: account, Address: address}
		mustInsert(t, s, row)
		next := follow(row, state)
		next.Cause = cause
		next.Reference = "ref-" + order
		swap(t, s, row, next)
		waitClock(t, s, row.Key, load(t, s, row.Key).StateSince) // so that newest is one
	}
	settle := func(order, provider, account string, state zabor.State, cause zabor.Cause) {
		settleAt(order, provider, account, "here", state, cause)
	}
	settle("1", "stripe", "a", zabor.Settled, zabor.ByCall)
	settle("2", "stripe", "a", zabor.Settled, zabor.ByPerson)
	settle("3", "stripe", "A", zabor.Settled, zabor.ByCall)
	settle("4", "Stripe", "a", zabor.Settled, zabor.ByCall)
	settle("5", "stripe", "a", zabor.Declined, zabor.ByCall)
	settle("6", "stripe", "a", zabor.Settled, zabor.ByCall)
	settle("7", "stripe", "a", zabor.Pending, zabor.ByCall)
	settle("8", "stripe", "a", zabor.Settled, zabor.ByLookup)
	settle("9", "stripe", "a", zabor.Settled, zabor.ByImport)
	settleAt("10", "stripe", "a", "there", zabor.Settled, zabor.ByCall)
	settleAt("11", "stripe", "a", "", zabor.Settled, zabor.ByCall)
	settleAt("12", "stripe", "a\x00", "here", zabor.Settled, zabor.ByCall)
	like := func(account, address string) zabor.Row {
		row := zabor.Row{Key: zabor.Key{Order: "any", Step: "charge"}, Endpoint: zabor.Endpoint{Provider: "stripe", Account: account, Address: address}}
		row.Open.Lease, row.Open.SendUntil = time.Minute, load(t, s, zabor.Key{Order: "12", Step: "charge"}).ReadAt.Add(time.Hour)
		return row
	}
	// Those that were settled after the send come first, the oldest of them first.
	before := like("a", "here")
	before.Open.SendUntil = load(t, s, zabor.Key{Order: "6", Step: "charge"}).StateSince.Add(time.Minute - time.Millisecond)
	if rows, err := s.Samples(t.Context(), before, 9); err != nil || !slices.Equal(orders(rows), []string{"6", "8"}) {
		t.Errorf("after the send: %v, error %v; want 6 and 8", orders(rows), err)
	}
	other := like("a", "here")
	other.Step = "refund:1"
	if rows, err := s.Samples(t.Context(), other, 9); err != nil || len(rows) != 0 {
		t.Errorf("of another step: %v, error %v; want none", orders(rows), err)
	}
	for limit, want := range map[int][]string{1: {"8"}, 2: {"8", "6"}, 9: {"8", "6", "1"}} {
		rows, err := s.Samples(t.Context(), like("a", "here"), limit)
		if err != nil {
			t.Fatal(err)
		}
		for _, row := range rows {
			if row.Reference != "ref-"+row.Order {
				t.Errorf("reference %q of order %s", row.Reference, row.Order)
			}
		}
		if got := orders(rows); !slices.Equal(got, want) {
			t.Errorf("limit %d: orders %v, want %v", limit, got, want)
		}
	}
	for _, l := range []zabor.Row{like("a ", "here"), like("a", "her"), like("a\x00", ""), like("", "here")} {
		if rows, err := s.Samples(t.Context(), l, 9); err != nil || len(rows) != 0 {
			t.Errorf("account %q, address %q: %d rows, error %v; want none", l.Account, l.Endpoint.Address, len(rows), err)
		}
	}
	for address, want := range map[string]string{"there": "10", "": "11"} {
		if rows, err := s.Samples(t.Context(), like("a", address), 9); err != nil || len(rows) != 1 || rows[0].Order != want {
			t.Errorf("address %q: %v, error %v; want order %s", address, rows, err, want)
		}
	}
}

func storeNote(t *testing.T, s zabor.Store) {
	row := newRow("1001")
	mustInsert(t, s, row)
	for _, text := range []string{"a late answer", "a late answer", strings.Repeat("é", 100_000), "\xff\x00", ""} {
		if err := s.Note(t.Context(), row.Key, zabor.Note{Epoch: 1, Text: text}); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Note(t.Context(), zabor.Key{Order: "\xff\x00", Step: "charge"}, zabor.Note{Epoch: 1, Text: "no row"}); err != nil {
		t.Fatal(err)
	}
	wantRow(t, load(t, s, row.Key), row)
}

func storeCancelled(t *testing.T, s zabor.Store) {
	row := newRow("1001")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Insert(ctx, row, zabor.Write{}); !errors.Is(err, context.Canceled) {
		t.Errorf("insert: error %v, want %v", err, context.Canceled)
	}
	_, err := s.Load(t.Context(), row.Key)
	wantErr(t, err, zabor.ErrNoRow)
	mustInsert(t, s, row)
	if err := s.Swap(ctx, row, follow(row, zabor.Doubt), zabor.Write{}); !errors.Is(err, context.Canceled) {
		t.Errorf("swap: error %v, want %v", err, context.Canceled)
	}
	wantRow(t, load(t, s, row.Key), row)
}

// What goes with a row is written with it or not at all.
func storeHooks(t *testing.T, s zabor.Store) {
	const nothing = "DELETE FROM zabor_meta WHERE 1 = 0"
	failing := map[string]zabor.Hook{
		"too few rows":    {Name: "captured", SQL: nothing, Rows: 1},
		"no such table":   {Name: "captured", SQL: "DELETE FROM zabor_no_such_table"},
		"duplicate":       {Name: "captured", SQL: "INSERT INTO zabor_meta SELECT * FROM zabor_meta", Rows: 1},
		"not a statement": {Name: "captured", SQL: "nothing of the kind"},
	}
	note := &zabor.Note{Epoch: 1, Kind: "settle", By: "ops", Text: "with the row"}
	for name, hook := range failing {
		row := newRow(name)
		_, err := s.Insert(t.Context(), row, zabor.Write{Hook: &hook, Note: note})
		if e, ok := errors.AsType[*zabor.HookError](err); !ok || e.Hook != "captured" {
			t.Errorf("%s: insert: error %v, want a HookError", name, err)
		}
		if _, err := s.Load(t.Context(), row.Key); !errors.Is(err, zabor.ErrNoRow) {
			t.Errorf("%s: the row is there after its hook failed: %v", name, err)
		}
		mustInsert(t, s, row)
		next := row
		next.State, next.Claim = zabor.Settled, zabor.Claim{Epoch: 2, ID: [16]byte{9}}
		if err := s.Swap(t.Context(), row, next, zabor.Write{Hook: &hook}); err == nil {
			t.Errorf("%s: swapped although its hook failed", name)
		} else if _, ok := errors.AsType[*zabor.HookError](err); !ok {
			t.Errorf("%s: swap: error %v, want a HookError", name, err)
		}
		wantRow(t, load(t, s, row.Key), row)
	}

	row := newRow("good")
	good := &zabor.Hook{Name: "captured", SQL: nothing, Rows: 0}
	there, err := s.Insert(t.Context(), row, zabor.Write{Hook: good, Note: note, Lease: time.Minute, ReplayFor: time.Hour})
	if err != nil || there.Claim != row.Claim {
		t.Fatalf("insert with a hook and a note: %v, claim %v", err, there.Claim)
	}
	got := load(t, s, row.Key)
	wantRow(t, got, row)
	if d := got.Open.ReplayUntil.Sub(got.Open.SendUntil); d < 59*time.Minute || d > 60*time.Minute {
		t.Errorf("replay until %v after the end of the lease, want about 59m", d)
	}
	// A row that has moved on takes neither hook nor note with it.
	before := row
	before.Claim = zabor.Claim{Epoch: 7}
	bad := failing["no such table"]
	if err := s.Swap(t.Context(), before, follow(before, zabor.Doubt), zabor.Write{Hook: &bad}); !errors.Is(err, zabor.ErrStale) {
		t.Errorf("stale swap: error %v, want %v before any hook", err, zabor.ErrStale)
	}
	// Without a new time the old one stays.
	next := row
	next.State, next.Claim, next.HookDue = zabor.Settled, zabor.Claim{Epoch: 2, ID: [16]byte{9}}, "settled"
	if err := s.Swap(t.Context(), row, next, zabor.Write{Hook: &zabor.Hook{SQL: nothing, Rows: -1}}); err != nil {
		t.Fatal(err)
	}
	after := load(t, s, row.Key)
	if !after.Open.ReplayUntil.Equal(got.Open.ReplayUntil) {
		t.Errorf("replay until moved to %v, was %v", after.Open.ReplayUntil, got.Open.ReplayUntil)
	}
	// A hook that is due keeps what it binds, and is due for resolvers.
	if due := watch(t, s, zabor.Watch{By: newID()}); !slices.Contains(orders(due), row.Order) {
		t.Errorf("due: %v; want the settled row among them", orders(due))
	}
}

// Two orders of one installation, provider and account may not share a reference. The
// steps of one order may, and so may all else; a row that enters held is never refused.
func storeReferences(t *testing.T, s zabor.Store) {
	n := 0
	settle := func(k zabor.Key, e zabor.Endpoint, state zabor.State, set func(*zabor.Row)) error {
		t.Helper()
		n++
		row := newRow("")
		row.Key, row.Endpoint = k, e
		if n%2 == 0 { // by an insert, as a row that had vanished
			row.State = state
			set(&row)
			if state.Closed() {
				row.Open = zabor.Open{}
			}
			_, err := s.Insert(t.Context(), row, zabor.Write{DueIn: zabor.Never})
			return err
		}
		mustInsert(t, s, row)
		next := follow(row, state)
		set(&next)
		return s.Swap(t.Context(), row, next, zabor.Write{DueIn: zabor.Never})
	}
	reference := func(r *zabor.Row) { r.Reference = "pay_1" }
	here := zabor.Endpoint{Provider: "stripe", Account: "a", Address: "x"}
	first := zabor.Key{Scope: "shop", Order: "1001", Step: "charge"}
	if err := settle(first, here, zabor.Settled, reference); err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		key   zabor.Key
		at    zabor.Endpoint
		state zabor.State
		taken bool
	}{
		"another order":                        {zabor.Key{Scope: "shop", Order: "1002", Step: "charge"}, here, zabor.Settled, true},
		"another order, another step":          {zabor.Key{Scope: "shop", Order: "1003", Step: "refund"}, here, zabor.Settled, true},
		"another order, pending":               {zabor.Key{Scope: "shop", Order: "1004", Step: "charge"}, here, zabor.Pending, true},
		"another order, another address":       {zabor.Key{Scope: "shop", Order: "1005", Step: "charge"}, zabor.Endpoint{Provider: "stripe", Account: "a", Address: "y"}, zabor.Settled, true},
		"an order that is the same to no byte": {zabor.Key{Scope: "shop", Order: "1001 ", Step: "charge"}, here, zabor.Settled, true},
		"another order of another tenant":      {zabor.Key{Scope: "shop/7", Order: "1006", Step: "charge"}, here, zabor.Settled, true},
		"the same order of another tenant":     {zabor.Key{Scope: "shop/7", Order: "1001", Step: "charge"}, here, zabor.Settled, true},
		"another order, held":                  {zabor.Key{Scope: "shop", Order: "1007", Step: "charge"}, here, zabor.Held, false},
		"another step of the order":            {zabor.Key{Scope: "shop", Order: "1001", Step: "capture"}, here, zabor.Settled, false},
		"another part of the step":             {zabor.Key{Scope: "shop", Order: "1001", Step: "charge:2"}, here, zabor.Pending, false},
		"another installation":                 {zabor.Key{Scope: "other", Order: "1008", Step: "charge"}, here, zabor.Settled, false},
		"another account":                      {zabor.Key{Scope: "shop", Order: "1009", Step: "charge"}, zabor.Endpoint{Provider: "stripe", Account: "A", Address: "x"}, zabor.Settled, false},
		"another provider":                     {zabor.Key{Scope: "shop", Order: "1010", Step: "charge"}, zabor.Endpoint{Provider: "mollie", Account: "a", Address: "x"}, zabor.Settled, false},
	} {
		for range 2 { // by a swap and by an insert
			k := tt.key
			k.Step += strings.Repeat("'", n%2) // another row; the order stays
			err := settle(k, tt.at, tt.state, reference)
			shared, is := errors.AsType[*zabor.ReferenceError](err)
			if is != tt.taken || err != nil && !is || is && (shared.Owner != first || shared.Reference != "pay_1") {
				t.Errorf("%s: error %v, want a ReferenceError of %s: %v", name, err, first, tt.taken)
			}
			row, loadErr := s.Load(t.Context(), k)
			switch {
			case err == nil && row.Reference != "pay_1":
				t.Errorf("%s: the row has the reference %q, %v", name, row.Reference, loadErr)
			case err != nil && loadErr == nil && row.State != zabor.Captured: // nothing was written
				t.Errorf("%s: refused, and the row is %s", name, row.State)
			}
			if tt.taken { // held, the row keeps the reference
				row, err := s.Load(t.Context(), k)
				if errors.Is(err, zabor.ErrNoRow) {
					continue
				}
				held := follow(row, zabor.Held)
				held.Reference = "pay_1"
				swap(t, s, row, held)
			}
		}
	}
	// A second reference of a row is one too, and the same one again is no new one.
	k := zabor.Key{Scope: "shop", Order: "2001", Step: "charge"}
	second := func(r *zabor.Row) { r.Reference, r.OtherReference = "pay_2", "pay_3" }
	n = 0
	if err := settle(k, here, zabor.Settled, second); err != nil {
		t.Fatal(err)
	}
	row := load(t, s, k)
	again := follow(row, zabor.Settled)
	again.Reason = "again"
	swap(t, s, row, again)
	k.Order = "2002"
	n = 0
	if _, is := errors.AsType[*zabor.ReferenceError](settle(k, here, zabor.Settled, func(r *zabor.Row) { r.Reference = "pay_3" })); !is {
		t.Error("the second reference of one order settles another")
	}
}

// Of many orders that are settled by one reference at once one is.
func storeReferenceRace(t *testing.T, s zabor.Store) {
	var rows [racers]zabor.Row
	for i := range rows {
		rows[i] = newRow(fmt.Sprint(i))
		mustInsert(t, s, rows[i])
	}
	var errs [racers]error
	race(func(i int) {
		next := follow(rows[i], zabor.Settled)
		next.Reference = "pay_1"
		errs[i] = s.Swap(t.Context(), rows[i], next, zabor.Write{DueIn: zabor.Never})
	})
	settled := 0
	for i, err := range errs {
		_, shared := errors.AsType[*zabor.ReferenceError](err)
		row := load(t, s, rows[i].Key)
		switch {
		case err == nil && row.State == zabor.Settled:
			settled++
		case !shared || row.State != zabor.Captured:
			t.Errorf("order %d: %s, error %v", i, row.State, err)
		}
	}
	if settled != 1 {
		t.Errorf("%d orders are settled by one reference, want 1", settled)
	}
}

// A mark stands beside the claim: whoever holds the row writes on, and the mark stays
// unless that write takes it away.
func storeMarks(t *testing.T, s zabor.Store) {
	row, other := newRow("1001"), newRow("1002")
	mustInsert(t, s, row)
	mustInsert(t, s, other)
	mark := func(k zabor.Key, m zabor.Mark) {
		t.Helper()
		if err := s.Mark(t.Context(), k, m); err != nil {
			t.Fatal(err)
		}
	}
	binary := "uuid \x00\xff "
	mark(row.Key, zabor.Mark{Parked: binary})
	mark(row.Key, zabor.Mark{Forwarded: 2}) // of another generation
	row.Parked = binary
	wantRow(t, load(t, s, row.Key), row)
	mark(row.Key, zabor.Mark{Forwarded: 1})
	row.Forwarded = true
	wantRow(t, load(t, s, row.Key), row)
	wantRow(t, load(t, s, other.Key), other)

	// The call's own write, which knows of no mark, keeps them.
	unaware := row
	unaware.Parked, unaware.Forwarded = "", false
	next := follow(unaware, zabor.Doubt)
	swap(t, s, unaware, next)
	if got := load(t, s, row.Key); got.State != zabor.Doubt || got.Parked != binary || !got.Forwarded {
		t.Errorf("after a write that knew of no mark: %s, parked %q, forwarded %v; want both", got.State, got.Parked, got.Forwarded)
	}
	// A write that takes them away does.
	aware := load(t, s, row.Key)
	again := follow(aware, zabor.Captured)
	again.Parked, again.Forwarded = "", false
	swap(t, s, aware, again)
	if got := load(t, s, row.Key); got.Parked != "" || got.Forwarded {
		t.Errorf("parked %q, forwarded %v; want neither", got.Parked, got.Forwarded)
	}
	// A mark of the generation before says nothing of the next one, also if it came while
	// the write of that was under way.
	before := load(t, s, row.Key)
	mark(row.Key, zabor.Mark{Forwarded: 1})
	anew := follow(before, zabor.Released)
	anew.Generation = 2
	swap(t, s, before, anew)
	mark(row.Key, zabor.Mark{Forwarded: 1})
	if got := load(t, s, row.Key); got.Forwarded {
		t.Error("a mark of the generation before is one of the next")
	}
	mark(zabor.Key{Order: "none", Step: "charge"}, zabor.Mark{Parked: "x"})
	_, err := s.Load(t.Context(), zabor.Key{Order: "none", Step: "charge"})
	wantErr(t, err, zabor.ErrNoRow)
}

// The write that finishes a row erases what only an open row needs, and a row that is
// opened again has it anew.
func storeErased(t *testing.T, s zabor.Store) {
	row := newRow("1001")
	row.Open.Request, row.Open.HookData, row.Open.HoldAfter = []byte("r"), []byte("h"), time.Hour
	mustInsert(t, s, row)
	due := follow(row, zabor.Settled)
	due.HookDue, due.Open = "settled", row.Open // a hook is due: it is not finished
	swap(t, s, row, due)
	wantRow(t, load(t, s, row.Key), due)
	finished := due
	finished.Claim = zabor.Claim{Epoch: 3, ID: newID()}
	finished.HookDue = "" // Open is left in it
	swap(t, s, due, finished)
	if got := load(t, s, row.Key); !reflect.DeepEqual(got.Open, zabor.Open{}) {
		t.Errorf("a finished row has %+v", got.Open)
	}
	if rows := watch(t, s, zabor.Watch{By: newID()}); len(rows) != 0 {
		t.Errorf("a finished row is leased: %v", orders(rows))
	}
	finished.Open = zabor.Open{}
	again := follow(finished, zabor.Released)
	again.Open = row.Open
	if err := s.Swap(t.Context(), finished, again, zabor.Write{Lease: time.Minute, DueIn: time.Hour}); err != nil {
		t.Fatal(err)
	}
	wantRow(t, load(t, s, row.Key), again)
	form := follow(again, zabor.Declined)
	form.Cause, form.Open = zabor.ByForm, row.Open // a person may still decide
	swap(t, s, again, form)
	wantRow(t, load(t, s, row.Key), form)
	imported := newRow("1002")
	imported.State = zabor.Settled
	if _, err := s.Insert(t.Context(), imported, zabor.Write{DueIn: zabor.Never}); err != nil {
		t.Fatal(err)
	}
	if got := load(t, s, imported.Key); !reflect.DeepEqual(got.Open, zabor.Open{}) {
		t.Errorf("a row that was inserted as finished has %+v", got.Open)
	}
}

func storeDigest(t *testing.T, s zabor.Store) {
	var rows []zabor.Row
	for _, order := range []string{"1001", "\xff\x00", "x ", "x"} {
		row := newRow(order)
		mustInsert(t, s, row)
		rows = append(rows, row)
	}
	for _, row := range rows {
		got, err := s.LoadDigest(t.Context(), row.Digest())
		if err != nil || got.Key != row.Key {
			t.Errorf("%q: %q, %v", row.Order, got.Order, err)
		}
		if got.ReadAt.IsZero() {
			t.Errorf("%q: not read by the database's clock", row.Order)
		}
	}
	swap(t, s, rows[0], follow(rows[0], zabor.Settled))
	for _, digest := range []string{rows[0].Digest(), "", newRow("none").Digest(), "no digest"} {
		_, err := s.LoadDigest(t.Context(), digest)
		wantErr(t, err, zabor.ErrNoRow)
	}
}

// A lease keeps other resolvers away and takes no claim. The one that ends a look keeps
// the row for [zabor.LookupTime] after it is due.
func storeWatch(t *testing.T, s zabor.Store) {
	row := dueNow(t, s, "1001", zabor.Doubt)
	before := load(t, s, row.Key)
	one, two := newID(), newID()
	got := watch(t, s, zabor.Watch{By: one})
	if len(got) != 1 || got[0].Open.Watcher != [16]byte{} {
		t.Fatalf("leased %d rows, watched before by %x; want one, by none", len(got), got[0].Open.Watcher)
	}
	wantRow(t, got[0], row)
	for _, by := range [][16]byte{one, two} {
		if rows := watch(t, s, zabor.Watch{By: by}); len(rows) != 0 {
			t.Error("a leased row is given again before its lease ends")
		}
	}
	after := load(t, s, row.Key)
	after.ReadAt, after.Open.Watcher = before.ReadAt, before.Open.Watcher
	if !reflect.DeepEqual(after, before) {
		t.Errorf("a lease moved the row:\n got %+v\nwant %+v", after, before)
	}
	// Due again at once, it is its watcher's for a while.
	watched(t, s, one, seen(got[0], time.Second, 0))
	if rows := watch(t, s, zabor.Watch{By: two}); len(rows) != 0 {
		t.Error("another resolver is given a row that is watched")
	}
	got = watch(t, s, zabor.Watch{By: one})
	if len(got) != 1 || got[0].Open.Watcher != one || got[0].Open.Watched != time.Second || got[0].Open.Silent != time.Second {
		t.Fatalf("leased again: %+v", got)
	}
	// The writer of the row is not kept from it, and a new state is nobody's.
	next := follow(got[0], zabor.Pending)
	swap(t, s, got[0], next)
	got = watch(t, s, zabor.Watch{By: two})
	if len(got) != 1 || got[0].Open.Watcher != [16]byte{} || got[0].Open.Watched != 0 {
		t.Fatalf("in a new state: %+v, want it due, watched by none", got)
	}
	// A resolver that died holds its rows for the lease, and no longer.
	short := dueNow(t, s, "1002", zabor.Doubt)
	if rows := watch(t, s, zabor.Watch{By: one, For: time.Millisecond}); !slices.Equal(orders(rows), []string{"1002"}) {
		t.Fatalf("leased %v, want 1002", orders(rows))
	}
	waitClock(t, s, short.Key, load(t, s, short.Key).ReadAt.Add(time.Millisecond))
	if rows := watch(t, s, zabor.Watch{By: two}); !slices.Equal(orders(rows), []string{"1002"}) || rows[0].Open.Watcher != one {
		t.Errorf("after the lease of one that died: %v; want 1002, watched by it before", orders(rows))
	}
}

// Of many resolvers each is given other rows.
func storeWatchRace(t *testing.T, s zabor.Store) {
	const n = 40
	for i := range n {
		dueNow(t, s, fmt.Sprint(i), zabor.Doubt)
	}
	var mu sync.Mutex
	given := map[string]int{}
	var all sync.WaitGroup
	for range 8 {
		by := newID()
		all.Go(func() {
			for range 20 {
				rows, err := s.Watch(t.Context(), zabor.Watch{By: by, For: time.Minute, Limit: 3})
				if err != nil {
					t.Error(err)
				}
				if len(rows) > 3 {
					t.Errorf("%d rows, limit 3", len(rows))
				}
				mu.Lock()
				for _, row := range rows {
					given[row.Order]++
				}
				mu.Unlock()
			}
		})
	}
	all.Wait()
	for last := newID(); ; { // what was left out while others chose
		rows := watch(t, s, zabor.Watch{By: last, For: time.Minute})
		for _, row := range rows {
			given[row.Order]++
		}
		if len(rows) == 0 {
			break
		}
	}
	if len(given) != n {
		t.Errorf("%d rows were given, want %d", len(given), n)
	}
	for order, times := range given {
		if times != 1 {
			t.Errorf("%s was given %d times", order, times)
		}
	}
}

// A resolver is given rows of its own providers and installation, doubtful ones first.
func storeWatchWhose(t *testing.T, s zabor.Store) {
	in := func(scope, provider string) func(*zabor.Row) {
		return func(r *zabor.Row) { r.Scope, r.Provider = scope, provider }
	}
	dueNow(t, s, "pending", zabor.Pending, in("shop", "stripe"))
	dueNow(t, s, "doubt", zabor.Doubt, in("shop", "stripe"))
	dueNow(t, s, "captured", zabor.Captured, in("shop/7", "stripe"))
	dueNow(t, s, "released", zabor.Released, in("shop", "mollie"))
	dueNow(t, s, "Stripe", zabor.Doubt, in("shop", "Stripe"))
	dueNow(t, s, "shop-2", zabor.Doubt, in("shop-2", "stripe"))
	dueNow(t, s, "none", zabor.Doubt, in("", "paypal"))
	dueNow(t, s, "hook", zabor.Settled, in("shop", "stripe"), func(r *zabor.Row) { r.HookDue = "settled" })
	for name, tt := range map[string]struct {
		w    zabor.Watch
		want []string
	}{
		"all":                       {zabor.Watch{}, []string{"Stripe", "captured", "doubt", "hook", "none", "pending", "released", "shop-2"}},
		"an installation":           {zabor.Watch{Scope: "shop"}, []string{"Stripe", "captured", "doubt", "hook", "pending", "released"}},
		"a provider":                {zabor.Watch{Providers: []string{"stripe"}}, []string{"captured", "doubt", "hook", "pending", "shop-2"}},
		"a provider in its scope":   {zabor.Watch{Scope: "shop", Providers: []string{"stripe"}}, []string{"captured", "doubt", "hook", "pending"}},
		"two":                       {zabor.Watch{Providers: []string{"mollie", "paypal"}}, []string{"none", "released"}},
		"others":                    {zabor.Watch{Providers: []string{"stripe", "mollie"}, Others: true}, []string{"Stripe", "none"}},
		"others than none":          {zabor.Watch{Providers: []string{}, Others: true, Scope: "shop"}, []string{"Stripe", "captured", "doubt", "hook", "pending", "released"}},
		"a provider without a row":  {zabor.Watch{Providers: []string{"adyen"}}, nil},
		"an installation without":   {zabor.Watch{Scope: "sho"}, nil},
		"a tenant in its own scope": {zabor.Watch{Scope: "shop/7"}, []string{"captured"}},
	} {
		tt.w.By, tt.w.For = newID(), time.Microsecond
		rows := watch(t, s, tt.w)
		if got := sorted(orders(rows)); !slices.Equal(got, tt.want) {
			t.Errorf("%s: %v, want %v", name, got, tt.want)
		}
		for i, row := range rows[:max(0, len(rows)-1)] {
			if row.State == zabor.Pending && rows[i+1].State == zabor.Doubt {
				t.Errorf("%s: a pending row comes before a doubtful one", name)
			}
		}
		if len(rows) > 0 {
			waitClock(t, s, rows[0].Key, load(t, s, rows[0].Key).ReadAt)
		}
	}
	waitClock(t, s, zabor.Key{Scope: "shop", Order: "doubt", Step: "charge"}, load(t, s, zabor.Key{Scope: "shop", Order: "doubt", Step: "charge"}).ReadAt)
	if rows := watch(t, s, zabor.Watch{By: newID(), Scope: "shop", Providers: []string{"stripe"}, Limit: 3}); slices.Contains(orders(rows), "pending") {
		t.Errorf("the first three are %v, want the pending row last", orders(rows))
	}
}

// A row is due when its last write or look has said, by the database's clock.
func storeWatchDue(t *testing.T, s zabor.Store) {
	insertDue := func(order string, in time.Duration) zabor.Row {
		t.Helper()
		row := newRow(order)
		row.State = zabor.Doubt
		if _, err := s.Insert(t.Context(), row, zabor.Write{DueIn: in}); err != nil {
			t.Fatal(err)
		}
		return row
	}
	now := insertDue("now", 0)
	later := insertDue("later", time.Hour)
	never := insertDue("never", zabor.Never)
	by := newID()
	rows := watch(t, s, zabor.Watch{By: by})
	if !slices.Equal(orders(rows), []string{"now"}) {
		t.Fatalf("due: %v, want now alone", orders(rows))
	}
	for _, in := range []time.Duration{time.Hour, zabor.Never} {
		watched(t, s, by, zabor.Seen{Row: rows[0], DueIn: in})
		for _, other := range [][16]byte{by, newID()} {
			if got := watch(t, s, zabor.Watch{By: other}); len(got) != 0 {
				t.Fatalf("seen, to be seen again in %s: %v is due", in, orders(got))
			}
		}
	}
	// A clock that was set back by a day: what was due soon seems far away.
	for _, state := range []zabor.State{zabor.Captured, zabor.Doubt, zabor.Pending, zabor.Settled, zabor.Held, zabor.Released} {
		row := newRow("far " + string(state))
		row.State = state
		if state == zabor.Settled || state == zabor.Held {
			row.HookDue = string(state)
		}
		if _, err := s.Insert(t.Context(), row, zabor.Write{DueIn: 24 * time.Hour}); err != nil {
			t.Fatal(err)
		}
	}
	if got := sorted(orders(watch(t, s, zabor.Watch{By: by}))); !slices.Equal(got, []string{"far captured", "far doubt", "far held", "far pending", "far settled"}) {
		t.Errorf("by a clock that was set back these are due: %v; want all but the released one", got)
	}
	// A write sets it anew.
	for _, row := range []zabor.Row{later, never, now} {
		next := follow(row, zabor.Doubt)
		swap(t, s, row, next) // DueIn 0
	}
	if got := sorted(orders(watch(t, s, zabor.Watch{By: by}))); !slices.Equal(got, []string{"later", "never", "now"}) {
		t.Errorf("after a write of each: %v", got)
	}
}

// Watched time is added by the watcher alone, and begins anew with a new send or state.
func storeWatched(t *testing.T, s zabor.Store) {
	one, two := newID(), newID()
	row := dueNow(t, s, "1001", zabor.Doubt)
	want := func(what string, w, silent time.Duration) zabor.Row {
		t.Helper()
		got := load(t, s, row.Key)
		if got.Open.Watched != w || got.Open.Silent != silent {
			t.Errorf("%s: watched %s, silent %s; want %s, %s", what, got.Open.Watched, got.Open.Silent, w, silent)
		}
		return got
	}
	leased := watch(t, s, zabor.Watch{By: one})[0]
	watched(t, s, one, seen(leased, 90*time.Second, 0))
	want("added", 90*time.Second, 90*time.Second)
	watched(t, s, two, seen(leased, time.Hour, 0))
	want("by another", 90*time.Second, 90*time.Second)
	leased = watch(t, s, zabor.Watch{By: one})[0]
	watched(t, s, one, seen(leased, 30*time.Second, 0))
	got := want("added again", 2*time.Minute, 2*time.Minute)

	// A write in the same state by the same send keeps both.
	same := follow(got, zabor.Doubt)
	swap(t, s, got, same)
	got = want("the same state", 2*time.Minute, 2*time.Minute)
	if got.Open.Watcher != one {
		t.Errorf("the watcher is %x, want %x", got.Open.Watcher, one)
	}
	// A new send: absence counts anew, the doubt does not.
	leased = watch(t, s, zabor.Watch{By: one})[0]
	sent := follow(leased, zabor.Doubt)
	sent.Open.Send = sent.Claim.ID
	swap(t, s, leased, sent)
	got = want("sent again", 2*time.Minute, 0)
	if got.Open.Watcher != [16]byte{} {
		t.Errorf("after a send the watcher is %x, want none", got.Open.Watcher)
	}
	// What was seen before the send is not added.
	watched(t, s, one, seen(leased, time.Hour, 0))
	want("seen before the send", 2*time.Minute, 0)
	got = watch(t, s, zabor.Watch{By: one})[0]
	watched(t, s, one, seen(got, time.Minute, 0))
	got = want("after the send", 3*time.Minute, time.Minute)
	// Another state: the doubt begins anew, and absence counts on from the same send.
	pending := follow(got, zabor.Pending)
	swap(t, s, got, pending)
	want("another state", 0, time.Minute)
	watched(t, s, one, seen(sent, time.Hour, 0))
	want("seen in another state", 0, time.Minute)
}

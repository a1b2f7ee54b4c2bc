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
		{"an answer that has ended", storeEndedAnswer},
		{"an unknown state", storeUnknownState},
		{"times", storeTimes},
		{"too long", storeTooLong},
		{"reason", storeReason},
		{"no row", storeNoRow},
		{"open", storeOpen},
		{"control", storeControl},
		{"note", storeNote},
		{"hooks", storeHooks},
		{"cancelled", storeCancelled},
		{"look", storeLook},
	} {
		t.Run(c.name, func(t *testing.T) { c.test(t, open(t)) })
	}
}

// newRow is a captured row of order/charge.
func newRow(order string) zabor.Row {
	return zabor.Row{
		Key:         zabor.Key{Order: order, Step: "charge"},
		State:       zabor.Captured,
		Basis:       zabor.ByCall,
		Claim:       zabor.Claim{Epoch: 1, ID: newID()},
		Provider:    "stripe",
		Generation:  1,
		ProviderKey: "abcdefghijklmnopqrstuvwxyz",
		Message:     "m",
		Fingerprint: "f",
		Captures:    1,
		Allowance:   3,
		Lease:       time.Minute,
	}
}

func newID() (id [16]byte) {
	rand.Read(id[:])
	return id
}

// follow is row one write later, by a writer of its own.
func follow(row zabor.Row, state zabor.State) zabor.Row {
	row.Claim = zabor.Claim{Epoch: row.Claim.Epoch + 1, ID: newID()}
	row.State = state
	return row
}

func insert(t *testing.T, s zabor.Store, row zabor.Row) zabor.Row {
	t.Helper()
	got, err := s.Insert(t.Context(), row, zabor.Write{Lease: row.Lease})
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
	got.CapturedAt, got.SendUntil, got.StateSince, got.ReadAt = want.CapturedAt, want.SendUntil, want.StateSince, want.ReadAt
	got.ReplayUntil = want.ReplayUntil
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
	for _, row := range readOpen(t, s, []zabor.State{zabor.Captured}, 7) {
		got = append(got, row.Key)
	}
	if !slices.Equal(got, want) {
		t.Errorf("keys in order:\n got %q\nwant %q", got, want)
	}
}

// readOpen reads all pages.
func readOpen(t *testing.T, s zabor.Store, states []zabor.State, limit int) (all []zabor.Row) {
	t.Helper()
	var after zabor.Key
	for {
		page, err := s.Open(t.Context(), states, after, limit)
		if err != nil {
			t.Fatal(err)
		}
		if len(page) > limit {
			t.Fatalf("a page of %d rows, limit %d", len(page), limit)
		}
		all = append(all, page...)
		if len(page) < limit {
			return all
		}
		after = page[len(page)-1].Key
	}
}

// fullRow has a value in every field.
func fullRow() zabor.Row {
	binary := "\x00\xff'\"\\\n" + "é"
	return zabor.Row{
		Key:      zabor.Key{Scope: "shop/7", Order: "1001", Step: "refund:R-7"},
		State:    zabor.Captured,
		Basis:    zabor.ByCall,
		Claim:    zabor.Claim{Epoch: 1, ID: [16]byte{0, 0xff, 0x20, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 0x20, 0}},
		Provider: "stripe-" + binary,
		Account:  "acct " + binary + " ", Place: "at 7",
		Generation:  2,
		ProviderKey: "abcdefghijklmnopqrstuvwxyz", PrepareKey: "7bcdefghijklmnopqrstuvwxyz",
		Amount:      zabor.Money{Minor: -1 << 53, Currency: "EUR"},
		Message:     "message " + binary,
		Fingerprint: "fingerprint " + binary,
		Fields:      "fields " + binary,
		Request:     []byte("request " + binary),

		Prepared: "pi " + binary, Reference: "ch " + binary + " ", OtherReference: "ch2 " + binary,
		Answer: &zabor.Answer{
			Status: 201,
			Header: []zabor.HeaderField{{Name: "Content-Type", Value: `text/plain; x="<&>"`}, {Name: "X", Value: ""}, {Name: "X", Value: "é"}},
			Body:   []byte("body " + binary),
		},
		Reason:  "why: “é” 😀 'x' \n",
		HookDue: "settled", HookData: []byte("hook " + binary), Hooked: true,

		Captures: 5, Replays: 3, MovedOn: 2, Free: 2, Allowance: 6,
		Lease: 11*time.Second + time.Microsecond, AbsentAfter: 2 * time.Minute, HoldAfter: 30 * time.Minute, PendingFor: 72 * time.Hour,
		Parked: "uuid " + binary,
	}
}

func storeFields(t *testing.T, s zabor.Store) {
	row := fullRow()
	v := reflect.ValueOf(row)
	for i := range v.NumField() {
		switch name := v.Type().Field(i).Name; name {
		case "CapturedAt", "SendUntil", "StateSince", "ReadAt", "ReplayUntil", "LookedAt", "Asking": // the database's, and Look's
		case "AnswerEnded", "Sealed": // in place of what is here
		default:
			if v.Field(i).IsZero() {
				t.Fatalf("%s is not tested", name)
			}
		}
	}
	mustInsert(t, s, row)
	wantRow(t, load(t, s, row.Key), row)
	opened, err := s.Open(t.Context(), []zabor.State{zabor.Captured}, zabor.Key{}, 10)
	if err != nil || len(opened) != 1 {
		t.Fatalf("%d open rows, error %v; want 1", len(opened), err)
	}
	wantRow(t, opened[0], row)

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

// An answer that has ended leaves its status, in a row that is written on.
func storeEndedAnswer(t *testing.T, s zabor.Store) {
	row := newRow("1001")
	row.State, row.AnswerEnded = zabor.Settled, 201
	mustInsert(t, s, row)
	wantRow(t, load(t, s, row.Key), row)
	next := row
	next.Claim = zabor.Claim{Epoch: row.Claim.Epoch + 1, ID: newID()}
	next.Answer, next.AnswerEnded = &zabor.Answer{Status: 200, Body: []byte("again")}, 0
	swap(t, s, row, next)
	wantRow(t, load(t, s, row.Key), next)
}

func storeEmpty(t *testing.T, s zabor.Store) {
	nothing := newRow("1001")
	mustInsert(t, s, nothing)
	got := load(t, s, nothing.Key)
	if got.Request != nil || got.Answer != nil {
		t.Errorf("request %v and answer %v, want neither", got.Request, got.Answer)
	}
	empty := newRow("1002")
	empty.Request = []byte{}
	empty.Answer = &zabor.Answer{}
	mustInsert(t, s, empty)
	got = load(t, s, empty.Key)
	if got.Request == nil || len(got.Request) != 0 {
		t.Errorf("request %v, want an empty one", got.Request)
	}
	if got.Answer == nil || got.Answer.Status != 0 || len(got.Answer.Body) != 0 || len(got.Answer.Header) != 0 {
		t.Errorf("answer %+v, want an empty one", got.Answer)
	}
	big := newRow("1003")
	big.Request = bytes.Repeat([]byte{0, 0xff}, 1<<20)
	mustInsert(t, s, big)
	if got := load(t, s, big.Key); !bytes.Equal(got.Request, big.Request) {
		t.Errorf("request of %d bytes came back as %d", len(big.Request), len(got.Request))
	}
}

func storeUnknownState(t *testing.T, s zabor.Store) {
	row := newRow("1001")
	row.State, row.Basis = "quarantined", "oracle"
	mustInsert(t, s, row)
	wantRow(t, load(t, s, row.Key), row)
}

func storeTimes(t *testing.T, s zabor.Store) {
	row := newRow("1001")
	row.Lease = time.Minute
	if _, err := s.Insert(t.Context(), row, zabor.Write{Lease: row.Lease}); err != nil {
		t.Fatal(err)
	}
	first := load(t, s, row.Key)
	if off := time.Since(first.CapturedAt).Abs(); off > time.Minute {
		t.Errorf("captured at %s, %s from now", first.CapturedAt, off)
	}
	if got := first.SendUntil.Sub(first.CapturedAt); got < time.Minute || got > time.Minute+time.Second {
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
	if !got.SendUntil.Equal(first.SendUntil) || !got.StateSince.Equal(first.StateSince) || !got.CapturedAt.Equal(first.CapturedAt) {
		t.Errorf("times moved without a lease and without a new state: %+v, want %+v", got, first)
	}

	doubt := follow(same, zabor.Doubt) // a shorter lease does not move it back
	doubt.CapturedAt, doubt.StateSince, doubt.SendUntil = time.Unix(1, 0), time.Unix(2, 0), time.Unix(3, 0)
	if err := s.Swap(t.Context(), same, doubt, zabor.Write{Lease: time.Second}); err != nil {
		t.Fatal(err)
	}
	got = load(t, s, row.Key)
	if !got.SendUntil.Equal(first.SendUntil) || !got.CapturedAt.Equal(first.CapturedAt) {
		t.Errorf("send_until %s, captured at %s; want %s and %s", got.SendUntil, got.CapturedAt, first.SendUntil, first.CapturedAt)
	}
	if !got.StateSince.After(first.StateSince) {
		t.Errorf("in doubt since %s, want later than %s", got.StateSince, first.StateSince)
	}

	again := follow(doubt, zabor.Captured)
	if err := s.Swap(t.Context(), doubt, again, zabor.Write{Lease: time.Hour}); err != nil {
		t.Fatal(err)
	}
	got = load(t, s, row.Key)
	if left := got.SendUntil.Sub(got.ReadAt); left < 59*time.Minute || left > time.Hour {
		t.Errorf("the new lease has %s left, want an hour", left)
	}
	if !got.CapturedAt.Equal(first.CapturedAt) {
		t.Errorf("captured at %s, want the first capture's %s", got.CapturedAt, first.CapturedAt)
	}

	none := newRow("1002") // taken over from before: no claim may send
	if _, err := s.Insert(t.Context(), none, zabor.Write{}); err != nil {
		t.Fatal(err)
	}
	if got := load(t, s, none.Key); !got.SendUntil.IsZero() {
		t.Errorf("send_until %s without a lease, want none", got.SendUntil)
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
		"place":     func(r *zabor.Row) { r.Place = strings.Repeat("r", 100) },
		"state":     func(r *zabor.Row) { r.State = zabor.State(strings.Repeat("r", 100)) },
		"no state":  func(r *zabor.Row) { r.State = "" },
	} {
		next := follow(row, zabor.Settled)
		change(&next)
		if err := s.Swap(t.Context(), row, next, zabor.Write{}); err == nil || errors.Is(err, zabor.ErrStale) {
			t.Errorf("swap, %s: error %v, want a refusal", name, err)
		}
		fresh := newRow("1002")
		change(&fresh)
		if _, err := s.Insert(t.Context(), fresh, zabor.Write{}); err == nil {
			t.Errorf("insert, %s: no error", name)
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
		if _, err := s.Insert(t.Context(), long, zabor.Write{}); err == nil {
			t.Errorf("insert, key with %s: no error", name)
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

func storeOpen(t *testing.T, s zabor.Store) {
	all := []zabor.State{zabor.Captured, zabor.Pending, zabor.Settled, zabor.Declined, zabor.Released, zabor.Doubt, zabor.Held, "later"}
	want := map[zabor.State][]zabor.Key{}
	for i := range 3 * len(all) {
		row := newRow(fmt.Sprintf("%03d", i*7%24))
		row.State = all[i%len(all)]
		if i%2 == 0 {
			row.Scope = "shop"
		}
		mustInsert(t, s, row)
		want[row.State] = append(want[row.State], row.Key)
	}
	for _, states := range [][]zabor.State{nil, {zabor.Held}, {zabor.Captured, zabor.Doubt, zabor.Pending}, {zabor.Doubt, zabor.Doubt}, {"later"}, {"none"}, all} {
		for _, limit := range []int{1, 2, 5, 100} {
			var got, wanted []zabor.Key
			for _, row := range readOpen(t, s, states, limit) {
				got = append(got, row.Key)
				if !slices.Contains(states, row.State) {
					t.Errorf("%v: a row that is %s", states, row.State)
				}
			}
			for _, state := range slices.Compact(slices.Clone(states)) {
				wanted = append(wanted, want[state]...)
			}
			slices.SortFunc(wanted, zabor.Key.Compare)
			if !slices.Equal(got, wanted) {
				t.Errorf("%v by %d:\n got %v\nwant %v", states, limit, got, wanted)
			}
		}
	}
}

func storeControl(t *testing.T, s zabor.Store) {
	settleAt := func(order, provider, account, place string, state zabor.State, basis zabor.Basis) {
		row := newRow(order)
		row.Provider, row.Account, row.Place = provider, account, place
		mustInsert(t, s, row)
		next := follow(row, state)
		next.Basis = basis
		next.Reference = "ref-" + order
		swap(t, s, row, next)
		waitClock(t, s, row.Key, load(t, s, row.Key).StateSince) // so that newest is one
	}
	settle := func(order, provider, account string, state zabor.State, basis zabor.Basis) {
		settleAt(order, provider, account, "here", state, basis)
	}
	settle("1", "stripe", "a", zabor.Settled, zabor.ByCall)
	settle("2", "stripe", "a", zabor.Settled, zabor.ByPerson)
	settle("3", "stripe", "A", zabor.Settled, zabor.ByCall)
	settle("4", "Stripe", "a", zabor.Settled, zabor.ByCall)
	settle("5", "stripe", "a", zabor.Declined, zabor.ByCall)
	settle("6", "stripe", "a", zabor.Settled, zabor.ByCall)
	settle("7", "stripe", "a", zabor.Settled, zabor.ByReplay)
	settle("8", "stripe", "a", zabor.Settled, zabor.ByLookup)
	settle("9", "stripe", "a", zabor.Settled, zabor.ByImport)
	settleAt("10", "stripe", "a", "there", zabor.Settled, zabor.ByCall)
	settleAt("11", "stripe", "a", "", zabor.Settled, zabor.ByCall)
	settleAt("12", "stripe", "a\x00", "here", zabor.Settled, zabor.ByCall)
	like := func(account, place string) zabor.Row {
		return zabor.Row{Provider: "stripe", Account: account, Place: place}
	}
	for limit, want := range map[int][]string{1: {"8"}, 2: {"8", "7"}, 9: {"8", "7", "6", "1"}} {
		rows, err := s.Control(t.Context(), like("a", "here"), limit)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, row := range rows {
			got = append(got, row.Order)
			if row.Reference != "ref-"+row.Order {
				t.Errorf("reference %q of order %s", row.Reference, row.Order)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("limit %d: orders %v, want %v", limit, got, want)
		}
	}
	for _, l := range []zabor.Row{like("a ", "here"), like("a", "her"), like("a\x00", ""), like("", "here")} {
		if rows, err := s.Control(t.Context(), l, 9); err != nil || len(rows) != 0 {
			t.Errorf("account %q, place %q: %d rows, error %v; want none", l.Account, l.Place, len(rows), err)
		}
	}
	for place, want := range map[string]string{"there": "10", "": "11"} {
		if rows, err := s.Control(t.Context(), like("a", place), 9); err != nil || len(rows) != 1 || rows[0].Order != want {
			t.Errorf("place %q: %v, error %v; want order %s", place, rows, err, want)
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

// Of many who look at the same rows each gets others, and nothing but LookedAt is
// moved by it.
func storeLook(t *testing.T, s zabor.Store) {
	var rows []zabor.Row
	for i := range zabor.MaxLooks {
		row := newRow(fmt.Sprint(i))
		mustInsert(t, s, row)
		rows = append(rows, load(t, s, row.Key))
	}
	until := rows[0].ReadAt.Add(time.Minute)
	var mu sync.Mutex
	got := map[zabor.Key]int{}
	race(func(int) {
		mine, err := s.Look(t.Context(), rows, until, true)
		if err != nil {
			t.Error(err)
		}
		mu.Lock()
		defer mu.Unlock()
		for _, row := range mine {
			if got[row.Key]++; !row.LookedAt.Equal(until) || !row.Asking {
				t.Errorf("%s: looked at %s, asking: %v; want %s, true", row.Key, row.LookedAt, row.Asking, until)
			}
		}
	})
	for _, row := range rows {
		if got[row.Key] != 1 {
			t.Errorf("%s was given to %d of many", row.Key, got[row.Key])
		}
		there := load(t, s, row.Key)
		if !there.LookedAt.Equal(until) || !there.Asking {
			t.Errorf("%s: looked at %s, want %s", row.Key, there.LookedAt, until)
		}
		there.LookedAt, there.Asking, there.ReadAt = row.LookedAt, row.Asking, row.ReadAt
		if !reflect.DeepEqual(there, row) {
			t.Errorf("a look moved the row:\n got %+v\nwant %+v", there, row)
		}
	}

	// One that was written since is not given, and one that was looked at may be
	// given back.
	first, second := load(t, s, rows[0].Key), load(t, s, rows[1].Key)
	swap(t, s, first, follow(first, zabor.Doubt))
	mine, err := s.Look(t.Context(), []zabor.Row{first, second, newRow("not there")}, time.Time{}, false)
	if err != nil || len(mine) != 1 || mine[0].Key != second.Key {
		t.Errorf("given: %+v, %v; want %s alone", mine, err, second.Key)
	}
	if there := load(t, s, second.Key); !there.LookedAt.IsZero() || there.Asking {
		t.Errorf("given back: %s", there.LookedAt)
	}
	if there := load(t, s, first.Key); !there.LookedAt.Equal(until) {
		t.Errorf("a write moved LookedAt to %s", there.LookedAt)
	}
	if mine, err := s.Look(t.Context(), nil, until, true); len(mine) != 0 || err != nil {
		t.Errorf("of nothing: %+v, %v", mine, err)
	}
	if _, err := s.Look(t.Context(), append(rows, second), until, true); err == nil {
		t.Error("more than MaxLooks were taken")
	}
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
	if d := got.ReplayUntil.Sub(got.SendUntil); d < 59*time.Minute || d > 60*time.Minute {
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
	if !after.ReplayUntil.Equal(got.ReplayUntil) {
		t.Errorf("replay until moved to %v, was %v", after.ReplayUntil, got.ReplayUntil)
	}
	due, err := s.Due(t.Context(), zabor.Key{}, 10)
	if err != nil || len(due) != 1 || due[0].Key != row.Key {
		t.Errorf("due: %v, %v; want the one row", due, err)
	}
	if due, err := s.Due(t.Context(), row.Key, 10); err != nil || len(due) != 0 {
		t.Errorf("due after it: %v, %v; want none", due, err)
	}
}

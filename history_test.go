package zabor_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"zabor"
	"zabor/sqlstore"
)

// A history is one order's life under a seed: two workers, two resolvers, a person,
// the queue and the provider act in an order that the seed chooses, one inside
// another where a real call would be under way; workers die at every moment; the
// database is away for moments, and loses the row of a message that is not acked; its
// clock and that of a process jump; the shop's hooks fail; other requests are parked; a
// reserve is lost or ends; the key schema changes; answers come late; time passes in
// leaps. The rows are real ones, on SQLite.
type history struct {
	t    testing.TB
	seed uint64
	rng  *rand.Rand
	log  []string

	store     *sqlstore.Store
	workers   [2]*zabor.Fence
	resolvers [2]*zabor.Resolver
	bank      *bank
	now       time.Time // of all clocks but the database's, whose rows are moved instead

	lookup bool // the provider can be asked
	two    bool // the step has two requests
	lost   bool // the queue loses the message in the end
	calm   bool // nobody dies any more, and nothing is away

	key      zabor.Key
	lastSend time.Time // when the latest request was sent
	schema   bool      // the key schema has changed: what has no row and was delivered is held
	ids      int       // retries of the message so far
	skew     [2]time.Duration
	wanted   int      // new attempts of what was declined that a person has asked for
	read     []string // references that a live worker has read as final

	before        bool // the message has been delivered
	acked, parked bool
	last          zabor.Row
	depth         int
}

const historyTimeout = 10 * time.Second

type death struct{}

func newHistory(t testing.TB, store *sqlstore.Store, seed uint64) *history {
	h := &history{
		t: t, seed: seed, rng: rand.New(rand.NewPCG(seed, 1)), store: store, now: time.Now(),
		key: zabor.Key{Scope: "shop", Order: fmt.Sprint("h", seed), Step: "charge"},
	}
	h.bank = newBank(h.rng, func() time.Time { return h.now }, h.key.Order)
	h.lookup, h.two, h.lost = h.rng.IntN(2) > 0, h.rng.IntN(3) == 0, h.rng.IntN(4) == 0
	h.before = h.rng.IntN(12) == 0 // the reply to a reserve was lost
	for i := range h.workers {
		h.restart(i)
	}
	return h
}

func (h *history) note(format string, args ...any) {
	h.log = append(h.log, fmt.Sprintf(strings.Repeat("  ", h.depth)+format, args...))
}

func (h *history) fatal(format string, args ...any) {
	h.t.Helper()
	h.t.Fatalf("seed %d (keys %v, look-up %v, search %v, two steps %v): %s\n%s", h.seed, h.bank.keys, h.lookup, h.bank.search, h.two, fmt.Sprintf(format, args...), strings.Join(h.log, "\n"))
}

// restart gives worker i and its resolver a new process.
func (h *history) restart(i int) {
	f := &zabor.Fence{Store: flaky{h.store, h}, Secret: make([]byte, zabor.MinSecret), Hook: h.hook}
	f.Now = func() time.Time { return h.now.Add(h.skew[i]) }
	f.Address = func(string) string { return "here" }
	f.At = func(m zabor.Checkpoint, _ zabor.Key) {
		if h.calm {
			return
		}
		if h.rng.IntN(25) == 0 {
			h.note("worker %d dies %s", i, m)
			panic(death{})
		}
		if m == zabor.Capturing || m == zabor.Answered {
			h.meanwhile()
		}
	}
	f.Called = func(row zabor.Row, o zabor.Outcome, _ time.Duration) {
		if o.Reference != "" && !h.calm && h.rng.IntN(15) == 0 {
			h.lose(row)
		}
	}
	h.workers[i] = f
	h.resolvers[i] = &zabor.Resolver{Fence: f, Lookup: h.look, Now: func() time.Time { return h.now }}
	if h.bank.keys {
		h.resolvers[i].Replay = func(_ context.Context, row zabor.Row) zabor.Outcome { return h.call(row, h.now) }
	}
}

// lose is a database that loses the row of a call that has just been answered, as a
// failover does: whoever has the answer is about to save it.
func (h *history) lose(row zabor.Row) {
	if there, err := h.store.Load(h.t.Context(), h.key); err != nil || there.Claim != row.Claim {
		return // somebody else has written meanwhile
	}
	h.loseRow()
}

func (h *history) loseRow() {
	h.note("the database loses the row")
	for _, table := range []string{"zabor_fences", "zabor_references"} {
		h.exec("DELETE FROM "+table+" WHERE order_id = ?", []byte(h.key.Order))
	}
	h.exec("DELETE FROM shop WHERE ord = ?", h.key.Order) // written with it, and lost with it
	h.last, h.read = zabor.Row{}, nil
}

func (h *history) exec(query string, args ...any) {
	h.t.Helper()
	if _, err := h.store.DB().ExecContext(h.t.Context(), query, args...); err != nil {
		h.fatal("%s: %v", query, err)
	}
}

// hook tells the shop of what is final. It fails now and then.
func (h *history) hook(row zabor.Row) (*zabor.Hook, error) {
	if !row.State.Closed() {
		return nil, nil
	}
	hook := &zabor.Hook{Name: string(row.State), SQL: "INSERT INTO shop (ord, state) VALUES (?, ?)", Args: []any{row.Order, string(row.State)}, Rows: 1}
	if h.rng.IntN(8) == 0 {
		hook.SQL, hook.Args = "DELETE FROM shop WHERE 1 = 0", nil
	}
	return hook, nil
}

// told is how often the shop was told that the order is in state.
func (h *history) told(state zabor.State) (n int) {
	if err := h.store.DB().QueryRowContext(h.t.Context(), "SELECT COUNT(*) FROM shop WHERE ord = ? AND state = ?", h.key.Order, string(state)).Scan(&n); err != nil {
		h.fatal("%v", err)
	}
	return n
}

// flaky is a database that is away now and then, before it has written or after.
type flaky struct {
	zabor.Store
	h *history
}

func (f flaky) away() bool { return !f.h.calm && f.h.rng.IntN(40) == 0 }

func (f flaky) Insert(ctx context.Context, row zabor.Row, w zabor.Write) (zabor.Row, error) {
	if f.away() {
		return zabor.Row{}, errAway
	}
	row, err := f.Store.Insert(ctx, row, w)
	if err == nil && f.away() {
		return zabor.Row{}, errAway
	}
	return row, err
}

func (f flaky) Swap(ctx context.Context, prev, next zabor.Row, w zabor.Write) error {
	if f.away() {
		return errAway
	}
	err := f.Store.Swap(ctx, prev, next, w)
	if err == nil && f.away() {
		return errAway
	}
	return err
}

func (f flaky) Load(ctx context.Context, k zabor.Key) (zabor.Row, error) {
	if f.away() {
		return zabor.Row{}, errAway
	}
	return f.Store.Load(ctx, k)
}

// deepest is how far one may act inside another.
const deepest = 3

// meanwhile lets others act inside what is under way.
func (h *history) meanwhile() {
	if h.depth >= deepest || h.calm {
		return
	}
	h.depth++
	defer func() { h.depth-- }()
	for range h.rng.IntN(3) {
		h.act()
	}
}

func (h *history) act() {
	switch h.rng.IntN(15) {
	case 0, 1, 2, 3:
		h.deliver(h.rng.IntN(2))
	case 4:
		h.resolve(h.rng.IntN(2))
	case 5, 6: // rounds of one process, which has watched a call for as long as it may send
		for i, n := h.rng.IntN(2), h.rng.IntN(4); n > 0; n-- {
			h.resolve(i)
			h.pass([]time.Duration{5 * time.Second, 40 * time.Second, time.Minute}[h.rng.IntN(3)])
		}
	case 7, 8:
		h.pass([]time.Duration{time.Second, 5 * time.Second, 15 * time.Second, time.Minute, 5 * time.Minute}[h.rng.IntN(5)])
	case 9, 10:
		h.decide()
	case 11:
		h.impostor(h.rng.IntN(2))
	case 12:
		h.jump()
	case 13:
		// A failover loses the row of a message that is not acked. A new attempt that a
		// person wanted is lost with it, and with the key that it was made under.
		if h.before && !h.acked && !h.parked && h.wanted == 0 && h.depth == 0 && h.rng.IntN(3) == 0 {
			h.loseRow()
		}
	case 14:
		if h.rng.IntN(4) == 0 {
			h.note("the key schema changes")
			h.schema = true
		}
	}
}

// pass lets time pass.
func (h *history) pass(d time.Duration) {
	h.now = h.now.Add(d)
	charges := h.bank.charges
	h.bank.pass()
	h.note("%v pass; charged meanwhile: %d", d, h.bank.charges-charges)
	h.shift(d)
}

// shift moves what the database says of times, as if its clock had moved on by d.
func (h *history) shift(d time.Duration) {
	h.t.Helper()
	us := d.Microseconds()
	h.exec("UPDATE zabor_fences SET send_until = send_until - ?, replay_until = CASE WHEN replay_until > 0 THEN replay_until - ? ELSE 0 END, due_at = due_at - ?, watch_until = watch_until - ?, state_since = state_since - ?, captured_at = captured_at - ?", us, us, us, us, us, us)
}

// jump is a clock that jumps: the database's, or the wall clock of a process.
func (h *history) jump() {
	d := []time.Duration{-3 * time.Minute, -20 * time.Second, time.Minute, time.Hour}[h.rng.IntN(4)]
	if i := h.rng.IntN(4); i < 2 {
		h.note("the clock of worker %d jumps by %v", i, d)
		h.skew[i] = d
		return
	}
	h.note("the database's clock jumps by %v", d)
	h.shift(d)
}

// call is one send of row's request by a worker whose call began at start.
func (h *history) call(row zabor.Row, start time.Time) zabor.Outcome {
	h.meanwhile()
	if h.now.Sub(start) > historyTimeout {
		h.note("too late to send")
		return zabor.Outcome{Verdict: zabor.Unsent, Reason: "too late"}
	}
	if row.TwoStep() && row.Prepared == "" {
		return h.prepare()
	}
	key := row.ProviderKey
	h.lastSend = h.now
	executed := func() zabor.Outcome {
		ref, verdict := h.bank.execute(key, h.now)
		h.note("sent: %s as %s", verdict, ref)
		return zabor.Outcome{Verdict: verdict, Reference: ref}
	}
	n := h.rng.IntN(16)
	if row.Open.Replays > 0 && n < 6 && h.rng.IntN(2) == 0 {
		n = 13 // what is refused again says nothing about the first
	}
	switch n {
	case 0, 1, 2, 3, 4:
		o := executed()
		h.meanwhile()
		if o.Verdict == zabor.Done {
			h.read = append(h.read, o.Reference)
		}
		return o
	case 5:
		executed()
		h.note("no answer")
		return h.noAnswer()
	case 6, 7:
		h.note("sent: on the way, no answer")
		h.bank.onTheWay = append(h.bank.onTheWay, late{key, h.now.Add(historyLate)})
		return h.noAnswer()
	case 8:
		h.note("refused to connect")
		h.meanwhile() // and is told late
		return zabor.Outcome{Verdict: zabor.Unsent, Reason: "refused"}
	case 9:
		h.note("turned away")
		h.meanwhile()
		return zabor.Outcome{Verdict: zabor.TurnedAway, Reason: "429", Unauthorized: h.rng.IntN(2) == 0}
	case 10:
		h.note("lost before the provider, no answer")
		return h.noAnswer()
	case 11:
		executed()
		h.note("the worker dies")
		panic(death{})
	case 12:
		h.note("misdirected")
		return zabor.Outcome{Verdict: zabor.Misdirected, Reason: "404"}
	}
	if h.bank.done[key] != "" || h.bank.begun[key] != "" {
		return zabor.Outcome{Reason: "409"}
	}
	switch h.rng.IntN(4) {
	case 0:
		h.note("malformed")
		return zabor.Outcome{Verdict: zabor.Malformed, Reason: "422"}
	case 1, 2:
		h.note("declined, and no answer")
		h.bank.refused[key] = true
		return h.noAnswer()
	}
	h.note("declined")
	h.bank.refused[key] = true
	h.meanwhile()
	return zabor.Outcome{Verdict: zabor.Refused, Reason: "no money"}
}

// noAnswer is the end of a call that proves nothing.
func (h *history) noAnswer() zabor.Outcome {
	return zabor.Outcome{Reason: "time-out", RetryAfter: []time.Duration{0, 0, time.Minute}[h.rng.IntN(3)]}
}

// prepare is the harmless first request of two.
func (h *history) prepare() zabor.Outcome {
	switch h.rng.IntN(8) {
	case 0:
		return zabor.Outcome{Reason: "time-out"}
	case 1:
		h.note("the worker dies after the first request")
		panic(death{})
	}
	return zabor.Outcome{Verdict: zabor.Prepared, Reference: h.bank.id("int_")}
}

func (h *history) look(_ context.Context, row zabor.Row) (zabor.Finding, error) {
	own := row.Key == h.key
	if h.calm && own {
		for {
			if found, err := h.bank.look(row, own); err == nil {
				return found, nil
			}
		}
	}
	return h.bank.look(row, own)
}

// impostor delivers another request under the order's key: it must never be called,
// nor pass for the order's own.
func (h *history) impostor(i int) {
	row, err := h.store.Load(h.t.Context(), h.key)
	if err != nil || row.Fingerprint.Message == "" || row.State == zabor.Released && !row.MayHaveActed() {
		return // who comes first, or after calls that did nothing, or is wanted anew, is no impostor
	}
	h.note("another request is delivered to worker %d", i)
	e := h.effect()
	e.Fingerprint = zabor.Fingerprint{Message: "another", Request: "another"}
	depth := h.depth
	h.depth = deepest // nobody acts meanwhile, who might make it the first
	defer func() { h.depth = depth }()
	died := h.dies(func() {
		_, err = h.workers[i].Do(h.t.Context(), e, func(context.Context, zabor.Row) zabor.Outcome {
			h.fatal("another request is called under the key")
			return zabor.Outcome{}
		})
	})
	if died {
		h.restart(i)
	} else if err == nil {
		h.fatal("another request passes for the order's own")
	} else if zabor.Park(err) && h.rng.IntN(2) == 0 {
		h.note("it is parked")
		h.workers[i].Parked(h.t.Context(), h.key, "another's id")
	}
}

func (h *history) deliver(i int) {
	if h.acked || h.parked {
		return
	}
	e := h.effect()
	switch {
	case h.before && h.schema:
		e.MissingRow = zabor.Held
	case h.before:
		e.MissingRow = zabor.Doubt
	case h.rng.IntN(8) == 0: // it takes the worker longer than the queue waits
		e.ReservedUntil = time.Unix(1, 0)
	}
	h.before = true
	h.note("delivered to worker %d", i)
	start := h.now
	var row zabor.Row
	var err error
	read := len(h.read)
	died := h.dies(func() {
		row, err = h.workers[i].Do(h.t.Context(), e, func(_ context.Context, row zabor.Row) zabor.Outcome {
			if !h.captured(row) {
				h.fatal("a call without a capture of its own")
			}
			return h.call(row, start)
		})
	})
	if died {
		h.read = h.read[:min(read, len(h.read))] // what it had read is gone with it
		h.restart(i)
		return
	}
	h.note("worker %d: %s, %v", i, row.State, err)
	if row.State == zabor.Settled && row.Reference == "" {
		h.fatal("settled without a reference")
	}
	switch {
	case h.acked || h.parked: // by another meanwhile
	case err == nil:
		h.acked = true
	case zabor.Park(err):
		if err := h.workers[i].Parked(h.t.Context(), h.key, h.id(h.ids)); errors.Is(err, errAway) {
			return // it comes back
		} else if err != nil {
			h.fatal("%v", err)
		}
		h.parked = true
	}
}

// captured reports whether the table holds the capture that a call says it has.
func (h *history) captured(row zabor.Row) bool {
	there, err := h.store.Load(h.t.Context(), row.Key)
	return err == nil && there.Claim == row.Claim && there.State == zabor.Captured
}

func (h *history) effect() zabor.Effect {
	e := zabor.Effect{
		Key: h.key, Provider: "acquirer", Amount: zabor.Money{Minor: 1999, Currency: "EUR"}, Fingerprint: zabor.Fingerprint{Message: "m", Request: "f"},
		Render:   func(k zabor.ProviderKeys, _ string) ([]byte, error) { return []byte("pay with " + k.Request), nil },
		Messages: [2]string{h.id(h.ids)},
		Timeout:  historyTimeout, MaxAttempts: 3, HoldAfter: 30 * time.Minute, PendingFor: time.Hour, MissingRow: zabor.Captured,
	}
	if h.ids > 0 {
		e.Messages[1] = h.id(h.ids - 1)
	}
	if h.two {
		e.Prepare = func(k zabor.ProviderKeys) ([]byte, error) { return []byte("prepare with " + k.Prepare), nil }
	}
	if h.lookup {
		e.AbsentAfter = historyAbsent
	}
	if h.bank.keys { // room for a call that is under way, and for one that is executed late
		e.ReplayFor = h.bank.life - historyTimeout - historyLate
	}
	return e
}

// id is that of the message, or of its nth retry.
func (h *history) id(n int) string { return fmt.Sprint("message ", n) }

// dies reports whether work ended by the death of its process.
func (h *history) dies(work func()) (died bool) {
	depth := h.depth
	defer func() {
		if r := recover(); r != nil {
			if _, ok := r.(death); !ok {
				panic(r)
			}
			h.depth, died = depth, true
		}
	}()
	work()
	return false
}

func (h *history) resolve(i int) {
	h.note("resolver %d", i)
	if h.dies(func() {
		if err := h.resolvers[i].Round(h.t.Context()); err != nil && !errors.Is(err, errAway) && !strings.Contains(err.Error(), "hook") {
			h.fatal("%v", err)
		}
	}) {
		h.note("the resolver dies")
		h.restart(i)
	}
}

// decide is a person, who looks at the provider and says what is there, or only that
// nothing is to be done before somebody has; who wants a new attempt of what was
// declined; and who retries what was parked.
func (h *history) decide() {
	row, err := h.store.Load(h.t.Context(), h.key)
	if errors.Is(err, zabor.ErrNoRow) {
		return
	}
	if err != nil {
		h.fatal("%v", err)
	}
	if d, wanted := h.decision(row); wanted {
		h.meanwhile() // the page grows old
		_, err := h.workers[1].Decide(h.t.Context(), d)
		h.note("a person decides %s of %s: %v", d.Action, row.State, err)
		if errors.Is(err, errAway) { // who looks again sees whether it was written
			if there, loadErr := h.store.Load(h.t.Context(), h.key); loadErr == nil && d.Action == zabor.Release && there.State == zabor.Released {
				err = nil
			}
		}
		switch {
		case err == nil && d.Action == zabor.Release: // its message goes back on the queue
			h.acked, h.parked = false, false
			if row.State == zabor.Declined {
				h.wanted++
			}
		case err != nil && !errors.Is(err, zabor.ErrRefused) && !errors.Is(err, zabor.ErrStale) && !errors.Is(err, errAway):
			h.fatal("%v", err)
		}
	}
	if h.parked && h.rng.IntN(2) == 0 {
		h.note("a person retries the message")
		h.parked = false
		h.ids += h.rng.IntN(2) // under its own id, or under another
	}
}

// decision is what a person would do about row, if anything.
func (h *history) decision(row zabor.Row) (d zabor.Decision, wanted bool) {
	d = zabor.Decision{Key: h.key, Seen: row.Claim, By: "ops", Reason: "looked", CheckedProvider: true}
	// Who looks earlier than a look-up would proves nothing.
	early := row.ReadAt.Before(row.Open.SendUntil.Add(historyAbsent)) || h.now.Before(h.lastSend.Add(zabor.Lease(historyTimeout)+historyAbsent))
	switch row.State {
	case zabor.Held, zabor.Doubt:
		if !h.calm && h.rng.IntN(4) == 0 {
			d.Action = zabor.Hold
			return d, row.State != zabor.Held
		}
		if early {
			return d, false
		}
		d.Action = zabor.Release
		if row.Reference != "" || h.rng.IntN(4) == 0 {
			d.Action = zabor.Decline
		}
		if ref := h.bank.decided(row.ProviderKey); ref != "" {
			d.Action, d.Reference = zabor.Settle, ref
		}
		return d, true
	case zabor.Declined:
		if row.Cause == zabor.ByForm && h.rng.IntN(2) == 0 {
			d.Action = zabor.Decline
			return d, true
		}
		d.Action = zabor.Release
		return d, !h.lost && row.Generation == 1 && !early && (row.Cause == zabor.ByForm || !h.calm && h.rng.IntN(2) == 0)
	}
	return d, false
}

// check is what must hold at every moment.
func (h *history) check() {
	h.t.Helper()
	if h.bank.charges > 1 {
		h.fatal("charged %d times", h.bank.charges)
	}
	row, err := h.store.Load(h.t.Context(), h.key)
	if errors.Is(err, zabor.ErrNoRow) {
		return
	}
	if err != nil {
		h.fatal("%v", err)
	}
	anew := row.Generation > h.last.Generation // a wanted new attempt of what was declined
	switch {
	case row.Claim.Epoch < h.last.Claim.Epoch || row.Generation < h.last.Generation:
		h.fatal("a count fell: %+v after %+v", row, h.last)
	case !kept(row, h.read):
		h.fatal("a success that a worker has read is not in the row: %v", h.read)
	case h.last.Reference != "" && row.Reference != h.last.Reference && !anew:
		h.fatal("the reference became %q, was %q", row.Reference, h.last.Reference)
	case (row.State == zabor.Released || row.State == zabor.Declined) && h.bank.charges > 0:
		h.fatal("the row is %s by %s, and money has moved", row.State, row.Cause)
	case !row.MayHaveActed() && row.State != zabor.Settled && h.bank.mayAct(row.ProviderKey):
		h.fatal("the row is %s as if no send may have acted", row.State)
	case row.Generation > 1 && h.wanted == 0:
		h.fatal("generation %d", row.Generation)
	case row.State == zabor.Settled && h.bank.charges != 1:
		h.fatal("the row is settled, and charges=%d", h.bank.charges)
	case h.acked && row.State == zabor.Held && row.Reference != "": // it was pending, and no verdict came
	case h.acked && row.State != zabor.Settled && row.State != zabor.Pending && row.State != zabor.Declined:
		h.fatal("acked, and the row is %s", row.State)
	case row.Generation > 1+h.wanted:
		h.fatal("generation %d, and a person wanted %d new attempts", row.Generation, h.wanted)
	case row.ProviderKey != h.last.ProviderKey && h.last.ProviderKey != "" && row.Generation == 1:
		h.fatal("another provider key without a no")
	case h.told(zabor.Settled) > 1:
		h.fatal("the shop was told %d times that it is paid", h.told(zabor.Settled))
	case h.acked && row.State.Closed() && row.HookDue == "" && h.told(row.State) == 0:
		h.fatal("acked as %s, and the shop was not told", row.State)
	}
	h.last = row
}

func (h *history) run() {
	for range 25 {
		h.act()
		h.check()
	}
	// Everything comes to an end once nobody dies any more, and nothing is away.
	h.calm = true
	if h.lost {
		h.forgotten()
		return
	}
	for range 200 {
		if h.acked {
			break
		}
		h.parked = false
		if !h.dies(func() { h.deliver(0) }) {
			h.check() // before a person decides
			h.resolve(h.rng.IntN(2))
		}
		h.pass(time.Minute)
		h.decide()
		h.check()
	}
	if !h.acked {
		h.fatal("the message never ends; the row is %s: %s", h.last.State, h.last.Reason)
	}
}

// forgotten is a life whose message the queue has lost: the resolver alone finds
// out what came of the call, or holds it for a person.
func (h *history) forgotten() {
	h.note("the queue loses the message")
	for range 100 {
		for h.dies(func() { h.resolve(h.rng.IntN(2)) }) {
		}
		h.pass(time.Minute)
		h.check()
	}
	if s := h.last.State; s == zabor.Captured || s == zabor.Doubt {
		h.fatal("without its message the row stays %s", s)
	}
}

func kept(row zabor.Row, references []string) bool {
	for _, ref := range references {
		if row.Reference != ref && row.OtherReference != ref {
			return false
		}
	}
	return true
}

func TestHistories(t *testing.T) {
	t.Parallel()
	n := 300
	if os.Getenv("ZABOR_SOAK") == "1" {
		n = 10_000
	}
	dir := t.TempDir()
	if info, err := os.Stat("/dev/shm"); err == nil && info.IsDir() {
		if dir, err = os.MkdirTemp("/dev/shm", "zabor-history-"); err != nil { //nolint:usetesting // in memory: thousands of commits
			t.Fatal(err)
		}
		t.Cleanup(func() { os.RemoveAll(dir) })
	}
	const each = 100 // of them on one table
	for first := 0; first < n; first += each {
		t.Run(fmt.Sprint(first), func(t *testing.T) {
			t.Parallel()
			store := openStore(t, "sqlite://"+filepath.Join(dir, fmt.Sprintf("%d.db", first)))
			if _, err := store.DB().ExecContext(t.Context(), "CREATE TABLE shop (ord TEXT NOT NULL, state TEXT NOT NULL)"); err != nil {
				t.Fatal(err)
			}
			// What the provider has settled before, with one request and with two.
			control := &zabor.Fence{Store: store, Secret: make([]byte, zabor.MinSecret), Address: func(string) string { return "here" }}
			for _, e := range []zabor.Effect{effect("control"), twoStep("control of two")} {
				if _, err := control.Do(t.Context(), e, func(_ context.Context, row zabor.Row) zabor.Outcome {
					if row.TwoStep() && row.Prepared == "" {
						return prepared
					}
					return zabor.Outcome{Verdict: zabor.Done, Reference: "pay of " + row.Order}
				}); err != nil {
					t.Fatal(err)
				}
			}
			for seed := first; seed < first+each; seed++ {
				newHistory(t, store, uint64(seed)).run()
			}
		})
	}
}

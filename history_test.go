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

// A history is one order's life under a seed: two workers, the resolver, a person,
// the queue and the provider act in an order that the seed chooses, one inside
// another where a real call would be under way; workers die at every moment;
// time passes in leaps. The rows are real ones, on SQLite.
type history struct {
	t    testing.TB
	seed uint64
	rng  *rand.Rand
	log  []string

	store    *sqlstore.Store
	workers  [2]*zabor.Fence
	resolver *zabor.Resolver
	now      time.Time // of all clocks but the database's, whose rows are moved instead

	keys, lookup bool          // what the provider has: idempotency keys, a look-up
	life         time.Duration // of a key
	lost         bool          // the queue loses the message in the end

	key       zabor.Key
	charges   int
	reference map[string]string    // by provider key: what was done under it
	forgets   map[string]time.Time // by provider key: when the provider knows it no more
	captures  int                  // calls that began with a capture
	onTheWay  []late
	read      []string // references that a live worker has read

	before         bool // the message has been delivered
	acked, parked  bool
	last           zabor.Row
	depth, counter int
}

// late is a request that the provider has not executed yet, and may never.
type late struct {
	key   string
	until time.Time
}

const (
	historyTimeout = 10 * time.Second
	historyAbsent  = time.Minute
)

type death struct{}

func newHistory(t testing.TB, store *sqlstore.Store, seed uint64) *history {
	h := &history{
		t: t, seed: seed, rng: rand.New(rand.NewPCG(seed, 1)), store: store, now: time.Now(),
		key: zabor.Key{Scope: "shop", Order: fmt.Sprint("h", seed), Step: "charge"}, reference: map[string]string{},
		forgets: map[string]time.Time{},
	}
	h.keys, h.lookup, h.lost = h.rng.IntN(2) == 0, h.rng.IntN(3) > 0, h.rng.IntN(4) == 0
	h.life = []time.Duration{5 * time.Minute, 2 * time.Hour}[h.rng.IntN(2)]
	for i := range h.workers {
		h.restart(i)
	}
	h.resolver = &zabor.Resolver{Fence: h.workers[0], Lookup: h.look}
	if h.keys {
		h.resolver.Replay = func(ctx context.Context, row zabor.Row) zabor.Outcome { return h.call(row, h.now) }
	}
	h.resolver.Now = func() time.Time { return h.now }
	return h
}

func (h *history) note(format string, args ...any) {
	h.log = append(h.log, fmt.Sprintf(strings.Repeat("  ", h.depth)+format, args...))
}

func (h *history) fatal(format string, args ...any) {
	h.t.Helper()
	h.t.Fatalf("seed %d (keys %v, look-up %v): %s\n%s", h.seed, h.keys, h.lookup, fmt.Sprintf(format, args...), strings.Join(h.log, "\n"))
}

// restart gives worker i the fence of a new process.
func (h *history) restart(i int) {
	f := &zabor.Fence{Store: h.store, Secret: make([]byte, zabor.MinSecret)}
	f.Now = func() time.Time { return h.now }
	f.At = func(m zabor.Moment, _ zabor.Key) {
		if h.rng.IntN(25) == 0 {
			h.note("worker %d dies %s", i, m)
			panic(death{})
		}
		if m == zabor.Capturing || m == zabor.Answered {
			h.meanwhile()
		}
	}
	h.workers[i] = f
}

// deepest is how far one may act inside another.
const deepest = 3

// meanwhile lets others act inside what is under way.
func (h *history) meanwhile() {
	if h.depth >= deepest {
		return
	}
	h.depth++
	defer func() { h.depth-- }()
	for range h.rng.IntN(3) {
		h.act()
	}
}

func (h *history) act() {
	switch h.rng.IntN(11) {
	case 0, 1, 2, 3:
		h.deliver(h.rng.IntN(2))
	case 10:
		h.impostor(h.rng.IntN(2))
	case 4, 5, 6:
		h.resolve()
	case 7, 8:
		h.pass([]time.Duration{time.Second, 5 * time.Second, 15 * time.Second, time.Minute, 5 * time.Minute}[h.rng.IntN(5)])
	case 9:
		h.decide()
	}
}

// pass lets time pass: what is on the way lands by its time, or never.
func (h *history) pass(d time.Duration) {
	h.now = h.now.Add(d)
	h.note("%v pass", d)
	var still []late
	for _, l := range h.onTheWay {
		switch {
		case l.until.After(h.now) && h.rng.IntN(2) == 0:
			still = append(still, l)
		case h.rng.IntN(2) == 0:
			h.note("the provider executes what was on the way")
			at := h.now // or before, where this is a leap beyond its time
			if l.until.Before(at) {
				at = l.until
			}
			h.execute(l.key, at)
		}
	}
	h.onTheWay = still
	const move = "UPDATE zabor_fences SET send_until = send_until - ?, state_since = state_since - ?, looked_at = CASE WHEN looked_at > 0 THEN looked_at - ? ELSE 0 END, replay_until = CASE WHEN replay_until > 0 THEN replay_until - ? ELSE 0 END"
	us := d.Microseconds()
	if _, err := h.store.DB().ExecContext(h.t.Context(), move, us, us, us, us); err != nil {
		h.fatal("%v", err)
	}
}

// execute does at the given time what came under key, unless the provider still knows
// that it has.
func (h *history) execute(key string, at time.Time) string {
	if ref, done := h.reference[key]; done && h.keys && at.Before(h.forgets[key]) {
		return ref
	}
	if h.forgets[key].IsZero() {
		h.forgets[key] = at.Add(h.life)
	}
	h.charges++
	h.counter++
	h.reference[key] = fmt.Sprint("pay_", h.counter)
	return h.reference[key]
}

// call is one send of row's request by a worker whose call began at start.
func (h *history) call(row zabor.Row, start time.Time) zabor.Outcome {
	h.meanwhile()
	if h.now.Sub(start) > historyTimeout {
		h.note("too late to send")
		return zabor.Outcome{Verdict: zabor.Unsent, Reason: "too late"}
	}
	switch n := h.rng.IntN(12); n {
	case 0, 1, 2, 3:
		ref := h.execute(row.ProviderKey, h.now)
		h.note("sent: charged as %s", ref)
		h.meanwhile()
		h.read = append(h.read, ref)
		return zabor.Outcome{Verdict: zabor.Done, Reference: ref}
	case 4:
		h.note("sent: charged as %s, and no answer", h.execute(row.ProviderKey, h.now))
		return zabor.Outcome{Reason: "time-out"}
	case 5, 6:
		h.note("sent: on the way, no answer")
		h.onTheWay = append(h.onTheWay, late{row.ProviderKey, h.now.Add(historyAbsent)})
		return zabor.Outcome{Reason: "time-out"}
	case 7:
		h.note("refused to connect")
		return zabor.Outcome{Verdict: zabor.Unsent, Reason: "refused"}
	case 8:
		h.note("turned away")
		return zabor.Outcome{Verdict: zabor.TurnedAway, Reason: "429"}
	case 9:
		h.note("lost before the provider, no answer")
		return zabor.Outcome{Reason: "time-out"}
	case 10:
		h.note("sent: charged as %s, and the worker dies", h.execute(row.ProviderKey, h.now))
		panic(death{})
	default:
		if _, done := h.reference[row.ProviderKey]; done {
			return zabor.Outcome{Reason: "409"}
		}
		h.note("declined")
		return zabor.Outcome{Verdict: zabor.Refused, Reason: "no money"}
	}
}

func (h *history) look(_ context.Context, row zabor.Row) (zabor.Finding, error) {
	if row.Key != h.key {
		return zabor.Finding{Outcome: zabor.Outcome{Verdict: zabor.Done, Reference: row.Reference}}, nil
	}
	if ref, done := h.reference[row.ProviderKey]; done {
		return zabor.Finding{Outcome: zabor.Outcome{Verdict: zabor.Done, Reference: ref}}, nil
	}
	return zabor.Finding{Absent: true}, nil
}

// impostor delivers another request under the order's key: it must never be called,
// nor pass for the order's own.
func (h *history) impostor(i int) {
	row, err := h.store.Load(h.t.Context(), h.key)
	if err != nil || row.State == zabor.Released && row.Attempts() == 0 {
		return // who comes first, or after calls that did nothing, is no impostor
	}
	h.note("another request is delivered to worker %d", i)
	e := h.effect()
	e.Message, e.Fingerprint = "another", "another"
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
	}
}

func (h *history) deliver(i int) {
	if h.acked || h.parked {
		return
	}
	e := h.effect()
	if h.before {
		e.MissingRow = zabor.Doubt
	}
	h.before = true
	h.note("delivered to worker %d", i)
	start := h.now
	var row zabor.Row
	var err error
	read := len(h.read)
	died := h.dies(func() {
		row, err = h.workers[i].Do(h.t.Context(), e, func(_ context.Context, row zabor.Row) zabor.Outcome {
			h.captures++
			if !h.captured(row) {
				h.fatal("a call without a capture of its own")
			}
			return h.call(row, start)
		})
	})
	if died {
		h.read = h.read[:read] // what it had read is gone with it
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
		h.parked = true
		if err := h.workers[i].Parked(h.t.Context(), h.key, "message"); err != nil {
			h.fatal("%v", err)
		}
	}
}

// captured reports whether the table holds the capture that a call says it has.
func (h *history) captured(row zabor.Row) bool {
	there, err := h.store.Load(h.t.Context(), row.Key)
	return err == nil && there.Claim == row.Claim && there.State == zabor.Captured
}

func (h *history) effect() zabor.Effect {
	e := zabor.Effect{
		Key: h.key, Provider: "acquirer", Amount: zabor.Money{Minor: 1999, Currency: "EUR"}, Message: "m", Fingerprint: "f",
		Freeze:  func(k zabor.ProviderKeys, _ string) ([]byte, error) { return []byte("pay with " + k.Request), nil },
		Timeout: historyTimeout, Attempts: 3, HoldAfter: 30 * time.Minute, PendingFor: time.Hour, MissingRow: zabor.Captured,
	}
	if h.lookup {
		e.AbsentAfter = historyAbsent
	}
	if h.keys { // room for a call that is under way, and for one that is executed late
		e.ReplayFor = h.life - historyTimeout - historyAbsent
	}
	return e
}

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

func (h *history) resolve() {
	h.note("resolver")
	if h.dies(func() {
		if err := h.resolver.Round(h.t.Context()); err != nil {
			h.fatal("%v", err)
		}
	}) {
		h.note("the resolver dies")
		h.restart(0)
		fresh := &zabor.Resolver{Fence: h.workers[0], Lookup: h.look, Replay: h.resolver.Replay}
		fresh.Now = func() time.Time { return h.now }
		h.resolver = fresh
	}
}

// decide is a person, who looks at the provider and says what is there; and who
// retries what was parked.
func (h *history) decide() {
	row, err := h.store.Load(h.t.Context(), h.key)
	if errors.Is(err, zabor.ErrNoRow) {
		return
	}
	if err != nil {
		h.fatal("%v", err)
	}
	if row.State == zabor.Held || row.State == zabor.Doubt {
		d := zabor.Decision{Key: h.key, Seen: row.Claim, Action: zabor.Release, By: "ops", Reason: "looked", CheckedProvider: true}
		if ref, done := h.reference[row.ProviderKey]; done {
			d.Action, d.Reference = zabor.Settle, ref
		}
		// Who looks earlier than a look-up would proves nothing.
		if d.Action == zabor.Release && row.ReadAt.Before(row.SendUntil.Add(historyAbsent)) {
			return
		}
		h.meanwhile() // the page grows old
		_, err := h.workers[1].Decide(h.t.Context(), d)
		h.note("a person decides %s of %s: %v", d.Action, row.State, err)
		if err != nil && !errors.Is(err, zabor.ErrRefused) && !errors.Is(err, zabor.ErrStale) {
			h.fatal("%v", err)
		}
	}
	if h.parked && h.rng.IntN(2) == 0 {
		h.note("a person retries the message")
		h.parked = false
	}
}

// check is what must hold at every moment.
func (h *history) check() {
	h.t.Helper()
	if h.charges > 1 {
		h.fatal("charged %d times", h.charges)
	}
	row, err := h.store.Load(h.t.Context(), h.key)
	if errors.Is(err, zabor.ErrNoRow) {
		return
	}
	if err != nil {
		h.fatal("%v", err)
	}
	switch {
	case row.Claim.Epoch < h.last.Claim.Epoch || row.Captures < h.last.Captures || row.Free < h.last.Free || row.Allowance < h.last.Allowance:
		h.fatal("a count fell: %+v after %+v", row, h.last)
	case !kept(row, h.read):
		h.fatal("a success that a worker has read is not in the row: %v", h.read)
	case h.last.Reference != "" && row.Reference != h.last.Reference:
		h.fatal("the reference became %q, was %q", row.Reference, h.last.Reference)
	case (row.State == zabor.Released || row.State == zabor.Declined) && h.charges > 0:
		h.fatal("the row is %s, and money has moved", row.State)
	case row.Captures < h.captures:
		h.fatal("%d calls, and the row counts %d", h.captures, row.Captures)
	case row.Attempts() > row.Allowance:
		h.fatal("%d attempts, %d allowed", row.Attempts(), row.Allowance)
	case row.State == zabor.Settled && h.charges != 1:
		h.fatal("the row is settled, and charges=%d", h.charges)
	case h.acked && row.State != zabor.Settled && row.State != zabor.Pending && row.State != zabor.Declined:
		h.fatal("acked, and the row is %s", row.State)
	case row.ProviderKey != h.last.ProviderKey && h.last.ProviderKey != "":
		h.fatal("another provider key without a no")
	}
	h.last = row
}

func (h *history) run() {
	for range 25 {
		h.act()
		h.check()
	}
	// Everything comes to an end once nobody dies any more.
	for i := range h.workers {
		h.workers[i].At = nil
	}
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
			h.resolve()
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
		for h.dies(h.resolve) {
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
			control := &zabor.Fence{Store: store, Secret: make([]byte, zabor.MinSecret)}
			if _, err := control.Do(t.Context(), effect("control"), func(context.Context, zabor.Row) zabor.Outcome { return done }); err != nil {
				t.Fatal(err)
			}
			for seed := first; seed < first+each; seed++ {
				newHistory(t, store, uint64(seed)).run()
			}
		})
	}
}

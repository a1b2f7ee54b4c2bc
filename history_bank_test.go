package zabor_test

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"zabor"
)

// bank is the provider of one history. It executes late, forgets keys, shows what it
// did late, and begins what it decides later.
type bank struct {
	rng *rand.Rand
	now func() time.Time

	keys   bool          // it has idempotency keys
	life   time.Duration // of one
	search bool          // look-ups by what a request carried find anything

	charges  int
	done     map[string]string    // by provider key: the reference of what was done under it
	shows    map[string]time.Time // by provider key: when look-ups show that
	forgets  map[string]time.Time // by provider key: when the provider knows it no more
	begun    map[string]string    // by provider key: what has no verdict yet
	refused  map[string]bool      // by provider key: it said no
	onTheWay []late
	counter  int
	name     string // in each reference: two orders share none
}

// late is a request that the provider has not executed yet, and may never.
type late struct {
	key   string
	until time.Time
}

// The longest late execution and the longest lag of a look-up: absence is proof after
// both.
const (
	historyLate   = 40 * time.Second
	historyLag    = 20 * time.Second
	historyAbsent = historyLate + historyLag
)

func newBank(rng *rand.Rand, now func() time.Time, name string) *bank {
	return &bank{
		rng: rng, now: now, name: name, keys: rng.IntN(2) == 0, life: []time.Duration{5 * time.Minute, 2 * time.Hour}[rng.IntN(2)], search: rng.IntN(4) > 0,
		done: map[string]string{}, shows: map[string]time.Time{}, forgets: map[string]time.Time{}, begun: map[string]string{}, refused: map[string]bool{},
	}
}

func (b *bank) id(kind string) string {
	b.counter++
	return fmt.Sprint(kind, b.name, "_", b.counter)
}

// knows reports whether it still knows key at the given time.
func (b *bank) knows(key string, at time.Time) bool {
	return b.keys && at.Before(b.forgets[key])
}

// execute does at the given time what came under key, unless it still knows that it
// has.
func (b *bank) execute(key string, at time.Time) (reference string, verdict zabor.Verdict) {
	if b.knows(key, at) {
		if ref, there := b.done[key]; there {
			return ref, zabor.Done
		}
		if ref, there := b.begun[key]; there {
			return ref, zabor.Begun
		}
	}
	if b.forgets[key].IsZero() {
		b.forgets[key] = at.Add(b.life)
	}
	if b.rng.IntN(6) == 0 {
		b.begun[key] = b.id("beg_")
		b.shows[key] = at.Add(time.Duration(b.rng.Int64N(int64(historyLag))))
		return b.begun[key], zabor.Begun
	}
	b.charge(key, b.id("pay_"))
	b.shows[key] = at.Add(time.Duration(b.rng.Int64N(int64(historyLag))))
	return b.done[key], zabor.Done
}

func (b *bank) charge(key, reference string) {
	b.charges++
	b.done[key] = reference
	delete(b.begun, key)
}

// pass lets what is on the way land by its time, or never, and what was begun come to
// its verdict.
func (b *bank) pass() {
	var still []late
	for _, l := range b.onTheWay {
		switch {
		case l.until.After(b.now()) && b.rng.IntN(2) == 0:
			still = append(still, l)
		case b.rng.IntN(2) == 0:
			at := b.now() // or before, where this is a leap beyond its time
			if l.until.Before(at) {
				at = l.until
			}
			b.execute(l.key, at)
		}
	}
	b.onTheWay = still
	for _, key := range slices.Sorted(maps.Keys(b.begun)) {
		switch b.rng.IntN(8) {
		case 0:
			b.charge(key, b.begun[key])
		case 1:
			delete(b.begun, key)
			b.refused[key] = true
		}
	}
}

// mayAct reports whether anything was done under key, or may be yet.
func (b *bank) mayAct(key string) bool {
	return b.done[key] != "" || b.begun[key] != "" || slices.ContainsFunc(b.onTheWay, func(l late) bool { return l.key == key })
}

// decided is what a person reads at the provider, who sees all and waits for verdicts.
func (b *bank) decided(key string) (reference string) {
	if ref, there := b.begun[key]; there {
		b.charge(key, ref)
	}
	return b.done[key]
}

// look answers a look-up about row, which is this history's own or not.
func (b *bank) look(row zabor.Row, own bool) (zabor.Finding, error) {
	found := func(v zabor.Verdict, ref string) (zabor.Finding, error) {
		return zabor.Finding{Outcome: zabor.Outcome{Verdict: v, Reference: ref}}, nil
	}
	byID := row.Prepared != "" || row.State == zabor.Pending
	if own && b.rng.IntN(8) == 0 {
		if b.rng.IntN(2) == 0 {
			return zabor.Finding{}, &zabor.LaterError{After: time.Duration(b.rng.IntN(60)+1) * time.Second, Err: errAway}
		}
		return zabor.Finding{}, errAway
	}
	if !byID && !b.search {
		return zabor.Finding{Absent: true}, nil
	}
	key := row.ProviderKey
	switch {
	case !own:
		return found(zabor.Done, row.Reference)
	case !byID && b.now().Before(b.shows[key]):
	case b.done[key] != "":
		return found(zabor.Done, b.done[key])
	case b.begun[key] != "":
		return found(zabor.Begun, b.begun[key])
	}
	if b.refused[key] && b.done[key] == "" && b.begun[key] == "" {
		return found(zabor.Refused, "")
	}
	return zabor.Finding{Absent: true}, nil
}

var errAway = errors.New("the server is away")

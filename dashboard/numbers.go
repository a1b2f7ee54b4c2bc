package dashboard

import (
	"context"
	"sync"
	"time"

	"zabor"
	"zabor/sqlstore"
)

// numbers keeps what is counted over the whole table. It is counted again when it
// is old, and the older it may get the longer counting takes: so that pages that
// are looked at cost the database a twentieth of its time at most.
type numbers struct {
	mu     sync.Mutex
	sums   kept[sqlstore.Sums]
	mended kept[int64]
	open   kept[[]sqlstore.StateCount]
	failed kept[[]FailedCount]
	money  kept[[]sqlstore.StateMoney]

	answers kept[answers]

	processes kept[[]process]
	queues    kept[[]queueLine]

	proposals kept[[]proposal]
	charts    map[string]*kept[chart]
}

// kept is a value and when and how slowly it was read.
type kept[T any] struct {
	mu      sync.Mutex
	value   T
	at      time.Time // zero: there is none that may be shown
	until   time.Time
	err     error         // of the last reading
	reading chan struct{} // closed when it ends; nil: none runs
	round   int           // a reading of a round before is not kept
}

const (
	// freshFor is how long a number is shown at least before it is read again.
	freshFor = 2 * time.Second
	// patience is how long a page waits for a new number where it has one that is
	// not older than oldest.
	patience = 100 * time.Millisecond
	oldest   = time.Minute
	// longestReading bounds a reading, which goes on when nobody waits for it any
	// more.
	longestReading = time.Minute
)

// get is the value and when it was read.
func (k *kept[T]) get(ctx context.Context, read func(context.Context) (T, error)) (T, time.Time, error) {
	for {
		k.mu.Lock()
		if time.Now().Before(k.until) {
			value, at := k.value, k.at
			k.mu.Unlock()
			return value, at, nil
		}
		if k.reading == nil {
			k.begin(context.WithoutCancel(ctx), read)
		}
		reading, round, value, at := k.reading, k.round, k.value, k.at
		k.mu.Unlock()

		var enough <-chan time.Time
		if !at.IsZero() && time.Since(at) < oldest {
			enough = time.After(patience)
		}
		select {
		case <-enough:
			return value, at, nil
		case <-ctx.Done():
			return value, at, ctx.Err()
		case <-reading:
		}
		k.mu.Lock()
		value, at, err, same := k.value, k.at, k.err, k.round == round
		k.mu.Unlock()
		if same {
			return value, at, err
		}
	}
}

// begin reads behind the page. The lock is held.
func (k *kept[T]) begin(ctx context.Context, read func(context.Context) (T, error)) {
	ended, round := make(chan struct{}), k.round
	k.reading = ended
	go func() {
		defer close(ended)
		ctx, cancel := context.WithTimeout(ctx, longestReading)
		defer cancel()
		begun := time.Now()
		value, err := read(ctx)
		k.mu.Lock()
		defer k.mu.Unlock()
		if k.round != round {
			return
		}
		k.reading, k.err = nil, err
		if err == nil {
			k.value, k.at = value, time.Now()
			k.until = k.at.Add(max(freshFor, 20*k.at.Sub(begun)))
		}
	}()
}

// forget lets the next page wait for a new value.
func (k *kept[T]) forget() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.round++
	k.at, k.until, k.reading = time.Time{}, time.Time{}, nil
}

func (d *Dashboard) sums(ctx context.Context) (sqlstore.Sums, time.Time, error) {
	return d.numbers.sums.get(ctx, func(ctx context.Context) (sqlstore.Sums, error) { return d.o.Store.Reports().Sums(ctx, d.o.Scope) })
}

// refunded is how many rows with two references a person has dealt with.
func (d *Dashboard) refunded(ctx context.Context) (int64, error) {
	n, _, err := d.numbers.mended.get(ctx, func(ctx context.Context) (int64, error) { return d.o.Store.Reports().Refunded(ctx, d.o.Scope) })
	return n, err
}

func (d *Dashboard) unclosed(ctx context.Context) ([]sqlstore.StateCount, error) {
	counts, _, err := d.numbers.open.get(ctx, func(ctx context.Context) ([]sqlstore.StateCount, error) {
		return d.o.Store.Reports().Unclosed(ctx, d.o.Scope)
	})
	return counts, err
}

// money sums the open rows by state and currency.
func (d *Dashboard) money(ctx context.Context) ([]sqlstore.StateMoney, error) {
	sums, _, err := d.numbers.money.get(ctx, func(ctx context.Context) ([]sqlstore.StateMoney, error) {
		return d.o.Store.Reports().OpenMoney(ctx, d.o.Scope)
	})
	return sums, err
}

// waiting is how many rows are in doubt or held; 0 where it cannot be read.
func (d *Dashboard) waiting(ctx context.Context) (n int64) {
	counts, err := d.unclosed(ctx)
	if err != nil {
		return 0
	}
	for _, c := range counts {
		if c.State != zabor.Captured && c.State != zabor.Pending && c.State != zabor.Released {
			n += c.Rows
		}
	}
	return n
}

// changed lets the next page read the open rows, what is proposed about them, and the
// failed messages again.
func (d *Dashboard) changed() {
	d.numbers.open.forget()
	d.numbers.money.forget()
	d.numbers.answers.forget()
	d.numbers.failed.forget()
	d.numbers.proposals.forget()
}

// failedCounts are how many messages were given up, by transport.
func (d *Dashboard) failedCounts(ctx context.Context) ([]FailedCount, error) {
	if d.o.Failed.Count == nil {
		return nil, nil
	}
	counts, _, err := d.numbers.failed.get(ctx, func(ctx context.Context) ([]FailedCount, error) { return d.o.Failed.Count(ctx, mostCounted) })
	return counts, err
}

// lane is one line of the picture of the last hours.
type lane struct {
	Name  string
	Class string
	What  string
	Total int64
	Most  int64
	Bars  []bar

	Unknown bool // it could not be counted
}

// bar is one bucket, in the units of the picture.
type bar struct {
	X, Y, Width, Height float64
	N                   int64
	From                time.Time
}

// chart is the picture of what happened lately.
type chart struct {
	From, To time.Time
	Span     string
	Lanes    []lane
}

// span is a time that the picture can show, in so many buckets.
type span struct {
	name   string
	whole  time.Duration
	number int
}

var spans = [...]span{{"1h", time.Hour, 60}, {"24h", 24 * time.Hour, 48}, {"7d", 7 * 24 * time.Hour, 56}, {"30d", 30 * 24 * time.Hour, 60}}

// The picture's own units.
const (
	chartWidth  = 600.0
	chartHeight = 48.0
)

func (d *Dashboard) chart(ctx context.Context, s span) (chart, error) {
	d.numbers.mu.Lock()
	if d.numbers.charts == nil {
		d.numbers.charts = map[string]*kept[chart]{}
	}
	k := d.numbers.charts[s.name]
	if k == nil {
		k = &kept[chart]{}
		d.numbers.charts[s.name] = k
	}
	d.numbers.mu.Unlock()
	c, _, err := k.get(ctx, func(ctx context.Context) (chart, error) { return d.draw(ctx, s) })
	return c, err
}

func (d *Dashboard) draw(ctx context.Context, s span) (chart, error) {
	width := s.whole / time.Duration(s.number)
	to := time.Now().UTC().Truncate(width).Add(width)
	c := chart{From: to.Add(-s.whole), To: to, Span: s.name}
	var all []map[int]int64
	for _, l := range []struct {
		lane
		states []zabor.State
		kinds  []string
	}{
		{lane{Name: "Charges", Class: "good", What: "went through, by first capture"}, []zabor.State{zabor.Settled}, nil},
		{lane{Name: "Declined", Class: "plain", What: "did not go through, by first capture"}, []zabor.State{zabor.Declined}, nil},
		{lane{Name: "Doubts", Class: "warn", What: "no definite answer came"}, nil, []string{string(zabor.Doubt)}},
		{lane{Name: "Holds", Class: "bad", What: "given to a person"}, nil, []string{string(zabor.Held), string(zabor.Hold)}},
	} {
		counts := map[int]int64{}
		for _, state := range l.states {
			found, err := d.o.Store.Reports().Entered(ctx, d.o.Scope, state, c.From, width)
			if err != nil {
				return chart{}, err
			}
			merge(counts, found)
		}
		for _, kind := range l.kinds {
			found, err := d.o.Store.History().Count(ctx, d.o.Scope, kind, c.From, width)
			if err != nil {
				return chart{}, err
			}
			merge(counts, found)
		}
		c.Lanes, all = append(c.Lanes, l.lane), append(all, counts)
	}
	if d.o.Failed.Times != nil {
		given := lane{Name: "Failed", Class: "bad", What: "messages given up"}
		times, err := d.o.Failed.Times(ctx, c.From)
		given.Unknown = err != nil
		counts := map[int]int64{}
		for _, at := range times {
			if !at.Before(c.From) && at.Before(c.To) {
				counts[int(at.Sub(c.From)/width)]++
			}
		}
		c.Lanes, all = append(c.Lanes, given), append(all, counts)
	}
	most := int64(0) // one scale for all lanes
	for _, counts := range all {
		for _, n := range counts {
			most = max(most, n)
		}
	}
	for i, counts := range all {
		c.Lanes[i] = c.Lanes[i].drawn(counts, s.number, most, c.From, width)
	}
	return c, nil
}

func merge(into, from map[int]int64) {
	for i, n := range from {
		into[i] += n
	}
}

func (l lane) drawn(counts map[int]int64, number int, most int64, from time.Time, width time.Duration) lane {
	for i := range number {
		l.Total += counts[i]
		l.Most = max(l.Most, counts[i])
	}
	step := chartWidth / float64(number)
	for i := range number {
		n := counts[i]
		if n == 0 {
			continue
		}
		height := max(2, chartHeight*float64(n)/float64(most))
		l.Bars = append(l.Bars, bar{X: float64(i)*step + 1, Y: chartHeight - height, Width: step - 2, Height: height, N: n, From: from.Add(time.Duration(i) * width)})
	}
	return l
}

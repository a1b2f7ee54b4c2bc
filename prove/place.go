package prove

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"zabor"
	"zabor/internal/produce"
	"zabor/laravel"
	"zabor/sqlstore"
)

// Place is where a proof happens: on an embedded Redis and SQLite, see
// [Embedded], or on servers that are there, see [OnServers].
type Place struct {
	Program string   // zabor: what the workers are
	Env     []string // of the processes
	Dir     string   // for files of the proof's own
	Name    string   // of the place, for people

	Prefix string // of every key in Redis

	// Redis and Stream reach the servers of Laravel's and of Symfony's queues;
	// nil: there are no cells of that framework.
	Redis, Stream redis.UniversalClient
	// RedisURL and DSN are their addresses, as the configuration writes them;
	// DSN has the stream's name put in.
	RedisURL string
	DSN      func(stream, options string) string

	// Store is the proof's own fence, with its control orders settled.
	Store *sqlstore.Store
	// Fence is the address of it or, where cells need not share one, of a copy.
	Fence func(name string) (string, error)

	// Servers are what [Soak] may kill too: none that anybody else uses.
	Servers []Server

	Fencing Fencing

	Version string // of zabor, for the report

	veil  *veil         // over what workers say
	swept chan struct{} // closed: another run has taken the place away; nil: nobody can
}

// Fencing is what the fence of a proof has of an installation's own.
type Fencing struct {
	EncryptionKey string           // as the configuration has it; empty: nothing is encrypted
	Journal       bool             // there is one, in a folder of the proof's own
	Attempts      int              // calls of an order before its message is parked; at least [LeastAttempts] are made of it
	MissingRow    map[Queue]string // as the configuration has it, capture or doubt; by queue
}

// LeastAttempts are as many as a cell can need: two workers of one may die in a call.
const LeastAttempts = 3

// while is ctx until another run takes the place away.
func (p *Place) while(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	go func() {
		select {
		case <-p.swept:
			cancel(errSwept)
		case <-ctx.Done():
		}
	}()
	return ctx, func() { cancel(nil) }
}

// Server is one that belongs to the proof alone.
type Server struct {
	Name  string
	Kill  func() error // at once
	Start func() error // again, with what it had answered for; returns when it answers
}

// queues are the frameworks whose queues the place has.
func (p *Place) queues() []Queue {
	var have []Queue
	if p.Redis != nil {
		have = append(have, Laravel)
	}
	if p.Stream != nil {
		have = append(have, Symfony)
	}
	return have
}

// The queues of the proof: Laravel's of this name below a prefix of its own, and
// Symfony's transport of this name in a stream of its own.
const (
	LaravelQueue = "payments"
	Transport    = "async"
	group        = "zabor"
)

// list and stream are where the messages of name are. The list's key is made as the
// worker makes it: on a cluster it is another one.
func (p *Place) laravelPrefix(name string) string { return p.Prefix + name + ":" }
func (p *Place) list(name string) string {
	return laravel.Key(p.Redis, p.laravelPrefix(name), LaravelQueue)
}
func (p *Place) stream(name string) string { return p.Prefix + name + ":messages" }

// put puts one message on the queue of name, as the framework does.
func (p *Place) put(ctx context.Context, q Queue, name string, c produce.Charge) error {
	if q == Laravel {
		payload, err := produce.Laravel(c)
		if err != nil {
			return err
		}
		list := p.list(name)
		_, err = p.Redis.TxPipelined(ctx, func(pipe redis.Pipeliner) error {
			pipe.RPush(ctx, list, payload)
			pipe.RPush(ctx, list+":notify", "1")
			return nil
		})
		return err
	}
	serialize := produce.SymfonyPHP
	if c.Order%2 == 0 {
		serialize = produce.SymfonyJSON
	}
	value, err := serialize(c)
	if err != nil {
		return err
	}
	return p.Stream.XAdd(ctx, &redis.XAddArgs{Stream: p.stream(name), Values: []any{"message", value}}).Err()
}

// unread counts the messages of name that no worker has had yet.
func (p *Place) unread(ctx context.Context, q Queue, name string) (int64, error) {
	if q == Laravel {
		return p.Redis.LLen(ctx, p.list(name)).Result()
	}
	n, err := p.Stream.XLen(ctx, p.stream(name)).Result()
	if err != nil || n == 0 {
		return n, err
	}
	pending, err := p.Stream.XPending(ctx, p.stream(name), group).Result()
	if err != nil {
		return n, nil //nolint:nilerr // there is no group yet: nobody has had any
	}
	return n - pending.Count, nil
}

// setup is one fence's configuration.
type setup struct {
	name     string // of queues, keys and scope
	queues   []Queue
	lanes    int
	fencing  Fencing
	times    Times
	hold     time.Duration
	provider string
	fence    string // address
}

// write writes s as a configuration and returns its file and what its variables
// stand for: the addresses are in no file.
func (p *Place) write(s setup) (file string, env []string, err error) {
	var b strings.Builder
	fmt.Fprintf(&b, `scope: %s
fence: "${PROVE_FENCE}"
redis: "${PROVE_REDIS:-}"
lanes: %d
hold_after: %s
backoff: [1s]
attempts: %d
%sproviders:
  sandbox:
    profile: custom
    base_url: %s
    timeout: %s
    key: {header: Idempotency-Key, replays: none}
    reference: /id
    settled: {pointer: /status, values: [paid]}
    pending: {pointer: /status, values: [processing]}
    declined: {pointer: /status, values: [refused], statuses: [402]}
    amount: {minor: /amount}
    currency: /currency
    lookup: {path: "/payments?merchant_reference={{provider_key}}&order={{order}}", items: /data, absent_after: %s}
steps:
  charge:
    message: ['App\Jobs\ChargeOrder', 'App\Message\ChargeOrder']
    order: orderId
    amount: amountCents
    currency: EUR
    provider: sandbox
    request: {path: /payments, json: {amount: "{{minor}}", currency: "{{currency}}", order: "{{order}}"}}
queues:
`, s.name, s.lanes, span(s.hold), max(LeastAttempts, s.fencing.Attempts), p.keeping(s), s.provider, span(s.times.Timeout), span(s.times.AbsentAfter))
	env = []string{"PROVE_FENCE=" + s.fence, "PROVE_REDIS=" + p.RedisURL, "PROVE_DSN=" + p.dsn(s.name, s.times), "PROVE_KEY=" + s.fencing.EncryptionKey}
	for _, q := range s.queues {
		if q == Laravel {
			fmt.Fprintf(&b, "  %s: {laravel: {prefix: %q, retry_after: %s}, missing_row: %s}\n", LaravelQueue, p.laravelPrefix(s.name), span(s.times.Reserve), s.fencing.MissingRow[q])
		} else {
			fmt.Fprintf(&b, "  %s: {symfony: {dsn: \"${PROVE_DSN}\"}, missing_row: %s}\n", Transport, s.fencing.MissingRow[q])
		}
	}
	file = filepath.Join(p.Dir, s.name+".yaml")
	return file, env, os.WriteFile(file, []byte(b.String()), 0o600)
}

// keeping are the lines about what s keeps, and how.
func (p *Place) keeping(s setup) (lines string) {
	if s.fencing.EncryptionKey != "" {
		lines += "encryption_key: \"${PROVE_KEY}\"\n"
	}
	if s.fencing.Journal { // each name's own: a fence saves whatever its journal holds
		lines += fmt.Sprintf("journal: %q\n", filepath.Join(p.Dir, s.name+".journal"))
	}
	return lines
}

// span is d as the configuration reads it.
func span(d time.Duration) string { return fmt.Sprintf("%dms", d.Milliseconds()) }

// dsn is the address of the stream of name.
func (p *Place) dsn(name string, t Times) string {
	return p.DSN(p.stream(name), fmt.Sprintf("redeliver_timeout=%d&claim_interval=1000&delete_after_ack=true", int(t.Reserve/time.Second)))
}

// references are what the rows of a scope say that the provider has given for each
// order.
func (p *Place) references(ctx context.Context, store *sqlstore.Store, s Strategy, scope string) (map[string][]string, error) {
	said := map[string][]string{}
	if s == Fence {
		return said, eachRow(ctx, store, scope, func(row zabor.Row) {
			if row.State == zabor.Settled {
				said[row.Order] = append(said[row.Order], row.Reference)
			}
		})
	}
	place := "?"
	if store.Dialect() == "postgres" {
		place = "$1"
	}
	rows, err := store.DB().QueryContext(ctx, "SELECT order_id, reference FROM "+payments+" WHERE scope = "+place, scope)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var order, reference string
		if err := rows.Scan(&order, &reference); err != nil {
			return nil, err
		}
		said[order] = append(said[order], reference)
	}
	return said, rows.Err()
}

// eachRow passes each row of a scope to do.
func eachRow(ctx context.Context, store *sqlstore.Store, scope string, do func(zabor.Row)) error {
	filter := sqlstore.Filter{Scope: &scope, Limit: 1000}
	for {
		rows, err := store.Reports().List(ctx, filter)
		if err != nil {
			return err
		}
		for _, row := range rows {
			do(row)
		}
		if len(rows) < filter.Limit {
			return nil
		}
		filter.After = rows[len(rows)-1].Key
	}
}

package prove

import (
	"bytes"
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"time"

	"github.com/redis/go-redis/v9"

	"zabor"
	"zabor/worker"
)

// Worker is what people write without a fence: it takes a message, charges over
// plain HTTP, saves the reference in the shop's own table, and acks before or
// after. SIGTERM lets it finish the message in hand, as the workers of Laravel
// and Symfony do.
type Worker struct {
	Strategy Strategy // not Fence
	Source   worker.Source
	Provider string // where it posts to

	Locks    redis.UniversalClient // of UniqueLock
	Prefix   string                // of the locks' keys
	LockLife time.Duration

	Payments *sql.DB // the shop's table, see createPayments
	Dialect  string
	Scope    string // of the rows it writes

	At  func(zabor.Checkpoint, zabor.Key) // is told the moments of the fence's worker
	Log *slog.Logger
}

// callTime bounds its HTTP call: generously, so that a slow machine makes no
// failed calls that a death has not made.
const callTime = 10 * time.Second

// pollTime is how often it looks whether its queue is empty.
const pollTime = 250 * time.Millisecond

// Run takes messages until the queue holds nothing, or until ctx ends.
func (w *Worker) Run(ctx context.Context) error {
	for ctx.Err() == nil {
		waiting, cancel := context.WithTimeout(ctx, pollTime)
		m, err := worker.Next(waiting, w.Source)
		cancel()
		switch {
		case m != nil:
			w.handle(context.WithoutCancel(ctx), m)
			continue
		case err != nil && waiting.Err() == nil:
			return err
		}
		depth, err := w.Source.Depth(context.WithoutCancel(ctx))
		if err != nil {
			return err
		}
		if depth.Empty() {
			return nil
		}
	}
	return nil
}

func (w *Worker) handle(ctx context.Context, m *worker.Message) {
	order, amount := fmt.Sprint(m.Data["orderId"]), m.Data["amountCents"]
	key := zabor.Key{Scope: w.Scope, Order: order, Step: "charge"}
	w.At(zabor.Capturing, key)
	if w.Strategy == AutoAck && !w.ack(ctx, m, key) {
		return
	}
	token := rand.Text()
	if w.Strategy == UniqueLock && !w.lock(ctx, m, order, token) {
		return
	}
	w.At(zabor.Sending, key)
	reference, err := w.charge(ctx, order, amount)
	if err == nil {
		w.At(zabor.Answered, key)
		err = w.save(ctx, order, reference)
	}
	w.unlock(ctx, order, token)
	if err != nil {
		w.Log.Warn("failed", "error", err.Error())
		w.later(ctx, m)
		return
	}
	w.Log.Info("charged and saved", "reference", reference)
	w.At(zabor.Saved, key)
	if w.Strategy != AutoAck {
		w.ack(ctx, m, key)
	}
}

func (w *Worker) ack(ctx context.Context, m *worker.Message, key zabor.Key) bool {
	if err := w.Source.Ack(worker.WithAck(ctx, key), m); err != nil {
		w.Log.Warn("not acked", "error", err.Error())
		return false
	}
	w.At(worker.Acked, key)
	w.Log.Info("acked")
	return true
}

// later gives the message to whoever comes next, as a job that has thrown is.
func (w *Worker) later(ctx context.Context, m *worker.Message) {
	if w.Strategy == AutoAck {
		return // it is not on the queue any more
	}
	if err := w.Source.Later(ctx, m, time.Second); err != nil && !errors.Is(err, worker.ErrLost) {
		w.Log.Warn("not put back", "error", err.Error())
	}
}

// lock takes the order's lock, with its owner's token in it; where another has it,
// the message comes back later.
func (w *Worker) lock(ctx context.Context, m *worker.Message, order, token string) bool {
	ok, err := w.Locks.SetNX(ctx, w.Prefix+"lock:"+order, token, w.LockLife).Result()
	switch {
	case err != nil:
		w.Log.Warn("no lock", "error", err.Error())
	case !ok:
		w.Log.Info("another has the lock")
	default:
		return true
	}
	w.later(ctx, m)
	return false
}

// release removes a lock from KEYS[1] if it is of the owner ARGV[1], and answers how
// many it removed.
var release = redis.NewScript(`
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
return redis.call('DEL', KEYS[1])
`)

// unlock gives the order's lock back at the end of the job, before the ack, unless
// it has lapsed and is another's by now.
func (w *Worker) unlock(ctx context.Context, order, token string) {
	if w.Strategy != UniqueLock {
		return
	}
	switch n, err := release.Run(ctx, w.Locks, []string{w.Prefix + "lock:" + order}, token).Int(); {
	case err != nil:
		w.Log.Warn("the lock stays", "error", err.Error())
	case n == 0:
		w.Log.Info("the lock had lapsed")
	}
}

// charge asks the provider for the money, once, and returns its reference.
func (w *Worker) charge(ctx context.Context, order string, amount any) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	body, err := json.Marshal(map[string]any{"order": order, "amount": amount, "currency": "EUR"})
	if err != nil {
		return "", err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, w.Provider+"/payments", bytes.NewReader(body))
	if err != nil {
		return "", err
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return "", err
	}
	var payment struct{ ID, Status string }
	if err := json.Unmarshal(text, &payment); err != nil || payment.Status != "paid" {
		return "", fmt.Errorf("the provider answered %s: %s", response.Status, text)
	}
	return payment.ID, nil
}

// payments is the shop's table of what was paid. It has no unique key on the
// order: with one the second charge would be made all the same, and only its
// record would fail.
const payments = "zabor_prove_payments"

func createPayments(ctx context.Context, db *sql.DB) error {
	_, err := db.ExecContext(ctx, "CREATE TABLE IF NOT EXISTS "+payments+" (scope VARCHAR(64) NOT NULL, order_id VARCHAR(64) NOT NULL, reference VARCHAR(64) NOT NULL)")
	return err
}

func (w *Worker) save(ctx context.Context, order, reference string) error {
	values := "(?, ?, ?)"
	if w.Dialect == "postgres" {
		values = "($1, $2, $3)"
	}
	_, err := w.Payments.ExecContext(ctx, "INSERT INTO "+payments+" (scope, order_id, reference) VALUES "+values, w.Scope, order, reference)
	return err
}

// WorkerSettings are what a [Worker] is made of. They reach its process by its
// input: they may hold passwords.
type WorkerSettings struct {
	Strategy Strategy
	Queue    Queue
	Scope    string

	Redis, Prefix string // of Laravel's queue; the locks are there too
	DSN           string // of Symfony's transport
	Database      string
	Provider      string

	Reserve, LockLife time.Duration
}

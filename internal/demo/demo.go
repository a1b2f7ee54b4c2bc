// Package demo does zabor's main job on an embedded Redis, fence and provider, with
// killed workers.
package demo

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/alicebob/miniredis/v2"

	"zabor"
	"zabor/internal/produce"
	"zabor/sandbox"
	"zabor/sqlstore"
)

// Result is the count of a demo. Its JSON is documented.
type Result struct {
	ProviderSuccesses int64   `json:"provider_successes"`
	UniqueRows        int     `json:"unique_rows"`
	DoubleCharged     int     `json:"double_charged"`
	Lost              int     `json:"lost"`
	Orders            int     `json:"orders"`
	Kills             int     `json:"kills"`
	Seconds           float64 `json:"seconds"`
}

// Good reports whether each order was charged exactly once and has its row.
func (r Result) Good() bool {
	return r.ProviderSuccesses == int64(r.UniqueRows) && r.UniqueRows == r.Orders && r.DoubleCharged == 0 && r.Lost == 0
}

// Print writes r as a table with a verdict.
func (r Result) Print(to io.Writer) {
	w := tabwriter.NewWriter(to, 0, 8, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(w, "orders\tworkers killed\tprovider 200s\tunique rows\tcharged twice\tlost\t\n")
	fmt.Fprintf(w, "------\t--------------\t-------------\t-----------\t-------------\t----\t\n")
	fmt.Fprintf(w, "%d\t%d\t%d\t%d\t%d\t%d\t\n", r.Orders, r.Kills, r.ProviderSuccesses, r.UniqueRows, r.DoubleCharged, r.Lost)
	w.Flush()
	verdict := "200s equal rows: every order was charged exactly once."
	if !r.Good() {
		verdict = "200s and rows differ."
	}
	fmt.Fprintf(to, "\n%s (%.1f s)\n", verdict, r.Seconds)
}

// Kills is how many workers are killed.
const Kills = 12

// Run sends orders through both queues, kills workers, and counts the charges and
// the rows. The workers are processes of this very program. say prints the progress.
// It stops with an error after two minutes, or when ctx ends.
func Run(ctx context.Context, orders int, say func(format string, args ...any)) (Result, error) {
	dir, err := os.MkdirTemp("", "zabor-demo-")
	if err != nil {
		return Result{}, err
	}
	defer os.RemoveAll(dir)
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	d := &run{dir: dir, orders: orders, say: say}
	return d.do(ctx)
}

// run is the main job on an embedded default: Redis, fence and provider are
// here, the workers are real processes.
type run struct {
	dir    string
	orders int
	say    func(format string, args ...any)

	redis    *miniredis.Miniredis
	provider *sandbox.Sandbox

	mu     sync.Mutex
	worker *os.Process // the running one
	killed int
}

func (d *run) do(ctx context.Context) (Result, error) {
	start := time.Now()
	d.redis = miniredis.NewMiniRedis()
	if err := d.redis.Start(); err != nil {
		return Result{}, err
	}
	defer d.redis.Close()
	go d.passTime(ctx)

	d.provider = sandbox.New(sandbox.Options{OnCharge: d.charged})
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return Result{}, err
	}
	server := &http.Server{Handler: d.provider}
	go func() { _ = server.Serve(listener) }() // ends with Close
	defer server.Close()

	file := filepath.Join(d.dir, "zabor.yaml")
	if err := os.WriteFile(file, d.config(listener.Addr().String()), 0o600); err != nil {
		return Result{}, err
	}
	store, err := sqlstore.Open("sqlite://" + filepath.Join(d.dir, "fence.db"))
	if err != nil {
		return Result{}, err
	}
	defer store.Close()
	if err := store.Setup().Migrate(ctx); err != nil {
		return Result{}, err
	}
	if err := d.produce(); err != nil {
		return Result{}, err
	}
	if err := d.work(ctx, file); err != nil {
		return Result{}, err
	}
	return d.count(ctx, store, start)
}

// passTime lets the embedded Redis' keys expire: it has no clock of its own.
func (d *run) passTime(ctx context.Context) {
	const step = 100 * time.Millisecond
	tick := time.NewTicker(step)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			d.redis.FastForward(step)
		}
	}
}

func (d *run) config(provider string) []byte {
	return fmt.Appendf(nil, `scope: demo
fence: "sqlite://%[1]s/fence.db"
redis: "redis://%[2]s/0"
lanes: 3
hold_after: 1m
backoff: [1s]
queues:
  payments:
    laravel: {prefix: laravel_database_, retry_after: 4s}
  async:
    symfony: {dsn: "redis://%[2]s/messages/symfony?redeliver_timeout=4"}
providers:
  sandbox:
    profile: custom
    base_url: http://%[3]s
    timeout: 1s
    key: {header: Idempotency-Key, life: 24h, replays: all}
    reference: /id
    settled: {pointer: /status, values: [paid]}
    pending: {pointer: /status, values: [processing]}
    declined: {pointer: /status, values: [refused], statuses: [402]}
    amount: {minor: /amount}
    currency: /currency
    lookup: {path: "/payments?merchant_reference={{provider_key}}", items: /data, absent_after: 1s}
steps:
  charge:
    message: ['App\Jobs\ChargeOrder', 'App\Message\ChargeOrder']
    order: orderId
    amount: amountCents
    currency: EUR
    provider: sandbox
    request: {path: /payments, json: {amount: "{{minor}}", currency: "{{currency}}", order: "{{order}}"}}
`, d.dir, d.redis.Addr(), provider)
}

// firstOrder is the number of the demo's first order.
const firstOrder = 1001

// produce puts the orders on both queues, as Laravel and as Symfony do.
func (d *run) produce() error {
	for i := range d.orders {
		c := produce.Charge{Order: firstOrder + int64(i), Minor: 1999 + int64(i)}
		var err error
		if i%2 == 0 {
			err = d.push(c)
		} else {
			err = d.add(c, i%4 == 1)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (d *run) push(c produce.Charge) error {
	payload, err := produce.Laravel(c)
	if err != nil {
		return err
	}
	if _, err := d.redis.Push("laravel_database_queues:payments", string(payload)); err != nil {
		return err
	}
	_, err = d.redis.Push("laravel_database_queues:payments:notify", "1")
	return err
}

func (d *run) add(c produce.Charge, asJSON bool) error {
	serialize := produce.SymfonyPHP
	if asJSON {
		serialize = produce.SymfonyJSON
	}
	value, err := serialize(c)
	if err != nil {
		return err
	}
	_, err = d.redis.XAdd("messages", "*", []string{"message", string(value)})
	return err
}

// charged is told of each charge while the provider's answer still waits. It
// kills the waiting worker.
func (d *run) charged(c sandbox.Charge) {
	d.mu.Lock()
	defer d.mu.Unlock()
	// Every other charge, so that the killed workers' orders come back early.
	if d.worker == nil || d.killed >= Kills || d.provider.Stats().Charges%2 != 0 {
		return
	}
	d.worker.Signal(syscall.SIGKILL)
	d.worker = nil
	d.killed++
	d.say("\r%-79s\r", fmt.Sprintf("order %s is charged; worker killed before the answer (%d of %d)", c.Order, d.killed, Kills))
}

// work runs one worker process after another until one has drained the queues.
func (d *run) work(ctx context.Context, file string) error {
	program, err := os.Executable()
	if err != nil {
		return err
	}
	for ctx.Err() == nil {
		var log bytes.Buffer
		cmd := exec.CommandContext(ctx, program, "worker", "-c", file, "--drain", "--log-level", "warn")
		cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + d.dir, "TMPDIR=" + d.dir}
		cmd.Stderr = &log
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		d.mu.Lock()
		err := cmd.Start()
		if err == nil {
			d.worker = cmd.Process
		}
		d.mu.Unlock()
		if err != nil {
			return err
		}
		err = cmd.Wait()
		d.mu.Lock()
		killed := d.worker == nil
		d.worker = nil
		d.mu.Unlock()
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
		case !killed:
			return fmt.Errorf("a worker ended by itself: %w\n%s", err, log.String())
		}
	}
	return fmt.Errorf("the queues were not drained in time: %w", cmp.Or(ctx.Err(), context.DeadlineExceeded))
}

// count compares the provider's charges with the rows, order by order.
func (d *run) count(ctx context.Context, store *sqlstore.Store, start time.Time) (Result, error) {
	r := Result{Orders: d.orders, Kills: d.killed, Seconds: time.Since(start).Seconds()}
	stats := d.provider.Stats()
	r.ProviderSuccesses = stats.Charges
	for i := range d.orders {
		switch stats.Orders[fmt.Sprint(firstOrder+i)] {
		case 0:
			r.Lost++
		case 1:
		default:
			r.DoubleCharged++
		}
	}
	filter := sqlstore.Filter{States: []zabor.State{zabor.Settled}, Limit: 1000}
	for {
		rows, err := store.Reports().List(ctx, filter)
		if err != nil {
			return r, err
		}
		r.UniqueRows += len(rows)
		if len(rows) < filter.Limit {
			return r, nil
		}
		filter.After = rows[len(rows)-1].Key
	}
}

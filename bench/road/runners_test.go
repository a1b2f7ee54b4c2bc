package road

import (
	"bufio"
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/hibiken/asynq"
	"github.com/jackc/pgx/v5/pgxpool"
	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/redis/go-redis/v9"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
	"golang.org/x/sys/unix"
	_ "modernc.org/sqlite"
)

const runnerVariable = "ZABOR_ROAD_RUNNER"

// job is what a runner does.
type job struct {
	Kind            string
	Lanes, Messages int
	Database        string // address
	Redis           string // host:port
	Provider        string // URL
}

// told is what a runner tells at its end.
type told struct{ Seconds, CPU float64 }

// runAsRunner is the main of a runner.
func runAsRunner(text string) int {
	var j job
	err := json.Unmarshal([]byte(text), &j)
	if err == nil {
		err = j.run()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// run gets ready, waits for a line, and carries all messages out.
func (j job) run() error {
	start, end, err := map[string]func(job) (func() error, func(), error){
		"naive": job.naive, "reused": job.naive, "floor": job.floor, "asynq": job.asynq, "river": job.river,
	}[j.Kind](j)
	if err != nil {
		return err
	}
	defer end()
	fmt.Println("ready")
	if _, err := bufio.NewReader(os.Stdin).ReadString('\n'); err != nil {
		return err
	}
	begun, before := time.Now(), ownCPU()
	if err := start(); err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(told{time.Since(begun).Seconds(), ownCPU() - before})
}

func ownCPU() float64 {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return float64(u.Utime.Nano()+u.Stime.Nano()) / 1e9
}

// everyLane runs work in each lane until it says that nothing is left.
func (j job) everyLane(work func() (more bool, err error)) error {
	var wg sync.WaitGroup
	failed := make(chan error, j.Lanes)
	for range j.Lanes {
		wg.Go(func() {
			for {
				more, err := work()
				if err != nil {
					failed <- err
				}
				if err != nil || !more {
					return
				}
			}
		})
	}
	wg.Wait()
	close(failed)
	return <-failed
}

func (j job) redis() *redis.Client {
	return redis.NewClient(&redis.Options{Addr: j.Redis, MaxRetries: -1, PoolSize: j.Lanes + 8})
}

// open opens the database with the loops' own narrow table.
func (j job) open() (db *sql.DB, mark func(int) string, err error) {
	mark = func(int) string { return "?" }
	u, err := url.Parse(j.Database)
	if err != nil {
		return nil, nil, err
	}
	switch u.Scheme {
	case "mysql":
		c := mysql.NewConfig()
		c.User, c.Net, c.Addr, c.DBName = u.User.Username(), "tcp", u.Host, strings.TrimPrefix(u.Path, "/")
		db, err = sql.Open("mysql", c.FormatDSN())
	case "postgres":
		mark = func(i int) string { return "$" + strconv.Itoa(i) }
		db, err = sql.Open("pgx", j.Database)
	default:
		db, err = sql.Open("sqlite", u.Path+"?_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)&_pragma=busy_timeout(10000)")
		if err == nil {
			db.SetMaxOpenConns(1) // as everybody does there: it has one writer
		}
	}
	if err != nil {
		return nil, nil, err
	}
	if u.Scheme == "mysql" || u.Scheme == "postgres" {
		db.SetMaxOpenConns(min(j.Lanes, 100))
		db.SetMaxIdleConns(min(j.Lanes, 100))
	}
	_, err = db.Exec("CREATE TABLE road (id BIGINT PRIMARY KEY, step VARCHAR(64) NOT NULL, state VARCHAR(16) NOT NULL, reference VARCHAR(64))")
	return db, mark, err
}

var orderIn = regexp.MustCompile(`orderId\\";i:(\d+);`)

// orderOf is the order that a payload of Laravel's speaks of.
func orderOf(payload string) (int64, error) {
	found := orderIn.FindStringSubmatch(payload)
	if found == nil {
		return 0, fmt.Errorf("no order in %q", payload)
	}
	return strconv.ParseInt(found[1], 10, 64)
}

func body(order int64) []byte {
	return fmt.Appendf(nil, `{"amount":1999,"currency":"EUR","order":"%d"}`, order)
}

// reference is the id in an answer.
func reference(status int, answer io.Reader) (string, error) {
	var payment struct{ ID, Status string }
	if err := json.NewDecoder(answer).Decode(&payment); err != nil {
		return "", err
	}
	if status != http.StatusCreated || payment.Status != "paid" || payment.ID == "" {
		return "", fmt.Errorf("the provider answers %d, %+v", status, payment)
	}
	return payment.ID, nil
}

// payer pays by net/http, as people do it.
func (j job) payer(reuse bool) func(context.Context, int64) (string, error) {
	web := &http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{DisableKeepAlives: !reuse, MaxIdleConnsPerHost: j.Lanes}}
	return func(ctx context.Context, order int64) (string, error) {
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, j.Provider+"/payments", bytes.NewReader(body(order)))
		if err != nil {
			return "", err
		}
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Idempotency-Key", "order-"+strconv.FormatInt(order, 10))
		answer, err := web.Do(r)
		if err != nil {
			return "", err
		}
		defer answer.Body.Close()
		id, err := reference(answer.StatusCode, answer.Body)
		_, _ = io.Copy(io.Discard, answer.Body)
		return id, err
	}
}

// naive is the loop that people write: pop, insert, call, update. It has no reserve,
// no ack and no way back.
func (j job) naive() (func() error, func(), error) {
	db, mark, err := j.open()
	if err != nil {
		return nil, nil, err
	}
	insert, err := db.Prepare("INSERT INTO road (id, step, state) VALUES (" + mark(1) + ", 'charge', 'started')")
	if err != nil {
		return nil, nil, err
	}
	update, err := db.Prepare("UPDATE road SET state = 'paid', reference = " + mark(1) + " WHERE id = " + mark(2))
	if err != nil {
		return nil, nil, err
	}
	client, pay, ctx := j.redis(), j.payer(j.Kind == "reused"), context.Background()
	one := func() (bool, error) {
		payload, err := client.LPop(ctx, listKey).Result()
		if errors.Is(err, redis.Nil) {
			return false, nil
		}
		if err != nil {
			return false, err
		}
		order, err := orderOf(payload)
		if err != nil {
			return false, err
		}
		if _, err := insert.Exec(order); err != nil {
			return false, err
		}
		id, err := pay(ctx, order)
		if err != nil {
			return false, err
		}
		_, err = update.Exec(id, order)
		return true, err
	}
	return func() error { return j.everyLane(one) }, func() { db.Close(); client.Close() }, nil
}

// group carries out together what waits at the same time. Nothing waits for more.
type group[T, R any] struct {
	waiting chan request[T, R]
	do      func([]T) ([]R, error)
}

type request[T, R any] struct {
	of    T
	reply chan<- reply[R]
}

type reply[R any] struct {
	result R
	err    error
}

func newGroup[T, R any](atOnce int, do func([]T) ([]R, error)) *group[T, R] {
	g := &group[T, R]{make(chan request[T, R], 1024), do}
	for range atOnce {
		go g.loop()
	}
	return g
}

func (g *group[T, R]) loop() {
	for first := range g.waiting {
		all := []request[T, R]{first}
		for more := true; more && len(all) < 256; {
			select {
			case next := <-g.waiting:
				all = append(all, next)
			default:
				more = false
			}
		}
		of := make([]T, len(all))
		for i := range all {
			of[i] = all[i].of
		}
		results, err := g.do(of)
		for i := range all {
			r := reply[R]{err: err}
			if err == nil {
				r.result = results[i]
			}
			all[i].reply <- r
		}
	}
}

func (g *group[T, R]) ask(of T) (R, error) {
	reply := make(chan reply[R], 1)
	g.waiting <- request[T, R]{of, reply}
	r := <-reply
	return r.result, r.err
}

var reserveMany = redis.NewScript(`
local got = {}
for i = 1, tonumber(ARGV[1]) do
  local payload = redis.call('LPOP', KEYS[1])
  if not payload then break end
  redis.call('ZADD', KEYS[2], ARGV[2], payload)
  got[i] = payload
end
return got`)

type settlement struct {
	order     int64
	reference string
}

// floor is a sketch with the promises of the fence and nothing else: a reserve, a
// committed row before the call, a call on a new connection, a committed end, and an
// ack last. What waits at the same time shares a script, a commit or a pipeline.
func (j job) floor() (func() error, func(), error) {
	db, _, err := j.open()
	if err != nil {
		return nil, nil, err
	}
	client, ctx := j.redis(), context.Background()
	address := strings.TrimPrefix(j.Provider, "http://")
	atOnce := 2
	if strings.HasPrefix(j.Database, "sqlite:") {
		atOnce = 1
	}
	reserve := newGroup(1, func(of []struct{}) ([]string, error) {
		got, err := reserveMany.Run(ctx, client, []string{listKey, listKey + ":reserved"}, len(of), time.Now().Add(10*time.Minute).Unix()).StringSlice()
		return append(got, make([]string, len(of)-len(got))...), err
	})
	capture := newGroup(atOnce, func(orders []int64) ([]struct{}, error) {
		text := []byte("INSERT INTO road (id, step, state) VALUES ")
		for i, order := range orders {
			if i > 0 {
				text = append(text, ',')
			}
			text = fmt.Appendf(text, "(%d,'charge','captured')", order)
		}
		_, err := db.Exec(string(text))
		return make([]struct{}, len(orders)), err
	})
	settle := newGroup(atOnce, func(all []settlement) ([]struct{}, error) {
		cases, ids := []byte(nil), []byte(nil)
		for i, one := range all {
			if i > 0 {
				ids = append(ids, ',')
			}
			cases = fmt.Appendf(cases, " WHEN %d THEN '%s'", one.order, one.reference)
			ids = strconv.AppendInt(ids, one.order, 10)
		}
		result, err := db.Exec("UPDATE road SET state = 'settled', reference = CASE id" + string(cases) + " END WHERE id IN (" + string(ids) + ") AND state = 'captured'")
		if err != nil {
			return nil, err
		}
		if n, err := result.RowsAffected(); err != nil || n != int64(len(all)) {
			return nil, fmt.Errorf("%d rows settled of %d: %w", n, len(all), err)
		}
		return make([]struct{}, len(all)), nil
	})
	ack := newGroup(1, func(payloads []string) ([]struct{}, error) {
		pipe := client.Pipeline()
		for _, payload := range payloads {
			pipe.ZRem(ctx, listKey+":reserved", payload)
		}
		_, err := pipe.Exec(ctx)
		return make([]struct{}, len(payloads)), err
	})
	one := func() (bool, error) {
		payload, err := reserve.ask(struct{}{})
		if err != nil || payload == "" {
			return false, err
		}
		order, err := orderOf(payload)
		if err != nil {
			return false, err
		}
		if _, err := capture.ask(order); err != nil {
			return false, err
		}
		id, err := payPlainly(address, order)
		if err != nil {
			return false, err
		}
		if _, err := settle.ask(settlement{order, id}); err != nil {
			return false, err
		}
		_, err = ack.ask(payload)
		return true, err
	}
	return func() error { return j.everyLane(one) }, func() { db.Close(); client.Close() }, nil
}

var readers = sync.Pool{New: func() any { return bufio.NewReader(nil) }}

var plainReference = regexp.MustCompile(`^[A-Za-z0-9_-]+$`)

// payPlainly pays over a connection of its own with as little as that takes.
func payPlainly(address string, order int64) (string, error) {
	c, err := net.DialTimeout("tcp", address, 10*time.Second)
	if err != nil {
		return "", err
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(30 * time.Second)); err != nil {
		return "", err
	}
	content := body(order)
	text := fmt.Appendf(nil, "POST /payments HTTP/1.1\r\nHost: %s\r\nConnection: close\r\nContent-Type: application/json\r\nIdempotency-Key: order-%d\r\nContent-Length: %d\r\n\r\n%s", address, order, len(content), content)
	if _, err := c.Write(text); err != nil {
		return "", err
	}
	in := readers.Get().(*bufio.Reader)
	defer readers.Put(in)
	in.Reset(c)
	answer, err := http.ReadResponse(in, nil)
	if err != nil {
		return "", err
	}
	defer answer.Body.Close()
	id, err := reference(answer.StatusCode, answer.Body)
	if err == nil && !plainReference.MatchString(id) {
		err = fmt.Errorf("the reference %q is not plain", id)
	}
	return id, err
}

// done counts a queue's messages and tells when the last is done.
type done struct {
	left atomic.Int64
	all  chan struct{}
}

func (j job) done() *done {
	d := &done{all: make(chan struct{})}
	d.left.Store(int64(j.Messages))
	return d
}

func (d *done) one() {
	if d.left.Add(-1) == 0 {
		close(d.all)
	}
}

const taskType = "charge"

// asynq is asynq with a handler that pays: no row, no fence.
func (j job) asynq() (func() error, func(), error) {
	server := asynq.NewServer(asynq.RedisClientOpt{Addr: j.Redis, PoolSize: j.Lanes + 8}, asynq.Config{Concurrency: j.Lanes, LogLevel: asynq.FatalLevel})
	pay, d := j.payer(false), j.done()
	handler := asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
		order, err := strconv.ParseInt(string(task.Payload()), 10, 64)
		if err == nil {
			_, err = pay(ctx, order)
		}
		if err == nil {
			d.one()
		}
		return err
	})
	return func() error {
		if err := server.Start(handler); err != nil {
			return err
		}
		<-d.all
		return nil
	}, server.Shutdown, nil
}

type chargeArgs struct {
	Order int64 `json:"order"`
}

func (chargeArgs) Kind() string { return taskType }

type chargeWorker struct {
	river.WorkerDefaults[chargeArgs]
	pay func(context.Context, int64) (string, error)
}

func (w *chargeWorker) Work(ctx context.Context, one *river.Job[chargeArgs]) error {
	_, err := w.pay(ctx, one.Args.Order)
	return err
}

// river is river with a worker that pays: no row of its own, no fence.
func (j job) river() (func() error, func(), error) {
	ctx := context.Background()
	config, err := pgxpool.ParseConfig(j.Database)
	if err != nil {
		return nil, nil, err
	}
	config.MaxConns = int32(min(j.Lanes, 100) + 4)
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, nil, err
	}
	workers := river.NewWorkers()
	river.AddWorker(workers, &chargeWorker{pay: j.payer(false)})
	client, err := river.NewClient(riverpgxv5.New(pool), &river.Config{
		Queues: map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: j.Lanes, FetchCooldown: time.Millisecond, FetchPollInterval: 10 * time.Millisecond}}, Workers: workers,
	})
	if err != nil {
		return nil, nil, err
	}
	events, cancel := client.Subscribe(river.EventKindJobCompleted)
	return func() error {
		if err := client.Start(ctx); err != nil {
			return err
		}
		d := j.done()
		for range events {
			d.one()
			select {
			case <-d.all:
				return nil
			default:
			}
		}
		return errors.New("river ended before its jobs did")
	}, func() { cancel(); _ = client.Stop(ctx); pool.Close() }, nil
}

// fill puts the messages where the queue of j finds them.
func (j job) fill(t *testing.T) {
	ctx := t.Context()
	if j.Kind == "asynq" {
		client := asynq.NewClient(asynq.RedisClientOpt{Addr: j.Redis})
		defer client.Close()
		var next atomic.Int64
		filling := job{Lanes: 16}
		err := filling.everyLane(func() (bool, error) {
			order := next.Add(1)
			if order > int64(j.Messages) {
				return false, nil
			}
			_, err := client.EnqueueContext(ctx, asynq.NewTask(taskType, strconv.AppendInt(nil, order, 10)))
			return true, err
		})
		if err != nil {
			t.Fatal(err)
		}
		return
	}
	pool, err := pgxpool.New(ctx, j.Database)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	migrator, err := rivermigrate.New(riverpgxv5.New(pool), nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := migrator.Migrate(ctx, rivermigrate.DirectionUp, nil); err != nil {
		t.Fatal(err)
	}
	client, err := river.NewClient(riverpgxv5.New(pool), &river.Config{})
	if err != nil {
		t.Fatal(err)
	}
	var all []river.InsertManyParams
	for i := range j.Messages {
		all = append(all, river.InsertManyParams{Args: chargeArgs{int64(i + 1)}})
		if len(all) == 1000 || i == j.Messages-1 {
			if _, err := client.InsertManyFast(ctx, all); err != nil {
				t.Fatal(err)
			}
			all = all[:0]
		}
	}
}

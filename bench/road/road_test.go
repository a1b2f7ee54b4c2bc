// Package road measures the whole road from a queue to its ack: the real worker,
// Redis, database and provider are processes of their own, on the real disk. Beside
// it, in turn and in the same minutes, run the loops that people write instead.
// Quote ratios of one round, never single numbers.
//
//	make bench-road
//	make bench-road ROAD='-databases mariadb -lanes 64 -rounds 3 -messages 5000'
//
// Without flags it is a test of itself: a few messages over every kind of runner.
package road

import (
	"bufio"
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"zabor/internal/produce"
	"zabor/internal/servers"
)

var (
	flagDatabases = flag.String("databases", "sqlite,mariadb,postgres", "databases, divided by commas")
	flagLanes     = flag.String("lanes", "4", "calls at the same time; several are measured one after the other")
	flagRounds    = flag.Int("rounds", 1, "rounds; each runs every runner once, in turn")
	flagMessages  = flag.Int("messages", 40, "messages of a run at 16 lanes and more; fewer lanes get fewer")
	flagRunners   = flag.String("runners", "zabor,naive,reused,floor,asynq,river", "what runs; river is on PostgreSQL alone")
	flagQueue     = flag.String("queue", "laravel", "laravel (a list) or symfony (a stream), for zabor")
	flagZabor     = flag.String("zabor", "", "the program; empty: it is built. More, divided by commas, run beside it as zabor2, …")
	flagNoise     = flag.Float64("noise", 1, "a round is repeated, three times at most, where other processes took more of the machine than this")
	flagRaw       = flag.String("raw", "", "file that gets each run as a line of JSON")
)

func TestMain(m *testing.M) {
	if text := os.Getenv(runnerVariable); text != "" {
		os.Exit(runAsRunner(text))
	}
	servers.Main(m)
}

// result is one run of one runner.
type result struct {
	Database, Runner       string
	Lanes, Round, Messages int
	Seconds                float64
	OwnCPU                 float64 // µs of a charge, as the next three
	DatabaseCPU            float64
	RedisCPU               float64
	ProviderCPU            float64
	Statements, Syncs      float64 // of the database, for a charge; of PostgreSQL transactions in place of statements
	LogBytes, PageImages   float64 // likewise
	MaxMemory              int64   // kB, of the runner
	Foreign                float64 // share of the machine that other processes took
	LoadAverage            string
}

func (r result) rate() float64 { return float64(r.Messages) / r.Seconds }

func TestRoad(t *testing.T) {
	programs := strings.Split(*flagZabor, ",")
	if *flagZabor == "" {
		programs[0] = filepath.Join(t.TempDir(), "zabor")
		build := exec.Command("go", "build", "-o", programs[0], "./cmd/zabor")
		build.Dir = "../.."
		if out, err := build.CombinedOutput(); err != nil {
			t.Fatalf("go build: %v\n%s", err, out)
		}
	}
	cache := servers.OwnRedis(t)
	client := redis.NewClient(&redis.Options{Addr: cache.Addr(), MaxRetries: -1})
	defer client.Close()
	// As queues commonly have it; «always» would measure the disk a second time.
	if err := client.ConfigSet(t.Context(), "appendfsync", "everysec").Err(); err != nil {
		t.Fatal(err)
	}
	p := &place{programs: programs, cache: cache, client: client}
	var all []result
	for _, database := range strings.Split(*flagDatabases, ",") {
		p.open(t, database)
		for _, text := range strings.Split(*flagLanes, ",") {
			lanes, err := strconv.Atoi(text)
			if err != nil {
				t.Fatalf("-lanes %s: %v", text, err)
			}
			n := *flagMessages * min(lanes, 16) / 16
			for round := range *flagRounds {
				all = append(all, p.round(t, database, lanes, round, max(n, 20))...)
			}
		}
	}
	t.Log("\n" + table(all))
}

// place is where the runs happen.
type place struct {
	programs []string
	cache    *servers.Server
	client   *redis.Client
	database *servers.Server // nil: SQLite
	kind     string
}

func (p *place) open(t *testing.T, kind string) {
	p.kind, p.database = kind, nil
	switch kind {
	case "mariadb":
		p.database = servers.OwnMariaDB(t)
	case "postgres":
		p.database = servers.OwnPostgres(t)
	case "sqlite":
	default:
		t.Fatalf("-databases %s: sqlite, mariadb, postgres", kind)
	}
}

// address is that of a new, empty database.
func (p *place) address(t *testing.T) string {
	switch p.kind {
	case "mariadb":
		return servers.MariaDBDatabase(t, p.database)
	case "postgres":
		return servers.PostgresDatabase(t, p.database)
	}
	return "sqlite://" + filepath.Join(diskDir(t), "fence.db")
}

// diskDir is a folder where the servers have theirs.
func diskDir(t *testing.T) string {
	dir, err := os.MkdirTemp(os.Getenv("ZABOR_TEST_DIR"), "zabor-road-") //nolint:usetesting // on the disk that is measured
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// round runs every runner once, in an order that changes with the round. It is
// repeated where the machine had much else to do.
func (p *place) round(t *testing.T, database string, lanes, round, n int) (all []result) {
	var names []string
	for _, name := range strings.Split(*flagRunners, ",") {
		switch {
		case name == "river" && database != "postgres":
		case name == "zabor":
			for i := range p.programs {
				names = append(names, "zabor"+[]string{"", "2", "3", "4"}[i])
			}
		default:
			names = append(names, name)
		}
	}
	turn := round % len(names)
	names = slices.Concat(names[turn:], names[:turn])
	for try := range 4 {
		all = nil
		noisiest := 0.0
		for _, name := range names {
			r := p.run(t, name, lanes, n)
			r.Database, r.Lanes, r.Round = database, lanes, round
			noisiest = max(noisiest, r.Foreign)
			all = append(all, r)
			t.Logf("%-8s %-6s lanes %-3d round %d: %6.0f/s, CPU own %3.0f database %3.0f redis %3.0f provider %3.0f µs, %.2f statements %.2f syncs %.0f log bytes, %d MB; others had %.0f %%, load %s",
				database, name, lanes, round, r.rate(), r.OwnCPU, r.DatabaseCPU, r.RedisCPU, r.ProviderCPU, r.Statements, r.Syncs, r.LogBytes, r.MaxMemory/1024, 100*r.Foreign, r.LoadAverage)
		}
		if noisiest <= *flagNoise {
			break
		}
		if try < 3 {
			t.Logf("others had %.0f %% of the machine: the round is repeated", 100*noisiest)
		}
	}
	if *flagRaw != "" {
		writeRaw(t, all)
	}
	return all
}

func writeRaw(t *testing.T, all []result) {
	f, err := os.OpenFile(*flagRaw, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	e := json.NewEncoder(f)
	for _, r := range all {
		if err := e.Encode(r); err != nil {
			t.Fatal(err)
		}
	}
}

// run runs one runner over n messages, with everything new but the servers.
func (p *place) run(t *testing.T, name string, lanes, n int) result {
	if err := p.client.FlushAll(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	provider, url := startProvider(t, p.programs[0])
	defer provider.stop()
	address := p.address(t)
	var one process
	zabor := strings.HasPrefix(name, "zabor")
	if zabor {
		program := p.programs[0]
		if i, err := strconv.Atoi(strings.TrimPrefix(name, "zabor")); err == nil {
			program = p.programs[i-1]
		}
		p.fill(t, *flagQueue, n)
		one = p.startWorker(t, program, address, url, lanes)
	} else {
		job := job{Kind: name, Lanes: lanes, Messages: n, Database: address, Redis: p.cache.Addr(), Provider: url}
		switch name {
		case "asynq", "river":
			job.fill(t)
		default:
			p.fill(t, "laravel", n)
		}
		one = startRunner(t, job)
	}
	defer one.kill()
	before := p.sample(t, address, one.pid(), provider.pid())
	seconds := one.finish(t, n)
	after := p.sample(t, address, 0, provider.pid())
	checkCharges(t, name, url, n)

	r := after.minus(before, one.cpu(), n)
	r.Runner, r.Messages, r.Seconds = name, n, seconds
	r.MaxMemory = one.memory()
	if text, err := os.ReadFile("/proc/loadavg"); err == nil {
		r.LoadAverage, _, _ = strings.Cut(string(text), " ")
	}
	return r
}

// fill puts n messages where zabor and the loops find them.
func (p *place) fill(t *testing.T, queue string, n int) {
	pipe := p.client.Pipeline()
	for i := range n {
		c := produce.Charge{Order: int64(i + 1), Minor: 1999}
		if queue == "symfony" {
			value, err := produce.SymfonyPHP(c)
			if err != nil {
				t.Fatal(err)
			}
			pipe.XAdd(t.Context(), &redis.XAddArgs{Stream: "messages", Values: []any{"message", value}})
		} else {
			payload, err := produce.Laravel(c)
			if err != nil {
				t.Fatal(err)
			}
			pipe.RPush(t.Context(), listKey, payload)
		}
		if pipe.Len() == 1000 || i == n-1 {
			if _, err := pipe.Exec(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
}

const listKey = "laravel_database_queues:payments"

// checkCharges demands that each order was charged once.
func checkCharges(t *testing.T, name, url string, n int) {
	answer, err := http.Get(url + "/_stats?orders=0")
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	var stats struct{ Charges, Repeated int }
	if err := json.NewDecoder(answer.Body).Decode(&stats); err != nil {
		t.Fatal(err)
	}
	if stats.Charges != n || stats.Repeated != 0 {
		t.Fatalf("%s: charges=%d repeated=%d, want %d and 0", name, stats.Charges, stats.Repeated, n)
	}
}

// process is a runner: it was started and is ready to take the first message.
type process struct {
	cmd    *exec.Cmd
	log    string // of a worker; empty: a runner of this program
	stdin  io.WriteCloser
	stdout *bufio.Reader
	stderr *bytes.Buffer
	own    float64 // CPU seconds that a runner has told
	ready  float64 // CPU seconds of a worker before its first message
}

func (p *process) pid() int { return p.cmd.Process.Pid }

func (p *process) kill() {
	if p.cmd.ProcessState == nil {
		_ = p.cmd.Process.Kill()
		_ = p.cmd.Wait()
	}
}

// stop ends a process in order.
func (p *process) stop() {
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	_ = p.cmd.Wait()
}

// cpu is the CPU time of a finished runner over its messages, in seconds.
func (p *process) cpu() float64 {
	if p.log == "" {
		return p.own
	}
	s := p.cmd.ProcessState
	return (s.UserTime() + s.SystemTime()).Seconds() - p.ready
}

func (p *process) memory() int64 {
	if usage, ok := p.cmd.ProcessState.SysUsage().(*syscall.Rusage); ok {
		return usage.Maxrss
	}
	return 0
}

// command is a process that does not outlive this one.
func command(program string, arguments ...string) *exec.Cmd {
	cmd := exec.Command(program, arguments...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return cmd
}

func startProvider(t *testing.T, program string) (*process, string) {
	cmd := command(program, "sandbox", "--listen", "127.0.0.1:0")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatalf("the provider has said no address: %v", err)
	}
	return &process{cmd: cmd}, strings.TrimSpace(line)
}

const workerConfig = `scope: road
fence: %q
redis: "redis://%[2]s/0"
journal: %[3]q
lanes: %[4]d
queues: {%[5]s}
providers:
  sandbox:
    profile: custom
    base_url: %[6]s
    timeout: 30s
    key: {header: Idempotency-Key, life: 24h, replays: all}
    reference: /id
    settled: {pointer: /status, values: [paid]}
    pending: {pointer: /status, values: [processing]}
    declined: {pointer: /status, values: [refused], statuses: [402]}
    amount: {minor: /amount}
    currency: /currency
    lookup: {path: "/payments?merchant_reference={{provider_key}}", items: /data, absent_after: 1m}
steps:
  charge:
    message: ['App\Jobs\ChargeOrder', 'App\Message\ChargeOrder']
    order: orderId
    amount: amountCents
    currency: EUR
    provider: sandbox
    request: {path: /payments, json: {amount: "{{minor}}", currency: "{{currency}}", order: "{{order}}"}}
`

// startWorker starts a worker on an empty fence and waits until it takes messages.
func (p *place) startWorker(t *testing.T, program, address, url string, lanes int) process {
	dir := diskDir(t)
	queue := "payments: {laravel: {prefix: laravel_database_, retry_after: 10m}}"
	if *flagQueue == "symfony" {
		queue = fmt.Sprintf("async: {symfony: {dsn: \"redis://%s/messages/symfony?redeliver_timeout=600\"}}", p.cache.Addr())
	}
	file := filepath.Join(dir, "zabor.yaml")
	text := fmt.Appendf(nil, workerConfig, address, p.cache.Addr(), dir, lanes, queue, url)
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := command(program, "migrate", "--config", file).CombinedOutput(); err != nil {
		t.Fatalf("zabor migrate: %v\n%s", err, out)
	}
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	cmd := command(program, "worker", "--drain", "--config", file)
	cmd.Stderr = log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	one := process{cmd: cmd, log: log.Name()}
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
		text, err := os.ReadFile(one.log)
		if err == nil && bytes.Contains(text, []byte("msg=started ")) {
			break
		}
		if time.Now().After(deadline) {
			one.kill()
			t.Fatalf("the worker has not started within a minute:\n%s", text)
		}
	}
	one.ready = cpuOf(one.pid())
	return one
}

// startRunner starts a runner of this program and waits until it is ready.
func startRunner(t *testing.T, j job) process {
	text, err := json.Marshal(j)
	if err != nil {
		t.Fatal(err)
	}
	cmd := command(os.Args[0])
	cmd.Env = append(os.Environ(), runnerVariable+"="+string(text))
	one := process{cmd: cmd, stderr: &bytes.Buffer{}}
	cmd.Stderr = one.stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if one.stdin, err = cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	one.stdout = bufio.NewReader(out)
	if line, err := one.stdout.ReadString('\n'); err != nil || line != "ready\n" {
		one.kill()
		t.Fatalf("%s is not ready: %q %v\n%s", j.Kind, line, err, one.stderr)
	}
	return one
}

// finish waits for the end of a runner and returns how long its n messages took.
func (p *process) finish(t *testing.T, n int) float64 {
	if p.log != "" {
		err := p.cmd.Wait()
		text, readErr := os.ReadFile(p.log)
		if err != nil || readErr != nil {
			t.Fatalf("zabor worker: %v %v\n%s", err, readErr, tail(text))
		}
		if done := bytes.Count(text, []byte("msg=done ")); done != n {
			t.Fatalf("zabor worker: %d messages done, want %d\n%s", done, n, tail(text))
		}
		return lineTime(t, text, "msg=done ", bytes.LastIndex).Sub(lineTime(t, text, "msg=started ", bytes.Index)).Seconds()
	}
	fmt.Fprintln(p.stdin, "go")
	var told told
	err := json.NewDecoder(p.stdout).Decode(&told)
	if waited := p.cmd.Wait(); err != nil || waited != nil {
		t.Fatalf("runner: %v %v\n%s", err, waited, p.stderr)
	}
	p.own = told.CPU
	return told.Seconds
}

func tail(text []byte) []byte { return text[max(0, len(text)-4000):] }

// lineTime is when the log line was written that find finds by what.
func lineTime(t *testing.T, log []byte, what string, find func(s, what []byte) int) time.Time {
	i := find(log, []byte(what))
	if i < 0 {
		t.Fatalf("the log has no %q:\n%s", what, tail(log))
	}
	line := log[bytes.LastIndexByte(log[:i], '\n')+1 : i]
	field, _, _ := bytes.Cut(bytes.TrimPrefix(line, []byte("time=")), []byte(" "))
	at, err := time.Parse(time.RFC3339, string(field))
	if err != nil {
		t.Fatal(err)
	}
	return at
}

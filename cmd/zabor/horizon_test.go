package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"zabor/internal/exit"

	"github.com/redis/go-redis/v9"

	"zabor"
)

// horizonClock is when Horizon was recorded.
const horizonClock = 1795981590

// recordings are the keys that Horizon left after each of its events.
type recordings map[string]struct {
	Keys map[string]struct {
		Type    string
		TTL     int // seconds; -1: none
		Fields  map[string]string
		Members []struct{ Text, Score string }
	}
}

// horizonRecordings are those of ../../laravel/testdata, as if their jobs, which
// are all for order 1042 on the queue default, were for that order on the queue
// payments.
func horizonRecordings(t testing.TB, order string) recordings {
	t.Helper()
	text, err := os.ReadFile("../../laravel/testdata/horizon.json")
	if err != nil {
		t.Fatal(err)
	}
	var file struct{ States recordings }
	moved := strings.NewReplacer("queues:default", "queues:payments", "horizon:queue:default", "horizon:queue:payments", `"queue": "default"`, `"queue": "payments"`, "1042", order)
	if err := json.Unmarshal([]byte(moved.Replace(string(text))), &file); err != nil {
		t.Fatal(err)
	}
	return file.States
}

// restore puts what Horizon left after an event beside what is there, as if it had
// just happened, for a job of that order.
func (s *shop) restore(event, order string) {
	s.t.Helper()
	ctx, now := s.t.Context(), float64(time.Now().Unix())
	state, ok := horizonRecordings(s.t, order)[event]
	if !ok {
		s.t.Fatalf("nothing is recorded of %s", event)
	}
	pipe := s.redis.TxPipeline()
	for key, k := range state.Keys {
		for _, m := range k.Members {
			switch k.Type {
			case "list":
				pipe.RPush(ctx, key, m.Text)
			case "set":
				pipe.SAdd(ctx, key, m.Text)
			case "zset":
				score, err := strconv.ParseFloat(m.Score, 64)
				if err != nil {
					s.t.Fatal(err)
				}
				if strings.Contains(key, "queues:") { // a lease or a delay
					score += now - horizonClock
				}
				pipe.ZAdd(ctx, key, redis.Z{Score: score, Member: m.Text})
			}
		}
		if k.Type == "hash" {
			pipe.HSet(ctx, key, k.Fields)
		}
		if k.TTL > 0 {
			pipe.Expire(ctx, key, time.Duration(k.TTL)*time.Second)
		}
	}
	if _, err := pipe.Exec(ctx); err != nil {
		s.t.Fatal(err)
	}
}

// The names that Horizon gives to its processes: the host, a token, and for a
// supervisor its name in config/horizon.php.
const horizonMaster, horizonSupervisor = "web1-x5Kb", "web1-x5Kb:supervisor-1"

// horizonRuns writes what Horizon 5 writes each second while it runs, with a
// supervisor that has these processes. Its hashes lapse after 15 and 30 seconds
// there; here they stay for as long as a command may run, as if renewed.
func (s *shop) horizonRuns(processes string) {
	s.t.Helper()
	ctx, now := s.t.Context(), float64(time.Now().Unix())
	pipe := s.redis.TxPipeline()
	pipe.HSet(ctx, "laravel_horizon:master:"+horizonMaster, "name", horizonMaster, "environment", "production", "pid", 4700, "status", "running", "supervisors", `["`+horizonSupervisor+`"]`)
	pipe.ZAdd(ctx, "laravel_horizon:masters", redis.Z{Score: now, Member: horizonMaster})
	pipe.Expire(ctx, "laravel_horizon:master:"+horizonMaster, 3*limit)
	pipe.HSet(ctx, "laravel_horizon:supervisor:"+horizonSupervisor, "name", horizonSupervisor, "master", horizonMaster, "pid", 4711, "status", "running",
		"processes", processes, "options", `{"connection":"redis","queue":"payments","timeout":60,"maxTries":1}`)
	pipe.ZAdd(ctx, "laravel_horizon:supervisors", redis.Z{Score: now, Member: horizonSupervisor})
	pipe.Expire(ctx, "laravel_horizon:supervisor:"+horizonSupervisor, 3*limit)
	if _, err := pipe.Exec(ctx); err != nil {
		s.t.Fatal(err)
	}
}

// horizonTerminates is what `php artisan horizon:terminate` does to these keys:
// they go before the workers have ended.
func (s *shop) horizonTerminates() {
	s.t.Helper()
	ctx := s.t.Context()
	pipe := s.redis.TxPipeline()
	pipe.Del(ctx, "laravel_horizon:supervisor:"+horizonSupervisor, "laravel_horizon:master:"+horizonMaster)
	pipe.ZRem(ctx, "laravel_horizon:supervisors", horizonSupervisor)
	pipe.ZRem(ctx, "laravel_horizon:masters", horizonMaster)
	if _, err := pipe.Exec(ctx); err != nil {
		s.t.Fatal(err)
	}
}

// queueKeys are Laravel's keys of the queue and what they hold.
func (s *shop) queueKeys() map[string]string {
	s.t.Helper()
	ctx, all := s.t.Context(), map[string]string{}
	for _, key := range s.redis.Keys(ctx, "laravel_database_queues:*").Val() {
		switch s.redis.Type(ctx, key).Val() {
		case "list":
			all[key] = fmt.Sprint(s.redis.LRange(ctx, key, 0, -1).Val())
		default:
			all[key] = fmt.Sprint(s.redis.ZRangeWithScores(ctx, key, 0, -1).Val())
		}
	}
	return all
}

// A shop with Horizon changes over, and back, by the commands of docs/switching.md,
// on the keys that a Horizon recorded: no start beside its supervisors, what its
// workers have had is held, what they have not had is charged, its dashboard
// shows all of it as it shows PHP's own jobs, and nothing is left in its way.
func TestSwitchHorizon(t *testing.T) {
	t.Parallel()
	s := newShop(t, "sqlite://"+filepath.Join(t.TempDir(), "fence.db"), options{})
	s.withHorizon()
	s.edit(`['App\Jobs\ChargeOrder', 'App\Message\ChargeOrder']`, `'App\Jobs\CaptureOrder'`)
	s.edit("order: orderId", "order: order.id")
	s.exec("CREATE TABLE payments (id INTEGER PRIMARY KEY, order_id TEXT NOT NULL, reference TEXT, cents INTEGER NOT NULL, status TEXT NOT NULL)")
	w := &walk{shop: s, framework: "laravel", folder: t.TempDir(), etc: filepath.Dir(s.file), blocks: fenced(t, "switching.md", "switching-out.md"), env: typed(t)}
	w.write(filepath.Join(w.etc, "zabor.env"), "")
	ctx := t.Context()
	const queue, horizon = "laravel_database_queues:payments", "laravel_horizon:"
	id := func(n int) string { return fmt.Sprintf("00000000-0000-4000-8000-%012d", n) }

	// Before. Each recording is of another job.
	jobs := map[string]struct {
		order string
		n     int
	}{
		"pushed":    {"2001", 1}, // never taken
		"reserved":  {"2004", 4}, // its worker was killed, nobody knows when
		"completed": {"2005", 5}, // charged and acked; its tag is watched
		"released":  {"2007", 7}, // charged, then released because of an exception
		"migrated":  {"2008", 8}, // its lease ended, and it is ready again
	}
	for _, event := range slices.Sorted(maps.Keys(jobs)) {
		s.restore(event, jobs[event].order)
	}
	s.exec("INSERT INTO payments (order_id, reference, cents, status) VALUES ('2005', 'pay_5', 129900, 'paid'), ('2007', 'pay_7', 129900, 'paid'), ('2008', NULL, 129900, 'new')")
	w.write(filepath.Join(w.folder, "payments.csv"), "id,order,amount,currency,status\npay_5,2005,129900,EUR,paid\npay_8,2008,129900,EUR,failed\n")
	before := s.queueKeys()

	// While a supervisor works the queue, each says what to change, and takes
	// nothing.
	says := []string{"Horizon's supervisor " + horizonSupervisor + " has processes for redis:payments", "take 'payments' out of the `queue` of 'supervisor-1' in config/horizon.php (defaults and environments), and restart Horizon"}
	refused := func(processes string) {
		t.Helper()
		for block, code := range map[string]int{"live": exit.BadAnswer, "worker": exit.WrongUsage} {
			s.horizonRuns(processes)
			out := w.run(block, code)
			for _, text := range says {
				if !strings.Contains(out, text) {
					t.Errorf("%s beside Horizon does not say %q:\n%s", block, text, out)
				}
			}
		}
	}
	refused(`{"redis:payments":1,"redis:default":3}`) // balanced: a pool for each queue
	refused(`{"redis:emails,payments":3}`)

	// The configuration is changed: it takes other queues. The name of one that was
	// killed stays in the set for a while.
	s.horizonRuns(`{"redis:default":3,"redis-long:payments":1}`)
	w.run("live", exit.Good)
	s.horizonTerminates()
	s.redis.ZAdd(ctx, horizon+"supervisors", redis.Z{Score: float64(time.Now().Unix()), Member: "web2-killed:supervisor-1"})
	w.run("live", exit.Good)

	out := w.run("peek", exit.Good)
	if calls, holds := strings.Count(out, "verdict  call"), strings.Count(out, "verdict  hold"); calls != 1 || holds != 3 {
		t.Errorf("peek says call of %d messages and hold of %d, want 1 and 3\n%s", calls, holds, out)
	}
	// The first line of the block is the dry run, which writes nothing.
	whole := w.blocks["import"]
	w.blocks["import"], _, _ = strings.Cut(whole, "\n")
	w.run("import", exit.Good)
	if rows := s.rows(); len(rows) != 0 {
		t.Errorf("the dry run has written %v", rows)
	}
	w.blocks["import"] = whole
	w.run("import", exit.Good)
	states := func(when string, want map[string]zabor.State) {
		t.Helper()
		for order, state := range want {
			if got := s.state(order); got != state {
				t.Errorf("%s order %s is %q, want %q", when, order, got, state)
			}
		}
	}
	states("after the import", map[string]zabor.State{"2001": "", "2004": zabor.Held, "2005": zabor.Settled, "2007": zabor.Settled, "2008": zabor.Held})
	if after := s.queueKeys(); !maps.Equal(after, before) {
		t.Errorf("the queue has changed before a worker started:\n%v\n%v", before, after)
	}

	// The worker takes what is ready, and when their time has come what was
	// delayed and what the killed worker had.
	running := w.begin("worker")
	s.charges(1)
	for _, place := range []string{":delayed", ":reserved"} {
		for _, member := range s.redis.ZRange(ctx, queue+place, 0, -1).Val() {
			s.redis.ZAddXX(ctx, queue+place, redis.Z{Score: 1, Member: member})
		}
	}
	eventuallyWithin(t, 2*limit, "the queue is empty", func() bool { return s.depth() == depth{} })
	eventually(t, "what is held is parked", func() bool { n, _ := s.failed(); return n == 2 })
	running.signal(syscall.SIGTERM)
	running.exit(exit.Good)
	s.chargedOnce("2001")
	states("after the worker", map[string]zabor.State{"2004": zabor.Held, "2007": zabor.Settled, "2008": zabor.Held})
	if n := s.provider.Stats().Charges; n != 1 {
		t.Errorf("%d charges, want one", n)
	}

	// Horizon's dashboard has them where Horizon itself would have put them.
	recorded := horizonRecordings(t, "2001")
	members := func(list string, want ...int) {
		t.Helper()
		var ids []string
		for _, n := range want {
			ids = append(ids, id(n))
		}
		got := s.redis.ZRange(ctx, horizon+list, 0, -1).Val()
		slices.Sort(got)
		if !slices.Equal(got, ids) {
			t.Errorf("%s has %v, want %v", list, got, ids)
		}
	}
	members("recent_jobs", 1, 4, 5, 7, 8)
	members("pending_jobs")
	members("completed_jobs", 1, 5, 7)
	members("failed_jobs", 4, 8)
	members("recent_failed_jobs", 4, 8)
	members("monitored_jobs", 5)
	members(`failed:App\Models\Order:2004`, 4)
	for n, event := range map[int]string{1: "completed", 4: "failed", 5: "completed", 7: "completed", 8: "failed"} {
		var want []string
		for _, k := range recorded[event].Keys {
			if k.Fields["status"] == event {
				want = slices.Sorted(maps.Keys(k.Fields))
			}
		}
		if event == "failed" { // a job that zabor parks is never shown as completed
			want = slices.DeleteFunc(want, func(name string) bool { return name == "completed_at" })
		}
		hash := s.redis.HGetAll(ctx, horizon+id(n)).Val()
		if got := slices.Sorted(maps.Keys(hash)); !slices.Equal(got, want) || hash["status"] != event || hash["queue"] != "payments" || hash["connection"] != "redis" {
			t.Errorf("job %d is %v, want %s with %v", n, hash, event, want)
		}
		if ttl := s.redis.TTL(ctx, horizon+id(n)).Val(); ttl <= 0 || (event == "failed") != (ttl > 24*time.Hour) && n != 5 {
			t.Errorf("job %d expires in %s", n, ttl)
		}
	}
	for _, hash := range []string{"queue:payments", `job:App\Jobs\CaptureOrder`} { // one of PHP's, two of zabor's
		if n := s.redis.HGet(ctx, horizon+hash, "throughput").Val(); n != "3" {
			t.Errorf("%s has a throughput of %s, want 3", hash, n)
		}
	}

	// The way back: what is held is decided, and goes from Horizon's list too, whose
	// Retry would push it to PHP without a fence.
	if out := w.run("out", exit.BadAnswer); !strings.Contains(out, "2004/charge is held") || !strings.Contains(out, "2008/charge is held") {
		t.Errorf("the drain does not list what is held:\n%s", out)
	}
	for _, order := range []string{"2004", "2008"} {
		w.types(w.block("env")+"ORDER="+order+" REFERENCE=pay_"+order+"\n"+w.block("settle"), exit.Good)
	}
	w.run("out", exit.Good)
	members("failed_jobs")
	if n := s.redis.Exists(ctx, horizon+id(4), horizon+id(8)).Val(); n != 0 {
		t.Errorf("Horizon can still retry %d jobs that were settled", n)
	}
	if n, _ := s.failed(); n != 0 {
		t.Errorf("%d failed jobs are left, want none", n)
	}
	s.empty()

	// Horizon has the queue again: there are the keys that its push makes, and no
	// others; zabor starts no more.
	for key := range s.queueKeys() {
		if key != queue+":notify" {
			t.Errorf("%s is left", key)
		}
	}
	// Of zabor's own the name of the installation stays, and what lapses by itself.
	for _, key := range s.redis.Keys(ctx, "laravel_database_zabor:*").Val() {
		if key != "laravel_database_zabor:payments:scope" && s.redis.TTL(ctx, key).Val() <= 0 {
			t.Errorf("%s is left", key)
		}
	}
	s.redis.Del(ctx, queue+":notify", horizon+id(1)) // another job has the recording's uuid
	s.restore("pushed", "2009")
	after := s.queueKeys()
	refused(`{"redis:payments":1,"redis:default":3}`)
	if got := s.queueKeys(); !maps.Equal(got, after) || len(got) != 2 {
		t.Errorf("the queue has changed:\n%v\n%v", after, got)
	}
	if n := s.provider.Stats().Charges; n != 1 {
		t.Errorf("%d charges, want one", n)
	}
}

package laravel

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// recordedKey is a key as it was recorded from Horizon.
type recordedKey struct {
	Type    string
	TTL     int
	Fields  map[string]string
	Members []struct{ Text, Score string }
}

func horizonStates(t *testing.T) map[string]map[string]recordedKey {
	t.Helper()
	text, err := os.ReadFile("testdata/horizon.json")
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		States map[string]struct{ Keys map[string]recordedKey }
	}
	if err := json.Unmarshal(text, &file); err != nil {
		t.Fatal(err)
	}
	all := map[string]map[string]recordedKey{}
	for name, s := range file.States {
		all[name] = s.Keys
	}
	return all
}

// restore puts a recorded state into Redis.
func (q queue) restore(t *testing.T, keys map[string]recordedKey) {
	t.Helper()
	ctx := t.Context()
	for key, k := range keys {
		var err error
		for _, m := range k.Members {
			score, _ := strconv.ParseFloat(m.Score, 64)
			switch k.Type {
			case "list":
				err = errors.Join(err, q.app.RPush(ctx, key, m.Text).Err())
			case "set":
				err = errors.Join(err, q.app.SAdd(ctx, key, m.Text).Err())
			case "zset":
				err = errors.Join(err, q.app.ZAdd(ctx, key, redis.Z{Score: score, Member: m.Text}).Err())
			}
		}
		if k.Type == "hash" {
			err = errors.Join(err, q.app.HSet(ctx, key, k.Fields).Err())
		}
		if k.TTL > 0 {
			err = errors.Join(err, q.app.Expire(ctx, key, time.Duration(k.TTL)*time.Second).Err())
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

var anyUUID = regexp.MustCompile(`00000000-0000-4000-8000-0000000000\d\d`)

// shapeOf says of each of Horizon's keys what it is, and whether it expires.
func shapeOf(keys map[string]recordedKey) []string {
	var all []string
	for key, k := range keys {
		if !strings.HasPrefix(key, "laravel_horizon:") {
			continue
		}
		what := slices.Sorted(maps.Keys(k.Fields))
		for _, m := range k.Members {
			what = append(what, m.Text)
		}
		slices.Sort(what)
		line := fmt.Sprint(key, " ", k.Type, " ", what, " expires=", k.TTL > 0, " ", k.Fields["status"])
		all = append(all, anyUUID.ReplaceAllString(line, "UUID"))
	}
	slices.Sort(all)
	return all
}

// state reads what Redis holds.
func (q queue) state(t *testing.T) map[string]recordedKey {
	t.Helper()
	ctx := t.Context()
	all := map[string]recordedKey{}
	for _, key := range q.app.Keys(ctx, "*").Val() {
		k := recordedKey{Type: q.app.Type(ctx, key).Val(), TTL: int(q.app.TTL(ctx, key).Val() / time.Second)}
		var members []string
		switch k.Type {
		case "hash":
			k.Fields = q.app.HGetAll(ctx, key).Val()
		case "zset":
			for _, z := range q.set(t, key) {
				k.Members = append(k.Members, struct{ Text, Score string }{z.Member.(string), fmt.Sprint(z.Score)})
			}
		case "set":
			members = q.app.SMembers(ctx, key).Val()
		case "list":
			members = q.list(t, key)
		}
		for _, m := range members {
			k.Members = append(k.Members, struct{ Text, Score string }{Text: m})
		}
		all[key] = k
	}
	return all
}

func horizonQueue(t *testing.T, change func(*Config)) queue {
	t.Helper()
	return newQueue(t, func(c *Config) {
		c.Horizon = "laravel_horizon:"
		c.Warn = func(err error) { t.Errorf("Warn: %v", err) }
		if change != nil {
			change(c)
		}
	})
}

// After each event Horizon's keys are, in names, types, fields, members and expiry,
// what they are after the same event in PHP.
func TestHorizonKeysAsRecorded(t *testing.T) {
	states := horizonStates(t)
	watched := func(t *testing.T, q queue) { // as when the job was pushed
		ctx := t.Context()
		uuid := anyUUID.FindString(fmt.Sprint(q.app.Keys(ctx, "laravel_horizon:0*").Val()))
		if err := errors.Join(q.app.SAdd(ctx, "laravel_horizon:monitoring", `App\Models\Order:1042`).Err(),
			q.app.ZAdd(ctx, `laravel_horizon:App\Models\Order:1042`, redis.Z{Score: 1795981590.7234, Member: uuid}).Err()); err != nil {
			t.Fatal(err)
		}
	}
	for i, tt := range []struct {
		from, to string
		prepare  func(t *testing.T, q queue)
		do       func(t *testing.T, q queue)
		missing  []string // fields that only PHP writes
	}{
		{from: "pushed", to: "reserved", do: func(t *testing.T, q queue) { q.receive(t) }},
		{from: "pushed", to: "completed", prepare: watched, do: func(t *testing.T, q queue) {
			if err := q.Ack(t.Context(), q.receive(t)); err != nil {
				t.Error(err)
			}
		}},
		{from: "pushed", to: "released", do: func(t *testing.T, q queue) {
			if err := q.Later(t.Context(), q.receive(t), 30*time.Second); err != nil {
				t.Error(err)
			}
		}},
		{from: "pushed", to: "released", do: func(t *testing.T, q queue) {
			if err := q.PutBack(t.Context(), q.receive(t)); err != nil {
				t.Error(err)
			}
		}},
		{from: "pushed", to: "released", do: func(t *testing.T, q queue) {
			if err := q.Forward(t.Context(), q.receive(t), "other"); err != nil {
				t.Error(err)
			}
		}},
		// A job that zabor parks is never shown as completed in between.
		{from: "pushed-string", to: "failed", missing: []string{"completed_at"}, do: func(t *testing.T, q queue) {
			if err := q.Park(t.Context(), q.receive(t), "held"); err != nil {
				t.Error(err)
			}
		}},
	} {
		t.Run(fmt.Sprintf("%d %s to %s", i, tt.from, tt.to), func(t *testing.T) {
			_, failed := sqliteJobs(t)
			q := horizonQueue(t, func(c *Config) { c.Failed = failed })
			q.restore(t, states[tt.from])
			if tt.prepare != nil {
				tt.prepare(t, q)
			}
			tt.do(t, q)
			want := states[tt.to]
			for _, k := range want {
				for _, name := range tt.missing {
					delete(k.Fields, name)
				}
			}
			if got, want := shapeOf(q.state(t)), shapeOf(want); !slices.Equal(got, want) {
				t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
			}
		})
	}
}

// A silenced class is listed as such; what was lost is not shown as completed; a
// job whose lease has ended is pending, then reserved again.
func TestHorizonSilencedLostAndMigrated(t *testing.T) {
	q := horizonQueue(t, lease(time.Second))
	ctx := t.Context()
	q.push(t, strings.Replace(payloadOf("1"), `"attempts":0`, `"silenced":true,"attempts":0`, 1))
	old := q.receive(t)
	held := q.receive(t)
	if err := q.Ack(ctx, old); err == nil {
		t.Fatal("Ack of a lost job: no error")
	}
	hash := "laravel_horizon:uuid-1"
	if ttl := q.app.TTL(ctx, hash).Val(); ttl <= 0 || ttl > time.Hour {
		t.Errorf("a hash that had expired before the job was taken expires in %v", ttl)
	}
	if got := q.app.HGet(ctx, hash, "status").Val(); got != "reserved" {
		t.Errorf("status %q after the Ack of a lost job, want reserved", got)
	}
	if err := q.Ack(ctx, held); err != nil {
		t.Fatal(err)
	}
	if got := q.set(t, "laravel_horizon:silenced_jobs"); len(got) != 1 || len(q.set(t, "laravel_horizon:completed_jobs")) != 0 {
		t.Errorf("silenced %v", got)
	}
	// Its hash had never been there: it is whole, and expires.
	got := q.app.HGetAll(ctx, hash).Val()
	for name, want := range map[string]string{"id": "uuid-1", "connection": "redis", "queue": "default", "name": `App\Jobs\Legacy`, "status": "completed"} {
		if got[name] != want {
			t.Errorf("%s %q, want %q", name, got[name], want)
		}
	}
	if ttl := q.app.TTL(ctx, hash).Val(); ttl <= 0 || ttl > time.Hour {
		t.Errorf("it expires in %v", ttl)
	}
	if n := q.app.HGet(ctx, "laravel_horizon:queue:default", "throughput").Val(); n != "1" {
		t.Errorf("throughput %s, want 1", n)
	}
	q.push(t, payloadOf("2"))
	q.receive(t)
	if err := q.app.Do(ctx, "EVAL", `for _, m in ipairs(redis.call('ZRANGE', KEYS[1], 0, -1)) do redis.call('ZADD', KEYS[1], 1, m) end`, 1, q.k.reserved).Err(); err != nil && !errors.Is(err, redis.Nil) {
		t.Fatal(err)
	}
	q.push(t, payloadOf("3"))
	if m := q.receive(t); m.ID != "uuid-3" {
		t.Fatalf("received %s", m.ID)
	}
	if got := q.app.HGet(ctx, "laravel_horizon:uuid-2", "status").Val(); got != "pending" {
		t.Errorf("status %q of a job whose lease has ended, want pending", got)
	}
}

// Whoever was retried from the dashboard is told what became of the retry, and is
// not made anew where it has expired.
func TestHorizonRetryOf(t *testing.T) {
	states := horizonStates(t)
	for _, status := range []string{"completed", "failed"} {
		_, failed := sqliteJobs(t)
		q := horizonQueue(t, func(c *Config) { c.Failed = failed })
		ctx := t.Context()
		q.restore(t, states["retry"])
		m := q.receive(t)
		var err error
		if status == "completed" {
			err = q.Ack(ctx, m)
		} else {
			err = q.Park(ctx, m, "held")
		}
		if err != nil {
			t.Fatal(err)
		}
		var retries []struct {
			ID, Status string
			At         int64 `json:"retried_at"`
		}
		const parent = "laravel_horizon:00000000-0000-4000-8000-000000000010"
		if err := json.Unmarshal([]byte(q.app.HGet(ctx, parent, "retried_by").Val()), &retries); err != nil {
			t.Fatal(err)
		}
		if len(retries) != 1 || retries[0].ID != m.ID || retries[0].Status != status || retries[0].At != 1795981590 {
			t.Errorf("retried_by %+v, want %s", retries, status)
		}
		q.app.Del(ctx, parent)
		q.push(t, strings.Replace(payloadOf("1"), `"attempts":0`, `"retry_of":"00000000-0000-4000-8000-000000000010","attempts":0`, 1))
		if err := q.Ack(ctx, q.receive(t)); err != nil {
			t.Fatal(err)
		}
		if n := q.app.Exists(ctx, parent).Val(); n != 0 {
			t.Error("the hash of a parent that had expired was made anew")
		}
	}
}

// Horizon's keys fail no job: here each of them is of another type.
func TestHorizonFailsNoJob(t *testing.T) {
	db, failed := sqliteJobs(t)
	var warned atomic.Int64
	q := newQueue(t, func(c *Config) {
		c.Horizon, c.Failed = "laravel_horizon:", failed
		c.Warn = func(error) { warned.Add(1) }
	})
	ctx := t.Context()
	for _, name := range []string{"uuid-1", "uuid-2", "uuid-3", "recent_jobs", "pending_jobs", "completed_jobs", "failed_jobs", "monitoring", "queue:default"} {
		if err := q.app.Set(ctx, "laravel_horizon:"+name, "x", 0).Err(); err != nil {
			t.Fatal(err)
		}
	}
	q.push(t, payloadOf("1"))
	q.push(t, payloadOf("2"))
	q.push(t, payloadOf("3"))
	ack, later, park := q.receive(t), q.receive(t), q.receive(t)
	if err := errors.Join(q.Ack(ctx, ack), q.Later(ctx, later, time.Hour), q.Park(ctx, park, "held"), q.Retry(ctx, "uuid-3")); err != nil {
		t.Fatal(err)
	}
	if d, _ := q.Depth(ctx); d.Ready != 1 || d.Delayed != 1 || d.Reserved != 0 || len(rows(t, db)) != 0 {
		t.Errorf("depth %+v", d)
	}
	if warned.Load() != 7 {
		t.Errorf("%d warnings, want 7", warned.Load())
	}
}

// A retry and the next job of a chain are pushed, for Horizon too.
func TestHorizonPushed(t *testing.T) {
	states := horizonStates(t)
	q := horizonQueue(t, nil)
	for key, k := range states["pushed"] {
		if key == q.k.ready {
			if done, err := q.Push(t.Context(), []byte(k.Members[0].Text)); err != nil || !done {
				t.Fatal(done, err)
			}
		}
	}
	if got, want := shapeOf(q.state(t)), shapeOf(states["pushed"]); !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	q.app.FlushDB(t.Context())
	q.push(t, chained("", 0, `O:4:"Ship":0:{}`))
	m := q.receive(t)
	m.Settled = true
	if err := q.Ack(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	if got := q.set(t, "laravel_horizon:pending_jobs"); len(got) != 1 || got[0].Member == m.ID {
		t.Errorf("pending %v, want the next job alone", got)
	}
}

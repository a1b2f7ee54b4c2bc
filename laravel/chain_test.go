package laravel

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"zabor/worker"
)

// chained is the payload of a command with the given properties beside the
// chained jobs.
func chained(properties string, n int, jobs ...string) string {
	list := ""
	for i, job := range jobs {
		list += phpInt(i) + phpString(job)
	}
	return jobPayload(`O:3:"Job":` + itoa(n+1) + `:{` + properties + phpString("chained") + `a:` + itoa(len(jobs)) + `:{` + list + `}}`)
}

func itoa(n int) string          { b, _ := json.Marshal(n); return string(b) }
func phpInt(n int) string        { return "i:" + itoa(n) + ";" }
func phpString(s string) string  { return "s:" + itoa(len(s)) + `:"` + s + `";` }
func phpPair(k, v string) string { return phpString(k) + phpString(v) }

// The next job of a chain goes where PHP would send it; what PHP alone knows is
// refused before anything is called.
func TestNextOfAChain(t *testing.T) {
	const plain = `O:4:"Ship":1:{s:7:"orderId";i:2;}`
	onQueue := `O:4:"Ship":1:{` + phpPair("queue", "own") + `}`
	for _, tt := range []struct {
		name, raw, queue string
		delay            time.Duration
		refused          string
	}{
		{name: "no names anywhere", raw: chained("", 0, plain), queue: "default"},
		{name: "of the chain", raw: chained(phpPair("queue", "x")+phpPair("chainQueue", "mails"), 2, plain), queue: "mails"},
		{name: "of the job", raw: chained(phpPair("chainQueue", "mails"), 1, onQueue), queue: "own"},
		{name: "this connection", raw: chained(phpPair("connection", "redis")+phpPair("chainConnection", "redis"), 2, plain), queue: "default"},
		{name: "delayed", raw: chained("", 0, `O:4:"Ship":1:{s:5:"delay";i:30;}`), queue: "default", delay: 30 * time.Second},
		{name: "default queue unknown", raw: chained(phpPair("queue", "x"), 1, plain), refused: "names no queue"},
		{name: "default connection unknown", raw: chained(phpPair("connection", "redis"), 1, plain), refused: "names no connection"},
		{name: "other connection", raw: chained(phpPair("chainConnection", "sqs"), 1, plain), refused: "goes to connection sqs"},
		{name: "catch callbacks", raw: chained(phpString("chainCatchCallbacks")+`a:1:{i:0;s:1:"f";}`, 1, plain), refused: "catch callbacks"},
		{name: "closure", raw: chained("", 0, `O:34:"Illuminate\Queue\CallQueuedClosure":0:{}`), refused: "closure"},
		{name: "date", raw: chained("", 0, `O:4:"Ship":1:{s:5:"delay";O:8:"DateTime":0:{}}`), refused: "delayed to a date"},
		{name: "tries of an object", raw: chained("", 0, `O:4:"Ship":1:{s:5:"tries";O:1:"X":0:{}}`), refused: "property tries"},
		{name: "no object", raw: chained("", 0, `i:1;`), refused: "no object"},
		{name: "no serialization", raw: chained("", 0, `O:4`), refused: "cannot be read"},
		{name: "batch", raw: chained(phpPair("batchId", "b"), 1, plain), refused: "batch"},
	} {
		q := newQueue(t, nil)
		q.push(t, tt.raw)
		m := q.receive(t)
		if tt.refused != "" {
			if m.Err == nil || m.Chained || !strings.Contains(m.Err.Error(), tt.refused) || !strings.Contains(m.Err.Error(), toPHP) {
				t.Errorf("%s: error %v, want %q in it", tt.name, m.Err, tt.refused)
			}
			continue
		}
		if m.Err != nil || !m.Chained {
			t.Errorf("%s: error %v, Chained %v", tt.name, m.Err, m.Chained)
			continue
		}
		m.Settled = true
		if err := q.Ack(t.Context(), m); err != nil {
			t.Errorf("%s: Ack: %v", tt.name, err)
		}
		to := names(q.c.Prefix, tt.queue, false)
		if due := q.set(t, to.delayed); tt.delay > 0 {
			if len(due) != 1 || due[0].Score < q.now(t)+tt.delay.Seconds()-2 {
				t.Errorf("%s: delayed %v", tt.name, due)
			}
		} else if got := q.list(t, to.ready); len(got) != 1 || len(due) != 0 || len(q.list(t, to.notify)) != 1 {
			t.Errorf("%s: queue %s holds %q, delayed %v", tt.name, tt.queue, got, due)
		}
		if got := q.set(t, q.k.reserved); len(got) != 0 {
			t.Errorf("%s: reserved %v", tt.name, got)
		}
	}
}

// The chain goes on once, after a success, and only if the job was still ours.
func TestChainGoesOnOnlyWhenSettled(t *testing.T) {
	q := newQueue(t, lease(time.Second))
	ctx := t.Context()
	raw := chained("", 0, `O:4:"Ship":0:{}`)
	q.push(t, raw)
	m := q.receive(t)
	if err := q.Ack(ctx, m); err != nil || len(q.list(t, q.k.ready)) != 0 {
		t.Fatalf("Ack of a declined one: %v, queue %q", err, q.list(t, q.k.ready))
	}
	q.push(t, raw)
	old := q.receive(t)
	held := q.receive(t) // the reserve of old has ended
	old.Settled, held.Settled = true, true
	if err := q.Ack(ctx, old); err == nil || len(q.list(t, q.k.ready)) != 0 {
		t.Fatalf("Ack of a lost one: %v, queue %q", err, q.list(t, q.k.ready))
	}
	if err := q.Ack(ctx, held); err != nil || len(q.list(t, q.k.ready)) != 1 {
		t.Fatalf("Ack: %v, queue %q", err, q.list(t, q.k.ready))
	}
	if err := q.Ack(ctx, held); err == nil || len(q.list(t, q.k.ready)) != 1 {
		t.Fatalf("Ack twice: %v, queue %q", err, q.list(t, q.k.ready))
	}
	next := q.receive(t)
	if next.Class != "Ship" || next.Err != nil || next.Chained || next.DeliveredBefore || next.ID == m.ID || len(next.ID) != 36 {
		t.Errorf("next %+v", next)
	}
}

// On a cluster whose queues are in different slots the next job is pushed before
// this one is removed.
func TestChainAcrossSlots(t *testing.T) {
	c := clusterOfOne(t)
	s, err := NewSource(c, Config{Queue: "default", Prefix: "p:", Connection: "redis", RetryAfter: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	if err := c.RPush(ctx, s.k.ready, chained(phpPair("chainQueue", "mails"), 1, `O:4:"Ship":0:{}`), payloadOf("2")).Err(); err != nil {
		t.Fatal(err)
	}
	q := queue{Source: s}
	m, other := q.receive(t), q.receive(t)
	m.Settled = true
	for range 2 {
		if err := s.Ack(ctx, m); (err == nil) != (m.Settled) {
			t.Errorf("Ack = %v", err)
		}
		if n := c.LLen(ctx, "p:queues:{mails}").Val(); n != 1 {
			t.Errorf("%d jobs in mails, want 1", n)
		}
		m.Settled = false
	}
	if err := s.Forward(ctx, other, "mails"); err != nil {
		t.Error(err)
	}
	if n := c.LLen(ctx, "p:queues:{mails}").Val(); n != 2 {
		t.Errorf("%d jobs in mails, want 2", n)
	}
	if d, err := s.Depth(ctx); err != nil || d != (worker.Depth{}) {
		t.Errorf("depth %+v, %v", d, err)
	}
}

// What zabor dispatches is, but for uuid and id, what PHP dispatches for the same
// job; and PHP takes it and goes on with the chain.
func TestLaravelGoesOnWithAChain(t *testing.T) {
	needLaravel(t)
	q := newQueue(t, func(c *Config) { c.Queue = "payments" })
	laravel(t, q, "chain.php", "push")
	first := q.list(t, q.k.ready)[0]
	file := filepath.Join(t.TempDir(), "payload.json")
	if err := os.WriteFile(file, []byte(first), 0o600); err != nil {
		t.Fatal(err)
	}
	m := q.receive(t)
	if m.Err != nil || !m.Chained || m.Class != "Charge" {
		t.Fatalf("message %+v", m)
	}
	laravel(t, q, "chain.php", "next", file)
	want := q.list(t, q.k.ready)
	q.app.Del(t.Context(), q.k.ready)
	m.Settled = true
	if err := q.Ack(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	got := q.list(t, q.k.ready)
	if len(got) != 1 || len(want) != 1 {
		t.Fatalf("zabor queued %q, PHP %q", got, want)
	}
	var ours, theirs map[string]any
	for text, to := range map[string]*map[string]any{got[0]: &ours, want[0]: &theirs} {
		if err := json.Unmarshal([]byte(text), to); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"uuid", "id"} {
		if o, p := ours[name].(string), theirs[name].(string); len(o) != len(p) || o == p {
			t.Errorf("%s: %q and %q", name, o, p)
		}
		delete(ours, name)
		delete(theirs, name)
	}
	if !reflect.DeepEqual(ours, theirs) {
		t.Errorf("zabor queued\n%v\nPHP\n%v", ours, theirs)
	}

	out := laravel(t, q, "chain.php", "run")
	for _, want := range []string{`"orderId":2`, `"left":0`, `"class":"Ship"`, `"tries":3`, `"timeout":45`, `"note":"5a6fc3ab20f09f9880203c2f623e200020e280a8"`} {
		if !strings.Contains(out, want) {
			t.Errorf("PHP ran %s, want %s in it", out, want)
		}
	}
	last := q.receive(t) // PHP has dispatched it, delayed by a second
	if last.Err != nil || last.Data["orderId"] != int64(3) || last.Chained {
		t.Errorf("the last job %+v", last)
	}
}

// What PHP knows at a dispatch and puts beside the command is there too.
func TestNextOfANewerLaravel(t *testing.T) {
	raw := strings.Replace(strings.Replace(string(recorded(t, "v13-chained")), `s:7:\"chained\"`, `s:10:\"chainQueue\";s:5:\"mails\";s:7:\"chained\"`, 1), `CaptureOrder\":4:{s:5`, `CaptureOrder\":5:{s:5`, 1)
	raw = strings.Replace(raw, `"createdAt"`, `"illuminate:log:context":{"data":{"a":"i:1;"},"hidden":{}},"pushedAt":"1.5","createdAt"`, 1)
	m, next := decode([]byte(raw), nil)
	if m.Err != nil || next == nil {
		t.Fatalf("error %v", m.Err)
	}
	now := time.Unix(1795981590, 708000000)
	var got map[string]any
	if err := json.Unmarshal(next.payload(now), &got); err != nil {
		t.Fatal(err)
	}
	uuid := got["uuid"].(string)
	want := map[string]any{
		"uuid": uuid, "id": uuid, "displayName": `App\Jobs\Plain`, "job": handler, "maxTries": nil, "maxExceptions": nil, "failOnTimeout": false,
		"backoff": nil, "timeout": nil, "retryUntil": nil, "deleteWhenMissingModels": false,
		"data": map[string]any{"commandName": `App\Jobs\Plain`, "batchId": nil,
			"command": `O:14:"App\Jobs\Plain":4:{s:7:"orderId";i:2;s:5:"queue";s:5:"mails";s:10:"chainQueue";s:5:"mails";s:7:"chained";a:1:{i:0;s:44:"O:14:"App\Jobs\Plain":1:{s:7:"orderId";i:3;}";}}`},
		"illuminate:log:context": map[string]any{"data": map[string]any{"a": "i:1;"}, "hidden": map[string]any{}},
		"attempts":               0.0, "createdAt": 1795981590.0, "delay": nil,
		"type": "job", "tags": []any{}, "silenced": false, "pushedAt": "1795981590.708",
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
}

package laravel

import (
	"cmp"
	"encoding/hex"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"zabor/internal/servers"
	"zabor/worker"
)

// What a PHP worker has had is seen as delivered before, wherever it lies; what a
// worker of zabor's has is not.
func TestLookAtWhatPHPHasHad(t *testing.T) {
	needLaravel(t)
	q := newQueue(t, lease(time.Minute))
	for _, order := range []string{"ours", "taken", "expired", "released", "fresh"} {
		q.push(t, payloadOf(order))
	}
	q.receive(t)
	work(t, q, 60, "leave", 2)
	work(t, q, 60, "release", 1)
	ctx := t.Context()
	for _, z := range q.set(t, q.k.reserved) {
		if strings.Contains(z.Member.(string), "expired") { // and was moved to the list by whoever came next
			q.app.ZRem(ctx, q.k.reserved, z.Member)
			q.app.RPush(ctx, q.k.ready, z.Member)
		}
	}
	q.app.RPush(ctx, q.k.ready, strings.Replace(payloadOf("from Horizon"), `"attempts":0`, `"attempts":0,"retry_of":"x"`, 1))
	type seen struct {
		place  worker.Place
		before bool
		holder string
	}
	got := map[string]seen{}
	for m, err := range q.Look(ctx) {
		if err != nil || m.Err != nil {
			t.Fatal(err, m.Err)
		}
		got[fmt.Sprint(m.Data["orderId"])] = seen{m.Place, m.DeliveredBefore, m.Holder}
	}
	want := map[string]seen{
		"ours":         {worker.Reserved, false, "zabor"},
		"taken":        {worker.Reserved, true, ""},
		"released":     {worker.Delayed, true, ""},
		"expired":      {worker.Ready, true, ""},
		"fresh":        {worker.Ready, false, ""},
		"from Horizon": {worker.Ready, true, ""},
	}
	for order, w := range want {
		if got[order] != w {
			t.Errorf("%s: %+v, want %+v", order, got[order], w)
		}
	}
	if len(got) != len(want) {
		t.Errorf("seen %v", got)
	}
}

// Of Laravel's workers those are seen that have a job in hand, and no worker of
// zabor's is taken for one.
func TestOthersByTheirJobs(t *testing.T) {
	needLaravel(t)
	q := newQueue(t, lease(time.Minute))
	for _, order := range []string{"ours", "renewed", "theirs"} {
		q.push(t, payloadOf(order))
	}
	q.receive(t)
	if err := q.Renew(t.Context(), q.receive(t)); err != nil {
		t.Fatal(err)
	}
	others := func() []worker.Other {
		t.Helper()
		others, err := q.Others(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return others
	}
	if got := others(); len(got) > 0 {
		t.Fatalf("%v, and only zabor has jobs", got)
	}
	work(t, q, 60, "leave", 1)
	if got := others(); len(got) != 1 || got[0].Named || !strings.Contains(got[0].What, "has reserved job") || !strings.Contains(got[0].Stop, "queue:work") {
		t.Errorf("others %+v, want the one that has a job", got)
	}
}

// Horizon's supervisors by the keys that its processes keep (Horizon 5): a sorted
// set of names with the second of their last sign of life, and a hash each, which
// lapses 30 seconds after the last one.
func TestOthersByHorizon(t *testing.T) {
	q := newQueue(t, func(c *Config) { c.Horizon, c.Queue = "laravel_horizon:", "payments" })
	ctx := t.Context()
	supervisor := func(name, processes string) {
		q.app.ZAdd(ctx, "laravel_horizon:supervisors", redis.Z{Score: q.now(t), Member: name})
		if processes == "" {
			return
		}
		key := "laravel_horizon:supervisor:" + name
		q.app.HSet(ctx, key, "name", name, "master", "web1-x5Kb", "pid", 4711, "status", "running", "processes", processes,
			"options", `{"connection":"redis","queue":"payments","timeout":60,"maxTries":1}`)
		q.app.Expire(ctx, key, 30*time.Second)
	}
	supervisor("web1-x5Kb:supervisor-1", `{"redis:default":3}`)
	supervisor("web1-x5Kb:supervisor-2", `{"redis:payments":1}`)
	supervisor("web1-x5Kb:supervisor-3", `{"redis:high,payments,low":2}`)
	supervisor("web1-x5Kb:supervisor-4", `{"redis:payments-eu":2,"redis-long:payments":1}`)
	supervisor("web1-x5Kb:dead", "")
	supervisor("web1-x5Kb:odd", "[]")
	others, err := q.Others(ctx)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, o := range others {
		names = append(names, o.Name)
		if !o.Named || !strings.Contains(o.Stop, "take 'payments' out of the `queue` of 'supervisor-") {
			t.Errorf("%+v", o)
		}
	}
	if want := []string{"supervisor web1-x5Kb:supervisor-2", "supervisor web1-x5Kb:supervisor-3"}; !slices.Equal(names, want) {
		t.Errorf("others %q, want %q", names, want)
	}
}

// Payloads as phpredis' serializers and compressors leave them.
func TestWrapped(t *testing.T) {
	servers.Need(t, "php", "php-cli")
	q := newQueue(t, nil)
	_, port, _ := strings.Cut(q.addr.Addr, ":")
	cmd := exec.Command("php", "testdata/wrap.php", port)
	cmd.Stdin = strings.NewReader(payloadOf("1"))
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("wrap.php: %v\n%s", err, out)
	}
	lines := strings.Fields(string(out))
	if len(lines) < 2*4 {
		t.Skipf("phpredis was built without what this tests: %q; apt-get install php-redis php-igbinary", lines)
	}
	for i := 0; i+1 < len(lines); i += 2 {
		raw, err := hex.DecodeString(lines[i+1])
		if err != nil {
			t.Fatal(err)
		}
		got := Wrapped(raw)
		serializer, compressor, _ := strings.Cut(lines[i], "+")
		want := map[string]string{"none": "", "php": "the PHP serializer", "json": "the JSON serializer", "igbinary": "the igbinary serializer"}[serializer]
		if compressor != "none" {
			want = map[string]string{"lzf": "LZF", "zstd": "zstd", "lz4": "LZ4"}[compressor] + " compression"
		}
		if got != want {
			t.Errorf("%s: %q, want %q: %.40x", lines[i], got, want, raw)
		}
	}
	for _, raw := range []string{"", "{", "poison", `s:3:"abc";`, `"{"`, `foobar{"a":1}`, "\x01{", "\x00\x00\x00\x02", payloadOf("1"), "\xd9\x10"} {
		if got := Wrapped([]byte(raw)); got != "" {
			t.Errorf("%q: %s", raw, got)
		}
	}
	if got := Wrapped([]byte("\xd9\x40" + payloadOf("1"))); got != "the msgpack serializer" {
		t.Errorf("msgpack: %q", got)
	}
}

// A job that phpredis has serialized is found where it lies, and told with the
// reason when it is delivered; its bytes are all there.
func TestASerializedJobIsKept(t *testing.T) {
	q := newQueue(t, nil)
	raw := fmt.Sprintf(`s:%d:"%s";`, len(payloadOf("1")), payloadOf("1"))
	wrapped := func(want string) {
		t.Helper()
		got := ""
		for m, err := range q.Look(t.Context()) {
			if err != nil {
				t.Fatal(err)
			}
			got = cmp.Or(got, Wrapped(m.Raw))
		}
		if got != want {
			t.Errorf("phpredis has changed a job by %q, want %q", got, want)
		}
	}
	wrapped("")
	// As Laravel before 12.45 delays it on such a connection.
	q.app.ZAdd(t.Context(), q.k.delayed, redis.Z{Score: q.now(t) - 1, Member: raw})
	wrapped("the PHP serializer")
	m := q.receive(t)
	if string(m.Raw) != raw || m.Err == nil || !strings.Contains(m.Err.Error(), "the PHP serializer of phpredis") {
		t.Errorf("%v: %q", m.Err, m.Raw)
	}
	wrapped("the PHP serializer")
}

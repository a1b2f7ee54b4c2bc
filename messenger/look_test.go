package messenger

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"zabor/worker"
)

// What other consumers have had is seen as delivered before; what was handled and
// stays in the stream, what a consumer of zabor's has for the first time, and what
// it has put back is not.
func TestLookAtWhatOthersHaveHad(t *testing.T) {
	tr := open(t, dsn(t, "delete_after_ack=false"))
	ctx := t.Context()
	read := func(consumer string) string {
		t.Helper()
		streams, err := tr.client.XReadGroup(ctx, &redis.XReadGroupArgs{Group: "symfony", Consumer: consumer, Streams: []string{"messages", ">"}, Count: 1}).Result()
		ok(t, err)
		return streams[0].Messages[0].ID
	}
	body := func(order string) string { return entry(phpBody(order)) }
	ok(t, tr.client.XGroupCreateMkStream(ctx, "messages", "symfony", "0").Err())
	tr.add(t, body("handled"))
	ok(t, tr.client.XAck(ctx, "messages", "symfony", read("consumer")).Err())
	tr.add(t, body("php has it"))
	read("consumer")
	tr.add(t, body("ours"))
	held := tr.next(t)
	tr.add(t, body("put back"))
	ok(t, tr.PutBack(ctx, tr.next(t)))
	tr.add(t, body("gone"))
	ok(t, tr.client.XDel(ctx, "messages", read("consumer")).Err())
	tr.add(t, body("fresh"))
	tr.client.ZAdd(ctx, "messages__queue", redis.Z{Score: float64(time.Now().Add(time.Hour).UnixMilli()), Member: `{"body":"{\"orderId\":\"a retry\"}","headers":{"type":"App\\Message\\ChargeOrder","X-Message-Stamp-Symfony\\Component\\Messenger\\Stamp\\RedeliveryStamp":"[{\"retryCount\":1}]"},"uniqid":"x"}`})

	type seen struct {
		place  worker.Place
		before bool
		holder string
	}
	got := map[string]seen{}
	for m, err := range tr.Look(ctx) {
		ok(t, err)
		ok(t, m.Err)
		got[fmt.Sprint(m.Data["orderId"])] = seen{m.Place, m.DeliveredBefore, m.Holder}
	}
	want := map[string]seen{
		"php has it": {worker.Reserved, true, "consumer"},
		"ours":       {worker.Reserved, false, "zabor:web1:0"},
		"put back":   {worker.Reserved, false, ""},
		"fresh":      {worker.Ready, false, ""},
		"a retry":    {worker.Delayed, true, ""},
	}
	for order, w := range want {
		if got[order] != w {
			t.Errorf("%s: %+v, want %+v", order, got[order], w)
		}
	}
	if len(got) != len(want) {
		t.Errorf("seen %v", got)
	}
	ok(t, tr.Ack(ctx, held))
}

// A group that nobody has made yet has delivered nothing.
func TestLookWithoutAGroup(t *testing.T) {
	tr := open(t, dsn(t, ""))
	for range tr.Look(t.Context()) {
		t.Error("there is no stream")
	}
	tr.add(t, entry(phpBody("1")))
	n := 0
	for m, err := range tr.Look(t.Context()) {
		ok(t, err)
		if n++; m.Place != worker.Ready || m.DeliveredBefore {
			t.Errorf("%+v", m)
		}
	}
	if n != 1 {
		t.Errorf("%d messages seen, want 1", n)
	}
	if others, err := tr.Others(t.Context()); err != nil || len(others) > 0 {
		t.Errorf("others %v, %v", others, err)
	}
}

// Consumers with a name that is not zabor's count while they live. Symfony's worker
// begins with what it has pending: before Redis 7.2 a read that only waits for new
// messages leaves no trace.
func TestOthers(t *testing.T) {
	tr := open(t, dsn(t, ""))
	ctx := t.Context()
	tr.add(t, entry(phpBody("1")))
	held := tr.next(t)
	for _, name := range []string{"consumer", "web2", "zabor:web2:3"} {
		tr.client.XReadGroup(ctx, &redis.XReadGroupArgs{Group: "symfony", Consumer: name, Streams: []string{"messages", "0"}, Count: 1})
	}
	others, err := tr.Others(ctx)
	ok(t, err)
	if len(others) != 2 || others[0].Name != "consumer" || others[1].Name != "web2" || !others[0].Named ||
		!strings.Contains(others[0].What, `consumer "consumer" of group symfony`) || !strings.Contains(others[0].Stop, "messenger:consume async") {
		t.Errorf("others %+v", others)
	}
	ok(t, tr.Ack(ctx, held))
}

package messenger

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"zabor/internal/servers"
	"zabor/worker"
	"zabor/zabortest"
)

// body is the body of a message that was received.
func body(t *testing.T, m *worker.Message) string {
	t.Helper()
	text, err := unwrap(m.Raw)
	ok(t, err)
	e, err := readEnvelope(text)
	ok(t, err)
	return e.body
}

// Later keeps body and headers byte by byte and writes what PHP writes: a score of
// 13 digits and a member that phpredis has not wrapped.
func TestLaterWritesADelayedMessage(t *testing.T) {
	tr := open(t, dsn(t, ""))
	value := `{"x":1,"body":` + phpQuote(phpBody("zażółć/1")) + `,"headers":{"h":"a\/b"}}`
	tr.add(t, string(SerializerPHP.wrap([]byte(value))))
	m := tr.next(t)
	before := time.Now()
	ok(t, tr.Later(t.Context(), m, 0))
	members, err := tr.redis.ZRangeWithScores(t.Context(), tr.queue(), 0, -1).Result()
	if err != nil || len(members) != 1 {
		t.Fatalf("%d delayed members, %v, want 1", len(members), err)
	}
	score := strconv.FormatFloat(members[0].Score, 'f', -1, 64)
	if len(score) != 13 || members[0].Score < float64(before.UnixMilli()) {
		t.Errorf("score %s, want 13 digits and not before %d", score, before.UnixMilli())
	}
	member := fmt.Sprint(members[0].Member)
	want := `{"body":` + phpQuote(phpBody("zażółć/1")) + `,"headers":{"h":"a\/b"},"uniqid":"zabor:` + m.ID + ":"
	if !strings.HasPrefix(member, want) {
		t.Errorf("member\n%s\nwant it to start\n%s", member, want)
	}
	if n := tr.redis.XLen(t.Context(), "messages").Val(); n != 0 {
		t.Errorf("%d entries left in the stream, want 0", n)
	}
	again := tr.next(t)
	if again.ID != m.ID || body(t, again) != phpBody("zażółć/1") || again.DeliveredBefore {
		t.Errorf("again: %s %q %v", again.ID, body(t, again), again.DeliveredBefore)
	}
	if entries := tr.redis.XRange(t.Context(), "messages", "-", "+").Val(); len(entries) != 1 ||
		entries[0].Values["message"] != string(SerializerPHP.wrap([]byte(`{"body":`+phpQuote(phpBody("zażółć/1"))+`,"headers":{"h":"a\/b"}}`))) {
		t.Errorf("promoted as %+v", entries)
	}
}

// That somebody had a message before is not forgotten by putting it off.
func TestLaterRemembersAnEarlierDelivery(t *testing.T) {
	tr := open(t, dsn(t, "redeliver_timeout=2&claim_interval=50"))
	tr.add(t, entry(phpBody("1")))
	tr.deliverTo(t, "dead", 3*time.Second)
	m := tr.next(t)
	if !m.DeliveredBefore {
		t.Fatal("DeliveredBefore=false for what a dead consumer had")
	}
	start := time.Now()
	ok(t, tr.Later(t.Context(), m, time.Second))
	tr.none(t)
	again := tr.next(t)
	if !again.DeliveredBefore || again.ID != m.ID || string(again.Raw) != string(m.Raw) {
		t.Errorf("again: DeliveredBefore=%v, ID=%s, Raw=%q", again.DeliveredBefore, again.ID, again.Raw)
	}
	if waited := time.Since(start); waited < time.Second {
		t.Errorf("came after %v, want 1 s", waited)
	}
	ok(t, tr.PutBack(t.Context(), again))
	if last := tr.next(t); !last.DeliveredBefore {
		t.Error("DeliveredBefore=false after PutBack")
	}
}

// deliverTo hands all new entries to another consumer, as if idle for so long.
func (tr *transport) deliverTo(t testing.TB, consumer string, idle time.Duration) (ids []string) {
	t.Helper()
	ctx := t.Context()
	tr.redis.XGroupCreateMkStream(ctx, tr.cfg.Stream, tr.cfg.Group, "0")
	streams, err := tr.redis.XReadGroup(ctx, &redis.XReadGroupArgs{Group: tr.cfg.Group, Consumer: consumer, Streams: []string{tr.cfg.Stream, ">"}, Block: -1}).Result()
	ok(t, err)
	for _, m := range streams[0].Messages {
		ids = append(ids, m.ID)
	}
	args := []any{"XCLAIM", tr.cfg.Stream, tr.cfg.Group, consumer, 0}
	for _, id := range ids {
		args = append(args, id)
	}
	ok(t, tr.redis.Do(ctx, append(args, "IDLE", idle.Milliseconds(), "JUSTID")...).Err())
	return ids
}

// calls counts commands that the server has run.
func (tr *transport) calls(t testing.TB, command string) int {
	t.Helper()
	stats, err := tr.redis.Info(t.Context(), "commandstats").Result()
	ok(t, err)
	for line := range strings.Lines(stats) {
		if rest, found := strings.CutPrefix(line, "cmdstat_"+command+":calls="); found {
			n, err := strconv.Atoi(rest[:strings.Index(rest, ",")])
			ok(t, err)
			return n
		}
	}
	return 0
}

// 200 messages of a dead consumer are claimed by few commands and delivered once
// each (symfony/symfony#49023); one young entry in front hides none of them. PHP claims one a minute.
func TestClaimAbandoned(t *testing.T) {
	server := servers.OwnRedis(t)
	tr := open(t, "redis://"+server.Addr()+"/messages?redeliver_timeout=60")
	tr.add(t, entry(phpBody("young")))
	young := tr.deliverTo(t, "busy", time.Second)
	const n = 200
	for i := range n {
		tr.add(t, entry(phpBody(strconv.Itoa(i))))
	}
	tr.deliverTo(t, "dead", time.Minute)
	seen := map[string]bool{}
	for len(seen) < n {
		ms, err := tr.Receive(t.Context(), 50)
		if err != nil || len(ms) == 0 || len(ms) > 50 {
			t.Fatalf("%d messages, %v; want some, at most 50", len(ms), err)
		}
		for _, m := range ms {
			if !m.DeliveredBefore || m.Err != nil || seen[m.Data["orderId"].(string)] {
				t.Fatalf("%v: DeliveredBefore=%v, Err=%v", m.Data, m.DeliveredBefore, m.Err)
			}
			seen[m.Data["orderId"].(string)] = true
			ok(t, tr.Ack(t.Context(), m))
		}
	}
	if len(seen) != n || seen["young"] {
		t.Errorf("%d different orders, young one among them: %v; want %d, false", len(seen), seen["young"], n)
	}
	tr.none(t)
	if calls := tr.calls(t, "xautoclaim"); calls > 6 {
		t.Errorf("%d calls of XAUTOCLAIM, want at most 6", calls)
	}
	left, err := tr.redis.XPendingExt(t.Context(), &redis.XPendingExtArgs{Stream: "messages", Group: "symfony", Start: "-", End: "+", Count: 9}).Result()
	if err != nil || len(left) != 1 || left[0].ID != young[0] || left[0].Consumer != "busy" {
		t.Errorf("left pending: %+v, %v; want the young one with its consumer", left, err)
	}
}

// A message that another consumer has claimed is neither acked nor renewed nor put
// back by the first, whose handler took too long.
func TestFirstHolderNotices(t *testing.T) {
	for _, how := range []string{"claim", "claim and read", "same name"} {
		t.Run(how, func(t *testing.T) {
			tr := open(t, dsn(t, "redeliver_timeout=60"))
			id := tr.add(t, entry(phpBody("1")))
			m := tr.next(t)
			ctx, name := t.Context(), tr.slot.current()
			other := "consumer"
			if how == "same name" {
				other = name // a process that was paused until its slot was another's
				ok(t, tr.redis.XClaim(ctx, &redis.XClaimArgs{Stream: "messages", Group: "symfony", Consumer: other, Messages: []string{id}}).Err())
			} else {
				ok(t, tr.redis.XClaimJustID(ctx, &redis.XClaimArgs{Stream: "messages", Group: "symfony", Consumer: other, Messages: []string{id}}).Err())
			}
			if how == "claim and read" {
				ok(t, tr.redis.XReadGroup(ctx, &redis.XReadGroupArgs{Group: "symfony", Consumer: other, Streams: []string{"messages", "0"}}).Err())
			}
			failed, db := failedTable(t)
			tr.failed = failed
			for what, err := range map[string]error{
				"Ack": tr.Ack(ctx, m), "Later": tr.Later(ctx, m, time.Second), "PutBack": tr.PutBack(ctx, m), "Renew": tr.Renew(ctx, m), "Park": tr.Park(ctx, m, "x"),
			} {
				if !errors.Is(err, worker.ErrLost) {
					t.Errorf("%s = %v, want ErrLost", what, err)
				}
			}
			pending := tr.redis.XPending(ctx, "messages", "symfony").Val()
			if pending.Count != 1 || pending.Consumers[other] != 1 || tr.redis.XLen(ctx, "messages").Val() != 1 || tr.redis.ZCard(ctx, tr.queue()).Val() != 0 || count(t, db) != 0 {
				t.Errorf("something was changed: pending %+v", pending)
			}
		})
	}
}

// PHP's id 0 and two processes with one name hand the same message out twice; here
// what an earlier life left is taken up only when its reserve has ended.
func TestOwnLeftovers(t *testing.T) {
	address := dsn(t, "redeliver_timeout=2&claim_interval=50")
	first := open(t, address)
	first.add(t, entry(phpBody("1")))
	first.next(t)
	name := first.slot.current()
	ok(t, first.redis.Del(t.Context(), first.slot.key).Err()) // it was killed, and its slot has lapsed
	second := open(t, address)
	start := time.Now()
	second.none(t)
	if second.slot.current() != name {
		t.Fatalf("consumer %s, want %s again", second.slot.current(), name)
	}
	m := second.next(t)
	if !m.DeliveredBefore || time.Since(start) < time.Second {
		t.Errorf("DeliveredBefore=%v after %v", m.DeliveredBefore, time.Since(start))
	}
}

// No two live processes have one consumer name (symfony/symfony#35358), and a
// restart has the old one.
func TestSlots(t *testing.T) {
	address := dsn(t, "")
	var names []string
	a, b, c := open(t, address), open(t, address), open(t, address, func(o *Options) { o.Host = "web2" })
	for _, tr := range []*transport{a, b, c} {
		tr.add(t, entry(phpBody("1")))
		ok(t, tr.Ack(t.Context(), tr.next(t))) // Redis knows a consumer once it had a message
		names = append(names, tr.slot.current())
	}
	if want := []string{"zabor:web1:0", "zabor:web1:1", "zabor:web2:0"}; !slices.Equal(names, want) {
		t.Fatalf("consumers %v, want %v", names, want)
	}
	if ttl := a.redis.PTTL(t.Context(), "messages__zabor:consumer:web1:0").Val(); ttl <= 0 || ttl > slotTime {
		t.Errorf("the slot lapses in %v, want at most %v", ttl, slotTime)
	}
	a.add(t, entry(phpBody("1")))
	m := a.next(t)
	ok(t, a.Close(t.Context())) // holds a message: its consumer must stay
	ok(t, b.Close(t.Context()))
	consumers := func() (names []string) {
		for _, c := range c.redis.XInfoConsumers(t.Context(), "messages", "symfony").Val() {
			names = append(names, c.Name)
		}
		return names
	}
	if got, want := consumers(), []string{"zabor:web1:0", "zabor:web2:0"}; !slices.Equal(got, want) {
		t.Errorf("consumers %v, want %v", got, want)
	}
	ok(t, a.Ack(t.Context(), m)) // the receipt is good without the slot
	d := open(t, address)
	d.none(t)
	if got := d.slot.current(); got != "zabor:web1:0" {
		t.Errorf("consumer %s after a restart, want zabor:web1:0", got)
	}
	ok(t, d.Close(t.Context()))
	ok(t, d.Close(t.Context()))
	if got, want := consumers(), []string{"zabor:web2:0"}; !slices.Equal(got, want) {
		t.Errorf("consumers %v, want %v", got, want)
	}
}

// A slot that was lost, to a flush or to another process, is replaced.
func TestSlotIsReplaced(t *testing.T) {
	tr := open(t, dsn(t, ""))
	tr.none(t)
	ok(t, tr.redis.Set(t.Context(), "messages__zabor:consumer:web1:0", "another", time.Hour).Err())
	tr.slot.keep(t.Context())
	tr.none(t)
	if got := tr.slot.current(); got != "zabor:web1:1" {
		t.Errorf("consumer %s, want zabor:web1:1", got)
	}
	ok(t, tr.Close(t.Context()))
	if got := tr.redis.Get(t.Context(), "messages__zabor:consumer:web1:0").Val(); got != "another" {
		t.Errorf("the other's slot holds %q now", got)
	}
}

// What was flushed or evicted while running is made again; nothing is run twice
// for it, and no second group is made.
func TestNoGroup(t *testing.T) {
	for _, how := range [][]any{{"DEL", "messages"}, {"XGROUP", "DESTROY", "messages", "symfony"}, {"FLUSHDB"}} {
		t.Run(fmt.Sprint(how...), func(t *testing.T) {
			tr := open(t, dsn(t, ""))
			tr.add(t, entry(phpBody("1")))
			m := tr.next(t)
			done := make(chan *worker.Message)
			go func() {
				m, err := worker.Next(context.Background(), tr)
				if err != nil {
					t.Errorf("Receive: %v", err)
				}
				done <- m
			}()
			eventually(t, "a blocked reader", func() bool {
				list, _ := tr.redis.Do(t.Context(), "CLIENT", "LIST").Text()
				return strings.Contains(list, fmt.Sprintf("db=%d", tr.cfg.DB)) && strings.Contains(list, "cmd=xread ")
			})
			ok(t, tr.redis.Do(t.Context(), how...).Err())
			if how[0] != "XGROUP" { // else the entry is still there, and delivered again
				if err := tr.Ack(t.Context(), m); !errors.Is(err, worker.ErrLost) {
					t.Errorf("Ack = %v, want ErrLost", err)
				}
				tr.add(t, entry(phpBody("2")))
			}
			if m := <-done; m == nil || m.Err != nil {
				t.Errorf("after it was made again: %+v", m)
			}
			if groups := tr.redis.XInfoGroups(t.Context(), "messages").Val(); len(groups) != 1 || groups[0].Name != "symfony" {
				t.Errorf("groups %+v", groups)
			}
		})
	}
}

func TestSetupRefuses(t *testing.T) {
	for options, want := range map[string]string{"": "another group", "auto_setup=0": "auto_setup is off"} {
		tr := open(t, dsn(t, options))
		tr.add(t, entry(phpBody("1")))
		if options == "" {
			ok(t, tr.redis.XGroupCreate(t.Context(), "messages", "analytics", "0").Err())
		}
		if m, err := worker.Next(t.Context(), tr); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: Receive = %v, %v, want %q", options, m, err, want)
		}
	}
	tr := open(t, dsn(t, "delete_after_ack=0&delete_after_reject=0"))
	tr.add(t, entry(phpBody("1")))
	ok(t, tr.redis.XGroupCreate(t.Context(), "messages", "analytics", "0").Err())
	ok(t, tr.Ack(t.Context(), tr.next(t)))
	if n := tr.redis.XLen(t.Context(), "messages").Val(); n != 1 {
		t.Errorf("%d entries, want the other group's entry to be kept", n)
	}
}

// An acked entry stays or goes as delete_after_ack says; one that was trimmed
// meanwhile is acked like any other.
func TestAck(t *testing.T) {
	for options, left := range map[string]int64{"delete_after_ack=1": 0, "delete_after_ack=0": 1} {
		tr := open(t, dsn(t, options))
		tr.add(t, entry(phpBody("1")))
		m := tr.next(t)
		ok(t, tr.Ack(t.Context(), m))
		if n := tr.redis.XLen(t.Context(), "messages").Val(); n != left {
			t.Errorf("%s: %d entries, want %d", options, n, left)
		}
		if err := tr.Ack(t.Context(), m); !errors.Is(err, worker.ErrLost) {
			t.Errorf("%s: Ack twice = %v, want ErrLost", options, err)
		}
		id := tr.add(t, entry(phpBody("2")))
		m = tr.next(t)
		ok(t, tr.redis.XDel(t.Context(), "messages", id).Err())
		if err := tr.Ack(t.Context(), m); err != nil {
			t.Errorf("%s: Ack of a trimmed entry = %v", options, err)
		}
		if n := tr.redis.XPending(t.Context(), "messages", "symfony").Val().Count; n != 0 {
			t.Errorf("%s: %d pending, want 0", options, n)
		}
	}
}

// Pending entries that are no longer in the stream block nothing and are told of.
func TestGone(t *testing.T) {
	tr := open(t, dsn(t, "redeliver_timeout=60&stream_max_entries=1"))
	for i := range 3 {
		tr.add(t, entry(phpBody(strconv.Itoa(i))))
	}
	ids := tr.deliverTo(t, "dead", time.Minute)
	ok(t, tr.redis.XDel(t.Context(), "messages", ids[:2]...).Err())
	if m := tr.next(t); m.ID != ids[2] {
		t.Errorf("got %s, want %s", m.ID, ids[2])
	}
	if got := tr.codes(); !slices.Equal(got, []string{"entry-gone"}) {
		t.Fatalf("alerts %v, want entry-gone once", got)
	}
	if text := tr.alerts[0].Text + tr.alerts[0].Next; !strings.Contains(text, ids[0]) || !strings.Contains(text, "stream_max_entries=1") {
		t.Errorf("alert %s", text)
	}
	if n := tr.redis.XPending(t.Context(), "messages", "symfony").Val().Count; n != 1 {
		t.Errorf("%d pending, want 1", n)
	}
	m := tr.add(t, entry(phpBody("4")))
	held := tr.next(t)
	ok(t, tr.redis.XDel(t.Context(), "messages", m).Err())
	if err := tr.Renew(t.Context(), held); !errors.Is(err, worker.ErrLost) {
		t.Errorf("Renew of a deleted entry = %v, want ErrLost", err)
	}
}

// Poison at the head: told once, later entries flow, also after a restart.
func TestPoison(t *testing.T) {
	address := dsn(t, "redeliver_timeout=1&claim_interval=50")
	tr := open(t, address)
	poison, err := tr.redis.XAdd(t.Context(), &redis.XAddArgs{Stream: "messages", Values: []any{"body", "hello"}}).Result()
	ok(t, err)
	tr.add(t, entry(phpBody("good")))
	m := tr.next(t)
	if m.ID != poison || !errors.Is(m.Err, worker.ErrUnreadable) || string(m.Raw) != `{"body":"hello"}` {
		t.Fatalf("got %s %q %v", m.ID, m.Raw, m.Err)
	}
	table, db := failedTable(t)
	tr.failed = table
	if err := tr.Park(t.Context(), m, "x"); err == nil || errors.Is(err, worker.ErrLost) || count(t, db) != 0 {
		t.Errorf("Park of an unreadable message = %v, %d parked; PHP would delete it there", err, count(t, db))
	}
	if m := tr.next(t); m.Data["orderId"] != "good" {
		t.Errorf("got %v, want the good one", m.Data)
	}
	ok(t, tr.Close(t.Context()))
	again := open(t, address)
	again.add(t, entry(phpBody("later")))
	seen := map[string]int{}
	for range 3 {
		m := again.next(t)
		seen[fmt.Sprint(m.Data["orderId"])]++
		ok(t, again.Ack(t.Context(), m))
	}
	if seen["<nil>"] != 1 || seen["good"] != 1 || seen["later"] != 1 {
		t.Errorf("seen %v, want each once", seen)
	}
}

// delayed puts a member with a score as written.
func (tr *transport) delayed(t testing.TB, score, member string) {
	t.Helper()
	ok(t, tr.redis.Do(t.Context(), "ZADD", tr.queue(), score, member).Err())
}

func member(order string) string {
	return `{"body":` + phpQuote(phpBody(order)) + `,"headers":[],"uniqid":"6b0c7bcf329960.66027203"}`
}

func TestPromotion(t *testing.T) {
	tr := open(t, dsn(t, ""))
	now := time.Now().UnixMilli()
	// What blocks PHP, or kills it and is lost, is at the head.
	tr.delayed(t, "5", member("short"))
	tr.delayed(t, strconv.FormatInt(now/1000, 10), member("seconds"))
	tr.delayed(t, "-1", member("negative"))
	for i := range 2 * batch {
		tr.delayed(t, strconv.FormatInt(now-2000, 10), fmt.Sprintf("not JSON %d", i))
	}
	tr.delayed(t, strconv.FormatInt(now-1500, 10), string(SerializerPHP.wrap([]byte(member("wrapped")))))
	tr.delayed(t, strconv.FormatInt(now-1000, 10), member("due"))
	tr.delayed(t, strconv.FormatInt(now-1000, 10)+".5", member("decimal"))
	tr.delayed(t, strconv.FormatInt(now+3600_000, 10), member("future"))
	tr.delayed(t, strconv.FormatInt(now+3600_000, 10)+".5", member("decimal future"))
	got := map[string]bool{}
	for range 2 {
		m := tr.next(t)
		got[fmt.Sprint(m.Data["orderId"])] = true
		ok(t, tr.Ack(t.Context(), m))
	}
	if !got["due"] || !got["decimal"] {
		t.Errorf("promoted %v, want due and decimal", got)
	}
	tr.none(t)
	if n := tr.redis.ZCard(t.Context(), tr.queue()).Val(); n != 6+2*batch {
		t.Errorf("%d members left, want %d", n, 6+2*batch)
	}
	if codes := tr.codes(); !slices.Equal(codes, []string{"delayed-stuck"}) {
		t.Errorf("alerts %v, want delayed-stuck once", codes)
	}
}

// Without key body PHP takes the whole member for the body.
func TestPromotionWithoutBody(t *testing.T) {
	tr := open(t, dsn(t, ""))
	tr.delayed(t, strconv.FormatInt(time.Now().UnixMilli(), 10), `{"headers":{"type":"App\\Pay"},"orderId":"1"}`)
	if m := tr.next(t); m.Class != `App\Pay` || m.Data["orderId"] != "1" {
		t.Errorf("got %q %v, %v", m.Class, m.Data, m.Err)
	}
}

// A member that was put off between the look and the move is not moved early.
func TestPromotionChecksTheScore(t *testing.T) {
	tr := open(t, dsn(t, ""))
	now := time.Now().UnixMilli()
	tr.delayed(t, strconv.FormatInt(now+60_000, 10), member("1"))
	e, err := readEnvelope([]byte(member("1")))
	ok(t, err)
	ok(t, tr.promoteOne(t.Context(), now, member("1"), e))
	tr.cfg.Cluster = true // the way of a cluster, whose slots differ
	ok(t, tr.promoteOne(t.Context(), now, member("1"), e))
	if n, left := tr.redis.XLen(t.Context(), "messages").Val(), tr.redis.ZCard(t.Context(), tr.queue()).Val(); n != 0 || left != 1 {
		t.Errorf("%d promoted, %d left, want 0 and 1", n, left)
	}
}

// After a failover the old master refuses writes: nothing is taken for lost, and
// the same source goes on when there is a master again.
func TestReadOnly(t *testing.T) {
	server := servers.OwnRedis(t)
	tr := open(t, "redis://"+server.Addr()+"/messages")
	tr.add(t, entry(phpBody("1")))
	m := tr.next(t)
	ok(t, tr.redis.Do(t.Context(), "REPLICAOF", "127.0.0.1", "1").Err())
	if _, err := worker.Next(t.Context(), tr); err == nil || !strings.Contains(err.Error(), "READONLY") {
		t.Errorf("Receive = %v, want READONLY", err)
	}
	for what, err := range map[string]error{"Ack": tr.Ack(t.Context(), m), "Later": tr.Later(t.Context(), m, 0), "Renew": tr.Renew(t.Context(), m)} {
		if err == nil || errors.Is(err, worker.ErrLost) {
			t.Errorf("%s = %v, want an error that is not ErrLost", what, err)
		}
	}
	ok(t, tr.redis.Do(t.Context(), "REPLICAOF", "NO", "ONE").Err())
	ok(t, tr.Ack(t.Context(), m))
	tr.add(t, entry(phpBody("2")))
	if m := tr.next(t); m.Data["orderId"] != "2" {
		t.Errorf("got %v", m.Data)
	}
}

// Many promoters at once lose and double nothing.
func TestPromotionRace(t *testing.T) {
	address := dsn(t, "")
	const promoters, n = 8, 300
	setup := open(t, address)
	due := strconv.FormatInt(time.Now().UnixMilli(), 10)
	for i := range n {
		setup.delayed(t, due, member(strconv.Itoa(i)))
	}
	var wg sync.WaitGroup
	for i := range promoters {
		tr := open(t, address, func(o *Options) { o.Host = fmt.Sprint("web", i) })
		wg.Go(func() {
			for more := true; more; {
				var err error
				if more, err = tr.promote(context.Background()); err != nil {
					t.Errorf("promote: %v", err)
					return
				}
			}
		})
	}
	wg.Wait()
	seen := map[string]int{}
	for _, e := range setup.redis.XRange(t.Context(), "messages", "-", "+").Val() {
		m := Decode([]byte(e.Values["message"].(string)))
		seen[fmt.Sprint(m.Data["orderId"])]++
	}
	for order, times := range seen {
		if times != 1 {
			t.Errorf("order %s was promoted %d times", order, times)
		}
	}
	if left := setup.redis.ZCard(t.Context(), setup.queue()).Val(); len(seen) != n || left != 0 {
		t.Errorf("%d promoted, %d left, want %d and 0", len(seen), left, n)
	}
}

// Stream and delayed set on different slots of a cluster: the same promises.
func TestCluster(t *testing.T) {
	path := servers.Need(t, "redis-server", "redis-server")
	addr := startCluster(t, path)
	for _, stream := range []string{"messages", "{messages}"} {
		t.Run(stream, func(t *testing.T) {
			address := "redis://" + addr + "/" + stream + "?cluster=1&redeliver_timeout=1&claim_interval=50"
			tr := open(t, address)
			if got, want := tr.oneSlot(), stream != "messages"; got != want {
				t.Fatalf("oneSlot=%v, want %v", got, want)
			}
			tr.add(t, entry(phpBody("1")))
			m := tr.next(t)
			ok(t, tr.Later(t.Context(), m, 0))
			if err := tr.Ack(t.Context(), m); !errors.Is(err, worker.ErrLost) {
				t.Errorf("Ack after Later = %v, want ErrLost", err)
			}
			again := tr.next(t)
			if again.ID != m.ID || string(again.Raw) != string(m.Raw) {
				t.Errorf("again %s %q", again.ID, again.Raw)
			}
			ok(t, tr.PutBack(t.Context(), again))
			ok(t, tr.Ack(t.Context(), tr.next(t)))
			other := strings.Replace(stream, "messages", "other", 1)
			if stream == "{messages}" {
				other = "other" + stream // in the same slot
			}
			tr.add(t, entry(phpBody("2")))
			m = tr.next(t)
			ok(t, tr.Forward(t.Context(), m, other))
			if err := tr.Forward(t.Context(), m, other); !errors.Is(err, worker.ErrLost) {
				t.Errorf("Forward twice = %v, want ErrLost", err)
			}
			if got := values(t, tr.redis, other); len(got) != 1 || got[0] != string(m.Raw) {
				t.Errorf("%s holds %q, want the message once", other, got)
			}
			due := strconv.FormatInt(time.Now().UnixMilli(), 10)
			const n = 50
			for i := range n {
				tr.delayed(t, due, member(strconv.Itoa(i)))
			}
			var wg sync.WaitGroup
			for range 4 {
				other := open(t, address)
				wg.Go(func() {
					if _, err := other.promote(context.Background()); err != nil {
						t.Errorf("promote: %v", err)
					}
				})
			}
			wg.Wait()
			if got := tr.redis.XLen(t.Context(), stream).Val(); got != n {
				t.Errorf("%d promoted, want %d", got, n)
			}
			if d, err := tr.Depth(t.Context()); err != nil || d != (worker.Depth{Ready: n}) {
				t.Errorf("Depth = %+v, %v", d, err)
			}
		})
	}
}

// startCluster starts a cluster of one node that has all slots.
func startCluster(t *testing.T, path string) string {
	t.Helper()
	dir := t.TempDir()
	for port := 21000 + int(time.Now().UnixNano()%20000); ; port++ {
		cmd := exec.Command(path, "--port", strconv.Itoa(port), "--bind", "127.0.0.1", "--dir", dir, "--save", "", "--cluster-enabled", "yes", "--cluster-port", strconv.Itoa(port+1))
		ok(t, cmd.Start())
		addr := "127.0.0.1:" + strconv.Itoa(port)
		client := redis.NewClient(&redis.Options{Addr: addr})
		exited := make(chan struct{})
		go func() { cmd.Wait(); close(exited) }()
		t.Cleanup(func() { client.Close(); cmd.Process.Kill(); <-exited })
		up := false
		eventually(t, "an answer of the node, or its end", func() bool {
			select {
			case <-exited:
				return true // the port is taken
			default:
			}
			up = client.Ping(context.Background()).Err() == nil
			return up
		})
		if !up {
			continue
		}
		ok(t, client.Do(t.Context(), "CLUSTER", "ADDSLOTSRANGE", 0, 16383).Err())
		eventually(t, "cluster_state:ok", func() bool {
			info, _ := client.ClusterInfo(context.Background()).Result()
			return strings.Contains(info, "cluster_state:ok")
		})
		return addr
	}
}

// Park writes what PHP's own failure transport on Redis holds.
func TestParkOnStream(t *testing.T) {
	for options, left := range map[string]int64{"delete_after_reject=1": 0, "delete_after_reject=0": 1} {
		tr := open(t, dsn(t, options))
		c := tr.cfg
		c.Stream = "failed"
		tr.failed = &Stream{Client: tr.redis, Config: c}
		tr.add(t, entry(phpBody("1")))
		ok(t, tr.Park(t.Context(), tr.next(t), "held"))
		if n := tr.redis.XLen(t.Context(), "messages").Val(); n != left {
			t.Errorf("%s: %d entries left, want %d", options, n, left)
		}
		parked := tr.redis.XRange(t.Context(), "failed", "-", "+").Val()
		if len(parked) != 1 {
			t.Fatalf("%s: %d parked, want 1", options, len(parked))
		}
		m := Decode([]byte(parked[0].Values["message"].(string)))
		if m.Err != nil || m.Data["orderId"] != "1" || !m.DeliveredBefore {
			t.Errorf("parked %v, %v, DeliveredBefore=%v", m.Data, m.Err, m.DeliveredBefore)
		}
		if groups := tr.redis.XInfoGroups(t.Context(), "failed").Val(); len(groups) != 1 {
			t.Errorf("groups of failed: %v, want symfony", groups)
		}
	}
	tr := open(t, dsn(t, ""))
	tr.add(t, entry(phpBody("1")))
	m := tr.next(t)
	if err := tr.Park(t.Context(), m, "held"); err == nil || !strings.Contains(err.Error(), "no failure transport") {
		t.Errorf("Park without a failure transport = %v", err)
	}
	ok(t, tr.Renew(t.Context(), m)) // still in hand
}

// A signed message is read where the signature is the application's; any other is
// kept from the fence.
func TestSignedMessages(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		secret, signedWith string
		unreadable         bool
	}{
		"the application's":  {"s3cr3t", "s3cr3t", false},
		"somebody else's":    {"s3cr3t", "other", true},
		"no secret is known": {"", "other", false},
		"not signed":         {"s3cr3t", "", false},
		"a previous one":     {"s3cr3t, other", "other", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tr := open(t, dsn(t, ""), func(o *Options) { o.Secrets = ParseSecrets(tt.secret) })
			e := &envelope{body: phpBody("1"), headersJSON: []byte("[]")}
			if tt.signedWith != "" {
				e.headers = []header{{name: signHeader, value: e.signature(tt.signedWith, true)}, {name: "Sign-Algo", value: "sha256"}}
			}
			e.bodyJSON, e.headersJSON = quote(e.body), writeHeaders(e.headers)
			tr.add(t, string(SerializerPHP.wrap(e.json())))
			m := tr.next(t)
			if errors.Is(m.Err, worker.ErrUnreadable) != tt.unreadable || m.Err != nil && !tt.unreadable {
				t.Errorf("Err = %v, want unreadable: %v", m.Err, tt.unreadable)
			}
			m.MayHaveActed = true // its sign changes no signature
			ok(t, tr.Later(t.Context(), m, 0))
			if again := tr.next(t); !again.DeliveredBefore || errors.Is(again.Err, worker.ErrUnreadable) != tt.unreadable {
				t.Errorf("again: DeliveredBefore=%v, Err = %v, want unreadable: %v", again.DeliveredBefore, again.Err, tt.unreadable)
			}
		})
	}
}

// An entry goes to the other stream with the fields that it has, whichever they
// are.
func TestForwardKeepsTheFields(t *testing.T) {
	t.Parallel()
	tr := open(t, dsn(t, ""))
	fields := map[string]any{"body": `{"orderId":"1"}`, "headers": `{"type":"App\\Pay"}`}
	ok(t, tr.redis.XAdd(t.Context(), &redis.XAddArgs{Stream: tr.cfg.Stream, Values: []any{"body", fields["body"], "headers", fields["headers"], "zabor", "17-3"}}).Err())
	m := tr.next(t)
	if m.Err != nil || m.ID != "17-3" || !m.Sent.Equal(time.UnixMilli(17)) { // its age is that of its first entry
		t.Fatalf("message %s of %s, %v", m.ID, m.Sent, m.Err)
	}
	ok(t, tr.Forward(t.Context(), m, "other"))
	entries, err := tr.redis.XRange(t.Context(), "other", "-", "+").Result()
	ok(t, err)
	if len(entries) != 1 || !reflect.DeepEqual(entries[0].Values, fields) {
		t.Errorf("the other stream holds %v, want %v", entries, fields)
	}
}

// Ten thousand messages are due at once.
func TestManyDueAtOnce(t *testing.T) {
	t.Parallel()
	server := servers.OwnRedis(t)
	address := "redis://" + server.Addr() + "/messages?delete_after_ack=1"
	admin := redis.NewClient(&redis.Options{Addr: server.Addr()})
	t.Cleanup(func() { admin.Close() })
	var all []*transport
	var sources []worker.Source
	for range 4 {
		all = append(all, open(t, address))
		sources = append(sources, all[len(all)-1])
	}
	zabortest.ManyDue(t, admin, sources,
		func(orderID string) { all[0].delayed(t, "1700000000000", member(orderID)) },
		func(orderID string) { all[0].add(t, entry(phpBody(orderID))) },
		func() int64 { return admin.ZCard(t.Context(), all[0].queue()).Val() })
}

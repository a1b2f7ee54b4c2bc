package messenger

import (
	"slices"
	"testing"

	"github.com/redis/go-redis/v9"

	"zabor/internal/servers"
)

// A Redis without memory cannot promote a delayed message. What is ready is taken all
// the same, and the delayed one when there is memory again.
func TestFullRedisGivesWhatIsReady(t *testing.T) {
	t.Parallel()
	server := servers.OwnRedis(t)
	admin := redis.NewClient(&redis.Options{Addr: server.Addr()})
	t.Cleanup(func() { admin.Close() })
	tr := open(t, "redis://"+server.Addr()+"/messages?delete_after_ack=1")
	tr.add(t, entry(phpBody("first")))
	ok(t, tr.Ack(t.Context(), tr.next(t))) // slot and group are there
	tr.delayed(t, "1700000000000", member("late"))
	tr.add(t, entry(phpBody("1")))
	tr.add(t, entry(phpBody("2")))
	ok(t, admin.ConfigSet(t.Context(), "maxmemory", "1").Err())
	for _, order := range []string{"1", "2"} {
		m := tr.next(t)
		if m.Data["orderId"] != order {
			t.Fatalf("received %v, want order %s", m.Data, order)
		}
		ok(t, tr.Ack(t.Context(), m))
	}
	eventually(t, "it is told", func() bool {
		tr.none(t)
		return slices.Equal(tr.codes(), []string{"delayed-stuck"})
	})
	ok(t, admin.ConfigSet(t.Context(), "maxmemory", "0").Err())
	if m := tr.next(t); m.Data["orderId"] != "late" {
		t.Errorf("received %v", m.Data)
	}
}

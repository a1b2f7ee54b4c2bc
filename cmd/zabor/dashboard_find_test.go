package main

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"zabor/internal/servers"
	"zabor/sqlstore"
)

// The search of the dashboard finds an order that has no row yet: on a queue, delayed,
// reserved, in the failure transport and in quarantine.
func TestSearchFindsOrdersOnQueues(t *testing.T) {
	t.Parallel()
	s := newShop(t, "sqlite://"+filepath.Join(t.TempDir(), "fence.db"), options{})
	const list = "laravel_database_queues:payments"
	later := float64(time.Now().Add(time.Hour).Unix())
	err := errors.Join(
		s.redis.RPush(t.Context(), list, jobFor("u-1", "R-1", 1999, false)).Err(),
		s.redis.ZAdd(t.Context(), list+":delayed", redis.Z{Score: later, Member: jobFor("u-2", "D-1", 1999, false)}).Err(),
		s.redis.ZAdd(t.Context(), list+":reserved", redis.Z{Score: later, Member: jobFor("u-3", "W-1", 1999, false)}).Err(),
		s.store.Quarantine().Save(t.Context(), sqlstore.Unreadable{Queue: "payments", Bytes: []byte("broken Q-1"), Reason: "no job"}),
	)
	if err != nil {
		t.Fatal(err)
	}
	s.exec("INSERT INTO failed_jobs (uuid, connection, queue, payload, exception) VALUES ('u-4', 'redis', 'payments', '" + jobFor("u-4", "F-1", 1999, false) + "', 'boom')")
	listen := fmt.Sprintf("127.0.0.1:%d", servers.Port(t))
	s.add(fmt.Sprintf("dashboard: {listen: %q, order_url: \"https://shop.example/orders/{{order}}\"}\n", listen))
	start(t, "dashboard", "-c", s.file)
	read := func(order string) string {
		response, err := http.Get("http://" + listen + "/fences?q=" + url.QueryEscape(order))
		if err != nil {
			return ""
		}
		defer response.Body.Close()
		body, err := io.ReadAll(response.Body)
		if err != nil || response.StatusCode != http.StatusOK {
			return ""
		}
		return string(body)
	}
	eventually(t, "the dashboard answers", func() bool { return read("R-1") != "" })
	for order, want := range map[string]string{
		"R-1": "Order R-1 (charge) waits on queue payments",
		"D-1": "Order D-1 (charge) waits on queue payments because its delay is not over",
		"W-1": "Order W-1 (charge) is with a worker of queue payments",
		"F-1": "Order F-1 (charge) is among the failed messages of queue payments",
		"Q-1": "in quarantine, from queue payments",
		"r-1": "The order is on no queue",
	} {
		if body := read(order); !strings.Contains(body, want) {
			t.Errorf("%s: no %q in\n%s", order, want, body)
		}
	}
}

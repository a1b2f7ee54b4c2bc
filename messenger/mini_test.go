package messenger

import (
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"

	"zabor/zabortest"
)

// The demo's embedded Redis is good for it too.
func TestSourceOnMiniredis(t *testing.T) {
	zabortest.Source(t, func(t *testing.T) zabortest.SourceUnderTest {
		server := miniredis.RunT(t)
		table, db := failedTable(t)
		tr := open(t, "redis://"+server.Addr()+"/messages?redeliver_timeout=1&claim_interval=50", func(o *Options) { o.Failed = table })
		return zabortest.SourceUnderTest{
			Source:      tr,
			Reserve:     time.Second,
			Push:        func(t *testing.T, orderID string) { tr.add(t, entry(phpBody(orderID))) },
			PushRaw:     func(t *testing.T, raw []byte) { tr.add(t, string(raw)) },
			Unreadable:  []byte("s:5:\"hello\xff\";"),
			Failed:      func(t *testing.T) int { return count(t, db) },
			BreakFailed: func(t *testing.T) func() { return breakTable(t, db) },
			Other:       "other",
			Forwarded:   func(t *testing.T) []string { return values(t, tr.client, "other") },
			Disconnect:  func(t *testing.T) {},
		}
	})
}

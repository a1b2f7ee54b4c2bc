package prove

import (
	"testing"

	"zabor/messenger"
)

// The proof's stream takes the place of the application's in whatever shape its
// DSN has, and the server stays the same.
func TestWithStream(t *testing.T) {
	t.Parallel()
	for _, dsn := range []string{
		"redis://localhost:6379/messages/symfony/consumer?dbindex=3&redeliver_timeout=60",
		"redis://user:p%40ss@localhost/messages?delete_after_ack=false&stream_max_entries=10&dbindex=3",
		"rediss://localhost?stream=messages&group=g&dbindex=3",
		"redis:///run/redis.sock?stream=messages&dbindex=3",
		"redis:?host[h1:26379]&host[h2:26379]&sentinel_master=m&dbindex=3",
		"redis://h1:6379/messages,redis://h2:6379",
	} {
		was, err := messenger.ParseDSN(dsn)
		if err != nil {
			t.Fatal(err)
		}
		got, err := messenger.ParseDSN(withStream(dsn, "zabor_prove:x:messages", "redeliver_timeout=4&claim_interval=1000&delete_after_ack=true"))
		if err != nil {
			t.Errorf("%s: %v", dsn, err)
			continue
		}
		if got.Stream != "zabor_prove:x:messages" || got.Group != group || got.RedeliverTimeout.Seconds() != 4 || !got.DeleteAfterAck || got.MaxEntries != 0 {
			t.Errorf("%s: %+v", dsn, got)
		}
		if got.Addrs[0] != was.Addrs[0] || len(got.Addrs) != len(was.Addrs) || got.DB != was.DB || got.Password != was.Password || got.Sentinel != was.Sentinel ||
			got.Cluster != was.Cluster || (got.TLS == nil) != (was.TLS == nil) {
			t.Errorf("%s: another server: %+v", dsn, got)
		}
	}
}

func TestPlainDSN(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]string{
		"redis://localhost:6379/2":                       "redis://localhost:6379?dbindex=2",
		"rediss://user:secret@redis.example.com:6380":    "rediss://user:secret@redis.example.com:6380",
		"redis://:secret@localhost/0":                    "redis://:secret@localhost?dbindex=0",
		"unix:///run/redis.sock":                         "", // it has no place for a stream
		"redis://alone@localhost":                        "",
		"redis://h1:26379,h2:26379/0?master_name=mymain": "",
	} {
		if got := plainDSN(address); got != want {
			t.Errorf("%s: %q, want %q", address, got, want)
		}
	}
}

// Each filter leaves what it names, and no filter all 168.
func TestCells(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		f    Filter
		want int
	}{
		{Filter{}, 4 * 7 * 2 * 3},
		{Filter{Strategies: []Strategy{Fence}}, 7 * 2 * 3},
		{Filter{Moments: []Moment{Sent, InAck}, Deaths: []Death{Kill}}, 4 * 2 * 2},
		{Filter{Queues: []Queue{Laravel}, Deaths: []Death{Kill, Stall}}, 4 * 7 * 2},
	} {
		seen := map[Cell]bool{}
		for _, cell := range c.f.Cells() {
			seen[cell] = true
		}
		if len(seen) != c.want {
			t.Errorf("%+v: %d cells, want %d", c.f, len(seen), c.want)
		}
	}
}

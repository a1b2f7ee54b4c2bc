package prove

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

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

// Each filter leaves what it names, and no filter all 174.
func TestCells(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		f    Filter
		want int
	}{
		{Filter{}, 4*7*2*3 + 2*3},
		{Filter{Strategies: []Strategy{Fence}}, 8 * 2 * 3},
		{Filter{Moments: []Moment{Sent, InAck}, Deaths: []Death{Kill}}, 4 * 2 * 2},
		{Filter{Queues: []Queue{Laravel}, Deaths: []Death{Kill, Stall}}, 4*7*2 + 2},
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

// A run that was killed has left keys, which go; those of one that lives and those of
// somebody else stay. One that was taken for dead stops, and does not count on.
func TestSweep(t *testing.T) {
	t.Parallel()
	server := miniredis.RunT(t)
	client := redis.NewClient(&redis.Options{Addr: server.Addr(), MaxRetries: -1})
	defer client.Close()
	ctx := t.Context()
	for _, key := range []string{
		"zabor_prove:dead:mark", "zabor_prove:dead:control:queues:payments", "zabor_prove:lives:mark", "zabor_prove:lives:alive", "zabor_prove:lives:x",
	} {
		if err := client.Set(ctx, key, markText, 0).Err(); err != nil {
			t.Fatal(err)
		}
	}
	for key, value := range map[string]string{"zabor_prove:letters": "a", "zabor_prove:shop:queue": "b", "zabor_prove:other:mark": "another program's", "zabor_prove:other:x": "c"} {
		if err := client.Set(ctx, key, value, 0).Err(); err != nil {
			t.Fatal(err)
		}
	}
	s := &scratch{prefix: "zabor_prove:this:", clients: []redis.UniversalClient{client}, swept: make(chan struct{})}
	if err := s.begin(ctx); err != nil {
		t.Fatal(err)
	}
	defer s.stop()
	want := []string{
		"zabor_prove:letters", "zabor_prove:lives:alive", "zabor_prove:lives:mark", "zabor_prove:lives:x", "zabor_prove:other:mark", "zabor_prove:other:x",
		"zabor_prove:shop:queue", "zabor_prove:this:alive", "zabor_prove:this:mark",
	}
	if got := server.Keys(); !slices.Equal(got, want) {
		t.Fatalf("there is\n%q, want\n%q", got, want)
	}

	if s.live(ctx) {
		t.Error("swept, and nobody was there")
	}
	server.FastForward(2 * alive) // it slept
	if err := sweep(ctx, client); err != nil {
		t.Fatal(err)
	}
	if !s.live(ctx) {
		t.Error("it goes on in a place that was taken away")
	}
	p := &Place{swept: make(chan struct{})}
	held, cancel := p.while(ctx)
	defer cancel()
	close(p.swept)
	<-held.Done()
	if err := context.Cause(held); !errors.Is(err, errSwept) {
		t.Errorf("got %v, want %v", err, errSwept)
	}
}

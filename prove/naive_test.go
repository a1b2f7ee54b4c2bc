package prove

import (
	"log/slog"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"zabor/worker"
)

// A worker that slept through its lock's life gives back no lock of the one that has
// taken the order since, as the locks of Laravel's cache and of Symfony do not.
func TestALockIsItsOwners(t *testing.T) {
	t.Parallel()
	server := miniredis.RunT(t)
	client := redis.NewClient(&redis.Options{Addr: server.Addr(), MaxRetries: -1})
	defer client.Close()
	w := &Worker{Strategy: UniqueLock, Locks: client, Prefix: "p:", LockLife: time.Second, Log: slog.New(slog.DiscardHandler)}
	ctx := t.Context()
	if !w.lock(ctx, &worker.Message{}, "1", "sleeper") {
		t.Fatal("not locked")
	}
	server.FastForward(2 * time.Second)
	if !w.lock(ctx, &worker.Message{}, "1", "other") {
		t.Fatal("the lock has not lapsed")
	}
	w.unlock(ctx, "1", "sleeper")
	if got := client.Get(ctx, "p:lock:1").Val(); got != "other" {
		t.Errorf("the lock is %q, want the other's", got)
	}
	w.unlock(ctx, "1", "other")
	if n := client.Exists(ctx, "p:lock:1").Val(); n != 0 {
		t.Error("its owner could not give it back")
	}
}

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"zabor"
	"zabor/internal/servers"
	"zabor/sandbox"
)

// orders are n order ids.
func orders(n int) []string {
	ids := make([]string, n)
	for i := range ids {
		ids[i] = fmt.Sprint(1001 + i)
	}
	return ids
}

// putAll puts a message for each of ids, in turn through each framework.
func (s *shop) putAll(ids []string) {
	s.t.Helper()
	var messages []message
	for i, f := range frameworks {
		for j, id := range ids {
			if j%len(frameworks) == i {
				messages = append(messages, newMessage(s.o.redis, f.name, id))
			}
		}
	}
	put(s.t, messages...)
}

// allChargedOnce checks that each of ids was charged once and that there is
// nothing else: no row, no charge, no message.
func (s *shop) allChargedOnce(ids []string) {
	s.t.Helper()
	for _, id := range ids {
		s.chargedOnce(id)
	}
	rows, stats := len(s.rows()), s.provider.Stats()
	if rows != len(ids) || stats.Charges != int64(len(ids)) || stats.Repeated != 0 {
		s.t.Errorf("%d orders, %d rows, %d charges, %d orders charged twice", len(ids), rows, stats.Charges, stats.Repeated)
	}
	s.empty()
}

// While the database is away nothing is called and nothing is lost.
func TestDatabaseDown(t *testing.T) {
	t.Parallel()
	db := servers.OwnMariaDB(t)
	s := newShop(t, servers.MariaDBDatabase(t, db), options{lanes: 4, raced: true})
	w := s.worker()
	w.logged("msg=started")
	db.Kill()
	ids := orders(6)
	s.putAll(ids)
	for _, id := range ids {
		w.logged("test:" + id + "/charge: insert")
	}
	if posts := s.provider.Stats().Posts; posts != 0 {
		t.Errorf("%d requests reached the provider while the fence was away", posts)
	}
	if d := s.depth(); d.ready+d.reserved+d.delayed != int64(len(ids)) {
		t.Errorf("the queues hold %+v, want %d messages", d, len(ids))
	}
	if err := db.Start(); err != nil {
		t.Fatal(err)
	}
	s.charges(int64(len(ids)))
	eventually(t, "all messages are acked", func() bool { return s.depth() == depth{} })
	w.signal(syscall.SIGTERM)
	w.exit(0)
	s.allChargedOnce(ids)
}

// A success that the database cannot save at first is saved when it is back.
// There is no look-up, so nothing else can have saved it.
func TestDatabaseDownBetweenAnswerAndSave(t *testing.T) {
	t.Parallel()
	db := servers.OwnMariaDB(t)
	s := newShop(t, servers.MariaDBDatabase(t, db), options{timeout: 5 * time.Second, reserve: 20 * time.Second, noLookup: true})
	s.onCharge(func(sandbox.Charge) { db.Kill() })
	put(t, newMessage(s.o.redis, "laravel", target))
	w := s.worker()
	w.logged("msg=started")
	s.charges(1)
	w.logged("cannot resolve") // the worker has met the dead server
	if err := db.Start(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the success is saved and its message acked", func() bool {
		return s.state(target) == zabor.Settled && s.depth() == depth{}
	})
	w.signal(syscall.SIGTERM)
	w.exit(0)
	s.allChargedOnce([]string{target})
}

// Redis is killed while orders are charged, and comes back (sidekiq/sidekiq#2999):
// what was charged is acked then, and not charged again.
func TestRedisDown(t *testing.T) {
	t.Parallel()
	server := servers.OwnRedis(t)
	s := newShop(t, servers.MariaDB(t), options{redis: servers.RedisDB{Addr: server.Addr()}, lanes: 4, timeout: 2 * time.Second, reserve: 5 * time.Second, raced: true})
	ids := orders(30)
	s.putAll(ids)
	reached, dead := make(chan struct{}), make(chan struct{})
	var n atomic.Int64
	s.onCharge(func(sandbox.Charge) {
		if n.Add(1) == 10 {
			close(reached)
			<-dead
		}
	})
	w := s.worker("--drain")
	<-reached
	server.Kill()
	close(dead)
	w.logged("cannot ack")
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	w.exit(0)
	s.allChargedOnce(ids)
}

// A worker that is told to stop takes nothing new, finishes and saves what it has
// sent, and leaves the rest to the next.
func TestStopUnderLoad(t *testing.T) {
	t.Parallel()
	const lanes = 8
	for _, d := range databases {
		t.Run(d.name, func(t *testing.T) {
			t.Parallel()
			// The reserve is longer than the test: a message that was taken
			// and not given back would be missing at its end.
			s := newShop(t, d.open(t), options{lanes: lanes, timeout: 20 * time.Second, reserve: 10 * time.Minute, raced: true})
			ids := orders(60)
			s.putAll(ids)
			stopping := make(chan struct{})
			free := sync.OnceFunc(func() { close(stopping) })
			defer free()
			s.onCharge(func(sandbox.Charge) { <-stopping })
			first := s.worker()
			s.charges(lanes)
			first.signal(syscall.SIGTERM)
			first.logged("stopping: what is under way")
			free()
			first.exit(0)

			rows := s.rows()
			for key, row := range rows {
				if row.State != zabor.Settled {
					t.Errorf("%s is %s after the stop", key, row.State)
				}
			}
			if charges := s.provider.Stats().Charges; charges != lanes || len(rows) != lanes {
				t.Errorf("%d charges and %d rows after the stop, want the %d that were under way", charges, len(rows), lanes)
			}
			if got, want := s.depth(), (depth{ready: int64(len(ids) - lanes)}); got != want {
				t.Errorf("the queues hold %+v after the stop, want %+v", got, want)
			}
			s.worker("--drain").exit(0)
			s.allChargedOnce(ids)
		})
	}
}

// The database goes between the provider's answer and its saving, and the worker
// is stopped before it is back: the success is in the journal, encrypted, and
// saved from there before the next start takes a message. There is no look-up, so
// nothing else can have saved it.
func TestAStopWhileTheDatabaseIsDown(t *testing.T) {
	t.Parallel()
	db := servers.OwnMariaDB(t)
	s := newShop(t, servers.MariaDBDatabase(t, db), options{timeout: 5 * time.Second, reserve: 20 * time.Second, noLookup: true})
	journal := t.TempDir()
	content, err := os.ReadFile(s.file)
	if err != nil {
		t.Fatal(err)
	}
	text := fmt.Sprintf("journal: %s\nencryption_key: 0123456789abcdef0123456789abcdef\n%s", journal, content)
	if err := os.WriteFile(s.file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	s.onCharge(func(sandbox.Charge) { db.Kill() })
	put(t, newMessage(s.o.redis, "laravel", target))
	w := s.worker()
	s.charges(1)
	kept := func() []string {
		names, err := filepath.Glob(filepath.Join(journal, "*.success"))
		if err != nil {
			t.Fatal(err)
		}
		return names
	}
	eventually(t, "the success is in the journal", func() bool { return len(kept()) == 1 })
	if content, err := os.ReadFile(kept()[0]); err != nil || strings.Contains(string(content), target) {
		t.Errorf("%v; the journal can be read: %.200q", err, content)
	}
	w.signal(syscall.SIGTERM)
	w.exit(0)
	if err := db.Start(); err != nil {
		t.Fatal(err)
	}
	w = s.worker()
	w.logged("saved from the journal")
	eventually(t, "the message is acked", func() bool { return s.state(target) == zabor.Settled && s.depth() == depth{} })
	w.signal(syscall.SIGTERM)
	w.exit(0)
	s.allChargedOnce([]string{target})
	if left := kept(); len(left) != 0 {
		t.Errorf("the journal still holds %v", left)
	}
}

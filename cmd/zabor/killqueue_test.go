package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"

	"zabor"
	"zabor/internal/servers"
)

// road is a Redis server's address through which each command can be watched
// before the server gets it, and its answer before the client does.
type road struct {
	net.Listener
	server string

	mu     sync.Mutex
	before func(command []byte) (drop bool) // may kill whoever has sent it
	after  func(command []byte)             // the server has run it
}

func newRoad(t testing.TB, r servers.RedisDB) (*road, servers.RedisDB) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	way := &road{Listener: l, server: r.Addr}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go way.carry(c)
		}
	}()
	return way, servers.RedisDB{Addr: l.Addr().String(), DB: r.DB}
}

func (r *road) watch(before func([]byte) bool, after func([]byte)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.before, r.after = before, after
}

func (r *road) carry(client net.Conn) {
	defer client.Close()
	server, err := net.Dial("tcp", r.server)
	if err != nil {
		return
	}
	defer server.Close()
	var last struct {
		sync.Mutex
		command []byte
	}
	go func() {
		defer client.Close()
		defer server.Close()
		b := make([]byte, 64<<10)
		for {
			n, err := client.Read(b)
			if err != nil {
				return
			}
			command := bytes.Clone(b[:n])
			last.Lock()
			last.command = command
			last.Unlock()
			r.mu.Lock()
			before := r.before
			r.mu.Unlock()
			if before != nil && before(command) {
				return
			}
			if _, err := server.Write(command); err != nil {
				return
			}
		}
	}()
	b := make([]byte, 64<<10)
	for {
		n, err := server.Read(b)
		if errors.Is(err, io.EOF) || err != nil {
			return
		}
		last.Lock()
		command := last.command
		last.Unlock()
		r.mu.Lock()
		after := r.after
		r.mu.Unlock()
		if after != nil {
			after(command)
		}
		if _, err := client.Write(b[:n]); err != nil {
			return
		}
	}
}

// A worker that is killed right before or right after its forward leaves the
// message on one of the two queues, and the next worker leaves it on the other's.
func TestKilledInTheForward(t *testing.T) {
	t.Parallel()
	for _, php := range phpShops {
		for _, ran := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/ran=%v", php.name, ran), func(t *testing.T) {
				t.Parallel()
				way, through := newRoad(t, servers.Redis(t))
				s := newShop(t, databases[0].open(t), options{redis: through})
				s.add(fmt.Sprintf("bus: {forward: {'%s': default}}\n", php.mail))
				m := newMessage(s.o.redis, php.framework, "1")
				m.Class = php.mail
				put(t, m)
				want := s.values(php.list)
				started := make(chan *process, 1)
				kill := sync.OnceFunc(func() { w := <-started; w.kill(); started <- w })
				// Only a forward names the other queue.
				watch := func(command []byte) bool {
					forwards := bytes.Contains(command, []byte("\r\n"+php.target+"\r\n")) && bytes.Contains(bytes.ToLower(command), []byte("eval"))
					if forwards {
						kill()
					}
					return forwards
				}
				if ran {
					way.watch(nil, func(command []byte) { watch(command) })
				} else {
					way.watch(watch, nil)
				}
				w := s.worker("--queue", php.queue)
				started <- w
				w.exit(-1)
				way.watch(nil, nil)
				s.worker("--queue", php.queue, "--drain").exit(exitGood)
				got := s.values(php.target)
				for i := range got { // that a worker has had it stays written in a job
					got[i] = strings.Replace(got[i], `"attempts":1`, `"attempts":0`, 1)
				}
				if len(got) < 1 || len(got) > 2 || got[0] != want[0] || got[len(got)-1] != want[0] {
					t.Errorf("the other queue holds %q, want %q once or twice", got, want)
				}
				s.empty()
			})
		}
	}
}

// A worker that is killed between the entry in the failure transport and the ack:
// the message comes again, is not called, and is one entry in the end.
func TestKilledBetweenParkAndAck(t *testing.T) {
	t.Parallel()
	for _, php := range phpShops {
		for _, d := range databases {
			t.Run(php.name+"/"+d.name, func(t *testing.T) {
				t.Parallel()
				way, through := newRoad(t, servers.Redis(t))
				s := newShop(t, d.open(t), options{redis: through})
				if err := writeRow(s.fence, zabor.Held, key("1")); err != nil {
					t.Fatal(err)
				}
				put(t, newMessage(s.o.redis, php.framework, "1"))
				started := make(chan *process, 1)
				kill := sync.OnceFunc(func() { w := <-started; w.kill(); started <- w })
				way.watch(func([]byte) bool {
					laravel, symfony := s.failed()
					if laravel+symfony > 0 {
						kill()
					}
					return laravel+symfony > 0
				}, nil)
				w := s.worker("--queue", php.queue)
				started <- w
				w.exit(-1)
				way.watch(nil, nil)
				if laravel, symfony := s.failed(); laravel+symfony != 1 || s.depth().reserved != 1 {
					t.Fatalf("killed with %d and %d failed messages, the queue holds %+v; want it in both", laravel, symfony, s.depth())
				}
				s.worker("--queue", php.queue, "--drain").exit(exitBad)
				if laravel, symfony := s.failed(); laravel+symfony != 1 {
					t.Errorf("%d and %d failed messages, want one", laravel, symfony)
				}
				if row := s.row("1"); row.State != zabor.Held || row.Parked == "" || s.provider.Stats().Posts != 0 {
					t.Errorf("row %+v, %d requests", row, s.provider.Stats().Posts)
				}
				s.empty()
			})
		}
	}
}

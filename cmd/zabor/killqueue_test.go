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

	"github.com/redis/go-redis/v9"

	"zabor"
	"zabor/internal/exit"
	"zabor/internal/servers"
)

// road is a Redis server's address through which each command can be watched
// before the server gets it, and its answer before the client does.
type road struct {
	net.Listener
	server string

	mu     sync.Mutex
	before func(command []byte) (drop bool) // may kill whoever has sent it
	after  func(command []byte)             // the server has run it, and did not ask for its text
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
		if after != nil && !bytes.HasPrefix(b[:n], []byte("-NOSCRIPT")) {
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
				s.worker("--queue", php.queue, "--drain").exit(exit.Good)
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

// thenCluster is a Redis Cluster whose node says that it is at the other end of a
// road, and a shop on it that has one message of a framework.
func thenCluster(t *testing.T, framework, list, target string) (*shop, *road) {
	t.Helper()
	node := servers.RedisCluster(t)
	way, through := newRoad(t, servers.RedisDB{Addr: node.Addr()})
	_, port, _ := net.SplitHostPort(through.Addr)
	direct := redis.NewClient(&redis.Options{Addr: node.Addr()})
	defer direct.Close()
	if err := direct.ConfigSet(t.Context(), "cluster-announce-port", port).Err(); err != nil {
		t.Fatal(err)
	}
	s := newShop(t, databases[0].open(t), options{redis: through})
	s.edit("redis: \""+through.URL()+`"`, `redis: "redis://`+through.Addr+`?cluster=true"`)
	s.edit("/messages/symfony?", "/"+list+"/symfony?cluster=1&")
	s.edit("  payments:\n", "  '"+list+"':\n")
	s.add("    then: '" + target + "'\n")

	// PHP's queues of Laravel 8 need braces in their names on a cluster.
	elsewhere := servers.Redis(t)
	put(t, newMessage(elsewhere, framework, "1"))
	from := redis.NewClient(&redis.Options{Addr: elsewhere.Addr, DB: elsewhere.DB})
	defer from.Close()
	var err error
	if framework == "laravel" {
		err = direct.RPush(t.Context(), laravelKey(list), from.LIndex(t.Context(), "laravel_database_queues:payments", 0).Val()).Err()
	} else {
		entry := from.XRange(t.Context(), "messages", "-", "+").Val()[0]
		err = direct.XAdd(t.Context(), &redis.XAddArgs{Stream: list, Values: entry.Values}).Err()
	}
	if err != nil {
		t.Fatal(err)
	}
	return s, way
}

// laravelKey is the list of a queue on a cluster.
func laravelKey(queue string) string { return "laravel_database_queues:" + queue }

// A worker that is killed in an ack that lets the message go on: right before and
// right after the command that puts it on the other queue, which is the ack itself
// where the two share a slot, and comes before it where they do not. The message was
// charged once, and is on the other queue in the end: twice only where the killed
// worker had put it there without an ack, on a stream, which nobody searches for a
// copy.
func TestKilledInTheThen(t *testing.T) {
	t.Parallel()
	for _, framework := range frameworks[:2] {
		for _, slots := range []struct {
			name, list, target string
			acked              bool // with the command that puts the message on the other queue
		}{
			{"one slot", "{shop}-payments", "{shop}-mail", true},
			{"two slots", "{payments}", "{mail}", false},
		} {
			for _, ran := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s/%s/ran=%v", framework.name, slots.name, ran), func(t *testing.T) {
					t.Parallel()
					s, way := thenCluster(t, framework.name, slots.list, slots.target)
					list, target, queue := slots.list, slots.target, "async"
					if framework.name == "laravel" {
						list, target, queue = laravelKey(list), laravelKey(target), list
					}
					want := s.values(list)
					if len(want) != 1 {
						t.Fatalf("%s holds %q", list, want)
					}
					started := make(chan *process, 1)
					kill := sync.OnceFunc(func() { w := <-started; w.kill(); started <- w })
					watch := func(command []byte) bool {
						goesOn := bytes.Contains(command, []byte("\r\n"+target+"\r\n"))
						if goesOn {
							kill()
						}
						return goesOn
					}
					if ran {
						way.watch(nil, func(command []byte) { watch(command) })
					} else {
						way.watch(watch, nil)
					}
					w := s.worker("--queue", queue)
					started <- w
					w.exit(-1)
					way.watch(nil, nil)
					moved := 0
					if ran {
						moved = 1
					}
					if got := s.values(target); len(got) != moved || s.state("1") != zabor.Settled {
						t.Fatalf("killed with a row that is %s and %d messages on the other queue, want %d", s.state("1"), len(got), moved)
					}
					s.worker("--queue", queue, "--drain").exit(exit.Good)
					got := s.values(target)
					copies := 1
					if ran && !slots.acked && framework.name != "laravel" {
						copies = 2
					}
					if len(got) != copies {
						t.Errorf("the other queue holds %d messages, want %d", len(got), copies)
					}
					for _, m := range got {
						if m != want[0] {
							t.Errorf("the other queue holds\n%q, was\n%q", m, want[0])
						}
					}
					s.chargedOnce("1")
					noted := !ran || !slots.acked // else nobody came who could have noted it
					if row := s.row("1"); row.Forwarded != noted || row.Tries != 1 {
						t.Errorf("row %+v", row)
					}
					if left := s.values(list); len(left) != 0 {
						t.Errorf("the queue holds %q", left)
					}
				})
			}
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
				s.anyRequest("1 = 1")
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
				s.worker("--queue", php.queue, "--drain").exit(exit.BadAnswer)
				if laravel, symfony := s.failed(); laravel+symfony != 1 {
					t.Errorf("%d and %d failed messages, want one", laravel, symfony)
				}
				if row := s.row("1"); row.State != zabor.Held || row.Parked == "" || s.provider.Stats().Posts != 0 {
					t.Errorf("the row is %s, parked is %q, %d requests", row.State, row.Parked, s.provider.Stats().Posts)
				}
				s.empty()
			})
		}
	}
}

package main

import (
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"zabor/internal/exit"

	"zabor"
)

// A worker that slept through its lease before the send finds out and does not
// send (laravel/framework#19978), whether it wakes up alone or after another has
// taken over.
func TestStoppedBeforeTheSendDoesNotSend(t *testing.T) {
	t.Parallel()
	for _, d := range databases {
		for _, takenOver := range []bool{false, true} {
			name := d.name + "/wakes up alone"
			if takenOver {
				name = d.name + "/was taken over"
			}
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				// The one that wakes up alone does so within its reserve, so that its
				// word is enough: that try is not counted.
				o, tries := options{reserve: time.Minute}, 1
				if takenOver {
					o, tries = options{}, 2
				}
				s := newShop(t, d.open(t), o)
				put(t, newMessage(s.o.redis, "laravel", control), newMessage(s.o.redis, "laravel", target))
				first := s.worker("--stop-at", "sending:"+target)
				first.stopped()
				s.leaseOver(target)
				if takenOver {
					s.worker("--drain").exit(0)
					s.chargedOnce(target)
				}
				first.signal(syscall.SIGCONT)
				if takenOver {
					s.noted(target, "a late answer of epoch 1 changed nothing: unsent: ")
				}
				eventually(t, "the order is settled and its message acked", func() bool {
					return s.state(target) == zabor.Settled && s.depth() == depth{}
				})
				first.signal(syscall.SIGTERM)
				first.exit(0)
				s.chargedOnce(control)
				s.chargedOnce(target)
				if posts := s.provider.Stats().Posts; posts != 2 {
					t.Errorf("%d requests reached the provider, want 2", posts)
				}
				if row := s.row(target); row.Tries != tries {
					t.Errorf("%d tries are counted, want %d", row.Tries, tries)
				}
			})
		}
	}
}

// A success that arrives after the lease is saved, whatever the row has become
// meanwhile. There is no look-up, so nothing else can have saved it.
func TestStoppedAfterTheAnswerSavesIt(t *testing.T) {
	t.Parallel()
	for _, d := range databases {
		for _, takenOver := range []bool{false, true} {
			name := d.name + "/wakes up alone"
			if takenOver {
				name = d.name + "/was held meanwhile"
			}
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				s := newShop(t, d.open(t), options{noLookup: true, hold: time.Second})
				put(t, newMessage(s.o.redis, "symfony-php", target))
				first := s.worker("--stop-at", "answered:"+target)
				first.stopped()
				s.leaseOver(target)
				if takenOver {
					s.worker("--drain").exit(exit.BadAnswer)
					if got := s.state(target); got != zabor.Held {
						t.Fatalf("the row is %s, want held", got)
					}
				}
				first.signal(syscall.SIGCONT)
				eventually(t, "the success is saved", func() bool { return s.state(target) == zabor.Settled })
				eventually(t, "the message is gone", func() bool { return s.depth() == depth{} })
				first.signal(syscall.SIGTERM)
				first.exit(0)
				s.chargedOnce(target)
			})
		}
	}
}

// leaseOver waits until the lease of order's row has ended, by the database's
// clock, with nothing saved.
func (s *shop) leaseOver(order string) {
	s.t.Helper()
	eventually(s.t, "the lease ends", func() bool {
		row := s.row(order)
		if row.State != zabor.Captured {
			s.t.Fatalf("the row of %s is %q, want captured", order, row.State)
		}
		return row.ReadAt.After(row.Open.SendUntil)
	})
}

// noted waits until a note with text is beside order's row.
func (s *shop) noted(order, text string) {
	s.t.Helper()
	eventually(s.t, "a note: "+text, func() bool {
		notes, err := s.store.History().Of(s.t.Context(), key(order))
		if err != nil {
			s.t.Fatal(err)
		}
		for _, n := range notes {
			if strings.Contains(n.Text, text) {
				return true
			}
		}
		return false
	})
}

// A worker that is told to stop while it starts says that, and not that a server is
// away: nobody waited for it.
func TestStoppedWhileItStarts(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	s := newShop(t, databases[0].open(t), options{})
	s.edit(s.fence, "mysql://root@"+l.Addr().String()+"/shop")
	for _, args := range [][]string{{"worker"}, {"worker", "--drain"}} {
		w := start(t, append(args, "-c", s.file)...)
		conn, err := l.Accept() // and never a word
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		w.signal(syscall.SIGTERM)
		code, says := exit.Good, "stopped before it had started"
		if len(args) > 1 {
			code, says = exit.BadAnswer, "stopped by a signal"
		}
		w.exit(code)
		if log := w.log.String(); !strings.Contains(log, says) || strings.Contains(log, "is the server up") {
			t.Errorf("%v:\n%s", args, log)
		}
	}
}

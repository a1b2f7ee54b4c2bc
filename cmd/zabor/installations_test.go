package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"zabor"
	"zabor/internal/exit"
	"zabor/internal/servers"
	"zabor/sandbox"
)

// installation is another installation's configuration: that of s with another scope,
// and with the fence at the given address.
func (s *shop) installation(scope, fence string) (file string) {
	s.t.Helper()
	text, err := os.ReadFile(s.file)
	ok(s.t, err)
	file = filepath.Join(s.t.TempDir(), "other.yaml")
	other := strings.ReplaceAll(strings.Replace(string(text), "scope: test\n", "scope: "+scope+"\n", 1), s.fence, fence)
	ok(s.t, os.WriteFile(file, []byte(other), 0o600))
	return file
}

// A second installation on a queue that is taken is refused, whatever is under way: with
// another scope, with another fence, with both. It takes nothing.
func TestASecondInstallationOnAQueue(t *testing.T) {
	t.Parallel()
	for _, running := range []bool{true, false} {
		t.Run(fmt.Sprintf("running=%v", running), func(t *testing.T) {
			t.Parallel()
			s := newShop(t, servers.MariaDB(t), options{})
			s.order("0")
			first := s.worker("--queue", "payments")
			s.charges(1)
			eventually(t, "the order is settled", func() bool { return s.state("0") == zabor.Settled && s.depth() == depth{} })
			if !running {
				first.signal(syscall.SIGTERM)
				first.exit(0)
			} else {
				ok(t, s.provider.Plan(sandbox.Fault{Kind: sandbox.ActClose})) // in doubt, and put back
				s.order("1")
				eventually(t, "the order is in doubt", func() bool { return s.state("1") == zabor.Doubt })
			}
			elsewhere := newShop(t, servers.MariaDB(t), options{}).fence
			for name, tt := range map[string]struct{ scope, fence, says string }{
				"scope": {"staging", s.fence, `its queues are marked as those of scope "test"`},
				"fence": {"test", elsewhere, `queue payments belongs to the installation of scope "test", whose fence is in another database`},
				"both":  {"staging", elsewhere, `queue payments belongs to the installation of scope "test", whose fence is in another database`},
			} {
				p := s.start("worker", "-c", s.installation(tt.scope, tt.fence), "--queue", "payments")
				p.exit(exit.WrongUsage)
				if !strings.Contains(strings.ReplaceAll(p.log.String(), `\"`, `"`), tt.says) {
					t.Errorf("another %s: the start says\n%s", name, p.log.String())
				}
			}
			if running {
				eventually(t, "the order is settled", func() bool { return s.state("1") == zabor.Settled })
				s.chargedOnce("1")
			}
			s.chargedOnce("0")
		})
	}
}

// Of two installations that begin at the same moment on a queue that nobody has taken,
// one alone works.
func TestTwoInstallationsBeginAtOnce(t *testing.T) {
	t.Parallel()
	for round := range 4 {
		t.Run(fmt.Sprint(round), func(t *testing.T) {
			t.Parallel()
			s := newShop(t, databases[0].open(t), options{})
			other := s.installation("staging", newShop(t, databases[0].open(t), options{}).fence)
			const orders = 20
			for i := range orders {
				s.order(fmt.Sprint(i))
			}
			var both [2]*process
			var wg sync.WaitGroup
			for i, file := range []string{s.file, other} {
				wg.Go(func() { both[i] = s.start("worker", "-c", file, "--queue", "payments") })
			}
			wg.Wait()
			s.charges(orders)
			ended := 0
			eventually(t, "one of them is refused", func() bool {
				ended = 0
				for _, p := range both {
					select {
					case <-p.done:
						ended++
					default:
					}
				}
				return ended == 1
			})
			for _, p := range both {
				p.signal(syscall.SIGTERM)
				<-p.done
			}
			if n := s.provider.Stats().Charges; n != orders {
				t.Errorf("%d charges for %d orders", n, orders)
			}
		})
	}
}

// A process whose queue is taken over by another installation calls nothing any more,
// and says so.
func TestAQueueIsTakenOver(t *testing.T) {
	t.Parallel()
	s := newShop(t, databases[0].open(t), options{})
	p := s.worker("--queue", "payments")
	p.logged("msg=started")
	ok(t, s.redis.Set(t.Context(), "laravel_database_zabor:payments:scope", `{"scope":"staging"}`, 0).Err())
	p.logged("ALERT foreign-consumer")
	s.order("1")
	p.logged("was taken over by the installation of scope")
	p.signal(syscall.SIGTERM)
	p.exit(0)
	if n := s.provider.Stats().Posts; n != 0 {
		t.Errorf("%d requests", n)
	}
}

// Two installations on one table, each with a Redis of its own, begin without a question
// while the other one has open rows, and neither waits for the other.
func TestTwoInstallationsOnOneTable(t *testing.T) {
	t.Parallel()
	for _, d := range databases {
		t.Run(d.name, func(t *testing.T) {
			t.Parallel()
			a := newShop(t, d.open(t), options{lanes: 4})
			b := newShop(t, "sqlite://"+filepath.Join(t.TempDir(), "unused.db"), options{lanes: 4})
			b.edit(b.fence, a.fence)
			b.edit("scope: test\n", "scope: second\n")
			a.order("control")
			first := a.worker("--queue", "payments")
			a.charges(1)
			ok(t, a.provider.Plan(sandbox.Fault{Kind: sandbox.ActClose}))
			a.order("doubt")
			eventually(t, "a has an open row", func() bool { return a.state("doubt") == zabor.Doubt })
			const orders = 40
			for i := range orders { // the same orders in both
				a.order(fmt.Sprint(i))
				b.order(fmt.Sprint(i))
			}
			second := b.worker("--queue", "payments")
			a.charges(orders + 1)
			b.charges(orders)
			eventually(t, "the doubt is settled", func() bool { return a.state("doubt") == zabor.Settled })
			for _, p := range []*process{first, second} {
				p.signal(syscall.SIGTERM)
				p.exit(0)
				if log := p.log.String(); strings.Contains(log, "ALERT") {
					t.Errorf("an alert:\n%s", log)
				}
			}
			keys := map[string]bool{}
			for i := range orders {
				for _, s := range []*shop{a, b} {
					charges := s.provider.Charges(fmt.Sprint(i))
					if len(charges) != 1 || keys[charges[0].Key] {
						t.Errorf("order %d: charges %v", i, charges)
						continue
					}
					keys[charges[0].Key] = true
				}
			}
		})
	}
}

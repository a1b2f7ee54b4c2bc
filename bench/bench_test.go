// Package bench measures the fence alone and the whole road from the queue to
// the ack, beside the naive loops that people write instead. Quote ratios of one
// run, never single numbers: the disk's own rate is measured in the same run.
//
//	make bench
//	go test -run '^$' -bench 'Fence/mariadb' ./bench
package bench

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"zabor"
	"zabor/internal/servers"
	"zabor/sqlstore"
)

func TestMain(m *testing.M) { servers.Main(m) }

var lanes = []int{1, 16, 64, 256}

// databases gives each benchmark a fresh table of every database.
var databases = []struct {
	name    string
	address func(b *testing.B) string
}{
	{"sqlite", func(b *testing.B) string { return "sqlite://" + filepath.Join(diskDir(b), "fence.db") }},
	{"mariadb", func(b *testing.B) string { return servers.MariaDB(b) }},
	{"postgres", func(b *testing.B) string { return servers.Postgres(b) }},
}

// diskDir is a folder where the servers have theirs, so that all meet the same
// disk.
func diskDir(b *testing.B) string {
	dir, err := os.MkdirTemp(os.Getenv("ZABOR_TEST_DIR"), "zabor-bench-") //nolint:usetesting // on the disk that is measured
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

func openStore(b *testing.B, address string) *sqlstore.Store {
	s, err := sqlstore.Open(address)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { s.Close() })
	if err := s.Setup().Migrate(b.Context()); err != nil {
		b.Fatal(err)
	}
	return s
}

// commits is how many transactions the server has committed, where it tells.
func commits(b *testing.B, s *sqlstore.Store) (n int64, ok bool) {
	var query string
	switch s.Dialect() {
	case "mysql":
		query = "SELECT SUM(variable_value) FROM information_schema.global_status WHERE variable_name = 'COM_STMT_EXECUTE'"
	case "postgres":
		query = "SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()"
	default:
		return 0, false
	}
	var value sql.NullFloat64
	if err := s.DB().QueryRowContext(b.Context(), query).Scan(&value); err != nil {
		b.Fatal(err)
	}
	return int64(value.Float64), value.Valid
}

// measure runs work b.N times over the given number of goroutines and reports
// rate, latencies and the CPU time of this process.
func measure(b *testing.B, goroutines int, work func(i int)) {
	took := make([]time.Duration, b.N)
	var next atomic.Int64
	before := cpuTime(b)
	b.ReportAllocs()
	b.ResetTimer()
	start := time.Now()
	var wg sync.WaitGroup
	for range goroutines {
		wg.Go(func() {
			for {
				i := int(next.Add(1)) - 1
				if i >= b.N {
					return
				}
				begin := time.Now()
				work(i)
				took[i] = time.Since(begin)
			}
		})
	}
	wg.Wait()
	elapsed := time.Since(start)
	b.StopTimer()
	report(b, took, elapsed, cpuTime(b)-before)
}

func report(b *testing.B, took []time.Duration, elapsed, cpu time.Duration) {
	slices.Sort(took)
	b.ReportMetric(float64(len(took))/elapsed.Seconds(), "charges/s")
	b.ReportMetric(took[len(took)/2].Seconds()*1000, "p50-ms")
	b.ReportMetric(took[len(took)*99/100].Seconds()*1000, "p99-ms")
	b.ReportMetric(float64(cpu.Microseconds())/float64(len(took)), "cpu-µs/charge")
}

func cpuTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func effect(i int) zabor.Effect {
	return zabor.Effect{
		Key:      zabor.Key{Scope: "bench", Order: fmt.Sprint(i), Step: "charge"},
		Provider: "sandbox", Amount: zabor.Money{Minor: 1999, Currency: "EUR"}, Fingerprint: zabor.Fingerprint{Message: "m", Request: "f"},
		Render:  func(zabor.ProviderKeys, string) ([]byte, error) { return make([]byte, 200), nil },
		Timeout: 10 * time.Second, MaxAttempts: 3, AbsentAfter: time.Minute, HoldAfter: time.Hour, PendingFor: time.Hour,
		MissingRow: zabor.Captured,
	}
}

// The fence alone: capture, a call that answers at once, settle.
func BenchmarkFence(b *testing.B) {
	for _, d := range databases {
		for _, n := range lanes {
			b.Run(fmt.Sprintf("%s/lanes=%d", d.name, n), func(b *testing.B) {
				benchFence(b, openStore(b, d.address(b)), n)
			})
		}
	}
}

// atOnce is a call that is answered at once.
func atOnce(_ context.Context, row zabor.Row) zabor.Outcome {
	return zabor.Outcome{Verdict: zabor.Done, Reference: "pay_" + row.Order, Answer: &zabor.Answer{Status: 200, Body: make([]byte, 200)}}
}

// benchFence takes b.N effects through a fence over s, in so many lanes.
func benchFence(b *testing.B, s *sqlstore.Store, lanes int) {
	f := &zabor.Fence{Store: s, Secret: make([]byte, zabor.MinSecret)}
	before, counted := commits(b, s)
	measure(b, lanes, func(i int) {
		if _, err := f.Do(b.Context(), effect(i), atOnce); err != nil {
			b.Error(err)
		}
	})
	if after, _ := commits(b, s); counted {
		b.ReportMetric(float64(after-before)/float64(b.N), "commits/charge")
	}
}

// Two plain autocommit statements by database/sql: what one lane cannot beat.
func BenchmarkNaiveFence(b *testing.B) {
	for _, d := range databases {
		for _, n := range lanes {
			b.Run(fmt.Sprintf("%s/lanes=%d", d.name, n), func(b *testing.B) {
				s := openStore(b, d.address(b))
				insert, update := naiveStatements(b, s)
				measure(b, n, func(i int) {
					if _, err := insert.Exec(int64(i), "charge"); err != nil {
						b.Error(err)
					}
					if _, err := update.Exec("pay_1", int64(i)); err != nil {
						b.Error(err)
					}
				})
			})
		}
	}
}

func naiveStatements(b *testing.B, s *sqlstore.Store) (insert, update *sql.Stmt) {
	p1, p2 := "?", "?"
	if s.Dialect() == "postgres" {
		p1, p2 = "$1", "$2"
	}
	if s.Dialect() == "sqlite" {
		s.DB().SetMaxOpenConns(1) // as everybody does there: it has one writer
	}
	var err error
	if _, err = s.DB().Exec("CREATE TABLE naive (id BIGINT PRIMARY KEY, step VARCHAR(64) NOT NULL, reference VARCHAR(64))"); err != nil {
		b.Fatal(err)
	}
	if insert, err = s.DB().Prepare("INSERT INTO naive (id, step) VALUES (" + p1 + ", " + p2 + ")"); err != nil {
		b.Fatal(err)
	}
	if update, err = s.DB().Prepare("UPDATE naive SET reference = " + p1 + " WHERE id = " + p2); err != nil {
		b.Fatal(err)
	}
	return insert, update
}

// The disk itself: one small write and fdatasync after another.
func BenchmarkFdatasync(b *testing.B) {
	f, err := os.Create(filepath.Join(diskDir(b), "file"))
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	block := make([]byte, 4096)
	var took []time.Duration
	start := time.Now()
	for i := 0; b.Loop(); i++ {
		begin := time.Now()
		if _, err := f.WriteAt(block, int64(i%1024)*4096); err != nil {
			b.Fatal(err)
		}
		if err := unix.Fdatasync(int(f.Fd())); err != nil {
			b.Fatal(err)
		}
		took = append(took, time.Since(begin))
	}
	b.ReportMetric(float64(b.N)/time.Since(start).Seconds(), "syncs/s")
	slices.Sort(took)
	b.ReportMetric(took[len(took)/2].Seconds()*1000, "p50-ms")
}

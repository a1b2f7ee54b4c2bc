package bench

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"
	"time"
)

// auditEvery is after how many clean orders comes one that was charged twice.
const auditEvery = 50_000

// BenchmarkAudit joins a fence on SQLite with as many lines of Stripe's export, by
// the command itself, so that its memory can be told from that of this process.
// Ten million need ZABOR_SOAK=1, and about 12 GB on the disk:
//
//	ZABOR_SOAK=1 go test -run '^$' -bench 'Audit/rows=10000000' -benchtime 1x -timeout 3h ./bench
func BenchmarkAudit(b *testing.B) {
	for _, n := range []int{100_000, 1_000_000, 10_000_000} {
		b.Run(fmt.Sprintf("rows=%d", n), func(b *testing.B) {
			if n > 1_000_000 && os.Getenv("ZABOR_SOAK") == "" {
				b.Skip("set ZABOR_SOAK=1")
			}
			dir := diskDir(b)
			command := buildCommand(b, dir)
			fillFence(b, "sqlite://"+filepath.Join(dir, "fence.db"), n)
			writeExport(b, filepath.Join(dir, "payments.csv"), n)
			file := filepath.Join(dir, "zabor.yaml")
			if err := os.WriteFile(file, []byte(auditConfig), 0o600); err != nil {
				b.Fatal(err)
			}
			var cpu time.Duration
			var peak, work int64
			for b.Loop() {
				c, p, w := runAudit(b, command, dir, n)
				cpu, peak, work = cpu+c, max(peak, p), max(work, w)
			}
			b.ReportMetric(float64(n)*float64(b.N)/b.Elapsed().Seconds(), "rows/s")
			b.ReportMetric(float64(cpu.Microseconds())/float64(n)/float64(b.N), "cpu-µs/row")
			b.ReportMetric(float64(peak)/(1<<20), "peak-MiB")
			b.ReportMetric(float64(work)/(1<<20), "work-file-MiB")
			b.ReportMetric(0, "B/op") // this process has none of it
			b.ReportMetric(0, "allocs/op")
		})
	}
}

const auditConfig = `
scope: bench
fence: "${FENCE}"
providers: {stripe: {profile: stripe, secret: sk_test_bench}}
`

func buildCommand(b *testing.B, dir string) string {
	command := filepath.Join(dir, "zabor")
	if out, err := exec.CommandContext(b.Context(), "go", "build", "-o", command, "zabor/cmd/zabor").CombinedOutput(); err != nil {
		b.Fatalf("%v\n%s", err, out)
	}
	return command
}

// numbered is a table n of the numbers of a part of the orders.
const numbered = "WITH RECURSIVE numbers (n) AS (SELECT ? UNION ALL SELECT n + 1 FROM numbers WHERE n + 1 < ?)"

// fillFence makes n settled rows. References are in another order than keys are.
func fillFence(b *testing.B, address string, n int) {
	const part = 250_000
	store := openStore(b, address)
	for from := 0; from < n; from += part {
		_, err := store.DB().ExecContext(b.Context(), numbered+`
			INSERT INTO zabor_fences (scope, order_id, step, state, cause, epoch, attempt_id, provider, account, address, generation, provider_key, prepare_key,
			  amount_minor, currency, message_fp, request_fp, request, prepared, reference, other_reference, answer_status, answer_header, answer_body,
			  reason, hook_due, parked, tries, unproven, lease, absent_after, hold_after, pending_for, fields, hook_data, hook_done, replays, lingers,
			  forwarded, captured_at, send_until, replay_until, state_since, send_id, watcher, watch_until, watched, silent)
			SELECT CAST('bench' AS BLOB), CAST(printf('%010d', n) AS BLOB), CAST('charge' AS BLOB), 'settled', 'call', 2, randomblob(16), CAST('stripe' AS BLOB), x'', '', 0,
			  printf('k%025d', n), '', 1000 + n % 9000, 'EUR', zeroblob(32), zeroblob(32), zeroblob(200), x'',
			  CAST(printf('pi_%010d', n * 7919 % 10000019) AS BLOB), x'', 200, '', NULL, '', '', x'',
			  1, 1, 30000000, 0, 0, 0, x'', NULL, 0, 0, 0, 0, 1772445600000000 + n, 1772445630000000 + n, 0, 1772445601000000 + n, randomblob(16), x'', 0, 0, 0
			FROM numbers`, from, min(from+part, n))
		if err != nil {
			b.Fatal(err)
		}
	}
	if err := store.Close(); err != nil {
		b.Fatal(err)
	}
}

// writeExport writes what Stripe knows of fillFence's rows.
func writeExport(b *testing.B, path string, n int) {
	f, err := os.Create(path)
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	w := bufio.NewWriterSize(f, 1<<20)
	w.WriteString("id,Created date (UTC),Amount,Currency,Status,PaymentIntent ID,order (metadata)\n")
	start := time.Date(2026, 3, 2, 10, 0, 0, 0, time.UTC)
	for i := range n {
		amount, at := 1000+i%9000, start.Add(time.Duration(i)*time.Microsecond).Format(time.DateTime)
		fmt.Fprintf(w, "ch_%010d,%s,%d.%02d,eur,Paid,pi_%010d,%010d\n", i, at, amount/100, amount%100, i*7919%10000019, i)
		if i%auditEvery == 0 {
			fmt.Fprintf(w, "ch_again_%d,%s,%d.%02d,eur,Paid,pi_again_%d,%010d\n", i, at, amount/100, amount%100, i, i)
		}
	}
	if err := errors.Join(w.Flush(), f.Close()); err != nil {
		b.Fatal(err)
	}
}

// runAudit runs the command, checks that it finds what there is, and says what CPU
// time it took, how much memory it had at most and how large its work file was, in
// bytes.
func runAudit(b *testing.B, command, dir string, n int) (cpu time.Duration, peak, work int64) {
	file := filepath.Join(dir, "work.db")
	cmd := exec.CommandContext(b.Context(), command, "audit", "-c", filepath.Join(dir, "zabor.yaml"), "--provider-export", "stripe="+filepath.Join(dir, "payments.csv"),
		"--work", file, "--json")
	cmd.Env = append(os.Environ(), "FENCE=sqlite://"+filepath.Join(dir, "fence.db"), "TMPDIR="+dir, "SQLITE_TMPDIR="+dir)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	for ended := false; !ended; {
		select {
		case <-done:
			ended = true
		case <-time.After(time.Second):
			if info, err := os.Stat(file); err == nil {
				work = max(work, info.Size())
			}
		}
	}
	var found struct {
		Rows      int64 `json:"rows"`
		Successes int64 `json:"successes"`
		Twice     int64 `json:"double_charged"`
	}
	twice := int64((n + auditEvery - 1) / auditEvery)
	if err := json.Unmarshal(out.Bytes(), &found); err != nil || found.Rows != int64(n) || found.Successes != int64(n)+twice || found.Twice != twice || cmd.ProcessState.ExitCode() != 1 {
		b.Fatalf("%v: %+v, want %d rows and %d charged twice\n%s", err, found, n, twice, errs.Bytes())
	}
	usage := cmd.ProcessState.SysUsage().(*syscall.Rusage)
	peak = usage.Maxrss << 10
	if runtime.GOOS == "darwin" {
		peak = usage.Maxrss // bytes there
	}
	return cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime(), peak, work
}

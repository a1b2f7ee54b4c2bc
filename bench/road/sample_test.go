package road

import (
	"database/sql"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/go-sql-driver/mysql"
)

// ticks is how many a second the kernel counts in /proc.
const ticks = 100

// cpuOf is the CPU time of a process and of the children that it has waited for, in
// seconds; 0: there is none.
func cpuOf(pid int) float64 {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(text), ") ")
	fields := strings.Fields(rest)
	sum := 0.0
	for _, field := range fields[11:15] { // utime, stime, cutime, cstime
		n, _ := strconv.ParseFloat(field, 64)
		sum += n
	}
	return sum / ticks
}

// withChildren is cpuOf with the children that run.
func withChildren(pid int) float64 {
	sum := cpuOf(pid)
	tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, task := range tasks {
		text, _ := os.ReadFile(task)
		for field := range strings.FieldsSeq(string(text)) {
			if child, err := strconv.Atoi(field); err == nil {
				sum += cpuOf(child)
			}
		}
	}
	return sum
}

// machine is the CPU time of the whole machine in seconds: what was used, and all.
func machine() (busy, all float64) {
	text, _ := os.ReadFile("/proc/stat")
	line, _, _ := strings.Cut(string(text), "\n")
	for i, field := range strings.Fields(line) {
		n, err := strconv.ParseFloat(field, 64)
		if err != nil || i > 8 { // the name; guest times are in user's
			continue
		}
		all += n / ticks
		if i != 4 && i != 5 { // idle, iowait
			busy += n / ticks
		}
	}
	return busy, all
}

// sample is what is counted at one moment.
type sample struct {
	database, redis, provider, self      float64 // CPU seconds
	busy, all                            float64
	statements, syncs, bytes, pageImages float64
	runner                               float64 // of the runner, until now
}

func (p *place) sample(t *testing.T, address string, runner, provider int) (s sample) {
	if p.database != nil {
		p.counters(t, address, &s)
		s.database = withChildren(processOf(t, p.database.Port))
	}
	s.redis = cpuOf(processOf(t, p.cache.Port))
	s.provider = cpuOf(provider)
	s.runner = cpuOf(runner)
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err == nil {
		s.self = float64(u.Utime.Nano()+u.Stime.Nano()) / 1e9
	}
	s.busy, s.all = machine()
	return s
}

// minus is what happened from one sample to the next, for each of n charges.
func (s sample) minus(before sample, runner float64, n int) result {
	each := func(seconds float64) float64 { return math.Max(0, seconds) * 1e6 / float64(n) }
	ours := runner + s.database - before.database + s.redis - before.redis + s.provider - before.provider + s.self - before.self
	return result{
		OwnCPU: each(runner), DatabaseCPU: each(s.database - before.database), RedisCPU: each(s.redis - before.redis), ProviderCPU: each(s.provider - before.provider),
		Statements: (s.statements - before.statements) / float64(n), Syncs: (s.syncs - before.syncs) / float64(n),
		LogBytes: (s.bytes - before.bytes) / float64(n), PageImages: (s.pageImages - before.pageImages) / float64(n),
		Foreign: math.Max(0, (s.busy-before.busy-ours)/(s.all-before.all)),
	}
}

// counters are what the database server counts itself.
func (p *place) counters(t *testing.T, address string, s *sample) {
	if p.kind == "postgres" {
		db, err := sql.Open("pgx", address)
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		err = db.QueryRow("SELECT (SELECT sum(xact_commit) FROM pg_stat_database), wal_sync, pg_current_wal_insert_lsn() - '0/0', wal_fpi FROM pg_stat_wal").Scan(&s.statements, &s.syncs, &s.bytes, &s.pageImages)
		if err != nil {
			t.Fatal(err)
		}
		return
	}
	c := mysql.NewConfig()
	c.User, c.Net, c.Addr = "root", "tcp", p.database.Addr()
	db, err := sql.Open("mysql", c.FormatDSN())
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	rows, err := db.Query("SHOW GLOBAL STATUS WHERE Variable_name IN ('Questions', 'Innodb_data_fsyncs', 'Innodb_os_log_written')")
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var name string
		var value float64
		if err := rows.Scan(&name, &value); err != nil {
			t.Fatal(err)
		}
		*map[string]*float64{"Questions": &s.statements, "Innodb_data_fsyncs": &s.syncs, "Innodb_os_log_written": &s.bytes}[name] = value
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
}

// processOf is the process of ours that was started for a port: a server's arguments
// have it.
func processOf(t *testing.T, port int) int {
	tasks, _ := filepath.Glob("/proc/self/task/*/children")
	for _, task := range tasks {
		text, _ := os.ReadFile(task)
		for field := range strings.FieldsSeq(string(text)) {
			arguments, _ := os.ReadFile("/proc/" + field + "/cmdline")
			if strings.Contains(string(arguments), strconv.Itoa(port)) {
				pid, _ := strconv.Atoi(field)
				return pid
			}
		}
	}
	t.Fatalf("no server of ours has port %d", port)
	return 0
}

// table is all results as Markdown: rates, CPU, and zabor's ratio to each other
// runner in the same round.
func table(all []result) string {
	type cell struct {
		database, runner string
		lanes            int
	}
	var cells []cell
	of := map[cell][]result{}
	for _, r := range all {
		c := cell{r.Database, r.Runner, r.Lanes}
		if of[c] == nil {
			cells = append(cells, c)
		}
		of[c] = append(of[c], r)
	}
	var out strings.Builder
	out.WriteString("| database | lanes | runner | charges/s: min, median, max | zabor : runner, round by round | CPU µs a charge: own, database, Redis, provider | statements, syncs, log bytes | MB |\n")
	out.WriteString("| --- | --- | --- | --- | --- | --- | --- | --- |\n")
	for _, c := range cells {
		rates, own, database, cache, provider, memory := []float64{}, []float64{}, []float64{}, []float64{}, []float64{}, []float64{}
		statements, syncs, logged := []float64{}, []float64{}, []float64{}
		for _, r := range of[c] {
			rates, own, database = append(rates, r.rate()), append(own, r.OwnCPU), append(database, r.DatabaseCPU)
			cache, provider, memory = append(cache, r.RedisCPU), append(provider, r.ProviderCPU), append(memory, float64(r.MaxMemory)/1024)
			statements, syncs, logged = append(statements, r.Statements), append(syncs, r.Syncs), append(logged, r.LogBytes)
		}
		var ratios []float64
		for _, mine := range of[cell{c.database, "zabor", c.lanes}] {
			for _, r := range of[c] {
				if r.Round == mine.Round && c.runner != "zabor" {
					ratios = append(ratios, mine.rate()/r.rate())
				}
			}
		}
		ratio := ""
		if len(ratios) > 0 {
			ratio = fmt.Sprintf("%.2f, **%.2f**, %.2f", slices.Min(ratios), median(ratios), slices.Max(ratios))
		}
		fmt.Fprintf(&out, "| %s | %d | %s | %.0f, %.0f, %.0f | %s | %.0f, %.0f, %.0f, %.0f | %.2f, %.2f, %.0f | %.0f |\n", c.database, c.lanes, c.runner,
			slices.Min(rates), median(rates), slices.Max(rates), ratio, median(own), median(database), median(cache), median(provider), median(statements), median(syncs), median(logged), median(memory))
	}
	return out.String()
}

func median(of []float64) float64 {
	sorted := slices.Sorted(slices.Values(of))
	middle := len(sorted) / 2
	if len(sorted)%2 == 1 {
		return sorted[middle]
	}
	return (sorted[middle-1] + sorted[middle]) / 2
}

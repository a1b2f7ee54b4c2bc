package bench

import (
	"bytes"
	"context"
	"crypto/rand"
	"database/sql"
	"database/sql/driver"
	"encoding/hex"
	"errors"
	"fmt"
	"math/bits"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/stdlib"

	"zabor/internal/servers"
)

func random(n int) []byte {
	b := make([]byte, n)
	_, _ = rand.Read(b) // never fails
	return b
}

// engine is one database of the trial.
type engine struct {
	name     string
	types    map[byte]string
	now      string
	variants []string // layout/form
	run      func(ctx context.Context, t *trial, ops []*op) error

	address func(b *testing.B, variant string) *sql.DB
	start   func(b *testing.B)
	pid     int     // of the server; 0: this process
	own     *sql.DB // counters are read here
}

// trial is one layout in one form, in a database of its own.
type trial struct {
	*engine
	layout
	form  string
	db    *sql.DB
	lines []chan *op // of captures and of settlements; they may be one
	next  atomic.Int64

	mu       sync.Mutex
	prepared map[string]*sql.Stmt
}

// op is one capture or settlement that waits for its commit.
type op struct {
	settles bool
	charge
	done chan error
}

// measured is one round, per charge where it is no rate.
type measured struct{ rate, database, client, log, onDisk float64 }

const maxBatch = 128

func (e *engine) open(b *testing.B, variant string, lanes int) *trial {
	name, form, _ := strings.Cut(variant, "/")
	t := &trial{engine: e, layout: layouts[name], form: form, prepared: map[string]*sql.Stmt{}, db: e.address(b, fmt.Sprintf("%s_%s_%d", name, form, lanes))}
	for _, statement := range t.ddl(e) {
		if _, err := t.db.ExecContext(b.Context(), statement); err != nil {
			b.Fatalf("%s: %v", statement, err)
		}
	}
	line := make(chan *op, 1024)
	t.lines = []chan *op{line, line}
	if form != "row" && form != "unnest" { // as sqlstore had it: one line of each kind
		t.lines[1] = make(chan *op, 1024)
		go t.lead(t.lines[1])
	}
	go t.lead(line)
	return t
}

// lead commits what waits in line, all in one commit: of captures and of
// settlements a power of two each, so that a few prepared statements serve for all.
func (t *trial) lead(line chan *op) {
	var waiting []*op
	for {
		if len(waiting) == 0 {
			first, more := <-line
			if !more {
				return
			}
			waiting = append(waiting, first)
		}
		for len(waiting) < maxBatch && len(line) > 0 {
			waiting = append(waiting, <-line)
		}
		captures, settlements := byKind(waiting)
		ops := slices.Concat(captures[:powerOfTwo(len(captures))], settlements[:powerOfTwo(len(settlements))])
		waiting = slices.Concat(captures[powerOfTwo(len(captures)):], settlements[powerOfTwo(len(settlements)):])
		err := t.run(context.Background(), t, ops)
		for _, o := range ops {
			o.done <- err
		}
	}
}

// powerOfTwo is the greatest that is not above n; 0 for 0.
func powerOfTwo(n int) int {
	if n == 0 {
		return 0
	}
	return 1 << (bits.Len(uint(n)) - 1)
}

// byKind divides ops into captures and settlements.
func byKind(ops []*op) (captures, settlements []*op) {
	for _, o := range ops {
		if o.settles {
			settlements = append(settlements, o)
		} else {
			captures = append(captures, o)
		}
	}
	return captures, settlements
}

func (t *trial) close() {
	close(t.lines[0])
	if t.lines[1] != t.lines[0] {
		close(t.lines[1])
	}
	t.db.Close()
}

// measure takes charges in so many lanes for a while.
func (e *engine) measure(b *testing.B, t *trial, lanes int, long time.Duration) measured {
	before, client := e.counters(b), cpuTime(b)
	start := time.Now()
	var n atomic.Int64
	var wg sync.WaitGroup
	for range lanes {
		wg.Go(func() {
			done := make(chan error, 1)
			for time.Since(start) < long {
				c := newCharge(t.next.Add(1))
				t.lines[0] <- &op{charge: c, done: done}
				if err := <-done; err != nil {
					b.Error("capture:", err)
					return
				}
				c.settle()
				t.lines[1] <- &op{settles: true, charge: c, done: done}
				if err := <-done; err != nil {
					b.Error("settle:", err)
					return
				}
				n.Add(1)
			}
		})
	}
	wg.Wait()
	elapsed, per := time.Since(start), float64(max(1, n.Load()))
	after := e.counters(b)
	m := measured{rate: per / elapsed.Seconds(), client: float64((cpuTime(b) - client).Microseconds()) / per}
	m.database, m.log, m.onDisk = (after[0]-before[0])/per, (after[1]-before[1])/per, (after[2]-before[2])/per
	if e.pid == 0 {
		m.database = m.client
	}
	return m
}

// counters are the server's processor time in µs, its log in bytes and its
// temporary tables on disk.
func (e *engine) counters(b *testing.B) (c [3]float64) {
	var query string
	switch e.name {
	case "mariadb":
		query = "SELECT (SELECT variable_value FROM information_schema.global_status WHERE variable_name = 'INNODB_LSN_CURRENT') + 0e0, (SELECT variable_value FROM information_schema.global_status WHERE variable_name = 'CREATED_TMP_DISK_TABLES') + 0e0"
	case "postgres":
		query = "SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::float8, 0::float8"
	default:
		return c
	}
	if err := e.own.QueryRowContext(b.Context(), query).Scan(&c[1], &c[2]); err != nil {
		b.Fatal(err)
	}
	c[0] = processorTime(e.pid)
	return c
}

// processorTime is that of a process and its children, in µs.
func processorTime(pid int) (us float64) {
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, path := range stats {
		text, err := os.ReadFile(path)
		if err != nil {
			continue // it has ended
		}
		id, _, _ := strings.Cut(string(text), " ")
		f := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+2:]))
		if id != strconv.Itoa(pid) && f[1] != strconv.Itoa(pid) {
			continue
		}
		times := f[11:13]
		if id == strconv.Itoa(pid) {
			times = f[11:15] // with the children that have ended
		}
		for _, t := range times {
			ticks, _ := strconv.ParseFloat(t, 64)
			us += ticks * 1e4
		}
	}
	return us
}

// hot is the share of HOT updates of the big table.
func (e *engine) hot(b *testing.B, t *trial) (share float64) {
	if e.name != "postgres" {
		return 0
	}
	time.Sleep(1100 * time.Millisecond) // a server process says once a second what it has done
	if err := t.db.QueryRowContext(b.Context(), "SELECT COALESCE(n_tup_hot_upd::float8 / NULLIF(n_tup_upd, 0), 0) FROM pg_stat_user_tables WHERE relname = 'zabor_fences'").Scan(&share); err != nil {
		b.Fatal(err)
	}
	return share
}

// sql is text with the engine's words.
func (e *engine) sql(text string) string { return strings.ReplaceAll(text, "{now}", e.now) }

func (e *engine) partial(index, columns string) string {
	if e.name == "mariadb" {
		return columns
	}
	if strings.Contains("(due) (reference_hash)", columns) {
		return columns + " WHERE " + strings.Trim(columns, "()") + " IS NOT NULL"
	}
	switch index { // as the first version has them
	case "reference":
		return columns + " WHERE reference > " + e.none()
	case "other":
		return columns + " WHERE other_reference > " + e.none()
	case "control":
		return "(provider, account, basis, state_since) WHERE state = 'settled'"
	}
	return columns
}

func (e *engine) none() string {
	if e.name == "postgres" {
		return "''::bytea"
	}
	return "x''"
}

func (e *engine) options(table string) string {
	switch e.name {
	case "mariadb":
		return " ENGINE=InnoDB ROW_FORMAT=DYNAMIC"
	case "postgres":
		if table == "zabor_fences" {
			return " WITH (fillfactor = " + fillFactor() + ")"
		}
		return ""
	}
	if table == "zabor_references" {
		return " STRICT, WITHOUT ROWID"
	}
	return " STRICT"
}

func fillFactor() string {
	if f := os.Getenv("FILLFACTOR"); f != "" {
		return f
	}
	return "60"
}

func engines() []*engine {
	var lite, maria, pg engine
	lite = engine{
		name:     "sqlite",
		types:    map[byte]string{'b': "BLOB", 'r': "BLOB", 'l': "BLOB", 't': "TEXT", 'h': "TEXT", 'x': "TEXT", 'i': "INTEGER"},
		now:      "CAST(ROUND(unixepoch('subsec') * 1000000) AS INTEGER)",
		variants: []string{"A/row", "B/row", "B1/row", "C1/row", "F/row", "F3/row", "FP/row", "FD/row", "G/row", "floor/row"},
		start:    func(*testing.B) {},
		address: func(b *testing.B, _ string) *sql.DB {
			db, err := sql.Open("sqlite", "file:"+filepath.Join(diskDir(b), "fence.db")+"?_txlock=immediate&_journal_mode=WAL&_synchronous=FULL")
			if err != nil {
				b.Fatal(err)
			}
			db.SetMaxOpenConns(2) // one writes, one prepares
			return db
		},
		run: runSQLite,
	}
	maria = engine{
		name: "mariadb",
		types: map[byte]string{'b': "VARBINARY(255)", 'r': "VARBINARY(1024)", 'l': "MEDIUMBLOB", 't': "VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin",
			'h': "MEDIUMTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin", 'x': "VARCHAR(1000) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin", 'i': "BIGINT"},
		now:      "TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6))",
		variants: []string{"A/join", "B/case", "B1/case", "C1/case", "F/case", "F3/case", "FP/case", "FD/case", "G/case", "floor/case"},
		run:      runMariaDB,
	}
	var mariaAt string
	maria.start = func(b *testing.B) {
		server := servers.OwnMariaDB(b)
		mariaAt = server.Addr()
		maria.own = openMariaDB(b, mariaAt, "")
		var file string
		if err := maria.own.QueryRow("SELECT @@pid_file").Scan(&file); err != nil {
			b.Fatal(err)
		}
		text, err := os.ReadFile(file)
		if err != nil {
			b.Fatal(err)
		}
		maria.pid, _ = strconv.Atoi(strings.TrimSpace(string(text)))
	}
	maria.address = func(b *testing.B, variant string) *sql.DB {
		if _, err := maria.own.Exec("CREATE DATABASE " + variant); err != nil {
			b.Fatal(err)
		}
		return openMariaDB(b, mariaAt, variant)
	}
	pg = engine{
		name:     "postgres",
		types:    map[byte]string{'b': "bytea", 'r': "bytea", 'l': "bytea", 't': `varchar(64) COLLATE "C"`, 'h': "text", 'x': "varchar(1000)", 'i': "bigint"},
		now:      "(EXTRACT(EPOCH FROM clock_timestamp()) * 1000000)::bigint",
		variants: []string{"A/row", "B/unnest", "B1/unnest", "C1/unnest", "F/unnest", "F3/unnest", "FP/unnest", "FD/unnest", "G/unnest", "floor/unnest"},
		run:      runPostgres,
	}
	var pgServer *servers.Server
	pg.start = func(b *testing.B) {
		pgServer = servers.OwnPostgres(b)
		pg.own = openPostgres(b, servers.PostgresDatabase(b, pgServer))
		for _, set := range []string{"ALTER SYSTEM SET max_wal_size = '8GB'", "ALTER SYSTEM SET checkpoint_timeout = '1h'", "SELECT pg_reload_conf()"} { // no full page images
			if _, err := pg.own.Exec(set); err != nil {
				b.Fatal(err)
			}
		}
		var backend int
		if err := pg.own.QueryRow("SELECT pg_backend_pid()").Scan(&backend); err != nil {
			b.Fatal(err)
		}
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", backend))
		if err != nil {
			b.Fatal(err)
		}
		pg.pid, _ = strconv.Atoi(strings.Fields(string(text[bytes.LastIndexByte(text, ')')+2:]))[1])
	}
	pg.address = func(b *testing.B, _ string) *sql.DB { return openPostgres(b, servers.PostgresDatabase(b, pgServer)) }
	all := []*engine{&lite, &maria, &pg}
	if only := os.Getenv("DATABASES"); only != "" {
		all = slices.DeleteFunc(all, func(e *engine) bool { return !strings.Contains(only, e.name) })
	}
	return all
}

func openMariaDB(b *testing.B, at, database string) *sql.DB {
	db, err := sql.Open("mysql", "root@tcp("+at+")/"+database+"?clientFoundRows=true&multiStatements=true&interpolateParams=true&charset=binary"+
		"&sql_mode=%27STRICT_ALL_TABLES%27&tx_isolation=%27READ-COMMITTED%27")
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { db.Close() })
	return db
}

func openPostgres(b *testing.B, address string) *sql.DB {
	config, err := pgx.ParseConfig(address)
	if err != nil {
		b.Fatal(err)
	}
	config.RuntimeParams["enable_seqscan"] = "off"                 // a plan that was made for an empty table stays
	config.RuntimeParams["plan_cache_mode"] = "force_generic_plan" // else arrays are planned for anew each time
	config.RuntimeParams["enable_hashjoin"], config.RuntimeParams["enable_mergejoin"] = "off", "off"
	db := stdlib.OpenDB(*config)
	b.Cleanup(func() { db.Close() })
	return db
}

// bound are the columns of a write that have a parameter.
func (w write) bound() (names []string) {
	all, fixed := split(w.columns)
	for _, n := range all {
		if _, is := fixed[n]; !is {
			names = append(names, n)
		}
	}
	return names
}

const keyIs = "scope = ? AND order_id = ? AND step = ?"

// one is the statement of w for one row, with its parameters' names. first: w names
// the claim that it follows.
func (w write) one(e *engine, first bool) (query string, names []string) {
	columns, fixed := split(w.columns)
	names = w.bound()
	values := make([]string, len(columns))
	for i, c := range columns {
		values[i] = "?"
		if f, is := fixed[c]; is {
			values[i] = e.sql(f)
		}
		if w.verb == "update" {
			values[i] = c + " = " + values[i]
		}
	}
	switch w.verb {
	case "update":
		query = "UPDATE " + w.table + " SET " + strings.Join(values, ", ") + " WHERE " + keyIs
	case "delete":
		query = "DELETE FROM " + w.table + " WHERE " + keyIs
	default:
		return w.into(e) + " VALUES (" + strings.Join(values, ", ") + ")" + w.otherwise(e), names
	}
	names = append(names, "scope", "order_id", "step")
	if first {
		query, names = query+" AND epoch = ? AND attempt_id = ?", append(names, "prev_epoch", "prev_id")
	}
	return query, names
}

// into is the head of an insert.
func (w write) into(e *engine) string {
	columns, _ := split(w.columns)
	verb := "INSERT INTO "
	if w.verb == "ignore" && e.name == "mariadb" {
		verb = "INSERT IGNORE INTO "
	}
	if w.verb == "ignore" && e.name == "sqlite" {
		verb = "INSERT OR IGNORE INTO "
	}
	return verb + w.table + " (" + strings.Join(columns, ", ") + ")"
}

func (w write) otherwise(e *engine) string {
	if w.verb == "ignore" && e.name == "postgres" {
		return " ON CONFLICT DO NOTHING"
	}
	return ""
}

func (o *op) args(names []string) []any {
	args := make([]any, len(names))
	for i, n := range names {
		args[i] = o.charge[n]
	}
	return args
}

func (t *trial) statement(ctx context.Context, query string) (*sql.Stmt, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if s := t.prepared[query]; s != nil {
		return s, nil
	}
	s, err := t.db.PrepareContext(ctx, query) //nolint:sqlclosecheck // the trial keeps its statements
	t.prepared[query] = s
	return s, err
}

var errMissed = errors.New("a write did not hit its row")

// writes are those of a capture or of a settlement.
func (t *trial) writes(settles bool) []write {
	if settles {
		return t.settle
	}
	return t.capture
}

// runSQLite runs each write by itself, all in one transaction.
func runSQLite(ctx context.Context, t *trial, ops []*op) error {
	tx, err := t.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	for _, o := range ops {
		for i, w := range t.writes(o.settles) {
			query, names := w.one(t.engine, i == 0)
			s, err := t.statement(ctx, query)
			if err != nil {
				return err
			}
			if err := hit(1)(tx.StmtContext(ctx, s).ExecContext(ctx, o.args(names)...)); err != nil { //nolint:sqlclosecheck // the trial keeps its statements
				return fmt.Errorf("%s: %w", query, err)
			}
		}
	}
	return tx.Commit()
}

// hit is an error where a statement did not hit n rows.
func hit(n int) func(sql.Result, error) error {
	return func(result sql.Result, err error) error {
		if err != nil {
			return err
		}
		if got, err := result.RowsAffected(); err != nil || got != int64(n) {
			return errors.Join(err, errMissed)
		}
		return nil
	}
}

// many is one statement of a batch: so many rows must be hit.
type many struct {
	query string
	args  []any
	rows  int
}

// runMariaDB sends a batch as one text of many statements in the forms text and
// json, and else as prepared statements. One op alone is prepared in the form
// prepared only.
func runMariaDB(ctx context.Context, t *trial, ops []*op) error {
	var all []many
	captures, settlements := byKind(ops)
	for i, w := range t.capture {
		all = append(all, t.batch(w, i == 0, captures)...)
	}
	for i, w := range t.settle {
		all = append(all, t.batch(w, i == 0, settlements)...)
	}
	if (len(ops) > 1 || t.form == "prepared") && t.form != "text" && t.form != "json" {
		return runPrepared(ctx, t, all)
	}
	if len(all) == 1 {
		return runPrepared(ctx, t, all)
	}
	conn, err := t.db.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	text, args := []string{"BEGIN"}, []any(nil)
	want := []int64{0}
	for _, m := range all {
		text, args, want = append(text, m.query), append(args, m.args...), append(want, int64(m.rows))
	}
	// Where one statement alone names claims, the server itself sees whether all
	// were hit: it meets an error before the COMMIT, which ends the text.
	guarded := t.form == "json" || len(ops) == 1
	if guarded {
		for i := len(all) - 1; i >= 0; i-- {
			if strings.HasPrefix(all[i].query, "UPDATE") {
				text = slices.Insert(text, i+2, fmt.Sprintf("DO IF(ROW_COUNT() = %d, 0, (SELECT 1 UNION SELECT 2))", all[i].rows))
				want = slices.Insert(want, i+2, 0)
			}
		}
		text, want = append(text, "COMMIT"), append(want, 0)
	}
	err = conn.Raw(func(c any) error {
		result, err := c.(driver.ExecerContext).ExecContext(ctx, strings.Join(text, "; "), namedValues(args))
		if err == nil && !slices.Equal(result.(mysql.Result).AllRowsAffected(), want) {
			err = errMissed
		}
		return err
	})
	if err == nil && !guarded {
		_, err = conn.ExecContext(ctx, "COMMIT")
	}
	if err != nil {
		_, undo := conn.ExecContext(ctx, "ROLLBACK")
		return errors.Join(err, undo)
	}
	return nil
}

func namedValues(args []any) []driver.NamedValue {
	values := make([]driver.NamedValue, len(args))
	for i, a := range args {
		values[i] = driver.NamedValue{Ordinal: i + 1, Value: a}
	}
	return values
}

// batch is w for all ops: one statement, or in the form text an UPDATE for each.
func (t *trial) batch(w write, first bool, ops []*op) (all []many) {
	if len(ops) == 0 {
		return nil
	}
	if (t.form == "join" || t.form == "values") && w.verb == "update" && len(ops) > 1 {
		return []many{t.union(w, first, ops)}
	}
	if (t.form == "case" || t.form == "prepared") && w.verb == "update" && len(ops) > 1 {
		return []many{t.cases(w, first, ops)}
	}
	if t.form == "json" && len(ops) > 1 {
		return []many{t.json(w, first, ops)}
	}
	query, names := w.one(t.engine, first)
	switch w.verb {
	case "update":
		for _, o := range ops {
			all = append(all, many{query, o.args(names), 1})
		}
		return all
	case "delete":
		query += strings.Repeat(" OR "+keyIs, len(ops)-1)
	default:
		row := query[strings.Index(query, " VALUES ")+len(" VALUES "):]
		query += strings.Repeat(", "+row, len(ops)-1)
	}
	m := many{query: query, rows: len(ops)}
	for _, o := range ops {
		m.args = append(m.args, o.args(names)...)
	}
	return []many{m}
}

// json is w for all ops, whose values are one parameter.
func (t *trial) json(w write, first bool, ops []*op) many {
	_, names := w.one(t.engine, first)
	if w.verb == "insert" || w.verb == "ignore" {
		names = w.bound()
	}
	columns := make([]string, len(names))
	read := map[string]string{}
	for i, n := range names {
		kind, as := "BIGINT", "v."+n
		switch kindOf(n) {
		case 'b', 't':
			kind = "VARCHAR(510) CHARACTER SET ascii"
		case 'r':
			kind = "VARCHAR(2048) CHARACTER SET ascii"
		case 'l':
			kind = "VARCHAR(4000) CHARACTER SET ascii" // more would be a table on disk
		case 'h', 'x':
			kind = "VARCHAR(2000) CHARACTER SET utf8mb4"
		}
		if strings.ContainsRune("brl", rune(kindOf(n))) {
			as = "UNHEX(v." + n + ")"
		}
		columns[i], read[n] = fmt.Sprintf("%s %s PATH '$[%d]'", n, kind, i), as
	}
	from := "JSON_TABLE(?, '$[*]' COLUMNS (" + strings.Join(columns, ", ") + ")) v"
	join := from + " STRAIGHT_JOIN " + w.table + " f ON f.scope = UNHEX(v.scope) AND f.order_id = UNHEX(v.order_id) AND f.step = UNHEX(v.step)"
	all, fixed := split(w.columns)
	var set []string
	for _, c := range all {
		value, is := fixed[c]
		if !is {
			value = read[c]
		}
		if w.verb == "update" {
			value = "f." + c + " = " + value
		}
		set = append(set, t.sql(value))
	}
	m := many{args: []any{rowsAsJSON(names, ops)}, rows: len(ops)}
	switch w.verb {
	case "update":
		if first {
			join += " AND f.epoch = v.prev_epoch AND f.attempt_id = UNHEX(v.prev_id)"
		}
		m.query = "UPDATE " + join + " SET " + strings.Join(set, ", ")
	case "delete":
		m.query = "DELETE f FROM " + join
	default:
		m.query = w.into(t.engine) + " SELECT " + strings.Join(set, ", ") + " FROM " + from
	}
	return m
}

func rowsAsJSON(names []string, ops []*op) []byte {
	var b []byte
	for _, o := range ops {
		b = append(b, ",["...)
		for i, n := range names {
			if i > 0 {
				b = append(b, ',')
			}
			switch v := o.charge[n].(type) {
			case int64:
				b = strconv.AppendInt(b, v, 10)
			case string:
				b = strconv.AppendQuote(b, v)
			case []byte:
				if v == nil {
					b = append(b, "null"...)
				} else {
					b = append(hex.AppendEncode(append(b, '"'), v), '"')
				}
			default:
				b = append(b, "null"...)
			}
		}
		b = append(b, ']')
	}
	b[0] = '['
	return append(b, ']')
}

// runPrepared runs prepared statements in one transaction; one alone commits itself.
func runPrepared(ctx context.Context, t *trial, all []many) error {
	prepared := make([]*sql.Stmt, len(all))
	for i, m := range all {
		var err error
		if prepared[i], err = t.statement(ctx, m.query); err != nil { //nolint:sqlclosecheck // the trial keeps its statements
			return err
		}
	}
	if len(all) == 1 {
		return hit(all[0].rows)(prepared[0].ExecContext(ctx, all[0].args...))
	}
	tx, err := t.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	for i, m := range all {
		if err := hit(m.rows)(tx.StmtContext(ctx, prepared[i]).ExecContext(ctx, m.args...)); err != nil { //nolint:sqlclosecheck // the trial keeps its statements
			return err
		}
	}
	return tx.Commit()
}

// union is the update of w for all ops by a join with their values, which are a
// SELECT each, or in the form values one SELECT and one list.
func (t *trial) union(w write, first bool, ops []*op) many {
	_, names := w.one(t.engine, first)
	names = slices.Compact(slices.Sorted(slices.Values(names)))
	bare, head := make([]string, len(names)), make([]string, len(names))
	for i, n := range names {
		bare[i] = "?"
		switch kindOf(n) { // a text of more than 512 bytes, or of unknown length, would be a table on disk
		case 'b', 't':
			bare[i] = "LEFT(?, 255)"
		case 'r', 'x':
			bare[i] = "LEFT(?, 500)"
		}
		head[i] = bare[i] + " AS v_" + n
	}
	all, fixed := split(w.columns)
	set := make([]string, len(all))
	for i, c := range all {
		set[i] = "f." + c + " = v.v_" + c
		if f, is := fixed[c]; is {
			set[i] = "f." + c + " = " + t.sql(f)
		}
	}
	row := strings.Join(bare, ", ")
	values := "SELECT " + strings.Join(head, ", ")
	if t.form == "join" {
		values += strings.Repeat(" UNION ALL SELECT "+row, len(ops)-1)
	} else {
		values += " UNION ALL VALUES (" + row + ")" + strings.Repeat(", ("+row+")", len(ops)-2)
	}
	m := many{rows: len(ops), query: "UPDATE (" + values + ") v STRAIGHT_JOIN " + w.table + " f ON f.scope = v.v_scope AND f.order_id = v.v_order_id AND f.step = v.v_step"}
	if first {
		m.query += " AND f.epoch = v.v_prev_epoch AND f.attempt_id = v.v_prev_id"
	}
	m.query += " SET " + strings.Join(set, ", ")
	for _, o := range ops {
		m.args = append(m.args, o.args(names)...)
	}
	return m
}

// varies are the columns that differ between the settlements of a batch. Where
// others do too, each would be written alone.
var varies = map[string]bool{"attempt_id": true, "reference": true, "reference_hash": true, "answer_status": true, "answer_header": true, "answer_body": true}

// cases is the update of w for all ops as one of that table alone: it needs no
// temporary table.
func (t *trial) cases(w write, first bool, ops []*op) many {
	m := many{rows: len(ops)}
	all, fixed := split(w.columns)
	set := make([]string, len(all))
	slices.SortStableFunc(all, func(a, b string) int { // the claim last: it tells the rows apart
		return strings.Compare(strconv.FormatBool(a == "attempt_id"), strconv.FormatBool(b == "attempt_id"))
	})
	for i, c := range all {
		switch f, is := fixed[c]; {
		case is:
			set[i] = c + " = " + t.sql(f)
		case varies[c]:
			set[i] = c + " = CASE attempt_id" + strings.Repeat(" WHEN ? THEN ?", len(ops)) + " END"
			for _, o := range ops {
				m.args = append(m.args, o.charge["prev_id"], o.charge[c])
			}
		default:
			set[i] = c + " = ?"
			m.args = append(m.args, ops[0].charge[c])
		}
	}
	one, names := keyIs, []string{"scope", "order_id", "step"}
	if first {
		one, names = one+" AND epoch = ? AND attempt_id = ?", append(names, "prev_epoch", "prev_id")
	}
	m.query = "UPDATE " + w.table + " SET " + strings.Join(set, ", ") + " WHERE " + one + strings.Repeat(" OR "+one, len(ops)-1)
	for _, o := range ops {
		m.args = append(m.args, o.args(names)...)
	}
	return m
}

// runPostgres sends a batch at once, without a BEGIN: it is one transaction that
// commits by itself. In the form row each op is a statement, in the form unnest all
// captures are one and all settlements are another.
func runPostgres(ctx context.Context, t *trial, ops []*op) error {
	conn, err := t.db.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	var b pgx.Batch
	var want []int
	captures, settlements := byKind(ops)
	for _, these := range [][]*op{captures, settlements} {
		settles := len(these) > 0 && these[0].settles
		switch {
		case len(these) == 0:
		case t.form == "row" || len(these) == 1:
			query, names := t.atOnceSQL(t.writes(settles), settles, false)
			for _, o := range these {
				b.Queue(query, o.args(names)...)
				want = append(want, 1)
			}
		default:
			query, names := t.atOnceSQL(t.writes(settles), settles, true)
			b.Queue(query, arrays(names, these)...)
			want = append(want, len(these))
		}
	}
	return conn.Raw(func(c any) error {
		results := c.(*stdlib.Conn).Conn().SendBatch(ctx, &b)
		defer results.Close()
		for _, n := range want {
			var hit int
			if err := results.QueryRow().Scan(&hit); err != nil {
				return err
			}
			if hit != n {
				return errMissed
			}
		}
		return results.Close()
	})
}

// atOnceSQL is one statement that does all writes, for one row or for arrays of rows, and
// counts what the first one hit.
func (t *trial) atOnceSQL(writes []write, settles, rows bool) (query string, names []string) {
	casts := map[byte]string{'b': "bytea", 'r': "bytea", 'l': "bytea", 't': "text", 'h': "text", 'x': "text", 'i': "bigint"}
	for _, w := range writes {
		names = append(names, w.bound()...)
	}
	names = append(names, "scope", "order_id", "step")
	if settles {
		names = append(names, "prev_epoch", "prev_id")
	}
	slices.Sort(names)
	names = slices.Compact(names)
	source, array := make([]string, len(names)), ""
	if rows {
		array = "[]"
	}
	for i, n := range names {
		source[i] = fmt.Sprintf("$%d::%s%s", i+1, casts[kindOf(n)], array)
	}
	from := "unnest(" + strings.Join(source, ", ") + ") AS t(" + strings.Join(names, ", ") + ")"
	if !rows {
		from = "(VALUES (" + strings.Join(source, ", ") + ")) AS t(" + strings.Join(names, ", ") + ")"
	}
	ctes := []string{"v AS (SELECT * FROM " + from + ")"}
	values0 := "v"
	for i, w := range writes {
		all, fixed := split(w.columns)
		var values []string
		for _, c := range all {
			value, is := fixed[c]
			if !is {
				value = values0 + "." + c
			}
			if w.verb == "update" {
				value = c + " = " + value
			}
			values = append(values, t.sql(value))
		}
		key := strings.ReplaceAll(" WHERE f.scope = v.scope AND f.order_id = v.order_id AND f.step = v.step", "v.", values0+".")
		var cte string
		switch w.verb {
		case "update":
			cte = "UPDATE " + w.table + " f SET " + strings.Join(values, ", ") + " FROM " + values0 + key
			if i == 0 {
				cte += " AND f.epoch = v.prev_epoch AND f.attempt_id = v.prev_id RETURNING v.*"
			}
		case "delete":
			cte = "DELETE FROM " + w.table + " f USING " + values0 + key
		default:
			cte = w.into(t.engine) + " SELECT " + strings.Join(values, ", ") + " FROM " + values0 + w.otherwise(t.engine)
			if i == 0 {
				cte += " RETURNING 1"
			}
		}
		ctes = append(ctes, fmt.Sprintf("w%d AS (%s)", i, cte))
		if i == 0 && settles {
			values0 = "w0" // a miss writes nothing beside
		}
	}
	return "WITH " + strings.Join(ctes, ", ") + " SELECT count(*) FROM w0", names
}

// arrays are the columns of ops.
func arrays(names []string, ops []*op) []any {
	args := make([]any, len(names))
	for i, n := range names {
		switch kindOf(n) {
		case 'i':
			column := make([]pgtype.Int8, len(ops))
			for j, o := range ops {
				column[j].Int64, column[j].Valid = o.charge[n].(int64)
			}
			args[i] = column
		case 't', 'x', 'h':
			column := make([]pgtype.Text, len(ops))
			for j, o := range ops {
				column[j].String, column[j].Valid = o.charge[n].(string)
			}
			args[i] = column
		default:
			column := make([][]byte, len(ops))
			for j, o := range ops {
				column[j], _ = o.charge[n].([]byte)
			}
			args[i] = column
		}
	}
	return args
}

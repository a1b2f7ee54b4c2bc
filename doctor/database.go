package doctor

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// Database is a database that a fence, or the application's own, is in.
type Database struct {
	Where   string // for people: MySQL 127.0.0.1:3306/shop
	DB      *sql.DB
	Dialect string // mysql or postgres
	// Fences are tables that are used as a fence and are not zabor's.
	Fences []string
}

// ExamineDatabase asks a database, with statements that only read. Its error is
// [ErrUnreachable].
func ExamineDatabase(ctx context.Context, d Database) ([]Finding, error) {
	if err := d.DB.PingContext(ctx); err != nil {
		return nil, fmt.Errorf("%s %w: %w", d.Where, ErrUnreachable, err)
	}
	l := live{where: d.Where}
	switch d.Dialect {
	case "mysql":
		l.mysql(ctx, d)
	case "postgres":
		l.postgres(ctx, d)
	}
	for _, table := range d.Fences {
		l.fence(ctx, d, table)
	}
	inOrder(l.findings)
	return l.findings, nil
}

// ask reads one value; ok is false where the server does not tell, which is a
// finding.
func (l *live) ask(ctx context.Context, d Database, name, query string, args ...any) (value string, ok bool) {
	var v sql.NullString
	if err := d.DB.QueryRowContext(ctx, query, args...).Scan(&v); err != nil {
		l.add("ZB101", "ask whoever runs the server, or grant this user the right to read it", "%s is unknown: %v", name, err)
		return "", false
	}
	return v.String, true
}

func (l *live) mysql(ctx context.Context, d Database) {
	if v, ok := l.ask(ctx, d, "innodb_flush_log_at_trx_commit", "SELECT @@global.innodb_flush_log_at_trx_commit"); ok && v != "1" {
		l.add("ZB170", "SET GLOBAL innodb_flush_log_at_trx_commit = 1; and innodb_flush_log_at_trx_commit = 1 under [mysqld] in my.cnf",
			"innodb_flush_log_at_trx_commit is %s: a crash loses up to a second of commits, fences and payments among them, after the provider has charged", v)
	}
	if on, ok := l.ask(ctx, d, "log_bin", "SELECT @@global.log_bin"); ok && on == "1" {
		if v, ok := l.ask(ctx, d, "sync_binlog", "SELECT @@global.sync_binlog"); ok && v != "1" {
			l.add("ZB170", "SET GLOBAL sync_binlog = 1; and sync_binlog = 1 under [mysqld] in my.cnf",
				"sync_binlog is %s: after a crash a replica, or a restore from the log, does not know the newest commits", v)
		}
	}
	const late = "what it shows may be seconds old, and a fence that is looked up there is not there yet"
	v, ok := l.ask(ctx, d, "read_only", "SELECT @@global.read_only")
	switch {
	case !ok:
	case v != "0":
		l.add("ZB172", "the address of the primary", "the server is read-only: it is a replica, or about to be one; %s", late)
	case replicates(ctx, d):
		l.say(Warning, "ZB172", "the address of the primary, and SET GLOBAL read_only = 1 here", "the server follows another one and takes writes itself: as a replica, %s; as one of two primaries it takes a key that the other has too", late)
	}
}

// replicates reports whether a server takes changes from another one, as far as it
// tells: MariaDB by a status variable, MySQL by a table of performance_schema.
func replicates(ctx context.Context, d Database) bool {
	for _, query := range []string{
		"SELECT VARIABLE_VALUE > 0 FROM information_schema.GLOBAL_STATUS WHERE VARIABLE_NAME = 'SLAVES_RUNNING'",
		"SELECT COUNT(*) > 0 FROM performance_schema.replication_connection_status WHERE SERVICE_STATE = 'ON'",
	} {
		var on bool
		if err := d.DB.QueryRowContext(ctx, query).Scan(&on); err == nil {
			return on
		}
	}
	return false
}

func (l *live) postgres(ctx context.Context, d Database) {
	for _, s := range []struct{ name, bad, what string }{
		{"synchronous_commit", "off", "a crash loses the newest commits, fences and payments among them, after the provider has charged"},
		{"fsync", "off", "a crash of the machine may lose or break everything"},
		{"full_page_writes", "off", "a crash of the machine may break pages of any table"},
	} {
		if v, ok := l.ask(ctx, d, s.name, "SELECT current_setting('"+s.name+"')"); ok && v == s.bad {
			l.add("ZB171", "ALTER SYSTEM SET "+s.name+" = on; SELECT pg_reload_conf();", "%s is %s: %s", s.name, v, s.what)
		}
	}
	if v, ok := l.ask(ctx, d, "pg_is_in_recovery()", "SELECT pg_is_in_recovery()::text"); ok && v == "true" {
		l.add("ZB172", "the address of the primary", "the server is a replica: what it shows may be seconds old, and a fence that is looked up there is not there yet")
	}
}

// column is one of a unique key.
type column struct {
	index     string
	name      string
	nullable  bool
	collation string // empty: it is compared byte for byte, or is no text
	part      bool   // only the beginning of the value counts
	counter   bool   // the database numbers it
	partial   bool   // the index holds only some rows
}

const mysqlKeys = `SELECT s.INDEX_NAME, s.COLUMN_NAME, c.IS_NULLABLE = 'YES', COALESCE(c.COLLATION_NAME, ''), s.SUB_PART IS NOT NULL, c.EXTRA LIKE '%auto_increment%', FALSE
FROM information_schema.STATISTICS s JOIN information_schema.COLUMNS c USING (TABLE_SCHEMA, TABLE_NAME, COLUMN_NAME)
WHERE s.TABLE_SCHEMA = DATABASE() AND s.TABLE_NAME = ? AND s.NON_UNIQUE = 0 ORDER BY s.INDEX_NAME, s.SEQ_IN_INDEX`

const postgresKeys = `SELECT i.relname, COALESCE(a.attname, 'an expression'), NOT COALESCE(a.attnotnull, false),
	CASE WHEN t.typname = 'citext' THEN 'citext' WHEN NOT COALESCE(co.collisdeterministic, true) THEN co.collname ELSE '' END,
	false, COALESCE(a.attidentity <> '' OR pg_get_expr(def.adbin, def.adrelid) LIKE 'nextval(%', false), x.indpred IS NOT NULL
FROM pg_index x JOIN pg_class i ON i.oid = x.indexrelid
CROSS JOIN LATERAL unnest(x.indkey::int2[]) WITH ORDINALITY AS k(attnum, n)
LEFT JOIN pg_attribute a ON a.attrelid = x.indrelid AND a.attnum = k.attnum AND k.attnum > 0
LEFT JOIN pg_type t ON t.oid = a.atttypid
LEFT JOIN pg_collation co ON co.oid = a.attcollation
LEFT JOIN pg_attrdef def ON def.adrelid = x.indrelid AND def.adnum = k.attnum
WHERE x.indrelid = to_regclass($1) AND x.indisunique AND x.indisvalid AND k.n <= x.indnkeyatts ORDER BY 1, k.n`

// changing are names of columns whose value a second attempt does not have again.
var changing = regexp.MustCompile(`(?i)(^|_)(attempts?|tries|uuid|ulid|token|nonce|timestamp|time|created|updated|at|date|amount|total|reference|ref|status|state)(_|$)`)

// fence judges a fence that the application made itself.
func (l *live) fence(ctx context.Context, d Database, table string) {
	columns, err := keyColumns(ctx, d, table)
	if err != nil {
		l.add("ZB101", "name a table of this database, or grant this user SELECT on it", "the keys of table %s are unknown: %v", table, err)
		return
	}
	keys := map[string][]column{}
	var order []string
	for _, c := range columns {
		if keys[c.index] == nil {
			order = append(order, c.index)
		}
		keys[c.index] = append(keys[c.index], c)
	}
	order = slices.DeleteFunc(order, func(name string) bool { return len(keys[name]) == 1 && keys[name][0].counter })
	if len(order) == 0 {
		l.add("ZB174", fmt.Sprintf("ALTER TABLE %s ADD UNIQUE (order_id, step);", table), "table %s is used as a fence and has no unique key beside its number: every worker's insert succeeds, and every worker calls", table)
		return
	}
	for _, name := range order {
		l.key(table, name, keys[name], d.Dialect)
	}
}

func (l *live) key(table, name string, columns []column, dialect string) {
	for _, c := range columns {
		rewrite := fmt.Sprintf("ALTER TABLE %s MODIFY %s VARBINARY(255) NOT NULL;", table, c.name)
		if dialect == "postgres" {
			rewrite = fmt.Sprintf("ALTER TABLE %s ALTER %s TYPE bytea USING convert_to(%s::text, 'UTF8'), ALTER %s SET NOT NULL;", table, c.name, c.name, c.name)
		}
		switch {
		case c.part:
			l.add("ZB174", rewrite, "key %s of %s compares only the beginning of %s: two orders that begin alike are one, and the second is never charged", name, table, c.name)
		case c.partial:
			l.add("ZB174", fmt.Sprintf("ALTER TABLE %s ADD UNIQUE (order_id, step); over all rows", table), "key %s of %s holds only some of the rows: the others are not unique", name, table)
		case c.name == "an expression":
			l.add("ZB173", fmt.Sprintf("ALTER TABLE %s ADD UNIQUE (order_id, step); over the columns themselves", table), "key %s of %s is over an expression: what it makes equal is one order", name, table)
		case c.nullable:
			l.add("ZB174", rewrite, "column %s of key %s of %s may be NULL, and NULL is never equal to NULL: such rows are not unique", c.name, name, table)
		}
		if len(columns) > 1 && changing.MatchString(c.name) {
			l.add("ZB174", fmt.Sprintf("a unique key over the order and the step alone: ALTER TABLE %s ADD UNIQUE (order_id, step);", table),
				"key %s of %s holds %s, which a second attempt does not have again: its insert succeeds, and it calls", name, table, c.name)
		}
		if why := compared(c.collation); why != "" {
			l.add("ZB173", rewrite, "column %s of key %s of %s is compared by %s: %s, so that the second order is taken for charged", c.name, name, table, c.collation, why)
		}
	}
}

// compared is what a collation takes for equal that is not; "": nothing.
func compared(collation string) string {
	lower := strings.ToLower(collation)
	switch {
	case lower == "", lower == "binary", strings.HasSuffix(lower, "_nopad_bin"), strings.HasSuffix(lower, "_0900_bin"):
		return ""
	case strings.HasSuffix(lower, "_bin"):
		return `"A-1" and "A-1 " (with a space behind it) are one`
	case strings.Contains(lower, "_cs"), strings.Contains(lower, "_as"):
		return "some different texts are one"
	}
	return `"A-1" and "a-1" are one, and so may "é" and "e"`
}

func keyColumns(ctx context.Context, d Database, table string) ([]column, error) {
	there, query := "SELECT COUNT(*) > 0 FROM information_schema.TABLES WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = ?", mysqlKeys
	if d.Dialect == "postgres" {
		there, query = "SELECT to_regclass($1) IS NOT NULL", postgresKeys
	}
	var found bool
	if err := d.DB.QueryRowContext(ctx, there, table).Scan(&found); err != nil {
		return nil, err
	}
	if !found {
		return nil, errors.New("there is none of that name here, or this user may not see it")
	}
	rows, err := d.DB.QueryContext(ctx, query, table)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var list []column
	for rows.Next() {
		var c column
		if err := rows.Scan(&c.index, &c.name, &c.nullable, &c.collation, &c.part, &c.counter, &c.partial); err != nil {
			return nil, err
		}
		list = append(list, c)
	}
	return list, rows.Err()
}

package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"slices"
	"strings"

	"github.com/pressly/goose/v3"
	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"zabor"
)

func sqliteDialect() *dialect {
	return &dialect{
		name:     "sqlite",
		now:      "CAST(ROUND(unixepoch('subsec') * 1000000) AS INTEGER)",
		none:     "x''",
		recent:   " INDEXED BY zabor_fences_captured",
		div:      "/",
		greatest: "MAX",
		after: func(k zabor.Key) (string, []any) {
			return "(order_id, scope, step) > (?, ?, ?)", keyArgs(k)
		},
		setMeta:   "ON CONFLICT (name) DO UPDATE SET value = excluded.value",
		judge:     judgeSQLite,
		batch:     batchTx,
		insertNew: "INSERT", elseNothing: " ON CONFLICT DO NOTHING",
		check: checkSQLite,
		goose: goose.DialectSQLite3,
		versions: "CREATE TABLE " + versionTable + " (\n  id INTEGER PRIMARY KEY AUTOINCREMENT,\n  version_id INTEGER NOT NULL,\n" +
			"  is_applied INTEGER NOT NULL,\n  tstamp TIMESTAMP DEFAULT (datetime('now'))\n);\n",
		yes:         "1",
		secretName:  "CAST('" + metaSecret + "' AS BLOB)",
		secretBytes: "randomblob(32)",
	}
}

func judgeSQLite(err error) fault {
	var e *sqlite.Error
	if !errors.As(err, &e) {
		return unknown
	}
	switch e.Code() {
	case sqlite3.SQLITE_CONSTRAINT_PRIMARYKEY, sqlite3.SQLITE_CONSTRAINT_UNIQUE:
		return duplicate
	}
	if strings.Contains(e.Error(), "no such table: zabor_") { // it has no code of its own
		return missing
	}
	switch e.Code() & 0xff { // without the extension
	case sqlite3.SQLITE_READONLY:
		return readOnly
	case sqlite3.SQLITE_CANTOPEN: // the file is made by Migrate alone
		return missing
	case sqlite3.SQLITE_TOOBIG, sqlite3.SQLITE_MISMATCH:
		return unfit
	case sqlite3.SQLITE_ERROR, sqlite3.SQLITE_CONSTRAINT,
		sqlite3.SQLITE_PERM, sqlite3.SQLITE_AUTH, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT:
		return refused
	}
	return unknown // SQLITE_BUSY, I/O errors and whatever else
}

// sqliteConns is few: SQLite has one writer at a time, and whoever waits for it
// polls.
const sqliteConns = 4

func openSQLite(a address) (*sql.DB, string, error) {
	file, err := filepath.Abs(a.database)
	if err != nil {
		return nil, "", fmt.Errorf("fence address: %w", err)
	}
	query := url.Values{
		"mode":          {"rw"},        // a wrong path must not make an empty fence
		"_txlock":       {"immediate"}, // a transaction that reads and then writes never fails for the writing
		"_busy_timeout": {fmt.Sprint(a.lockWait.Milliseconds())},
		"_journal_mode": {"WAL"},
		"_synchronous":  {"FULL"},
	}
	u := url.URL{Scheme: "file", Path: file, RawQuery: query.Encode()}
	connector, err := sqlite.NewConnector(u.String())
	if err != nil {
		return nil, "", fmt.Errorf("fence address: %w", err)
	}
	db := sql.OpenDB(connector)
	db.SetMaxOpenConns(sqliteConns)
	db.SetMaxIdleConns(sqliteConns)
	return db, file, nil
}

func checkSQLite(ctx context.Context, db *sql.DB, found *problems) error {
	// BEGIN IMMEDIATE: refused where the file cannot be written.
	tx, err := db.BeginTx(ctx, nil)
	if judgeSQLite(err) == readOnly {
		found.add(ErrReadOnly, "let this user write the file and its folder", "the database file cannot be written")
		return nil
	}
	if err != nil {
		return err
	}
	defer tx.Rollback()
	var synchronous int
	var journal string
	if err := tx.QueryRowContext(ctx, "PRAGMA synchronous").Scan(&synchronous); err != nil {
		return err
	}
	if err := tx.QueryRowContext(ctx, "PRAGMA journal_mode").Scan(&journal); err != nil {
		return err
	}
	if synchronous < 2 {
		found.add(nil, "leave synchronous at FULL", "SQLite may lose what it has committed (synchronous=%d), and a lost row is a second charge", synchronous)
	}
	if journal != "wal" && journal != "delete" && journal != "truncate" && journal != "persist" {
		found.add(nil, "put the file on a local disk", "SQLite keeps no journal on disk (journal_mode=%s)", journal)
	}
	there, err := texts(ctx, tx, "SELECT name FROM sqlite_schema WHERE type = 'table' AND name LIKE 'zabor\\_%' ESCAPE '\\'")
	if err != nil {
		return err
	}
	checkTables(there, found)
	if !slices.Contains(there, "zabor_fences") {
		return nil
	}
	for _, column := range strings.Split(keyColumns, ", ") {
		var kind string
		if err := tx.QueryRowContext(ctx, "SELECT type FROM pragma_table_info('zabor_fences') WHERE name = ?", column).Scan(&kind); err != nil {
			return err
		}
		if kind != "BLOB" {
			found.add(nil, "make it BLOB as the migration does", "column %s of zabor_fences is %s", column, kind)
		}
	}
	rows, err := tx.QueryContext(ctx, `SELECT l.name, COALESCE(i.name, 'an expression'), COALESCE((SELECT "notnull" FROM pragma_table_info('zabor_fences') c WHERE c.name = i.name), 0)
		FROM pragma_index_list('zabor_fences') l, pragma_index_info(l.name) i WHERE l."unique" = 1 AND l.partial = 0`)
	if err != nil {
		return err
	}
	return scanKeys(rows, found)
}

// texts reads one text column.
func texts(ctx context.Context, tx *sql.Tx, query string) ([]string, error) {
	rows, err := tx.QueryContext(ctx, query)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var all []string
	for rows.Next() {
		var text string
		if err := rows.Scan(&text); err != nil {
			return nil, err
		}
		all = append(all, text)
	}
	return all, rows.Err()
}

package sqlstore

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/go-sql-driver/mysql"
)

// Table is one that zabor uses and what it does there.
type Table struct {
	Name   string   // as it is configured; with its schema before a dot where it has one
	Column string   // one of its columns
	Uses   []string // of SELECT, INSERT, UPDATE and DELETE
}

// Tables are zabor's own.
func Tables() []Table {
	return []Table{
		{"zabor_fences", "scope", []string{"SELECT", "INSERT", "UPDATE"}},
		{"zabor_meta", "name", []string{"SELECT", "INSERT", "UPDATE"}},
		{"zabor_notes", "scope", []string{"SELECT", "INSERT"}},
		{"zabor_processes", "id", []string{"SELECT", "INSERT", "UPDATE", "DELETE"}},
		{"zabor_references", "scope", []string{"SELECT", "INSERT"}},
		{"zabor_unreadable", "id", []string{"SELECT", "INSERT", "DELETE"}},
	}
}

// ErrNoTable says that there is no such table, or that this user may not even know
// of it.
var ErrNoTable = errors.New("there is no such table")

// Lacks lists what this user may not do with t of what zabor does there. Nothing is
// executed. The error is [ErrNoTable], or the server's.
func (s Setup) Lacks(ctx context.Context, t Table) (lacks []string, err error) {
	switch s.s.Dialect() {
	case "sqlite":
		var n int
		if err := s.s.db.QueryRowContext(ctx, "SELECT COUNT(*) FROM sqlite_master WHERE type IN ('table', 'view') AND name = ?", t.Name).Scan(&n); err != nil {
			return nil, err
		}
		if n == 0 {
			return nil, ErrNoTable
		}
		return nil, nil
	case "postgres":
		return s.s.lacksPostgres(ctx, t)
	}
	table := quoted(t.Name, "`")
	for _, use := range t.Uses {
		// To prepare a statement is to be asked for the right to run it.
		statement, err := s.s.db.PrepareContext(ctx, map[string]string{
			"SELECT": "SELECT 1 FROM " + table + " LIMIT 0",
			"INSERT": "INSERT INTO " + table + " () VALUES ()",
			"UPDATE": "UPDATE " + table + " SET `" + t.Column + "` = `" + t.Column + "` WHERE FALSE",
			"DELETE": "DELETE FROM " + table + " WHERE FALSE",
		}[use])
		if err == nil {
			statement.Close() //nolint:sqlclosecheck // a loop
			continue
		}
		const denied, deniedColumn, noTable = 1142, 1143, 1146
		told, ok := errors.AsType[*mysql.MySQLError](err)
		switch {
		case ok && (told.Number == denied || told.Number == deniedColumn):
			lacks = append(lacks, use)
		case ok && told.Number == noTable:
			return nil, ErrNoTable
		default:
			return nil, err
		}
	}
	return lacks, nil
}

func (s *Store) lacksPostgres(ctx context.Context, t Table) (lacks []string, err error) {
	table := quoted(t.Name, `"`)
	var there bool
	if err := s.db.QueryRowContext(ctx, "SELECT to_regclass($1) IS NOT NULL", table).Scan(&there); err != nil {
		return nil, err
	}
	if !there {
		return nil, ErrNoTable
	}
	for _, use := range t.Uses {
		var may bool
		if err := s.db.QueryRowContext(ctx, "SELECT has_table_privilege($1, $2)", table, use).Scan(&may); err != nil {
			return nil, err
		}
		if may && use == "INSERT" { // the numbers of its rows are a right of their own
			const numbers = "SELECT COALESCE(bool_and(has_sequence_privilege(s.oid, 'USAGE')), true) FROM pg_class s JOIN pg_depend d ON d.objid = s.oid WHERE s.relkind = 'S' AND d.refobjid = to_regclass($1)"
			if err := s.db.QueryRowContext(ctx, numbers, table).Scan(&may); err != nil {
				return nil, err
			}
			if !may {
				lacks = append(lacks, "USAGE ON its SEQUENCE")
				continue
			}
		}
		if !may {
			lacks = append(lacks, use)
		}
	}
	return lacks, nil
}

// quoted is a name, with its schema where it has one.
func quoted(name, mark string) string {
	parts := strings.Split(name, ".")
	for i, part := range parts {
		parts[i] = mark + strings.ReplaceAll(part, mark, mark+mark) + mark
	}
	return strings.Join(parts, ".")
}

// Prepare lets the server look at a statement with so many parameters, which is not
// executed: whether it is SQL, whether its tables and columns are there, and whether
// this user may run it.
func (s Setup) Prepare(ctx context.Context, query string, parameters int) error {
	statement, err := s.s.db.PrepareContext(ctx, query)
	if err != nil {
		return err
	}
	if err := statement.Close(); err != nil || //nolint:sqlclosecheck // it is not used
		s.s.Dialect() != "postgres" {
		return err
	}
	// PostgreSQL asks for rights when a plan is begun, which EXPLAIN does; it
	// does not run the plan.
	rows, err := s.s.db.QueryContext(ctx, "EXPLAIN "+query, make([]any, parameters)...)
	if err != nil {
		return fmt.Errorf("it would be refused: %w", err)
	}
	defer rows.Close()
	for rows.Next() {
		continue // the plan itself does not matter
	}
	return rows.Err()
}

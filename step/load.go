package step

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"zabor"
)

// load reads the step's one row; nil: the step has no Load.
func (s *Step) load(ctx context.Context, key zabor.Key, data map[string]any) (map[string]any, error) {
	if s.selects == nil {
		return nil, nil
	}
	args, err := s.arguments(key, data)
	if err != nil {
		return nil, err
	}
	conn, err := s.DB.Conn(ctx)
	if err != nil {
		return nil, fmt.Errorf("step %s: load: %w", s.spec.Name, err)
	}
	defer conn.Close()
	if aliases, ok := s.selects.aliases(args); ok {
		if err := s.checkAlias(ctx, conn, aliases); err != nil {
			return nil, err
		}
	}
	rows, err := conn.QueryContext(ctx, s.selects.query, args...)
	if err != nil {
		return nil, fmt.Errorf("step %s: load: %w", s.spec.Name, err)
	}
	found, err := s.oneRow(rows)
	if err != nil {
		return nil, err
	}
	if s.spec.Dialect == MySQL {
		if err := s.checkWarnings(ctx, conn); err != nil {
			return nil, err
		}
	}
	return found, nil
}

// arguments are the values of Load's parameters. The key's parts are texts, so
// that 7 and "7" find the same row.
func (s *Step) arguments(key zabor.Key, data map[string]any) ([]any, error) {
	args := make([]any, len(s.selects.names))
	for i, name := range s.selects.names {
		switch name {
		case "order":
			args[i] = key.Order
			continue
		case "scope":
			args[i] = key.Scope
			continue
		case "step":
			args[i] = key.Step
			continue
		}
		v, ok := lookup(data, name)
		if !ok {
			return nil, refuse("step %s: load: %w", s.spec.Name, missing(data, name))
		}
		var err error
		if args[i], err = parameter(v, s.spec.Dialect); err != nil {
			return nil, refuse("step %s: load: %s: %w", s.spec.Name, name, err)
		}
	}
	return args, nil
}

// oneRow reads the columns of the one row there must be, and closes rows.
func (s *Step) oneRow(rows *sql.Rows) (map[string]any, error) {
	defer rows.Close()
	columns, err := rows.ColumnTypes()
	if err != nil {
		return nil, fmt.Errorf("step %s: load: %w", s.spec.Name, err)
	}
	var found map[string]any
	for rows.Next() {
		if found != nil {
			return nil, refuse("step %s: load found more than one row; exactly one is wanted", s.spec.Name)
		}
		values := make([]any, len(columns))
		targets := make([]any, len(columns))
		for i := range values {
			targets[i] = &values[i]
		}
		if err := rows.Scan(targets...); err != nil {
			return nil, fmt.Errorf("step %s: load: %w", s.spec.Name, err)
		}
		found = make(map[string]any, len(columns))
		for i, column := range columns {
			if _, twice := found[column.Name()]; twice {
				return nil, refuse("step %s: load has two columns named %s; give one another name with AS", s.spec.Name, column.Name())
			}
			if found[column.Name()], err = columnValue(values[i], column.DatabaseTypeName()); err != nil {
				return nil, refuse("step %s: load: column %s: %w", s.spec.Name, column.Name(), err)
			}
		}
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("step %s: load: %w", s.spec.Name, err)
	}
	if found == nil {
		return nil, fmt.Errorf("step %s: %w", s.spec.Name, ErrNoRow)
	}
	return found, nil
}

// columnValue is a column's value as data: an exact decimal is a text, never a
// float; a time is RFC 3339 in UTC, and a date is its first ten letters.
func columnValue(v any, databaseType string) (any, error) {
	switch v := v.(type) {
	case nil, bool, int64:
		return v, nil
	case string:
		return textValue(v, databaseType), nil
	case []byte:
		return textValue(string(v), databaseType), nil
	case float64:
		if t := strings.ToUpper(databaseType); strings.Contains(t, "DEC") || strings.Contains(t, "NUMERIC") {
			return shortest(v), nil // SQLite keeps such a column as a float
		}
		return v, nil
	case float32:
		return strconv.ParseFloat(strconv.FormatFloat(float64(v), 'g', -1, 32), 64)
	case uint64:
		return json.Number(strconv.FormatUint(v, 10)), nil
	case time.Time:
		if databaseType == "DATE" {
			return v.Format(time.DateOnly), nil
		}
		return v.UTC().Format(time.RFC3339Nano), nil
	}
	return nil, fmt.Errorf("a value of type %s cannot be used", databaseType)
}

// textValue is a text, or MySQL's way to write a time: its session is in UTC.
func textValue(s, databaseType string) string {
	if databaseType == "DATETIME" || databaseType == "TIMESTAMP" {
		if t, err := time.Parse("2006-01-02 15:04:05", s); err == nil {
			return t.Format(time.RFC3339Nano)
		}
	}
	return s
}

// checkAlias refuses a row that is found by another text for the same number: the
// column is a number, and the order of the message is no such.
func (s *Step) checkAlias(ctx context.Context, conn *sql.Conn, aliases []any) error {
	rows, err := conn.QueryContext(ctx, s.selects.query, aliases...)
	if err != nil {
		// A text that the database does not take is in no row. On a dead
		// connection the load itself fails.
		return nil
	}
	defer rows.Close()
	if rows.Next() && rows.Err() == nil {
		return refuse("step %s: load takes a part of the key for the number that it looks like, and would find another order: send the id as the table has it", s.spec.Name)
	}
	return nil
}

// mistaken are the warnings of MySQL and MariaDB that a text was taken for a
// number although it is none: '7abc' finds order 7.
const mistaken = 1292

// checkWarnings refuses a row that was found by a comparison in which MySQL
// took one thing for another.
func (s *Step) checkWarnings(ctx context.Context, conn *sql.Conn) error {
	rows, err := conn.QueryContext(ctx, "SHOW WARNINGS")
	if err != nil {
		return fmt.Errorf("step %s: load: warnings: %w", s.spec.Name, err)
	}
	defer rows.Close()
	for rows.Next() {
		var level, text string
		var code int
		if err := rows.Scan(&level, &code, &text); err != nil {
			return fmt.Errorf("step %s: load: warnings: %w", s.spec.Name, err)
		}
		if code == mistaken {
			return refuse("step %s: load compared a text with a number, and the database took one for the other: compare like with like, or CAST the column to CHAR", s.spec.Name)
		}
	}
	return rows.Err()
}

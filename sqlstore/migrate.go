package sqlstore

import (
	"context"
	"crypto/rand"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/pressly/goose/v3"

	"zabor"
)

//go:embed migrations
var migrationFiles embed.FS

const versionTable = "zabor_goose"

// Migrate creates the tables, or brings them up to this version, and makes the
// installation's secret where there is none. Migrations only add: whatever runs
// on the tables of the version before still does. Many may migrate at once.
func (s Setup) Migrate(ctx context.Context) error {
	if s.s.file != "" {
		// Made here and not by SQLite, which would let everybody read it. A file that
		// is there is not even opened: closing it would end the locks that SQLite
		// holds on it for this process («How To Corrupt An SQLite Database File»).
		f, err := os.OpenFile(s.s.file, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
		switch {
		case err == nil:
			f.Close()
		case !errors.Is(err, fs.ErrExist):
			return fmt.Errorf("create the fence's database: %w", err)
		default:
			if _, err := os.Stat(s.s.file); errors.Is(err, fs.ErrNotExist) {
				return fmt.Errorf("create the fence's database: %s is a link to a file that is not there, and nothing was made; make its folder and the file (touch, and chmod 600), or write the file's own name in the address", s.s.file)
			}
		}
	}
	if err := s.s.migrateAlone(ctx); err != nil {
		if s.s.dialect.judge(err) == readOnly {
			err = fmt.Errorf("%w (%w)", ErrReadOnly, err)
		}
		return fmt.Errorf("migrate: %w", err)
	}
	if err := s.s.Setup().AddSecret(ctx); err != nil {
		return fmt.Errorf("migrate: %w", err)
	}
	return nil
}

// migrateAlone waits for the migration of another process, which may leave
// nothing to do.
func (s *Store) migrateAlone(ctx context.Context) error {
	if s.dialect.alone != "" {
		conn, err := s.db.Conn(ctx)
		if err != nil {
			return err
		}
		defer conn.Close()
		var alone sql.NullBool
		if err := conn.QueryRowContext(ctx, s.dialect.alone).Scan(&alone); err != nil {
			return fmt.Errorf("wait for another migration: %w", err)
		}
		if !alone.Bool {
			return errors.New("another migration is running: wait for its end and try again")
		}
		defer func() { _, _ = conn.ExecContext(context.WithoutCancel(ctx), s.dialect.together) }()
	}
	if s.dialect.name == "mysql" {
		if err := mendMySQL(ctx, s.db); err != nil {
			return err
		}
	}
	files, err := Migrations(s.dialect.name)
	if err != nil {
		return err
	}
	provider, err := goose.NewProvider(s.dialect.goose, s.db, files,
		goose.WithTableName(versionTable),
		goose.WithSlog(slog.New(slog.DiscardHandler)),
		goose.WithDisableGlobalRegistry(true))
	if err != nil {
		return err
	}
	for busy := 0; ; {
		before := made(ctx, provider)
		_, err := provider.Up(ctx)
		if err == nil {
			return nil
		}
		switch {
		case made(ctx, provider) > before:
			// Another process made the very migration that failed here, each in one
			// transaction: what it has not come to yet may be made by this one.
		case s.file != "" && s.dialect.judge(err) == unknown && busy < maxTries:
			busy++ // SQLite does not wait for whoever turns the log of a new file on
			select {
			case <-ctx.Done():
				return err
			case <-time.After(time.Duration(busy) * 50 * time.Millisecond):
			}
		default:
			return err
		}
	}
}

// made is the number of the newest migration in the database; -1 where not even
// the table of the migrations can be read.
func made(ctx context.Context, provider *goose.Provider) int64 {
	version, err := provider.GetDBVersion(ctx)
	if err != nil {
		return -1
	}
	return version
}

// Migrated is the number of the newest migration that [Setup.Migrate] has made in
// this database; 0: none, or the database is a file of SQLite that is not there.
func (s Setup) Migrated(ctx context.Context) (int64, error) {
	var newest sql.NullInt64
	err := s.s.reachable(ctx)
	if err == nil {
		err = s.s.repeat(ctx, func(ctx context.Context) error {
			return s.s.query(ctx, func(rows *sql.Rows) error { return rows.Scan(&newest) }, "SELECT MAX(version_id) FROM "+versionTable)
		})
	}
	if err != nil && !errors.Is(err, ErrNotMigrated) {
		return 0, fmt.Errorf("read which migrations were made: %w", err)
	}
	return newest.Int64, nil
}

// Migrations are the files that [Setup.Migrate] runs, NUMBER_NAME.sql in goose's
// format, for programs that migrate their databases themselves: goose's line
// "-- +goose Up" is a comment to other tools, and nothing follows it that undoes.
// Whoever runs them calls [Setup.Migrate] or [Setup.AddSecret] too, since the
// installation's secret is in none of them.
func Migrations(dialectName string) (fs.FS, error) {
	d, err := dialectNamed(dialectName)
	if err != nil {
		return nil, err
	}
	return fs.Sub(migrationFiles, "migrations/"+d.name)
}

// AddSecret makes the installation's secret where there is none. Migrate does it
// too; it is for those whose own tool runs [Migrations].
func (s Setup) AddSecret(ctx context.Context) error {
	secret := make([]byte, zabor.MinSecret)
	rand.Read(secret)
	_, err := s.s.Meta().Add(ctx, metaSecret, secret)
	return err
}

// MigrationSQL is what [Setup.Migrate] does to an empty database, as SQL for the
// dialect's own client: the tables, goose's version table, and a secret from the
// database's own random function.
func MigrationSQL(dialectName string) (string, error) {
	d, err := dialectNamed(dialectName)
	if err != nil {
		return "", err
	}
	files, err := fs.Glob(migrationFiles, "migrations/"+d.name+"/*.sql")
	if err != nil {
		return "", err
	}
	var b strings.Builder
	fmt.Fprintf(&b, "-- The tables of zabor for %s. Run it once, on an empty database or beside the\n-- application's tables; later versions: \"zabor migrate\".\n\n", d.name)
	b.WriteString(d.versions)
	fmt.Fprintf(&b, "INSERT INTO %s (version_id, is_applied) VALUES (0, %s);\n", versionTable, d.yes)
	for i, file := range files {
		text, err := migrationFiles.ReadFile(file)
		if err != nil {
			return "", err
		}
		b.WriteString("\n")
		for line := range strings.Lines(string(text)) {
			if !strings.HasPrefix(line, "-- +goose") {
				b.WriteString(line)
			}
		}
		fmt.Fprintf(&b, "INSERT INTO %s (version_id, is_applied) VALUES (%d, %s);\n", versionTable, i+1, d.yes)
	}
	fmt.Fprintf(&b, "\n-- The installation's secret, which the providers' idempotency keys are derived\n-- from. It must never change.\nINSERT INTO zabor_meta (name, value) VALUES (%s, %s);\n", d.secretName, d.secretBytes)
	return b.String(), nil
}

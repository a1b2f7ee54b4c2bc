package sqlstore

import (
	"context"
	"crypto/rand"
	"database/sql"
	"embed"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"strings"

	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/lock"

	"zabor"
)

//go:embed migrations
var migrationFiles embed.FS

// migrations is how one database is migrated.
type migrations struct {
	dialect goose.Dialect
	locker  func() (lock.SessionLocker, error) // nil: a migration is one transaction
}

const versionTable = "zabor_goose"

// Migrate creates the tables, or brings them up to this version, and makes the
// installation's secret where there is none. Migrations only add: whatever runs
// on the tables of the version before still does. Many may migrate at once.
func (s *Store) Migrate(ctx context.Context) error {
	if s.file != "" {
		// Made here and not by SQLite, which would let everybody read it.
		f, err := os.OpenFile(s.file, os.O_CREATE|os.O_RDWR, 0o600)
		if err != nil {
			return fmt.Errorf("create the fence's database: %w", err)
		}
		f.Close()
	}
	provider, err := s.dialect.migrations.provider(s.db, s.dialect.name)
	if err != nil {
		return fmt.Errorf("migrate: %w", err)
	}
	if _, err := provider.Up(ctx); err != nil {
		// Somebody else may have done it at the same time.
		if pending, lookErr := provider.HasPending(ctx); lookErr != nil || pending {
			return fmt.Errorf("migrate: %w", s.explain(err))
		}
	}
	secret := make([]byte, zabor.MinSecret)
	rand.Read(secret)
	if _, err := s.AddMeta(ctx, metaSecret, secret); err != nil {
		return fmt.Errorf("migrate: %w", err)
	}
	return nil
}

// explain adds what the code of err says.
func (s *Store) explain(err error) error {
	if s.dialect.judge(err) == readOnly {
		return fmt.Errorf("%w (%w)", ErrReadOnly, err)
	}
	return err
}

func (m migrations) provider(db *sql.DB, name string) (*goose.Provider, error) {
	files, err := fs.Sub(migrationFiles, "migrations/"+name)
	if err != nil {
		return nil, err
	}
	options := []goose.ProviderOption{
		goose.WithTableName(versionTable),
		goose.WithSlog(slog.New(slog.DiscardHandler)),
		goose.WithDisableGlobalRegistry(true),
	}
	if m.locker != nil {
		locker, err := m.locker()
		if err != nil {
			return nil, err
		}
		options = append(options, goose.WithSessionLocker(locker))
	}
	return goose.NewProvider(m.dialect, db, files, options...)
}

// MigrationSQL is what [Store.Migrate] does to an empty database, as SQL for the
// dialect's own client: the tables, goose's version table, and a secret from the
// database's own random function.
func MigrationSQL(dialectName string) (string, error) {
	var d *dialect
	switch dialectName {
	case "mysql":
		d = mysqlDialect()
	case "postgres":
		d = postgresDialect()
	case "sqlite":
		d = sqliteDialect()
	default:
		return "", fmt.Errorf("no database is called %q: mysql, postgres or sqlite", dialectName)
	}
	files, err := fs.Glob(migrationFiles, "migrations/"+d.name+"/*.sql")
	if err != nil {
		return "", err
	}
	var b strings.Builder
	fmt.Fprintf(&b, "-- The tables of zabor for %s. Run it once, on an empty database or beside the\n-- application's tables; later versions: \"zabor migrate\".\n\n", d.name)
	b.WriteString(d.goose)
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

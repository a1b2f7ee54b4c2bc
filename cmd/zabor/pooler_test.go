package main

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"zabor/sqlstore"
)

// What a pooler before PostgreSQL answers is a matter of the configuration: no later
// start helps.
func TestAPoolerIsNamed(t *testing.T) {
	for code, want := range map[string]int{"08P01": exitUsage, "42P05": exitUsage, "26000": exitUsage, "57P01": exitUnreachable} {
		err := storeFailure(fmt.Errorf("%w (%w)", sqlstore.ErrUnreachable, &pgconn.PgError{Code: code, Message: "unsupported startup parameter: lock_timeout"}))
		f, ok := errors.AsType[*failure](err)
		if !ok || f.code != want || strings.Contains(f.hint, "pool_mode = session") != (want == exitUsage) {
			t.Errorf("%s: %v", code, err)
		}
	}
}

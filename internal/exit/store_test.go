package exit

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
	for code, want := range map[string]int{"08P01": WrongUsage, "42P05": WrongUsage, "26000": WrongUsage, "57P01": NotReached} {
		err := Store(fmt.Errorf("%w (%w)", sqlstore.ErrUnreachable, &pgconn.PgError{Code: code, Message: "unsupported startup parameter: lock_timeout"}))
		f, ok := errors.AsType[*Error](err)
		if !ok || f.Code != want || strings.Contains(f.Hint, "pool_mode = session") != (want == WrongUsage) {
			t.Errorf("%s: %v", code, err)
		}
	}
}

package exit

import (
	"errors"
	"fmt"

	"zabor/sqlstore"
)

// Store returns an [Error] for an error of the fence's database: of usage for a
// setting or a missing table, else [Unreachable].
func Store(err error) error {
	if _, ok := errors.AsType[*sqlstore.Problem](err); ok || errors.Is(err, sqlstore.ErrNotMigrated) || errors.Is(err, sqlstore.ErrReadOnly) {
		return Usage(err, "")
	}
	if sqlstore.Pooled(err) {
		return Usage(fmt.Errorf("the fence's database: %w", err), "nothing was changed; a pooler stands between: give the server's own address under fence:, or set the pooler to pool_mode = session and "+
			"ignore_startup_parameters = default_transaction_isolation,lock_timeout,statement_timeout,idle_in_transaction_session_timeout")
	}
	return Unreachable(fmt.Errorf("the fence's database: %w", err), "nothing was changed; is the server up, and is the address under fence: right?")
}

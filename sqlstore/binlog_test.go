package sqlstore

import (
	"strings"
	"testing"

	"zabor/internal/servers"
)

// A server that logs statements refuses zabor's writes. Migrate and Check say so, and
// the version table that an earlier migration has left empty stops no later one.
func TestStatementsInTheBinlog(t *testing.T) {
	t.Parallel()
	primary, _ := servers.MariaDBPair(t)
	address := servers.MariaDBDatabase(t, primary)
	s := open(t, address)
	format := func(name string) {
		t.Helper()
		mustExec(t, s.DB(), "SET GLOBAL binlog_format = "+name)
		s = open(t, address) // sessions keep the format that they began with
	}
	format("STATEMENT")
	if err := s.Setup().Migrate(t.Context()); !isProblem(err) || !strings.Contains(err.Error(), "SET GLOBAL binlog_format = ROW") {
		t.Errorf("migrate: %v", err)
	}
	format("ROW")
	mustExec(t, s.DB(), mysqlDialect().versions)
	if err := s.Setup().Migrate(t.Context()); err != nil {
		t.Errorf("migrate after an empty table of versions: %v", err)
	}
	if err := s.Setup().Check(t.Context()); err != nil {
		t.Errorf("check: %v", err)
	}
	if err := mendMySQL(t.Context(), s.DB()); err != nil || count(t, s, "SELECT COUNT(*) FROM zabor_goose") == 0 {
		t.Errorf("a table of versions that has rows: %v", err)
	}
	mustExec(t, s.DB(), "SET GLOBAL binlog_format = STATEMENT")
	if err := s.Setup().Check(t.Context()); !isProblem(err) && (err == nil || !strings.Contains(err.Error(), "binlog_format=STATEMENT")) {
		t.Errorf("check: %v", err)
	}
}

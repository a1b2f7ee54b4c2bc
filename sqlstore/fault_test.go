package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"zabor"
	"zabor/internal/servers"
)

// networked are the databases that a connection can be lost to.
var networked = databases[1:]

// testRow is a captured row of order/charge.
func testRow(order string, id byte) zabor.Row {
	row := zabor.Row{
		Key: zabor.Key{Order: order, Step: "charge"}, State: zabor.Captured, Cause: zabor.ByCall,
		Claim: zabor.Claim{Epoch: 1}, Endpoint: zabor.Endpoint{Provider: "stripe"}, Generation: 1, Fingerprint: zabor.Fingerprint{Message: "m", Request: "f"},
		Tries: 1, Unproven: 1, Open: zabor.Open{Lease: time.Minute},
	}
	copy(row.Claim.ID[:], "attempt-of-order")
	row.Claim.ID[15] = id
	row.Open.Send = row.Claim.ID
	return row
}

func settledAfter(row zabor.Row) zabor.Row {
	next := row
	next.Claim.Epoch++
	copy(next.Claim.ID[:], "settling-attempt")
	next.State, next.Reference, next.Open = zabor.Settled, "pi_1", zabor.Open{}
	return next
}

// eventually waits until ready.
func eventually(t *testing.T, what string, ready func() bool) {
	t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for !ready() {
		if time.Now().After(deadline) {
			t.Fatalf("never: %s", what)
		}
		select {
		case <-t.Context().Done():
			t.FailNow()
		case <-time.After(5 * time.Millisecond):
		}
	}
}

func count(t *testing.T, s *Store, query string) (n int) {
	t.Helper()
	if err := s.DB().QueryRow(query).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

func mustExec(t *testing.T, db interface {
	Exec(string, ...any) (sql.Result, error)
}, statements ...string) {
	t.Helper()
	for _, statement := range statements {
		if _, err := db.Exec(statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
}

// through gives a store that goes through a proxy, and one that goes straight.
func through(t *testing.T, address string) (*proxy, *Store, *Store) {
	t.Helper()
	straight := migrated(t, address)
	p, detour := newProxy(t, address)
	return p, open(t, detour), straight
}

// An insert whose answer is lost after the commit is its own process's: one
// call, one try, no doubt.
func TestLostAnswerToInsert(t *testing.T) {
	for _, d := range networked {
		t.Run(d.name, func(t *testing.T) {
			p, s, straight := through(t, d.address(t))
			row := testRow("1001", 1)
			p.breakNext(cutAnswer, row.Claim.ID[:])
			got, err := s.Insert(t.Context(), row, zabor.Write{Lease: row.Open.Lease})
			if err != nil {
				t.Fatal(err)
			}
			select {
			case <-p.broken:
			default:
				t.Fatal("no connection was cut")
			}
			if got.Claim != row.Claim || got.State != zabor.Captured || got.Tries != 1 {
				t.Errorf("got claim %v, %s, tries=%d; want its own %v, captured, 1", got.Claim, got.State, got.Tries, row.Claim)
			}
			if n := count(t, straight, "SELECT COUNT(*) FROM zabor_fences"); n != 1 {
				t.Errorf("rows=%d, want 1", n)
			}
			other, err := s.Insert(t.Context(), testRow("1001", 2), zabor.Write{Lease: row.Open.Lease})
			if err != nil || other.Claim != row.Claim {
				t.Errorf("another's insert: claim %v, error %v; want the first one's", other.Claim, err)
			}
		})
	}
}

// The same through the fence: it calls once and settles.
func TestLostAnswerToCapture(t *testing.T) {
	for _, d := range networked {
		t.Run(d.name, func(t *testing.T) {
			p, s, straight := through(t, d.address(t))
			secret, err := s.Setup().Secret(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			fence := zabor.Fence{Store: s, Secret: secret}
			calls := 0
			row, err := func() (zabor.Row, error) {
				p.breakNext(cutAnswer, []byte("frozen-request"))
				return fence.Do(t.Context(), zabor.Effect{
					Key: zabor.Key{Order: "1001", Step: "charge"}, Provider: "stripe", Fingerprint: zabor.Fingerprint{Message: "m", Request: "f"},
					Render:  func(zabor.ProviderKeys, string) ([]byte, error) { return []byte("frozen-request"), nil },
					Timeout: 30 * time.Second, MaxAttempts: 3, MissingRow: zabor.Captured,
				}, func(context.Context, zabor.Row) zabor.Outcome {
					calls++
					return zabor.Outcome{Verdict: zabor.Done, Reference: "pi_1"}
				})
			}()
			if err != nil {
				t.Fatal(err)
			}
			if calls != 1 || row.State != zabor.Settled || row.Tries != 1 {
				t.Errorf("calls=%d, %s, tries=%d; want 1, settled, 1", calls, row.State, row.Tries)
			}
			if got, err := straight.Load(t.Context(), row.Key); err != nil || got.Claim.Epoch != 2 || got.Reference != "pi_1" {
				t.Errorf("epoch %d, reference %q, error %v; want 2 and pi_1", got.Claim.Epoch, got.Reference, err)
			}
		})
	}
}

func TestLostAnswerToSwap(t *testing.T) {
	for _, d := range networked {
		t.Run(d.name, func(t *testing.T) {
			p, s, straight := through(t, d.address(t))
			row := testRow("1001", 1)
			if _, err := s.Insert(t.Context(), row, zabor.Write{Lease: row.Open.Lease}); err != nil {
				t.Fatal(err)
			}
			next := settledAfter(row)
			p.breakNext(cutAnswer, next.Claim.ID[:])
			if err := s.Swap(t.Context(), row, next, zabor.Write{}); err != nil {
				t.Fatal(err)
			}
			<-p.broken
			got, err := straight.Load(t.Context(), row.Key)
			if err != nil || got.Claim != next.Claim || got.Reference != "pi_1" {
				t.Errorf("claim %v, reference %q, error %v; want %v and pi_1", got.Claim, got.Reference, err, next.Claim)
			}
		})
	}
}

// A statement that reaches the server only after its repeat changes nothing.
func TestLateInsert(t *testing.T) {
	for _, d := range networked {
		t.Run(d.name, func(t *testing.T) {
			p, s, straight := through(t, d.address(t))
			row := testRow("1001", 1)
			p.breakNext(cutHeld, row.Claim.ID[:])
			got, err := s.Insert(t.Context(), row, zabor.Write{Lease: row.Open.Lease})
			if err != nil || got.Claim != row.Claim {
				t.Fatalf("claim %v, error %v; want its own", got.Claim, err)
			}
			if err := s.Swap(t.Context(), row, settledAfter(row), zabor.Write{}); err != nil {
				t.Fatal(err)
			}
			close(p.release)
			<-p.done
			got, err = straight.Load(t.Context(), row.Key)
			if err != nil || got.State != zabor.Settled || got.Claim.Epoch != 2 {
				t.Errorf("%s, epoch %d, error %v; want settled, 2", got.State, got.Claim.Epoch, err)
			}
		})
	}
}

// A commit that is delayed past the reconnect: the second insert waits for it,
// and recognises its attempt id.
func TestDelayedCommit(t *testing.T) {
	t.Run("mysql", func(t *testing.T) {
		p, s, straight := through(t, servers.MariaDB(t))
		testDelayedCommit(t, p, s, straight, func(c *sql.Conn) func() {
			for _, stage := range []string{"START", "FLUSH", "BLOCK_DDL", "BLOCK_COMMIT"} {
				mustExecConn(t, c, "BACKUP STAGE "+stage)
			}
			return func() { mustExecConn(t, c, "BACKUP STAGE END") }
		}, "SELECT COUNT(*) FROM information_schema.processlist WHERE state LIKE 'Waiting for backup lock%' AND info LIKE 'INSERT INTO zabor_fences%'",
			lockWaits)
	})
	t.Run("postgres", func(t *testing.T) {
		p, s, straight := through(t, servers.Postgres(t))
		mustExec(t, straight.DB(),
			`CREATE FUNCTION slow_commit() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_advisory_xact_lock(7); RETURN NULL; END'`,
			`CREATE CONSTRAINT TRIGGER slow_commit AFTER INSERT ON zabor_fences DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION slow_commit()`)
		testDelayedCommit(t, p, s, straight, func(c *sql.Conn) func() {
			mustExecConn(t, c, "SELECT pg_advisory_lock(7)")
			return func() { mustExecConn(t, c, "SELECT pg_advisory_unlock(7)") }
		}, "SELECT COUNT(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'advisory'",
			"SELECT COUNT(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'transactionid'")
	})
}

// lockWaits is how many statements of the MariaDB server wait for a row now.
const lockWaits = "SELECT variable_value FROM information_schema.global_status WHERE variable_name = 'Innodb_row_lock_current_waits'"

func mustExecConn(t *testing.T, c *sql.Conn, statement string) {
	t.Helper()
	if _, err := c.ExecContext(context.Background(), statement); err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
}

func testDelayedCommit(t *testing.T, p *proxy, s, straight *Store, block func(*sql.Conn) (unblock func()), committing, waiting string) {
	conn, err := straight.DB().Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	unblock := block(conn)
	row := testRow("1001", 1)
	p.breakNext(cutSent, row.Claim.ID[:])
	type result struct {
		row zabor.Row
		err error
	}
	results := make(chan result, 1)
	go func() {
		got, err := s.Insert(t.Context(), row, zabor.Write{Lease: row.Open.Lease})
		results <- result{got, err}
	}()
	<-p.broken
	eventually(t, "the first insert commits", func() bool { return count(t, straight, committing) == 1 })
	eventually(t, "the second insert waits for it", func() bool { return count(t, straight, waiting) == 1 })
	select {
	case r := <-results:
		t.Fatalf("the insert returned (%v, %v) before the commit", r.row.Claim, r.err)
	default:
	}
	unblock()
	r := <-results
	if r.err != nil || r.row.Claim != row.Claim || r.row.ReadAt.IsZero() {
		t.Errorf("claim %v, error %v, read at %s; want its own %v, found by a look", r.row.Claim, r.err, r.row.ReadAt, row.Claim)
	}
	if n := count(t, straight, "SELECT COUNT(*) FROM zabor_fences"); n != 1 {
		t.Errorf("rows=%d, want 1", n)
	}
}

// A statement that has waited too long for another's lock is sent again, within
// the caller's time.
func TestLockWait(t *testing.T) {
	waits := map[string]string{
		"mysql":    "SELECT variable_value FROM information_schema.global_status WHERE variable_name = 'Innodb_row_lock_waits'",
		"postgres": "SELECT COUNT(*) FROM zabor_test_waits",
	}
	for _, d := range networked {
		t.Run(d.name, func(t *testing.T) {
			address := d.address(t)
			straight := migrated(t, address)
			s := open(t, with(address, "lock_wait=1s"))
			row := testRow("1001", 1)
			if _, err := s.Insert(t.Context(), row, zabor.Write{Lease: row.Open.Lease}); err != nil {
				t.Fatal(err)
			}
			tx, err := straight.DB().Begin()
			if err != nil {
				t.Fatal(err)
			}
			defer tx.Rollback()
			mustExec(t, tx, "UPDATE zabor_fences SET parked = parked")

			short, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
			defer cancel()
			if err := s.Swap(short, row, settledAfter(row), zabor.Write{}); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("within a deadline: error %v, want %v", err, context.DeadlineExceeded)
			}

			seen := map[string]bool{}
			first := 0
			if d.name == "mysql" {
				first = count(t, straight, waits["mysql"])
			}
			done := make(chan error, 1)
			go func() { done <- s.Swap(t.Context(), row, settledAfter(row), zabor.Write{}) }()
			eventually(t, "a second wait for the lock", func() bool {
				if d.name == "mysql" {
					return count(t, straight, waits["mysql"]) >= first+2
				}
				var start sql.NullString
				err := straight.DB().QueryRow("SELECT max(query_start::text) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'").Scan(&start)
				if err != nil {
					t.Fatal(err)
				}
				if start.Valid {
					seen[start.String] = true
				}
				return len(seen) >= 2
			})
			if err := tx.Rollback(); err != nil {
				t.Fatal(err)
			}
			if err := <-done; err != nil {
				t.Fatal(err)
			}
		})
	}
}

// with is address with one more parameter.
func with(address, parameter string) string {
	if strings.Contains(address, "?") {
		return address + "&" + parameter
	}
	return address + "?" + parameter
}

// InnoDB ends one of two inserts that waited for a third which was rolled back.
func TestDeadlockOfInserts(t *testing.T) {
	s := migrated(t, servers.MariaDB(t))
	const deadlocks = "SELECT variable_value FROM information_schema.global_status WHERE variable_name = 'Innodb_deadlocks'"
	before := count(t, s, deadlocks)
	if _, err := s.Insert(t.Context(), testRow("0", 1), zabor.Write{}); err != nil {
		t.Fatal(err)
	}
	tx, err := s.DB().Begin()
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback()
	mustExec(t, tx, "INSERT INTO zabor_fences ("+columnsBut(t, s, "order_id")+", order_id) SELECT "+columnsBut(t, s, "order_id")+", '1001' FROM zabor_fences WHERE order_id = '0'")
	const waiters = 8
	var got [waiters]zabor.Row
	var errs [waiters]error
	var all sync.WaitGroup
	for i := range waiters {
		all.Go(func() {
			got[i], errs[i] = s.Insert(t.Context(), testRow("1001", byte(10+i)), zabor.Write{Lease: time.Minute})
		})
	}
	eventually(t, "all inserts wait", func() bool {
		return count(t, s, lockWaits) == waiters
	})
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	all.Wait()
	winners := 0
	for i := range waiters {
		if errs[i] != nil {
			t.Fatal(errs[i])
		}
		if got[i].Claim.ID[15] == byte(10+i) {
			winners++
		}
	}
	if winners != 1 {
		t.Errorf("winners=%d, want 1", winners)
	}
	if after := count(t, s, deadlocks); after == before {
		t.Error("there was no deadlock: this test shows nothing")
	}
}

// A swap that PostgreSQL ends as the victim of a deadlock is sent again.
func TestDeadlockOfSwap(t *testing.T) {
	s := migrated(t, servers.Postgres(t))
	row, other := testRow("1001", 1), testRow("1002", 2)
	for _, r := range []zabor.Row{row, other} {
		if _, err := s.Insert(t.Context(), r, zabor.Write{Lease: r.Open.Lease}); err != nil {
			t.Fatal(err)
		}
	}
	mustExec(t, s.DB(),
		"CREATE TABLE other (id int PRIMARY KEY, n int)", "INSERT INTO other VALUES (1, 0)",
		"CREATE FUNCTION touch() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN UPDATE other SET n = n + 1; RETURN NULL; END'",
		"CREATE TRIGGER touch AFTER UPDATE ON zabor_fences FOR EACH ROW WHEN (NEW.state = 'settled') EXECUTE FUNCTION touch()")
	tx, err := s.DB().Begin()
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback()
	mustExec(t, tx, "SET LOCAL deadlock_timeout = '30s'", "UPDATE other SET n = n + 10") // the other side is the victim
	done := make(chan error, 1)
	go func() { done <- s.Swap(t.Context(), row, settledAfter(row), zabor.Write{}) }()
	eventually(t, "the swap waits", func() bool {
		return count(t, s, "SELECT COUNT(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'") == 1
	})
	mustExec(t, tx, "UPDATE zabor_fences SET parked = parked") // waits until the swap was ended
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if n := count(t, s, "SELECT n FROM other"); n != 11 {
		t.Errorf("n=%d, want 11: the ended swap's part must be undone", n)
	}
}

// A server that is read-only at run time is told apart, and the store works
// again when it takes writes.
func TestReadOnlyServer(t *testing.T) {
	cases := []struct {
		name      string
		open      func(*testing.T) (s, admin *Store)
		lock, set string
	}{
		{"mysql", func(t *testing.T) (*Store, *Store) {
			address := servers.MariaDB(t)
			admin := migrated(t, address)
			mustExec(t, admin.DB(), "CREATE OR REPLACE USER shop@'127.0.0.1'", "GRANT ALL ON *.* TO shop@'127.0.0.1'", "REVOKE SUPER, READ_ONLY ADMIN ON *.* FROM shop@'127.0.0.1'")
			return open(t, strings.Replace(address, "root@", "shop@", 1)), admin
		}, "SET GLOBAL read_only = 1", "SET GLOBAL read_only = 0"},
		{"postgres", func(t *testing.T) (*Store, *Store) {
			address := servers.Postgres(t)
			return open(t, address), migrated(t, address)
		}, "ALTER DATABASE %s SET default_transaction_read_only = on", "ALTER DATABASE %s SET default_transaction_read_only = off"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			s, admin := c.open(t)
			name := ""
			if c.name == "postgres" {
				if err := admin.DB().QueryRow("SELECT current_database()").Scan(&name); err != nil {
					t.Fatal(err)
				}
				c.lock, c.set = fmt.Sprintf(c.lock, name), fmt.Sprintf(c.set, name)
			}
			mustExec(t, admin.DB(), c.lock)
			defer mustExec(t, admin.DB(), c.set)
			row := testRow("1001", 1)
			if _, err := s.Insert(t.Context(), row, zabor.Write{Lease: row.Open.Lease}); !errors.Is(err, ErrReadOnly) {
				t.Errorf("insert: error %v, want %v", err, ErrReadOnly)
			}
			if err := s.Swap(t.Context(), row, settledAfter(row), zabor.Write{}); !errors.Is(err, ErrReadOnly) {
				t.Errorf("swap: error %v, want %v", err, ErrReadOnly)
			}
			if err := s.Setup().Check(t.Context()); !errors.Is(err, ErrReadOnly) {
				t.Errorf("check: error %v, want %v", err, ErrReadOnly)
			}
			mustExec(t, admin.DB(), c.set)
			if c.name == "postgres" {
				s = open(t, servers.Postgres(t)) // its sessions keep the old setting for a minute
				if err := s.Setup().Migrate(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			if got, err := s.Insert(t.Context(), row, zabor.Write{Lease: row.Open.Lease}); err != nil || got.Claim != row.Claim {
				t.Errorf("insert afterwards: claim %v, error %v", got.Claim, err)
			}
		})
	}
}

func TestReadOnlySQLite(t *testing.T) {
	s := migrated(t, databases[0].address(t))
	s.DB().SetMaxOpenConns(1)
	mustExec(t, s.DB(), "PRAGMA query_only = 1")
	if _, err := s.Insert(t.Context(), testRow("1001", 1), zabor.Write{}); !errors.Is(err, ErrReadOnly) {
		t.Errorf("insert: error %v, want %v", err, ErrReadOnly)
	}
}

// A server that is away is an error within bounds, and the same store works when
// it is back.
func TestServerAway(t *testing.T) {
	for _, d := range []struct {
		name    string
		own     func(testing.TB) *servers.Server
		address func(testing.TB, *servers.Server) string
	}{
		{"mysql", servers.OwnMariaDB, servers.MariaDBDatabase},
		{"postgres", servers.OwnPostgres, servers.PostgresDatabase},
	} {
		t.Run(d.name, func(t *testing.T) {
			server := d.own(t)
			s := migrated(t, d.address(t, server))
			row := testRow("1001", 1)
			if _, err := s.Insert(t.Context(), row, zabor.Write{Lease: row.Open.Lease}); err != nil {
				t.Fatal(err)
			}
			server.Kill()
			eventually(t, "the server is away", func() bool { return errors.Is(s.Setup().Check(t.Context()), ErrUnreachable) })
			start := time.Now()
			if err := s.Swap(t.Context(), row, settledAfter(row), zabor.Write{}); err == nil || errors.Is(err, zabor.ErrStale) {
				t.Errorf("swap: error %v, want that the server is away", err)
			}
			if _, err := s.Insert(t.Context(), testRow("1002", 2), zabor.Write{}); err == nil {
				t.Error("insert: no error")
			}
			if took := time.Since(start); took > 20*time.Second {
				t.Errorf("it took %s to say so", took)
			}
			if err := server.Start(); err != nil {
				t.Fatal(err)
			}
			if got, err := s.Insert(t.Context(), testRow("1001", 3), zabor.Write{}); err != nil || got.Claim != row.Claim {
				t.Errorf("the row after the crash: claim %v, error %v; want %v", got.Claim, err, row.Claim)
			}
			if err := s.Swap(t.Context(), row, settledAfter(row), zabor.Write{}); err != nil {
				t.Error(err)
			}
			if err := s.Setup().Check(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

// A caller that is stopped in the middle of an insert learns whether its row is
// there: an insert left unknown would be a doubt about a call that nobody made.
func TestCancelledInsert(t *testing.T) {
	for _, d := range networked {
		t.Run(d.name, func(t *testing.T) {
			p, s, _ := through(t, d.address(t))
			row := testRow("1001", 1)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			p.breakNext(cutHeld, row.Claim.ID[:])
			go func() {
				<-p.broken
				cancel()
				close(p.release)
			}()
			got, err := s.Insert(ctx, row, zabor.Write{Lease: row.Open.Lease})
			if err != nil || got.Claim != row.Claim {
				t.Fatalf("claim %v, error %v; want its own", got.Claim, err)
			}
		})
	}
}

// The happy path is two commits and no read: an insert that commits by itself, and the
// settlement with its reference.
func TestTwoCommits(t *testing.T) {
	s := migrated(t, servers.MariaDB(t))
	charge := func(order string) {
		row := testRow(order, 1)
		if _, err := s.Insert(t.Context(), row, zabor.Write{Lease: row.Open.Lease}); err != nil {
			t.Fatal(err)
		}
		next := settledAfter(row)
		next.Reference = order
		if err := s.Swap(t.Context(), row, next, zabor.Write{}); err != nil {
			t.Fatal(err)
		}
	}
	s.DB().SetMaxOpenConns(1)
	charge("1") // prepares
	status := func() map[string]int {
		values := map[string]int{}
		rows, err := s.DB().Query("SHOW SESSION STATUS WHERE Variable_name IN ('Com_stmt_execute', 'Com_stmt_prepare', 'Com_select', 'Com_begin', 'Com_commit', 'Com_insert', 'Com_update', 'Handler_commit', 'Questions')")
		if err != nil {
			t.Fatal(err)
		}
		defer rows.Close()
		for rows.Next() {
			var name string
			var n int
			if err := rows.Scan(&name, &n); err != nil {
				t.Fatal(err)
			}
			values[name] = n
		}
		if err := rows.Err(); err != nil {
			t.Fatal(err)
		}
		return values
	}
	before := status()
	const orders = 10
	for i := range orders {
		charge(fmt.Sprint("order-", i))
	}
	after := status()
	for name, want := range map[string]int{
		"Com_stmt_execute": 3 * orders, "Com_insert": 2 * orders, "Com_update": orders, "Com_begin": orders, "Com_commit": orders,
		"Com_stmt_prepare": 0, "Com_select": 0,
	} {
		if got := after[name] - before[name]; got != want {
			t.Errorf("%s=%d, want %d", name, got, want)
		}
	}
}

// A statement that is longer than the server takes is one row's fault and is not sent again.
func TestAPacketTooLong(t *testing.T) {
	address := servers.MariaDB(t)
	admin := migrated(t, address)
	mustExec(t, admin.DB(), "SET GLOBAL max_allowed_packet = 1048576")
	defer mustExec(t, admin.DB(), "SET GLOBAL max_allowed_packet = DEFAULT")
	s := open(t, address) // its connections begin after that
	for name, size := range map[string]int{"just above": 1<<20 + 1, "twice": 2 << 20, "four times": 4 << 20} {
		row := testRow("1001", 1)
		row.Open.Request = make([]byte, size)
		if _, err := s.Insert(t.Context(), row, zabor.Write{Lease: time.Minute}); !errors.Is(err, zabor.ErrUnfit) {
			t.Errorf("%s: error %v, want %v", name, err, zabor.ErrUnfit)
		}
	}
	if n := count(t, admin, "SELECT COUNT(*) FROM zabor_fences"); n != 0 {
		t.Errorf("%d rows, want none", n)
	}
}

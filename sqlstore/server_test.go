package sqlstore

import (
	"database/sql"
	"io"
	"net"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"

	"zabor/internal/servers"
)

// detour leads new connections to a server that can be changed. Those that are there
// stay where they are, as behind an address that moved in a fail-over.
type detour struct{ server atomic.Pointer[string] }

// newDetour returns address as it leads through the detour.
func newDetour(t *testing.T, address string) (*detour, string) {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	d := &detour{}
	d.to(u.Host)
	var all sync.WaitGroup
	all.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", *d.server.Load())
			if err != nil {
				client.Close()
				continue
			}
			for _, pair := range [][2]net.Conn{{client, server}, {server, client}} {
				all.Go(func() {
					io.Copy(pair[0], pair[1])
					client.Close()
					server.Close()
				})
			}
		}
	})
	t.Cleanup(all.Wait)
	t.Cleanup(func() { l.Close() })
	u.Host = l.Addr().String()
	return d, u.String()
}

func (d *detour) to(server string) { d.server.Store(&server) }

// serverPairs are two servers of a kind with a database of the same name.
var serverPairs = map[string]func(t *testing.T) (near, far string){
	"mariadb": func(t *testing.T) (string, string) {
		return servers.MariaDB(t), servers.MariaDBDatabase(t, servers.OwnMariaDB(t))
	},
	"postgres": func(t *testing.T) (string, string) {
		return servers.Postgres(t), servers.PostgresDatabase(t, servers.OwnPostgres(t))
	},
}

// A pool never has connections to two servers. The first one to another server ends
// all others, also those that a statement is running on.
func TestOneServer(t *testing.T) {
	t.Parallel()
	for name, pair := range serverPairs {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			near, far := pair(t)
			u, err := url.Parse(far)
			if err != nil {
				t.Fatal(err)
			}
			nearURL, err := url.Parse(near)
			if err != nil {
				t.Fatal(err)
			}
			v := *u
			v.Path = nearURL.Path
			if v.Path != u.Path {
				admin := open(t, far)
				mustExec(t, admin.DB(), "CREATE DATABASE "+v.Path[1:])
			}
			mustExec(t, migrated(t, near).DB(), "CREATE TABLE place AS SELECT 'near' AS name")
			mustExec(t, migrated(t, v.String()).DB(), "CREATE TABLE place AS SELECT 'far' AS name")
			d, address := newDetour(t, near)
			s := open(t, address)
			var moves atomic.Int64
			s.Pool().OnMove(func(from, to string) {
				moves.Add(1)
				if from == to || from == "" {
					t.Errorf("moved from %q to %q", from, to)
				}
			})
			where := func(q interface{ QueryRow() (string, error) }) string {
				name, err := q.QueryRow()
				if err != nil {
					return "cut"
				}
				return name
			}
			conn := func() held {
				c, err := s.DB().Conn(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { c.Close() })
				return held{t, c}
			}
			busy, idle := conn(), conn()
			for _, c := range []held{busy, idle} {
				if at := where(c); at != "near" {
					t.Fatalf("a connection is at %q", at)
				}
			}
			tx, err := busy.BeginTx(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := tx.Exec("INSERT INTO zabor_meta (name, value) VALUES ('a', 'b')"); err != nil {
				t.Fatal(err)
			}
			d.to(u.Host)
			if moves.Load() != 0 {
				t.Error("told of a move before there was one")
			}
			if at := where(conn()); at != "far" {
				t.Errorf("the new connection is at %q", at)
			}
			if err := tx.Commit(); err == nil {
				t.Error("a transaction was committed at the server that the pool had left")
			}
			if at := where(idle); at != "cut" {
				t.Errorf("a connection of before is at %q still", at)
			}
			if moves.Load() != 1 {
				t.Errorf("told %d times of one move", moves.Load())
			}
			if n := count(t, s, "SELECT COUNT(*) FROM place WHERE name = 'far'"); n != 1 {
				t.Error("the pool is not at the new server")
			}

			// The address leads back, and nothing needs a new connection: only Renew finds it out.
			d.to(nearURL.Host)
			if n := count(t, s, "SELECT COUNT(*) FROM place WHERE name = 'far'"); n != 1 {
				t.Error("the pool has left a server that answers")
			}
			s.Pool().Renew()
			if _, _, err := s.Meta().Get(t.Context(), "a"); err != nil {
				t.Errorf("after all connections were renewed: %v", err)
			}
			if n := count(t, s, "SELECT COUNT(*) FROM place WHERE name = 'near'"); n != 1 {
				t.Error("a connection has outlived the renewal")
			}
		})
	}
}

// held is a connection of a pool.
type held struct {
	t *testing.T
	*sql.Conn
}

func (h held) QueryRow() (name string, err error) {
	err = h.QueryRowContext(h.t.Context(), "SELECT name FROM place").Scan(&name)
	return name, err
}

// Connections that were begun before a move do not lead the pool back.
func TestAnOlderConnectionDoesNotLeadBack(t *testing.T) {
	left := ""
	o := &oneServer{open: map[*dialed]bool{}, moved: func(from, _ string) { left = from }}
	for n, step := range []struct {
		a      attempt
		server string
		from   string
		left   bool
	}{
		{attempt{n: 1}, "a", "", false},
		{attempt{n: 4}, "b", "a", false},
		{attempt{n: 3}, "a", "", true},
		{attempt{n: 2}, "b", "", false},
		{attempt{n: 5, closed: true}, "b", "", true},
		{attempt{n: 6}, "a", "b", false},
	} {
		left = ""
		told, err := o.admit(&step.a, step.server)
		if err == nil {
			told()
		}
		if left != step.from || (err != nil) != step.left {
			t.Errorf("%d: from %q, %v", n, left, err)
		}
	}
}

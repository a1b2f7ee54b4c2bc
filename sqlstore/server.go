package sqlstore

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/stdlib"
)

// oneServer keeps the connections of a pool at one server. An address may lead to
// another server after a fail-over while the old one still takes writes: a pool with
// connections to both would write to each at random. Its methods may be called
// concurrently.
type oneServer struct {
	driver.Connector
	identify func(context.Context, driver.Conn) (string, error)

	mu      sync.Mutex
	server  string // that of all connections; empty: there were none yet
	begun   uint64 // connections
	since   uint64 // the first that may decide which server is the right one
	open    map[*dialed]bool
	renewed time.Time
	moved   func(from, to string) // nil: nobody is told
}

// attempt is the making of one connection, from its dial on.
type attempt struct {
	n      uint64
	closed bool // by a move of the pool
}

type attemptKey struct{}

// Connect makes a connection to the server of the others. If it is to another server,
// all others are closed before it is handed out: what is under way on them is
// repeated on the new server, as after any loss of a connection.
func (o *oneServer) Connect(ctx context.Context) (driver.Conn, error) {
	o.mu.Lock()
	o.begun++
	a := &attempt{n: o.begun}
	o.mu.Unlock()
	conn, err := o.Connector.Connect(context.WithValue(ctx, attemptKey{}, a))
	if err != nil {
		return nil, err
	}
	server, err := o.identify(ctx, conn)
	if err != nil {
		conn.Close()
		return nil, fmt.Errorf("ask which server this is: %w", err)
	}
	told, err := o.admit(a, server)
	if err != nil {
		conn.Close()
		return nil, err
	}
	told()
	return conn, nil
}

// admit lets a in as a connection to server. Call told then: it tells of a move.
func (o *oneServer) admit(a *attempt, server string) (told func(), err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case a.closed, o.server != "" && server != o.server && a.n < o.since:
		return nil, errLeft // it was begun before the pool went to where it is
	case server != o.server:
		from, moved := o.server, o.moved
		o.server, o.since = server, a.n
		o.closeAll(a)
		if from != "" && moved != nil {
			return func() { moved(from, server) }, nil
		}
	}
	return func() {}, nil
}

// errLeft: the connection is older than the pool's move. Nothing was sent on it.
var errLeft = errors.New("the connection leads to a server that the pool has just left; nothing was sent on it")

// closeAll closes all connections but those of a. The lock is held.
func (o *oneServer) closeAll(a *attempt) {
	for c := range o.open {
		if c.attempt != a {
			c.attempt.closed = true
			c.Conn.Close()
			delete(o.open, c)
		}
	}
}

// renew closes all connections, at most once a second.
func (o *oneServer) renew() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if time.Since(o.renewed) < time.Second {
		return
	}
	o.renewed = time.Now()
	o.since = o.begun + 1
	o.closeAll(nil)
}

// dial is what the driver dials with.
func (o *oneServer) dial(ctx context.Context, network, address string) (net.Conn, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	a, _ := ctx.Value(attemptKey{}).(*attempt)
	if a == nil { // a driver's own, such as the one that carries a cancel
		return conn, nil
	}
	c := &dialed{Conn: conn, pool: o, attempt: a}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.open[c] = true
	return c, nil
}

// dialed is a connection that the pool can close while a statement waits on it.
type dialed struct {
	net.Conn
	pool    *oneServer
	attempt *attempt
}

func (d *dialed) Close() error {
	d.pool.mu.Lock()
	delete(d.pool.open, d)
	d.pool.mu.Unlock()
	return d.Conn.Close()
}

// SyscallConn lets the driver see that the server has closed the connection.
func (d *dialed) SyscallConn() (syscall.RawConn, error) {
	if c, ok := d.Conn.(syscall.Conn); ok {
		return c.SyscallConn()
	}
	return nil, errors.New("no connection of the system's")
}

// pool makes the connections of s go to one server.
func (s *Store) pool(o *oneServer) {
	o.open = map[*dialed]bool{}
	s.servers = o
	s.db = sql.OpenDB(o)
	limitPool(s.db)
}

// OnMove sets what is told when the address leads to another server than before, or the
// server was started again. By then no connection to the old one is left. It may be
// called concurrently. A pool that was given to [New], and SQLite,
// tell nothing.
func (p Pool) OnMove(told func(from, to string)) {
	if p.s.servers != nil {
		p.s.servers.mu.Lock()
		defer p.s.servers.mu.Unlock()
		p.s.servers.moved = told
	}
}

// Renew closes all connections, so that none stays with a server that was left. What is
// under way is repeated. It does nothing for SQLite and for a pool that was given to
// [New], and nothing within a second of the last time.
func (p Pool) Renew() {
	if p.s.servers != nil {
		p.s.servers.renew()
	}
}

// identifyPostgres names the server by its start: both sides of a replication have one
// system identifier, and an address is that of a connection.
func identifyPostgres(ctx context.Context, conn driver.Conn) (string, error) {
	results, err := conn.(*stdlib.Conn).Conn().PgConn().Exec(ctx, "SELECT 'PostgreSQL, started ' || pg_postmaster_start_time()").ReadAll()
	if err != nil {
		return "", err
	}
	if len(results) != 1 || len(results[0].Rows) != 1 {
		return "", errors.New("the server does not say when it was started")
	}
	return string(results[0].Rows[0][0]), nil
}

// identifyMySQL names the server. All nodes of a Galera cluster have one name.
func identifyMySQL(ctx context.Context, conn driver.Conn) (string, error) {
	status, err := settings(ctx, conn, "SHOW GLOBAL STATUS LIKE 'wsrep_cluster_state_uuid'")
	if err != nil {
		return "", err
	}
	if cluster := status["wsrep_cluster_state_uuid"]; cluster != "" {
		return "Galera cluster " + cluster, nil
	}
	is, err := settings(ctx, conn, "SHOW GLOBAL VARIABLES WHERE Variable_name IN ('server_uuid', 'server_id', 'hostname', 'port')")
	if err != nil {
		return "", err
	}
	if id := is["server_uuid"]; id != "" {
		return "MySQL " + id, nil
	}
	return strings.Join([]string{"MariaDB", is["hostname"], "port", is["port"] + ",", "server_id", is["server_id"]}, " "), nil
}

// settings reads two text columns of a driver's connection into a map.
func settings(ctx context.Context, conn driver.Conn, query string) (map[string]string, error) {
	rows, err := conn.(driver.QueryerContext).QueryContext(ctx, query, nil)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	values := map[string]string{}
	row := make([]driver.Value, 2)
	for {
		switch err := rows.Next(row); {
		case errors.Is(err, io.EOF):
			return values, nil
		case err != nil:
			return nil, err
		}
		values[fmt.Sprintf("%s", row[0])] = fmt.Sprintf("%s", row[1])
	}
}

package servers

import (
	"database/sql"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"os/user"
	"strconv"
	"sync"
	"syscall"
	"testing"

	_ "github.com/go-sql-driver/mysql" // the drivers that look whether a server answers
	_ "github.com/jackc/pgx/v5/stdlib"
)

// MariaDB gives the test an empty database of the package's MariaDB server, as
// an address mysql://root@127.0.0.1:PORT/NAME.
func MariaDB(t testing.TB) string {
	t.Helper()
	needMariaDB(t)
	return MariaDBDatabase(t, sharedServer(t, "mariadb", startMariaDB))
}

// OwnMariaDB starts a MariaDB server for this test alone.
func OwnMariaDB(t testing.TB) *Server {
	t.Helper()
	needMariaDB(t)
	return own(t, startMariaDB)
}

// MariaDBPair starts, for this test alone, a primary and a replica of it, which
// follows from the first statement on and takes writes from nobody else but
// administrators.
func MariaDBPair(t testing.TB) (primary, replica *Server) {
	t.Helper()
	needMariaDB(t)
	primary = own(t, func() (*Server, error) { return startMariaDBWith("--server-id=1", "--log-bin", "--sync-binlog=1") })
	replica = own(t, func() (*Server, error) { return startMariaDBWith("--server-id=2", "--read-only") })
	for _, statement := range []string{
		fmt.Sprintf("CHANGE MASTER TO MASTER_HOST='127.0.0.1', MASTER_PORT=%d, MASTER_USER='root', MASTER_USE_GTID=slave_pos", primary.Port),
		"START SLAVE",
	} {
		execSQL(t, "mysql", "root@tcp("+replica.Addr()+")/", statement)
	}
	return primary, replica
}

// MariaDBDatabase creates an empty database on s and returns its address.
func MariaDBDatabase(t testing.TB, s *Server) string {
	t.Helper()
	name := fmt.Sprintf("zabor_test_%d", databases.Add(1))
	execSQL(t, "mysql", "root@tcp("+s.Addr()+")/", "CREATE DATABASE "+name)
	return "mysql://root@" + s.Addr() + "/" + name
}

func needMariaDB(t testing.TB) {
	t.Helper()
	Need(t, "mariadbd", "mariadb-server")
	Need(t, "mariadb-install-db", "mariadb-server")
}

func startMariaDB() (*Server, error) { return startMariaDBWith() }

func startMariaDBWith(options ...string) (*Server, error) {
	s, err := newMariaDB(true, options...)
	if err != nil {
		return s, err
	}
	return s, s.Start()
}

// newMariaDB is a server that is not running yet, with data of its own if it is
// to install them; options are more for its start.
func newMariaDB(install bool, options ...string) (*Server, error) {
	s, as, err := newServer("mariadb", "mysql")
	if err != nil {
		return nil, err
	}
	data := s.Dir + "/data"
	if install {
		err = newData.mariadb.copy(data, "mysql", installMariaDB)
	} else {
		err = os.Mkdir(data, 0o700)
		if err == nil && as != nil {
			err = chown(data, as)
		}
	}
	if err != nil {
		return s, err
	}
	mariadbd, err := lookPath("mariadbd")
	if err != nil {
		return s, err
	}
	s.command = func() *exec.Cmd {
		cmd := exec.Command(mariadbd, "--no-defaults", "--datadir="+data, "--port="+strconv.Itoa(s.Port),
			"--bind-address=127.0.0.1", "--socket="+s.Dir+"/sock", "--pid-file="+s.Dir+"/pid",
			"--innodb-flush-log-at-trx-commit=1", "--innodb-buffer-pool-size=256M", "--max-connections=1000",
			"--skip-name-resolve", "--tmpdir="+s.Dir)
		cmd.Args = append(cmd.Args, options...)
		if as != nil {
			cmd.Args = append(cmd.Args, "--user="+as.Username)
		}
		return cmd
	}
	s.ready = func() error { return pingSQL("mysql", "root@tcp("+s.Addr()+")/") }
	return s, nil
}

// installMariaDB makes the data of a new server.
func installMariaDB(dir, data string, as *user.User) error {
	install := exec.Command("mariadb-install-db", "--no-defaults", "--datadir="+data,
		"--auth-root-authentication-method=normal", "--skip-test-db", "--skip-name-resolve")
	if as != nil {
		install.Args = append(install.Args, "--user="+as.Username)
	}
	install.Env = append(os.Environ(), "TMPDIR="+dir) // whoever empties /tmp meanwhile does no harm
	if out, err := install.CombinedOutput(); err != nil {
		return fmt.Errorf("mariadb-install-db: %w\n%s", err, out)
	}
	return nil
}

// Postgres gives the test an empty database of the package's PostgreSQL server,
// as an address postgres://postgres@127.0.0.1:PORT/NAME?sslmode=disable.
func Postgres(t testing.TB) string {
	t.Helper()
	needPostgres(t)
	return PostgresDatabase(t, sharedServer(t, "postgres", startPostgres))
}

// OwnPostgres starts a PostgreSQL server for this test alone.
func OwnPostgres(t testing.TB) *Server {
	t.Helper()
	needPostgres(t)
	return own(t, startPostgres)
}

// PostgresDatabase creates an empty database on s and returns its address.
func PostgresDatabase(t testing.TB, s *Server) string {
	t.Helper()
	name := fmt.Sprintf("zabor_test_%d", databases.Add(1))
	execSQL(t, "pgx", postgresURL(s, "postgres"), "CREATE DATABASE "+name)
	return postgresURL(s, name)
}

func postgresURL(s *Server, database string) string {
	u := url.URL{Scheme: "postgres", User: url.User("postgres"), Host: s.Addr(), Path: database, RawQuery: "sslmode=disable"}
	return u.String()
}

func needPostgres(t testing.TB) {
	t.Helper()
	Need(t, "postgres", "postgresql")
	Need(t, "initdb", "postgresql")
}

func startPostgres() (*Server, error) {
	s, as, err := newServer("postgres", "postgres")
	if err != nil {
		return nil, err
	}
	postgres, err := lookPath("postgres")
	if err != nil {
		return nil, err
	}
	data := s.Dir + "/data"
	if err := newData.postgres.copy(data, "postgres", installPostgres); err != nil {
		return s, err
	}
	s.stop = syscall.SIGINT // fast shutdown
	s.command = func() *exec.Cmd {
		// A killed server leaves its pid file, whose number may be another
		// process by now.
		os.Remove(data + "/postmaster.pid")
		return runAs(exec.Command(postgres, "-D", data, "-p", strconv.Itoa(s.Port), "-h", "127.0.0.1",
			"-k", s.Dir, "-c", "max_connections=400", "-c", "shared_buffers=256MB", "-c", "dynamic_shared_memory_type=mmap",
			// Every minute, as by default, would be a process each second for hundreds of databases.
			"-c", "autovacuum_naptime=10min"), as)
	}
	s.ready = func() error { return pingSQL("pgx", postgresURL(s, "postgres")) }
	return s, s.Start()
}

// installPostgres makes the data of a new server.
func installPostgres(_, data string, as *user.User) error {
	initdb, err := lookPath("initdb")
	if err != nil {
		return err
	}
	install := exec.Command(initdb, "-D", data, "-U", "postgres", "--auth=trust", "--encoding=UTF8", "--locale=C.UTF-8", "--no-sync")
	if out, err := runAs(install, as).CombinedOutput(); err != nil {
		return fmt.Errorf("initdb: %w\n%s", err, out)
	}
	return nil
}

// newData is what servers begin with. To install it takes a processor longer than
// all that most tests do with their server.
var newData struct{ mariadb, postgres template }

// template is data of a server that has never run, installed once for all servers
// of this process.
type template struct {
	sync.Once
	dir string
	err error
}

// copy puts a copy at data, which is not there yet and will be owner's.
func (o *template) copy(data, owner string, install func(dir, data string, as *user.User) error) error {
	o.Do(func() {
		var as *user.User
		if o.dir, as, o.err = newFolder(owner+"-data", owner); o.err == nil {
			o.err = install(o.dir, o.dir+"/data", as)
		}
	})
	if o.err != nil {
		return o.err
	}
	if out, err := exec.Command("cp", "-a", o.dir+"/data", data).CombinedOutput(); err != nil {
		return fmt.Errorf("cp: %w\n%s", err, out)
	}
	return nil
}

func (o *template) remove() {
	if o.dir != "" {
		os.RemoveAll(o.dir)
	}
}

func pingSQL(driver, dsn string) error {
	db, err := sql.Open(driver, dsn)
	if err != nil {
		return err
	}
	defer db.Close()
	return db.Ping()
}

func execSQL(t testing.TB, driver, dsn, statement string) {
	t.Helper()
	db, err := sql.Open(driver, dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.Exec(statement); err != nil {
		t.Fatal(err)
	}
}

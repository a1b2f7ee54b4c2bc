package sqlstore

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"path"
	"slices"
	"strings"
	"time"
)

// address is where the fence is, taken apart.
type address struct {
	dialect  string
	user     string
	password string
	host     string // with the port; MySQL
	socket   string // MySQL
	database string // SQLite: the file
	tls      string // MySQL
	url      string // PostgreSQL: the whole, as pgx takes it
	lockWait time.Duration
}

// parseAddress takes an address of [Open] apart. Its errors hold nothing of the
// address but the scheme and the names of parameters.
func parseAddress(text string) (address, error) {
	scheme, rest, ok := strings.Cut(text, ":")
	if !ok {
		return address{}, errors.New("fence address: no scheme: write mysql://, postgres:// or sqlite:///")
	}
	a := address{lockWait: defaultLockWait}
	switch strings.ToLower(scheme) {
	case "mysql", "mariadb", "mysqli", "mysql2", "pdo-mysql":
		a.dialect = "mysql"
	case "postgres", "postgresql", "pgsql", "pdo-pgsql":
		a.dialect = "postgres"
	case "sqlite", "sqlite3", "pdo-sqlite":
		a.dialect = "sqlite"
	default:
		return address{}, errors.New("fence address: not a database that zabor knows: write mysql://, postgres:// or sqlite:///")
	}
	u, err := url.Parse(a.dialect + ":" + rest)
	if err != nil {
		return address{}, errors.New("fence address: not an address: percent-encode special characters in user, password and parameters")
	}
	if u.Fragment != "" {
		return address{}, errors.New("fence address: it has a #: percent-encode it as %23")
	}
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return address{}, errors.New("fence address: the parameters after the ? cannot be read: percent-encode special characters")
	}
	for _, ignored := range []string{"serverVersion", "server_version", "charset"} {
		delete(query, ignored)
	}
	if query.Has("lock_wait") {
		a.lockWait, err = time.ParseDuration(query.Get("lock_wait"))
		if err != nil || a.lockWait < time.Second || a.lockWait > time.Minute {
			return address{}, errors.New("fence address: lock_wait must be a duration from 1s to 60s")
		}
		query.Del("lock_wait")
	}
	switch a.dialect {
	case "mysql":
		return a.mysql(u, query)
	case "postgres":
		return a.postgres(u, query)
	}
	return a.sqlite(u, query)
}

func (a address) mysql(u *url.URL, query url.Values) (address, error) {
	a.user = u.User.Username()
	a.password, _ = u.User.Password()
	a.socket = query.Get("unix_socket")
	a.tls = query.Get("tls")
	if err := known(query, "unix_socket", "tls"); err != nil {
		return address{}, err
	}
	if !slices.Contains([]string{"", "true", "false", "skip-verify", "preferred"}, a.tls) {
		return address{}, errors.New("fence address: tls must be true, false, skip-verify or preferred")
	}
	host, port := u.Hostname(), u.Port()
	if host == "" {
		host = "127.0.0.1"
	}
	if port == "" {
		port = "3306"
	}
	a.host = net.JoinHostPort(host, port)
	a.database = strings.TrimPrefix(u.Path, "/")
	if a.database == "" {
		return address{}, errors.New("fence address: no database: write mysql://user@host:3306/DATABASE")
	}
	return a, nil
}

func (a address) postgres(u *url.URL, query url.Values) (address, error) {
	if strings.Trim(u.Path, "/") == "" && !query.Has("dbname") {
		return address{}, errors.New("fence address: no database: write postgres://user@host:5432/DATABASE")
	}
	if query.Has("unix_socket") { // the folder of it, as libpq's host
		query.Set("host", query.Get("unix_socket"))
		query.Del("unix_socket")
	}
	clean := *u
	clean.RawQuery = query.Encode()
	a.url = clean.String()
	return a, nil
}

func (a address) sqlite(u *url.URL, query url.Values) (address, error) {
	if err := known(query); err != nil {
		return address{}, err
	}
	file := u.Opaque // sqlite:relative.db
	if file != "" {
		decoded, err := url.PathUnescape(file)
		if err != nil {
			return address{}, errors.New("fence address: percent-encode special characters in the file's path")
		}
		file = decoded
	} else {
		if u.Host != "" {
			return address{}, fmt.Errorf("fence address: write sqlite:///absolute/path.db or sqlite:relative.db: what follows two slashes is a host")
		}
		file = u.Path
	}
	if strings.Trim(file, "/") == "" {
		return address{}, errors.New("fence address: no file: write sqlite:///absolute/path.db")
	}
	if strings.Contains(file, ":memory:") {
		return address{}, errors.New("fence address: a fence in memory forgets every charge: give it a file")
	}
	a.database = path.Clean(file)
	return a, nil
}

// known refuses parameters that nothing here understands: a misspelt one would
// be a setting that is not set.
func known(query url.Values, names ...string) error {
	for name := range query {
		if !slices.Contains(names, name) {
			return fmt.Errorf("fence address: unknown parameter %q: known are %s", name,
				strings.Join(append(names, "lock_wait", "serverVersion", "charset"), ", "))
		}
	}
	return nil
}

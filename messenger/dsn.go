package messenger

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"math"
	"net"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// Config is a transport of Symfony's Redis bridge, as its DSN says.
type Config struct {
	Addrs    []string // host:port, or one path of a Unix socket; at least one
	Sentinel string   // the master's name where Addrs are Sentinels, else empty
	Cluster  bool     // Addrs are nodes of a Redis Cluster
	DB       int      // database number; 0 in a cluster
	TLS      *tls.Config

	Username, Password                 string // of the data nodes
	SentinelUsername, SentinelPassword string

	DialTimeout, ReadTimeout time.Duration // 0: go-redis' own

	Stream, Group string // never empty
	// Consumer is the name that the DSN asks for, for PHP. Zabor uses it
	// nowhere: it is one constant for all processes, see [Source].
	Consumer string

	AutoSetup         bool          // create stream and group where they are missing
	DeleteAfterAck    bool          // XDEL after a message succeeded
	DeleteAfterReject bool          // XDEL after a message was parked
	RedeliverTimeout  time.Duration // reserve of a delivered message; at least 1 s
	ClaimInterval     time.Duration // how often PHP looks for abandoned messages
	// MaxEntries is the length to which PHP's XADD trims the stream, read or
	// not; 0: never. Zabor adds without trimming: what is paid for with money
	// must not vanish because something else arrived.
	MaxEntries int64
	Serializer Serializer // how phpredis wraps stream values
}

// Options is what a go-redis client needs to reach the transport's Redis. No
// command is sent twice by the client itself: whether a command was executed is
// decided by the caller.
func (c Config) Options() *redis.UniversalOptions {
	return &redis.UniversalOptions{
		Addrs:            c.Addrs,
		DB:               c.DB,
		MasterName:       c.Sentinel,
		IsClusterMode:    c.Cluster,
		Username:         c.Username,
		Password:         c.Password,
		SentinelUsername: c.SentinelUsername,
		SentinelPassword: c.SentinelPassword,
		TLSConfig:        c.TLS,
		DialTimeout:      c.DialTimeout,
		ReadTimeout:      c.ReadTimeout,
		MaxRetries:       -1,
	}
}

// ParseDSN reads the address of a transport in Symfony's own grammar:
//
//	redis://[[USER:]PASSWORD@]HOST[:PORT][/STREAM[/GROUP[/CONSUMER]]][?OPTION=VALUE&…]
//	redis:///path/of/a.sock?stream=…          Unix socket: the whole path is the socket
//	redis://h1:6379/STREAM,redis://h2:6379    Redis Cluster; later parts override earlier ones
//	redis:?host[h1:26379]&host[h2:26379]&sentinel_master=NAME
//
// rediss:// is TLS; valkey:// and valkeys:// are the same. The path is the stream,
// group and consumer, never the database, which is ?dbindex=N.
//
// It is stricter than PHP where PHP guesses: an integer or boolean that does not
// parse is an error (PHP takes 0 or false), as are unknown options in every
// version. The defaults are those of Symfony 6 and later; 5.x does not delete after
// the ack unless delete_after_ack=1. Errors never contain a password.
func ParseDSN(dsn string) (Config, error) {
	d := dsnParts{options: map[string]map[string]string{}}
	for part := range strings.SplitSeq(dsn, ",") {
		if err := d.add(strings.TrimSpace(part)); err != nil {
			return Config{}, fmt.Errorf("messenger DSN: %w", err)
		}
	}
	c, err := d.config()
	if err != nil {
		return Config{}, fmt.Errorf("messenger DSN: %w", err)
	}
	return c, nil
}

// dsnParts is a DSN taken apart. Of a list of DSNs the later overrides the
// earlier, value by value.
type dsnParts struct {
	n                    int // DSNs in the list
	tls                  bool
	user, password, path string
	socket               bool
	hosts                []string // host:port
	options              map[string]map[string]string
}

var dsnSchemes = []struct {
	prefix string
	tls    bool
}{{"redis:", false}, {"rediss:", true}, {"valkey:", false}, {"valkeys:", true}}

func (d *dsnParts) add(dsn string) error {
	d.n++
	rest, known := dsn, false
	for _, s := range dsnSchemes {
		if after, ok := strings.CutPrefix(dsn, s.prefix); ok {
			rest, known, d.tls = after, true, s.tls
		}
	}
	if !known {
		return errors.New("must start with redis:// or rediss://; in a list of nodes each of them must")
	}
	if strings.IndexFunc(rest, func(r rune) bool { return r < ' ' || r == 0x7f }) >= 0 {
		return errors.New("contains a control character, perhaps a line break at its end")
	}
	rest, slashes := strings.CutPrefix(rest, "//")
	if !slashes && !strings.HasPrefix(rest, "?") {
		return errors.New("must start with redis:// or rediss://")
	}
	rest, err := d.credentials(rest)
	if err != nil {
		return err
	}
	rest, query, _ := strings.Cut(rest, "?")
	if strings.Contains(rest+query, "#") {
		return errors.New("contains a #: write it as %23")
	}
	if err := d.query(query); err != nil {
		return err
	}
	host, path, _ := strings.Cut(rest, "/")
	switch {
	case host == "" && rest != "":
		d.socket, d.path = true, rest
		return nil
	case host == "" && slashes:
		return errors.New("no host and no socket path after //")
	case host != "":
		addr, err := address(host, d.option("port"))
		if err != nil {
			return err
		}
		d.hosts = append(d.hosts, addr)
	}
	if path = strings.TrimRight(path, "/"); path != "" {
		d.path = path
	}
	return nil
}

// credentials reads [[USER:]PASSWORD@], percent-encoded. A lone user is a
// password too, and the user "default" is none, as in PHP.
func (d *dsnParts) credentials(rest string) (string, error) {
	before, after, found := strings.Cut(rest, "@")
	if !found {
		return rest, nil
	}
	if strings.ContainsAny(before, "?#") || strings.Contains(after, "@") {
		return "", errors.New("which @ ends the password is not clear: write %40 for each other @, %3F for ? and %23 for #")
	}
	user, password, both := strings.Cut(before, ":")
	if !both {
		user, password = "", user
	}
	var err1, err2 error
	user, err1 = url.PathUnescape(user)
	password, err2 = url.PathUnescape(password)
	if err1 != nil || err2 != nil {
		return "", errors.New("user or password contains a % that is not followed by two hexadecimal digits: write %25")
	}
	if password == "" {
		user, password = "", user
	}
	if user == "default" {
		user = ""
	}
	d.user, d.password = user, password
	return after, nil
}

// query reads name=value and name[key]=value.
func (d *dsnParts) query(query string) error {
	for pair := range strings.SplitSeq(query, "&") {
		if pair == "" {
			continue
		}
		name, value, _ := strings.Cut(pair, "=")
		name, err1 := url.QueryUnescape(name)
		value, err2 := url.QueryUnescape(value)
		if err1 != nil || err2 != nil {
			return errors.New("an option contains a % that is not followed by two hexadecimal digits: write %25")
		}
		key := ""
		if base, sub, ok := strings.Cut(name, "["); ok {
			name, key = base, strings.TrimSuffix(sub, "]")
			if key == "" {
				key = strconv.Itoa(len(d.options[name]))
			}
		}
		if !slices.Contains(dsnOptions, name) {
			return unknownOption(name)
		}
		if d.options[name] == nil || key == "" {
			d.options[name] = map[string]string{}
		}
		d.options[name][key] = value
	}
	return nil
}

var dsnOptions = []string{"auth", "auto_setup", "claim_interval", "cluster", "consumer", "dbindex", "delete_after_ack",
	"delete_after_reject", "group", "host", "lazy", "persistent_id", "port", "read_timeout", "redeliver_timeout", "redis_sentinel",
	"retry_interval", "sentinel", "sentinel_master", "serializer", "ssl", "stream", "stream_max_entries", "timeout", "tls"}

func unknownOption(name string) error {
	if name == "auto_ack" {
		return errors.New("there is no option auto_ack, and Symfony never had one: a message is acked after it was handled")
	}
	nearest := slices.MinFunc(dsnOptions, func(a, b string) int {
		return cmp.Compare(distance(name, a), distance(name, b))
	})
	if i := slices.IndexFunc(dsnOptions, func(o string) bool { return len(name) > 1 && strings.Contains(o, name) }); i >= 0 {
		nearest = dsnOptions[i]
	}
	return fmt.Errorf("unknown option %.40q: did you mean %s?", name, nearest)
}

// distance is the number of letters to change, add or take away.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := diagonal
			if a[i] != b[j] {
				change++
			}
			diagonal = row[j+1]
			row[j+1] = min(change, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}

func (d *dsnParts) option(name string) string { return d.options[name][""] }

// address joins host and port; the default port is Redis' own, for Sentinels too.
func address(hostPort, defaultPort string) (string, error) {
	host, port := hostPort, cmp.Or(defaultPort, "6379")
	if i := strings.LastIndex(hostPort, ":"); i >= 0 && !strings.HasSuffix(hostPort, "]") {
		host, port = hostPort[:i], hostPort[i+1:]
	}
	host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return "", errors.New("the port is not a number from 1 to 65535")
	}
	if host == "" || strings.ContainsAny(host, " /[]") {
		return "", errors.New("the host is empty or no host name")
	}
	return net.JoinHostPort(host, port), nil
}

func (d *dsnParts) config() (Config, error) {
	o := optionReader{d: d}
	c := Config{
		Username: d.user, Password: d.password,
		DB:                int(o.int("dbindex", 0, 0, 1<<20)),
		DialTimeout:       o.seconds("timeout"),
		ReadTimeout:       o.seconds("read_timeout"),
		Stream:            o.text("stream", "messages"),
		Group:             o.text("group", "symfony"),
		Consumer:          o.text("consumer", "consumer"),
		AutoSetup:         o.bool("auto_setup", true),
		DeleteAfterAck:    o.bool("delete_after_ack", true),
		DeleteAfterReject: o.bool("delete_after_reject", true),
		RedeliverTimeout:  time.Duration(o.int("redeliver_timeout", 3600, 1, math.MaxInt32)) * time.Second,
		ClaimInterval:     time.Duration(o.int("claim_interval", 60000, 0, math.MaxInt32)) * time.Millisecond,
		MaxEntries:        o.int("stream_max_entries", 0, 0, math.MaxInt64),
		Serializer:        Serializer(o.int("serializer", int64(SerializerPHP), 0, 4)),
		Cluster:           o.bool("cluster", false) || d.n > 1,
	}
	o.int("retry_interval", 0, 0, math.MaxInt32)
	o.bool("lazy", false)
	if c.Serializer == serializerMsgpack {
		o.fail(`serializer=3 (msgpack) is not supported: use 1, the default, in the application too`)
	}
	o.sentinel(&c)
	o.auth(&c)
	o.path(&c)
	o.addrs(&c)
	o.tls(&c)
	if c.Cluster && c.DB != 0 {
		o.fail("dbindex=%d: a Redis Cluster has database 0 only", c.DB)
	}
	return c, o.err
}

// optionReader keeps the first error.
type optionReader struct {
	d   *dsnParts
	err error
}

func (o *optionReader) fail(format string, args ...any) {
	if o.err == nil {
		o.err = fmt.Errorf(format, args...)
	}
}

func (o *optionReader) text(name, otherwise string) string {
	values, ok := o.d.options[name]
	switch {
	case !ok:
		return otherwise
	case values[""] == "":
		o.fail("option %s is empty", name)
	}
	return values[""]
}

func (o *optionReader) int(name string, otherwise, least, most int64) int64 {
	if _, ok := o.d.options[name]; !ok {
		return otherwise
	}
	text := strings.TrimSpace(o.d.option(name))
	n, err := strconv.ParseInt(text, 10, 64)
	digits := strings.TrimLeft(text, "+-")
	if err != nil || len(digits) > 1 && digits[0] == '0' {
		o.fail("option %s must be an integer, as PHP writes one; PHP would silently take 0 for this value", name)
		return otherwise
	}
	if n < least || n > most {
		o.fail("option %s=%d: must be from %d to %d", name, n, least, most)
	}
	return n
}

func (o *optionReader) bool(name string, otherwise bool) bool {
	if _, ok := o.d.options[name]; !ok {
		return otherwise
	}
	switch strings.ToLower(strings.TrimSpace(o.d.option(name))) {
	case "1", "true", "on", "yes":
		return true
	case "", "0", "false", "off", "no":
		return false
	}
	o.fail("option %s must be true or false; PHP would silently take false for this value", name)
	return otherwise
}

func (o *optionReader) seconds(name string) time.Duration {
	if _, ok := o.d.options[name]; !ok {
		return 0
	}
	f, err := strconv.ParseFloat(o.d.option(name), 64)
	if err != nil || !(f >= 0 && f < 1e6) {
		o.fail("option %s must be a number of seconds", name)
		return 0
	}
	return time.Duration(f * float64(time.Second))
}

func (o *optionReader) sentinel(c *Config) {
	for _, name := range []string{"sentinel_master", "redis_sentinel", "sentinel"} {
		master := o.text(name, "")
		if master != "" && c.Sentinel != "" && master != c.Sentinel {
			o.fail("option %s names another master than its alias", name)
		}
		c.Sentinel = cmp.Or(c.Sentinel, master)
	}
	if c.Sentinel == "" {
		return
	}
	if o.bool("cluster", false) {
		o.fail("option cluster and Sentinel exclude each other")
	}
	c.Cluster = false // a list of DSNs is then a list of Sentinels
}

// auth reads the option auth, which beats the address' own credentials. With
// Sentinel releases differ in whom it is for.
func (o *optionReader) auth(c *Config) {
	values, ok := o.d.options["auth"]
	if !ok {
		return
	}
	user, password := "", values[""]
	if first, list := values["0"]; list {
		user, password = first, values["1"]
		if len(values) == 1 {
			user, password = "", first
		}
	}
	if c.Sentinel == "" {
		c.Username, c.Password = user, password
		return
	}
	if c.Password == "" {
		o.fail("option auth with Sentinel is for the data nodes in some releases of Symfony and for the Sentinels in others: " +
			"write the data nodes' credentials before the host (redis://USER:PASSWORD@…); auth is then the Sentinels'")
	}
	c.SentinelUsername, c.SentinelPassword = user, password
}

// path reads /STREAM/GROUP/CONSUMER, which beats the options of these names.
func (o *optionReader) path(c *Config) {
	if o.d.socket || o.d.path == "" {
		return
	}
	parts := strings.Split(o.d.path, "/")
	if len(parts) > 3 {
		o.fail("the path must be /STREAM/GROUP/CONSUMER, but has %d parts", len(parts))
		return
	}
	for i, into := range []*string{&c.Stream, &c.Group, &c.Consumer}[:len(parts)] {
		if parts[i] == "" {
			o.fail("the path must be /STREAM/GROUP/CONSUMER: part %d is empty", i+1)
		}
		*into = parts[i]
	}
}

func (o *optionReader) addrs(c *Config) {
	d := o.d
	if values, ok := d.options["host"]; ok {
		if _, plain := values[""]; plain {
			o.fail("option host must be host[NAME:PORT], as in redis:?host[h1:26379]&host[h2:26379]&sentinel_master=NAME")
			return
		}
		d.hosts = nil
		for hostPort := range values {
			addr, err := address(hostPort, "")
			if err != nil {
				o.fail("option host: %w", err)
			}
			d.hosts = append(d.hosts, addr)
		}
		slices.Sort(d.hosts)
		c.Cluster = c.Cluster || c.Sentinel == "" && len(d.hosts) > 1
	}
	switch {
	case d.socket && (len(d.hosts) > 0 || c.Cluster || c.Sentinel != ""):
		o.fail("a Unix socket excludes other hosts, Cluster and Sentinel")
	case d.socket:
		c.Addrs = []string{d.path}
	case len(d.hosts) == 0:
		o.fail("no host")
	default:
		c.Addrs = d.hosts
	}
}

func (o *optionReader) tls(c *Config) {
	ssl := o.d.options["ssl"]
	if !o.bool("tls", o.d.tls) {
		if len(ssl) > 0 {
			o.fail("option ssl without TLS: use rediss://")
		}
		return
	}
	c.TLS = &tls.Config{MinVersion: tls.VersionTLS12}
	flag := func(value string) bool { return value != "" && value != "0" && strings.ToLower(value) != "false" }
	for name, value := range ssl {
		switch name {
		case "verify_peer":
			c.TLS.InsecureSkipVerify = c.TLS.InsecureSkipVerify || !flag(value)
		case "peer_name":
			c.TLS.ServerName = value
		case "cafile":
			pem, err := os.ReadFile(value)
			c.TLS.RootCAs = x509.NewCertPool()
			if err != nil || !c.TLS.RootCAs.AppendCertsFromPEM(pem) {
				o.fail("option ssl[cafile]: no certificate can be read from %s", value)
			}
		case "local_cert":
			pair, err := tls.LoadX509KeyPair(value, cmp.Or(ssl["local_pk"], value))
			if err != nil {
				o.fail("option ssl[local_cert]: %w", err)
			}
			c.TLS.Certificates = []tls.Certificate{pair}
		case "local_pk":
		default:
			o.fail("option ssl[%.40s] is not supported; these are: cafile, local_cert, local_pk, peer_name, verify_peer", name)
		}
	}
}

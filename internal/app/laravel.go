package app

import (
	"cmp"
	"embed"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// defaults are the parts of Laravel's own configuration files that count where
// the application has no such file, or no such key.
//
//go:embed defaults
var defaults embed.FS

// readLaravel reads what Laravel's own bootstrap would: bootstrap/cache/config.php
// where it is there, else config/*.php with .env.
func (p *Project) readLaravel(o Options) {
	if p.Version.Major == 0 {
		p.Version.Major = 8 // as far back as defaults are known
		if _, err := os.Stat(filepath.Join(p.Root, "bootstrap", "providers.php")); err == nil {
			p.Version.Major = 11
		}
	}
	p.Config = &Value{Kind: Map}
	const cache = "bootstrap/cache/config.php"
	if content := p.read(cache); content != nil {
		e := evaluator{syntax: parsePHP(cache, content)}
		p.Notices = append(p.Notices, e.broken...)
		if whole := e.returned(); whole != nil && whole.Kind == Map {
			p.Config, p.Cached = whole, true
			p.laravelEnvironment(o)
			return
		}
		p.Notices = append(p.Notices, Notice{File: cache, What: "does not return an array", Fix: "php artisan config:cache"})
	}
	p.loadLaravelEnv(o)
	files, _ := filepath.Glob(filepath.Join(p.Root, "config", "*.php"))
	for _, file := range files {
		name := p.rel(file)
		content := p.read(name)
		if content == nil {
			continue
		}
		e := evaluator{syntax: parsePHP(name, content), env: p.env}
		p.Notices = append(p.Notices, e.broken...)
		if v := e.returned(); v != nil {
			p.Config.Set(strings.TrimSuffix(filepath.Base(name), ".php"), v)
		}
	}
	p.laravelDefaults()
	p.laravelEnvironment(o)
}

// loadLaravelEnv loads the one dotenv file that Laravel loads: .env.NAME of the
// APP_ENV that the environment sets, where it is there, else .env.
func (p *Project) loadLaravelEnv(o Options) {
	name := o.Environment
	if name == "" && o.Lookup != nil {
		name, _ = o.Lookup("APP_ENV")
	}
	if name != "" && p.read(".env."+name) != nil {
		p.load(".env." + name)
		return
	}
	p.load(".env")
}

func (p *Project) laravelEnvironment(o Options) {
	own := p.Config.Get("app.env")
	switch {
	case o.Environment != "":
		p.Environment = scalar(String, o.Environment, Origin{Set: "--env"})
	case own.Known() && !slices.Contains([]string{"local", "testing", "dev", "development"}, own.Str()):
		p.Environment = own
	default:
		p.Environment = scalar(String, "production", Origin{Default: "zabor doctor, for APP_ENV is " + own.String()})
	}
}

// mergeable are the options of which Laravel 11 and later merge the framework's
// entries with the application's.
var mergeable = map[string][]string{"cache": {"stores"}, "database": {"connections"}, "queue": {"connections"}}

// laravelDefaults adds what Laravel takes where the application says nothing.
// Since 11 it has its own copy of each file; before, a missing key is missing.
func (p *Project) laravelDefaults() {
	if p.Version.Before(11, 0) {
		return
	}
	major := "11"
	if p.Version.Major >= 13 {
		major = "13"
	}
	for _, name := range []string{"cache", "database", "queue", "session"} {
		path := "defaults/laravel" + major + "/" + name + ".php"
		content, err := defaults.ReadFile(path)
		if err != nil {
			panic(err) // embedded
		}
		e := evaluator{syntax: parsePHP(path, content), env: p.env}
		base := e.returned()
		framework := "Laravel " + strconv.Itoa(p.Version.Major)
		file := "config/" + name + ".php"
		relabel(base, file, framework, path)
		own := p.Config.Get(name)
		if own == nil || own.Kind != Map {
			p.Config.Set(name, base)
			continue
		}
		for _, key := range base.Keys {
			switch {
			case own.Items[key] == nil:
				own.Set(key, base.Items[key])
			case slices.Contains(mergeable[name], key) && own.Items[key].Kind == Map:
				for _, entry := range base.Items[key].Keys {
					if own.Items[key].Items[entry] == nil {
						own.Items[key].Set(entry, base.Items[key].Items[entry])
					}
				}
			}
		}
	}
}

// relabel makes the origins of built-in files those of the framework.
func relabel(v *Value, file, framework, path string) {
	if v == nil {
		return
	}
	v.Key = Origin{}
	if v.From.File == path {
		v.From.File, v.From.Line = file, 0
		if v.From.Set == "" {
			v.From.Default = framework
		}
	}
	for _, item := range v.Items {
		relabel(item, file, framework, path)
	}
}

// Redis is one database of a Redis server as the application reaches it. Values
// that nobody wrote have the framework's default and say so.
type Redis struct {
	Name                    string // of Laravel's connection or Symfony's transport
	Host, Port, DB, Prefix  *Value
	Username, Password      *Value // secrets; nil: none
	Serializer, Compression *Value // of phpredis; nil: none
	TLS                     bool
	Cluster                 bool
	From                    Origin
}

// Server is host:port, or the socket, in one spelling for each server; "" when
// it is not known.
func (r *Redis) Server() string {
	if r == nil || !r.Host.Known() || r.Host.Str() == "" {
		return ""
	}
	host := strings.ToLower(r.Host.Str())
	if host == "localhost" || host == "::1" || host == "[::1]" {
		host = "127.0.0.1"
	}
	if strings.HasPrefix(host, "/") {
		return host
	}
	return host + ":" + cmp.Or(r.Port.Str(), "6379")
}

// Database is the number of the database; ok is false when it is not known.
func (r *Redis) Database() (n int, ok bool) {
	if r.DB == nil {
		return 0, true
	}
	if r.DB.Kind == Null || r.DB.Kind == String && r.DB.Text == "" {
		return 0, true
	}
	return r.DB.Int()
}

// Shares reports whether both are surely the same database of the same server.
func (r *Redis) Shares(o *Redis) bool {
	n, ok1 := r.Database()
	m, ok2 := o.Database()
	return r.Server() != "" && r.Server() == o.Server() && ok1 && ok2 && n == m
}

// Address is a redis:// address to connect to. It is a secret.
func (r *Redis) Address() (string, error) {
	n, ok := r.Database()
	if r.Server() == "" || !ok {
		return "", fmt.Errorf("the address of Redis connection %q is not known without running the application", r.Name)
	}
	u := url.URL{Scheme: "redis", Host: r.Server(), Path: "/" + strconv.Itoa(n)}
	if r.TLS {
		u.Scheme = "rediss"
	}
	if strings.HasPrefix(u.Host, "/") {
		u = url.URL{Scheme: "unix", Path: u.Host, RawQuery: "db=" + strconv.Itoa(n)}
	}
	switch user := r.Username.Str(); {
	case r.Password.Str() != "":
		u.User = url.UserPassword(user, r.Password.Str())
	case user != "":
		u.User = url.User(user)
	}
	return u.String(), nil
}

// LaravelRedis is the connection of that name in database.redis; nil: there is none.
func (p *Project) LaravelRedis(name string) *Redis {
	all := p.Config.Get("database.redis")
	c := all.Get(name)
	cluster := false
	if c == nil {
		nodes := all.Get("clusters").Get(name).List()
		if len(nodes) == 0 {
			return nil
		}
		c, cluster = nodes[0], true
	}
	byDefault := func(kind Kind, text string) *Value {
		return scalar(kind, text, Origin{File: c.From.File, Default: p.named()})
	}
	r := &Redis{Name: name, Cluster: cluster, From: c.From, Host: c.Get("host"), Port: c.Get("port"), DB: c.Get("database"),
		Username: c.Get("username"), Password: c.Get("password")}
	if scheme := c.Get("scheme").Str(); scheme == "tls" || scheme == "rediss" {
		r.TLS = true
	}
	options := all.Get("options")
	first := func(path string) *Value {
		for _, v := range []*Value{c.Get(path), c.Get("options." + path), options.Get(path)} {
			if v != nil && v.Kind != Null {
				return v
			}
		}
		return nil
	}
	r.Prefix, r.Serializer, r.Compression = first("prefix"), first("serializer"), first("compression")
	if u := c.Get("url"); u.Known() && u.Str() != "" {
		r.url(u)
	}
	if r.Host == nil || r.Host.Kind == Null {
		r.Host = byDefault(String, "127.0.0.1")
	}
	if r.Port == nil || r.Port.Kind == Null {
		r.Port = byDefault(Int, "6379")
	}
	if r.DB == nil || r.DB.Kind == Null {
		r.DB = byDefault(Int, "0")
	}
	if r.Prefix == nil {
		r.Prefix = byDefault(String, "")
	}
	return r
}

// url takes what a URL says over the single values, as Laravel does.
func (r *Redis) url(v *Value) {
	u, err := url.Parse(v.Str())
	if err != nil || u.Host == "" {
		r.Host = unknown("an address that cannot be read", v.From)
		return
	}
	r.TLS = r.TLS || u.Scheme == "rediss" || u.Scheme == "tls"
	r.Host = scalar(String, u.Hostname(), v.From)
	if port := u.Port(); port != "" {
		r.Port = scalar(Int, port, v.From)
	}
	if db := strings.Trim(u.Path, "/"); db != "" {
		r.DB = scalar(Int, db, v.From)
	}
	if u.User != nil {
		r.Username = scalar(String, u.User.Username(), v.From)
		if password, ok := u.User.Password(); ok {
			r.Password = scalar(String, password, v.From)
		}
	}
}

// named is the framework with its version, for people.
func (p *Project) named() string {
	if p.Version.Major == 0 {
		return string(p.Framework)
	}
	return string(p.Framework) + " " + strconv.Itoa(p.Version.Major)
}

// Queue is a queue connection of Laravel or a transport of Symfony.
type Queue struct {
	Name   string
	Driver string // redis, database, doctrine, amqp, sync, …; empty: not known
	Config *Value // as it is configured; Symfony: the transport's options
	Redis  *Redis // nil unless it is on Redis
	// Reserve is how many seconds a message that was delivered is kept from the
	// next worker; nil: the queue has no such time.
	Reserve *Value
	Default bool // Laravel: where jobs go that name no connection
	From    Origin
	// Symfony: stream, group and consumer, and the transport's other options,
	// with their defaults.
	Options map[string]*Value
	DSN     *Value // Symfony; a secret
}

// Queues are all of the application, in the order of its configuration.
func (p *Project) Queues() []Queue {
	if p.Framework == Symfony {
		return p.transports()
	}
	var list []Queue
	connections := p.Config.Get("queue.connections")
	if connections == nil {
		return nil
	}
	standard := p.Config.Get("queue.default").Str()
	for _, name := range connections.Keys {
		c := connections.Items[name]
		q := Queue{Name: name, Driver: c.Get("driver").Str(), Config: c, From: c.From, Default: name == standard}
		switch q.Driver {
		case "redis", "database", "beanstalkd":
			q.Reserve = c.Get("retry_after")
			if q.Reserve == nil || q.Reserve.Kind == Null {
				q.Reserve = scalar(Int, "60", Origin{File: c.From.File, Line: c.From.Line, Default: p.named()})
			}
		}
		if q.Driver == "redis" {
			q.Redis = p.LaravelRedis(cmp.Or(c.Get("connection").Str(), "default"))
		}
		list = append(list, q)
	}
	return list
}

// Queue is the queue of that name; nil: there is none.
func (p *Project) Queue(name string) *Queue {
	for _, q := range p.Queues() {
		if q.Name == name || name == "" && q.Default {
			return &q
		}
	}
	return nil
}

// Keys is something beside the queues that keeps keys in Redis.
type Keys struct {
	Use     string // cache or sessions
	Name    string // of the store or pool
	Redis   *Redis
	Prefix  *Value // of its keys, behind the connection's own
	Cleared string // the command that deletes the whole database; empty: none does
	From    Origin
}

// FullPrefix is what all of its keys begin with on the wire; ok is false when it
// is not known.
func (k Keys) FullPrefix() (prefix string, ok bool) {
	if k.Redis.Prefix != nil && !k.Redis.Prefix.Known() || k.Prefix != nil && !k.Prefix.Known() {
		return "", false
	}
	return k.Redis.Prefix.Str() + k.Prefix.Str(), true
}

// Neighbours are the caches and sessions that the application keeps in Redis.
func (p *Project) Neighbours() []Keys {
	if p.Framework == Symfony {
		return p.symfonyNeighbours()
	}
	var list []Keys
	store := func(use, name, connection string, from Origin) {
		s := p.Config.Get("cache.stores").Get(name)
		if s.Get("driver").Str() != "redis" {
			return
		}
		if connection == "" {
			connection = cmp.Or(s.Get("connection").Str(), "default")
		}
		r := p.LaravelRedis(connection)
		if r == nil {
			return
		}
		prefix := s.Get("prefix")
		if prefix == nil {
			prefix = p.Config.Get("cache.prefix")
		}
		k := Keys{Use: use, Name: name, Redis: r, Prefix: prefix, From: from}
		if use == "cache" {
			k.Cleared = "php artisan cache:clear"
		}
		list = append(list, k)
	}
	chosen := p.Config.Get("cache.default")
	if chosen == nil {
		chosen = p.Config.Get("cache.store")
	}
	store("cache", chosen.Str(), "", p.Config.Get("cache.stores").Get(chosen.Str()).Origin())
	if session := p.Config.Get("session.driver"); session.Str() == "redis" {
		name := cmp.Or(p.Config.Get("session.store").Str(), "redis")
		store("sessions", name, cmp.Or(p.Config.Get("session.connection").Str(), "default"), session.From)
	}
	return list
}

// HorizonSupervisor is a supervisor of Horizon with its defaults put in.
type HorizonSupervisor struct {
	Name   string
	Config *Value
	From   Origin
}

// HorizonSupervisors are those of the environment.
func (p *Project) HorizonSupervisors() []HorizonSupervisor {
	h := p.Config.Get("horizon")
	if h == nil {
		return nil
	}
	shared := h.Get("defaults")
	own := h.Get("environments").Get(p.Environment.Str())
	var list []HorizonSupervisor
	add := func(name string, parts ...*Value) {
		whole := &Value{Kind: Map}
		for _, part := range parts {
			if part == nil || part.Kind != Map {
				continue
			}
			whole.From = part.From
			for _, key := range part.Keys {
				whole.Set(key, part.Items[key])
			}
		}
		list = append(list, HorizonSupervisor{Name: name, Config: whole, From: whole.From})
	}
	if shared != nil {
		for _, name := range shared.Keys {
			add(name, shared.Items[name], own.Get(name))
		}
	}
	if own != nil && own.Kind == Map {
		for _, name := range own.Keys {
			if shared.Get(name) == nil {
				add(name, own.Items[name])
			}
		}
	}
	return list
}

// Jobs are the application's classes that go on a Laravel queue.
func (p *Project) Jobs() []*Class {
	var list []*Class
	if p.Framework != Laravel {
		return nil
	}
	for _, c := range p.Classes {
		if c.Kind == "class" && p.Is(c, "ShouldQueue", "ShouldQueueAfterCommit", "ShouldBeUnique", "ShouldBeUniqueUntilProcessing") && (p.Method(c, "handle") != nil || p.Method(c, "__invoke") != nil) {
			list = append(list, c)
		}
	}
	return list
}

// Database is the application's own database, as its configuration says.
type Database struct {
	URL *Value // the whole address; nil: the parts say it. A secret
	// Scheme is mysql, postgres or sqlite; empty: not known, or another database.
	Scheme                     string
	Host, Port, Socket         *Value // the host that takes writes; each may be nil
	Username, Password, Schema *Value // Schema is the database's name, or SQLite's file
}

// Database is the database of the default connection; nil: it is not known without
// running the application.
func (p *Project) Database() *Database {
	if p.Framework == Symfony {
		dbal := p.Config.Get("doctrine.dbal")
		v := dbal.Get("url")
		if v == nil {
			name := cmp.Or(dbal.Get("default_connection").Str(), "default")
			v = dbal.Get("connections").Get(name).Get("url")
		}
		if v == nil && dbal == nil {
			v = p.Variable("DATABASE_URL")
		}
		if v == nil || v.Known() && v.Str() == "" {
			return nil
		}
		return &Database{URL: v}
	}
	c := p.Config.Get("database.connections").Get(p.Config.Get("database.default").Str())
	if c == nil || c.Kind != Map {
		return nil
	}
	if u := c.Get("url"); u.Known() && u.Str() != "" {
		return &Database{URL: u}
	}
	// Of what is written for writes and for all, Laravel takes the former.
	part := func(name string) *Value {
		for _, v := range []*Value{c.Get("write").Get(name), c.Get(name)} {
			if list := v.List(); len(list) > 0 && list[0].Kind != Map && list[0].Kind != Null {
				return list[0]
			}
		}
		return nil
	}
	scheme := map[string]string{"mysql": "mysql", "mariadb": "mysql", "pgsql": "postgres", "sqlite": "sqlite"}[c.Get("driver").Str()]
	return &Database{Scheme: scheme, Host: part("host"), Port: part("port"), Socket: part("unix_socket"),
		Username: part("username"), Password: part("password"), Schema: part("database")}
}

// Reachable reports whether enough is known of d to connect to it.
func (d *Database) Reachable() bool {
	switch {
	case d == nil:
		return false
	case d.URL != nil:
		return d.URL.Known()
	case d.Scheme == "sqlite":
		return d.Schema.Str() != ""
	}
	return d.Scheme != "" && d.Schema.Str() != "" && (d.Host.Str() != "" || d.Socket.Str() != "")
}

// DatabaseAddress is the application's database as zabor takes addresses, such as
// mysql://user:password@host:3306/name, with the origin of its most telling part.
// It is a secret. nil: it is not known.
func (p *Project) DatabaseAddress() *Value {
	d := p.Database()
	switch {
	case !d.Reachable():
		return nil
	case d.URL != nil:
		return d.URL
	case d.Scheme == "sqlite":
		file := d.Schema.Str()
		if !filepath.IsAbs(file) {
			file = filepath.Join(p.Root, file)
		}
		if absolute, err := filepath.Abs(file); err == nil {
			file = absolute
		}
		return scalar(String, "sqlite://"+file, d.Schema.From)
	}
	u := url.URL{Scheme: d.Scheme, Path: "/" + d.Schema.Str(), Host: cmp.Or(d.Host.Str(), "localhost")}
	if port := d.Port.Str(); port != "" {
		u.Host += ":" + port
	}
	if password := d.Password.Str(); password != "" {
		u.User = url.UserPassword(d.Username.Str(), password)
	} else {
		u.User = url.User(d.Username.Str())
	}
	if socket := d.Socket.Str(); socket != "" {
		u.RawQuery = url.Values{"unix_socket": {socket}}.Encode()
	}
	return scalar(String, u.String(), d.Schema.From)
}

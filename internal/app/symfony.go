package app

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// readSymfony reads .env files, config/packages and services.yaml for the
// environment, or the output of debug:config that was given instead.
func (p *Project) readSymfony(o Options) {
	p.Config = &Value{Kind: Map}
	p.loadSymfonyEnv(o)
	p.symfonyFiles("config", "services")
	p.symfonyFiles("config/packages", "*")
	p.symfonyFiles("config/packages/"+p.Environment.Str(), "*")
	if o.DebugConfig != "" {
		p.debugConfig(o.DebugConfig)
	}
	p.written = p.Config
	p.Config = p.resolve(p.Config)
}

// Written is a value of the configuration as it is written, with its placeholders
// such as %env(NAME)%; nil: there is none. Laravel's has none.
func (p *Project) Written(path string) *Value { return p.written.Get(path) }

// loadSymfonyEnv loads the dotenv files in Symfony's order. .env.local.php, which
// "composer dump-env" writes, stands for all of them.
func (p *Project) loadSymfonyEnv(o Options) {
	const dumped = ".env.local.php"
	if content := p.read(dumped); content != nil {
		e := evaluator{syntax: parsePHP(dumped, content)}
		p.Notices = append(p.Notices, e.broken...)
		if v := e.returned(); v != nil && v.Kind == Map {
			for _, name := range v.Keys {
				p.env.values[name] = variable{v.Items[name].Str(), v.Items[name].From}
			}
			p.symfonyEnvironment(o)
			return
		}
	}
	p.load(".env")
	p.load(".env.local")
	p.symfonyEnvironment(o)
	name := p.Environment.Str()
	p.load(".env." + name)
	p.load(".env." + name + ".local")
}

func (p *Project) symfonyEnvironment(o Options) {
	own := p.Variable("APP_ENV")
	switch {
	case o.Environment != "":
		p.Environment = scalar(String, o.Environment, Origin{Set: "--env"})
	case own != nil && own.Str() != "dev" && own.Str() != "test" && own.Str() != "":
		p.Environment = own
	default:
		p.Environment = scalar(String, "prod", Origin{Default: "zabor doctor, for APP_ENV is " + own.String()})
	}
}

// symfonyFiles merges the configuration files of a folder.
func (p *Project) symfonyFiles(folder, pattern string) {
	var files []string
	for _, extension := range []string{".yaml", ".yml", ".php"} {
		found, _ := filepath.Glob(filepath.Join(p.Root, filepath.FromSlash(folder), pattern+extension))
		files = append(files, found...)
	}
	slices.Sort(files)
	for _, file := range files {
		name := p.rel(file)
		content := p.read(name)
		if content == nil {
			continue
		}
		if strings.HasSuffix(name, ".php") {
			e := evaluator{syntax: parsePHP(name, content)}
			p.Notices = append(p.Notices, e.broken...)
			if v := e.returned(); v != nil && v.Kind == Map {
				p.merge(v)
			} else if strings.Contains(string(content), "framework") {
				p.Notices = append(p.Notices, Notice{File: name, What: "configuration that only the application can build",
					Fix: "bin/console debug:config framework --format=json --env=" + p.Environment.Str() + " > framework.json, and zabor doctor --debug-config framework.json"})
			}
			continue
		}
		documents, broken := parseYAML(name, content)
		if broken != nil {
			p.Notices = append(p.Notices, *broken)
		}
		for _, v := range documents {
			p.merge(v)
		}
	}
}

// merge adds a file's extensions, those of when@ENVIRONMENT over the others.
func (p *Project) merge(v *Value) {
	if v.Kind != Map {
		return
	}
	own := "when@" + p.Environment.Str()
	for _, key := range v.Keys {
		switch {
		case key == "parameters":
			for _, name := range v.Items[key].Keys {
				p.params[name] = v.Items[key].Items[name]
			}
		case !strings.HasPrefix(key, "when@"):
			p.Config.Set(key, merged(p.Config.Items[key], v.Items[key]))
		}
	}
	if w := v.Items[own]; w != nil {
		p.merge(w)
	}
}

// merged is what Symfony makes of one key in two files: maps are merged, a list
// or a scalar of the later file stands alone.
func merged(old, next *Value) *Value {
	if old == nil || old.Kind != Map || next.Kind != Map || isList(old) || isList(next) {
		return next
	}
	whole := &Value{Kind: Map, From: old.From, Key: old.Key}
	for _, key := range old.Keys {
		whole.Set(key, old.Items[key])
	}
	for _, key := range next.Keys {
		whole.Set(key, merged(old.Items[key], next.Items[key]))
	}
	return whole
}

func isList(v *Value) bool { return len(v.Keys) > 0 && v.Keys[0] == "0" }

// debugConfig takes the output of debug:config for the whole of an extension.
func (p *Project) debugConfig(path string) {
	content, err := os.ReadFile(path)
	if err != nil {
		p.Notices = append(p.Notices, Notice{File: path, What: "cannot be read: " + plain(err)})
		return
	}
	var whole map[string]any
	if err := json.Unmarshal(content, &whole); err != nil {
		p.Notices = append(p.Notices, Notice{File: path, What: "not JSON: " + err.Error(), Fix: "bin/console debug:config framework --format=json"})
		return
	}
	name := filepath.ToSlash(path)
	if _, ok := whole["framework"]; !ok && whole["messenger"] != nil {
		whole = map[string]any{"framework": whole}
	}
	for key, item := range whole {
		p.Config.Set(key, fromJSON(item, Origin{File: name, Line: lineOf(content, strconv.Quote(key)+":")}, content))
	}
}

// fromJSON is a decoded value. Its lines are those of the first occurrence of
// each key, which is as near as decoded JSON comes.
func fromJSON(x any, at Origin, content []byte) *Value {
	switch x := x.(type) {
	case nil:
		return scalar(Null, "", at)
	case bool:
		return boolean(x, at)
	case float64:
		return scalar(Int, strconv.FormatFloat(x, 'f', -1, 64), at)
	case string:
		return scalar(String, x, at)
	case []any:
		v := &Value{Kind: Map, From: at}
		for i, item := range x {
			v.Set(strconv.Itoa(i), fromJSON(item, at, content))
		}
		return v
	case map[string]any:
		v := &Value{Kind: Map, From: at}
		keys := make([]string, 0, len(x))
		for key := range x {
			keys = append(keys, key)
		}
		slices.Sort(keys)
		for _, key := range keys {
			next := at
			if n := lineOf(content, strconv.Quote(key)+":"); n > 0 {
				next.Line = n
			}
			v.Set(key, fromJSON(x[key], next, content))
		}
		return v
	}
	return unknown(fmt.Sprint(x), at)
}

var placeholder = regexp.MustCompile(`%%|%env\(([^)]*)\)%|%([A-Za-z_][\w.\-]*)%`)

// resolve puts environment variables and parameters in. What is known of
// neither makes the whole value Unknown.
func (p *Project) resolve(v *Value) *Value {
	if v == nil {
		return nil
	}
	if v.Kind == Map {
		whole := &Value{Kind: Map, From: v.From, Key: v.Key}
		for _, key := range v.Keys {
			whole.Set(key, p.resolve(v.Items[key]))
		}
		return whole
	}
	if v.Kind != String || !strings.Contains(v.Text, "%") {
		return v
	}
	found := placeholder.FindAllStringSubmatchIndex(v.Text, -1)
	out := *v
	var b strings.Builder
	last := 0
	for _, at := range found {
		b.WriteString(v.Text[last:at[0]])
		last = at[1]
		var part *Value
		switch {
		case at[2] >= 0:
			part = p.envPlaceholder(v.Text[at[2]:at[3]], v.From)
		case at[4] >= 0:
			part = p.parameter(v.Text[at[4]:at[5]], v.From)
		default:
			part = scalar(String, "%", Origin{})
		}
		if !part.Known() {
			u := unknown(v.Text, v.From)
			u.Key = v.Key
			u.From.Env = part.Origin().Env
			return u
		}
		if part.From.Env != "" {
			out.From = part.From
		}
		if len(found) == 1 && at[0] == 0 && at[1] == len(v.Text) { // the whole value: its type stays
			whole := *part
			whole.Key = v.Key
			if whole.From == (Origin{}) {
				whole.From = v.From
			}
			return &whole
		}
		b.WriteString(part.Str())
	}
	b.WriteString(v.Text[last:])
	out.Text = b.String()
	return &out
}

func (p *Project) parameter(name string, at Origin) *Value {
	switch name {
	case "kernel.environment":
		return p.Environment
	case "kernel.project_dir":
		return scalar(String, ".", at)
	case "kernel.debug":
		return boolean(false, at)
	}
	if v, ok := p.params[name]; ok {
		return p.resolve(v)
	}
	return unknown("%"+name+"%", at)
}

// envPlaceholder is what %env(expression)% comes to; expression may begin with
// processors, such as int:.
func (p *Project) envPlaceholder(expression string, at Origin) *Value {
	steps := strings.Split(expression, ":")
	name := steps[len(steps)-1]
	processors := steps[:len(steps)-1]
	fallback := ""
	for i, step := range processors { // default:PARAMETER:NAME
		if step == "default" && i+1 < len(processors) {
			fallback = processors[i+1]
			processors = slices.Delete(slices.Clone(processors), i, i+2)
			break
		}
	}
	v := p.Variable(name)
	switch {
	case v == nil && p.params["env("+name+")"] != nil:
		v = p.resolve(p.params["env("+name+")"])
		v = &Value{Kind: v.Kind, Text: v.Text, From: v.From}
	case v == nil && fallback != "":
		return p.parameter(fallback, at)
	case v == nil:
		u := unknown("%env("+expression+")%", at)
		u.From.Env = name
		return u
	}
	if v.From.Set != "" {
		v.From.File, v.From.Line = at.File, at.Line
	}
	for _, step := range slices.Backward(processors) {
		switch step {
		case "string", "trim", "resolve":
			if step == "resolve" {
				from := v.From
				v = p.resolve(v)
				v = &Value{Kind: v.Kind, Text: v.Text, From: from}
			}
		case "int":
			n, _ := v.Int()
			v = scalar(Int, strconv.Itoa(n), v.From)
		case "bool":
			v = boolean(slices.Contains([]string{"1", "true", "yes", "on"}, strings.ToLower(v.Str())), v.From)
		case "float":
			v = scalar(Float, v.Str(), v.From)
		case "not":
			v = boolean(!v.True(), v.From)
		default:
			u := unknown("%env("+expression+")%", at)
			u.From.Env = name
			return u
		}
	}
	return v
}

// option is an option of the Redis transport with its default.
type option struct{ name, value string }

var redisOptions = []option{
	{"stream", "messages"}, {"group", "symfony"}, {"consumer", "consumer"}, {"auto_setup", "true"},
	{"delete_after_ack", "true"}, {"delete_after_reject", "true"}, {"stream_max_entries", "0"}, {"dbindex", "0"},
	{"redeliver_timeout", "3600"}, {"claim_interval", "60000"}, {"serializer", "1"},
}

// transports are Messenger's.
func (p *Project) transports() []Queue {
	all := p.Config.Get("framework.messenger.transports")
	if all == nil || all.Kind != Map {
		return nil
	}
	var list []Queue
	for _, name := range all.Keys {
		c := all.Items[name]
		dsn := c
		if c.Kind == Map {
			dsn = c.Get("dsn")
		}
		q := Queue{Name: name, Config: c, DSN: dsn, From: dsn.Origin()}
		if c.Key.Line > 0 {
			q.From = c.Key
		}
		if dsn.Known() {
			q.Driver, _, _ = strings.Cut(dsn.Str(), ":")
			q.Driver, _, _ = strings.Cut(q.Driver, "+")
		}
		switch q.Driver {
		case "redis", "rediss", "valkey", "valkeys":
			q.Driver = "redis"
			p.redisTransport(&q, c.Get("options"))
		case "doctrine", "beanstalkd":
			q.Options = map[string]*Value{}
			q.Reserve = c.Get("options.redeliver_timeout")
			if q.Reserve == nil {
				q.Reserve = scalar(Int, "3600", Origin{File: q.From.File, Line: q.From.Line, Default: p.named()})
			}
		}
		list = append(list, q)
	}
	return list
}

// redisTransport fills in what the DSN and the options of a Redis transport say:
// the DSN's query over options, its path over both.
func (p *Project) redisTransport(q *Queue, options *Value) {
	from := q.DSN.From
	q.Options = map[string]*Value{}
	for _, o := range redisOptions {
		q.Options[o.name] = scalar(String, o.value, Origin{File: q.From.File, Line: q.From.Line, Default: p.named()})
	}
	if p.Version.Before(6, 0) {
		q.Options["delete_after_ack"] = scalar(Bool, "false", q.Options["delete_after_ack"].From)
	}
	if options != nil && options.Kind == Map {
		for _, key := range options.Keys {
			if v := options.Items[key]; v.Kind != Null {
				q.Options[key] = v
			}
		}
	}
	dsn := q.DSN.Str()
	r := &Redis{Name: q.Name, From: q.From, Prefix: scalar(String, "", Origin{Default: p.named()})}
	first, _, more := strings.Cut(dsn, ",")
	r.Cluster = more
	u, err := url.Parse(strings.NewReplacer("redis:?", "redis://?", "rediss:?", "rediss://?").Replace(first))
	if err != nil {
		r.Host = unknown("a DSN that cannot be read", from)
		q.Redis = r
		q.Reserve = q.Options["redeliver_timeout"]
		return
	}
	for key, values := range u.Query() {
		q.Options[key] = scalar(String, values[len(values)-1], from)
	}
	for i, part := range strings.SplitN(strings.Trim(u.Path, "/"), "/", 3) {
		if u.Host != "" && part != "" {
			q.Options[[]string{"stream", "group", "consumer"}[i]] = scalar(String, part, from)
		}
	}
	r.Host = scalar(String, cmp.Or(u.Hostname(), u.Path, "127.0.0.1"), from)
	r.Port = scalar(Int, cmp.Or(u.Port(), "6379"), from)
	r.DB = q.Options["dbindex"]
	r.TLS = u.Scheme == "rediss" || u.Scheme == "valkeys"
	r.Serializer = q.Options["serializer"]
	if u.User != nil {
		password, ok := u.User.Password()
		if !ok {
			password = u.User.Username()
		} else {
			r.Username = scalar(String, u.User.Username(), from)
		}
		r.Password = scalar(String, password, from)
	}
	q.Redis = r
	q.Reserve = q.Options["redeliver_timeout"]
}

// symfonyNeighbours are cache pools and sessions on Redis.
func (p *Project) symfonyNeighbours() []Keys {
	var list []Keys
	add := func(use, name string, provider *Value, prefix string, from Origin) {
		r := redisOf(provider)
		if r == nil {
			return
		}
		r.Name = name
		list = append(list, Keys{Use: use, Name: name, Redis: r, Prefix: scalar(String, prefix, Origin{Default: p.named()}), From: from})
	}
	cache := p.Config.Get("framework.cache")
	standard := cache.Get("default_redis_provider")
	if standard == nil {
		standard = scalar(String, "redis://localhost", Origin{File: cache.Origin().File, Default: p.named()})
	}
	onRedis := func(v *Value) bool { return strings.HasPrefix(v.Str(), "cache.adapter.redis") }
	if app := cache.Get("app"); onRedis(app) {
		add("cache", "cache.app", standard, "", app.From)
	}
	if system := cache.Get("system"); onRedis(system) {
		add("cache", "cache.system", standard, "", system.From)
	}
	if pools := cache.Get("pools"); pools != nil && pools.Kind == Map {
		for _, name := range pools.Keys {
			pool := pools.Items[name]
			adapter := pool.Get("adapter")
			if adapter == nil {
				adapter = pool.Get("adapters").Get("0")
			}
			if !onRedis(adapter) {
				continue
			}
			provider := pool.Get("provider")
			if provider == nil {
				provider = standard
			}
			add("cache", name, provider, "", adapter.From)
		}
	}
	if handler := p.Config.Get("framework.session.handler_id"); handler != nil {
		add("sessions", "sessions", handler, "sf_s", handler.From)
	}
	return list
}

// redisOf is the database that a redis:// address of a cache names; its path is
// the number of the database. nil: it is no such address.
func redisOf(v *Value) *Redis {
	if v == nil || !strings.HasPrefix(v.Str(), "redis://") && !strings.HasPrefix(v.Str(), "rediss://") {
		return nil
	}
	r := &Redis{From: v.From, DB: scalar(Int, "0", v.From), Port: scalar(Int, "6379", v.From)}
	u, err := url.Parse(v.Str())
	if err != nil {
		r.Host = unknown("an address that cannot be read", v.From)
		return r
	}
	r.Host = scalar(String, cmp.Or(u.Hostname(), u.Path), v.From)
	if u.Port() != "" {
		r.Port.Text = u.Port()
	}
	if n := cmp.Or(strings.Trim(u.Path, "/"), u.Query().Get("dbindex")); u.Host != "" && n != "" {
		r.DB.Text = n
	}
	r.TLS = u.Scheme == "rediss"
	if u.User != nil {
		password, ok := u.User.Password()
		if !ok {
			password = u.User.Username()
		}
		r.Password = scalar(String, password, v.From)
	}
	return r
}

// Handler is a message handler of Symfony: a class or one method of it.
type Handler struct {
	Class   *Class
	Method  *Method
	Message string // the class of what it handles; empty: not known
}

// Handlers are the application's message handlers.
func (p *Project) Handlers() []Handler {
	var list []Handler
	if p.Framework != Symfony {
		return nil
	}
	add := func(c *Class, m *Method) {
		if m == nil {
			return
		}
		h := Handler{Class: c, Method: m}
		if len(m.Params) > 0 {
			h.Message = m.Params[0].Type
		}
		list = append(list, h)
	}
	for _, c := range p.Classes {
		switch a := c.Attribute("AsMessageHandler"); {
		case c.Kind != "class":
		case a != nil:
			method := "__invoke"
			for _, arg := range a.Args {
				if arg.Name == "method" && arg.Value.Known() {
					method = arg.Value.Str()
				}
			}
			add(c, p.Method(c, method))
		case p.Is(c, "MessageHandlerInterface", "MessageSubscriberInterface"):
			add(c, p.Method(c, "__invoke"))
		default:
			for _, m := range c.Methods {
				if m.Attribute("AsMessageHandler") != nil {
					add(c, m)
				}
			}
		}
	}
	return list
}

// Routing is where a message goes: the transports' names, and the value that
// says so; none when it is handled in the process that dispatches it.
func (p *Project) Routing(class string) []*Value {
	routing := p.Config.Get("framework.messenger.routing")
	if routing != nil && routing.Kind == Map {
		for _, name := range p.kinds(class) {
			for _, key := range routing.Keys {
				pattern := strings.TrimPrefix(key, `\`)
				if pattern != name && !(strings.HasSuffix(pattern, `*`) && strings.HasPrefix(name, strings.TrimSuffix(pattern, "*")) && pattern != "*") {
					continue
				}
				return senders(routing.Items[key])
			}
		}
		if c := p.Class(class); c != nil {
			if a := c.Attribute("AsMessage"); a != nil {
				for i, arg := range a.Args {
					if arg.Name == "transport" || arg.Name == "" && i == 0 {
						return arg.Value.List()
					}
				}
			}
		}
		if all := routing.Items["*"]; all != nil {
			return senders(all)
		}
	}
	return nil
}

// RoutingKey is the line that routes class, or its nearest name; the zero
// Origin when nothing does.
func (p *Project) RoutingKey(class string) Origin {
	routing := p.Config.Get("framework.messenger.routing")
	for _, name := range p.kinds(class) {
		if v := routing.Get(name); v != nil {
			if v.Key.Line > 0 {
				return v.Key
			}
			return v.From
		}
	}
	return Origin{}
}

// kinds are the class, what it extends and what it implements.
func (p *Project) kinds(class string) []string {
	names := []string{class}
	for i := 0; i < len(names) && i < 50; i++ {
		if c := p.Class(names[i]); c != nil {
			for _, next := range append([]string{c.Extends}, c.Implements...) {
				if next != "" && !slices.Contains(names, next) {
					names = append(names, next)
				}
			}
		}
	}
	return names
}

func senders(v *Value) []*Value {
	if s := v.Get("senders"); s != nil {
		return s.List()
	}
	return v.List()
}

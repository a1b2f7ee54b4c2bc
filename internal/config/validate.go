package config

import (
	"fmt"
	"maps"
	"net"
	"net/url"
	"slices"
	"strings"
	"time"
	_ "time/tzdata" // Laravel's time zone must be known on a host without zone files too

	"zabor"
)

// validator holds a file that was read against the rules that bind several
// settings together.
type validator struct {
	*Config
	*reader
}

// wrong adds a finding about the setting at the given path.
func (v *validator) wrong(p path, what, fix string) { v.findMasked(v.at(p), p, what, fix) }

func (v *validator) validate() {
	v.validateScope()
	v.buildKeys()
	v.validateAddress(path{"fence"}, v.Fence, databaseSchemes)
	v.validateAddress(path{"database"}, v.Database, databaseSchemes)
	v.validateAddress(path{"redis"}, v.Redis, redisSchemes)
	if len(v.Backoff) == 0 {
		v.wrong(path{"backoff"}, "the list is empty", "write at least one wait, such as [10s, 1m, 5m]")
	}
	for _, name := range slices.Sorted(maps.Keys(v.Queues)) {
		v.validateQueue(path{"queues", name}, name, v.Queues[name])
	}
	v.buildProviders()
	v.buildSteps()
	v.validateReserves()
	v.validateThen()
	v.validateBus()
	v.validateDoors()
}

func (v *validator) validateScope() {
	p := path{"scope"}
	switch {
	case strings.Contains(v.Scope, "/"):
		v.wrong(p, fmt.Sprintf("%q has a slash, which divides it from a step's scope", v.Scope), "write another sign, such as -")
	case len(v.Scope) > zabor.MaxScope:
		v.wrong(p, fmt.Sprintf("it is %d bytes long: at most %d, together with a slash and a step's scope", len(v.Scope), zabor.MaxScope), "write a shorter one")
	}
}

// The schemes of addresses; the first ones are the ones to write.
var (
	databaseSchemes = []string{"mysql", "mariadb", "postgres", "postgresql", "pgsql", "sqlite", "mysqli", "mysql2", "pdo-mysql", "pdo-pgsql", "sqlite3", "pdo-sqlite"}
	redisSchemes    = []string{"redis", "rediss", "unix"}
	dsnSchemes      = []string{"redis", "rediss", "valkey", "valkeys"}
)

// validateAddress checks what an address begins with; whoever opens it reads
// the rest.
func (v *validator) validateAddress(p path, a Address, schemes []string) {
	write := strings.Join(schemes[:min(6, len(schemes))], "://, ") + "://"
	switch {
	case slices.Contains(schemes, a.Scheme()):
	case a != "":
		fix := "begin it with one of " + write
		if like := nearest(a.Scheme(), schemes); like != "" {
			fix = "did you mean " + like + "://?"
		}
		v.wrong(p, "the address begins with none of the known schemes", fix)
	case v.byPath[p.String()] != nil && !slices.ContainsFunc(v.findings, func(f Finding) bool { return f.Key == p.String() }):
		v.wrong(p, "the address is empty", "write one that begins with one of "+write)
	}
}

func (v *validator) validateQueue(p path, name string, q *Queue) {
	switch {
	case q.Laravel != nil && q.Symfony != nil:
		v.wrong(p, "a queue is Laravel's or Symfony's, and this one is both", "make two queues of it")
	case q.Laravel == nil && q.Symfony == nil:
		v.wrong(p, "the queue is neither Laravel's nor Symfony's", "write laravel: {…} or symfony: {dsn: …}")
	}
	if q.Shared && q.MissingRow == "capture" {
		v.wrong(p.child("missing_row"), "capture and shared: true exclude each other: a message that a PHP worker has had may have been charged by it", "take missing_row out")
	}
	if l := q.Laravel; l != nil {
		if strings.Contains(name, ",") {
			v.wrong(p, "the queue's name has a comma, at which Laravel divides names", "write one queue for each")
		}
		if v.Redis == "" && v.byPath["redis"] == nil {
			v.wrong(p.child("laravel"), "a Laravel queue needs the address of its Redis", "write redis: at the top of the file, such as redis://127.0.0.1:6379/0")
		}
		if _, err := time.LoadLocation(l.Timezone); err != nil || l.Timezone == "Local" {
			v.wrong(p.child("laravel").child("timezone"), fmt.Sprintf("%q is not a time zone", l.Timezone), "write UTC or a name such as Europe/Berlin")
		}
	}
	if s := q.Symfony; s != nil {
		v.validateAddress(p.child("symfony").child("dsn"), s.DSN, dsnSchemes)
	}
	if f := q.Failed; f != nil {
		v.validateFailed(p.child("failed"), q, f)
	}
}

func (v *validator) validateFailed(p path, q *Queue, f *Failed) {
	v.validateAddress(p.child("database"), f.Database, databaseSchemes)
	only := func(key, value, framework string) {
		if value != "" {
			v.wrong(p.child(key), "a failure transport of "+framework+" has none", "take it out")
		}
	}
	if q.Laravel != nil {
		only("queue_name", f.QueueName, "Laravel")
		only("stream", f.Stream, "Laravel")
	}
	if f.Stream != "" {
		only("queue_name", f.QueueName, "a stream")
		only("table", f.Table, "a stream")
		only("database", string(f.Database), "a stream")
	}
}

// reserve is how long q keeps a delivered message from the next worker.
func (v *validator) reserve(p path, q *Queue) (d time.Duration, at path) {
	if q.Laravel != nil {
		return q.Laravel.RetryAfter, p.child("laravel").child("retry_after")
	}
	at = p.child("symfony").child("redeliver_timeout")
	inDSN, ok := redeliverTimeout(q.Symfony.DSN)
	switch {
	case ok && q.Symfony.RedeliverTimeout != 0 && inDSN != q.Symfony.RedeliverTimeout:
		v.wrong(at, fmt.Sprintf("%s here and another redeliver_timeout in the DSN", q.Symfony.RedeliverTimeout), "take it out here, or out of the DSN")
	case ok:
		return inDSN, p.child("symfony").child("dsn")
	case q.Symfony.RedeliverTimeout != 0:
		return q.Symfony.RedeliverTimeout, at
	}
	return time.Hour, at // Symfony's default
}

// redeliverTimeout is the option of that name in a DSN's query; in a list of
// DSNs the last one. Whether the DSN is good is for its own reader to say.
func redeliverTimeout(dsn Address) (d time.Duration, found bool) {
	for one := range strings.SplitSeq(string(dsn), ",") {
		_, query, _ := strings.Cut(one, "?")
		values, err := url.ParseQuery(query)
		if err != nil {
			continue
		}
		if last, ok := parseDuration(values.Get("redeliver_timeout"), true); ok && last > 0 {
			d, found = last, true
		}
	}
	return d, found
}

// validateReserves demands of every queue that it keeps a message for longer
// than a call of any step may take: call < lease < reserve, each with a margin.
func (v *validator) validateReserves() {
	for _, queue := range slices.Sorted(maps.Keys(v.Queues)) {
		q := v.Queues[queue]
		if (q.Laravel == nil) == (q.Symfony == nil) {
			continue
		}
		p := path{"queues", queue}
		reserve, at := v.reserve(p, q)
		for _, name := range slices.Sorted(maps.Keys(v.Steps)) {
			v.validateReserve(at, queue, reserve, name)
		}
	}
}

func (v *validator) validateReserve(at path, queue string, reserve time.Duration, name string) {
	s := v.Steps[name]
	requests := 1
	if s.Prepare != nil {
		requests = 2
	}
	for _, providerName := range v.providersOf(s) {
		p := v.Providers[providerName]
		lease := zabor.Lease(time.Duration(requests) * p.Timeout)
		least := lease + zabor.Margin(lease)
		if reserve > least {
			continue
		}
		v.wrong(at, fmt.Sprintf("queue %s keeps a message for %s, and step %s at provider %s may take %s: %d × timeout %s makes a lease of %s, with a margin of %s",
			queue, span(reserve), name, providerName, span(least), requests, span(p.Timeout), span(lease), span(zabor.Margin(lease))),
			fmt.Sprintf("write more than %s, here and for the framework, or a shorter timeout in providers.%s", span(least), providerName))
	}
}

// span is d as a person writes it: 90s, 33s, 1h1m.
func span(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = s[:len(s)-2]
	}
	if strings.HasSuffix(s, "h0m") {
		s = s[:len(s)-2]
	}
	return s
}

// validateThen keeps messages that go on from coming back.
func (v *validator) validateThen() {
	for _, name := range slices.Sorted(maps.Keys(v.Steps)) {
		p := path{"steps", name, "then"}
		if queue := v.Steps[name].Then; v.Queues[queue] != nil {
			v.wrong(p, fmt.Sprintf("queue %s is one that zabor takes from: the message would come back, and go on for ever", queue), "write a queue that only the PHP workers take from; for Symfony its stream")
		}
	}
}

// validateBus keeps a message from being two things, and from going round.
func (v *validator) validateBus() {
	if v.Bus == nil {
		return
	}
	claimed := map[Class]string{}
	for name, s := range v.Steps {
		for _, class := range s.Message {
			claimed[class] = name
		}
	}
	check := func(p path, pattern Pattern) {
		for _, class := range slices.Sorted(maps.Keys(claimed)) {
			if pattern != "*" && pattern.Matches(string(class)) {
				v.wrong(p, fmt.Sprintf("%s is a message of step %s", class, claimed[class]), "take one of them out")
			}
		}
	}
	for _, pattern := range slices.Sorted(maps.Keys(v.Bus.Forward)) {
		p := path{"bus", "forward", string(pattern)}
		check(p, pattern)
		queue := v.Bus.Forward[pattern]
		switch {
		case queue == "":
			v.wrong(p, "there is no queue to forward to", "write the name of a queue that the PHP workers take from")
		case v.Queues[queue] != nil:
			v.wrong(p, fmt.Sprintf("queue %s is one that zabor takes from: the message would come back and be forwarded for ever", queue), "write a queue that only the PHP workers take from; for Symfony its stream")
		}
		for i, refused := range v.Bus.Refuse {
			if pattern.overlaps(refused) && pattern != "*" || pattern == refused {
				v.wrong(p, fmt.Sprintf("a message that is forwarded here is refused by bus.refuse[%d], %s, too", i, refused), "take one of them out; the star alone takes the rest and may stand beside others")
			}
		}
	}
	for i, pattern := range v.Bus.Refuse {
		check(path{"bus", "refuse"}.index(i), pattern)
	}
}

// overlaps reports whether there can be a class that p and q match; a star alone
// is the rest, which is nobody else's.
func (p Pattern) overlaps(q Pattern) bool {
	if q == "*" {
		return false
	}
	return p.Matches(strings.TrimSuffix(string(q), "*")) || q.Matches(strings.TrimSuffix(string(p), "*"))
}

// Matches reports whether class is the one that p names, or begins as p does
// before its star.
func (p Pattern) Matches(class string) bool {
	if before, ok := strings.CutSuffix(string(p), "*"); ok {
		return strings.HasPrefix(class, before)
	}
	return class == string(p)
}

func (v *validator) validateDoors() {
	for i, a := range v.Alerts {
		p := path{"alerts"}.index(i)
		if a != "" && !strings.Contains(string(a), "://") {
			v.wrong(p, "this is not an address", "write scheme://…, or the webhook's address as it was given to you")
		}
	}
	listen := func(p path, address string) {
		if _, _, err := net.SplitHostPort(address); address != "" && err != nil {
			v.wrong(p, "this is not host:port", "write host:port, such as 127.0.0.1:8070")
		}
	}
	if v.Proxy != nil {
		listen(path{"proxy", "listen"}, v.Proxy.Listen)
		v.validateProxy(path{"proxy"}, v.Proxy)
	}
	if v.Dashboard != nil {
		listen(path{"dashboard", "listen"}, v.Dashboard.Listen)
		v.validateDashboard(path{"dashboard"}, v.Dashboard)
	}
	if v.Metrics != nil {
		listen(path{"metrics", "listen"}, v.Metrics.Listen)
	}
	if v.Traces != nil {
		v.validateTraces(path{"traces"}, v.Traces)
	}
}

func (v *validator) validateTraces(p path, t *Traces) {
	if scheme := t.Endpoint.Scheme(); t.Endpoint != "" && scheme != "http" && scheme != "https" {
		v.wrong(p.child("endpoint"), "this is not an address of OTLP over HTTP", "write http://HOST:4318, or https://…")
	}
	for i, name := range t.Providers {
		if v.Providers[name] == nil {
			v.wrong(p.child("providers").index(i), fmt.Sprintf("there is no provider %q", name), "write one of "+strings.Join(slices.Sorted(maps.Keys(v.Providers)), ", "))
		}
	}
}

// minToken is the shortest token of the proxy's callers, in bytes.
const minToken = 16

// fencesPath is the proxy's own path, which no provider can have.
const fencesPath = "fences"

func (v *validator) validateProxy(p path, x *Proxy) {
	authenticated := x.Token != "" || x.TLS != nil && x.TLS.ClientCA != ""
	if host, _, err := net.SplitHostPort(x.Listen); err == nil && !authenticated && !loopback(host) {
		v.wrong(p.child("listen"), "whoever reaches this address could make charges", "write token: (or tls: with client_ca:), or listen on 127.0.0.1")
	}
	if x.Token != "" && len(x.Token) < minToken {
		v.wrong(p.child("token"), fmt.Sprintf("the token has %d bytes: it could be guessed", len(x.Token)), fmt.Sprintf("write at least %d, such as what openssl rand -hex 32 prints", minToken))
	}
	if strings.ContainsFunc(string(x.Token), func(r rune) bool { return r <= ' ' || r >= 0x7f }) {
		v.wrong(p.child("token"), "the token has a blank or a sign that no header takes", "is there a newline at its end?")
	}
	for _, name := range slices.Sorted(maps.Keys(x.Volatile)) {
		if v.Providers[name] == nil {
			v.wrong(p.child("volatile").child(name), fmt.Sprintf("there is no provider %q", name), "write one of "+strings.Join(slices.Sorted(maps.Keys(v.Providers)), ", "))
		}
		for i, field := range x.Volatile[name] {
			if profile := v.profiles[name]; profile.NamesMoney(field) {
				v.wrong(p.child("volatile").child(name).index(i), fmt.Sprintf("%s is the money, or holds it: another amount under the same key would be answered as if it were charged", field), "take it out")
			}
		}
	}
	if v.Providers[fencesPath] != nil {
		v.wrong(path{"providers", fencesPath}, "/fences is the proxy's own path", "give the provider another name")
	}
}

// loopback reports whether only this host reaches a listener on host.
func loopback(host string) bool {
	return host == "localhost" || net.ParseIP(host).IsLoopback()
}

package draft

import (
	"cmp"
	"regexp"
	"slices"
	"strings"

	"zabor/doctor"
	"zabor/internal/app"
)

// queue returns the connection of Laravel on Redis for jobs of the connection of
// this name: it, else the default one, else the first; nil: Redis has no queue.
func (w *writer) queue(name string) *app.Queue {
	var found *app.Queue
	for _, q := range w.Queues() {
		switch {
		case q.Redis == nil:
		case q.Name == name:
			return &q
		case q.Default || found == nil:
			found = &q
		}
	}
	return found
}

// connection returns the connection of the first payment; empty: the default.
func (w *writer) connection() string {
	if len(w.payments) == 0 {
		return ""
	}
	return w.payments[0].Connection
}

func (w *writer) redis() {
	if w.Framework == app.Symfony {
		return
	}
	q := w.queue(w.connection())
	if q == nil {
		w.line("", "# no queue connection of config/queue.php is on Redis: zabor takes messages from Redis only")
		return
	}
	r := q.Redis
	where := "connection " + r.Name + "; " + r.Host.Origin().String()
	if env := r.Host.Origin().Env; strings.HasSuffix(env, "_URL") {
		w.line(where, "redis: %s", quote("${"+env+"}"))
		return
	}
	scheme := "redis"
	if r.TLS {
		scheme = "rediss"
	}
	login := ""
	if r.Password.Str() != "" {
		if r.Username.Str() != "" {
			login = refer(r.Username, "REDIS_USERNAME")
		}
		login += ":" + refer(r.Password, "REDIS_PASSWORD") + "@"
	}
	w.line(where, "redis: %s", quote(scheme+"://"+login+refer(r.Host, "")+":"+refer(r.Port, "")+"/"+refer(r.DB, "")))
}

func (w *writer) neighbours() {
	head := false
	for _, k := range w.Neighbours() {
		prefix, ok := k.FullPrefix()
		n, known := k.Redis.Database()
		if !ok || !known || prefix == "" {
			continue
		}
		if !head {
			w.line("what cache and sessions keep in Redis", "keep_apart:")
			head = true
		}
		mark, comment := "", k.Use+" "+k.Name+"; "+k.Prefix.Origin().String()
		for _, q := range w.Queues() {
			key := w.key(q)
			if q.Redis != nil && q.Redis.Shares(k.Redis) && (strings.HasPrefix(key, prefix) || strings.HasPrefix(prefix, key)) {
				mark, comment = "# ", "as the queue's own keys: give it another prefix (zabor doctor: ZB131); "+comment
			}
		}
		w.line(comment, "  %s- {prefix: %s, db: %d}", mark, quote(escape(prefix)), n)
	}
	if head && !strings.Contains(w.text.String(), "\n  - {prefix") {
		w.line("", "  []")
	}
}

func (w *writer) key(q app.Queue) string {
	if q.Redis == nil {
		return ""
	}
	if w.Framework == app.Symfony {
		return q.Options["stream"].Str()
	}
	return q.Redis.Prefix.Str() + "queues:"
}

func (w *writer) queues() {
	w.line("", "")
	w.line("", "queues:")
	if w.Framework == app.Symfony {
		w.transports()
		return
	}
	if w.queue("") == nil {
		driver := "not known"
		if q := w.Queue(""); q != nil {
			driver = q.Driver
		}
		w.line("the default queue connection's driver is "+driver+": zabor takes messages from Redis only", "  {}")
		return
	}
	on := func(p doctor.Payment) (name string, q *app.Queue) {
		q = w.queue(p.Connection)
		return cmp.Or(p.Queue, q.Config.Get("queue").Str(), "default"), q
	}
	var names []string
	connections := map[string]*app.Queue{}
	for _, payment := range append(slices.Clip(w.payments), doctor.Payment{}) {
		if payment.Message == "" && len(names) > 0 {
			break // of no payment: the default, where there is no other
		}
		if name, q := on(payment); !slices.Contains(names, name) {
			names, connections[name] = append(names, name), q
		}
	}
	for _, name := range names {
		q := connections[name]
		comment := "Laravel's queue"
		if !slices.ContainsFunc(w.payments, func(p doctor.Payment) bool { return p.Queue == name }) {
			comment += "; no onQueue() was found: look where the jobs are dispatched"
		}
		w.line(comment, "  %s:", quote(name))
		w.line("", "    laravel:")
		w.line(q.From.String(), "      connection: %s", quote(q.Name))
		w.line(q.Redis.Prefix.Origin().String(), "      prefix: %s", quote(escape(q.Redis.Prefix.Str())))
		if horizon := w.Config.Get("horizon.prefix"); horizon.Known() {
			w.line(horizon.From.String(), "      horizon: %s", quote(escape(horizon.Str())))
		}
		if n, ok := q.Reserve.Int(); ok {
			w.line(q.Reserve.From.String(), "      retry_after: %ds", n)
		}
		if zone := w.Config.Get("app.timezone"); zone.Known() {
			w.line(zone.From.String(), "      timezone: %s", quote(zone.Str()))
		}
		w.line("for encrypted jobs", "      app_key: %s", quote("${APP_KEY:-}"))
		failed := w.Config.Get("queue.failed")
		driver := failed.Get("driver").Str()
		if v := failed.Get("driver"); v != nil && driver == "" {
			driver = "null" // failed jobs go nowhere
		}
		if driver != "" && !strings.HasPrefix(driver, "database") {
			w.line("zabor keeps failed jobs in a table: php artisan queue:failed-table. What has failed so far is not in it: retry none of that", "    # the application's driver is %s", driver)
		}
		w.line(failed.Get("table").Origin().String(), "    failed: {table: %s}", quote(cmp.Or(failed.Get("table").Str(), "failed_jobs")))
	}
}

// Secrets in a DSN without variables.
var (
	writtenOut  = regexp.MustCompile(`(://(?:[^:@/?${]*:)?)[^@/?${]+@`)
	authWritten = regexp.MustCompile(`(\bauth(?:\[\])?=)[^&${]+`)
)

var envPlaceholder = regexp.MustCompile(`%env\((?:[a-z_]+:)*([A-Za-z_]\w*)\)%`)

func (w *writer) transports() {
	failure := w.Config.Get("framework.messenger.failure_transport").Str()
	var all, paid []app.Queue
	for _, q := range w.Queues() {
		if q.Redis == nil || q.Name == failure {
			continue
		}
		all = append(all, q)
		if slices.ContainsFunc(w.payments, func(p doctor.Payment) bool { return p.Queue == q.Name }) {
			paid = append(paid, q)
		}
	}
	comment := "the transport's name"
	if len(paid) == 0 && len(w.payments) > 0 {
		comment += "; no payment was found that is routed to it"
	}
	if len(paid) > 0 {
		all = paid
	}
	for i, q := range all {
		if slices.ContainsFunc(all[:i], func(o app.Queue) bool {
			return o.Redis.Shares(q.Redis) && o.Options["stream"].Str() == q.Options["stream"].Str()
		}) {
			w.line("", "  # transport %s is the stream of another one above (zabor doctor: ZB143), and is left out", quote(q.Name))
			continue
		}
		w.line(comment, "  %s:", quote(q.Name))
		w.line("", "    symfony:")
		w.line(q.DSN.From.String(), "      dsn: %s", quote(w.dsn(q)))
		if o := q.Reserve.Origin(); o.Default == "" && o.File != q.DSN.From.File {
			w.line(o.String(), "      redeliver_timeout: %ss", q.Reserve.Str())
		}
		w.line("for signed messages", "      app_secret: %s", quote("${APP_SECRET:-}"))
		w.failed(q, cmp.Or(q.Config.Get("failure_transport").Str(), failure))
	}
	if len(all) == 0 {
		w.line("no transport of Messenger is on Redis, or its DSN is not known", "  {}")
	}
}

// dsn is the transport's DSN with variables in place of placeholders, and with
// the options beside it. A password in clear is replaced.
func (w *writer) dsn(q app.Queue) string {
	path := "framework.messenger.transports." + q.Name
	text := cmp.Or(w.Written(path).Str(), w.Written(path+".dsn").Str())
	text = envPlaceholder.ReplaceAllString(escape(text), "$${$1}")
	text = writtenOut.ReplaceAllString(text, "$1$${REDIS_PASSWORD}@")
	text = authWritten.ReplaceAllString(text, "$1$${REDIS_PASSWORD}")
	separator := "?"
	if strings.Contains(q.DSN.Str(), "?") {
		separator = "&"
	}
	for _, name := range []string{"stream", "group", "dbindex", "delete_after_ack", "delete_after_reject", "serializer"} {
		v := q.Options[name]
		if o := v.Origin(); v.Known() && o.Default == "" && o != q.DSN.From {
			text += separator + name + "=" + escape(v.Text)
			separator = "&"
		}
	}
	return text
}

func (w *writer) failed(q app.Queue, name string) {
	f := w.Queue(name)
	switch {
	case name == "" || f == nil:
		w.line("the application has no failure transport (zabor doctor: ZB121); zabor needs one", "    failed: {queue_name: failed}")
	case f.Redis != nil && f.Redis.Shares(q.Redis) && f.Options["stream"].Str() == q.Options["stream"].Str():
		w.line("the application's failure transport is this very stream: a failed message comes back for ever (zabor doctor: ZB143); give it a stream of its own, here and there", "    failed: {stream: %s}", quote(q.Options["stream"].Str()+"_failed"))
	case f.Redis != nil:
		w.line(f.From.String(), "    failed: {stream: %s}", quote(f.Options["stream"].Str()))
	default:
		queue := "default"
		if _, query, ok := strings.Cut(f.DSN.Str(), "?"); ok {
			for pair := range strings.SplitSeq(query, "&") {
				if value, ok := strings.CutPrefix(pair, "queue_name="); ok {
					queue = value
				}
			}
		}
		if v := f.Config.Get("options.queue_name"); v.Known() {
			queue = v.Str()
		}
		w.line(f.From.String(), "    failed: {queue_name: %s}", quote(queue))
	}
}

package main

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"zabor/doctor"
	"zabor/internal/app"
	"zabor/internal/exit"
	"zabor/provider"
)

type initCommand struct {
	Path        string `arg:"" help:"The application: the folder that composer.json is in."`
	Environment string `name:"env" placeholder:"NAME" help:"Read for this environment. Else APP_ENV, or production where that is for development."`
	DebugConfig string `placeholder:"FILE" help:"Symfony: the output of debug:config framework --format=json, read instead of config/packages."`
}

func (c *initCommand) Run(p *program) error {
	project, err := app.Open(c.Path, app.Options{Lookup: os.LookupEnv, Environment: c.Environment, DebugConfig: c.DebugConfig})
	if err != nil {
		return exit.Usage(fmt.Errorf("nothing was read: %w", err), "name the folder of an application: the one that composer.json is in")
	}
	if project.Framework == app.None {
		return exit.Usage(fmt.Errorf("%s is neither a Laravel nor a Symfony application", c.Path), "name the folder of an application: the one that composer.json is in")
	}
	w := initWriter{Project: project, payments: doctor.Payments(project)}
	w.write()
	for _, n := range project.Notices {
		p.log.Warn("not understood: "+n.What, "file", n.File, "line", n.Line)
	}
	_, err = p.stdout.Write([]byte(w.text.String()))
	return err
}

// initWriter writes a zabor.yaml for an application. It writes no secret: where
// one is needed, the variable that holds it.
type initWriter struct {
	*app.Project
	payments []doctor.Payment
	text     strings.Builder
}

// line writes a line, with a comment where there is one.
func (w *initWriter) line(comment, format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if comment = strings.TrimSuffix(comment, "; "); comment != "" {
		text = fmt.Sprintf("%-60s # %s", text, comment)
	}
	w.text.WriteString(text + "\n")
}

func (w *initWriter) write() {
	w.line("", "# Made by \"zabor init\" of a %s application, for its environment %s.", w.Framework, w.Environment)
	w.line("", "# Behind each value: where it was found. Secrets are the application's own variables; check the file with")
	w.line("", "#     zabor config check -c zabor.yaml --env-file %s", filepath.ToSlash(filepath.Join(w.Root, ".env")))
	scope := w.scope()
	w.line("in every key: each shop and each environment needs another", "scope: %s", scope)
	w.database()
	w.redis()
	w.line("seals what the fence's table keeps of requests and answers; one is made by: openssl rand -base64 32", "encryption_key: %s", quote("${ZABOR_KEY:-}"))
	w.neighbours()
	w.queues()
	w.enums()
	w.steps()
	w.bus()
}

var noName = regexp.MustCompile(`[^a-z0-9]+`)

func (w *initWriter) scope() string {
	name := w.Config.Get("app.name").Str()
	if name == "" {
		if absolute, err := filepath.Abs(w.Root); err == nil {
			name = filepath.Base(absolute)
		}
	}
	slug := strings.Trim(noName.ReplaceAllString(strings.ToLower(name), "-"), "-")
	return cmp.Or(slug, "shop") + "-" + strings.Trim(noName.ReplaceAllString(strings.ToLower(w.Environment.Str()), "-"), "-")
}

// refer is v as zabor.yaml can hold it: the variable that it came from, with what
// it is where that is not set; else its text. A secret is never a text.
func refer(v *app.Value, secret string) string {
	env := v.Origin().Env
	name, unset := strings.CutSuffix(env, " is not set")
	switch {
	case v == nil && secret == "":
		return ""
	case name == "" && secret != "":
		return "${" + secret + "}"
	case name == "":
		return escape(v.Str())
	case unset && secret == "" && v.Known():
		return "${" + name + ":-" + v.Str() + "}"
	case unset:
		return "${" + name + ":-}"
	}
	return "${" + name + "}"
}

// escape is a text in which zabor.yaml sees no variable.
func escape(text string) string { return strings.ReplaceAll(text, "$", "$$") }

func quote(text string) string { return strconv.Quote(text) }

// database is the fence's: the application's own, so that hooks can ride along.
func (w *initWriter) database() {
	const why = "the application's own database, so that its rows can ride along; "
	d := w.Database()
	if d != nil && d.URL != nil {
		w.line(why+d.URL.From.String(), "fence: %s", quote("${"+cmp.Or(strings.TrimSuffix(d.URL.From.Env, " is not set"), "DATABASE_URL")+"}"))
		return
	}
	if !d.Reachable() {
		w.line("the application's database is not known without running it, or is none of MySQL, MariaDB, PostgreSQL and SQLite: set the variable, or write the address", "fence: %s", quote("${ZABOR_FENCE}"))
		return
	}
	if d.Scheme == "sqlite" {
		w.line(why+d.Schema.From.String(), "fence: %s", quote(escape(w.DatabaseAddress().Str())))
		return
	}
	address := d.Scheme + "://" + refer(d.Username, "DB_USERNAME")
	if d.Password.Str() != "" {
		address += ":" + refer(d.Password, "DB_PASSWORD")
	}
	address += "@" + cmp.Or(refer(d.Host, ""), "localhost")
	if port := refer(d.Port, ""); port != "" {
		address += ":" + port
	}
	address += "/" + refer(d.Schema, "")
	if d.Socket.Str() != "" {
		address += "?unix_socket=" + refer(d.Socket, "")
	}
	w.line(why+d.Schema.From.String(), "fence: %s", quote(address))
}

// queue is the connection of Laravel on Redis that jobs go to which ask for the one of
// that name: else the default one, else the first; nil: none is on Redis.
func (w *initWriter) queue(name string) *app.Queue {
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

// connection is that of the first payment; empty: the default.
func (w *initWriter) connection() string {
	if len(w.payments) == 0 {
		return ""
	}
	return w.payments[0].Connection
}

func (w *initWriter) redis() {
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

func (w *initWriter) neighbours() {
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

func (w *initWriter) key(q app.Queue) string {
	if q.Redis == nil {
		return ""
	}
	if w.Framework == app.Symfony {
		return q.Options["stream"].Str()
	}
	return q.Redis.Prefix.Str() + "queues:"
}

func (w *initWriter) queues() {
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

// What a DSN holds of secrets that are no variables.
var (
	writtenOut  = regexp.MustCompile(`(://(?:[^:@/?${]*:)?)[^@/?${]+@`)
	authWritten = regexp.MustCompile(`(\bauth(?:\[\])?=)[^&${]+`)
)

var envPlaceholder = regexp.MustCompile(`%env\((?:[a-z_]+:)*([A-Za-z_]\w*)\)%`)

func (w *initWriter) transports() {
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
// the options that stand beside it. A password that is written out is replaced.
func (w *initWriter) dsn(q app.Queue) string {
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

func (w *initWriter) failed(q app.Queue, name string) {
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

// enums are those in the properties of payment messages.
func (w *initWriter) enums() {
	head := false
	seen := map[string]bool{}
	for _, payment := range w.payments {
		if payment.Class == nil {
			continue
		}
		for _, property := range payment.Class.Properties {
			enum := w.Class(property.Type)
			if enum == nil || enum.Kind != "enum" || seen[enum.Name] {
				continue
			}
			var cases []string
			for _, one := range enum.Cases {
				if one.Value != "" {
					cases = append(cases, one.Name+": "+quote(escape(one.Value)))
				}
			}
			if len(cases) == 0 {
				continue
			}
			if !head {
				w.line("", "")
				w.line("PHP puts a case's name into the message; requests need its value", "enums:")
				head = true
			}
			seen[enum.Name] = true
			w.line(fmt.Sprintf("%s:%d", enum.File, enum.Line), "  '%s': {%s}", enum.Name, strings.Join(cases, ", "))
		}
	}
}

var (
	orderName  = regexp.MustCompile(`(?i)order|invoice|booking`)
	amountName = regexp.MustCompile(`(?i)amount|cents|total|price|sum`)
	moneyName  = regexp.MustCompile(`(?i)^currency(code)?$`)
	notCharge  = regexp.MustCompile(`(?i)refund|capture|payout`)
)

// steps are comments: what is sent to a provider is for a person to write.
func (w *initWriter) steps() {
	w.line("", "")
	if len(w.payments) == 0 {
		w.line("", "# No job or handler was found that calls a payment provider. A step looks like the ones in zabor.example.yaml.")
		return
	}
	w.line("", "# Found: messages whose handling calls a payment provider. Complete a step, take \"# \" away (the space too), and let the")
	w.line("", "# application's handler no longer call the provider.")
	var names, used []string
	var steps strings.Builder
	for _, payment := range w.payments {
		name, profile := strings.ToLower(noName.ReplaceAllString(strings.ToLower(payment.Provider), "")), "custom"
		for _, b := range provider.Builtins() {
			if b.Title == payment.Provider && b.Uncallable == "" {
				name, profile = b.Name, b.Name
			}
		}
		if profile == "custom" {
			name = "acquirer"
		}
		if !slices.Contains(names, name+" "+profile) {
			names = append(names, name+" "+profile)
		}
		step := stepNameOf(payment)
		for n := 2; slices.Contains(used, step); n++ {
			step = fmt.Sprintf("%s-%d", stepNameOf(payment), n)
		}
		used = append(used, step)
		fmt.Fprintf(&steps, "#   %s:    # %s\n#     message: '%s'\n", step, payment.From, payment.Message)
		order, amount, currency, load := "ORDER", "AMOUNT", "EUR", ""
		if slices.Contains(roubles, name) {
			currency = "RUB"
		}
		if payment.Class != nil {
			for _, property := range payment.Class.Properties {
				if !property.Constructor && w.Framework == app.Laravel {
					continue // its own options, such as $tries
				}
				fmt.Fprintf(&steps, "#     # property %s\n", strings.TrimSpace(property.Name+" "+property.Type))
				path := property.Name
				model := strings.Contains(property.Type, `\Models\`) || strings.Contains(property.Type, `\Entity\`)
				if model {
					path += ".id"
				}
				switch {
				case orderName.MatchString(property.Name) && order == "ORDER":
					if order = path; model && w.Framework == app.Laravel {
						load = strings.ToLower(app.Short(property.Type)) + "s"
					}
				case moneyName.MatchString(property.Name):
					currency = path
				case amountName.MatchString(property.Name) && amount == "AMOUNT":
					amount = path
				}
			}
		}
		fmt.Fprintf(&steps, "#     order: %s\n", order)
		if load != "" && amount == "AMOUNT" {
			fmt.Fprintf(&steps, "#     load: \"SELECT … FROM %s WHERE id = :order\"    # on the queue a model is its id: amount and currency are columns of this\n", load)
		}
		fmt.Fprintf(&steps, "#     amount: %s          # minor units; a decimal: {major: …}\n#     currency: %s\n", amount, currency)
		if strings.HasPrefix(step, "refund") || strings.HasPrefix(step, "capture") {
			fmt.Fprintf(&steps, "#     part: PART              # the property that tells one %s of an order from the next; none where there is only one\n", step)
		}
		fmt.Fprintf(&steps, "#     provider: %s\n%s", name, requestOf(name, step))
		fmt.Fprintf(&steps, "#     # settled: \"INSERT INTO …\"    # what the handler noted of a payment: :order, :reference, :major or :amount (docs/hooks.md)\n")
	}
	w.line("", "# providers:")
	for _, both := range names {
		name, profile, _ := strings.Cut(both, " ")
		if profile == "custom" {
			w.line("", "#   %s: {profile: custom, base_url: https://…, reference: …, settled: {pointer: …, values: []}}    # key, lookup, declined, timeout: docs/providers.md", name)
		} else {
			account := ""
			if b, ok := provider.BuiltinNamed(profile); ok && b.Account != "" {
				account = fmt.Sprintf("account: \"${%s_ACCOUNT}\", ", strings.ToUpper(name)) // its value is no secret
			}
			w.line("", "#   %s: {profile: %s, %ssecret: \"${%s_SECRET}\"}", name, profile, account, strings.ToUpper(name))
		}
	}
	w.line("", "# steps:")
	w.text.WriteString(steps.String())
}

// requestOf is the skeleton of a call: for a charge at Stripe, of its two steps. Those
// would make a new charge of any other step.
func requestOf(provider, step string) string {
	if provider == "stripe" && strings.HasPrefix(step, stepCharge) {
		return `#     prepare: {path: /v1/payment_intents, form: {amount: "{{minor}}", currency: "{{lower currency}}", customer: "{{.CUSTOMER}}", payment_method: "{{.METHOD}}", "metadata[zabor_key]": "{{provider_key}}"}}
#     request: {path: "/v1/payment_intents/{{prepared}}/confirm", form: {off_session: "true"}}
`
	}
	if provider == "yookassa" && strings.HasPrefix(step, stepCharge) {
		return `#     request: {path: /payments, json: {amount: {value: "{{major}}", currency: "{{currency}}"}, capture: true, payment_method_id: "{{.METHOD}}", metadata: {order: "{{order}}"}}}
`
	}
	return `#     request: {path: /…, json: {amount: "{{minor}}", currency: "{{currency}}", order: "{{order}}"}}
`
}

// roubles are the providers that charge in roubles.
var roubles = []string{"yookassa", "tbank", "cloudpayments"}

// stepCharge is the step of what init takes for a new payment.
const stepCharge = "charge"

// stepNameOf is what the call that was found does; of a charge, what the class of its
// message says.
func stepNameOf(payment doctor.Payment) string {
	if payment.Kind != stepCharge && payment.Kind != "" {
		return payment.Kind
	}
	if m := notCharge.FindString(app.Short(payment.Message)); m != "" {
		return strings.ToLower(m)
	}
	return stepCharge
}

// bus names the other messages, which PHP goes on to handle.
func (w *initWriter) bus() {
	var others []string
	money := func(class string) bool {
		return slices.ContainsFunc(w.payments, func(p doctor.Payment) bool { return p.Message == class })
	}
	for _, job := range w.Jobs() {
		if !money(job.Name) {
			others = append(others, job.Name)
		}
	}
	for _, h := range w.Handlers() {
		if h.Message != "" && !money(h.Message) && !slices.Contains(others, h.Message) {
			others = append(others, h.Message)
		}
	}
	if len(others) == 0 {
		return
	}
	w.line("", "")
	w.line("", "# The other messages of the application. Where they come on the same queue, PHP's workers go on with them:")
	w.line("", "# bus:")
	w.line("", "#   forward:")
	for _, class := range others {
		w.line("", "#     '%s': default", class)
	}
}

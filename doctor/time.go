package doctor

import (
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"zabor/internal/app"
)

func unread(c *check) {
	for _, n := range c.Notices {
		fix := n.Fix
		if fix == "" {
			fix = "nothing of it was judged: look at it with your own eyes, or rewrite the line in older syntax"
		}
		severity := c.rule.Severity
		if configures(n.File) {
			severity = Warning
		}
		c.add(severity, app.Origin{File: n.File, Line: n.Line}, fix, "%s", n.What)
	}
}

// configures reports whether settings that rules rest on are in a file: where it is
// not understood, they were taken for not set.
func configures(file string) bool {
	base := path.Base(file)
	return strings.HasPrefix(base, ".env") || strings.HasPrefix(file, "config/") || strings.HasPrefix(file, "bootstrap/cache/") ||
		slices.Contains([]string{".yaml", ".yml", ".conf", ".ini", ".service"}, path.Ext(base))
}

// setting is the line to write so that v is n: of the environment variable that it
// comes from, else line, in the file that it is in.
func setting(v *app.Value, line string, n int) string {
	o := v.Origin()
	name, unset := strings.CutSuffix(o.Env, " is not set")
	switch {
	case name != "" && (unset || o.Set != ""):
		return fmt.Sprintf("%s=%d, in .env and wherever the environment is set", name, n)
	case name != "":
		return fmt.Sprintf("%s=%d, in %s", name, n, o.File)
	}
	return line + ", in " + o.File
}

// limit is how long something may take, and who says so.
type limit struct {
	time  time.Duration // 0: for ever
	value *app.Value
	who   string
	queue *app.Queue
	job   bool // it is a job's own, and not a worker's
}

// reserve compares how long jobs may run with how long they are reserved.
func reserve(c *check) {
	if c.Framework == app.Symfony {
		redeliver(c)
		return
	}
	for _, l := range jobLimits(c) {
		if l.queue == nil || l.queue.Reserve == nil {
			continue
		}
		kept, ok := seconds(l.queue.Reserve)
		if !ok || l.time > 0 && l.time < kept {
			continue
		}
		need := max(l.time, 60*time.Second) + 30*time.Second
		place := l.value.Origin()
		if place.File == "" || place.Default != "" {
			place = l.queue.Reserve.Origin()
		}
		ran := "may run " + secs(l.value)
		if l.time == 0 {
			ran = fmt.Sprintf("may run for ever (timeout %s)", from(l.value))
		}
		fix := fmt.Sprintf("%s, for queue connection %s: longer than anything runs on it", setting(l.queue.Reserve, fmt.Sprintf("'retry_after' => %d", int(need.Seconds())), int(need.Seconds())), l.queue.Name)
		if l.time == 0 {
			fix = fmt.Sprintf("--timeout=%d, or public $timeout = %d; in the job: below retry_after", int(kept.Seconds())-30, int(kept.Seconds())-30)
		}
		c.at(place, fix, "%s %s, and queue connection %s hands a job to the next worker after %s: both run it", l.who, ran, l.queue.Name, secs(l.queue.Reserve))
	}
}

// jobLimits are the time-outs of Laravel's workers and jobs.
func jobLimits(c *check) []limit {
	var list []limit
	add := func(who string, v *app.Value, queue *app.Queue) {
		if n, ok := v.Int(); ok {
			list = append(list, limit{time: time.Duration(n) * time.Second, value: v, who: who, queue: queue})
		}
	}
	workers := 0
	for _, w := range c.Workers {
		if w.Kind() != "queue:work" {
			continue
		}
		workers++
		timeout := w.Flag("timeout")
		if timeout == nil {
			timeout = &app.Value{Kind: app.Int, Text: "60", From: app.Origin{Default: "queue:work"}}
		}
		add("worker "+w.Name, timeout, workerQueue(c, w))
	}
	for _, s := range c.HorizonSupervisors() {
		workers++
		timeout := s.Config.Get("timeout")
		if timeout == nil {
			timeout = &app.Value{Kind: app.Int, Text: "60", From: app.Origin{Default: "Horizon"}}
		}
		add("Horizon's "+s.Name, timeout, c.Queue(s.Config.Get("connection").Str()))
	}
	for _, job := range c.Jobs() {
		if v := jobOption(c, job, "timeout"); v != nil {
			before := len(list)
			add(app.Short(job.Name), v, jobQueue(c, job))
			for i := before; i < len(list); i++ {
				list[i].job = true
			}
		}
	}
	if workers == 0 {
		add("a worker", &app.Value{Kind: app.Int, Text: "60", From: app.Origin{Default: "queue:work"}}, c.Queue(""))
	}
	return list
}

// workerQueue is the queue connection that queue:work takes from.
func workerQueue(c *check, w app.Worker) *app.Queue {
	if args := w.Args(); len(args) > 0 {
		if q := c.Queue(args[0]); q != nil {
			return q
		}
	}
	return c.Queue("") // a connection that is not configured here is not known
}

// jobOption is a public property of a job such as $timeout, or the attribute of
// that name; nil: the job says nothing.
func jobOption(c *check, job *app.Class, name string) *app.Value {
	if p := c.Property(job, name); p != nil && p.Default.Known() && p.Default.Kind != app.Null {
		return p.Default
	}
	if a := job.Attribute(strings.ToUpper(name[:1]) + name[1:]); a != nil && len(a.Args) > 0 && a.Args[0].Value.Known() {
		return a.Args[0].Value
	}
	return nil
}

// jobCall is what a job, or whoever dispatches it, passes to the method of that
// name, such as onQueue; nil: nothing that can be read here.
func jobCall(c *check, job *app.Class, name string) *app.Value {
	of := func(classes []*app.Class, own bool) *app.Value {
		for _, class := range classes {
			for _, m := range class.Methods {
				for _, call := range m.Calls {
					if call.Name == name && len(call.Args) > 0 && call.Args[0].Value.Known() &&
						(own && call.Root == "$this" || !own && call.On != nil && strings.EqualFold(strings.TrimPrefix(call.On.Class, `\`), job.Name)) {
						return call.Args[0].Value
					}
				}
			}
		}
		return nil
	}
	if v := of([]*app.Class{job}, true); v != nil {
		return v
	}
	return of(c.Classes, false)
}

// jobQueue is the queue connection that a job asks for, else the default one.
func jobQueue(c *check, job *app.Class) *app.Queue {
	if v := jobOption(c, job, "connection"); v != nil {
		return c.Queue(v.Str())
	}
	if v := jobCall(c, job, "onConnection"); v != nil {
		return c.Queue(v.Str())
	}
	return c.Queue("")
}

// redeliver compares how long a handler's call may take with redeliver_timeout.
func redeliver(c *check) {
	for _, q := range c.Queues() {
		if q.Redis == nil {
			continue
		}
		kept, ok := seconds(q.Reserve)
		if !ok || kept <= 0 {
			c.at(q.Reserve.Origin(), "redeliver_timeout: 3600, in seconds, under options of transport "+q.Name,
				"redeliver_timeout of transport %s is %s, which Symfony takes for 0: a message is handed to the next worker while the first one handles it", q.Name, from(q.Reserve))
			continue
		}
		for _, call := range c.money.all() {
			if !routed(c, call.entry.message, q.Name) {
				continue
			}
			l, ok := callLimit(c, call)
			if !ok || l.time > 0 && l.time < kept {
				continue
			}
			if l.time == 0 {
				continue // a finding of its own
			}
			need := int(l.time.Seconds())*2 + 60
			c.at(q.Reserve.Origin(), setting(q.Reserve, fmt.Sprintf("redeliver_timeout: %d", need), need)+", for transport "+q.Name,
				"%s may wait %s for %s, and transport %s hands its message to the next worker after %s: both charge", app.Short(call.entry.class.Name), secs(l.value), call.provider, q.Name, secs(q.Reserve))
		}
	}
}

// routed reports whether messages of a class go to a transport.
func routed(c *check, message, transport string) bool {
	return slices.ContainsFunc(c.Routing(message), func(v *app.Value) bool { return v.Str() == transport })
}

// clientTimeout compares the time-out of the provider's client with the job's.
func clientTimeout(c *check) {
	for _, call := range c.money.all() {
		l, ok := callLimit(c, call)
		if !ok {
			continue
		}
		place := l.value.Origin()
		if place.File == "" || place.Default != "" {
			place = source(call.in.Class, call.call.Line)
		}
		if l.time == 0 {
			c.at(place, limitFix(c, call), "the call of %s may take for ever (%s): the job ends, and is run again, while the provider still works on it", call.provider, l.who)
			continue
		}
		if c.Framework == app.Symfony {
			continue // Messenger has no time-out of its own; the reserve is ZB110's
		}
		job, ok := jobTimeout(c, call.entry.class)
		if !ok || job.time == 0 || l.time < job.time {
			continue
		}
		c.at(place, limitFix(c, call)+fmt.Sprintf(", or public $timeout = %d; in %s, and retry_after above it", int(l.time.Seconds())+30, app.Short(call.entry.class.Name)),
			"the call of %s may take %s s (%s), and the job is killed after %s: killed after the provider has charged, it is run again", call.provider, l.value, l.who, secs(job.value))
	}
}

func limitFix(c *check, call charge) string {
	switch {
	case c.Framework == app.Symfony && call.http:
		return "'timeout' => 20, 'max_duration' => 30, in the options of the request (or under framework.http_client.default_options)"
	case call.provider == "Stripe" && !call.http:
		return `\Stripe\ApiRequestor::setHttpClient($client), with $client = new \Stripe\HttpClient\CurlClient(); $client->setTimeout(30);`
	case call.http && app.Short(call.call.Class) == "Http":
		return "->timeout(30), in the chain before the call"
	case call.http:
		return "'timeout' => 30, in the options of the client or of the request"
	}
	return "the SDK's time-out, set to 30 s"
}

// jobTimeout is the shortest time after which a worker kills the job.
func jobTimeout(c *check, job *app.Class) (limit, bool) {
	if v := jobOption(c, job, "timeout"); v != nil {
		n, ok := v.Int()
		return limit{time: time.Duration(n) * time.Second, value: v}, ok
	}
	queue := jobQueue(c, job)
	var shortest limit
	found := false
	for _, l := range jobLimits(c) {
		if l.queue == nil || queue == nil || l.queue.Name != queue.Name || l.job {
			continue // another job's own limit says nothing about this one
		}
		if !found || l.time < shortest.time && l.time > 0 {
			shortest, found = l, true
		}
	}
	if !found {
		return limit{time: time.Minute, value: &app.Value{Kind: app.Int, Text: "60", From: app.Origin{Default: "queue:work"}}}, true
	}
	return shortest, true
}

// callLimit is how long the call of a provider may take; ok is false when that
// is not known.
func callLimit(c *check, call charge) (limit, bool) {
	byDefault := func(n int, who string) (limit, bool) {
		return limit{time.Duration(n) * time.Second, &app.Value{Kind: app.Int, Text: strconv.Itoa(n), From: app.Origin{Default: who}}, "default of " + who, nil, false}, true
	}
	if !call.http {
		for _, m := range c.Classes {
			for _, method := range m.Methods {
				for _, set := range method.Calls {
					if set.Name == "setTimeout" && strings.HasPrefix(set.Class, `Stripe\`) && len(set.Args) > 0 {
						if n, ok := set.Args[0].Value.Int(); ok && call.provider == "Stripe" {
							return limit{time.Duration(n) * time.Second, set.Args[0].Value, "setTimeout", nil, false}, true
						}
					}
				}
			}
		}
		if call.provider == "Stripe" {
			return byDefault(80, "Stripe's PHP library")
		}
		return limit{}, false
	}
	if v := optionOf(call, "max_duration"); v != nil {
		return limitOf(v, "max_duration")
	}
	for _, part := range call.call.Chain() {
		if part.Name == "timeout" && len(part.Args) > 0 {
			return limitOf(part.Args[0].Value, "timeout()")
		}
	}
	switch app.Short(call.call.Class) {
	case "HttpClientInterface":
		return symfonyLimit(c)
	case "Client", "ClientInterface":
		if v := optionOf(call, "timeout"); v != nil {
			return limitOf(v, "timeout")
		}
		if v := clientOption(c, call, "timeout"); v != nil {
			return limitOf(v, "timeout of the client")
		}
		return byDefault(0, "Guzzle: no time-out")
	}
	if v := optionOf(call, "timeout"); v != nil {
		return limitOf(v, "timeout")
	}
	if c.Version.Before(9, 0) {
		return byDefault(0, "Laravel 8's HTTP client: no time-out")
	}
	return byDefault(30, "Laravel's HTTP client")
}

func limitOf(v *app.Value, who string) (limit, bool) {
	n, ok := v.Int()
	return limit{time.Duration(n) * time.Second, v, who, nil, false}, ok
}

// symfonyLimit is what framework.http_client says. timeout is how long nothing
// may arrive, not how long the call may take; only max_duration bounds it.
func symfonyLimit(c *check) (limit, bool) {
	client := c.Config.Get("framework.http_client")
	if v := client.Get("default_options.max_duration"); v != nil {
		return limitOf(v, "max_duration")
	}
	for _, scoped := range client.Get("scoped_clients").List() {
		if v := scoped.Get("max_duration"); v != nil {
			return limitOf(v, "max_duration of a scoped client")
		}
	}
	return limit{0, &app.Value{Kind: app.Int, Text: "0", From: app.Origin{Default: "Symfony's HTTP client"}}, "max_duration is not set; timeout only bounds the silence between two bytes", nil, false}, true
}

// optionOf is an entry of the options that a request is given, or that were given
// to withOptions before.
func optionOf(call charge, name string) *app.Value {
	for _, part := range call.call.Chain() {
		if part != call.call && part.Name != "withOptions" {
			continue
		}
		for _, arg := range part.Args {
			if v := arg.Value.Get(name); v != nil {
				return v
			}
		}
	}
	return nil
}

// clientOption is an entry of the options that the client was made with, in the
// class of the call.
func clientOption(c *check, call charge, name string) *app.Value {
	for _, m := range call.in.Class.Methods {
		for _, made := range m.Calls {
			if made.Name == "new" && made.Class == call.call.Class && len(made.Args) > 0 {
				if v := made.Args[0].Value.Get(name); v != nil {
					return v
				}
			}
		}
	}
	return nil
}

// longestReserve is what a reserve may be before it is taken for a mistake.
const longestReserve = 7 * 24 * time.Hour

// reserveOfWeeks finds queues whose messages come back only after weeks.
func reserveOfWeeks(c *check) {
	for _, q := range c.Queues() {
		kept, ok := seconds(q.Reserve)
		if !ok || kept <= longestReserve || q.Reserve.Origin().Default != "" {
			continue
		}
		name := "retry_after"
		if c.Framework == app.Symfony {
			name = "redeliver_timeout"
		}
		c.at(q.Reserve.Origin(), setting(q.Reserve, fmt.Sprintf("%s: %d", name, int(kept.Seconds())/1000), int(kept.Seconds())/1000)+", if these are milliseconds: it is in seconds",
			"%s of queue %s is %s, which is %d days: a message whose worker was killed is handed to nobody before", name, q.Name, secs(q.Reserve), int(kept.Hours()/24))
	}
}

// stopGrace compares how long a worker is given to stop with how long its call
// may take.
func stopGrace(c *check) {
	for _, w := range c.Workers {
		need, why := stopNeeds(c, w)
		if need == 0 || w.GraceTime >= need {
			continue
		}
		place := w.Grace.Origin()
		n := int(need.Seconds()) + 30
		fix := map[string]string{
			"supervisor": fmt.Sprintf("stopwaitsecs=%d, in [program:%s]", n, w.Name),
			"compose":    fmt.Sprintf("stop_grace_period: %ds, in service %s", n, w.Name),
			"systemd":    fmt.Sprintf("TimeoutStopSec=%d, in [Service]", n),
			"kubernetes": fmt.Sprintf("terminationGracePeriodSeconds: %d, in the pod's spec", n),
		}[w.By]
		c.at(place, fix, "%s kills %s %s after it told it to stop, and %s: at a deployment it dies between the provider's answer and the ack", w.By, w.Name, secs(w.Grace), why)
	}
}

// stopNeeds is how long a worker may need to finish what it has begun; 0: not
// known.
func stopNeeds(c *check, w app.Worker) (time.Duration, string) {
	switch w.Kind() {
	case "zabor":
		return c.o.StopNeeds, fmt.Sprintf("zabor says at its start that it needs %s", c.o.StopNeeds)
	case "messenger:consume":
		var longest limit
		for _, call := range c.money.all() {
			if l, ok := callLimit(c, call); ok && l.time > longest.time {
				longest = l
			}
		}
		if longest.time == 0 {
			return 0, ""
		}
		return longest.time, "a call may take " + secs(longest.value)
	}
	var longest limit
	for _, l := range jobLimits(c) {
		if w.Kind() == "queue:work" && strings.HasPrefix(l.who, "worker ") && l.who != "worker "+w.Name || strings.HasPrefix(l.who, "Horizon") != (w.Kind() == "horizon") && (strings.HasPrefix(l.who, "Horizon") || strings.HasPrefix(l.who, "worker ")) {
			continue
		}
		if l.time > longest.time {
			longest = l
		}
	}
	if longest.time == 0 {
		return 0, ""
	}
	return longest.time, longest.who + " may run " + secs(longest.value)
}

package doctor

import (
	"fmt"
	"strings"

	"zabor/internal/app"
)

// unlimitedTries finds what is tried for ever.
func unlimitedTries(c *check) {
	const why = "a charge that fails in between is made again and again, and no one is ever told"
	for _, w := range c.Workers {
		if v := w.Flag("tries"); v != nil && v.Str() == "0" && w.Kind() == "queue:work" {
			c.at(w.From, "--tries=3", "worker %s has --tries=0, without end: %s", w.Name, why)
		}
	}
	for _, s := range c.HorizonSupervisors() {
		tries := s.Config.Get("tries")
		switch n, ok := tries.Int(); {
		case tries == nil:
			c.at(s.From, "'tries' => 3, in supervisor "+s.Name, "Horizon's %s has no tries, which is 0 and means without end: %s", s.Name, why)
		case ok && n == 0:
			c.at(tries.From, "'tries' => 3, in supervisor "+s.Name, "Horizon's %s has tries %s, without end: %s", s.Name, from(tries), why)
		}
	}
	for _, job := range c.Jobs() {
		v := jobOption(c, job, "tries")
		if n, ok := v.Int(); ok && n == 0 && c.Method(job, "retryUntil") == nil {
			c.at(v.From, "public $tries = 3;", "%s has $tries 0, without end: %s", app.Short(job.Name), why)
		}
	}
	for _, h := range c.Handlers() {
		for _, m := range h.Class.Methods {
			for _, call := range m.Calls {
				if call.Name == "new" && app.Short(call.Class) == "RecoverableMessageHandlingException" {
					c.at(source(h.Class, call.Line), "throw another exception: then max_retries of the transport's retry_strategy counts",
						"%s throws RecoverableMessageHandlingException, which is retried for ever, whatever max_retries says: %s", app.Short(h.Class.Name), why)
				}
			}
		}
	}
}

// failureTransport finds queues from which a message that failed vanishes.
func failureTransport(c *check) {
	if c.Framework == app.Laravel {
		if len(c.Jobs()) == 0 {
			return
		}
		failed := c.Config.Get("queue.failed")
		driver := failed.Get("driver")
		if driver == nil && failed.Get("database") != nil {
			return // Laravel before 8 has no driver
		}
		if driver == nil || driver.Kind == app.Null || driver.Str() == "null" || driver.Str() == "" {
			place := driver.Origin()
			if driver == nil {
				place = c.Config.Get("queue").Origin()
			}
			c.at(place, "'driver' => 'database-uuids', in failed of config/queue.php; php artisan queue:failed-table (make:queue-failed-table since 11)",
				"failed jobs go nowhere (queue.failed.driver is %s): after its last attempt a charge is lost without a trace", driver)
		}
		return
	}
	whole := c.Config.Get("framework.messenger.failure_transport")
	for _, q := range c.Queues() {
		if q.Driver == "sync" || q.Driver == "in-memory" || q.Driver == "" {
			continue
		}
		if whole.Str() != "" || q.Config.Get("failure_transport").Str() != "" {
			continue
		}
		c.at(q.From, "failure_transport: failed, under framework.messenger, and transport failed: 'doctrine://default?queue_name=failed'",
			"transport %s has no failure transport: after its last retry a message is deleted, and with it the charge that nobody can look up", q.Name)
	}
}

// repeatedInPlace finds clients that send a payment request again by themselves.
func repeatedInPlace(c *check) {
	for _, call := range c.money.charges {
		for _, part := range call.call.Chain() {
			if strings.EqualFold(part.Name, "retry") {
				c.at(source(call.in.Class, part.Line), "take ->retry(…) out; let the queue try again, with the same idempotency key",
					"the call of %s is sent again by the client itself: after a time-out that is a second charge, before anything could look", call.provider)
			}
		}
		for _, other := range call.in.Calls {
			if other.Name == "retry" && other.Root == "" && strings.Contains(strings.Join(texts(other), " "), call.call.Name) {
				c.at(source(call.in.Class, other.Line), "take retry(…) out; let the queue try again, with the same idempotency key",
					"retry() repeats the call of %s in place: after a time-out that is a second charge", call.provider)
			}
		}
		for _, m := range call.in.Class.Methods {
			for _, other := range m.Calls {
				if call.http && other.Name == "retry" && app.Short(other.Class) == "Middleware" && strings.HasPrefix(other.Class, "GuzzleHttp") {
					c.at(source(call.in.Class, other.Line), "a client without Middleware::retry for payments",
						"Guzzle's retry middleware sends the call of %s again by itself: after a time-out that is a second charge", call.provider)
				}
			}
		}
		if c.Framework == app.Symfony && call.http {
			for _, v := range retrying(c) {
				c.at(v.From, "retry_failed: false, for the client that charges",
					"the HTTP client sends requests again by itself (retry_failed), a POST too after 502 and 503: the call of %s may be made twice", call.provider)
			}
		}
	}
}

func texts(call *app.Call) []string {
	var list []string
	for _, a := range call.Args {
		list = append(list, a.Text)
	}
	return list
}

// retrying are the retry_failed of Symfony's HTTP clients that are on.
func retrying(c *check) []*app.Value {
	var list []*app.Value
	client := c.Config.Get("framework.http_client")
	options := append([]*app.Value{client.Get("default_options")}, client.Get("scoped_clients").List()...)
	for _, o := range options {
		v := o.Get("retry_failed")
		if v == nil || v.Kind == app.Map && v.Get("enabled") != nil && !v.Get("enabled").True() {
			continue
		}
		if v.Kind == app.Map || v.True() {
			list = append(list, v)
		}
	}
	return list
}

// syncQueue finds payment jobs that run in the request of the page that
// dispatches them.
func syncQueue(c *check) {
	const why = "it runs in the visitor's request: nothing tries it again but the visitor, who presses the button once more"
	for _, e := range c.money.jobs() {
		if c.Framework == app.Laravel {
			if q := jobQueue(c, e.class); q != nil && q.Driver == "sync" {
				v := c.Config.Get("queue.default")
				place := q.From
				if q.Default {
					place = v.Origin()
				}
				c.at(place, "QUEUE_CONNECTION=redis, in .env", "%s goes to queue connection %s, which is no queue: %s", app.Short(e.class.Name), q.Name, why)
			}
			continue
		}
		for _, to := range c.Routing(e.message) {
			if q := c.Queue(to.Str()); q != nil && q.Driver == "sync" {
				c.at(q.From, fmt.Sprintf("'%s': async, under framework.messenger.routing", e.message), "%s goes to transport %s, which is no queue: %s", app.Short(e.message), q.Name, why)
			}
		}
	}
}

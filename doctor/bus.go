package doctor

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"zabor/internal/app"
)

var (
	pageName    = regexp.MustCompile(`^(Process|Handle|Do)?(Login|Logout|Authenticate|Authentication|SignIn|Csrf|VerifyCsrf|XsrfToken|ApiUser|CurrentUser|GetUser|GetApiUser|FetchUser|ShowUser|RefreshToken|IssueToken|CheckPassword)(Job|Message|Command|Query|Request|Check|Token|User)*$`)
	pageRequest = regexp.MustCompile(`(?i)(csrf|xsrf)`)
)

// pageMessages finds messages on a bus that a page waits for.
func pageMessages(c *check) {
	const why = "a visitor waits for it: when it comes late or twice he is logged out, or logs in for nothing; it is no work for a queue"
	if c.Framework == app.Laravel {
		for _, job := range c.Jobs() {
			if pageLike(job.Name) {
				c.at(source(job, job.Line), "call it in the request: (new "+app.Short(job.Name)+"(…))->handle(), without implements ShouldQueue; in zabor.yaml: bus.refuse: ['"+job.Name+"']",
					"%s is on the queue: %s", app.Short(job.Name), why)
			}
		}
		return
	}
	routing := c.Config.Get("framework.messenger.routing")
	if routing == nil {
		return
	}
	for _, name := range routing.Keys {
		if !pageLike(strings.TrimPrefix(name, `\`)) {
			continue
		}
		async := slices.ContainsFunc(c.Routing(strings.TrimPrefix(name, `\`)), func(v *app.Value) bool {
			q := c.Queue(v.Str())
			return q != nil && q.Driver != "sync"
		})
		if async {
			o := c.RoutingKey(strings.TrimPrefix(name, `\`))
			c.at(o, fmt.Sprintf("take the line out: then it is handled in the request; in zabor.yaml: bus.refuse: ['%s']", name),
				"%s is routed to %s: %s", app.Short(name), routing.Items[name], why)
		}
	}
}

func pageLike(class string) bool {
	name := app.Short(class)
	return pageName.MatchString(name) || pageRequest.MatchString(name)
}

// waitedFor finds code that dispatches a message and waits for its result.
func waitedFor(c *check) {
	jobs := map[string]bool{}
	for _, e := range c.money.jobs() {
		jobs[strings.ToLower(e.message)] = true
	}
	for _, class := range c.Classes {
		if unattended(c, class) {
			continue // nobody sits before it
		}
		for _, m := range class.Methods {
			if call, what := waits(c, class, m, jobs); call != nil {
				c.at(source(class, call.Line), "dispatch it and answer at once; the page asks for the order's state, or is told by an event",
					"%s::%s %s: a visitor who gives up and presses the button again starts a second charge beside the first", app.Short(class.Name), m.Name, what)
			}
		}
	}
}

// unattended reports whether a class runs where no visitor waits: on a console, by a
// schedule, on a queue, or in a test or seeder.
func unattended(c *check, class *app.Class) bool {
	if c.Is(class, "Command", "ContainerAwareCommand", "ShouldQueue", "Dispatchable", "Queueable", "InteractsWithQueue", "MessageHandlerInterface", "Seeder", "ConsoleKernel", "Kernel") ||
		class.Attribute("AsCommand") != nil || class.Attribute("AsMessageHandler") != nil || class.Attribute("AsCronTask") != nil || class.Attribute("AsPeriodicTask") != nil {
		return true
	}
	parts := strings.Split(class.Name, `\`)
	return slices.ContainsFunc(parts[:len(parts)-1], func(part string) bool {
		return slices.Contains([]string{"Console", "Command", "Commands", "Cron", "Crons", "Jobs", "Job", "Schedule", "Scheduler", "MessageHandler", "Seeders", "Tests"}, part)
	})
}

// waits is the call in m that waits for a message.
func waits(c *check, class *app.Class, m *app.Method, jobs map[string]bool) (*app.Call, string) {
	var dispatched *app.Call
	for _, call := range m.Calls {
		switch name := strings.ToLower(call.Name); {
		case (name == "dispatchsync" || name == "dispatchnow") && jobs[strings.ToLower(call.Class)]:
			return call, "runs " + app.Short(call.Class) + " in the request"
		case name == "dispatch_sync" || name == "dispatchsync" || name == "dispatchnow":
			for _, other := range m.Calls {
				if other.Name == "new" && jobs[strings.ToLower(other.Class)] {
					return call, "runs " + app.Short(other.Class) + " in the request"
				}
			}
		case name == "dispatch":
			dispatched = call
		}
	}
	if dispatched == nil {
		if c.Framework == app.Symfony && c.Is(class, "HandleTrait") {
			for _, call := range m.Calls {
				if call.Name != "handle" || call.Root != "$this" {
					continue
				}
				for _, made := range m.Calls {
					if made.Name == "new" && onQueue(c, made.Class) {
						return call, "asks HandleTrait for the result of " + app.Short(made.Class) + ", which is handled elsewhere, later"
					}
				}
			}
		}
		return nil, ""
	}
	for _, call := range m.Calls {
		if call.Line < dispatched.Line || call == dispatched {
			continue
		}
		switch name := strings.ToLower(call.Name); {
		case name == "sleep" || name == "usleep":
			return call, "dispatches a message and then sleeps until it is done"
		case (name == "last" || name == "all") && strings.Contains(strings.Join(texts(call), " "), "HandledStamp"):
			for _, made := range m.Calls {
				if made.Name == "new" && onQueue(c, made.Class) {
					return call, "asks for the result of " + app.Short(made.Class) + ", which is handled elsewhere, later"
				}
			}
		}
	}
	return nil, ""
}

// onQueue reports whether messages of a class of the application go to a queue.
func onQueue(c *check, class string) bool {
	return slices.ContainsFunc(c.Routing(class), func(v *app.Value) bool {
		q := c.Queue(v.Str())
		return q != nil && q.Driver != "sync"
	})
}

package doctor

import (
	"slices"

	"zabor/internal/app"
)

// Payment is a message whose handling calls a payment provider.
type Payment struct {
	Message  string     // the class that is on the queue
	Class    *app.Class // the same, where the application has it; nil: it has not
	Provider string     // as people call it
	Queue    string     // Laravel: the queue that it asks for; Symfony: the transport; empty: the default
	From     app.Origin // of the call

	// Kind is what the call does: charge, capture, refund, transfer or payout.
	Kind string

	Connection string // Laravel: the queue connection that it asks for; empty: the default
}

// Payments are the messages of an application that lead to calls of payment
// providers, each once.
func Payments(p *app.Project) []Payment {
	var list []Payment
	seen := map[string]bool{}
	all := newMoney(p, Options{}).all()
	slices.SortStableFunc(all, func(a, b charge) int { // of several calls the one that charges
		switch {
		case (a.kind == "charge") == (b.kind == "charge"):
			return 0
		case a.kind == "charge":
			return -1
		}
		return 1
	})
	for _, c := range all {
		if seen[c.entry.message] {
			continue
		}
		seen[c.entry.message] = true
		one := Payment{Message: c.entry.message, Class: p.Class(c.entry.message), Provider: c.provider, Kind: c.kind, From: source(c.in.Class, c.call.Line)}
		if p.Framework == app.Symfony {
			if to := p.Routing(c.entry.message); len(to) > 0 {
				one.Queue = to[0].Str()
			}
		} else if class := c.entry.class; class != nil {
			v := jobOption(&check{Project: p}, class, "queue")
			if v == nil {
				v = jobCall(&check{Project: p}, class, "onQueue")
			}
			one.Queue = v.Str()
		}
		if p.Framework == app.Laravel && c.entry.class != nil {
			if q := jobQueue(&check{Project: p}, c.entry.class); q != nil {
				one.Connection = q.Name
			}
		}
		list = append(list, one)
	}
	return list
}

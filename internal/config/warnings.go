package config

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"zabor/card"
	"zabor/step"
)

// LongestReserve is what a queue's reserve may be before it is taken for a mistake.
const LongestReserve = 7 * 24 * time.Hour

// Warnings lists what c says that is allowed, works, and had better be otherwise.
func (c *Config) Warnings() []Finding {
	var findings []Finding
	warn := func(p path, what, fix string) {
		at := c.at(p)
		findings = append(findings, Finding{File: c.Path, Line: at.line, Column: at.column, Key: p.String(), What: what, Fix: fix})
	}
	if len(c.Steps) == 0 && len(c.Queues) > 0 && c.Proxy == nil {
		warn(path{"steps"}, "are missing: no message of the queues is taken for a payment, and a worker with this file charges nobody",
			"complete a step of those that \"zabor init\" wrote as comments, or write one: zabor.example.yaml has every key")
	}
	if !c.keys.Seals() && len(c.Steps) > 0 {
		warn(path{"encryption_key"}, "is not set: the fence's table keeps the request of an open row, and answers, so that everybody can read them there",
			"make one by \"openssl rand -base64 32\" and write encryption_key: \"${ZABOR_KEY}\"")
	}
	for _, name := range slices.Sorted(maps.Keys(c.Queues)) {
		q := c.Queues[name]
		kept, p := time.Duration(0), path{"queues", name}
		switch {
		case q.Laravel != nil:
			kept, p = q.Laravel.RetryAfter, p.child("laravel").child("retry_after")
		case q.Symfony != nil:
			kept, p = q.Symfony.RedeliverTimeout, p.child("symfony").child("redeliver_timeout")
			if inDSN, ok := redeliverTimeout(q.Symfony.DSN); ok {
				kept, p = inDSN, path{"queues", name, "symfony", "dsn"}
			}
		}
		if kept > LongestReserve {
			warn(p, fmt.Sprintf("is %d days: a message whose worker was killed is handed to nobody before", int(kept.Hours()/24)), "write seconds; were these milliseconds?")
		}
	}
	for _, name := range slices.Sorted(maps.Keys(c.Steps)) {
		s := c.Steps[name]
		for key, r := range map[string]*Request{"prepare": s.Prepare, "request": s.Request} {
			if field := r.cardField(); field != "" {
				warn(path{"steps", name, key}, fmt.Sprintf("%s is a card's number or code: such a request is not kept, so that a doubtful call of this step is only looked up and never sent again", field),
					"send a token that the provider gave for the card, where it has such")
			}
		}
	}
	for _, s := range c.steps {
		for _, bound := range s.Binds() {
			if like := likeParameter(bound); like != "" && !s.Names(bound) {
				warn(path{"steps", s.Name()}, fmt.Sprintf(":%s in a hook is no parameter of a row, and is taken for a property of the message", bound), fmt.Sprintf("did you mean :%s?", like))
			}
		}
	}
	for _, file := range slices.Sorted(maps.Keys(c.files)) {
		// Docker and Kubernetes mount secrets so that all may read them, into a container of one user.
		if info := c.files[file]; info != nil && info.Mode().Perm()&0o004 != 0 && !strings.HasPrefix(file, "/run/secrets/") && !strings.HasPrefix(file, "/var/run/secrets/") {
			findings = append(findings, Finding{File: file, What: "every user of this machine may read this secret", Fix: "chmod 600 " + file + ", and let zabor's user own it"})
		}
	}
	inOrder(findings)
	return findings
}

// likeParameter is the parameter of a row that name may have been meant for; empty: none.
func likeParameter(name string) string {
	names := step.RowParameters()
	for _, parameter := range names {
		if len(name) > 2 && strings.HasPrefix(parameter, name) || strings.HasPrefix(name, parameter+"_") {
			return parameter
		}
	}
	return nearest(name, names)
}

// cardField is the first field of r that is a card's by its name; empty: none.
func (r *Request) cardField() string {
	if r == nil {
		return ""
	}
	for _, name := range slices.Sorted(maps.Keys(r.Form)) {
		if card.Field(name) {
			return name
		}
	}
	if r.JSON == nil {
		return ""
	}
	return cardIn("", r.JSON.Value)
}

func cardIn(name string, v any) string {
	switch v := v.(type) {
	case map[string]any:
		for _, property := range slices.Sorted(maps.Keys(v)) {
			if found := cardIn(strings.TrimPrefix(name+"."+property, "."), v[property]); found != "" {
				return found
			}
		}
	case []any:
		for _, entry := range v {
			if found := cardIn(name, entry); found != "" {
				return found
			}
		}
	default:
		if card.Field(name) {
			return name
		}
	}
	return ""
}

package doctor

import (
	"regexp"
	"slices"
	"strings"

	"zabor/internal/app"
)

// unfenced finds calls of payment providers that a second delivery makes again.
func unfenced(c *check) {
	for _, call := range c.money.charges {
		if inserted(call.in, call.call.Line) != nil || isUpsertOrLook(call) {
			continue // a fence of its own, whose kind is judged by other rules
		}
		what := "a handler"
		if c.Framework == app.Laravel {
			what = "a job"
		}
		c.at(source(call.in.Class, call.call.Line),
			`call it through zabor's proxy (http://127.0.0.1:8070/PROVIDER/…) with the headers Zabor-Order: ORDER and Zabor-Step: charge; or let "zabor worker" take `+app.Short(call.entry.message),
			"%s calls %s here, in %s (%s): killed between the answer and the ack, the message is delivered again and the customer is charged again", app.Short(call.entry.class.Name), call.provider, app.Short(call.in.Class.Name)+"::"+call.in.Name, what)
	}
}

func isUpsertOrLook(call charge) bool {
	_, upserted := upserts(call)
	_, looked := looks(call)
	return upserted || looked
}

// lockOnly finds locks that look as if they guarded a charge.
func lockOnly(c *check) {
	const why = "it keeps two from running at once and says nothing after a SIGKILL: the lock ends, the message is delivered again, and the charge is made again"
	seen := map[app.Origin]bool{}
	say := func(o app.Origin, what string, of charge) {
		if seen[o] {
			return
		}
		seen[o] = true
		c.at(o, "a fence around the call: a row with a unique key (order, step), committed before it; zabor's proxy or worker is one. The lock may stay", "%s is the only guard of the call of %s in %s: %s", what, of.provider, app.Short(of.in.Class.Name), why)
	}
	for _, call := range c.money.charges {
		if inserted(call.in, call.call.Line) != nil {
			continue
		}
		job := call.entry.class
		if c.Is(job, "ShouldBeUnique", "ShouldBeUniqueUntilProcessing") {
			say(source(job, job.Line), "ShouldBeUnique", call)
		}
		if c.Framework == app.Symfony {
			for _, class := range c.Classes {
				for _, m := range class.Methods {
					for _, made := range m.Calls {
						if made.Name == "new" && app.Short(made.Class) == "DeduplicateStamp" && dispatches(m, call.entry.message) {
							say(source(class, made.Line), "DeduplicateStamp", call)
						}
					}
				}
			}
			if message := c.Class(call.entry.message); message != nil {
				if a := message.Attribute("DeduplicateStamp"); a != nil {
					say(source(message, a.Line), "DeduplicateStamp", call)
				}
			}
		}
		methods := append(slices.Clone(job.Methods), call.in.Class.Methods...)
		for _, m := range methods {
			for _, other := range m.Calls {
				switch {
				case other.Name == "new" && app.Short(other.Class) == "WithoutOverlapping":
					say(source(m.Class, other.Line), "WithoutOverlapping", call)
				case other.Name == "lock" && app.Short(other.Class) == "Cache", other.Name == "createLock" && strings.Contains(other.Class, "Lock"):
					say(source(m.Class, other.Line), "the lock "+strings.Join(texts(other), ", "), call)
				}
			}
		}
	}
}

// dispatches reports whether a method makes a message of that class.
func dispatches(m *app.Method, message string) bool {
	return slices.ContainsFunc(m.Calls, func(c *app.Call) bool { return c.Name == "new" && c.Class == message })
}

// tenantBeside notes that the tenant of a message is no property of it, so that a fence
// by the order's number alone takes two tenants' orders for one.
func tenantBeside(c *check) {
	path, from := c.Tenant()
	if path == "" {
		return
	}
	c.at(from, "in each step of zabor.yaml: scope: '"+path+"'; any other fence needs the tenant in its key too",
		"whose an order is, is noted beside the message (%s): two tenants can have an order of the same number, and only one of them is charged", path)
}

var (
	keyName   = regexp.MustCompile(`(?i)^(idempotency[-_ ]?key|idempotence[-_]key|x-idempotency-key|x-request-id|paypal-request-id|cko-idempotency-key)$`)
	randomKey = regexp.MustCompile(`(?i)\b(uniqid|random_bytes|random_int|mt_rand|rand|bin2hex)\s*\(|\bStr::(uuid|random|orderedUuid|ulid|uuid7)\b|\bUuid::(v1|v4|v6|v7|uuid1|uuid4|uuid6|uuid7)\b|\bUlid::generate\b|new\s+Ulid\b`)
	timeKey   = regexp.MustCompile(`(?i)\b(time|microtime|hrtime|now|date)\s*\(|\bCarbon::now\b|new\s+\\?DateTime(Immutable)?\b`)
	countKey  = regexp.MustCompile(`(?i)\battempts?\s*\(\)|->attempts?\b|\$attempts?\b|getRetryCount|retryCount`)
	jobIDKey  = regexp.MustCompile(`(?i)(getJobId|->job->uuid|->uuid\(\)|TransportMessageIdStamp)`)
)

// volatileKey finds idempotency keys that a second attempt does not have again.
func volatileKey(c *check) {
	seen := map[app.Origin]bool{}
	for _, call := range c.money.all() {
		for _, m := range call.in.Class.Methods {
			for _, key := range keysIn(m) {
				o := source(m.Class, key.Line)
				why := volatile(m, key.Text)
				if why == "" || seen[o] {
					continue
				}
				seen[o] = true
				c.at(o, "a key of the order and the step alone: 'charge-'.$order->id; zabor's proxy puts its own there",
					"the idempotency key %s: the next delivery has another one, and %s takes it for another charge", why, call.provider)
			}
		}
	}
}

// keysIn are the expressions that a method uses as idempotency keys.
func keysIn(m *app.Method) []app.Literal {
	var list []app.Literal
	var within func(v *app.Value)
	within = func(v *app.Value) {
		if v == nil || v.Kind != app.Map {
			return
		}
		for _, name := range v.Keys {
			item := v.Items[name]
			if keyName.MatchString(name) {
				list = append(list, app.Literal{Text: item.Text, Line: item.From.Line})
			}
			within(item)
		}
	}
	for _, call := range m.Calls {
		for i, arg := range call.Args {
			within(arg.Value)
			if variableName.FindString(arg.Text) == arg.Text && arg.Text != "" { // options that were put together before
				for _, a := range m.Assigns {
					if k := keyInText.FindStringSubmatch(a.Text); a.Var == arg.Text && k != nil {
						list = append(list, app.Literal{Text: k[1], Line: a.Line})
					}
				}
			}
			switch {
			case keyName.MatchString(arg.Name):
				list = append(list, app.Literal{Text: arg.Text, Line: arg.Value.From.Line})
			case arg.Value.Known() && keyName.MatchString(arg.Value.Str()) && i+1 < len(call.Args):
				list = append(list, app.Literal{Text: call.Args[i+1].Text, Line: call.Args[i+1].Value.From.Line})
			case i == 1 && (strings.HasPrefix(call.Class, `YooKassa\`) || strings.HasPrefix(call.Class, `YandexCheckout\`)) && len(wordsOf(call.Name)) > 0 && slices.Contains(moves, wordsOf(call.Name)[0]):
				list = append(list, app.Literal{Text: arg.Text, Line: arg.Value.From.Line})
			}
		}
	}
	return list
}

// keyInText is an idempotency key in the source of an array.
var keyInText = regexp.MustCompile(`(?i)['"](?:idempotency[-_ ]?key|idempotence[-_]key|x-idempotency-key|x-request-id|paypal-request-id|cko-idempotency-key)['"]\s*=>\s*([^\],]+(?:\([^)]*\)[^\],]*)?)`)

var variableName = regexp.MustCompile(`\$[A-Za-z_]\w*`)

// volatile is what is wrong with a key's expression, with the variables in it
// followed; "": nothing that is known.
func volatile(m *app.Method, expression string) string {
	for range 3 {
		switch {
		case randomKey.MatchString(expression):
			return "is random (" + short(expression) + ")"
		case timeKey.MatchString(expression):
			return "comes from the clock (" + short(expression) + ")"
		case countKey.MatchString(expression):
			return "has the attempt in it (" + short(expression) + ")"
		case jobIDKey.MatchString(expression):
			return "is the message's own id (" + short(expression) + "), which a retry from Horizon or the failure transport does not keep"
		}
		next := variableName.ReplaceAllStringFunc(expression, func(name string) string {
			for _, a := range m.Assigns {
				if a.Var == name {
					return a.Text
				}
			}
			return name
		})
		if next == expression {
			return ""
		}
		expression = next
	}
	return ""
}

func short(s string) string {
	if r := []rune(s); len(r) > 60 {
		return string(r[:60]) + "…"
	}
	return s
}

// upsertFence finds fences that hide who was first.
func upsertFence(c *check) {
	seen := map[app.Origin]bool{}
	for _, call := range c.money.charges {
		found, ok := upserts(call)
		o := source(call.in.Class, 0)
		if ok {
			o.Line = found.Line
		}
		if !ok || seen[o] {
			continue
		}
		seen[o] = true
		c.at(o, "one plain INSERT into a table with a unique key (order, step), committed before the call; its duplicate-key error means: not mine, do not call",
			"%s before the call of %s succeeds for the second worker as for the first: it does not say who was first, and both call", found.Name, call.provider)
	}
}

// upserts is the upsert before a charge in the same method.
func upserts(call charge) (*app.Call, bool) {
	for _, other := range call.in.Calls {
		if other.Line > call.call.Line {
			continue
		}
		switch strings.ToLower(other.Name) {
		case "updateorinsert", "updateorcreate", "upsert", "replace":
			if other.On != nil || other.Class != "" || other.Root != "" {
				return other, true
			}
		}
		if upsertSQL.MatchString(sqlOf(other)) {
			return other, true
		}
	}
	return nil, false
}

// lookFirst finds fences that look whether a row is there, call, and insert it
// then.
func lookFirst(c *check) {
	seen := map[app.Origin]bool{}
	for _, call := range c.money.charges {
		if _, ok := upserts(call); ok {
			continue
		}
		found, ok := looks(call)
		if !ok {
			continue
		}
		o := source(call.in.Class, found.Line)
		if seen[o] {
			continue
		}
		seen[o] = true
		c.at(o, "insert first, call then: one plain INSERT with a unique key (order, step), committed before the call; its duplicate-key error means: not mine, do not call",
			"%s looks whether it was charged, and the row is written after the call of %s: two workers both find nothing, and one that is killed before it writes leaves nothing to find", found.Name+"()", call.provider)
	}
}

// looks is the read before a charge in a method that writes after it.
func looks(call charge) (*app.Call, bool) {
	if inserted(call.in, call.call.Line) != nil {
		return nil, false
	}
	var read *app.Call
	wrote := false
	for _, other := range call.in.Calls {
		switch strings.ToLower(other.Name) {
		case "exists", "doesntexist", "first", "findoneby", "find", "count", "fetchone", "fetchassociative", "firstornew", "firstorcreate":
			if other.Line < call.call.Line && read == nil && aboutCharges(other) {
				read = other
			}
		case "insert", "create", "save", "persist", "insertgetid", "executestatement", "update", "forcecreate":
			if other.Line > call.call.Line {
				wrote = true
			}
		}
	}
	if read == nil || !wrote {
		return nil, false
	}
	return read, true
}

var chargeTable = regexp.MustCompile(`(?i)(pay|charge|transaction|refund|fence|idempot|processed|once)`)

// aboutCharges reports whether a read is of a table or entity of charges.
func aboutCharges(call *app.Call) bool {
	if chargeTable.MatchString(call.Class) || chargeTable.MatchString(call.Root) || chargeTable.MatchString(strings.Join(call.Via, " ")) {
		return true
	}
	for _, part := range call.Chain() {
		if chargeTable.MatchString(strings.Join(texts(part), " ")) {
			return true
		}
	}
	return false
}

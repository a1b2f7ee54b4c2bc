package doctor

import (
	"regexp"
	"slices"
	"strings"

	"zabor/internal/app"
	"zabor/provider"
)

// charge is a call that asks a payment provider to move money.
type charge struct {
	provider string // its SDK's or host's name
	call     *app.Call
	in       *app.Method // where the call stands
	entry    entry       // the job or handler that leads to it
	http     bool        // with an HTTP client, not an SDK
}

// entry is where a worker begins: a job's or a handler's method.
type entry struct {
	class   *app.Class
	method  *app.Method
	message string // the class that is on the queue
}

// money knows which jobs and handlers call payment providers.
type money struct {
	p       *app.Project
	o       Options
	hosts   map[string]string // host, provider
	charges []charge
	fenced  []charge
}

// sdks are namespaces of payment providers' own PHP libraries.
var sdks = [...]struct{ namespace, name string }{
	{`Stripe\`, "Stripe"}, {`Laravel\Cashier\`, "Stripe"}, {`YooKassa\`, "YooKassa"}, {`YandexCheckout\`, "YooKassa"},
	{`PayPalCheckoutSdk\`, "PayPal"}, {`PaypalServerSdkLib\`, "PayPal"}, {`PayPal\`, "PayPal"}, {`Srmklive\PayPal\`, "PayPal"},
	{`Adyen\`, "Adyen"}, {`Braintree\`, "Braintree"}, {`Square\`, "Square"}, {`Mollie\`, "Mollie"}, {`Razorpay\`, "Razorpay"},
	{`Checkout\`, "Checkout.com"}, {`GoCardlessPro\`, "GoCardless"}, {`Yabacon\Paystack`, "Paystack"}, {`Unicodeveloper\Paystack`, "Paystack"},
	{`CloudPayments\`, "CloudPayments"}, {`Worldpay\`, "Worldpay"}, {`Omnipay\`, "Omnipay"}, {`Payum\`, "Payum"},
	{`Voronkovich\SberbankAcquiring\`, "Sberbank"}, {`Tinkoff\`, "T-Bank"}, {`Klarna\`, "Klarna"},
}

// moves are the beginnings of methods that move money; harmless are the parts of
// an SDK that do not.
var (
	moves    = regexp.MustCompile(`(?i)^(create|charge|capture|confirm|refund|authori[sz]e|purchase|complete|pay|sale|transfer|payout|submit|send|execute|invoice|post|request|void|reverse)`)
	harmless = regexp.MustCompile(`(?i)(customer|product|price|setupintent|webhook|token|ephemeral|session|coupon|taxrate|account|balance|event|source|file)s?$`)
	harmful  = regexp.MustCompile(`(?i)(pay|charge|refund|capture|authori[sz]|payout|purchase|invoice|checkout/orders)`)
	writes   = regexp.MustCompile(`(?i)^(post|put|patch|request|requestasync|postasync|send|fetch)$`)
)

func newMoney(p *app.Project, o Options) *money {
	m := &money{p: p, o: o, hosts: hosts(o)}
	for _, e := range m.entries() {
		m.follow(e, e.class, e.method, map[*app.Method]bool{}, 0)
	}
	return m
}

var hostOf = regexp.MustCompile(`https?://([A-Za-z0-9.\-{}]+)`)

// hosts are those of the built-in profiles, live and test, and what PHP code uses
// beside them.
func hosts(o Options) map[string]string {
	known := map[string]string{"api-m.sandbox.paypal.com": "PayPal", "api-m.paypal.com": "PayPal", "checkout-test.adyen.com": "Adyen",
		"securepay.tinkoff.ru": "T-Bank", "api.stripe.com": "Stripe", "api.yookassa.ru": "YooKassa"}
	for _, b := range provider.Builtins() {
		for _, url := range []string{b.Base.BaseURL, b.Test.BaseURL} {
			if m := hostOf.FindStringSubmatch(url); len(m) > 1 && !strings.Contains(m[1], "{") {
				known[m[1]] = b.Title
			}
		}
	}
	for _, host := range o.Hosts {
		known[host] = host
	}
	return known
}

func (m *money) entries() []entry {
	var list []entry
	for _, job := range m.p.Jobs() {
		method := m.p.Method(job, "handle")
		if method == nil {
			method = m.p.Method(job, "__invoke")
		}
		list = append(list, entry{job, method, job.Name})
	}
	for _, h := range m.p.Handlers() {
		list = append(list, entry{h.Class, h.Method, h.Message})
	}
	return list
}

// follow collects the charges in a method and in those of the application that
// it calls. this is the class of $this: a method may be of a trait, or of a class
// that this one extends.
func (m *money) follow(e entry, this *app.Class, method *app.Method, seen map[*app.Method]bool, depth int) {
	if method == nil || seen[method] || depth > 8 {
		return
	}
	seen[method] = true
	for _, call := range method.Calls {
		if c, ok := m.charge(call, method); ok {
			c.entry = e
			if m.isFenced(e, method) {
				m.fenced = append(m.fenced, c)
			} else {
				m.charges = append(m.charges, c)
			}
			continue
		}
		class := m.p.Class(call.Class)
		own := call.Root == "$this" && len(call.Via) == 0
		if own {
			class = this
		}
		if class == nil || !own && call.On != nil || len(call.Via) > 0 {
			continue
		}
		m.follow(e, class, m.p.Method(class, call.Name), seen, depth+1)
		if class.Kind == "interface" {
			for _, other := range m.p.Classes {
				if other.Kind == "class" && m.p.Is(other, class.Name) {
					m.follow(e, other, m.p.Method(other, call.Name), seen, depth+1)
				}
			}
		}
	}
}

// charge tells whether a call asks a provider to move money.
func (m *money) charge(call *app.Call, in *app.Method) (charge, bool) {
	c := charge{call: call, in: in}
	for _, sdk := range sdks {
		if !strings.HasPrefix(call.Class, sdk.namespace) || call.Name == "new" || !moves.MatchString(call.Name) {
			continue
		}
		if harmless.MatchString(call.Class) || len(call.Via) > 0 && harmless.MatchString(call.Via[len(call.Via)-1]) {
			return c, false
		}
		c.provider = sdk.name
		return c, true
	}
	if strings.EqualFold(call.Name, "curl_exec") && call.Root == "" {
		return m.curl(c)
	}
	client := app.Short(call.Class)
	if !slices.Contains([]string{"Http", "Client", "ClientInterface", "HttpClientInterface", "PendingRequest", "Factory"}, client) || !writes.MatchString(call.Name) {
		return c, false
	}
	c.http = true
	var about strings.Builder
	reading := false
	for _, part := range call.Chain() {
		for i, arg := range part.Args {
			if part == call && i == 0 && strings.EqualFold(strings.Trim(arg.Text, `'"`), "GET") {
				reading = true
			}
			if part == call && i > 1 {
				continue // a body says nothing about where it goes
			}
			about.WriteString(arg.Text + " ")
		}
	}
	if reading {
		return c, false
	}
	return m.about(c, about.String())
}

// curl is charge of a curl_exec: what it does is in the calls before it.
func (m *money) curl(c charge) (charge, bool) {
	c.http = true
	var about strings.Builder
	for _, call := range c.in.Calls {
		if call.Line > c.call.Line || call.Root != "" {
			continue
		}
		switch strings.ToLower(call.Name) {
		case "curl_init", "curl_setopt", "curl_setopt_array":
			for _, arg := range call.Args {
				about.WriteString(arg.Text + " ")
			}
		}
	}
	if !strings.Contains(about.String(), "CURLOPT_POST") && !strings.Contains(about.String(), "CURLOPT_CUSTOMREQUEST") {
		return c, false // it reads
	}
	return m.about(c, about.String())
}

// about names the provider that a request is for, by what is said of it or else by
// the addresses that stand in the same class.
func (m *money) about(c charge, text string) (charge, bool) {
	for host, name := range m.hosts {
		if strings.Contains(text, host) {
			c.provider = name
			return c, true
		}
	}
	for _, s := range c.in.Class.Methods {
		for _, literal := range s.Strings {
			for host, name := range m.hosts {
				if strings.Contains(literal.Text, host) {
					c.provider = name
					return c, true
				}
			}
		}
	}
	c.provider = "a payment provider"
	return c, harmful.MatchString(text)
}

// isFenced reports whether the charges in a method go through zabor: its proxy,
// its key, or zabor's own worker in place of this one.
func (m *money) isFenced(e entry, method *app.Method) bool {
	if slices.ContainsFunc(m.o.Fenced, func(class string) bool { return strings.EqualFold(class, e.message) }) {
		return true
	}
	for _, other := range method.Class.Methods {
		if strings.Contains(other.Body, "Zabor-Order") || strings.Contains(other.Body, "zabor:") {
			return true
		}
	}
	return false
}

// all are the charges, whether fenced or not.
func (m *money) all() []charge { return slices.Concat(m.charges, m.fenced) }

// jobs are the classes that lead to charges, each once.
func (m *money) jobs() []entry {
	var list []entry
	for _, c := range m.all() {
		if !slices.Contains(list, c.entry) {
			list = append(list, c.entry)
		}
	}
	return list
}

// inserted is the fence that people write by hand: a row of a unique key that is
// inserted before the call. nil: there is none before line.
func inserted(method *app.Method, line int) *app.Call {
	for _, call := range method.Calls {
		if call.Line < line && isInsert(call) {
			return call
		}
	}
	return nil
}

var (
	plainInsert = regexp.MustCompile(`(?is)^\s*INSERT\s+INTO\b`)
	upsertSQL   = regexp.MustCompile(`(?is)\bON\s+DUPLICATE\s+KEY\b|\bON\s+CONFLICT\b.*\bDO\s+UPDATE\b|^\s*REPLACE\s+INTO\b|\bINSERT\s+OR\s+REPLACE\b|^\s*MERGE\s+INTO\b|\bWHERE\s+NOT\s+EXISTS\b`)
)

// isInsert reports whether a call inserts a row or fails.
func isInsert(call *app.Call) bool {
	switch strings.ToLower(call.Name) {
	case "insert", "insertorignore", "insertgetid", "createorfirst":
		return true
	}
	sql := sqlOf(call)
	return plainInsert.MatchString(sql) && !upsertSQL.MatchString(sql)
}

// sqlOf is the statement that a call is given; "" for others.
func sqlOf(call *app.Call) string {
	switch strings.ToLower(call.Name) {
	case "statement", "insert", "update", "affectingstatement", "unprepared", "executestatement", "executequery", "executeupdate", "exec", "query", "prepare", "fetchone", "fetchassociative":
		if a := call.Arg("", 0); a != nil && a.Value.Known() {
			return a.Value.Str()
		}
	}
	return ""
}

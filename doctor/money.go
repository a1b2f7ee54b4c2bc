package doctor

import (
	"regexp"
	"slices"
	"strings"
	"unicode"

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
	kind     string      // charge, capture, refund, transfer or payout
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

// moves are the first words of methods that move money; harmless are words for what an
// SDK makes without moving any.
var (
	moves = strings.Fields("create charge capture confirm refund authorise authorize purchase complete pay sale transfer payout submit send execute invoice post request void reverse")
	// harmless: of what is made, or of a request.
	harmless = strings.Fields("customer customers product products price prices setup webhook webhooks token tokens ephemeral session sessions coupon coupons promotion tax account accounts " +
		"balance event events source sources file files report reports method methods item items plan plans link links mandate mandates notification notifications email mail receipt receipts get list search " +
		"omnipay factory key keys quote quotes portal configuration card cards oauth oauth2 callback notify slack details show detail")
	harmful = strings.Fields("pay payment payments charge charges charging refund refunds capture captures authorise authorize authorisations authorizations payout payouts purchase purchases transfer transfers sale sales recurrent")
	cancels = strings.Fields("cancel cancels cancellation cancellations void reverse reversal")
	writes  = strings.Fields("post put patch request requestasync postasync send fetch")
	// billing are words of methods of the application that a call is followed to by its
	// name alone, where what it is called on is not known.
	billing = strings.Fields("bill billing rebill charge pay payment purchase capture refund collect renew invoice authorise authorize payout transfer settle autobill")
	// cashier are the methods by which Cashier charges its Billable.
	cashier      = strings.Fields("charge pay paywith payout invoiceprice invoicefor invoice invoiceandpay refund chargeprice")
	subscription = strings.Fields("create add addprice addpriceandinvoice swap swapandinvoice invoice updatequantity incrementquantity incrementandinvoice chargemany charge")
)

var camel = regexp.MustCompile(`([a-z0-9])([A-Z])`)

// wordsOf are the words of text in small letters: those of createPayment are create and
// payment, and payload is one.
func wordsOf(text string) []string {
	return strings.FieldsFunc(strings.ToLower(camel.ReplaceAllString(text, "$1 $2")), func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) })
}

// oneOf reports whether one of words is one of list.
func oneOf(list []string, words ...string) bool {
	return slices.ContainsFunc(words, func(w string) bool { return slices.Contains(list, w) })
}

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
		class := m.p.Class(m.on(call, 0))
		if call.Root == "$this" && len(call.Via) == 0 && call.On == nil {
			class = this
		}
		if call.Name == "new" || call.Root == "" && call.On == nil {
			continue
		}
		if class == nil || m.p.Method(class, call.Name) == nil {
			m.byName(e, call, seen, depth)
			continue
		}
		m.follow(e, class, m.p.Method(class, call.Name), seen, depth+1)
		if class.Kind == "interface" || m.p.Method(class, call.Name).Body == "" {
			for _, other := range m.p.Classes {
				if other.Kind == "class" && other != class && m.p.Is(other, class.Name) {
					m.follow(e, other, m.p.Method(other, call.Name), seen, depth+1)
				}
			}
		}
	}
}

// mostNamesakes is how many methods of one name a call is followed to.
const mostNamesakes = 12

// byName follows a call of which only the name is known to the application's methods
// of that name, where the name speaks of money: gateways are often chosen at run time.
func (m *money) byName(e entry, call *app.Call, seen map[*app.Method]bool, depth int) {
	if !oneOf(billing, wordsOf(call.Name)...) || m.sdk(call) != "" {
		return
	}
	var found []*app.Method
	for _, class := range m.p.Classes {
		if own := class.Method(call.Name); own != nil && own.Body != "" {
			found = append(found, own)
		}
	}
	if len(found) > mostNamesakes {
		return
	}
	for _, own := range found {
		m.follow(e, own.Class, own, seen, depth+1)
	}
}

// on is the class of what a call is made on; "": it is not known.
func (m *money) on(call *app.Call, depth int) string {
	if call == nil || depth > 20 {
		return ""
	}
	class := call.Class
	if call.On != nil {
		class = m.result(call.On, depth+1)
	}
	for _, name := range call.Via {
		if class = m.member(class, name); class == "" {
			return ""
		}
	}
	return class
}

// result is the class of what a call gives; where nothing says it, it is taken for the
// one that it is called on, as builders and queries give themselves.
func (m *money) result(call *app.Call, depth int) string {
	name := strings.ToLower(call.Name)
	if name == "new" {
		return call.Class
	}
	if (name == "app" || name == "resolve") && call.Root == "" || name == "make" || name == "makewith" || name == "get" {
		if a := call.Arg("", 0); a != nil && a.Value.Known() && (strings.Contains(a.Value.Str(), `\`) || m.p.Class(a.Value.Str()) != nil) {
			return a.Value.Str()
		}
	}
	class := m.on(call, depth+1)
	if of := m.p.Class(class); of != nil {
		if related := m.member(class, call.Name); related != "" {
			return related
		}
		if own := m.p.Method(of, call.Name); own != nil && m.p.Class(own.Returns) != nil {
			return own.Returns
		}
	}
	return class
}

// relations are Eloquent's.
var relations = strings.Fields("belongsto hasone hasmany belongstomany hasonethrough hasmanythrough morphone morphmany")

// member is the class of a property of class, of a relation or of what a promoted
// parameter holds; "": it is not known.
func (m *money) member(class, name string) string {
	of := m.p.Class(class)
	if of == nil {
		return ""
	}
	if p := m.p.Property(of, name); p != nil && strings.Contains(p.Type, `\`) {
		return p.Type
	}
	if relation := m.p.Method(of, name); relation != nil {
		for _, call := range relation.Calls {
			if a := call.Arg("", 0); oneOf(relations, strings.ToLower(call.Name)) && a != nil && a.Value.Known() {
				return a.Value.Str()
			}
		}
	}
	return ""
}

// sdk is the provider whose library a call is made on; "": none.
func (m *money) sdk(call *app.Call) string {
	for _, class := range []string{call.Class, m.on(call, 0)} {
		for _, sdk := range sdks {
			if strings.HasPrefix(class, sdk.namespace) {
				return sdk.name
			}
		}
	}
	return ""
}

// cashierCall reports whether a call charges by Cashier.
func (m *money) cashierCall(call *app.Call) bool {
	name := strings.ToLower(call.Name)
	for _, part := range call.Chain()[1:] {
		if before := strings.ToLower(part.Name); (before == "newsubscription" || before == "subscription") && slices.Contains(subscription, name) {
			return m.billable(m.on(part, 0), part)
		}
	}
	return slices.Contains(cashier, name) && m.billable(m.on(call, 0), call)
}

// billable reports whether class is Cashier's Billable. Of what is not known it is one
// if the application has such a class and the call can hardly be another's.
func (m *money) billable(class string, call *app.Call) bool {
	if c := m.p.Class(class); c != nil {
		return m.p.Method(c, call.Name) == nil && m.p.Is(c, "Billable")
	}
	if class != "" || call.Root == "$this" && len(call.Via) == 0 || !slices.Contains([]string{"charge", "invoicePrice", "invoiceFor", "payWith", "newSubscription"}, call.Name) {
		return false
	}
	return slices.ContainsFunc(m.p.Classes, func(c *app.Class) bool { return m.p.Is(c, "Billable") })
}

// charge tells whether a call asks a provider to move money.
func (m *money) charge(call *app.Call, in *app.Method) (charge, bool) {
	c := charge{call: call, in: in}
	if m.cashierCall(call) {
		c.provider, c.kind = "Stripe", kindOf(wordsOf(call.Name))
		return c, true
	}
	if name := m.sdk(call); name != "" {
		return m.library(c, name)
	}
	if strings.EqualFold(call.Name, "curl_exec") && call.Root == "" {
		return m.curl(c)
	}
	client := app.Short(call.Class)
	if m.p.Class(call.Class) != nil || !slices.Contains([]string{"Http", "Client", "ClientInterface", "HttpClientInterface", "PendingRequest", "Factory"}, client) || !slices.Contains(writes, strings.ToLower(call.Name)) {
		return c, false
	}
	c.http = true
	address := 0 // the argument that says where it goes: a body says nothing about that
	if name := strings.ToLower(call.Name); strings.HasPrefix(name, "request") || name == "send" {
		address = 1
	}
	var about strings.Builder
	for _, part := range call.Chain() {
		for i, arg := range part.Args {
			switch {
			case part == call && i == 0 && strings.EqualFold(strings.Trim(arg.Text, `'"`), "GET"):
				return c, false
			case part == call && i > address:
			default:
				about.WriteString(arg.Text + " ")
			}
		}
	}
	return m.about(c, about.String())
}

// library is charge of a call on a provider's own library.
func (m *money) library(c charge, name string) (charge, bool) {
	method := wordsOf(c.call.Name)
	if c.call.Name == "new" || len(method) == 0 || !slices.Contains(moves, method[0]) {
		return c, false
	}
	what := slices.Clone(method[1:])
	switch {
	case len(c.call.Via) > 0:
		what = append(what, wordsOf(c.call.Via[len(c.call.Via)-1])...)
	case c.call.On != nil && len(c.call.On.Via) > 0:
		what = append(what, wordsOf(c.call.On.Via[len(c.call.On.Via)-1])...)
	default:
		what = append(what, wordsOf(app.Short(c.call.Class))...)
	}
	if a := c.call.Arg("", 0); a != nil && strings.HasPrefix(a.Text, "new ") { // execute(new OrdersCaptureRequest(…))
		request, _, _ := strings.Cut(a.Text, "(")
		what = append(what, wordsOf(request[strings.LastIndexAny(request, ` \`)+1:])...)
	}
	c.provider, c.kind = name, kindOf(append(method, what...))
	return c, !oneOf(harmless, what...)
}

// kindOf is what words of a call say that it does.
func kindOf(words []string) string {
	for _, one := range []struct{ kind, words string }{
		{"refund", "refund refunds"}, {"payout", "payout payouts"}, {"transfer", "transfer transfers"}, {"capture", "capture captures"},
	} {
		if oneOf(strings.Fields(one.words), words...) {
			return one.kind
		}
	}
	return "charge"
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
	words := wordsOf(hostOf.ReplaceAllString(text, " "))
	money := oneOf(harmful, words...)
	c.kind = kindOf(words)
	if oneOf(cancels, words...) || oneOf(harmless, words...) && (!money || oneOf([]string{"webhook", "webhooks", "callback", "notify", "notification", "notifications", "slack"}, words...)) {
		return c, false
	}
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
	return c, money
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

package draft

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"zabor/doctor"
	"zabor/internal/app"
	"zabor/provider"
)

// enums are those in the properties of payment messages.
func (w *writer) enums() {
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

// steps are comments: the request to a provider is for a person to write.
func (w *writer) steps() {
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
		if path, from := w.Tenant(); path != "" {
			fmt.Fprintf(&steps, "#     scope: '%s'    # %s: tenants may have orders of the same number\n", path, from)
		}
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

// roubles are the providers with charges in roubles.
var roubles = []string{"yookassa", "tbank", "cloudpayments"}

// stepCharge is the step of a new payment.
const stepCharge = "charge"

// stepNameOf returns the kind of a call; of a charge, the kind in the class of its
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

// bus names the other messages: PHP goes on to handle them.
func (w *writer) bus() {
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

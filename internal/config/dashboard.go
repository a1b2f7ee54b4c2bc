package config

import (
	"fmt"
	"maps"
	"net"
	"net/url"
	"slices"
	"strings"

	"zabor/dashboard/access"
)

// Dashboard is the dashboard.
type Dashboard struct {
	Listen         string           `yaml:"listen" need:"true" doc:"host:port. Beyond loopback users and url are needed."`
	URL            Address          `yaml:"url" doc:"Its address as a browser sees it: https://HOST."`
	Users          map[string]*User `yaml:"users" doc:"Who may sign in, by name; without any, everybody on this host decides."`
	OrderURL       string           `yaml:"order_url" doc:"Address of an order in the shop, with {{order}} in it, for a link on each card: https://shop.example/admin/orders/{{order}}."`
	TrustedProxies []string         `yaml:"trusted_proxies" doc:"Addresses or networks of proxies before the dashboard; X-Forwarded-For of others is ignored. None by default."`
	SecondPerson   bool             `yaml:"second_person" doc:"A release on the dashboard waits until another operator has confirmed it."`
}

// User may sign in to the dashboard.
type User struct {
	Password Secret `yaml:"password" need:"true" doc:"The hash that zabor password prints."`
	Role     string `yaml:"role" default:"viewer" enum:"viewer operator" doc:"viewer sees everything and changes nothing; operator decides."`
}

// Accounts are the users as the dashboard takes them, by name.
func (d *Dashboard) Accounts() []access.User {
	var users []access.User
	for _, name := range slices.Sorted(maps.Keys(d.Users)) {
		u := d.Users[name]
		users = append(users, access.User{Name: name, Hash: string(u.Password), Role: access.Role(u.Role)})
	}
	return users
}

func (v *validator) validateDashboard(p path, d *Dashboard) {
	operators := 0
	for _, u := range d.Accounts() {
		at := p.child("users").child(u.Name)
		if err := access.CheckName(u.Name); err != nil {
			v.wrong(at, err.Error(), "write another name")
		}
		if err := access.CheckHash(u.Hash); err != nil && !v.found(at) {
			what, fix, _ := strings.Cut(err.Error(), "; ")
			if fix == "" {
				fix = `write what "zabor password" prints`
			}
			v.wrong(at.child("password"), what, fix)
		}
		if u.Role == access.Operator {
			operators++
		}
	}
	if d.SecondPerson && operators < 2 {
		v.wrong(p.child("second_person"), fmt.Sprintf("nobody could confirm a release: there are %d operators", operators), "give a second user role: operator, or take second_person: out")
	}
	if d.OrderURL != "" {
		u, err := url.Parse(strings.ReplaceAll(d.OrderURL, orderMark, "1"))
		if err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" || !strings.Contains(d.OrderURL, orderMark) {
			v.wrong(p.child("order_url"), "this is no address of an order", "write https://, the shop's host and a path with "+orderMark+" in it: https://shop.example/admin/orders/"+orderMark)
		}
	}
	if _, err := access.ParseProxies(d.TrustedProxies); err != nil {
		v.wrong(p.child("trusted_proxies"), err.Error(), "write addresses or networks: [127.0.0.1, 10.0.0.0/8]")
	}
	v.validateReach(p, d)
}

// orderMark stands for the order's id in order_url.
const orderMark = "{{order}}"

// validateReach demands that whoever reaches the dashboard from elsewhere signs
// in, under a name that is known.
func (v *validator) validateReach(p path, d *Dashboard) {
	host, _, err := net.SplitHostPort(d.Listen)
	if err != nil {
		return // it has a finding
	}
	here := loopback(host)
	if !here && len(d.Users) == 0 {
		v.wrong(p.child("listen"), "whoever reaches this address could decide about payments", `write users: (zabor password prints what belongs there), or listen on 127.0.0.1`)
	}
	if d.URL == "" {
		if !here && len(d.Users) > 0 {
			v.find(v.at(p), p.child("url"), "is missing: a browser sends sessions only where it is told to, and requests under another name are refused", "write url: with the address that people type, such as https://zabor.shop.example")
		}
		return
	}
	u, err := access.ParseURL(string(d.URL))
	switch {
	case err != nil:
		v.wrong(p.child("url"), err.Error(), "write https:// and the host's name")
	case here && len(d.Users) == 0 && !loopback(u.Hostname()):
		v.wrong(p.child("url"), "this is an address beyond this host: whoever reaches it could decide about payments", "write users: (zabor password prints what belongs there), or take url: out")
	case len(d.Users) > 0 && u.Scheme == "http" && !loopback(u.Hostname()):
		v.wrong(p.child("url"), "passwords and sessions would travel in the clear: whoever listens on the way could decide about payments",
			"let something that speaks TLS stand before the dashboard, and write https://; through a tunnel to this host write http://localhost and its port")
	}
}

// found reports whether there is a finding about the setting at p or within it.
func (v *validator) found(p path) bool {
	return slices.ContainsFunc(v.findings, func(f Finding) bool { return within(f.Key, p.String()) })
}

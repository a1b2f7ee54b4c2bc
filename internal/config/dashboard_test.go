package config

import (
	"errors"
	"strings"
	"testing"
)

// someHash is of a password that nobody has to know.
const someHash = "$argon2id$v=19$m=19456,t=2,p=1$c2FsdHNhbHQ$AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"

// Who reaches the dashboard from elsewhere signs in, and by nothing that others
// can guess or read on the way.
func TestDashboard(t *testing.T) {
	const ops = "users: {ops: {password: '" + someHash + "', role: operator}}"
	for _, tt := range []struct {
		name, text string
		want       string // of the finding; empty: none
	}{
		{name: "on this host", text: "listen: '127.0.0.1:8071'"},
		{name: "on this host, IPv6", text: "listen: '[::1]:8071'"},
		{name: "on this host, with its own name", text: "listen: '127.0.0.1:8071', url: 'http://localhost:8071'"},
		{name: "everywhere", text: "listen: ':8071'", want: "zabor.yaml:3:21: dashboard.listen: whoever reaches this address could decide about payments: write users: (zabor password prints what belongs there), or listen on 127.0.0.1"},
		{name: "in the network", text: "listen: '10.0.0.5:8071', url: 'https://zabor.example'", want: "zabor.yaml:3:21: dashboard.listen: whoever reaches"},
		{name: "behind a proxy without users", text: "listen: '127.0.0.1:8071', url: 'https://zabor.example'", want: "zabor.yaml:3:44: dashboard.url: this is an address beyond this host"},
		{name: "with users and no url", text: "listen: ':8071', " + ops, want: "dashboard.url: is missing"},
		{name: "with users and url", text: "listen: ':8071', url: 'https://zabor.example', " + ops},
		{name: "in the clear", text: "listen: ':8071', url: 'http://zabor.example', " + ops, want: "dashboard.url: passwords and sessions would travel in the clear"},
		{name: "a tunnel to this host", text: "listen: '127.0.0.1:8071', url: 'http://localhost:8071', " + ops},
		{name: "below a path", text: "listen: ':8071', url: 'https://zabor.example/zabor', " + ops, want: "root of its host"},
		{name: "no address", text: "listen: ':8071', url: 'zabor.example', " + ops, want: "must be https://HOST"},
		{name: "a password in plain text", text: "listen: ':8071', url: 'https://zabor.example', users: {ops: {password: hunter2}}", want: `dashboard.users.ops.password: this is no hash of a password: write what "zabor password" prints`},
		{name: "a hash that is too cheap", text: "listen: '127.0.0.1:1', users: {ops: {password: '" + strings.Replace(someHash, "19456", "64", 1) + "'}}", want: "takes 64 KiB to check"},
		{name: "a name with a blank", text: "listen: '127.0.0.1:1', users: {'ops ': {password: '" + someHash + "'}}", want: "no blanks at its ends"},
		{name: "one person for two", text: "listen: '127.0.0.1:1', second_person: true, " + ops, want: "dashboard.second_person: nobody could confirm a release: there are 1 operators"},
	} {
		c, err := Parse("zabor.yaml", []byte(change(t, "queues:", "dashboard: {"+tt.text+"}\nqueues:")), environment(baseEnv))
		var errs Errors
		if errors.As(err, &errs); tt.want == "" && err != nil || tt.want != "" && (len(errs) != 1 || !strings.Contains(errs.Error(), tt.want)) {
			t.Errorf("%s:\ngot  %v\nwant %s", tt.name, err, tt.want)
			continue
		}
		if err != nil {
			if strings.Contains(err.Error(), "hunter2") {
				t.Errorf("%s: the password is shown: %v", tt.name, err)
			}
			continue
		}
		if got := Errors(c.Warnings()).Error(); strings.Contains(got, "dashboard") {
			t.Errorf("%s: warns %q", tt.name, got)
		}
	}
}

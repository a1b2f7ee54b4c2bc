package provider

import (
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-yaml"
)

func TestProfileValidate(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(*Profile)
		want   string
	}{
		{"good", func(*Profile) {}, ""},
		{"no look-up", func(p *Profile) { p.Lookup = nil }, ""},
		{"no key", func(p *Profile) { p.Key = Key{} }, ""},
		{"nothing compared", func(p *Profile) { p.Amount = Amount{} }, ""},
		{"path in the base", func(p *Profile) { p.BaseURL = "https://pay.example.com/v2/" }, ""},
		{"no base", func(p *Profile) { p.BaseURL = "" }, "base_url"},
		{"other scheme", func(p *Profile) { p.BaseURL = "ftp://x" }, "base_url"},
		{"no host", func(p *Profile) { p.BaseURL = "https:///x" }, "base_url"},
		{"user in the base", func(p *Profile) { p.BaseURL = "https://me:pw@x" }, "put credentials into headers"},
		{"query in the base", func(p *Profile) { p.BaseURL = "https://x?y" }, "belongs into a request's path"},
		{"no timeout", func(p *Profile) { p.Timeout = 0 }, "timeout"},
		{"header's name", func(p *Profile) { p.Headers["a b"] = "c" }, "not the name of a header"},
		{"newline in a header", func(p *Profile) { p.Headers["X"] = "c\n" }, "newline"},
		{"expect", func(p *Profile) { p.Headers["expect"] = "100-continue" }, "set by the program"},
		{"connection", func(p *Profile) { p.Headers["connection"] = "keep-alive" }, "set by the program"},
		{"fixed key", func(p *Profile) { p.Headers["idempotency-key"] = "1" }, "make all calls one"},
		{"key header", func(p *Profile) { p.Key.Header = "a:b" }, "key.header"},
		{"key header with a meaning", func(p *Profile) { p.Key.Header = "content-type" }, "another meaning"},
		{"key life", func(p *Profile) { p.Key.Life = -1 }, "key.life"},
		{"replays", func(p *Profile) { p.Key.Replays = "sometimes" }, "all, state, success or none"},
		{"no reference", func(p *Profile) { p.Reference = "" }, "reference"},
		{"reference is no pointer", func(p *Profile) { p.Reference = "id" }, "begins with a slash"},
		{"bad tilde", func(p *Profile) { p.Reference = "/a~2" }, "~0"},
		{"no settled", func(p *Profile) { p.Settled = Match{} }, "settled"},
		{"settled without a pointer", func(p *Profile) { p.Settled.Pointer = "" }, "settled.pointer"},
		{"pending without values", func(p *Profile) { p.Pending.Values = nil }, "pending: a pointer without values"},
		{"empty value", func(p *Profile) { p.Pending.Values = []string{""} }, "empty value"},
		{"value twice", func(p *Profile) { p.Pending.Values = []string{"paid"} }, "both settled and pending"},
		{"value twice, other pointer", func(p *Profile) { p.Pending = Match{"/other", []string{"paid"}} }, ""},
		{"2xx as a no", func(p *Profile) { p.Declined.Statuses = []int{200} }, "200 is not a definite no"},
		{"409 as a no", func(p *Profile) { p.Declined.Statuses = []int{402, 409} }, "409 is not a definite no"},
		{"500 as a no", func(p *Profile) { p.Declined.Statuses = []int{500} }, "500 is not a definite no"},
		{"500 as a no of form", func(p *Profile) { p.Malformed.Statuses = []int{500} }, "malformed.statuses: 500"},
		{"one status, two meanings", func(p *Profile) { p.Malformed.Statuses = []int{402} }, "both declined and malformed"},
		{"403 as a no", func(p *Profile) { p.Declined.Statuses = []int{403} }, ""},
		{"both amounts", func(p *Profile) { p.Amount.Major = "/x" }, "exclude each other"},
		{"amount's pointer", func(p *Profile) { p.Amount.Minor = "x" }, "amount.minor"},
		{"currency's pointer", func(p *Profile) { p.Amount.Currency = "x" }, "currency"},
		{"look-up by POST", func(p *Profile) { p.Lookup.Method = "POST" }, "only GET"},
		{"absence at once", func(p *Profile) { p.Lookup.AbsentAfter = 0 }, "absent_after"},
		{"look-up's path", func(p *Profile) { p.Lookup.Path = "/x?{{.order}}" }, "sees only the row"},
		{"no way to look up", func(p *Profile) { p.Lookup.Path = "" }, "lookup.path: empty"},
		{"look-up by id alone", func(p *Profile) { p.Lookup.Path, p.Lookup.Prepared = "", "/p/{{prepared}}" }, ""},
		{"look-up by id that sees the message", func(p *Profile) { p.Lookup.Reference = "/p/{{.id}}" }, "lookup.reference"},
		{"UUID of no header", func(p *Profile) { p.Key = Key{UUID: true} }, "key.uuid"},
		{"mark", func(p *Profile) { p.Key.Mark = "a b" }, "key.mark"},
		{"prepare's pointer", func(p *Profile) { p.Prepare.Reference = "id" }, "prepare.reference"},
		{"echo's pointer", func(p *Profile) { p.Echo.Order = "order" }, "echo.order"},
		{"units of no currency", func(p *Profile) { p.Amount.Units = Units{2: {"XXY"}} }, "units.2"},
		{"units too large", func(p *Profile) { p.Amount.Units = Units{5: {"EUR"}} }, "units.5"},
		{"units twice", func(p *Profile) { p.Amount.Units = Units{0: {"EUR"}, 2: {"EUR"}} }, "twice"},
		{"rule", func(p *Profile) {
			p.Rules = []Rule{{Means: "unbegun", Values: map[string][]string{"/status": {"new"}}}}
		}, ""},
		{"rule of no meaning", func(p *Profile) { p.Rules = []Rule{{Means: "good", Statuses: []int{200}}} }, `rules.0: means "good"`},
		{"rule without condition", func(p *Profile) { p.Rules = []Rule{{Means: "earlier"}} }, "no condition"},
		{"transient by status", func(p *Profile) { p.Rules = []Rule{{Means: "transient", Statuses: []int{503}}} }, "by a status alone"},
		{"reference of a no", func(p *Profile) { p.Rules = []Rule{{Means: "declined", Statuses: []int{402}, Reference: "/id"}} }, "reference: an answer that means declined has none"},
		{"rule's status", func(p *Profile) { p.Rules = []Rule{{Means: "earlier", Statuses: []int{99}}} }, "99"},
		{"rule's header", func(p *Profile) { p.Rules = []Rule{{Means: "earlier", Header: map[string]string{"a b": "c"}}} }, "name of a header"},
		{"rule's values", func(p *Profile) { p.Rules = []Rule{{Means: "earlier", Values: map[string][]string{"/a": nil}}} }, "without values"},
		{"look-up's items", func(p *Profile) { p.Lookup.Items = "data" }, "lookup.items"},
	} {
		p := testProfile("https://pay.example.com")
		tt.change(&p)
		err := p.Validate()
		if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("%s: %v, want %s", tt.name, err, tt.want)
		}
		if err != nil && (strings.Contains(err.Error(), "pw") || strings.Contains(err.Error(), "s3cret")) {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
}

func TestSecretsAreNotPrinted(t *testing.T) {
	p := testProfile("https://pay.example.com")
	for _, verb := range []string{"%v", "%+v", "%#v", "%s"} {
		if got := fmt.Sprintf(verb, p); strings.Contains(got, "s3cret") {
			t.Errorf("%s: %s", verb, got)
		}
	}
}

func TestNewRefusesProxies(t *testing.T) {
	for _, tt := range []struct{ base, proxy string }{
		{"http://pay.example.com", "http://proxy:3128"}, {"https://pay.example.com", "socks5://proxy:1080"}, {"https://pay.example.com", "http://"},
	} {
		u, err := url.Parse(tt.proxy)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := New("acquirer", testProfile(tt.base), Options{Proxy: u}); err == nil || !strings.Contains(err.Error(), "provider acquirer: proxy") {
			t.Errorf("%+v: %v", tt, err)
		}
	}
}

// A profile as it stands in the configuration.
func TestProfileFromYAML(t *testing.T) {
	const text = `
base_url: https://pay.example.com
headers: {Authorization: Bearer s3cret}
timeout: 10s
line:
  key: {header: Idempotency-Key, life: 24h, replays: all}
  answers:
    reference: /id
    settled: {pointer: /status, values: [paid, captured]}
    pending: {pointer: /status, values: [processing]}
    declined: {pointer: /status, values: [refused], statuses: [402]}
  amount: {minor: /amount, currency: /currency}
  lookup: {method: GET, path: "/payments?merchant_reference={{provider_key}}", items: /data, absent_after: 2m}
`
	var p Profile
	if err := yaml.UnmarshalWithOptions([]byte(text), &p, yaml.Strict()); err != nil {
		t.Fatal(err)
	}
	pr, err := New("acquirer", p, Options{})
	if err != nil {
		t.Fatal(err)
	}
	terms, err := pr.Terms(Opened{})
	if pr.Name() != "acquirer" || pr.Timeout() != 10*time.Second || err != nil || terms.AbsentAfter != 2*time.Minute || p.Key.Life != 24*time.Hour {
		t.Errorf("%+v, %+v, %v", p, terms, err)
	}
	p.Lookup = nil
	if pr, err = New("acquirer", p, Options{}); err != nil {
		t.Fatal(err)
	}
	if terms, err = pr.Terms(Opened{}); err != nil || terms.AbsentAfter != 0 {
		t.Errorf("without a look-up: %+v, %v", terms, err)
	}
}

func TestPointer(t *testing.T) {
	// The document and the pointers of RFC 6901, section 5, but for the empty one.
	document, err := decodeJSON([]byte(`{"foo":["bar","baz"],"":0,"a/b":1,"c%d":2,"e^f":3,"g|h":4,"i\\j":5,"k\"l":6," ":7,"m~n":8,"n":null,"t":true,"o":{}}`))
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]string{
		"/foo/0": "bar", "/": "0", "/a~1b": "1", "/c%d": "2", "/e^f": "3", "/g|h": "4", `/i\j`: "5", `/k"l`: "6", "/ ": "7", "/m~0n": "8",
		"/foo": "", "/foo/2": "", "/foo/-": "", "/foo/00": "", "/foo/+1": "", "/foo/-1": "", "/n": "", "/n/x": "", "/o": "", "/none": "", "/foo/0/x": "", "/t": "true",
	} {
		p, err := parsePointer(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if got := p.scalarIn(document); got != want {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
	for _, text := range []string{"", "foo", "#/foo", "/a~", "/a~2", "/~~0"} {
		if p, err := parsePointer(text); err == nil {
			t.Errorf("%q was read as %q", text, p)
		}
	}
}

func FuzzDecodeJSON(f *testing.F) {
	for _, s := range []string{paid, paid[:10], "[]", "1 2", "\xff", "{}}", " ", "null\n"} {
		f.Add([]byte(s))
	}
	c, err := compile(testProfile("https://pay.example.com"))
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		document, err := decodeJSON(body)
		if err != nil {
			return
		}
		c.lines[0].says(200, nil, document) // must not panic on any document
		c.lines[0].reference.id(document)
		// An object or a list that is cut anywhere is not one value any more.
		switch document.(type) {
		case map[string]any, []any:
			whole := strings.TrimRight(string(body), " \t\r\n")
			for i := range len(whole) {
				if v, err := decodeJSON([]byte(whole[:i])); err == nil {
					t.Fatalf("%q is read as %v", whole[:i], v)
				}
			}
		}
	})
}

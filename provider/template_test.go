package provider

import (
	"encoding/json"
	"math"
	"net/url"
	"strings"
	"sync"
	"testing"
	"unicode/utf8"

	"zabor"
)

type enum struct{ Class, Case string }

func testVars() Vars {
	return Vars{
		Data: map[string]any{
			"customer": "cus_1", "empty": "", "null": nil, "yes": true, "int": int64(9007199254740993), "float": 1000000.0,
			"cents": 0.1, "big": 1e22, "tiny": 1e-7, "number": json.Number("123456789012345678901234567890.10"), "exponent": json.Number("1e3"),
			"list": []any{int64(1), "a", nil, 1.5}, "object": map[string]any{"b": true, "a": map[string]any{"deep": "x"}},
			"enum": enum{"Currency", "Euro"}, "nested": map[string]any{"enum": enum{}}, "evil": "../a/b?c=d#e&f %2F\n", "dots": "..", "dot": ".",
			"quote": `"<&>` + "\u2028", "bytes": "\xff", "nan": math.NaN(), "uint": uint64(math.MaxUint64), "template": "{{order}}",
		},
		Order: "A/1", Step: "charge", Scope: "shop", ProviderKey: "abc", Reference: "pay_1",
		Money: zabor.Money{Minor: 1999, Currency: "EUR"},
	}
}

func TestRender(t *testing.T) {
	for _, tt := range []struct {
		name string
		spec RequestSpec
		want string // method, path, content type and body
	}{
		{"nothing", RequestSpec{Path: "/capture"}, "POST /capture  "},
		{"method", RequestSpec{Method: "PUT", Path: "/a"}, "PUT /a  "},
		{"row", RequestSpec{Path: "/{{step}}/{{scope}}/{{provider_key}}/{{reference}}/{{currency}}/{{minor}}/{{major}}"}, "POST /charge/shop/abc/pay_1/EUR/1999/19.99  "},
		{"path value stays a segment", RequestSpec{Path: "/o/{{.evil}}/x"}, "POST /o/..%2Fa%2Fb%3Fc=d%23e&f%20%252F%0A/x  "},
		{"order with a slash", RequestSpec{Path: "/o/{{order}}"}, "POST /o/A%2F1  "},
		{"query", RequestSpec{Path: "/o?q={{.evil}}&n={{order}}"}, "POST /o?q=..%2Fa%2Fb%3Fc%3Dd%23e%26f+%252F%0A&n=A%2F1  "},
		{"form sorted", RequestSpec{Path: "/a", Form: map[string]string{"metadata[order]": "{{order}}", "b&": "{{.evil}}", "amount": "{{minor}}", "c": "a b&c=d"}},
			"POST /a application/x-www-form-urlencoded amount=1999&b%26=..%2Fa%2Fb%3Fc%3Dd%23e%26f+%252F%0A&c=a+b%26c%3Dd&metadata%5Border%5D=A%2F1"},
		{"form of bytes", RequestSpec{Path: "/a", Form: map[string]string{"b": "{{.bytes}}"}}, "POST /a application/x-www-form-urlencoded b=%FF"},
		{"numbers in text", RequestSpec{Path: "/a", Form: map[string]string{"v": "{{.int}} {{.float}} {{.cents}} {{.big}} {{.tiny}} {{.number}} {{.uint}} {{.yes}}"}},
			"POST /a application/x-www-form-urlencoded v=" + url.QueryEscape("9007199254740993 1000000 0.1 10000000000000000000000 0.0000001 123456789012345678901234567890.10 18446744073709551615 true")},
		{"json types", RequestSpec{Path: "/a", JSON: map[string]any{
			"minor": "{{minor}}", "major": "{{major}}", "text": "{{minor}} {{currency}}", "int": "{{.int}}", "float": "{{ .float }}", "yes": "{{.yes}}",
			"list": "{{.list}}", "object": "{{.object}}", "number": "{{.number}}", "constant": uint64(7), "nothing": nil, "no": false, "plain": "x", "in": []any{"{{order}}", 1.5},
		}}, `POST /a application/json {"constant":7,"float":1000000,"in":["A/1",1.5],"int":9007199254740993,"list":[1,"a",null,1.5],"major":"19.99","minor":1999,"no":false,"nothing":null,"number":123456789012345678901234567890.10,"object":{"a":{"deep":"x"},"b":true},"plain":"x","text":"1999 EUR","yes":true}`},
		{"json text is escaped by JSON alone", RequestSpec{Path: "/a", JSON: map[string]any{"q": "{{.quote}}!"}}, "POST /a application/json {\"q\":\"\\\"<&>\\u2028!\"}"},
		{"json that is a list", RequestSpec{Path: "/a", JSON: []any{"{{minor}}"}}, "POST /a application/json [1999]"},
		{"lower, upper, default", RequestSpec{Path: "/a", Form: map[string]string{
			"a": "{{lower currency}}", "b": "{{.customer | upper}}", "c": `{{default "none" .missing}}`, "d": `{{.null | default "none"}}`, "e": `{{.empty | default "none"}}`,
			"f": `{{default "none" .customer}}`, "g": `{{.missing.deeper | default "x" | upper}}`, "h": `{{default "p" prepared}}`, "i": `{{lower (default "X" .missing)}}`, "j": `{{default .customer .missing}}`,
		}}, "POST /a application/x-www-form-urlencoded a=eur&b=CUS_1&c=none&d=none&e=none&f=cus_1&g=X&h=p&i=x&j=cus_1"},
		{"default keeps a type", RequestSpec{Path: "/a", JSON: map[string]any{"a": "{{default 5 .missing}}", "b": "{{default true .missing}}"}}, `POST /a application/json {"a":5,"b":true}`},
		{"false is a value", RequestSpec{Path: "/a", JSON: map[string]any{"a": `{{default true (not .yes)}}`}}, `POST /a application/json {"a":false}`},
		{"if", RequestSpec{Path: "/a", Form: map[string]string{
			"a": `{{if eq currency "EUR"}}eu-{{order}}{{else}}us{{end}}`, "b": `{{if .missing}}x{{else if .yes}}y{{end}}`, "c": `{{if and .yes (ne .customer "x")}}{{.customer}}{{end}}`,
		}}, "POST /a application/x-www-form-urlencoded a=eu-A%2F1&b=y&c=cus_1"},
		{"if in the path", RequestSpec{Path: `/{{if .yes}}{{order}}{{end}}`}, "POST /A%2F1  "},
		{"a value is no template", RequestSpec{Path: "/a", Form: map[string]string{"a": "{{.template}}"}}, "POST /a application/x-www-form-urlencoded a=%7B%7Border%7D%7D"},
		{"comment and trimming", RequestSpec{Path: "/a", Form: map[string]string{"a": "x {{- /* why */ -}} y", "b": "x {{- order -}} y"}}, "POST /a application/x-www-form-urlencoded a=xy&b=xA%2F1y"},
		{"blanks around keep the type", RequestSpec{Path: "/a", JSON: map[string]any{"a": "{{- minor -}}", "b": " {{minor}}"}}, `POST /a application/json {"a":1999,"b":" 1999"}`},
		{"empty text in form and query", RequestSpec{Path: "/a?b={{.empty}}", Form: map[string]string{"a": "{{.empty}}"}}, "POST /a?b= application/x-www-form-urlencoded a="},
	} {
		tmpl, err := NewTemplate(tt.spec)
		if err != nil {
			t.Errorf("%s: %v", tt.name, err)
			continue
		}
		for range 3 { // the same bytes every time
			r, err := tmpl.Render(testVars())
			if got := strings.Join([]string{r.Method, r.Path, r.ContentType, string(r.Body)}, " "); err != nil || got != tt.want {
				t.Errorf("%s:\n got %s\nwant %s\n%v", tt.name, got, tt.want, err)
				break
			}
		}
	}
}

func TestRenderRefuses(t *testing.T) {
	form := func(s string) RequestSpec { return RequestSpec{Path: "/a", Form: map[string]string{"f": s}} }
	doc := func(s string) RequestSpec {
		return RequestSpec{Path: "/a", JSON: map[string]any{"amount": map[string]any{"value": s}}}
	}
	for _, tt := range []struct {
		spec RequestSpec
		want string
	}{
		{form("{{.missing}}"), "form.f: .missing is missing"},
		{form("{{.null}}"), "form.f: .null is missing"},
		{form("{{.object.a.x}}"), "form.f: .object.a.x is missing"},
		{form("{{.object.x.y}}"), "form.f: .object.x is missing"},
		{form("{{.customer.x}}"), "form.f: .customer.x is missing"},
		{form("{{.enum.Case}}"), "form.f: .enum.Case is missing"},
		{form("{{prepared}}"), "form.f: prepared is missing"},
		{form("{{lower .missing}}"), "form.f: .missing is missing"},
		{form(`{{if eq .missing "a"}}b{{end}}`), "form.f: .missing is missing"},
		{form("{{default .null .missing}}"), "form.f: the value is missing"},
		{form("{{.list}}"), "form.f: a list cannot be put into a text"},
		{form("{{.object}}"), "form.f: an object cannot be put into a text"},
		{form("{{.enum}}"), "form.f: a value of type provider.enum cannot be put into a request; a PHP enum needs an entry in enums"},
		{form("{{lower .enum}}"), "form.f: a value of type provider.enum cannot"},
		{form("{{.exponent}}"), `form.f: the number "1e3" is not written as a plain decimal`},
		{form("{{.nan}}"), "form.f: a number that is infinite or none"},
		{doc("{{.missing}}"), "json.amount.value: .missing is missing"},
		{doc("{{.null}}"), "json.amount.value: .null is missing"},
		{doc("{{.enum}}"), "json.amount.value: a value of type provider.enum"},
		{doc("{{.nested}}"), "json.amount.value: a value of type provider.enum"},
		{doc("{{.bytes}}"), "json.amount.value: the value is not UTF-8"},
		{doc("x{{.bytes}}"), "json.amount.value: the value is not UTF-8"},
		{doc("{{.exponent}}"), "plain decimal"},
		{RequestSpec{Path: "/a/{{.empty}}/b"}, "path: an empty value in the path would lead elsewhere"},
		{RequestSpec{Path: "/a/{{.dots}}/b"}, "segment of dots"},
		{RequestSpec{Path: "/a/{{.dot}}{{.dot}}/b"}, "segment of dots"},
		{RequestSpec{Path: "/a/%2e{{.dot}}"}, "segment of dots"},
		{RequestSpec{Path: "/a?b={{.missing}}"}, "path: .missing is missing"},
	} {
		tmpl, err := NewTemplate(tt.spec)
		if err != nil {
			t.Errorf("%+v: %v", tt.spec, err)
			continue
		}
		if r, err := tmpl.Render(testVars()); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%+v: %+v, %v, want %s", tt.spec, r, err, tt.want)
		}
	}
	// Money that is not known.
	for _, name := range []string{"minor", "major", "currency"} {
		tmpl, err := NewTemplate(form("{{" + name + "}}"))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := tmpl.Render(Vars{Order: "1", Step: "s"}); err == nil || err.Error() != "form.f: "+name+" is missing" {
			t.Errorf("%s of nothing: %v", name, err)
		}
	}
}

func TestNewTemplateRefuses(t *testing.T) {
	form := func(s string) RequestSpec { return RequestSpec{Path: "/a", Form: map[string]string{"f": s}} }
	for _, tt := range []struct {
		spec RequestSpec
		want string
	}{
		{RequestSpec{}, "begins with a slash"},
		{RequestSpec{Path: "{{order}}"}, "begins with a slash"},
		{RequestSpec{Path: "/a b"}, "percent-encoded"},
		{RequestSpec{Path: "/a#b"}, "percent-encoded"},
		{RequestSpec{Path: "/a?b=ü"}, "percent-encoded"},
		{RequestSpec{Path: "/a{{order}} "}, "percent-encoded"},
		{RequestSpec{Method: "post", Path: "/a"}, "method"},
		{RequestSpec{Path: "/a", Form: map[string]string{"a": "b"}, JSON: "c"}, "exclude each other"},
		{RequestSpec{Path: "/a", JSON: map[string]any{"{{order}}": 1}}, "is a template; only values are"},
		{RequestSpec{Path: "/a", JSON: map[string]any{"a": enum{}}}, "json.a: a value of type"},
		{RequestSpec{Path: "/a", JSON: []any{map[string]any{"a": "{{"}}}, "json.0.a: "},
		{form("{{order"), "form.f: unclosed action"},
		{form("{{odrer}}"), `form.f: {{odrer}} is unknown`},
		{form("{{printf \"%v\" .a}}"), `{{printf}} is unknown`},
		{form("{{_row . true \"order\"}}"), `{{_row}} is unknown`},
		{form("{{order step}}"), "takes no argument"},
		{form("{{.a .b}}"), "takes no argument"},
		{form("{{.a | order}}"), "takes no argument"},
		{form("{{.}}"), "is not taken"},
		{form("{{$}}"), "is not taken"},
		{form("{{$.a}}"), "is not taken"},
		{form("{{$x := .a}}{{$x}}"), "variables are not taken"},
		{form("{{(lower .a).b}}"), "is not taken"},
		{form("{{range .a}}x{{end}}"), "is not taken"},
		{form("{{with .a}}x{{end}}"), "is not taken"},
		{form(`{{define "x"}}y{{end}}`), "define"},
		{form(`{{template "x"}}`), "is not taken"},
		{form("{{lower upper}}"), "is not taken"},
		{form("\xff"), "UTF-8"},
	} {
		if _, err := NewTemplate(tt.spec); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%+v: %v, want %s", tt.spec, err, tt.want)
		}
	}
	if _, err := newLookupTemplate("/payments?ref={{.order}}", nil, nil); err == nil || !strings.Contains(err.Error(), "sees only the row") {
		t.Errorf("look-up with a property: %v", err)
	}
}

func TestTemplateConcurrently(t *testing.T) {
	tmpl, err := NewTemplate(RequestSpec{Path: "/{{order}}", JSON: map[string]any{"a": "{{order}}", "b": "{{minor}}"}})
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			order := string(rune('a' + i))
			for range 200 {
				r, err := tmpl.Render(Vars{Order: order, Money: zabor.Money{Minor: int64(i), Currency: "EUR"}})
				if err != nil || r.Path != "/"+order || !strings.HasPrefix(string(r.Body), `{"a":"`+order) {
					t.Errorf("%s: %+v %v", order, r, err)
					return
				}
			}
		})
	}
	all.Wait()
}

// Whatever a value is, it stays where the template put it: one segment, one
// query value, one form value, one JSON string.
func FuzzRender(f *testing.F) {
	for _, s := range []string{"1001", "../..", "a/b", "?x=y", "#", "%2e%2e", "\x00", "\xff", "&a=b", "\"", "{{order}}", ".", ""} {
		f.Add(s)
	}
	tmpl, err := NewTemplate(RequestSpec{Path: "/o/{{.v}}/x?q={{.v}}&r=1", Form: map[string]string{"a": "{{.v}}", "b": "1"}})
	if err != nil {
		f.Fatal(err)
	}
	doc, err := NewTemplate(RequestSpec{Path: "/", JSON: map[string]any{"a": "{{.v}}", "b": "-{{.v}}"}})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, v string) {
		vars := Vars{Data: map[string]any{"v": v}}
		if r, err := tmpl.Render(vars); err == nil {
			u, err := url.Parse("http://host" + r.Path)
			if err != nil {
				t.Fatalf("%q: %v", r.Path, err)
			}
			segments := strings.Split(u.EscapedPath(), "/")
			if len(segments) != 4 || u.Fragment != "" || u.Host != "host" {
				t.Errorf("%q", r.Path)
			}
			if got, _ := url.PathUnescape(segments[2]); got != v || got == ".." || got == "." {
				t.Errorf("segment %q, want %q", got, v)
			}
			if q := u.Query(); len(q) != 2 || q.Get("q") != v {
				t.Errorf("query %q", u.RawQuery)
			}
			form, err := url.ParseQuery(string(r.Body))
			if err != nil || len(form) != 2 || form.Get("a") != v {
				t.Errorf("form %q", r.Body)
			}
			frozen, err := Freeze(r)
			if err != nil {
				t.Fatal(err)
			}
			if again, err := Thaw(frozen); err != nil || again.Path != r.Path || string(again.Body) != string(r.Body) {
				t.Errorf("thawed %+v, %v", again, err)
			}
		}
		r, err := doc.Render(vars)
		if (err == nil) != utf8.ValidString(v) {
			t.Fatalf("%q: %v", v, err)
		}
		if err == nil {
			var got map[string]string
			if err := json.Unmarshal(r.Body, &got); err != nil || got["a"] != v || got["b"] != "-"+v {
				t.Errorf("%q: %s, %v", v, r.Body, err)
			}
		}
	})
}

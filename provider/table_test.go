package provider

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"zabor"
)

// tableOf is a profile with the lines.
func tableOf(lines ...Line) Profile {
	p := testProfile("https://pay.example.com")
	plain := p.Line
	p.Line = Line{}
	for _, l := range lines {
		l.Answers, l.Amount = plain.Answers, plain.Amount
		if l.Refused != "" {
			l.Answers, l.Amount = Answers{}, Amount{}
		}
		p.Calls = append(p.Calls, l)
	}
	return p
}

func lineOf(name, call string, where map[string][]string) Line {
	return Line{Name: name, Does: Charges, Call: call, Where: where}
}

// Lines that one request could meet are refused when the profile is built.
func TestTableIsExclusive(t *testing.T) {
	t.Parallel()
	w := func(at string, values ...string) map[string][]string { return map[string][]string{at: values} }
	for _, tt := range []struct {
		name string
		p    Profile
		want string
	}{
		{"two paths", tableOf(lineOf("a", "POST /a", nil), lineOf("b", "POST /b", nil)), ""},
		{"two methods", tableOf(lineOf("a", "POST /a", nil), lineOf("b", "PUT /a", nil)), ""},
		{"a path and one below", tableOf(lineOf("a", "POST /a", nil), lineOf("b", "POST /a/*", nil)), ""},
		{"the same", tableOf(lineOf("a", "POST /a", nil), lineOf("b", "POST /a", nil)), "a request could meet a and b"},
		{"any segment and one", tableOf(lineOf("a", "POST /a/*", nil), lineOf("b", "POST /a/b", nil)), "could meet"},
		{"any segment on either side", tableOf(lineOf("a", "POST /*/a", nil), lineOf("b", "POST /b/*", nil)), "could meet"},
		{"apart by a value", tableOf(lineOf("a", "POST /a", w("/x", "1")), lineOf("b", "POST /a", w("/x", "2"))), ""},
		{"there and not there", tableOf(lineOf("a", "POST /a", w("/x", "*")), lineOf("b", "POST /a", w("/x", ""))), ""},
		{"a value and anything", tableOf(lineOf("a", "POST /a", w("/x", "1")), lineOf("b", "POST /a", w("/x", "*"))), "could meet"},
		{"anything and a value", tableOf(lineOf("a", "POST /a", w("/x", "*")), lineOf("b", "POST /a", w("/x", "1"))), "could meet"},
		{"nothing on both sides", tableOf(lineOf("a", "POST /a", w("/x", "", "1")), lineOf("b", "POST /a", w("/x", "2", ""))), "could meet"},
		{"another field", tableOf(lineOf("a", "POST /a", w("/x", "1")), lineOf("b", "POST /a", w("/y", "1"))), "could meet"},
		{"a condition and none", tableOf(lineOf("a", "POST /a", w("/x", "1")), lineOf("b", "POST /a", nil)), "could meet"},
		{"a refused one", tableOf(lineOf("a", "POST /a", nil), Line{Name: "b", Call: "POST /a", Refused: "no"}), "could meet"},
		{"one name", tableOf(lineOf("a", "POST /a", nil), lineOf("a", "POST /b", nil)), "a is the name of calls.0 too"},
		{"no call", tableOf(Line{Name: "a", Does: Charges}), "a line of a table has a name"},
		{"no name", tableOf(Line{Does: Charges, Call: "POST /a"}), "a line of a table has a name"},
		{"nothing done", tableOf(Line{Name: "a", Call: "POST /a"}), "does"},
		{"something else done", tableOf(Line{Name: "a", Does: "dance", Call: "POST /a"}), `does "dance"`},
		{"no method", tableOf(lineOf("a", "/a", nil)), "a method and a path"},
		{"another method", tableOf(lineOf("a", "FETCH /a", nil)), "a method and a path"},
		{"a query", tableOf(lineOf("a", "POST /a?b", nil)), "a method and a path"},
		{"an escape", tableOf(lineOf("a", "POST /a%20b", nil)), "a method and a path"},
		{"no pointer", tableOf(lineOf("a", "POST /a", w("x", "1"))), "where.x"},
		{"no values", tableOf(lineOf("a", "POST /a", w("/x"))), "where./x"},
		{"a plain line with a path", func() Profile { p := testProfile("https://x"); p.Call = "POST /a"; p.Does = Charges; return p }(), "belongs into calls"},
		{"a table and a plain line", func() Profile {
			p := tableOf(lineOf("a", "POST /a", nil))
			p.Reference = "/id"
			return p
		}(), "there is a table"},
	} {
		if err := tt.p.Validate(); tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("%s: %v, want %s", tt.name, err, tt.want)
		}
	}
}

// The path as it is sent, and the body as it is read in one way alone, choose the line;
// a request without a line is never sent.
func TestWhichLine(t *testing.T) {
	t.Parallel()
	pr := mustNew(t, tableOf(
		lineOf("on", "POST /a/*/b", map[string][]string{"/x": {"true"}}), lineOf("off", "POST /a/*/b", map[string][]string{"/x": {"", "false"}}),
		Line{Name: "no", Call: "POST /c", Refused: "because"}, lineOf("deep", "POST /d", map[string][]string{"/x/y": {"*"}}),
	), Options{})
	const form, json = formType, "application/json"
	for _, tt := range []struct{ path, kind, body, want string }{
		{"/a/1/b", form, "x=true", "on"}, {"/a/1/b", form, "x=false", "off"}, {"/a/1/b", form, "y=1", "off"}, {"/a/1/b", "", "", "off"},
		{"/a/1/b", json, `{"x":true}`, "on"}, {"/a/1/b", json, `{"x":"true"}`, "on"}, {"/a/1/b", json, `{"x":null}`, "off"}, {"/a/1/b", json, `{"x":""}`, "off"},
		{"/a/1/b", json, `{"x":{}}`, ""}, {"/a/1/b", json, `{"x":1}`, ""}, {"/a/1/b", form, "x=TRUE", ""},
		{"/a/1/b", form, "x=true&x=false", ""}, {"/a/1/b", form, "x=true&x[y]=1", ""}, {"/a/1/b", form, "x[y]=1&x=true", ""}, {"/a/1/b", json, `{"x":true,"x":false}`, ""}, {"/a/1/b", json, `{`, ""}, {"/a/1/b", "text/plain", "x=true", ""},
		{"/a/1/b", "multipart/form-data; boundary=z", "--z\r\n\r\n--z--", ""},
		{"/a/1/b?x=true", form, "x=true", ""}, {"/a/1/b/", form, "x=true", ""}, {"/a//b", form, "x=true", ""}, {"/a/1/%62", form, "x=true", ""},
		{"/a/1%2Fb", form, "x=true", ""}, {"/a/1/B", form, "x=true", ""}, {"/a/%31/b", form, "x=true", ""}, {"/a/1;x/b", form, "x=true", ""}, {"/a/1%00/b", form, "x=true", ""},
		{"/a/pi_1-2.3~4/b", form, "x=true", "on"}, {"/a/1%20/b", form, "x=true", ""}, {"/b", form, "", ""}, {"/c", form, "", ""},
		{"/d", form, "x[y]=1", "deep"}, {"/d", json, `{"x":{"y":[1]}}`, "deep"}, {"/d", form, "x=1", ""}, {"/d", form, "", ""},
	} {
		r := Request{Method: http.MethodPost, Path: tt.path, ContentType: tt.kind, Body: []byte(tt.body)}
		got, err := pr.Line(r.Open())
		if got.Name != tt.want || (err == nil) != (tt.want != "") {
			t.Errorf("%s %s: %q, %v, want %q", tt.path, tt.body, got.Name, err, tt.want)
		}
		uncovered, ok := errors.AsType[*UncoveredError](err)
		if tt.want == "" && (!ok || uncovered.Why == "") {
			t.Errorf("%s %s: error %v", tt.path, tt.body, err)
			continue
		}
		if tt.want == "" && r.validate() == nil {
			row := testRow(t)
			if row.Open.Request, err = Freeze(r); err != nil {
				t.Fatal(err)
			}
			if o := pr.Call(within(t, time.Second), row); o.Verdict != zabor.Malformed || !strings.Contains(o.Reason, "nothing was sent") {
				t.Errorf("%s %s: %+v", tt.path, tt.body, o)
			}
		}
	}
	if _, err := pr.Line(Request{Method: http.MethodPut, Path: "/c"}.Open()); err == nil || !strings.Contains(err.Error(), "no line about it") {
		t.Errorf("another method: %v", err)
	}
}

// A look-up asks for whom the call was made: without a table by all fields that are not
// about the body or the key, and never by one of the profile's own.
func TestLookupAsWhom(t *testing.T) {
	t.Parallel()
	p := newPeer(t, after(says(answerOf(200, list()))))
	row := testRow(t)
	frozen, err := Freeze(Request{Method: "POST", Path: "/payments", ContentType: "application/json", Body: []byte(`{}`), Header: []zabor.HeaderField{
		{Name: "X-Merchant", Value: "7"}, {Name: "Prefer", Value: "x"}, {Name: "Accept", Value: "text/x"}, {Name: "Authorization", Value: "Bearer stolen"}, {Name: "Idempotency-Key", Value: "k"},
	}})
	if err != nil {
		t.Fatal(err)
	}
	row.Open.Request = frozen
	if _, err := mustNew(t, testProfile("http://"+p.addr), Options{}).Lookup(t.Context(), row); err != nil {
		t.Fatal(err)
	}
	got := p.posts()[0].Header
	if got.Get("X-Merchant") != "7" || got.Get("Prefer") != "" || got.Get("Accept") != "application/json" || got.Get("Authorization") != "Bearer s3cret" || got.Get("Idempotency-Key") != "" {
		t.Errorf("asked with %v", got)
	}
}

// What only a template decides may be any of the lines that it could meet.
func TestLinesOfTemplates(t *testing.T) {
	t.Parallel()
	first := lineOf("first", "POST /a/*", map[string][]string{"/x/y": {""}})
	first.Does = Prepares
	p := tableOf(first, lineOf("second", "POST /a/*", map[string][]string{"/x/y": {"*"}}), lineOf("third", "POST /a/*/end", nil))
	object := map[string]any{"y": "1"}
	for _, tt := range []struct {
		prepare *RequestSpec
		request RequestSpec
		want    string
	}{
		{nil, RequestSpec{Path: "/a/{{order}}", JSON: map[string]any{"x": object}}, ""},
		{nil, RequestSpec{Path: "/a/1", JSON: map[string]any{"x": object}}, ""},
		{nil, RequestSpec{Path: "/a/1", JSON: map[string]any{"x": map[string]any{"y": "{{order}}"}}}, ""},
		{nil, RequestSpec{Path: "/a/1", JSON: map[string]any{"x": "{{.x}}"}}, ""},
		{nil, RequestSpec{Path: "/a/1", JSON: "{{.all}}"}, ""},
		{nil, RequestSpec{Path: "/a/1", JSON: map[string]any{}}, "request: POST /a/* by itself moves no money"},
		{nil, RequestSpec{Path: "/{{order}}/1", JSON: map[string]any{"x": object}}, ""},
		{nil, RequestSpec{Path: "/b/{{order}}"}, "request: POST /b/*: the profile has no line about it"},
		{nil, RequestSpec{Method: "PUT", Path: "/a/{{order}}"}, "no line about it"},
		{&RequestSpec{Path: "/a/1", JSON: map[string]any{"x": object}}, RequestSpec{Path: "/a/{{prepared}}/end"}, "prepare: POST /a/* moves the money (second)"},
		{&RequestSpec{Path: "/a/1", JSON: map[string]any{}}, RequestSpec{Path: "/a/{{prepared}}/end"}, ""},
		{&RequestSpec{Path: "/a/1", JSON: map[string]any{"x": "{{.x}}"}}, RequestSpec{Path: "/a/{{prepared}}/end"}, ""},
		{&RequestSpec{Path: "/b"}, RequestSpec{Path: "/a/{{prepared}}/end"}, "prepare: POST /b: the profile has no line"},
	} {
		_, err := p.Terms(tt.prepare, tt.request)
		if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("%+v, %+v: %v, want %s", tt.prepare, tt.request, err, tt.want)
		}
	}
}

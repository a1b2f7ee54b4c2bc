package dashboard

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"zabor"
	"zabor/card"
	"zabor/provider"
)

// evidence is what a person needs to decide about a row.
type evidence struct {
	Customer []field
	From, To time.Time // when a call may have been sent
	Provider Provider
	Console  Console
	Surely   time.Time // from when on the provider's silence is proof; zero: never
}

func (d *Dashboard) evidence(row zabor.Row) evidence {
	e := evidence{From: row.CapturedAt, To: row.SendUntil}
	e.Provider, _ = d.provider(row.Provider)
	if e.Provider.Console != nil {
		e.Console = e.Provider.Console(row)
	}
	if len(e.Console.Type) == 0 {
		e.Console.Type = searchFor(row)
	}
	if row.AbsentAfter > 0 && !row.SendUntil.IsZero() {
		e.Surely = row.SendUntil.Add(row.AbsentAfter)
	}
	fields, _ := requestFields(row)
	for _, f := range fields {
		if customer[plain(f.Name)] && f.Value != "" {
			e.Customer = append(e.Customer, f)
		}
	}
	return e
}

// searchFor is what a provider's search may find a row by, the surest first.
func searchFor(row zabor.Row) []string {
	var all []string
	for _, text := range []string{row.Reference, row.Prepared, row.ProviderKey, row.Order} {
		if text != "" {
			all = append(all, text)
		}
	}
	return all
}

// customer are names of fields that say who pays.
var customer = map[string]bool{
	"customer": true, "customerid": true, "customeremail": true, "customername": true, "email": true, "receiptemail": true, "payeremail": true,
	"payerid": true, "buyer": true, "buyerid": true, "buyeremail": true, "shopperreference": true, "shopperemail": true, "userid": true, "user": true,
	"clientid": true, "accountid": true, "phone": true, "customerkey": true, "merchantcustomerid": true,
}

// field is one value of a message, a request or an answer, with the names that
// lead to it.
type field struct{ Name, Value string }

// mostFields is how many fields a page shows, and mostBytes how much of a body it
// reads.
const (
	mostFields = 200
	mostBytes  = 64 << 10
)

// plain is the last part of a name without the signs between its words.
func plain(name string) string {
	if i := strings.LastIndexAny(name, ".["); i >= 0 {
		name = name[i+1:]
	}
	return withoutSigns.Replace(strings.ToLower(name))
}

var withoutSigns = strings.NewReplacer("_", "", "-", "", "]", "")

// secret reports whether what is in a field of this name is shown to nobody.
func secret(name string) bool {
	if card.Field(name) {
		return true
	}
	p := plain(name)
	for _, word := range []string{"secret", "password", "passwd", "token", "authorization", "apikey", "privatekey", "signature", "cookie", "credential", "iban", "accountnumber", "otp", "pincode"} {
		if strings.Contains(p, word) {
			return true
		}
	}
	return p == "pin" || p == "auth" || p == "bearer" || p == "card" || p == "key" && strings.Contains(strings.ToLower(name), "api")
}

const hidden = "•••• not shown"

// fields is a decoded value, flat, without what is secret.
func fields(v any) []field {
	var all []field
	flatten("", v, &all)
	return all
}

func flatten(name string, v any, all *[]field) {
	if len(*all) > mostFields {
		return
	}
	if len(*all) == mostFields {
		*all = append(*all, field{"…", "more is not shown"})
		return
	}
	join := func(part string) string {
		if name == "" {
			return part
		}
		return name + "." + part
	}
	if name != "" && secret(name) {
		if _, isMap := v.(map[string]any); !isMap || plain(name) != "card" {
			*all = append(*all, field{readable(name), hidden})
			return
		}
	}
	switch v := v.(type) {
	case map[string]any:
		if len(v) == 0 && name != "" {
			*all = append(*all, field{readable(name), "{}"})
		}
		for _, key := range slices.Sorted(maps.Keys(v)) {
			flatten(join(key), v[key], all)
		}
	case []any:
		if len(v) == 0 {
			*all = append(*all, field{readable(name), "[]"})
		}
		for i, one := range v {
			flatten(join(fmt.Sprint(i)), one, all)
		}
	case nil:
		*all = append(*all, field{readable(name), "null"})
	default:
		*all = append(*all, field{readable(name), cut(500, readable(fmt.Sprint(v)))})
	}
}

// bodyFields reads a body as what its type says it is; nil: it cannot be read so.
func bodyFields(contentType string, body []byte) []field {
	if len(body) == 0 {
		return nil
	}
	if len(body) > mostBytes {
		return []field{{"…", fmt.Sprintf("%d bytes, too long to be shown here", len(body))}}
	}
	if strings.Contains(contentType, "form-urlencoded") {
		values, err := url.ParseQuery(string(body))
		if err != nil {
			return nil
		}
		var all []field
		for _, name := range slices.Sorted(maps.Keys(values)) {
			for _, value := range values[name] {
				flatten(name, value, &all)
			}
		}
		return all
	}
	d := json.NewDecoder(bytes.NewReader(body))
	d.UseNumber()
	var v any
	if d.Decode(&v) == nil {
		return fields(v)
	}
	if utf8.Valid(body) {
		return []field{{"text", cut(2000, readable(string(body)))}}
	}
	return []field{{"…", fmt.Sprintf("%d bytes that are no text", len(body))}}
}

// requestFields is what is kept of a row's request; else why it is not shown.
func requestFields(row zabor.Row) ([]field, string) {
	switch {
	case row.Sealed != nil && row.Sealed.Request != nil:
		return nil, "kept, and cannot be read here: " + row.Sealed.Why
	case row.Request != nil:
	case row.Captures == 0:
		return nil, "no call was made"
	case row.State.Closed():
		return nil, "not kept any more: nothing is left to find out"
	default:
		return nil, "not kept: it holds what may be kept nowhere, such as a card number"
	}
	request, err := provider.Thaw(row.Request)
	if err != nil {
		return nil, err.Error()
	}
	path, _, _ := strings.Cut(request.Path, "?")
	all := []field{{"request", request.Method + " " + readable(path)}}
	return append(all, bodyFields(request.ContentType, request.Body)...), ""
}

// answerFields is what is kept of the provider's answer.
func answerFields(row zabor.Row) (status int, all []field) {
	switch {
	case row.Sealed != nil && row.Sealed.Answer != nil:
		return row.Sealed.Status, []field{{"body", "kept, and cannot be read here: " + row.Sealed.Why}}
	case row.Answer != nil:
		contentType := ""
		for _, h := range row.Answer.Header {
			if strings.EqualFold(h.Name, "Content-Type") {
				contentType = h.Value
			}
		}
		return row.Answer.Status, bodyFields(contentType, row.Answer.Body)
	case row.AnswerEnded != 0:
		return row.AnswerEnded, []field{{"body", "erased when its time was over"}}
	}
	return 0, nil
}

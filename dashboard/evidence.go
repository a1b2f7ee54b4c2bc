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
	"zabor/internal/php"
	"zabor/provider"
)

// evidence is what a person needs to decide about a row.
type evidence struct {
	Customer []field
	About    []field   // what the request says it is for
	From, To time.Time // when a call may have been sent
	Provider Provider
	Console  Console
	Order    string // address of the shop's own order; empty: none is configured
	// Imported: another program made the call, if there was one. From is when the row
	// was imported then.
	Imported bool
	Answer   string // the provider's latest, in words; empty: none is known
	Why      string // the row is in its state, in plain words
	Detail   string // the technical text behind Why; may be empty
	// Silence is until when finding nothing at the provider proves nothing; zero: no
	// call is known to have been sent. Where Never is true it proves nothing later
	// either: there is no time after which the provider surely shows every call.
	Silence time.Time
	Never   bool
}

// evidence collects it. notes are those on row; nil: only the row is known.
func (d *Dashboard) evidence(row zabor.Row, notes []zabor.Note) evidence {
	e := evidence{From: row.CapturedAt, To: row.Open.SendUntil, Never: row.Open.AbsentAfter == 0, Imported: Imported(row, notes), Answer: lastAnswer(row)}
	e.Why, e.Detail = why(row)
	if d.o.OrderURL != "" {
		e.Order = strings.ReplaceAll(d.o.OrderURL, OrderMark, url.PathEscape(row.Order))
	}
	e.Provider, _ = d.provider(row.Provider)
	if e.Provider.Console != nil {
		e.Console = e.Provider.Console(row)
	} else {
		e.Console.Search = provider.Console{}.Search(row)
	}
	if e.Imported {
		e.Never = false
		e.Console.Search = slices.DeleteFunc(slices.Clone(e.Console.Search), func(c provider.Clue) bool {
			return row.ProviderKey != "" && strings.Contains(c.Text, row.ProviderKey)
		})
	} else if !row.Open.SendUntil.IsZero() {
		e.Silence = row.Open.SendUntil.Add(row.Open.AbsentAfter)
	}
	fields, _ := requestFields(row)
	for _, f := range fields {
		if customer[plain(f.Name)] && f.Value != "" {
			e.Customer = append(e.Customer, f)
		} else if about[plain(f.Name)] && f.Value != "" {
			e.About = append(e.About, f)
		}
	}
	return e
}

// customer are names of fields that say who pays.
var customer = map[string]bool{
	"customer": true, "customerid": true, "customeremail": true, "customername": true, "email": true, "receiptemail": true, "payeremail": true,
	"payerid": true, "buyer": true, "buyerid": true, "buyeremail": true, "shopperreference": true, "shopperemail": true, "userid": true, "user": true,
	"clientid": true, "accountid": true, "phone": true, "customerkey": true, "merchantcustomerid": true,
}

// about are names of fields that say what is paid for.
var about = map[string]bool{
	"description": true, "statementdescriptor": true, "statementdescriptorsuffix": true, "purpose": true, "softdescriptor": true, "shopperstatement": true,
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
	if name != "" && secret(name, v) {
		*all = append(*all, field{readable(name), hidden})
		return
	}
	if text, ok := v.(string); ok {
		if len(text) > mostBytes {
			v = unshown(len(text))
		} else if inner, known := unpacked(text); known {
			flatten(name, inner, all)
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
	case php.Enum:
		*all = append(*all, field{readable(name), readable(v.Class + "::" + v.Case)})
	default:
		*all = append(*all, field{readable(name), cut(500, readable(fmt.Sprint(v)))})
	}
}

func unshown(bytes int) string { return fmt.Sprintf("%d bytes, too long to be shown here", bytes) }

// bodyFields reads a body as what its type says it is; nil: it cannot be read so.
func bodyFields(contentType string, body []byte) []field {
	if len(body) == 0 {
		return nil
	}
	if len(body) > mostBytes {
		return []field{{"…", unshown(len(body))}}
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
	if inner, known := unpacked(string(body)); known {
		return fields(inner)
	}
	if utf8.Valid(body) {
		return []field{{"text", cut(2000, readable(string(body)))}}
	}
	return []field{{"…", fmt.Sprintf("%d bytes that are no text", len(body))}}
}

// requestFields is what is kept of a row's request; else why it is not shown.
func requestFields(row zabor.Row) ([]field, string) {
	switch {
	case row.Open.Sealed.Request != nil:
		return nil, "kept, and cannot be read here: " + row.Open.Sealed.Why
	case row.Open.Request != nil:
	case row.Tries == 0:
		return nil, "no call was made"
	case row.State.Closed():
		return nil, "not kept any more: nothing is left to find out"
	default:
		return nil, "not kept: it holds what may be kept nowhere, such as a card number"
	}
	request, err := provider.Thaw(row.Open.Request)
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
	case row.Answer == nil:
		return 0, nil
	case row.Answer.Sealed != nil:
		return row.Answer.Status, []field{{"body", "kept, and cannot be read here: " + row.Answer.Why}}
	case row.Answer.Erased:
		return row.Answer.Status, []field{{"body", "erased when its time was over"}}
	default:
		contentType := ""
		for _, h := range row.Answer.Header {
			if strings.EqualFold(h.Name, "Content-Type") {
				contentType = h.Value
			}
		}
		return row.Answer.Status, bodyFields(contentType, row.Answer.Body)
	}
}

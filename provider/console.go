package provider

import (
	"encoding/json"
	"net/url"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"zabor"
)

// Console is the provider's own page for people, where a payment is looked up. The
// zero Console is one of which nothing is known.
type Console struct {
	// URL is the page; {query} in it is what is looked for, {account} the account.
	// Empty: not known.
	URL  string `yaml:"url" json:"url"`
	Test string `yaml:"test" json:"test,omitempty"` // the page of test credentials; empty: the same
	// How says what its search finds and what it does not, in sentences.
	How string `yaml:"how" json:"how"`
	// Terms are what its search finds a call by, the surest first.
	Terms []Term `yaml:"search" json:"search,omitempty"`
}

// Term is one thing that a call is found by.
type Term struct {
	By string `yaml:"by" json:"by"` // what it is, in the provider's words
	// Type is what is typed, with one of {reference}, {prepared}, {key} and {order} in
	// it: what the row has. A row that has none is not found by it.
	Type string `yaml:"type" json:"type"`
	// In is where the request carries it, as a JSON pointer; in a form /metadata/key
	// is the field metadata[key], and * is anywhere in the path or the body. What a
	// request has there is typed in place of what the row has, and a call whose request
	// has nothing there is not found by it. Empty: it needs nothing in the request.
	In string `yaml:"in" json:"in,omitempty"`
}

// Clue is a Term for one row.
type Clue struct {
	By, Text string
	// Unsure: whether the request carried it is not known, because what was sent is
	// not kept.
	Unsure bool
}

// anywhere are the terms of a provider of which nothing is known.
var anywhere = [...]Term{
	{"the provider's own number", "{reference}", ""},
	{"the id that it gave first", "{prepared}", ""},
	{"the provider key", "{key}", inAll},
	{"the order", "{order}", inAll},
}

const inAll = "*"

// Find is the page that looks for query, of test or of live credentials; empty: not
// known.
func (c Console) Find(query, account string, test bool) string {
	page := c.URL
	if test && c.Test != "" {
		page = c.Test
	}
	return strings.NewReplacer("{query}", url.QueryEscape(query), "{account}", url.PathEscape(account)).Replace(page)
}

// Search is what row's call may be found by, the surest first; none: by its amount,
// time and customer alone.
func (c Console) Search(row zabor.Row) []Clue {
	// A call of somebody else carried no key of ours, and not this request.
	foreign := row.Cause == zabor.ByImport || row.Cause == zabor.ByMissingRow && row.State == zabor.Held
	var request *Request
	if sent, err := Thaw(row.Open.Request); row.Open.Request != nil && err == nil && !foreign {
		request = &sent
	}
	terms := c.Terms
	if len(terms) == 0 {
		terms = anywhere[:]
	}
	var clues []Clue
	for _, t := range terms {
		name, value := t.of(row)
		if value == "" || foreign && name == "{key}" {
			continue
		}
		clue := Clue{By: t.By, Unsure: t.In != ""}
		if request != nil && t.In != "" {
			if carried := request.carries(t.In, value); carried != "" {
				value, clue.Unsure = carried, false
			} else if row.Prepared == "" { // else the first request may have carried it
				continue
			}
		}
		clue.Text = strings.Replace(t.Type, name, value, 1)
		if !slices.ContainsFunc(clues, func(c Clue) bool { return c.Text == clue.Text }) {
			clues = append(clues, clue)
		}
	}
	return clues
}

// of is which of the row's values t is about, and that value.
func (t Term) of(row zabor.Row) (name, value string) {
	for name, value := range map[string]string{"{reference}": row.Reference, "{prepared}": row.Prepared, "{key}": row.ProviderKey, "{order}": row.Order} {
		if strings.Contains(t.Type, name) {
			return name, value
		}
	}
	return "", ""
}

// carries is what r has at in, where in is a pointer, and value where it is
// anywhere; empty: r has nothing there.
func (r Request) carries(in, value string) string {
	form := url.Values{}
	if strings.Contains(r.ContentType, "form-urlencoded") {
		form, _ = url.ParseQuery(string(r.Body))
	}
	if in != inAll {
		at, err := parsePointer(in)
		if err != nil {
			return ""
		}
		if len(form) > 0 {
			name := at[0]
			for _, part := range at[1:] {
				name += "[" + part + "]"
			}
			return form.Get(name)
		}
		document, err := decodeJSON(r.Body)
		if err != nil {
			return ""
		}
		return at.scalarIn(document)
	}
	texts := []string{r.Path, string(r.Body)}
	if path, err := url.PathUnescape(r.Path); err == nil {
		texts = append(texts, path)
	}
	for _, values := range form {
		texts = append(texts, values...)
	}
	if quoted, err := json.Marshal(value); err == nil && len(quoted) > 2 {
		texts = append(texts, strings.ReplaceAll(string(r.Body), string(quoted[1:len(quoted)-1]), value))
	}
	for _, text := range texts {
		if holds(text, value) {
			return value
		}
	}
	return ""
}

// holds reports whether word stands in text, not as a part of a longer word.
func holds(text, word string) bool {
	inWord := func(r rune) bool { return unicode.IsLetter(r) || unicode.IsDigit(r) }
	for from := 0; ; {
		i := strings.Index(text[from:], word)
		if i < 0 || word == "" {
			return false
		}
		begin, end := from+i, from+i+len(word)
		before, _ := utf8.DecodeLastRuneInString(text[:begin])
		after, _ := utf8.DecodeRuneInString(text[end:])
		if !inWord(before) && !inWord(after) {
			return true
		}
		from = begin + 1
	}
}

package provider

import (
	"bytes"
	"encoding/json"
	"net/url"

	"zabor/card"
)

// HoldsCard reports whether a card's number or code is in r, in its path or in
// its body: as a form, as JSON to any depth, or as any other text. What it takes
// for a number may be none, see package card.
func (r Request) HoldsCard() bool {
	_, holds := r.WithoutCard()
	return holds
}

// WithoutCard is r, not to be sent, with a card's number masked and its code left
// out, and whether there was one. What holds none is r itself.
func (r Request) WithoutCard() (Request, bool) {
	masked := r
	masked.Path = card.Mask(r.Path)
	holds := masked.Path != r.Path
	path, query, _ := bytes.Cut([]byte(r.Path), []byte("?"))
	if form, found := maskForm(string(query)); found {
		masked.Path, holds = card.Mask(string(path))+"?"+form, true
	}
	if body, found := maskBody(r.ContentType, r.Body); found {
		masked.Body, holds = body, true
	}
	return masked, holds
}

func maskBody(contentType string, body []byte) ([]byte, bool) {
	if contentType == "application/x-www-form-urlencoded" {
		form, found := maskForm(string(body))
		return []byte(form), found
	}
	d := json.NewDecoder(bytes.NewReader(body))
	d.UseNumber()
	var document any
	if d.Decode(&document) == nil && !d.More() {
		found := false
		document = maskValue("", document, &found)
		if !found {
			return body, false
		}
		out, err := json.Marshal(document)
		return out, err == nil
	}
	text := card.Mask(string(body))
	return []byte(text), text != string(body)
}

// maskForm is a form, or a query, without a card's data.
func maskForm(text string) (string, bool) {
	form, err := url.ParseQuery(text)
	if err != nil {
		masked := card.Mask(text)
		return masked, masked != text
	}
	found := false
	for name, values := range form {
		for i, value := range values {
			values[i] = maskText(name, value, &found)
		}
	}
	return form.Encode(), found
}

// maskValue is v, which stands under name, without a card's data.
func maskValue(name string, v any, found *bool) any {
	switch v := v.(type) {
	case string:
		return maskText(name, v, found)
	case json.Number:
		if text := maskText(name, v.String(), found); text != v.String() {
			return text
		}
	case []any:
		for i := range v {
			v[i] = maskValue(name, v[i], found)
		}
	case map[string]any:
		for property, value := range v {
			v[property] = maskValue(name+"."+property, value, found)
		}
	}
	return v
}

// maskedCode stands for a code, of which nothing may be kept.
const maskedCode = "***"

func maskText(name, value string, found *bool) string {
	masked := card.Mask(value)
	if masked == value && value != "" && card.Field(name) {
		masked = maskedCode
	}
	*found = *found || masked != value
	return masked
}

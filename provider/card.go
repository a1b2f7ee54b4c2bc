package provider

import (
	"bytes"
	"encoding/json"
	"maps"
	"mime/multipart"
	"net/url"
	"slices"
	"strings"

	"zabor"
	"zabor/card"
)

// WithoutCard is the request, not to be sent, with a card's number masked and its
// code left out, and whether there was one: in the path, in a header field or in the
// body, as JSON to any depth, as a form or as the parts of one. What it takes for a
// number may be none, see package card. A body that nobody can look into (encoded, a
// file, in another form) counts as one with a card, whatever is masked in it. What
// holds none is the request itself.
func (r Opened) WithoutCard() (Request, bool) {
	masked, holds := r.Request, false
	if path, found := maskPath(r.Path); found {
		masked.Path, holds = path, true
	}
	if header, found := maskHeader(r.Header); found {
		masked.Header, holds = header, true
	}
	if slices.ContainsFunc(r.Header, encodes) {
		return masked, holds || len(r.Body) > 0
	}
	if body, found := r.maskBody(); found {
		masked.Body, holds = body, true
	}
	return masked, holds
}

func maskHeader(fields []zabor.HeaderField) (masked []zabor.HeaderField, found bool) {
	masked = fields
	for i, field := range fields {
		holds := false
		value := maskText(strings.TrimPrefix(field.Name, "X-"), field.Value, &holds)
		if holds && !found {
			masked, found = slices.Clone(fields), true
		}
		if holds {
			masked[i].Value = value
		}
	}
	return masked, found
}

// encodes reports whether the header field says that the body is not as it stands.
func encodes(field zabor.HeaderField) bool {
	return field.Name == "Content-Encoding" && !strings.EqualFold(field.Value, "identity")
}

// maskPath is a path and its query, or a whole address, without a card's data.
func maskPath(text string) (string, bool) {
	masked := card.Mask(text)
	path, query, _ := strings.Cut(text, "?")
	if form, found, _ := maskForm(query); found {
		return card.Mask(path) + "?" + form, true
	}
	return masked, masked != text
}

func (r Opened) maskBody() ([]byte, bool) {
	if len(r.Body) == 0 {
		return r.Body, false
	}
	// JSON first, whatever its type: libraries send it as a form.
	if r.isJSON && r.twice == nil {
		document, found := maskValue("", r.document)
		if !found {
			return r.Body, false
		}
		out, _ := json.Marshal(document) // it was JSON: it cannot fail
		return out, true
	}
	switch kind, boundary := mediaType(r.ContentType); kind {
	case formType:
		if form, found, ok := maskForm(string(r.Body)); ok {
			return []byte(form), found
		}
	case MultipartType:
		if parts, ok := readParts(boundary, r.Body); ok {
			return maskParts(parts, boundary, r.Body)
		}
	}
	return []byte(card.MaskFields(string(r.Body))), true
}

// maskForm is a form, or a query, without a card's data. ok is false where it
// cannot be read as one.
func maskForm(text string) (masked string, found, ok bool) {
	form, err := url.ParseQuery(text)
	if err != nil {
		masked = card.MaskFields(text)
		return masked, masked != text, false
	}
	for name, values := range form {
		for i, value := range values {
			values[i] = maskText(name, value, &found)
		}
	}
	if !found {
		return text, false, true
	}
	return form.Encode(), true, true
}

// maskParts is the body of a form of parts without a card's data. What stands
// before and behind the parts is nobody's, and looked at too.
func maskParts(parts []Part, boundary string, body []byte) ([]byte, bool) {
	found := card.In(string(body))
	var out bytes.Buffer
	w := multipart.NewWriter(&out)
	if err := w.SetBoundary(boundary); err != nil {
		return []byte(card.MaskFields(string(body))), true
	}
	for _, part := range parts {
		content := string(part.Content)
		if part.File != "" {
			content, found = card.MaskFields(content), true
		} else if kind := part.Type(); kind == "" || strings.HasPrefix(kind, "text/") {
			content = maskText(part.Name, content, &found)
		} else {
			masked, holds := Request{ContentType: kind, Body: part.Content}.Open().maskBody()
			content, found = string(masked), found || holds
		}
		to, _ := w.CreatePart(part.Header) // into memory: it cannot fail, nor what follows
		_, _ = to.Write([]byte(content))
	}
	_ = w.Close()
	if !found {
		return body, false
	}
	return out.Bytes(), true
}

// maskValue is v, which stands under name, without a card's data, and whether it has
// any. v itself stays as it is.
func maskValue(name string, v any) (masked any, found bool) {
	switch v := v.(type) {
	case string:
		return maskText(name, v, &found), found
	case json.Number:
		if text := maskText(name, v.String(), &found); found {
			return text, true
		}
	case []any:
		rest := v
		for i, one := range v {
			if one, holds := maskValue(name, one); holds {
				if !found {
					rest, found = slices.Clone(v), true
				}
				rest[i] = one
			}
		}
		return rest, found
	case map[string]any:
		rest := v
		for property, value := range v {
			if value, holds := maskValue(card.Within(name, property), value); holds {
				if !found {
					rest, found = maps.Clone(v), true
				}
				rest[property] = value
			}
		}
		return rest, found
	}
	return v, false
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

// tellsCard reports whether an answer gives a card's number or code away; document
// is its body, or nil where that is no JSON.
func tellsCard(body []byte, document any) bool {
	text := string(body)
	if document == nil {
		return card.MaskFields(text) != text
	}
	return card.In(text) || told("", document)
}

func told(name string, v any) bool {
	switch v := v.(type) {
	case string:
		return card.Told(name, v)
	case json.Number:
		return card.Told(name, v.String())
	case []any:
		return slices.ContainsFunc(v, func(one any) bool { return told(name, one) })
	case map[string]any:
		for property, value := range v {
			if told(card.Within(name, property), value) {
				return true
			}
		}
	}
	return false
}

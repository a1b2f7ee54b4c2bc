package provider

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"unicode/utf8"

	"zabor"
)

// Request is one request to a provider without what the provider's profile
// adds: address, credentials and idempotency header. It holds no secret.
type Request struct {
	Method      string
	Path        string // escaped, below the profile's base_url; with the query
	ContentType string // empty: no body
	Body        []byte

	// Header has further fields of a request that came whole from outside, in
	// the order in which they are kept. None of them is a secret: the profile's
	// own take their place.
	Header []zabor.HeaderField
}

// frozen is a Request as it is kept in a row. The body is text where it can be,
// so that a person can read it in the table.
type frozen struct {
	Version int                 `json:"v"`
	Method  string              `json:"method"`
	Path    string              `json:"path"`
	Type    string              `json:"type,omitempty"`
	Header  []zabor.HeaderField `json:"header,omitempty"`
	Body    string              `json:"body,omitempty"`
	Binary  string              `json:"base64,omitempty"`
}

const frozenVersion = 1

// Freeze is r as bytes that are kept in the fence's row, and later sent and
// sent again exactly so. The same request always gives the same bytes.
func Freeze(r Request) ([]byte, error) {
	if err := r.validate(); err != nil {
		return nil, err
	}
	f := frozen{Version: frozenVersion, Method: r.Method, Path: r.Path, Type: r.ContentType, Header: r.Header}
	if utf8.Valid(r.Body) {
		f.Body = string(r.Body)
	} else {
		f.Binary = base64.StdEncoding.EncodeToString(r.Body)
	}
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	if err := e.Encode(f); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(out.Bytes(), []byte("\n")), nil
}

// Thaw is the request that [Freeze] made data of. What it does not know, such
// as a later version, is an error: it is never guessed at.
func Thaw(data []byte) (Request, error) {
	var f frozen
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(&f); err != nil {
		return Request{}, fmt.Errorf("the kept request cannot be read: %w", err)
	}
	if f.Version != frozenVersion {
		return Request{}, fmt.Errorf("the kept request is of version %d, and this program knows %d", f.Version, frozenVersion)
	}
	r := Request{Method: f.Method, Path: f.Path, ContentType: f.Type, Header: f.Header, Body: []byte(f.Body)}
	if f.Binary != "" {
		body, err := base64.StdEncoding.DecodeString(f.Binary)
		if err != nil {
			return Request{}, fmt.Errorf("the kept request cannot be read: %w", err)
		}
		r.Body = body
	}
	return r, r.validate()
}

func (r Request) validate() error {
	switch r.Method {
	case "POST", "PUT", "PATCH", "DELETE", "GET":
	default:
		return fmt.Errorf("method %q: POST, PUT, PATCH, DELETE or GET", r.Method)
	}
	if len(r.Body) > 0 && r.ContentType == "" {
		return errors.New("a body without a content type")
	}
	if !utf8.ValidString(r.ContentType) {
		return errors.New("the content type is not UTF-8, and could not be kept as it stands")
	}
	for _, field := range r.Header {
		if err := checkField(field.Name, field.Value); err != nil {
			return err
		}
		if !utf8.ValidString(field.Value) {
			return fmt.Errorf("the value of %s is not UTF-8, and could not be kept as it stands", field.Name)
		}
	}
	return CheckPath(r.Path)
}

// CheckPath refuses a path, with its query, that another program could read as a
// different one: one that is not escaped, or that has a segment of dots.
func CheckPath(path string) error {
	if !strings.HasPrefix(path, "/") || strings.HasPrefix(path, "//") {
		return fmt.Errorf("path %q: it begins with exactly one slash", path)
	}
	if i := strings.IndexFunc(path, unsafeInPath); i >= 0 {
		return fmt.Errorf("path %q: %q must be percent-encoded", path, firstRune(path[i:]))
	}
	before, _, _ := strings.Cut(path, "?")
	for segment := range strings.SplitSeq(before, "/") {
		plain, err := url.PathUnescape(segment)
		if err != nil {
			return fmt.Errorf("path %q: %w", path, err)
		}
		if plain == "." || plain == ".." {
			return fmt.Errorf("path %q: a segment of dots leads elsewhere", path)
		}
	}
	return nil
}

func unsafeInPath(r rune) bool {
	return r <= ' ' || r >= 0x7f || strings.ContainsRune(`#\"<>^{|}`+"`", r)
}

// holds reports whether text is somewhere in r, however it is escaped there.
func (r Request) holds(text string) bool {
	inJSON, err := json.Marshal(text)
	if text == "" || err != nil {
		return false
	}
	for _, form := range []string{text, url.QueryEscape(text), url.PathEscape(text), string(inJSON[1 : len(inJSON)-1])} {
		if strings.Contains(r.Path, form) || bytes.Contains(r.Body, []byte(form)) {
			return true
		}
	}
	return false
}

package provider

import (
	"bytes"
	"io"
	"mime"
	"mime/multipart"
	"net/textproto"
)

// The media types of forms.
const (
	formType = "application/x-www-form-urlencoded"
	// MultipartType is that of a form that is made of parts.
	MultipartType = "multipart/form-data"
)

// Part is one field of a form that is made of parts.
type Part struct {
	Name    string // of the field
	File    string // the file's name; empty: it is none
	Header  textproto.MIMEHeader
	Content []byte
}

// Type is the part's own media type; empty: it says none.
func (p Part) Type() string { return p.Header.Get("Content-Type") }

// Parts are the fields of r's body, in their order; false: it is no form that is
// made of parts, or cannot be read as one.
func (r Request) Parts() ([]Part, bool) {
	kind, boundary := mediaType(r.ContentType)
	if kind != MultipartType {
		return nil, false
	}
	return readParts(boundary, r.Body)
}

func readParts(boundary string, body []byte) (parts []Part, ok bool) {
	if boundary == "" {
		return nil, false
	}
	in := multipart.NewReader(bytes.NewReader(body), boundary)
	for {
		part, err := in.NextRawPart()
		if err == io.EOF { //nolint:errorlint // one that is wrapped says that the last boundary is missing
			return parts, len(parts) > 0
		}
		if err != nil || part.FormName() == "" || part.Header.Get("Content-Transfer-Encoding") != "" {
			return nil, false
		}
		content, err := io.ReadAll(part)
		if err != nil {
			return nil, false
		}
		parts = append(parts, Part{part.FormName(), part.FileName(), part.Header, content})
	}
}

// mediaType is a content type without its parameters, and the boundary of parts.
func mediaType(contentType string) (kind, boundary string) {
	kind, parameters, err := mime.ParseMediaType(contentType)
	if err != nil {
		return "", ""
	}
	return kind, parameters["boundary"]
}

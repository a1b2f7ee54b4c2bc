package provider

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"net/http"
	"strings"
	"time"

	"zabor"
)

// Bounds of an answer.
const (
	maxAnswer       = 1 << 20  // bytes of the body that are read; a longer one proves nothing
	maxAnswerHeader = 64 << 10 // bytes of the header
	maxReference    = 1024     // bytes; what a fence table holds
)

// answer is an answer that was read whole.
type answer struct {
	status int
	header http.Header
	body   []byte
}

// unsentError says that not one byte of the request left.
type unsentError struct{ error }

func (e unsentError) Unwrap() error { return e.error }

// send sends r once, over a connection of its own, and reads the whole answer.
// An unsentError: nothing was sent. Any other error: that is not known.
//
// A transport of net/http can send a request more than once: on a reused
// connection that dies, when it carries an Idempotency-Key; over HTTP/2; after a
// redirect. So there is none here: the request is written to one connection, and
// one answer is read from it.
func (p *Provider) send(ctx context.Context, l *line, r Request, key string) (answer, error) {
	req, err := p.keyed(ctx, l, r, key)
	if err != nil {
		return answer{}, unsentError{err}
	}
	conn, tcp, err := p.dialer.dial(ctx)
	if err != nil {
		return answer{}, unsentError{fmt.Errorf("no connection: %w", err)}
	}
	tcp.SetLinger(0) // until the answer is read whole
	w := &wire{Conn: conn, tcp: tcp, ctx: ctx, beforeWrite: p.beforeWrite}
	stop := context.AfterFunc(ctx, w.interrupt)
	defer stop()
	a, err := exchange(w, req)
	if err != nil && ctx.Err() != nil {
		err = fmt.Errorf("%w (%w)", context.Cause(ctx), err)
	}
	if err != nil && w.seal() {
		err = unsentError{err}
	}
	w.end(err == nil)
	return a, err
}

// exchange writes req to w and reads the whole answer, which may come before the
// request was taken whole. After an error nothing is written any more.
func exchange(w *wire, req *http.Request) (a answer, err error) {
	req.Close = true
	sent := make(chan error, 1)
	go func() {
		err := req.Write(w)
		if err != nil {
			w.cut()
		}
		sent <- err
	}()
	// Closing the body would read what is left of the chunks, without a bound.
	resp, err := readHead(w, req) //nolint:bodyclose // its connection is closed
	if err == nil {
		a, err = readAnswer(resp)
	}
	if err != nil {
		w.interrupt()
		err = errors.Join(<-sent, err)
	}
	return a, err
}

// newTransport speaks HTTP/1 only, asks no environment for a proxy, and leaves
// the body's encoding alone: a length is only worth something with the bytes
// that were sent.
func newTransport() *http.Transport {
	var http1 http.Protocols
	http1.SetHTTP1(true)
	return &http.Transport{
		Protocols:              &http1,
		DisableCompression:     true,
		MaxResponseHeaderBytes: maxAnswerHeader,
		IdleConnTimeout:        30 * time.Second,
	}
}

// keyed is r with what the profile adds, the idempotency key in its header among
// it.
func (p *Provider) keyed(ctx context.Context, l *line, r Request, key string) (*http.Request, error) {
	req, err := p.newRequest(ctx, r, l.header)
	if err != nil {
		return nil, err
	}
	for name, values := range carried(ctx) {
		if req.Header.Get(name) == "" {
			req.Header[name] = values
		}
	}
	if l.Key.Header == "" {
		return req, nil
	}
	if l.Key.UUID {
		if key, err = zabor.UUIDFromProviderKey(key); err != nil {
			return nil, fmt.Errorf("the key %q cannot be made a UUID: %w", key, err)
		}
	}
	req.Header.Set(l.Key.Header, key)
	return req, nil
}

type carriedKey struct{}

// Carrying is ctx whose calls have the fields of h too, such as traceparent, where
// the request has none of that name. They are not part of the request that is kept.
func Carrying(ctx context.Context, h http.Header) context.Context {
	return context.WithValue(ctx, carriedKey{}, h)
}

func carried(ctx context.Context) http.Header {
	h, _ := ctx.Value(carriedKey{}).(http.Header)
	return h
}

// withField is a JSON object with value as its property of the given name. One
// that is there must be the same. Of what is there no byte is changed.
func withField(body []byte, name, value string) ([]byte, error) {
	document, err := decodeJSON(body)
	object, ok := document.(map[string]any)
	if err != nil || !ok {
		return nil, fmt.Errorf("%s belongs into a JSON object, and the request has none", name)
	}
	if there, ok := object[name]; ok {
		if there != value {
			return nil, fmt.Errorf("%s in the request is another one; leave it out", name)
		}
		return body, nil
	}
	property, err := json.Marshal(map[string]string{name: value})
	if err != nil {
		return nil, err
	}
	rest := bytes.TrimLeft(body, " \t\r\n")[1:]
	out := property[:len(property)-1]
	if len(object) > 0 {
		out = append(out, ',')
	}
	return append(out, rest...), nil
}

// newRequest is r with what the profile adds, except the key; what is in own takes the
// place of the profile's.
func (p *Provider) newRequest(ctx context.Context, r Request, own http.Header) (*http.Request, error) {
	if err := CheckPath(r.Path); err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, r.Method, p.base.String()+r.Path, nil)
	if err != nil {
		return nil, err
	}
	if len(r.Body) > 0 {
		req.Body = io.NopCloser(bytes.NewReader(r.Body))
		req.ContentLength = int64(len(r.Body))
	}
	for _, field := range r.Header {
		req.Header.Add(field.Name, field.Value)
	}
	if r.ContentType != "" {
		req.Header.Set("Content-Type", r.ContentType)
	}
	maps.Copy(req.Header, p.credentials().header)
	maps.Copy(req.Header, own)
	if p.auth.Grant != nil {
		bearer, err := p.bearer(ctx)
		if err != nil {
			return nil, err
		}
		req.Header.Set("Authorization", "Bearer "+bearer)
	}
	return req, nil
}

// readHead reads the answer to req up to its body, after any interim ones.
func readHead(from io.Reader, req *http.Request) (*http.Response, error) {
	head := &io.LimitedReader{R: from, N: maxAnswerHeader}
	in := bufio.NewReader(head)
	resp, err := http.ReadResponse(in, req)
	for err == nil && resp.StatusCode < 200 && resp.StatusCode != http.StatusSwitchingProtocols {
		resp, err = http.ReadResponse(in, req)
	}
	if err != nil && head.N <= 0 {
		return nil, fmt.Errorf("the answer's header is longer than %d bytes", maxAnswerHeader)
	}
	head.N = math.MaxInt64
	return resp, err
}

// readAnswer reads resp to its end, and leaves it open. A body shorter than its Content-Length, or
// without its last chunk, is an error of net/http's; one that is cut where only
// the connection's end ends it is found out by decodeJSON.
func readAnswer(resp *http.Response) (answer, error) {
	a := answer{status: resp.StatusCode, header: resp.Header}
	if resp.StatusCode == http.StatusSwitchingProtocols {
		return a, errors.New("the provider answered 101 Switching Protocols, which was not asked for")
	}
	var err error
	a.body, err = io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	switch {
	case err != nil:
		return a, fmt.Errorf("the answer (%s) broke off after %d bytes: %w", resp.Status, len(a.body), err)
	case len(a.body) > maxAnswer:
		return a, fmt.Errorf("the answer (%s) is longer than %d bytes", resp.Status, maxAnswer)
	}
	return a, nil
}

// oneLine is err for people: a line of bounded length.
func oneLine(err error) string {
	s := strings.Join(strings.Fields(strings.ToValidUTF8(err.Error(), "?")), " ")
	if len(s) > 300 {
		s = strings.ToValidUTF8(s[:300], "") + " …"
	}
	return s
}

package proxy

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"zabor"
	"zabor/provider"
)

// pass sends a request that has no fence and gives back what comes, as it comes.
// rest is what of its body is not in body yet; nil: nothing.
func (p *Proxy) pass(w http.ResponseWriter, r *http.Request, up Upstream, t target, body []byte, rest io.Reader) error {
	ctx, cancel := p.unhurried(r.Context())
	defer cancel()
	resp, err := up.Forward(ctx, passed(r, up, t, body), rest, r.ContentLength)
	if err != nil {
		text := "it was not reached, or gave no answer"
		if !harmless(r.Method) {
			text = "no answer came, and it is not known whether the request was executed: it has no fence"
		}
		p.refuse(w, problem{status: 502, kind: "no-answer", text: fmt.Sprintf("%s: %s: %s", up.Name(), text, visible(err.Error()))})
		return nil
	}
	defer resp.Body.Close()
	p.stream(w, resp, resp.Body)
	return nil
}

// passed is r as it passes without a fence: with the caller's own idempotency
// key.
func passed(r *http.Request, up Upstream, t target, body []byte) provider.Request {
	request := provider.Request{Method: r.Method, Path: t.path, ContentType: r.Header.Get("Content-Type"), Body: body, Header: forwarded(r.Header, up)}
	for _, name := range up.KeyHeaders() {
		for _, value := range r.Header.Values(name) {
			request.Header = append(request.Header, zabor.HeaderField{Name: name, Value: value})
		}
	}
	return request
}

// stream gives an answer on in small parts: its length costs no memory. The caller
// of an answer that broke off sees that it did.
func (p *Proxy) stream(w http.ResponseWriter, resp *http.Response, body io.Reader) {
	copyHeader(w.Header(), resp.Header)
	if resp.ContentLength >= 0 {
		w.Header().Set("Content-Length", fmt.Sprint(resp.ContentLength))
	}
	c := http.NewResponseController(w)
	later := func() { _ = c.SetWriteDeadline(time.Now().Add(writeTime)) } // a writer that has none is a test's
	later()
	w.WriteHeader(resp.StatusCode)
	part := make([]byte, 16<<10)
	for {
		n, err := body.Read(part)
		if n > 0 {
			later()
			if _, err := w.Write(part[:n]); err != nil {
				return
			}
			_ = c.Flush()
		}
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			panic(http.ErrAbortHandler)
		}
	}
}

// wholeReply reads an answer up to the length that can be judged; rest is the
// whole body again, from its beginning.
func wholeReply(resp *http.Response) (reply *provider.Reply, rest io.Reader, err error) {
	var read bytes.Buffer
	_, err = io.CopyN(&read, resp.Body, provider.MaxReply)
	rest = io.MultiReader(bytes.NewReader(read.Bytes()), resp.Body)
	switch {
	case errors.Is(err, io.EOF):
		return &provider.Reply{Status: resp.StatusCode, Header: resp.Header, Body: read.Bytes()}, rest, nil
	case err == nil:
		err = fmt.Errorf("the answer is longer than %d bytes", provider.MaxReply)
	}
	return nil, rest, err
}

// detached is for work that its caller cannot stop.
func detached(ctx context.Context, limit time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), limit)
}

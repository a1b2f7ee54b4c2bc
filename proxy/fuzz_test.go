package proxy

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"zabor/provider"
)

// bytesConn is a connection whose other side has sent its bytes and is gone.
type bytesConn struct {
	net.Conn
	io.Reader
}

func (c bytesConn) Read(p []byte) (int, error) { return c.Reader.Read(p) }

// Whatever is sent: a request that guard lets pass is read by net/http with the
// same target and length, has one length, no other encoding, and no two values
// where one is meant; and what stands behind it is a request of its own.
func FuzzGuard(f *testing.F) {
	const good = "POST /a/b HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nabc"
	const chunked = "POST /a/b HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n"
	for _, seed := range []string{
		good, good + good, "GET /a HTTP/1.0\r\nHost: h\r\n\r\n", strings.Replace(good, "\r\n\r\n", "\r\nTransfer-Encoding: chunked\r\n\r\n", 1),
		strings.Replace(good, ": 3", ": 3, 3", 1), strings.Replace(good, "Host: h", "Host: h\r\n folded", 1), strings.ReplaceAll(good, "\r\n", "\n"),
		strings.Replace(good, "Host", "Host ", 1), "\r\n" + good, strings.Replace(good, "Content-Length: 3", "Content-Length: 3\r\nContent-Length: 3", 1),
		chunked + "3\r\nabc\r\n0\r\n\r\n" + good, chunked + "3\r\nabc\r\n1;x=1\r\nd\r\n0\r\n\r\n", chunked + "3\r\nabc\r\n0\r\nA: b\r\n\r\n", chunked + "3\nabc\n0\n\n",
		strings.Replace(good, "/a/b", "http://x/a", 1), strings.Replace(good, "/a/b", "//x/a", 1), "GET /a HTTP/1.1\r\nHost: h\r\nConnection: x\r\n\r\n",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, sent []byte) {
		g := &guard{Conn: bytesConn{Reader: bytes.NewReader(sent)}, in: bufio.NewReader(bytes.NewReader(sent))}
		in := bufio.NewReader(g)
		rest := sent
		for {
			r, err := http.ReadRequest(in)
			if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
				return // nothing more, or half a head
			}
			if err != nil {
				t.Fatalf("%q passed, and net/http refuses it: %v", sent, err)
			}
			if r.Header.Get(refusedHeader) != "" {
				if _, err := in.ReadByte(); err != io.EOF {
					t.Fatalf("%q: something follows what was refused", sent)
				}
				return
			}
			head := rest[:bytes.Index(rest, []byte("\r\n\r\n"))+4]
			line, _, _ := bytes.Cut(head, []byte("\r\n"))
			if !bytes.Contains(line, []byte(" "+r.RequestURI+" ")) || !strings.HasPrefix(r.RequestURI, "/") || r.URL.Host != "" {
				t.Fatalf("%q was read as %+v", sent, r)
			}
			if len(r.TransferEncoding) > 0 {
				want, size, whole := unchunked(rest[len(head):])
				body, err := io.ReadAll(r.Body)
				if (err == nil) != whole || whole && (!bytes.Equal(body, want) || r.ContentLength != -1 || len(r.Trailer) > 0) {
					t.Fatalf("%q: the body %q, %v, and want %q", sent, body, err, want)
				}
				if err != nil {
					return
				}
				rest = rest[len(head)+size:]
				continue
			}
			lengths := 0
			for field := range bytes.SplitSeq(head, []byte("\n")) {
				if name, _, _ := bytes.Cut(field, []byte(":")); strings.EqualFold(string(name), "content-length") {
					lengths++
				}
			}
			if lengths > 1 || lengths == 0 && r.ContentLength > 0 || bytes.Contains(head, []byte("\n ")) || bytes.Contains(head, []byte("\n\t")) {
				t.Fatalf("%q passed", head)
			}
			body, _ := io.ReadAll(r.Body)
			if int64(len(body)) != r.ContentLength && len(head)+len(body) < len(rest) {
				t.Fatalf("%q: a body of %d bytes, and Content-Length is %d", sent, len(body), r.ContentLength)
			}
			rest = rest[len(head)+len(body):]
		}
	})
}

// unchunked is a body of chunks in the one form that every program reads alike, and
// the bytes that it takes.
func unchunked(text []byte) (body []byte, size int, ok bool) {
	for rest := text; ; {
		m := chunkLine.FindSubmatch(rest)
		if m == nil {
			return nil, 0, false
		}
		n, err := strconv.ParseUint(string(m[1]), 16, 32)
		rest = rest[len(m[0]):]
		if err != nil || uint64(len(rest)) < n+2 || string(rest[n:n+2]) != "\r\n" {
			return nil, 0, false
		}
		body, rest = append(body, rest[:n]...), rest[n+2:]
		if n == 0 {
			return body, len(text) - len(rest), true
		}
	}
}

var chunkLine = regexp.MustCompile("^([0-9a-fA-F]{1,8})\r\n")

// Whatever the target: what is taken stays below the provider's address, and is
// asked for as it came.
func FuzzTarget(f *testing.F) {
	for _, seed := range []string{
		"/stripe/v1/charges?a=b", "/stripe", "/stripe/", "//h/", "/..%2f", "/stripe/%2e%2e/x", "/stripe/%252e", "/stripe/..;/x", "/stripe/a%00", "/@h/x", "/stripe/a?b=%2f..", "/a\\b",
	} {
		f.Add(seed)
	}
	base, err := url.Parse("https://api.example.com/base")
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		got, err := parseTarget(raw)
		if err != nil {
			return
		}
		if err := provider.CheckPath(got.path); err != nil {
			t.Fatalf("%q: %v", raw, err)
		}
		u, err := url.Parse(base.String() + got.path)
		if err != nil || u.Host != base.Host || u.User != nil || u.Fragment != "" || !strings.HasPrefix(u.Path, "/base/") {
			t.Fatalf("%q leads to %v, %v", raw, u, err)
		}
		resolved := base.JoinPath("x").ResolveReference(u)
		if resolved.Path != u.Path || strings.Contains(u.Path, "/../") || strings.Contains(u.Path, "//") || strings.Contains(u.Path, "\\") {
			t.Fatalf("%q leads to %q, which others read as %q", raw, u.Path, resolved.Path)
		}
		if first, _, _ := strings.Cut(strings.TrimPrefix(raw, "/"), "/"); !strings.Contains(first, "?") && "/"+first+got.path != raw && raw != "/"+first {
			t.Fatalf("%q is asked for as %q", raw, got.path)
		}
	})
}

// Whatever a key is written as: what is named is written back as the same.
func FuzzName(f *testing.F) {
	for _, seed := range [][3]string{{"1001", "charge", ""}, {"a%20", "refund%3AR-7", "m"}, {"%", "x", ""}, {"a b", "x", ""}, {"\xff", "x", ""}, {"%FF", "%00", "%2F"}} {
		f.Add(seed[0], seed[1], seed[2])
	}
	f.Fuzz(func(t *testing.T, order, step, scope string) {
		h := http.Header{"Zabor-Order": {order}, "Zabor-Step": {step}}
		key := keyPrefix + order + ":" + step
		if scope != "" {
			h["Zabor-Scope"] = []string{scope}
			key = keyPrefix + scope + ":" + order + ":" + step
		}
		n, ok, err := nameOf(h, "")
		if err != nil {
			return
		}
		if !ok || n.order == "" || n.step == "" {
			t.Fatalf("%q names %+v", h, n)
		}
		back := http.Header{"Zabor-Order": {url.PathEscape(n.order)}, "Zabor-Step": {url.PathEscape(n.step)}}
		if n.scope != "" {
			back["Zabor-Scope"] = []string{url.PathEscape(n.scope)}
		}
		if again, _, err := nameOf(back, ""); err != nil || again != n {
			t.Fatalf("%q names %+v, and %q %+v, %v", h, n, back, again, err)
		}
		if strings.Contains(order+step+scope, ":") {
			return
		}
		if byKey, ok, err := nameOf(http.Header{}, key); err != nil || !ok || byKey != n {
			t.Fatalf("%q names %+v, and the header fields %+v, %v", key, byKey, n, err)
		}
	})
}

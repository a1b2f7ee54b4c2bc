package proxy

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
)

// Bounds of a request's head.
const (
	maxHead   = 16 << 10 // bytes
	maxFields = 64
)

// guarded is l whose connections let only such requests pass as every program
// reads in one way. net/http is more lenient than that: it takes two equal
// lengths for one, lets Transfer-Encoding win over Content-Length, and joins
// folded lines. Where another program stands before this one, the two could
// disagree about where a request ends, and what one sends as a body would be the
// other's next request.
type guarded struct{ net.Listener }

func (g guarded) Accept() (net.Conn, error) {
	c, err := g.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &guard{Conn: c, in: bufio.NewReaderSize(c, 4<<10)}, nil
}

// guard is one connection. In place of a request that it refuses it hands out one
// that says so, so that the answer comes in its turn behind those of the requests
// before; nothing is read after that.
type guard struct {
	net.Conn
	in    *bufio.Reader
	head  []byte  // as far as it was read, or a chunk's line: a read may time out in the midst of it
	line  int     // where its last line begins
	out   []byte  // to be handed out before anything more is read
	body  int64   // bytes of the present request's body, or of a chunk of it, that were not handed out yet
	next  awaited // what follows these
	ended error   // what every further read is answered with; nil: go on
}

// awaited is what a guard reads next where no body is.
type awaited uint8

const (
	aHead    awaited = iota
	aSize            // of a chunk
	chunkEnd         // the empty line behind a chunk's bytes
	bodyEnd          // the empty line behind the last size, which is 0: no trailer is taken
)

// maxSize is the longest line of a chunk's size, in bytes: eight digits.
const maxSize = len("ffffffff\r\n")

func (g *guard) Read(p []byte) (int, error) {
	for len(g.out) == 0 {
		var err error
		switch {
		case g.ended != nil:
			return 0, g.ended
		case len(p) == 0:
			return 0, nil
		case g.body > 0:
			n, err := g.in.Read(p[:min(int64(len(p)), g.body)])
			g.body -= int64(n)
			return n, err
		case g.next == aHead:
			err = g.readHead()
		default:
			err = g.readChunk()
		}
		if err != nil {
			return 0, err
		}
	}
	n := copy(p, g.out)
	g.out = g.out[n:]
	return n, nil
}

// readHead reads on until the head is whole, and checks it.
func (g *guard) readHead() error {
	for {
		part, err := g.in.ReadSlice('\n')
		g.head = append(g.head, part...)
		if len(g.head) > maxHead {
			g.refuse(&refusal{431, fmt.Sprintf("the head of the request is longer than %d bytes", maxHead)})
			return nil
		}
		if errors.Is(err, bufio.ErrBufferFull) {
			continue
		}
		if err != nil {
			return err
		}
		if line := g.head[g.line:]; len(line) <= len("\r\n") && strings.Trim(string(line), "\r\n") == "" {
			break
		}
		g.line = len(g.head)
	}
	length, why := checkHead(g.head)
	if why != nil {
		g.refuse(why)
		return nil
	}
	g.out, g.head, g.line, g.body = g.head, nil, 0, length
	if length == inChunks {
		g.body, g.next = 0, aSize
	}
	return nil
}

// readChunk reads the line of a chunk's size, or the empty one behind its bytes.
// A size is digits alone: programs disagree about extensions, blanks and the ends
// of lines. Behind a wrong one nothing is read, for nobody knows where the body
// ends.
func (g *guard) readChunk() error {
	part, err := g.in.ReadSlice('\n')
	g.head = append(g.head, part...)
	if len(g.head) > maxSize {
		return g.end()
	}
	if err != nil {
		return err
	}
	text, whole := bytes.CutSuffix(g.head, []byte("\r\n"))
	switch {
	case !whole, g.next != aSize && len(text) > 0:
		return g.end()
	case g.next == chunkEnd:
		g.next = aSize
	case g.next == bodyEnd:
		g.next = aHead
	default:
		size, err := strconv.ParseUint(string(text), 16, 32)
		if err != nil {
			return g.end()
		}
		if g.body, g.next = int64(size), chunkEnd; size == 0 {
			g.next = bodyEnd
		}
	}
	g.out, g.head = g.head, nil
	return nil
}

func (g *guard) end() error {
	g.ended = errors.New("a chunk of the body is not as it should be")
	return g.ended
}

func (g *guard) refuse(why *refusal) {
	g.ended = io.EOF
	g.out = fmt.Appendf(nil, "POST / HTTP/1.1\r\nHost: refused\r\n%s: %d %s\r\nConnection: close\r\nContent-Length: 0\r\n\r\n", refusedHeader, why.status, why.text)
}

// CloseWrite lets net/http end a connection so that the caller still gets the
// answer that says why.
func (g *guard) CloseWrite() error {
	if c, ok := g.Conn.(interface{ CloseWrite() error }); ok {
		return c.CloseWrite()
	}
	return g.Conn.Close()
}

// refusedHeader is in a request that guard made, and in no other.
const refusedHeader = "Zabor-Refused"

// refusal is why a request is not taken: a status, and a text of one line of
// visible signs.
type refusal struct {
	status int
	text   string
}

func (e *refusal) Error() string { return e.text }

func refuse(status int, format string, args ...any) *refusal {
	return &refusal{status, fmt.Sprintf(format, args...)}
}

// inChunks is the length of a body that comes in chunks.
const inChunks = -1

// checkHead reads the head of a request, with the empty line at its end, and
// returns the length of the body that follows.
func checkHead(head []byte) (length int64, why *refusal) {
	text, whole := strings.CutSuffix(string(head), "\r\n\r\n")
	if !whole {
		return 0, refuse(400, "the lines of the head must end with CR LF")
	}
	lines := strings.Split(text, "\r\n")
	if why := checkRequestLine(lines[0]); why != nil {
		return 0, why
	}
	if len(lines)-1 > maxFields {
		return 0, refuse(431, "more than %d header fields", maxFields)
	}
	hosts, lengths, encodings, chunked := 0, 0, 0, false
	for _, line := range lines[1:] {
		name, value, why := checkField(line)
		if why != nil {
			return 0, why
		}
		switch name = strings.ToLower(name); name {
		case "host":
			hosts++
		case "content-length":
			lengths++
			n, err := strconv.ParseInt(value, 10, 64)
			if err != nil || strings.Trim(value, "0123456789") != "" {
				return 0, refuse(400, "Content-Length is no number of bytes")
			}
			length = n
		case "transfer-encoding":
			encodings++
			chunked = strings.EqualFold(value, "chunked") && strings.HasSuffix(lines[0], "/1.1")
		case "connection":
			for option := range strings.SplitSeq(strings.ToLower(value), ",") {
				if !slices.Contains(connections[:], strings.Trim(option, " \t")) {
					return 0, refuse(400, "Connection may only say close or keep-alive: what else it names would be taken out on the way")
				}
			}
		case "upgrade":
			if value != "h2c" { // an offer, which is not taken up: Java's own client makes it with every request
				return 0, refuse(400, "the header field upgrade is not taken")
			}
		case "trailer", "proxy-connection", strings.ToLower(refusedHeader):
			return 0, refuse(400, "the header field %s is not taken", name)
		}
	}
	switch {
	case hosts != 1:
		return 0, refuse(400, "a request has exactly one Host, and this one %d", hosts)
	case lengths > 1:
		return 0, refuse(400, "Content-Length is there more than once")
	case encodings > 0 && lengths > 0:
		return 0, refuse(400, "both Transfer-Encoding and Content-Length")
	case encodings > 1 || encodings == 1 && !chunked:
		return 0, refuse(411, "of Transfer-Encoding only chunked is taken, in HTTP/1.1; send the body with its Content-Length")
	case chunked:
		return inChunks, nil
	}
	return length, nil
}

// connections are what Connection may name: none of it goes on, and all of it is
// the connection's own.
var connections = [...]string{"close", "keep-alive", "te", "upgrade", "http2-settings"}

func checkRequestLine(line string) *refusal {
	parts := strings.Split(line, " ")
	switch {
	case len(parts) != 3 || !isToken(parts[0]) || parts[2] != "HTTP/1.1" && parts[2] != "HTTP/1.0":
		return refuse(400, "the request line must be METHOD /provider/path HTTP/1.1")
	case !strings.HasPrefix(parts[1], "/") || strings.HasPrefix(parts[1], "//"):
		return refuse(400, "the target of the request must begin with exactly one slash")
	case !isVisible(parts[1]):
		return refuse(400, "the target of the request must be percent-encoded")
	}
	return nil
}

func checkField(line string) (name, value string, why *refusal) {
	name, value, found := strings.Cut(line, ":")
	switch {
	case !found || !isToken(name): // a folded line begins with a blank
		return "", "", refuse(400, "a header field must be NAME: VALUE on one line")
	case strings.Contains(name, "_"):
		return "", "", refuse(400, "the header field %s is not taken: many servers read _ in a name as -", visible(name))
	case strings.ContainsFunc(value, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }):
		return "", "", refuse(400, "a header field has a control character")
	}
	return name, strings.Trim(value, " \t"), nil
}

// isVisible reports whether s is only signs of ASCII that are no blanks.
func isVisible(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r >= 0x7f })
}

func isToken(s string) bool {
	return s != "" && strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789!#$%&'*+-.^_`|~") == ""
}

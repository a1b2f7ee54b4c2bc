package sqlstore

import (
	"bytes"
	"encoding/binary"
	"io"
	"net"
	"net/url"
	"sync"
	"testing"
)

// proxy stands between a store and its database server and breaks one message.
type proxy struct {
	listener net.Listener
	server   string

	mu      sync.Mutex
	pattern []byte // of the statement to break; nil: none
	how     cut
	broken  chan struct{} // closed when it was broken
	release chan struct{} // cutHeld, slow: the server gets the statement once this is closed
	done    chan struct{} // cutHeld: closed when the server has answered it, or closed the connection
}

// cut says how the message with the pattern is broken. The client's connection
// dies in each but slow.
type cut int

const (
	cutAnswer cut = iota // the server has answered; the answer is lost
	cutSent              // the server has the statement and has not answered
	cutHeld              // the server gets the statement much later
	slow                 // so it does, and its answer is heard
)

// newProxy starts a proxy and returns the address that leads through it.
func newProxy(t *testing.T, address string) (*proxy, string) {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{listener: l, server: u.Host}
	var all sync.WaitGroup
	all.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() { p.serve(client) })
		}
	})
	t.Cleanup(all.Wait)
	t.Cleanup(func() { l.Close() })
	u.Host = l.Addr().String()
	return p, u.String()
}

// breakNext breaks the next message that holds pattern.
func (p *proxy) breakNext(how cut, pattern []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.how, p.pattern = how, pattern
	p.broken, p.release, p.done = make(chan struct{}), make(chan struct{}), make(chan struct{})
}

// matches reports whether message is the one to break; only the first is.
func (p *proxy) matches(message []byte) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.pattern == nil || !bytes.Contains(message, p.pattern) {
		return false
	}
	p.pattern = nil
	return true
}

func (p *proxy) serve(client net.Conn) {
	defer client.Close()
	server, err := net.Dial("tcp", p.server)
	if err != nil {
		return
	}
	defer server.Close()
	answers := make(chan struct{})
	silent := make(chan struct{}) // closed: answers go nowhere
	answered := make(chan struct{}, 1)
	go func() {
		defer close(answers)
		defer client.Close()
		buffer := make([]byte, 1<<16)
		for {
			n, err := server.Read(buffer)
			if err != nil {
				return
			}
			select {
			case <-silent:
				select {
				case answered <- struct{}{}:
				default:
				}
			default:
				if _, err := client.Write(buffer[:n]); err != nil {
					return
				}
			}
		}
	}()
	defer func() {
		server.Close()
		<-answers
	}()
	buffer := make([]byte, 1<<20)
	for {
		n, err := client.Read(buffer)
		if err != nil {
			return
		}
		if n == 16 && binary.BigEndian.Uint32(buffer[4:]) == 80877102 {
			return // PostgreSQL's cancel request: a network that has died carries none
		}
		if !p.matches(buffer[:n]) {
			if _, err := server.Write(buffer[:n]); err != nil {
				return
			}
			continue
		}
		if p.how == slow {
			close(p.broken)
			<-p.release
			if _, err := server.Write(buffer[:n]); err != nil {
				return
			}
			continue
		}
		close(silent)
		if p.how == cutHeld {
			client.Close()
			close(p.broken)
			<-p.release
		}
		server.Write(buffer[:n])
		if p.how != cutSent {
			select {
			case <-answered:
			case <-answers:
			}
		}
		client.Close()
		if p.how == cutHeld {
			close(p.done)
		} else {
			close(p.broken)
		}
		if p.how == cutSent {
			// The server goes on with the statement; this end stays open
			// until it has answered, as a network that has died would.
			io.Copy(io.Discard, client)
			select {
			case <-answered:
			case <-answers:
			}
		}
		return
	}
}

package main

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"zabor/internal/exit"
	"zabor/internal/servers"
)

// attack opens n connections to address and writes the same on each.
func attack(t *testing.T, address string, n int, text string) (open []net.Conn) {
	t.Helper()
	for range n {
		c, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		_, _ = io.WriteString(c, text) // it may be closed already
		open = append(open, c)
	}
	return open
}

// Silent connections on every listener, more than the process may have descriptors, stop
// neither a payment nor the health nor a stop.
func TestSilentConnections(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("prlimit"); err != nil {
		t.Skip("no prlimit: install util-linux")
	}
	s := newShop(t, databases[0].open(t), options{proxy: true})
	health := fmt.Sprintf("127.0.0.1:%d", servers.Port(t))
	s.edit("lanes: 1\n", fmt.Sprintf("lanes: 1\nmetrics: {listen: %q}\n", health))
	few := command("prlimit", nil, "--nofile=300:300", binary(t), "proxy", "-c", s.file)
	p := startCommand(t, few)
	p.logged("the proxy listens")
	for _, text := range []string{"", "GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", "POST /acquirer/payments HTTP/1.1\r\n"} {
		attack(t, health, 150, text)
		attack(t, s.listen, 150, text)
	}
	resp, err := http.Get("http://" + health + "/readyz")
	if err != nil || resp.StatusCode != 200 {
		t.Fatalf("/readyz: %v, %v", resp, err)
	}
	resp.Body.Close()
	s.charged("1001")
	p.signal(syscall.SIGTERM)
	p.exit(exit.Good)
	s.chargedOnce("1001")
}

// Callers whose body never comes keep no payment out and no stop waiting: a GET with a body
// is refused at once, and a POST holds its connection until its time is over.
func TestBodiesThatNeverCome(t *testing.T) {
	t.Parallel()
	s := newShop(t, databases[0].open(t), options{proxy: true})
	p := s.door()
	reading := attack(t, s.listen, 1100, "GET /fences/1001/charge HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 100\r\n\r\n")
	if line, err := bufio.NewReader(reading[0]).ReadString('\n'); err != nil || !strings.Contains(line, " 400 ") {
		t.Errorf("%q, %v; want 400", line, err)
	}
	attack(t, s.listen, 200, "POST /acquirer/payments HTTP/1.1\r\nHost: evil.example\r\nContent-Length: 100\r\n\r\n")
	s.charged("1001")
	p.signal(syscall.SIGTERM)
	p.exit(exit.Good)
	s.chargedOnce("1001")
}

// A caller that closes its sending side behind the request gets its answer.
func TestHalfClosedCallers(t *testing.T) {
	t.Parallel()
	s := newShop(t, databases[0].open(t), options{proxy: true})
	s.door()
	const body = `{"amount":1999,"currency":"EUR"}`
	for i := range 20 {
		order := fmt.Sprint(1001 + i)
		c := attack(t, s.listen, 1, "POST /acquirer/payments HTTP/1.1\r\nHost: 127.0.0.1\r\nZabor-Order: "+order+"\r\nZabor-Step: charge\r\nContent-Type: application/json\r\nContent-Length: "+fmt.Sprint(len(body))+"\r\n\r\n"+body)[0]
		if err := c.(*net.TCPConn).CloseWrite(); err != nil {
			t.Fatal(err)
		}
		if line, err := bufio.NewReader(c).ReadString('\n'); err != nil || !strings.Contains(line, " 201 ") {
			t.Fatalf("order %s: %q, %v; want 201", order, line, err)
		}
	}
	s.charges(20)
}

// A header field whose name has an underscore goes nowhere: CGI reads it as the one with
// a hyphen, which is refused, replaced or kept out.
func TestUnderscoresInHeaders(t *testing.T) {
	t.Parallel()
	s := newShop(t, databases[0].open(t), options{proxy: true})
	s.door()
	for _, name := range []string{"Idempotency_Key", "X_HTTP_Method_Override", "Transfer_Encoding", "X-Api_Key"} {
		const body = `{"amount":1999,"currency":"EUR"}`
		c := attack(t, s.listen, 1, "POST /acquirer/payments HTTP/1.1\r\nHost: 127.0.0.1\r\nZabor-Order: 1001\r\nZabor-Step: charge\r\n"+name+": x\r\nContent-Type: application/json\r\nContent-Length: "+fmt.Sprint(len(body))+"\r\n\r\n"+body)[0]
		if line, err := bufio.NewReader(c).ReadString('\n'); err != nil || !strings.Contains(line, " 400 ") {
			t.Errorf("%s: %q, %v; want 400", name, line, err)
		}
	}
	if rows := s.rows(); len(rows) > 0 {
		t.Errorf("%d rows, want none", len(rows))
	}
}

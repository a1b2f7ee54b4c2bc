package servers

import (
	"bufio"
	"fmt"
	"net"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"
)

// RedisDB is an empty database of a Redis server.
type RedisDB struct {
	Addr string // host:port
	DB   int
}

// URL is the database's address as zabor and go-redis read it.
func (r RedisDB) URL() string { return fmt.Sprintf("redis://%s/%d", r.Addr, r.DB) }

// Redis gives the test an empty database of the package's Redis server.
func Redis(t testing.TB) RedisDB {
	t.Helper()
	Need(t, "redis-server", "redis-server")
	s := sharedServer(t, "redis", startRedis)
	return RedisDB{Addr: s.Addr(), DB: int(databases.Add(1))}
}

// OwnRedis starts a Redis server for this test alone. It writes every command to
// disk before it answers, so that Kill loses nothing that was answered.
func OwnRedis(t testing.TB) *Server {
	t.Helper()
	Need(t, "redis-server", "redis-server")
	return own(t, startRedis)
}

func startRedis() (*Server, error) {
	s, _, err := newServer("redis", "")
	if err != nil {
		return nil, err
	}
	s.command = func() *exec.Cmd {
		return exec.Command("redis-server", "--port", strconv.Itoa(s.Port), "--bind", "127.0.0.1",
			"--dir", s.Dir, "--appendonly", "yes", "--appendfsync", "always", "--save", "",
			"--databases", "4096", "--enable-debug-command", "yes")
	}
	s.ready = func() error { return pingRedis(s.Addr()) }
	return s, s.Start()
}

func pingRedis(addr string) error {
	c, err := net.DialTimeout("tcp", addr, time.Second)
	if err != nil {
		return err
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(time.Second))
	fmt.Fprint(c, "PING\r\n")
	line, err := bufio.NewReader(c).ReadString('\n')
	if err == nil && !strings.HasPrefix(line, "+PONG") {
		err = fmt.Errorf("redis answers %q", line)
	}
	return err
}

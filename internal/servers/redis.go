package servers

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
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

// RedisReplica starts a replica of master for this test alone.
func RedisReplica(t testing.TB, master *Server) *Server {
	t.Helper()
	Need(t, "redis-server", "redis-server")
	return own(t, func() (*Server, error) {
		return startRedisWith("--replicaof", "127.0.0.1", strconv.Itoa(master.Port))
	})
}

// RedisCluster starts, for this test alone, a Redis Cluster of one node that has
// all slots.
func RedisCluster(t testing.TB) *Server {
	t.Helper()
	Need(t, "redis-server", "redis-server")
	return own(t, func() (*Server, error) {
		bus, err := freePort() // by default the port + 10000, which may be too large
		if err != nil {
			return nil, err
		}
		s, err := startRedisWith("--cluster-enabled", "yes", "--cluster-port", strconv.Itoa(bus))
		if err == nil {
			err = askRedis(s.Addr(), "CLUSTER ADDSLOTSRANGE 0 16383", "+OK")
		}
		if err != nil {
			return s, err
		}
		// The cluster is down until it knows its slots.
		s.ready = func() error { return askRedis(s.Addr(), "GET x", "$") }
		return s, s.wait()
	})
}

// RedisSentinel starts a Sentinel for this test alone, which knows master by the
// name mymaster.
func RedisSentinel(t testing.TB, master *Server) *Server {
	t.Helper()
	Need(t, "redis-server", "redis-server")
	return own(t, func() (*Server, error) {
		s, _, err := newServer("sentinel", "")
		if err != nil {
			return nil, err
		}
		file := filepath.Join(s.Dir, "sentinel.conf")
		text := fmt.Sprintf("port %d\nbind 127.0.0.1\ndir %s\nsentinel monitor mymaster 127.0.0.1 %d 1\n", s.Port, s.Dir, master.Port)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			return nil, err
		}
		s.command = func() *exec.Cmd { return exec.Command("redis-server", file, "--sentinel") }
		s.ready = func() error { return pingRedis(s.Addr()) }
		return s, s.Start()
	})
}

func startRedis() (*Server, error) {
	return startRedisWith("--appendonly", "yes", "--appendfsync", "always", "--databases", "4096", "--enable-debug-command", "yes")
}

func startRedisWith(options ...string) (*Server, error) {
	s, _, err := newServer("redis", "")
	if err != nil {
		return nil, err
	}
	s.command = func() *exec.Cmd {
		return exec.Command("redis-server", append([]string{"--port", strconv.Itoa(s.Port), "--bind", "127.0.0.1", "--dir", s.Dir, "--save", ""}, options...)...)
	}
	s.ready = func() error { return pingRedis(s.Addr()) }
	return s, s.Start()
}

func pingRedis(addr string) error { return askRedis(addr, "PING", "+PONG") }

// askRedis sends one command; an answer that does not begin as wanted is an error.
func askRedis(addr, command, want string) error {
	c, err := net.DialTimeout("tcp", addr, time.Second)
	if err != nil {
		return err
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(time.Second))
	fmt.Fprint(c, command+"\r\n")
	line, err := bufio.NewReader(c).ReadString('\n')
	if err == nil && !strings.HasPrefix(line, want) {
		err = fmt.Errorf("redis answers %q to %s", line, command)
	}
	return err
}

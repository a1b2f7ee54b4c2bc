// Package servers starts real Redis, MariaDB and PostgreSQL servers for tests,
// in folders of their own, on free ports of the loopback address. Nothing of it
// is shared with a server that the machine runs already.
//
// A package that uses it calls [Main], or [Run], from its TestMain. One server of a kind
// serves all tests of a package; each test gets a database of its own. A test
// that kills or restarts its server starts one for itself.
package servers

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// Need ends the test unless program is in PATH: it skips, naming the Debian
// package, or fails where ZABOR_TEST_REQUIRE=1.
func Need(t testing.TB, program, debianPackage string) string {
	t.Helper()
	path, err := lookPath(program)
	if err == nil {
		return path
	}
	missing(t, fmt.Sprintf("%s is not installed: apt-get install %s", program, debianPackage))
	return ""
}

// missing ends the test for what text says is not there.
func missing(t testing.TB, text string) {
	t.Helper()
	if os.Getenv("ZABOR_TEST_REQUIRE") == "1" {
		t.Fatal(text)
	}
	t.Skip(text)
}

// lookPath also looks where Debian keeps a server's programs out of PATH.
func lookPath(program string) (string, error) {
	if path, err := exec.LookPath(program); err == nil {
		return path, nil
	}
	for _, pattern := range []string{"/usr/lib/postgresql/*/bin/", "/usr/sbin/"} {
		found, _ := filepath.Glob(pattern + program)
		if len(found) > 0 {
			return found[len(found)-1], nil
		}
	}
	return "", exec.ErrNotFound
}

// Server is one running server.
type Server struct {
	Port int
	Dir  string // its data; removed by Stop

	command func() *exec.Cmd
	ready   func() error
	stop    os.Signal

	mu     sync.Mutex
	cmd    *exec.Cmd
	exited chan struct{}
}

// Addr is the server's host and port.
func (s *Server) Addr() string { return "127.0.0.1:" + strconv.Itoa(s.Port) }

// Start starts the server, on its old port and data, and waits until it answers.
func (s *Server) Start() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	cmd := s.command()
	log, err := os.Create(filepath.Join(s.Dir, "log"))
	if err != nil {
		return err
	}
	defer log.Close()
	cmd.Stdout, cmd.Stderr = log, log
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL // no server outlives its tests
	exited := make(chan struct{})
	started := make(chan error)
	go func() {
		// The death signal follows the thread that started the process.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait() // however it ended
		}
		close(exited)
	}()
	if err := <-started; err != nil {
		return err
	}
	s.cmd, s.exited = cmd, exited
	return s.wait()
}

// wait waits until the server is ready.
func (s *Server) wait() error {
	deadline := time.Now().Add(time.Minute)
	for {
		err := s.ready()
		if err == nil {
			return nil
		}
		select {
		case <-s.exited:
			text, _ := os.ReadFile(filepath.Join(s.Dir, "log"))
			return fmt.Errorf("%s ended at once:\n%s", s.cmd.Path, text)
		case <-time.After(20 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			text, _ := os.ReadFile(filepath.Join(s.Dir, "log"))
			return fmt.Errorf("%s did not answer within a minute: %w\n%s", s.cmd.Path, err, text)
		}
	}
}

// Signal sends sig to the server, for instance SIGSTOP.
func (s *Server) Signal(sig os.Signal) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.cmd.Process.Signal(sig)
}

// Kill ends the server with SIGKILL and keeps its data for another Start.
func (s *Server) Kill() { s.end(syscall.SIGKILL) }

// Stop ends the server in order and keeps its data for another Start.
func (s *Server) Stop() { s.end(s.stop) }

func (s *Server) end(sig os.Signal) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cmd == nil {
		return
	}
	var orphans []int
	if sig == syscall.SIGKILL {
		orphans = children(s.cmd.Process.Pid)
	}
	s.cmd.Process.Signal(sig)
	select {
	case <-s.exited:
	case <-time.After(30 * time.Second):
		s.cmd.Process.Kill()
		<-s.exited
	}
	s.cmd = nil
	// PostgreSQL's children live on for a moment, and answer.
	for _, child := range orphans {
		_ = syscall.Kill(child, syscall.SIGKILL)
	}
	for _, child := range orphans {
		gone(child)
	}
}

// children are the processes that pid has started.
func children(pid int) (pids []int) {
	tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, task := range tasks {
		text, _ := os.ReadFile(task)
		for field := range strings.FieldsSeq(string(text)) {
			if child, err := strconv.Atoi(field); err == nil {
				pids = append(pids, child)
			}
		}
	}
	return pids
}

// gone waits, not for long, until a killed process is.
func gone(pid int) {
	for deadline := time.Now().Add(5 * time.Second); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		if syscall.Kill(pid, 0) != nil {
			return
		}
	}
}

func (s *Server) remove() {
	s.end(syscall.SIGKILL) // its data goes too: no need for an orderly end
	os.RemoveAll(s.Dir)
}

// root is where data folders are made: in memory where there is room for it, so
// that a test does not wait for the disk. ZABOR_TEST_DIR names another place,
// such as a real disk for a benchmark.
func root() string {
	if dir := os.Getenv("ZABOR_TEST_DIR"); dir != "" {
		return dir
	}
	const memory, enough = "/dev/shm", 3 << 30
	var fs syscall.Statfs_t
	if err := syscall.Statfs(memory, &fs); err == nil && int64(fs.Bavail)*fs.Bsize > enough {
		return memory
	}
	return os.TempDir()
}

// newServer is a server with a folder of its own; see newFolder.
func newServer(kind, owner string) (*Server, *user.User, error) {
	dir, as, err := newFolder(kind, owner)
	if err != nil {
		return nil, nil, err
	}
	port, err := freePort()
	if err != nil {
		return nil, nil, err
	}
	return &Server{Port: port, Dir: dir, stop: syscall.SIGTERM}, as, nil
}

// newFolder makes a folder, owned by the given user when run as root; nil: by us.
func newFolder(kind, owner string) (string, *user.User, error) {
	dir, err := os.MkdirTemp(root(), "zabor-test-"+kind+"-")
	if err != nil {
		return "", nil, err
	}
	var as *user.User
	if os.Getuid() == 0 && owner != "" {
		if as, err = user.Lookup(owner); err != nil {
			return "", nil, err
		}
		if err := chown(dir, as); err != nil {
			return "", nil, err
		}
	}
	return dir, as, nil
}

// chown gives path to owner.
func chown(path string, owner *user.User) error {
	uid, _ := strconv.Atoi(owner.Uid)
	gid, _ := strconv.Atoi(owner.Gid)
	return os.Chown(path, uid, gid)
}

// runAs makes cmd run as the given user; nil: as we do.
func runAs(cmd *exec.Cmd, as *user.User) *exec.Cmd {
	if as == nil {
		return cmd
	}
	uid, _ := strconv.ParseUint(as.Uid, 10, 32)
	gid, _ := strconv.ParseUint(as.Gid, 10, 32)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}
	cmd.Env = append(os.Environ(), "HOME="+as.HomeDir)
	cmd.Dir = "/"
	return cmd
}

// Port is a port for a server that a test starts itself, and starts again.
func Port(t testing.TB) int {
	t.Helper()
	port, err := freePort()
	if err != nil {
		t.Fatal(err)
	}
	return port
}

// freePort is a port that nothing listens on. It is below those that the kernel
// gives to outgoing connections: one of these would take it before a server that
// needs seconds to start.
func freePort() (int, error) {
	const lowest, highest = 10_240, 32_000
	for range 100 {
		port := lowest + rand.IntN(highest-lowest)
		l, err := net.Listen("tcp", "127.0.0.1:"+strconv.Itoa(port))
		if err == nil {
			return port, l.Close()
		}
	}
	return 0, fmt.Errorf("no free port from %d to %d in 100 tries", lowest, highest)
}

// shared holds the servers that all tests of the process use.
var shared struct {
	sync.Mutex
	running []*Server
	once    map[string]*onceServer
}

type onceServer struct {
	sync.Once
	server *Server
	err    error
}

var databases atomic.Int64 // numbers the databases given to tests

func sharedServer(t testing.TB, kind string, start func() (*Server, error)) *Server {
	t.Helper()
	shared.Lock()
	if shared.once == nil {
		shared.once = map[string]*onceServer{}
	}
	o := shared.once[kind]
	if o == nil {
		o = &onceServer{}
		shared.once[kind] = o
	}
	shared.Unlock()
	o.Do(func() {
		if o.server, o.err = start(); o.err != nil {
			return
		}
		shared.Lock()
		shared.running = append(shared.running, o.server)
		shared.Unlock()
	})
	if o.err != nil {
		t.Fatalf("start %s: %v", kind, o.err)
	}
	return o.server
}

// Main is Run as the whole of TestMain.
func Main(m *testing.M) { os.Exit(Run(m)) }

// Run runs the tests of a package, ends the servers that they shared and returns
// the exit code. Tests of servers wait more than they compute:
// unless -parallel says otherwise, atOnce of those that call t.Parallel run at a
// time, however few processors there are.
func Run(m *testing.M) int {
	flag.Parse()
	asked := false
	flag.Visit(func(f *flag.Flag) { asked = asked || f.Name == "test.parallel" })
	if !asked {
		if err := flag.Set("test.parallel", strconv.Itoa(max(atOnce, runtime.GOMAXPROCS(0)))); err != nil {
			panic(err) // there is no such flag
		}
	}
	code := m.Run()
	shared.Lock()
	for _, s := range shared.running {
		s.remove()
	}
	shared.Unlock()
	newData.mariadb.remove()
	newData.postgres.remove()
	return code
}

// atOnce is how many tests run at a time on a small machine.
const atOnce = 8

// own starts a server that ends with the test.
func own(t testing.TB, start func() (*Server, error)) *Server {
	t.Helper()
	s, err := start()
	if s != nil {
		t.Cleanup(s.remove)
	}
	if err != nil {
		t.Fatal(err)
	}
	return s
}

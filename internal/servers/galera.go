package servers

import (
	"database/sql"
	_ "embed"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
)

//go:embed wsrep_sst_copy
var copyState []byte

// Galera starts, for this test alone, a cluster of two MariaDB servers that both
// take writes. A commit that the other node's has come before is a deadlock there
// at once: the server itself does not try again.
func Galera(t testing.TB) [2]*Server {
	t.Helper()
	needMariaDB(t)
	library := "/usr/lib/galera/libgalera_smm.so"
	if found, _ := filepath.Glob(library); len(found) == 0 {
		missing(t, library+" is not installed: apt-get install galera-4")
	}
	var nodes [2]*Server
	group := "gcomm://" // a new one
	for i := range nodes {
		nodes[i] = own(t, func() (*Server, error) {
			s, at, err := newNode(library, group, i == 0)
			if err != nil {
				return s, err
			}
			group = "gcomm://" + at
			s.ready = func() error { return readyNode(s, i+1) }
			return s, s.Start()
		})
	}
	return nodes
}

// newNode is a server of a cluster, and where its group finds it.
func newNode(library, group string, first bool) (*Server, string, error) {
	base, err := freePort()
	if err != nil {
		return nil, "", err
	}
	increments, err := freePort()
	if err != nil {
		return nil, "", err
	}
	at := "127.0.0.1:" + strconv.Itoa(base)
	options := []string{
		"--wsrep-on=ON", "--wsrep-provider=" + library, "--wsrep-cluster-name=zabor", "--wsrep-cluster-address=" + group, "--wsrep-node-address=" + at,
		fmt.Sprintf("--wsrep-provider-options=base_port=%d;gmcast.listen_addr=tcp://%s;ist.recv_addr=127.0.0.1:%d;gcache.size=8M", base, at, increments),
		"--wsrep-sst-method=copy", "--wsrep-sst-receive-address=" + at,
		"--wsrep-retry-autocommit=0", "--binlog-format=ROW", "--innodb-autoinc-lock-mode=2",
	}
	if first {
		options = append(options, "--wsrep-new-cluster")
	}
	s, err := newMariaDB(first, options...)
	if err != nil {
		return s, "", err
	}
	if err := os.WriteFile(filepath.Join(s.Dir, "wsrep_sst_copy"), copyState, 0o755); err != nil { //nolint:gosec // the server's user runs it
		return s, "", err
	}
	plain := s.command
	s.command = func() *exec.Cmd {
		cmd := plain()
		cmd.Env = append(os.Environ(), "PATH="+s.Dir+":"+os.Getenv("PATH"))
		return cmd
	}
	return s, at, nil
}

// readyNode is nil when s takes writes in a group of size nodes.
func readyNode(s *Server, size int) error {
	db, err := sql.Open("mysql", "root@tcp("+s.Addr()+")/")
	if err != nil {
		return err
	}
	defer db.Close()
	for name, want := range map[string]string{"wsrep_ready": "ON", "wsrep_cluster_size": strconv.Itoa(size)} {
		var got string
		if err := db.QueryRow("SHOW STATUS LIKE '"+name+"'").Scan(&name, &got); err != nil {
			return err
		}
		if got != want {
			return fmt.Errorf("%s is %s, not %s", name, got, want)
		}
	}
	return nil
}

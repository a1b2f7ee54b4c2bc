package main

import (
	"fmt"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"zabor"
	"zabor/internal/servers"
	"zabor/sandbox"
)

// A database that takes the call's time is told as that, and pauses no provider.
func TestASlowDatabasePausesNoProvider(t *testing.T) {
	t.Parallel()
	s := newShop(t, servers.MariaDB(t), options{lanes: 4})
	s.order("control")
	p := s.worker("--queue", "payments")
	s.charges(1)
	s.exec("CREATE TRIGGER slow BEFORE INSERT ON zabor_fences FOR EACH ROW SET @slept = SLEEP(2.2)")
	const orders = 8
	for i := range orders {
		s.order(fmt.Sprint(i))
	}
	p.logged("of the call's 2s were over before the connection was begun")
	s.exec("DROP TRIGGER slow")
	s.charges(orders + 1)
	for i := range orders {
		eventually(t, "the order is settled", func() bool { return s.state(fmt.Sprint(i)) == zabor.Settled })
		s.chargedOnce(fmt.Sprint(i))
	}
	p.signal(syscall.SIGTERM)
	p.exit(0)
	if log := p.log.String(); strings.Contains(log, "ALERT") {
		t.Errorf("an alert, and the provider was well:\n%s", log)
	}
}

// A process without descriptors for its calls says so, and pauses no provider.
func TestNoDescriptorsPauseNoProvider(t *testing.T) {
	t.Parallel()
	s := newShop(t, databases[0].open(t), options{lanes: 40})
	open := make(chan struct{})
	s.onCharge(func(c sandbox.Charge) {
		if c.Order != "control" {
			<-open
		}
	})
	s.order("control")
	cmd := command(binary(t), nil, "worker", "-c", s.file, "--queue", "payments")
	limited := exec.Command("/bin/sh", append([]string{"-c", `ulimit -n 40; exec "$0" "$@"`, cmd.Path}, cmd.Args[1:]...)...)
	limited.Env = cmd.Env
	p := startCommand(t, limited)
	s.charges(1)
	const orders = 40
	for i := range orders {
		s.order(fmt.Sprint(i))
	}
	p.logged("this machine has no room for a connection")
	p.logged("descriptors")
	close(open)
	s.charges(orders + 1)
	for i := range orders {
		eventually(t, "the order is settled", func() bool { return s.state(fmt.Sprint(i)) == zabor.Settled })
		s.chargedOnce(fmt.Sprint(i))
	}
	p.signal(syscall.SIGTERM)
	p.exit(0)
	if log := p.log.String(); strings.Contains(log, "provider-paused") {
		t.Errorf("the provider was well:\n%s", log)
	}
}

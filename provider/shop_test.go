package provider_test

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"zabor"
	"zabor/provider"
	"zabor/sandbox"
	"zabor/sqlstore"
)

func TestMain(m *testing.M) {
	flag.Parse()
	if parallel := flag.Lookup("test.parallel"); parallel.Value.String() == parallel.DefValue {
		parallel.Value.Set("16") // these tests wait for leases, not for a processor
	}
	m.Run()
}

// shop is a fence in a database of its own before a pretend provider.
type shop struct {
	t        *testing.T
	store    *sqlstore.Store
	fence    *zabor.Fence
	bank     *sandbox.Sandbox
	provider *provider.Provider
	replay   bool // the resolver may send again
	follow   bool // what is pending is resolved too

	replayFor, holdAfter time.Duration // 0: as the profile says, an hour

	profile          provider.Profile
	terms            provider.Terms
	prepare, request *provider.Template // prepare: nil where a step has one request
	money            zabor.Money
	timeout          time.Duration

	ended chan struct{} // one for each connection that the bank has closed
}

// newShop opens a shop whose bank closes a connection on which no request comes
// for idle; 0: it waits.
func newShop(t *testing.T, o sandbox.Options, idle time.Duration, profile func(url string) (provider.Profile, provider.Options)) *shop {
	t.Helper()
	store, err := sqlstore.Open("sqlite://" + strings.ReplaceAll(filepath.Join(t.TempDir(), "fence.db"), "#", "%23"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	if err := store.Setup().Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	s := &shop{t: t, store: store, bank: sandbox.New(o), money: zabor.Money{Minor: 1999, Currency: "EUR"}, timeout: 2 * time.Second, ended: make(chan struct{}, 1000)}
	server := httptest.NewUnstartedServer(s.bank)
	server.Config.ReadHeaderTimeout = idle
	server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateClosed {
			s.ended <- struct{}{}
		}
	}
	server.Start()
	t.Cleanup(server.Close)
	p, po := profile(server.URL)
	s.profile = p
	if s.provider, err = provider.New("bank", p, po); err != nil {
		t.Fatal(err)
	}
	s.restart()
	return s
}

// own is the sandbox's own profile.
func own(url string) (provider.Profile, provider.Options) {
	return sandbox.Profile(url, 50*time.Millisecond), provider.Options{}
}

// asks sets the requests of s's only step; prepare without a path: it has none.
func (s *shop) asks(prepare, request provider.RequestSpec) *shop {
	s.t.Helper()
	var err error
	first := &prepare
	if prepare.Path == "" {
		first = nil
	}
	if request.Path != "" {
		if s.terms, err = s.profile.Terms(first, request); err != nil {
			s.t.Fatal(err)
		}
	}
	if prepare.Path != "" {
		if s.prepare, err = provider.NewTemplate(prepare); err != nil {
			s.t.Fatal(err)
		}
	}
	if s.request, err = provider.NewTemplate(request); err != nil {
		s.t.Fatal(err)
	}
	return s
}

func (s *shop) restart() {
	s.fence = &zabor.Fence{Store: s.store, Secret: make([]byte, zabor.MinSecret)}
}

func (s *shop) effect(order string) zabor.Effect {
	e := zabor.Effect{
		Key: zabor.Key{Order: order, Step: "charge"}, Provider: "bank", Amount: s.money, Fingerprint: zabor.Fingerprint{Message: "m", Request: "f"},
		Timeout: s.timeout, MaxAttempts: 5, AbsentAfter: s.terms.AbsentAfter, PendingFor: time.Hour,
		MissingRow: zabor.Captured,
	}
	if s.replay {
		e.ReplayFor = cmp.Or(s.replayFor, s.terms.ReplayFor)
	}
	e.HoldAfter = cmp.Or(s.holdAfter, time.Hour)
	freeze := func(t *provider.Template, keys zabor.ProviderKeys, prepared string) ([]byte, error) {
		r, err := t.Render(provider.Vars{
			Data: map[string]any{}, Order: order, Step: "charge", ProviderKey: keys.Request, Prepared: prepared,
			Money: s.money, Units: s.terms.Units,
		})
		if err != nil {
			return nil, err
		}
		return provider.Freeze(r)
	}
	e.Render = func(keys zabor.ProviderKeys, prepared string) ([]byte, error) {
		return freeze(s.request, keys, prepared)
	}
	if s.prepare != nil {
		e.Prepare = func(keys zabor.ProviderKeys) ([]byte, error) { return freeze(s.prepare, keys, "") }
	}
	return e
}

// errDied is what a process does that dies.
var errDied = errors.New("killed")

// do makes order's charge; a call that panics with errDied kills the process.
func (s *shop) do(order string, call zabor.Call) (err error) {
	defer func() {
		switch r := recover(); r {
		case nil:
		case any(errDied):
			err = errDied
		default:
			panic(r)
		}
	}()
	_, err = s.fence.Do(s.t.Context(), s.effect(order), call)
	return err
}

func (s *shop) row(order string) zabor.Row {
	s.t.Helper()
	row, err := s.store.Load(s.t.Context(), zabor.Key{Order: order, Step: "charge"})
	if err != nil {
		s.t.Fatal(err)
	}
	return row
}

// control settles an order that a look-up finds, however busy the machine is.
func (s *shop) control() {
	s.t.Helper()
	timeout := s.timeout
	s.timeout = 30 * time.Second
	defer func() { s.timeout = timeout }()
	if err := s.do("control", s.provider.Call); err != nil {
		s.t.Fatal(err)
	}
}

// resolve is what a worker and its resolver do with order from now on, until its
// row is in none of the open states.
func (s *shop) resolve(order string) zabor.Row {
	s.t.Helper()
	s.restart()
	return s.drive(order, func(row zabor.Row) bool { return false })
}

// drive is what a worker and its resolver do with order, until its row is closed
// or pending, or enough says so of what it is before the next thing is done.
func (s *shop) drive(order string, enough func(zabor.Row) bool) zabor.Row {
	s.t.Helper()
	r := zabor.Resolver{Fence: s.fence, Lookup: s.provider.Lookup}
	if s.replay {
		r.Replay = s.provider.Call
	}
	ctx, cancel := context.WithTimeout(s.t.Context(), time.Minute)
	defer cancel()
	poll := time.NewTicker(20 * time.Millisecond)
	defer poll.Stop()
	var failed error
	for {
		row := s.row(order)
		switch {
		case enough(row):
			return row
		case row.State == zabor.Captured, row.State == zabor.Doubt, row.State == zabor.Pending && s.follow:
			failed = r.Round(ctx) // a look-up that fails is made again
		case row.State == zabor.Released:
			s.do(order, s.provider.Call)
		default:
			return row
		}
		select {
		case <-poll.C:
		case <-ctx.Done():
			s.t.Fatalf("still %s: %s; the last round: %v", row.State, row.Reason, failed)
		}
	}
}

// charged demands that order has exactly one charge, and that the row has it.
func (s *shop) charged(order string) {
	s.t.Helper()
	row, charges := s.row(order), s.bank.Charges(order)
	if row.State != zabor.Settled || len(charges) != 1 || charges[0].ID != row.Reference {
		s.t.Errorf("the row is %s %q (%s), and there are the charges %+v", row.State, row.Reference, row.Reason, charges)
	}
}

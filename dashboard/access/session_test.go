package access

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

var somebody = Identity{Name: "ops", Role: Operator}

func TestSessionLife(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := newSessions(time.Hour, 12*time.Hour)
		idle, busy := all.begin(somebody), all.begin(somebody)
		page := all.get(busy, true).ctx
		for range 23 {
			time.Sleep(30 * time.Minute)
			all.get(idle, false) // a page that keeps itself fresh
			if all.get(busy, true) == nil {
				t.Fatal("a session that is used has ended")
			}
		}
		if all.get(idle, false) != nil {
			t.Error("an idle session has not ended")
		}
		time.Sleep(31 * time.Minute)
		synctest.Wait()
		if all.get(busy, true) != nil || page.Err() == nil {
			t.Error("a session goes on after its absolute end")
		}
		if n := len(all.byID); n != 0 {
			t.Errorf("%d ended sessions are kept", n)
		}
	})
}

// However often somebody signs in, the memory is bounded, and the oldest goes.
func TestManySessions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := newSessions(time.Hour, 12*time.Hour)
		var ids []string
		other := all.begin(Identity{Name: "view"})
		for range perUser + 3 {
			time.Sleep(time.Second)
			ids = append(ids, all.begin(somebody))
		}
		for i, id := range ids {
			if got, want := all.get(id, false) != nil, i >= 3; got != want {
				t.Errorf("session %d: there=%v, want %v", i, got, want)
			}
		}
		if all.get(other, false) == nil || len(all.byID) != perUser+1 {
			t.Errorf("%d sessions", len(all.byID))
		}
		for _, one := range slices.Collect(maps.Values(all.byID)) { // each ends by itself, too
			all.over(one)
		}
	})
}

func TestLimiter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(3, time.Minute)
		tries := func() (n int) {
			for {
				if _, ok := l.take("k"); !ok {
					return n
				}
				n++
			}
		}
		if got := tries(); got != 3 {
			t.Errorf("%d tries at once, want 3", got)
		}
		if wait, _ := l.take("k"); wait != time.Minute {
			t.Errorf("the next one in %v, want 1m", wait)
		}
		time.Sleep(2 * time.Minute)
		if got := tries(); got != 2 {
			t.Errorf("%d tries after two minutes, want 2", got)
		}
		time.Sleep(24 * time.Hour)
		l.giveBack("k")
		if got := tries(); got != 3 {
			t.Errorf("%d tries after a day, want 3", got)
		}
		// One key in 8,192 is another's bucket; not all are.
		free := 0
		for i := range 64 {
			if _, ok := l.take(fmt.Sprint("other", i)); ok {
				free++
			}
		}
		if free < 60 {
			t.Errorf("%d of 64 other keys may try", free)
		}
	})
}

func TestParseProxies(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"", "proxy.example", "10.0.0.0/33", "127.0.0.1:80"} {
		if all, err := ParseProxies([]string{"10.0.0.1", text}); err == nil {
			t.Errorf("%q: %v", text, all)
		}
	}
}

func TestPeer(t *testing.T) {
	t.Parallel()
	proxies, err := ParseProxies([]string{"127.0.0.1", "::1", "10.0.0.0/8"})
	if err != nil {
		t.Fatal(err)
	}
	configured, none := &Guard{o: Options{Proxies: proxies}}, &Guard{}
	for _, tt := range []struct{ remote, forwarded, want string }{
		{"203.0.113.5:1", "", "203.0.113.5"},
		{"203.0.113.5:1", "10.0.0.1", "203.0.113.5"}, // who is no proxy of ours says what he likes
		{"127.0.0.1:1", "1.1.1.1, 203.0.113.5", "203.0.113.5"},
		{"10.1.2.3:1", "203.0.113.5", "203.0.113.5"},
		{"[::1]:1", "2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"},
		{"[::ffff:127.0.0.1]:1", "203.0.113.5", "203.0.113.5"},
		{"[2001:db8:1:2::9]:1", "", "2001:db8:1:2::/64"},
		{"[fe80::1%eth0]:1", "", "fe80::/64"},
		{"127.0.0.1:1", "unknown", "127.0.0.1"},
		{"127.0.0.1:1", "1.1.1.1, 203.0.113.5, 10.9.9.9", "203.0.113.5"}, // two proxies of ours
		{"192.168.1.1:1", "203.0.113.5", "192.168.1.1"},
		{"@", "", "@"},
	} {
		r := &http.Request{RemoteAddr: tt.remote, Header: http.Header{}}
		if tt.forwarded != "" {
			r.Header.Set("X-Forwarded-For", tt.forwarded)
		}
		if got, bare := none.peer(r), (&http.Request{RemoteAddr: tt.remote}); got != none.peer(bare) {
			t.Errorf("%s for %q is %q without configured proxies", tt.remote, tt.forwarded, got)
		}
		if got := configured.peer(r); got != tt.want {
			t.Errorf("%s for %q is %q, want %q", tt.remote, tt.forwarded, got, tt.want)
		}
	}
}

package provider

import (
	"crypto/tls"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"zabor"
)

// Each call is a connection of its own. Its TLS session is resumed from an earlier call
// of the same account, and never from another account's at the same host, even where
// both are given one tls.Config with a cache.
func TestTLSSessionsStayWithinAnAccount(t *testing.T) {
	for name, version := range map[string]uint16{"TLS 1.2": tls.VersionTLS12, "TLS 1.3": tls.VersionTLS13} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server, client := certificate(t)
			server.MaxVersion = version
			client.ClientSessionCache = tls.NewLRUClientSessionCache(10)
			var mu sync.Mutex
			var resumed []bool
			p := listen(t, server, func(p *peer, c net.Conn) {
				mu.Lock()
				resumed = append(resumed, c.(*counted).Conn.(*tls.Conn).ConnectionState().DidResume)
				mu.Unlock()
				after(says(answerOf(200, paid)))(p, c)
			})
			ours := mustNew(t, testProfile("https://"+p.addr), Options{TLS: client})
			theirs := mustNew(t, testProfile("https://"+p.addr), Options{TLS: client})
			for _, one := range []*Provider{ours, ours, theirs, ours, theirs} {
				if o := one.Call(within(t, 10*time.Second), testRow(t)); o.Verdict != zabor.Done {
					t.Fatalf("%+v", o)
				}
			}
			mu.Lock()
			defer mu.Unlock()
			if want := []bool{false, true, false, true, true}; !slices.Equal(resumed, want) {
				t.Errorf("resumed=%v, want %v", resumed, want)
			}
		})
	}
}

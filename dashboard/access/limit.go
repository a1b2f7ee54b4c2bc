package access

import (
	"hash/maphash"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"time"
)

// limiter bounds how often each of many keys may fail. It takes the same memory
// whatever is asked: keys that fall into one bucket share it, and which do nobody
// outside can know.
type limiter struct {
	burst int           // failures in a row
	every time.Duration // then one in so long
	seed  maphash.Seed

	mu      sync.Mutex
	buckets [1 << 13]bucket
}

type bucket struct {
	used float64 // of the burst
	at   time.Time
}

func newLimiter(burst int, every time.Duration) *limiter {
	return &limiter{burst: burst, every: every, seed: maphash.MakeSeed()}
}

// take is one try of key; false: there have been too many, and wait is how long
// until the next. A try that did not fail is given back.
func (l *limiter) take(key string) (wait time.Duration, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	b := l.bucket(key)
	if b.used+1 > float64(l.burst) {
		return time.Duration((b.used + 1 - float64(l.burst)) * float64(l.every)), false
	}
	b.used++
	return 0, true
}

func (l *limiter) giveBack(key string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	b := l.bucket(key)
	b.used = max(0, b.used-1)
}

// bucket is key's as it is now.
func (l *limiter) bucket(key string) *bucket {
	b := &l.buckets[maphash.String(l.seed, key)%uint64(len(l.buckets))]
	now := time.Now()
	b.used = max(0, b.used-float64(now.Sub(b.at))/float64(l.every))
	b.at = now
	return b
}

// peer is where r comes from, as far as that is known: of IPv6 the network that
// one customer has. A proxy on this host or in its private network is believed
// about whom it speaks for; whoever forges that from there gets round the limit by
// address, and meets that by name.
func peer(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return r.RemoteAddr
	}
	addr, err := netip.ParseAddr(host)
	if err != nil {
		return host
	}
	if forwarded := r.Header.Values("X-Forwarded-For"); len(forwarded) > 0 && (addr.Unmap().IsLoopback() || addr.Unmap().IsPrivate()) {
		all := strings.Split(strings.Join(forwarded, ","), ",")
		if told, err := netip.ParseAddr(strings.TrimSpace(all[len(all)-1])); err == nil {
			addr = told
		}
	}
	addr = addr.Unmap().WithZone("")
	if addr.Is6() {
		if network, err := addr.Prefix(64); err == nil {
			return network.String()
		}
	}
	return addr.String()
}

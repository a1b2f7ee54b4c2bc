package access

import (
	"fmt"
	"hash/maphash"
	"net"
	"net/http"
	"net/netip"
	"slices"
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

// ParseProxies reads addresses and networks, such as 127.0.0.1 and 10.0.0.0/8.
func ParseProxies(texts []string) ([]netip.Prefix, error) {
	var all []netip.Prefix
	for _, text := range texts {
		network, err := netip.ParsePrefix(text)
		if err != nil {
			addr, addrErr := netip.ParseAddr(text)
			if addrErr != nil {
				return nil, fmt.Errorf("%q is neither an IP address nor a network", text)
			}
			addr = addr.Unmap()
			network = netip.PrefixFrom(addr, addr.BitLen())
		}
		all = append(all, network.Masked())
	}
	return all, nil
}

// trusted reports whether addr is a configured proxy.
func (g *Guard) trusted(addr netip.Addr) bool {
	return slices.ContainsFunc(g.o.Proxies, func(p netip.Prefix) bool { return p.Contains(addr) })
}

// peer returns where r comes from: of IPv6 the network that one customer has. If the
// connection is a configured proxy's, it is the last address of X-Forwarded-For that is
// not a configured proxy's itself.
func (g *Guard) peer(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return r.RemoteAddr
	}
	addr, err := netip.ParseAddr(host)
	if err != nil {
		return host
	}
	addr = addr.Unmap().WithZone("")
	forwarded := strings.Split(strings.Join(r.Header.Values("X-Forwarded-For"), ","), ",")
	for _, text := range slices.Backward(forwarded) {
		if !g.trusted(addr) {
			break
		}
		told, err := netip.ParseAddr(strings.TrimSpace(text))
		if err != nil {
			break
		}
		addr = told.Unmap().WithZone("")
	}
	if addr.Is6() {
		if network, err := addr.Prefix(64); err == nil {
			return network.String()
		}
	}
	return addr.String()
}

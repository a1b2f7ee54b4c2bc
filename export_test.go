package zabor

import "time"

// SetNow gives the breaker another clock.
func (f *Fence) SetNow(now func() time.Time) { f.now = now }

// SetNow gives the resolver another clock.
func (r *Resolver) SetNow(now func() time.Time) { r.now = now }

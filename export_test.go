package zabor

import "time"

// SetNow gives the resolver another clock.
func (r *Resolver) SetNow(now func() time.Time) { r.now = now }

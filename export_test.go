package zabor

// LookDue is lookDue.
func (r Row) LookDue() bool { return r.lookDue() }

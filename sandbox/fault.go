package sandbox

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"time"
)

// Kind is a way in which a payment request can go wrong. Those that begin with
// "act" move the money (unless the key says that it has been moved).
type Kind string

// The kinds of fault.
const (
	Drop      Kind = "drop"       // closes the connection before the body is read
	Close     Kind = "close"      // reads the request, does nothing, closes the connection
	Hang      Kind = "hang"       // does nothing and answers nothing until [Sandbox.Release], then closes
	Status    Kind = "status"     // does nothing and answers Fault.Status
	Declined  Kind = "declined"   // makes a payment that is refused, and answers 402
	Pending   Kind = "pending"    // makes a payment without a verdict, and answers 202
	Soft      Kind = "soft"       // makes a payment that is refused and may still be paid, where a provider has that; else as declined
	ActClose  Kind = "act-close"  // acts and closes the connection without an answer
	ActHang   Kind = "act-hang"   // acts and answers only after [Sandbox.Release]
	ActStatus Kind = "act-status" // acts and answers Fault.Status, as a gateway in front might
	ActCut    Kind = "act-cut"    // acts and closes in the middle of the answer
	ActSlow   Kind = "act-slow"   // acts, and answers after Fault.Delay
	ActLate   Kind = "act-late"   // acts after Fault.Delay, or where that is 0 after [Sandbox.Release], even if nobody waits for it any more, and answers
)

var kinds = []Kind{Drop, Close, Hang, Status, Declined, Pending, Soft, ActClose, ActHang, ActStatus, ActCut, ActSlow, ActLate}

// Fault is planned for payment requests to come. The first one that fits is
// taken.
type Fault struct {
	Kind Kind `json:"kind"`
	// Order and Key choose the requests by what they carry; empty: any. Drop
	// does not read the order, so it cannot be chosen by it.
	Order string `json:"order,omitempty"`
	Key   string `json:"key,omitempty"`
	// Times is how many requests it happens to; 0 means 1, below 0 all.
	Times      int           `json:"times,omitempty"`
	Status     int           `json:"status,omitempty"`      // of Status and ActStatus
	Delay      time.Duration `json:"-"`                     // of ActSlow and ActLate; in JSON "delay": "200ms"
	RetryAfter string        `json:"retry_after,omitempty"` // header of Status and ActStatus
}

// UnmarshalJSON takes unknown properties for an error.
func (f *Fault) UnmarshalJSON(data []byte) error {
	type plain Fault
	var read struct {
		plain
		Delay string `json:"delay"`
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(&read); err != nil {
		return err
	}
	*f = Fault(read.plain)
	if read.Delay == "" {
		return nil
	}
	var err error
	f.Delay, err = time.ParseDuration(read.Delay)
	return err
}

func (f Fault) validate() error {
	switch {
	case !slices.Contains(kinds, f.Kind):
		return fmt.Errorf("kind %q: one of %q", f.Kind, kinds)
	case (f.Kind == Status || f.Kind == ActStatus) && (f.Status < 200 || f.Status > 599):
		return fmt.Errorf("%s needs a status of 200 to 599, and has %d", f.Kind, f.Status)
	case f.Kind == ActSlow && f.Delay <= 0, f.Delay < 0:
		return fmt.Errorf("%s needs a delay", f.Kind)
	case f.Kind == Drop && f.Order != "":
		return fmt.Errorf("drop does not read the order %q; choose by key, or use close", f.Order)
	}
	return nil
}

// Plan adds faults, after those that are planned. Nothing is planned when one of
// them is not valid.
func (s *Sandbox) Plan(faults ...Fault) error {
	for _, f := range faults {
		if err := f.validate(); err != nil {
			return fmt.Errorf("fault: %w", err)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = append(s.faults, faults...)
	return nil
}

// take uses up the first planned fault that fits, if there is one: among those
// of kind Drop before the body is read, among the others after it.
func (s *Sandbox) take(drop bool, key, order string) Fault {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.faults {
		f := s.faults[i]
		if (f.Kind == Drop) != drop || f.Key != "" && f.Key != key || f.Order != "" && f.Order != order {
			continue
		}
		switch {
		case f.Times > 1:
			s.faults[i].Times--
		case f.Times >= 0:
			s.faults = slices.Delete(s.faults, i, i+1)
		}
		return f
	}
	return Fault{}
}

// abort closes the connection without an answer.
func abort() { panic(http.ErrAbortHandler) }

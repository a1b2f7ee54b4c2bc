package sandbox

import "time"

// known is what is remembered of a key.
type known struct {
	asked   payment // what the first request asked for
	running bool    // it is still being carried out
	payment int32
	status  status // as it was answered
	failed  int    // HTTP status of the 500 that was answered in its place; 0: none
	at      time.Time
}

// begin looks the key of asked up. Where it is known it is answered, as the
// dialect does that: done. Else the request is carried out, and end or stop is
// called then.
func (s *Sandbox) begin(asked payment) (made result, done bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if asked.key == "" || s.o.IgnoreKeys || asked.speaks.again == never {
		return result{}, false, nil
	}
	name := [2]string{asked.speaks.name, asked.key}
	k := s.keys[name]
	if k != nil && !k.running && s.o.KeyLife != 0 && s.now().Sub(k.at) > s.o.KeyLife && asked.speaks.again != taken {
		k = nil
	}
	switch {
	case k == nil:
		s.keys[name] = &known{asked: asked, running: true}
		return result{}, false, nil
	case k.asked.amount != asked.amount || k.asked.currency != asked.currency || k.asked.order != asked.order || k.asked.path != asked.path:
		s.stats.Mismatches++
		return result{}, true, refuse(keyMismatch, "this key was used for another payment")
	case k.running:
		return result{}, true, refuse(inFlight, "the first request under this key is being carried out")
	}
	made = s.result(k.payment, true)
	switch asked.speaks.again {
	case first, success:
		if asked.speaks.again == success && k.status == refused {
			s.keys[name] = &known{asked: asked, running: true}
			return result{}, false, nil
		}
		made.status, made.failed = k.status, k.failed
	case conflict, taken:
		if asked.speaks.again == conflict && k.status == refused {
			s.keys[name] = &known{asked: asked, running: true}
			return result{}, false, nil
		}
		return result{}, true, &refusal{failed{code: keyTaken, text: "it was made by an earlier request under this key", known: made}}
	}
	s.stats.Replays++
	return made, true, nil
}

// end remembers what the request of asked was answered: made, or a 500 in its
// place.
func (s *Sandbox) end(asked payment, n int32, made result, fault Fault) {
	if k := s.running(asked); k != nil {
		k.running, k.payment, k.status, k.at = false, n, made.status, s.now()
		if fault.Kind == ActStatus && fault.Status == 500 {
			k.failed = fault.Status
		}
	}
}

// stop forgets the key of asked, whose request was not carried out.
func (s *Sandbox) stop(asked payment) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.running(asked) != nil {
		delete(s.keys, [2]string{asked.speaks.name, asked.key})
	}
}

// running is what is remembered of the key of asked while its request is being
// carried out. The caller holds mu.
func (s *Sandbox) running(asked payment) *known {
	k := s.keys[[2]string{asked.speaks.name, asked.key}]
	if k == nil || !k.running {
		return nil
	}
	return k
}

// Forget makes the provider forget every idempotency key, as when the life of each
// is over. A request that is being carried out is not forgotten.
func (s *Sandbox) Forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, k := range s.keys {
		if !k.running {
			delete(s.keys, name)
		}
	}
}

package worker

import (
	"fmt"
	"sync"

	"zabor/step"
)

// Unscoped says that messages of s name a tenant at path, while its keys have no scope.
func Unscoped(s *step.Step, path string) string {
	return fmt.Sprintf("step %s: messages name a tenant at %s, and the keys have no scope: two tenants' orders of one number would share a key, and the second one would be parked; write scope: '%s' into the step, if the numbers are not unique", s.Name(), path, path)
}

// unscoped are the steps of which that was logged.
type unscoped struct{ sync.Map }

func (u *unscoped) look(w *Worker, s *step.Step, m *Message) {
	path := s.Unscoped(m.Message)
	if path == "" {
		return
	}
	if _, told := u.LoadOrStore(s.Name(), true); !told {
		w.Log.Warn(Unscoped(s, path), "step", s.Name(), "message", m.ID)
	}
}

package keyschema

import (
	"testing"
	"time"
)

// A process that stops captures nothing from that moment on, before its next beat.
func TestDrainRefusesAtOnce(t *testing.T) {
	var g Guard
	g.view.Store(&view{at: time.Now()})
	ok(t, g.Refuse(charge))
	g.drains.Store(true)
	if g.Refuse(charge) == nil {
		t.Error("a process that stops captures")
	}
}

package decision

import (
	"context"
	"fmt"
	"strings"

	"zabor"
	"zabor/internal/console"
)

// willDo describes the effect of d on row, in lines.
func willDo(row zabor.Row, d zabor.Decision) []string {
	is := fmt.Sprintf("%s has no row", console.Printable(d.Key.String()))
	if row.State != "" {
		is = console.Printable(d.Key.String())
		if amount := console.Money(row.Amount); amount != "" {
			is += " (" + amount + ")"
		}
		is += fmt.Sprintf(" is %s: %s", row.State, console.Printable(row.Reason))
	}
	will := map[zabor.Action]string{
		zabor.Settle:  "it will be settled with the reference " + console.Printable(d.Reference) + "; nothing is ever called for it again",
		zabor.Decline: "it will be declined: no money moved, and nothing is ever called for it again",
		zabor.Hold:    "it will be held: nothing is called for it until somebody has decided",
		zabor.Release: "it will be free: when its message is delivered, it is called once more, under the same provider key",
	}[d.Action]
	switch {
	case d.Made(row):
		will = "it is so already, and nothing is decided anew"
	case d.Action == zabor.Release && newKey(row):
		will = "a new attempt will be wanted: when its message is delivered, it is called once more, under a new provider key"
	case (d.Action == zabor.Release || d.Action == zabor.Decline) && row.MayHaveActed():
		will += "; whoever looked at the provider before " + console.Time(row.Open.SendUntil.Add(row.Open.AbsentAfter)) + " may have looked too early"
		if row.Open.AbsentAfter == 0 {
			will += ", and whoever found nothing later has no proof either: zabor knows no time after which this provider surely shows every call"
		}
	}
	return []string{is, will}
}

// newKey reports whether a release of row allows any request, under a new key.
func newKey(row zabor.Row) bool {
	return row.State == zabor.Declined && row.Cause != zabor.ByPerson && !row.MayHaveActed()
}

// Warnings returns facts for the person to know before. They do not change m.
func (m Planned) Warnings() []string {
	if len(m.Same) == 0 {
		return nil
	}
	var rows []string
	for _, r := range m.Same[:min(len(m.Same), fewRows)] {
		rows = append(rows, fmt.Sprintf("%s (%s)", console.Printable(r.Key.String()), strings.TrimSuffix(string(r.State)+", "+console.Money(r.Amount), ", ")))
	}
	return []string{fmt.Sprintf("the reference %s stands in the row of another order already: %s. One reference is one payment: if it paid for that order, it did not pay for this one too", console.Printable(m.Reference), strings.Join(rows, ", "))}
}

// Preview describes the effect of m, in lines.
func (k *Decider) Preview(ctx context.Context, m Planned) []string {
	lines := willDo(m.Row, m.Decision)
	if state := entered[m.Action]; !m.Made(m.Row) && k.hasHook(m.Row, m.Key, state) {
		lines = append(lines, fmt.Sprintf("the step's hook %s runs in the same transaction", state))
	}
	switch {
	case m.Action == zabor.Hold:
	case k.Failures == nil:
		lines = append(lines, k.Kept)
	case len(m.dispositions) == 0:
		lines = append(lines, k.Elsewhere(ctx, m))
	}
	for _, f := range m.dispositions {
		lines = append(lines, f.String())
	}
	return lines
}

// entered is the state of the hook of an action; a release has no hook.
var entered = map[zabor.Action]zabor.State{zabor.Settle: zabor.Settled, zabor.Decline: zabor.Declined, zabor.Hold: zabor.Held}

// hasHook reports whether the step of row has a hook for state.
func (k *Decider) hasHook(row zabor.Row, key zabor.Key, state zabor.State) bool {
	row.Key, row.State, row.HookDue = key, state, ""
	hook, err := k.File.Hook(row)
	return state != "" && (hook != nil || err != nil)
}

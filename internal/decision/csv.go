package decision

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"zabor"
	"zabor/step"
)

// WholeScope returns the whole scope of a key. A list of rows has it so; authors of
// their own files write the inner scope, as --scope takes it.
func WholeScope(installation, scope string) string {
	if scope != "" && (scope[0] == '/' || installation != "" && zabor.Key{Scope: scope}.In(installation)) {
		return scope
	}
	return step.JoinScope(installation, scope)
}

// ReadCSV reads the whole file of decisions before the first change. undecided counts
// the lines without an action. An error names the line.
func ReadCSV(r io.Reader) (decisions []zabor.Decision, undecided int, err error) {
	records := csv.NewReader(r)
	head, err := records.Read()
	if err != nil {
		return nil, 0, fmt.Errorf("no head line: %w", err)
	}
	column := func(name string) int { return slices.Index(head, name) }
	for _, name := range []string{"order", "step", "action", "reason"} {
		if column(name) < 0 {
			return nil, 0, fmt.Errorf("line 1: no column %s; there is %s", name, strings.Join(head, ", "))
		}
	}
	for line := 2; ; line++ {
		fields, err := records.Read()
		if errors.Is(err, io.EOF) {
			return decisions, undecided, nil
		}
		if err != nil {
			return nil, 0, err
		}
		field := func(name string) string {
			if i := column(name); i >= 0 {
				return fields[i]
			}
			return ""
		}
		if field("action") == "" {
			undecided++
			continue
		}
		var key zabor.Key
		for name, part := range map[string]*string{"scope": &key.Scope, "order": &key.Order, "step": &key.Step} {
			if *part, err = zabor.DecodeText(field(name)); err != nil {
				return nil, 0, fmt.Errorf("line %d: %s: %w", line, name, err)
			}
		}
		d := zabor.Decision{
			Key:    key,
			Action: zabor.Action(field("action")), Reference: field("reference"), Reason: field("reason"),
			CheckedProvider: field("checked") == "yes",
		}
		if !slices.Contains([]zabor.Action{zabor.Settle, zabor.Decline, zabor.Release, zabor.Hold}, d.Action) {
			return nil, 0, fmt.Errorf("line %d: action %q: write settle, decline, release or hold", line, d.Action)
		}
		if d.Reason == "" {
			return nil, 0, fmt.Errorf("line %d: no reason", line)
		}
		if (d.Action == zabor.Settle) != (d.Reference != "") {
			return nil, 0, fmt.Errorf("line %d: settle, and only settle, takes a reference", line)
		}
		decisions = append(decisions, d)
	}
}

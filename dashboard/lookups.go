package dashboard

import (
	"context"
	"fmt"
	"sync"

	"zabor"
	"zabor/sqlstore"
)

// lookedUp is the kind of a note on what a look-up found.
const lookedUp = "look-up"

// mostLookups is how many rows' latest results a process remembers.
const mostLookups = 10_000

// NoteLookups returns look with notes: each result that differs from the row's
// previous one is appended to its history. A note that cannot be written is left out:
// the look-up decides without it.
func NoteLookups(store *sqlstore.Store, look zabor.Lookup) zabor.Lookup {
	var mu sync.Mutex
	last := map[zabor.Key]string{}
	return func(ctx context.Context, row zabor.Row) (zabor.Finding, error) {
		found, err := look(ctx, row)
		text := foundText(found, err)
		mu.Lock()
		before, known := last[row.Key]
		mu.Unlock()
		if !known { // by another process, or before a restart
			notes, notesErr := store.History().Of(ctx, row.Key)
			if notesErr != nil {
				return found, err
			}
			for _, n := range notes {
				if n.Kind == lookedUp {
					before = n.Text
				}
			}
		}
		if text != before && store.Note(ctx, row.Key, zabor.Note{Epoch: row.Claim.Epoch, Kind: lookedUp, Text: text}) != nil {
			return found, err
		}
		mu.Lock()
		defer mu.Unlock()
		if len(last) >= mostLookups {
			clear(last)
		}
		last[row.Key] = text
		return found, err
	}
}

func foundText(found zabor.Finding, err error) string {
	o := found.Outcome
	switch {
	case err != nil:
		return "no answer: " + err.Error()
	case found.Several:
		return "found more than one call that moved money: " + o.Reason
	case found.Absent:
		return "not found"
	}
	text := fmt.Sprintf("found: %s", o.Verdict)
	if o.Answer != nil && o.Answer.Status != 0 {
		text += fmt.Sprintf(", HTTP %d", o.Answer.Status)
	}
	if o.Reference != "" {
		text += ", reference " + o.Reference
	}
	if o.Reason != "" {
		text += ": " + o.Reason
	}
	return text
}

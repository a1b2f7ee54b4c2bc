package keyschema

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"zabor"
	"zabor/sqlstore"
	"zabor/step"
)

// Adopt writes what is in force from now on: new steps, and changes that are free. It
// marks the queues. The caller has seen that r.Err is nil.
func (i *Installation) Adopt(ctx context.Context, r *Review) error {
	for _, c := range r.Changes {
		if err := i.replace(ctx, r, c); err != nil {
			return err
		}
	}
	for _, one := range r.writes {
		if err := i.put(ctx, r, one); err != nil {
			return err
		}
	}
	return i.mark(ctx, r.Records, nil)
}

// put writes a record.
func (i *Installation) put(ctx context.Context, r *Review, one Record) error {
	if err := one.write(ctx, i.Store); err != nil {
		return err
	}
	r.Records[stepID{one.Scope, one.Step}] = one
	return nil
}

// replace puts c's schema in force. Steps that are not configured any more lose the
// classes that its step has now, so that the way back is a change too.
func (i *Installation) replace(ctx context.Context, r *Review, c Change) error {
	if err := i.put(ctx, r, c.Next); err != nil {
		return err
	}
	for _, old := range r.Records.Of(i.Scope) {
		left := slices.DeleteFunc(slices.Clone(old.Classes), func(class string) bool {
			return old.Step != c.Next.Step && slices.Contains(c.Next.Classes, class) && !i.has(old.Step, class)
		})
		if len(left) == len(old.Classes) {
			continue
		}
		old.Version, old.Classes = old.Version+1, left
		if err := i.put(ctx, r, old); err != nil {
			return err
		}
	}
	return nil
}

// mark marks the queues as the installation's, also those of the renamed scopes.
func (i *Installation) mark(ctx context.Context, records Records, renamed []string) error {
	fence, err := fenceID(ctx, i.Store)
	if err != nil {
		return err
	}
	m := marker{Scope: i.Scope, Fence: fence, Steps: map[string]markedStep{}}
	for _, r := range records.Of(i.Scope) {
		m.Steps[r.Step] = markedStep{r.Version, digest(r.Schema)}
	}
	for _, q := range i.Queues {
		if err := q.mark(ctx, i.Store, m, renamed); err != nil {
			return err
		}
	}
	return nil
}

// Accepted is what a person is told of an accepted change.
type Accepted struct {
	Step    string
	Settled int64 // rows under the old schema: a message that is sent anew for one of them is charged
	Held    int   // messages that are held when they come
}

// Accept puts the changed schemas of the named steps in force on a person's word. It
// holds every failed message of the old schemas, and every message on a queue whose
// old key has a row. It may be called again after an error.
func (i *Installation) Accept(ctx context.Context, r *Review, names []string) ([]Accepted, error) {
	var changes []Change
	var renamed []string
	for _, name := range names {
		at := slices.IndexFunc(r.Changes, func(c Change) bool { return c.Step.Name() == name })
		if at < 0 {
			if !slices.ContainsFunc(i.Steps, func(s *step.Step) bool { return s.Name() == name }) {
				return nil, &Refusal{fmt.Errorf("step %s: no such step is configured", name), "\"zabor schema\" lists the steps"}
			}
			return nil, &Refusal{fmt.Errorf("step %s: its configured key schema has not changed; nothing was written", name), ""}
		}
		changes = append(changes, r.Changes[at])
		renamed = append(renamed, r.Changes[at].Renamed...)
	}
	for _, c := range r.Changes {
		if len(c.Renamed) > 0 && !slices.Contains(names, c.Step.Name()) {
			return nil, &Refusal{fmt.Errorf("the queues are marked as those of another scope, so all steps are accepted together, and step %s is not named; nothing was written", c.Step.Name()), "name all steps that \"zabor schema\" shows as changed"}
		}
	}
	for _, c := range changes {
		if len(c.Processes) > 0 {
			return nil, &Refusal{fmt.Errorf("step %s: %s; nothing was written", c.Step.Name(), c.Processes[0]), "stop it, and accept then"}
		}
	}
	held, err := i.holdable(ctx, changes)
	if err != nil {
		return nil, err
	}
	var all []Accepted
	for n, c := range changes {
		done := Accepted{Step: c.Step.Name(), Held: len(held[n])}
		for _, from := range c.From {
			settled, err := i.Store.Reports().Settled(ctx, from.Scope, from.Step)
			if err != nil {
				return nil, err
			}
			done.Settled += settled
		}
		// The messages first: without their ids the new schema would call for them.
		if err := writeHeld(ctx, i.Store, c.Next, held[n]); err != nil {
			return nil, err
		}
		if err := i.replace(ctx, r, c); err != nil {
			return nil, err
		}
		all = append(all, done)
	}
	if err := i.mark(ctx, r.Records, renamed); err != nil {
		return nil, err
	}
	return all, nil
}

// holdable are the messages that each change holds.
func (i *Installation) holdable(ctx context.Context, changes []Change) ([][]heldMessage, error) {
	held := make([][]heldMessage, len(changes))
	err := i.eachMessage(ctx, changes, func(c *Change, m Message) error {
		key, row, err := i.oldKey(ctx, *c, m)
		// Of a schema that is not known no key can be made.
		unknown := c.Lost || len(c.From) == 0
		if err != nil || m.Place != Failed && !row && !unknown {
			return err
		}
		n := slices.IndexFunc(changes, func(one Change) bool { return one.Step == c.Step })
		for _, id := range m.IDs {
			if id != "" {
				held[n] = append(held[n], heldMessage{zabor.EncodeText(id), key})
			}
		}
		return nil
	})
	return held, err
}

// oldKey is the key that m had until now, as text, and whether it has a row; empty: it
// is not known.
func (i *Installation) oldKey(ctx context.Context, c Change, m Message) (text string, row bool, err error) {
	if m.Err != nil {
		return "", false, nil //nolint:nilerr // what cannot be read has no key
	}
	for _, from := range c.From {
		k, err := from.Schema.Key(m.Message)
		if err != nil {
			continue
		}
		if text == "" {
			text = k.String()
		}
		switch _, err := i.Store.Load(ctx, k); {
		case err == nil:
			return k.String(), true, nil
		case !errors.Is(err, zabor.ErrNoRow):
			return "", false, err
		}
	}
	return text, false, nil
}

// heldMessage is a message that is held when it comes.
type heldMessage struct {
	ID  string `json:"id"`            // as by zabor.EncodeText
	Key string `json:"key,omitempty"` // its old one; empty: not known
}

func heldPrefix(r Record) string { return "held:" + r.Scope + "/" + r.Step + "/" }

// mostHeld is how many messages stand in one value of zabor_meta.
const mostHeld = 10_000

// writeHeld stores what is held from the record r on, in place of what an earlier try
// has stored for it.
func writeHeld(ctx context.Context, store *sqlstore.Store, r Record, messages []heldMessage) error {
	n := 0
	for part := range slices.Chunk(messages, mostHeld) {
		text, err := json.Marshal(part)
		if err != nil {
			return err
		}
		if err := store.Meta().Set(ctx, fmt.Sprintf("%s%06d/%06d", heldPrefix(r), r.Version, n), text); err != nil {
			return err
		}
		n++
	}
	return nil
}

// readHeld reads the old keys of all messages that are held for the step of r, by the
// message's id.
func readHeld(ctx context.Context, store *sqlstore.Store, r Record) (map[string]string, error) {
	all, err := store.Meta().All(ctx, heldPrefix(r))
	if err != nil {
		return nil, err
	}
	held := map[string]string{}
	for name, value := range all {
		var messages []heldMessage
		if err := json.Unmarshal(value, &messages); err != nil {
			return nil, fmt.Errorf("%q of zabor_meta: %w", name, err)
		}
		for _, m := range messages {
			id, err := zabor.DecodeText(m.ID)
			if err != nil {
				return nil, fmt.Errorf("%q of zabor_meta: %w", name, err)
			}
			held[id] = m.Key
		}
	}
	return held, nil
}

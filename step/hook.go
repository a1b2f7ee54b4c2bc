package step

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"unicode/utf8"

	"zabor"
	"zabor/card"
	"zabor/provider"
)

// Hook is a statement of the application's that runs with a row's change of
// state, in the same transaction.
//
// Its parameters are :scope :order :step :state :reference :amount :major
// :currency :answer :reason, of the row as it will be, and properties of the message
// or columns of Load by their names. Amount is in minor units, and major the same as
// a decimal text. Reference, both amounts, currency and answer are NULL where they
// are not known.
//
// It is bounded in time as every statement of the fence's connection: by its
// lock_wait, and by the time of one try.
type Hook struct {
	SQL  string // one INSERT, UPDATE or DELETE; none of the fence's own tables
	Rows int    // it must hit exactly so many; below zero: any number
}

// hookStates are the states with which a hook can run.
var hookStates = [...]zabor.State{zabor.Captured, zabor.Pending, zabor.Settled, zabor.Declined, zabor.Held}

// rowNames are the parameters of a hook that come from the row. A property of
// such a name cannot be bound.
var rowNames = [...]string{"scope", "order", "step", "state", "reference", "amount", "major", "currency", "answer", "reason"}

// hook is a compiled [Hook].
type hook struct {
	statement
	rows int
}

// compileHooks notes in used the properties that hooks bind.
func (s *Step) compileHooks(used map[string]bool, wrong func(field string, err error)) {
	bound := map[string]bool{}
	for state, spec := range s.spec.Hooks {
		if !slices.Contains(hookStates[:], state) {
			wrong(string(state), errors.New("no hook runs with this state"))
			continue
		}
		compiled, err := compileWrite(spec.SQL, s.spec.Dialect)
		wrong(string(state), err)
		s.hooks[state] = hook{compiled, spec.Rows}
		for _, name := range compiled.names {
			if slices.Contains(rowNames[:], name) {
				continue
			}
			if card.Field(name) {
				wrong(string(state), fmt.Errorf(":%s is a card's number or code by its name, and what a hook binds is kept until it has run; take it out", name))
			}
			bound[name], used[name] = true, true
		}
	}
	s.bound = slices.Sorted(maps.Keys(bound))
}

// Hook is the statement that runs with the write by which row enters its state,
// bound to row as it will be; nil: there is none. A hook that is due and is not
// configured any more is an error: it must not be forgotten.
func (s *Step) Hook(row zabor.Row) (*zabor.Hook, error) {
	h, ok := s.hooks[row.State]
	if !ok {
		return nil, NoHook(row)
	}
	data, err := decodeBound(row.Open.HookData)
	if err != nil {
		return nil, fmt.Errorf("hook %s of %s: what it binds from the message cannot be read: %w", row.State, row.Key, err)
	}
	made := &zabor.Hook{Name: string(row.State), SQL: h.query, Rows: h.rows, Args: make([]any, len(h.names))}
	for i, name := range h.names {
		v, ok := s.rowValue(name, row)
		if !ok {
			v, ok = data[name]
		}
		if !ok {
			if row.Open.Sealed.HookData != nil {
				return nil, fmt.Errorf("hook %s of %s: what it binds from the message is kept, and cannot be read: %s", row.State, row.Key, row.Open.Sealed.Why)
			}
			return nil, fmt.Errorf("hook %s of %s: the row has not kept %s of its message: it was captured before the hook named that, or its hooks had all run; write the rows by hand, or take the parameter out of the hook", row.State, row.Key, name)
		}
		if made.Args[i], err = parameter(v, s.spec.Dialect); err != nil {
			return nil, fmt.Errorf("hook %s of %s: %s: %w", row.State, row.Key, name, err)
		}
	}
	if aliases, ok := h.aliases(made.Args); ok && !h.inserts() {
		made.Aliases = aliases
	}
	return made, nil
}

// Binds lists the properties of the message and columns of Load that hooks bind.
// Where there is none, hooks run for a row that no message made.
func (s *Step) Binds() []string { return slices.Clone(s.bound) }

// RowParameters lists the parameters of a hook that come from the row.
func RowParameters() []string { return slices.Clone(rowNames[:]) }

// Names reports whether path is one that the step's key or money is made of.
func (s *Step) Names(path string) bool {
	return slices.Contains([]string{s.spec.Scope, s.spec.Order, s.spec.Part, s.spec.Amount, s.spec.Currency}, path)
}

// NoHook is the error of a row whose hook for its state is not configured; nil
// where none is due.
func NoHook(row zabor.Row) error {
	if row.HookDue == "" || row.HookDue != string(row.State) {
		return nil
	}
	return fmt.Errorf("hook %s of %s is due, and is not in the configuration any more: write it back until it has run", row.HookDue, row.Key)
}

// rowValue is a parameter that comes from the row; false: it is none.
func (s *Step) rowValue(name string, row zabor.Row) (any, bool) {
	switch name {
	case "scope":
		return row.Scope, true
	case "order":
		return row.Order, true
	case "step":
		return row.Step, true
	case "state":
		return string(row.State), true
	case "reason":
		return row.Reason, true
	case "reference":
		return orNull(row.Reference), true
	case "currency":
		return orNull(row.Amount.Currency), true
	case "amount":
		if row.Amount.Currency == "" {
			return nil, true
		}
		return row.Amount.Minor, true
	case "major":
		if row.Amount.Currency == "" {
			return nil, true
		}
		return orNull(provider.Major(row.Amount)), true
	case "answer":
		if row.Answer == nil {
			return nil, true
		}
		if s.spec.Dialect == Postgres {
			return row.Answer.Body, true // fits text, json, jsonb and bytea alike
		}
		return string(row.Answer.Body), true
	}
	return nil, false
}

func orNull(s string) any {
	if s == "" {
		return nil
	}
	return s
}

// hookData is what the step's hooks bind of data, a JSON object by name; nil:
// nothing.
func (s *Step) hookData(data map[string]any) ([]byte, error) {
	if len(s.bound) == 0 {
		return nil, nil
	}
	kept := map[string]any{}
	for _, name := range s.bound {
		v, ok := lookup(data, name)
		if !ok {
			return nil, refuse("step %s: a hook's parameter: %w", s.spec.Name, missing(data, name))
		}
		if _, err := parameter(v, s.spec.Dialect); err != nil {
			return nil, refuse("step %s: a hook's parameter %s: %w", s.spec.Name, name, err)
		}
		switch value := v.(type) {
		case string:
			if !utf8.ValidString(value) {
				v = rawText{[]byte(value)}
			}
		case float64:
			v = json.Number(strconv.FormatFloat(value, 'g', -1, 64))
		}
		kept[name] = v
	}
	out, err := json.Marshal(kept)
	if err != nil {
		return nil, refuse("step %s: a hook's parameters: %w", s.spec.Name, err)
	}
	return out, nil
}

// rawText is a text in hook data that is not UTF-8.
type rawText struct {
	Base64 []byte `json:"base64"`
}

// decodeBound reads what hookData wrote: nil, bool, string, []byte or
// json.Number by name.
func decodeBound(b []byte) (map[string]any, error) {
	if b == nil {
		return nil, nil
	}
	var raw map[string]json.RawMessage
	if err := json.Unmarshal(b, &raw); err != nil {
		return nil, err
	}
	data := make(map[string]any, len(raw))
	for name, text := range raw {
		if text[0] == '{' {
			var v rawText
			if err := json.Unmarshal(text, &v); err != nil {
				return nil, err
			}
			data[name] = v.Base64
			continue
		}
		d := json.NewDecoder(bytes.NewReader(text))
		d.UseNumber()
		var v any
		if err := d.Decode(&v); err != nil {
			return nil, err
		}
		data[name] = v
	}
	return data, nil
}

// parameter is v as a parameter of a statement: a whole number as one, so that
// MySQL compares numbers and does not take '7abc' for 7, and any other as its
// exact decimal text. PostgreSQL decides what a parameter is by where it stands,
// and reads that exactly from a text.
func parameter(v any, dialect Dialect) (any, error) {
	switch value := v.(type) {
	case nil, string, []byte:
		return v, nil
	case bool:
		if dialect == Postgres {
			return strconv.FormatBool(value), nil
		}
		return value, nil
	case int64:
		if dialect == Postgres {
			return strconv.FormatInt(value, 10), nil
		}
		return value, nil
	case float64:
		return parameter(json.Number(strconv.FormatFloat(value, 'g', -1, 64)), dialect)
	case json.Number:
		if n, err := strconv.ParseInt(value.String(), 10, 64); err == nil {
			return parameter(n, dialect)
		}
		if !json.Valid([]byte(value)) {
			return nil, fmt.Errorf("it is %s, which is no number that can be bound", value)
		}
		return value.String(), nil
	}
	return nil, fmt.Errorf("it is %s, which cannot be bound", kind(v))
}

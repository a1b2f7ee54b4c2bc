package console

import (
	"time"

	"zabor"
)

// Key is the documented JSON of a [zabor.Key].
type Key struct {
	Scope ID `json:"scope"`
	Order ID `json:"order"`
	Step  ID `json:"step"`
}

// NewKey returns the JSON of k.
func NewKey(k zabor.Key) Key {
	return Key{ID(k.Scope), ID(k.Order), ID(k.Step)}
}

// Plain returns k as a key of the fence.
func (k Key) Plain() zabor.Key {
	return zabor.Key{Scope: string(k.Scope), Order: string(k.Order), Step: string(k.Step)}
}

// ID is a part of a key. JSON has it as [zabor.EncodeText] writes it.
type ID string

// MarshalText encodes t with [zabor.EncodeText].
func (t ID) MarshalText() ([]byte, error) { return []byte(zabor.EncodeText(string(t))), nil }

// UnmarshalText decodes text with [zabor.DecodeText].
func (t *ID) UnmarshalText(text []byte) error {
	s, err := zabor.DecodeText(string(text))
	*t = ID(s)
	return err
}

// Row is the documented JSON of a [zabor.Row].
type Row struct {
	Scope       ID      `json:"scope"`
	Order       ID      `json:"order"`
	Step        ID      `json:"step"`
	State       string  `json:"state"`
	Reference   string  `json:"reference"`
	Other       string  `json:"other_reference,omitempty"`
	Provider    string  `json:"provider"`
	ProviderKey string  `json:"provider_key"`
	Attempts    int     `json:"attempts"`
	Generation  int     `json:"generation"`
	Amount      *int64  `json:"amount"`           // minor units; null: not known
	Answer      string  `json:"answer,omitempty"` // erased: it was kept, and keep_answers is over
	Currency    string  `json:"currency"`
	CapturedAt  *string `json:"captured_at"`
	SettledAt   *string `json:"settled_at"`
	LeaseUntil  *string `json:"lease_until"`
	Reason      string  `json:"reason"`
}

// NewRow returns the JSON of r.
func NewRow(r zabor.Row) Row {
	j := Row{
		Scope: ID(r.Scope), Order: ID(r.Order), Step: ID(r.Step), State: string(r.State), Reference: r.Reference, Other: r.OtherReference,
		Provider: r.Provider, ProviderKey: r.ProviderKey, Attempts: r.Tries, Generation: r.Generation,
		Currency: r.Amount.Currency, CapturedAt: JSONTime(r.CapturedAt), SettledAt: JSONTime(r.ClosedAt()),
		LeaseUntil: JSONTime(r.Open.SendUntil), Reason: r.Reason,
	}
	if r.Amount.Currency != "" {
		j.Amount = &r.Amount.Minor
	}
	if r.Answer != nil && r.Answer.Erased {
		j.Answer = "erased"
	}
	return j
}

// JSONTime returns t in UTC as RFC 3339 has it, with fractions of a second. nil means
// the zero time.
func JSONTime(t time.Time) *string {
	if t.IsZero() {
		return nil
	}
	s := t.UTC().Format(time.RFC3339Nano)
	return &s
}

// Package keyschema keeps one key schema in force per installation and step. A change
// of what keys are made of makes each charge a new one, so it is found before any
// message is taken, and while processes run. docs/keys.md has the rules.
package keyschema

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"zabor/sqlstore"
	"zabor/step"
)

// Record is a key schema that was written down for a step.
type Record struct {
	Scope   string // the installation's
	Step    string
	Version int // from 1; each write of a record makes a new one

	// Epoch rises with each accepted change, from 1. 0: an import has written it, and
	// no worker has started since.
	Epoch   int
	Schema  step.KeySchema
	Classes []string // of the messages whose step it is, in byte order
}

// stepID names a step of an installation.
type stepID struct{ scope, step string }

// Records are the latest records of all installations: those in force.
type Records map[stepID]Record

// recorded is the value of a record in zabor_meta.
type recorded struct {
	Epoch   int            `json:"epoch"`
	Schema  step.KeySchema `json:"schema"`
	Classes []string       `json:"classes"`
}

const recordPrefix = "keys:"

// name is the record's name in zabor_meta. A version is written once only, so that of
// two processes that change a schema at the same time one fails.
func (r Record) name() string {
	return fmt.Sprintf("%s%s/%s/%06d", recordPrefix, r.Scope, r.Step, r.Version)
}

// Read reads the records of all installations that share the store.
func Read(ctx context.Context, store *sqlstore.Store) (Records, error) {
	all, err := store.Meta().All(ctx, recordPrefix)
	if err != nil {
		return nil, err
	}
	records := Records{}
	for name, value := range all {
		r, err := parseRecord(strings.TrimPrefix(name, recordPrefix), value)
		if err != nil {
			return nil, err
		}
		id := stepID{r.Scope, r.Step}
		if r.Version > records[id].Version {
			records[id] = r
		}
	}
	return records, nil
}

func parseRecord(name string, value []byte) (r Record, err error) {
	scope, rest, _ := strings.Cut(name, "/")
	at := max(0, strings.LastIndex(rest, "/"))
	var v recorded
	version, err := strconv.Atoi(strings.TrimPrefix(rest[at:], "/"))
	if err == nil {
		err = json.Unmarshal(value, &v)
	}
	if err != nil {
		return r, fmt.Errorf("key schema %q of zabor_meta: %w", name, err)
	}
	return Record{Scope: scope, Step: rest[:at], Version: version, Epoch: v.Epoch, Schema: v.Schema, Classes: v.Classes}, nil
}

// errRaced: another process has written the same version of a record.
var errRaced = errors.New("another process has changed the key schema at this moment")

// write writes r, whose version is the next one. Two writers of an equal record both
// succeed.
func (r Record) write(ctx context.Context, store *sqlstore.Store) error {
	value, err := json.Marshal(recorded{r.Epoch, r.Schema, r.Classes})
	if err != nil {
		return err
	}
	kept, err := store.Meta().Add(ctx, r.name(), value)
	if err != nil {
		return err
	}
	if !bytes.Equal(kept, value) {
		return &Refusal{Err: fmt.Errorf("step %s: %w", r.Step, errRaced), Next: "start again"}
	}
	return nil
}

// same reports whether r and s make the same keys of the same messages.
func (r Record) same(s Record) bool {
	return r.Epoch == s.Epoch && r.Schema.String() == s.Schema.String() && slices.Equal(r.Classes, s.Classes)
}

// Refusal says why nothing is started, or accepted, and what to do next.
type Refusal struct {
	Err  error
	Next string
}

func (r *Refusal) Error() string { return r.Err.Error() }
func (r *Refusal) Unwrap() error { return r.Err }

package access

import (
	"errors"
	"fmt"
	"time"

	"zabor"
)

// Kinds of the notes of a row in which a release waits for a second person.
const (
	proposed  = "proposed release"
	withdrawn = "withdrawn release"
)

// ProposalKinds are the kinds of the notes that [Proposed] reads.
var ProposalKinds = []string{proposed, withdrawn}

// Proposal is one operator's wish to release a row, which another operator
// confirms. It is kept as a note of the row, in the database: every process that
// serves the dashboard sees it, a restart does not lose it, and it stays in the
// row's history. It is about the row as it was seen and ends with the row's next
// change.
type Proposal struct {
	By     string
	Reason string
	At     time.Time
}

// Errors of a second person's.
var (
	ErrSamePerson  = errors.New("whoever proposed a release cannot confirm it: another operator must; nothing was changed")
	ErrNotProposed = errors.New("nobody has proposed to release the row as it is now: it has changed since, or the proposal was withdrawn; nothing was changed")
	errNotOperator = errors.New("operators decide: nothing was changed")
)

// Propose is the note that keeps who's wish to release the row as it was seen.
func Propose(who Identity, seen zabor.Claim, reason string) (zabor.Note, error) {
	return noteOf(proposed, who, seen, reason)
}

// Withdraw is the note that takes back what was proposed about the row as it was
// seen.
func Withdraw(who Identity, seen zabor.Claim, reason string) (zabor.Note, error) {
	return noteOf(withdrawn, who, seen, reason)
}

func noteOf(kind string, who Identity, seen zabor.Claim, reason string) (zabor.Note, error) {
	switch {
	case who.Role != Operator:
		return zabor.Note{}, errNotOperator
	case reason == "":
		return zabor.Note{}, errors.New("a reason is needed: nothing was changed")
	}
	return zabor.Note{Epoch: seen.Epoch, Kind: kind, By: who.Name, Text: reason}, nil
}

// Proposed is the proposal that waits among notes, which are a row's, oldest
// first, for the row as it was seen; false: there is none. Of several the latest
// counts.
func Proposed(notes []zabor.Note, seen zabor.Claim) (Proposal, bool) {
	var p Proposal
	waits := false
	for _, n := range notes {
		if n.Epoch != seen.Epoch {
			continue
		}
		switch n.Kind {
		case proposed:
			p, waits = Proposal{By: n.By, Reason: n.Text, At: n.At}, true
		case withdrawn:
			waits = false
		}
	}
	return p, waits
}

// Confirm is d, a release that who decides, as both persons decide it: with both
// names and both reasons. It is [ErrSamePerson] where who has proposed it, and
// [ErrNotProposed] where nothing is proposed in notes for d.Seen. Each of the two
// has to say that the provider was asked, where the row demands that: a proposal is
// noted only after [zabor.Decision.Check] has let it pass, and d is checked when it is
// decided.
func Confirm(notes []zabor.Note, who Identity, d zabor.Decision) (zabor.Decision, error) {
	p, waits := Proposed(notes, d.Seen)
	switch {
	case who.Role != Operator:
		return d, errNotOperator
	case d.Action != zabor.Release:
		return d, fmt.Errorf("%s needs no second person", d.Action)
	case !waits:
		return d, ErrNotProposed
	case p.By == who.Name:
		return d, ErrSamePerson
	}
	d.By = p.By + ", confirmed by " + who.Name
	d.Reason = fmt.Sprintf("%s (%s: %s)", p.Reason, who.Name, d.Reason)
	return d, nil
}

package dashboard

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"zabor"
	"zabor/dashboard/access"
)

// errProposedMeanwhile says that a form was about another proposal than the one that
// waits now, or about none.
var errProposedMeanwhile = errors.New("an operator has proposed to release it since you looked: look at it again, and confirm that; nothing was changed")

// proposalMark is a proposal in a form, which is about exactly that one; of no
// proposal it is 0.
func proposalMark(p access.Proposal, waits bool) string {
	if !waits {
		return "0"
	}
	return strconv.FormatInt(p.At.UnixMicro(), 10)
}

// second lets a release wait for a second person where that is wanted: v is then
// proposed, or decided by two. meant is the proposal that the person has seen, as
// [proposalMark] has it; a confirmation without one is of nothing.
func (d *Dashboard) second(ctx context.Context, v verdict, who access.Identity, confirmed bool, meant string) (verdict, error) {
	if !d.o.SecondPerson || v.Action != zabor.Release {
		return v, nil
	}
	notes, err := d.o.Store.History().Of(ctx, v.Key)
	if err != nil {
		return v, err
	}
	p, waits := access.Proposed(notes, v.Seen)
	v.Second = proposalMark(p, waits)
	if meant != v.Second && (meant != "" || confirmed) {
		if !waits {
			return v, access.ErrNotProposed
		}
		return v, errProposedMeanwhile
	}
	if waits {
		both, err := access.Confirm(notes, who, v.Decision)
		if err != nil {
			return v, err
		}
		v.Decision = both
		v.Lines = append(v.Lines, "it is decided by two: "+both.By)
		return v, nil
	}
	v.Proposed = true
	if !confirmed {
		v.Lines = append([]string{"first it is proposed only: another operator must confirm it, and nothing is called until then"}, v.Lines...)
		return v, nil
	}
	note, err := access.Propose(who, v.Seen, v.Reason)
	if err == nil {
		err = d.o.Store.Note(ctx, v.Key, note)
	}
	if err != nil {
		return v, err
	}
	d.o.Log.Info("a release was proposed on the dashboard", "by", who.Name, "order", v.Key.Order, "step", v.Key.Step, "reason", v.Reason)
	v.Lines = []string{"it is proposed; nothing was changed yet: another operator finds it under «In doubt and held», and confirms it"}
	return v, nil
}

// proposal is a release that waits for a second person.
type proposal struct {
	access.Proposal
	Key zabor.Key
	Own bool // whoever looks has proposed it
}

// proposals are the releases that wait for a second person, as who sees them, those
// that wait longest first.
func (d *Dashboard) proposals(ctx context.Context, who access.Identity) ([]proposal, error) {
	if !d.o.SecondPerson {
		return nil, nil
	}
	all, _, err := d.numbers.proposals.get(ctx, func(ctx context.Context) ([]proposal, error) {
		current, err := d.o.Store.History().Current(ctx, d.o.Scope, access.ProposalKinds...)
		var all []proposal
		notes := map[zabor.Key][]zabor.Note{}
		for _, n := range current {
			notes[n.Key] = append(notes[n.Key], n.Note)
		}
		for key, of := range notes {
			if p, waits := access.Proposed(of, zabor.Claim{Epoch: of[0].Epoch}); waits {
				all = append(all, proposal{Proposal: p, Key: key})
			}
		}
		slices.SortFunc(all, func(a, b proposal) int { return a.At.Compare(b.At) })
		return all, err
	})
	all = slices.Clone(all)
	for i := range all {
		all[i].Own = all[i].By == who.Name
	}
	return all, err
}

// withdraw takes a proposal back.
func (d *Dashboard) withdraw(w http.ResponseWriter, r *http.Request) {
	who := access.From(r.Context())
	wrong := func(status int, what, next string) {
		d.trouble(w, r, status, trouble{What: what, Next: next + " Nothing was changed.", Link: "/open", Words: "In doubt and held"})
	}
	key, seen, ok := readToken(r.PostFormValue("row"))
	if !ok {
		wrong(http.StatusBadRequest, "This form is not complete", "Open the page again.")
		return
	}
	if !key.In(d.o.Scope) {
		d.trouble(w, r, http.StatusBadRequest, d.elsewhere(key, "Nothing was changed.", "/open", "In doubt and held"))
		return
	}
	notes, err := d.o.Store.History().Of(r.Context(), key)
	if err != nil {
		d.away(w, r, err)
		return
	}
	if _, waits := access.Proposed(notes, seen); !waits {
		wrong(http.StatusConflict, "Nothing waits to be withdrawn", "The proposal was confirmed or withdrawn meanwhile, or the row has changed.")
		return
	}
	note, err := access.Withdraw(who, seen, "withdrawn on the dashboard")
	if reason := strings.TrimSpace(r.PostFormValue("reason")); err == nil && reason != "" {
		note.Text = reason
	}
	if err == nil {
		err = d.o.Store.Note(context.WithoutCancel(r.Context()), key, note)
	}
	if err != nil {
		d.away(w, r, err)
		return
	}
	d.o.Log.Info("a proposed release was withdrawn on the dashboard", "by", who.Name, "order", key.Order, "step", key.Step, "reason", note.Text)
	d.changed()
	http.Redirect(w, r, rowURL(key), http.StatusSeeOther)
}

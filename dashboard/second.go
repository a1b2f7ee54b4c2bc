package dashboard

import (
	"context"
	"errors"
	"net/http"
	"strings"

	"zabor"
	"zabor/dashboard/access"
)

// second lets a release wait for a second person where that is wanted: v is then
// proposed, or decided by two.
func (d *Dashboard) second(ctx context.Context, v verdict, who access.Identity, confirmed bool) (verdict, error) {
	if !d.o.SecondPerson || v.Action != zabor.Release {
		return v, nil
	}
	notes, err := d.o.Store.Notes(ctx, v.Key)
	if err != nil {
		return v, err
	}
	both, err := access.Confirm(notes, who, v.Decision)
	switch {
	case err == nil:
		v.Decision = both
		v.Lines = append(v.Lines, "it is decided by two: "+both.By)
		return v, nil
	case !errors.Is(err, access.ErrNotProposed):
		return v, err
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
	v.Lines = []string{"it is proposed; nothing was changed yet: another operator confirms it on the page of the row"}
	return v, nil
}

// withdraw takes a proposal back.
func (d *Dashboard) withdraw(w http.ResponseWriter, r *http.Request) {
	who := access.From(r.Context())
	key, seen, ok := readToken(r.PostFormValue("row"))
	if !ok {
		d.trouble(w, r, http.StatusBadRequest, trouble{What: "This form is not complete", Next: "Open the page again. Nothing was changed.", Link: "/open", Words: "In doubt and held"})
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
	http.Redirect(w, r, rowURL(key), http.StatusSeeOther)
}

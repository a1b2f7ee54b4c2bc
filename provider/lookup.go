package provider

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"zabor"
)

// newClient makes requests that need no fence, which may share connections. Like
// the calls it asks no environment for a proxy and follows no redirect; the head
// of an answer comes within timeout.
func newClient(d *dialer, timeout time.Duration) *http.Client {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		c, _, err := d.dial(ctx)
		return c, err
	}
	t := newTransport()
	t.DialContext, t.DialTLSContext = dial, dial
	t.ResponseHeaderTimeout = timeout
	return &http.Client{
		Transport:     t,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// Lookup is a [zabor.Lookup]: it asks the provider about row and moves no money.
// It takes at most the profile's time-out. A pending row is asked about by its
// reference and a prepared one by its id, where the profile has such a request,
// and every other by what its request carried.
//
// Every hit is read by the same pointers and compared with the same amount as
// the answer to a call. That a hit is about this row is the filter's business,
// see [Lookup]. Of several hits:
//
//   - more than one that moved money, or still may (settled and pending, whatever
//     its amount): Several, and the Outcome's reason names them;
//   - one of these: its outcome, however many others were declined;
//   - only declined ones: Refused; only such as were never begun: Absent;
//   - anything that cannot be read beside declined ones: Unproven.
//
// An error says nothing about the row: no connection, a status other than 2xx
// (and 404 where the profile has no list), or an answer that cannot be read.
func (p *Provider) Lookup(ctx context.Context, row zabor.Row) (zabor.Finding, error) {
	found, err := p.find(ctx, row)
	if err != nil {
		return zabor.Finding{}, fmt.Errorf("look up %s at %s: %w", row.Key, p.name, err)
	}
	return found, nil
}

func (p *Provider) find(ctx context.Context, row zabor.Row) (zabor.Finding, error) {
	if !p.look {
		return zabor.Finding{}, errors.New("the profile has no look-up")
	}
	path, byID := p.lookup, false
	switch {
	case row.State == zabor.Pending && row.Reference != "" && p.getting(row.Reference) != nil:
		path, byID = p.getting(row.Reference), true
	case row.Prepared != "" && p.getPrepared != nil:
		path, byID = p.getPrepared, true
	case p.lookup == nil:
		return zabor.Finding{Outcome: zabor.Outcome{Reason: "the provider can only be asked about what it has given an id for"}}, nil
	}
	ctx, cancel := context.WithTimeout(ctx, p.timeout)
	defer cancel()
	r, err := path.Render(Vars{
		Order: row.Order, Step: row.Step, Scope: row.Scope, ProviderKey: row.ProviderKey,
		Prepared: row.Prepared, Reference: row.Reference, Money: row.Amount,
	})
	if err != nil {
		return zabor.Finding{}, err
	}
	if r, err = p.signed(r); err != nil {
		return zabor.Finding{}, err
	}
	req, err := p.newRequest(ctx, r)
	if err != nil {
		return zabor.Finding{}, err
	}
	resp, err := p.lookups.Do(req)
	if err != nil {
		return zabor.Finding{}, err
	}
	defer resp.Body.Close()
	a, err := readAnswer(resp)
	if err != nil {
		return zabor.Finding{}, err
	}
	if a.status == http.StatusUnauthorized {
		p.forgetToken()
	}
	if a.status == http.StatusNotFound && p.items == nil && !byID {
		return p.absent(row), nil
	}
	if a.status/100 != 2 {
		err := fmt.Errorf("the provider answered %d %s", a.status, http.StatusText(a.status))
		if after := retryAfter(a.header, time.Now()); after > 0 {
			err = &zabor.LaterError{After: after, Err: err}
		}
		return zabor.Finding{}, err
	}
	document, err := decodeAnswer(a.body)
	if err != nil {
		return zabor.Finding{}, fmt.Errorf("the answer is not one JSON value: %w", err)
	}
	return p.findIn(document, row, byID)
}

// getting gets the object of a reference; nil: the profile has no such request.
func (c *compiled) getting(reference string) *Template {
	for prefix, t := range c.getByPrefix {
		if strings.HasPrefix(reference, prefix) {
			return t
		}
	}
	return c.getPending
}

// absent is what a look-up by what the request carried says when it finds
// nothing.
func (p *Provider) absent(row zabor.Row) zabor.Finding {
	if err := p.findable(row); err != nil {
		return zabor.Finding{Outcome: zabor.Outcome{Reason: "the look-up finds nothing, which proves nothing: " + oneLine(err)}}
	}
	return zabor.Finding{Absent: true}
}

// findable is why row's request could not be found if it was executed; nil: it
// could.
func (p *Provider) findable(row zabor.Row) error {
	travels := p.key.Field != "" || p.key.Header != "" // so that the provider knows the key of every request
	byOrder := p.carried == nil && p.byOrder && !p.byKey
	byKey := p.carried == nil && p.byKey && !travels
	if p.carried == nil && !byOrder && !byKey && len(p.paths) == 0 && p.elsewhere == nil {
		return nil
	}
	if row.Open.Request == nil {
		return errors.New("the request was not kept, so that nobody knows whether it could be found")
	}
	r, err := Thaw(row.Open.Request)
	switch {
	case err != nil:
		return err
	case p.carried != nil && !slices.Equal(p.carried, pointer{p.key.Field}) && p.carried.scalarIn(r.Open().values()) != row.ProviderKey:
		return fmt.Errorf("the request did not carry {{provider_key}} as %s", strings.Join(p.carried, "."))
	case byOrder && !r.holds(row.Order):
		return errors.New("the request did not carry {{order}}")
	case byKey && !r.holds(row.ProviderKey):
		return errors.New("the request did not carry {{provider_key}}")
	case p.elsewhere != nil && hasSome(p.elsewhere, r.Open().values()):
		return fmt.Errorf("what a request with %s makes may be where it does not look", strings.Join(p.elsewhere, "."))
	}
	if len(p.paths) == 0 {
		return nil
	}
	if path, _, _ := strings.Cut(r.Path, "?"); !slices.Contains(p.paths, path) {
		return fmt.Errorf("it does not know what %s makes", path)
	}
	return nil
}

// findIn reads the hits of a look-up's answer; byID: it is one object that the
// provider itself has named.
func (p *Provider) findIn(document any, row zabor.Row, byID bool) (zabor.Finding, error) {
	hits := []any{document}
	if p.items != nil && !byID {
		list, _ := p.items.in(document)
		var ok bool
		if hits, ok = list.([]any); !ok {
			return zabor.Finding{}, errors.New("the answer has no list where the profile's lookup.items points to")
		}
	}
	further := p.more != nil && !byID && hasSome(p.more, document)
	if p.match != nil && !byID {
		reaches := p.reaches(hits, further, row.CapturedAt)
		further = further && !reaches
		hits = slices.DeleteFunc(slices.Clone(hits), func(hit any) bool { return p.match.scalarIn(hit) != row.ProviderKey })
		if len(hits) == 0 && !reaches {
			return zabor.Finding{Outcome: zabor.Outcome{Reason: "it is not among the newest that the provider lists, and these do not reach back to when it was sent"}}, nil
		}
	}
	if p.byKeyAt && !byID {
		hits = slices.DeleteFunc(slices.Clone(hits), func(hit any) bool {
			key := p.echoKey.scalarIn(p.shaped(hit))
			return key != "" && key != row.ProviderKey
		})
	}
	if len(hits) == 0 && !further {
		return p.absent(row), nil
	}
	var moved []hit           // moved money, or may still
	var unclear, refused *hit // the first of each
	for _, document := range hits {
		if !byID {
			document = p.shaped(document)
		}
		said := p.says(0, nil, document)
		h := hit{reference: said.reference.id(document), outcome: p.read(document, said, row)}
		if err := p.sameEcho(document, row); err != nil {
			h.outcome = zabor.Outcome{Reason: fmt.Sprintf("%.100q was found, but %s", h.reference, oneLine(err))}
		}
		switch {
		case p.byKeyAt && !byID && p.echoKey.scalarIn(document) == "":
			h.outcome = zabor.Outcome{Reason: fmt.Sprintf("%.100q was found for the order, and nothing in it says by which request it was made", h.reference)}
			unclear = first(unclear, h)
		case said.moved():
			moved = h.addTo(moved)
		case said.word == unbegun:
		case h.outcome.Verdict == zabor.Refused:
			refused = first(refused, h)
		default:
			h.outcome.Verdict = zabor.Unproven // no look-up is about a request's form
			unclear = first(unclear, h)
		}
	}
	switch {
	case len(moved) > 1:
		o := zabor.Outcome{}
		for i, h := range moved {
			if i > 0 {
				o.Reason += " and "
			}
			o.Reason += h.String()
		}
		return zabor.Finding{Several: true, Outcome: o}, nil
	case len(moved) == 1:
		return zabor.Finding{Outcome: moved[0].outcome}, nil
	case unclear != nil:
		return zabor.Finding{Outcome: unclear.outcome}, nil
	case further:
		return zabor.Finding{Outcome: zabor.Outcome{Reason: "the provider lists more than one page, and it may be on another"}}, nil
	case refused == nil: // what is there has moved nothing
		return zabor.Finding{Absent: true}, nil
	}
	return zabor.Finding{Outcome: refused.outcome}, nil
}

// shaped is a hit as an answer to a call has it.
func (c *compiled) shaped(hit any) any {
	if c.as != "" {
		return map[string]any{c.as: hit}
	}
	return hit
}

// hasSome reports whether there is something in document, other than false, where at
// points to.
func hasSome(at pointer, document any) bool {
	v, _ := at.in(document)
	return v != nil && v != false && v != ""
}

// reaches reports whether a list of the newest surely has all that was made since
// a row was captured, with room for clocks that differ. A page that is not full may
// have another one behind it.
func (p *Provider) reaches(hits []any, further bool, captured time.Time) bool {
	const skew = 15 * time.Minute
	if len(hits) < p.full && !further {
		return true
	}
	return slices.ContainsFunc(hits, func(hit any) bool {
		made, err := time.Parse(time.RFC3339, p.made.scalarIn(hit))
		return err == nil && made.Before(captured.Add(-skew))
	})
}

// hit is one object that a look-up found.
type hit struct {
	reference string // may be empty
	outcome   zabor.Outcome
}

// addTo adds h to hits. Of one object that is there twice the settled one counts.
func (h hit) addTo(hits []hit) []hit {
	for i, other := range hits {
		if h.reference != "" && h.reference == other.reference {
			if h.outcome.Verdict == zabor.Done {
				hits[i] = h
			}
			return hits
		}
	}
	return append(hits, h)
}

func (h hit) String() string {
	if h.reference == "" {
		return fmt.Sprintf("one without reference (%s)", h.outcome.Reason)
	}
	return fmt.Sprintf("%.100q (%s)", h.reference, h.outcome.Verdict)
}

func first(have *hit, h hit) *hit {
	if have != nil {
		return have
	}
	return &h
}

package proxy

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"zabor"
	"zabor/provider"
	"zabor/step"
)

// fenced captures the key, calls once, saves, and only then answers. From the
// capture on nothing that the caller does can stop it: who hangs up finds the
// answer when they ask again.
func (p *Proxy) fenced(w http.ResponseWriter, r *http.Request, up Upstream, k zabor.Key, request provider.Request) error {
	effect, err := p.effect(up, k, request)
	if err != nil {
		return err
	}
	p.calls.Add(1)
	defer p.calls.Done()
	var outcome zabor.Outcome
	var reply *provider.Reply
	called := false
	row, err := p.shown(r, effect, func(ctx context.Context, row zabor.Row) zabor.Outcome {
		called = true
		outcome, reply = up.Exchange(ctx, row)
		return outcome
	})
	if called {
		p.o.Log.Debug("proxied", "key", k.String(), "order", k.Order, "step", k.Step, "outcome", outcome.Verdict.String(), "state", row.State)
	}
	switch failed, _ := errors.AsType[*zabor.Error](err); {
	case reply != nil && answers(outcome, row, failed):
		if failed != nil && failed.Journaled { // the table does not know it yet
			row.State, row.Reference = zabor.Settled, outcome.Reference
			if outcome.Verdict == zabor.Begun {
				row.State = zabor.Pending
			}
		}
		// Looked at before: who has the answer may close the connection at once.
		gone := r.Context().Err() != nil
		if !p.relay(w, *reply, row, false) || gone {
			p.unfetched(r.Context(), row)
		}
	case err == nil || errors.Is(err, zabor.ErrMalformed):
		p.repeat(w, r, up, row, err)
	default:
		p.refuse(w, problemOf(k, row, err, reply))
	}
	return nil
}

// shown takes effect through the fence, where somebody can follow it. Nothing that
// the caller does ends it.
func (p *Proxy) shown(r *http.Request, effect zabor.Effect, call zabor.Call) (zabor.Row, error) {
	ctx := context.WithoutCancel(r.Context())
	if p.o.Trace == nil {
		return p.fence.Load().Do(ctx, effect, call)
	}
	ctx, end := p.o.Trace(ctx, r, effect.Key)
	row, err := p.fence.Load().Do(ctx, effect, p.o.Calling(call))
	end(row, err)
	return row, err
}

// answers reports whether the provider's answer to this very call is what its
// caller gets: it says what the row says now.
func answers(o zabor.Outcome, row zabor.Row, failed *zabor.Error) bool {
	switch o.Verdict {
	case zabor.Done, zabor.Begun:
		if failed != nil {
			return failed.Journaled
		}
		return row.State == zabor.Settled || row.State == zabor.Pending
	case zabor.Refused:
		return failed == nil && row.State == zabor.Declined
	case zabor.Malformed:
		return row.State == zabor.Declined
	case zabor.TurnedAway:
		return row.State == zabor.Released
	}
	return false
}

// effect is what request asks for.
func (p *Proxy) effect(up Upstream, k zabor.Key, request provider.Request) (zabor.Effect, error) {
	frozen, err := provider.Freeze(request)
	opened := request.Open()
	if err == nil {
		err = opened.CheckReading()
	}
	if err != nil {
		return zabor.Effect{}, refuse(400, "%s", visible(err.Error()))
	}
	// The whole request is what tells this one from another: there is no message
	// that it was made of.
	print := step.Print(up.Name(), up.Account, opened, up.Volatile, up.Counts)
	line, err := up.Line(opened)
	if err != nil {
		return zabor.Effect{}, refuse(400, "%s", visible(err.Error()))
	}
	terms, err := up.Terms(opened)
	if err != nil {
		return zabor.Effect{}, refuse(400, "%s", visible(err.Error()))
	}
	e := zabor.Effect{
		Key: k, Provider: up.Name(), Account: up.Account, Amount: up.Money(opened),
		Fingerprint: zabor.Fingerprint{Message: print.Fingerprint, Request: print.Fingerprint, Fields: print.Fields},
		Render:      func(zabor.ProviderKeys, string) ([]byte, error) { return frozen, nil },
		Sensitive:   print.Unkept,
		Timeout:     up.Timeout(), MaxAttempts: p.o.Attempts,
		AbsentAfter: terms.AbsentAfter, HoldAfter: max(p.o.HoldAfter, terms.HoldAfter), PendingFor: max(p.o.PendingFor, terms.PendingFor),
		MissingRow: zabor.Captured,
	}
	if line.Key.Travels() {
		e.ReplayFor = terms.ReplayFor
	}
	return e, nil
}

// repeat answers for a row that was done before: with the answer that was stored,
// or with what the row says. An answer that is older than the state is none where
// something else than an answer decided: the 202 of a payment that was declined in
// the end would read as a success.
func (p *Proxy) repeat(w http.ResponseWriter, r *http.Request, up Upstream, row zabor.Row, err error) {
	var stored *provider.Reply
	switch row.Cause {
	case zabor.ByCall, zabor.ByForm:
		stored = storedReply(row.Answer)
	default:
		if !row.State.Closed() {
			stored = storedReply(row.Answer)
		}
	}
	switch {
	case stored != nil:
		p.relay(w, *stored, row, true)
	case err != nil: // the request's form was refused before it was sent
		p.refuse(w, problemOf(row.Key, row, err, nil))
	case row.State == zabor.Settled:
		p.settled(w, r, up, row)
	case row.State == zabor.Declined:
		p.refuse(w, problem{status: 402, kind: "declined", key: row.Key, row: row, text: withoutAnswer(row)})
	default:
		p.refuse(w, problem{status: 503, kind: "pending", key: row.Key, row: row, wait: doubtWait, text: withoutAnswer(row)})
	}
}

// settled answers for a settled row that has no answer of its own: with the object
// of its reference as the provider has it now, or with the reference alone.
func (p *Proxy) settled(w http.ResponseWriter, r *http.Request, up Upstream, row zabor.Row) {
	if (row.Answer == nil || row.Answer.Readable()) && row.Provider == up.Name() {
		object, err := up.Object(context.WithoutCancel(r.Context()), row)
		switch {
		case err == nil:
			p.relay(w, *object, row, true)
			return
		case !errors.Is(err, provider.ErrNoObject):
			p.refuse(w, problem{status: 503, kind: "answer-away", key: row.Key, row: row, wait: doubtWait,
				text: fmt.Sprintf("%s is done, its answer is not here, and the provider could not be asked for it: %v", row.Key, err)})
			return
		}
	}
	p.refuse(w, problem{status: 410, kind: "no-answer", key: row.Key, row: row, text: withoutAnswer(row)})
}

// withoutAnswer says what row is, and why its answer is not given.
func withoutAnswer(row zabor.Row) string {
	why := "its answer never was here, or may not be kept"
	switch a := row.Answer; {
	case a == nil:
	case a.Erased:
		why = fmt.Sprintf("its answer, with status %d, was erased when its time was over", a.Status)
	case a.Sealed != nil:
		why = "its answer is here and cannot be read: " + a.Why
	}
	return fmt.Sprintf("%s is %s; %s; nothing was sent now", row.Key, row.State, why)
}

// storedReply is an answer as it was kept; nil: there is none, or not its body.
func storedReply(a *zabor.Answer) *provider.Reply {
	if !a.Readable() || a.Status == 0 {
		return nil
	}
	reply := &provider.Reply{Status: a.Status, Header: http.Header{}, Body: a.Body}
	for _, field := range a.Header {
		if field.Name == provider.NotKept {
			return nil
		}
		reply.Header.Add(field.Name, field.Value)
	}
	return reply
}

// relay gives the provider's answer to the caller, with what the row says. It
// reports whether the answer could be written.
func (p *Proxy) relay(w http.ResponseWriter, reply provider.Reply, row zabor.Row, replayed bool) bool {
	copyHeader(w.Header(), reply.Header)
	stateHeaders(w.Header(), row)
	w.Header().Set("Zabor-Replayed", fmt.Sprint(replayed))
	return p.write(w, reply.Status, reply.Body)
}

// copyHeader copies the fields of a provider's answer that are for the caller.
func copyHeader(to, from http.Header) {
	for name, values := range from {
		if !slices.Contains(hopByHop[:], name) && !strings.HasPrefix(name, "Zabor-") {
			to[name] = values
		}
	}
}

// hopByHop are fields of an answer that belong to its connection. Alt-Svc and
// Strict-Transport-Security would send the caller past the proxy.
var hopByHop = [...]string{
	"Connection", "Keep-Alive", "Proxy-Authenticate", "Proxy-Connection", "Te", "Trailer", "Transfer-Encoding", "Upgrade",
	"Content-Length", "Alt-Svc", "Strict-Transport-Security",
}

// unfetched notes that nobody was there to take the answer.
func (p *Proxy) unfetched(ctx context.Context, row zabor.Row) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), noteTime)
	defer cancel()
	err := p.fence.Load().Store.Note(ctx, row.Key, zabor.Note{Epoch: row.Claim.Epoch, Kind: Unfetched, Text: "the caller had closed its side of the connection when the answer came; it waits for a repeat"})
	if err != nil {
		p.o.Log.Warn("cannot note that an answer was not fetched", "key", row.Key.String(), "order", row.Order, "step", row.Step, "error", err)
	}
}

package proxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"zabor"
)

// verdict is what a fence would have done with a request that passed.
type verdict int

const (
	wouldCall verdict = iota
	wouldReplay
	wouldBeBusy
	wouldRefuse // another request under the same key
	wouldHold
	inDoubt
	wouldPause
	unavailable // the fence cannot be written
	withoutKey
	wronglyAsked // a form, or a key, that a fence would refuse
)

// verdicts are the values of Zabor-Observed.
var verdicts = [...]string{"call", "replay", "busy", "other-request", "held", "in-doubt", "paused", "unavailable", "no-key", "invalid"}

func (v verdict) String() string { return verdicts[v] }

// captureTime is how long an observed request waits for the fence.
const captureTime = time.Second

// observe lets a request pass as it is, whatever a fence would say of it. room is
// false where there is none to hold its body in memory.
func (p *Proxy) observe(w http.ResponseWriter, r *http.Request, up Upstream, t target, room bool) error {
	if harmless(r.Method) && r.ContentLength == 0 {
		return p.pass(w, r, up, t, nil, nil)
	}
	if !room {
		p.count(w, unavailable)
		return p.pass(w, r, up, t, nil, r.Body)
	}
	body, whole, err := p.readBody(w, r)
	switch {
	case err != nil:
		return err
	case !whole:
		return p.stopped(w, r, up, t, body, r.Body, p.tooLong())
	case harmless(r.Method):
		return p.stopped(w, r, up, t, body, nil, refuse(400, "a %s with a body is not taken", r.Method))
	}
	request, k, named, err := p.asked(r, up, t, body)
	if err == nil && !named {
		p.count(w, withoutKey)
		return p.pass(w, r, up, t, body, nil)
	}
	var effect zabor.Effect
	if err == nil {
		effect, err = p.effect(up, k, request)
	}
	if err != nil {
		return p.stopped(w, r, up, t, body, nil, err)
	}
	return p.record(w, r, up, t, body, effect)
}

// record lets a request pass under its caller's own idempotency key, and records
// what a fence would have made of it. Neither a row nor a database that is away
// stops it. What is recorded can be decided by an answer and by a person only: a
// look-up by our key would not find it, and it is never replayed.
func (p *Proxy) record(w http.ResponseWriter, r *http.Request, up Upstream, t target, body []byte, effect zabor.Effect) error {
	k := effect.Key
	effect.AbsentAfter, effect.ReplayFor = 0, 0

	type decision struct {
		verdict
		row zabor.Row
	}
	decided, ended := make(chan decision, 1), make(chan zabor.Outcome, 1)
	p.calls.Go(func() {
		fence := p.fence.Load()
		if fence == nil {
			decided <- decision{verdict: unavailable}
			return
		}
		ctx, cancel := detached(r.Context(), captureTime)
		defer cancel()
		called := false
		row, err := fence.Do(ctx, effect, func(ctx context.Context, row zabor.Row) zabor.Outcome {
			called = true
			decided <- decision{wouldCall, row}
			select {
			case o := <-ended:
				return o
			case <-ctx.Done():
				return zabor.Outcome{Reason: "observed: no answer in time"}
			}
		})
		if !called {
			decided <- decision{verdictOf(err), row}
		}
	})
	d := <-decided
	p.count(w, d.verdict)

	ctx, cancel := detached(r.Context(), up.Timeout())
	defer cancel()
	o := zabor.Outcome{Reason: "observed: no whole answer came"}
	defer func() { ended <- o }()
	resp, err := up.Forward(ctx, passed(r, up, t, body), nil, 0)
	if err != nil {
		if dial, ok := errors.AsType[*net.OpError](err); ok && dial.Op == "dial" {
			o = zabor.Outcome{Verdict: zabor.Unsent, Reason: "observed: no connection"}
		}
		p.refuse(w, problem{status: 502, kind: "no-answer", key: k, text: fmt.Sprintf("%s gave no answer, and nothing fences this request: %s", up.Name(), visible(err.Error()))})
		return nil
	}
	defer resp.Body.Close()
	reply, rest, err := wholeReply(resp)
	if err == nil {
		o = up.Judge(*reply, d.row)
	}
	if d.verdict != wouldCall {
		p.o.Log.Warn("observed: a fence would have stopped this request", "key", k.String(), "order", k.Order, "step", k.Step, "as", d.verdict.String(), "state", d.row.State,
			"reference", d.row.Reference, "and_now", o.Verdict.String(), "new_reference", o.Reference)
	}
	p.stream(w, resp, rest)
	return nil
}

// stopped lets a request pass that a fence would refuse for its form, or for what
// it says of its key. Queries hold secrets: the log has none.
func (p *Proxy) stopped(w http.ResponseWriter, r *http.Request, up Upstream, t target, body []byte, rest io.Reader, why error) error {
	p.count(w, wronglyAsked)
	path, _, _ := strings.Cut(t.path, "?")
	p.o.Log.Warn("observed: a fence would have refused this request", "method", r.Method, "path", visible(path), "why", why.Error())
	return p.pass(w, r, up, t, body, rest)
}

// verdictOf is what a fence says that did not call.
func verdictOf(err error) verdict {
	switch {
	case err == nil, errors.Is(err, zabor.ErrMalformed), errors.Is(err, zabor.ErrHookDue):
		return wouldReplay
	case errors.Is(err, zabor.ErrBusy):
		return wouldBeBusy
	case errors.Is(err, zabor.ErrOtherRequest):
		return wouldRefuse
	case errors.Is(err, zabor.ErrHeld), errors.Is(err, zabor.ErrSpent):
		return wouldHold
	case errors.Is(err, zabor.ErrInDoubt):
		return inDoubt
	case errors.Is(err, zabor.ErrPaused):
		return wouldPause
	}
	return unavailable
}

func (p *Proxy) count(w http.ResponseWriter, v verdict) {
	p.observed[v].Add(1)
	w.Header().Set("Zabor-Observed", v.String())
}

// Observed counts what passed in observe mode by what a fence would have done:
// call, replay, busy, other-request, held, in-doubt, paused, unavailable, no-key, invalid.
func (p *Proxy) Observed() map[string]int64 {
	counts := map[string]int64{}
	for v, name := range verdicts {
		counts[name] = p.observed[v].Load()
	}
	return counts
}

package proxy

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"zabor"
	"zabor/provider"
)

// problem is an answer of the proxy's own, a problem document of RFC 9457.
type problem struct {
	status int
	kind   string // stable: what a caller may branch on beside the status
	text   string // what happened, what was not done, what to do
	key    zabor.Key
	row    zabor.Row     // as far as known
	said   int           // the provider's status; 0: it has not answered to this request
	wait   time.Duration // after which the same may be asked again; 0: it is not said
}

var titles = map[int]string{
	400: "The request cannot be fenced as it is", 401: "Who asks?", 402: "Declined", 403: "Not allowed", 409: "Another call for this key is under way",
	404: "No such row", 410: "Done, and the answer is not here", 411: "A length is needed", 413: "Too large", 422: "The same key with another request",
	423: "Held for a person", 431: "The head is too large", 502: "The provider was not reached", 503: "Not now",
}

// kinds are those of refusals, which have a status and a text only.
var kinds = map[int]string{401: "token", 403: "not-allowed", 411: "length", 413: "too-large", 431: "too-large"}

func (p *Proxy) refuse(w http.ResponseWriter, x problem) {
	document := map[string]any{
		"type": "urn:zabor:" + x.kind, "title": titles[x.status], "status": x.status, "detail": x.text,
		// Without it Stripe's libraries throw away status and header fields.
		"error": map[string]string{"type": "zabor", "code": x.kind, "message": x.text},
	}
	if x.key.Order != "" {
		document["scope"], document["order"], document["step"] = x.key.Scope, x.key.Order, x.key.Step
		document["next"] = x.key.ShowCommand()
	}
	if x.row.State != "" {
		document["state"], document["reference"] = x.row.State, x.row.Reference
	}
	if x.said != 0 {
		document["provider_status"] = x.said
	}
	body, err := json.Marshal(document)
	if err != nil {
		body = []byte("{}") // texts and numbers: it cannot fail
	}
	h := w.Header()
	h.Set("Content-Type", "application/problem+json")
	h.Set("Cache-Control", "no-store")
	if x.wait > 0 {
		h.Set("Retry-After", strconv.Itoa(int(math.Ceil(x.wait.Seconds()))))
	}
	if x.status == 401 {
		h.Set("WWW-Authenticate", `Bearer realm="zabor"`)
	}
	stateHeaders(h, x.row)
	p.write(w, x.status, body)
}

// refuseFor answers for a request that was not taken: nothing was sent.
func (p *Proxy) refuseFor(w http.ResponseWriter, err error) {
	x := problem{status: 503, kind: "not-now", text: err.Error() + "; nothing was sent", wait: 5 * time.Second}
	if why, ok := errors.AsType[*refusal](err); ok {
		x = problem{status: why.status, kind: "invalid", text: why.text + "; nothing was sent"}
		if kind, ok := kinds[why.status]; ok {
			x.kind = kind
		}
		// Its body may not be read yet, and is not waited for.
		w.Header().Set("Connection", "close")
	}
	p.refuse(w, x)
}

// stateHeaders says where the row stands.
func stateHeaders(h http.Header, row zabor.Row) {
	if row.State != "" {
		h.Set("Zabor-State", string(row.State))
	}
	if row.Reference != "" {
		h.Set("Zabor-Reference", url.PathEscape(row.Reference))
	}
}

// write writes an answer that is at hand.
func (p *Proxy) write(w http.ResponseWriter, status int, body []byte) (sent bool) {
	c := http.NewResponseController(w)
	_ = c.SetWriteDeadline(time.Now().Add(writeTime)) // a writer that has none is a test's
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	_, err := w.Write(body)
	if err == nil {
		err = c.Flush()
	}
	return err == nil || errors.Is(err, http.ErrNotSupported)
}

// pause is how long a caller had better wait who met row.
func pause(row zabor.Row, most time.Duration) time.Duration {
	if row.ReadAt.IsZero() || row.Open.SendUntil.IsZero() {
		return most
	}
	return min(max(row.Open.SendUntil.Sub(row.ReadAt), time.Second), most)
}

// Waits that a caller is told.
const (
	busyWait  = 5 * time.Second  // another call is under way
	doubtWait = 15 * time.Second // a look-up or a repeat has to decide
	awayWait  = 5 * time.Second  // the fence cannot be written
)

// problemOf is the answer to a call that came to err, with its row as far as known.
func problemOf(k zabor.Key, row zabor.Row, err error, reply *provider.Reply) problem {
	x := problem{status: 503, kind: "not-now", key: k, row: row, text: err.Error(), wait: awayWait}
	why, ok := errors.AsType[*zabor.Error](err)
	if ok && why.Row.State != "" {
		x.row = why.Row
	}
	if reply != nil {
		x.said = reply.Status
	}
	switch {
	case errors.Is(err, zabor.ErrBusy):
		x.status, x.kind, x.wait = 409, "busy", pause(x.row, busyWait)
		x.text = fmt.Sprintf("another call for %s is under way; nothing was sent by this one", k)
	case errors.Is(err, zabor.ErrOtherRequest):
		x.status, x.kind, x.wait = 422, "other-request", 0
	case errors.Is(err, zabor.ErrMalformed), errors.Is(err, zabor.ErrUnfit):
		x.status, x.kind, x.wait = 400, "invalid", 0
	case errors.Is(err, zabor.ErrHeld):
		x.status, x.kind, x.wait = 423, "held", 0
	case errors.Is(err, zabor.ErrSpent):
		x.status, x.kind, x.wait = 423, "spent", 0
		x.text = fmt.Sprintf("%s: %d tries are all that is allowed, and a person must release it", k, x.row.Tries)
	case errors.Is(err, zabor.ErrInDoubt):
		x.kind, x.wait = "in-doubt", doubtWait
	case errors.Is(err, zabor.ErrHookDue):
		x.kind, x.wait = "hook-due", doubtWait
	case errors.Is(err, zabor.ErrPaused):
		x.kind, x.wait = "paused", why.Wait
	case errors.Is(err, zabor.ErrReleased) && reply == nil && x.row.Cause == zabor.ByCall:
		x.status, x.kind, x.wait = 502, "not-reached", 0
	case errors.Is(err, zabor.ErrReleased):
		x.kind = "released"
	}
	return x
}

package dashboard

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"zabor"
	"zabor/dashboard/access"
)

// Failures are the failure transports of the queues. The functions are nil where
// no queues are configured.
type Failures struct {
	// List gives the newest of each transport, at most so many of each.
	List func(ctx context.Context, limit int) ([]FailedList, error)
	// One is a message with what is decoded of it.
	One func(ctx context.Context, at FailedID) (FailedMessage, error)
	// Retry puts a message back on its queue, and deletes it after that; a worker
	// meets the fence. Forget deletes it.
	Retry, Forget func(ctx context.Context, at FailedID) error
}

// FailedID says which message is meant.
type FailedID struct{ Queue, Transport, ID string }

// FailedList is one failure transport.
type FailedList struct {
	Queue, Transport string
	Messages         []FailedMessage
	Total            int64
	Err              string // it could not be read, or not to its end
}

// Older reports whether there are more than are listed.
func (l FailedList) Older() bool { return l.Total > int64(len(l.Messages)) }

// FailedMessage is a message that was given up.
type FailedMessage struct {
	FailedID
	Class  string
	Key    *zabor.Key // nil: no step makes one of it
	At     time.Time
	Reason string
	Data   map[string]any // decoded; nil: it cannot be
	Raw    []byte         // where it cannot be decoded
	Err    string         // why
}

func failedURL(at FailedID) string {
	return "/failed/message?" + url.Values{"queue": {at.Queue}, "in": {at.Transport}, "id": {at.ID}}.Encode()
}

// Token is the message's place in a form.
func (at FailedID) Token() string {
	return url.Values{"queue": {at.Queue}, "in": {at.Transport}, "id": {at.ID}}.Encode()
}

func failedID(text string) (FailedID, bool) {
	v, err := url.ParseQuery(text)
	at := FailedID{v.Get("queue"), v.Get("in"), v.Get("id")}
	return at, err == nil && at.Queue != "" && at.Transport != "" && at.ID != ""
}

// FirstLine is the reason in one line.
func (m FailedMessage) FirstLine() string {
	line, _, _ := strings.Cut(m.Reason, "\n")
	return cut(300, readable(line))
}

type failedPage struct {
	Lists  []FailedList
	Total  int64
	Unread bool // a transport could not be read, or not to its end
	Queues bool // there are queues at all
}

func (d *Dashboard) failedList(w http.ResponseWriter, r *http.Request) {
	body := failedPage{Queues: d.o.Failed.List != nil}
	if body.Queues {
		var err error
		if body.Lists, err = d.o.Failed.List(r.Context(), perPage); err != nil {
			d.away(w, r, err)
			return
		}
	}
	for _, l := range body.Lists {
		body.Total += l.Total
		body.Unread = body.Unread || l.Err != ""
	}
	d.show(w, r, http.StatusOK, "failed", "Failed messages", "/failed", body)
}

type messagePage struct {
	FailedMessage
	Fields []field
	Row    *zabor.Row // of its key; nil: there is none
}

func (d *Dashboard) failedOne(w http.ResponseWriter, r *http.Request) {
	at, ok := failedID(r.URL.RawQuery)
	if !ok || d.o.Failed.One == nil {
		d.gone(w, r)
		return
	}
	m, err := d.o.Failed.One(r.Context(), at)
	if err != nil {
		d.trouble(w, r, http.StatusNotFound, trouble{What: "This message cannot be shown", Detail: []string{err.Error()}, Next: "It may have been retried or forgotten meanwhile. Nothing was changed.", Link: "/failed", Words: "Failed messages"})
		return
	}
	body := messagePage{FailedMessage: m}
	if m.Data != nil {
		body.Fields = fields(m.Data)
	} else {
		body.Fields = bodyFields("", m.Raw)
	}
	if m.Key != nil {
		if row, err := d.o.Store.Load(r.Context(), *m.Key); err == nil {
			body.Row = &row
		}
	}
	d.show(w, r, http.StatusOK, "message", "Failed message", "/failed", body)
}

func (d *Dashboard) gone(w http.ResponseWriter, r *http.Request) {
	d.trouble(w, r, http.StatusNotFound, trouble{What: "No message is named", Next: "Nothing was changed.", Link: "/failed", Words: "Failed messages"})
}

type movedPage struct {
	Forget    bool
	Confirmed bool
	Messages  []moved
	Done      int
}

type moved struct {
	FailedID
	Err string
}

func (d *Dashboard) retry(w http.ResponseWriter, r *http.Request) {
	d.move(w, r, movedPage{Confirmed: true}, d.o.Failed.Retry)
}

func (d *Dashboard) forget(w http.ResponseWriter, r *http.Request) {
	d.move(w, r, movedPage{Forget: true, Confirmed: r.FormValue("confirm") == "yes"}, d.o.Failed.Forget)
}

// move does one thing to each message of a form, or asks whether it is meant.
func (d *Dashboard) move(w http.ResponseWriter, r *http.Request, body movedPage, do func(context.Context, FailedID) error) {
	if err := r.ParseForm(); err != nil || do == nil {
		d.gone(w, r)
		return
	}
	chosen := r.PostForm["message"]
	if len(chosen) == 0 {
		d.trouble(w, r, http.StatusBadRequest, trouble{What: "No message was chosen", Next: "Mark the messages that are meant. Nothing was changed.", Link: "/failed", Words: "Failed messages"})
		return
	}
	by := access.From(r.Context()).Name
	ctx := context.WithoutCancel(r.Context())
	slices.Reverse(chosen) // the oldest goes first
	for _, text := range chosen[:min(len(chosen), mostAtOnce)] {
		at, ok := failedID(text)
		if !ok {
			d.gone(w, r)
			return
		}
		m := moved{FailedID: at}
		if body.Confirmed {
			if err := do(ctx, at); err != nil {
				m.Err = err.Error()
			} else {
				body.Done++
				what := "retried on the dashboard"
				if body.Forget {
					what = "forgotten on the dashboard"
				}
				d.o.Log.Info(what, "by", by, "queue", at.Queue, "message", at.ID)
			}
		}
		body.Messages = append(body.Messages, m)
	}
	d.changed()
	title := "Put back"
	switch {
	case body.Forget && !body.Confirmed:
		title = "Forget for good?"
	case body.Forget:
		title = "Forgotten"
	}
	d.show(w, r, http.StatusOK, "moved", title, "/failed", body)
}

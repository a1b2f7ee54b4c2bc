package dashboard

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"zabor"
	"zabor/dashboard/access"
	"zabor/sqlstore"
)

// Failures are the failure transports of the queues. The functions are nil where
// no queues are configured.
type Failures struct {
	// List gives the newest of each transport, at most so many of each. Older gives
	// those of one that are older than the message with that mark, which need not be
	// there any more; with an empty mark the newest.
	List  func(ctx context.Context, limit int) ([]FailedList, error)
	Older func(ctx context.Context, queue, transport, mark string, limit int) (FailedList, error)
	// Count counts the messages of each transport, up to most.
	Count func(ctx context.Context, most int) ([]FailedCount, error)
	// Times is when those that lie there now were put there, as far back as from; of
	// each transport the newest, as many as its cost allows.
	Times func(ctx context.Context, from time.Time) ([]time.Time, error)
	// One is a message with what is decoded of it.
	One func(ctx context.Context, at FailedID) (FailedMessage, error)
	// Retry puts a message back on its queue, and deletes it after that; a worker
	// meets the fence. Forget deletes it.
	Retry, Forget func(ctx context.Context, at FailedID) error
}

// FailedID says which message is meant.
type FailedID struct{ Queue, Transport, ID string }

// FailedList is some messages of one failure transport.
type FailedList struct {
	Queue, Transport string
	Messages         []FailedMessage
	Err              string // they could not be read, or not all of them
}

// FailedCount is how many messages a failure transport has.
type FailedCount struct {
	Queue, Transport string
	N                int64
	More             bool   // there are more than were counted
	Err              string // they could not be counted, or not all of them
}

// FailedMessage is a message that was given up.
type FailedMessage struct {
	FailedID
	Mark   string // where it stands in its transport
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

// FirstLine is the reason in one line, without the key that stands beside it.
func (m FailedMessage) FirstLine() string {
	line, _, _ := strings.Cut(m.Reason, "\n")
	if m.Key != nil {
		line = strings.TrimPrefix(line, m.Key.String()+": ")
	}
	return cut(300, readable(line))
}

type failedPage struct {
	Lists  []shownList
	Unread bool              // a transport could not be read, or not to its end
	Queues bool              // there are queues at all
	One    bool              // it is about one transport, from some message on
	Lately []sqlstore.NoteOn // what people did about messages, the newest first
}

// shownList is the part of a transport that a page has room for.
type shownList struct {
	FailedList
	Count FailedCount
	Older string // address of the older ones; empty: there are none
}

// mostCounted is how many messages of a transport are counted: each is read for it,
// since one table or stream may be that of several queues.
const mostCounted = 1000

// perFailedPage is how many messages a page has in all, and at least one of each
// transport.
const perFailedPage = 100

// Kinds of the notes of what people did about a message: on its key, where it has one.
const (
	messageRetried   = "message retried"
	messageForgotten = "message forgotten"
	messageLeft      = "message left"
)

// Move is what a person does with a failed message, and who and why.
type Move struct {
	Message FailedMessage
	Forget  bool // it is deleted for good; else it is put back on its queue
	By      string
	Reason  string // empty: none was given
}

// Do notes m, then does it, and notes too where it could not be done: so that there is
// nothing that somebody did and nobody knows of. The note is on the message's key, or
// where it has none on the installation of that scope. An error of the first note is
// [ErrNotNoted], and nothing was done. The note of what could not be done is made though
// ctx has ended meanwhile, within leftTime.
func (m Move) Do(ctx context.Context, store *sqlstore.Store, scope string, do func(context.Context) error) error {
	key := zabor.Key{Scope: scope}
	if m.Message.Key != nil {
		key = *m.Message.Key
	}
	at := m.Message.FailedID
	note := zabor.Note{Kind: messageRetried, By: m.By, Text: fmt.Sprintf("message %s of queue %s (%s)", readable(at.ID), at.Queue, at.Transport)}
	if m.Message.Class != "" {
		note.Text += ", a " + readable(m.Message.Class)
	}
	what := note.Text
	if m.Forget {
		note.Kind = messageForgotten
	}
	if m.Reason != "" {
		note.Text += ": " + m.Reason
	}
	if err := store.Note(ctx, key, note); err != nil {
		return fmt.Errorf("%w: %w", ErrNotNoted, err)
	}
	err := do(ctx)
	if err != nil {
		note.Kind, note.Text = messageLeft, what+" was not moved, or not wholly: "+err.Error()
		still, cancel := context.WithTimeout(context.WithoutCancel(ctx), leftTime)
		defer cancel()
		err = errors.Join(err, store.Note(still, key, note))
	}
	return err
}

// leftTime is how long the note of a message that was left may take.
const leftTime = 10 * time.Second

// ErrNotNoted says that it could not be noted who wants something, and that it was
// not done.
var ErrNotNoted = errors.New("it cannot be noted who did it, so nothing was done")

// mostLately is how many of them the page shows.
const mostLately = 20

func (d *Dashboard) failedList(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	body := failedPage{Queues: d.o.Failed.List != nil, One: q.Has("in")}
	var lists []FailedList
	var err error
	switch {
	case !body.Queues:
	case body.One:
		lists = make([]FailedList, 1)
		lists[0], err = d.o.Failed.Older(r.Context(), q.Get("queue"), q.Get("in"), q.Get("older"), perPage+1)
	default:
		lists, err = d.o.Failed.List(r.Context(), perPage+1)
	}
	if err != nil {
		d.away(w, r, err)
		return
	}
	counts, _ := d.failedCounts(r.Context()) // the messages are shown without their number too
	full := len(slices.DeleteFunc(slices.Clone(lists), func(l FailedList) bool { return len(l.Messages) == 0 }))
	room := min(perPage, max(1, perFailedPage/max(1, full)))
	for _, l := range lists {
		body.Lists = append(body.Lists, shown(l, counts, room))
		body.Unread = body.Unread || l.Err != ""
	}
	if body.Lately, err = d.o.Store.History().Latest(r.Context(), d.o.Scope, mostLately, messageRetried, messageForgotten, messageLeft); err != nil {
		d.away(w, r, err)
		return
	}
	d.show(w, r, http.StatusOK, "failed", "Failed messages", "/failed", body)
}

// shown is l with room for so many of its messages.
func shown(l FailedList, counts []FailedCount, room int) shownList {
	s := shownList{FailedList: l}
	if len(l.Messages) > room {
		s.Messages = l.Messages[:room]
		s.Older = "/failed?" + url.Values{"queue": {l.Queue}, "in": {l.Transport}, "older": {s.Messages[room-1].Mark}}.Encode()
	}
	for _, c := range counts {
		if c.Queue == l.Queue && c.Transport == l.Transport {
			s.Count = c
		}
	}
	return s
}

// None reports whether nothing is listed.
func (p failedPage) None() bool {
	return !slices.ContainsFunc(p.Lists, func(l shownList) bool { return len(l.Messages) > 0 })
}

type messagePage struct {
	FailedMessage
	Fields []field
	Row    *zabor.Row // of its key; nil: there is none
	People []Event    // what people did about its key, the newest first
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
		notes, err := d.o.Store.History().Of(r.Context(), *m.Key)
		if err != nil {
			d.away(w, r, err)
			return
		}
		body.People = people(notes)
	}
	d.show(w, r, http.StatusOK, "message", "Failed message", "/failed", body)
}

func (d *Dashboard) gone(w http.ResponseWriter, r *http.Request) {
	d.trouble(w, r, http.StatusNotFound, trouble{What: "No message is named", Next: "Nothing was changed.", Link: "/failed", Words: "Failed messages"})
}

type movedPage struct {
	Forget    bool
	Confirmed bool
	Reason    string // why it is forgotten
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
	if len(chosen) > mostAtOnce {
		d.trouble(w, r, http.StatusBadRequest, trouble{What: "Too many messages at once", Detail: []string{strconv.Itoa(len(chosen)) + " were chosen, and " + strconv.Itoa(mostAtOnce) + " may be."}, Next: "Choose fewer. Nothing was changed.", Link: "/failed", Words: "Failed messages"})
		return
	}
	body.Reason = strings.TrimSpace(r.PostForm.Get("reason"))
	if body.Forget && body.Confirmed && body.Reason == "" {
		d.trouble(w, r, http.StatusBadRequest, trouble{What: "There is no reason", Next: "Say why they are forgotten: it is kept under your name. Nothing was changed.", Link: "/failed", Words: "Failed messages"})
		return
	}
	by := access.From(r.Context()).Name
	ctx := context.WithoutCancel(r.Context())
	slices.Reverse(chosen) // the oldest goes first
	for _, text := range chosen {
		at, ok := failedID(text)
		if !ok {
			d.gone(w, r)
			return
		}
		m := moved{FailedID: at}
		if body.Confirmed {
			if err := d.moveOne(ctx, at, body, by, do); err != nil {
				m.Err = err.Error()
			} else {
				body.Done++
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

// moveOne does one thing to one message, and notes who does it.
func (d *Dashboard) moveOne(ctx context.Context, at FailedID, body movedPage, by string, do func(context.Context, FailedID) error) error {
	m, err := d.o.Failed.One(ctx, at)
	if err != nil {
		return err
	}
	move := Move{Message: m, Forget: body.Forget, By: by, Reason: body.Reason}
	if err := move.Do(ctx, d.o.Store, d.o.Scope, func(ctx context.Context) error { return do(ctx, at) }); err != nil {
		return err
	}
	d.o.Log.Info("a failed message was moved on the dashboard", "by", by, "forget", body.Forget, "queue", at.Queue, "message", at.ID, "reason", body.Reason)
	return nil
}

package sandbox

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// serve answers the requests of one route of d.
func (s *Sandbox) serve(d *dialect, r route) http.HandlerFunc {
	return func(w http.ResponseWriter, req *http.Request) {
		if r.does == pays || r.does == intends || r.does == confirms {
			s.servePayment(d, r, w, req)
			return
		}
		fields, err := readFields(w, req)
		switch {
		case err != nil:
			d.failWith(w, err)
		case r.does == grants:
			s.serveGrant(d, w, req, fields)
		case !s.authorized(d, req, fields):
			d.failWith(w, refuse(unauthorized, "credentials are missing or wrong"))
		case r.does == gets:
			s.serveOne(d, r, w, cmp.Or(req.PathValue("id"), at(fields, cmp.Or(r.id, d.asks.id))))
		default:
			s.serveFind(d, r, w, req, fields)
		}
	}
}

// servePayment answers a request that moves money, or that makes what another one
// moves.
func (s *Sandbox) servePayment(d *dialect, r route, w http.ResponseWriter, req *http.Request) {
	key := req.Header.Get(d.keyHeader)
	s.mu.Lock()
	s.stats.Posts++
	s.mu.Unlock()
	if s.take(true, key, "").Kind == Drop {
		abort()
	}
	fields, err := readFields(w, req)
	if err == nil && !s.authorized(d, req, fields) {
		err = refuse(unauthorized, "credentials are missing or wrong")
	}
	var asked payment
	if err == nil {
		asked, err = s.read(d, r, req, fields)
	}
	if err != nil {
		d.failWith(w, err)
		return
	}
	fault := s.take(false, asked.key, asked.order)
	switch fault.Kind {
	case Close:
		abort()
	case Hang:
		s.hang(req)
		abort()
	case Status:
		answerStatus(d, w, fault)
		return
	case Declined:
		asked.status = refused
	case Soft:
		asked.status = softly
	case Pending:
		asked.status = processing
	}
	made, err := s.carryOut(asked, fault)
	if err != nil {
		d.failWith(w, err)
		return
	}
	body := d.body(made)
	switch fault.Kind {
	case ActClose:
		abort()
	case ActHang:
		s.hang(req)
	case ActStatus:
		answerStatus(d, w, fault)
		return
	case ActSlow:
		time.Sleep(fault.Delay)
	case ActCut:
		w.Header().Set("Content-Length", strconv.Itoa(len(body)))
		w.Write(body[:len(body)/2])
		http.NewResponseController(w).Flush()
		abort()
	}
	if made.failed != 0 {
		answerStatus(d, w, Fault{Status: made.failed})
		return
	}
	status := d.answers[made.status]
	if made.replayed && d.mark {
		w.Header().Set("Idempotent-Replayed", "true")
	}
	if made.replayed && d.again == present {
		status = http.StatusOK
	}
	reply(w, status, body)
}

// read is what a request asks for: a payment as its body says, or that of the
// intent that it confirms.
func (s *Sandbox) read(d *dialect, r route, req *http.Request, fields map[string]any) (asked payment, err error) {
	if r.does == confirms {
		s.mu.Lock()
		defer s.mu.Unlock()
		asked.intent = cmp.Or(req.PathValue("id"), at(fields, d.asks.id))
		n, ok := s.number(d, asked.intent)
		if !ok {
			return asked, refuse(notFound, "no such payment")
		}
		asked.order = s.payments[n].order
	} else if asked, err = d.asks.payment(fields); err != nil {
		return asked, err
	}
	if r.does == intends && !asked.atOnce {
		asked.status = prepared
	}
	asked.key, asked.speaks, asked.path = req.Header.Get(d.keyHeader), d, req.URL.Path
	if d.keyField != "" {
		asked.key = at(fields, d.keyField)
	}
	return asked, nil
}

// carryOut does what is asked for, or finds what was done under its key.
func (s *Sandbox) carryOut(asked payment, fault Fault) (result, error) {
	made, done, err := s.begin(asked)
	if done || err != nil {
		return made, err
	}
	if fault.Kind == ActLate {
		s.late(fault)
	}
	s.mu.Lock()
	n, err := s.act(asked)
	if err != nil {
		s.mu.Unlock()
		s.stop(asked)
		return result{}, err
	}
	made = s.result(n, false)
	s.end(asked, n, made, fault)
	charge := s.charge(n)
	s.mu.Unlock()
	if asked.status == paid && s.o.OnCharge != nil {
		s.o.OnCharge(charge)
	}
	return made, nil
}

// act makes the payment that is asked for, or confirms its intent. The caller
// holds mu.
func (s *Sandbox) act(asked payment) (int32, error) {
	if asked.intent == "" {
		return s.add(asked), nil
	}
	n, ok := s.number(asked.speaks, asked.intent)
	switch {
	case !ok:
		return 0, refuse(notFound, "no such payment")
	case s.payments[n].status != prepared:
		return 0, &refusal{failed{unexpectedState, "the payment is " + s.payments[n].status.String() + " already", s.result(n, false)}}
	}
	p := &s.payments[n]
	p.status = asked.status
	if p.key != asked.key {
		p.key, p.beforeKey = asked.key, link(s.byKey, asked.key, n)
	}
	s.enter(n)
	return n, nil
}

// result is a payment as it is answered.
type result struct {
	Charge
	carried  string
	status   status
	replayed bool
	failed   int // HTTP status of a 500 that is given again in its place
}

// result is payment n as it is now. The caller holds mu.
func (s *Sandbox) result(n int32, replayed bool) result {
	p, c := s.payments[n], s.charge(n)
	c.ID = p.speaks.id(n)
	return result{c, p.carried, p.status, replayed, 0}
}

// late waits before a request is carried out, whether or not its client is still
// there.
func (s *Sandbox) late(f Fault) {
	if f.Delay > 0 {
		time.Sleep(f.Delay)
		return
	}
	<-s.released()
}

// released is closed when what hangs now is let go on.
func (s *Sandbox) released() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.release
}

// hang waits until hanging calls are released or the client has gone.
func (s *Sandbox) hang(r *http.Request) {
	select {
	case <-s.released():
	case <-r.Context().Done():
	}
}

// mostFound is how many payments an answer to a look-up has.
const mostFound = 100

// serveFind looks for the payments that carried a name, or lists all.
func (s *Sandbox) serveFind(d *dialect, r route, w http.ResponseWriter, req *http.Request, fields map[string]any) {
	name := ""
	if r.name != nil {
		name = r.name(req, fields)
	}
	switch {
	case name == "" && r.pages != nil && (r.name == nil || req.URL.Query().Has(r.pages.limit)):
		s.serveList(d, r.pages, w, req)
		return
	case name == "" && r.name != nil:
		d.failWith(w, refuse(invalidRequest, "what is looked for is missing"))
		return
	}
	s.mu.Lock()
	seen := s.now().Add(-s.o.LookupLag).UnixNano()
	found := []any{}
	for _, n := range slices.Backward(s.found(d, r, name)) {
		if s.payments[n].at <= seen && len(found) < mostFound {
			found = append(found, d.object(s.result(n, false)))
		}
	}
	s.mu.Unlock()
	switch {
	case r.list != nil:
		answer(w, r.list(found))
	case len(found) == 0:
		d.failWith(w, refuse(notFound, "no such payment"))
	default:
		answer(w, found[0])
	}
}

// found are the payments of d that r looks for, oldest first. The caller holds mu.
func (s *Sandbox) found(d *dialect, r route, name string) []int32 {
	if d.asks.carried == "" {
		return s.named(name)
	}
	var found []int32
	for n, p := range s.payments {
		if p.speaks.prefix == d.prefix && (r.name == nil || p.carried == name) {
			found = append(found, int32(n))
		}
	}
	return found
}

// serveOne answers with the payment that has the given id.
func (s *Sandbox) serveOne(d *dialect, r route, w http.ResponseWriter, id string) {
	s.mu.Lock()
	n, ok := s.number(d, strings.TrimPrefix(id, d.moved))
	var found result
	if ok {
		found = s.result(n, false)
	}
	s.mu.Unlock()
	if !ok {
		d.failWith(w, refuse(notFound, "no such payment"))
		return
	}
	if r.shows != nil {
		answer(w, r.shows(found))
		return
	}
	answer(w, d.object(found))
}

func (s *Sandbox) serveFaults(w http.ResponseWriter, r *http.Request) {
	var faults []Fault
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxBody)).Decode(&faults); err != nil {
		fail(w, http.StatusBadRequest, invalidRequest, "a list of faults: "+err.Error())
		return
	}
	if err := s.Plan(faults...); err != nil {
		fail(w, http.StatusBadRequest, invalidRequest, err.Error())
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

func (s *Sandbox) serveSettle(w http.ResponseWriter, r *http.Request) {
	verdict := r.URL.Query().Get("status")
	if verdict != paid.String() && verdict != refused.String() {
		fail(w, http.StatusBadRequest, invalidRequest, "status: paid or refused")
		return
	}
	if !s.Settle(r.URL.Query().Get("id"), verdict == paid.String()) {
		fail(w, http.StatusNotFound, notFound, "no such pending payment")
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

func (s *Sandbox) serveStats(w http.ResponseWriter, r *http.Request) {
	if r.URL.Query().Get("orders") != "0" {
		answer(w, s.Stats())
		return
	}
	s.mu.Lock()
	stats := s.stats
	s.mu.Unlock()
	answer(w, stats)
}

func (s *Sandbox) serveCharges(w http.ResponseWriter, r *http.Request) {
	answer(w, append([]Charge{}, s.Charges(r.URL.Query().Get("order"))...))
}

func (s *Sandbox) serveWait(w http.ResponseWriter, r *http.Request) {
	n, err := strconv.ParseInt(r.URL.Query().Get("charges"), 10, 64)
	limit := 30 * time.Second
	if text := r.URL.Query().Get("timeout"); err == nil && text != "" {
		limit, err = time.ParseDuration(text)
	}
	if err != nil {
		fail(w, http.StatusBadRequest, invalidRequest, "charges=NUMBER, timeout=10s")
		return
	}
	ready := s.Wait(n)
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-ready:
		s.mu.Lock()
		charges := s.stats.Charges
		s.mu.Unlock()
		answer(w, map[string]int64{"charges": charges})
	case <-timer.C:
		s.forget(ready)
		fail(w, http.StatusRequestTimeout, "timeout", fmt.Sprintf("not yet %d charges", n))
	case <-r.Context().Done():
		s.forget(ready)
	}
}

func answerStatus(d *dialect, w http.ResponseWriter, f Fault) {
	if f.RetryAfter != "" {
		w.Header().Set("Retry-After", f.RetryAfter)
	}
	d.fail(w, f.Status, failed{code: faultCode, text: "planned by a fault"})
}

func fail(w http.ResponseWriter, status int, code, message string) {
	reply(w, status, encode(ownFailure(failed{code: code, text: message})))
}

func answer(w http.ResponseWriter, v any) {
	reply(w, http.StatusOK, encode(v))
}

func reply(w http.ResponseWriter, status int, body []byte) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	w.Write(body)
}

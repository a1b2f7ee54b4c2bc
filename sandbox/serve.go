package sandbox

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"zabor"
	"zabor/provider"
)

// serve answers a POST of d that step carries out. The body is JSON or a form with
//
//   - amount in minor units, or {"value": "19.99", "currency": "EUR"};
//   - currency;
//   - the order: the first of order, order_id, merchant_reference, reference and
//     metadata.order (in a form metadata[order]); may be missing.
//
// That of a confirmation is not looked at.
func (s *Sandbox) serve(d *dialect, step func(asked payment, r *http.Request) (result, bool, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		key := r.Header.Get(d.keyHeader)
		s.mu.Lock()
		s.stats.Posts++
		s.mu.Unlock()
		if s.take(true, key, "").Kind == Drop {
			abort()
		}
		asked, err := s.read(d, w, r)
		if err != nil {
			d.fail(w, http.StatusBadRequest, invalidRequest, err.Error())
			return
		}
		asked.key, asked.speaks = key, d
		fault := s.take(false, key, asked.order)
		switch fault.Kind {
		case Close:
			abort()
		case Hang:
			s.hang(r)
			abort()
		case Status:
			answerStatus(d, w, fault)
			return
		case Declined:
			asked.status = refused
		case Pending:
			asked.status = processing
		case ActLate:
			time.Sleep(fault.Delay) // whether or not the client is still there
		}

		made, charged, err := step(asked, r)
		if err != nil {
			why, _ := errors.AsType[*refusal](err)
			d.fail(w, why.status, why.code, why.text)
			return
		}
		if charged && s.o.OnCharge != nil {
			s.o.OnCharge(made.Charge)
		}

		body := d.body(made)
		switch fault.Kind {
		case ActClose:
			abort()
		case ActHang:
			s.hang(r)
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
		if made.replayed {
			w.Header().Set("Idempotent-Replayed", "true")
		}
		reply(w, d.answers[made.status], body)
	}
}

// read is what r asks for: a payment as its body says, or that of the intent that
// it confirms.
func (s *Sandbox) read(d *dialect, w http.ResponseWriter, r *http.Request) (payment, error) {
	id := r.PathValue("id")
	if id == "" {
		return readPayment(w, r)
	}
	if _, err := io.Copy(io.Discard, http.MaxBytesReader(w, r.Body, maxBody)); err != nil {
		return payment{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if n, ok := s.number(d, id); ok {
		return payment{order: s.payments[n].order}, nil
	}
	return payment{}, nil // confirm says that there is none
}

// refusal is why a step does nothing.
type refusal struct {
	status     int
	code, text string
}

func (e *refusal) Error() string { return e.text }

// result is a payment as it is answered.
type result struct {
	Charge
	carried  string
	status   status
	replayed bool
}

// result is payment n as it is now. The caller holds mu.
func (s *Sandbox) result(n int32, replayed bool) result {
	return result{s.charge(n), s.payments[n].carried, s.payments[n].status, replayed}
}

// intend makes a payment that moves nothing until it is confirmed, or one that is
// confirmed at once because it says so.
func (s *Sandbox) intend(asked payment, r *http.Request) (result, bool, error) {
	if !asked.confirmed {
		asked.status = prepared
	}
	return s.pay(asked, r)
}

// pay makes the payment that is asked for, or finds the one that was made under
// its key. charged: money was moved now.
func (s *Sandbox) pay(asked payment, _ *http.Request) (made result, charged bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t, ok := s.byKey[asked.key]; ok && asked.key != "" && !s.o.IgnoreKeys {
		known := s.payments[t.newest]
		if s.o.KeyLife == 0 || s.now().Sub(time.Unix(0, known.at)) <= s.o.KeyLife {
			if known.amount != asked.amount || known.currency != asked.currency || known.order != asked.order || known.speaks.prefix != asked.speaks.prefix {
				s.stats.Mismatches++
				return result{}, false, &refusal{asked.speaks.mismatch, keyMismatch, "this key was used for another payment"}
			}
			s.stats.Replays++
			return s.result(t.newest, true), false, nil
		}
	}
	n := s.add(asked)
	return s.result(n, false), asked.status == paid, nil
}

// confirm moves the money of a prepared payment, as asked.status says. One that
// was confirmed before is answered again under the same key, and refused under
// another.
func (s *Sandbox) confirm(asked payment, r *http.Request) (made result, charged bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n, ok := s.number(asked.speaks, r.PathValue("id"))
	if !ok {
		return result{}, false, &refusal{http.StatusNotFound, notFound, "no such payment"}
	}
	if known, ok := s.confirms[asked.key]; ok && asked.key != "" && !s.o.IgnoreKeys {
		if known != n {
			s.stats.Mismatches++
			return result{}, false, &refusal{asked.speaks.mismatch, keyMismatch, "this key was used for another payment"}
		}
		s.stats.Replays++
		return s.result(n, true), false, nil
	}
	if s.payments[n].status != prepared {
		return result{}, false, &refusal{http.StatusBadRequest, unexpectedState, "the payment is " + s.payments[n].status.String() + " already"}
	}
	s.confirms[asked.key] = n
	s.payments[n].status = asked.status
	s.payments[n].key = asked.key
	s.byKey[asked.key] = thread{newest: n}
	s.enter(n)
	return s.result(n, false), asked.status == paid, nil
}

// hang waits until hanging calls are released or the client has gone.
func (s *Sandbox) hang(r *http.Request) {
	s.mu.Lock()
	release := s.release
	s.mu.Unlock()
	select {
	case <-release:
	case <-r.Context().Done():
	}
}

const maxBody = 1 << 20

func readPayment(w http.ResponseWriter, r *http.Request) (payment, error) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		return payment{}, err
	}
	fields := map[string]any{}
	switch kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type")); kind {
	case "application/x-www-form-urlencoded":
		form, err := url.ParseQuery(string(body))
		if err != nil {
			return payment{}, err
		}
		for name := range form {
			fields[name] = form.Get(name)
		}
		fields["metadata"] = map[string]any{"order": form.Get("metadata[order]"), "zabor_key": form.Get("metadata[zabor_key]")}
	default:
		d := json.NewDecoder(strings.NewReader(string(body)))
		d.UseNumber()
		if err := d.Decode(&fields); err != nil {
			return payment{}, fmt.Errorf("the body is not a JSON object: %w", err)
		}
	}
	money, err := readMoney(fields)
	if err != nil {
		return payment{}, err
	}
	metadata, _ := fields["metadata"].(map[string]any)
	return payment{
		order: readOrder(fields), amount: money.Minor, currency: money.Currency,
		carried: text(metadata["zabor_key"]), confirmed: text(fields["confirm"]) == "true",
	}, nil
}

func readMoney(fields map[string]any) (zabor.Money, error) {
	if amount, ok := fields["amount"].(map[string]any); ok {
		return provider.ParseMajor(text(amount["value"]), text(amount["currency"]))
	}
	minor, err := strconv.ParseInt(text(fields["amount"]), 10, 64)
	if err != nil || minor <= 0 {
		return zabor.Money{}, fmt.Errorf("amount %q is not a whole number of minor units above zero", text(fields["amount"]))
	}
	m := zabor.Money{Minor: minor, Currency: strings.ToUpper(text(fields["currency"]))}
	if _, ok := provider.Digits(m.Currency); !ok {
		return zabor.Money{}, fmt.Errorf("currency %q is not one", m.Currency)
	}
	return m, nil
}

func readOrder(fields map[string]any) string {
	for _, name := range []string{"order", "order_id", "merchant_reference", "reference"} {
		if order := text(fields[name]); order != "" {
			return order
		}
	}
	metadata, _ := fields["metadata"].(map[string]any)
	return text(metadata["order"])
}

func text(v any) string {
	switch v := v.(type) {
	case string:
		return v
	case json.Number:
		return v.String()
	}
	return ""
}

func (s *Sandbox) serveLookup(w http.ResponseWriter, r *http.Request) {
	name := r.URL.Query().Get("merchant_reference")
	if name == "" {
		fail(w, http.StatusBadRequest, invalidRequest, "merchant_reference is missing")
		return
	}
	s.mu.Lock()
	seen := s.now().Add(-s.o.LookupLag).UnixNano()
	found := []json.RawMessage{}
	for _, n := range s.named(name) {
		if s.payments[n].at <= seen {
			found = append(found, encode(own.object(s.result(n, false))))
		}
	}
	s.mu.Unlock()
	answer(w, map[string]any{"data": found})
}

// serveSearch is Stripe's search for the one query that a look-up makes.
func (s *Sandbox) serveSearch(w http.ResponseWriter, r *http.Request) {
	rest, ok := strings.CutPrefix(r.URL.Query().Get("query"), "metadata['zabor_key']:'")
	name, whole := strings.CutSuffix(rest, "'")
	if !ok || !whole || name == "" {
		stripe.fail(w, http.StatusBadRequest, invalidRequest, "query: metadata['zabor_key']:'KEY'")
		return
	}
	s.mu.Lock()
	seen := s.now().Add(-s.o.LookupLag).UnixNano()
	found := []any{}
	for n, p := range s.payments {
		if p.carried == name && p.speaks == &stripe && p.at <= seen {
			found = append(found, stripe.object(s.result(int32(n), false)))
		}
	}
	s.mu.Unlock()
	answer(w, map[string]any{"object": "search_result", "data": found, "has_more": false})
}

func (s *Sandbox) serveOne(d *dialect) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		n, ok := s.number(d, r.PathValue("id"))
		var found result
		if ok {
			found = s.result(n, false)
		}
		s.mu.Unlock()
		if !ok {
			d.fail(w, http.StatusNotFound, notFound, "no such payment")
			return
		}
		reply(w, http.StatusOK, encode(d.object(found)))
	}
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

// faultCode is the error code of an answer that a fault has planned.
const faultCode = "fault"

func answerStatus(d *dialect, w http.ResponseWriter, f Fault) {
	if f.RetryAfter != "" {
		w.Header().Set("Retry-After", f.RetryAfter)
	}
	d.fail(w, f.Status, faultCode, "planned by a fault")
}

func fail(w http.ResponseWriter, status int, code, message string) {
	own.fail(w, status, code, message)
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

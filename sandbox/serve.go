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

// servePayment makes a payment. The body is JSON or a form with
//
//   - amount in minor units, or {"value": "19.99", "currency": "EUR"};
//   - currency;
//   - the order: the first of order, order_id, merchant_reference, reference and
//     metadata.order (in a form metadata[order]); may be missing.
func (s *Sandbox) servePayment(w http.ResponseWriter, r *http.Request) {
	key := r.Header.Get(s.o.KeyHeader)
	s.mu.Lock()
	s.stats.Posts++
	s.mu.Unlock()
	if s.take(true, key, "").Kind == Drop {
		abort()
	}
	asked, err := readPayment(w, r)
	if err != nil {
		fail(w, http.StatusBadRequest, invalidRequest, err.Error())
		return
	}
	asked.key = key
	fault := s.take(false, key, asked.order)
	switch fault.Kind {
	case Close:
		abort()
	case Hang:
		s.hang(r)
		abort()
	case Status:
		answerStatus(w, fault)
		return
	case Declined:
		asked.status = refused
	case Pending:
		asked.status = processing
	case ActLate:
		time.Sleep(fault.Delay) // whether or not the client is still there
	}

	made, charged, err := s.make(asked)
	if err != nil {
		fail(w, http.StatusUnprocessableEntity, "idempotency_mismatch", err.Error())
		return
	}
	if charged && s.o.OnCharge != nil {
		s.o.OnCharge(made.Charge)
	}

	switch fault.Kind {
	case ActClose:
		abort()
	case ActHang:
		s.hang(r)
	case ActStatus:
		answerStatus(w, fault)
		return
	case ActSlow:
		time.Sleep(fault.Delay)
	case ActCut:
		body := made.json()
		w.Header().Set("Content-Length", strconv.Itoa(len(body)))
		w.Write(body[:len(body)/2])
		http.NewResponseController(w).Flush()
		abort()
	}
	if made.replayed {
		w.Header().Set("Idempotent-Replayed", "true")
	}
	reply(w, made.httpStatus(), made.json())
}

// result is a payment as it is answered.
type result struct {
	Charge
	status   status
	replayed bool
}

// make makes the payment that is asked for, or finds the one that was made under
// its key. charged: money was moved now.
func (s *Sandbox) make(asked payment) (made result, charged bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t, ok := s.byKey[asked.key]; ok && asked.key != "" && !s.o.IgnoreKeys {
		known := s.payments[t.newest]
		if s.o.KeyLife == 0 || s.now().Sub(time.Unix(0, known.at)) <= s.o.KeyLife {
			if known.amount != asked.amount || known.currency != asked.currency || known.order != asked.order {
				s.stats.Mismatches++
				return result{}, false, errors.New("this key was used for another payment")
			}
			s.stats.Replays++
			return result{s.charge(t.newest), known.status, true}, false, nil
		}
	}
	n := s.add(asked)
	return result{s.charge(n), asked.status, false}, asked.status == paid, nil
}

func (r result) httpStatus() int {
	return [...]int{paid: http.StatusCreated, processing: http.StatusAccepted, refused: http.StatusPaymentRequired}[r.status]
}

func (r result) json() []byte {
	out, err := json.Marshal(struct {
		ID       string `json:"id"`
		Status   string `json:"status"`
		Amount   int64  `json:"amount"`
		Currency string `json:"currency"`
		Order    string `json:"merchant_reference"`
		Key      string `json:"idempotency_key,omitempty"`
		Created  string `json:"created"`
	}{r.ID, r.status.String(), r.Amount, r.Currency, r.Order, r.Key, r.At.Format(time.RFC3339Nano)})
	if err != nil {
		panic(err) // strings and numbers always have a JSON form
	}
	return out
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
		fields["metadata"] = map[string]any{"order": form.Get("metadata[order]")}
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
	return payment{order: readOrder(fields), amount: money.Minor, currency: money.Currency}, nil
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
			found = append(found, result{s.charge(n), s.payments[n].status, false}.json())
		}
	}
	s.mu.Unlock()
	answer(w, map[string]any{"data": found})
}

func (s *Sandbox) serveOne(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	n, ok := s.number(r.PathValue("id"))
	var found result
	if ok {
		found = result{s.charge(n), s.payments[n].status, false}
	}
	s.mu.Unlock()
	if !ok {
		fail(w, http.StatusNotFound, "not_found", "no such payment")
		return
	}
	reply(w, http.StatusOK, found.json())
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
		fail(w, http.StatusNotFound, "not_found", "no such pending payment")
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

func answerStatus(w http.ResponseWriter, f Fault) {
	if f.RetryAfter != "" {
		w.Header().Set("Retry-After", f.RetryAfter)
	}
	fail(w, f.Status, "fault", "planned by a fault")
}

func fail(w http.ResponseWriter, status int, code, message string) {
	body, err := json.Marshal(map[string]any{"error": map[string]string{"code": code, "message": message}})
	if err != nil {
		panic(err) // strings always have a JSON form
	}
	reply(w, status, body)
}

func answer(w http.ResponseWriter, v any) {
	body, err := json.Marshal(v)
	if err != nil {
		panic(err) // only types of this package
	}
	reply(w, http.StatusOK, body)
}

func reply(w http.ResponseWriter, status int, body []byte) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	w.Write(body)
}

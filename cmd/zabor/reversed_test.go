package main

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"zabor"
	"zabor/internal/exit"
	"zabor/internal/servers"
	"zabor/sqlstore"
)

// later is the provider at url as it speaks once money has gone back: of the payments
// of these references.
func later(t *testing.T, url string) (address string, say func(status string, references ...string)) {
	t.Helper()
	var told atomic.Pointer[[]string] // the status, and the references
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		req, err := http.NewRequestWithContext(r.Context(), r.Method, url+r.URL.RequestURI(), r.Body)
		if err != nil {
			panic(err)
		}
		req.Header = r.Header.Clone()
		resp, err := http.DefaultTransport.RoundTrip(req)
		if err != nil {
			panic(http.ErrAbortHandler)
		}
		defer resp.Body.Close()
		body, _ := io.ReadAll(resp.Body)
		text := string(body)
		if now := told.Load(); now != nil && r.Method == http.MethodGet {
			for _, reference := range (*now)[1:] {
				for _, was := range []string{`","status":"paid"`, `","status":"refunded"`} {
					text = strings.ReplaceAll(text, `"id":"`+reference+was, `"id":"`+reference+`","status":"`+(*now)[0]+`"`)
				}
			}
		}
		w.Header().Set("Content-Type", resp.Header.Get("Content-Type"))
		w.WriteHeader(resp.StatusCode)
		io.WriteString(w, text)
	}))
	t.Cleanup(server.Close)
	return server.URL, func(status string, references ...string) {
		all := append([]string{status}, references...)
		told.Store(&all)
	}
}

// A settled row whose provider later says refunded or reversed gets a note, an alert and
// a metric, once for each thing that is said: by a look that a webhook asked for, by the
// provider's list, and by an export. It stays settled, and its message is acked as ever.
func TestMoneyThatWentBack(t *testing.T) {
	t.Parallel()
	s := newShop(t, databases[0].open(t), options{})
	in := newInbox(t, http.StatusOK)
	url, say := later(t, s.url)
	s.edit("base_url: "+s.url, "base_url: "+url)
	s.edit("    lookup:", list+"    lookup:")
	s.add("alerts: [\"" + in.address() + "\"]\nmetrics: {listen: \"${METRICS:-127.0.0.1:" + fmt.Sprint(servers.Port(t)) + "}\"}\n")
	s.redis.RPush(t.Context(), "laravel_database_queues:payments", job(t, 1, 0), job(t, 2, 0), job(t, 3, 0))
	w := s.worker("--drain")
	w.exit(exit.Good)
	row := func(order string) (zabor.Row, []string) {
		t.Helper()
		notes, err := s.store.History().Of(t.Context(), key(order))
		if err != nil {
			t.Fatal(err)
		}
		var texts []string
		for _, n := range notes {
			if n.Kind == sqlstore.Reversed {
				texts = append(texts, n.Text)
			}
		}
		return s.row(order), texts
	}
	noted := func(order string, want ...string) {
		t.Helper()
		r, texts := row(order)
		for i := range want {
			want[i] = fmt.Sprintf(`acquirer says of %s: /status is "%s"`, r.Reference, want[i])
		}
		if r.State != zabor.Settled || strings.Join(texts, "\n") != strings.Join(want, "\n") {
			t.Errorf("order %s is %s, noted %q, want %q", order, r.State, texts, want)
		}
	}
	references := map[string]string{}
	for _, order := range []string{"1", "2", "3"} {
		references[order] = s.row(order).Reference
	}

	if out, _ := s.command(exit.Good, "fence", "look", "1", "charge"); !strings.Contains(out, "nothing of money that went back") {
		t.Errorf("before: %s", out)
	}
	say("refunded", references["1"])
	for range 2 {
		if out, _ := s.command(exit.Good, "fence", "look", "--reference", references["1"]); !strings.Contains(out, `/status is "refunded"`) {
			t.Errorf("a webhook's look: %s", out)
		}
	}
	noted("1", "refunded")
	say("charged_back", references["1"], references["2"])
	s.command(exit.Good, "fence", "look", "1", "charge")
	noted("1", "refunded", "charged_back")
	noted("2")
	if n := strings.Count(in.all(), "went back"); n != 2 {
		t.Errorf("%d alerts, want 2:\n%s", n, in.all())
	}
	for _, args := range [][]string{{"1"}, {"1", "charge", "--reference", "x"}, {}} {
		s.command(exit.WrongUsage, append([]string{"fence", "look"}, args...)...)
	}
	s.command(exit.BadAnswer, "fence", "look", "9", "charge")
	s.command(exit.BadAnswer, "fence", "look", "--reference", "pay_of_nobody")

	// By the list: an audit alone reads, one that publishes notes.
	a := s.audit(exit.Good, "--provider-list", "acquirer", "--no-queues")
	if a.Kinds["reversed"] != 2 || a.Kinds["row-without-success"] != 0 {
		t.Errorf("by the list: %+v", a.Kinds)
	}
	noted("2")
	s.audit(exit.Good, "--provider-list", "acquirer", "--no-queues", "--publish")
	noted("2", "charged_back")
	metrics := fmt.Sprintf("127.0.0.1:%d", servers.Port(t))
	say("charged_back", references["1"], references["2"], references["3"])
	watch := startIn(t, []string{"METRICS=" + metrics}, "audit", "--watch", "1s", "-c", s.file, "--provider-list", "acquirer", "--no-queues")
	for _, text := range []string{`zabor_audit_differences{kind="reversed",severity="info"} 3`, `zabor_alerts_total{code="reversed",severity="warning"} 1`} {
		eventually(t, text, func() bool {
			body, err := request("GET", "http://"+metrics+"/metrics", "")
			return err == nil && strings.Contains(body, text)
		})
	}
	watch.cmd.Process.Kill()
	noted("1", "refunded", "charged_back")
	noted("3", "charged_back")

	// A second dispatch of the order is acked: nothing is called.
	s.redis.RPush(t.Context(), "laravel_database_queues:payments", strings.Replace(job(t, 1, 0), `"uuid":"`, `"uuid":"again-`, 1))
	s.worker("--drain").exit(exit.Good)
	for _, order := range []string{"1", "2", "3"} {
		s.chargedOnce(order)
	}
	noted("1", "refunded", "charged_back")
}

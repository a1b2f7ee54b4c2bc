package main

import (
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	tracev1 "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"zabor/internal/exit"
	"zabor/sandbox"
)

// receiver takes spans over OTLP, as a collector does.
type receiver struct {
	url   string
	token string // that came with the last spans

	mu  sync.Mutex
	all []*tracev1.Span
}

func newReceiver(t *testing.T) *receiver {
	r := &receiver{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		body, err := io.ReadAll(req.Body)
		var export collector.ExportTraceServiceRequest
		if err == nil {
			err = proto.Unmarshal(body, &export)
		}
		if err != nil || req.URL.Path != "/v1/traces" {
			t.Errorf("%s: %v", req.URL.Path, err)
			return
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		r.token = req.Header.Get("X-Token")
		for _, resource := range export.ResourceSpans {
			for _, scope := range resource.ScopeSpans {
				r.all = append(r.all, scope.Spans...)
			}
		}
	}))
	t.Cleanup(server.Close)
	r.url = server.URL
	return r
}

// spans are those about order, or within one that is, in no order.
func (r *receiver) spans(order string) (found []span) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var ids []string
	for range 2 { // those within come second
		found = nil
		for _, s := range r.all {
			one := span{s, map[string]string{}}
			for _, a := range s.Attributes {
				one.says[a.Key] = strings.Trim(strings.TrimPrefix(a.Value.String(), "string_value:"), `"`)
			}
			if one.says["zabor.order"] == order || slices.Contains(ids, one.parent()) {
				found = append(found, one)
				ids = append(ids, one.id())
			}
		}
	}
	return found
}

// named are the spans about order of that name.
func (r *receiver) named(order, name string) (found []span) {
	for _, s := range r.spans(order) {
		if s.Name == name {
			found = append(found, s)
		}
	}
	return found
}

type span struct {
	*tracev1.Span
	says map[string]string
}

func (s span) id() string     { return hex.EncodeToString(s.SpanId) }
func (s span) parent() string { return hex.EncodeToString(s.ParentSpanId) }
func (s span) trace() string  { return hex.EncodeToString(s.TraceId) }
func (s span) linksTo(other span) bool {
	return slices.ContainsFunc(s.Links, func(l *tracev1.Span_Link) bool { return string(l.SpanId) == string(other.SpanId) })
}

// A message is followed from its delivery to its ack, within the trace that it
// carries, over the death of a worker; what the resolver does about it is linked.
// And nothing secret is in what the processes say.
func TestTraces(t *testing.T) {
	t.Parallel()
	r := newReceiver(t)
	s := newShop(t, databases[0].open(t), options{proxy: true})
	var mu sync.Mutex
	told := map[string]string{} // traceparent, by order
	seen := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if req.Method == http.MethodPost {
			body, _ := io.ReadAll(req.Body)
			req.Body = io.NopCloser(strings.NewReader(string(body)))
			for _, order := range []string{control, target} {
				if strings.Contains(string(body), order) {
					mu.Lock()
					told[order] = req.Header.Get("Traceparent")
					mu.Unlock()
				}
			}
		}
		s.provider.ServeHTTP(w, req)
	}))
	t.Cleanup(seen.Close)
	s.edit(s.url, seen.URL)
	s.edit("lanes: ", fmt.Sprintf(`encryption_key: "${PLANT_A}"
traces: {endpoint: %q, headers: {X-Token: "${PLANT_B}"}, providers: [acquirer]}
lanes: `, r.url))
	s.edit("    timeout: ", "    headers: {Authorization: \"Bearer ${PLANT_C}\"}\n    timeout: ")
	s.edit("proxy: {", "proxy: {token: \"${PLANT_D}\", ")
	plants := map[string]string{}
	env := []string{"OTEL_BSP_SCHEDULE_DELAY=50"}
	for _, name := range []string{"PLANT_A", "PLANT_B", "PLANT_C", "PLANT_D"} {
		plants[name] = "s3cret" + name + strings.Repeat("x", 24)
		env = append(env, name+"="+plants[name])
	}
	const traceID, sender = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
	command := func(order string) string {
		return fmt.Sprintf(`O:20:\"App\\Jobs\\ChargeOrder\":2:{s:7:\"orderId\";s:%d:\"%s\";s:11:\"amountCents\";i:1999;}`, len(order), order)
	}
	payload := func(order, more string) string {
		return fmt.Sprintf(`{"uuid":"u-%s","displayName":"x","job":"Illuminate\\Queue\\CallQueuedHandler@call","attempts":0,%s"data":{"commandName":"App\\Jobs\\ChargeOrder","command":"%s"}}`, order, more, command(order))
	}
	s.pushJobs(payload(control, ""), payload(target, `"traceparent":"00-`+traceID+`-`+sender+`-01",`))

	// The first worker dies in the call of the second order.
	started := make(chan *process, 1)
	s.onCharge(func(c sandbox.Charge) {
		if c.Order == target {
			w := <-started
			eventually(t, "the capture was sent", func() bool { return len(r.named(target, "capture")) == 1 })
			w.kill()
			started <- w
		}
	})
	run := func(args ...string) *process {
		return startIn(t, env, append([]string{"worker", "-c", s.file, "--queue", "payments", "--log-level", "debug"}, args...)...)
	}
	first := run()
	started <- first
	first.exit(-1)
	s.onCharge(nil)
	second := run("--drain")
	second.exit(0)
	s.chargedOnce(target)

	// The trace of an order whose message carries none is one tree.
	roots := r.named(control, "message")
	if len(roots) != 1 || roots[0].parent() != "" || roots[0].says["zabor.state"] != "settled" || roots[0].says["messaging.message.id"] != "u-"+control {
		t.Fatalf("message: %v", roots)
	}
	for _, name := range []string{"capture", "call", "settle", "ack"} {
		if found := r.named(control, name); len(found) != 1 || found[0].parent() != roots[0].id() || found[0].trace() != roots[0].trace() {
			t.Errorf("%s: %v, want one within %s", name, found, roots[0].id())
		}
	}
	call := r.named(control, "call")[0]
	mu.Lock()
	if got, want := told[control], "00-"+call.trace()+"-"+call.id()+"-01"; got != want {
		t.Errorf("the provider was told %q, want %q", got, want)
	}
	mu.Unlock()

	// The other's is where it was sent, in both lives; the fence's own trace has the
	// deliveries and the resolver, each linked.
	if c := r.named(target, "capture"); len(c) == 0 || c[0].trace() != traceID {
		t.Errorf("the capture of the dead worker: %v, want it in %s", c, traceID)
	}
	messages, deliveries := r.named(target, "message"), r.named(target, "delivery")
	if len(messages) == 0 || len(messages) != len(deliveries) {
		t.Fatalf("%d messages and %d deliveries of the second worker", len(messages), len(deliveries))
	}
	own := deliveries[0].trace()
	for i, m := range messages {
		linked := slices.ContainsFunc(deliveries, func(d span) bool { return m.linksTo(d) && d.linksTo(m) && d.trace() == own && own != traceID })
		if m.trace() != traceID || m.parent() != sender || !linked {
			t.Errorf("message %d: in %s under %s, linked=%v", i, m.trace(), m.parent(), linked)
		}
	}
	for _, name := range []string{"look-up", "settle"} {
		if found := r.named(target, name); len(found) == 0 || found[len(found)-1].trace() != own {
			t.Errorf("%s: %v, want it in %s", name, found, own)
		}
	}
	if acks := r.named(target, "ack"); len(acks) != 1 || acks[0].trace() != traceID {
		t.Errorf("acks: %v", acks)
	}

	r.mu.Lock()
	defer r.mu.Unlock()
	if r.token != plants["PLANT_B"] {
		t.Errorf("the receiver got the token %q", r.token)
	}
	spans := fmt.Sprint(r.all)
	for name, plant := range plants {
		for where, text := range map[string]string{"first worker's log": first.log.String(), "second worker's log": second.log.String(), "spans": spans} {
			if strings.Contains(text, plant) {
				t.Errorf("%s is in the %s", name, where)
			}
		}
	}
	for _, want := range []string{"order=" + target, "step=charge", "state=settled"} {
		if !strings.Contains(second.log.String(), want) {
			t.Errorf("the log has no field %s", want)
		}
	}
}

// A proxied call is one tree: request, capture, call, settle; below the request of
// who calls where that carries a trace. The provider is told, and a repeat has no
// call.
func TestTracesOfTheProxy(t *testing.T) {
	t.Parallel()
	r := newReceiver(t)
	s := newShop(t, databases[0].open(t), options{proxy: true})
	told := make(chan string, 10)
	seen := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if req.Method == http.MethodPost {
			told <- req.Header.Get("Traceparent")
		}
		s.provider.ServeHTTP(w, req)
	}))
	t.Cleanup(seen.Close)
	s.edit(s.url, seen.URL)
	s.edit("lanes: ", fmt.Sprintf("traces: {endpoint: %q, providers: [acquirer]}\nlanes: ", r.url))
	p := startIn(t, []string{"OTEL_BSP_SCHEDULE_DELAY=50"}, "proxy", "-c", s.file)
	p.logged("the proxy listens")

	s.charged(control)
	const traceID, sender = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
	for range 2 {
		if status, _, body, err := s.proxied(target, "Traceparent", "00-"+traceID+"-"+sender+"-01"); err != nil || status >= 300 {
			t.Fatal(status, body, err)
		}
	}
	p.signal(syscall.SIGTERM)
	p.exit(exit.Good) // and the last spans are sent
	s.chargedOnce(control)
	s.chargedOnce(target)

	roots := r.named(control, "request")
	if len(roots) != 1 || roots[0].parent() != "" || roots[0].says["zabor.state"] != "settled" {
		t.Fatalf("request: %v", roots)
	}
	for _, name := range []string{"capture", "call", "settle"} {
		if found := r.named(control, name); len(found) != 1 || found[0].parent() != roots[0].id() || found[0].trace() != roots[0].trace() {
			t.Errorf("%s: %v, want one within %s", name, found, roots[0].id())
		}
	}
	call := r.named(control, "call")[0]
	if got, want := <-told, "00-"+call.trace()+"-"+call.id()+"-01"; got != want || call.says["zabor.verdict"] != "done" {
		t.Errorf("the provider was told %q by a call that says %v, want %q", got, call.says, want)
	}
	requests, deliveries := r.named(target, "request"), r.named(target, "delivery")
	if len(requests) != 2 || len(deliveries) != 2 || len(r.named(target, "call")) != 1 {
		t.Fatalf("%d requests, %d deliveries and %d calls, want two, two and one", len(requests), len(deliveries), len(r.named(target, "call")))
	}
	for _, one := range requests {
		if one.trace() != traceID || one.parent() != sender || !slices.ContainsFunc(deliveries, func(d span) bool { return one.linksTo(d) && d.linksTo(one) }) {
			t.Errorf("request in %s under %s with links %v", one.trace(), one.parent(), one.Links)
		}
	}
}

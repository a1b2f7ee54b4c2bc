package alert

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"zabor"
)

// inbox is a server that takes messages as long as it is well.
type inbox struct {
	*httptest.Server
	arrived chan string

	mu     sync.Mutex
	status int // of the answers; 0: 200
	tries  int
	hold   chan struct{} // answers wait for its end; nil: they do not
}

func newInbox(t *testing.T) *inbox {
	in := &inbox{arrived: make(chan string, 1000)}
	in.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		in.mu.Lock()
		in.tries++
		status, hold := in.status, in.hold
		in.mu.Unlock()
		if hold != nil {
			<-hold
		}
		if status != 0 {
			w.WriteHeader(status)
			return
		}
		in.arrived <- string(body)
	}))
	t.Cleanup(in.Close)
	return in
}

func (in *inbox) answer(status int) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.status = status
}

func (in *inbox) address() string {
	return "generic://" + strings.TrimPrefix(in.URL, "http://") + "/hooks/s3cretpath?disabletls=yes"
}

func (in *inbox) next(t *testing.T) string {
	t.Helper()
	select {
	case text := <-in.arrived:
		return text
	case <-time.After(20 * time.Second):
		t.Fatal("no message within 20 s")
		return ""
	}
}

func (in *inbox) none(t *testing.T) {
	t.Helper()
	select {
	case text := <-in.arrived:
		t.Fatalf("arrived: %s", text)
	default:
	}
}

// logs takes what is logged while a test reads it.
type logs struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logs) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logs) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func open(t *testing.T, p pace, addresses ...string) (*Sender, *logs) {
	t.Helper()
	l := &logs{}
	s, err := newSender(addresses, slog.New(slog.NewTextHandler(l, nil)), p)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { end(s, time.Second) })
	return s, l
}

func end(s *Sender, within time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	return s.Close(ctx)
}

func held(n int) zabor.Alert {
	return zabor.Alert{
		Severity: zabor.Warning, Code: "held", Key: zabor.Key{Scope: "shop", Order: fmt.Sprint(1000 + n), Step: "charge"},
		State: zabor.Held, Amount: zabor.Money{Minor: 1999, Currency: "EUR"}, Provider: "acme",
		Text: "the answer decides nothing: HTTP 502", Next: fmt.Sprintf("zabor fence show %d charge", 1000+n),
	}
}

var slow = pace{every: time.Hour, timeout: 10 * time.Second, backoff: []time.Duration{time.Millisecond, time.Millisecond}}

func TestAnAlertSaysWhatHappenedAndWhatToType(t *testing.T) {
	in := newInbox(t)
	s, _ := open(t, slow, in.address())
	s.Send(held(1))
	want := "zabor WARNING: held\norder 1001, step charge, scope shop\nstate held, amount 19.99 EUR, provider acme\n" +
		"the answer decides nothing: HTTP 502\nnext: zabor fence show 1001 charge"
	if got := in.next(t); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	s.Send(zabor.Alert{Severity: zabor.Critical, Code: "entry-gone", Text: "two\nlines \x1b[31m"})
	if got, want := in.next(t), "zabor CRITICAL: entry-gone\ntwo lines \uFFFD[31m"; got != want {
		t.Errorf("got\n%q\nwant\n%q", got, want)
	}
}

// An outage in which 500 orders are held is two messages: the first order at
// once, the others together.
func TestAnOutageIsOneAlertAndASummary(t *testing.T) {
	in := newInbox(t)
	s, _ := open(t, slow, in.address())
	for n := range 500 {
		s.Send(held(n))
	}
	other := held(7)
	other.Provider = "other"
	s.Send(other)
	if got := in.next(t); !strings.Contains(got, "order 1000,") {
		t.Errorf("the first is\n%s", got)
	}
	if got := in.next(t); !strings.Contains(got, "order 1007,") || !strings.Contains(got, "provider other") {
		t.Errorf("that of the other provider is\n%s", got)
	}
	in.none(t)
	if err := end(s, 10*time.Second); err != nil {
		t.Fatal(err)
	}
	got := in.next(t)
	for _, want := range []string{"held: 499 more in 1h0m0s, provider acme", "- shop:1001/charge, 19.99 EUR: the answer", "- and 489 others", "next: zabor fence list --state held"} {
		if !strings.Contains(got, want) {
			t.Errorf("the summary lacks %q:\n%s", want, got)
		}
	}
	in.none(t)
}

func TestSummariesComeAtTheInterval(t *testing.T) {
	in := newInbox(t)
	p := slow
	p.every = 50 * time.Millisecond
	s, _ := open(t, p, in.address())
	for n := range 3 {
		s.Send(held(n))
	}
	in.next(t)
	if got := in.next(t); !strings.Contains(got, "2 more in 50ms") {
		t.Errorf("got\n%s", got)
	}
	// Two intervals without any: the next one is a first one.
	eventually(t, "a cause that is over is forgotten", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return len(s.bursts) == 0
	})
	s.Send(held(9))
	if got := in.next(t); !strings.Contains(got, "order 1009,") {
		t.Errorf("got\n%s", got)
	}
}

// eventually waits for what a service does by itself.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	tick, end := time.NewTicker(5*time.Millisecond), time.After(20*time.Second)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-end:
			t.Fatalf("not after 20s: %s", what)
		}
	}
}

func TestADeliveryIsTriedAgain(t *testing.T) {
	in := newInbox(t)
	in.answer(http.StatusBadGateway)
	p := slow
	p.backoff = []time.Duration{time.Millisecond, time.Hour}
	s, l := open(t, p, in.address())
	s.Send(held(1))
	eventually(t, "it was tried twice", func() bool { return strings.Count(l.String(), "trying again") >= 2 })
	in.answer(0)
	if err := end(s, 10*time.Second); err != nil { // which does not wait for an hour
		t.Error(err)
	}
	if got := in.next(t); !strings.Contains(got, "order 1001,") {
		t.Errorf("got\n%s", got)
	}
}

func TestWhatIsGivenUpIsSaid(t *testing.T) {
	in := newInbox(t)
	in.answer(http.StatusInternalServerError)
	s, l := open(t, slow, in.address())
	s.Send(held(1))
	eventually(t, "it was given up", func() bool { return strings.Contains(l.String(), "was not delivered") })
	in.answer(0)
	s.Send(zabor.Alert{Severity: zabor.Warning, Code: "parked", Text: "x"})
	if got := in.next(t); !strings.Contains(got, "1 earlier messages could not be delivered") {
		t.Errorf("got\n%s", got)
	}
	s.Send(zabor.Alert{Severity: zabor.Warning, Code: "spent", Text: "x"})
	if got := in.next(t); strings.Contains(got, "could not be delivered") {
		t.Errorf("it is said twice:\n%s", got)
	}
	if got, want := s.Lost(), int64(1); got != want { // a counter: what was delivered since takes nothing back
		t.Errorf("lost=%d, want %d", got, want)
	}
	if err := end(s, 10*time.Second); err == nil || !strings.Contains(err.Error(), "1 messages were not delivered") {
		t.Errorf("Close: %v", err)
	}
	if strings.Contains(l.String(), "s3cretpath") {
		t.Errorf("the log holds the address:\n%s", l.String())
	}
}

// Send never waits for the network, and Close only as long as it may.
func TestAHangingServiceBlocksNobody(t *testing.T) {
	in := newInbox(t)
	in.hold = make(chan struct{})
	release := sync.OnceFunc(func() { close(in.hold) })
	t.Cleanup(release)
	s, l := open(t, slow, in.address())
	const n = waiting + 20
	for i := range n {
		s.Send(zabor.Alert{Severity: zabor.Warning, Code: fmt.Sprint("code", i), Text: "x"})
	}
	if !strings.Contains(l.String(), "too many alerts wait") {
		t.Errorf("nothing is said of what has no room:\n%s", l.String())
	}
	start := time.Now()
	if err := end(s, 100*time.Millisecond); err == nil {
		t.Error("Close: no error, want one for what was not delivered")
	}
	if took := time.Since(start); took > 5*time.Second {
		t.Errorf("Close took %s", took)
	}
	s.Send(held(1)) // and does not panic
}

func TestATryThatHangsIsNotFollowedByMore(t *testing.T) {
	in := newInbox(t)
	in.hold = make(chan struct{})
	release := sync.OnceFunc(func() { close(in.hold) })
	t.Cleanup(release)
	p := slow
	p.timeout = 10 * time.Millisecond
	s, l := open(t, p, in.address())
	s.Send(held(1))
	eventually(t, "it was given up", func() bool { return strings.Contains(l.String(), "was not delivered") })
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.tries > 1 {
		t.Errorf("%d requests at the same time, want 1", in.tries)
	}
}

func TestTestTellsOfEachAddress(t *testing.T) {
	good, bad := newInbox(t), newInbox(t)
	bad.answer(http.StatusForbidden)
	s, _ := open(t, slow, good.address(), bad.address(), "generic://127.0.0.1:1/hooks/s3cretpath?disabletls=yes")
	results := s.Test()
	if len(results) != 3 || results[0].Err != nil || results[1].Err == nil || results[2].Err == nil {
		t.Fatalf("results %v", results)
	}
	if got := good.next(t); got != testText {
		t.Errorf("got %q", got)
	}
	if got := results[1].Err.Error(); !strings.Contains(got, "403") {
		t.Errorf("the refusal is %q", got)
	}
	for _, r := range results {
		if strings.Contains(fmt.Sprint(r), "s3cret") {
			t.Errorf("the result holds the address: %v", r)
		}
	}
	if !strings.HasPrefix(results[2].Address, "alerts[2] (generic 127.0.0.1:1)") {
		t.Errorf("address %q", results[2].Address)
	}
}

func TestAddresses(t *testing.T) {
	for address, want := range map[string]string{
		"https://hooks.slack.com/services/T00000000/B00000000/abcdefghijklmnopqrstuvwx": "slack",
		"https://discord.com/api/webhooks/1234567890/aToken-with_signs":                 "discord",
		"https://shop.webhook.office.com/webhookb2/11111111-4444-4444-8444-cccccccccccc@22222222-4444-4444-8444-cccccccccccc/IncomingWebhook/33333333012222222222333333333344/44444444-4444-4444-8444-cccccccccccc/V2ESyij_gAljSoUQHvZoZYzlpAoAXExyOl26dlf1xHEx05": "teams",
		"slack://hook:T00000000-B00000000-abcdefghijklmnopqrstuvwx@webhook":            "slack",
		"telegram://110201543:AAHdqTcvCH1vGWJxfSeofSAs0K5PALDsaw@telegram?chats=@shop": "telegram",
		"matrix://:syt_token@matrix.example.com/?rooms=!a:matrix.example.com":          "matrix",
		"generic+https://example.com/a?template=json":                                  "generic example.com",
	} {
		got, err := newTarget(address)
		if err != nil {
			t.Errorf("%.40s: %v", address, err)
			continue
		}
		if got.kind != want {
			t.Errorf("%.40s: %q, want %q", address, got.kind, want)
		}
	}
	for address, want := range map[string]string{
		"https://hooks.slack.com/triggers/T0/secret99":             "hooks.slack.com/services/",
		"https://discord.com/channels/1/secret99":                  "discord.com/api/webhooks/",
		"https://prod-1.westeurope.logic.azure.com/x?sig=secret99": "generic+",
		"https://example.com/secret99":                             "generic+",
		"slak://secret99@x":                                        "there is no service \"slak\"",
		"matrix://bot:secret99@matrix.example.com/":                "matrix://:TOKEN@",
		"logger://":                "there is no service",
		"slack://secret99@webhook": "not the form of an address of slack",
		"https://shop.webhook.office.com/webhookb2/secret99": "not the form of an address of teams",
		"discord://secret99@%zz":                             "cannot be read",
	} {
		_, err := newTarget(address)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret99") {
			t.Errorf("%s: %v, want one that says %q and no secret", address, err, want)
		}
	}
}

// What services and net/http quote of an address is taken out of their errors.
func TestErrorsHoldNoSecret(t *testing.T) {
	target, err := newTarget("https://hooks.slack.com/services/T00000000/B00000000/abcdefghijklmnopqrstuvwx")
	if err != nil {
		t.Fatal(err)
	}
	got := target.redacted(fmt.Errorf("Post \"https://hooks.slack.com/services/T00000000/B00000000/abcdefghijklmnopqrstuvwx\": refused")).Error()
	if strings.Contains(got, "T00000000") || strings.Contains(got, "abcdef") || !strings.Contains(got, "refused") {
		t.Errorf("got %s", got)
	}
	if got, want := target.harmless("<!channel> & co"), "&lt;!channel&gt; &amp; co"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

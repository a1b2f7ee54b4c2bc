package provider

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"zabor"
)

const paid = `{"id":"pay_1","status":"paid","amount":1999,"currency":"eur"}`

// What each behaviour of the other side proves, and that it got exactly one
// request, over exactly one connection.
func TestCallOutcomes(t *testing.T) {
	closeDelimited := func(body string) string { return "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n" + body }
	for _, tt := range []struct {
		name  string
		reply reply
		want  zabor.Verdict
		ref   string
		why   string // part of the reason
	}{
		{"200 paid", says(answerOf(200, paid)), zabor.Done, "pay_1", ""},
		{"201 paid", says(answerOf(201, paid)), zabor.Done, "pay_1", ""},
		{"202 processing", says(answerOf(202, `{"id":7,"status":"processing","amount":1999,"currency":"EUR"}`)), zabor.Begun, "7", ""},
		{"200 refused", says(answerOf(200, `{"id":"pay_1","status":"refused"}`)), zabor.Refused, "", "refused"},
		{"402 listed", says(answerOf(402, `{"error":"no funds"}`)), zabor.Refused, "", "402"},
		{"402 listed, no body", says(answerOf(402, ``)), zabor.Unproven, "", "402"},
		{"402 listed, a middlebox's page", says(answerOf(402, `<html>402 Payment Required</html>`)), zabor.Unproven, "", "402"},
		{"402 listed, no object", says(answerOf(402, `"no"`)), zabor.Unproven, "", "402"},
		{"422 listed, no body", says(answerOf(422, ``)), zabor.Unproven, "", "422"},
		{"402 that says paid", says(answerOf(402, paid)), zabor.Unproven, "", "settled"},
		{"400 with a listed no", says(answerOf(400, `{"status":"refused"}`)), zabor.Refused, "", "400"},
		{"409 with a listed no", says(answerOf(409, `{"status":"refused"}`)), zabor.Unproven, "", "409"},
		{"429 with a listed no", says(answerOf(429, `{"status":"refused"}`)), zabor.TurnedAway, "", "429"},
		{"500 with a listed no", says(answerOf(500, `{"status":"refused"}`)), zabor.Unproven, "", "500"},
		{"401 that says paid", says(answerOf(401, paid)), zabor.Unproven, "", "settled"},
		{"409 that says paid", says(answerOf(409, paid)), zabor.Unproven, "", "settled"},
		{"400 about the form", says(answerOf(400, `{"error":{"code":"invalid"}}`)), zabor.Malformed, "", "form"},
		{"200 about the form", says(answerOf(200, `{"error":{"code":"invalid"}}`)), zabor.Malformed, "", "invalid"},
		{"422 listed as form", says(answerOf(422, `{}`)), zabor.Malformed, "", "422"},
		{"422 that says paid", says(answerOf(422, paid)), zabor.Unproven, "", "settled"},
		{"409 about the form", says(answerOf(409, `{"error":{"code":"invalid"}}`)), zabor.Unproven, "", "409"},
		{"refused and about the form", says(answerOf(400, `{"status":"refused","error":{"code":"invalid"}}`)), zabor.Unproven, "", "more than one"},
		{"refused with another amount", says(answerOf(200, `{"status":"refused","amount":5}`)), zabor.Unproven, "", "amount"},

		{"no reference", says(answerOf(200, `{"status":"paid","amount":1999,"currency":"EUR"}`)), zabor.Unproven, "", "no reference"},
		{"empty reference", says(answerOf(200, `{"id":"","status":"paid","amount":1999,"currency":"EUR"}`)), zabor.Unproven, "", "no reference"},
		{"endless reference", says(answerOf(200, `{"id":"`+strings.Repeat("x", 1025)+`","status":"paid","amount":1999,"currency":"EUR"}`)), zabor.Unproven, "", "1025 bytes"},
		{"reference of two lines", says(answerOf(200, `{"id":"a\nb","status":"paid","amount":1999,"currency":"EUR"}`)), zabor.Unproven, "", "no reference"},
		{"blank reference", says(answerOf(200, `{"id":" ","status":"paid","amount":1999,"currency":"EUR"}`)), zabor.Unproven, "", "no reference"},
		{"null reference", says(answerOf(200, `{"id":null,"status":"paid","amount":1999,"currency":"EUR"}`)), zabor.Unproven, "", "no reference"},
		{"boolean reference", says(answerOf(200, `{"id":true,"status":"paid","amount":1999,"currency":"EUR"}`)), zabor.Unproven, "", "no reference"},
		{"object as reference", says(answerOf(200, `{"id":{"a":1},"status":"paid","amount":1999,"currency":"EUR"}`)), zabor.Unproven, "", "no reference"},
		{"unlisted status", says(answerOf(200, `{"id":"pay_1","status":"odd","amount":1999,"currency":"EUR"}`)), zabor.Unproven, "", `"odd"`},
		{"no status", says(answerOf(200, `{"id":"pay_1"}`)), zabor.Unproven, "", "nothing"},
		{"another amount", says(answerOf(200, `{"id":"pay_1","status":"paid","amount":1998,"currency":"EUR"}`)), zabor.Unproven, "", "pay_1"},
		{"no amount", says(answerOf(200, `{"id":"pay_1","status":"paid","currency":"EUR"}`)), zabor.Unproven, "", "no amount"},
		{"amount with a point", says(answerOf(200, `{"id":"pay_1","status":"paid","amount":1999.5,"currency":"EUR"}`)), zabor.Unproven, "", "amount"},
		{"another currency", says(answerOf(200, `{"id":"pay_1","status":"paid","amount":1999,"currency":"USD"}`)), zabor.Unproven, "", "USD"},
		{"no currency", says(answerOf(200, `{"id":"pay_1","status":"paid","amount":1999}`)), zabor.Unproven, "", "currency"},

		{"200 HTML", says(answerOf(200, `<html>`)), zabor.Unproven, "", "JSON"},
		{"200 empty", says(answerOf(200, ``)), zabor.Unproven, "", "JSON"},
		{"200 two values", says(answerOf(200, paid+paid)), zabor.Unproven, "", "more than one"},
		{"200 with rubbish behind", says(answerOf(200, paid+"}")), zabor.Unproven, "", "JSON"},
		{"200 not UTF-8", says(answerOf(200, "{\"id\":\"\xff\",\"status\":\"paid\",\"amount\":1999,\"currency\":\"EUR\"}")), zabor.Unproven, "", "UTF-8"},
		{"204", says("HTTP/1.1 204 No Content\r\n\r\n"), zabor.Unproven, "", "JSON"},
		{"close-delimited, whole", says(closeDelimited(paid)), zabor.Done, "pay_1", ""},
		{"close-delimited, cut", says(closeDelimited(paid[:len(paid)-1])), zabor.Unproven, "", "JSON"},
		{"cut below Content-Length", says(strings.TrimSuffix(answerOf(200, paid+" "), " ")), zabor.Unproven, "", "broke off"},
		{"cut without the last chunk", says(fmt.Sprintf("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n", len(paid), paid)), zabor.Unproven, "", "broke off"},
		{"429 cut below Content-Length", says("HTTP/1.1 429 Too Many Requests\r\nContent-Length: 100\r\n\r\n{"), zabor.Unproven, "", "broke off"},
		{"longer than is read", says(answerOf(200, `{"pad":"`+strings.Repeat("x", maxAnswer)+`"}`)), zabor.Unproven, "", "longer"},

		{"closed without an answer", says(""), zabor.Unproven, "", "no whole answer"},
		{"closed in the status line", says("HTTP/1.1 20"), zabor.Unproven, "", "no whole answer"},
		{"closed in the header", says("HTTP/1.1 200 OK\r\nContent-"), zabor.Unproven, "", "no whole answer"},
		{"reset without an answer", func(_ *peer, c net.Conn) { c.(*counted).Conn.(*net.TCPConn).SetLinger(0) }, zabor.Unproven, "", "no whole answer"},
		{"not HTTP", says("SSH-2.0-OpenSSH_9.2\r\n"), zabor.Unproven, "", "no whole answer"},
		{"100, then closed", says("HTTP/1.1 100 Continue\r\n\r\n"), zabor.Unproven, "", "no whole answer"},
		{"103 and 100, then 200", says("HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 100 Continue\r\n\r\n" + answerOf(200, paid)), zabor.Done, "pay_1", ""},
		{"100 without end", says(strings.Repeat("HTTP/1.1 100 Continue\r\nX: "+strings.Repeat("y", 1000)+"\r\n\r\n", 100)), zabor.Unproven, "", "no whole answer"},
		{"101", func(p *peer, c net.Conn) {
			io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n")
			hang(p, c)
		}, zabor.Unproven, "", "101"},
		{"huge header", says("HTTP/1.1 200 OK\r\nX: " + strings.Repeat("y", 2*maxAnswerHeader) + "\r\n\r\n" + paid), zabor.Unproven, "", "no whole answer"},
		{"two lengths", says("HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n" + paid), zabor.Unproven, "", "no whole answer"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			p := newPeer(t, after(tt.reply))
			got := mustNew(t, testProfile("http://"+p.addr), Options{}).Call(within(t, 10*time.Second), testRow(t))
			if got.Verdict != tt.want || got.Reference != tt.ref || !strings.Contains(got.Reason, tt.why) {
				t.Errorf("outcome = %s %q %q, want %s %q …%s…", got.Verdict, got.Reference, got.Reason, tt.want, tt.ref, tt.why)
			}
			if strings.Contains(got.Reason, "s3cret") || strings.ContainsAny(got.Reason, "\r\n") {
				t.Errorf("reason %q", got.Reason)
			}
			if conns, posts, _ := p.counts(); conns != 1 || posts != 1 {
				t.Errorf("connections=%d posts=%d, want 1 1", conns, posts)
			}
		})
	}
}

// Every status from 200 to 599, once with a body of JSON that says nothing: the
// whole table.
func TestCallStatuses(t *testing.T) {
	want := map[int]zabor.Verdict{402: zabor.Refused, 422: zabor.Malformed}
	for _, s := range []int{401, 403, 407, 421, 425, 429} {
		want[s] = zabor.TurnedAway
	}
	for _, s := range []int{404, 405, 406, 411, 413, 414, 415, 417, 431, 501, 505, 307, 308} {
		want[s] = zabor.Misdirected
	}
	pr := mustNew(t, testProfile("http://127.0.0.1:1"), Options{})
	for status := 200; status < 600; status++ {
		got := judgeBy(pr, answer{status: status, body: []byte(`{"message":"x"}`)}, testRow(t), false)
		if got.Verdict != want[status] {
			t.Errorf("%d = %s, want %s", status, got.Verdict, want[status])
		}
		if got.Answer == nil || got.Answer.Status != status {
			t.Errorf("%d: answer %+v", status, got.Answer)
		}
	}
}

// Every status, with a body that says a listed no, and one that says a listed no
// about the form: only the provider's own 2xx and 4xx can be a no.
func TestCallStatusesThatRefuse(t *testing.T) {
	pr := mustNew(t, testProfile("http://127.0.0.1:1"), Options{})
	never := map[int]bool{401: true, 407: true, 408: true, 409: true, 421: true, 423: true, 424: true, 425: true, 429: true}
	for status := 200; status < 600; status++ {
		plain := judgeBy(pr, answer{status: status, body: []byte(`{}`)}, testRow(t), false).Verdict
		for body, want := range map[string]zabor.Verdict{`{"status":"refused"}`: zabor.Refused, `{"error":{"code":"invalid"}}`: zabor.Malformed} {
			if (status/100 != 2 && status/100 != 4) || never[status] {
				want = plain // as without the body
			}
			if status == 402 || status == 422 {
				want = plain // listed by its status
			}
			if got := judgeBy(pr, answer{status: status, body: []byte(body)}, testRow(t), false); got.Verdict != want {
				t.Errorf("%d %s = %s, want %s", status, body, got.Verdict, want)
			}
		}
	}
}

// What leads elsewhere pauses the provider, whatever else it says.
func TestCallRedirectsPause(t *testing.T) {
	pr := mustNew(t, testProfile("http://127.0.0.1:1"), Options{})
	for status := 200; status < 600; status++ {
		if got := judgeBy(pr, answer{status: status, body: []byte(`{}`)}, testRow(t), false); got.Pause != (status/100 == 3) {
			t.Errorf("%d: pause %v", status, got.Pause)
		}
	}
}

// What the rules and the first request of two lead to.
func TestRulesDecideFirst(t *testing.T) {
	profile := testProfile("http://127.0.0.1:1")
	profile.Rules = []Rule{
		{Means: "unclear", Values: map[string][]string{"/ok": {"false"}}},
		{Means: "earlier", Values: map[string][]string{"/error/code": {"in_use"}}},
		{Means: "transient", Header: map[string]string{"X-Nothing": "true"}},
		{Means: "pending", Statuses: []int{409}, Values: map[string][]string{"/made": {"before"}}, Reference: "/known"},
		{Means: "unbegun", Values: map[string][]string{"/status": {"created"}}},
	}
	pr := mustNew(t, profile, Options{})
	nothing := map[string][]string{"X-Nothing": {"true"}}
	for _, tt := range []struct {
		name      string
		status    int
		body      string
		header    map[string][]string
		preparing bool
		want      zabor.Verdict
	}{
		{"paid, and unclear", 200, `{"id":"a","status":"paid","ok":false,"amount":1999,"currency":"EUR"}`, nil, false, zabor.Unproven},
		{"refused, and in use", 200, `{"status":"refused","error":{"code":"in_use"}}`, nil, false, zabor.Unproven},
		{"turned away, and in use", 429, `{"error":{"code":"in_use"}}`, nil, false, zabor.Unproven},
		{"transient", 503, `{}`, nothing, false, zabor.TurnedAway},
		{"transient, and 200", 200, `{}`, nothing, false, zabor.Unproven},
		{"made before", 409, `{"made":"before","known":"pay_9"}`, nil, false, zabor.Begun},
		{"made before, and not what", 409, `{"made":"before"}`, nil, false, zabor.Unproven},
		{"another 409", 409, `{}`, nil, false, zabor.Unproven},
		{"created", 200, `{"id":"a","status":"created"}`, nil, false, zabor.Unproven},
		{"created, first of two", 200, `{"id":"a","status":"created"}`, nil, true, zabor.Prepared},
		{"no id, first of two", 200, `{"status":"created"}`, nil, true, zabor.Unproven},
		{"paid already, first of two", 200, `{"id":"a","status":"paid","amount":1999,"currency":"EUR"}`, nil, true, zabor.Done},
		{"refused, first of two", 200, `{"id":"a","status":"refused"}`, nil, true, zabor.Refused},
		{"unclear, first of two", 200, `{"id":"a","ok":false}`, nil, true, zabor.Unproven},
	} {
		got := judgeBy(pr, answer{status: tt.status, body: []byte(tt.body), header: tt.header}, testRow(t), tt.preparing)
		if got.Verdict != tt.want {
			t.Errorf("%s: %s (%s), want %s", tt.name, got.Verdict, got.Reason, tt.want)
		}
	}
}

// Redirects of every kind reach nobody else, with nothing of ours.
func TestCallFollowsNoRedirect(t *testing.T) {
	other := newPeer(t, after(says(answerOf(200, paid))))
	for _, tt := range []struct {
		status int
		want   zabor.Verdict
	}{{301, zabor.Unproven}, {302, zabor.Unproven}, {303, zabor.Unproven}, {307, zabor.Misdirected}, {308, zabor.Misdirected}} {
		p := newPeer(t, after(says(answerOf(tt.status, "", "Location", "http://"+other.addr+"/payments"))))
		got := mustNew(t, testProfile("http://"+p.addr), Options{}).Call(within(t, 10*time.Second), testRow(t))
		if got.Verdict != tt.want {
			t.Errorf("%d: %s, want %s", tt.status, got.Verdict, tt.want)
		}
		if _, posts, _ := p.counts(); posts != 1 {
			t.Errorf("%d: posts=%d, want 1", tt.status, posts)
		}
	}
	if conns, _, _ := other.counts(); conns != 0 {
		t.Errorf("the redirect's target got %d connections", conns)
	}
}

func TestCallSendsWhatIsFrozen(t *testing.T) {
	p := newPeer(t, after(says(answerOf(200, paid))))
	profile := testProfile("http://" + p.addr + "/v2/")
	row := testRow(t)
	row.Open.Request, _ = Freeze(Request{Method: "POST", Path: "/a%2Fb%20c/'x'?q=%7E+1&&r", ContentType: "text/plain", Body: []byte("\x00\xff")})
	if got := mustNew(t, profile, Options{}).Call(within(t, 10*time.Second), row); got.Verdict != zabor.Done {
		t.Fatalf("outcome %+v", got)
	}
	got := p.posts()[0]
	if want := "POST /v2/a%2Fb%20c/'x'?q=%7E+1&&r HTTP/1.1"; got.raw != want {
		t.Errorf("request line %q, want %q", got.raw, want)
	}
	if got.body != "\x00\xff" || got.ContentLength != 2 {
		t.Errorf("body %q, length %d", got.body, got.ContentLength)
	}
	for name, want := range map[string]string{
		"Authorization": "Bearer s3cret", "Idempotency-Key": row.ProviderKey, "Content-Type": "text/plain",
		"Accept": "application/json", "User-Agent": "zabor", "Expect": "", "Accept-Encoding": "",
	} {
		if got := strings.Join(got.Header.Values(name), "|"); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}

func TestCallKeepsTheAnswer(t *testing.T) {
	long := `{"id":"pay_1","status":"paid","amount":1999,"currency":"EUR","pad":"` + strings.Repeat("x", defaultKept) + `"}`
	for _, tt := range []struct{ name, body, more, kept string }{{"short", paid, "", paid}, {"long", long, " {" + NotKept + " true}", ""}} {
		p := newPeer(t, after(says(answerOf(201, tt.body, "Content-Type", "application/json", "Set-Cookie", "s=1", "Request-Id", "req_1"))))
		got := mustNew(t, testProfile("http://"+p.addr), Options{}).Call(within(t, 10*time.Second), testRow(t))
		if got.Verdict != zabor.Done || got.Answer == nil {
			t.Fatalf("%s: %+v", tt.name, got)
		}
		if got := fmt.Sprintf("%d %v %s", got.Answer.Status, got.Answer.Header, got.Answer.Body); got != "201 [{Content-Type application/json} {Request-Id req_1}"+tt.more+"] "+tt.kept {
			t.Errorf("%s: answer %s", tt.name, got)
		}
	}
}

func TestStoredRefusal(t *testing.T) {
	for replays, want := range map[Replays]bool{ReplaysAll: true, ReplaysState: true, ReplaysSuccess: false, ReplaysNone: false, "": false} {
		profile := testProfile("http://127.0.0.1:1")
		profile.Key.Replays = replays
		got := judgeBy(mustNew(t, profile, Options{}), answer{status: 402, body: []byte(`{"status":"failed"}`)}, testRow(t), false)
		if got.Verdict != zabor.Refused || got.StoredRefusal != want {
			t.Errorf("%q: %s, stored %v, want %v", replays, got.Verdict, got.StoredRefusal, want)
		}
	}
}

func TestRetryAfter(t *testing.T) {
	now := time.Date(2026, 3, 2, 10, 0, 0, 0, time.UTC)
	for text, want := range map[string]time.Duration{
		"": 0, "30": 30 * time.Second, "0": time.Second, "99999999": 24 * time.Hour, "18446744073709551615": 24 * time.Hour, "x": 0, "-5": 0,
		"Mon, 02 Mar 2026 10:01:00 GMT": time.Minute, "Mon, 02 Mar 2020 10:01:00 GMT": time.Second, "Mon, 02 Mar 2099 10:01:00 GMT": 24 * time.Hour,
	} {
		if got := retryAfter(map[string][]string{"Retry-After": {text}}, now); got != want {
			t.Errorf("%q: %s, want %s", text, got, want)
		}
	}
	got := judgeBy(mustNew(t, testProfile("http://127.0.0.1:1"), Options{}), answer{status: 429, header: map[string][]string{"Retry-After": {"7"}}}, testRow(t), false)
	if got.Verdict != zabor.TurnedAway || got.RetryAfter != 7*time.Second || !strings.Contains(got.Reason, "retry after 7s") {
		t.Errorf("%+v", got)
	}
}

// Where nothing of the request can have left.
func TestCallUnsent(t *testing.T) {
	_, trusting := certificate(t)
	server, _ := certificate(t) // another one, so that it is not trusted
	refused, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	refused.Close()
	full := newPeer(t, hang)
	for _, tt := range []struct {
		name string
		base string
		o    Options
		ctx  func(*testing.T) context.Context
		row  func(*zabor.Row)
		why  string
	}{
		{name: "refused", base: "http://" + refused.Addr().String(), why: "refused"},
		{name: "no such host", base: "http://zabor.invalid", why: "no connection"},
		{name: "TLS not trusted", base: "https://" + listen(t, server, hang).addr, o: Options{TLS: trusting}, why: "TLS"},
		{name: "TLS with a plain server", base: "https://" + newPeer(t, func(_ *peer, c net.Conn) { io.WriteString(c, "HTTP/1.1 400 Bad Request\r\n\r\n") }).addr, why: "TLS"},
		{name: "TLS handshake hangs", base: "https://" + newPeer(t, hang).addr, why: "TLS",
			ctx: func(t *testing.T) context.Context { return within(t, 50*time.Millisecond) }},
		{name: "deadline passed", base: "http://" + full.addr, why: "nothing was sent",
			ctx: func(t *testing.T) context.Context { return within(t, 0) }},
		{name: "request cannot be read", base: "http://" + full.addr, why: "version",
			row: func(r *zabor.Row) { r.Open.Request = []byte(`{"v":9}`) }},
		{name: "request is gone", base: "http://" + full.addr, why: "cannot be read",
			row: func(r *zabor.Row) { r.Open.Request = nil }},
		{name: "proxy refused", base: "https://127.0.0.1:1", o: Options{Proxy: &url.URL{Scheme: "http", Host: refused.Addr().String()}}, why: "refused"},
		{name: "proxy says no", base: "https://127.0.0.1:1", why: "403",
			o: Options{Proxy: &url.URL{Scheme: "http", Host: newPeer(t, after(says(answerOf(403, "")))).addr}}},
		{name: "proxy hangs", base: "https://127.0.0.1:1", why: "proxy",
			o:   Options{Proxy: &url.URL{Scheme: "http", Host: newPeer(t, hang).addr}},
			ctx: func(t *testing.T) context.Context { return within(t, 50*time.Millisecond) }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			ctx, row := within(t, 10*time.Second), testRow(t)
			if tt.ctx != nil {
				ctx = tt.ctx(t)
			}
			if tt.row != nil {
				tt.row(&row)
			}
			got := mustNew(t, testProfile(tt.base), tt.o).Call(ctx, row)
			if got.Verdict != zabor.Unsent || !strings.Contains(got.Reason, tt.why) {
				t.Errorf("outcome = %s %q, want unsent …%s…", got.Verdict, got.Reason, tt.why)
			}
		})
	}
	if _, _, bytes := full.counts(); bytes != 0 {
		t.Errorf("%d bytes left", bytes)
	}
}

// A call that had no time or no room for a connection says nothing about the provider,
// and one that has waited for the provider does.
func TestCallUnsentByThisMachine(t *testing.T) {
	hung := newPeer(t, hang)
	for name, tt := range map[string]struct {
		base  string
		left  time.Duration // of the call's time
		local bool
		why   string
	}{
		"no time left":            {"http://" + hung.addr, 0, true, "the call's 400ms were over before the connection was begun"},
		"hardly any time left":    {"https://" + hung.addr, 20 * time.Millisecond, true, "the call's 400ms were over before the connection was begun"},
		"a provider that hangs":   {"https://" + hung.addr, 400 * time.Millisecond, false, "nothing was sent: no connection: TLS"},
		"nobody listens":          {"http://127.0.0.1:1", 400 * time.Millisecond, false, "refused"},
		"nobody listens, no time": {"http://127.0.0.1:1", 0, true, "were over"},
	} {
		t.Run(name, func(t *testing.T) {
			profile := testProfile(tt.base)
			profile.Timeout = 400 * time.Millisecond
			got := mustNew(t, profile, Options{}).Call(within(t, tt.left), testRow(t))
			if got.Verdict != zabor.Unsent || got.Local != tt.local || !strings.Contains(got.Reason, tt.why) {
				t.Errorf("outcome = %s, local %v: %q, want local %v …%s…", got.Verdict, got.Local, got.Reason, tt.local, tt.why)
			}
		})
	}
	p := mustNew(t, testProfile("http://"+hung.addr), Options{})
	dial := func(errno syscall.Errno) error {
		return unsentError{fmt.Errorf("no connection: %w", &net.OpError{Op: "dial", Err: os.NewSyscallError("socket", errno)})}
	}
	for errno, want := range map[syscall.Errno]bool{syscall.EMFILE: true, syscall.ENFILE: true, syscall.EADDRNOTAVAIL: true, syscall.ECONNREFUSED: false, syscall.EHOSTUNREACH: false} {
		if _, local := p.ownFault(within(t, time.Minute), time.Now(), dial(errno)); local != want {
			t.Errorf("%v is this machine's: %v, want %v", errno, local, want)
		}
	}
}

// An answer that repeats something of another request settles nothing, and one
// that is given again to a first send must show that it is ours.
func TestEchoAndReplayMark(t *testing.T) {
	body := func(metadata string) string {
		return `{"id":"pay_1","status":"paid","amount":1999,"currency":"EUR","metadata":` + metadata + `}`
	}
	const key = "abcdefghijklmnopqrstuvwxyz"
	for _, tt := range []struct {
		name, metadata, mark string
		captures, replays    int
		want                 zabor.Verdict
	}{
		{"ours", `{"order":"1001","key":"` + key + `"}`, "", 1, 0, zabor.Done},
		{"ours, given again", `{"order":"1001"}`, "true", 1, 0, zabor.Done},
		{"ours by key, given again", `{"key":"` + key + `"}`, "true", 1, 0, zabor.Done},
		{"another order", `{"order":"1002"}`, "", 1, 0, zabor.Unproven},
		{"another order, given again", `{"order":"1002"}`, "true", 1, 0, zabor.Unproven},
		{"another order, given again to a replay", `{"order":"1002"}`, "true", 1, 1, zabor.Unproven},
		{"our order, another key", `{"order":"1001","key":"x"}`, "true", 1, 0, zabor.Unproven},
		{"whose is not said", `{}`, "", 1, 0, zabor.Done},
		{"whose is not said, given again", `{}`, "true", 1, 0, zabor.Unproven},
		{"whose is not said, given again to a second send", `{}`, "true", 2, 0, zabor.Done},
		{"whose is not said, given again to a replay", `{}`, "true", 1, 1, zabor.Done},
		{"not marked", `{}`, "false", 1, 0, zabor.Done},
	} {
		profile := testProfile("http://127.0.0.1:1")
		profile.Key.Mark = "Idempotent-Replayed"
		profile.Echo = Echo{Key: "/metadata/key", Order: "/metadata/order"}
		row := testRow(t)
		row.Unproven, row.Open.Replays = tt.captures+tt.replays, tt.replays
		got := judgeBy(mustNew(t, profile, Options{}), answer{status: 200, body: []byte(body(tt.metadata)), header: map[string][]string{"Idempotent-Replayed": {tt.mark}}}, row, false)
		if got.Verdict != tt.want || got.Verdict == zabor.Unproven && got.Reference != "" {
			t.Errorf("%s: %+v, want %s", tt.name, got, tt.want)
		}
	}
}

// What the answer to the harmless first request of two proves.
func TestPrepareOutcomes(t *testing.T) {
	for _, tt := range []struct {
		name   string
		status int
		body   string
		want   zabor.Verdict
		ref    string
	}{
		{"made", 200, `{"id":"int_1","status":"new","amount":1999,"currency":"eur"}`, zabor.Prepared, "int_1"},
		{"made, no status", 201, `{"id":"int_1"}`, zabor.Prepared, "int_1"},
		{"made, begun", 202, `{"id":"int_1","status":"processing"}`, zabor.Prepared, "int_1"},
		{"another amount", 200, `{"id":"int_1","status":"new","amount":5,"currency":"EUR"}`, zabor.Unproven, ""},
		{"no id", 200, `{"status":"new"}`, zabor.Unproven, ""},
		{"endless id", 200, `{"id":"` + strings.Repeat("x", 1025) + `"}`, zabor.Unproven, ""},
		{"paid already", 200, paid, zabor.Done, "pay_1"},
		{"refused", 200, `{"id":"int_1","status":"refused"}`, zabor.Refused, ""},
		{"402", 402, `{}`, zabor.Refused, ""},
		{"form", 422, `{}`, zabor.Malformed, ""},
		{"429", 429, `{"id":"int_1"}`, zabor.TurnedAway, ""},
		{"404", 404, `{"id":"int_1"}`, zabor.Misdirected, ""},
		{"409", 409, `{"id":"int_1"}`, zabor.Unproven, ""},
		{"500", 500, `{"id":"int_1"}`, zabor.Unproven, ""},
		{"HTML", 200, `<html>`, zabor.Unproven, ""},
	} {
		got := judgeBy(mustNew(t, testProfile("http://127.0.0.1:1"), Options{}), answer{status: tt.status, body: []byte(tt.body)}, testRow(t), true)
		if got.Verdict != tt.want || got.Reference != tt.ref {
			t.Errorf("%s: %s %q (%s), want %s %q", tt.name, got.Verdict, got.Reference, got.Reason, tt.want, tt.ref)
		}
	}
	profile := testProfile("http://127.0.0.1:1")
	profile.Prepare.Reference = "/intent/id"
	got := judgeBy(mustNew(t, profile, Options{}), answer{status: 200, body: []byte(`{"id":"x","intent":{"id":"int_1"}}`)}, testRow(t), true)
	if got.Verdict != zabor.Prepared || got.Reference != "int_1" {
		t.Errorf("%+v", got)
	}
}

// A first request of two goes under its own key, and the second under its.
func TestCallKeysOfTwoSteps(t *testing.T) {
	p := newPeer(t, after(says(answerOf(200, paid))))
	pr := mustNew(t, testProfile("http://"+p.addr), Options{})
	row := testRow(t)
	row.Open.PrepareKey = "zyxwvutsrqponmlkjihgfedcba"
	pr.Call(within(t, 10*time.Second), row)
	row.Prepared = "int_1"
	pr.Call(within(t, 10*time.Second), row)
	posts := p.posts()
	if len(posts) != 2 || posts[0].Header.Get("Idempotency-Key") != row.Open.PrepareKey || posts[1].Header.Get("Idempotency-Key") != row.ProviderKey {
		t.Errorf("posts %+v", posts)
	}
}

// Only a 409 may name what was made before; in anything else but a 2xx a yes is a
// contradiction.
func TestConflictNamesWhatIsThere(t *testing.T) {
	profile := testProfile("http://127.0.0.1:1")
	profile.Rules = []Rule{{Means: "pending", Values: map[string][]string{"/error/code": {"there"}}, Reference: "/error/id"}}
	pr := mustNew(t, profile, Options{})
	for status, want := range map[int]zabor.Verdict{409: zabor.Begun, 400: zabor.Unproven, 422: zabor.Unproven, 500: zabor.Unproven} {
		got := judgeBy(pr, answer{status: status, body: []byte(`{"error":{"code":"there","id":"pay_9"}}`)}, testRow(t), false)
		if got.Verdict != want || (got.Reference == "pay_9") != (want == zabor.Begun) {
			t.Errorf("%d: %+v, want %s", status, got, want)
		}
	}
	if got := judgeBy(pr, answer{status: 409, body: []byte(`{"error":{"code":"there"}}`)}, testRow(t), false); got.Verdict != zabor.Unproven {
		t.Errorf("without an id: %+v", got)
	}
}

// What a rule says of an answer counts before the lists and the status: a provider that
// may still carry a request out, a 4xx that names what is not over, and how long it wants
// to be left alone.
func TestRulesAboutWhatIsOpen(t *testing.T) {
	t.Parallel()
	profile := testProfile("http://127.0.0.1:1")
	profile.Rules = []Rule{
		{Means: "lingers", Statuses: []int{500}, Values: map[string][]string{"/kind": {"inside"}}},
		{Means: "pending", Statuses: []int{402}, Values: map[string][]string{"/kind": {"tried"}}, Reference: "/intent"},
		{Means: "pending", Values: map[string][]string{"/kind": {"made"}}, Reference: "/intent"},
		{Means: "unclear", Values: map[string][]string{"/kind": {"slow"}}, Wait: time.Minute},
		{Means: "unclear", Values: map[string][]string{"/status": {"paid"}, "/fault": {"*"}}},
	}
	pr := mustNew(t, profile, Options{})
	for _, tt := range []struct {
		status  int
		body    string
		want    zabor.Verdict
		lingers bool
		wait    time.Duration
	}{
		{500, `{"kind":"inside"}`, zabor.Unproven, true, 0}, {502, `{"kind":"inside"}`, zabor.Unproven, false, 0}, {500, `{}`, zabor.Unproven, false, 0},
		{402, `{"kind":"tried","intent":"i1"}`, zabor.Begun, false, 0}, {400, `{"kind":"tried","intent":"i1"}`, zabor.Unproven, false, 0},
		{402, `{"kind":"tried"}`, zabor.Unproven, false, 0}, {409, `{"kind":"made","intent":"i1"}`, zabor.Begun, false, 0},
		{422, `{"kind":"made","intent":"i1"}`, zabor.Unproven, false, 0}, {200, `{"kind":"slow"}`, zabor.Unproven, false, time.Minute},
		{200, `{"id":"p1","status":"paid","amount":1999,"currency":"EUR","fault":"x"}`, zabor.Unproven, false, 0},
		{200, `{"id":"p1","status":"paid","amount":1999,"currency":"EUR","fault":null}`, zabor.Done, false, 0},
	} {
		got := judgeBy(pr, answer{status: tt.status, body: []byte(tt.body)}, testRow(t), false)
		if got.Verdict != tt.want || got.Lingers != tt.lingers || got.RetryAfter != tt.wait || got.Verdict == zabor.Begun && got.Reference != "i1" {
			t.Errorf("%d %s: %+v, want %s, lingers %v, wait %s", tt.status, tt.body, got, tt.want, tt.lingers, tt.wait)
		}
	}
}

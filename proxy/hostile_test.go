package proxy_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"zabor/proxy"
	"zabor/sqlstore"
)

// Requests that two programs could read as two different ones, that lead
// elsewhere, or that come from a browser: refused, and nothing is sent.
func TestHostileRequests(t *testing.T) {
	t.Parallel()
	d := open(t, settings{})
	const line, host = "POST /acquirer/payments HTTP/1.1\r\n", "Host: 127.0.0.1\r\n"
	const key, typed = "Zabor-Order: 1\r\nZabor-Step: charge\r\n", "Content-Type: application/json\r\n"
	length := fmt.Sprintf("Content-Length: %d\r\n", len(charge))
	good := host + key + typed + length
	const chunked = host + key + typed + "Transfer-Encoding: chunked\r\n\r\n"
	for _, tt := range []struct {
		name, request string
		status        int
	}{
		{"both lengths", line + good + "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\nPOST /x HTTP/1.1\r\n", 400},
		{"chunked by HTTP/1.0", strings.Replace(line, "1.1", "1.0", 1) + chunked + "2f\r\n" + charge + "\r\n0\r\n\r\n", 411},
		{"chunked twice", line + "Transfer-Encoding: chunked\r\n" + chunked + "2f\r\n" + charge + "\r\n0\r\n\r\n", 411},
		{"chunked, in a list", line + strings.Replace(chunked, "chunked", "chunked, chunked", 1) + "2f\r\n" + charge + "\r\n0\r\n\r\n", 411},
		{"compressed and chunked", line + strings.Replace(chunked, "chunked", "gzip, chunked", 1) + "2f\r\n" + charge + "\r\n0\r\n\r\n", 411},
		{"no encoding that is named", line + strings.Replace(chunked, "chunked", "identity", 1) + charge, 411},
		{"a chunk with an extension", line + chunked + "2f;x=y\r\n" + charge + "\r\n0\r\n\r\n", 400},
		{"a chunk with a sign", line + chunked + "+2f\r\n" + charge + "\r\n0\r\n\r\n", 400},
		{"a chunk with a prefix", line + chunked + "0x2f\r\n" + charge + "\r\n0\r\n\r\n", 400},
		{"a chunk with a blank", line + chunked + "2f \r\n" + charge + "\r\n0\r\n\r\n", 400},
		{"a chunk with a line", line + chunked + "2_f\r\n" + charge + "\r\n0\r\n\r\n", 400},
		{"a chunk without a size", line + chunked + "\r\n" + charge + "\r\n0\r\n\r\n", 400},
		{"a chunk with a bare line feed", line + chunked + "2f\n" + charge + "\r\n0\r\n\r\n", 400},
		{"a chunk that is longer than it says", line + chunked + "2e\r\n" + charge + "\r\n0\r\n\r\n", 400},
		{"a chunk that ends in a bare line feed", line + chunked + "2f\r\n" + charge + "\n0\r\n\r\n", 400},
		{"a chunk of a huge size", line + chunked + "fffffffff\r\n" + charge, 400},
		{"a size that does not end", line + chunked + strings.Repeat("0", 5000), 400},
		{"a trailer", line + chunked + "2f\r\n" + charge + "\r\n0\r\nZabor-Order: 2\r\n\r\n", 400},
		{"too large a body in chunks", line + chunked + "10001\r\n" + strings.Repeat("x", 0x10001) + "\r\n0\r\n\r\n", 413},
		{"too many chunks", line + chunked + strings.Repeat("1\r\nx\r\n", 1<<16+1) + "0\r\n\r\n", 413},
		{"a field that is not UTF-8", line + good + "X-Shop: caf\xe9\r\n\r\n" + charge, 400},
		{"a type that is not UTF-8", line + host + key + "Content-Type: text/caf\xe9\r\n" + length + "\r\n" + charge, 400},
		{"chunked, disguised", line + good + "Transfer-Encoding : chunked\r\n\r\n" + charge, 400},
		{"chunked, in another case", line + good + "transfer-ENCODING:\tchunked\r\n\r\n" + charge, 400},
		{"the length twice, equal", line + good + length + "\r\n" + charge, 400},
		{"the length twice, another", line + good + "Content-Length: 5\r\n\r\n" + charge, 400},
		{"lengths in one field", line + host + key + typed + "Content-Length: 47, 47\r\n\r\n" + charge, 400},
		{"a signed length", line + host + key + typed + "Content-Length: +47\r\n\r\n" + charge, 400},
		{"a negative length", line + host + key + typed + "Content-Length: -1\r\n\r\n", 400},
		{"an empty length", line + host + key + typed + "Content-Length:\r\n\r\n", 400},
		{"a huge length", line + host + key + typed + "Content-Length: 99999999999999999999\r\n\r\n", 400},
		{"too large a body", line + host + key + typed + "Content-Length: 65537\r\n\r\n", 413},
		{"a folded field", line + good + "X: a\r\n b\r\n\r\n" + charge, 400},
		{"a folded order", line + host + "Zabor-Order: 1\r\n\t2\r\nZabor-Step: charge\r\n" + typed + length + "\r\n" + charge, 400},
		{"a bare line feed", line + good + "X: a\nY: b\r\n\r\n" + charge, 400},
		{"line feeds only", strings.ReplaceAll(line+good+"\r\n", "\r\n", "\n") + charge, 400},
		{"a bare carriage return", line + good + "X: a\rY: b\r\n\r\n" + charge, 400},
		{"a zero byte", line + good + "X: a\x00b\r\n\r\n" + charge, 400},
		{"a blank before the colon", line + good + "X : a\r\n\r\n" + charge, 400},
		{"no colon", line + good + "X\r\n\r\n" + charge, 400},
		{"an empty name", line + good + ": x\r\n\r\n" + charge, 400},
		{"no host", line + key + typed + length + "\r\n" + charge, 400},
		{"two hosts", line + good + host + "\r\n" + charge, 400},
		{"another host", line + "Host: evil.example\r\n" + key + typed + length + "\r\n" + charge, 403},
		{"a host that looks local", line + "Host: 127.0.0.1.evil.example\r\n" + key + typed + length + "\r\n" + charge, 403},
		{"a browser", line + good + "Origin: https://evil.example\r\n\r\n" + charge, 403},
		{"a browser without a name", line + good + "Origin: null\r\n\r\n" + charge, 403},
		{"a browser's fetch", line + good + "Sec-Fetch-Site: cross-site\r\n\r\n" + charge, 403},
		{"two orders", line + good + "Zabor-Order: 2\r\n\r\n" + charge, 400},
		{"two steps", line + good + "Zabor-Step: charge\r\n\r\n" + charge, 400},
		{"two keys", line + host + typed + length + "Idempotency-Key: zabor:1:charge\r\nIdempotency-Key: zabor:2:charge\r\n\r\n" + charge, 400},
		{"an unknown field of ours", line + good + "Zabor-Scpoe: m\r\n\r\n" + charge, 400},
		{"a field that guard makes", line + good + "Zabor-Refused: 200 ok\r\n\r\n" + charge, 400},
		{"Connection takes the step out", line + good + "Connection: Zabor-Step\r\n\r\n" + charge, 400},
		{"Connection takes the step out, in a list", line + good + "Connection: close, Zabor-Step\r\n\r\n" + charge, 400},
		{"an upgrade", line + good + "Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n" + charge, 400},
		{"two upgrades", line + good + "Connection: Upgrade\r\nUpgrade: h2c, websocket\r\n\r\n" + charge, 400},
		{"another method", line + good + "X-HTTP-Method-Override: DELETE\r\n\r\n" + charge, 400},
		{"another method, of a look", "GET /acquirer/payments HTTP/1.1\r\n" + host + "x-method-override: POST\r\n\r\n", 400},
		{"another path", line + good + "X-Original-URL: /acquirer/intents\r\n\r\n" + charge, 400},
		{"another path, of a look", "GET /acquirer/payments HTTP/1.1\r\n" + host + "X-Rewrite-Url: /admin\r\n\r\n", 400},
		{"a property twice", line + host + key + typed + "Content-Length: 29\r\n\r\n" + `{"amount":1999,"amount":2999}`, 400},
		{"an order with a blank", line + host + "Zabor-Order: 1 2\r\nZabor-Step: charge\r\n" + typed + length + "\r\n" + charge, 400},
		{"orders that were joined", line + host + "Zabor-Order: 1, 2\r\nZabor-Step: charge\r\n" + typed + length + "\r\n" + charge, 400},
		{"no order", line + host + "Zabor-Step: charge\r\n" + typed + length + "\r\n" + charge, 400},
		{"an empty order", line + host + "Zabor-Order:\r\nZabor-Step: charge\r\n" + typed + length + "\r\n" + charge, 400},
		{"no step", line + host + "Zabor-Order: 1\r\n" + typed + length + "\r\n" + charge, 400},
		{"no key", line + host + typed + length + "\r\n" + charge, 400},
		{"a raw order", line + host + "Zabor-Order: zażółć\r\nZabor-Step: charge\r\n" + typed + length + "\r\n" + charge, 400},
		{"half an escape", line + host + "Zabor-Order: 1%2\r\nZabor-Step: charge\r\n" + typed + length + "\r\n" + charge, 400},
		{"an absolute target", "POST http://evil.example/acquirer/payments HTTP/1.1\r\n" + good + "\r\n" + charge, 400},
		{"an absolute target here", "POST http://127.0.0.1/acquirer/payments HTTP/1.1\r\n" + good + "\r\n" + charge, 400},
		{"an authority", "CONNECT evil.example:443 HTTP/1.1\r\n" + host + "\r\n", 400},
		{"a star", "OPTIONS * HTTP/1.1\r\n" + host + "\r\n", 400},
		{"two slashes", "POST //h/acquirer/payments HTTP/1.1\r\n" + good + "\r\n" + charge, 400},
		{"dots", "POST /acquirer/../payments HTTP/1.1\r\n" + good + "\r\n" + charge, 403},
		{"encoded dots and slash", "POST /acquirer/..%2fpayments HTTP/1.1\r\n" + good + "\r\n" + charge, 403},
		{"encoded dots and slash first", "POST /..%2f HTTP/1.1\r\n" + good + "\r\n" + charge, 403},
		{"encoded dots", "POST /acquirer/%2e%2E/payments HTTP/1.1\r\n" + good + "\r\n" + charge, 403},
		{"encoded twice", "POST /acquirer/%252e%252e/payments HTTP/1.1\r\n" + good + "\r\n" + charge, 403},
		{"dots with a parameter", "POST /acquirer/..;x=1/payments HTTP/1.1\r\n" + good + "\r\n" + charge, 403},
		{"a backslash", "POST /acquirer/%5cpayments HTTP/1.1\r\n" + good + "\r\n" + charge, 403},
		{"an empty segment", "POST /acquirer//payments HTTP/1.1\r\n" + good + "\r\n" + charge, 403},
		{"a zero byte in the path", "POST /acquirer/pay%00ments HTTP/1.1\r\n" + good + "\r\n" + charge, 403},
		{"a line break in the path", "POST /acquirer/pay%0d%0aments HTTP/1.1\r\n" + good + "\r\n" + charge, 403},
		{"a fragment", "POST /acquirer/payments#x HTTP/1.1\r\n" + good + "\r\n" + charge, 403},
		{"a userinfo", "POST /@evil.example/payments HTTP/1.1\r\n" + good + "\r\n" + charge, 403},
		{"another provider", "POST /stripe/payments HTTP/1.1\r\n" + good + "\r\n" + charge, 403},
		{"a blank in the target", "POST /acquirer/pay ments HTTP/1.1\r\n" + good + "\r\n" + charge, 400},
		{"a method of another kind", "TRACE /acquirer/payments HTTP/1.1\r\n" + host + key + "\r\n", 400},
		{"a look with a body", "GET /acquirer/payments HTTP/1.1\r\n" + host + typed + length + "\r\n" + charge, 400},
		{"HTTP/2", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400},
		{"HTTP/0.9", "GET /acquirer/payments\r\n\r\n", 400},
		{"no HTTP", "\x16\x03\x01\x02\x00\x01\x00\x01\r\n\r\n", 400},
		{"a long head", line + good + "X: " + strings.Repeat("x", 20000) + "\r\n\r\n" + charge, 431},
		{"many fields", line + good + strings.Repeat("X: 1\r\n", 100) + "\r\n" + charge, 431},
	} {
		t.Run(tt.name, func(t *testing.T) {
			status, body := d.raw(tt.request)
			if status != tt.status || !strings.Contains(body, "urn:zabor:") {
				t.Errorf("%d %s, want %d", status, body, tt.status)
			}
		})
	}
	d.posts(0)
	if rows, err := d.store.Reports().List(t.Context(), sqlstore.Filter{}); err != nil || len(rows) > 0 {
		t.Errorf("rows %v, %v", rows, err)
	}
	// What looks odd, is read in one way only, and comes from libraries that are in use.
	for i, request := range []string{
		line + good + "\r\n" + charge,
		line + chunked + "2f\r\n" + charge + "\r\n0\r\n\r\n",
		line + chunked + "1\r\n" + charge[:1] + "\r\n0000002E\r\n" + charge[1:] + "\r\n0\r\n\r\n",
		line + good + "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n\r\n" + charge,
		line + good + "TE: trailers\r\nConnection: TE, close\r\n\r\n" + charge,
	} {
		if status, body := d.raw(request); status != 201 {
			t.Errorf("good one %d: %d %s", i, status, body)
		}
	}
	d.posts(1)
}

// Of requests on one connection a bad one is answered in its turn, and ends it;
// what stands behind it is never read.
func TestPipelined(t *testing.T) {
	t.Parallel()
	d := open(t, settings{})
	request := func(order, more string) string {
		return fmt.Sprintf("POST /acquirer/payments HTTP/1.1\r\nHost: 127.0.0.1\r\nZabor-Order: %s\r\nZabor-Step: charge\r\nContent-Type: application/json\r\nContent-Length: %d\r\n%s\r\n%s", order, len(charge), more, charge)
	}
	c, err := net.Dial("tcp", d.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(limit))
	inChunks := strings.Replace(strings.Replace(request("2", ""), "Content-Length: 47", "Transfer-Encoding: chunked", 1), charge, "2f\r\n"+charge+"\r\n0\r\n\r\n", 1)
	io.WriteString(c, request("1", "")+inChunks+request("3", "")+request("4", "Transfer-Encoding: chunked\r\n")+request("5", ""))
	in := bufio.NewReader(c)
	for i, want := range []int{201, 201, 201, 400} {
		resp, err := http.ReadResponse(in, nil)
		if err != nil {
			t.Fatalf("answer %d: %v", i, err)
		}
		io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("answer %d: %d, want %d", i, resp.StatusCode, want)
		}
	}
	if rest, _ := io.ReadAll(in); len(rest) > 0 {
		t.Errorf("and then %q", rest)
	}
	d.posts(3)
}

// A body that does not come whole captures nothing.
func TestHalfABody(t *testing.T) {
	t.Parallel()
	d := open(t, settings{})
	c, err := net.Dial("tcp", d.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(limit))
	fmt.Fprintf(c, "POST /acquirer/payments HTTP/1.1\r\nHost: 127.0.0.1\r\nZabor-Order: 1\r\nZabor-Step: charge\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(charge)+1, charge)
	c.(*net.TCPConn).CloseWrite()
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != 400 {
		t.Errorf("status %d, want 400", resp.StatusCode)
	}
	d.posts(0)
	d.do("GET", "/fences/1/charge", "").says(t, 404, "no-row", "")
}

// Order ids are compared byte for byte, however they are written; see the same
// for messages in package step.
func TestOrdersAreBytes(t *testing.T) {
	t.Parallel()
	d := open(t, settings{})
	different := []string{"7", "007", "A1", "a1", "x", "x%20", "%20x", "%C3%A9", "e%CC%81", "%FF", "a%2Fb", "a%252Fb", "%00", "%0D%0AZabor-State:%20forged", "a+b", "a%20b", "a:b", strings.Repeat("z", 255)}
	for _, order := range different {
		d.do("POST", "/acquirer/payments", charge, fenced(order, "charge")...).says(t, 201, "", "settled")
	}
	d.posts(int64(len(different)))
	for same, as := range map[string]string{"%37": "7", "%41%31": "A1", "a%2fb": "a%2Fb", "%e9": ""} {
		a := d.do("POST", "/acquirer/payments", charge, fenced(same, "charge")...)
		if replayed := a.header.Get("Zabor-Replayed") == "true"; replayed != (as != "") {
			t.Errorf("%s after %q: %s", same, as, a)
		}
	}
	d.do("POST", "/acquirer/payments", charge, fenced(strings.Repeat("z", 256), "charge")...).says(t, 400, "invalid", "")
	d.do("POST", "/acquirer/payments", charge, fenced("1", strings.Repeat("z", 129))...).says(t, 400, "invalid", "")
	d.do("POST", "/acquirer/payments", charge, append(fenced("1", "charge"), "Zabor-Scope", strings.Repeat("z", 60))...).says(t, 400, "invalid", "")
}

// The key can travel in the library's own idempotency key.
func TestKeyInTheIdempotencyKey(t *testing.T) {
	t.Parallel()
	d := open(t, settings{})
	first := d.do("POST", "/acquirer/payments", charge, "Idempotency-Key", "zabor:1001:charge")
	first.says(t, 201, "", "settled")
	for _, fields := range [][]string{
		{"Idempotency-Key", `"zabor:1001:charge"`},
		fenced("1001", "charge"),
		append(fenced("1001", "charge"), "Idempotency-Key", "zabor:1001:charge"),
		{"Idempotency-Key", "zabor:%31001:char%67e"},
	} {
		a := d.do("POST", "/acquirer/payments", charge, fields...)
		if a.body != first.body || a.header.Get("Zabor-Replayed") != "true" {
			t.Errorf("%q: %s", fields, a)
		}
	}
	d.do("POST", "/acquirer/payments", charge, "Idempotency-Key", "zabor:m:1001:refund%3AR-7").says(t, 201, "", "settled")
	d.do("GET", "/fences/1001/refund%3AR-7?scope=m", "").says(t, 200, "", "settled")
	for _, key := range []string{"zabor:1001", "zabor:a:b:c:d", "zabor::charge", "zabor:1001:", "zabor:a b:c", "zabor:%zz:c"} {
		d.do("POST", "/acquirer/payments", charge, "Idempotency-Key", key).says(t, 400, "invalid", "")
	}
	d.do("POST", "/acquirer/payments", charge, append(fenced("1001", "charge"), "Idempotency-Key", "zabor:1002:charge")...).says(t, 400, "invalid", "")
	d.posts(2)
}

// Who may call.
func TestToken(t *testing.T) {
	t.Parallel()
	const token = "0123456789abcdef"
	d := open(t, settings{options: proxy.Options{Token: func() string { return token }}})
	for _, tt := range []struct {
		name   string
		fields []string
		status int
	}{
		{"none", nil, 401},
		{"wrong", []string{"Authorization", "Bearer 0123456789abcdeF"}, 401},
		{"half", []string{"Authorization", "Bearer 01234567"}, 401},
		{"empty", []string{"Authorization", "Bearer "}, 401},
		{"as a user", []string{"Authorization", "Basic MDEyMzQ1Njc4OWFiY2RlZjo="}, 401},
		{"bearer", []string{"Authorization", "Bearer " + token}, 201},
		{"basic", []string{"Authorization", "Basic c2hvcDowMTIzNDU2Nzg5YWJjZGVm"}, 201},
		{"own field", []string{"Zabor-Token", token}, 201},
		{"host of any name", []string{"Zabor-Token", token, "Host", "zabor:8070"}, 201},
	} {
		a := d.do("POST", "/acquirer/payments", charge, append(tt.fields, fenced("1001", "charge")...)...)
		if a.status != tt.status || a.status == 401 && a.header.Get("WWW-Authenticate") == "" {
			t.Errorf("%s: %s, want %d", tt.name, a, tt.status)
		}
	}
	d.do("GET", "/fences/1001/charge", "").says(t, 401, "token", "")
	d.do("GET", "/acquirer/payments/pay_1", "").says(t, 401, "token", "")
	d.posts(1)
}

package messenger

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"zabor/internal/php"
)

var parkedAt = time.Date(2024, 5, 6, 7, 8, 9, 0, time.UTC)

// fullExample is what PHP's failed:show and failed:retry were seen to take, with
// NUL written as ~.
const fullExample = `O:36:"Symfony\Component\Messenger\Envelope":2:{s:44:"~Symfony\Component\Messenger\Envelope~stamps";a:4:{` +
	`s:51:"Symfony\Component\Messenger\Stamp\ErrorDetailsStamp";a:1:{i:0;O:51:"Symfony\Component\Messenger\Stamp\ErrorDetailsStamp":4:{s:67:"~Symfony\Component\Messenger\Stamp\ErrorDetailsStamp~exceptionClass";s:12:"zabor\Parked";s:66:"~Symfony\Component\Messenger\Stamp\ErrorDetailsStamp~exceptionCode";i:0;s:69:"~Symfony\Component\Messenger\Stamp\ErrorDetailsStamp~exceptionMessage";s:4:"held";s:69:"~Symfony\Component\Messenger\Stamp\ErrorDetailsStamp~flattenException";N;}}` +
	`s:61:"Symfony\Component\Messenger\Stamp\SentToFailureTransportStamp";a:1:{i:0;O:61:"Symfony\Component\Messenger\Stamp\SentToFailureTransportStamp":1:{s:83:"~Symfony\Component\Messenger\Stamp\SentToFailureTransportStamp~originalReceiverName";s:5:"async";}}` +
	`s:44:"Symfony\Component\Messenger\Stamp\DelayStamp";a:1:{i:0;O:44:"Symfony\Component\Messenger\Stamp\DelayStamp":1:{s:51:"~Symfony\Component\Messenger\Stamp\DelayStamp~delay";i:0;}}` +
	`s:49:"Symfony\Component\Messenger\Stamp\RedeliveryStamp";a:1:{i:0;O:49:"Symfony\Component\Messenger\Stamp\RedeliveryStamp":2:{s:61:"~Symfony\Component\Messenger\Stamp\RedeliveryStamp~retryCount";i:0;s:64:"~Symfony\Component\Messenger\Stamp\RedeliveryStamp~redeliveredAt";O:17:"DateTimeImmutable":3:{s:4:"date";s:26:"2024-05-06 07:08:09.000000";s:13:"timezone_type";i:3;s:8:"timezone";s:3:"UTC";}}}` +
	`}s:45:"~Symfony\Component\Messenger\Envelope~message";O:18:"App\Message\Charge":1:{s:7:"orderId";s:1:"1";}}`

func TestParkedPHP(t *testing.T) {
	e := envelope{body: phpBody("1"), headersJSON: []byte("[]")}
	p, err := e.parked("async", "held", nil, parkedAt)
	ok(t, err)
	got := strings.ReplaceAll(string(stripSlashes([]byte(p.body))), "\x00", "~")
	if got != fullExample {
		t.Errorf("got\n%s\nwant\n%s", got, fullExample)
	}
	if string(p.headersJSON) != "[]" {
		t.Errorf("headers %s, want []", p.headersJSON)
	}
}

// The back-references of a message move when stamps are put in front of it.
func TestParkedKeepsReferences(t *testing.T) {
	checked := 0
	for version, list := range recordings(t) {
		for _, r := range list {
			if r.Name != "php_refs" && r.Name != "php_refs_retry" && r.Name != "interop_refs_message_first" && r.Name != "interop_refs_stamps_twice" {
				continue
			}
			checked++
			text := r.Member
			if text == nil {
				var err error
				text, err = unwrap(r.Fields["message"])
				ok(t, err)
			}
			e, err := readEnvelope(text)
			ok(t, err)
			p, err := e.parked("async", "held", nil, parkedAt)
			ok(t, err)
			before, err := readDocument(e.body)
			ok(t, err)
			after, err := readDocument(p.body)
			ok(t, err)
			a, _ := after.message.Prop("a")
			b, _ := after.message.Prop("b")
			if a != b {
				t.Errorf("%s/%s: a and b are two objects now", version, r.Name)
			}
			c, _ := after.message.Prop("c")
			items := c.(*php.Array).Items
			if items[0].Value != items[1].Value {
				t.Errorf("%s/%s: the two elements of c are no references to one variable now", version, r.Name)
			}
			if got, want := len(after.stamps.Items), len(before.stamps.Items); got <= want {
				t.Errorf("%s/%s: %d classes of stamps, were %d", version, r.Name, got, want)
			}
		}
	}
	if checked != 12 {
		t.Errorf("checked %d, want 12", checked)
	}
}

func TestParkedJSON(t *testing.T) {
	const body = "{\"orderId\":\"1\",\"note\":\"\u00e9\"}"
	e, err := readEnvelope([]byte(`{"body":` + phpQuote(body) + `,"headers":{"type":"App\\Message\\Charge","X-Message-Stamp-App\\Own":"[{\"a\":1.50}]",` +
		`"X-Message-Stamp-Symfony\\Component\\Messenger\\Stamp\\DelayStamp":"[{\"delay\":7}]","Content-Type":"application\/json"}}`))
	ok(t, err)
	p, err := e.parked("async", "held", nil, parkedAt)
	ok(t, err)
	if p.body != body {
		t.Errorf("body %s, want it unchanged", p.body)
	}
	const s = `X-Message-Stamp-Symfony\\Component\\Messenger\\Stamp\\`
	want := `{"type":"App\\Message\\Charge","X-Message-Stamp-App\\Own":"[{\"a\":1.50}]","` + s + `DelayStamp":"[{\"delay\":7},{\"delay\":0}]",` +
		`"` + s + `ErrorDetailsStamp":"[{\"exceptionClass\":\"zabor\\\\Parked\",\"exceptionCode\":0,\"exceptionMessage\":\"held\",\"flattenException\":null}]",` +
		`"` + s + `SentToFailureTransportStamp":"[{\"originalReceiverName\":\"async\"}]",` +
		`"` + s + `RedeliveryStamp":"[{\"retryCount\":0,\"redeliveredAt\":\"2024-05-06T07:08:09+00:00\"}]",` +
		`"Content-Type":"application\/json"}`
	if got := string(p.headersJSON); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// What leaves for a stream of PHP's own loses the stamp of the failure transport
// and no other; references hold, and a signature fits.
func TestOutside(t *testing.T) {
	headers := []header{{name: "type", value: "A"}}
	for name, e := range map[string]*envelope{
		"php":  {body: phpBody("1"), headersJSON: []byte("[]")},
		"json": {body: "{}", headers: headers, headersJSON: writeHeaders(headers)},
	} {
		if same, changed := e.outside(nil); changed || same != e {
			t.Errorf("%s: an envelope that was never parked is changed", name)
		}
		for _, v2 := range []bool{false, true} {
			signed := *e
			signed.headers = append(slices.Clone(e.headers), header{name: signHeader, value: ""})
			signed.headers[len(e.headers)].value = signed.signature("s3cr3t", v2)
			p, err := signed.parked("async", "held", []string{"s3cr3t"}, parkedAt)
			ok(t, err)
			before := p.body + string(p.headersJSON)
			if _, changed := p.outside([]string{"another"}); changed {
				t.Errorf("%s: changed, although it cannot be signed anew", name)
			}
			out, changed := p.outside([]string{"s3cr3t"})
			if !changed || !out.signedBy([]string{"s3cr3t"}) {
				t.Errorf("%s: changed %v, signed %v", name, changed, out.signedBy([]string{"s3cr3t"}))
			}
			text := out.body + string(out.headersJSON)
			for what, want := range map[string]int{"originalReceiverName": 0, "retryCount": 1, "exceptionMessage": 1} {
				if got := strings.Count(text, what); got != want {
					t.Errorf("%s: %q is there %d times, want %d", name, what, got, want)
				}
			}
			if p.body+string(p.headersJSON) != before || !p.signedBy([]string{"s3cr3t"}) {
				t.Errorf("%s: the parked envelope itself has changed", name)
			}
		}
	}
}

// Parked again and again, a message keeps its origin, tells the same error once and
// does not grow without end.
func TestParkedManyTimes(t *testing.T) {
	jsonEnvelope, err := readEnvelope([]byte(`{"body":"{}","headers":{"type":"A"}}`))
	ok(t, err)
	for name, e := range map[string]*envelope{"php": {body: phpBody("1"), headersJSON: []byte("[]")}, "json": jsonEnvelope} {
		for i := range 25 {
			p, err := e.parked(fmt.Sprintf("transport%d", i), "held", nil, parkedAt.Add(time.Duration(i)*time.Minute))
			ok(t, err)
			e = p
		}
		text := e.body + string(e.headersJSON)
		for what, want := range map[string]int{"transport0": 1, "originalReceiverName": 1, "exceptionMessage": 1, "retryCount": 10} {
			if got := strings.Count(text, what); got != want {
				t.Errorf("%s: %q is there %d times, want %d", name, what, got, want)
			}
		}
		for _, minute := range []string{"07:08:09", "07:32:09", "07:24:09"} { // the first, the last, the oldest of the last nine
			if !strings.Contains(text, minute) {
				t.Errorf("%s: the stamp of %s is gone", name, minute)
			}
		}
		if strings.Contains(text, "07:23:09") {
			t.Errorf("%s: a stamp of the middle is still there", name)
		}
	}
}

func TestSignature(t *testing.T) {
	e := envelope{body: `{"text":"hi"}`, headers: []header{{name: "type", value: `App\Message\Text`}, {name: "Content-Type", value: "application/json"}}}
	if got, want := e.signature("s3cr3t", false), "c3355c7bd8b40a29d0efdcaf25350983ab29c05b2ed7d9d137e25494269c6170"; got != want {
		t.Errorf("v1 = %s, want %s", got, want)
	}
	if got, want := e.signature("s3cr3t", true), "v2:2c71680752e55c6c51f7292727335fae352b60a5983dde3832b69de35c89082f"; got != want {
		t.Errorf("v2 = %s, want %s", got, want)
	}
}

func TestParkedSigned(t *testing.T) {
	for _, v2 := range []bool{false, true} {
		signed := &envelope{body: phpBody("1"), headersJSON: []byte("[]")}
		signed.headers = []header{{name: signHeader, value: signed.signature("s3cr3t", v2)}, {name: "Sign-Algo", value: "sha256"}}
		signed.headersJSON = writeHeaders(signed.headers)
		for secret, want := range map[string]bool{"s3cr3t": true, "": false, "other": false} {
			p, err := signed.parked("async", "held", ParseSecrets(secret), parkedAt)
			ok(t, err)
			if stamped := p.body != signed.body; stamped != want {
				t.Errorf("v2=%v, secret %q: stamps added: %v, want %v", v2, secret, stamped, want)
			}
			if !p.signedBy([]string{"s3cr3t"}) {
				t.Errorf("v2=%v, secret %q: PHP would refuse the signature", v2, secret)
			}
		}
	}
}

// Numbers inside a class with PHP's old Serializable are unknown: left as it is.
func TestParkedOpaque(t *testing.T) {
	text := "O:36:\"Symfony\\Component\\Messenger\\Envelope\":2:{s:44:\"\x00Symfony\\Component\\Messenger\\Envelope\x00stamps\";a:0:{}" +
		"s:45:\"\x00Symfony\\Component\\Messenger\\Envelope\x00message\";O:1:\"A\":3:{s:1:\"x\";O:1:\"B\":0:{}s:1:\"c\";C:1:\"C\":4:{r:4;}s:1:\"y\";r:4;}}"
	e := &envelope{body: string(addSlashes([]byte(text))), headersJSON: []byte("[]")}
	p, err := e.parked("async", "held", nil, parkedAt)
	ok(t, err)
	if p.body != e.body {
		t.Errorf("the body was changed:\n%q", p.body)
	}
}

// An exception that says nothing is named by its class, so that a list of failed
// messages never leaves the reason out.
func TestFailureReason(t *testing.T) {
	for said, want := range map[string]string{"held": "held", "": `zabor\Parked`} {
		for name, e := range map[string]*envelope{
			"php":  {body: phpBody("1"), headersJSON: []byte("[]")},
			"json": {body: "{}", headers: []header{{name: "type", value: "A"}}},
		} {
			p, err := e.parked("async", said, nil, parkedAt)
			ok(t, err)
			headers, err := readHeaders(p.headersJSON)
			ok(t, err)
			origin, got := (&envelope{body: p.body, headers: headers}).failure()
			if origin != "async" || got != want {
				t.Errorf("%s: failed on %q for %q, want async and %q", name, origin, got, want)
			}
		}
	}
}

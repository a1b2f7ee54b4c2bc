package laravel

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"zabor/worker"
)

// object draws the text of a JSON object whose members are known, with blanks,
// duplicate and nested keys and strings that look like keys.
func object(t *rapid.T, depth int) string {
	blank := func() string { return rapid.SampledFrom([]string{"", "", "", " ", "\n\t"}).Draw(t, "blank") }
	var b strings.Builder
	b.WriteString(blank() + "{" + blank())
	for i := range rapid.IntRange(0, 5).Draw(t, "members") {
		if i > 0 {
			b.WriteString("," + blank())
		}
		b.WriteString(key(t) + blank() + ":" + blank() + value(t, depth) + blank())
	}
	b.WriteString("}" + blank())
	return b.String()
}

func key(t *rapid.T) string {
	return rapid.SampledFrom([]string{`"attempts"`, `"attempts"`, `"attempts"`, `"Attempts"`, `"attempts "`, `"\"attempts"`, `"attempts\\"`, `"x"`, `""`, `"data"`, `"😀"`}).Draw(t, "key")
}

func value(t *rapid.T, depth int) string {
	kinds := 5
	if depth > 3 {
		kinds = 3
	}
	switch rapid.IntRange(0, kinds-1).Draw(t, "kind") {
	case 0, 1:
		return rapid.SampledFrom([]string{"0", "1", "9", "41", "99999999999999", "123456789012345", "1.5", "-3", "1e2", "1E-1"}).Draw(t, "number")
	case 2:
		return rapid.SampledFrom([]string{`"3"`, `"007"`, `""`, `"attempts"`, `"{\"attempts\":1}"`, `"\\"`, `"\\\""`, `"0x1"`, "null", "true", `"\u0000\/"`}).Draw(t, "scalar")
	case 3:
		return "[" + value(t, depth+1) + "," + value(t, depth+1) + "]"
	}
	return object(t, depth+1)
}

// counted is a model of the reserve script: the text with the value of the last
// key attempts of the outermost object raised by one. False: it is not counted.
func counted(text string) (string, bool) {
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	if tok, err := d.Token(); err != nil || tok != json.Delim('{') {
		return "", false
	}
	start, end, last := 0, 0, json.RawMessage(nil)
	for d.More() {
		name, err := d.Token()
		if err != nil {
			return "", false
		}
		var raw json.RawMessage
		if err := d.Decode(&raw); err != nil {
			return "", false
		}
		if name == "attempts" {
			end = int(d.InputOffset())
			start, last = end-len(raw), raw
		}
	}
	digits := string(last)
	if strings.HasPrefix(digits, `"`) {
		digits = strings.Trim(digits, `"`)
		if digits == "" || strings.Trim(digits, "0123456789") != "" {
			return "", false
		}
		start, end = start+1, end-1
	}
	n, err := strconv.ParseFloat(digits, 64)
	if err != nil {
		return "", false
	}
	raised := strconv.FormatFloat(n+1, 'g', 14, 64)
	if back, err := strconv.ParseFloat(raised, 64); err != nil || back != n+1 {
		return "", false // more digits than cjson keeps
	}
	return text[:start] + raised + text[end:], true
}

// The script's scanner agrees with a JSON decoder about every text.
func TestReserveAgreesWithAModel(t *testing.T) {
	q := newQueue(t, nil)
	rapid.Check(t, func(rt *rapid.T) {
		text := object(rt, 0)
		want, ok := counted(text)
		q.app.FlushDB(t.Context())
		q.push(t, text)
		m := q.receive(t)
		if dead := m.Receipt.(receipt).dead; dead == ok {
			rt.Fatalf("%q: dead %v (%v), want %v", text, dead, m.Err, !ok)
		}
		if got := m.Receipt.(receipt).member; ok && got != want {
			rt.Fatalf("%q\nbecame %q\nwant   %q", text, got, want)
		}
		if string(m.Raw) != text {
			rt.Fatalf("Raw %q, want %q", m.Raw, text)
		}
	})
}

// Whatever bytes are on the list, one Receive takes one of them, and its answer
// leaves nothing behind.
func FuzzReserve(f *testing.F) {
	for _, s := range []string{payloadOf("1"), "", "hello", "{}", `{"attempts":"3"}`, `{"a":{"attempts":1},"attempts":1}`, "\x00", `"`, `{"attempts":1e999}`, `{"attempts":-0}`, `[{"attempts":1}]`, `{"a":"\"","attempts":1}`} {
		f.Add([]byte(s))
	}
	q := newQueue(f, nil)
	f.Fuzz(func(t *testing.T, raw []byte) {
		q.app.FlushDB(t.Context())
		q.push(t, string(raw))
		m := q.receive(t)
		if string(m.Raw) != string(raw) {
			t.Fatalf("Raw %q, want %q", m.Raw, raw)
		}
		r := m.Receipt.(receipt)
		if r.dead && !errors.Is(m.Err, worker.ErrUnreadable) {
			t.Fatalf("Err = %v", m.Err)
		}
		if !r.dead && r.member == string(raw) {
			t.Fatalf("reserved unchanged: %q", raw)
		}
		if err := q.Ack(t.Context(), m); err != nil {
			t.Fatal(err)
		}
		if keys := q.keys(t); len(keys) != 0 {
			t.Fatal(fmt.Sprint("left: ", keys))
		}
	})
}

package console

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	"zabor"
)

// Nothing in a CSV file is a formula of a spreadsheet or moves a terminal's cursor, and a
// key keeps its bytes.
func TestCells(t *testing.T) {
	t.Parallel()
	for s, want := range map[string][2]string{
		"":          {"", ""},
		"1001":      {"1001", "1001"},
		"=1+1":      {"'=1+1", "%3D1+1"},
		"+7":        {"'+7", "%2B7"},
		"-5":        {"'-5", "%2D5"},
		"@SUM(A1)":  {"'@SUM(A1)", "%40SUM(A1)"},
		"50%":       {"50%", "50%25"},
		"a\x1b[31m": {`"a\x1b[31m"`, "a%1B[31m"},
		"a\x00b":    {`"a\x00b"`, "a%00b"},
		"a\u202eb":  {`"a\u202eb"`, "a%E2%80%AEb"},
		"a\n=1+1":   {`"a\n=1+1"`, "a%0A=1+1"},
		"B\xfcro":   {`"B\xfcro"`, "B%FCro"},
	} {
		if got := Cell(s); got != want[0] {
			t.Errorf("Cell(%q)=%s, want %s", s, got, want[0])
		}
		key := KeyCell(s)
		if back, err := zabor.DecodeText(key); key != want[1] || err != nil || back != s {
			t.Errorf("KeyCell(%q)=%s, want %s; decoded %q, %v", s, key, want[1], back, err)
		}
	}
}

// A line of the log has keys as text, durations as people or programs read them, no empty
// field and no card.
func TestLogLines(t *testing.T) {
	t.Parallel()
	for format, want := range map[string]string{
		"json": `"level":"INFO","msg":"later","key":"shop:1001/charge","delay":300,"reason":"no, 411111******1111","state":"doubt"}`,
		"text": `level=INFO msg=later key=shop:1001/charge delay=5m0s reason="no, 411111******1111" state=doubt`,
	} {
		var b bytes.Buffer
		NewLog(&b, format, "info").Info("later", "key", zabor.Key{Scope: "shop", Order: "1001", Step: "charge"}, "none", zabor.Key{}, "order", "",
			"delay", 4*time.Minute+59*time.Second+999704942*time.Nanosecond, "reason", errors.New("no, 4111111111111111"), "state", zabor.Doubt, "was", zabor.State(""))
		if got := strings.TrimSpace(b.String()); !strings.HasSuffix(got, want) {
			t.Errorf("%s: %s\nwant … %s", format, got, want)
		}
	}
}

package console

import (
	"testing"

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

package audit

import (
	"os"
	"path/filepath"
	"testing"

	"zabor"
	"zabor/provider"
)

// Minor units are those of the provider that has made the export.
func TestExportUnits(t *testing.T) {
	path := filepath.Join(t.TempDir(), "payments.json")
	lines := `{"id":"pi_1","amount":199900,"currency":"isk"}` + "\n" + `{"id":"pi_2","amount":1999,"currency":"eur"}` + "\n"
	if err := os.WriteFile(path, []byte(lines), 0o600); err != nil {
		t.Fatal(err)
	}
	columns, err := ParseColumns("reference=/id,minor=/amount,currency=/currency")
	if err != nil {
		t.Fatal(err)
	}
	known, _ := provider.BuiltinNamed("stripe")
	for _, tt := range []struct {
		units provider.Units
		isk   int64
	}{{known.Units(), 1999}, {nil, 199900}} {
		var got []zabor.Money
		for s, err := range (Export{Path: path, Columns: &columns, Units: tt.units}).Successes() {
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, s.Amount)
		}
		if len(got) != 2 || got[0] != (zabor.Money{Minor: tt.isk, Currency: "ISK"}) || got[1] != (zabor.Money{Minor: 1999, Currency: "EUR"}) {
			t.Errorf("read as %v, want %d ISK and 1999 EUR", got, tt.isk)
		}
	}
}

package audit

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/bojanz/currency"

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

// In every currency of ISO 4217, what is sent to a provider and what an export of it says
// are the same money, in minor units and as a decimal. A currency that the provider has no
// source for is neither sent nor read.
func TestExportsOfEveryCurrency(t *testing.T) {
	t.Parallel()
	template, err := provider.NewTemplate(provider.RequestSpec{Path: "/", JSON: map[string]any{"minor": "{{minor}}", "major": "{{major}}"}})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "export")
	for _, known := range provider.Builtins() {
		if known.Uncallable != "" {
			continue
		}
		units := known.Units()
		if units == nil {
			t.Errorf("%s: its units are not known", known.Name)
		}
		refused := 0
		for _, code := range currency.GetCurrencyCodes() {
			money := zabor.Money{Minor: 1999000, Currency: code} // whole in every currency
			r, err := template.Render(provider.Vars{Order: "1", Step: "charge", ProviderKey: "k", Money: money, Units: units})
			sent := struct {
				Minor json.Number
				Major string
			}{"1999000", "1999000"}
			if _, taken := units.Decimals(code); taken != (err == nil) {
				t.Errorf("%s: %s is taken: %v, and sent: %v", known.Name, code, taken, err)
				continue
			}
			if err == nil {
				if err := json.Unmarshal(r.Body, &sent); err != nil {
					t.Fatal(err)
				}
			} else {
				refused++
			}
			for name, text := range map[string]string{"minor": sent.Minor.String(), "amount": sent.Major} {
				if err != nil && name == "amount" {
					continue // a decimal is the same for all providers
				}
				if err := os.WriteFile(path, fmt.Appendf(nil, "id,total,cur\np1,%s,%s\n", text, code), 0o600); err != nil {
					t.Fatal(err)
				}
				columns, parseErr := ParseColumns("reference=id,currency=cur," + name + "=total")
				if parseErr != nil {
					t.Fatal(parseErr)
				}
				for s, readErr := range (Export{Path: path, Columns: &columns, Units: units}).Successes() {
					if (readErr == nil) != (err == nil) || err == nil && s.Amount != money {
						t.Errorf("%s: %s of %s %s is read as %v, %v; want %v", known.Name, name, text, code, s.Amount, readErr, money)
					}
				}
			}
		}
		if refused == 0 {
			t.Errorf("%s takes every currency", known.Name)
		}
	}
}

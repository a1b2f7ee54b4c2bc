package provider_test

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bojanz/currency"
	"github.com/goccy/go-yaml"

	"zabor"
	"zabor/provider"
)

// unitsOf says how the calls of a provider write money: testdata/units.yaml, by hand
// after the providers' documents.
type unitsOf struct {
	// Two are the currencies with two decimals. "iso" stands for every currency with two
	// in ISO 4217 and in no other list.
	Two   []string `yaml:"two"`
	Zero  []string `yaml:"zero"`
	Three []string `yaml:"three"`
}

func (u unitsOf) decimals(code string) (int, bool) {
	for n, list := range [][]string{0: u.Zero, 2: u.Two, 3: u.Three} {
		if slices.Contains(list, code) {
			return n, true
		}
	}
	digits, _ := provider.Digits(code)
	return digits, digits == 2 && slices.Contains(u.Two, "iso")
}

func readUnits(t testing.TB) map[string]map[string]unitsOf {
	t.Helper()
	data, err := os.ReadFile("testdata/units.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var all map[string]map[string]unitsOf
	if err := yaml.UnmarshalWithOptions(data, &all, yaml.Strict()); err != nil {
		t.Fatal(err)
	}
	return all
}

// unitsFault is the first difference in the units of one line; empty: there is none.
func unitsFault(t testing.TB, name string, p provider.Profile, line string) string {
	t.Helper()
	l, _ := lineNamed(p, line)
	table, ok := readUnits(t)[name]
	if !ok {
		return "there are no units in the samples"
	}
	want, ok := table[line]
	if !ok {
		want = table["all"]
	}
	if l.Amount.Minor == "" && l.Amount.Major == "" && l.Amount.Asked == "" {
		return "" // its money is not compared
	}
	units := []provider.Units{l.Amount.Units}
	if u := l.Lookup; u != nil {
		for _, read := range []*provider.Reading{u.Hit, u.Object} {
			if read != nil {
				units = append(units, read.Amount.Units)
			}
		}
	}
	for i, code := range slices.Repeat(currency.GetCurrencyCodes(), len(units)) {
		n, taken := units[i/len(currency.GetCurrencyCodes())].Decimals(code)
		if wantN, wanted := want.decimals(code); taken != wanted || taken && n != wantN {
			return fmt.Sprintf("%s: %d decimals, %v, want %d, %v", code, n, taken, wantN, wanted)
		}
	}
	return ""
}

// Request, answer and list have the same money, in every currency of ISO 4217 at every
// call of every profile. A currency without a source is refused.
func TestMoneyEverywhere(t *testing.T) {
	t.Parallel()
	samples := readSamples(t)
	for name, s := range samples {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, bench := profileOf(t, name, s), newBench(t)
			pr, err := provider.New("bank", p, provider.Options{BaseURL: bench.url})
			if err != nil {
				t.Fatal(err)
			}
			for line, sample := range s.Lines {
				if wrong := unitsFault(t, name, p, line); wrong != "" {
					t.Errorf("%s: %s", line, wrong)
				}
				l, _ := lineNamed(p, line)
				if l.Amount.Minor == "" && l.Amount.Major == "" {
					continue
				}
				word := ""
				for w, is := range sample.Words {
					if is == "settled" {
						word = w
					}
				}
				for _, code := range currency.GetCurrencyCodes() {
					decimals, taken := l.Amount.Units.Decimals(code)
					iso, _ := provider.Digits(code)
					minor := int64(1999000) // whole in every currency
					row := zabor.Row{Key: zabor.Key{Order: "1001", Step: "charge"}, Endpoint: zabor.Endpoint{Provider: "bank"}, ProviderKey: sampleKey, Amount: zabor.Money{Minor: minor, Currency: code}, Tries: 1, Unproven: 1}
					if sample.Prepared {
						row.Open.PrepareKey, row.Prepared = otherKey, "prep_1"
					}
					template, err := provider.NewTemplate(sample.spec())
					if err != nil {
						t.Fatal(err)
					}
					r, err := template.Render(provider.Vars{Order: "1001", Step: "charge", ProviderKey: sampleKey, Money: row.Amount, Units: l.Amount.Units})
					if names := strings.Contains(fmt.Sprint(sample.Form, sample.JSON), "{{m"); !taken {
						if err == nil && names {
							t.Errorf("%s: %s is sent and has no source", line, code)
						}
						continue
					} else if err != nil {
						t.Errorf("%s: %s: %v", line, code, err)
						continue
					}
					if row.Open.Request, err = provider.Freeze(r); err != nil {
						t.Fatal(err)
					}
					if _, err := pr.Preview(row); err != nil {
						t.Errorf("%s: %s would not be sent: %v", line, code, err)
					}
					// The provider's own number, worked out by the decimals alone.
					theirs := fmt.Sprint(minor)
					for range iso - decimals {
						theirs = strings.TrimSuffix(theirs, "0")
					}
					theirs += strings.Repeat("0", max(0, decimals-iso))
					major := theirs
					if decimals > 0 {
						major = theirs[:len(theirs)-decimals] + "." + theirs[len(theirs)-decimals:]
					}
					if text := string(r.Body); strings.Contains(fmt.Sprint(sample.Form, sample.JSON), "{{minor}}") && !strings.Contains(text, theirs) ||
						strings.Contains(fmt.Sprint(sample.Form, sample.JSON), "{{major}}") && !strings.Contains(text, major) {
						t.Errorf("%s: %s is sent as %s, want %s or %s", line, code, text, theirs, major)
					}
					money := strings.NewReplacer("19.99", major, "1999", theirs, "EUR", code, "eur", strings.ToLower(code), "RUB", code, "NGN", code, "INR", code, "GBP", code, "BRL", code, "WORD", word)
					answer := keyed(money.Replace(sample.Body))
					if p.List != nil && p.List.Of == line {
						bench.give.Store(&told{Status: 200, Body: listing(t, p.List, answer)})
						listed, _, err := pr.List(t.Context(), time.Time{}, "")
						if err != nil || len(listed) != 1 || listed[0].Amount != row.Amount {
							t.Errorf("%s: the list says %+v, %v, want %v", line, listed, err, row.Amount)
						}
					}
					o := pr.Judge(provider.Reply{Status: 200, Body: []byte(answer)}, row)
					if want := zabor.Done; word != "" && o.Verdict != want {
						t.Errorf("%s: %s is read back as %s (%s)", line, code, o.Verdict, o.Reason)
					}
				}
			}
		})
	}
}

// listing is a page of l with the one payment that an answer is about.
func listing(t *testing.T, l *provider.List, answer string) string {
	t.Helper()
	d := json.NewDecoder(strings.NewReader(answer))
	d.UseNumber()
	var entry map[string]any
	if err := d.Decode(&entry); err != nil {
		t.Fatal(err)
	}
	if l.As != "" {
		entry, _ = entry[l.As].(map[string]any)
	}
	entry[strings.TrimPrefix(l.Made, "/")] = "2026-11-30T12:00:00Z"
	var page any = []any{entry}
	names := strings.Split(l.Items, "/")
	for _, name := range slices.Backward(names[1:]) {
		page = map[string]any{name: page}
	}
	text, err := json.Marshal(page)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

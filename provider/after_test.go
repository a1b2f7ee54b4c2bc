package provider_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	"zabor"
	"zabor/provider"
)

// afterFaults lists the differences between what is asked about settled rows, and read
// from the answers, and the samples.
func (s *samples) afterFaults(t testing.TB, p provider.Profile, b *benchServer) (wrong []string) {
	t.Helper()
	pr, err := provider.New("bank", p, provider.Options{BaseURL: b.url})
	if err != nil {
		return []string{err.Error()}
	}
	for _, a := range s.After {
		row := zabor.Row{
			Key: zabor.Key{Order: "1001", Step: "charge"}, State: zabor.Settled, Endpoint: zabor.Endpoint{Provider: "bank"}, ProviderKey: sampleKey,
			Reference: a.Reference, Prepared: a.Prepared, Tries: 1, CapturedAt: time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC),
		}
		b.asked.Store(nil)
		b.give.Store(&told{Status: cmp.Or(a.Status, 200), Body: a.Body})
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		got, err := pr.WentBack(ctx, row)
		cancel()
		switch {
		case errors.Is(err, provider.ErrNoObject):
			got = "no object"
		case err != nil:
			got = "error"
		}
		if got != a.Is {
			wrong = append(wrong, fmt.Sprintf("%s, %s: %q, %v; want %q", a.Of, a.Body, got, err, a.Is))
		}
		text := ""
		if r := b.asked.Load(); r != nil {
			text = r.Method + " " + r.URL.RequestURI()
		}
		if want := keyed(a.Asks); a.Is != "no object" && text != want || a.Asks != "" && text != want {
			wrong = append(wrong, fmt.Sprintf("%s: asked %q, want %q", a.Of, text, want))
		}
	}
	return wrong
}

// What a provider says of a settled payment later is read as its sample has it, and each
// fact about that is missed by a sample.
func TestWentBack(t *testing.T) {
	t.Parallel()
	for name, s := range readSamples(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if len(s.After) == 0 {
				t.Fatal("no samples")
			}
			p, bench := profileOf(t, name, s), newBench(t)
			for _, wrong := range s.afterFaults(t, p, bench) {
				t.Error(wrong)
			}
			for i := range p.After {
				for n := 0; ; n++ {
					mutant, left, what := p, n, ""
					mutant.After = copyOf(reflect.ValueOf(p.After)).Interface().([]provider.After)
					if !spoilAt(reflect.ValueOf(&mutant.After[i]).Elem(), "", &left, &what) {
						break
					}
					if len(s.afterFaults(t, mutant, bench)) == 0 && !alikeAfter(what) {
						t.Errorf("%s%s: no sample misses it", p.After[i].Of, what)
					}
				}
				mutant := p
				mutant.After = slices.Delete(slices.Clone(p.After), i, i+1)
				if len(s.afterFaults(t, mutant, bench)) == 0 {
					t.Errorf("%s: no sample misses it", p.After[i].Of)
				}
			}
		})
	}
}

// alikeAfter reports whether a table without this fact does the same: a prefix only saves
// a request for another object, which is not found then.
func alikeAfter(what string) bool { return len(what) > 8 && what[:8] == ".Prefix:" }

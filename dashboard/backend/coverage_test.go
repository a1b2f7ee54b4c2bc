package backend

import (
	"fmt"
	"iter"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"zabor/audit"
	"zabor/audit/sources"
	"zabor/dashboard"
	"zabor/internal/config"
)

// An audit covers what it has read: each export by itself, and no export without a success.
func TestCoverage(t *testing.T) {
	t.Parallel()
	hour := func(h int) time.Time { return time.Date(2026, 3, 2, h, 0, 0, 0, time.UTC) }
	path := filepath.Join(t.TempDir(), "stripe.csv")
	export := func(provider, path string, hours ...int) (audit.Export, []audit.Success) {
		var all []audit.Success
		for i, h := range hours {
			s := audit.Success{Provider: provider, Reference: fmt.Sprint(path, i), Place: fmt.Sprint(path, ":", i+2)}
			if h > 0 {
				s.At = hour(h)
			}
			all = append(all, s)
		}
		return audit.Export{Path: path, Provider: provider}, all
	}
	one := map[string]*config.Provider{"stripe": {}}
	two := map[string]*config.Provider{"stripe": {}, "adyen": {}}
	for _, c := range []struct {
		name               string
		providers          map[string]*config.Provider
		exports            func(add func(audit.Export, []audit.Success))
		payments, messages bool
		want               []dashboard.Look
	}{
		{name: "a name", providers: two, exports: func(add func(audit.Export, []audit.Success)) { add(export("stripe", path, 7, 5, 6)) },
			want: []dashboard.Look{{Name: "stripe", First: hour(5), Last: hour(7)}}},
		{name: "each for itself", providers: two, exports: func(add func(audit.Export, []audit.Success)) {
			add(export("stripe", path, 1, 2))
			add(export("stripe", path+".2", 5, 6))
			add(export("adyen", path+".3", 8))
		}, want: []dashboard.Look{{Name: "stripe", First: hour(1), Last: hour(2)}, {Name: "stripe", First: hour(5), Last: hour(6)}, {Name: "adyen", First: hour(8), Last: hour(8)}}},
		{name: "no name, one provider", providers: one, exports: func(add func(audit.Export, []audit.Success)) { add(export("", path, 5)) },
			want: []dashboard.Look{{Name: "stripe", First: hour(5), Last: hour(5)}}},
		{name: "no name, two providers", providers: two, exports: func(add func(audit.Export, []audit.Success)) {
			add(export("", path, 5))
			add(export("", path+".2", 6))
		}, want: []dashboard.Look{{Name: path, First: hour(5), Last: hour(5)}, {Name: path + ".2", First: hour(6), Last: hour(6)}}},
		{name: "empty", providers: two, exports: func(add func(audit.Export, []audit.Success)) {
			add(export("stripe", path))
			add(export("adyen", path+".2", 6))
		}, want: []dashboard.Look{{Name: "adyen", First: hour(6), Last: hour(6)}}},
		{name: "no times", providers: two, exports: func(add func(audit.Export, []audit.Success)) { add(export("stripe", path, 0, 0)) },
			want: []dashboard.Look{{Name: "stripe"}}},
		{name: "payments and queues", providers: two, exports: func(add func(audit.Export, []audit.Success)) { add(export("stripe", path, 5)) }, payments: true, messages: true,
			want: []dashboard.Look{{Name: "stripe", First: hour(5), Last: hour(5)}, {Name: dashboard.LookPayments, First: hour(1)}, {Name: dashboard.LookMessages}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			begun := time.Now()
			a := &sources.Sources{File: &config.Config{File: config.File{Providers: c.providers}}, Since: hour(1)}
			ledger, err := audit.Open("")
			if err != nil {
				t.Fatal(err)
			}
			defer ledger.Close()
			if c.messages {
				if err := ledger.AddMessages(t.Context(), values[audit.Message](), nil); err != nil {
					t.Fatal(err)
				}
			}
			c.exports(func(e audit.Export, all []audit.Success) {
				a.Exports = append(a.Exports, e)
				if err := ledger.AddSuccesses(t.Context(), e.Path, values(all...), nil); err != nil {
					t.Fatal(err)
				}
			})
			payments := []audit.Payment{{Order: "1"}}
			if !c.payments {
				payments = nil // the query gave none
			}
			if err := ledger.AddPayments(t.Context(), values(payments...), nil); err != nil {
				t.Fatal(err)
			}
			if err := ledger.Join(t.Context()); err != nil {
				t.Fatal(err)
			}
			got, err := coverage(t.Context(), a, ledger)
			if err != nil {
				t.Fatal(err)
			}
			for i, look := range got {
				if look.Name != dashboard.LookPayments && look.Name != dashboard.LookMessages {
					continue
				}
				if look.Last.Before(begun.Add(-time.Second)) || look.Last.After(time.Now()) {
					t.Errorf("%s until %v, begun %v", look.Name, look.Last, begun)
				}
				got[i].Last = time.Time{}
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("looks %v, want %v", got, c.want)
			}
		})
	}
}

// values gives these.
func values[T any](list ...T) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		for _, v := range list {
			if !yield(v, nil) {
				return
			}
		}
	}
}

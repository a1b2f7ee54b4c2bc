package audit

import (
	"fmt"
	"slices"
	"testing"

	"zabor"
)

// What several sources know of one key is one payment, or says why it is not.
func TestClaimed(t *testing.T) {
	t.Parallel()
	of := func(order, reference string) Evidence {
		return Evidence{Key: zabor.Key{Scope: "shop", Order: order, Step: "charge"}, Reference: reference, Place: "here"}
	}
	with := func(e Evidence, change func(*Evidence)) Evidence { change(&e); return e }
	for name, tt := range map[string]struct {
		evidence []Evidence
		want     []string // order: reference aliases against
		homeless int
	}{
		"one":                     {[]Evidence{of("1", "a")}, []string{"1: a [] "}, 0},
		"two sources":             {[]Evidence{of("1", "a"), of("1", "a")}, []string{"1: a [] "}, 0},
		"two payments":            {[]Evidence{of("1", "a"), of("1", "b")}, []string{"1: a [] two payments, a and b"}, 0},
		"an alias":                {[]Evidence{of("1", "ch_1"), with(of("1", "pi_1"), func(e *Evidence) { e.Alias = "ch_1" })}, []string{"1: ch_1 [pi_1] "}, 0},
		"an alias that joins two": {[]Evidence{of("1", "ch_1"), of("1", "pi_1"), with(of("1", "pi_1"), func(e *Evidence) { e.Alias = "ch_1" })}, []string{"1: ch_1 [pi_1] "}, 0},
		"another alias":           {[]Evidence{of("1", "ch_1"), with(of("1", "pi_1"), func(e *Evidence) { e.Alias = "ch_2" })}, []string{"1: ch_1 [] two payments, ch_1 and pi_1"}, 0},
		"a line without an order": {[]Evidence{of("1", "ch_1"), with(of("", "pi_1"), func(e *Evidence) { e.Alias = "ch_1" })}, []string{"1: ch_1 [pi_1] "}, 0},
		"the other way round":     {[]Evidence{with(of("1", "pi_1"), func(e *Evidence) { e.Alias = "ch_1" }), of("", "ch_1")}, []string{"1: pi_1 [ch_1] "}, 0},
		"of another provider":     {[]Evidence{with(of("1", "7"), func(e *Evidence) { e.Provider = "a" }), with(of("", "7"), func(e *Evidence) { e.Provider = "b" })}, []string{"1: 7 [] "}, 1},
		"one reference for two orders": {[]Evidence{of("1", "a"), of("2", "a"), of("3", "c")},
			[]string{"1: a [] the reference a is that of 2/charge too", "2: a [] the reference a is that of 1/charge too", "3: c [] "}, 0},
		"through an alias": {[]Evidence{of("1", "ch_1"), with(of("2", "pi_1"), func(e *Evidence) { e.Alias = "ch_1" })},
			[]string{"1: ch_1 [] the reference ch_1 is that of 2/charge too", "2: pi_1 [ch_1] the reference pi_1 is that of 1/charge too"}, 0},
		"at two providers": {[]Evidence{with(of("1", "7"), func(e *Evidence) { e.Provider = "a" }), with(of("2", "7"), func(e *Evidence) { e.Provider = "b" })},
			[]string{"1: 7 [] ", "2: 7 [] "}, 0},
		"for two steps": {[]Evidence{of("1", "a"), with(of("1", "a"), func(e *Evidence) { e.Key.Step = "refund" })},
			[]string{"1: a [] the reference a is that of 1/refund too", "1: a [] the reference a is that of 1/charge too"}, 0},
		"placeholders": {[]Evidence{of("1", " pending "), of("2", "pending"), of("3", "0"), of("4", "00000000-0000-0000-0000-000000000000"), of("5", " pay_5 "), of("5", "pay_5"), of("6", "n/a")},
			[]string{"1:  [] ", "2:  [] ", "3:  [] ", "4:  [] ", "5: pay_5 [] ", "6:  [] "}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l, err := Open("")
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			var list []Evidence
			for _, e := range tt.evidence {
				list = append(list, e.WithoutPlaceholder())
			}
			if n, err := l.AddEvidence(t.Context(), 0, each(list), nil); err != nil || n != int64(len(list)) {
				t.Fatalf("%d, %v", n, err)
			}
			if err := l.JoinEvidence(t.Context()); err != nil {
				t.Fatal(err)
			}
			var got []string
			for c, err := range l.Claimed(t.Context()) {
				if err != nil {
					t.Fatal(err)
				}
				got = append(got, fmt.Sprintf("%s: %s %v %s", c.Key.Order, c.Reference, c.Aliases, c.Against))
			}
			if !slices.Equal(got, tt.want) {
				t.Errorf("got\n%q\nwant\n%q", got, tt.want)
			}
			n := 0
			for _, err := range l.Homeless(t.Context()) {
				if err != nil {
					t.Fatal(err)
				}
				n++
			}
			if n != tt.homeless {
				t.Errorf("%d without a key, want %d", n, tt.homeless)
			}
		})
	}
}

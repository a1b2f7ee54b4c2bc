package sqlstore

import (
	"fmt"
	"testing"

	"zabor"
)

// References finds the rows of many keys, byte for byte, and OpenMoney sums what is
// not closed.
func TestReferencesAndOpenMoney(t *testing.T) {
	onEach(t, func(t *testing.T, s *Store) {
		fence := &zabor.Fence{Store: s, Secret: make([]byte, zabor.MinSecret)}
		var keys []zabor.Key
		for i := range mostKeys + 5 {
			k := zabor.Key{Scope: "shop", Order: fmt.Sprintf("A%d", i), Step: "charge"}
			keys = append(keys, k, zabor.Key{Scope: "shop", Order: fmt.Sprintf("a%d", i), Step: "charge"})
			if i%50 != 0 {
				continue
			}
			if _, _, err := fence.ImportPayment(t.Context(), zabor.Payment{Key: k, Reference: "pay_" + k.Order, Reason: "r"}); err != nil {
				t.Fatal(err)
			}
		}
		found, err := s.Reports().References(t.Context(), keys)
		if err != nil || len(found) != 5 {
			t.Fatalf("%v, %v", found, err)
		}
		for k, refs := range found {
			if refs != [2]string{"pay_" + k.Order, ""} {
				t.Errorf("%s: %q", k, refs)
			}
		}
		for i, amount := range []zabor.Money{{Minor: 5, Currency: "EUR"}, {Minor: 7, Currency: "EUR"}, {Minor: 3, Currency: "JPY"}, {}} {
			if _, _, err := fence.ImportPayment(t.Context(), zabor.Payment{Key: zabor.Key{Scope: "shop/7", Order: fmt.Sprint(i), Step: "charge"}, Amount: amount, Reason: "r"}); err != nil {
				t.Fatal(err)
			}
		}
		sums, err := s.Reports().OpenMoney(t.Context(), "shop")
		want := []StateMoney{{zabor.Held, zabor.Money{}, 1}, {zabor.Held, zabor.Money{Minor: 12, Currency: "EUR"}, 2}, {zabor.Held, zabor.Money{Minor: 3, Currency: "JPY"}, 1}}
		if err != nil || fmt.Sprint(sums) != fmt.Sprint(want) {
			t.Errorf("%v, %v; want %v", sums, err, want)
		}
	})
}

// Replace is all or nothing, and of two that begin at the same values one does it.
func TestMetaReplace(t *testing.T) {
	onEach(t, func(t *testing.T, s *Store) {
		m := s.Meta()
		for name, value := range map[string]string{"n/1": "a", "n/2": "b", "n/3": "c"} {
			if err := m.Set(t.Context(), name, []byte(value)); err != nil {
				t.Fatal(err)
			}
		}
		is := func(want map[string]string) {
			t.Helper()
			all, err := m.All(t.Context(), "n/")
			if err != nil || len(all) != len(want) {
				t.Errorf("%q, %v; want %q", all, err, want)
			}
			for name, value := range want {
				if string(all[name]) != value {
					t.Errorf("%s is %q, want %q", name, all[name], value)
				}
			}
		}
		replace := func(want bool, name, value string, old map[string][]byte) {
			t.Helper()
			if done, err := m.Replace(t.Context(), old, name, []byte(value)); done != want || err != nil {
				t.Errorf("done %t, %v; want %t", done, err, want)
			}
		}
		replace(false, "n/all", "x", map[string][]byte{"n/1": []byte("a"), "n/2": []byte("other")})
		replace(false, "n/3", "x", map[string][]byte{"n/1": []byte("a")}) // it is there
		is(map[string]string{"n/1": "a", "n/2": "b", "n/3": "c"})
		replace(true, "n/all", "ab", map[string][]byte{"n/1": []byte("a"), "n/2": []byte("b")})
		replace(false, "n/all", "ab", map[string][]byte{"n/1": []byte("a"), "n/2": []byte("b")})
		replace(true, "n/all", "abc", map[string][]byte{"n/all": []byte("ab"), "n/3": []byte("c")})
		is(map[string]string{"n/all": "abc"})
	})
}

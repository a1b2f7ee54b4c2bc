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

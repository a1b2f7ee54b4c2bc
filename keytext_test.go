package zabor

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

// parseKey is the key whose text is the given one: nothing is lost in it.
func parseKey(text string) (k Key, err error) {
	slash := strings.LastIndex(text, "/")
	if slash < 0 {
		return k, errors.New("no slash")
	}
	order := text[:slash]
	var errs [3]error
	if colon := strings.LastIndex(order, ":"); colon >= 0 {
		k.Scope, errs[0] = DecodeText(order[:colon])
		order = order[colon+1:]
	}
	k.Order, errs[1] = DecodeText(order)
	k.Step, errs[2] = DecodeText(text[slash+1:])
	if err := errors.Join(append(errs[:], k.Validate())...); err != nil {
		return k, err
	}
	if k.String() != text {
		return k, fmt.Errorf("it is another spelling of %s", k)
	}
	return k, nil
}

func TestKeyText(t *testing.T) {
	for _, tt := range []struct {
		key  Key
		text string
	}{
		{Key{"", "1001", "charge"}, "1001/charge"},
		{Key{"shop", "1001", "charge"}, "shop:1001/charge"},
		{Key{"shop/7", "Zoë 7", "refund:R-7"}, "shop/7:Zoë 7/refund:R-7"},
		{Key{"shop:eu", "1001", "charge"}, "shop:eu:1001/charge"},
		{Key{"", "12:30/7", "charge"}, "12%3A30%2F7/charge"},
		{Key{"shop", "B\xfcro-17", "refund:a/b"}, "shop:B%FCro-17/refund:a%2Fb"},
		{Key{"shop", "50%", "charge"}, "shop:50%25/charge"},
		{Key{"shop", "a\x00\n\u202eb", "charge"}, "shop:a%00%0A%E2%80%AEb/charge"},
		{Key{"shop", "\ufffd", "charge"}, "shop:%EF%BF%BD/charge"},
	} {
		if got := tt.key.String(); got != tt.text {
			t.Errorf("%q is %s, want %s", tt.key, got, tt.text)
		}
		if got, err := parseKey(tt.text); err != nil || got != tt.key {
			t.Errorf("parseKey(%s) is %q, %v", tt.text, got, err)
		}
	}
	for _, text := range []string{"", "1001", "/charge", "1001/", ":1001/charge", "shop:/charge", "a%/c", "a%G0/c", "a%2", "%41/charge", "a%2fb/charge", "B\xfcro/charge"} {
		if k, err := parseKey(text); err == nil {
			t.Errorf("parseKey(%q) is %q", text, k)
		}
	}
}

// Every key comes back from its text, also through JSON.
func FuzzKeyText(f *testing.F) {
	f.Add("shop/7", "B\xfcro-17", "refund:R-7")
	f.Add("", "12:30/7", "charge")
	f.Add("a:b", "50%\x00\u2028", "x/y")
	f.Fuzz(func(t *testing.T, scope, order, step string) {
		k := Key{scope, order, step}
		if back, err := DecodeText(EncodeText(order)); err != nil || back != order {
			t.Fatalf("%q is %q, %v", order, back, err)
		}
		text := k.String()
		if !utf8.ValidString(text) {
			t.Fatalf("%q is %q: not UTF-8", k, text)
		}
		for _, r := range text {
			if !unicode.IsPrint(r) {
				t.Fatalf("%q is %q: %q does not print", k, text, r)
			}
		}
		if k.Validate() != nil {
			return
		}
		inJSON, err := json.Marshal(text)
		if err != nil {
			t.Fatal(err)
		}
		var read string
		if err := json.Unmarshal(inJSON, &read); err != nil || read != text {
			t.Fatalf("%q in JSON is %s, and then %q, %v", text, inJSON, read, err)
		}
		if back, err := parseKey(read); err != nil || back != k {
			t.Fatalf("%q is %s, and then %q, %v", k, text, back, err)
		}
	})
}

package seal

import (
	"bytes"
	"errors"
	"strings"
	"testing"
)

const (
	oldKey = "an old key of more than thirty-two bytes"
	newKey = "a new key of more than thirty-two bytes!"
)

func parse(t testing.TB, text string) *Keys {
	t.Helper()
	k, err := Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func TestSealAndOpen(t *testing.T) {
	k := parse(t, newKey)
	place := Place{"shop", "1001", "charge", "request"}
	for _, plain := range []string{"", "{}", "card on file", strings.Repeat("x", 1<<20)} {
		sealed := k.Seal([]byte(plain), place)
		if !Sealed(sealed) || len(plain) > 3 && bytes.Contains(sealed, []byte(plain)) {
			t.Fatalf("%.20q is not sealed: %.60q", plain, sealed)
		}
		if again := k.Seal([]byte(plain), place); bytes.Equal(again, sealed) {
			t.Errorf("%.20q is the same twice", plain)
		}
		if twice := k.Seal(sealed, place); !bytes.Equal(twice, sealed) {
			t.Errorf("%.20q was sealed twice", plain)
		}
		opened, err := k.Open(sealed, place)
		if err != nil || opened == nil || string(opened) != plain {
			t.Errorf("opened %.20q, %v; want %.20q", opened, err, plain)
		}
	}
	if k.Seal(nil, place) != nil {
		t.Error("nothing was sealed into something")
	}
}

// What is moved to another row or column, cut or changed is not opened.
func TestOnlyItsOwnPlaceOpens(t *testing.T) {
	k := parse(t, newKey)
	place := Place{"shop", "1001", "charge", "request"}
	sealed := k.Seal([]byte("pay 19.99"), place)
	for _, other := range []Place{
		{"shop", "1002", "charge", "request"}, {"shop", "1001", "charge", "answer"}, {"shop1", "001", "charge", "request"},
		{"shop", "1001", "charge"}, {"shop1001", "", "charge", "request"}, nil,
	} {
		if got, err := k.Open(sealed, other); !errors.Is(err, ErrSealed) || !bytes.Equal(got, sealed) {
			t.Errorf("at %v: %q, %v; want it sealed as it was, and %v", other, got, err, ErrSealed)
		}
	}
	for i := range sealed {
		changed := bytes.Clone(sealed)
		changed[i] ^= 1
		if got, err := k.Open(changed, place); err == nil && Sealed(changed) {
			t.Errorf("byte %d changed: opened %q", i, got)
		}
	}
	for n := len(mark) + idSize; n < len(sealed); n++ {
		if _, err := k.Open(sealed[:n], place); err == nil {
			t.Errorf("cut at %d: opened", n)
		}
	}
}

func TestRotation(t *testing.T) {
	place := Place{"x"}
	before := parse(t, oldKey).Seal([]byte("old"), place)
	both := parse(t, newKey+", "+oldKey)
	if got, err := both.Open(before, place); err != nil || string(got) != "old" {
		t.Errorf("%q, %v", got, err)
	}
	after := both.Seal([]byte("new"), place)
	if got, err := parse(t, newKey).Open(after, place); err != nil || string(got) != "new" {
		t.Errorf("%q, %v: the first key seals", got, err)
	}
	_, err := parse(t, newKey).Open(before, place)
	var e *Error
	if !errors.As(err, &e) || e.ID != parse(t, oldKey).ID() || !strings.Contains(err.Error(), e.ID) {
		t.Errorf("error %v, want one that names the key %s", err, parse(t, oldKey).ID())
	}
	off := parse(t, ","+newKey)
	if off.Seals() || string(off.Seal([]byte("plain"), place)) != "plain" {
		t.Error("a leading comma still seals")
	}
	if got, err := off.Open(after, place); err != nil || string(got) != "new" {
		t.Errorf("%q, %v", got, err)
	}
	var none *Keys
	if got, err := none.Open(after, place); !errors.Is(err, ErrSealed) || !bytes.Equal(got, after) {
		t.Errorf("without keys: %q, %v", got, err)
	}
	if got, err := none.Open([]byte("plain"), place); err != nil || string(got) != "plain" {
		t.Errorf("without keys: %q, %v", got, err)
	}
}

func TestParseErrors(t *testing.T) {
	for _, text := range []string{"hunter2", newKey + ",hunter2", newKey + ",", newKey + ",," + oldKey, ","} {
		k, err := Parse(text)
		if err == nil || k != nil {
			t.Errorf("%q: no error", text)
		} else if strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%q: the error holds it: %v", text, err)
		}
	}
	for _, text := range []string{"", "  "} {
		if k, err := Parse(text); k != nil || err != nil || k.Seals() || k.ID() != "" {
			t.Errorf("%q: %v, %v", text, k, err)
		}
	}
}

func FuzzOpen(f *testing.F) {
	k, err := Parse(newKey)
	if err != nil {
		f.Fatal(err)
	}
	f.Add([]byte("{}"))
	f.Add([]byte(mark))
	f.Add(k.Seal([]byte("x"), Place{"y"}))
	f.Fuzz(func(t *testing.T, b []byte) {
		got, err := k.Open(b, Place{"x"})
		if err == nil && Sealed(b) || err != nil && !bytes.Equal(got, b) {
			t.Errorf("%q: %q, %v", b, got, err)
		}
	})
}

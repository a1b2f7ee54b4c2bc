package zabor_test

import (
	"os/exec"
	"slices"
	"strings"
	"testing"

	"zabor"
)

// An installation has its own scope and those in it, and no others that begin alike.
func TestIn(t *testing.T) {
	for installation, scopes := range map[string]map[string]bool{
		"shop": {"shop": true, "shop/": true, "shop/7": true, "shop-2": false, "shop0": false, "": false, "/7": false, "Shop": false, "other/shop": false},
		"":     {"": true, "/7": true, "shop": true},
	} {
		for scope, want := range scopes {
			if got := (zabor.Key{Scope: scope, Order: "1", Step: "charge"}).In(installation); got != want {
				t.Errorf("%q in %q: %v, want %v", scope, installation, got, want)
			}
		}
	}
}

// A shell takes the command apart into the key as it was.
func TestShowCommand(t *testing.T) {
	for _, k := range []zabor.Key{
		{Order: "1001", Step: "charge"},
		{Scope: "shop", Order: "A-1/2", Step: "refund:R-7"},
		{Scope: "shop/m 1", Order: "1001", Step: "charge"},
		{Order: "$(touch x); 'it''s' \"q\" `id` *", Step: "charge"},
		{Order: "-rf", Step: "charge"},
		{Order: "№ 7\n8", Step: "charge"},
		{Order: "B\xfcro-17 50%", Step: "it's"},
	} {
		out, err := exec.Command("bash", "-c", `zabor() { printf '%s\0' "$@"; }; `+k.ShowCommand()).Output()
		if err != nil {
			t.Fatalf("%+v: %v", k, err)
		}
		want := []string{"fence", "show"}
		if _, inner, ok := strings.Cut(k.Scope, "/"); ok {
			want = append(want, "--scope="+inner)
		}
		if k.Order[0] == '-' {
			want = append(want, "--")
		}
		want = append(want, k.Order, k.Step)
		if got := strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00"); !slices.Equal(got, want) {
			t.Errorf("%s\nis %q\nwant %q", k.ShowCommand(), got, want)
		}
	}
	if got, want := (zabor.Key{Scope: "shop", Order: "1001", Step: "refund:R-7"}).ShowCommand(), "zabor fence show 1001 refund:R-7"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

package zabor_test

import (
	"os/exec"
	"slices"
	"strings"
	"testing"

	"zabor"
)

// A shell takes the command apart into the key as it was.
func TestShowCommand(t *testing.T) {
	for _, k := range []zabor.Key{
		{Order: "1001", Step: "charge"},
		{Scope: "shop", Order: "A-1/2", Step: "refund:R-7"},
		{Scope: "shop/m 1", Order: "1001", Step: "charge"},
		{Order: "$(touch x); 'it''s' \"q\" `id` *", Step: "charge"},
		{Order: "-rf", Step: "charge"},
		{Order: "№ 7\n8", Step: "charge"},
	} {
		out, err := exec.Command("sh", "-c", `zabor() { printf '%s\0' "$@"; }; `+k.ShowCommand()).Output()
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

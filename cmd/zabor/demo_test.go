package main

import (
	"encoding/json"
	"testing"
)

func TestDemo(t *testing.T) {
	t.Parallel()
	p := start(t, "demo", "--json")
	p.exit(0)
	var got struct {
		ProviderSuccesses *int `json:"provider_successes"`
		UniqueRows        *int `json:"unique_rows"`
		DoubleCharged     *int `json:"double_charged"`
		Lost              *int `json:"lost"`
		Kills             *int `json:"kills"`
	}
	if err := json.Unmarshal([]byte(p.log.String()), &got); err != nil {
		t.Fatal(err)
	}
	for name, field := range map[string]struct {
		got  *int
		want int
	}{
		"provider_successes": {got.ProviderSuccesses, 40}, "unique_rows": {got.UniqueRows, 40},
		"double_charged": {got.DoubleCharged, 0}, "lost": {got.Lost, 0}, "kills": {got.Kills, 12},
	} {
		if field.got == nil || *field.got != field.want {
			t.Errorf("%s: want %d in %s", name, field.want, p.log.String())
		}
	}
}

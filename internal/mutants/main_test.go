package main

import (
	"fmt"
	"strings"
	"testing"
)

// Every mutant still changes what it is about, and every invariant has one.
func TestMutantsApply(t *testing.T) {
	all, err := parse(list)
	if err != nil {
		t.Fatal(err)
	}
	names := ""
	for _, m := range all {
		names += m.name + "\n"
		content, err := m.apply("../..")
		if err != nil {
			t.Error(err)
		} else if m.old == m.new || len(content) == 0 {
			t.Errorf("%s changes nothing", m.name)
		}
	}
	for i := range 10 {
		if invariant := fmt.Sprintf("I%d ", i+1); !strings.Contains(names, invariant) {
			t.Errorf("no mutant breaks %s", invariant)
		}
	}
}

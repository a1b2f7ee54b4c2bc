package main

import (
	"bytes"
	"strings"
	"testing"

	"zabor/internal/exit"
)

// The program alone shows its help.
func TestNoWords(t *testing.T) {
	t.Parallel()
	var out, errs bytes.Buffer
	if code := run(t.Context(), nil, &out, &errs); code != exit.Good || !strings.Contains(out.String(), "Usage: zabor <command>") || errs.Len() > 0 {
		t.Errorf("exit %d: %s%s", code, out.String(), errs.String())
	}
}

package config

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Finding is one thing that is to be said about a configuration file. It never
// holds the value of an environment variable or of a secret file.
type Finding struct {
	File   string `json:"file"`
	Line   int    `json:"line"`   // from 1; 0: no line to point at
	Column int    `json:"column"` // from 1, in characters
	Key    string `json:"key"`    // path of the setting, such as queues.payments.laravel; empty: the file
	What   string `json:"what"`   // what is wrong, with the value as it is written in the file
	Fix    string `json:"fix"`    // what to write instead
}

// String is f on one line: file:line:col: key: what: fix.
func (f Finding) String() string {
	var b strings.Builder
	b.WriteString(f.File)
	if f.Line > 0 {
		fmt.Fprintf(&b, ":%d:%d", f.Line, f.Column)
	}
	for _, part := range []string{f.Key, f.What, f.Fix} {
		if part != "" {
			b.WriteString(": " + part)
		}
	}
	return b.String()
}

// Errors are all findings that keep a file from being used, in the order of
// the file.
type Errors []Finding

func (e Errors) Error() string {
	lines := make([]string, len(e))
	for i, f := range e {
		lines[i] = f.String()
	}
	return strings.Join(lines, "\n")
}

// inOrder sorts findings as they stand in the file.
func inOrder(findings []Finding) {
	slices.SortStableFunc(findings, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
}

// position is a place in the file.
type position struct{ line, column int }

// path is where a setting is, from the top of the file.
type path []string

func (p path) String() string { return strings.Join(p, ".") }

// child is p with one key more. It does not share memory with its siblings.
func (p path) child(key string) path { return append(slices.Clip(p), key) }

// index is p with the number of a list's entry behind its last key.
func (p path) index(i int) path {
	next := slices.Clone(p)
	next[len(next)-1] += fmt.Sprintf("[%d]", i)
	return next
}

// nearest returns the name most like s, or "" when none is like it: at most
// every third letter may differ.
func nearest(s string, names []string) string {
	best, limit := "", max(1, len(s)/3)+1
	for _, name := range names {
		if d := distance(strings.ToLower(s), strings.ToLower(name)); d < limit {
			best, limit = name, d
		}
	}
	return best
}

// distance is how many letters must be put in, taken out, changed or swapped
// with their neighbour to make b of a.
func distance(a, b string) int {
	x, y := []rune(a), []rune(b)
	rows := make([][]int, len(x)+1)
	for i := range rows {
		rows[i] = make([]int, len(y)+1)
		rows[i][0] = i
	}
	for j := range rows[0] {
		rows[0][j] = j
	}
	for i := 1; i <= len(x); i++ {
		for j := 1; j <= len(y); j++ {
			change := 1
			if x[i-1] == y[j-1] {
				change = 0
			}
			rows[i][j] = min(rows[i-1][j]+1, rows[i][j-1]+1, rows[i-1][j-1]+change)
			if i > 1 && j > 1 && x[i-1] == y[j-2] && x[i-2] == y[j-1] {
				rows[i][j] = min(rows[i][j], rows[i-2][j-2]+1)
			}
		}
	}
	return rows[len(x)][len(y)]
}

package step

import (
	"database/sql"
	"slices"
	"strings"
	"testing"
)

func TestSelect(t *testing.T) {
	all := []Dialect{MySQL, Postgres, SQLite}
	for _, test := range []struct {
		name     string
		dialects []Dialect
		in       string
		out      string // with ? for parameters; PostgreSQL's $1, $2 are tried too
		names    string
	}{
		{"one", all, "SELECT a FROM t WHERE id = :order", "SELECT a FROM t WHERE id = ?", "order"},
		{"twice", all, "select a from t where id=:order or x=:order and s=:scope", "select a from t where id=? or x=? and s=?", "order order scope"},
		{"none", all, "SELECT 1", "SELECT 1", ""},
		{"a property of a property", all, "SELECT 1 WHERE x = :order.id AND y = :a.b.c", "SELECT 1 WHERE x = ? AND y = ?", "order.id a.b.c"},
		{"a point behind", all, "SELECT :a.", "SELECT ?.", "a"},
		{"a semicolon at the end", all, "SELECT :a ; \n", "SELECT ?", "a"},
		{"in a text", all, "SELECT ':a', 'it''s :b' , :c", "SELECT ':a', 'it''s :b' , ?", "c"},
		{"in a quoted name", all, `SELECT ":a"":b", :c`, `SELECT ":a"":b", ?`, "c"},
		{"in a comment", all, "SELECT 1 -- :a ?\n, :b /* :c ? ' */ , 2", "SELECT 1  , ?   , 2", "b"},
		{"a comment at the end", all, "SELECT 1 -- :a", "SELECT 1", ""},
		{"with", all, "WITH x AS (SELECT 1) SELECT * FROM x", "WITH x AS (SELECT 1) SELECT * FROM x", ""},
		{"a column named like a refused word", all, "SELECT t.update, \"delete\" FROM t", "SELECT t.update, \"delete\" FROM t", ""},
		{"words that begin like one", all, "SELECT updated_at, INTO_x FROM t", "SELECT updated_at, INTO_x FROM t", ""},
		{"unicode", all, "SELECT größe FROM t WHERE x = :größe", "SELECT größe FROM t WHERE x = ?", "größe"},

		{"backslash", []Dialect{MySQL}, `SELECT 'it\'s :a', :b`, `SELECT 'it\'s :a', ?`, "b"},
		{"no backslash", []Dialect{Postgres, SQLite}, `SELECT 'C:\', :b`, `SELECT 'C:\', ?`, "b"},
		{"E string", []Dialect{Postgres}, `SELECT E'it\'s :a', e'\\', :b`, `SELECT E'it\'s :a', e'\\', ?`, "b"},
		{"a word that ends in e", []Dialect{Postgres}, `SELECT date'\', :b`, `SELECT date'\', ?`, "b"},
		{"backticks", []Dialect{MySQL, SQLite}, "SELECT `:a``b`, :c", "SELECT `:a``b`, ?", "c"},
		{"hash", []Dialect{MySQL}, "SELECT 1 # :a '\n, :b", "SELECT 1  , ?", "b"},
		{"no comment in MySQL", []Dialect{MySQL}, "SELECT 1--:a", "SELECT 1--?", "a"},
		{"brackets", []Dialect{SQLite}, "SELECT [:a], :b", "SELECT [:a], ?", "b"},
		{"dollar quotes", []Dialect{Postgres}, "SELECT $$ :a ' $$, $x$ $$ :b $x$, :c", "SELECT $$ :a ' $$, $x$ $$ :b $x$, ?", "c"},
		{"casts", []Dialect{Postgres}, "SELECT :a::int, x::text, CAST(:b AS int)", "SELECT ?::int, x::text, CAST(? AS int)", "a b"},
		{"slices", []Dialect{Postgres}, "SELECT x[1:2], x[m:n], x[f(1):n], :a", "SELECT x[1:2], x[m:n], x[f(1):n], ?", "a"},
		{"nested comments", []Dialect{Postgres}, "SELECT /* /* :a */ :b */ :c", "SELECT   ?", "c"},
		{"comments do not nest", []Dialect{MySQL, SQLite}, "SELECT /* /* :a */ :b", "SELECT   ?", "b"},
		{"a question mark that is an operator", []Dialect{Postgres}, "SELECT a ? 'b', :c", "SELECT a ? 'b', ?", "c"},
	} {
		for _, dialect := range test.dialects {
			t.Run(test.name+"/"+string(dialect), func(t *testing.T) {
				got, err := compileSelect(test.in, dialect)
				if err != nil {
					t.Fatal(err)
				}
				want := test.out
				if dialect == Postgres && test.name != "a question mark that is an operator" {
					for i := range len(got.names) {
						want = strings.Replace(want, "?", "$"+string(rune('1'+i)), 1)
					}
				} else if dialect == Postgres {
					want = "SELECT a ? 'b', $1"
				}
				if got.query != want || !slices.Equal(got.names, strings.Fields(test.names)) {
					t.Errorf("%s\n became %s with %q\n   want %s with %s", test.in, got.query, got.names, want, test.names)
				}
			})
		}
	}
}

func TestSelectRefuses(t *testing.T) {
	all := []Dialect{MySQL, Postgres, SQLite}
	for _, test := range []struct {
		dialects []Dialect
		in, says string
	}{
		{all, "", "there is no statement"},
		{all, " -- nothing", "there is no statement"},
		{all, "EXPLAIN SELECT 1", "it begins with EXPLAIN"},
		{all, "UPDATE t SET a = 1", "UPDATE: one SELECT"},
		{all, "SELECT 1; SELECT 2", "behind the semicolon"},
		{all, "SELECT 1;;", "behind the semicolon"},
		{all, "SELECT a INTO b FROM t", "INTO: one SELECT"},
		{all, "WITH x AS (DELETE FROM t RETURNING a) SELECT * FROM x", "DELETE: one SELECT"},
		{all, "SELECT a FROM t FOR UPDATE", "UPDATE: one SELECT"},
		{all, "SELECT a FROM t FOR SHARE", "SHARE: one SELECT"},
		{all, "SELECT 'a", "a text that begins with ' does not end"},
		{all, `SELECT "a`, `a text that begins with " does not end`},
		{all, "SELECT /* a", "a comment does not end"},
		{[]Dialect{MySQL, SQLite}, "SELECT ?", "? is a parameter without a name"},
		{[]Dialect{Postgres}, "SELECT $1", "$ is a parameter without a name"},
		{[]Dialect{SQLite}, "SELECT @a", "@ is a parameter without a name"},
		{[]Dialect{MySQL}, "SELECT /*! 1 */", "a comment that MySQL executes"},
		{[]Dialect{MySQL}, "SELECT /*M!100000 1 */", "a comment that MySQL executes"},
		{[]Dialect{Postgres}, "SELECT $x$ a $y$", "does not end"},
		{[]Dialect{Postgres}, "SELECT /* /* a */", "a comment does not end"},
	} {
		for _, dialect := range test.dialects {
			if got, err := compileSelect(test.in, dialect); err == nil || !strings.Contains(err.Error(), test.says) {
				t.Errorf("%s: %q became %q, error %v; want %q", dialect, test.in, got.query, err, test.says)
			}
		}
	}
}

// The databases themselves agree on where texts and comments end.
func TestSelectAsTheDatabasesReadIt(t *testing.T) {
	queries := map[Dialect][]string{
		MySQL: {
			`SELECT 'it\'s :x ?' AS a, :order AS b`, "SELECT ':x''?' AS a, :order AS b", `SELECT "\":x?" AS a, :order AS b`,
			"SELECT 'x' AS `a`, 1 -- :x ?\n, :order AS b", "SELECT 'x' AS a, # :x ? '\n :order AS b", "SELECT 'x' AS a, /* :x ? ' */ :order AS b",
			"SELECT 3--1 AS a, :order AS b",
		},
		Postgres: {
			`SELECT E'it\'s :x' AS a, :order AS b`, `SELECT '\' AS a, :order AS b`, "SELECT $$:x '$$ AS a, :order AS b", "SELECT $q$ $$ :x $q$ AS a, :order::text AS b",
			"SELECT /* /* :x */ ' */ 'x' AS a, :order AS b", "SELECT (ARRAY[1,2])[1:2]::text AS a, :order AS b", `SELECT 'x' AS ":x""y", :order AS b`,
		},
		SQLite: {
			`SELECT '\' AS a, :order AS b`, "SELECT 'x' AS [:x], :order AS b", "SELECT 'x' AS `:x``?`, :order AS b", "SELECT 'x' AS a, /* :x ? ' */ :order AS b",
			"SELECT 1 --:x ?\n AS a, :order AS b",
		},
	}
	eachDatabase(t, func(t *testing.T, db *sql.DB, dialect Dialect) {
		for _, query := range queries[dialect] {
			s := charge(t, db, dialect, query)
			m := Message{Data: map[string]any{"orderId": "A?:1", "x": "never"}}
			key, err := s.Key(m)
			if err != nil {
				t.Fatal(err)
			}
			got, err := s.load(t.Context(), key, m.Data)
			if err != nil || got["b"] != "A?:1" {
				t.Errorf("%s: loaded %v, %v", query, got, err)
			}
		}
	})
}

// Whatever is not a parameter stays as it stands, in its order; nothing of a
// parameter's text remains.
func FuzzSelect(f *testing.F) {
	for _, seed := range []string{
		"SELECT a FROM t WHERE id = :order", "SELECT ':a', \"b\", `c` -- x\n, :d", "SELECT $$ ' $$, $x$ y $x$", "SELECT /* /* */ */ 1",
		"SELECT E'\\'' , x::int[1:2]", "SELECT 1; ", "WITH x AS (SELECT 1) SELECT :a.b FROM x", "SELECT '", "/*!", "--", "#", "[", "$", ":", "::", ":a:b", "é:é",
	} {
		for d := range byte(3) {
			f.Add(seed, d)
		}
	}
	f.Fuzz(func(t *testing.T, query string, d byte) {
		dialect := []Dialect{MySQL, Postgres, SQLite}[d%3]
		got, err := compileSelect(query, dialect)
		if err != nil {
			return
		}
		for _, name := range got.names {
			if name == "" || strings.ContainsAny(name, " '\"?:;") {
				t.Errorf("%q has the parameter %q", query, name)
			}
		}
		again, err := compileSelect(strings.NewReplacer("?", ":p").Replace(got.query), dialect)
		if dialect != Postgres && !strings.ContainsAny(query, "?'\"`[") && (err != nil || len(again.names) != len(got.names)) {
			t.Errorf("%q became %q with %q, and again %q, %v", query, got.query, got.names, again.names, err)
		}
		if dialect == Postgres && strings.Count(got.query, "$") < len(got.names) {
			t.Errorf("%q became %q with %q", query, got.query, got.names)
		}
	})
}

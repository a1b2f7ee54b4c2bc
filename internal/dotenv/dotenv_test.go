package dotenv

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestRead(t *testing.T) {
	env := func(name string) (string, bool) { return "from outside", name == "OUTSIDE" }
	for _, test := range []struct {
		name, in string
		want     map[string]string
		says     string
	}{
		{"nothing", "", map[string]string{}, ""},
		{"plain", "A=1\nB = two words \n", map[string]string{"A": "1", "B": "two words"}, ""},
		{"comments", "# A=0\n\nA=1 # one\nB=a#b\nC=#c\n", map[string]string{"A": "1", "B": "a#b", "C": ""}, ""},
		{"export", "export A=1", map[string]string{"A": "1"}, ""},
		{"Windows", "\ufeffA=1\r\nB=\"x\"\r\n", map[string]string{"A": "1", "B": "x"}, ""},
		{"Laravel's nothing", "A=null\nB=(null)\nC=empty\nD=(empty)\nE=NULL\nF=\nG=nullx\nH='null'", map[string]string{"A": "", "B": "", "C": "", "D": "", "E": "", "F": "", "G": "nullx", "H": "null"}, ""},
		{"single quotes", `A='x "y" \n $Z ${B} # c' # d`, map[string]string{"A": `x "y" \n $Z ${B} # c`}, ""},
		{"double quotes", `A="x \"y\" \\ \n\t\$ # \z" # d`, map[string]string{"A": "x \"y\" \\ \n\t$ # \\z"}, ""},
		{"over several lines", "A=\"x\ny\"\nB=1", map[string]string{"A": "x\ny", "B": "1"}, ""},
		{"references", "A=a\nB=${A}/b\nC=\"${B} ${OUTSIDE}\"\nD='${A}'\nE=${NONE}$A$", map[string]string{"A": "a", "B": "a/b", "C": "a/b from outside", "D": "${A}", "E": "${NONE}$A$"}, ""},
		{"an equals sign", "A=b=c==", map[string]string{"A": "b=c=="}, ""},
		{"a value is not taken for another", "A='${B}'\nB=1\nC=${A}", map[string]string{"A": "${B}", "B": "1", "C": "${B}"}, ""},
		{"the last one wins", "A=1\nA=2", map[string]string{"A": "2"}, ""},
		{"no equals sign", "A=1\ntopsecret\n", nil, ".env:2: no = in the line"},
		{"no name", "A=1\n\ntop secret=1\n", nil, ".env:3: what stands before = is not a name"},
		{"no closing quote", "A=1\nB=\"topsecret\nx", nil, ".env:2: the value of B has no closing quote"},
		{"behind the quote", "A='x'topsecret", nil, ".env:1: something stands behind the closing quote of A"},
	} {
		t.Run(test.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), ".env")
			if err := os.WriteFile(path, []byte(test.in), 0o600); err != nil {
				t.Fatal(err)
			}
			got, err := Read(path, env)
			if test.says != "" {
				if err == nil || !strings.Contains(err.Error(), test.says) || strings.Contains(err.Error(), "topsecret") {
					t.Fatalf("error %v, want %q and no value", err, test.says)
				}
				return
			}
			if err != nil || len(got) != len(test.want) {
				t.Fatalf("got %q, %v; want %q", got, err, test.want)
			}
			for name, want := range test.want {
				if got[name] != want {
					t.Errorf("%s=%q, want %q", name, got[name], want)
				}
			}
		})
	}
	if _, err := Read("/nonexistent/.env", env); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("error %v, want one of the missing file", err)
	}
}

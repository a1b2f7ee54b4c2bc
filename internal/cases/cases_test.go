// Package cases keeps docs/cases.md true.
package cases

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Each test that docs/cases.md names exists, in the package that it names.
func TestEachCaseHasItsTests(t *testing.T) {
	root := filepath.Join("..", "..")
	text, err := os.ReadFile(filepath.Join(root, "docs", "cases.md"))
	if err != nil {
		t.Fatal(err)
	}
	sources := map[string]string{} // of tests, by package
	for _, line := range strings.Split(string(text), "\n") {
		if !strings.HasPrefix(line, "| ") || strings.HasPrefix(line, "| | ") || strings.HasPrefix(line, "| --- ") {
			continue
		}
		columns := strings.Split(line, " | ")
		names := regexp.MustCompile("`[^`]+`").FindAllString(columns[len(columns)-1], -1)
		if len(names) == 0 {
			t.Errorf("no test: %s", line)
		}
		for _, name := range names {
			dir, test, ok := strings.Cut(strings.Trim(name, "`"), ".")
			if !ok {
				continue // a command
			}
			if dir == "zabor" {
				dir = "."
			}
			if _, ok := sources[dir]; !ok {
				files, _ := filepath.Glob(filepath.Join(root, dir, "*_test.go"))
				for _, file := range files {
					content, err := os.ReadFile(file)
					if err != nil {
						t.Fatal(err)
					}
					sources[dir] += string(content)
				}
			}
			if !strings.Contains(sources[dir], "\nfunc "+test+"(t *testing.T)") && !strings.Contains(sources[dir], "\nfunc "+test+"(f *testing.F)") {
				t.Errorf("%s: there is no such test", name)
			}
		}
	}
	if len(sources) < 5 {
		t.Errorf("tests of %d packages are named: has the page another form?", len(sources))
	}
}

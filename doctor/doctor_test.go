package doctor

import (
	"bufio"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"zabor/internal/app"
)

// open reads a project of testdata with an empty environment.
func open(t testing.TB, folder string) *app.Project {
	t.Helper()
	p, err := app.Open(folder, app.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// places are findings as "file:line code", files from folder.
func places(folder string, findings []Finding, notes bool) []string {
	list := []string{}
	for _, f := range findings {
		if f.Severity != Note || notes {
			list = append(list, fmt.Sprintf("%s:%d %s", strings.TrimPrefix(f.Where, folder+"/"), f.Line, f.Code))
		}
	}
	slices.Sort(list)
	return slices.Compact(list)
}

var marker = regexp.MustCompile(`(?:#|//|;) (ZB\d{3}(?: ZB\d{3})*)\s*$`)

// marked are the findings that the files of a bad shop announce: a comment with
// codes at the end of a line.
func marked(t testing.TB, folder string) []string {
	t.Helper()
	list := []string{}
	err := filepath.WalkDir(folder, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		file, err := os.Open(path)
		if err != nil {
			return err
		}
		defer file.Close()
		lines := bufio.NewScanner(file)
		for n := 1; lines.Scan(); n++ {
			m := marker.FindStringSubmatch(lines.Text())
			if m == nil {
				continue
			}
			for code := range strings.FieldsSeq(m[1]) {
				list = append(list, fmt.Sprintf("%s:%d %s", strings.TrimPrefix(filepath.ToSlash(path), folder+"/"), n, code))
			}
		}
		return lines.Err()
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// differ reports the lines of which only one list has.
func differ(t testing.TB, got, want []string) {
	t.Helper()
	for _, g := range got {
		if !slices.Contains(want, g) {
			t.Errorf("found, and not announced: %s", g)
		}
	}
	for _, w := range want {
		if !slices.Contains(got, w) {
			t.Errorf("announced, and not found: %s", w)
		}
	}
}

// Each rule finds what is wrong in the bad shops at the right line, and nothing
// else; their good twins are clean.
func TestShops(t *testing.T) {
	t.Parallel()
	for _, shop := range []string{"laravel8", "laravel11", "symfony54", "symfony7"} {
		t.Run(shop, func(t *testing.T) {
			t.Parallel()
			bad, good := "testdata/"+shop+"/bad", "testdata/"+shop+"/good"
			found := Examine(open(t, bad), Options{Zabor: true})
			differ(t, places(bad, found, true), marked(t, bad))
			for _, f := range found {
				if f.Fix == "" || f.Found == "" {
					t.Errorf("%s at %s:%d says %q, and to write %q", f.Code, f.Where, f.Line, f.Found, f.Fix)
				}
			}
			differ(t, places(good, Examine(open(t, good), Options{Zabor: true}), true), nil)
		})
	}
}

// A fresh application has nothing that is wrong.
func TestSkeletons(t *testing.T) {
	t.Parallel()
	for _, skeleton := range []string{"laravel8", "laravel11", "symfony54", "symfony7"} {
		folder := "testdata/skeleton/" + skeleton
		p := open(t, folder)
		if p.Version.Major == 0 {
			t.Errorf("%s: no version", skeleton)
		}
		differ(t, places(folder, Examine(p, Options{}), true), nil)
	}
}

package doctor

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"zabor/internal/app"
)

// The layouts of public applications, rebuilt small. What ZB150 and ZB151 should find
// was marked by reading them: of what is found 9 of 10 are marked, and of what is
// marked 8 of 10 are found.
func TestPublicLayouts(t *testing.T) {
	t.Parallel()
	archives, err := filepath.Glob("testdata/public/*.txtar")
	if err != nil || len(archives) < 20 {
		t.Fatalf("%d archives, %v", len(archives), err)
	}
	found, marks, both := map[string]int{}, map[string]int{}, map[string]int{}
	for _, archive := range archives {
		content, err := txtar.ParseFile(archive)
		if err != nil {
			t.Fatal(err)
		}
		folder := t.TempDir()
		for _, f := range content.Files {
			write(t, filepath.Join(folder, f.Name), string(f.Data))
		}
		p, err := app.Open(folder, app.Options{})
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range p.Notices {
			t.Errorf("%s: not understood: %+v", archive, n)
		}
		for _, payment := range Payments(p) {
			if payment.Kind == "" {
				t.Errorf("%s: %s is of no kind", archive, payment.Message)
			}
		}
		for _, code := range []string{"ZB150", "ZB151", "ZB161"} {
			of := func(all []string) []string {
				return slices.DeleteFunc(slices.Clone(all), func(s string) bool { return !strings.HasSuffix(s, " "+code) })
			}
			got, want := of(places(folder, Examine(p, Options{Zabor: true}), false)), of(marked(t, folder))
			found[code], marks[code] = found[code]+len(got), marks[code]+len(want)
			for _, g := range got {
				if slices.Contains(want, g) {
					both[code]++
				} else {
					t.Logf("%s: found, not marked: %s", archive, g)
				}
			}
			for _, w := range want {
				if !slices.Contains(got, w) {
					t.Logf("%s: marked, not found: %s", archive, w)
				}
			}
		}
	}
	for _, code := range []string{"ZB150", "ZB151"} {
		t.Logf("%s: %d marked, %d found, %d of both", code, marks[code], found[code], both[code])
		if 10*both[code] < 9*found[code] || 10*both[code] < 8*marks[code] || marks[code] == 0 {
			t.Errorf("%s: %d marked, %d found, %d of both", code, marks[code], found[code], both[code])
		}
	}
	if found["ZB161"] > 0 {
		t.Errorf("ZB161: %d found where no visitor waits", found["ZB161"])
	}
}

package doctor

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"zabor/internal/app"
)

// Each rule alone finds in the bad shops the lines that announce it and no others,
// and nothing in the good ones; without it those lines, and no others, are missed.
// A rule of servers has a mutant in its place, which takes its finding away and
// names the test that fails then. So a rule that is new, or a rule that another one
// hides, is seen here.
func TestEachRule(t *testing.T) {
	t.Parallel()
	type shop struct {
		folder    string
		project   *app.Project
		announced []string
	}
	var bad, good []shop
	for _, name := range []string{"laravel8", "laravel11", "symfony54", "symfony7"} {
		for kind, to := range map[string]*[]shop{"bad": &bad, "good": &good} {
			folder := "testdata/" + name + "/" + kind
			*to = append(*to, shop{folder, open(t, folder), marked(t, folder)})
		}
	}
	mutants, err := os.ReadFile("../internal/mutants/mutants.txt")
	if err != nil {
		t.Fatal(err)
	}
	of := func(places []string, code string, not bool) []string {
		return slices.DeleteFunc(slices.Clone(places), func(p string) bool { return strings.HasSuffix(p, " "+code) == not })
	}
	for i, r := range Rules() {
		if r.check == nil {
			if !regexp.MustCompile(`(?m)^mutant doctor: ` + r.Code + ` `).Match(mutants) {
				t.Errorf("%s (%s): internal/mutants has no mutant that takes it away", r.Code, r.Name)
			}
			continue
		}
		lines := 0
		for _, s := range bad {
			places := func(rules []Rule) []string {
				return places(s.folder, examine(s.project, Options{Zabor: true}, rules), true)
			}
			own := of(s.announced, r.Code, false)
			lines += len(own)
			differ(t, places([]Rule{r}), own)
			differ(t, places(slices.Delete(Rules(), i, i+1)), of(s.announced, r.Code, true))
		}
		if lines == 0 {
			t.Errorf("%s (%s): no line of a bad shop is missed without it", r.Code, r.Name)
		}
		for _, s := range good {
			differ(t, places(s.folder, examine(s.project, Options{Zabor: true}, []Rule{r}), true), nil)
		}
	}
}

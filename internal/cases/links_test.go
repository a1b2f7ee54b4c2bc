package cases

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	linked  = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading = regexp.MustCompile(`(?m)^#+ (.+)$`)
	blocks  = regexp.MustCompile("(?ms)^ *```.*?^ *```|`[^`\n]*`")
	dropped = regexp.MustCompile(`[^\p{L}\p{N}\-_ ]`)
)

// anchors are the headings of a page, as links name them.
func anchors(text string) map[string]bool {
	all := map[string]bool{}
	for _, h := range heading.FindAllStringSubmatch(text, -1) {
		all[strings.ReplaceAll(dropped.ReplaceAllString(strings.ToLower(h[1]), ""), " ", "-")] = true
	}
	return all
}

// Each link between the project's pages leads to a file, and to a heading of it.
func TestLinks(t *testing.T) {
	const root = "../.."
	links := 0
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		name := d.Name()
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != root && (name[0] == '.' || name == "testdata" || name == "artifacts" || name == "dist" || name == "node_modules"):
			return fs.SkipDir
		case !strings.HasSuffix(name, ".md"):
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for _, l := range linked.FindAllStringSubmatch(blocks.ReplaceAllString(string(text), "``"), -1) {
			file, anchor, _ := strings.Cut(l[1], "#")
			if strings.Contains(l[1], ":") {
				continue
			}
			links++
			target := path
			if file != "" {
				target = filepath.Join(filepath.Dir(path), file)
			}
			if _, err := os.Stat(target); err != nil {
				t.Errorf("%s links to %s: there is no such file", path, l[1])
				continue
			}
			if anchor == "" {
				continue
			}
			there, err := os.ReadFile(target)
			if err != nil {
				return err
			}
			if !anchors(string(there))[anchor] {
				t.Errorf("%s links to %s: there is no such heading", path, l[1])
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if links < 100 {
		t.Errorf("%d links were found", links)
	}
}

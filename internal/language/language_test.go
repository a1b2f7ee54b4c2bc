// Package language keeps the project's English plain.
package language

import (
	"flag"
	"fmt"
	"go/ast"
	"go/doc"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// goal is the highest rate of pronouns in 1,000 words that a page or package is
// to reach. maxFirst bounds the first sentence of an exported doc comment, in words.
const goal, maxFirst = 20, 15

var (
	write   = flag.Bool("write", false, "lower limits.txt to today's values, and add new pages and packages")
	pronoun = regexp.MustCompile(`(?i)^(that|which|what|who|whom|whose|whoever|whatever|whichever|nobody|none|nothing|(some|any|every)(body|one|thing))$`)
	word    = regexp.MustCompile(`[\p{L}\d][\p{L}\d'’-]*`)
	code    = regexp.MustCompile("(?ms)^ *```.*?^ *```|^(    |\t)[^\n]*$|`[^`\n]*`|\\]\\([^)]*\\)|https?://\\S+")
	skipped = regexp.MustCompile(`^\.\w|(^|/)(testdata|artifacts|dist|node_modules)$|^docs/ru$`)
)

type count struct{ words, pronouns, long int }

func (c *count) add(text string) {
	for _, w := range word.FindAllString(code.ReplaceAllString(text, " "), -1) {
		c.words++
		if pronoun.MatchString(w) {
			c.pronouns++
		}
	}
}

func (c *count) rate() int { return (1000*c.pronouns + max(c.words, 1) - 1) / max(c.words, 1) }

// first counts a doc comment of an exported name with a long first sentence.
func (c *count) first(comment *ast.CommentGroup, names ...*ast.Ident) {
	exported := slices.ContainsFunc(names, (*ast.Ident).IsExported)
	if exported && len(word.FindAllString(new(doc.Package).Synopsis(comment.Text()), -1)) > maxFirst {
		c.long++
	}
}

// file counts a file's comments. First sentences count outside of tests alone.
func (c *count) file(file *ast.File, test bool) {
	for _, group := range file.Comments {
		c.add(group.Text())
	}
	if test {
		return
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			c.first(n.Doc, n.Name)
		case *ast.GenDecl:
			for _, spec := range n.Specs {
				switch s := spec.(type) {
				case *ast.TypeSpec:
					c.first(n.Doc, s.Name)
				case *ast.ValueSpec:
					c.first(s.Doc, s.Names...)
				}
			}
		case *ast.Field:
			c.first(n.Doc, n.Names...)
		}
		return true
	})
}

// counted are the pages and packages of the project, by path.
func counted(t *testing.T) map[string]*count {
	all := map[string]*count{}
	err := fs.WalkDir(os.DirFS("../.."), ".", func(path string, d fs.DirEntry, err error) error {
		page, name := strings.HasSuffix(path, ".md"), path
		switch {
		case err != nil:
			return err
		case d.IsDir() && skipped.MatchString(path):
			return fs.SkipDir
		case strings.HasSuffix(path, ".go"):
			name = filepath.Dir(path)
		case !page:
			return nil
		}
		if all[name] == nil {
			all[name] = new(count)
		}
		text, err := os.ReadFile(filepath.Join("../..", path))
		if page || err != nil {
			all[name].add(string(text))
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, text, parser.ParseComments)
		if err == nil {
			all[name].file(file, strings.HasSuffix(path, "_test.go"))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// A page or package has no more pronouns in 1,000 words, and no more long first
// sentences, than limits.txt says. A new one keeps to the goal and has no long one.
func TestLanguage(t *testing.T) {
	limits := map[string]count{}
	text, _ := os.ReadFile("limits.txt")
	for line := range strings.Lines(string(text)) {
		var name string
		var l count
		if _, err := fmt.Sscan(line, &l.pronouns, &l.long, &name); err == nil {
			limits[name] = l
		}
	}
	table := "# Pronouns in 1,000 words, long first sentences, page or package. The goal is 20 and 0: lower a limit, never raise it.\n"
	all := counted(t)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		c, limit := all[name], limits[name]
		if _, known := limits[name]; !known && *write {
			limit = count{pronouns: c.rate(), long: c.long}
		}
		limit.pronouns = max(limit.pronouns, goal)
		t.Logf("%3d %3d %s, %d words", c.rate(), c.long, name, c.words)
		if c.rate() > limit.pronouns || c.long > limit.long {
			t.Errorf("%s has %d pronouns in 1,000 words, at most %d (goal %d), and %d first sentences of more than %d words, at most %d; say it in plain words",
				name, c.rate(), limit.pronouns, goal, c.long, maxFirst, limit.long)
		}
		if rate, long := min(limit.pronouns, c.rate()), min(limit.long, c.long); rate > goal || long > 0 {
			table += fmt.Sprintf("%3d %3d %s\n", max(rate, goal), long, name)
		}
	}
	if *write {
		if err := os.WriteFile("limits.txt", []byte(table), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

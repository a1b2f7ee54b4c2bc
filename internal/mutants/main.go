// Command mutants takes one guard of the program away at a time and demands that
// the test which is there for it fails: a test that cannot fail shows nothing.
//
//	go run ./internal/mutants [-run PATTERN] [-v]
//
// The list is mutants.txt. Nothing is written to the tree: the compiler is given
// another file in place of one (go test -overlay).
package main

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"time"
)

//go:embed mutants.txt
var list string

// limit is how long one mutant may take, its compilation included. A test that
// hangs on a mutant has caught it too, but says so late, and as that.
const limit = 10 * time.Minute

// atOnce is how many mutants are tested at the same time.
const atOnce = 2

// mutant is one change of one file, and the test that must fail by it.
type mutant struct {
	name     string // what is broken, with the invariant before it
	file     string // from the top of the tree
	old, new string // old stands there exactly once
	pack     string // package of the test
	test     string // pattern of its name
}

// parse reads the list: mutants divided by empty lines, each with its name, its
// file, its test, and the lines that are taken out (-) and put in (+).
func parse(text string) ([]mutant, error) {
	var all []mutant
	for block := range strings.SplitSeq(strings.TrimSpace(text), "\n\n") {
		var m mutant
		var before, after []string
		for line := range strings.Lines(block) {
			line = strings.TrimSuffix(line, "\n")
			key, value, _ := strings.Cut(line, " ")
			switch {
			case strings.HasPrefix(line, "#"):
			case strings.HasPrefix(line, "-"):
				before = append(before, line[1:])
			case strings.HasPrefix(line, "+"):
				after = append(after, line[1:])
			case key == "mutant":
				m.name = value
			case key == "in":
				m.file = value
			case key == "fails":
				m.pack, m.test, _ = strings.Cut(value, " ")
			default:
				return nil, fmt.Errorf("mutants.txt: %q: no such line", line)
			}
		}
		if len(before) == 0 {
			continue // a comment
		}
		m.old, m.new = strings.Join(before, "\n"), strings.Join(after, "\n")
		if m.name == "" || m.file == "" || m.test == "" {
			return nil, fmt.Errorf("mutants.txt: incomplete: %q", block)
		}
		all = append(all, m)
	}
	return all, nil
}

// apply is the content of m's file with the change.
func (m mutant) apply(top string) ([]byte, error) {
	content, err := os.ReadFile(filepath.Join(top, m.file))
	if err != nil {
		return nil, err
	}
	if n := bytes.Count(content, []byte(m.old)); n != 1 {
		return nil, fmt.Errorf("%s: the text to change stands in %s %d times, not once; write mutants.txt anew for it", m.name, m.file, n)
	}
	return bytes.Replace(content, []byte(m.old), []byte(m.new), 1), nil
}

var errSurvived = errors.New("survived")

// errHangs says that the test did not end in time. On a machine with other work
// that shows nothing.
var errHangs = fmt.Errorf("its test did not end within %s", limit)

// run tests m. It is nil when the test failed as it must.
func (m mutant) run(ctx context.Context, top, dir string) error {
	content, err := m.apply(top)
	if err != nil {
		return err
	}
	changed := filepath.Join(dir, "changed.go")
	overlay, err := json.Marshal(map[string]any{"Replace": map[string]string{filepath.Join(top, m.file): changed}})
	if err != nil {
		return err
	}
	err = errors.Join(os.WriteFile(changed, content, 0o600), os.WriteFile(filepath.Join(dir, "overlay.json"), overlay, 0o600))
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, "go", "test", "-overlay", filepath.Join(dir, "overlay.json"), "-failfast", "-count", "1", "-run", m.test, m.pack)
	cmd.Dir = top
	out, err := cmd.CombinedOutput()
	switch text := string(out); {
	case ctx.Err() != nil:
		return errHangs
	case err == nil && strings.Contains(text, "no tests to run"):
		return fmt.Errorf("no test of %s is called %s", m.pack, m.test)
	case err == nil:
		return errSurvived
	case !strings.Contains(text, "--- FAIL:") && !strings.Contains(text, "panic: "):
		return fmt.Errorf("it does not compile, or the test does not run:\n%s", text)
	}
	return nil
}

func main() {
	pattern := flag.String("run", "", "only mutants whose name matches")
	flag.Parse()
	if err := runAll(context.Background(), *pattern); err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

// runAll tests the mutants whose name matches, and prints a line for each.
func runAll(ctx context.Context, pattern string) error {
	matches, err := regexp.Compile(pattern)
	if err != nil {
		return err
	}
	all, err := parse(list)
	if err != nil {
		return err
	}
	top, err := os.Getwd()
	if err != nil {
		return err
	}
	var wg sync.WaitGroup
	var mu sync.Mutex
	var errs []error
	lanes := make(chan struct{}, atOnce)
	for _, m := range all {
		if !matches.MatchString(m.name) {
			continue
		}
		wg.Go(func() {
			lanes <- struct{}{}
			defer func() { <-lanes }()
			start := time.Now()
			dir, err := os.MkdirTemp("", "zabor-mutant-")
			if err == nil {
				defer os.RemoveAll(dir)
				err = m.run(ctx, top, dir)
			}
			mu.Lock()
			defer mu.Unlock()
			word := "caught"
			switch {
			case errors.Is(err, errHangs):
				word = "hangs"
			case err != nil:
				word = "NOT CAUGHT"
				errs = append(errs, fmt.Errorf("%s: %w", m.name, err))
			}
			fmt.Printf("%-10s %s (%s, %s)\n", word, m.name, m.test, time.Since(start).Round(time.Second))
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

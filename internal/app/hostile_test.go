package app

import (
	"bytes"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"
)

// hostile are sources that somebody wrote to break whoever reads them, each as
// large as one of its kind may be.
func hostile(largest int) map[string][]byte {
	fill := func(head, piece, tail string) []byte {
		n := (largest - len(head) - len(tail)) / len(piece)
		return []byte(head + strings.Repeat(piece, n) + tail)
	}
	both := func(head, open, middle, end, tail string) []byte {
		n := (largest - len(head) - len(middle) - len(tail)) / (len(open) + len(end))
		return []byte(head + strings.Repeat(open, n) + middle + strings.Repeat(end, n) + tail)
	}
	return map[string][]byte{
		"config/brackets.php": both("<?php return ", "[", "1", "]", ";"),
		"config/open.php":     fill("<?php return ", "[", ""),
		"config/parens.php":   both("<?php return ", "(", "1", ")", ";"),
		"config/not.php":      fill("<?php return ", "!", "1;"),
		"config/concat.php":   fill("<?php return 'a'", ".'b'", ";"),
		"config/chain.php":    fill("<?php return $a", "->b", ";"),
		"config/ternary.php":  fill("<?php return ", "1?:", "1;"),
		"config/calls.php":    both("<?php return ", "f(", "1", ")", ";"),
		"config/text.php":     fill("<?php return '", "a", ""),
		"config/nul.php":      fill("<?php return ", "\x00", ";"),
		"app/blocks.php":      both("<?php function f() ", "{", "", "}", ""),
		"app/else.php":        fill("<?php if (1) {}", "else if(1) {}", ""),
		"app/classes.php":     fill("<?php ", "class A extends A { use A; }", ""),
		"app/comments.php":    fill("<?php ", "/*", ""),
		"config/flow.yaml":    both("a: ", "[", "1", "]", ""),
		"config/maps.yaml":    both("", "{a: ", "1", "}", ""),
		"config/anchors.yaml": fill("a: &a [1]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b,*b]\nd: &d [*c,*c,*c,*c,*c,*c,*c,*c]\ne: &e [*d,*d,*d,*d,*d,*d,*d,*d]\nf: &f [*e,*e,*e,*e,*e,*e,*e,*e]\ng: &g [*f,*f,*f,*f,*f,*f,*f,*f]\nh: &h [*g,*g,*g,*g,*g,*g,*g,*g]\ni: &i [*h,*h,*h,*h,*h,*h,*h,*h]\n", "#", ""),
		"config/self.yaml":    []byte("a: &a\n  b: *a\n<<: *a\n"),
		"config/merge.yaml":   fill("a: &a {b: 1}\n", "x: {<<: *a}\n", ""),
		"config/deep.yaml":    indented(largest),
		".env":                fill("A=1\n", "B=\"${B}${B}\"\n", ""),
	}
}

// indented is YAML in which each line is deeper than the one before.
func indented(largest int) []byte {
	var b bytes.Buffer
	for i := 0; b.Len() < largest/2; i++ {
		b.WriteString(strings.Repeat(" ", i) + "a:\n")
	}
	return b.Bytes()
}

// Sources that are written to break a reader do not: reading ends soon, in memory
// that has a bound, and says what was not understood.
func TestHostileSources(t *testing.T) {
	size := largestPHP / 8
	if os.Getenv("ZABOR_SOAK") != "" {
		size = largestPHP
	}
	for name, content := range hostile(size) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			folder := t.TempDir()
			for file, text := range map[string][]byte{
				name: content, "artisan": nil, "composer.json": []byte(`{"require": {"laravel/framework": "^11.0"}}`),
			} {
				path := filepath.Join(folder, file)
				if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, text, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			for _, framework := range []string{"laravel/framework", "symfony/messenger"} {
				if err := os.WriteFile(filepath.Join(folder, "composer.json"), []byte(`{"require": {"`+framework+`": "^7.0"}}`), 0o600); err != nil {
					t.Fatal(err)
				}
				if framework == "symfony/messenger" {
					os.Remove(filepath.Join(folder, "artisan"))
					if strings.HasSuffix(name, ".yaml") {
						os.MkdirAll(filepath.Join(folder, "config/packages"), 0o755)
						os.WriteFile(filepath.Join(folder, "config/packages/framework.yaml"), content, 0o600)
					}
				}
				begin := time.Now()
				var before, after runtime.MemStats
				runtime.ReadMemStats(&before)
				p, err := Open(folder, Options{})
				if err != nil {
					t.Fatal(err)
				}
				p.Queues()
				p.Jobs()
				p.Handlers()
				runtime.ReadMemStats(&after)
				if took := time.Since(begin); took > time.Minute {
					t.Errorf("%s: it took %s", framework, took)
				}
				if got := after.Sys >> 20; got > 2048 {
					t.Errorf("%s: %d MiB of memory", framework, got)
				}
			}
		})
	}
}

// Folders that hold themselves, files that are no files, and one that is too large.
func TestHostileFolders(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	if err := os.MkdirAll(filepath.Join(folder, "app"), 0o755); err != nil {
		t.Fatal(err)
	}
	for link, to := range map[string]string{"app/up": "..", "app/self.php": "self.php", "app/etc": "/", "config": "config", "app/null.php": "/dev/zero"} {
		if err := os.Symlink(to, filepath.Join(folder, link)); err != nil {
			t.Fatal(err)
		}
	}
	large, err := os.Create(filepath.Join(folder, "app/large.php"))
	if err == nil {
		err = large.Truncate(50 << 20)
	}
	if err == nil {
		err = large.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{"artisan", "composer.json", ".env"} {
		if err := os.Symlink("/dev/zero", filepath.Join(folder, file)); err != nil {
			t.Fatal(err)
		}
	}
	p, err := Open(folder, Options{})
	if err != nil {
		t.Fatal(err)
	}
	told := false
	for _, n := range p.Notices {
		told = told || strings.HasSuffix(n.File, "large.php")
	}
	if !told {
		t.Errorf("nothing says that a file of 50 MB was not read: %v", p.Notices)
	}
}

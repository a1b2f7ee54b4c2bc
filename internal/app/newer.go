package app

import (
	"bytes"
	"regexp"
	"slices"
	"strings"
)

// lowered is content with syntax that the parser does not know written as older
// syntax of the same length, so that all positions stay. names are identifiers as
// they were, by their position. What property hooks do is lost, and nothing else
// that is called.
func lowered(content []byte) (text []byte, names map[int]string) {
	l := lowering{text: bytes.Clone(content), code: codeOf(content), names: map[int]string{}}
	for _, one := range blanked {
		l.each(one, func(at []int) { blank(l.text[at[2]:at[3]]) })
	}
	l.each(enumWord, func(at []int) {
		if !enumDeclared.Match(l.text[at[1]:min(len(l.text), at[1]+200)]) {
			l.rename(at[0], at[1])
		}
	})
	l.each(enumCase, func(at []int) {
		if slices.Contains(reserved, strings.ToLower(string(l.text[at[2]:at[3]]))) {
			l.rename(at[2], at[3])
		}
	})
	l.each(hooked, func(at []int) { l.hook(at[2]) })
	l.each(fetchedConst, func(at []int) { l.replace(at[2], at[3], "X") })
	l.each(pipe, func(at []int) { l.replace(at[0], at[1], ".") })
	l.each(cloned, func(at []int) { l.rename(at[2], at[3]) })
	l.each(made, func(at []int) {
		end := l.closing(at[1] - 1)
		if rest := bytes.TrimLeft(l.text[min(end+1, len(l.text)):], " \t\r\n"); end > 0 && (bytes.HasPrefix(rest, []byte("->")) || bytes.HasPrefix(rest, []byte("?->"))) {
			class := string(l.text[at[2]:at[3]])
			pad := strings.Repeat(" ", at[1]-at[0]-len(class)-len("::n("))
			l.names[at[1]-len("n(")] = "new"
			copy(l.text[at[0]:], pad+class+"::n(")
		}
	})
	return l.text, l.names
}

var (
	// Each has a group that is taken out.
	blanked = []*regexp.Regexp{
		regexp.MustCompile(`(?m)\bconst\s+(\??[A-Za-z_\\|]+)\s+[A-Za-z_]\w*\s*=`),                    // 8.3: constants with a type
		regexp.MustCompile(`\b(?:public|protected|private)\s+((?:public|protected|private)\(set\))`), // 8.4: visibility of writing
		regexp.MustCompile(`\b(?:public|protected|private)(\(set\))`),                                // 8.4: the same alone
		regexp.MustCompile(`(\([A-Za-z_\\]+(?:\s*&\s*[A-Za-z_\\]+)+\)\s*\|)`),                        // 8.2: unions of intersections
		regexp.MustCompile(`\bnew\s+(readonly)\s+class\b`),                                           // 8.3: anonymous readonly classes
		regexp.MustCompile(`(\(void\))`),                                                             // 8.5: void casts
		regexp.MustCompile(`[(,]\s*(final)\s+(?:public|protected|private)\b`),                        // 8.5: final promoted properties
		regexp.MustCompile(`(#\[[^\]]*\])\s*const\b`),                                                // 8.5: attributes of constants
	}
	enumWord     = regexp.MustCompile(`(?i)\benum\b`)
	enumDeclared = regexp.MustCompile(`^\s+[A-Za-z_]\w*\s*(?::|\{|implements\b)`)
	enumCase     = regexp.MustCompile(`\bcase\s+([A-Za-z_]\w*)\s*(?:;|=[^=>])`)
	hooked       = regexp.MustCompile(`\b(?:public|protected|private|readonly|final|abstract|var)\b[^;(){}$]*\$\w+\s*(?:=[^;{}()$]*)?(\{)`) // 8.4
	fetchedConst = regexp.MustCompile(`::(\{[^{}]*\})\s*[^\s(]`)                                                                            // 8.3
	pipe         = regexp.MustCompile(`\|>`)                                                                                                // 8.5
	cloned       = regexp.MustCompile(`\b(clone)\s*\(`)                                                                                     // 8.5
	made         = regexp.MustCompile(`\bnew\s+([A-Za-z_\\][\w\\]*)\(`)                                                                     // 8.4
)

// reserved are PHP's keywords, of which a case of an enum may have the name.
var reserved = strings.Fields("abstract and array as break callable case catch clone const continue declare default do echo else elseif empty enddeclare endfor endforeach endif endswitch endwhile " +
	"enum eval exit extends final finally fn for foreach function global goto if implements include include_once instanceof insteadof interface isset list match namespace new or print private protected public " +
	"readonly require require_once return static switch throw trait try unset use var while xor yield self parent")

// lowering is content that is rewritten.
type lowering struct {
	text  []byte
	code  []bool // whether a byte is code, not a text or a comment
	names map[int]string
}

// each calls do for what matches in code.
func (l *lowering) each(pattern *regexp.Regexp, do func(at []int)) {
	for _, at := range pattern.FindAllSubmatchIndex(l.text, -1) {
		if l.code[at[0]] || at[0]+1 < len(l.code) && l.text[at[0]] == '#' && l.code[min(at[1], len(l.code))-1] {
			do(at)
		}
	}
}

// rename puts a word that is no keyword in the place of one that is.
func (l *lowering) rename(from, to int) {
	l.names[from] = string(l.text[from:to])
	for i := from; i < to; i++ {
		l.text[i] = 'Q'
	}
}

func (l *lowering) replace(from, to int, by string) {
	blank(l.text[from:to])
	copy(l.text[from:to], by)
}

// hook takes out the hooks that begin with the brace at i: a property ends there.
func (l *lowering) hook(i int) {
	end := l.closing(i)
	if end < 0 {
		return
	}
	blank(l.text[i : end+1])
	if rest := bytes.TrimLeft(l.text[end+1:], " \t\r\n"); len(rest) == 0 || rest[0] != ',' && rest[0] != ')' {
		l.text[i] = ';'
	}
}

// closing is where the bracket at i is closed; -1: nowhere near.
func (l *lowering) closing(i int) int {
	open := 0
	for end := min(len(l.text), i+16<<10); i < end; i++ {
		if !l.code[i] {
			continue
		}
		switch l.text[i] {
		case '(', '{', '[':
			open++
		case ')', '}', ']':
			if open--; open == 0 {
				return i
			}
		}
	}
	return -1
}

// codeOf says of each byte whether it is code: no text, no comment.
func codeOf(content []byte) []bool {
	code := make([]bool, len(content))
	for i := 0; i < len(content); i++ {
		rest := content[i:]
		skip := 0
		switch {
		case bytes.HasPrefix(rest, []byte("//")), rest[0] == '#' && !bytes.HasPrefix(rest, []byte("#[")):
			if skip = bytes.IndexByte(rest, '\n'); skip < 0 {
				skip = len(rest)
			}
		case bytes.HasPrefix(rest, []byte("/*")):
			if skip = bytes.Index(rest, []byte("*/")) + 2; skip < 2 {
				skip = len(rest)
			}
		case bytes.HasPrefix(rest, []byte("<<<")):
			if m := heredoc.FindSubmatch(rest[:min(len(rest), 200)]); m != nil {
				end := regexp.MustCompile(`(?m)^[ \t]*` + string(m[1]) + `\b`).FindIndex(rest[len(m[0]):])
				if skip = len(rest); end != nil {
					skip = len(m[0]) + end[1]
				}
			}
		case rest[0] == '\'' || rest[0] == '"' || rest[0] == '`':
			for skip = 1; skip < len(rest) && rest[skip] != rest[0]; skip++ {
				if rest[skip] == '\\' {
					skip++
				}
			}
			skip = min(skip+1, len(rest))
		}
		if skip > 0 {
			i += skip - 1
			continue
		}
		code[i] = true
	}
	return code
}

var heredoc = regexp.MustCompile(`^<<<[ \t]*["']?([A-Za-z_]\w*)["']?\r?\n`)

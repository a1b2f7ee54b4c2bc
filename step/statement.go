package step

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Dialect is a database's SQL, as far as it matters where a statement's texts
// and comments end.
type Dialect string

// The dialects.
const (
	MySQL    Dialect = "mysql" // and MariaDB
	Postgres Dialect = "postgres"
	SQLite   Dialect = "sqlite"
)

// statement is one statement with its named parameters made the dialect's own.
type statement struct {
	query string
	names []string // of the parameters, in their order; one that is used twice is there twice
}

// compileSelect reads one SELECT. Its parameters are :name, with dots for a
// property of a property; they are never pasted into the text.
func compileSelect(query string, dialect Dialect) (statement, error) {
	return compileStatement(query, dialect, rules{
		want:  "one SELECT that only reads",
		first: []string{"SELECT", "WITH"},
		refuse: func(word, _ string) bool {
			return slices.Contains([]string{"INSERT", "UPDATE", "DELETE", "MERGE", "INTO", "DROP", "ALTER", "TRUNCATE", "GRANT", "SHARE"}, word)
		},
	})
}

// compileWrite reads one INSERT, UPDATE or DELETE of the application's own, with
// parameters as in [compileSelect]. What a function or a trigger does that it
// calls is not to be seen here.
func compileWrite(query string, dialect Dialect) (statement, error) {
	return compileStatement(query, dialect, rules{
		want:  "one INSERT, UPDATE or DELETE",
		first: []string{"INSERT", "UPDATE", "DELETE"},
		refuse: func(word, before string) bool {
			switch word {
			case "UPDATE": // ON DUPLICATE KEY UPDATE, ON CONFLICT … DO UPDATE
				return before != "" && before != "KEY" && before != "DO"
			case "INSERT", "DELETE":
				return before != ""
			}
			return word == "MERGE" || word == "RETURNING"
		},
		foreign: true,
	})
}

// rules say what a kind of statement may be.
type rules struct {
	want   string
	first  []string                       // the words that it may begin with
	refuse func(word, before string) bool // a word that may not stand in it; before is the word before it, empty: none
	// foreign: the tables are the application's, never the fence's own.
	foreign bool
}

func compileStatement(query string, dialect Dialect, r rules) (statement, error) {
	s := sqlScanner{in: query, dialect: dialect, rules: r}
	if err := s.scan(); err != nil {
		return statement{}, err
	}
	return statement{query: strings.TrimRight(s.out.String(), " \t\r\n"), names: s.names}, nil
}

// sqlScanner walks over one statement and copies it with its parameters
// translated. It knows where texts, quoted names and comments end, and nothing
// else of SQL.
type sqlScanner struct {
	in      string
	at      int
	dialect Dialect
	rules   rules
	out     strings.Builder
	names   []string
	first   string // the first word
	last    string // the word before
	ended   bool   // a semicolon was there
}

func (s *sqlScanner) scan() error {
	for s.at < len(s.in) {
		if err := s.next(); err != nil {
			return err
		}
	}
	switch {
	case s.first == "":
		return errors.New("there is no statement")
	case !slices.Contains(s.rules.first, s.first):
		return fmt.Errorf("it begins with %s: %s is wanted", s.first, s.rules.want)
	}
	return nil
}

// next copies one token.
func (s *sqlScanner) next() error {
	c, rest := s.in[s.at], s.in[s.at:]
	comment := s.comment(rest)
	if comment < 0 {
		return errors.New("a comment does not end")
	}
	if comment > 0 {
		if strings.HasPrefix(rest, "/*!") || strings.HasPrefix(rest, "/*M!") {
			return errors.New("a comment that MySQL executes: write the SQL itself")
		}
		s.at += comment
		s.out.WriteByte(' ') // comments may hold question marks, which drivers count
		return nil
	}
	if strings.IndexByte(" \t\r\n\f\v", c) >= 0 {
		s.copy(1)
		return nil
	}
	if s.ended {
		return fmt.Errorf("something stands behind the semicolon: %s is wanted", s.rules.want)
	}
	if quoted := s.quoted(rest); quoted < 0 {
		return fmt.Errorf("a text that begins with %c does not end", c)
	} else if quoted > 0 {
		if c != '\'' && c != '$' {
			if err := s.checkName(rest[1 : quoted-1]); err != nil {
				return err
			}
		}
		s.copy(quoted)
		return nil
	}
	switch {
	case c == ';':
		s.ended = true
		s.at++
		return nil
	case c == ':' && len(rest) > 1 && isWordStart(rest[1]) && s.parameterMayStand():
		s.parameter(rest)
		return nil
	case c == ':' && strings.HasPrefix(rest, "::"):
		s.copy(2) // a cast
		return nil
	case c == '?' && s.dialect != Postgres,
		c == '$' && s.dialect == Postgres && len(rest) > 1 && '0' <= rest[1] && rest[1] <= '9',
		(c == '@' || c == '$') && s.dialect == SQLite:
		return fmt.Errorf("%c is a parameter without a name: write :order or the name of a property", c)
	case isWordStart(c):
		return s.word(rest)
	case '0' <= c && c <= '9':
		n := 1
		for n < len(rest) && isWord(rest[n]) {
			n++
		}
		s.copy(n)
		return nil
	}
	s.copy(1)
	return nil
}

func (s *sqlScanner) copy(n int) {
	s.out.WriteString(s.in[s.at : s.at+n])
	s.at += n
}

// parameterMayStand reports whether a colon here begins a parameter: not in a
// slice of an array, a[m:n].
func (s *sqlScanner) parameterMayStand() bool {
	if s.at == 0 {
		return true
	}
	before := s.in[s.at-1]
	return !isWord(before) && before != ':' && before != ']' && before != ')'
}

func (s *sqlScanner) parameter(rest string) {
	end := 1
	for end < len(rest) && (isWord(rest[end]) && rest[end] != '$' || rest[end] == '.' && end+1 < len(rest) && isWordStart(rest[end+1])) {
		end++
	}
	s.names = append(s.names, rest[1:end])
	if s.dialect == Postgres {
		s.out.WriteString("$" + strconv.Itoa(len(s.names)))
	} else {
		s.out.WriteByte('?')
	}
	s.at += end
}

func (s *sqlScanner) word(rest string) error {
	n := 1
	for n < len(rest) && isWord(rest[n]) {
		n++
	}
	word := strings.ToUpper(rest[:n])
	if s.first == "" {
		s.first = word
	}
	column := s.at > 0 && s.in[s.at-1] == '.'
	if !column && s.rules.refuse(word, s.last) {
		return fmt.Errorf("%s: %s is wanted; a column of that name must be quoted", word, s.rules.want)
	}
	s.last = word
	if err := s.checkName(word); err != nil {
		return err
	}
	s.copy(n)
	return nil
}

// checkName refuses the fence's own tables where only the application's belong.
func (s *sqlScanner) checkName(name string) error {
	if s.rules.foreign && strings.HasPrefix(strings.ToLower(name), "zabor_") {
		return fmt.Errorf("%s is the fence's own; a hook writes the application's tables", strings.ToLower(name))
	}
	return nil
}

// comment is the length of the comment at the start of rest; 0: there is none,
// below 0: it does not end.
func (s *sqlScanner) comment(rest string) int {
	line := strings.HasPrefix(rest, "--")
	if s.dialect == MySQL {
		line = rest == "--" || line && strings.IndexByte(" \t\r\n\f\v", rest[2]) >= 0 || rest[0] == '#'
	}
	if line {
		if end := strings.IndexByte(rest, '\n'); end >= 0 {
			return end + 1
		}
		return len(rest)
	}
	if !strings.HasPrefix(rest, "/*") {
		return 0
	}
	depth := 0
	for i := 0; i+1 < len(rest); i++ {
		switch {
		case rest[i:i+2] == "/*" && (depth == 0 || s.dialect == Postgres):
			depth++
			i++
		case rest[i:i+2] == "*/":
			depth--
			i++
			if depth == 0 {
				return i + 1
			}
		}
	}
	return -1
}

// quoted is the length of the quoted text or name at the start of rest; 0:
// there is none, below 0: it does not end.
func (s *sqlScanner) quoted(rest string) int {
	closing := rest[0]
	backslash := s.dialect == MySQL
	switch c := rest[0]; {
	case c == '\'':
		backslash = backslash || s.dialect == Postgres && s.escapeString()
	case c == '"':
	case c == '`' && s.dialect != Postgres:
		backslash = false
	case c == '[' && s.dialect == SQLite:
		closing, backslash = ']', false
	case c == '$' && s.dialect == Postgres:
		return dollarQuoted(rest)
	default:
		return 0
	}
	for i := 1; i < len(rest); i++ {
		switch {
		case rest[i] == '\\' && backslash:
			i++
		case rest[i] == closing && closing != ']' && i+1 < len(rest) && rest[i+1] == closing:
			i++
		case rest[i] == closing:
			return i + 1
		}
	}
	return -1
}

// escapeString reports whether the text that begins here is an E'…' of
// PostgreSQL, in which a backslash escapes.
func (s *sqlScanner) escapeString() bool {
	return s.at > 0 && (s.in[s.at-1] == 'E' || s.in[s.at-1] == 'e') && (s.at == 1 || !isWord(s.in[s.at-2]))
}

// dollarQuoted is the length of the $tag$…$tag$ at the start of rest.
func dollarQuoted(rest string) int {
	end := 1
	for end < len(rest) && isWord(rest[end]) && rest[end] != '$' {
		end++
	}
	if end == len(rest) || rest[end] != '$' || end > 1 && !isWordStart(rest[1]) {
		return 0
	}
	tag := rest[:end+1]
	close := strings.Index(rest[len(tag):], tag)
	if close < 0 {
		return -1
	}
	return len(tag) + close + len(tag)
}

func isWordStart(c byte) bool {
	return c == '_' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || c >= 0x80
}

func isWord(c byte) bool { return isWordStart(c) || '0' <= c && c <= '9' || c == '$' }

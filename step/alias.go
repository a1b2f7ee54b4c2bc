package step

import (
	"regexp"
	"slices"
	"strings"
)

var numberLike = regexp.MustCompile(`^(\s*[+-]?)([0-9][0-9]*(?:\.[0-9]*)?(?:[eE][+-]?[0-9]+)?\s*)$`)

// alias is another text that a database takes for the same number as text, and
// that is no name of anything: 008 becomes 00000000000000000008. Empty: text is
// no number, or it is written as a database writes one, so that no other text
// can be taken for it.
//
// Where a column is a number, every database compares 008 with it as 8, and says
// nothing. Where the alias finds a row too, the column is one.
func alias(text string) string {
	parts := numberLike.FindStringSubmatch(text)
	if parts == nil || isInteger(text) {
		return ""
	}
	return parts[1] + "00000000000000000000" + parts[2]
}

// aliases are args with the aliases of the key's parts in their place, and whether
// there are any.
func (s *statement) aliases(args []any) (aliased []any, found bool) {
	aliased = slices.Clone(args)
	for i, name := range s.names {
		text, ok := args[i].(string)
		if !ok || !slices.Contains(keyNames[:], name) {
			continue
		}
		if other := alias(text); other != "" {
			aliased[i], found = other, true
		}
	}
	return aliased, found
}

// inserts reports whether s is an INSERT, which hits no row that is there.
func (s *statement) inserts() bool {
	first := strings.Fields(s.query)
	return len(first) > 0 && strings.EqualFold(first[0], "INSERT")
}

package step

import (
	"maps"
	"slices"
)

// SQL is a statement of a step, as its database is sent it.
type SQL struct {
	Field      string // load, or the state of a hook
	Query      string
	Parameters int
}

// SQL lists s's statements: load, which runs on the application's database, first,
// and then the hooks, which run on the fence's.
func (s *Step) SQL() []SQL {
	var list []SQL
	if s.selects != nil {
		list = append(list, SQL{"load", s.selects.query, len(s.selects.names)})
	}
	for _, state := range slices.Sorted(maps.Keys(s.hooks)) {
		h := s.hooks[state]
		list = append(list, SQL{string(state), h.query, len(h.names)})
	}
	return list
}

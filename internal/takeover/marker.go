package takeover

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"zabor/internal/connect"
	"zabor/internal/exit"
	"zabor/internal/failures"
	"zabor/keyschema"
	"zabor/sqlstore"
	"zabor/step"
)

// markerName returns the name in zabor_meta of the marker of s.
func markerName(scope string, s connect.Queue) string {
	return "queue:" + scope + "/" + s.Name()
}

// Marker is zabor's record of a takeover. It is in zabor_meta under the name of
// the queue and holds lines. Each line begins with a location: under another prefix the
// queue is another one. A location alone: the queue was taken over there. A
// location and a class: so were messages of this class. A location and
// «imported»: an import has seen the whole queue since. Only a complete drain
// or a release of the queue takes a location away.
type Marker struct {
	location string // of the queue now
	lines    []string
}

// ReadMarker returns the marker of s in the installation of this scope. Without one it
// is empty.
func ReadMarker(ctx context.Context, scope string, store *sqlstore.Store, s connect.Queue) (Marker, error) {
	value, _, err := store.Meta().Get(ctx, markerName(scope, s))
	if err != nil {
		return Marker{}, exit.Store(err)
	}
	return Marker{s.Location(), strings.FieldsFunc(string(value), func(r rune) bool { return r == '\n' })}, nil
}

func (m Marker) write(ctx context.Context, scope string, store *sqlstore.Store, s connect.Queue) error {
	if err := store.Meta().Set(ctx, markerName(scope, s), []byte(strings.Join(m.lines, "\n"))); err != nil {
		return exit.Store(err)
	}
	return nil
}

func (m Marker) classLine(class string) string {
	return m.location + " class " + strconv.Quote(strings.TrimPrefix(class, `\`))
}

func (m Marker) importLine() string { return m.location + " imported" }

// Owned reports whether the queue was taken over.
func (m Marker) Owned() bool { return slices.Contains(m.lines, m.location) }

// Takes reports whether the queue was taken over when messages of class had a step.
func (m Marker) Takes(class string) bool {
	return m.Owned() && slices.Contains(m.lines, m.classLine(class))
}

// imported reports whether an import has seen the queue since it was last taken over.
func (m Marker) imported() bool { return slices.Contains(m.lines, m.importLine()) }

// New returns the classes of steps not taken over yet.
func (m Marker) New(steps []*step.Step) (classes []string) {
	for _, s := range steps {
		for _, class := range s.Classes() {
			if !m.Takes(class) {
				classes = append(classes, class)
			}
		}
	}
	return classes
}

// MarkImported notes an import of all of s.
func MarkImported(ctx context.Context, scope string, store *sqlstore.Store, s connect.Queue) error {
	m, err := ReadMarker(ctx, scope, store, s)
	if err != nil || m.imported() {
		return err
	}
	m.lines = append(m.lines, m.importLine())
	return m.write(ctx, scope, store, s)
}

// claim notes the takeover of s, with messages of these classes.
func claim(ctx context.Context, scope string, store *sqlstore.Store, s connect.Queue, classes []string) error {
	m, err := ReadMarker(ctx, scope, store, s)
	if err != nil {
		return err
	}
	if !m.Owned() { // an earlier takeover counts no more
		m = m.without()
		m.lines = append(m.lines, m.location)
	}
	m.lines = slices.DeleteFunc(m.lines, func(line string) bool { return line == m.importLine() })
	for _, class := range classes {
		if !m.Takes(class) {
			m.lines = append(m.lines, m.classLine(class))
		}
	}
	return m.write(ctx, scope, store, s)
}

// Release gives s back: the next start scans all of it. The
// table still knows the installation.
func Release(ctx context.Context, scope string, store *sqlstore.Store, s connect.Queue) error {
	m, err := ReadMarker(ctx, scope, store, s)
	if err != nil {
		return err
	}
	if err := s.Redis.Del(ctx, s.ScopeKey()).Err(); err != nil {
		return exit.Unreachable(fmt.Errorf("queue %s: %w", s.Name(), err), "nothing was changed; is Redis up?")
	}
	_ = s.Redis.Del(ctx, keyschema.SeenKey(s.ScopeKey())).Err() // left over, it does no harm
	return m.without().write(ctx, scope, store, s)
}

// without returns m without the lines of its location.
func (m Marker) without() Marker {
	m.lines = slices.DeleteFunc(m.lines, func(line string) bool { return line == m.location || strings.HasPrefix(line, m.location+" ") })
	return m
}

// ImportCommand returns the command line of an import of s; path is the configuration's.
func ImportCommand(path string, s connect.Queue) string {
	words := []string{"zabor", "import", "-c", path, "--queue", s.Name()}
	for n, word := range words {
		if strings.ContainsFunc(word, func(r rune) bool {
			return !strings.ContainsRune("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./:=@%+,", r)
		}) {
			words[n] = "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
		}
	}
	return strings.Join(words, " ")
}

// NotImported reports whether another worker may have had m although it has no row, since
// zabor has not taken over its class yet. Put back, m would look like a new message.
func NotImported(ctx context.Context, f *failures.Transports, m failures.Entry) (bool, error) {
	k, ok := f.Key(m.Message)
	if !ok {
		return false, nil
	}
	row, err := f.Store.Reports().Row(ctx, k)
	if err != nil {
		return false, exit.Store(err)
	}
	if row != nil {
		return false, nil
	}
	mark, err := ReadMarker(ctx, f.File.Scope, f.Store, f.Open[m.In.Queue])
	return !mark.Takes(m.Class), err
}

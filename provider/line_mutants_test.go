package provider_test

import (
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"zabor/provider"
)

// spoilt is a line without one of its facts.
type spoilt struct {
	what string
	line provider.Line
}

// said are the fields for people, and the names of lines.
var said = []string{"From", "Unverified", "Later", "Scope", "Name", "Does", "Refused"}

// spoil takes away each fact of l, one at a time.
func spoil(l provider.Line) []spoilt {
	var all []spoilt
	// Each run walks a fresh copy and changes it at the n-th place.
	for n := 0; ; n++ {
		one := copyOf(reflect.ValueOf(l)).Interface().(provider.Line)
		left, what := n, ""
		if !spoilAt(reflect.ValueOf(&one).Elem(), "", &left, &what) {
			return all
		}
		all = append(all, spoilt{what, one})
	}
}

// spoilAt changes one place after passing left others; false: there are fewer.
func spoilAt(v reflect.Value, at string, left *int, what *string) bool {
	hit := func(change func(), format string, args ...any) bool {
		if *left > 0 {
			*left--
			return false
		}
		*what = at + ": " + fmt.Sprintf(format, args...)
		change()
		return true
	}
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			name := v.Type().Field(i).Name
			if !slices.Contains(said, name) && spoilAt(v.Field(i), at+"."+name, left, what) {
				return true
			}
		}
	case reflect.Pointer:
		if v.IsNil() {
			return false
		}
		return hit(func() { v.SetZero() }, "gone") || spoilAt(v.Elem(), at, left, what)
	case reflect.Slice:
		for i := range v.Len() {
			if hit(func() { v.Set(reflect.AppendSlice(v.Slice(0, i), v.Slice(i+1, v.Len()))) }, "without %v", v.Index(i)) {
				return true
			}
			if v.Index(i).Kind() == reflect.Struct && spoilAt(v.Index(i), fmt.Sprintf("%s.%d", at, i), left, what) {
				return true
			}
		}
	case reflect.Map:
		keys := v.MapKeys()
		slices.SortFunc(keys, func(a, b reflect.Value) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
		for _, key := range keys {
			if hit(func() { v.SetMapIndex(key, reflect.Value{}) }, "without %v", key) {
				return true
			}
			values := v.MapIndex(key)
			if values.Kind() != reflect.Slice {
				continue
			}
			for i := range values.Len() {
				rest := reflect.AppendSlice(values.Slice3(0, i, i), values.Slice(i+1, values.Len()))
				if hit(func() { v.SetMapIndex(key, rest) }, "%v without %v", key, values.Index(i)) {
					return true
				}
			}
		}
	case reflect.String:
		return v.String() != "" && hit(func() { v.SetString("") }, "without %s", v)
	case reflect.Bool:
		return hit(func() { v.SetBool(!v.Bool()) }, "the contrary")
	case reflect.Int, reflect.Int64:
		if v.Type() == reflect.TypeFor[time.Duration]() || v.Int() != 0 {
			return hit(func() { v.SetInt(2*v.Int() + int64(time.Hour)) }, "longer than %v", v)
		}
	}
	return false
}

// copyOf shares nothing with v.
func copyOf(v reflect.Value) reflect.Value {
	out := reflect.New(v.Type()).Elem()
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			out.Field(i).Set(copyOf(v.Field(i)))
		}
	case reflect.Pointer:
		if !v.IsNil() {
			out.Set(reflect.New(v.Type().Elem()))
			out.Elem().Set(copyOf(v.Elem()))
		}
	case reflect.Slice:
		if !v.IsNil() {
			out.Set(reflect.MakeSlice(v.Type(), v.Len(), v.Len()))
			for i := range v.Len() {
				out.Index(i).Set(copyOf(v.Index(i)))
			}
		}
	case reflect.Map:
		if !v.IsNil() {
			out.Set(reflect.MakeMap(v.Type()))
			for _, key := range v.MapKeys() {
				out.SetMapIndex(key, copyOf(v.MapIndex(key)))
			}
		}
	default:
		out.Set(v)
	}
	return out
}

// A line without one of its facts fails its samples. By default an eighth of the facts is
// tried, another one each day.
func TestLineMutants(t *testing.T) {
	t.Parallel()
	all, faults := readSamples(t), readFaults(t)
	for name, s := range all {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, bench := profileOf(t, name, s), newBench(t)
			for i, line := range p.Calls {
				sample := s.Lines[line.Name]
				if sample == nil {
					continue
				}
				for n, m := range spoil(line) {
					if alike(line, m.what) || os.Getenv("ZABOR_SOAK") == "" && int64(n%8) != time.Now().Unix()/(24*60*60)%8 {
						continue
					}
					mutant := p
					mutant.Calls = slices.Clone(p.Calls)
					mutant.Calls[i] = m.line
					if wrong := sample.faultsOf(t, mutant, line.Name, faults, bench); len(wrong) == 0 && len(s.choiceFaults(t, mutant)) == 0 && unitsFault(t, name, mutant, line.Name) == "" {
						t.Errorf("%s%s: no sample misses it", line.Name, m.what)
					}
				}
			}
		})
	}
}

// alike reports whether a line without this fact behaves the same: Optional without an
// amount to read, and the mark of a repeat without an echo to check.
func alike(l provider.Line, what string) bool {
	switch what {
	case ".Amount.Optional: the contrary":
		return l.Amount.Minor == "" && l.Amount.Major == "" || l.Does == provider.Prepares
	case ".Key.Mark: without " + l.Key.Mark:
		return l.Echo.Key == ""
	}
	return false
}

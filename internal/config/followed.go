package config

import (
	"fmt"
	"io/fs"
	"os"
	"sync"
	"time"
)

// SettleTime is how old a changed secret file must be before it is taken: who
// writes into it in place may not be through.
const SettleTime = 2 * time.Second

// secretFiles are the files that ${NAME} were read from, as they were before.
type secretFiles map[string]fs.FileInfo

// followed is what was read from files that may change while the program runs: as they
// are now, or were before they became unusable. It may be used concurrently.
type followed[T any] struct {
	what   string // is in the files, for report
	report func(error)
	now    func() time.Time

	mu    sync.Mutex
	taken secretFiles // as they were when value was read
	value T
	turn  int         // rises when value is another
	bad   secretFiles // as they were when they could not be taken
}

// follow follows the files that value was read from, which were as taken says. report
// is told, once for each change, why one was not taken.
func follow[T any](what string, value T, taken secretFiles, report func(error)) followed[T] {
	return followed[T]{what: what, report: report, now: time.Now, taken: taken, value: value}
}

// latest looks at the files, and reads them where they have changed.
func (f *followed[T]) latest(read func(there secretFiles) (T, error)) (value T, turn int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	there, settled := f.taken.again(f.now())
	if there.same(f.taken) || !settled || there.same(f.bad) {
		return f.value, f.turn
	}
	value, err := read(there)
	if after, _ := f.taken.again(f.now()); !after.same(there) {
		return f.value, f.turn // they changed meanwhile: the next use looks again
	}
	if err != nil {
		f.bad = there
		f.report(fmt.Errorf("%s has changed and is not taken; what was read before is used on: %w", f.what, err))
		return f.value, f.turn
	}
	f.value, f.taken, f.bad = value, there, nil
	f.turn++
	return f.value, f.turn
}

// again looks at the same files as they are now. settled: none that is another
// one was written a moment ago.
func (f secretFiles) again(now time.Time) (there secretFiles, settled bool) {
	there, settled = secretFiles{}, true
	for path, was := range f {
		info, err := os.Stat(path) // through symbolic links: one that is put in another's place is a change
		if err != nil {
			there[path] = nil
			continue
		}
		there[path] = info
		if age := now.Sub(info.ModTime()); !sameFile(was, info) && age >= 0 && age < SettleTime {
			settled = false
		}
	}
	return there, settled
}

func (f secretFiles) same(o secretFiles) bool {
	for path, info := range f {
		was, ok := o[path]
		if !ok || !sameFile(was, info) {
			return false
		}
	}
	return true
}

func sameFile(a, b fs.FileInfo) bool {
	if a == nil || b == nil {
		return a == nil && b == nil
	}
	return os.SameFile(a, b) && a.Size() == b.Size() && a.ModTime().Equal(b.ModTime())
}

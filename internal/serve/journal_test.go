package serve

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"zabor"
	"zabor/internal/exit"
)

// A full disk under the journal ends a start with 3, so that a supervisor tries again;
// a folder that cannot be made ends it with 2.
func TestAFullDiskUnderTheJournal(t *testing.T) {
	code := func(dir string) int {
		_, err := zabor.OpenJournal(dir)
		if err == nil {
			t.Fatalf("the journal in %s was opened", dir)
		}
		f, ok := errors.AsType[*exit.Error](journalFailure("zabor.yaml", err))
		if !ok {
			t.Fatal(err)
		}
		return f.Code
	}
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if got := code(filepath.Join(file, "journal")); got != exit.WrongUsage {
		t.Errorf("exit %d below a file", got)
	}
	disk := t.TempDir()
	if err := unix.Mount("zabor-test", disk, "tmpfs", 0, "size=64k"); err != nil {
		t.Skipf("a small disk needs the right to mount: %v", err)
	}
	t.Cleanup(func() { unix.Unmount(disk, 0) })
	if err := os.WriteFile(filepath.Join(disk, "filler"), make([]byte, 1<<20), 0o600); !errors.Is(err, unix.ENOSPC) {
		t.Fatal(err)
	}
	if got := code(disk); got != exit.NotReached {
		t.Errorf("exit %d with a full disk, want %d", got, exit.NotReached)
	}
}

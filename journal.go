package zabor

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// Journal keeps successes on the local disk while the database is away. What is
// in it is saved by [Fence.ReplayJournal]. Several processes may share one.
type Journal struct {
	dir string

	// Seal encrypts what a file will hold, and Open decrypts it; both nil: it is
	// kept as it is. They are set before first use.
	Seal func(plain []byte) []byte
	Open func(sealed []byte) ([]byte, error)
}

// OpenJournal makes the folder where it is missing, and sees that it can be
// written to.
func OpenJournal(dir string) (*Journal, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("journal: %w", err)
	}
	j := &Journal{dir: dir}
	probe := filepath.Join(dir, "probe-"+randomName())
	if err := j.write(probe, []byte("{}")); err != nil {
		return nil, fmt.Errorf("journal: %w", err)
	}
	if err := os.Remove(probe); err != nil {
		return nil, fmt.Errorf("journal: %w", err)
	}
	return j, nil
}

// entry is one success as it stands in the journal. Its row is without the
// frozen request, which a closed row does not need.
type entry struct {
	Row     Row
	Outcome Outcome
}

const journalSuffix = ".success.json"

// keep writes o beside the row that it belongs to, and returns once the disk
// has it.
func (j *Journal) keep(row Row, o Outcome) (path string, err error) {
	row = row.withoutRequest()
	content, err := json.Marshal(entry{Row: row, Outcome: o})
	if err != nil {
		return "", err
	}
	if j.Seal != nil {
		content = j.Seal(content)
	}
	path = filepath.Join(j.dir, randomName()+journalSuffix)
	return path, j.write(path, content)
}

// write makes a file whole or not at all: under another name first, synced, then
// renamed, and the folder synced.
func (j *Journal) write(path string, content []byte) error {
	f, err := os.OpenFile(path+".part", os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	if err == nil {
		err = f.Sync()
	}
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	if err == nil {
		err = os.Rename(path+".part", path)
	}
	if err != nil {
		os.Remove(path + ".part")
		return err
	}
	dir, err := os.Open(j.dir)
	if err != nil {
		return err
	}
	defer dir.Close()
	return dir.Sync()
}

func randomName() string {
	var b [16]byte
	rand.Read(b[:])
	return hex.EncodeToString(b[:])
}

// ReplayJournal saves every success that the journal holds and takes it out. Call
// it before any message is taken: a message whose success is still in the journal
// finds a row that does not know of it. With an error the rest stays, to be
// replayed again; saving one twice changes nothing. It does nothing without a
// journal.
func (f *Fence) ReplayJournal(ctx context.Context) (saved int, err error) {
	if f.Journal == nil {
		return 0, nil
	}
	names, err := os.ReadDir(f.Journal.dir)
	if err != nil {
		return 0, fmt.Errorf("journal: %w", err)
	}
	for _, name := range names {
		if !strings.HasSuffix(name.Name(), journalSuffix) {
			continue
		}
		path := filepath.Join(f.Journal.dir, name.Name())
		content, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue // another process was faster
		}
		if err != nil {
			return saved, fmt.Errorf("journal: %w", err)
		}
		if f.Journal.Open != nil {
			if content, err = f.Journal.Open(content); err != nil {
				return saved, fmt.Errorf("journal: %s: %w", path, err)
			}
		}
		var e entry
		if err := json.Unmarshal(content, &e); err != nil || e.Outcome.Reference == "" {
			return saved, fmt.Errorf("journal: %s is no success of a call (%w); look at it and move it away", path, err)
		}
		if _, err := f.trySave(ctx, e.Row, after(e.Row, e.Outcome, false), e.Outcome); err != nil {
			return saved, fmt.Errorf("journal: save %s with reference %s: %w", e.Row.Key, e.Outcome.Reference, err)
		}
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return saved, fmt.Errorf("journal: %w", err)
		}
		saved++
	}
	return saved, nil
}

package zabor

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/gob"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// Journal keeps successes on the local disk while the database is away. The fence
// saves its entries by [Fence.ReplayJournal]. Several processes may share one folder.
type Journal struct {
	dir string

	// Seal encrypts the content of a file, and Open decrypts it; both nil: it is kept
	// as it is. Set them before first use.
	Seal func(plain []byte) []byte
	Open func(sealed []byte) ([]byte, error)
}

// A file's name has a digest of its key, so that the row of an entry that cannot be
// read is known all the same. An entry that was set aside has another ending.
const (
	journalSuffix = ".success"
	asideSuffix   = ".unreadable"
)

// The first byte of a file says whether the rest is encrypted.
const (
	plainEntry  = 'P'
	sealedEntry = 'S'
)

// entry is one success as it stands in the journal, in gob: keys, references and
// bodies byte for byte. Its row has no frozen request.
type entry struct {
	Row     Row
	Outcome Outcome
}

// OpenJournal makes the folder if it is missing, and checks that it can be written to.
func OpenJournal(dir string) (*Journal, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("journal: %w", err)
	}
	j := &Journal{dir: dir}
	probe := filepath.Join(dir, "probe-"+rand.Text())
	err := j.write(probe, []byte("probe"))
	if err == nil {
		err = os.Remove(probe)
	}
	if err != nil {
		return nil, fmt.Errorf("journal: %w", err)
	}
	return j, nil
}

// keep writes o beside the row that it belongs to, and returns once the disk has it.
func (j *Journal) keep(row Row, o Outcome) (path string, err error) {
	row.Open.Request, row.Open.Sealed.Request = nil, nil
	var content bytes.Buffer
	if err := gob.NewEncoder(&content).Encode(entry{Row: row, Outcome: o}); err != nil {
		return "", err
	}
	sealed := append([]byte{plainEntry}, content.Bytes()...)
	if j.Seal != nil {
		sealed = append([]byte{sealedEntry}, j.Seal(content.Bytes())...)
	}
	path = filepath.Join(j.dir, row.Digest()+"-"+rand.Text()+journalSuffix)
	return path, j.write(path, sealed)
}

// errLocked: an entry cannot be decrypted.
var errLocked = errors.New("it cannot be decrypted")

// read is the entry at path. [fs.ErrNotExist]: another process was faster.
func (j *Journal) read(path string) (e entry, err error) {
	content, err := os.ReadFile(path)
	switch {
	case err != nil:
	case len(content) == 0:
		err = io.ErrUnexpectedEOF
	case content[0] == sealedEntry && j.Open == nil:
		err = errLocked
	case content[0] == sealedEntry:
		if content, err = j.Open(content[1:]); err != nil {
			err = fmt.Errorf("%w: %w", errLocked, err)
		}
	default:
		content = content[1:]
	}
	if err == nil {
		err = gob.NewDecoder(bytes.NewReader(content)).Decode(&e)
	}
	if err == nil && (e.Outcome.Reference == "" || !strings.HasPrefix(filepath.Base(path), e.Row.Digest())) {
		err = errors.New("it is no success of the key in its name")
	}
	return e, err
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
	return j.sync()
}

// sync makes renames in the folder durable.
func (j *Journal) sync() error {
	dir, err := os.Open(j.dir)
	if err != nil {
		return err
	}
	defer dir.Close()
	return dir.Sync()
}

// Digest names k in 32 hexadecimal digits, for names of files.
func (k Key) Digest() string {
	sum := sha256.Sum256(k.parts())
	return hex.EncodeToString(sum[:16])
}

// ReplayJournal saves every success that the journal holds and takes it out. Call it
// before any message is taken: the row of such a success does not know of it. An entry
// that cannot be saved stays, and the others go on; saving one twice changes nothing.
// Without a journal it does nothing.
//
// An entry that cannot be read is set aside, with a critical alert, and its row is
// held if it is open. If no entry at all can be decrypted, all stay and the error says
// so: the journal's key is wrong, and the process must not start.
func (f *Fence) ReplayJournal(ctx context.Context) (saved int, err error) {
	if f.Journal == nil {
		return 0, nil
	}
	paths, err := filepath.Glob(filepath.Join(f.Journal.dir, "*"+journalSuffix))
	if err != nil {
		return 0, fmt.Errorf("journal: %w", err)
	}
	var errs []error
	unreadable, locked, read := map[string]error{}, 0, 0
	for _, path := range paths {
		e, err := f.Journal.read(path)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			continue
		case err != nil:
			read++
			unreadable[path] = err
			if errors.Is(err, errLocked) {
				locked++
			}
			continue
		}
		read++
		s := &saving{f: f, sent: e.Row, outcome: e.Outcome, cause: ByCall, row: e.Row, next: after(e.Row, e.Outcome)}
		if _, err := s.try(ctx); err != nil {
			errs = append(errs, fmt.Errorf("journal: save %s with reference %s: %w", e.Row.Key, e.Outcome.Reference, err))
			continue
		}
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, fmt.Errorf("journal: %w", err))
		}
		saved++
	}
	if locked > 0 && locked == read {
		return 0, fmt.Errorf("journal: none of the %d entries in %s can be decrypted: give the encryption_key that they were written with; nothing was started", read, f.Journal.dir)
	}
	for path, err := range unreadable {
		errs = append(errs, f.setAside(ctx, path, err))
	}
	return saved, errors.Join(errs...)
}

// setAside holds the open row of the entry at path, which cannot be read, and renames
// the file.
func (f *Fence) setAside(ctx context.Context, path string, why error) error {
	digest, _, _ := strings.Cut(filepath.Base(path), "-")
	row, err := f.Store.LoadDigest(ctx, digest)
	for ; err == nil && !row.State.Closed() && row.State != Held; row, err = f.Store.Load(ctx, row.Key) {
		next := row.follow(Held, ByConflict, fmt.Sprintf("a success of it is in %s, which cannot be read: %v", path+asideSuffix, why))
		if _, err := f.swap(ctx, row, next, Write{}); err == nil {
			break
		} else if !errors.Is(err, ErrStale) {
			return fmt.Errorf("journal: %s cannot be read, and its row cannot be held: %w", path, err)
		}
	}
	if err != nil && !errors.Is(err, ErrNoRow) {
		return fmt.Errorf("journal: %s cannot be read, and its row cannot be looked for: %w", path, err)
	}
	if err := os.Rename(path, path+asideSuffix); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("journal: %w", err)
	}
	f.alert(row, Critical, "journal-unreadable", fmt.Sprintf("a success in the journal cannot be read (%v); it is kept as %s, and its row is held if it is open", why, path+asideSuffix))
	return f.Journal.sync()
}

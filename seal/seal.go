// Package seal encrypts what a database or a file keeps, so that whoever reads
// these alone reads nothing of it. It is AES-256-GCM with a key for each place,
// derived from one text: what is sealed for one place cannot be opened at
// another, and no number of places wears the key out.
package seal

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
)

// MinText is the shortest text of a key, in bytes.
const MinText = 32

// mark begins everything that is sealed. No JSON, no form and no text begins so.
const mark = "\x00zabor1"

const idSize = 4

// Keys are the key that seals and those that may still open. They may be used
// concurrently. Nil Keys seal nothing and open nothing.
type Keys struct {
	all   []key
	seals bool // the first of all seals
}

type key struct {
	id     [idSize]byte
	secret []byte // a pseudorandom key of HKDF
}

// Parse reads the text of encryption_key: a key, and behind commas those that
// were in use before it and may still be needed to open what they sealed. Where
// the text begins with a comma, nothing is sealed any more, and the others still
// open. An empty text gives nil Keys. No error holds a part of the text.
func Parse(text string) (*Keys, error) {
	if strings.TrimSpace(text) == "" {
		return nil, nil
	}
	k := &Keys{}
	for i, part := range strings.Split(text, ",") {
		part = strings.TrimSpace(part)
		if part == "" && i == 0 {
			continue
		}
		if len(part) < MinText {
			return nil, fmt.Errorf("key %d of encryption_key has %d bytes, at least %d are wanted; \"openssl rand -base64 32\" makes one", i+1, len(part), MinText)
		}
		one, err := derive(part)
		if err != nil {
			return nil, err
		}
		k.all = append(k.all, one)
		k.seals = k.seals || i == 0
	}
	return k, nil
}

func derive(text string) (key, error) {
	secret, err := hkdf.Extract(sha256.New, []byte(text), []byte("zabor encryption_key 1"))
	if err != nil {
		return key{}, err
	}
	k := key{secret: secret}
	id, err := hkdf.Expand(sha256.New, secret, "id", idSize)
	copy(k.id[:], id)
	return k, err
}

// Seals reports whether k seals what is given to it.
func (k *Keys) Seals() bool { return k != nil && k.seals }

// ID names the key that seals, in hexadecimal digits that tell nothing of it;
// empty: none does.
func (k *Keys) ID() string {
	if !k.Seals() {
		return ""
	}
	return hex.EncodeToString(k.all[0].id[:])
}

// Sealer reports whether b was sealed by the key that seals.
func (k *Keys) Sealer(b []byte) bool {
	return k.Seals() && Sealed(b) && bytes.Equal(b[len(mark):len(mark)+idSize], k.all[0].id[:])
}

// Place names where something is kept, by parts that together are unique: only
// with the same parts can it be opened again.
type Place []string

// bytes has each part with its length before it, so that no two places are one.
func (p Place) bytes() []byte {
	var out []byte
	for _, part := range p {
		out = binary.BigEndian.AppendUint64(out, uint64(len(part)))
		out = append(out, part...)
	}
	return out
}

// Seal is plain encrypted for place. It is plain itself where k does not seal,
// and where plain is nil or sealed already.
func (k *Keys) Seal(plain []byte, place Place) []byte {
	if plain == nil || !k.Seals() || Sealed(plain) {
		return plain
	}
	at := place.bytes()
	gcm := k.all[0].gcm(at)
	out := append([]byte(mark), k.all[0].id[:]...)
	return gcm.Seal(out, nil, plain, at)
}

// Open is what was sealed for place. What was never sealed is returned as it
// is. An *[Error] says that none of the keys opens it; the bytes are then
// returned as they were, sealed.
func (k *Keys) Open(sealed []byte, place Place) ([]byte, error) {
	if !Sealed(sealed) {
		return sealed, nil
	}
	id, text := sealed[len(mark):len(mark)+idSize], sealed[len(mark)+idSize:]
	if k != nil {
		at := place.bytes()
		for _, one := range k.all {
			if !bytes.Equal(one.id[:], id) {
				continue
			}
			if plain, err := one.gcm(at).Open([]byte{}, nil, text, at); err == nil {
				return plain, nil
			}
			return sealed, &Error{ID: hex.EncodeToString(id), moved: true}
		}
	}
	return sealed, &Error{ID: hex.EncodeToString(id)}
}

// Sealed reports whether b is sealed, by whatever key.
func Sealed(b []byte) bool {
	return len(b) >= len(mark)+idSize && string(b[:len(mark)]) == mark
}

// gcm is the cipher for one place. Nonces are random: a place is sealed few
// times, so none comes twice.
func (k key) gcm(place []byte) cipher.AEAD {
	secret, err := hkdf.Expand(sha256.New, k.secret, "place "+string(place), 32)
	if err == nil {
		var block cipher.Block
		if block, err = aes.NewCipher(secret); err == nil {
			var gcm cipher.AEAD
			if gcm, err = cipher.NewGCMWithRandomNonce(block); err == nil {
				return gcm
			}
		}
	}
	panic(err) // the sizes are constants
}

// Error says why something cannot be opened. It holds nothing of it.
type Error struct {
	ID    string // of the key that sealed it
	moved bool   // the key is there
}

// ErrSealed is what every *[Error] is.
var ErrSealed = errors.New("encrypted, and not to be opened here")

func (e *Error) Error() string {
	if e.moved {
		return fmt.Sprintf("it was encrypted with the key %s and cannot be opened with it here: it was changed, or moved here from another row", e.ID)
	}
	return fmt.Sprintf("it was encrypted with the key %s, which is not among those of encryption_key: add that key behind a comma", e.ID)
}

// Is makes every Error an ErrSealed.
func (e *Error) Is(target error) bool { return target == ErrSealed }

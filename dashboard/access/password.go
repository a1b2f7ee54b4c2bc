package access

import (
	"crypto/rand"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"golang.org/x/crypto/argon2"
	"golang.org/x/crypto/bcrypt"
)

// Bounds of a password, in bytes.
const (
	MinPassword = 12
	MaxPassword = 1024
)

// Bounds of what a hash may cost to check: below, it is guessed too fast from a
// stolen file; above, each login takes seconds or a host's memory.
const (
	minMemory, maxMemory = 8 << 10, 256 << 10 // argon2id's, in KiB
	maxTime, maxThreads  = 16, 16
	minCost, maxCost     = 10, 15 // bcrypt's
)

// argon is an argon2id hash taken apart. Its text is that of the reference
// implementation and of PHP's password_hash.
type argon struct {
	memory, time uint32
	threads      uint8
	salt, sum    []byte
}

// Hash is what to write for password: argon2id with 19 MiB and two passes, the
// first of OWASP's recommendations.
func Hash(password string) (string, error) {
	switch {
	case len(password) < MinPassword:
		return "", fmt.Errorf("the password has %d bytes: at least %d, or it can be guessed", len(password), MinPassword)
	case len(password) > MaxPassword:
		return "", fmt.Errorf("the password has %d bytes: at most %d", len(password), MaxPassword)
	}
	a := argon{memory: 19 << 10, time: 2, threads: 1, salt: make([]byte, 16)}
	rand.Read(a.salt) // never fails
	a.sum = a.of(password, 32)
	return a.String(), nil
}

func (a argon) of(password string, length int) []byte {
	return argon2.IDKey([]byte(password), a.salt, a.time, a.memory, a.threads, uint32(length))
}

func (a argon) String() string {
	b64 := base64.RawStdEncoding.EncodeToString
	return fmt.Sprintf("$argon2id$v=%d$m=%d,t=%d,p=%d$%s$%s", argon2.Version, a.memory, a.time, a.threads, b64(a.salt), b64(a.sum))
}

const argonPrefix = "$argon2id$"

var errHash = errors.New(`this is no hash of a password; write what "zabor password" prints (argon2id, or bcrypt)`)

// parseArgon reads $argon2id$v=19$m=19456,t=2,p=1$SALT$SUM.
func parseArgon(hash string) (argon, error) {
	parts := strings.Split(hash, "$")
	if len(parts) != 6 || parts[2] != "v="+strconv.Itoa(argon2.Version) {
		return argon{}, errHash
	}
	var a argon
	costs := strings.Split(parts[3], ",")
	if len(costs) != 3 {
		return argon{}, errHash
	}
	for i, name := range []string{"m=", "t=", "p="} {
		text, ok := strings.CutPrefix(costs[i], name)
		n, err := strconv.ParseUint(text, 10, 32)
		if !ok || err != nil {
			return argon{}, errHash
		}
		switch name {
		case "m=":
			a.memory = uint32(n)
		case "t=":
			a.time = uint32(n)
		case "p=":
			if n > maxThreads {
				return argon{}, fmt.Errorf("the hash wants %d threads: at most %d", n, maxThreads)
			}
			a.threads = uint8(n)
		}
	}
	var err1, err2 error
	a.salt, err1 = base64.RawStdEncoding.DecodeString(parts[4])
	a.sum, err2 = base64.RawStdEncoding.DecodeString(parts[5])
	switch {
	case err1 != nil || err2 != nil || len(a.salt) < 8 || len(a.salt) > 64 || len(a.sum) < 16 || len(a.sum) > 64:
		return argon{}, errHash
	case a.memory < minMemory || a.memory > maxMemory:
		return argon{}, fmt.Errorf("the hash takes %d KiB to check: %d to %d", a.memory, minMemory, maxMemory)
	case a.time < 1 || a.time > maxTime || a.threads < 1:
		return argon{}, fmt.Errorf("the hash takes %d passes in %d threads to check: 1 to %d passes, 1 to %d threads", a.time, a.threads, maxTime, maxThreads)
	}
	return a, nil
}

// CheckHash says why hash cannot be a user's: it must be argon2id's or bcrypt's,
// and neither too cheap nor too dear to check. The error does not quote it.
func CheckHash(hash string) error {
	if strings.HasPrefix(hash, argonPrefix) {
		_, err := parseArgon(hash)
		return err
	}
	cost, err := bcrypt.Cost([]byte(hash))
	if err != nil {
		return errHash
	}
	if cost < minCost || cost > maxCost {
		return fmt.Errorf("bcrypt's cost is %d: %d to %d", cost, minCost, maxCost)
	}
	return nil
}

// matches reports whether password is that of hash, which CheckHash has taken.
func matches(hash, password string) bool {
	if !strings.HasPrefix(hash, argonPrefix) {
		return bcrypt.CompareHashAndPassword([]byte(hash), []byte(password)) == nil
	}
	a, err := parseArgon(hash)
	return err == nil && subtle.ConstantTimeCompare(a.of(password, len(a.sum)), a.sum) == 1
}

// decoyLike is a hash that no password is known of and that takes as long to
// check as hash.
func decoyLike(hash string) (string, error) {
	if strings.HasPrefix(hash, argonPrefix) {
		a, err := parseArgon(hash)
		rand.Read(a.salt)
		rand.Read(a.sum)
		return a.String(), err
	}
	cost, err := bcrypt.Cost([]byte(hash))
	if err != nil {
		return "", err
	}
	decoy, err := bcrypt.GenerateFromPassword([]byte(rand.Text()), cost)
	return string(decoy), err
}

package zabor

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base32"
	"encoding/binary"
	"fmt"
	"strings"
)

// MinSecret is the shortest installation secret, in bytes.
const MinSecret = 32

// Which of a step's requests a provider key belongs to. Providers refuse one
// key on two endpoints.
const (
	requestMain    = "request"
	requestPrepare = "prepare"
)

var lowerBase32 = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

// providerKey is the idempotency key that travels to the provider: 26
// characters of lower-case base32, derived and never random, so that a lost
// row gets the same key again.
func providerKey(secret []byte, k Key, generation int, request string) string {
	text := binary.BigEndian.AppendUint64(k.parts(), uint64(generation))
	text = appendPart(text, request)
	mac := hmac.New(sha256.New, secret)
	mac.Write(text)
	return lowerBase32.EncodeToString(mac.Sum(nil))[:26]
}

// parts are the parts of k, each with its length before it: no two keys have the same.
func (k Key) parts() []byte {
	return appendPart(appendPart(appendPart(nil, k.Scope), k.Order), k.Step)
}

func appendPart(text []byte, part string) []byte {
	return append(binary.BigEndian.AppendUint64(text, uint64(len(part))), part...)
}

// UUIDFromProviderKey is a provider key in the shape of a version 8 UUID (RFC 9562), for
// providers that demand one: the first 128 bits of the key, six of them replaced.
func UUIDFromProviderKey(key string) (string, error) {
	u, err := lowerBase32.DecodeString(strings.ToLower(key))
	if err != nil || len(u) < 16 {
		return "", fmt.Errorf("%q is no provider key", key)
	}
	u[6], u[8] = u[6]&0x0f|0x80, u[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", u[:4], u[4:6], u[6:8], u[8:10], u[10:16]), nil
}

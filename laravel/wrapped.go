package laravel

import (
	"bytes"
	"regexp"
)

// Wrapped says by which option of its Laravel connection phpredis has changed a
// payload; empty: by none that is known. Laravel's scripts are sent as they are, so
// that is done to delayed jobs (before Laravel 12.45) and to acks, which then remove
// nothing: every job of such a connection runs again and again.
func Wrapped(raw []byte) string {
	if bytes.HasPrefix(raw, []byte("\x28\xb5\x2f\xfd")) {
		return "zstd compression"
	}
	if by := serialized(raw); by != "" {
		return by
	}
	plain := func(b []byte) bool { return bytes.HasPrefix(b, []byte(`{"`)) || serialized(b) != "" }
	// Both compressors leave the first letters as they are: LZF behind one byte,
	// LZ4 behind phpredis' own five, a checksum and the length, and one or two.
	switch {
	case len(raw) > 8 && raw[0] < ' ' && plain(raw[1:]):
		return "LZF compression"
	case len(raw) > 8 && raw[4] == 0 && (plain(raw[6:]) || plain(raw[7:])):
		return "LZ4 compression"
	}
	return ""
}

var phpWrapped = regexp.MustCompile(`^s:\d+:"\{"`)

// serialized says which serializer has made a string of a payload.
func serialized(raw []byte) string {
	switch {
	case phpWrapped.Match(raw):
		return "the PHP serializer"
	case bytes.HasPrefix(raw, []byte(`"{\"`)):
		return "the JSON serializer"
	case len(raw) > 5 && bytes.HasPrefix(raw, []byte("\x00\x00\x00")) && (raw[3] == 1 || raw[3] == 2) && raw[4] >= 0x11 && raw[4] <= 0x13:
		return "the igbinary serializer"
	}
	if len(raw) > 7 && raw[0] >= 0xd9 && raw[0] <= 0xdb && bytes.HasPrefix(raw[1+1<<(raw[0]-0xd9):], []byte(`{"`)) {
		return "the msgpack serializer"
	}
	return ""
}

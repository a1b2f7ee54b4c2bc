package audit

import (
	"bufio"
	"bytes"
	"unicode/utf8"

	"golang.org/x/text/encoding"
	"golang.org/x/text/encoding/charmap"
	"golang.org/x/text/encoding/unicode"
)

// decoded is in as UTF-8, without a byte order mark. UTF-16 is known by its mark or
// its zero bytes. What is neither UTF-8 is Windows-1251 where it has whole words of
// letters above ASCII, and Windows-1252 else.
func decoded(in *bufio.Reader) *bufio.Reader {
	head, _ := in.Peek(in.Size())
	var from encoding.Encoding
	switch {
	case bytes.HasPrefix(head, []byte("\xff\xfe")), bytes.HasPrefix(head, []byte("\xfe\xff")):
		from = unicode.UTF16(unicode.LittleEndian, unicode.UseBOM)
	case bytes.HasPrefix(head, []byte("\xef\xbb\xbf")):
		_, _ = in.Discard(3) // it was seen: it is there
		return in
	case len(head) > 3 && head[0] != 0 && head[1] == 0 && head[3] == 0:
		from = unicode.UTF16(unicode.LittleEndian, unicode.IgnoreBOM)
	case len(head) > 3 && head[0] == 0 && head[1] != 0 && head[2] == 0:
		from = unicode.UTF16(unicode.BigEndian, unicode.IgnoreBOM)
	case validUTF8(head):
		return in
	case longestHigh(head) >= 3:
		from = charmap.Windows1251
	default:
		from = charmap.Windows1252
	}
	return bufio.NewReaderSize(from.NewDecoder().Reader(in), in.Size())
}

// validUTF8 reports whether head is UTF-8, but for a letter that its end cuts.
func validUTF8(head []byte) bool {
	for range utf8.UTFMax {
		if utf8.Valid(head) {
			return true
		}
		if len(head) == 0 {
			return true
		}
		head = head[:len(head)-1]
	}
	return false
}

// longestHigh is how many bytes above ASCII stand in a row at most.
func longestHigh(head []byte) (most int) {
	n := 0
	for _, c := range head {
		if n++; c < 0x80 {
			n = 0
		}
		most = max(most, n)
	}
	return most
}

package step

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"hash"
	"maps"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A digest is SHA-256 over length-prefixed parts: no two different lists of
// parts give the same input.
type digest struct{ hash.Hash }

func newDigest(version string) digest {
	d := digest{sha256.New()}
	d.part(version)
	return d
}

func (d digest) part(s string) {
	var n [8]byte
	binary.BigEndian.PutUint64(n[:], uint64(len(s)))
	d.Write(n[:])
	d.Write([]byte(s))
}

func (d digest) sum() string { return hex.EncodeToString(d.Sum(nil)) }

// value writes v in its canonical form. It is the same for a message however
// often it was delivered and by whom it was queued again:
//
//   - a number and its text are the same, so 7 and "7", and a number of JSON is
//     taken at the 14 significant digits that Redis's cjson leaves of it;
//   - an empty list and an empty object are the same;
//   - the order of an object's properties does not matter.
//
// Null, true and false are no texts, and a list is no object.
func (d digest) value(v any) {
	switch v := v.(type) {
	case nil:
		d.part("null")
	case bool:
		d.part("bool")
		d.part(strconv.FormatBool(v))
	case Enum:
		d.part("enum")
		d.part(v.Class)
		d.part(v.Case)
	case []any:
		if len(v) == 0 {
			d.part("empty")
			return
		}
		d.part("list")
		d.part(strconv.Itoa(len(v)))
		for _, entry := range v {
			d.value(entry)
		}
	case map[string]any:
		if len(v) == 0 {
			d.part("empty")
			return
		}
		d.part("map")
		d.part(strconv.Itoa(len(v)))
		for _, name := range slices.Sorted(maps.Keys(v)) {
			d.part(name)
			d.value(v[name])
		}
	default:
		d.part("text")
		d.part(scalarText(v))
	}
}

// scalarText is the canonical text of a string or number.
func scalarText(v any) string {
	switch v := v.(type) {
	case string:
		return v
	case int64:
		return strconv.FormatInt(v, 10)
	case float64:
		return canonicalNumber(strconv.FormatFloat(v, 'g', -1, 64))
	case json.Number:
		f, err := strconv.ParseFloat(v.String(), 64)
		if err != nil {
			return v.String() // beyond a float: no cjson ever wrote it
		}
		return canonicalNumber(strconv.FormatFloat(f, 'e', 13, 64))
	case time.Time:
		return v.UTC().Format(time.RFC3339Nano)
	}
	return fmt.Sprint(v)
}

// canonicalNumber is the number s as an exact decimal: digits, and a point only
// where something other than zeros stands behind it. Numbers that would be
// longer than 60 digits stay as they are.
func canonicalNumber(s string) string {
	if _, exponent, ok := strings.Cut(strings.ToLower(s), "e"); ok {
		if n, err := strconv.Atoi(exponent); err != nil || n < -40 || n > 40 {
			return s
		}
	}
	value, ok := new(big.Rat).SetString(s)
	if !ok {
		return s
	}
	if text := trimDecimal(value.FloatString(60)); text != "-0" {
		return text
	}
	return "0"
}

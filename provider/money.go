package provider

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/bojanz/currency"

	"zabor"
)

// Digits returns how many decimals the currency has in ISO 4217 (2 for EUR, 0
// for JPY, 3 for KWD), and whether the code is a current one. The data is the
// list of the standard's maintenance agency, not CLDR's, whose digits are meant
// for display and differ.
func Digits(code string) (int, bool) {
	d, ok := currency.GetDigits(code)
	return int(d), ok
}

// Major is m as a decimal in major units, with all the decimals of its
// currency: 1999 EUR is "19.99", 1999 JPY "1999", 5 KWD "0.005". It is empty
// where the currency is not one of ISO 4217, so also for the zero Money.
func Major(m zabor.Money) string {
	digits, ok := Digits(m.Currency)
	if !ok {
		return ""
	}
	text := strconv.FormatInt(m.Minor, 10)
	if digits == 0 {
		return text
	}
	sign := ""
	if text[0] == '-' {
		sign, text = "-", text[1:]
	}
	if len(text) <= digits {
		text = strings.Repeat("0", digits+1-len(text)) + text
	}
	point := len(text) - digits
	return sign + text[:point] + "." + text[point:]
}

// ParseMajor reads a decimal in major units, such as "19.99", exactly. Digits
// and at most one point with digits on both sides are taken; a sign, blanks, a
// comma or an exponent are errors, and so are more decimals than the currency
// has (unless they are zeros: a DECIMAL(12,4) column says "19.9900"), an amount
// that does not fit into an int64 of minor units, and a currency that is not
// one of ISO 4217.
func ParseMajor(text, code string) (zabor.Money, error) {
	digits, ok := Digits(code)
	if !ok {
		return zabor.Money{}, fmt.Errorf("currency %q is not a current code of ISO 4217; write three upper-case letters, such as EUR", code)
	}
	whole, fraction, point := strings.Cut(text, ".")
	if !allDigits(whole) || point && !allDigits(fraction) {
		return zabor.Money{}, fmt.Errorf("amount %q is not a decimal such as 19.99", text)
	}
	if len(fraction) > digits {
		if strings.Trim(fraction[digits:], "0") != "" {
			return zabor.Money{}, fmt.Errorf("amount %s has more decimals than %s has: %d", text, code, digits)
		}
		fraction = fraction[:digits]
	}
	minor, err := strconv.ParseInt(whole+fraction+strings.Repeat("0", digits-len(fraction)), 10, 64)
	if err != nil {
		return zabor.Money{}, fmt.Errorf("amount %s %s is too large: at most %s", text, code, Major(zabor.Money{Minor: math.MaxInt64, Currency: code}))
	}
	return zabor.Money{Minor: minor, Currency: code}, nil
}

func allDigits(s string) bool {
	return s != "" && strings.Trim(s, "0123456789") == ""
}

// Units are the currencies that a provider takes, by how many decimals its minor units
// have, or its decimals in major units. "rest" stands for every currency that is not
// named and has as many in ISO 4217. A currency that is in none is refused. Nil: all
// of ISO 4217, as it says.
type Units map[int][]string

// rest is every other currency of so many decimals.
const rest = "rest"

// Decimals is how many decimals the provider gives the currency, and whether it is known
// to take it so.
func (u Units) Decimals(code string) (int, bool) {
	digits, ok := Digits(code)
	if u == nil || !ok {
		return digits, ok
	}
	for decimals, codes := range u {
		if slices.Contains(codes, code) {
			return decimals, true
		}
	}
	return digits, slices.Contains(u[digits], rest)
}

// some is a currency that is taken.
func (u Units) some() string {
	for _, n := range slices.Sorted(maps.Keys(u)) {
		for _, code := range u[n] {
			if code != rest {
				return code
			}
		}
	}
	return "EUR"
}

func (u Units) decimals(code string) (int, error) {
	n, ok := u.Decimals(code)
	if !ok {
		return 0, &valueError{fmt.Sprintf("how the provider writes amounts in %q is not known; it is refused", code)}
	}
	return n, nil
}

// minor is m in the provider's minor units.
func (u Units) minor(m zabor.Money) (int64, error) {
	up, down, err := u.scale(m.Currency)
	switch {
	case err != nil:
		return 0, err
	case m.Minor%down != 0:
		return 0, &valueError{fmt.Sprintf("the provider takes no such fraction: %s %s", Major(m), m.Currency)}
	case m.Minor/down > math.MaxInt64/up || m.Minor/down < math.MinInt64/up:
		return 0, &valueError{fmt.Sprintf("amount %s %s is too large for the provider's minor units", Major(m), m.Currency)}
	}
	return m.Minor / down * up, nil
}

// Parse reads the provider's minor units.
func (u Units) Parse(text, code string) (zabor.Money, error) {
	minor, err := u.parse(text, code)
	return zabor.Money{Minor: minor, Currency: code}, err
}

// parse is Parse's number.
func (u Units) parse(text, code string) (int64, error) {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return 0, err
	}
	up, down, err := u.scale(code)
	switch {
	case err != nil:
		return 0, err
	case n%up != 0 || n/up > math.MaxInt64/down || n/up < math.MinInt64/down:
		return 0, fmt.Errorf("amount %s cannot be in minor units of %s", text, code)
	}
	return n / up * down, nil
}

// scale is what minor units of ISO 4217 are multiplied with, and divided by, to
// become the provider's. One of them is 1.
func (u Units) scale(code string) (up, down int64, err error) {
	want, err := u.decimals(code)
	if err != nil {
		return 1, 1, err
	}
	have, _ := Digits(code)
	power := func(n int) int64 {
		p := int64(1)
		for range n {
			p *= 10
		}
		return p
	}
	return power(want - have), power(have - want), nil
}

// major is m as the provider writes it in major units.
func (u Units) major(m zabor.Money) (string, error) {
	n, err := u.decimals(m.Currency)
	if err != nil {
		return "", err
	}
	whole, fraction, _ := strings.Cut(Major(m), ".")
	for len(fraction) < n {
		fraction += "0"
	}
	if strings.Trim(fraction[n:], "0") != "" {
		return "", &valueError{fmt.Sprintf("the provider takes no such fraction: %s %s", Major(m), m.Currency)}
	}
	if n == 0 {
		return whole, nil
	}
	return whole + "." + fraction[:n], nil
}

func (u Units) validate() error {
	seen := map[string]bool{}
	for _, n := range slices.Sorted(maps.Keys(u)) {
		if n < 0 || n > 4 {
			return fmt.Errorf("units.%d: 0 to 4 decimals", n)
		}
		for _, code := range u[n] {
			if _, ok := Digits(code); !ok && code != rest {
				return fmt.Errorf("units.%d: %q is not a current code of ISO 4217", n, code)
			}
			if seen[code] && code != rest {
				return fmt.Errorf("units.%d: %s is there twice", n, code)
			}
			seen[code] = true
		}
	}
	return nil
}

// money reads an amount as the answer has it.
func (c *reader) money(text, code string) (zabor.Money, error) {
	if c.major != nil {
		if _, err := c.units.decimals(code); err != nil {
			return zabor.Money{}, err
		}
		return ParseMajor(text, code)
	}
	return c.units.Parse(text, code)
}

// NamesMoney reports whether a field of a request, as a form names it (a[b]), is
// where p's requests or answers have amount or currency, or is beneath or above that:
// at any depth, since an answer may have within an object what the request has plainly.
func (p Profile) NamesMoney(field string) bool {
	name := strings.FieldsFunc(field, func(r rune) bool { return r == '[' || r == ']' })
	for _, l := range append([]Line{p.Line}, p.Calls...) {
		a := l.Amount
		for _, text := range []string{a.Minor, a.Major, a.Currency, a.Asked, a.AskedCurrency} {
			at, err := parsePointer(text)
			if err != nil { // there is none
				continue
			}
			for i := range at {
				n := min(len(name), len(at[i:]))
				if n > 0 && slices.Equal(name[:n], at[i:][:n]) {
					return true
				}
			}
		}
	}
	return false
}

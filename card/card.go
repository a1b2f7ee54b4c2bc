// Package card finds payment cards in texts and in the names of fields, so that
// they are kept nowhere and logged nowhere. It would rather take an order id for
// a card number than the other way round.
package card

import (
	"slices"
	"strings"
)

// The shortest and the longest number of a card, in digits.
const (
	shortest = 13
	longest  = 19
)

// prefixes are what numbers of the networks begin with, and how many digits they
// have (ISO/IEC 7812; the networks' published ranges). From low to high, both
// included, compared as far as they are written.
var prefixes = [...]struct {
	low, high   string
	least, most int
}{
	{"4", "4", 13, 19},       // Visa
	{"51", "55", 16, 16},     // Mastercard
	{"2221", "2720", 16, 16}, // Mastercard
	{"2200", "2204", 16, 19}, // Mir
	{"34", "34", 15, 15},     // American Express
	{"37", "37", 15, 15},
	{"300", "305", 14, 19}, // Diners Club
	{"309", "309", 14, 19},
	{"36", "36", 14, 19},
	{"38", "39", 14, 19},
	{"3528", "3589", 16, 19}, // JCB
	{"50", "50", 13, 19},     // Maestro, Elo, RuPay
	{"56", "58", 13, 19},     // Maestro
	{"60", "69", 13, 19},     // Discover, UnionPay, RuPay, Maestro, Elo, Hipercard
	{"81", "82", 16, 19},     // UnionPay, RuPay
	{"9792", "9792", 16, 16}, // Troy
	{"8600", "8600", 16, 16}, // Uzcard
	{"9860", "9860", 16, 16}, // Humo
}

// isNumber reports whether digits, of which there are at least 13 and at most 19,
// are those of a card.
func isNumber(digits string) bool {
	known := false
	for _, p := range prefixes {
		begin := digits[:len(p.low)]
		known = known || p.low <= begin && begin <= p.high && p.least <= len(digits) && len(digits) <= p.most
	}
	if !known {
		return false
	}
	sum := 0 // Luhn
	for i := range len(digits) {
		n := int(digits[len(digits)-1-i] - '0')
		if i%2 == 1 {
			if n *= 2; n > 9 {
				n -= 9
			}
		}
		sum += n
	}
	return sum%10 == 0
}

// find is where the first card number of text begins and ends, at or after from.
// Its digits stand together, or in groups with one blank or one dash between
// them; neither a digit stands beside it, nor the point of a fraction before it.
func find(text string, from int) (begin, end int, ok bool) {
	for i := from; i < len(text); i++ {
		if !isDigit(text[i]) || i > 0 && (isDigit(text[i-1]) || text[i-1] == '.' && i > 1 && isDigit(text[i-2])) {
			continue
		}
		// All ends of groups behind i: a number may be followed by others.
		digits := make([]byte, 0, longest+1)
		group := 0
		for j := i; j < len(text) && len(digits) <= longest; j++ {
			if isDigit(text[j]) {
				digits = append(digits, text[j])
				group++
				ends := j+1 == len(text) || !isDigit(text[j+1])
				if ends && len(digits) >= shortest && len(digits) <= longest && isNumber(string(digits)) {
					return i, j + 1, true
				}
				continue
			}
			// Groups of a card have four digits or more, but for the last.
			if (text[j] != ' ' && text[j] != '-') || group < 4 || j+1 == len(text) || !isDigit(text[j+1]) {
				break
			}
			group = 0
		}
	}
	return 0, 0, false
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

// In reports whether a card number stands in text.
func In(text string) bool {
	_, _, ok := find(text, 0)
	return ok
}

// Mask is text with the inner digits of each card number in it as stars: the
// first six and the last four stay.
func Mask(text string) string {
	begin, end, ok := find(text, 0)
	if !ok {
		return text
	}
	out := []byte(text)
	for ok {
		digits := 0
		for i := begin; i < end; i++ {
			if isDigit(text[i]) {
				digits++
			}
		}
		n := 0
		for i := begin; i < end; i++ {
			if !isDigit(text[i]) {
				continue
			}
			if n++; n > 6 && n <= digits-4 {
				out[i] = '*'
			}
		}
		begin, end, ok = find(text, end)
	}
	return string(out)
}

// codes and numbers are the names of fields that hold a card's secrets, without
// the signs between their words: what a request has in one may be kept nowhere,
// however it looks.
var (
	codes = [...]string{
		"cvc", "cvc2", "cvv", "cvv2", "cvn", "cardcvc", "cardcvv", "cardcid", "cardcsc", "cvccode", "cvvcode", "cvvvalue", "verificationvalue",
		"securitycode", "cardsecuritycode", "verificationcode", "cardverificationcode", "cardcode", "cardcryptogramvalue", "cardcryptogrampacket",
		"encryptedsecuritycode", "track1", "track2", "trackdata", "pinblock",
	}
	numbers = [...]string{"pan", "cardnumber", "cardno", "cardpan", "primaryaccountnumber", "encryptedcardnumber"}
)

var withoutSigns = strings.NewReplacer("_", "", "-", "", " ", "")

// Field reports whether name, with what it is within (card[cvc], card.number),
// is that of a field for a card's number or code.
func Field(name string) bool {
	code, number := kind(name)
	return code || number
}

func kind(name string) (code, number bool) {
	within, last := lastWord(strings.ToLower(name))
	if slices.Contains(codes[:], last) {
		return true, false
	}
	if last == "number" {
		_, last = lastWord(within)
		return false, strings.HasSuffix(last, "card")
	}
	return false, slices.Contains(numbers[:], last)
}

// Within is the name of the property of that name within what is called name, as far
// as [Field] and [Told] look at one: however deep it is, it does not get longer.
func Within(name, property string) string {
	const most = 128 // bytes, above all names that mean something
	name = name[max(0, len(name)-most):]
	return name + "." + property[max(0, len(property)-most):]
}

// lastWord is the last of the names of which name is made, without the signs between
// its words, and what stands before it.
func lastWord(name string) (within, last string) {
	const between = "[].:/"
	name = strings.TrimRight(name, between)
	i := strings.LastIndexAny(name, between)
	return name[:max(i, 0)], withoutSigns.Replace(name[i+1:])
}

// Told reports whether value, which an answer has in a field of that name, gives
// a card's code or number away. An answer may well say under such a name how a
// code was checked (pass, M), and of a number the last digits, or stars.
func Told(name, value string) bool {
	code, number := kind(name)
	if !code && !number || strings.Trim(value, "0123456789 -") != "" {
		return false
	}
	digits := len(value) - strings.Count(value, " ") - strings.Count(value, "-")
	return code && digits >= 3 || number && digits >= shortest
}

// mostSigns is how far from the name of a field its value may stand.
const mostSigns = 8

// MaskFields is Mask for a text in which fields stand in a form that nobody knows:
// the digits behind the name of a field for a card, with nothing but signs between
// them, are stars too.
func MaskFields(text string) string {
	out := []byte(Mask(text))
	inName := func(c byte) bool { return isLetter(c) || isDigit(c) || strings.IndexByte("_-.[]", c) >= 0 }
	for i := 0; i < len(text); i++ {
		begin := i
		for i < len(text) && inName(text[i]) {
			i++
		}
		if begin == i || !Field(text[begin:i]) {
			continue
		}
		from := i
		for from < min(len(text), i+mostSigns) && !isLetter(text[from]) && !isDigit(text[from]) {
			from++
		}
		for ; from < len(text) && isDigit(text[from]); from++ {
			out[from] = '*'
		}
	}
	return string(out)
}

func isLetter(c byte) bool { return 'a' <= c|0x20 && c|0x20 <= 'z' }

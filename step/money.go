package step

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/big"
	"strconv"
	"strings"

	"zabor"
	"zabor/provider"
)

// minorAmount reads v as minor units: a whole number, or its digits as a text.
func minorAmount(v any, currency string) (zabor.Money, error) {
	if _, ok := provider.Digits(currency); !ok {
		return zabor.Money{}, unknownCurrency(currency)
	}
	switch v := v.(type) {
	case int64:
		return minorText(strconv.FormatInt(v, 10), currency)
	case json.Number:
		return minorText(v.String(), currency)
	case string:
		return minorText(v, currency)
	case float64:
		return zabor.Money{}, fmt.Errorf("it is the float %s where minor units belong; a decimal is configured as {major: …}", shortest(v))
	}
	return zabor.Money{}, fmt.Errorf("it is %s where minor units belong", kind(v))
}

func minorText(s, currency string) (zabor.Money, error) {
	if strings.HasPrefix(s, "-") {
		return zabor.Money{}, fmt.Errorf("%s is below zero", s)
	}
	if s == "" || strings.Trim(s, "0123456789") != "" {
		return zabor.Money{}, fmt.Errorf("%q is not a whole number of minor units; a decimal is configured as {major: …}", s)
	}
	minor, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		return zabor.Money{}, fmt.Errorf("%s is too large: at most %d", s, int64(math.MaxInt64))
	}
	return zabor.Money{Minor: minor, Currency: currency}, nil
}

// majorAmount reads v as a decimal in major units: a text, a whole number, or a
// float, which stands for the shortest decimal that it is nearest to.
func majorAmount(v any, currency string) (zabor.Money, error) {
	switch v := v.(type) {
	case string:
		return provider.ParseMajor(v, currency)
	case int64:
		return provider.ParseMajor(strconv.FormatInt(v, 10), currency)
	case float64:
		return provider.ParseMajor(shortest(v), currency)
	case json.Number:
		plain, err := plainDecimal(v.String())
		if err != nil {
			return zabor.Money{}, err
		}
		return provider.ParseMajor(plain, currency)
	}
	return zabor.Money{}, fmt.Errorf("it is %s where a decimal belongs", kind(v))
}

// shortest is the shortest decimal that is nearest to f of all floats: 19.99 is
// 19.99, though the float is a little less.
func shortest(f float64) string { return strconv.FormatFloat(f, 'f', -1, 64) }

// plainDecimal is a JSON number without an exponent.
func plainDecimal(s string) (string, error) {
	significand, exponent, has := strings.Cut(strings.ToLower(s), "e")
	if !has {
		return s, nil
	}
	shift, err := strconv.Atoi(exponent)
	if err != nil || shift < -40 || shift > 40 {
		return "", fmt.Errorf("%s is no amount of money", s)
	}
	value, ok := new(big.Rat).SetString(significand + "e" + exponent)
	if !ok {
		return "", errors.New("it is not a number")
	}
	return trimDecimal(value.FloatString(40 + len(significand))), nil
}

// trimDecimal is s, which has a point, without zeros at its end.
func trimDecimal(s string) string {
	return strings.TrimSuffix(strings.TrimRight(s, "0"), ".")
}

// IsCurrency reports whether s is written like a currency code and so is one,
// rather than the path to a property: three upper-case letters.
func IsCurrency(s string) bool {
	return len(s) == 3 && strings.Trim(s, "ABCDEFGHIJKLMNOPQRSTUVWXYZ") == ""
}

// currencyCode reads v as a currency code.
func currencyCode(v any) (string, error) {
	s, ok := v.(string)
	if !ok {
		return "", fmt.Errorf("it is %s where three letters of a currency belong", kind(v))
	}
	code := strings.ToUpper(s)
	if _, ok := provider.Digits(code); !ok {
		return "", unknownCurrency(s)
	}
	return code, nil
}

func unknownCurrency(code string) error {
	return fmt.Errorf("%q is not a currency of ISO 4217; three letters such as EUR are", code)
}

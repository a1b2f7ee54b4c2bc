package audit

import (
	"bufio"
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"zabor"
	"zabor/provider"
)

// Columns say which column of a file, or which member of its JSON objects, means
// what. A column of a CSV is its title; a member of an object is a JSON pointer
// (/metadata/order). Of several the first that is there and not empty counts.
type Columns struct {
	Reference []string // the provider's id; needed
	Alias     []string // another id of the same payment
	Key       []string // the idempotency key
	Scope     []string
	Order     []string
	Step      []string
	Amount    []string
	Minor     bool // the amount is in minor units; else a decimal
	Currency  []string
	At        []string
	Status    []string // empty: every entry is a success
	Success   []string // the values of Status that say it is; compared without case
	Type      []string // empty: every entry is a charge
	Charge    []string // the values of Type that say it is

	like *regexp.Regexp // what a Reference looks like: an entry with another is no payment; nil: anything
}

// has reports whether the column of that title, or the member at that pointer, says
// something.
func (c Columns) has(title string) bool {
	for _, list := range [][]string{c.Reference, c.Alias, c.Key, c.Scope, c.Order, c.Step, c.Amount, c.Currency, c.At, c.Status, c.Type} {
		if slices.Contains(list, title) {
			return true
		}
	}
	return false
}

// ParseColumns reads a mapping such as
//
//	reference=Txn,amount=Total,currency=Cur,order=Order,status=State:paid|captured
//
// The names are those of [Columns], with minor for an amount in minor units, and
// major for one that is not. An error says which part is wrong.
func ParseColumns(text string) (Columns, error) {
	var c Columns
	fields := map[string]*[]string{
		"reference": &c.Reference, "alias": &c.Alias, "key": &c.Key, "scope": &c.Scope, "order": &c.Order, "step": &c.Step,
		"amount": &c.Amount, "major": &c.Amount, "minor": &c.Amount, "currency": &c.Currency, "at": &c.At, "status": &c.Status, "type": &c.Type,
	}
	for part := range strings.SplitSeq(text, ",") {
		name, column, ok := strings.Cut(part, "=")
		field, known := fields[name]
		if !ok || !known || column == "" {
			return Columns{}, fmt.Errorf("%q is not NAME=COLUMN with a NAME of reference, alias, key, scope, order, step, amount (or major), minor, currency, at, status or type", part)
		}
		c.Minor = c.Minor || name == "minor"
		if name == "status" || name == "type" {
			title, values, ok := strings.Cut(column, ":")
			if !ok {
				return Columns{}, fmt.Errorf("%q does not say which values count: write %s=%s:paid|captured", part, name, column)
			}
			column = title
			if name == "status" {
				c.Success = strings.Split(values, "|")
			} else {
				c.Charge = strings.Split(values, "|")
			}
		}
		*field = append(*field, column)
	}
	if len(c.Reference) == 0 {
		return Columns{}, errors.New("no reference: write reference=COLUMN, the provider's id of the payment")
	}
	return c, nil
}

// Export is a provider's list of payments in a file: CSV with a line of titles
// (separated by comma, semicolon or tab), or a JSON object on each line.
type Export struct {
	Path     string
	Provider string   // the name that the rows have; empty: any
	Columns  *Columns // nil: one of the formats that zabor knows
	// Units are those of the provider, for amounts in minor units; nil: ISO 4217's.
	Units provider.Units
	// Location is where times without a zone are; nil: UTC.
	Location *time.Location
}

// Successes reads the export. Entries that are no charge or no success are passed
// over. What cannot be read is an error with the file's line: an audit that leaves
// lines out would say that all is well.
func (e Export) Successes() iter.Seq2[Success, error] {
	return func(yield func(Success, error) bool) {
		f, err := os.Open(e.Path)
		if err != nil {
			yield(Success{}, err)
			return
		}
		defer f.Close()
		file := &bounded{Reader: f, left: maxRecord}
		in := bufio.NewReaderSize(file, 1<<16)
		switch head, _ := in.Peek(3); {
		case bytes.HasPrefix(head, []byte("\xff\xfe")), bytes.HasPrefix(head, []byte("\xfe\xff")):
			yield(Success{}, fmt.Errorf("%s is in UTF-16: write it as UTF-8 (iconv -f UTF-16 -t UTF-8)", e.Path))
			return
		case bytes.Equal(head, []byte("\xef\xbb\xbf")):
			_, _ = in.Discard(3) // it was seen: it is there
		}
		read := e.csv
		switch first, _ := in.Peek(1); string(first) {
		case "{":
			read = e.json
		case "[":
			yield(Success{}, fmt.Errorf("%s is one JSON array: write an object on each line (jq -c '.[]')", e.Path))
			return
		}
		for s, err := range read(in, func() { file.left = maxRecord }) {
			if !yield(s, err) || err != nil {
				return
			}
		}
	}
}

// maxRecord is about how long a record may be, in bytes: where a quote is never
// closed it would be all the rest of the file.
const maxRecord = 16 << 20

var errTooLong = fmt.Errorf("a record is longer than %d bytes: is a quote never closed?", maxRecord)

// bounded fails when left bytes have been read since it was set.
type bounded struct {
	io.Reader
	left int
}

func (b *bounded) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, errTooLong
	}
	n, err := b.Reader.Read(p)
	b.left -= n
	return n, err
}

// record is one entry of an export.
type record func(column string) string

// csv reads titles and lines. Lines before the titles (a report's own head) are
// passed over, at most 20. next is called before each record.
func (e Export) csv(in *bufio.Reader, next func()) iter.Seq2[Success, error] {
	return func(yield func(Success, error) bool) {
		r := csv.NewReader(in)
		r.Comma = separator(in)
		r.FieldsPerRecord = -1
		r.ReuseRecord = true
		var columns *Columns
		index := map[string]int{}
		first := ""
		for columns == nil {
			next()
			titles, err := r.Read()
			if first == "" {
				first = strings.Join(titles, string(r.Comma))
			}
			if errors.Is(err, io.EOF) || err == nil && firstLine(r) > 20 {
				yield(Success{}, fmt.Errorf("%s: no line of titles that says which column is the provider's id; give the columns with --columns reference=TITLE,amount=TITLE,currency=TITLE,order=TITLE (its first line: %q)", e.Path, first))
				return
			}
			if err != nil {
				yield(Success{}, fmt.Errorf("%s: %w", e.Path, err))
				return
			}
			clear(index)
			twice := ""
			for i, title := range titles {
				if title = strings.TrimSpace(title); index[title] > 0 {
					twice = title
				}
				index[title] = i + 1
			}
			if columns = e.columns(func(title string) bool { return index[title] > 0 }); columns != nil && columns.has(twice) {
				yield(Success{}, fmt.Errorf("%s:%d: two columns are called %s: which of them counts?", e.Path, firstLine(r), twice))
				return
			}
		}
		last := 0 // of the columns that say something
		for title, i := range index {
			if columns.has(title) {
				last = max(last, i)
			}
		}
		for {
			next()
			fields, err := r.Read()
			if errors.Is(err, io.EOF) {
				return
			}
			if err != nil {
				yield(Success{}, fmt.Errorf("%s: %w", e.Path, err))
				return
			}
			if len(fields) < last && columns.like == nil {
				yield(Success{}, fmt.Errorf("%s:%d: the line ends before its column %d: was the file cut off?", e.Path, firstLine(r), last))
				return
			}
			s, ok, err := e.success(*columns, firstLine(r), func(column string) string {
				if i := index[column]; i > 0 && i <= len(fields) {
					return strings.TrimSpace(fields[i-1])
				}
				return ""
			})
			if (ok || err != nil) && (!yield(s, err) || err != nil) {
				return
			}
		}
	}
}

// firstLine is where the record that was read last begins.
func firstLine(r *csv.Reader) int {
	line, _ := r.FieldPos(0)
	return line
}

// separator is the one that a line of the file's beginning has most of.
func separator(in *bufio.Reader) rune {
	head, _ := in.Peek(4096)
	best, most := ',', 0
	for line := range bytes.Lines(head) {
		for _, c := range []rune{',', ';', '\t'} {
			if n := bytes.Count(line, []byte(string(c))); n > most {
				best, most = c, n
			}
		}
	}
	return best
}

// json reads an object of each line. next is called before each.
func (e Export) json(in *bufio.Reader, next func()) iter.Seq2[Success, error] {
	return func(yield func(Success, error) bool) {
		for line := 1; ; line++ {
			next()
			text, err := in.ReadBytes('\n')
			if err != nil && !errors.Is(err, io.EOF) {
				yield(Success{}, fmt.Errorf("%s:%d: %w", e.Path, line, err))
				return
			}
			end := err != nil
			if text = bytes.TrimSpace(text); len(text) > 0 {
				s, ok, err := e.object(text, line)
				if (ok || err != nil) && (!yield(s, err) || err != nil) {
					return
				}
			}
			if end {
				return
			}
		}
	}
}

func (e Export) object(text []byte, line int) (Success, bool, error) {
	var object any
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	if err := d.Decode(&object); err != nil {
		return Success{}, false, fmt.Errorf("%s:%d: not a JSON object on a line of its own: %w", e.Path, line, err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return Success{}, false, fmt.Errorf("%s:%d: something stands behind the JSON object; write each on a line of its own", e.Path, line)
	}
	columns := e.columns(func(pointer string) bool { return member(object, pointer) != "" })
	if columns == nil {
		return Success{}, false, fmt.Errorf("%s:%d: not an object that zabor knows; say where things are with --columns reference=/id,minor=/amount,currency=/currency,order=/metadata/order", e.Path, line)
	}
	return e.success(*columns, line, func(pointer string) string { return member(object, pointer) })
}

// unescapePointer is RFC 6901's; each line of an export asks for it several times.
var unescapePointer = strings.NewReplacer("~1", "/", "~0", "~")

// member is the text or number at a JSON pointer; empty: there is none.
func member(v any, pointer string) string {
	for name := range strings.SplitSeq(strings.TrimPrefix(pointer, "/"), "/") {
		object, ok := v.(map[string]any)
		if !ok {
			return ""
		}
		v = object[unescapePointer.Replace(name)]
	}
	switch v := v.(type) {
	case string:
		return v
	case json.Number:
		return v.String()
	case bool:
		return strconv.FormatBool(v)
	}
	return ""
}

// columns are those given, else of the first format that knows the entries; nil:
// there is none.
func (e Export) columns(has func(string) bool) *Columns {
	if e.Columns != nil {
		if slices.ContainsFunc(e.Columns.Reference, has) {
			return e.Columns
		}
		return nil
	}
	for i := range formats {
		if f := &formats[i]; !slices.ContainsFunc(f.has, func(c string) bool { return !has(c) }) {
			return &f.Columns
		}
	}
	return nil
}

// success reads one entry; ok is false where it is none.
func (e Export) success(c Columns, line int, get record) (s Success, ok bool, err error) {
	first := func(columns []string) string {
		for _, column := range columns {
			if v := get(column); v != "" {
				return v
			}
		}
		return ""
	}
	wrong := func(format string, args ...any) (Success, bool, error) {
		return Success{}, false, fmt.Errorf("%s:%d: %s", e.Path, line, fmt.Sprintf(format, args...))
	}
	is := func(columns, values []string) bool {
		return len(columns) == 0 || slices.ContainsFunc(values, func(v string) bool { return strings.EqualFold(v, first(columns)) })
	}
	if !is(c.Status, c.Success) || !is(c.Type, c.Charge) {
		return Success{}, false, nil
	}
	s = Success{
		Provider: e.Provider, Reference: first(c.Reference), Alias: first(c.Alias), Key: first(c.Key),
		Order: first(c.Order), Step: first(c.Step), Place: fmt.Sprintf("%s:%d", e.Path, line),
	}
	if scope := first(c.Scope); scope != "" {
		s.Scope = &scope
	}
	if c.like != nil && !c.like.MatchString(s.Reference) {
		return Success{}, false, nil
	}
	if s.Reference == "" {
		return wrong("no reference (%s is empty)", strings.Join(c.Reference, ", "))
	}
	if text := first(c.Amount); text != "" {
		if s.Amount, err = e.amount(text, strings.ToUpper(first(c.Currency)), c.Minor); err != nil {
			return wrong("%v", err)
		}
		if s.Amount.Minor < 0 {
			return Success{}, false, nil // money that went back
		}
	}
	if text := first(c.At); text != "" {
		if s.At, err = moment(text, e.Location); err != nil {
			return wrong("%v", err)
		}
	}
	return s, true, nil
}

// grouped is a decimal with commas between thousands.
var grouped = regexp.MustCompile(`^\d{1,3}(,\d{3})+(\.\d+)?$`)

// amount reads a provider's text of an amount. A decimal may have commas between
// its thousands, or a comma for its point; 1,234 could be either and is an error.
func (e Export) amount(text, currency string, minor bool) (zabor.Money, error) {
	digits, negative := strings.CutPrefix(text, "-")
	var m zabor.Money
	var err error
	if minor {
		m.Currency = currency
		if m.Minor, err = strconv.ParseInt(digits, 10, 64); err != nil {
			return m, fmt.Errorf("amount %q is no whole number of minor units", text)
		}
		if e.Units != nil && currency != "" {
			m, err = e.Units.Parse(digits, currency)
		}
	} else {
		whole, fraction, comma := strings.Cut(digits, ",")
		switch {
		case grouped.MatchString(digits) && (strings.Contains(digits, ".") || strings.Count(digits, ",") > 1):
			digits = strings.ReplaceAll(digits, ",", "")
		case comma && len(fraction) == 3 && !strings.Contains(digits, "."):
			return m, fmt.Errorf("amount %q may be thousands or a fraction: write it with a point", text)
		case comma:
			digits = whole + "." + fraction
		}
		m, err = provider.ParseMajor(digits, currency)
	}
	if err != nil {
		return m, fmt.Errorf("amount %q: %w", text, err)
	}
	if negative {
		m.Minor = -m.Minor
	}
	return m, nil
}

// layouts are how exports write times.
var layouts = []string{
	time.RFC3339Nano, "2006-01-02 15:04:05 -0700", "2006-01-02 15:04:05.999999999", "2006-01-02T15:04:05", "2006-01-02 15:04", "2006-01-02",
	"02.01.2006 15:04:05",
}

func moment(text string, zone *time.Location) (time.Time, error) {
	if zone == nil {
		zone = time.UTC
	}
	if n, err := strconv.ParseInt(text, 10, 64); err == nil && len(text) >= 9 {
		if len(text) > 11 {
			return time.UnixMilli(n).UTC(), nil
		}
		return time.Unix(n, 0).UTC(), nil
	}
	for _, layout := range layouts {
		if t, err := time.ParseInLocation(layout, text, zone); err == nil {
			return t.UTC(), nil
		}
	}
	return time.Time{}, fmt.Errorf("time %q is in no form that zabor knows; RFC 3339 is one, and 2026-03-02 10:00:00 another", text)
}

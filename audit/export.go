package audit

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
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
	Back      []string // empty: nothing says that money went back
	BackIs    []string // the values of Back that say that it did; "*": anything but nothing, zero and false

	original  []string       // where an entry that is itself money gone back names the payment; empty: none does
	gone      *regexp.Regexp // values of Type that are such an entry
	like      *regexp.Regexp // what a Reference looks like: an entry with another is no payment; nil: anything
	notCharge *regexp.Regexp // values of Type that are no charge; nil: Charge says it
}

// lists are the columns by the name that they have in [ParseColumns].
func (c *Columns) lists() map[string]*[]string {
	return map[string]*[]string{
		"reference": &c.Reference, "alias": &c.Alias, "key": &c.Key, "scope": &c.Scope, "order": &c.Order, "step": &c.Step,
		"amount": &c.Amount, "currency": &c.Currency, "at": &c.At, "status": &c.Status, "type": &c.Type, "back": &c.Back,
	}
}

// over is c with the columns of known where c names none.
func (c Columns) over(known Columns) Columns {
	mine := c.lists()
	for name, list := range known.lists() {
		if len(*list) == 0 || len(*mine[name]) > 0 {
			continue
		}
		*mine[name] = *list
		switch name {
		case "reference":
			c.like = known.like
		case "amount":
			c.Minor = known.Minor
		case "status":
			c.Success = known.Success
		case "type":
			c.Charge, c.notCharge, c.gone, c.original = known.Charge, known.notCharge, known.gone, known.original
		case "back":
			c.BackIs = known.BackIs
		}
	}
	return c
}

// has reports whether the column of that title, or the member at that pointer, says
// something.
func (c Columns) has(title string) bool {
	for _, list := range c.lists() {
		if slices.Contains(*list, title) {
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
// major for one that is not. Without a reference it says only what differs in one of
// the formats that zabor knows. An error says which part is wrong.
func ParseColumns(text string) (Columns, error) {
	var c Columns
	fields := c.lists()
	fields["major"], fields["minor"] = &c.Amount, &c.Amount
	for part := range strings.SplitSeq(text, ",") {
		name, column, ok := strings.Cut(part, "=")
		field, known := fields[name]
		if !ok || !known || column == "" {
			return Columns{}, fmt.Errorf("%q is not NAME=COLUMN with a NAME of reference, alias, key, scope, order, step, amount (or major), minor, currency, at, status, type or back", part)
		}
		c.Minor = c.Minor || name == "minor"
		if name == "status" || name == "type" || name == "back" {
			title, values, ok := strings.Cut(column, ":")
			if !ok {
				return Columns{}, fmt.Errorf("%q does not say which values count: write %s=%s:paid|captured", part, name, column)
			}
			column = title
			switch list := strings.Split(values, "|"); name {
			case "status":
				c.Success = list
			case "type":
				c.Charge = list
			default:
				c.BackIs = list
			}
		}
		*field = append(*field, column)
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
	// Skipped is told of each entry that is passed over and why, in a few words such
	// as "state Failed"; nil: nobody is told.
	Skipped func(why string)
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
		in = decoded(in)
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
		if missing := e.missing(func(title string) bool { return index[title] > 0 }); missing != "" {
			yield(Success{}, fmt.Errorf("%s:%d: --columns names %s, and there is no such column; there are: %s", e.Path, firstLine(r), missing, strings.Join(slices.Sorted(maps.Keys(index)), ", ")))
			return
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
		seen := map[string]bool{} // the pointers of --columns that some object has
		objects := 0
		for line := 1; ; line++ {
			next()
			text, err := in.ReadBytes('\n')
			if err != nil && !errors.Is(err, io.EOF) {
				yield(Success{}, fmt.Errorf("%s:%d: %w", e.Path, line, err))
				return
			}
			end := err != nil
			if text = bytes.TrimSpace(text); len(text) > 0 {
				objects++
				s, ok, err := e.object(text, line, seen)
				if (ok || err != nil) && (!yield(s, err) || err != nil) {
					return
				}
			}
			if end {
				break
			}
		}
		if missing := e.missing(func(pointer string) bool { return seen[pointer] }); missing != "" && objects > 0 {
			yield(Success{}, fmt.Errorf("%s: --columns names %s, and none of its %d objects has that member", e.Path, missing, objects))
		}
	}
}

// missing is the first of the columns of --columns that is not there; "": all are.
func (e Export) missing(has func(string) bool) string {
	if e.Columns == nil {
		return ""
	}
	for _, list := range e.Columns.lists() {
		for _, column := range *list {
			if !has(column) {
				return column
			}
		}
	}
	return ""
}

func (e Export) object(text []byte, line int, seen map[string]bool) (Success, bool, error) {
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
	if e.Columns != nil {
		for _, list := range e.Columns.lists() {
			for _, pointer := range *list {
				seen[pointer] = seen[pointer] || member(object, pointer) != ""
			}
		}
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
	if e.Columns != nil && len(e.Columns.Reference) > 0 {
		if slices.ContainsFunc(e.Columns.Reference, has) {
			return e.Columns
		}
		return nil
	}
	for i := range formats {
		if f := &formats[i]; !slices.ContainsFunc(f.has, func(c string) bool { return !has(c) }) {
			if e.Columns == nil {
				return &f.Columns
			}
			both := e.Columns.over(f.Columns)
			return &both
		}
	}
	return nil
}

// skip tells of an entry that is passed over.
func (e Export) skip(format string, args ...any) (Success, bool, error) {
	if e.Skipped != nil {
		e.Skipped(fmt.Sprintf(format, args...))
	}
	return Success{}, false, nil
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
	reference := first(c.Reference)
	if c.like != nil && !c.like.MatchString(reference) {
		m, err := e.amount(first(c.Amount), strings.ToUpper(first(c.Currency)), c.Minor)
		if payment := reference != "" && err == nil && m.Minor != 0; !payment {
			return Success{}, false, nil // a line of the head or the foot has no amount
		}
		return e.skip("%s is not of this provider's form, such as %q", strings.Join(c.Reference, ", "), reference)
	}
	if c.gone != nil && c.gone.MatchString(first(c.Type)) && first(c.original) != "" {
		_, _, _ = e.skip("type %s", first(c.Type))
		s = Success{Provider: e.Provider, Reference: first(c.original), Back: "type is " + first(c.Type), Gone: true, Place: fmt.Sprintf("%s:%d", e.Path, line)}
		return s, true, nil
	}
	switch kind := first(c.Type); {
	case c.notCharge != nil:
		if kind == "" || c.notCharge.MatchString(kind) {
			return e.skip("type %s", cmp.Or(kind, "empty"))
		}
	case !is(c.Type, c.Charge):
		return e.skip("type %s", cmp.Or(kind, "empty"))
	}
	back := c.back(first)
	if !is(c.Status, c.Success) {
		if back != "" && reference != "" {
			s = Success{Provider: e.Provider, Reference: reference, Alias: first(c.Alias), Back: back, Gone: true, Place: fmt.Sprintf("%s:%d", e.Path, line)}
			_, _, _ = e.skip("state %s", first(c.Status))
			return s, true, nil
		}
		return e.skip("state %s", cmp.Or(first(c.Status), "empty, or there is no column "+strings.Join(c.Status, ", ")))
	}
	s = Success{
		Provider: e.Provider, Reference: reference, Alias: first(c.Alias), Key: first(c.Key),
		Order: first(c.Order), Step: first(c.Step), Place: fmt.Sprintf("%s:%d", e.Path, line), Back: back,
	}
	if scope := first(c.Scope); scope != "" {
		s.Scope = &scope
	}
	if s.Reference == "" {
		return wrong("no reference (%s is empty)", strings.Join(c.Reference, ", "))
	}
	if text := first(c.Amount); text != "" {
		if s.Amount, err = e.amount(text, strings.ToUpper(first(c.Currency)), c.Minor); err != nil {
			return wrong("%v", err)
		}
		if s.Amount.Minor < 0 {
			return e.skip("money that went back")
		}
	}
	if text := first(c.At); text != "" {
		if s.At, err = moment(text, e.Location); err != nil {
			return wrong("%v", err)
		}
	}
	return s, true, nil
}

// back is what an entry says of money that went back; empty: nothing.
func (c Columns) back(first func([]string) string) string {
	for _, column := range c.Back {
		text := first([]string{column})
		for _, value := range c.BackIs {
			some := value == "*" && strings.Trim(text, "0.,") != "" && !strings.EqualFold(text, "false")
			if some || text != "" && strings.EqualFold(value, text) {
				return column + " is " + text
			}
		}
	}
	return ""
}

// Decimals with thousands between commas, or between points.
var (
	grouped = regexp.MustCompile(`^\d{1,3}(,\d{3})+(\.\d+)?$`)
	pointed = regexp.MustCompile(`^\d{1,3}(\.\d{3})+,\d+$`)
)

// dress is what stands around and within an amount that people read: blanks and
// apostrophes between thousands, currency signs.
var dress = regexp.MustCompile(`^[A-Z]{3}|[A-Z]{3}$|(?i:руб|р|грн|zł|kr)\.?$|[\s\x{a0}\x{202f}\x{2009}'’]|\p{Sc}`)

// amount reads a provider's text of an amount. A decimal may have commas, points,
// blanks or apostrophes between its thousands, a comma for its point, a sign of its
// currency, and parentheses for a minus. 1,234 could be thousands or a fraction and is
// an error.
func (e Export) amount(text, currency string, minor bool) (zabor.Money, error) {
	bare := dress.ReplaceAllString(strings.ReplaceAll(text, "−", "-"), "")
	inner, closed := strings.CutSuffix(strings.TrimPrefix(bare, "("), ")")
	digits, negative := strings.CutPrefix(bare, "-")
	if closed && strings.HasPrefix(bare, "(") {
		digits, negative = inner, true
	}
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
		case pointed.MatchString(digits):
			digits = strings.ReplaceAll(whole, ".", "") + "." + fraction
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
	"02.01.2006 15:04:05", "02.01.2006 15:04", "02.01.2006", "2006/01/02 15:04:05", "2006/01/02",
	"2006-01-02T15:04:05.999-0700", "2006-01-02 15:04:05 MST", "2 Jan 2006 15:04:05", "2 Jan 2006 15:04", "2 Jan 2006", "Jan 2, 2006", "Jan 2, 2006, 3:04 PM", time.RFC1123Z, time.RFC1123,
}

// slashed is a date of which the first two numbers are day and month, or month and day.
var slashed = regexp.MustCompile(`^(\d{1,2})/(\d{1,2})/(\d{4})(?:[ ,]+(\d{1,2}:\d{2}(?::\d{2})?))?$`)

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
	if m := slashed.FindStringSubmatch(text); m != nil {
		first, _ := strconv.Atoi(m[1])
		second, _ := strconv.Atoi(m[2])
		layout, at := "2/1/2006", m[1]+"/"+m[2]+"/"+m[3]
		switch {
		case first <= 12 && second <= 12 && first != second:
			return time.Time{}, nil // day and month cannot be told apart: not known
		case second > 12:
			layout = "1/2/2006"
		}
		if m[4] != "" {
			layout, at = layout+" 15:04:05"[:len(" 15:04:05")-3*(2-strings.Count(m[4], ":"))], at+" "+m[4]
		}
		if t, err := time.ParseInLocation(layout, at, zone); err == nil {
			return t.UTC(), nil
		}
	}
	return time.Time{}, fmt.Errorf("time %q is in no form that zabor knows; RFC 3339 is one, and 2026-03-02 10:00:00 another", text)
}

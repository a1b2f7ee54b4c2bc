package dashboard

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"html/template"
	"io/fs"
	"net/http"
	"net/url"
	"path"
	"regexp"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"zabor"
	"zabor/card"
	"zabor/dashboard/access"
	"zabor/provider"
)

// pages are the templates by name, and what tells this version's files from
// another's in a browser's cache.
type pages struct {
	byName map[string]*template.Template
	stamp  string
}

func (p *pages) parse() error {
	sum := sha256.New()
	if err := fs.WalkDir(files, "static", func(name string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		text, err := files.ReadFile(name)
		sum.Write(text)
		return err
	}); err != nil {
		return err
	}
	p.stamp = hex.EncodeToString(sum.Sum(nil)[:6])
	names, err := fs.Glob(files, "templates/*.html")
	if err != nil {
		return err
	}
	p.byName = map[string]*template.Template{}
	for _, name := range names {
		base := path.Base(name)
		if base == "layout.html" || base == "parts.html" {
			continue
		}
		t, err := template.New("layout.html").Funcs(functions).ParseFS(files, "templates/layout.html", "templates/parts.html", name)
		if err != nil {
			return fmt.Errorf("dashboard: %w", err)
		}
		p.byName[strings.TrimSuffix(base, ".html")] = t
	}
	return nil
}

// page is what the layout has.
type page struct {
	Title    string
	Here     string // path of the entry of the menu
	Stamp    string
	Scope    string
	Version  string
	User     string
	Operator bool
	SignsIn  bool // there is something to sign out of
	Pauses   []pause
	Waiting  int64 // rows in doubt or held; for the menu
	Now      time.Time
	Body     any
}

// show writes a page, whole or not at all.
func (d *Dashboard) show(w http.ResponseWriter, r *http.Request, status int, name, title, here string, body any) {
	id := access.From(r.Context())
	p := page{Title: title, Here: here, Stamp: d.pages.stamp, Scope: d.o.Scope, Version: d.o.Version, User: id.Name, Operator: id.Role == access.Operator, SignsIn: d.o.Guard.SignsIn(), Waiting: d.waiting(r.Context()), Pauses: d.pauses(r.Context()), Now: time.Now().UTC(), Body: body}
	var out bytes.Buffer
	if err := d.pages.byName[name].Execute(&out, p); err != nil {
		d.o.Log.Error("dashboard: a page could not be made", "page", name, "error", err)
		http.Error(w, "this page could not be made; the log of zabor says why", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = w.Write(out.Bytes())
}

// trouble is a page that says what went wrong and what to do next.
type trouble struct {
	What   string
	Detail []string
	Next   string // a sentence
	Link   string // where it leads; may be empty
	Words  string // of the link
}

func (d *Dashboard) trouble(w http.ResponseWriter, r *http.Request, status int, t trouble) {
	d.show(w, r, status, "trouble", t.What, "", t)
}

// away is the page of a database or queue that does not answer.
func (d *Dashboard) away(w http.ResponseWriter, r *http.Request, err error) {
	if r.Context().Err() != nil && context.Cause(r.Context()) != errSlow { //nolint:errorlint // it is set as it is
		return // the browser is gone
	}
	d.o.Log.Warn("dashboard: cannot read", "path", r.URL.Path, "error", err)
	d.trouble(w, r, http.StatusServiceUnavailable, trouble{
		What: "The database does not answer", Detail: []string{err.Error()},
		Next: "Charges wait until it is back. Nobody is charged twice. Nothing was changed by this page.", Link: r.URL.RequestURI(), Words: "Try again",
	})
}

func (d *Dashboard) nothing(w http.ResponseWriter, r *http.Request) {
	status, what := http.StatusNotFound, "There is no such page"
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		status, what = http.StatusMethodNotAllowed, "Nothing can be done here"
	}
	d.trouble(w, r, status, trouble{What: what, Next: "Nothing was changed.", Link: "/", Words: "To the overview"})
}

// errKey says that an address names no row.
var errKey = errors.New("the address of this page names no row: it needs order and step")

// rowURL is the page of a row. The parts of a key are any bytes.
func rowURL(k zabor.Key) string {
	v := url.Values{"order": {k.Order}, "step": {k.Step}}
	if k.Scope != "" {
		v.Set("scope", k.Scope)
	}
	return "/fence?" + v.Encode()
}

func keyOf(v url.Values) (zabor.Key, error) {
	k := zabor.Key{Scope: v.Get("scope"), Order: v.Get("order"), Step: v.Get("step")}
	if k.Order == "" || k.Step == "" {
		return k, errKey
	}
	return k, nil
}

// entry is an entry of the menu.
type entry struct {
	Path, Name, Key string
	Here            bool
	Badge           int64
}

func menuEntry(path, name, key string, p page) entry {
	e := entry{Path: path, Name: name, Key: key, Here: p.Here == path}
	if path == "/open" {
		e.Badge = p.Waiting
	}
	return e
}

var functions = template.FuncMap{
	"rowURL":      rowURL,
	"money":       money,
	"text":        readable,
	"time":        stampOf,
	"ago":         agoOf,
	"count":       count,
	"length":      length,
	"state":       stateWords,
	"lower":       strings.ToLower,
	"token":       func(row zabor.Row) string { return token(row.Key, row.Claim) },
	"cut":         cut,
	"plural":      plural,
	"list":        func(list []string) string { return strings.Join(list, ", ") },
	"failURL":     failedURL,
	"rowID":       func(k zabor.Key) string { return elementID("row", k.Scope, k.Order, k.Step) },
	"messageID":   func(at FailedID) string { return elementID("message", at.Queue, at.Transport, at.ID) },
	"transportID": func(l FailedList) string { return elementID("transport", l.Queue, l.Transport) },
	"title":       title,
	"timed":       timed,
	"card":        func(row openRow, operator bool) openCard { return openCard{row, operator} },
	"entry":       menuEntry,
}

// elementID names an element of a page after what it is about, so that the script
// finds it again when the page is renewed. The parts are any bytes.
func elementID(kind string, parts ...string) string {
	sum := sha256.New()
	for _, part := range parts {
		fmt.Fprintf(sum, "%d:%s", len(part), part)
	}
	return kind + "-" + hex.EncodeToString(sum.Sum(nil)[:12])
}

func money(m zabor.Money) string {
	if m.Currency == "" {
		return ""
	}
	return provider.Major(m) + " " + m.Currency
}

// readable is s for a page: without card numbers and other secrets, as far as these
// can be told by their look, and with what cannot be read quoted.
func readable(s string) string {
	s = withoutSecrets(card.Mask(s))
	if !utf8.ValidString(s) || strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) && r != '\n' && r != '\t' }) {
		return strconv.Quote(s)
	}
	return s
}

// cut is s in at most n runes.
func cut(n int, s string) string {
	if utf8.RuneCountInString(s) <= n {
		return s
	}
	return string([]rune(s)[:n-1]) + "…"
}

const utcLayout = "2006-01-02 15:04:05 UTC"

// stampOf is a moment that the browser shows in its own zone. Without a script
// it is in UTC.
func stampOf(t time.Time) template.HTML { return timeHTML(t, "at") }

// agoOf is a moment as how long ago it is.
func agoOf(t time.Time) template.HTML { return timeHTML(t, "ago") }

func timeHTML(t time.Time, as string) template.HTML {
	if t.IsZero() {
		return "—"
	}
	utc := t.UTC()
	words := utc.Format(utcLayout)
	if as == "ago" {
		words = age(time.Since(utc))
	}
	// All of it is made here.
	return template.HTML(fmt.Sprintf(`<time datetime="%s" title="%s" data-as="%s">%s</time>`, utc.Format(time.RFC3339Nano), utc.Format(utcLayout), as, words)) //nolint:gocritic // HTML quotes otherwise than Go
}

// moments are times as the command prints them.
var moments = regexp.MustCompile(`\b\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}:\d{2}(\.\d+)?Z`)

// timed returns s for a page, with its times as [stampOf] shows them.
func timed(s string) template.HTML {
	s = readable(s)
	var out strings.Builder
	for at := moments.FindStringIndex(s); at != nil; at = moments.FindStringIndex(s) {
		out.WriteString(template.HTMLEscapeString(s[:at[0]]))
		moment, err := time.Parse(time.RFC3339, strings.Replace(s[at[0]:at[1]], " ", "T", 1))
		if err != nil {
			out.WriteString(template.HTMLEscapeString(s[at[0]:at[1]]))
		} else {
			out.WriteString(string(stampOf(moment)))
		}
		s = s[at[1]:]
	}
	out.WriteString(template.HTMLEscapeString(s))
	return template.HTML(out.String()) // every part is escaped above
}

// openCard is a card of the page of open rows.
type openCard struct {
	openRow
	Operator bool
}

// age is a duration in the largest unit that fits, as the script says it too.
func age(d time.Duration) string {
	ahead := d < -2*time.Second
	if d < 0 {
		d = -d
	}
	words := "just now"
	switch {
	case d >= 48*time.Hour:
		words = fmt.Sprintf("%d days", int(d.Hours())/24)
	case d >= 2*time.Hour:
		words = fmt.Sprintf("%d h", int(d.Hours()))
	case d >= 2*time.Minute:
		words = fmt.Sprintf("%d min", int(d.Minutes()))
	case d >= 2*time.Second:
		words = fmt.Sprintf("%d s", int(d.Seconds()))
	default:
		return words
	}
	if ahead {
		return "in " + words
	}
	return words + " ago"
}

func length(d time.Duration) string {
	if d == 0 {
		return ""
	}
	return d.Round(time.Second).String()
}

// count is n with its thousands apart.
func count(n int64) string {
	s := strconv.FormatInt(n, 10)
	digits := strings.TrimPrefix(s, "-")
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "\u202f" + digits[i:]
	}
	if n < 0 {
		return "−" + digits
	}
	return digits
}

func plural(n int64, one, many string) string {
	if n == 1 {
		return count(n) + " " + one
	}
	return count(n) + " " + many
}

// stateWords says what a state means, for those who do not know the words.
func stateWords(s zabor.State) string {
	switch s {
	case zabor.Captured:
		return "a call is under way"
	case zabor.Pending:
		return "the provider has begun it and gives no verdict yet"
	case zabor.Settled:
		return "it went through"
	case zabor.Declined:
		return "it did not go through"
	case zabor.Released:
		return "it did not go through and may be tried again"
	case zabor.Doubt:
		return "it may have gone through; zabor is finding out"
	}
	return "it may have gone through; a person must decide"
}

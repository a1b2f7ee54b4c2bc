package provider_test

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/goccy/go-yaml"

	"zabor"
	"zabor/provider"
	"zabor/sqlstore"
)

// samples are the answers of one provider, made after its documents, with the expected
// result of each: testdata/lines/NAME.yaml. A person wrote the results; nothing in the
// file is computed from the profile.
type samples struct {
	Account string             `yaml:"account"`
	Lines   map[string]*sample `yaml:"lines"`
	// Refused are requests without a line, with a part of the expected sentence.
	Refused []struct {
		Asked `yaml:",inline"`
		Why   string `yaml:"why"`
	} `yaml:"refused"`
	// After are settled rows that the provider is asked about again.
	After []asked `yaml:"after"`
	// Taken are more requests, with their lines.
	Taken []struct {
		Asked `yaml:",inline"`
		Line  string `yaml:"line"`
	} `yaml:"taken"`
}

// Asked is a request: its path, and one of the bodies.
type Asked struct {
	Method string            `yaml:"method"` // empty: POST
	Path   string            `yaml:"path"`
	Form   map[string]string `yaml:"form"`
	JSON   any               `yaml:"json"`
}

// sample has the expected results of one line. In the texts %KEY% is the provider key,
// and WORD in Body is the status.
type sample struct {
	Asked    `yaml:",inline"`
	Prepared bool              `yaml:"prepared"` // it is the second request of two, after prep_1
	Headers  map[string]string `yaml:"headers"`  // of the request, as a caller gives them
	Currency string            `yaml:"currency"` // empty: EUR; the amount is 19.99 of it
	Key      string            `yaml:"key"`      // header or field, and how
	Known    time.Duration     `yaml:"known"`    // for how long the provider knows a key
	Repeat   string            `yaml:"repeat"`   // the answer to a second request under it
	Sends    map[string]string `yaml:"sends"`    // header fields added by the profile
	Again    time.Duration     `yaml:"again"`    // for how long the same request is sent again
	Stored   bool              `yaml:"stored"`   // a refusal speaks for earlier sends too
	Hold     time.Duration     `yaml:"hold"`
	Pending  time.Duration     `yaml:"pending"`
	Absent   time.Duration     `yaml:"absent"`

	Status    int               `yaml:"status"` // of Body; 0: 200
	Body      string            `yaml:"body"`
	Reference string            `yaml:"reference"`
	Words     map[string]string `yaml:"words"`   // the result of Body with each
	Amount    string            `yaml:"amount"`  // the result of another amount; empty: doubt
	Without   string            `yaml:"without"` // the result of an answer without one; empty: as Amount
	Answers   []told            `yaml:"answers"`
	Faults    map[string]string `yaml:"faults"` // where they are not those of faults.yaml
	Looks     []looked          `yaml:"looks"`
}

// told is one more answer, with its result.
type told struct {
	Says      string            `yaml:"says"`
	Status    int               `yaml:"status"`
	Header    map[string]string `yaml:"header"`
	Body      string            `yaml:"body"`
	Is        string            `yaml:"is"`
	Reference string            `yaml:"reference"` // empty: that of the line
	Wait      time.Duration     `yaml:"wait"`
}

// looked is a look-up of a row: the question, the answer, and the result.
type looked struct {
	Row    string            `yaml:"row"` // doubt, pending, prepared, unkept (pending, without its request), settled (its answer is asked for) or control
	Asks   string            `yaml:"asks"`
	Header map[string]string `yaml:"header"` // of the question
	Sends  string            `yaml:"sends"`  // a part of its body
	Status int               `yaml:"status"` // 0: 200
	Body   string            `yaml:"body"`
	Is     string            `yaml:"is"`
	Bare   bool              `yaml:"bare"` // the request carried no key
	JSON   any               `yaml:"json"` // the request's body, where it is another one
}

// asked is a settled row, the question, the answer, and what it says of money that went
// back: nothing, a text, error, or no object.
type asked struct {
	Of        string `yaml:"of"`
	Reference string `yaml:"reference"`
	Prepared  string `yaml:"prepared"`
	Asks      string `yaml:"asks"` // empty: nothing is asked
	Status    int    `yaml:"status"`
	Body      string `yaml:"body"`
	Is        string `yaml:"is"`
}

// verdicts are the words of the samples.
var verdicts = map[string]zabor.Verdict{
	"settled": zabor.Done, "pending": zabor.Begun, "declined": zabor.Refused, "form": zabor.Malformed, "released": zabor.TurnedAway,
	"held": zabor.Misdirected, "doubt": zabor.Unproven, "lingers": zabor.Unproven, "earlier": zabor.Unproven, "prepared": zabor.Prepared,
}

// stateOf is the row's state after a first call with this result.
var stateOf = map[string]zabor.State{
	"settled": zabor.Settled, "pending": zabor.Pending, "declined": zabor.Declined, "form": zabor.Declined, "released": zabor.Released,
	"held": zabor.Held, "doubt": zabor.Doubt, "lingers": zabor.Doubt, "earlier": zabor.Doubt,
}

func readSamples(t testing.TB) map[string]*samples {
	t.Helper()
	files, err := filepath.Glob("testdata/lines/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]*samples{}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var s samples
		if err := yaml.UnmarshalWithOptions(data, &s, yaml.Strict()); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		all[strings.TrimSuffix(filepath.Base(file), ".yaml")] = &s
	}
	return all
}

// fault is an answer that any call may get.
type fault struct {
	Status   int    `yaml:"status"`
	Body     string `yaml:"body"`
	Kind     string `yaml:"kind"` // content type
	Location string `yaml:"location"`
	None     bool   `yaml:"none"` // it ends before an answer
	Is       string `yaml:"is"`
}

func readFaults(t testing.TB) map[string]fault {
	t.Helper()
	data, err := os.ReadFile("testdata/faults.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var all map[string]fault
	if err := yaml.UnmarshalWithOptions(data, &all, yaml.Strict()); err != nil {
		t.Fatal(err)
	}
	return all
}

// answersOf are all answers of a sample by name, faults among them.
func (s *sample) answersOf(faults map[string]fault) map[string]told {
	all := map[string]told{}
	status := cmp.Or(s.Status, 200)
	first := ""
	for _, word := range slices.Sorted(maps.Keys(s.Words)) {
		all["word "+word] = told{Status: status, Body: strings.ReplaceAll(s.Body, "WORD", word), Is: s.Words[word]}
		if s.Words[word] == "settled" && first == "" {
			first = strings.ReplaceAll(s.Body, "WORD", word)
		}
	}
	all["a word that no list has"] = told{Status: status, Body: strings.ReplaceAll(s.Body, "WORD", "something_new"), Is: cmp.Or(s.Faults["unlisted"], "doubt")}
	if first != "" {
		other := strings.NewReplacer("1999", "1998", "19.99", "19.98").Replace(first)
		all["another amount"] = told{Status: status, Body: other, Is: cmp.Or(s.Amount, "doubt")}
		all["no amount"] = told{Status: status, Body: amounts.ReplaceAllString(first, `"x$1":${2}19`), Is: cmp.Or(s.Without, s.Amount, "doubt")}
	}
	for name, f := range faults {
		header := map[string]string{}
		for name, value := range map[string]string{"Content-Type": f.Kind, "Location": f.Location} {
			if value != "" {
				header[name] = value
			}
		}
		if !f.None {
			all[name] = told{Status: f.Status, Body: f.Body, Header: header, Is: cmp.Or(s.Faults[name], f.Is)}
		}
	}
	for i, a := range s.Answers {
		all[fmt.Sprintf("answer %d, %s", i, a.Says)] = a
	}
	return all
}

var amounts = regexp.MustCompile(`"(\w+)":("?)19`)

const (
	sampleKey = "abcdefghijklmnopqrstuvwxyz"
	otherKey  = "zyxwvutsrqponmlkjihgfedcba"
)

func (s *sample) money() zabor.Money {
	return zabor.Money{Minor: 1999, Currency: cmp.Or(s.Currency, "EUR")}
}

func (a Asked) spec() provider.RequestSpec {
	return provider.RequestSpec{Method: a.Method, Path: a.Path, Form: a.Form, JSON: a.JSON}
}

// request is that of the sample, under the given provider key.
func (s *sample) request(t testing.TB, key string, units provider.Units) (r provider.Request, err error) {
	t.Helper()
	template, err := provider.NewTemplate(s.spec())
	if err != nil {
		t.Fatal(err)
	}
	if r, err = template.Render(provider.Vars{Order: "1001", Step: "charge", ProviderKey: key, Money: s.money(), Units: units}); err != nil {
		return r, err
	}
	for _, name := range slices.Sorted(maps.Keys(s.Headers)) {
		r.Header = append(r.Header, zabor.HeaderField{Name: name, Value: s.Headers[name]})
	}
	return r, nil
}

func (s *sample) row(t testing.TB, line provider.Line) (zabor.Row, error) {
	t.Helper()
	request, err := s.request(t, sampleKey, line.Amount.Units)
	if err != nil {
		return zabor.Row{}, err
	}
	frozen, err := provider.Freeze(request)
	if err != nil {
		t.Fatal(err)
	}
	row := zabor.Row{
		Key: zabor.Key{Order: "1001", Step: "charge"}, State: zabor.Doubt, Endpoint: zabor.Endpoint{Provider: "bank"}, ProviderKey: sampleKey, Amount: s.money(),
		Tries: 1, Unproven: 1, Open: zabor.Open{Request: frozen}, CapturedAt: time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC),
	}
	if line.Does == provider.Prepares {
		row.Open.PrepareKey = otherKey
	}
	if s.Prepared {
		row.Open.PrepareKey, row.Prepared = otherKey, "prep_1"
	}
	return row, nil
}

// words says how an outcome reads in the samples.
func words(o zabor.Outcome) string {
	for _, word := range []string{"settled", "pending", "declined", "form", "released", "held", "prepared"} {
		if verdicts[word] == o.Verdict {
			return word
		}
	}
	switch {
	case o.Lingers:
		return "lingers"
	case strings.Contains(o.Reason, "an earlier request was or is executed"):
		return "earlier"
	}
	return "doubt"
}

var times = regexp.MustCompile(`(\d+)×([^×]*)×`)

// keyed is a text of the samples with the provider key; 3×{…}× is three of an object.
func keyed(text string) string {
	text = times.ReplaceAllStringFunc(text, func(part string) string {
		m := times.FindStringSubmatch(part)
		n, _ := strconv.Atoi(m[1])
		return strings.Repeat(m[2]+",", n-1) + m[2]
	})
	return strings.ReplaceAll(text, "%KEY%", sampleKey)
}

// benchServer gives one answer and remembers the last request.
type benchServer struct {
	url   string
	give  atomic.Pointer[told]
	asked atomic.Pointer[http.Request]
	body  atomic.Pointer[string]
}

func newBench(t testing.TB) *benchServer {
	b := &benchServer{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if strings.HasSuffix(r.URL.Path, "/oauth2/token") {
			fmt.Fprint(w, `{"access_token":"t","token_type":"Bearer","expires_in":3600}`)
			return
		}
		text := string(body)
		b.asked.Store(r)
		b.body.Store(&text)
		give := b.give.Load()
		if give == nil {
			panic(http.ErrAbortHandler)
		}
		w.Header().Set("Content-Type", "application/json")
		for name, value := range give.Header {
			w.Header().Set(name, value)
		}
		w.WriteHeader(give.Status)
		io.WriteString(w, keyed(give.Body))
	}))
	t.Cleanup(server.Close)
	b.url = server.URL
	return b
}

// lineNamed is the line of that name.
func lineNamed(p provider.Profile, name string) (line provider.Line, ok bool) {
	i := slices.IndexFunc(p.Calls, func(l provider.Line) bool { return l.Name == name })
	if i < 0 {
		return line, false
	}
	return p.Calls[i], true
}

// faultsOf lists the differences between a line of p and its sample. The bench answers
// the look-ups. No database is needed.
func (s *sample) faultsOf(t testing.TB, p provider.Profile, name string, faults map[string]fault, b *benchServer) (wrong []string) {
	add := func(format string, args ...any) { wrong = append(wrong, fmt.Sprintf(format, args...)) }
	pr, err := provider.New("bank", p, provider.Options{BaseURL: b.url})
	if err != nil {
		return []string{err.Error()}
	}
	line, ok := lineNamed(p, name)
	if !ok {
		return []string{"there is no such line"}
	}
	row, err := s.row(t, line)
	if err != nil {
		return []string{err.Error()}
	}
	frozen, err := provider.Thaw(row.Open.Request)
	if err != nil {
		t.Fatal(err)
	}
	met, err := pr.Line(frozen.Open())
	if err != nil || met.Name != name {
		return []string{fmt.Sprintf("its request meets %q, %v", met.Name, err)}
	}
	terms, err := pr.Terms(frozen.Open())
	if err != nil || terms.ReplayFor != s.Again || terms.AbsentAfter != s.Absent || terms.HoldAfter != s.Hold || terms.PendingFor != s.Pending {
		add("sent again for %s, absent after %s, hold %s, pending %s, %v", terms.ReplayFor, terms.AbsentAfter, terms.HoldAfter, terms.PendingFor, err)
	}
	if line.Key.Life != s.Known || string(line.Key.Replays) != cmp.Or(s.Repeat, "none") {
		add("a key is known for %s, and a repeat is answered with %s", line.Key.Life, line.Key.Replays)
	}
	wrong = append(wrong, s.sendFaults(t, pr, b, line, row)...)
	for name, a := range s.answersOf(faults) {
		header := http.Header{}
		for field, value := range a.Header {
			header.Set(field, value)
		}
		o := pr.Judge(provider.Reply{Status: a.Status, Header: header, Body: []byte(keyed(a.Body))}, row)
		if got := words(o); got != a.Is {
			add("%s: %s (%s), want %s", name, got, o.Reason, a.Is)
		}
		if want := cmp.Or(a.Reference, s.Reference); (a.Is == "settled" || a.Is == "pending" || a.Is == "prepared") && o.Reference != want {
			add("%s: reference %q, want %q", name, o.Reference, want)
		}
		if a.Is == "declined" && o.StoredRefusal != s.Stored {
			add("%s: it speaks for earlier sends: %v, want %v", name, o.StoredRefusal, s.Stored)
		}
		if o.RetryAfter != a.Wait {
			add("%s: to be left alone for %s, want %s", name, o.RetryAfter, a.Wait)
		}
	}
	if bare := slices.ContainsFunc(s.Looks, func(l looked) bool { return l.Bare }); bare {
		limits := p.Limits(nil, s.withoutKey(t))
		if !slices.ContainsFunc(limits, func(l provider.Limit) bool { return l.Code == "not-carried" }) {
			add("no limit says that it must carry the key: %v", limits)
		}
	}
	for _, l := range s.Looks {
		wrong = append(wrong, s.lookFault(t, pr, b, line, l)...)
	}
	return wrong
}

// withoutKey is the sample's request without the provider key.
func (s *sample) withoutKey(t testing.TB) provider.RequestSpec {
	t.Helper()
	text, err := yaml.Marshal(s.Asked)
	if err != nil {
		t.Fatal(err)
	}
	var asked Asked
	if err := yaml.Unmarshal([]byte(strings.ReplaceAll(string(text), "{{provider_key}}", "x")), &asked); err != nil {
		t.Fatal(err)
	}
	return asked.spec()
}

// sendFaults lists the differences of the request.
func (s *sample) sendFaults(t testing.TB, pr *provider.Provider, b *benchServer, line provider.Line, row zabor.Row) (wrong []string) {
	b.asked.Store(nil)
	b.give.Store(&told{Status: 500})
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	pr.Call(ctx, row)
	key := row.ProviderKey
	if row.Open.PrepareKey != "" && row.Prepared == "" {
		key = row.Open.PrepareKey
	}
	if got := carriedKey(b, key); got != s.Key {
		wrong = append(wrong, fmt.Sprintf("the key went as %q, want %q", got, s.Key))
	}
	for name, value := range s.Sends {
		if r := b.asked.Load(); r == nil || r.Header.Get(name) != value {
			wrong = append(wrong, fmt.Sprintf("%s: %s was not sent", name, value))
		}
	}
	asks := fmt.Sprint(s.Form, s.JSON)
	for _, other := range []zabor.Money{{Minor: 2000, Currency: row.Amount.Currency}, {Minor: row.Amount.Minor, Currency: "USD"}} {
		told := strings.Contains(asks, "{{m")
		if other.Currency == "USD" {
			told = strings.Contains(asks, "currency}}")
		}
		changed := row
		changed.Amount = other
		if _, err := pr.Preview(changed); told && err == nil {
			wrong = append(wrong, fmt.Sprintf("a request for %v is sent for %v", row.Amount, other))
		}
	}
	return wrong
}

// lookFault lists the differences of one look-up.
func (s *sample) lookFault(t testing.TB, pr *provider.Provider, b *benchServer, line provider.Line, l looked) (wrong []string) {
	row, err := s.row(t, line)
	if err != nil {
		return []string{err.Error()}
	}
	switch l.Row {
	case "pending":
		row.State, row.Reference = zabor.Pending, s.Reference
	case "unkept":
		row.State, row.Reference, row.Open.Request = zabor.Pending, s.Reference, nil
	case "settled", "control":
		row.State, row.Reference, row.Open.Request = zabor.Settled, s.Reference, nil
	case "prepared":
		row.Open.PrepareKey, row.Prepared = otherKey, "prep_1"
	}
	if l.Bare || l.JSON != nil {
		one, key := *s, "another"
		if l.JSON != nil {
			one.JSON, key = l.JSON, sampleKey
		}
		request, err := one.request(t, key, line.Amount.Units)
		if err == nil {
			row.Open.Request, err = provider.Freeze(request)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	b.asked.Store(nil)
	b.give.Store(&told{Status: cmp.Or(l.Status, 200), Body: l.Body})
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	var found zabor.Finding
	if l.Row == "settled" { // its answer is asked for again
		if _, err = pr.Object(ctx, row); err == nil {
			found.Outcome = zabor.Outcome{Verdict: zabor.Done, Reference: s.Reference}
		}
	} else {
		found, err = pr.Lookup(ctx, row)
	}
	got := "error"
	switch {
	case err != nil:
	case found.Several:
		got = "several"
	case found.Absent:
		got = "absent"
	default:
		got = words(found.Outcome)
	}
	if got != l.Is || (got == "settled" || got == "pending") && found.Outcome.Reference != s.Reference {
		wrong = append(wrong, fmt.Sprintf("look-up of %s, %s: %s %q (%s, %v), want %s", l.Row, l.Body, got, found.Outcome.Reference, found.Outcome.Reason, err, l.Is))
	}
	asked := b.asked.Load()
	if asked == nil {
		if l.Asks != "" {
			wrong = append(wrong, fmt.Sprintf("nothing was asked, want %s", l.Asks))
		}
		return wrong
	}
	if text := asked.Method + " " + asked.URL.RequestURI(); text != keyed(l.Asks) {
		wrong = append(wrong, fmt.Sprintf("asked %s, want %s", text, keyed(l.Asks)))
	}
	if !strings.Contains(*b.body.Load(), keyed(l.Sends)) {
		wrong = append(wrong, fmt.Sprintf("sent %s, want %s", *b.body.Load(), l.Sends))
	}
	for name, value := range l.Header {
		if asked.Header.Get(name) != value {
			wrong = append(wrong, fmt.Sprintf("asked with %s: %q, want %q", name, asked.Header.Get(name), value))
		}
	}
	return wrong
}

// profileOf is the built-in profile of that name, for the account of its samples.
func profileOf(t testing.TB, name string, s *samples) provider.Profile {
	t.Helper()
	known, ok := provider.BuiltinNamed(name)
	if !ok {
		t.Fatalf("there is no profile %s", name)
	}
	p, err := known.Profile(s.Account, "s3cret")
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// Every line of every profile reads each answer of its sample as written there.
func TestLines(t *testing.T) {
	t.Parallel()
	all, faults := readSamples(t), readFaults(t)
	for _, b := range provider.Builtins() {
		if b.Uncallable != "" {
			continue
		}
		t.Run(b.Name, func(t *testing.T) {
			t.Parallel()
			s := all[b.Name]
			if s == nil {
				t.Fatal("it has no samples")
			}
			p, bench := profileOf(t, b.Name, s), newBench(t)
			for _, line := range p.Calls {
				sample := s.Lines[line.Name]
				if line.Refused != "" {
					continue
				}
				if sample == nil {
					t.Errorf("%s has no sample", line.Name)
					continue
				}
				for _, wrong := range sample.faultsOf(t, p, line.Name, faults, bench) {
					t.Errorf("%s: %s", line.Name, wrong)
				}
			}
			for name := range s.Lines {
				if line, ok := lineNamed(p, name); !ok || line.Refused != "" {
					t.Errorf("there are samples of %s, which is no line that is taken", name)
				}
			}
			for _, wrong := range s.choiceFaults(t, p) {
				t.Error(wrong)
			}
		})
	}
}

// choiceFaults lists the requests with a wrong line.
func (s *samples) choiceFaults(t testing.TB, p provider.Profile) (wrong []string) {
	for _, r := range s.Refused {
		if _, err := p.Terms(nil, r.spec()); err == nil || !strings.Contains(err.Error(), r.Why) {
			wrong = append(wrong, fmt.Sprintf("%s: %v, want %s", r.Path, err, r.Why))
		}
	}
	pr, err := provider.New("bank", p, provider.Options{})
	if err != nil {
		return append(wrong, err.Error())
	}
	for _, r := range s.Taken {
		request, err := (&sample{Asked: r.Asked}).request(t, sampleKey, nil)
		if err != nil {
			t.Fatal(err)
		}
		if met, err := pr.Line(request.Open()); err != nil || met.Name != r.Line {
			wrong = append(wrong, fmt.Sprintf("%s meets %q, %v, want %s", r.Path, met.Name, err, r.Line))
		}
	}
	return wrong
}

// The same answers, and a lost one, through the fence and a socket: the row's state
// after the first call.
func TestLinesThroughTheFence(t *testing.T) {
	t.Parallel()
	all, faults := readSamples(t), readFaults(t)
	for name, s := range all {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, bench := profileOf(t, name, s), newBench(t)
			pr, err := provider.New("bank", p, provider.Options{BaseURL: bench.url})
			if err != nil {
				t.Fatal(err)
			}
			store, err := sqlstore.Open("sqlite://" + strings.ReplaceAll(filepath.Join(t.TempDir(), "fence.db"), "#", "%23"))
			if err != nil {
				t.Fatal(err)
			}
			defer store.Close()
			if err := store.Setup().Migrate(t.Context()); err != nil {
				t.Fatal(err)
			}
			for lineName, sample := range s.Lines {
				line, _ := lineNamed(p, lineName)
				if line.Does == provider.Prepares || sample.Prepared {
					continue
				}
				answers := sample.answersOf(faults)
				for name, f := range faults {
					if f.None {
						answers[name] = told{Is: f.Is}
					}
				}
				for what, a := range answers {
					order := lineName + ", " + what
					fence := &zabor.Fence{Store: store, Secret: make([]byte, zabor.MinSecret)} // none has learnt to leave the provider alone
					var key string
					e := zabor.Effect{
						Key: zabor.Key{Scope: scope(order), Order: order, Step: "charge"}, Provider: "bank", Amount: sample.money(), Fingerprint: zabor.Fingerprint{Message: "m", Request: "f"},
						Timeout: 10 * time.Second, MaxAttempts: 3, HoldAfter: time.Hour, PendingFor: time.Hour, MissingRow: zabor.Captured,
						Render: func(keys zabor.ProviderKeys, _ string) ([]byte, error) {
							key = keys.Request
							request, err := sample.request(t, key, line.Amount.Units)
							if err != nil {
								return nil, err
							}
							return provider.Freeze(request)
						},
					}
					give := a
					bench.give.Store(nil)
					row, _ := fence.Do(t.Context(), e, func(ctx context.Context, row zabor.Row) zabor.Outcome {
						if a.Status != 0 {
							give.Body = strings.ReplaceAll(a.Body, "%KEY%", row.ProviderKey)
							bench.give.Store(&give)
						}
						return pr.Call(ctx, row)
					})
					if row.State == "" {
						row, _ = store.Load(t.Context(), e.Key)
					}
					if row.State != stateOf[a.Is] {
						t.Errorf("%s: the row is %s (%s), want %s", order, row.State, row.Reason, stateOf[a.Is])
					}
					if want := cmp.Or(a.Reference, sample.Reference); (a.Is == "settled" || a.Is == "pending") && row.Reference != want {
						t.Errorf("%s: reference %q, want %q", order, row.Reference, want)
					}
					if got := carriedKey(bench, key); got != sample.Key {
						t.Fatalf("%s: the key went as %q, want %q", lineName, got, sample.Key)
					}
				}
			}
		})
	}
}

// carriedKey says how a request brought the provider key; empty: not as a key.
func carriedKey(b *benchServer, key string) string {
	r := b.asked.Load()
	if r == nil {
		return "not sent"
	}
	uuid, _ := zabor.UUIDFromProviderKey(key)
	for name := range r.Header {
		switch r.Header.Get(name) {
		case key:
			return name
		case uuid:
			return name + ", as a UUID"
		}
	}
	for _, field := range []string{"idempotency_key", "reference"} {
		if strings.HasPrefix(*b.body.Load(), fmt.Sprintf(`{"%s":"%s"`, field, key)) {
			return "field " + field
		}
	}
	return ""
}

// scope is an installation of its own: all samples have one reference, which two orders of
// one installation may not share.
func scope(order string) string { return zabor.Key{Order: order, Step: "charge"}.Digest() }

// Calls that were once trusted on another call's facts: each is refused where the
// configuration is checked, or has its own way to decide a lost answer.
func TestCallsBesideTheCharge(t *testing.T) {
	t.Parallel()
	all := readSamples(t)
	for _, tt := range []struct {
		profile string
		Asked
		refused string        // a part of the sentence; empty: it is taken
		again   time.Duration // the same request is sent again within it
		absent  time.Duration // nothing found is proof after it
	}{
		{"razorpay", Asked{Path: "/v1/payments/pay_1/refund", JSON: map[string]any{"amount": "{{minor}}", "notes": map[string]any{"zabor_key": "{{provider_key}}"}}}, "", 0, 65 * time.Minute},
		{"adyen", Asked{Path: "/payments/P1/captures", JSON: map[string]any{"amount": map[string]any{"value": "{{minor}}", "currency": "EUR"}}}, "comes by webhook", 0, 0},
		{"checkout", Asked{Path: "/payments/pay_1/refunds", JSON: map[string]any{"amount": "{{minor}}"}}, "only the id of an action", 0, 0},
		{"gocardless", Asked{Path: "/refunds", JSON: map[string]any{"refunds": map[string]any{"amount": "{{minor}}", "links": map[string]any{"payment": "PM1"}}}}, "", 13*time.Minute + 30*time.Second, 15 * time.Minute},
		{"cloudpayments", Asked{Path: "/payments/confirm", JSON: map[string]any{"TransactionId": 7, "Amount": "{{major}}"}}, "neither proves that it was done", 0, 0},
		{"tbank", Asked{Path: "/Cancel", JSON: map[string]any{"PaymentId": "7"}}, "", 0, 15 * time.Minute},
		{"stripe", Asked{Path: "/v1/transfers", Form: map[string]string{"amount": "{{minor}}", "currency": "eur", "destination": "acct_1"}}, "", 21*time.Hour + 36*time.Minute, 70 * time.Minute},
	} {
		terms, err := profileOf(t, tt.profile, all[tt.profile]).Terms(nil, tt.spec())
		switch {
		case tt.refused != "" && (err == nil || !strings.Contains(err.Error(), tt.refused)):
			t.Errorf("%s %s: %v, want %s", tt.profile, tt.Path, err, tt.refused)
		case tt.refused == "" && (err != nil || terms.ReplayFor != tt.again || terms.AbsentAfter != tt.absent):
			t.Errorf("%s %s: sent again for %s, absent after %s, %v; want %s, %s", tt.profile, tt.Path, terms.ReplayFor, terms.AbsentAfter, err, tt.again, tt.absent)
		}
	}
}

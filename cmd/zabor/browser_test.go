package main

import (
	"context"
	_ "embed"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"zabor/internal/servers"
)

// chromium is the one browser of all tests, started by the first that needs it.
// It ends with this process.
var chromium = sync.OnceValues(func() (context.Context, error) {
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath("chromium"), chromedp.WindowSize(1280, 900), chromedp.WSURLReadTimeout(limit),
		chromedp.Flag("disable-gpu", true)) // a processor that plays one is slower than a processor
	if os.Getuid() == 0 {
		options = append(options, chromedp.NoSandbox)
	}
	allocated, _ := chromedp.NewExecAllocator(context.Background(), options...) // for as long as the process
	ctx, _ := chromedp.NewContext(allocated)                                    // the same
	return ctx, chromedp.Do(ctx)
})

// tab is a page of a browser of its own, with cookies of its own.
type tab struct {
	t    testing.TB
	ctx  context.Context
	site string

	mu        sync.Mutex
	complaint []string // of the browser, such as what a policy has forbidden
}

func newTab(t testing.TB, site string) *tab {
	t.Helper()
	servers.Need(t, "chromium", "chromium")
	parent, err := chromium()
	if err != nil {
		t.Fatalf("chromium does not start: %v", err)
	}
	ctx, cancel := chromedp.NewContext(parent, chromedp.WithNewBrowserContext())
	t.Cleanup(cancel)
	b := &tab{t: t, ctx: ctx, site: site}
	// Without a deadline: one of the first call would be the tab's.
	if err := chromedp.Do(ctx); err != nil {
		t.Fatal(err)
	}
	if err := chromedp.Listen(ctx, b.listen); err != nil {
		t.Fatal(err)
	}
	b.do(chromedp.Func(func(ctx context.Context, target *chromedp.Target) error {
		_, err := cdp.Call(ctx, target, log.Enable, cdp.Empty{})
		return err
	}))
	t.Cleanup(func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		for _, text := range b.complaint {
			t.Errorf("the browser complains: %s", text)
		}
	})
	return b
}

// listen keeps what the browser complains of.
func (b *tab) listen(event any) {
	text := ""
	switch e := event.(type) {
	case *runtime.EventExceptionThrown:
		text = (&chromedp.ExceptionError{ExceptionDetails: e.ExceptionDetails}).Error()
	case *log.EventEntryAdded:
		if e.Entry.Level == log.EntryLevelError && e.Entry.Source != log.EntrySourceNetwork {
			text = e.Entry.Text
		}
	}
	if text != "" {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.complaint = append(b.complaint, text)
	}
}

// do runs actions, each waiting for what it is about.
func (b *tab) do(actions ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, limit)
	defer cancel()
	if err := chromedp.Do(ctx, actions...); err != nil {
		text, _ := chromedp.Run(b.ctx, chromedp.Evaluate[string]("location.href + '\\n' + document.body.innerText"))
		b.t.Fatalf("%v\nat %s", err, text)
	}
}

// evaluate is what a script gives, or its promise.
func evaluate[T any](b *tab, script string) T {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, limit)
	defer cancel()
	value, err := chromedp.Run(ctx, chromedp.Evaluate[T](script, chromedp.EvalAwaitPromise))
	if err != nil {
		b.t.Fatalf("%.100s: %v", script, err)
	}
	return value
}

// mark clicks, and no other page comes.
func (b *tab) mark(selector string) {
	b.t.Helper()
	b.do(chromedp.Click(chromedp.CSS(selector)))
}

// write types into a field.
func (b *tab) write(selector, text string) {
	b.t.Helper()
	b.do(chromedp.SendKeys(chromedp.CSS(selector), text))
}

// open goes to a page of the site.
func (b *tab) open(path string) {
	b.t.Helper()
	b.do(chromedp.Navigate(b.site + path))
}

// text is what the page says.
func (b *tab) text() string {
	b.t.Helper()
	return evaluate[string](b, "(document.querySelector('main') || document.body).innerText")
}

// says waits until the page says all of these.
func (b *tab) says(words ...string) {
	b.t.Helper()
	for _, w := range words {
		for end := time.Now().Add(limit); ; {
			seen := b.text()
			if strings.Contains(seen, w) {
				break
			}
			if time.Now().After(end) {
				b.t.Fatalf("the page does not say %q:\n%s", w, seen)
			}
			evaluate[bool](b, "new Promise(done => setTimeout(() => done(true), 50))")
		}
	}
}

// click clicks, and waits for the page that comes.
func (b *tab) click(selector string) {
	b.t.Helper()
	evaluate[bool](b, "window.before = true")
	b.mark(selector)
	ctx, cancel := context.WithTimeout(b.ctx, limit)
	defer cancel()
	for {
		// While one page goes and the other comes there is nothing to ask.
		there, err := chromedp.Run(ctx, chromedp.Evaluate[bool]("!window.before && document.readyState == 'complete'"))
		if there {
			return
		}
		if ctx.Err() != nil {
			b.t.Fatalf("no other page after a click on %s: %v", selector, err)
		}
	}
}

// login signs in.
func (b *tab) login(name, password string) {
	b.t.Helper()
	b.open("/login")
	b.write("input[name=name]", name)
	b.write("input[name=password]", password)
	b.click("form button")
}

// looks are the ways in which every page is looked at, and what axe-core is asked;
// empty: nothing. A theme changes colours alone, and those of a
// telephone are the window's.
var looks = []struct {
	name   string
	width  int64
	scheme string
	axe    string // its options
}{
	{"light", 1280, "light", `{resultTypes: ["violations"]}`},
	{"dark", 1280, "dark", `{resultTypes: ["violations"], runOnly: {type: "rule", values: ["color-contrast", "link-in-text-block"]}}`},
	{"phone", 390, "light", `{resultTypes: ["violations"], rules: {"color-contrast": {enabled: false}, "link-in-text-block": {enabled: false}}}`},
	{"phone-dark", 390, "dark", ""},
}

//go:embed testdata/axe/axe.min.js
var axe string

// inspect looks at the page in each theme and width: what axe-core finds that keeps
// people from using it, and, where ZABOR_SCREENSHOTS says, pictures for people.
func (b *tab) inspect(name string) {
	b.t.Helper()
	folder := os.Getenv("ZABOR_SCREENSHOTS") // where the pictures are kept; empty: there are none
	evaluate[bool](b, axe+"; true")
	for _, look := range looks {
		b.do(chromedp.EmulateViewport(look.width, 900), media(look.scheme))
		wide := evaluate[bool](b, "document.documentElement.scrollWidth > window.innerWidth + 1")
		if wide {
			b.t.Errorf("%s, %s: the page is wider than its window", name, look.name)
		}
		if folder != "" {
			b.picture(filepath.Join(folder, name+"-"+look.name+".png"))
		}
		if look.axe != "" {
			b.accessible(name+", "+look.name, look.axe)
		}
	}
	b.do(chromedp.EmulateViewport(1280, 900), media(""))
	size := evaluate[int](b, `fetch(location.href, {cache: "no-store"}).then(r => r.text()).then(t => new Blob([t]).size)`)
	if size > 200_000 {
		b.t.Errorf("%s has %d bytes, at most 200,000", name, size)
	}
}

// picture keeps a picture of the whole page.
func (b *tab) picture(path string) {
	b.t.Helper()
	picture, err := chromedp.Run(b.ctx, chromedp.FullScreenshot(100))
	if err == nil {
		err = os.WriteFile(path, picture, 0o644)
	}
	if err != nil {
		b.t.Fatal(err)
	}
}

// accessible asks axe-core, which is in the page, for what keeps people from using
// it.
func (b *tab) accessible(name, options string) {
	b.t.Helper()
	found := evaluate[string](b, `axe.run(document, `+options+`).then(r => JSON.stringify(r.violations.map(v => ({
		id: v.id, impact: v.impact, help: v.help, nodes: v.nodes.slice(0, 3).map(n => n.html + " " + n.failureSummary)}))))`)
	var violations []struct {
		ID, Impact, Help string
		Nodes            []string
	}
	if err := json.Unmarshal([]byte(found), &violations); err != nil {
		b.t.Fatal(err)
	}
	for _, v := range violations {
		tell := b.t.Logf
		if v.Impact == "serious" || v.Impact == "critical" {
			tell = b.t.Errorf
		}
		tell("%s: axe-core: %s: %s (%s)\n%s", name, v.ID, v.Help, v.Impact, strings.Join(v.Nodes, "\n"))
	}
}

// zone lets the device be in a time zone, by its IANA name.
func zone(name string) chromedp.Action[chromedp.Void] {
	return chromedp.Func(func(ctx context.Context, target *chromedp.Target) error {
		_, err := cdp.Call(ctx, target, emulation.SetTimezoneOverride, emulation.SetTimezoneOverrideParams{TimezoneID: name})
		return err
	})
}

// media lets the device have a theme; empty: none.
func media(scheme string) chromedp.Action[chromedp.Void] {
	return chromedp.Func(func(ctx context.Context, target *chromedp.Target) error {
		features := []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}, {Name: "prefers-reduced-motion", Value: "reduce"}}
		_, err := cdp.Call(ctx, target, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: features})
		return err
	})
}

package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"zabor"
	"zabor/dashboard/access"
	"zabor/internal/exit"
	"zabor/internal/servers"
	"zabor/sqlstore"
)

// dashboardPassword is every user's in the tests.
const dashboardPassword = "correct horse battery"

// openDashboard gives s a dashboard with users and starts it.
func (s *shop) openDashboard(more string) (site string, p *process) {
	s.t.Helper()
	hash, err := access.Hash(dashboardPassword)
	if err != nil {
		s.t.Fatal(err)
	}
	listen := fmt.Sprintf("127.0.0.1:%d", servers.Port(s.t))
	s.add(fmt.Sprintf(`dashboard:
  listen: %q
  url: "http://%s"
%s  users:
    anna: {password: %q, role: operator}
    boris: {password: %q, role: operator}
    vera: {password: %q}
`, listen, listen, more, strings.ReplaceAll(hash, "$", "$$"), strings.ReplaceAll(hash, "$", "$$"), strings.ReplaceAll(hash, "$", "$$")))
	p = start(s.t, "dashboard", "-c", s.file)
	eventually(s.t, "the dashboard answers", func() bool {
		response, err := http.Get("http://" + listen + "/login")
		if err != nil {
			return false
		}
		response.Body.Close()
		return response.StatusCode == http.StatusOK
	})
	return "http://" + listen, p
}

// A person finds, understands and decides on the pages what real workers have left
// behind; and who may not, cannot.
func TestDashboard(t *testing.T) {
	t.Parallel()
	servers.Need(t, "chromium", "chromium")
	redis := servers.Redis(t)
	var held []message
	for i, order := range []string{"H-1", "H-2", "H-3", "H-4", "H-5", "L-1", "L-2", "L-3"} {
		m := newMessage(redis, frameworks[i%3].name, order)
		m.Properties["apiToken"], m.Properties["cvc"], m.Properties["note"] = "tok_do_not_show", "123", "card 4242 4242 4242 4242"
		held = append(held, m)
	}
	put(t, held...)
	s := newHeldShop(t, databases[0].open(t), redis, held)
	var paid []message
	for i := range 12 {
		order := fmt.Sprintf("P-%d", i)
		s.newOrder(order)
		paid = append(paid, newMessage(redis, "laravel", order))
	}
	put(t, paid...)
	if err := s.redis.RPush(t.Context(), "laravel_database_queues:payments", "this is no job").Err(); err != nil {
		t.Fatal(err)
	}
	s.worker("--drain").exit(exit.BadAnswer)
	site, process := s.openDashboard("")

	// Nobody gets in without the password.
	b := newTab(t, site)
	b.open("/open")
	b.do(chromedp.WaitVisible(chromedp.CSS("input[name=password]")))
	b.inspect("login")
	b.login("anna", "wrong")
	b.says("Name or password is wrong.")
	b.inspect("login-wrong")
	b.login("anna", dashboardPassword)
	b.says("Equal", "Held", "payments", "acquirer")

	// What changes nothing, side by side.
	t.Run("pages", func(t *testing.T) {
		shown := []struct{ path, name, says string }{
			{"/", "overview", "Equal"},
			{"/fences", "fences", "P-11"},
			{"/fence?scope=test&order=P-1&step=charge", "fence", "Everything that happened"},
			{"/fence?scope=test&order=H-1&step=charge", "held", "Decide"},
			{"/open", "open", "a person must decide"},
			{"/failed", "failed", "ChargeOrder"},
			{"/audit", "audit", "No audit was kept yet"},
			{"/doctor", "doctor", "were not kept yet"},
			{"/nowhere", "nothing", "There is no such page"},
			{"/fences?q=nobody", "fences-none", "No row."},
		}
		const tabs = 3
		for i := range tabs {
			t.Run(fmt.Sprint(i), func(t *testing.T) {
				b := signedIn(t, site, "anna") // one after another: each hash takes its time
				t.Parallel()
				for i := i; i < len(shown); i += tabs {
					b.open(shown[i].path)
					b.says(shown[i].says)
					b.inspect(shown[i].name)
				}
			})
		}
		t.Run("search", func(t *testing.T) {
			b := signedIn(t, site, "anna")
			t.Parallel()
			s.searches(b)
		})
		t.Run("times", func(t *testing.T) {
			b := signedIn(t, site, "anna")
			t.Parallel()
			s.times(b)
		})
		t.Run("a viewer", func(t *testing.T) {
			b := signedIn(t, site, "vera")
			t.Parallel()
			viewerMayNot(b)
		})
		t.Run("another site", func(t *testing.T) {
			b := signedIn(t, site, "anna")
			t.Parallel()
			anotherSite(b)
		})
	})
	// Decisions about different rows.
	t.Run("decisions", func(t *testing.T) {
		for name, do := range map[string]func(*tab){"decide": s.decides, "an old page": s.oldPage, "audit and doctor": auditAndDoctor} {
			t.Run(name, func(t *testing.T) {
				b := signedIn(t, site, "anna")
				t.Parallel()
				do(b)
			})
		}
	})
	for _, one := range []struct {
		name string
		do   func(*tab)
	}{{"live", s.livePages}, {"retry and forget", s.retries}, {"many", s.many}} {
		t.Run(one.name, func(t *testing.T) { one.do(signedIn(t, site, "anna")) })
	}

	process.signal(syscall.SIGTERM)
	process.exit(0)
}

// Two persons release a held order: one proposes, the other finds it and confirms.
func TestTwoPersonsOnTheDashboard(t *testing.T) {
	t.Parallel()
	servers.Need(t, "chromium", "chromium")
	redis := servers.Redis(t)
	held := []message{newMessage(redis, "laravel", "R-1")}
	put(t, held...)
	s := newHeldShop(t, databases[0].open(t), redis, held)
	site, process := s.openDashboard("  second_person: true\n")
	const row = "/fence?scope=test&order=R-1&step=charge"

	anna := signedIn(t, site, "anna")
	anna.open(row)
	anna.do(chromedp.Click(chromedp.CSS("input[value=release]")), chromedp.SendKeys(chromedp.CSS("input[name=reason]"), "it is not in the acquirer's list"))
	anna.click(".decide form button.button")
	anna.says("Not decided", "say that you did") // she has not said that she has looked
	anna.open(row)
	anna.do(chromedp.Click(chromedp.CSS("input[value=release]")), chromedp.Click(chromedp.CSS(".decide input[name=checked]")), chromedp.SendKeys(chromedp.CSS("input[name=reason]"), "it is not in the acquirer's list"))
	anna.click(".decide form button.button")
	anna.says("Is this right?", "first it is proposed only")
	anna.inspect("second-propose")
	anna.click(".acts .button")
	anna.says("Proposed, not decided yet")
	anna.inspect("second-proposed")
	anna.open(row)
	anna.says("Whoever proposed it cannot confirm it.")
	anna.inspect("second-own")

	boris := signedIn(t, site, "boris")
	boris.says("Proposed")
	boris.inspect("second-overview")
	boris.open("/open")
	boris.says("Proposed: a second person must confirm", "by anna")
	boris.inspect("second-open")
	boris.click("#proposals a")
	boris.says("A release waits for a second person")
	boris.inspect("second-row")
	boris.do(chromedp.Click(chromedp.CSS("form:has(input[name^='second.']) input[name=checked]")), chromedp.SendKeys(chromedp.CSS("form:has(input[name^='second.']) input[name=reason]"), "nor in mine"))
	boris.click("form:has(input[name^='second.']) button.button")
	boris.says("Is this right?", "it is decided by two: anna, confirmed by boris")
	boris.inspect("second-confirm")
	if state := s.state("R-1"); state != zabor.Held {
		t.Fatalf("before it was confirmed the row is %s", state)
	}
	boris.click(".acts .button")
	boris.says("Decided", "is released now")
	boris.inspect("second-decided")
	if state := s.state("R-1"); state != zabor.Released {
		t.Errorf("the row is %s", state)
	}
	boris.open(row)
	boris.says("by anna, confirmed by boris", "it is not in the acquirer's list (boris: nor in mine)")
	process.signal(syscall.SIGTERM)
	process.exit(0)
}

// signedIn is a tab in which that user has signed in.
func signedIn(t testing.TB, site, user string) *tab {
	t.Helper()
	b := newTab(t, site)
	b.login(user, dashboardPassword)
	return b
}

func (s *shop) searches(b *tab) {
	b.open("/")
	b.do(chromedp.KeyEvent("/"))
	if !evaluate[bool](b, "(f => document.activeElement == f && (f.value = '', true))(document.querySelector('#find'))") { // a synthetic key is also written
		b.t.Error("the key / does not lead to the search")
	}
	b.do(chromedp.SendKeys(chromedp.CSS("#find"), "P-3\n"), chromedp.WaitVisible(chromedp.CSS(`a[href*="P-3"]`)))
	row := s.row("P-3")
	b.do(chromedp.KeyEvent("j"))
	b.click(`a[href*="P-3"]`)
	b.says("went through", row.Reference, row.ProviderKey, "19.99 EUR")
	b.open("/fences?q=" + row.Reference)
	b.says("P-3")
	b.open("/fences?state=held&step=charge")
	b.says("H-1", "H-5")
	if text := b.text(); strings.Contains(text, "P-1") {
		b.t.Errorf("among held rows:\n%s", text)
	}
}

// times: they are in the viewer's zone, with UTC when the pointer is over them.
func (s *shop) times(b *tab) {
	b.do(zone("Asia/Kathmandu")) // five hours and three quarters before UTC
	b.open("/fence?scope=test&order=P-1&step=charge")
	b.says("Everything that happened")
	shown := evaluate[map[string]string](b, `(t => ({text: t.textContent, title: t.title, at: t.dateTime}))(document.querySelector(".timeline time[data-as=at]"))`)
	at, err := time.Parse(time.RFC3339Nano, shown["at"])
	if err != nil {
		b.t.Fatal(err)
	}
	if want := at.UTC().Format("2006-01-02 15:04:05 UTC"); shown["title"] != want {
		b.t.Errorf("over it stands %q, want %q", shown["title"], want)
	}
	if want := at.In(time.FixedZone("there", 5*3600+45*60)).Format("3:04:05"); !strings.Contains(shown["text"], want) {
		b.t.Errorf("%s is shown as %q, want %s in it", shown["at"], shown["text"], want)
	}
}

func (s *shop) decides(b *tab) {
	b.open("/fence?scope=test&order=H-1&step=charge")
	b.do(chromedp.Click(chromedp.CSS("input[value=settle]")), chromedp.SendKeys(chromedp.CSS(`input[name^="reference."]`), "pay_77"), chromedp.SendKeys(chromedp.CSS("input[name=reason]"), "seen in the acquirer's list"))
	b.click(".decide form button.button")
	b.says("Is this right?", "it will be settled with the reference pay_77", "goes on to default")
	b.inspect("decide")
	if state := s.state("H-1"); state != zabor.Held {
		b.t.Fatalf("before it was confirmed the row is %s", state)
	}
	b.click(".acts .button")
	b.says("Decided", "is settled now", "gone on")
	b.inspect("decided")
	if row := s.row("H-1"); row.State != zabor.Settled || row.Reference != "pay_77" || row.Cause != zabor.ByPerson {
		b.t.Errorf("row %+v", row)
	}
	notes, err := s.store.History().Of(b.t.Context(), key("H-1"))
	if err != nil || len(notes) == 0 || notes[len(notes)-1].By != "anna" {
		b.t.Errorf("notes %+v, %v; want anna's name", notes, err)
	}
	b.open("/fence?scope=test&order=H-1&step=charge")
	b.says("Decided: charged", "by anna", "Held", "Doubt", "Captured")
}

func (s *shop) oldPage(b *tab) {
	b.open("/fence?scope=test&order=H-2&step=charge")
	s.fenceCommand(0, "decline", "H-2", "charge", "--by", "boris", "--reason", "the bank says no", "--yes", "--keep", "--i-have-checked-the-provider")
	b.do(chromedp.Click(chromedp.CSS("input[value=settle]")), chromedp.SendKeys(chromedp.CSS(`input[name^="reference."]`), "pay_78"), chromedp.SendKeys(chromedp.CSS("input[name=reason]"), "seen"))
	b.click(".decide form button.button")
	b.says("has changed since you looked at it", "declined now, by boris", "the bank says no")
	b.inspect("stale")
	if row := s.row("H-2"); row.State != zabor.Declined || row.Reference != "" {
		b.t.Errorf("row %+v", row)
	}
	// Also between the question and the answer.
	b.open("/fence?scope=test&order=H-3&step=charge")
	b.do(chromedp.Click(chromedp.CSS("input[value=decline]")), chromedp.Click(chromedp.CSS(".decide input[name=checked]")), chromedp.SendKeys(chromedp.CSS("input[name=reason]"), "nothing there"))
	b.click(".decide form button.button")
	b.says("Is this right?")
	s.fenceCommand(0, "settle", "H-3", "charge", "pay_79", "--by", "boris", "--reason", "it is there", "--yes", "--keep")
	b.click(".acts .button")
	b.says("has changed since you looked at it", "settled now, by boris")
	if row := s.row("H-3"); row.State != zabor.Settled || row.Reference != "pay_79" {
		b.t.Errorf("row %+v", row)
	}
}

// livePages: a list renews itself row by row. What a person has marked, or is
// writing, stays as it is, and says when its row is another by now.
func (s *shop) livePages(b *tab) {
	row := func(order string) string { return fmt.Sprintf(`article:has(a[href*="order=%s&"])`, order) }
	there := func(order string) bool {
		return evaluate[bool](b, fmt.Sprintf("!!document.querySelector(%q)", row(order)))
	}
	b.open("/open")
	b.mark(row("L-1") + " .mark input")
	b.write(row("L-2")+` input[name^="reference."]`, "pay_half")
	b.do(chromedp.Focus(chromedp.CSS("#find")))
	s.decide(0, "decline", "L-1", "--keep", "--i-have-checked-the-provider")
	s.decide(0, "release", "L-3", "--keep", "--i-have-checked-the-provider")
	eventually(b.t, "L-3 is taken off the page", func() bool { return !there("L-3") })
	b.says("This does not stand here any more", "1 marked")
	if kept := evaluate[string](b, fmt.Sprintf(`document.querySelector(%q + " .mark input").checked + " " + document.querySelector(%q + " input[name^='reference.']").value`, row("L-1"), row("L-2"))); kept != "true pay_half" {
		b.t.Errorf("what was marked and written is %q now", kept)
	}
	if text := evaluate[string](b, fmt.Sprintf("document.querySelector(%q).innerText", row("L-2"))); strings.Contains(text, "meanwhile") {
		b.t.Errorf("a row that is the same says\n%s", text)
	}
	s.decide(0, "hold", "L-3")
	eventually(b.t, "L-3 is on the page again", func() bool { return there("L-3") })
	// The same row, in another write.
	s.decide(0, "release", "L-2", "--keep", "--i-have-checked-the-provider")
	s.decide(0, "hold", "L-2")
	b.says("This row has changed since it was shown here")
	b.inspect("open-changed")
	for _, order := range []string{"L-2", "L-3"} {
		s.decide(0, "decline", order, "--keep", "--i-have-checked-the-provider")
	}

	b.open("/failed")
	b.mark(`tr:has(a[href*="order=L-1&"]) input`)
	b.do(chromedp.Focus(chromedp.CSS("#find")))
	if err := s.store.Quarantine().Save(b.t.Context(), sqlstore.Unreadable{Queue: "async", Bytes: []byte("nor is this"), Reason: "it came while somebody looked"}); err != nil {
		b.t.Fatal(err)
	}
	b.says("it came while somebody looked", "1 marked")
	if !evaluate[bool](b, `document.querySelector('tr:has(a[href*="order=L-1&"]) input').checked`) {
		b.t.Error("the mark is gone")
	}
	// What lies in the failure transports for the rows of this test is taken away.
	for _, order := range []string{"L-1", "L-2", "L-3"} {
		s.decide(0, "decline", order)
	}
	eventually(b.t, "the unmarked messages are taken off the page", func() bool {
		return evaluate[bool](b, `!document.querySelector('tr:has(a[href*="order=L-2&"])')`)
	})
	b.says("This does not stand here any more")
}

func (s *shop) retries(b *tab) {
	laravel, symfony := s.failed()
	b.open("/failed")
	b.click(`tr:has(a[href*="H-2"]) a[href^="/failed/message"]`)
	b.says("H-2", "apiToken", "not shown", "4242 42** **** 4242", "Nothing is called")
	b.inspect("message")
	if text := b.text(); strings.Contains(text, "tok_do_not_show") || strings.Contains(text, "4242 4242 4242") {
		b.t.Errorf("a secret is shown:\n%s", text)
	}
	b.click("form.acts .button")
	b.says("1 of 1 are at the end of their queues")
	if l, f := s.failed(); l+f != laravel+symfony-1 {
		b.t.Errorf("%d and %d messages are left, of %d and %d", l, f, laravel, symfony)
	}
	b.open("/failed")
	b.do(chromedp.Click(chromedp.CSS(`tr:has(a[href*="in=unreadable"]) input`)))
	b.says("1 marked")
	b.click(`button[formaction="/failed/forget"]`)
	b.says("Forget for good?")
	b.inspect("forget")
	b.write("input[name=reason]", "it is no job")
	b.click("button.danger")
	b.says("1 of 1 were deleted: it is no job")
	b.open("/failed")
	b.says("What people did lately", "Message forgotten by anna", "it is no job", "Message retried by anna")
	b.open("/fence?scope=test&order=H-2&step=charge")
	b.says("Its message was put back on its queue by anna")
	posts := s.provider.Stats().Posts
	s.worker("--drain").exit(exit.BadAnswer)
	if got := s.provider.Stats().Posts; got != posts {
		b.t.Errorf("the retried message of a declined row made %d calls", got-posts)
	}
}

func (s *shop) many(b *tab) {
	b.open("/open")
	b.do(chromedp.KeyEvent("j"), chromedp.KeyEvent("x"), chromedp.KeyEvent("j"), chromedp.KeyEvent("x"))
	b.says("2 marked")
	b.do(chromedp.WaitVisible(chromedp.CSS(".bar .button")), chromedp.Click(chromedp.CSS(".bar input[value=decline]")), chromedp.Click(chromedp.CSS(".bar input[name=checked]")), chromedp.SendKeys(chromedp.CSS(".bar input[name=reason]"), "neither is in the list"))
	b.inspect("many")
	b.click(".bar .button")
	b.says("Yes, do it for 2 rows")
	b.click(".acts .button")
	b.says("Decided")
	for _, order := range []string{"H-4", "H-5"} {
		if state := s.state(order); state != zabor.Declined {
			b.t.Errorf("order %s is %s", order, state)
		}
	}
	b.open("/open")
	b.says("Nothing is in doubt, and nothing is held.")
	b.inspect("open-none")
}

func auditAndDoctor(b *tab) {
	for _, path := range []string{"/audit", "/doctor"} {
		b.open(path)
		b.click("main form button")
		b.says("by anna") // the page renews itself
		b.inspect(strings.Trim(path, "/") + "-found")
	}
	b.open("/")
	b.says("Audited from the rows and queues alone")
}

func viewerMayNot(b *tab) {
	b.open("/fence?scope=test&order=H-2&step=charge")
	b.says("An operator decides.")
	status := evaluate[int](b, `fetch("/decide", {method: "POST", body: new URLSearchParams({row: "x"})}).then(r => r.status)`)
	text := evaluate[string](b, `fetch("/decide", {method: "POST", body: new URLSearchParams({row: "x"})}).then(r => r.text())`)
	if status != http.StatusForbidden || !strings.Contains(text, "Operators do this") {
		b.t.Errorf("a viewer's decision is answered with %d", status)
	}
}

func anotherSite(b *tab) {
	evil := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		fmt.Fprintf(w, `<form method="post" action="%s/failed/forget"><input name="message" value="%s"><input name="confirm" value="yes"><button>win</button></form>`,
			b.site, url.Values{"queue": {"payments"}, "in": {"failed_jobs"}, "id": {"1"}}.Encode())
	}))
	defer evil.Close()
	b.do(chromedp.Navigate(evil.URL), chromedp.WaitVisible(chromedp.CSS("button")))
	b.click("button")
	b.says("sent by a page of another site")
}

package dashboard

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"zabor"
	"zabor/audit"
	"zabor/dashboard/access"
	"zabor/doctor"
	"zabor/provider"
	"zabor/sqlstore"
)

// office is a dashboard over a fence of its own.
type office struct {
	*testing.T
	store *sqlstore.Store
	fence *zabor.Fence
	board *Dashboard

	answers *Answers // counts what row calls for
}

func newOffice(t *testing.T, change func(*Options)) *office {
	t.Helper()
	store, err := sqlstore.Open("sqlite://" + filepath.Join(t.TempDir(), "fence.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	if err := store.Setup().Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	guard, err := access.New(access.Options{Alone: "local"})
	if err != nil {
		t.Fatal(err)
	}
	o := &office{T: t, store: store, fence: &zabor.Fence{Store: store, Secret: make([]byte, zabor.MinSecret)}}
	o.answers = NewAnswers(store, "", func(zabor.Alert) {})
	options := Options{Store: store, Version: "test", Guard: guard, Log: slog.New(slog.DiscardHandler),
		Look: func(ctx context.Context, d zabor.Decision) (Prospect, error) {
			row, err := store.Load(ctx, d.Key)
			switch {
			case err == nil && row.Claim != d.Seen:
				err = zabor.ErrStale
			case err == nil:
				err = d.Check(row)
			}
			return Prospect{Row: row, Lines: []string{"it will be so"}}, err
		},
		Take: func(ctx context.Context, d zabor.Decision) (Taken, error) {
			row, err := o.fence.Decide(ctx, d)
			return Taken{Row: row}, err
		},
	}
	if change != nil {
		change(&options)
	}
	if o.board, err = New(options); err != nil {
		t.Fatal(err)
	}
	return o
}

// row calls for an order, which ends with outcome.
func (o *office) row(order string, outcome zabor.Outcome) zabor.Row {
	o.Helper()
	return o.rowOf(zabor.Key{Scope: "shop", Order: order, Step: "charge"}, outcome)
}

func (o *office) rowOf(key zabor.Key, outcome zabor.Outcome) zabor.Row {
	o.Helper()
	return o.lateRow(key, outcome, 0)
}

// lateRow is rowOf at a provider whose look-up proves absence so long after the call.
func (o *office) lateRow(key zabor.Key, outcome zabor.Outcome, absentAfter time.Duration) zabor.Row {
	o.Helper()
	fence := zabor.Fence{Store: o.store, Secret: o.fence.Secret, Observer: zabor.Observer{Called: o.answers.Count(nil)}} // its own breaker
	_, _ = fence.Do(o.Context(), zabor.Effect{
		Key: key, Provider: "stripe", Amount: zabor.Money{Minor: 1999, Currency: "EUR"}, Fingerprint: zabor.Fingerprint{Message: "m", Request: "f"},
		Render: func(zabor.ProviderKeys, string) ([]byte, error) {
			return []byte(`{"v":1,"method":"POST","path":"/v1/charges","type":"application/json","body":"{\"customer\":\"cus_9\",\"description\":\"Two tickets\",\"token\":\"tok_hidden\",\"card\":{\"number\":\"4242424242424242\"}}"}`), nil
		},
		Timeout: 10 * time.Second, AbsentAfter: absentAfter, MaxAttempts: 3, HoldAfter: time.Hour, PendingFor: time.Hour, MissingRow: zabor.Captured,
	}, func(context.Context, zabor.Row) zabor.Outcome { return outcome })
	row, err := o.store.Load(o.Context(), key)
	if err != nil {
		o.Fatal(err)
	}
	return row
}

// age makes row so old that no call of it can be on its way any more.
func (o *office) age(row zabor.Row) {
	o.Helper()
	if _, err := o.store.DB().ExecContext(o.Context(), "UPDATE zabor_fences SET send_until = captured_at WHERE order_id = ?", []byte(row.Order)); err != nil {
		o.Fatal(err)
	}
}

func (o *office) ask(method, path string, form url.Values) (int, string) {
	o.Helper()
	request := httptest.NewRequest(method, path, strings.NewReader(form.Encode()))
	request.Host = "127.0.0.1:8071"
	if method == http.MethodPost {
		request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	answer := httptest.NewRecorder()
	o.board.ServeHTTP(answer, request)
	return answer.Code, answer.Body.String()
}

// sees checks that a page answers so and says all of these, and none behind "!".
func (o *office) sees(status int, path string, words ...string) {
	o.Helper()
	code, body := o.ask(http.MethodGet, path, nil)
	if code != status {
		o.Errorf("%s: status %d, want %d", path, code, status)
	}
	if len(body) > 200_000 {
		o.Errorf("%s has %d bytes", path, len(body))
	}
	for _, word := range words {
		without, not := strings.CutPrefix(word, "!")
		if strings.Contains(body, without) == not {
			o.Errorf("%s: %q", path, word)
		}
	}
	for _, inline := range []string{" style=", "<style", " onclick=", " onload=", "<script>"} {
		if strings.Contains(body, inline) {
			o.Errorf("%s has %q, which the policy forbids", path, inline)
		}
	}
}

// Every page of an empty fence says what to do next.
func TestEmptyPages(t *testing.T) {
	t.Parallel()
	o := newOffice(t, nil)
	o.sees(200, "/", "Nothing was charged yet", "zabor worker", "No queues are configured", "No providers are configured", "No process has told", "How to audit")
	o.sees(200, "/fences", "No rows yet")
	o.sees(200, "/fences?q=1&step=charge&state=held", "No row.")
	o.sees(200, "/open", "Nothing is in doubt, and nothing is held.")
	o.sees(200, "/failed", "No queues are configured")
	o.sees(200, "/audit", "zabor audit --publish")
	o.sees(200, "/doctor", "--publish")
	o.sees(404, "/fence?order=1&step=charge", "There is no such row")
	o.sees(400, "/fence?order=1", "No row is named")
	o.sees(404, "/elsewhere", "There is no such page")
	o.sees(404, "/failed/message?queue=a", "No message is named")
	o.sees(400, "/fences?after=x", "not complete")
}

// Every page of a fence with rows in all states shows what is known, and nothing
// that is secret.
func TestPages(t *testing.T) {
	t.Parallel()
	broken := errors.New("the queue is away")
	kept := FailedMessage{FailedID: FailedID{"payments", "failed_jobs", "id-1"}, Class: `App\Jobs\Charge`, At: time.Now(), Reason: "held for a person\nsecond line",
		Data: map[string]any{"order": "1", "password": "hunter2", "card": map[string]any{"number": "4242424242424242", "brand": "visa"}, "list": []any{}, "none": nil}}
	o := newOffice(t, func(options *Options) {
		options.Providers = []Provider{{Name: "stripe", Title: "Stripe", Mode: "TEST", Console: func(row zabor.Row) Console {
			return Console{URL: "https://dashboard.example/search?q=" + row.Order, How: "It finds ids.", Search: []provider.Clue{{By: "metadata", Text: "metadata:zabor_key=" + row.ProviderKey, Unsure: true}}}
		}}}
		options.Queues = []Queue{
			{Name: "payments", Kind: "laravel", Depth: func(context.Context) (Depth, error) { return Depth{Ready: 1234567, Oldest: time.Now()}, nil }},
			{Name: "async", Kind: "symfony", Depth: func(context.Context) (Depth, error) { return Depth{}, broken }},
		}
		options.Failed = Failures{
			List: func(context.Context, int) ([]FailedList, error) {
				return []FailedList{{Queue: "payments", Transport: "failed_jobs", Messages: []FailedMessage{kept}}, {Queue: "async", Transport: "messenger", Err: broken.Error()}}, nil
			},
			Count: func(context.Context, int) ([]FailedCount, error) {
				return []FailedCount{{Queue: "payments", Transport: "failed_jobs", N: 1}, {Queue: "async", Transport: "messenger", Err: broken.Error()}}, nil
			},
			Times: func(_ context.Context, from time.Time) ([]time.Time, error) {
				return []time.Time{from.Add(-time.Second), from.Add(time.Minute), time.Now(), time.Now()}, nil
			},
			One: func(context.Context, FailedID) (FailedMessage, error) { return kept, nil },
		}
	})
	settled := o.row("1", zabor.Outcome{Verdict: zabor.Done, Reference: "pi_1", Answer: &zabor.Answer{Status: 200, Body: []byte(`{"id":"pi_1","client_secret":"cs_hidden"}`)}})
	o.row("2", zabor.Outcome{Reason: "no whole answer came"})
	held := o.row("3", zabor.Outcome{Verdict: zabor.Misdirected, Reason: "404"})
	o.row("4", zabor.Outcome{Verdict: zabor.Refused, Reason: "card_declined"})
	o.row("5", zabor.Outcome{Verdict: zabor.Begun, Reference: "pi_5"})
	o.row("6", zabor.Outcome{Verdict: zabor.Unsent, Reason: "no route"})
	o.row("<b>\xff", zabor.Outcome{Verdict: zabor.Done, Reference: "pi_7"})

	o.beat(o.answers, 0)
	o.sees(200, "/", "Equal", ">3<", "1\u202f234\u202f567", "does not answer", "Stripe", "TEST")
	o.sees(200, "/?span=1h", "Doubts: 1 in the last 1h", "Holds: 1 in the last 1h", "Charges: 2 in the last 1h", "Failed: 3 in the last 1h")
	o.sees(200, "/fences", "pi_1", "!<b>\xff", "&lt;b&gt;")
	o.sees(200, "/fences?q=pi_5", "pi_5", "!pi_1")
	o.sees(200, "/fences?state=held", ">3<", "!pi_1")
	o.sees(200, rowURL(settled.Key), "pi_1", "client_secret", "!cs_hidden", "19.99 EUR")
	o.sees(200, rowURL(held.Key), "cus_9", "!tok_hidden", "!4242424242424242", "Not charged: cancel", "https://dashboard.example/search?q=3", held.ProviderKey, "Held", "was captured: 404")
	if _, body := o.ask(http.MethodGet, rowURL(held.Key), nil); strings.Count(body, "<b>Held</b>") != 1 || strings.Count(body, "<b>Captured</b>") != 1 {
		t.Errorf("the history tells a thing twice, or not:\n%s", body)
	}
	if _, body := o.ask(http.MethodGet, rowURL(settled.Key), nil); strings.Count(body, "<b>Settled</b>") != 1 {
		t.Errorf("the history does not say that it was settled:\n%s", body)
	}
	o.sees(200, rowURL(zabor.Key{Scope: "shop", Order: "<b>\xff", Step: "charge"}), "pi_7")
	o.sees(200, "/open", "cus_9", "<dt>Description</dt>", "Two tickets", "!tok_hidden", "no whole answer came", "Charged", ">1</b>")
	o.sees(200, "/failed", "App\\Jobs\\Charge", "held for a person", "!second line", "the queue is away")
	o.sees(200, "/failed/message?queue=payments&in=failed_jobs&id=id-1", "second line", "visa", "!hunter2", "!4242424242424242", "not shown")
}

// A person is told by what the provider's search finds a call, and what it proves
// that it finds nothing.
func TestWhatToSearchFor(t *testing.T) {
	t.Parallel()
	o := newOffice(t, func(options *Options) {
		options.Providers = []Provider{{Name: "stripe", Console: func(row zabor.Row) Console {
			return Console{Search: []provider.Clue{{By: "merchant reference", Text: "SHOP-" + row.Order}, {By: "metadata", Text: "metadata:zabor_key=" + row.ProviderKey, Unsure: true}}}
		}}}
	})
	never := o.row("1", zabor.Outcome{Verdict: zabor.Misdirected, Reason: "404"})
	late := o.lateRow(zabor.Key{Scope: "shop", Order: "2", Step: "charge"}, zabor.Outcome{Verdict: zabor.Misdirected, Reason: "404"}, time.Hour)
	no, before := "Finding nothing is no proof here, however late.", "Finding nothing before"
	for _, path := range []string{"/open", rowURL(never.Key)} {
		o.sees(200, path, "each of these", "SHOP-1", "merchant reference</span>", "metadata:zabor_key="+never.ProviderKey, "if the request carried it there", "One search that finds nothing proves nothing", before, no)
	}
	o.sees(200, rowURL(late.Key), "SHOP-2", before, late.Open.SendUntil.Add(time.Hour).UTC().Format(utcLayout), "!"+no)

	// Of a provider that is not in the file only what the request carried is said.
	o.board.o.Providers = nil
	o.sees(200, rowURL(never.Key), "Look there by amount, time and customer: nothing of what zabor knows")
}

// The claim that was seen travels with the form: a decision about a row that has
// changed since is refused and changes nothing.
func TestADecisionOnAnOldPage(t *testing.T) {
	t.Parallel()
	o := newOffice(t, nil)
	row := o.row("1", zabor.Outcome{Verdict: zabor.Misdirected, Reason: "404"})
	form := url.Values{"row": {token(row.Key, row.Claim)}, "action": {"settle"}, "reason": {"seen"}, "reference." + token(row.Key, row.Claim): {"pi_1"}}
	if code, body := o.ask(http.MethodPost, "/decide", form); code != 200 || !strings.Contains(body, "Is this right?") {
		t.Fatalf("status %d\n%s", code, body)
	}
	o.age(row)
	if _, err := o.fence.Decide(t.Context(), zabor.Decision{Key: row.Key, Seen: row.Claim, Action: zabor.Decline, By: "boris", Reason: "the bank says no", CheckedProvider: true}); err != nil {
		t.Fatal(err)
	}
	for _, confirm := range []string{"", "yes"} {
		form.Set("confirm", confirm)
		code, body := o.ask(http.MethodPost, "/decide", form)
		if code != http.StatusConflict || !strings.Contains(body, "has changed since you looked") || !strings.Contains(body, "boris") {
			t.Errorf("confirm %q: status %d\n%s", confirm, code, body)
		}
	}
	if now, err := o.store.Load(t.Context(), row.Key); err != nil || now.State != zabor.Declined || now.Reference != "" {
		t.Errorf("row %+v, %v", now, err)
	}
}

// Two installations on one table do not meet: rows of the other one are neither
// counted, found, shown nor decided.
func TestRowsOfAnotherInstallation(t *testing.T) {
	t.Parallel()
	o := newOffice(t, func(options *Options) { options.Scope = "shop" })
	misdirected := zabor.Outcome{Verdict: zabor.Misdirected, Reason: "404"}
	mine := o.row("1", misdirected)
	inner := o.rowOf(zabor.Key{Scope: "shop/7", Order: "1", Step: "charge"}, misdirected)
	other := o.rowOf(zabor.Key{Scope: "shop-2", Order: "1", Step: "charge"}, misdirected)
	o.rowOf(zabor.Key{Scope: "shop-2", Order: "paid", Step: "charge"}, zabor.Outcome{Verdict: zabor.Done, Reference: "pi_other"})
	for _, one := range []Status{{Kind: "worker", Scope: "shop", Host: "mine"}, {Kind: "worker", Scope: "shop-2", Host: "others"}} {
		text, err := json.Marshal(one)
		if err == nil {
			err = o.store.Processes().Alive(t.Context(), [16]byte{byte(len(one.Host))}, text)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	o.sees(200, "/", "Nothing was charged yet", "Charges: 0 in the last", "Holds: 2 in the last", ">2<", "1 alive that take", "mine", "!others")
	o.sees(200, "/open", rowLink(mine.Key), rowLink(inner.Key), "!"+rowLink(other.Key), "<b class=\"badge\">2</b>")
	o.sees(200, "/fences", rowLink(mine.Key), rowLink(inner.Key), "!"+rowLink(other.Key), "!pi_other")
	o.sees(200, "/fences?q=1", rowLink(mine.Key), rowLink(inner.Key), "!"+rowLink(other.Key))
	o.sees(200, "/fences?q=pi_other", "No row.")
	o.sees(200, rowURL(mine.Key), rowLink(inner.Key), "!"+rowLink(other.Key))
	o.sees(404, rowURL(other.Key), "This row is not of this installation", "!404")
	for _, scope := range []string{"shop-2", ""} {
		if err := errors.Join(KeepAudit(t.Context(), o.store, scope, AuditReport{At: time.Now(), By: "the others"}), KeepDoctor(t.Context(), o.store, scope, DoctorReport{At: time.Now(), By: "the others"})); err != nil {
			t.Fatal(err)
		}
	}
	o.sees(200, "/audit", "No audit was kept yet", "!the others")
	o.sees(200, "/doctor", "were not kept yet", "!the others")
	if err := KeepAudit(t.Context(), o.store, "shop", AuditReport{At: time.Now(), By: "cron"}); err != nil {
		t.Fatal(err)
	}
	o.sees(200, "/audit", "by cron")
	for _, path := range []string{"/decide", "/withdraw"} {
		code, body := o.ask(http.MethodPost, path, url.Values{"row": {token(other.Key, other.Claim)}, "action": {"decline"}, "reason": {"x"}, "confirm": {"yes"}})
		if code != http.StatusBadRequest || !strings.Contains(body, "This row is not of this installation") {
			t.Errorf("%s: status %d\n%s", path, code, body)
		}
	}
	if now, err := o.store.Load(t.Context(), other.Key); err != nil || now.Claim != other.Claim {
		t.Errorf("row %+v, %v", now, err)
	}
}

// rowLink is how a page leads to a row.
func rowLink(k zabor.Key) string {
	return `href="` + strings.ReplaceAll(rowURL(k), "&", "&amp;") + `"`
}

// Whoever retries or forgets a message is noted with it, on its key or, where it has
// none, beside the rows; what is forgotten for good needs a reason.
func TestWhatPeopleDoWithMessages(t *testing.T) {
	t.Parallel()
	key := zabor.Key{Scope: "shop", Order: "1", Step: "charge"}
	var did []string
	var refuses error
	o := newOffice(t, func(options *Options) {
		options.Scope = "shop"
		options.Failed = Failures{
			List: func(context.Context, int) ([]FailedList, error) { return nil, nil },
			One: func(_ context.Context, at FailedID) (FailedMessage, error) {
				switch at.ID {
				case "gone":
					return FailedMessage{}, errors.New("there is no such failed message")
				case "keyed":
					return FailedMessage{FailedID: at, Class: `App\Jobs\Charge`, Key: &key}, nil
				}
				return FailedMessage{FailedID: at}, nil
			},
			Retry: func(_ context.Context, at FailedID) error {
				if refuses == nil {
					did = append(did, "retried "+at.ID)
				}
				return refuses
			},
			Forget: func(_ context.Context, at FailedID) error { did = append(did, "forgot "+at.ID); return nil },
		}
	})
	form := func(id string, more ...string) url.Values {
		v := url.Values{"message": {FailedID{"payments", "failed_jobs", id}.Token()}}
		for i := 0; i < len(more); i += 2 {
			v.Set(more[i], more[i+1])
		}
		return v
	}
	for _, tt := range []struct {
		path string
		form url.Values
		code int
		says string
	}{
		{"/failed/forget", form("keyed"), 200, "Forget for good?"},
		{"/failed/forget", form("keyed", "confirm", "yes", "reason", " "), 400, "There is no reason"},
		{"/failed/retry", form("keyed"), 200, "1 of 1 are at the end of their queues"},
		{"/failed/forget", form("plain", "confirm", "yes", "reason", "it is no job"), 200, "1 of 1 were deleted: it is no job"},
		{"/failed/forget", form("gone", "confirm", "yes", "reason", "x"), 200, "there is no such failed message"},
	} {
		if code, body := o.ask(http.MethodPost, tt.path, tt.form); code != tt.code || !strings.Contains(body, tt.says) {
			t.Errorf("%s %v: status %d, want %d with %q\n%s", tt.path, tt.form, code, tt.code, tt.says, body)
		}
	}
	if got, want := strings.Join(did, ", "), "retried keyed, forgot plain"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	for at, want := range map[zabor.Key]string{
		key:             `message retried by local: message keyed of queue payments (failed_jobs), a App\Jobs\Charge`,
		{Scope: "shop"}: "message forgotten by local: message plain of queue payments (failed_jobs): it is no job",
	} {
		notes, err := o.store.History().Of(t.Context(), at)
		if err != nil || len(notes) != 1 || notes[0].Kind+" by "+notes[0].By+": "+notes[0].Text != want {
			t.Errorf("%s: %+v, %v; want %s", at, notes, err, want)
		}
	}
	o.sees(200, failedURL(FailedID{"payments", "failed_jobs", "keyed"}), "What people did", "Its message was put back on its queue", "by local")
	// What cannot be done is noted too: nobody believes that it was.
	refuses = errors.New("its queue is full")
	if code, body := o.ask(http.MethodPost, "/failed/retry", form("keyed")); code != 200 || !strings.Contains(body, "its queue is full") {
		t.Errorf("status %d\n%s", code, body)
	}
	o.sees(200, "/failed", "Message left", "its queue is full")
	o.sees(200, "/failed", "What people did lately", "Message forgotten", "it is no job", "Message retried", "by local")
}

// A page looks further while it has time, and says where it has ended.
func TestLookOn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		second := func(n int) sqlstore.Mark { return sqlstore.Mark{Since: time.Unix(int64(n), 0)} }
		var looks []int
		slow := func(search sqlstore.Search) ([]zabor.Row, sqlstore.Mark, error) {
			if want := 5 - len(looks); search.Limit != want {
				t.Errorf("look %d is for %d rows, want %d", len(looks), search.Limit, want)
			}
			looks = append(looks, search.Look)
			time.Sleep(lookFor/2 + 1)
			return make([]zabor.Row, 1), second(len(looks)), nil
		}
		rows, on, err := lookOn(sqlstore.Search{Limit: 5}, slow)
		if got, want := fmt.Sprint(len(rows), on.Since.Unix(), err, looks), fmt.Sprint(2, 2, nil, []int{firstLook, 4 * firstLook}); got != want {
			t.Errorf("%s, want %s", got, want)
		}
		rows, on, err = lookOn(sqlstore.Search{Limit: 5}, func(search sqlstore.Search) ([]zabor.Row, sqlstore.Mark, error) {
			if search.Look < mostLook {
				return nil, second(1), nil
			}
			return make([]zabor.Row, 5), sqlstore.Mark{}, nil
		})
		if len(rows) != 5 || on != (sqlstore.Mark{}) || err != nil {
			t.Errorf("%d rows, on at %v, %v", len(rows), on, err)
		}
	})
}

// A page behind others that has nothing does not say that there is nothing.
func TestNoMoreFromHereOn(t *testing.T) {
	t.Parallel()
	o := newOffice(t, nil)
	calm, nobody, none, end := "Nothing is in doubt, and nothing is held.", "Nobody has to do anything", "Nothing is in doubt.</p>", "No more from here on."
	behind := writeMark(sqlstore.Mark{Since: time.Now().Add(time.Hour)})
	check := func(rows string) {
		t.Helper()
		o.sees(200, "/open?held="+behind, end, "!"+calm, "!"+nobody)
		o.sees(200, "/open?doubt="+behind, end, "!"+calm, "!"+none)
		if _, body := o.ask(http.MethodGet, "/open?held="+behind+"&doubt="+behind, nil); strings.Count(body, end) != 2 || strings.Contains(body, nobody) || strings.Contains(body, none) {
			t.Errorf("with %s: both lists behind their ends are not so called", rows)
		}
	}
	check("no row")
	o.sees(200, "/open", calm, nobody, none, "!"+end)
	o.sees(200, "/open?held=nonsense", calm, nobody, "!"+end)
	o.row("1", zabor.Outcome{Verdict: zabor.Misdirected, Reason: "404"})
	o.row("2", zabor.Outcome{Reason: "no whole answer came"})
	check("a row of each")
	o.sees(200, "/open", "!"+calm, "!"+nobody, "!"+none, "!"+end)
}

// A form that is not whole decides nothing, and says what is missing.
func TestFormsThatAreNotWhole(t *testing.T) {
	t.Parallel()
	o := newOffice(t, nil)
	row := o.row("1", zabor.Outcome{Verdict: zabor.Misdirected, Reason: "404"})
	second := o.row("2", zabor.Outcome{Verdict: zabor.Misdirected, Reason: "404"})
	at, other := token(row.Key, row.Claim), token(second.Key, second.Claim)
	for want, form := range map[string]url.Values{
		"No row was chosen":         {"action": {"decline"}, "reason": {"x"}},
		"No decision was chosen":    {"row": {at}, "action": {"charge"}, "reason": {"x"}},
		"There is no reason":        {"row": {at}, "action": {"decline"}, "reason": {" "}},
		"This form is not complete": {"row": {"x"}, "action": {"decline"}, "reason": {"x"}},
		"A number of the provider":  {"row": {at}, "action": {"settle"}, "reason": {"x"}},
		"Too many rows at once":     {"row": make([]string, mostAtOnce+1), "action": {"decline"}, "reason": {"x"}},
		"One number is given":       {"row": {at, other}, "action": {"settle"}, "reason": {"x"}, "reference." + at: {"pi_1"}, "reference." + other: {"pi_1"}},
	} {
		form.Set("confirm", "yes")
		if code, body := o.ask(http.MethodPost, "/decide", form); code != http.StatusBadRequest || !strings.Contains(body, want) {
			t.Errorf("%s: status %d", want, code)
		}
	}
	if now, err := o.store.Load(t.Context(), row.Key); err != nil || now.Claim != row.Claim {
		t.Errorf("row %+v, %v", now, err)
	}
}

// What an audit and the doctor have found is kept, in bounds, and shown.
func TestReports(t *testing.T) {
	t.Parallel()
	o := newOffice(t, nil)
	report := AuditReport{At: time.Now(), By: "cron", Total: audit.Total{ProviderSuccesses: 4, UniqueRows: 3, DoubleCharged: 1, Bad: 1000}, Exports: 1}
	for i := range 1000 { // as long as any is
		report.Differences = append(report.Differences, audit.Difference{
			Kind: audit.SuccessWithoutRow, Severity: audit.Critical, Key: zabor.Key{Scope: strings.Repeat("s", zabor.MaxScope), Order: fmt.Sprintf("%04d", i) + strings.Repeat("\xff", 251), Step: strings.Repeat("p", 128)},
			State: zabor.Settled, Reference: strings.Repeat("r", 255), Other: strings.Repeat("o", 255), Amount: zabor.Money{Minor: 1_000_000_00, Currency: "EUR"}, Place: strings.Repeat("& ", 500),
		})
	}
	if err := KeepAudit(t.Context(), o.store, "", report); err != nil {
		t.Fatal(err)
	}
	o.sees(200, "/audit", "1\u202f000 differences", "success-without-row", "by cron", ">0000", "1 to 30 of 300 that are kept", "/audit?from=30", "!>0030")
	o.sees(200, "/audit?from=270", ">0270", ">0299", "!from=300")
	o.sees(200, "/audit?from=nonsense", ">0000")
	findings := make([]doctor.Finding, 400)
	for i := range findings {
		findings[i] = doctor.Finding{Code: "ZB101", Severity: doctor.Error, Where: "config/queue.php", Line: 7, Found: "retry_after is too short" + strings.Repeat(" & so on", 100), Fix: "write 90" + strings.Repeat(" & so on", 100)}
	}
	if err := KeepDoctor(t.Context(), o.store, "", DoctorReport{At: time.Now(), Findings: findings}); err != nil {
		t.Fatal(err)
	}
	o.sees(200, "/doctor", "ZB101", "config/queue.php:7", "300 findings and 100 more", "write 90", "/doctor?from=30")
}

// What a comparison has found is not undone by one that looks at less; one that looks
// at as much does it, or a person who says what became of it.
func TestAComparisonStands(t *testing.T) {
	t.Parallel()
	o := newOffice(t, nil)
	long, short := time.Now().Add(-48*time.Hour).UTC(), time.Now().Add(-time.Hour).UTC()
	twice := func(reference string) AuditReport {
		return AuditReport{Total: audit.Total{DoubleCharged: 1, Bad: 1, Differences: map[audit.Kind]int64{audit.ChargedTwice: 1}},
			Differences: []audit.Difference{{Kind: audit.ChargedTwice, Severity: audit.Critical, Key: zabor.Key{Order: "1", Step: "charge"}, Reference: reference}}}
	}
	keep := func(r AuditReport, from time.Time, lists ...string) {
		t.Helper()
		r.At, r.Exports = time.Now().UTC(), len(lists)
		for _, name := range lists {
			r.Looks = append(r.Looks, Look{Name: name, First: from, Last: r.At})
		}
		if err := KeepAudit(t.Context(), o.store, "", r); err != nil {
			t.Fatal(err)
		}
	}
	red := func(what string, more ...string) {
		t.Helper()
		o.sees(200, "/", append([]string{`class="hero unequal"`, "Charged twice"}, more...)...)
		o.sees(200, "/audit?of=comparison", "pi_twice", "It is dealt with")
		if t.Failed() {
			t.Fatalf("after %s", what)
		}
	}
	keep(twice("pi_twice"), long, "stripe", "adyen")
	red("a bad one", "1 charge too much")
	keep(AuditReport{}, short, "stripe", "adyen")
	red("a good one of the last hour")
	keep(AuditReport{}, long.Add(-time.Hour), "stripe")
	red("a good one of one list of two")
	keep(twice("pi_again"), short, "stripe")
	red("another bad one", "2 charges too much")
	o.sees(200, "/audit?of=comparison", "pi_again")
	keep(twice("pi_again"), short, "stripe")
	red("the same again", "2 charges too much")
	month := AuditReport{At: time.Now(), Exports: 2, Looks: []Look{{Name: "adyen", First: long, Last: short}, {Name: "stripe", First: long, Last: short}}}
	if err := KeepAudit(t.Context(), o.store, "", month); err != nil {
		t.Fatal(err)
	}
	red("last month's lists", "2 charges too much")
	keep(AuditReport{}, long, "adyen", "stripe")
	o.sees(200, "/", "!unequal", "!Charged twice")

	keep(twice("pi_twice"), time.Time{}, "stripe")
	keep(AuditReport{}, long, "stripe")
	red("a good one that does not go back to the beginning")
	_, page := o.ask(http.MethodGet, "/audit?of=comparison", nil)
	_, rest, _ := strings.Cut(page, `name="at" value="`)
	at, _, _ := strings.Cut(rest, `"`)
	for want, form := range map[string]url.Values{"There is no reason": {"at": {at}}, "another comparison now": {"at": {"1"}, "reason": {"x"}}} {
		if code, body := o.ask(http.MethodPost, "/audit/dealt", form); code < 400 || !strings.Contains(body, want) {
			t.Errorf("status %d, want %s", code, want)
		}
	}
	red("forms that are not whole")
	o.ask(http.MethodPost, "/audit/dealt", url.Values{"at": {at}, "reason": {"pi_twice refunded, re_9"}})
	o.sees(200, "/", "!unequal", "!Charged twice")
	o.sees(200, "/audit", "It was dealt with by local", "pi_twice refunded, re_9")
	notes, err := o.store.History().Of(t.Context(), zabor.Key{})
	if err != nil || len(notes) != 1 || notes[0].By != "local" || !strings.Contains(notes[0].Text, "re_9") {
		t.Errorf("noted %+v, %v", notes, err)
	}
	keep(twice("pi_twice"), short, "stripe")
	red("it was found again")
}

// The headline is as bad as the rows, and as what an audit has found beside them. A
// comparison with a provider's list counts until there is a newer one.
func TestTheHeadline(t *testing.T) {
	t.Parallel()
	o := newOffice(t, nil)
	keep := func(r AuditReport) {
		t.Helper()
		r.At = time.Now()
		if r.Compared() {
			r.Looks = []Look{{Name: "stripe", Last: r.At}}
		}
		if err := KeepAudit(t.Context(), o.store, "", r); err != nil {
			t.Fatal(err)
		}
	}
	good := audit.Total{ProviderSuccesses: 1, UniqueRows: 1}
	twice := audit.Total{ProviderSuccesses: 2, UniqueRows: 1, DoubleCharged: 1, Bad: 1, Differences: map[audit.Kind]int64{audit.ChargedTwice: 1}}
	o.row("1", zabor.Outcome{Verdict: zabor.Done, Reference: "pi_1"})
	o.sees(200, "/", `class="hero empty"`, "<h2>Not compared yet</h2>", "Never compared", "by the rows alone")
	o.beat(o.answers, 0)
	o.sees(200, "/", `class="hero equal"`, "<h2>Equal</h2>", "Never compared")
	keep(AuditReport{Total: good})
	o.sees(200, "/", `class="hero equal"`, "Audited from the rows and queues alone", "Never compared")

	keep(AuditReport{Total: twice, Exports: 1, Differences: []audit.Difference{{Kind: audit.ChargedTwice, Severity: audit.Critical, Key: zabor.Key{Order: "1", Step: "charge"}, Reference: "pi_1", Other: "pi_2"}}})
	bad := []string{`class="hero unequal"`, "Charged twice", "1 charge too much", "!<h2>Equal", "!Never compared"}
	o.sees(200, "/", bad...)
	keep(AuditReport{Total: good}) // «Audit now» saw no list
	o.sees(200, "/", append(bad, "/audit?of=comparison", "Audited from the rows and queues alone")...)
	o.sees(200, "/audit", "No differences", "It stays until a later audit of the same lists and period is clean", "/audit?of=comparison", "!pi_2")
	o.sees(200, "/audit?of=comparison", "charged-twice", "pi_2")
	keep(AuditReport{Total: audit.Total{ProviderSuccesses: 1, UniqueRows: 1, Empty: []string{"stripe.csv"}}, Exports: 1}) // an empty list
	o.sees(200, "/", bad...)
	o.sees(200, "/audit", "stripe.csv had nothing in it")
	keep(AuditReport{Total: good, Exports: 1})
	o.sees(200, "/", `class="hero equal"`, "Compared with the providers")
	keep(AuditReport{Total: audit.Total{ProviderSuccesses: 1, UniqueRows: 1, Lost: 1, Bad: 1, Differences: map[audit.Kind]int64{audit.Lost: 1}}})
	o.sees(200, "/", `class="hero unequal"`, "Not as the rows say", "1 message lost")
	keep(AuditReport{Total: good, Exports: 1})

	o.row("2", zabor.Outcome{Reason: "no whole answer came"})
	o.board.changed()
	o.sees(200, "/", "1 row in doubt or held</a>, 19.99 EUR: not counted yet")
	if err := o.store.Meta().Set(t.Context(), auditName, []byte("{")); err != nil {
		t.Fatal(err)
	}
	o.sees(200, "/", `class="hero unknown"`, "cannot be read", "!<h2>Equal")
	o.sees(503, "/audit", "cannot be read")
}

// A row with two references is red until a person has said what became of the
// second; the next such row is red again.
func TestASecondReferenceThatWasDealtWith(t *testing.T) {
	t.Parallel()
	o := newOffice(t, nil)
	row := o.row("1", zabor.Outcome{Verdict: zabor.Done, Reference: "pi_1"})
	twice := func(row zabor.Row, other string) zabor.Row {
		t.Helper()
		if _, err := o.store.DB().ExecContext(t.Context(), "UPDATE zabor_fences SET other_reference = ? WHERE order_id = ?", []byte(other), []byte(row.Order)); err != nil {
			t.Fatal(err)
		}
		row.OtherReference = other
		o.board.numbers.sums.forget()
		return row
	}
	o.beat(o.answers, 0)
	row = twice(row, "pi_2")
	o.sees(200, "/", `class="hero unequal"`, "1 row has a second number", "!dealt with by hand")
	o.sees(200, rowURL(row.Key), "Money may have moved twice", "It is dealt with")
	form := url.Values{"row": {token(row.Key, row.Claim)}, "reason": {" "}}
	if code, _ := o.ask(http.MethodPost, "/refunded", form); code != http.StatusBadRequest {
		t.Errorf("without a reason: status %d", code)
	}
	form.Set("reason", "pi_2 refunded, re_9")
	stale := url.Values{"row": {token(row.Key, zabor.Claim{Epoch: row.Claim.Epoch + 1, ID: row.Claim.ID})}, "reason": {"x"}}
	if code, _ := o.ask(http.MethodPost, "/refunded", stale); code != http.StatusConflict {
		t.Errorf("of another row: status %d", code)
	}
	o.sees(200, "/", `class="hero unequal"`)
	if code, body := o.ask(http.MethodPost, "/refunded", form); code != http.StatusSeeOther {
		t.Fatalf("status %d\n%s", code, body)
	}
	o.sees(200, rowURL(row.Key), "local has dealt with it", "pi_1 and pi_2: pi_2 refunded, re_9", "!Money may have moved twice", "The second reference was dealt with")
	o.sees(200, "/", `class="hero equal"`, "1 row with a second number of the provider's was dealt with by hand")
	twice(o.row("2", zabor.Outcome{Verdict: zabor.Done, Reference: "pi_3"}), "pi_4")
	o.sees(200, "/", `class="hero unequal"`, "1 row has a second number", "1 row with a second number")
	other := o.row("3", zabor.Outcome{Verdict: zabor.Done, Reference: "pi_5"})
	if code, _ := o.ask(http.MethodPost, "/refunded", url.Values{"row": {token(other.Key, other.Claim)}, "reason": {"x"}}); code != http.StatusConflict {
		t.Errorf("of a row with one reference: status %d", code)
	}
}

// A search that has not looked through everything never says that there is nothing.
func TestASearchThatIsNotThroughYet(t *testing.T) {
	t.Parallel()
	o := newOffice(t, nil)
	held := o.row("20", zabor.Outcome{Verdict: zabor.Misdirected, Reason: "404"})
	first := o.row("1", zabor.Outcome{Verdict: zabor.Done, Reference: "pi_1"})
	for i := range 11 { // 2048 rows
		if _, err := o.store.DB().ExecContext(t.Context(), copyRows(t, o), fmt.Sprintf("1%d", i), held.Order); err != nil {
			t.Fatal(err)
		}
	}
	o.sees(200, "/fences?q=1&state=held", "Not found yet.", "2\u202f00", "write more of the order id", "!<b>No row.")
	o.sees(200, "/fences?q=1&state=settled", "These are the first that fit", ">"+first.Order+"<")
	o.sees(200, "/fences?q=1", "These are the first that fit")
	o.sees(200, "/fences?q=20&state=held", ">20<", "!more of the order id")
	o.sees(200, "/fences?q=20&state=settled", "No row.", "!more of the order id")
}

// copyRows inserts all rows but one again, with a text before their orders.
func copyRows(t *testing.T, o *office) string {
	t.Helper()
	rows, err := o.store.DB().QueryContext(t.Context(), "SELECT name FROM pragma_table_info('zabor_fences')")
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	var names, values []string
	for rows.Next() {
		var name string
		if err := rows.Scan(&name); err != nil {
			t.Fatal(err)
		}
		names, values = append(names, name), append(values, name)
		if name == "order_id" {
			values[len(values)-1] = "CAST(? || order_id AS BLOB)"
		}
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return "INSERT INTO zabor_fences (" + strings.Join(names, ", ") + ") SELECT " + strings.Join(values, ", ") + " FROM zabor_fences WHERE order_id <> CAST(? AS BLOB)"
}

// The page before a decision says no to what would be refused.
func TestNoPromiseThatIsRefused(t *testing.T) {
	t.Parallel()
	o := newOffice(t, nil)
	row := o.row("1", zabor.Outcome{Verdict: zabor.Misdirected, Reason: "404"})
	for want, form := range map[string]url.Values{
		"say that you did":                         {"action": {"release"}},
		"a request may still be on its way until ": {"action": {"release"}, "checked": {"yes"}},
		"it is held":                               {"action": {"hold"}},
	} {
		form.Set("row", token(row.Key, row.Claim))
		form.Set("reason", "seen")
		code, body := o.ask(http.MethodPost, "/decide", form)
		if code != http.StatusUnprocessableEntity || !strings.Contains(body, want) || strings.Contains(body, "Yes, ") || strings.Contains(body, "it will be so") {
			t.Errorf("%s: status %d\n%s", want, code, body)
		}
	}
	o.age(row)
	form := url.Values{"action": {"release"}, "checked": {"yes"}, "row": {token(row.Key, row.Claim)}, "reason": {"seen"}}
	if code, body := o.ask(http.MethodPost, "/decide", form); code != 200 || !strings.Contains(body, "Yes, charge again") {
		t.Errorf("status %d\n%s", code, body)
	}
}

// Failed messages are shown in bounds, and every one of them can be reached.
func TestManyFailedMessages(t *testing.T) {
	t.Parallel()
	const queues, each = 6, 120
	list := func(queue string) (all []FailedMessage) {
		for i := range each { // the newest first
			key := zabor.Key{Scope: "shop-production", Order: fmt.Sprintf("0190b3c4-7d2e-7abc-8def-%012d", each-i), Step: "charge"}
			all = append(all, FailedMessage{FailedID: FailedID{queue, "failed_jobs", fmt.Sprintf("%s-%d", key.Order, i)}, Mark: fmt.Sprint(each - i), Class: `App\Jobs\Payments\ChargeOrder`, Key: &key, At: time.Now(), Reason: strings.Repeat("& because ", 50)})
		}
		return all
	}
	retried := 0
	o := newOffice(t, func(options *Options) {
		options.Failed = Failures{
			List: func(_ context.Context, limit int) (lists []FailedList, err error) {
				for i := range queues {
					queue := fmt.Sprint("queue-", i)
					lists = append(lists, FailedList{Queue: queue, Transport: "failed_jobs", Messages: list(queue)[:limit]})
				}
				return lists, nil
			},
			Older: func(_ context.Context, queue, transport, mark string, limit int) (FailedList, error) {
				all := list(queue)
				for len(all) > 0 && mark != "" && all[0].Mark != mark {
					all = all[1:]
				}
				if mark != "" {
					all = all[1:]
				}
				return FailedList{Queue: queue, Transport: transport, Messages: all[:min(limit, len(all))]}, nil
			},
			Count: func(context.Context, int) ([]FailedCount, error) {
				return []FailedCount{{Queue: "queue-1", Transport: "failed_jobs", N: 1000, More: true}}, nil
			},
			Retry: func(context.Context, FailedID) error { retried++; return nil },
		}
	})
	o.sees(200, "/", ">1\u202f000+<")
	o.sees(200, "/failed", "queue-0", "queue-5", "more than 1\u202f000 messages")
	seen := map[string]bool{}
	pages := 0
	for next := "/failed?queue=queue-1&in=failed_jobs&older="; next != ""; pages++ {
		_, body := o.ask(http.MethodGet, next, nil)
		o.sees(200, next, "queue-1", "!queue-2")
		for _, part := range strings.Split(body, `aria-label="Mark message `)[1:] {
			id, _, _ := strings.Cut(part, `"`)
			seen[id] = true
		}
		next = ""
		if _, link, more := strings.Cut(body, `<a class="button plain" href="/failed?`); more {
			link, _, _ = strings.Cut(link, `"`)
			next = "/failed?" + strings.ReplaceAll(link, "&amp;", "&")
		}
	}
	if len(seen) != each || pages != 3 {
		t.Errorf("%d of %d messages on %d pages", len(seen), each, pages)
	}
	form := url.Values{"message": make([]string, mostAtOnce+1)}
	for i := range form["message"] {
		form["message"][i] = FailedID{"queue-1", "failed_jobs", fmt.Sprint(i)}.Token()
	}
	if code, body := o.ask(http.MethodPost, "/failed/retry", form); code != http.StatusBadRequest || !strings.Contains(body, "Too many messages at once") || retried != 0 {
		t.Errorf("status %d, %d retried", code, retried)
	}
}

// person is a signed-in user of an office.
type person struct {
	*office
	cookie string
}

func (o *office) signIn(name string) person {
	o.Helper()
	request := httptest.NewRequest(http.MethodPost, "/login", strings.NewReader(url.Values{"name": {name}, "password": {"correct horse"}}.Encode()))
	request.Host = "127.0.0.1:8071"
	request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	answer := httptest.NewRecorder()
	o.board.ServeHTTP(answer, request)
	if cookies := answer.Result().Cookies(); answer.Code == http.StatusSeeOther && len(cookies) == 1 {
		return person{o, cookies[0].Name + "=" + cookies[0].Value}
	}
	o.Fatalf("%s does not get in: status %d", name, answer.Code)
	return person{}
}

// says checks that a page answers p so and says all of these, and none behind "!".
func (p person) says(status int, method, path string, form url.Values, words ...string) string {
	p.Helper()
	request := httptest.NewRequest(method, path, strings.NewReader(form.Encode()))
	request.Host = "127.0.0.1:8071"
	request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	request.Header.Set("Cookie", p.cookie)
	answer := httptest.NewRecorder()
	p.board.ServeHTTP(answer, request)
	body := answer.Body.String()
	if answer.Code != status {
		p.Errorf("%s: status %d, want %d\n%s", path, answer.Code, status, body)
	}
	for _, word := range words {
		without, not := strings.CutPrefix(word, "!")
		if strings.Contains(body, without) == not {
			p.Errorf("%s: %q\n%s", path, word, body)
		}
	}
	return body
}

// A release by two persons, page by page: both have looked, what is only proposed is
// not called decided, whoever must confirm it finds it, and a form is about the
// proposal that its person has seen and no other.
func TestTwoPersonsRelease(t *testing.T) {
	t.Parallel()
	o := newOffice(t, func(options *Options) {
		hash, err := access.Hash("correct horse")
		if err != nil {
			t.Fatal(err)
		}
		options.SecondPerson = true
		if options.Guard, err = access.New(access.Options{Users: []access.User{{Name: "anna", Hash: hash, Role: access.Operator}, {Name: "boris", Hash: hash, Role: access.Operator}}}); err != nil {
			t.Fatal(err)
		}
	})
	row := o.row("1", zabor.Outcome{Verdict: zabor.Misdirected, Reason: "404"})
	if _, err := o.store.DB().Exec("UPDATE zabor_fences SET send_until = send_until - 3600000000"); err != nil { // nothing can be on its way any more
		t.Fatal(err)
	}
	anna, boris := o.signIn("anna"), o.signIn("boris")
	at := token(row.Key, row.Claim)
	form := func(more ...string) url.Values {
		v := url.Values{"row": {at}, "action": {"release"}, "reason": {"nothing is there"}}
		for i := 0; i < len(more); i += 2 {
			v.Set(more[i], more[i+1])
		}
		return v
	}
	const post, get = http.MethodPost, http.MethodGet
	mark := func() string { // of the proposal that boris sees on the row's page
		t.Helper()
		_, after, found := strings.Cut(boris.says(200, get, rowURL(row.Key), nil, "A release waits for a second person"), `name="second.`+at+`" value="`)
		value, _, _ := strings.Cut(after, `"`)
		if !found || value == "0" {
			t.Fatalf("the form is about the proposal %q", value)
		}
		return value
	}
	unchanged := func(notes int) {
		t.Helper()
		now, err := o.store.Load(t.Context(), row.Key)
		all, noteErr := o.store.History().Of(t.Context(), row.Key)
		if err != nil || noteErr != nil || now.Claim != row.Claim || len(all) != notes {
			t.Errorf("row %+v with %d notes, want %d; %v %v", now, len(all), notes, err, noteErr)
		}
	}
	before, err := o.store.History().Of(t.Context(), row.Key)
	if err != nil {
		t.Fatal(err)
	}
	n := len(before)

	// Nobody proposes who has not looked, nor without having seen what will happen.
	anna.says(422, post, "/decide", form(), "say that you did", "!Is this right?")
	anna.says(422, post, "/decide", form("confirm", "yes", "second."+at, "0"), "say that you did", "Not decided")
	anna.says(422, post, "/decide", form("confirm", "yes", "checked", "yes"), "nobody has proposed", "Not decided")
	unchanged(n)
	anna.says(200, post, "/decide", form("checked", "yes"), "Is this right?", "first it is proposed only", "Yes, propose it", `name="second.`+at+`" value="0"`)
	unchanged(n)
	anna.says(200, post, "/decide", form("checked", "yes", "confirm", "yes", "second."+at, "0"), "<h1>Proposed, not decided yet</h1>", "nothing was changed yet")
	unchanged(n + 1)

	// It is found by whoever has to confirm it.
	boris.says(200, get, "/open", nil, "a second person must confirm", "by anna", "nothing is there", "!Yours")
	anna.says(200, get, "/open", nil, "Yours: another operator confirms it.")
	boris.says(200, get, "/", nil, `href="/open#proposals"`, "<span class=\"name\">Proposed</span><b>1</b>")
	anna.says(200, get, rowURL(row.Key), nil, "Whoever proposed it cannot confirm it.")
	first := mark()
	anna.says(422, post, "/decide", form("checked", "yes", "confirm", "yes", "second."+at, first), "another operator must")
	boris.says(422, post, "/decide", form("confirm", "yes", "second."+at, first), "say that you did", "Not decided")
	boris.says(422, post, "/decide", form("confirm", "yes", "checked", "yes", "second."+at, "0"), "has proposed to release it since you looked")
	boris.says(200, post, "/decide", form("checked", "yes", "second."+at, first), "it is decided by two: anna, confirmed by boris", "Yes, charge again")

	// What was withdrawn meanwhile is not confirmed, and no proposal of its own.
	anna.says(303, post, "/withdraw", form())
	boris.says(422, post, "/decide", form("checked", "yes", "confirm", "yes", "second."+at, first), "nobody has proposed", "Not decided")
	boris.says(409, post, "/withdraw", form(), "Nothing waits to be withdrawn")
	boris.says(200, get, "/open", nil, "!must confirm")
	unchanged(n + 2)

	// Another proposal than the one that was seen is not confirmed either.
	anna.says(200, post, "/decide", form("checked", "yes", "confirm", "yes", "second."+at, "0"), "Proposed, not decided yet")
	boris.says(422, post, "/decide", form("checked", "yes", "confirm", "yes", "second."+at, first), "has proposed to release it since you looked")
	unchanged(n + 3)
	boris.says(200, post, "/decide", form("checked", "yes", "confirm", "yes", "second."+at, mark()), "<h1>Decided</h1>", "it is decided by two")
	now, err := o.store.Load(t.Context(), row.Key)
	all, noteErr := o.store.History().Of(t.Context(), row.Key)
	if err != nil || noteErr != nil || now.State != zabor.Released || all[len(all)-1].By != "anna, confirmed by boris" {
		t.Errorf("row %+v, notes %+v, %v %v", now, all, err, noteErr)
	}
	boris.says(200, get, "/open", nil, "!must confirm")
}

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"zabor/internal/servers"
	"zabor/sandbox"
)

var errDeclined = errors.New("declined")

// charge charges order once, however often it is called, and says by which payment.
func charge(ctx context.Context, zabor, order string, cents int) (payment string, err error) {
	body, err := json.Marshal(map[string]any{"amount": cents, "currency": "EUR", "order": order})
	if err != nil {
		return "", err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, zabor+"/acquirer/payments", bytes.NewReader(body))
	if err != nil {
		return "", err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Zabor-Order", url.PathEscape(order))
	req.Header.Set("Zabor-Step", "charge")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err // this says nothing about the charge: ask again
	}
	defer resp.Body.Close()
	answered := resp.StatusCode/100 == 2 || resp.StatusCode == http.StatusGone // 410: paid, and only the reference is left
	switch {
	case answered && resp.Header.Get("Zabor-State") == "settled":
		return url.PathUnescape(resp.Header.Get("Zabor-Reference"))
	case resp.StatusCode == http.StatusPaymentRequired:
		return "", errDeclined
	}
	problem, _ := io.ReadAll(io.LimitReader(resp.Body, 4096))
	return "", fmt.Errorf("zabor: %s: %s", resp.Status, problem)
}

// example is the first block of code under a heading of docs/proxy.md.
func example(t testing.TB, heading, language string) string {
	t.Helper()
	page, err := os.ReadFile("../../docs/proxy.md")
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile("(?ms)^### " + regexp.QuoteMeta(heading) + "\n\n```" + language + "\n(.*?)^```$").FindSubmatch(page)
	if m == nil {
		t.Fatalf("docs/proxy.md has no %s under %q", language, heading)
	}
	return string(m[1])
}

// The page's example in Go is the function above.
func TestGoExample(t *testing.T) {
	t.Parallel()
	source, err := os.ReadFile("clients_test.go")
	if err != nil {
		t.Fatal(err)
	}
	if code := example(t, "Go", "go"); !strings.Contains(string(source), "\n"+code+"\n") {
		t.Errorf("docs/proxy.md shows\n%s\nand the function charge is another", code)
	}
}

// Debian has no package of stripe-php: what the page shows is PHP at least.
func TestStripeExample(t *testing.T) {
	t.Parallel()
	php := servers.Need(t, "php", "php-cli")
	file := filepath.Join(t.TempDir(), "stripe.php")
	if err := os.WriteFile(file, []byte("<?php\n"+example(t, "stripe-php", "php")), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(php, "-l", file).CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}

// client is a client library, or a language's own, as docs/proxy.md shows it.
type client struct {
	name         string
	on5xx, on4xx string // what is thrown
	on202        string
	need         func(testing.TB)
	// charge gives a list as JSON: the payment's id and whatever else, "declined",
	// or what was thrown and the status.
	charge func(zabor, order string, cents int) (string, error)
}

func script(program string, args ...string) func(zabor, order string, cents int) (string, error) {
	return func(zabor, order string, cents int) (string, error) {
		cmd := exec.Command(program, append(args, order, fmt.Sprint(cents))...)
		cmd.Env = append(os.Environ(), "ZABOR_PROXY="+zabor)
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		out, err := cmd.Output()
		if err != nil {
			err = fmt.Errorf("%w: %s", err, stderr.String())
		}
		return string(out), err
	}
}

func clients() []client {
	php := func(name, on5xx, on4xx string) client {
		return client{"php " + name, on5xx, on4xx, "RuntimeException", needPHPClients, script("php", "testdata/php/charge.php", name)}
	}
	return []client{
		php("laravel_http", `Illuminate\Http\Client\RequestException`, `Illuminate\Http\Client\RequestException`),
		php("guzzle", `GuzzleHttp\Exception\ServerException`, `GuzzleHttp\Exception\ClientException`),
		php("symfony", `Symfony\Component\HttpClient\Exception\ServerException`, `Symfony\Component\HttpClient\Exception\ClientException`),
		php("curl", "RuntimeException", "RuntimeException"),
		{"node", "Error", "Error", "Error", func(t testing.TB) { servers.Need(t, "node", "nodejs") }, script("node", "testdata/node/charge.mjs")},
		{"go", "error", "error", "error", func(testing.TB) {}, func(zabor, order string, cents int) (string, error) {
			payment, err := charge(context.Background(), zabor, order, cents)
			result, status := []any{payment}, 0
			switch {
			case errors.Is(err, errDeclined):
				result = []any{"declined"}
			case err != nil:
				if _, scanErr := fmt.Sscanf(err.Error(), "zabor: %d", &status); scanErr != nil {
					return "", err
				}
				result = []any{"error", status}
			}
			text, err := json.Marshal(result)
			return string(text), err
		}},
	}
}

// What each client library makes of each answer, as docs/proxy.md says, by the very
// code that it shows.
func TestClients(t *testing.T) {
	t.Parallel()
	s := newShop(t, databases[0].open(t), options{proxy: true, timeout: time.Minute, reserve: 5 * time.Minute})
	s.door()
	for _, c := range clients() {
		t.Run(c.name, func(t *testing.T) {
			c.need(t)
			run := func(order string, cents int) []any {
				t.Helper()
				text, err := c.charge("http://"+s.listen, order, cents)
				var result []any
				if err == nil {
					err = json.Unmarshal([]byte(text), &result)
				}
				if err != nil || len(result) == 0 {
					t.Fatalf("%s: %v %s", order, err, text)
				}
				return result
			}
			is := func(got []any, class string, status int) {
				t.Helper()
				if want := fmt.Sprint([]any{class, status}); fmt.Sprint(got) != want {
					t.Errorf("got %v, want %s", got, want)
				}
			}
			order := c.name + " " // a blank at its end
			first, again := run(order, 1999), run(order, 1999)
			if id, _ := first[0].(string); !strings.HasPrefix(id, "pay_") || again[0] != id {
				t.Errorf("first %v, again %v", first, again)
			}
			if charges := s.provider.Charges(order); len(charges) != 1 || s.provider.Stats().Replays != 0 {
				t.Errorf("charges %+v, %+v", charges, s.provider.Stats())
			}
			is(run(order, 2999), c.on4xx, 422)

			plan := func(order string, kind sandbox.Kind) {
				t.Helper()
				if err := s.provider.Plan(sandbox.Fault{Kind: kind, Order: order}); err != nil {
					t.Fatal(err)
				}
			}
			plan(c.name+"-no", sandbox.Declined)
			for range 2 {
				if got := run(c.name+"-no", 1999); got[0] != "declined" {
					t.Errorf("got %v, want it declined", got)
				}
			}
			plan(c.name+"-later", sandbox.Pending)
			is(run(c.name+"-later", 1999), c.on202, 202)

			// When the stored answers are erased, a yes stays a yes and a no a no.
			if _, _, err := s.store.EraseAnswers(t.Context(), "", 0, time.Time{}, 1000); err != nil {
				t.Fatal(err)
			}
			if late := run(order, 1999); late[0] != first[0] {
				t.Errorf("without the stored answer %v, want %v", late, first)
			}
			if got := run(c.name+"-no", 1999); got[0] != "declined" {
				t.Errorf("without the stored answer %v, want it declined", got)
			}
			plan(c.name+"-doubt", sandbox.ActClose)
			is(run(c.name+"-doubt", 1999), c.on5xx, 503)

			busy := c.name + "-busy"
			plan(busy, sandbox.ActHang)
			done := make(chan string, 1)
			go func() {
				text, err := c.charge("http://"+s.listen, busy, 1999)
				done <- fmt.Sprint(text, err)
			}()
			eventually(t, "the call is under way", func() bool { return len(s.provider.Charges(busy)) == 1 })
			is(run(busy, 1999), c.on4xx, 409)
			s.provider.Release()
			if got := <-done; !strings.HasPrefix(got, `["pay_`) {
				t.Errorf("got %s", got)
			}
		})
	}
}

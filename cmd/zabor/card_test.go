package main

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"zabor"
	"zabor/sandbox"
)

// A card's number and code go to the provider and nowhere else: not into the
// table, not into the log; and a doubtful call of such a request is looked up
// and not sent again, although the provider keeps keys.
func TestACardIsNotKept(t *testing.T) {
	t.Parallel()
	const number, written, code = "4242424242424242", "4242-4242-4242-4242", "cvc-7351-x"
	file := filepath.Join(t.TempDir(), "fence.db")
	s := newShop(t, "sqlite://"+file, options{replays: true})
	step := strings.Replace(chargeStep, `order: "{{order}}"}}`, `order: "{{order}}", source: {card: {number: "{{.card}}", cvc: "{{.cvc}}"}}}}`, 1)
	content, err := os.ReadFile(s.file)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(s.file, []byte(strings.Replace(string(content), chargeStep, step, 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	var messages []message
	for order, card := range map[string]string{control: number, target: written, "unreadable amount": number} {
		m := newMessage(s.o.redis, "laravel", order)
		m.Properties["card"], m.Properties["cvc"] = card, code
		if order == "unreadable amount" {
			m.Properties["amountCents"] = number + " EUR"
		}
		messages = append(messages, m)
	}
	if err := s.provider.Plan(sandbox.Fault{Kind: sandbox.ActClose, Order: target}); err != nil {
		t.Fatal(err)
	}
	put(t, messages...)
	w := s.worker()
	eventually(t, "both orders are settled", func() bool { return s.state(control) == zabor.Settled && s.state(target) == zabor.Settled })
	eventually(t, "the queue is empty", func() bool { return s.depth() == depth{} })
	w.signal(syscall.SIGTERM)
	w.exit(0)
	s.chargedOnce(control)
	s.chargedOnce(target)
	if row := s.row(target); row.Cause != zabor.ByLookup || row.Open.Replays != 0 || !row.Open.ReplayUntil.IsZero() || row.Open.Request != nil {
		t.Errorf("row %+v, want it settled by a look-up, without a replay", row)
	}
	if posts := s.provider.Stats().Posts; posts != 2 {
		t.Errorf("%d requests reached the provider, want 2", posts)
	}

	if _, err := s.store.DB().Exec("DELETE FROM failed_jobs"); err != nil { // the application's own copy of its message
		t.Fatal(err)
	}
	if _, err := s.store.DB().Exec("VACUUM"); err != nil {
		t.Fatal(err)
	}
	if _, err := s.store.DB().Exec("PRAGMA wal_checkpoint(TRUNCATE)"); err != nil {
		t.Fatal(err)
	}
	table, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(table), target) {
		t.Fatal("the database's file was not read")
	}
	for where, text := range map[string]string{"the database": string(table), "the log": w.log.String()} {
		for _, secret := range []string{number, written, code} {
			if i := strings.Index(text, secret); i >= 0 {
				t.Errorf("%s holds %s: %q", where, secret, text[max(0, i-80):min(len(text), i+80)])
			}
		}
	}
}

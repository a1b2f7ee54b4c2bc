package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"zabor/internal/exit"
)

// The step that init writes is what the call does: a charge's request stands in no
// other, and what cancels is no step.
func TestInitStepsAreWhatTheCallsDo(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ want, not []string }{
		"stripe-mirakl-connector": {[]string{"#   capture: ", "#   transfer: "}, []string{"prepare:", "#   charge", "message: 'App\\Message\\CancelPendingPaymentMessage'"}},
		"ru-recurrent":            {[]string{"#   charge: ", "message: 'App\\Message\\ChargeRebill'", "'App\\Message\\CancelOrder': default"}, []string{"message: 'App\\Message\\CancelOrder'"}},
		"cashier-saas":            {[]string{"#   charge: ", "message: 'App\\Jobs\\ChargeOverage'", "message: 'App\\Jobs\\InvoiceSeats'", "'App\\Jobs\\SyncCustomer': default"}, []string{"'App\\Jobs\\ChargeOverage': default"}},
		"invoiceninja":            {[]string{"message: 'App\\Jobs\\Cron\\AutoBill'", "'App\\Jobs\\Util\\CreateWebhooks': default"}, nil},
		"ru-subscriptions":        {[]string{"account: \"${YOOKASSA_ACCOUNT}\"", "currency: RUB", "amount: {value: \"{{major}}\""}, []string{"EUR"}},
		"pixelfed":                {[]string{"'App\\Jobs\\DeliverActivity': default"}, []string{"# steps:"}},
		"solidinvoice":            {[]string{"'App\\Message\\SendInvoice': default", "dsn: \"redis://localhost/messages\""}, []string{"# steps:"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			content, err := txtar.ParseFile("../../doctor/testdata/public/" + name + ".txtar")
			if err != nil {
				t.Fatal(err)
			}
			folder := t.TempDir()
			for _, f := range content.Files {
				file := filepath.Join(folder, f.Name)
				if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(file, f.Data, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			var out, log bytes.Buffer
			if code := run(t.Context(), []string{"init", folder}, &out, &log); code != exit.Good {
				t.Fatalf("exit %d: %s", code, log.String())
			}
			for _, text := range tt.want {
				if !strings.Contains(out.String(), text) {
					t.Errorf("no %s in\n%s", text, out.String())
				}
			}
			for _, text := range tt.not {
				if strings.Contains(out.String(), text) {
					t.Errorf("%s in\n%s", text, out.String())
				}
			}
		})
	}
}

// A failure transport that is the queue's own stream is not written: zabor would refuse it.
func TestInitLeavesNoCircle(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	if err := os.CopyFS(folder, os.DirFS("../../doctor/testdata/symfony7/good")); err != nil {
		t.Fatal(err)
	}
	text := "framework:\n    messenger:\n        failure_transport: failed\n        transports:\n            payments: 'redis://localhost:6379/messages'\n            again: 'redis://127.0.0.1/messages'\n            failed: 'redis://127.0.0.1'\n"
	if err := os.WriteFile(filepath.Join(folder, "config/packages/messenger.yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	var out, log bytes.Buffer
	if code := run(t.Context(), []string{"init", folder}, &out, &log); code != exit.Good {
		t.Fatalf("exit %d: %s", code, log.String())
	}
	if said := out.String(); strings.Count(said, "ZB143") != 2 || !strings.Contains(said, `failed: {stream: "messages_failed"}`) || strings.Contains(said, `{stream: "messages"}`) || strings.Count(said, "dsn: ") != 1 {
		t.Errorf("%s", said)
	}
}

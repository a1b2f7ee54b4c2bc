package worker_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"zabor"
	"zabor/step"
)

// Two tenants with one order number, who are named beside the data: with the tenant in the
// key both are charged. Without it the second is parked as another request, and never
// acked as the first one's; the worker has said so once.
func TestTwoTenantsWithOneOrderNumber(t *testing.T) {
	t.Parallel()
	for _, scope := range []string{"", "/tenant_id"} {
		t.Run("scope="+scope, func(t *testing.T) {
			t.Parallel()
			s := newShop(t)
			s.answer = func(_ context.Context, row zabor.Row) zabor.Outcome {
				return zabor.Outcome{Verdict: zabor.Done, Reference: "pay_" + row.ProviderKey}
			}
			var log bytes.Buffer
			s.Log = slog.New(slog.NewTextHandler(&log, nil))
			s.Steps = []*step.Step{s.step(step.Spec{Name: "charge", Classes: []string{"Charge"}, Amount: "cents", Scope: scope, Installation: "shop"})}
			for _, tenant := range []string{"7", "8", "7"} { // the third is a second dispatch of the first
				s.pushRaw("payments", fmt.Sprintf(`{"uuid":"u-%d","displayName":"Charge","job":"Charge@handle","tenant_id":%s,"data":{"order":"1001","cents":1999},"attempts":0}`, len(s.noted()), tenant))
				s.drained()
			}
			calls, failed, told := int64(2), 0, 0
			if scope == "" {
				calls, failed, told = 1, 1, 1
			}
			if s.calls.Load() != calls || s.count("failed_jobs") != failed {
				t.Errorf("%d calls, %d failed jobs; want %d, %d", s.calls.Load(), s.count("failed_jobs"), calls, failed)
			}
			if n := strings.Count(log.String(), "name a tenant at /tenant_id"); n != told {
				t.Errorf("said %d times, want %d: %s", n, told, log.String())
			}
		})
	}
}

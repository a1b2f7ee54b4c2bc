package laravel

import (
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"testing"
	"time"

	"zabor/provider"
	"zabor/step"
)

// What a payload has beside its own members is beside the message: what the application
// adds to each payload, and the context, each value as PHP has it.
func TestBeside(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]map[string]any{
		"v11-context": {"context": map[string]any{"trace_id": "abc", "user": map[string]any{"id": int64(7)}}},
		"v12-context": {"context": map[string]any{"trace_id": "abc", "user": map[string]any{"id": int64(7)}}},
	} {
		raw, err := os.ReadFile("testdata/payloads/" + name + ".json")
		if err != nil {
			t.Fatal(err)
		}
		if m := Decode(raw, nil); m.Err != nil || !reflect.DeepEqual(m.Beside, want) {
			t.Errorf("%s: %v, %v; want %v", name, m.Beside, m.Err, want)
		}
	}
	for fields, want := range map[string]any{
		``:                   nil,
		`"tenant_id":"x-7",`: "x-7",
		`"illuminate:log:context":{"data":{"tenant_id":"i:8;"},"hidden":{"tenant_id":"i:9;","broken":"i:"}},`: int64(8),
		`"illuminate:log:context":{"data":[],"hidden":{"tenant_id":"i:9;"}},`:                                 int64(9),
		`"illuminate:log:context":null,`: nil,
	} {
		m := Decode([]byte(`{"uuid":"u",`+fields+`"job":"Charge@handle","data":{},"attempts":0}`), nil)
		var got any
		for _, within := range []any{m.Beside, m.Beside["context"]} {
			if one, ok := within.(map[string]any); ok && one["tenant_id"] != nil {
				got = one["tenant_id"]
			}
		}
		if m.Err != nil || got != want {
			t.Errorf("%s: %v in %v, %v; want %v", fields, got, m.Beside, m.Err, want)
		}
	}
}

// The next job of a chain has the tenant of the job before it.
func TestAChainKeepsItsTenant(t *testing.T) {
	t.Parallel()
	inner := `O:10:"App\Jobs\B":1:{s:7:"orderId";i:1;}`
	command := fmt.Sprintf(`O:10:"App\Jobs\A":2:{s:7:"orderId";i:1;s:7:"chained";a:1:{i:0;s:%d:"%s";}}`, len(inner), inner)
	quoted, err := json.Marshal(command)
	if err != nil {
		t.Fatal(err)
	}
	raw := fmt.Appendf(nil, `{"uuid":"u","displayName":"A","job":"Illuminate\\Queue\\CallQueuedHandler@call","tenant_id":"7","request_id":"r","attempts":0,"data":{"commandName":"App\\Jobs\\A","command":%s}}`, quoted)
	m, next := decode(raw, nil)
	if m.Err != nil || next == nil {
		t.Fatalf("%v, %v", m.Err, next)
	}
	after := Decode(next.payload(time.Now()), nil)
	s, err := step.New(step.Spec{Name: "charge", Order: "orderId", Scope: "/tenant_id", Provider: "x", Request: provider.RequestSpec{Path: "/"}})
	if err != nil {
		t.Fatal(err)
	}
	if k, err := s.Key(after.Message); err != nil || k.Scope != "/7" || after.Beside["request_id"] != nil {
		t.Errorf("%v, %v; beside %v", k, err, after.Beside)
	}
}

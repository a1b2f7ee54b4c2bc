package step

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
)

// The scope of a key can come from beside the message. What is not there, or no id, is
// refused: it is never taken for no scope.
func TestScopeBesideTheMessage(t *testing.T) {
	t.Parallel()
	m := Message{Data: map[string]any{"orderId": int64(1001), "cents": int64(1999), "/tenant_id": "forged"}, Beside: map[string]any{
		"tenant_id": json.Number("7"), "none": nil,
		"context":         map[string]any{"tenantId": "acme", "user": map[string]any{"id": int64(3)}},
		`App\TenantStamp`: map[string]any{"id": int64(12)},
	}}
	for path, want := range map[string]string{
		"/tenant_id": "shop/7", "/context/tenantId": "shop/acme", "/context/user/id": "shop/3", `/App\TenantStamp/id`: "shop/12",
	} {
		s := newStep(t, func(spec *Spec) { spec.Scope = path })
		if k, err := s.Key(m); err != nil || k.Scope != want || k.Order != "1001" {
			t.Errorf("%s: %v, %v; want scope %s", path, k, err, want)
		}
		if _, err := s.Key(Message{Data: m.Data}); !errors.Is(err, ErrRefused) {
			t.Errorf("%s of a message with nothing beside it: %v", path, err)
		}
		schema, err := ParseKeySchema(s.KeySchema().String())
		if err != nil {
			t.Fatal(err)
		}
		if k, err := schema.Key(m); err != nil || k.Scope != want {
			t.Errorf("%s by its schema: %v, %v", path, k, err)
		}
	}
	for path, says := range map[string]string{
		"/none": "/none is null", "/other": "no other; there is App", "/context/other": "no context/other; there is tenantId, user", "/context": "is", "/tenant_id/x": "there is nothing",
	} {
		s := newStep(t, func(spec *Spec) { spec.Scope = path })
		if _, err := s.Key(m); !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v, want %s", path, err, says)
		}
	}
	for _, path := range []string{"/", "//x", "/a/", "/a b", "/a{b"} {
		spec := newStep(t, nil).spec
		spec.Scope = path
		if _, err := New(spec); err == nil {
			t.Errorf("%q is taken", path)
		}
	}
}

// A tenant beside the message makes an order of the same number another request, unless
// it is in the key. It is told where the keys have no scope.
func TestTenantBesideTheMessage(t *testing.T) {
	t.Parallel()
	data := map[string]any{"orderId": int64(1001), "cents": int64(1999)}
	plain, scoped := newStep(t, nil), newStep(t, func(spec *Spec) { spec.Scope = "/tenant_id" })
	without := plain.Fingerprint(Message{Data: data})
	for _, tt := range []struct {
		name     string
		beside   map[string]any
		counts   bool
		unscoped string
	}{
		{"nothing", nil, false, ""},
		{"of the payload", map[string]any{"tenant_id": json.Number("7")}, true, "/tenant_id"},
		{"in camel case", map[string]any{"tenantId": "7"}, true, "/tenantId"},
		{"of the context", map[string]any{"context": map[string]any{"current_tenant_id": int64(7)}}, true, "/context/current_tenant_id"},
		{"of a stamp", map[string]any{`App\Whose`: map[string]any{"merchantId": "7"}}, true, `/App\Whose/merchantId`},
		{"null", map[string]any{"tenant_id": nil}, false, ""},
		{"something else", map[string]any{"request_id": "7", "job_watcher_uuid": "8", "context": map[string]any{"trace_id": "9", "user_id": "1"}}, false, ""},
	} {
		m := Message{Data: data, Beside: tt.beside}
		if got := plain.Unscoped(m); got != tt.unscoped {
			t.Errorf("%s: unscoped %q, want %q", tt.name, got, tt.unscoped)
		}
		if differs := plain.Fingerprint(m) != without; differs != tt.counts {
			t.Errorf("%s: it counts: %v, want %v", tt.name, differs, tt.counts)
		}
		if e := effect(t, plain, m); e.Fingerprint.Message != plain.Fingerprint(m) || tt.counts != strings.Contains(e.Fingerprint.Fields, "message./") {
			t.Errorf("%s: the effect has %+v", tt.name, e.Fingerprint)
		}
	}
	seven := Message{Data: data, Beside: map[string]any{"tenant_id": json.Number("7")}}
	eight := Message{Data: data, Beside: map[string]any{"tenant_id": "8"}}
	again := Message{Data: data, Beside: map[string]any{"tenant_id": "7"}} // a pop by PHP
	if plain.Fingerprint(seven) == plain.Fingerprint(eight) || plain.Fingerprint(seven) != plain.Fingerprint(again) {
		t.Error("tenants 7 and 8 are one, or 7 is two")
	}
	if scoped.Fingerprint(seven) != scoped.Fingerprint(eight) || scoped.Unscoped(seven) != "" {
		t.Error("what is in the key counts twice")
	}
	named := Message{Data: map[string]any{"orderId": int64(1), "cents": int64(1), "shopId": int64(7)}}
	if got := plain.Unscoped(named); got != "shopId" {
		t.Errorf("a property: %q", got)
	}
}

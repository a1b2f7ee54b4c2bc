package step

import (
	"encoding/json"
	"testing"
	"time"
)

// Each change of what a key is made of changes the schema, and no other change does.
func TestKeySchema(t *testing.T) {
	base := func(s *Spec) {
		s.Installation, s.Order, s.Scope, s.Part = "shop", "order.id", "merchant", "refundId"
		s.Defaults = map[string]any{"order": map[string]any{"id": json.Number("7"), "note": "x"}, "merchant": "m1", "amountCents": json.Number("1")}
		s.Enums = map[string]map[string]string{"Shop": {"First": "1", "Second": "2"}}
	}
	was := newStep(t, base).KeySchema()
	for name, tt := range map[string]struct {
		change          func(*Spec)
		same, extension bool
		less            bool // the schema before extends it
	}{
		"installation":            {change: func(s *Spec) { s.Installation = "other" }},
		"installation with quote": {change: func(s *Spec) { s.Installation = `shop","order":"x` }},
		"installation, bytes":     {change: func(s *Spec) { s.Installation = "shop\xff" }},
		"step":                    {change: func(s *Spec) { s.Name = "pay" }},
		"order":                   {change: func(s *Spec) { s.Order = "id" }},
		"scope":                   {change: func(s *Spec) { s.Scope = "tenant" }},
		"no scope":                {change: func(s *Spec) { s.Scope = "" }},
		"part":                    {change: func(s *Spec) { s.Part = "captureId" }},
		"no part":                 {change: func(s *Spec) { s.Part = "" }},
		"default of the order": {change: func(s *Spec) {
			s.Defaults["order"] = map[string]any{"id": json.Number("8")}
		}},
		"default of the scope":    {change: func(s *Spec) { s.Defaults["merchant"] = "m2" }},
		"no default of the scope": {change: func(s *Spec) { delete(s.Defaults, "merchant") }, less: true},
		"value of a case":         {change: func(s *Spec) { s.Enums["Shop"]["First"] = "3" }},
		"case gone":               {change: func(s *Spec) { delete(s.Enums["Shop"], "First") }, less: true},
		"enum gone":               {change: func(s *Spec) { s.Enums = nil }, less: true},
		"default of the part":     {change: func(s *Spec) { s.Defaults["refundId"] = "R-1" }, extension: true},
		"another case":            {change: func(s *Spec) { s.Enums["Shop"]["Third"] = "3" }, extension: true},
		"another enum":            {change: func(s *Spec) { s.Enums["Currency"] = map[string]string{"Euro": "EUR"} }, extension: true},

		"nothing": {same: true, change: func(*Spec) {}},
		"another default, beside the order": {same: true, change: func(s *Spec) {
			s.Defaults["order"] = map[string]any{"id": "7", "note": "y"}
		}},
		"default of the amount":        {same: true, change: func(s *Spec) { s.Defaults["amountCents"] = json.Number("2") }},
		"default that is no order id":  {same: true, change: func(s *Spec) { s.Defaults["refundId"] = 1.5 }},
		"default that is an empty one": {same: true, change: func(s *Spec) { s.Defaults["refundId"] = "" }},
		"request":                      {same: true, change: func(s *Spec) { s.Request.Path = "/other" }},
		"classes":                      {same: true, change: func(s *Spec) { s.Classes = append(s.Classes, `App\Jobs\Pay`) }},
		"amount":                       {same: true, change: func(s *Spec) { s.Amount = "total" }},
		"attempts and times":           {same: true, change: func(s *Spec) { s.Attempts, s.HoldAfter, s.PendingFor = 9, time.Hour, time.Hour }},
		"volatile":                     {same: true, change: func(s *Spec) { s.Volatile = []string{".at"} }},
	} {
		t.Run(name, func(t *testing.T) {
			k := newStep(t, func(s *Spec) { base(s); tt.change(s) }).KeySchema()
			if same := k.String() == was.String(); same != tt.same {
				t.Errorf("the same: %v, want %v\n%s\n%s", same, tt.same, k, was)
			}
			if extends := k.Extends(was); extends != (tt.same || tt.extension) {
				t.Errorf("it extends the one before: %v", extends)
			}
			if back := was.Extends(k); back != (tt.same || tt.less) {
				t.Errorf("the one before extends it: %v", back)
			}
			if back, err := ParseKeySchema(k.String()); err != nil || back.String() != k.String() {
				t.Errorf("%s is read as %s, %v", k, back, err)
			}
		})
	}
	const want = `{"installation":"shop","step":"charge","order":"order.id","scope":"merchant","part":"refundId","defaults":{"merchant":"m1","order.id":"7"},"enums":{"Shop":{"First":"1","Second":"2"}}}`
	if was.String() != want {
		t.Errorf("%s\nwant %s: it is kept in tables", was, want)
	}
}

// A schema that was read back makes the keys that its step makes.
func TestKeyOfSchema(t *testing.T) {
	s := newStep(t, func(s *Spec) {
		s.Installation, s.Order, s.Scope, s.Part = "shop", "order.id", "merchant", "refundId"
		s.Defaults = map[string]any{"order": map[string]any{"id": json.Number("7")}}
		s.Enums = map[string]map[string]string{"Shop": {"First": "m\xfc"}}
	})
	schema, err := ParseKeySchema(s.KeySchema().String())
	if err != nil {
		t.Fatal(err)
	}
	for _, data := range []map[string]any{
		{"merchant": "m", "refundId": int64(3)},
		{"merchant": Enum{Class: "Shop", Case: "First"}, "refundId": "R-1", "order": map[string]any{"id": "B\xfcro"}},
		{"merchant": Enum{Class: "Shop", Case: "Other"}, "refundId": "R-1"},
		{"merchant": "m", "refundId": "R-1", "order": map[string]any{}},
		{"merchant": "m"},
	} {
		want, wantErr := s.Key(Message{Data: data})
		got, err := schema.Key(Message{Data: data})
		if got != want || (err == nil) != (wantErr == nil) {
			t.Errorf("%v: %q, %v; want %q, %v", data, got, err, want, wantErr)
		}
	}
}

package step

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"zabor"
)

func TestWriteStatement(t *testing.T) {
	all := []Dialect{MySQL, Postgres, SQLite}
	for _, test := range []struct {
		dialects []Dialect
		in, says string // says empty: taken
	}{
		{all, "INSERT INTO payments (order_id, step, state) VALUES (:order, :step, 'started')", ""},
		{all, "update orders set state = 'paid' where id = :order;", ""},
		{all, "DELETE FROM carts WHERE customer = :customer.id", ""},
		{all, "INSERT INTO t SELECT a FROM u WHERE b = :order", ""},
		{[]Dialect{MySQL}, "INSERT INTO t (a) VALUES (:order) ON DUPLICATE KEY UPDATE a = :order", ""},
		{[]Dialect{Postgres, SQLite}, "INSERT INTO t (a) VALUES (:order) ON CONFLICT (a) DO UPDATE SET b = 1", ""},
		{[]Dialect{SQLite}, "INSERT OR IGNORE INTO t (a) VALUES (:order)", ""},
		{all, "UPDATE t SET t.update = 1, updated_at = 2, zabor = 3", ""},
		{all, "UPDATE t SET a = 'zabor_fences; COMMIT'", ""},

		{all, "", "there is no statement"},
		{all, "SELECT 1", "it begins with SELECT: one INSERT, UPDATE or DELETE is wanted"},
		{all, "DROP TABLE orders", "it begins with DROP"},
		{all, "COMMIT", "it begins with COMMIT"},
		{all, "BEGIN", "it begins with BEGIN"},
		{all, "WITH x AS (SELECT 1) UPDATE t SET a = 1", "UPDATE: one INSERT"},
		{all, "REPLACE INTO t VALUES (1)", "it begins with REPLACE"},
		{all, "UPDATE t SET a = 1; COMMIT", "something stands behind the semicolon: one INSERT"},
		{all, "UPDATE t SET a = 1; UPDATE t SET b = 1", "something stands behind the semicolon"},
		{all, "INSERT INTO t SELECT a FROM u FOR UPDATE", "UPDATE: one INSERT"},
		{all, "UPDATE t SET a = 1 RETURNING b", "RETURNING: one INSERT"},
		{[]Dialect{Postgres}, "INSERT INTO t WITH x AS (DELETE FROM u RETURNING a) SELECT a FROM x", "DELETE: one INSERT"},
		{all, "UPDATE zabor_fences SET state = 'settled'", "zabor_fences is the fence's own"},
		{all, "DELETE FROM shop.Zabor_Notes", "zabor_notes is the fence's own"},
		{all, `UPDATE "zabor_fences" SET state = 1`, "zabor_fences is the fence's own"},
		{[]Dialect{MySQL, SQLite}, "UPDATE `zabor_fences` SET state = 1", "zabor_fences is the fence's own"},
		{[]Dialect{SQLite}, "UPDATE [zabor_fences] SET state = 1", "zabor_fences is the fence's own"},
		{all, "INSERT INTO t SELECT a FROM zabor_fences", "zabor_fences is the fence's own"},
		{[]Dialect{MySQL}, "UPDATE t SET a = 1 /*! , b = 2 */", "a comment that MySQL executes"},
		{[]Dialect{MySQL, SQLite}, "UPDATE t SET a = ?", "a parameter without a name"},
		{[]Dialect{Postgres}, "UPDATE t SET a = $1", "a parameter without a name"},
	} {
		for _, dialect := range test.dialects {
			_, err := compileWrite(test.in, dialect)
			if test.says == "" && err != nil || test.says != "" && (err == nil || !strings.Contains(err.Error(), test.says)) {
				t.Errorf("%s: %s: error %v, want %q", dialect, test.in, err, test.says)
			}
		}
	}
}

// hooked is a step with one hook for each dialect.
func hooked(t testing.TB, dialect Dialect, hooks map[zabor.State]Hook) *Step {
	t.Helper()
	return newStep(t, func(s *Spec) { s.Dialect, s.Hooks = dialect, hooks })
}

// Every parameter, with its type, from the row and from the message.
func TestHookParameters(t *testing.T) {
	const insert = "INSERT INTO t VALUES (:scope, :order, :step, :state, :reference, :amount, :major, :currency, :answer, :reason, :n, :text, :price, :float, :ratio, :big, :yes, :none, :raw, :in.it, :n)"
	data := map[string]any{
		"orderId": "7", "cents": int64(1999), "n": int64(900719925474099312), "text": "7abc", "price": json.Number("19.90"), "float": 2.0, "ratio": 0.1,
		"big": json.Number("12345678901234567890"), "yes": true, "none": nil, "raw": "\xff\x00{", "in": map[string]any{"it": "ü\u2028<"},
	}
	row := zabor.Row{
		Key: zabor.Key{Scope: "shop", Order: "7", Step: "charge:R-7"}, State: zabor.Settled, Reference: "pi_1", Reason: "why",
		Amount: zabor.Money{Minor: 1999, Currency: "EUR"}, Answer: &zabor.Answer{Status: 200, Body: []byte(`{"a":1}`)},
	}
	for _, dialect := range []Dialect{MySQL, Postgres, SQLite} {
		s := hooked(t, dialect, map[zabor.State]Hook{zabor.Settled: {SQL: insert, Rows: 1}})
		row.Open.HookData = effect(t, s, Message{Data: data}).HookData
		h, err := s.Hook(row)
		if err != nil {
			t.Fatal(err)
		}
		n, yes, answer := any(int64(900719925474099312)), any(true), any(`{"a":1}`)
		amount, two := any(int64(1999)), any(int64(2))
		if dialect == Postgres {
			n, yes, answer, two = "900719925474099312", "true", []byte(`{"a":1}`), "2"
			amount = "1999"
		}
		want := []any{
			"shop", "7", "charge:R-7", "settled", "pi_1", amount, "19.99", "EUR", answer, "why",
			n, "7abc", "19.90", two, "0.1", "12345678901234567890", yes, nil, []byte("\xff\x00{"), "ü\u2028<", n,
		}
		if h.Name != "settled" || h.Rows != 1 || !reflect.DeepEqual(h.Args, want) {
			t.Errorf("%s: hook %s of %d rows with %#v\nwant %#v", dialect, h.Name, h.Rows, h.Args, want)
		}
		if got, want := strings.Count(h.SQL, "?")+strings.Count(h.SQL, "$"), len(h.Args); got != want {
			t.Errorf("%s: %d placeholders in %s, want %d", dialect, got, h.SQL, want)
		}
	}
}

func TestHookOfARowThatKnowsLittle(t *testing.T) {
	s := hooked(t, SQLite, map[zabor.State]Hook{zabor.Captured: {SQL: "INSERT INTO t VALUES (:scope, :reference, :amount, :major, :currency, :answer, :reason, :state)", Rows: -1}})
	h, err := s.Hook(zabor.Row{State: zabor.Captured})
	if want := []any{"", nil, nil, nil, nil, nil, "", "captured"}; err != nil || !reflect.DeepEqual(h.Args, want) || h.Rows != -1 {
		t.Fatalf("hook %+v, %v; want %#v", h, err, want)
	}
}

// What a hook may not do: be forgotten when it is due, or bind what is not known.
func TestHookRefuses(t *testing.T) {
	s := hooked(t, SQLite, map[zabor.State]Hook{zabor.Settled: {SQL: "DELETE FROM carts WHERE customer = :customer"}})
	if h, err := s.Hook(zabor.Row{State: zabor.Declined}); h != nil || err != nil {
		t.Errorf("a state without a hook: %v, %v", h, err)
	}
	for name, test := range map[string]struct {
		row  zabor.Row
		says string
	}{
		"due, and not configured": {zabor.Row{State: zabor.Held, HookDue: "held"}, "is due, and is not in the configuration any more"},
		"nothing kept":            {zabor.Row{State: zabor.Settled}, "the row has not kept customer of its message"},
		"not kept":                {zabor.Row{State: zabor.Settled, Open: zabor.Open{HookData: []byte(`{"other":1}`)}}, "the row has not kept customer of its message"},
		"unreadable":              {zabor.Row{State: zabor.Settled, Open: zabor.Open{HookData: []byte(`{`)}}, "cannot be read"},
	} {
		if h, err := s.Hook(test.row); h != nil || err == nil || !strings.Contains(err.Error(), test.says) {
			t.Errorf("%s: %v, error %v, want %q", name, h, err, test.says)
		}
	}
	for name, test := range map[string]struct {
		data map[string]any
		says string
	}{
		"no such property": {map[string]any{}, "a hook's parameter: there is no customer; there is cents, orderId"},
		"a list":           {map[string]any{"customer": []any{}}, "a hook's parameter customer: it is a list, which cannot be bound"},
	} {
		test.data["orderId"], test.data["cents"] = "7", int64(1)
		e, err := s.Effect(t.Context(), Message{Data: test.data})
		if err == nil || !strings.Contains(err.Error(), test.says) || e.Fingerprint.Message == "" {
			t.Errorf("%s: error %v, want %q", name, err, test.says)
		}
	}
	rounded := map[string]any{"orderId": "7", "cents": int64(1), "customer": json.Number("1.2345678901234e+14")}
	if _, err := s.Effect(t.Context(), Message{Data: rounded, Rewritten: true}); err == nil || !strings.Contains(err.Error(), "customer may have been rounded") {
		t.Errorf("a rounded number: error %v", err)
	}
	for state, sql := range map[zabor.State]string{zabor.Released: "DELETE FROM t", zabor.Held: "SELECT 1"} {
		spec := s.spec
		spec.Hooks = map[zabor.State]Hook{state: {SQL: sql}}
		if _, err := New(spec); err == nil || !strings.HasPrefix(err.Error(), string(state)+": ") {
			t.Errorf("%s: %s: error %v", state, sql, err)
		}
	}
}

// A column of Load is bound as the database gave it, and wins over a property.
func TestHookDataHoldsExactlyWhatIsNamed(t *testing.T) {
	s := hooked(t, MySQL, map[zabor.State]Hook{
		zabor.Captured: {SQL: "INSERT INTO t VALUES (:order, :a)"}, zabor.Held: {SQL: "DELETE FROM t WHERE b = :b AND a = :a"},
	})
	data := map[string]any{"orderId": "7", "cents": int64(1), "a": int64(1), "b": "text", "secret": "card"}
	if got, want := string(effect(t, s, Message{Data: data}).HookData), `{"a":1,"b":"text"}`; got != want {
		t.Errorf("hook data %s, want %s", got, want)
	}
	if got := effect(t, hooked(t, MySQL, map[zabor.State]Hook{zabor.Held: {SQL: "DELETE FROM t WHERE id = :order"}}), Message{Data: data}).HookData; got != nil {
		t.Errorf("hook data %s of hooks that bind the row alone", got)
	}
}

// Whatever a message holds arrives in the hook as it is.
func TestHookDataKeepsEveryValue(t *testing.T) {
	s := hooked(t, MySQL, map[zabor.State]Hook{zabor.Held: {SQL: "DELETE FROM t WHERE a = :a"}})
	rapid.Check(t, func(t *rapid.T) {
		v := rapid.OneOf(
			rapid.Map(rapid.Int64(), func(i int64) any { return i }),
			rapid.Map(rapid.String(), func(s string) any { return s }),
			rapid.Map(rapid.SliceOf(rapid.Byte()), func(b []byte) any { return string(b) }),
			rapid.Map(rapid.Bool(), func(b bool) any { return b }),
		).Draw(t, "v")
		kept, err := s.hookData(map[string]any{"a": v})
		if err != nil {
			t.Fatal(err)
		}
		h, err := s.Hook(zabor.Row{State: zabor.Held, Open: zabor.Open{HookData: kept}})
		if err != nil {
			t.Fatal(err)
		}
		got := h.Args[0]
		if b, ok := got.([]byte); ok {
			got = string(b)
		}
		if got != v {
			t.Fatalf("%#v became %#v by %s", v, got, kept)
		}
	})
}

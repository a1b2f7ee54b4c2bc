package bench

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// layout is one way to keep a charge: tables, and what a capture and a
// settlement write.
type layout struct {
	tables  []string // name (columns; keys), see ddl
	capture []write  // the first one decides
	settle  []write  // the first one names the claim
}

// write is one row's write of one table. A column may have a fixed expression:
// "state_since={now}". A side write needs a hit of the first one.
type write struct {
	verb    string // insert, ignore (a duplicate is passed over), update, delete
	table   string
	columns string
}

const (
	keyColumns = "scope, order_id, step"
	// What stays of a charge for good. What a settlement changes is last, so that
	// PostgreSQL does not log the rest again.
	permanent = keyColumns + ", captured_at={now}, send_until={now} + 30000000, amount_minor, generation, provider, account, provider_key, currency, message_fp, fingerprint, " + changing
	changing  = "state_since={now}, epoch, captures, free, state, basis, attempt_id, reference, reason"
	// What only an open row needs.
	openColumns   = "lease, absent_after, hold_after, pending_for, looked_at, replay_until, hook_due, request, hook_data, parked"
	answerColumns = "answer_status, answer_header, answer_body"
	// Today's row, and what today's settlement writes.
	wide = keyColumns + ", state, basis, epoch, attempt_id, provider, account, generation, provider_key, prepare_key, amount_minor, currency, message_fp, fingerprint, request, " +
		"prepared, reference, other_reference, " + answerColumns + ", reason, hook_due, parked, captures, free, allowance, lease, absent_after, hold_after, pending_for, " +
		"fields, hook_data, hooked, replays, moved_on, captured_at={now}, send_until={now} + 30000000, replay_until, state_since={now}, looked_at"
	rest = "request, hook_due, hook_data, parked, prepared, other_reference, " + answerColumns + ", allowance, hooked, replays, moved_on"

	fences     = "zabor_fences (" + permanent + "; PRIMARY KEY (scope, order_id, step)"
	recent     = "; INDEX recent (captured_at)"
	sample     = "; INDEX sample (provider, account, captured_at)"
	open       = "zabor_open (" + keyColumns + ", due={now}, " + openColumns + "; PRIMARY KEY (scope, order_id, step); INDEX due (due)"
	answers    = "zabor_answers (" + keyColumns + ", ends={now}, " + answerColumns + "; PRIMARY KEY (scope, order_id, step)"
	references = "zabor_references (reference_hash, " + keyColumns + "; PRIMARY KEY (reference_hash)"
)

var (
	insertFence  = write{"insert", "zabor_fences", permanent}
	insertOpen   = write{"insert", "zabor_open", keyColumns + ", due={now} + 31000000, " + openColumns}
	settleFence  = write{"update", "zabor_fences", changing}
	deleteOpen   = write{"delete", "zabor_open", ""}
	insertAnswer = write{"insert", "zabor_answers", keyColumns + ", ends={now} + 86400000000, " + answerColumns}
	insertRef    = write{"ignore", "zabor_references", "reference_hash, " + keyColumns}
)

var layouts = map[string]layout{
	// One wide table and seven indexes: the first version.
	"A": {
		tables: []string{"zabor_fences (" + wide + "; PRIMARY KEY (scope, order_id, step); INDEX open (state, scope, order_id, step)" +
			"; INDEX due (hook_due); INDEX control (provider, account, state, basis, state_since); INDEX recent (state, state_since, step)" +
			"; INDEX orders (order_id, scope, step); INDEX reference (reference, state); INDEX other (other_reference)"},
		capture: []write{{"insert", "zabor_fences", wide}},
		settle:  []write{{"update", "zabor_fences", changing + ", " + rest}},
	},
	// A narrow permanent table; open data, answers and references beside it.
	"B": {
		tables:  []string{fences + recent + sample + "; INDEX orders (order_id, scope, step)", open, answers, references},
		capture: []write{insertFence, insertOpen},
		settle:  []write{settleFence, deleteOpen, insertAnswer, insertRef},
	},
	// B with the order in front of the key, so that no index of orders is needed.
	"B2": {
		tables: []string{strings.Replace(fences, "(scope, order_id, step)", "(order_id, scope, step)", 1) + recent + sample,
			strings.Replace(open, "(scope, order_id, step)", "(order_id, scope, step)", 1), strings.Replace(answers, "(scope, order_id, step)", "(order_id, scope, step)", 1), references},
		capture: []write{insertFence, insertOpen},
		settle:  []write{settleFence, deleteOpen, insertAnswer, insertRef},
	},
	// B2 without the index of samples.
	"B1": {
		tables: []string{strings.Replace(fences, "(scope, order_id, step)", "(order_id, scope, step)", 1) + recent,
			strings.Replace(open, "(scope, order_id, step)", "(order_id, scope, step)", 1), strings.Replace(answers, "(scope, order_id, step)", "(order_id, scope, step)", 1), references},
		capture: []write{insertFence, insertOpen},
		settle:  []write{settleFence, deleteOpen, insertAnswer, insertRef},
	},
	// B1 without an index of what is due: whoever wants open rows reads all of them.
	"B0": {
		tables: []string{strings.Replace(fences, "(scope, order_id, step)", "(order_id, scope, step)", 1) + recent,
			strings.Replace(strings.Replace(open, "(scope, order_id, step)", "(order_id, scope, step)", 1), "; INDEX due (due)", "", 1),
			strings.Replace(answers, "(scope, order_id, step)", "(order_id, scope, step)", 1), references},
		capture: []write{insertFence, insertOpen},
		settle:  []write{settleFence, deleteOpen, insertAnswer, insertRef},
	},
	// C with the indexes of B1.
	"C1": {
		tables: []string{strings.Replace(strings.Replace(fences, "; ", ", "+openColumns+"; ", 1), "(scope, order_id, step)", "(order_id, scope, step)", 1) + recent,
			strings.Replace(answers, "(scope, order_id, step)", "(order_id, scope, step)", 1), references},
		capture: []write{{"insert", "zabor_fences", permanent + ", " + openColumns}},
		settle:  []write{{"update", "zabor_fences", changing + ", request=NULL, hook_data=NULL"}, insertAnswer, insertRef},
	},
	// Open data in the one table; what hangs is found by captured_at alone.
	"C": {
		tables:  []string{strings.Replace(fences, "; ", ", "+openColumns+"; ", 1) + recent + sample + "; INDEX orders (order_id, scope, step)", answers, references},
		capture: []write{{"insert", "zabor_fences", permanent + ", " + openColumns}},
		settle:  []write{{"update", "zabor_fences", changing + ", request=NULL, hook_data=NULL"}, insertAnswer, insertRef},
	},
	// C1 with a small row beside it for what is open.
	"P": {
		tables: []string{strings.Replace(strings.Replace(fences, "; ", ", "+openColumns+"; ", 1), "(scope, order_id, step)", "(order_id, scope, step)", 1) + recent,
			"zabor_open (" + keyColumns + ", due={now}; PRIMARY KEY (order_id, scope, step)",
			strings.Replace(answers, "(scope, order_id, step)", "(order_id, scope, step)", 1), references},
		capture: []write{{"insert", "zabor_fences", permanent + ", " + openColumns}, {"insert", "zabor_open", keyColumns + ", due={now} + 31000000"}},
		settle:  []write{{"update", "zabor_fences", changing + ", request=NULL, hook_data=NULL"}, deleteOpen, insertAnswer, insertRef},
	},
	// C1 with the answer in the one table too.
	"F": {
		tables:  []string{strings.Replace(strings.Replace(fences, "; ", ", "+openColumns+", "+answerColumns+"; ", 1), "(scope, order_id, step)", "(order_id, scope, step)", 1) + recent, references},
		capture: []write{{"insert", "zabor_fences", permanent + ", " + openColumns}},
		settle:  []write{{"update", "zabor_fences", changing + ", request=NULL, hook_data=NULL, " + answerColumns}, insertRef},
	},
	// F with three indexes.
	"F3": {
		tables:  []string{strings.Replace(strings.Replace(fences, "; ", ", "+openColumns+", "+answerColumns+"; ", 1), "(scope, order_id, step)", "(order_id, scope, step)", 1) + recent + sample + "; INDEX orders (step, captured_at)", references},
		capture: []write{{"insert", "zabor_fences", permanent + ", " + openColumns}},
		settle:  []write{{"update", "zabor_fences", changing + ", request=NULL, hook_data=NULL, " + answerColumns}, insertRef},
	},
	// F with a small row beside it for what is open.
	"FP": {
		tables:  []string{strings.Replace(strings.Replace(fences, "; ", ", "+openColumns+", "+answerColumns+"; ", 1), "(scope, order_id, step)", "(order_id, scope, step)", 1) + recent, "zabor_open (" + keyColumns + ", due={now}; PRIMARY KEY (order_id, scope, step)", references},
		capture: []write{{"insert", "zabor_fences", permanent + ", " + openColumns}, {"insert", "zabor_open", keyColumns + ", due={now} + 31000000"}},
		settle:  []write{{"update", "zabor_fences", changing + ", request=NULL, hook_data=NULL, " + answerColumns}, deleteOpen, insertRef},
	},
	// F with an index of what is open, which each settlement changes.
	"FD": {
		tables:  []string{strings.Replace(strings.Replace(strings.Replace(fences, "; ", ", "+openColumns+", "+answerColumns+"; ", 1), "(scope, order_id, step)", "(order_id, scope, step)", 1), "lease", "due=NULL, lease", 1) + recent + "; INDEX due (due)", references},
		capture: []write{{"insert", "zabor_fences", permanent + ", due={now} + 31000000, " + openColumns}},
		settle:  []write{{"update", "zabor_fences", changing + ", due=NULL, request=NULL, hook_data=NULL, " + answerColumns}, insertRef},
	},
	// One table alone: references are an index of it too, whose other rows are read
	// after the commit (not here). PostgreSQL cannot settle it as HOT.
	"G": {
		tables:  []string{strings.Replace(strings.Replace(fences, "; ", ", due=NULL, reference_hash=NULL, "+openColumns+", "+answerColumns+"; ", 1), "(scope, order_id, step)", "(order_id, scope, step)", 1) + recent + "; INDEX due (due); INDEX reference (reference_hash)"},
		capture: []write{{"insert", "zabor_fences", permanent + ", due={now} + 31000000, " + openColumns}},
		settle:  []write{{"update", "zabor_fences", changing + ", due=NULL, reference_hash, request=NULL, hook_data=NULL, " + answerColumns}},
	},
	// F without references.
	"F0": {
		tables:  []string{strings.Replace(strings.Replace(fences, "; ", ", "+openColumns+", "+answerColumns+"; ", 1), "(scope, order_id, step)", "(order_id, scope, step)", 1) + recent},
		capture: []write{{"insert", "zabor_fences", permanent + ", " + openColumns}},
		settle:  []write{{"update", "zabor_fences", changing + ", request=NULL, hook_data=NULL, " + answerColumns}},
	},
	// B with the answer in the one table.
	"D": {
		tables:  []string{strings.Replace(fences, "; ", ", "+answerColumns+"; ", 1) + recent + sample + "; INDEX orders (order_id, scope, step)", open, references},
		capture: []write{insertFence, insertOpen},
		settle:  []write{{"update", "zabor_fences", changing + ", " + answerColumns}, deleteOpen, insertRef},
	},
	// B with one side row: first the open data, then the answer.
	"E": {
		tables: []string{fences + recent + sample + "; INDEX orders (order_id, scope, step)",
			strings.Replace(open, "due={now}", answerColumns+", due=NULL", 1), references},
		capture: []write{insertFence, insertOpen},
		settle:  []write{settleFence, {"update", "zabor_open", "due=NULL, request=NULL, hook_data=NULL, " + answerColumns}, insertRef},
	},
	// One narrow table and nothing else: what no fence can beat.
	"floor": {
		tables:  []string{"zabor_fences (" + keyColumns + ", state, epoch, attempt_id, reference; PRIMARY KEY (scope, order_id, step)"},
		capture: []write{{"insert", "zabor_fences", keyColumns + ", state, epoch, attempt_id, reference"}},
		settle:  []write{{"update", "zabor_fences", "state, epoch, attempt_id, reference"}},
	},
}

// kinds of columns: key and bytes, long bytes, text, long text, numbers.
var kinds = map[string]byte{
	"scope": 'b', "order_id": 'b', "step": 'b', "provider": 'b', "account": 'b', "message_fp": 'b', "fingerprint": 'b', "fields": 'b', "parked": 'b', "attempt_id": 'b',
	"prev_id": 'b', "reference": 'r', "other_reference": 'r', "prepared": 'r', "reference_hash": 'b',
	"request": 'l', "hook_data": 'l', "answer_body": 'l', "answer_header": 'h',
	"state": 't', "basis": 't', "provider_key": 't', "prepare_key": 't', "currency": 't', "hook_due": 't', "reason": 'x',
}

func kindOf(column string) byte {
	if k := kinds[column]; k != 0 {
		return k
	}
	return 'i'
}

// split divides a list of columns into names and fixed expressions.
func split(columns string) (names []string, fixed map[string]string) {
	fixed = map[string]string{}
	if columns == "" {
		return nil, fixed
	}
	for _, c := range strings.Split(columns, ", ") {
		name, expression, is := strings.Cut(c, "=")
		names = append(names, name)
		if is {
			fixed[name] = expression
		}
	}
	return names, fixed
}

// ddl makes the tables of l.
func (l layout) ddl(e *engine) (statements []string) {
	for _, t := range l.tables {
		name, body, _ := strings.Cut(t, " (")
		parts := strings.Split(body, "; ")
		names, fixed := split(parts[0])
		var lines, indexes []string
		for _, n := range names {
			null := " NOT NULL"
			if fixed[n] == "NULL" || strings.ContainsRune("lh", rune(kindOf(n))) || n == "answer_status" {
				null = " NULL"
			}
			of := e.types[kindOf(n)]
			if short := map[string]string{"scope": "VARBINARY(64)", "step": "VARBINARY(128)", "attempt_id": "BINARY(16)", "reference_hash": "BINARY(16)"}[n]; short != "" && e.name == "mariadb" {
				of = short
			}
			lines = append(lines, n+" "+of+null)
		}
		for _, p := range parts[1:] {
			if index, ok := strings.CutPrefix(p, "INDEX "); ok {
				on, columns, _ := strings.Cut(index, " ")
				indexes = append(indexes, fmt.Sprintf("CREATE INDEX %s_%s ON %s %s", name, on, name, e.partial(on, columns)))
				continue
			}
			lines = append(lines, p)
		}
		statements = append(statements, "CREATE TABLE "+name+" ("+strings.Join(lines, ", ")+")"+e.options(name))
		statements = append(statements, indexes...)
	}
	return statements
}

// charge is what one charge binds, by column; the claim that a settlement follows
// is in prev_epoch and prev_id.
type charge map[string]any

var filler = strings.Repeat(`{"amount":1999,"currency":"EUR","metadata":{"order":"1000234"},"capture_method":"automatic"}`, 10)

func newCharge(i int64) charge {
	order := strconv.FormatInt(1_000_000+i, 10)
	c := charge{
		"scope": []byte("shop"), "order_id": []byte(order), "step": []byte("charge"), "state": "captured", "basis": "call", "epoch": int64(1), "attempt_id": random(16),
		"provider": []byte("stripe"), "account": []byte("acct_1032D82eZvKYlo2C"), "provider_key": "zb1-" + fmt.Sprintf("%x", random(16)), "prepare_key": "", "currency": "EUR",
		"amount_minor": int64(1999), "message_fp": random(32), "fingerprint": random(32), "fields": []byte("amount,currency,metadata.order"),
		"reference": []byte{}, "other_reference": []byte{}, "prepared": []byte{}, "reason": "", "hook_due": "", "parked": []byte{},
		"request": fill(600, order), "hook_data": []byte(`{"id":` + order + `,"customer":42}`), "answer_status": nil, "answer_header": nil, "answer_body": []byte(nil),
		"generation": int64(1), "captures": int64(1), "lease": int64(30e6), "absent_after": int64(60e6), "hold_after": int64(36e8), "pending_for": int64(36e8),
		"allowance": int64(3),
	}
	for _, zero := range []string{"free", "hooked", "replays", "moved_on", "looked_at", "replay_until"} {
		c[zero] = int64(0)
	}
	return c
}

// settle makes of a captured charge what its settlement binds.
func (c charge) settle() {
	c["prev_epoch"], c["prev_id"] = c["epoch"], c["attempt_id"]
	c["epoch"], c["attempt_id"], c["state"] = int64(2), random(16), "settled"
	c["reference"] = fmt.Appendf(nil, "pi_3%x", random(11))
	c["reference_hash"] = random(16)
	c["request"], c["hook_data"] = []byte(nil), []byte(nil)
	c["answer_status"], c["answer_header"], c["answer_body"] = int64(200), `[["Content-Type","application/json"]]`, fill(300, "pi_"+string(c["order_id"].([]byte)))
}

func fill(n int, with string) []byte { return []byte((`{"id":"` + with + `",` + filler)[:n]) }

// BenchmarkLayouts compares layouts of the fence's tables and forms of their
// statements: each in turn, in rounds of the same minutes, with a commit that is
// shared as sqlstore shares it. The last columns are medians, over the rounds,
// beside the first layout.
//
//	ZABOR_TEST_DIR=/var/tmp/x go test -run '^$' -bench Layouts -benchtime 1x ./bench
//
// DATABASES, LAYOUTS (layout/form), LANES, ROUNDS (3) and FILLFACTOR (60) change what runs:
// DATABASES=mariadb LAYOUTS=A/join,G/case LANES=64.
func BenchmarkLayouts(b *testing.B) {
	for _, e := range engines() {
		b.Run(e.name, func(b *testing.B) {
			variants := e.variants
			if only := os.Getenv("LAYOUTS"); only != "" {
				variants = strings.Split(only, ",")
			}
			e.start(b)
			for range b.N {
				for _, lanes := range list(os.Getenv("LANES"), 1, 16, 64) {
					compare(b, e, variants, lanes)
				}
			}
		})
	}
}

func list(text string, otherwise ...int) (numbers []int) {
	if text == "" {
		return otherwise
	}
	for _, t := range strings.Split(text, ",") {
		n, _ := strconv.Atoi(t)
		numbers = append(numbers, n)
	}
	return numbers
}

// compare runs all variants in turn and prints their table.
func compare(b *testing.B, e *engine, variants []string, lanes int) {
	runs := map[string][]measured{}
	var stores []*trial
	for _, v := range variants {
		stores = append(stores, e.open(b, v, lanes))
	}
	for range list(os.Getenv("ROUNDS"), 3)[0] {
		for i, v := range variants {
			runs[v] = append(runs[v], e.measure(b, stores[i], lanes, 1200*time.Millisecond))
		}
	}
	fmt.Printf("\n%s, %d lanes: charges/s, µs of the database's and of the client's processor, log bytes, tables on disk a charge, HOT; rate, database CPU, log beside %s\n", e.name, lanes, variants[0])
	for i, v := range variants {
		of := func(f func(measured) float64) float64 { return median(runs[v], f) }
		beside := func(f func(measured) float64) float64 {
			var ratios []measured
			for r := range runs[v] {
				ratios = append(ratios, measured{rate: f(runs[v][r]) / f(runs[variants[0]][r])})
			}
			return median(ratios, func(m measured) float64 { return m.rate })
		}
		rate, cpu, log := func(m measured) float64 { return m.rate }, func(m measured) float64 { return m.database }, func(m measured) float64 { return m.log }
		fmt.Printf("%-14s %8.0f %7.1f %7.1f %7.0f %6.2f %5.2f   %5.2f %5.2f %5.2f\n", v, of(rate), of(cpu), of(func(m measured) float64 { return m.client }), of(log),
			of(func(m measured) float64 { return m.onDisk }), e.hot(b, stores[i]), beside(rate), beside(cpu), beside(log))
		stores[i].close()
	}
}

func median(runs []measured, f func(measured) float64) float64 {
	var all []float64
	for _, m := range runs {
		all = append(all, f(m))
	}
	slices.Sort(all)
	return all[len(all)/2]
}

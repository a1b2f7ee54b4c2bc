package worker_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
)

// text is a string as PHP serializes it.
func text(s string) string { return fmt.Sprintf(`s:%d:"%s";`, len(s), s) }

// command is a class job of Laravel's with the given properties.
func command(uuid string, properties ...string) string {
	serialized := fmt.Sprintf(`O:6:"Charge":%d:{%s}`, len(properties)/2, strings.Join(properties, ""))
	return `{"uuid":"` + uuid + `","job":"Illuminate\\Queue\\CallQueuedHandler@call","attempts":0,"data":{"commandName":"Charge","command":` +
		fmt.Sprintf("%q", serialized) + `}}`
}

// envelope is a body of Symfony's PhpSerializer whose message has the given
// properties.
func envelope(properties ...string) string {
	const class = `Symfony\Component\Messenger\Envelope`
	body := fmt.Sprintf(`O:%d:"%s":2:{`, len(class), class) + text("\x00"+class+"\x00stamps") + "a:0:{}" + text("\x00"+class+"\x00message") +
		fmt.Sprintf(`O:6:"Charge":%d:{%s}}`, len(properties)/2, strings.Join(properties, ""))
	body = strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\x00", `\0`).Replace(body) // addslashes
	return `{"body":` + `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(body) + `","headers":[]}`
}

// doubled is an object as value number slot of a document, which holds one below it
// twice, and so on: 2 to the power of levels values.
func doubled(levels, slot int) string {
	if levels == 0 {
		return `O:1:"A":0:{}`
	}
	return `O:1:"A":2:{s:1:"a";` + doubled(levels-1, slot+1) + `s:1:"b";r:` + fmt.Sprint(slot+1) + ";}"
}

// Whoever may write to a queue cannot stop its worker, nor have an order charged
// twice, nor hide a message: each one ends acked, in the failure transport or among
// the unreadable bytes, whatever is in it, and the good one behind it is charged.
func TestHostileMessages(t *testing.T) {
	t.Parallel()
	large := 1 << 20
	if os.Getenv("ZABOR_SOAK") == "1" {
		large = 10 << 20
	}
	good := []string{text("order"), text("1"), text("cents"), "i:1999;"}
	nested := strings.Repeat("a:1:{i:0;", 600) + "N;" + strings.Repeat("}", 600)
	jsonJob := func(uuid, more string) string {
		return `{"uuid":"` + uuid + `","job":"Charge@handle","attempts":0,"data":{"order":"1","cents":1999` + more + `}}`
	}
	symfonyJSON := func(body string) string {
		return `{"body":` + fmt.Sprintf("%q", body) + `,"headers":{"type":"Charge"}}`
	}

	for _, tt := range []struct {
		name           string
		jobs, messages []string
		calls          int64 // for order 1, at most one
		parked, kept   int
	}{
		{name: "twice the same key", calls: 1, jobs: []string{`{"uuid":"a","job":"Charge@handle","attempts":0,"attempts":0,"data":{"order":"2","order":"1","cents":1999}}`},
			messages: []string{symfonyJSON(`{"order":"2","order":"1","cents":1999}`)}},
		{name: "one uuid for all", calls: 1, parked: 1 /* the table has one row for a uuid */, jobs: []string{jsonJob("a", ""), jsonJob("a", `,"x":1`), jsonJob("a", `,"x":2`)}},
		{name: "megabytes", calls: 1, jobs: []string{jsonJob("a", `,"x":"`+strings.Repeat("x", large)+`"`)},
			messages: []string{symfonyJSON(`{"order":"1","cents":1999,"x":"` + strings.Repeat("x", large) + `"}`)}},
		{name: "deep serialization", parked: 1, kept: 1, jobs: []string{command("a", append(slices.Clone(good), text("x"), nested)...)},
			messages: []string{envelope(append(slices.Clone(good), text("x"), nested)...)}},
		{name: "a value that holds itself", parked: 2, jobs: []string{command("a", append(slices.Clone(good), text("x"), "r:1;")...)},
			messages: []string{envelope(append(slices.Clone(good), text("x"), "r:3;")...)}},
		{name: "more values than memory", parked: 2, jobs: []string{command("a", append(slices.Clone(good), text("x"), doubled(60, 4))...)},
			messages: []string{envelope(append(slices.Clone(good), text("x"), doubled(60, 6))...)}},
		{name: "lengths that lie", parked: 1, kept: 1, jobs: []string{command("a", text("order"), `s:99999999:"1";`, text("cents"), "i:1999;")},
			messages: []string{envelope(text("order"), `s:99999999:"1";`, text("cents"), "i:1999;")}},
		{name: "counts that lie", parked: 1, kept: 1, jobs: []string{command("a", text("order"), `a:2147483647:{}`, text("cents"), "i:1999;")},
			messages: []string{envelope(text("order"), `a:2147483647:{}`, text("cents"), "i:1999;")}},
		{name: "byte order mark", kept: 2, jobs: []string{"\ufeff" + jsonJob("a", "")}, messages: []string{"\ufeff" + symfonyJSON(`{"order":"1","cents":1999}`)}},
		{name: "not UTF-8", kept: 2, jobs: []string{jsonJob("a", ",\"x\":\"\xff\"")}, messages: []string{strings.Replace(symfonyJSON(`{"order":"1","cents":1999}`), "1999", "\xff", 1)}},
		{name: "half a surrogate pair as order", kept: 2, jobs: []string{`{"uuid":"a","job":"Charge@handle","attempts":0,"data":{"order":"\ud800","cents":1999}}`},
			messages: []string{`{"body":"{\"order\":\"\\ud800\",\"cents\":1999}","headers":{"type":"Charge"}}`}},
		{name: "an order that is no text", parked: 8, jobs: []string{
			`{"uuid":"a","job":"Charge@handle","attempts":0,"data":{"order":["1"],"cents":1999}}`,
			`{"uuid":"b","job":"Charge@handle","attempts":0,"data":{"order":{"a":"1"},"cents":1999}}`,
			`{"uuid":"c","job":"Charge@handle","attempts":0,"data":{"order":1.5,"cents":1999}}`,
			`{"uuid":"d","job":"Charge@handle","attempts":0,"data":{"order":"` + strings.Repeat("1", 256) + `","cents":1999}}`,
			`{"uuid":"e","job":"Charge@handle","attempts":0,"data":{"order":true,"cents":1999}}`,
			`{"uuid":"f","job":"Charge@handle","attempts":0,"data":{"order":null,"cents":1999}}`,
			`{"uuid":"g","job":"Charge@handle","attempts":0,"data":{"order":"","cents":1999}}`,
			`{"uuid":"h","job":"Charge@handle","attempts":0,"data":[]}`,
		}},
		{name: "an id of another message", calls: 1, jobs: []string{`{"uuid":"a'; DROP TABLE failed_jobs; --","job":"Charge@handle","attempts":0,"data":{"order":"1","cents":1999}}`}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := newShop(t)
			source, client := s.symfony()
			for _, job := range tt.jobs {
				s.pushRaw("payments", job)
			}
			for _, m := range tt.messages {
				if err := client.XAdd(t.Context(), &redis.XAddArgs{Stream: "messages", Values: []any{"message", m}}).Err(); err != nil {
					t.Fatal(err)
				}
			}
			s.charge("good")
			s.sendSymfony("good too")
			stop := s.run()
			s.eventually("both queues are empty", func() bool {
				d, err := source.Depth(t.Context())
				return err == nil && d.Empty() && s.depth().Empty()
			})
			stop()
			s.wantCalls(tt.calls + 2)
			parked := s.count("failed_jobs") + int(client.XLen(t.Context(), "failed").Val())
			if parked != tt.parked || len(s.unreadable()) != tt.kept {
				t.Errorf("%d parked, %d kept; want %d and %d", parked, len(s.unreadable()), tt.parked, tt.kept)
			}
			if n := s.count("zabor_fences"); int64(n) != tt.calls+2 {
				t.Errorf("%d rows, want %d", n, tt.calls+2)
			}
		})
	}
}

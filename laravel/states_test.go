package laravel

import (
	"encoding/json"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"zabor/worker"
)

// recordedState is what Laravel left behind: on its queue's keys, or as a row.
type recordedState struct {
	Name   string                     // version-scenario
	Keys   map[string]json.RawMessage // a list, or a sorted set's members with their scores
	Failed *struct{ UUID, Connection, Queue, Payload string }
}

func recordedStates(t *testing.T) []recordedState {
	t.Helper()
	text, err := os.ReadFile("testdata/states.json")
	if err != nil {
		t.Fatal(err)
	}
	var all []recordedState
	if err := json.Unmarshal(text, &all); err != nil {
		t.Fatal(err)
	}
	return all
}

// Whatever state Laravel leaves a queue in, each job arrives, and one that was
// popped before is known as delivered before.
func TestStatesThatLaravelLeaves(t *testing.T) {
	t.Parallel()
	type want struct {
		jobs, before, unreadable, refused int
		oneID                             bool // copies of one job
	}
	once, again := want{jobs: 1}, want{jobs: 1, before: 1}
	wanted := map[string]want{
		"reserved": again, "second-attempt-reserved": again, "released": again, "exception-released": again,
		"timeout-tries-3": again, "pop-attempts-string": again, "pop-duplicate-key": again, "identical-payloads-collapse": again,
		"expired-reservation":     {jobs: 2, before: 2},
		"late-release-duplicates": {jobs: 2, before: 2, oneID: true},
		"retried":                 once, "delayed": once, "prefix-no-prefix": once, "prefix-odd-prefix": once,
		"without-overlapping": {jobs: 1, before: 1, refused: 1}, // its middleware is PHP's
		"serializer-php":      {jobs: 1, unreadable: 1},         // the delayed job, which Laravel's own pop loses
	}
	seen := map[string]int{}
	for _, state := range recordedStates(t) {
		if state.Failed != nil {
			continue
		}
		version, scenario, _ := strings.Cut(state.Name, "-")
		w, known := wanted[scenario]
		if !known {
			t.Errorf("%s: nothing is expected of it", state.Name)
			continue
		}
		seen[scenario]++
		if scenario == "serializer-php" && (version == "v12" || version == "v13") {
			w = want{jobs: 2} // 12.45 and later push delayed jobs by a script, whose arguments phpredis does not serialize
		}
		t.Run(state.Name, func(t *testing.T) {
			t.Parallel()
			prefix, name := "", ""
			for key := range state.Keys {
				prefix, name, _ = strings.Cut(key, "queues:")
				for _, end := range []string{":notify", ":delayed", ":reserved"} {
					name = strings.TrimSuffix(name, end)
				}
			}
			q := newQueue(t, func(c *Config) { c.Prefix, c.Queue = prefix, name })
			ctx := t.Context()
			for key, raw := range state.Keys {
				var list []string
				if json.Unmarshal(raw, &list) == nil {
					for _, v := range list {
						q.app.RPush(ctx, key, v)
					}
					continue
				}
				var set map[string]float64
				if err := json.Unmarshal(raw, &set); err != nil {
					t.Fatal(err)
				}
				for member, score := range set { // of a clock that stood still, years ago
					q.app.ZAdd(ctx, key, redis.Z{Score: score, Member: member})
				}
			}
			var got want
			ids := map[string]bool{}
			var all []*worker.Message
			for range w.jobs + w.unreadable {
				m := q.receive(t)
				all = append(all, m)
				switch {
				case errors.Is(m.Err, worker.ErrUnreadable):
					got.unreadable++
					continue
				case m.Err != nil:
					got.refused++
				}
				got.jobs++
				ids[m.ID] = true
				if m.DeliveredBefore {
					got.before++
				}
			}
			got.oneID = got.jobs > 1 && len(ids) == 1
			if got != w {
				t.Errorf("received %+v, want %+v", got, w)
			}
			for _, m := range all {
				if err := q.Ack(ctx, m); err != nil && !(w.oneID && errors.Is(err, worker.ErrLost)) {
					t.Errorf("Ack of %s: %v", m.ID, err)
				}
			}
			if d, err := q.Depth(ctx); err != nil || !d.Empty() {
				t.Errorf("depth %+v, %v", d, err)
			}
		})
	}
	for scenario := range wanted {
		if seen[scenario] != len(every) {
			t.Errorf("%s is there in %d versions, want %d", scenario, seen[scenario], len(every))
		}
	}
}

// Park writes the row that Laravel itself wrote for the same payload, and Retry
// queues of it what queue:retry queues: the payload with no attempts.
func TestRowsAsLaravelWritesThem(t *testing.T) {
	t.Parallel()
	n := 0
	for _, state := range recordedStates(t) {
		if state.Failed == nil {
			continue
		}
		n++
		t.Run(state.Name, func(t *testing.T) {
			t.Parallel()
			db, failed := sqliteJobs(t)
			q := newQueue(t, func(c *Config) { c.Failed = failed })
			q.push(t, state.Failed.Payload)
			m := q.receive(t)
			if err := q.Park(t.Context(), m, "x"); err != nil {
				t.Fatal(err)
			}
			got := rows(t, db)
			if len(got) != 1 || got[0].uuid != state.Failed.UUID || got[0].connection != state.Failed.Connection || got[0].queue != state.Failed.Queue || got[0].payload != state.Failed.Payload {
				t.Fatalf("row\n%+v\nwant\n%+v", got, *state.Failed)
			}
			if err := q.Retry(t.Context(), state.Failed.UUID); err != nil {
				t.Fatal(err)
			}
			fresh := q.receive(t)
			p, err := parse([]byte(state.Failed.Payload))
			if err != nil {
				t.Fatal(err)
			}
			p.fields["attempts"] = 0
			want, err := json.Marshal(p.fields)
			if err != nil {
				t.Fatal(err)
			}
			if canonical(t, string(fresh.Raw)) != canonical(t, string(want)) || fresh.DeliveredBefore || fresh.ID != m.ID {
				t.Errorf("retried as\n%s\nDeliveredBefore=%v, want\n%s", fresh.Raw, fresh.DeliveredBefore, want)
			}
		})
	}
	if n != 7*len(every) {
		t.Errorf("%d rows, want 7 in each version", n)
	}
}

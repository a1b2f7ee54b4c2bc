package messenger

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"zabor/worker"
)

// transportState is what Symfony left on a transport's keys.
type transportState struct {
	Name    string
	Streams map[string]struct {
		Entries []struct {
			ID     string
			Fields map[string]int // values in texts
		}
		Groups []struct {
			Name, Last string
			Pending    []struct {
				ID, Consumer string
				Deliveries   int
			}
		}
	}
	Delayed map[string][]struct {
		Score  string
		Member int // in texts
	}
}

// restore writes the state into Redis, with all pending entries idle for an hour.
func (st transportState) restore(t *testing.T, client redis.UniversalClient, texts [][]byte) {
	t.Helper()
	ctx := t.Context()
	for key, stream := range st.Streams {
		there := map[string]bool{}
		add := func(id string, values []any) {
			ok(t, client.XAdd(ctx, &redis.XAddArgs{Stream: key, ID: id, Values: values}).Err())
		}
		for _, e := range stream.Entries {
			there[e.ID] = true
		}
		for _, g := range stream.Groups { // what was pending and is gone was there once
			for _, p := range g.Pending {
				if !there[p.ID] {
					add(p.ID, []any{"message", "gone"})
				}
			}
		}
		for _, e := range stream.Entries {
			var values []any
			for name, at := range e.Fields {
				values = append(values, name, texts[at])
			}
			add(e.ID, values)
		}
		for _, g := range stream.Groups {
			ok(t, client.XGroupCreateMkStream(ctx, key, g.Name, g.Last).Err())
			for _, p := range g.Pending {
				ok(t, client.Do(ctx, "XCLAIM", key, g.Name, p.Consumer, 0, p.ID, "IDLE", time.Hour.Milliseconds(), "RETRYCOUNT", p.Deliveries, "FORCE", "JUSTID").Err())
				if !there[p.ID] {
					ok(t, client.XDel(ctx, key, p.ID).Err())
				}
			}
		}
	}
	for key, members := range st.Delayed {
		for _, m := range members {
			ok(t, client.Do(ctx, "ZADD", key, m.Score, texts[m.Member]).Err())
		}
	}
}

// Whatever state Symfony leaves a transport in, each message arrives, one that PHP
// has had is known as delivered before, what PHP cannot read is kept, what it has
// given up is listed and comes back, and what is done stays done.
func TestStatesThatSymfonyLeaves(t *testing.T) {
	t.Parallel()
	type want struct{ messages, before, unreadable, failed int }
	var none want
	again, bytes, failed := want{messages: 1, before: 1}, want{unreadable: 1}, want{messages: 1, before: 1, failed: 1}
	wanted := map[string]want{
		"ack_delete": none, "ack_gone": none, "ack_keep": none, "ack_twice": none, "claim_then_first_acks": none, "get_empty": none,
		"reject_delete": none, "reject_keep": none, "worker_success": none,
		"php_no_failure_transport": none, "undecodable": none, "undecodable_class": none, // PHP has deleted them
		"claim_abandoned": again, "claim_too_young": again, "same_consumer_started_later": again, "pending_trimmed": again,
		"delayed_promoted": again, "delayed_trimmed_stream": again,
		"claim_one_per_interval": {messages: 3, before: 3}, "get_repeated_no_ack": {messages: 2, before: 2},
		"get_pending": {messages: 2, before: 1}, "max_entries_loses_pending": {messages: 2},
		"delayed_pending": {messages: 1}, "delayed_same_twice": {messages: 2}, "readonly_replica": {messages: 1},
		"json_retry_1": again, "php_retry_1": again, "php_recoverable": again, "php_two_handlers_one_fails": again,
		"json_retry_exhausted_redis_failed": failed, "php_retry_exhausted_redis_failed": failed, "php_unrecoverable": failed,
		"not_json": bytes, "other_field": bytes, "poison_head": {messages: 1, before: 1, unreadable: 1},
	}
	files, err := filepath.Glob("testdata/states/*.json")
	if err != nil || len(files) != 3 {
		t.Fatalf("%d files of states, %v", len(files), err)
	}
	for _, f := range files {
		text, err := os.ReadFile(f)
		ok(t, err)
		var recorded struct {
			States []transportState
			Texts  [][]byte
		}
		ok(t, json.Unmarshal(text, &recorded))
		version := strings.TrimSuffix(filepath.Base(f), ".json")
		seen := map[string]bool{}
		for _, st := range recorded.States {
			seen[st.Name] = true
			t.Run(version+"/"+st.Name, func(t *testing.T) {
				t.Parallel()
				w, known := wanted[st.Name]
				if !known && st.Name == "message_count" { // Symfony 6.2 and later
					w, known = want{messages: 4, before: 1}, true
				}
				if !known {
					t.Fatal("nothing is expected of it")
				}
				address := dsn(t, "redeliver_timeout=60&claim_interval=50&delete_after_ack=1")
				tr := open(t, address, func(o *Options) {
					c := o.Config
					c.Stream = "failed"
					o.Failed = &Stream{Client: nil, Config: c}
				})
				tr.failed.(*Stream).Client = tr.redis
				st.restore(t, tr.redis, recorded.Texts)

				var got want
				for m, err := range tr.Failed(t.Context()) {
					ok(t, err)
					got.failed++
					if m.Message.Err != nil || m.Reason == "" || !m.Message.DeliveredBefore {
						t.Errorf("failed is %+v because of %q", m.Message, m.Reason)
					}
					ok(t, tr.Retry(t.Context(), m.ID))
				}
				for end := time.Now().Add(20 * time.Second); ; {
					d, err := tr.Depth(t.Context())
					ok(t, err)
					if d.Empty() {
						break
					}
					if time.Now().After(end) {
						t.Fatalf("the transport still holds %+v, got %+v", d, got)
					}
					m, err := tr.soon(t)
					if err != nil {
						continue
					}
					switch {
					case errors.Is(m.Err, worker.ErrUnreadable):
						got.unreadable++
					case m.Err != nil:
						t.Errorf("message %s: %v", m.ID, m.Err)
					default:
						got.messages++
						if m.DeliveredBefore {
							got.before++
						}
					}
					ok(t, tr.Ack(t.Context(), m))
				}
				if got != w {
					t.Errorf("received %+v, want %+v", got, w)
				}
			})
		}
		for name := range wanted {
			if !seen[name] {
				t.Errorf("%s is not among the states of %s", name, version)
			}
		}
	}
}

// soon is the next message, if one comes within two rounds.
func (tr *transport) soon(t *testing.T) (*worker.Message, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*block)
	defer cancel()
	return worker.Next(ctx, tr)
}

package keyschema

import (
	"context"
	"encoding/json"
	"errors"
	"iter"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"zabor"
	"zabor/internal/servers"
	"zabor/provider"
	"zabor/sqlstore"
	"zabor/step"
)

func TestMain(m *testing.M) { servers.Main(m) }

func ok(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func newStore(t testing.TB, address string) *sqlstore.Store {
	t.Helper()
	store, err := sqlstore.Open(address)
	ok(t, err)
	t.Cleanup(func() { store.Close() })
	ok(t, store.Setup().Migrate(t.Context()))
	return store
}

// eachDatabase runs test on an empty fence of each kind.
func eachDatabase(t *testing.T, test func(t *testing.T, store *sqlstore.Store)) {
	t.Parallel()
	for name, open := range map[string]func(testing.TB) string{
		"sqlite":  func(t testing.TB) string { return "sqlite://" + filepath.Join(t.TempDir(), "fence.db") },
		"mariadb": servers.MariaDB, "postgres": servers.Postgres,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, newStore(t, open(t)))
		})
	}
}

// steps are one step whose order id is at the given path.
func steps(t testing.TB, scope, order string) []*step.Step {
	t.Helper()
	s, err := step.New(step.Spec{Name: "charge", Classes: []string{"Charge"}, Installation: scope, Order: order, Provider: "acquirer", Request: provider.RequestSpec{Path: "/payments"}})
	ok(t, err)
	return []*step.Step{s}
}

func messages(list ...Message) func(context.Context) iter.Seq2[Message, error] {
	return func(context.Context) iter.Seq2[Message, error] {
		return func(yield func(Message, error) bool) {
			for _, m := range list {
				if !yield(m, nil) {
					return
				}
			}
		}
	}
}

// review is what i finds.
func review(t testing.TB, i *Installation) *Review {
	t.Helper()
	r, err := i.Review(t.Context(), false)
	ok(t, err)
	return r
}

// started is the guard of a process of i.
func started(t testing.TB, i *Installation) *Guard {
	t.Helper()
	r := review(t, i)
	ok(t, r.Err(i.Scope))
	ok(t, i.Adopt(t.Context(), r))
	g := i.NewGuard(r, time.Hour, func(said Said) ([]byte, error) {
		return json.Marshal(map[string]any{"scope": i.Scope, "kind": "worker", "host": "here", "pid": 7, "key_schemas": said})
	})
	ok(t, g.Beat(t.Context()))
	return g
}

var charge = zabor.Key{Scope: "shop", Order: "1", Step: "charge"}

// A new schema waits for each process of the old one, and the old one captures nothing
// under the new one, in whatever order they say so.
func TestGuard(t *testing.T) {
	eachDatabase(t, func(t *testing.T, store *sqlstore.Store) {
		ctx := t.Context()
		a := &Installation{Store: store, Scope: "shop", Steps: steps(t, "shop", "id")}
		b := &Installation{Store: store, Scope: "shop", Steps: steps(t, "shop", "number")}
		old := started(t, a)
		ok(t, old.Refuse(charge))
		ok(t, old.Refuse(zabor.Key{Scope: "shop", Order: "1", Step: "another"}))
		if err := review(t, b).Err("shop"); err == nil || !strings.Contains(err.Error(), "worker here:7 runs under the old schema") {
			t.Fatalf("with a process of the old schema: %v", err)
		}
		if _, err := b.Accept(ctx, review(t, b), []string{"charge"}); err == nil {
			t.Error("accepted while a process of the old schema runs")
		}

		// B has come into force although A lives: B waits until A has seen it.
		r := review(t, b)
		ok(t, b.Adopt(ctx, r))
		b.Scope = "shop"
		new := b.NewGuard(r, time.Hour, func(said Said) ([]byte, error) {
			return json.Marshal(map[string]any{"scope": "shop", "key_schemas": said})
		})
		if err := new.Refuse(charge); err == nil {
			t.Error("it captures before its first beat")
		}
		ok(t, new.Beat(ctx))
		if err := new.Refuse(charge); err == nil || !strings.Contains(err.Error(), "runs under the old schema") {
			t.Errorf("beside a process of the old schema: %v", err)
		}
		ok(t, old.Beat(ctx))
		if err := old.Refuse(charge); err == nil || !strings.Contains(err.Error(), "its key schema in force is") {
			t.Errorf("under another schema: %v", err)
		}
		ok(t, old.Beat(ctx)) // it says that it captures nothing
		ok(t, new.Beat(ctx))
		ok(t, new.Refuse(charge))
		if !new.Changed("charge") || new.Changed("another") {
			t.Error("whether it was changed is not known")
		}

		// What was confirmed for longer than a beat ago is confirmed no more.
		v := *new.view.Load()
		v.at = v.at.Add(-Beat)
		new.view.Store(&v)
		if err := new.Refuse(charge); err == nil || !strings.Contains(err.Error(), "could not confirm") {
			t.Errorf("a beat later: %v", err)
		}
		ok(t, new.Beat(ctx))
		ok(t, new.Refuse(charge))

		// A process that stops captures nothing, and is in nobody's way.
		run, cancel := context.WithCancel(ctx)
		drain, stop := context.WithCancel(ctx)
		ended := make(chan struct{})
		go func() { defer close(ended); new.Run(run, drain, func(error) {}) }()
		stop()
		for deadline := time.Now().Add(time.Minute); ; {
			if r := review(t, a); len(r.Changes) == 1 && len(r.Changes[0].Processes) == 0 {
				break
			}
			if time.Now().After(deadline) {
				t.Fatal("a process that stops stays in the way")
			}
		}
		if new.Refuse(charge) == nil {
			t.Error("a process that stops captures")
		}
		cancel()
		<-ended
		if all, err := store.Processes().List(ctx); err != nil || len(all) != 1 {
			t.Errorf("%d processes, %v: the other one has ended", len(all), err)
		}
	})
}

// Of two processes that put different schemas in force at the same time one fails.
func TestTwoChangesAtOnce(t *testing.T) {
	eachDatabase(t, func(t *testing.T, store *sqlstore.Store) {
		var all []*Installation
		var reviews []*Review
		for _, path := range []string{"id", "number", "id"} {
			i := &Installation{Store: store, Scope: "shop", Steps: steps(t, "shop", path)}
			all, reviews = append(all, i), append(reviews, review(t, i))
		}
		ok(t, all[0].Adopt(t.Context(), reviews[0]))
		if err := all[1].Adopt(t.Context(), reviews[1]); !errors.Is(err, errRaced) {
			t.Errorf("the second one: %v", err)
		}
		ok(t, all[2].Adopt(t.Context(), reviews[2])) // the same is no race
	})
}

// Accepting holds what has failed, and what has a row under its old key, and nothing
// else; ids may be any bytes.
func TestHolds(t *testing.T) {
	eachDatabase(t, func(t *testing.T, store *sqlstore.Store) {
		ctx := t.Context()
		a := &Installation{Store: store, Scope: "shop", Steps: steps(t, "shop", "id")}
		g := started(t, a)
		ok(t, store.Processes().Gone(ctx, g.id))
		row := zabor.Row{
			Key: charge, State: zabor.Settled, Cause: zabor.ByCall, Claim: zabor.Claim{Epoch: 1, ID: [16]byte{1}}, Endpoint: zabor.Endpoint{Provider: "acquirer"},
			Generation: 1, ProviderKey: "k", Fingerprint: zabor.Fingerprint{Message: "m", Request: "f"}, Tries: 1, Unproven: 1, Reference: "pay_1",
		}
		_, err := store.Insert(ctx, row, zabor.Write{})
		ok(t, err)
		one := func(id, order, place string, more ...string) Message {
			return Message{Message: step.Message{Class: "Charge", Data: map[string]any{"id": order, "number": "N" + order}}, IDs: append([]string{id}, more...), Queue: "q", Place: place}
		}
		b := &Installation{Store: store, Scope: "shop", Steps: steps(t, "shop", "number"), Messages: messages(
			one("settled", "1", "ready"), one("fresh", "2", "ready"), one("failed\xff", "3", Failed, "first"), one("retry", "4", Failed, ""),
			Message{Message: step.Message{Class: "Charge"}, IDs: []string{"unreadable"}, Place: Failed, Err: errors.New("no")},
			Message{Message: step.Message{Class: "Other"}, IDs: []string{"other"}, Place: Failed},
		)}
		r := review(t, b)
		want := map[string]int{"q ready": 2, "q failed": 2, " failed": 1}
		if got := r.Changes[0].Messages; !maps.Equal(got, want) {
			t.Errorf("in the way are %v, want %v", got, want)
		}
		done, err := b.Accept(ctx, r, []string{"charge"})
		ok(t, err)
		if !slices.Equal(done, []Accepted{{Step: "charge", Settled: 1, Held: 5}}) {
			t.Errorf("accepted: %+v", done)
		}
		g = started(t, b)
		for id, text := range map[string]string{
			"settled": "shop:1/charge", "fresh": "", "failed\xff": "shop:3/charge", "first": "shop:3/charge", "retry": "shop:4/charge",
			"unreadable": "not known", "other": "", "": "", "failed": "",
		} {
			why := g.Holds("charge", "x", id)
			if (why == "") != (text == "") || !strings.Contains(why, text) {
				t.Errorf("%q is held because %q, want %q", id, why, text)
			}
		}
		if g.Holds("another", "settled") != "" {
			t.Error("another step holds it")
		}
	})
}

// Installations that share a table start without a question where each has a queue of
// its own, whatever their steps are called. One that takes another's queue is a rename,
// also where Redis has lost the marker, and also on the way back.
func TestInstallations(t *testing.T) {
	eachDatabase(t, func(t *testing.T, store *sqlstore.Store) {
		ctx := t.Context()
		db := servers.Redis(t)
		client := redis.NewClient(&redis.Options{Addr: db.Addr, DB: db.DB})
		t.Cleanup(func() { client.Close() })
		on := func(scope, key string) *Installation {
			return &Installation{Store: store, Scope: scope, Steps: steps(t, scope, "id"), Queues: []Queue{{Name: "q", Location: key, Redis: client, Key: key}}}
		}
		refused := func(scope, key, other string) {
			t.Helper()
			err := review(t, on(scope, key)).Err(scope)
			if err == nil || !strings.Contains(err.Error(), `is of scope "`+scope+`"`) || !strings.Contains(err.Error(), `those of scope "`+other+`"`) {
				t.Errorf("%s on the queue of %s: %v", scope, other, err)
			}
		}
		stop := func(g *Guard) { ok(t, store.Processes().Gone(ctx, g.id)) }
		started(t, on("shop", "one"))
		stop(started(t, on("second", "two")))
		stop(started(t, on("shop", "three")))
		refused("renamed", "one", "shop")
		refused("second", "one", "shop")
		ok(t, client.Del(ctx, "one").Err())
		refused("renamed", "one", "shop")
		if _, err := on("renamed", "one").Accept(ctx, review(t, on("renamed", "one")), []string{"charge"}); err == nil || !strings.Contains(err.Error(), "runs under the old schema") {
			t.Errorf("renamed beside a process of the old name: %v", err)
		}
		all, err := store.Processes().List(ctx)
		ok(t, err)
		for _, p := range all {
			ok(t, store.Processes().Gone(ctx, p.ID))
		}
		i := on("renamed", "one")
		_, err = i.Accept(ctx, review(t, i), []string{"charge"})
		ok(t, err)
		g := started(t, on("renamed", "one"))
		if !g.Changed("charge") {
			t.Error("a rename is no change")
		}
		refused("shop", "one", "renamed")

		// A marker that is ahead of the table: the table has lost writes.
		ok(t, client.Set(ctx, "two", `{"scope":"second","steps":{"charge":{"version":7,"digest":"x"}}}`, 0).Err())
		if err := review(t, on("second", "two")).Err("second"); err == nil || !strings.Contains(err.Error(), "a marker in Redis is ahead of") {
			t.Errorf("a table that has lost a schema: %v", err)
		}
	})
}

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"zabor/internal/servers"
	"zabor/prove"
	"zabor/sqlstore"
)

// charges are how often each strategy charges an order whose worker dies, moment
// by moment in the order of a charge. They follow from what the strategies do;
// see docs/prove.md. Whoever is stopped by SIGTERM finishes first.
var charges = map[prove.Death]map[prove.Strategy][7]int64{
	prove.Kill: {
		prove.AutoAck:    {1, 0, 0, 1, 1, 1, 0}, // its ack comes first
		prove.AckAfter:   {1, 1, 1, 2, 2, 2, 1},
		prove.UniqueLock: {1, 1, 1, 2, 2, 2, 1},
		prove.Fence:      {1, 1, 1, 1, 1, 1, 1},
	},
	prove.Stall: {
		prove.AutoAck:    {1, 1, 1, 1, 1, 1, 1}, // nobody else has the message
		prove.AckAfter:   {2, 2, 2, 2, 2, 2, 1},
		prove.UniqueLock: {2, 2, 2, 2, 2, 2, 1},
		prove.Fence:      {1, 1, 1, 1, 1, 1, 1},
	},
	prove.Term: {
		prove.AutoAck:    {1, 1, 1, 1, 1, 1, 1},
		prove.AckAfter:   {1, 1, 1, 1, 1, 1, 1},
		prove.UniqueLock: {1, 1, 1, 1, 1, 1, 1},
		prove.Fence:      {1, 1, 1, 1, 1, 1, 1},
	},
}

// proof runs "zabor prove --json" and returns its report.
func proof(t *testing.T, env []string, code int, args ...string) prove.Report {
	t.Helper()
	p := startIn(t, env, append([]string{"prove", "--json", "--log-level", "error"}, args...)...)
	select {
	case <-p.done:
	case <-time.After(10 * limit):
		t.Fatalf("still running after %s", 10*limit)
	}
	if p.code != code {
		t.Errorf("exit code %d, want %d", p.code, code)
	}
	var r prove.Report
	if err := json.NewDecoder(strings.NewReader(p.log.String())).Decode(&r); err != nil {
		t.Fatal(err)
	}
	return r
}

// asExpected checks the cells of a report of which the fence is good.
func asExpected(t *testing.T, r prove.Report, cells int) {
	t.Helper()
	if len(r.Cells) != cells || !r.Good {
		t.Errorf("%d cells, good: %v; want %d, true", len(r.Cells), r.Good, cells)
	}
	for _, c := range r.Cells {
		want := charges[c.Death][c.Strategy][slices.Index(prove.Moments(), c.Moment)]
		lost, twice := 0, 0
		if want == 0 {
			lost = 1
		}
		if want > 1 {
			twice = 1
		}
		if c.Charges != want || c.ProviderSuccesses != want || c.Lost != lost || c.DoubleCharged != twice || c.Error != "" {
			t.Errorf("%s: %d charges, lost %d, twice %d, error %q; want %d charges%s", c.Cell, c.Charges, c.Lost, c.DoubleCharged, c.Error, want, history(c))
		}
		if c.Strategy == prove.Fence && c.UniqueRows != 1 {
			t.Errorf("%s: %d rows, want 1%s", c.Cell, c.UniqueRows, history(c))
		}
	}
}

func history(r prove.Result) string {
	var b strings.Builder
	for _, e := range r.Timeline {
		fmt.Fprintf(&b, "\n%8.3f %-8s %-8s %s", e.At/1000, e.Who, e.Kind, e.Text)
	}
	return b.String()
}

// soaking: the tests that take minutes are wanted.
func soaking() bool { return os.Getenv("ZABOR_SOAK") == "1" }

// Without any server. ZABOR_SOAK=1 makes it the whole table.
func TestProve(t *testing.T) {
	t.Parallel()
	page := filepath.Join(t.TempDir(), "proof.html")
	args, cells := []string{"--moment", "before-send,charged,in-ack", "--death", "sigkill,sigstop", "--html", page}, 48
	if soaking() {
		args, cells = args[len(args)-2:], 168
	}
	asExpected(t, proof(t, nil, exitGood, args...), cells)
	html, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"ack-after_charged_laravel_sigkill", "Charged 2 times", "SIGKILL", "<svg", "every order was charged exactly once"} {
		if !strings.Contains(string(html), want) {
			t.Errorf("the page has no %q", want)
		}
	}
	for _, foreign := range []string{"<script", "<link", "src=", "href=\"http", "href='http", "@import", "url("} {
		if strings.Contains(string(html), foreign) {
			t.Errorf("the page needs something else: %q", foreign)
		}
	}
}

// On servers that are there, below a prefix and in a database of its own, with
// messages on the installation's own queues that nobody must touch.
func TestProveOnServers(t *testing.T) {
	t.Parallel()
	for _, d := range databases {
		t.Run(d.name, func(t *testing.T) {
			t.Parallel()
			s := newShop(t, d.open(t), options{redis: servers.RedisDB{Addr: servers.OwnRedis(t).Addr()}})
			production := []string{"laravel_database_queues:payments", "laravel_database_queues:payments:notify"}
			for _, key := range production {
				if err := s.redis.RPush(t.Context(), key, "untouched").Err(); err != nil {
					t.Fatal(err)
				}
			}
			args, cells := []string{"-c", s.file, "--moment", "before-send,charged", "--death", "sigkill", "--strategy", "ack-after,fence"}, 8
			if soaking() {
				args, cells = args[:2], 168
			}
			// What a run that was killed has left; servers keep it.
			killed := start(t, append([]string{"prove"}, args...)...)
			eventually(t, "a proof has begun", func() bool { return len(s.scratchKeys()) > 3 })
			killed.kill()
			for _, key := range s.scratchKeys() {
				if strings.HasSuffix(key, ":alive") { // half a minute later
					s.redis.Del(t.Context(), key)
				}
			}
			asExpected(t, proof(t, nil, exitGood, args...), cells)
			if keys := s.scratchKeys(); len(keys) > 0 {
				t.Errorf("left in Redis: %q", keys)
			}
			if rows := s.rows(); len(rows) > 0 {
				t.Errorf("rows in the installation's own fence: %v", rows)
			}
			for _, key := range production {
				if got, err := s.redis.LRange(t.Context(), key, 0, -1).Result(); err != nil || !slices.Equal(got, []string{"untouched"}) {
					t.Errorf("%s holds %q, %v", key, got, err)
				}
			}
			left, err := sqlstore.OpenScratch(t.Context(), s.fence, "zabor_prove")
			if err != nil {
				t.Fatalf("the place is not free again: %v", err)
			}
			left.Remove()
		})
	}
}

// scratchKeys are the keys of proofs in the shop's Redis.
func (s *shop) scratchKeys() []string {
	s.t.Helper()
	keys, err := s.redis.Keys(context.WithoutCancel(s.t.Context()), "zabor_prove:*").Result()
	if err != nil {
		s.t.Fatal(err)
	}
	return keys
}

// The proof can fail: a fence that captures after the call, forgets to settle, or
// writes over what others wrote, turns cells bad.
func TestProveFindsMutants(t *testing.T) {
	t.Parallel()
	for _, m := range []struct {
		name string
		args []string
		bad  func(prove.Result) bool
	}{
		{"capture-after-call", []string{"--moment", "charged,answered", "--death", "sigkill"}, func(r prove.Result) bool { return r.Charges == 2 }},
		{"settle-skipped", []string{"--moment", "in-ack", "--death", "sigterm"}, func(r prove.Result) bool { return r.UniqueRows == 0 }},
		{"epoch-ignored", []string{"--moment", "before-send", "--death", "sigstop"}, func(r prove.Result) bool { return r.UniqueRows == 0 }},
	} {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			args := append([]string{"--strategy", "fence"}, m.args...)
			asExpected(t, proof(t, nil, exitGood, args...), 2*(1+strings.Count(m.args[1], ",")))
			r := proof(t, []string{mutantVariable + "=" + m.name}, exitBad, args...)
			if r.Good {
				t.Error("the report is good")
			}
			for _, c := range r.Cells {
				if !m.bad(c) || c.Good() {
					t.Errorf("%s: %d charges, %d rows, error %q%s", c.Cell, c.Charges, c.UniqueRows, c.Error, history(c))
				}
			}
		})
	}
}

// Workers, Redis and the database are killed at random.
func TestProveSoak(t *testing.T) {
	t.Parallel()
	for _, d := range []struct {
		name     string
		start    func(testing.TB) *servers.Server
		database func(testing.TB, *servers.Server) string
		kills    int
		soak     int
	}{
		{"mariadb", servers.OwnMariaDB, servers.MariaDBDatabase, 0, 2000},
		{"postgres", servers.OwnPostgres, servers.PostgresDatabase, 100, 2000},
	} {
		if soaking() {
			d.kills = d.soak
		}
		if d.kills == 0 {
			continue
		}
		t.Run(d.name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), 40*time.Minute)
			defer cancel()
			cache, database := servers.OwnRedis(t), d.start(t)
			client := redis.NewClient(&redis.Options{Addr: cache.Addr(), MaxRetries: -1})
			defer client.Close()
			place, closePlace, err := prove.OnServers(ctx, t.TempDir(), prove.Installation{
				Fence: d.database(t, database), Redis: client, RedisURL: "redis://" + cache.Addr() + "/0",
			})
			if err != nil {
				t.Fatal(err)
			}
			place.Program, err = os.Executable()
			if err != nil {
				t.Fatal(err)
			}
			place.Env = slices.DeleteFunc(os.Environ(), func(s string) bool { return strings.HasPrefix(s, "ZABOR_") })
			for name, server := range map[string]*servers.Server{"Redis": cache, d.name: database} {
				place.Servers = append(place.Servers, prove.Server{Name: name, Kill: func() error { server.Kill(); return nil }, Start: server.Start})
			}
			bound := time.Minute
			if soaking() {
				bound = 20 * time.Minute
			}
			r, err := prove.Soak(ctx, place, d.kills, bound, nil)
			if err != nil {
				t.Fatal(err)
			}
			var b strings.Builder
			r.Print(&b)
			t.Logf("%.0f s\n%s", r.Seconds, b.String())
			if !r.Good || r.Orders == 0 {
				t.Error("the fence has failed")
			}
			if r.Kills < int64(d.kills) && r.Seconds < bound.Seconds() || r.Kills < 20 {
				t.Errorf("%d workers were killed, want %d", r.Kills, d.kills)
			}
			if err := closePlace(); err != nil {
				t.Error(err)
			}
		})
	}
}

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"zabor/internal/exit"
	"zabor/internal/servers"
	"zabor/prove"
	"zabor/sqlstore"
)

// charges are how often each strategy charges an order whose worker dies, moment
// by moment in the order of a charge. They follow from what the strategies do;
// see docs/prove.md. Whoever is stopped by SIGTERM finishes first.
var charges = map[prove.Death]map[prove.Strategy][8]int64{
	prove.Kill: {
		prove.AutoAck:    {1, 0, none, 0, 1, 1, 1, 0}, // its ack comes first
		prove.AckAfter:   {1, 1, none, 1, 2, 2, 2, 1},
		prove.UniqueLock: {1, 1, none, 1, 2, 2, 2, 1},
		prove.Fence:      {1, 1, 1, 1, 1, 1, 1, 1},
	},
	prove.Stall: {
		prove.AutoAck:    {1, 1, none, 1, 1, 1, 1, 1}, // nobody else has the message
		prove.AckAfter:   {2, 2, none, 2, 2, 2, 2, 1},
		prove.UniqueLock: {2, 2, none, 2, 2, 2, 2, 1},
		prove.Fence:      {1, 1, 1, 1, 1, 1, 1, 1},
	},
	prove.Term: {
		prove.AutoAck:    {1, 1, none, 1, 1, 1, 1, 1},
		prove.AckAfter:   {1, 1, none, 1, 1, 1, 1, 1},
		prove.UniqueLock: {1, 1, none, 1, 1, 1, 1, 1},
		prove.Fence:      {1, 1, 1, 1, 1, 1, 1, 1},
	},
}

// none: there is no such moment for a strategy that captures nothing.
const none = -1

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

// Without any server: of the whole table the fence where a death is hard, and of the
// others some. TestProveWhole is all of it.
func TestProve(t *testing.T) {
	t.Parallel()
	page := filepath.Join(t.TempDir(), "proof.html")
	asExpected(t, proof(t, nil, exit.Good, "--strategy", "fence", "--death", "sigkill,sigstop"), 8*2*2)
	asExpected(t, proof(t, nil, exit.Good, "--strategy", "auto-ack,ack-after,unique-lock", "--moment", "before-send,charged,in-ack", "--queue", "laravel", "--death", "sigkill,sigstop", "--html", page), 3*3*2)
	html, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"ack-after_charged_laravel_sigkill", "Charged 2 times", "SIGKILL", "<svg"} {
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

// The whole table, of a program as it is shipped, takes less than a minute and a half
// on two processors that have nothing else to do.
func TestProveWhole(t *testing.T) {
	if !soaking() {
		t.Skip("a minute or more: ZABOR_SOAK=1")
	}
	program := filepath.Join(t.TempDir(), "zabor")
	build := exec.Command("go", "build", "-trimpath", "-o", program, ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if text, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	var out bytes.Buffer
	c := exec.Command(program, "prove", "--json", "--log-level", "error")
	c.Env = slices.DeleteFunc(os.Environ(), func(s string) bool { return strings.HasPrefix(s, "ZABOR_") })
	c.Stdout = &out
	if err := c.Run(); err != nil {
		t.Error(err)
	}
	var r prove.Report
	if err := json.NewDecoder(&out).Decode(&r); err != nil {
		t.Fatal(err)
	}
	asExpected(t, r, 4*7*2*3+2*3)
	spent := c.ProcessState.UserTime() + c.ProcessState.SystemTime()
	t.Logf("%.0f s, of these %s of a processor", r.Seconds, spent)
	const most = 90
	if r.Seconds > most && spent.Seconds() < most {
		t.Skip("the processors were busy with something else: nothing can be said about the time")
	}
	if r.Seconds > most {
		t.Errorf("it took %.0f s, want at most %d", r.Seconds, most)
	}
}

// On a host whose workers have their configuration in the environment, two words are
// no order to use its servers.
func TestProveTakesNoConfigurationFromTheEnvironment(t *testing.T) {
	t.Parallel()
	s := newShop(t, databases[0].open(t), options{})
	r := proof(t, []string{"ZABOR_CONFIG=" + s.file}, exit.Good, "--strategy", "fence", "--moment", "in-ack", "--death", "sigterm", "--queue", "laravel")
	if !strings.HasPrefix(r.Place, "embedded") {
		t.Errorf("the proof was on %q", r.Place)
	}
}

// On servers that are there, below a prefix and in a database of its own, with
// messages on the installation's own queues, and keys of somebody's that begin as a
// proof's do, that nobody must touch.
func TestProveOnServers(t *testing.T) {
	t.Parallel()
	for i, d := range databases {
		t.Run(d.name, func(t *testing.T) {
			t.Parallel()
			s := newShop(t, d.open(t), options{redis: servers.RedisDB{Addr: servers.OwnRedis(t).Addr()}})
			s.edit("lanes: 1\n", "lanes: 1\nencryption_key: \"a key of thirty-two bytes or more\"\njournal: "+t.TempDir()+"\nattempts: 7\n")
			s.edit("retry_after: 5s}\n", "retry_after: 5s}\n    missing_row: capture\n")
			others := []string{"laravel_database_queues:payments", "laravel_database_queues:payments:notify", "zabor_prove:letters", "zabor_prove:shop:queue", "zabor_prove:shop:mark"}
			for _, key := range others {
				if err := s.redis.RPush(t.Context(), key, "untouched").Err(); err != nil {
					t.Fatal(err)
				}
			}
			// Each database has moments of its own here, all of them under ZABOR_SOAK.
			moments := [...]string{"before-send,charged", "sent,answered", "before-capture,saved"}[i]
			args, cells := []string{"-c", s.file, "--moment", moments, "--death", "sigkill", "--strategy", "ack-after,fence"}, 8
			if soaking() {
				args, cells = args[:2], 4*7*2*3+2*3
			}
			// What a run that was killed has left; servers keep it.
			killed := start(t, append([]string{"prove"}, args...)...)
			eventually(t, "a proof has begun", func() bool { return len(s.scratchKeys()) > 3+4 })
			killed.kill()
			for _, key := range s.scratchKeys() {
				if strings.HasSuffix(key, ":alive") { // half a minute later
					s.redis.Del(t.Context(), key)
				}
			}
			r := proof(t, nil, exit.Good, args...)
			asExpected(t, r, cells)
			if n := r.Settings; !n.Encrypted || !n.Journal || n.Attempts != 7 || n.MissingRow[prove.Laravel] != "capture" || n.MissingRow[prove.Symfony] != "doubt" {
				t.Errorf("the proof's fence had %+v", n)
			}
			if keys := s.scratchKeys(); len(keys) != 3 {
				t.Errorf("in Redis there is %q, want the three keys of somebody else's", keys)
			}
			if rows := s.rows(); len(rows) > 0 {
				t.Errorf("rows in the installation's own fence: %v", rows)
			}
			for _, key := range others {
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

// On a cluster Laravel's keys have braces, and the proof's must have them too.
func TestProveOnACluster(t *testing.T) {
	t.Parallel()
	node := servers.RedisCluster(t)
	s := newShop(t, databases[0].open(t), options{redis: servers.RedisDB{Addr: node.Addr()}})
	s.edit(`redis: "`+s.o.redis.URL()+`"`, `redis: "redis://`+node.Addr()+`?cluster=true"`)
	s.edit("/messages/symfony?", "/messages/symfony?cluster=1&")
	asExpected(t, proof(t, nil, exit.Good, "-c", s.file, "--strategy", "fence,unique-lock", "--moment", "charged", "--death", "sigkill"), 4)
	if keys := s.scratchKeys(); len(keys) > 0 {
		t.Errorf("left in Redis: %q", keys)
	}
}

// A proof whose worker takes its messages from elsewhere says so, and counts nothing.
func TestProveFindsAWorkerThatLooksElsewhere(t *testing.T) {
	t.Parallel()
	redises := [2]servers.RedisDB{servers.Redis(t), servers.Redis(t)}
	client := redis.NewClient(&redis.Options{Addr: redises[0].Addr, DB: redises[0].DB, MaxRetries: -1})
	defer client.Close()
	place, closePlace, err := prove.OnServers(t.Context(), t.TempDir(), prove.Installation{
		Fence: databases[0].open(t), Redis: client, RedisURL: redises[1].URL(),
		Fencing: prove.Fencing{MissingRow: map[prove.Queue]string{prove.Laravel: "doubt", prove.Symfony: "doubt"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer closePlace()
	place.Program = binary(t)
	_, err = prove.Matrix(t.Context(), place, prove.Filter{}, nil)
	if err == nil || !strings.Contains(err.Error(), "charged 0 times") {
		t.Errorf("got %v, want that the first order was not charged", err)
	}
}

// What cannot be removed is said, and the exit code says so too; the next proof
// removes it.
func TestProveTellsWhatItLeaves(t *testing.T) {
	t.Parallel()
	s := newShop(t, databases[0].open(t), options{redis: servers.RedisDB{Addr: servers.OwnRedis(t).Addr()}})
	args := []string{"prove", "-c", s.file, "--strategy", "fence", "--moment", "in-ack", "--death", "sigterm", "--queue", "laravel"}
	may := func(rule string) {
		t.Helper()
		if err := s.redis.Do(t.Context(), "ACL", "SETUSER", "default", rule).Err(); err != nil {
			t.Fatal(err)
		}
	}
	may("-unlink")
	p := start(t, args...)
	p.exit(exit.BadAnswer)
	p.logged("not all that it had made on your servers could be removed: the keys zabor_prove:")
	if len(s.scratchKeys()) == 0 {
		t.Fatal("nothing was left")
	}
	may("+unlink")
	for _, key := range s.scratchKeys() {
		if strings.HasSuffix(key, ":alive") { // half a minute later
			s.redis.Del(t.Context(), key)
		}
	}
	start(t, args...).exit(exit.Good)
	if keys := s.scratchKeys(); len(keys) > 0 {
		t.Errorf("left in Redis: %q", keys)
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
// writes over what others wrote, turns cells bad that TestProve and its like find good.
func TestProveFindsMutants(t *testing.T) {
	t.Parallel()
	for _, m := range []struct {
		name string
		args []string
		bad  func(prove.Result) bool
	}{
		{"capture-after-call", []string{"--moment", "charged,answered", "--death", "sigkill"}, func(r prove.Result) bool { return r.Charges == 2 }},
		{"settle-skipped", []string{"--moment", "in-ack", "--death", "sigterm"}, func(r prove.Result) bool { return r.UniqueRows == 0 }},
		{"epoch-ignored", []string{"--moment", "recaptured", "--death", "sigstop"}, func(r prove.Result) bool { return r.UniqueRows == 0 }},
	} {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			args := append([]string{"--strategy", "fence"}, m.args...)
			r := proof(t, []string{mutantVariable + "=" + m.name}, exit.BadAnswer, args...)
			if r.Good {
				t.Error("the report is good")
			}
			// Where the machine is slow a worker may not come to send in time, and the
			// cell be good by that.
			if !slices.ContainsFunc(r.Cells, func(c prove.Result) bool { return m.bad(c) && !c.Good() }) {
				for _, c := range r.Cells {
					t.Errorf("%s: %d charges, %d rows, error %q%s", c.Cell, c.Charges, c.UniqueRows, c.Error, history(c))
				}
			}
		})
	}
}

// Workers, Redis and the database are killed at random; under ZABOR_SOAK=1 2,000
// workers on one database after the other. The time may be over first, on a machine
// that has none: a soak of fewer than three quarters of its kills has shown too little.
func TestProveSoak(t *testing.T) {
	t.Parallel()
	kills, bound := 50, 5*time.Minute
	if soaking() {
		kills, bound = 2000, time.Hour
	}
	for _, d := range []struct {
		name     string
		start    func(testing.TB) *servers.Server
		database func(testing.TB, *servers.Server) string
	}{
		{"mariadb", servers.OwnMariaDB, servers.MariaDBDatabase},
		{"postgres", servers.OwnPostgres, servers.PostgresDatabase},
	} {
		t.Run(d.name, func(t *testing.T) {
			cache, database := servers.OwnRedis(t), d.start(t)
			client := redis.NewClient(&redis.Options{Addr: cache.Addr(), MaxRetries: -1})
			defer client.Close()
			place, closePlace, err := prove.OnServers(t.Context(), t.TempDir(), prove.Installation{
				Fence: d.database(t, database), Redis: client, RedisURL: "redis://" + cache.Addr() + "/0",
				Fencing: prove.Fencing{
					EncryptionKey: "a key of thirty-two bytes or more", Journal: true,
					MissingRow: map[prove.Queue]string{prove.Laravel: "doubt", prove.Symfony: "doubt"},
				},
			})
			if err != nil {
				t.Fatal(err)
			}
			place.Program = binary(t)
			place.Env = slices.DeleteFunc(os.Environ(), func(s string) bool { return strings.HasPrefix(s, "ZABOR_") })
			for name, server := range map[string]*servers.Server{"Redis": cache, d.name: database} {
				place.Servers = append(place.Servers, prove.Server{Name: name, Kill: func() error { server.Kill(); return nil }, Start: server.Start})
			}
			r, err := prove.Soak(t.Context(), place, kills, bound, nil)
			if err != nil {
				t.Fatal(err)
			}
			var b strings.Builder
			r.Print(&b)
			t.Logf("%.0f s\n%s", r.Seconds, b.String())
			if !r.Good || r.Orders == 0 {
				t.Error("the fence has failed")
			}
			if r.Kills < int64(kills) != r.TimeOver || r.TimeOver != strings.Contains(b.String(), "NOT ALL") {
				t.Errorf("%d of %d were killed, the time was over: %v, and the report says\n%s", r.Kills, kills, r.TimeOver, b.String())
			}
			if least := int64(kills) * 3 / 4; r.Kills < least {
				t.Errorf("%d workers were killed in %s, want %d, and at least %d on a busy machine", r.Kills, bound, kills, least)
			}
			if err := closePlace(); err != nil {
				t.Error(err)
			}
		})
	}
}

// A soak whose time is over before its kills says so, plainly.
func TestProveSoakTellsThatItsTimeWasOver(t *testing.T) {
	t.Parallel()
	p := start(t, "prove", "--soak", "--kills", "100000", "--for", "1s")
	p.exit(exit.Good)
	p.logged("of the 100000 kills that were asked for")
}

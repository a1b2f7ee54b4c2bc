package main

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
	"syscall"
	"testing"

	"zabor/internal/exit"

	"github.com/redis/go-redis/v9"

	"zabor"
)

// signed puts a message on the stream of the queue async that wants order charged, as
// Symfony's SigningSerializer does with the application's secret.
func (s *shop) signed(order, secret string) (id string) {
	s.t.Helper()
	body, err := json.Marshal(map[string]any{"orderId": order, "amountCents": 1999})
	if err != nil {
		s.t.Fatal(err)
	}
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write(body)
	value, err := json.Marshal(map[string]any{"body": string(body), "headers": map[string]string{
		"type": `App\Message\ChargeOrder`, "Content-Type": "application/json", "Body-Sign": hex.EncodeToString(mac.Sum(nil)), "Sign-Algo": "sha256",
	}})
	if err != nil {
		s.t.Fatal(err)
	}
	id, err = s.redis.XAdd(s.t.Context(), &redis.XAddArgs{Stream: "messages", Values: []any{"message", string(value)}}).Result()
	if err != nil {
		s.t.Fatal(err)
	}
	return id
}

// secret sets the queue async's app_secret.
func (s *shop) secret(value string) {
	s.t.Helper()
	s.edit(`    symfony: {dsn:`, fmt.Sprintf(`    symfony: {app_secret: %q, dsn:`, value))
}

// A start that can read none of the step messages refuses, and takes none. With a
// message of a previous secret among the others, the list of both reads all.
func TestAWrongAppSecretStopsTheStart(t *testing.T) {
	t.Parallel()
	s := newShop(t, databases[0].open(t), options{})
	for i := range 12 {
		s.signed(fmt.Sprint(i), "new")
	}
	s.signed("12", "old")
	s.secret("typo")
	for _, args := range [][]string{{"worker", "--drain", "--queue", "async"}, {"config", "check", "--live"}} {
		code := exit.WrongUsage
		if args[0] == "config" {
			code = exit.BadAnswer
		}
		out, log := s.command(code, args...)
		if all := out + log; !strings.Contains(all, "queue async: none of the first 8 messages of steps can be read") || !strings.Contains(all, "queues.async.symfony.app_secret") {
			t.Errorf("%q says\n%s", args, all)
		}
	}
	if n := s.redis.XLen(t.Context(), "messages").Val(); n != 13 || s.count("zabor_unreadable") != 0 {
		t.Errorf("%d messages are left, and %d were kept unreadable", n, s.count("zabor_unreadable"))
	}
	s.edit(`"typo"`, `"new, old"`)
	s.command(exit.Good, "worker", "--drain", "--queue", "async")
	for i := range 13 {
		s.chargedOnce(fmt.Sprint(i))
	}
}

// A Laravel queue whose jobs are encrypted with another key is refused likewise.
func TestAWrongAppKeyStopsTheStart(t *testing.T) {
	t.Parallel()
	s := newShop(t, databases[0].open(t), options{})
	s.encrypted("enc-1")
	s.edit("laravel: {", "laravel: {app_key: \"base64:"+strings.Repeat("A", 43)+"=\", ")
	_, log := s.command(exit.WrongUsage, "worker", "--drain", "--queue", "payments")
	if !strings.Contains(log, "queue payments: none of the first 1 messages of steps can be read") || !strings.Contains(log, "queues.payments.laravel.app_key") {
		t.Errorf("the start says\n%s", log)
	}
	// Beside one that can be read it is parked, and the drain does not say 0.
	s.order("1")
	_, log = s.command(exit.BadAnswer, "worker", "--drain", "--queue", "payments")
	s.chargedOnce("1")
	if laravel, _ := s.failed(); laravel != 1 || !strings.Contains(log, "a message without a key, and its message has failed: enc-1") {
		t.Errorf("%d failed jobs; the drain says\n%s", laravel, log)
	}
}

// encrypted puts a job on the queue payments whose command nobody here can decrypt.
func (s *shop) encrypted(id string) {
	s.t.Helper()
	payload := `{"uuid":"` + id + `","displayName":"App\\Jobs\\ChargeOrder","job":"Illuminate\\Queue\\CallQueuedHandler@call","attempts":0,` +
		`"data":{"commandName":"App\\Jobs\\ChargeOrder","command":"eyJpdiI6IkFBQUFBQUFBQUFBQUFBQUFBQUFBQUE9PSIsInZhbHVlIjoiQUFBQUFBQUFBQUFBQUFBQUFBQUFBQT09IiwibWFjIjoiMDAiLCJ0YWciOiIifQ=="}}`
	if err := s.redis.RPush(s.t.Context(), "laravel_database_queues:payments", payload).Err(); err != nil {
		s.t.Fatal(err)
	}
}

// Payments that cannot be read while a worker runs are an alert as for parked ones,
// count for a drain, keep that they were delivered, and go back by retry --all once they
// can be read.
func TestUnreadablePayments(t *testing.T) {
	t.Parallel()
	s := newShop(t, databases[0].open(t), options{})
	s.secret("right")
	// One that a worker of zabor's had and died with: it may have been called for.
	s.signed("1", "wrong")
	s.redis.XGroupCreateMkStream(t.Context(), "messages", "symfony", "0")
	s.redis.XReadGroup(t.Context(), &redis.XReadGroupArgs{Group: "symfony", Consumer: "zabor:dead:0", Streams: []string{"messages", ">"}, Count: 1})
	s.signed("0", "right") // a sample for the look-up
	p := s.worker("--queue", "async")
	p.logged("msg=started")
	for i := 2; i < 6; i++ {
		s.signed(fmt.Sprint(i), "wrong")
	}
	eventually(t, "they are kept unreadable", func() bool { return s.count("zabor_unreadable") == 5 })
	eventually(t, "the control is charged", func() bool { return s.state("0") == zabor.Settled })
	p.signal(syscall.SIGTERM)
	p.exit(0)
	if n := strings.Count(p.log.String(), "ALERT parked"); n != 5 {
		t.Errorf("%d alerts, want 5", n)
	}
	_, log := s.command(exit.BadAnswer, "worker", "--drain", "--queue", "async")
	if !strings.Contains(log, "5 messages of steps, or unreadable ones, have failed") {
		t.Errorf("the drain says\n%s", log)
	}
	if out := s.failedCommand(0, "retry", "--all"); strings.Count(out, "left where it is: ") != 5 {
		t.Errorf("retry --all with the wrong secret:\n%s", out)
	}
	s.edit(`"right"`, `"right, wrong"`)
	if out := s.failedCommand(0, "retry", "--all"); !strings.Contains(out, "5 of 5 done") {
		t.Errorf("retry --all:\n%s", out)
	}
	p = s.worker("--queue", "async")
	p.logged("delivered before")
	for i := range 6 {
		eventually(t, "all are charged", func() bool { return s.state(fmt.Sprint(i)) == zabor.Settled })
		s.chargedOnce(fmt.Sprint(i))
	}
	p.signal(syscall.SIGTERM)
	p.exit(0)
	for line := range strings.Lines(p.log.String()) {
		if strings.Contains(line, "delivered before") && !strings.Contains(line, "order=1 ") {
			t.Errorf("not the one that a worker had: %s", line)
		}
	}
	s.command(exit.Good, "worker", "--drain", "--queue", "async")
}

// count counts the rows of a table.
func (s *shop) count(table string) (n int) {
	s.t.Helper()
	if err := s.store.DB().QueryRow("SELECT COUNT(*) FROM " + table).Scan(&n); err != nil {
		s.t.Fatal(err)
	}
	return n
}

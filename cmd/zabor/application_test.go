package main

import (
	"os"
	"strings"
	"syscall"
	"testing"

	"zabor"
	"zabor/internal/exit"
	"zabor/internal/servers"
	"zabor/sqlstore"
)

// The application's rows are in another database than the fence, and one queue's
// failure transport in a third: load reads there, and what fails is kept there.
func TestTheApplicationsOwnDatabase(t *testing.T) {
	t.Parallel()
	s := newShop(t, databases[0].open(t), options{})
	elsewhere := func(address string) *shop {
		store, err := sqlstore.Open(address)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { store.Close() })
		other := &shop{t: t, store: store, fence: address}
		other.createFailed()
		return other
	}
	application, third := elsewhere(servers.MariaDB(t)), elsewhere(servers.Postgres(t))
	application.exec("CREATE TABLE orders (id VARCHAR(64) PRIMARY KEY, cents BIGINT NOT NULL)")
	application.exec("INSERT INTO orders VALUES ('" + target + "', 1999)")

	content, err := os.ReadFile(s.file)
	if err != nil {
		t.Fatal(err)
	}
	text := strings.NewReplacer(
		"lanes: ", "database: \""+application.fence+"\"\nlanes: ",
		"    order: orderId\n    amount: amountCents\n", "    order: orderId\n    load: SELECT cents FROM orders WHERE id = :order\n    amount: cents\n",
		"  async:\n", "  async:\n    failed: {database: \""+third.fence+"\"}\n",
	).Replace(string(content))
	if err := os.WriteFile(s.file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	// Without an order they are refused.
	put(t, newMessage(s.o.redis, "laravel", target), newMessage(s.o.redis, "laravel", ""), newMessage(s.o.redis, "symfony-json", ""))
	w := s.worker()
	eventually(t, "one order is settled, and two messages are parked", func() bool {
		laravel, _ := application.failed()
		_, symfony := third.failed()
		return s.state(target) == zabor.Settled && laravel == 1 && symfony == 1 && s.depth() == depth{}
	})
	w.signal(syscall.SIGTERM)
	w.exit(0)
	s.chargedOnce(target)
	if laravel, symfony := s.failed(); laravel+symfony != 0 {
		t.Errorf("%d and %d messages are parked in the fence's database", laravel, symfony)
	}

	list := start(t, "failed", "list", "-c", s.file)
	list.exit(0)
	for _, order := range []string{"payments", "async"} {
		if !strings.Contains(list.log.String(), order) {
			t.Errorf("failed list shows nothing of %s:\n%s", order, list.log.String())
		}
	}

	away := strings.Replace(text, application.fence, "mysql://root@127.0.0.1:1/shop", 1)
	if err := os.WriteFile(s.file, []byte(away), 0o600); err != nil {
		t.Fatal(err)
	}
	w = s.worker()
	w.exit(exit.NotReached)
	w.logged("the application's database mysql://127.0.0.1:1/shop")
}

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/goccy/go-yaml"

	"zabor/internal/exit"
	"zabor/internal/servers"
	"zabor/sandbox"
	"zabor/sqlstore"
)

// compose is contrib/docker/compose.yaml, as far as the test needs it.
type compose struct {
	Services map[string]struct {
		Image   string
		Command []string
		Ports   []string
		Build   struct{ Context, Dockerfile string }
	}
}

// The services of contrib/docker/compose.yaml, started without containers from its
// zabor.yaml and by its commands, charge each order of its shop once; the proxy
// charges too, and the dashboard answers.
func TestContribCompose(t *testing.T) {
	t.Parallel()
	needApp(t)
	var file compose
	if err := yaml.Unmarshal([]byte(contrib(t, "docker/compose.yaml")), &file); err != nil {
		t.Fatal(err)
	}
	for name, s := range file.Services {
		if s.Build.Dockerfile != "" {
			contrib(t, filepath.Join("docker", s.Build.Context, s.Build.Dockerfile))
		} else if s.Image == "" {
			t.Errorf("the service %s has neither an image nor a build", name)
		}
	}

	root := servers.MariaDB(t)
	store, err := sqlstore.Open(root)
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	at, err := url.Parse(root)
	if err != nil {
		t.Fatal(err)
	}
	database := strings.TrimPrefix(at.Path, "/")
	for _, statement := range []string{"CREATE USER " + database + "@'%' IDENTIFIED BY 'shop'", "GRANT ALL ON " + database + ".* TO " + database + "@'%'", contrib(t, "docker/shop.sql")} {
		if _, err := store.DB().ExecContext(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		if s, err := sqlstore.Open(root); err == nil {
			_, _ = s.DB().Exec("DROP USER " + database + "@'%'") //nolint:noctx // the test's context has ended
			s.Close()
		}
	})
	address := func() string { return fmt.Sprintf("127.0.0.1:%d", servers.Port(t)) }
	redis, provider, door, pages := servers.OwnRedis(t).Addr(), address(), address(), address()
	env := []string{"DB_HOST=" + at.Hostname(), "DB_PORT=" + at.Port(), "DB_DATABASE=" + database, "DB_USERNAME=" + database, "REDIS=" + redis,
		"ACQUIRER_URL=http://" + provider, "ZABOR_PROXY=" + door, "ZABOR_DASHBOARD=" + pages, "ZABOR_URL=http://" + pages}
	config, err := filepath.Abs("../../contrib/docker/zabor.yaml")
	if err != nil {
		t.Fatal(err)
	}
	// service starts a service with its command.
	service := func(name string) *process {
		t.Helper()
		args := file.Services[name].Command
		if len(args) == 0 {
			t.Fatalf("compose.yaml has no command for %s", name)
		}
		line := strings.NewReplacer("/etc/zabor/zabor.yaml", config, "0.0.0.0:8072", provider).Replace(strings.Join(args, "\n"))
		return startIn(t, append(env, "ZABOR_JOURNAL="+t.TempDir()), strings.Split(line, "\n")...)
	}
	service("migrate").exit(exit.Good)
	service("sandbox").logged("http://")
	worker, proxy, board := service("worker"), service("proxy"), service("dashboard")
	worker.logged("msg=started")
	proxy.logged("the proxy listens")
	board.logged("the dashboard listens")

	shop := file.Services["shop"].Command
	cmd := exec.CommandContext(t.Context(), shop[0], strings.Split(strings.ReplaceAll(strings.Join(shop[1:], "\n"), "$$", "$"), "\n")...)
	host, port, _ := strings.Cut(redis, ":")
	cmd.Dir, cmd.Env = "../../contrib/shop", append(cmd.Environ(), "REDIS_HOST="+host, "REDIS_PORT="+port, "MESSENGER_TRANSPORT_DSN=redis://"+redis+"/charges/symfony?dbindex=1")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("the shop: %v\n%s", err, out)
	}
	orders := strings.Count(string(out), "\n")

	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+door+"/acquirer/payments", strings.NewReader(`{"amount": 1999, "currency": "EUR", "order": "4001"}`))
	if err != nil {
		t.Fatal(err)
	}
	for name, value := range map[string]string{"Content-Type": "application/json", "Zabor-Order": "4001", "Zabor-Step": "charge", "Authorization": "Bearer token-for-the-demonstration-alone"} {
		request.Header.Set(name, value)
	}
	answer := send(t, request)
	if answer.StatusCode/100 != 2 {
		t.Fatalf("the proxy answered %s", answer.Status)
	}
	orders++
	for _, path := range []string{"/livez", "/login"} {
		get, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+pages+path, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		if got := send(t, get); got.StatusCode != http.StatusOK {
			t.Errorf("the dashboard answered %s to %s", got.Status, path)
		}
	}
	get, err := http.NewRequestWithContext(t.Context(), http.MethodGet, fmt.Sprintf("http://%s/_wait?charges=%d&timeout=30s", provider, orders), http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	send(t, get)
	worker.signal(syscall.SIGTERM)
	worker.exit(exit.Good)
	if get, err = http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+provider+"/_stats", http.NoBody); err != nil {
		t.Fatal(err)
	}
	var stats sandbox.Stats
	stats.Orders = map[string]int64{}
	if err := json.Unmarshal(send(t, get).body, &stats); err != nil {
		t.Fatal(err)
	}
	if orders != 19 || len(stats.Orders) != orders || stats.Charges != int64(orders) || stats.Repeated != 0 {
		t.Errorf("%d orders: %+v", orders, stats)
	}
}

// answered is a whole answer.
type answered struct {
	*http.Response
	body []byte
}

func send(t *testing.T, request *http.Request) answered {
	t.Helper()
	client := http.Client{Timeout: time.Minute, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	answer, err := client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answered{answer, body}
}

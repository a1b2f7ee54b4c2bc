package main

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"syscall"
	"testing"

	"zabor/internal/servers"
)

// Every process that serves says that it lives and whether it can work, also while it
// runs and its table is taken away: at metrics.listen with the reason, and where the
// dashboard's pages are, which strangers may reach, without it.
func TestHealthOfEachProcess(t *testing.T) {
	t.Parallel()
	s := newShop(t, databases[0].open(t), options{})
	s.add(`metrics: {listen: "${METRICS}"}
proxy: {listen: "${DOOR}"}
dashboard: {listen: "${PAGES}"}
`)
	type place struct {
		who, address string
		reasons      bool // are said there
	}
	var places []place
	var processes []*process
	for _, kind := range []string{"worker", "proxy", "serve", "dashboard"} {
		port := func() string { return fmt.Sprintf("127.0.0.1:%d", servers.Port(t)) }
		measures, door, pages := port(), port(), port()
		processes = append(processes, startIn(t, []string{"METRICS=" + measures, "DOOR=" + door, "PAGES=" + pages}, kind, "-c", s.file))
		places = append(places, place{kind, measures, true})
		if kind == "serve" || kind == "dashboard" {
			places = append(places, place{kind + "'s pages", pages, false})
		}
	}
	ask := func(address, path string) (int, string) {
		response, err := http.Get("http://" + address + path)
		if err != nil {
			return 0, err.Error()
		}
		defer response.Body.Close()
		text, err := io.ReadAll(response.Body)
		if err != nil {
			return 0, err.Error()
		}
		return response.StatusCode, string(text)
	}
	answers := func(status int, with func(p place) string) {
		t.Helper()
		for _, p := range places {
			last := ""
			eventually(t, fmt.Sprintf("/readyz of %s answers %d", p.who, status), func() bool {
				code, text := ask(p.address, "/readyz")
				last = text
				return code == status
			})
			if want := with(p); !strings.Contains(last, want) || !p.reasons && strings.Contains(last, "zabor_fences") {
				t.Errorf("/readyz of %s: %s, want %s", p.who, last, want)
			}
			if code, text := ask(p.address, "/livez"); code != http.StatusOK || text != "ok\n" {
				t.Errorf("/livez of %s: %d %s", p.who, code, text)
			}
		}
	}
	ready := func(place) string { return `"ready":true` }
	answers(http.StatusOK, ready)
	s.exec("ALTER TABLE zabor_fences RENAME TO elsewhere")
	answers(http.StatusServiceUnavailable, func(p place) string {
		if p.reasons {
			return "zabor_fences"
		}
		return `{"ready":false,"reasons":{"fence":"not well; the log says why"}}`
	})
	s.exec("ALTER TABLE elsewhere RENAME TO zabor_fences")
	answers(http.StatusOK, ready)
	for _, p := range processes {
		p.signal(syscall.SIGTERM)
	}
	for _, p := range processes {
		p.exit(0)
	}
}

package prove

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// troubles are what workers have said of servers that they could not reach, with
// what of it a report must not show.
var troubles = []struct{ text, as string }{
	{"dial tcp 10.1.2.3:6379: connect: connection refused", "dial tcp (address): connect: connection refused"},
	{"dial tcp cache.shop.example:6380: i/o timeout", "dial tcp (address): i/o timeout"},
	{"dial tcp [fd00::7]:5432: connect: no route to host", "dial tcp (address): connect: no route to host"},
	{"dial tcp: lookup db.shop.example on 10.9.9.9:53: no such host", "dial tcp: lookup (host): no such host"},
	{"read tcp 10.0.0.9:41234->10.1.2.3:6379: read: connection reset by peer", "read tcp (address): read: connection reset by peer"},
	{"dial unix /run/shop/redis.sock: connect: permission denied", "dial unix (address): connect: permission denied"},
	{"failed to connect to `user=clerk database=till`: 10.1.2.4:5432 (db.shop.example): server error", "failed to connect to (database): (address) ((host)): server error"},
	{`FATAL: password authentication failed for user "clerk" (SQLSTATE 28P01)`, "FATAL: password authentication failed for user (name) (SQLSTATE 28P01)"},
	{"Error 1045 (28000): Access denied for user 'clerk'@'app7.shop.example' (using password: YES)", "Error 1045 (28000): Access denied for user (user) (using password: YES)"},
	{"MOVED 3999 10.1.2.5:6381", "MOVED 3999 (address)"},
	{"tls: failed to verify certificate: x509: certificate is valid for a.shop.example, b.shop.example, not cache.shop.example", "tls: failed to verify certificate: x509: certificate is valid for other hosts"},
	{"WRONGPASS of s3cretword", "WRONGPASS of (password)"},
	{"redis:6379 is loading, and db:3306 too", "(host) is loading, and (host) too"},
	{"unable to open database file /srv/shop/zabor_prove/fence.db", "unable to open database file (folder)/fence.db"},
	// What is none of these stays.
	{"fence.charged.laravel.sigkill:1001/charge is in doubt: captured at 2026-03-02T10:00:00Z and never settled", "fence.charged.laravel.sigkill:1001/charge is in doubt: captured at 2026-03-02T10:00:00Z and never settled"},
	{"redis: the reserve had ended", "redis: the reserve had ended"},
}

func shopVeil() *veil {
	return newVeil([]string{
		"mysql://clerk:s3cretword@db.shop.example:3306/till", "redis://:s3cretword@cache.shop.example:6380/0", "redis://redis:6379/messages", "postgres://clerk@db:3306/till", "",
	}, []string{"/srv/shop/zabor_prove"})
}

func TestVeil(t *testing.T) {
	t.Parallel()
	v := shopVeil()
	for _, c := range troubles {
		if got := v.over(c.text); got != c.as {
			t.Errorf("%s\n got %s\nwant %s", c.text, got, c.as)
		}
	}
}

// A report is attached to a ticket: neither its page nor its JSON has an address, a
// user or a password, whatever the workers say.
func TestAReportHoldsNoAddress(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	place, closePlace, err := Embedded(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	defer closePlace()
	// A worker that says all of it and ends: "sh worker --drain …".
	var script strings.Builder
	for _, c := range troubles {
		line, err := json.Marshal(map[string]string{"msg": "cannot receive", "error": c.text})
		if err != nil {
			t.Fatal(err)
		}
		script.WriteString("cat <<'END'\n" + string(line) + "\nEND\n")
	}
	script.WriteString("echo 'zabor: error: dial tcp 10.1.2.3:6379: connection refused' >&2\nexit 3\n")
	if err := os.WriteFile(filepath.Join(dir, "worker"), []byte(script.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	place.Program, place.veil = "/bin/sh", shopVeil()
	g, err := newGate()
	if err != nil {
		t.Fatal(err)
	}
	defer g.close()
	m := &matrix{place: place, gate: g, times: times(), limit: cellLimit}
	r := &Report{Cells: []Result{m.cell(t.Context(), Cell{Fence, Saved, Laravel, Kill}, firstOrder)}}
	if r.Cells[0].Error == "" || len(r.Cells[0].Timeline) < len(troubles) {
		t.Fatalf("the cell tells of nothing: %+v", r.Cells[0])
	}
	var page strings.Builder
	if err := r.HTML(&page); err != nil {
		t.Fatal(err)
	}
	asJSON, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"page": page.String(), "JSON": string(asJSON)} {
		if !strings.Contains(text, "cannot receive") {
			t.Errorf("the %s has nothing of what the worker said", name)
		}
		for _, secret := range []string{"10.1.2", "10.0.0", "10.9.9", "fd00", "shop.example", "/srv/shop", "/run/shop", "clerk", "till", "s3cretword", ":6379", ":3306"} {
			if strings.Contains(text, secret) {
				t.Errorf("the %s has %q", name, secret)
			}
		}
	}
}

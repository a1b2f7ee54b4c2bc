package app

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// How people write the command of a worker, and what it says.
func TestWorkerCommands(t *testing.T) {
	t.Parallel()
	compose := func(command string) (string, string) {
		return "compose.yaml", "services:\n  worker:\n    command: " + command + "\n"
	}
	supervisor := func(command string) (string, string) {
		return "worker.conf", "[program:worker]\ncommand=" + command + "\n"
	}
	systemd := func(command string) (string, string) {
		return "worker.service", "[Service]\nExecStart=" + command + "\n"
	}
	for _, tt := range []struct {
		in      func(string) (string, string)
		command string
		want    string // kind, arguments, --timeout, --queue
	}{
		{compose, "php artisan queue:work --timeout=120 --queue=high,default", "queue:work [] 120 high,default"},
		{compose, "php artisan queue:work redis --queue=high,default --timeout 120", "queue:work [redis] 120 high,default"},
		{compose, `["php", "artisan", "queue:work", "--queue=high,default", "--timeout=120"]`, "queue:work [] 120 high,default"},
		{compose, `["sh", "-c", "php artisan migrate && exec php artisan queue:work redis --timeout=120 --queue='high,default'"]`, "queue:work [redis] 120 high,default"},
		{compose, `bash -c "php artisan queue:work redis --timeout=120 --queue=high,default"`, "queue:work [redis] 120 high,default"},
		{supervisor, `php %(here)s/artisan queue:work --queue="high,default" --timeout=120`, "queue:work [] 120 high,default"},
		{supervisor, `su -s /bin/sh -c 'php artisan queue:work --queue=high,default --timeout=0' www-data`, "queue:work [] 0 high,default"},
		{systemd, `-/usr/bin/php artisan queue:work "redis" --queue=high,default --timeout=120`, "queue:work [redis] 120 high,default"},
		{systemd, `/usr/bin/php bin/console messenger:consume async failed --time-limit=3600`, "messenger:consume [async failed] not set not set"},
	} {
		t.Run(tt.command, func(t *testing.T) {
			t.Parallel()
			name, text := tt.in(tt.command)
			file := filepath.Join(t.TempDir(), name)
			if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			p, err := Open(file, Options{})
			if err != nil {
				t.Fatal(err)
			}
			if len(p.Workers) != 1 {
				t.Fatalf("%d workers, want one: %+v", len(p.Workers), p.Notices)
			}
			w := p.Workers[0]
			if got := fmt.Sprint(w.Kind(), " ", w.Args(), " ", w.Flag("timeout"), " ", w.Flag("queue")); got != tt.want {
				t.Errorf("got %s, want %s", got, tt.want)
			}
		})
	}
}

// YAML as Symfony takes it, which is not all YAML.
func TestYAMLOfSymfony(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"a: [127.0.0.1, ::1]": "127.0.0.1 ::1",
		"a: { id: [0-9]+ }":   "[0-9]+",
		"a: {_locale: ^[a-z]{2,4}(_[A-Z]{2})?$, b: [c, d] }":       "^[a-z]{2,4}(_[A-Z]{2})?$ ",
		"x: {b: 1}\na:\n    requirements: { id: \\d+, s: [a-z]+ }": "",
	} {
		documents, broken := parseYAML("x.yaml", []byte(text))
		if broken != nil || len(documents) != 1 {
			t.Errorf("%s: %+v", text, broken)
			continue
		}
		var got []string
		for _, v := range documents[0].Get("a").List() {
			got = append(got, v.Str())
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
}

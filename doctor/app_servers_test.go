package doctor

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"zabor/internal/app"
)

// A cache in another database of the queues' server is beside them; one on
// another port is not.
func TestServers(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, files string // name=content, one a line
		want        int    // caches
		fences      string
	}{
		{"same server", ".env=QUEUE_CONNECTION=redis|CACHE_STORE=redis|REDIS_CACHE_DB=1|REDIS_HOST=h", 1, ""},
		{"localhost", ".env=QUEUE_CONNECTION=redis|CACHE_STORE=redis|REDIS_HOST=localhost|REDIS_URL=", 1, ""},
		{"cache elsewhere", ".env=QUEUE_CONNECTION=redis|CACHE_STORE=database|REDIS_HOST=h", 0, ""},
		{"another port", ".env=QUEUE_CONNECTION=redis|CACHE_STORE=redis|REDIS_HOST=h\n" +
			"config/database.php=<?php return ['redis' => ['default' => ['host' => 'h', 'port' => 6379], 'cache' => ['host' => 'h', 'port' => 6380]]];", 0, ""},
		{"fence of its own", ".env=QUEUE_CONNECTION=redis\n" +
			`app/Jobs/Pay.php=<?php class Pay implements \Illuminate\Contracts\Queue\ShouldQueue { function handle() {|DB::table('once')->insert([]);|DB::statement('INSERT INTO twice (a) VALUES (1)');|Http::post('https://api.stripe.com/v1/charges'); } }`, 0, "once,twice"},
	} {
		folder := t.TempDir()
		write(t, filepath.Join(folder, "composer.json"), `{"require": {"laravel/framework": "^11.0"}}`)
		for line := range strings.SplitSeq(c.files, "\n") {
			name, content, _ := strings.Cut(line, "=")
			write(t, filepath.Join(folder, name), strings.ReplaceAll(content, "|", "\n"))
		}
		p, err := app.Open(folder, app.Options{})
		if err != nil {
			t.Fatal(err)
		}
		list, unknown := Servers(p)
		if len(list) != 1 || len(unknown) > 0 {
			t.Fatalf("%s: %d servers, %v", c.name, len(list), unknown)
		}
		list[0].Client.Close()
		if len(list[0].Caches) != c.want || !slices.Equal(list[0].Queues, []string{"redis"}) {
			t.Errorf("%s: queues %v, caches %v, want %d", c.name, list[0].Queues, list[0].Caches, c.want)
		}
		if got := strings.Join(Fences(p), ","); got != c.fences {
			t.Errorf("%s: fences %q, want %q", c.name, got, c.fences)
		}
	}
}

package prove

import (
	"os"
	"strings"
	"testing"
	"time"

	"zabor/internal/config"
)

// What a proof writes for its workers is a configuration, and says of the fence what
// the installation's own says.
func TestTheFenceIsTheInstallations(t *testing.T) {
	t.Parallel()
	place, closePlace, err := Embedded(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer closePlace()
	key := strings.Repeat("k", 40)
	for _, c := range []struct {
		own      Fencing
		attempts int
	}{
		{Fencing{Attempts: 5, EncryptionKey: key, Journal: true, MissingRow: map[Queue]string{Laravel: "doubt", Symfony: "capture"}}, 5},
		{Fencing{Attempts: 1, MissingRow: map[Queue]string{Laravel: "capture", Symfony: "doubt"}}, LeastAttempts},
	} {
		file, env, err := place.write(setup{
			name: "fence.sent.laravel.sigkill", queues: Queues(), lanes: 1, fencing: c.own, times: times(), hold: time.Minute, provider: "http://127.0.0.1:1", fence: "sqlite:///x.db",
		})
		if err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(text), key) {
			t.Error("the key is in a file")
		}
		got, err := config.Load(file, config.Env{Lookup: func(name string) (string, bool) {
			for _, variable := range env {
				if value, ok := strings.CutPrefix(variable, name+"="); ok {
					return value, true
				}
			}
			return "", false
		}})
		if err != nil {
			t.Fatal(err)
		}
		if got.Attempts != c.attempts || got.Keys().Seals() != (c.own.EncryptionKey != "") || (got.Journal != "") != c.own.Journal ||
			got.Queues[LaravelQueue].MissingRow != c.own.MissingRow[Laravel] || got.Queues[Transport].MissingRow != c.own.MissingRow[Symfony] {
			t.Errorf("%+v became:\n%s", c.own, text)
		}
	}
}

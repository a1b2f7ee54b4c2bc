package main

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"zabor/internal/exit"
	"zabor/internal/servers"
)

// The commands of docs/tutorial.md, typed as they stand there, charge each of three
// orders once: one that is sent twice, one with a lost answer, and one with a killed worker.
func TestTutorial(t *testing.T) {
	t.Parallel()
	for _, framework := range []string{"laravel", "symfony"} {
		t.Run(framework, func(t *testing.T) {
			t.Parallel()
			needApp(t)
			scripts, err := filepath.Abs("../../contrib/shop")
			if err != nil {
				t.Fatal(err)
			}
			redis := servers.OwnRedis(t).Addr()
			ports := strings.NewReplacer("127.0.0.1:6379", redis, "127.0.0.1:8071", fmt.Sprintf("127.0.0.1:%d", servers.Port(t)), "127.0.0.1:8072", fmt.Sprintf("127.0.0.1:%d", servers.Port(t)))
			_, port, _ := strings.Cut(redis, ":")
			w := &walk{shop: &shop{t: t}, framework: framework, folder: t.TempDir(), etc: t.TempDir(), blocks: fenced(t, "tutorial.md")}
			w.env = append(typed(t), "SHOP="+scripts, "REDIS_PORT="+port, "MESSENGER_TRANSPORT_DSN=redis://"+redis+"/charges/symfony", "PWD="+w.folder)
			for name, text := range w.blocks {
				w.blocks[name] = ports.Replace(text)
			}
			w.write(filepath.Join(w.folder, "zabor.yaml"), w.block("yaml-"+framework)+w.block("yaml"))
			// says types a block until it answers with all of the texts.
			says := func(name string, texts ...string) {
				t.Helper()
				ctx, cancel := context.WithTimeout(t.Context(), limit)
				defer cancel()
				for {
					out, missing := w.run(name, exit.Good), ""
					for _, text := range texts {
						if !strings.Contains(out, text) {
							missing = text
						}
					}
					if missing == "" {
						return
					}
					select {
					case <-ctx.Done():
						t.Fatalf("%s does not say %q:\n%s", name, missing, out)
					case <-time.After(100 * time.Millisecond):
					}
				}
			}
			order := func(id string) {
				t.Helper()
				w.types(strings.Replace(w.block("order-"+framework), "1001", id, 1), exit.Good)
			}

			says("check", "is valid")
			if framework == "laravel" {
				w.run("table-laravel", exit.Good)
			}
			order("1001")
			says("peek", "tutorial:1001/charge", "19.99 EUR", "verdict  call")
			provider := w.begin("sandbox")
			provider.logged("http://127.0.0.1")
			serve := w.begin("serve")
			says("list", "settled  pay_1")
			order("1001")
			says("count", `"charges":1,`)
			w.run("lose", exit.Good)
			order("1002")
			says("show", "Doubt: was captured", "Settled: was doubt")
			w.run("hang", exit.Good)
			order("1003")
			wait, kill, _ := strings.Cut(w.block("kill"), "\n")
			if !strings.Contains(kill, "kill -KILL") {
				t.Fatalf("the tutorial kills nothing: %s", kill)
			}
			w.types(wait, exit.Good)
			serve.signal(syscall.SIGKILL)
			<-serve.done
			serve = w.begin("serve")
			w.run("release", exit.Good)
			says("list", "settled  pay_1", "settled  pay_2", "settled  pay_3")
			says("count", `"charges":3,`, `"repeated":0`)
			w.end(serve)
		})
	}
}

package main

import (
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/rogpeppe/go-internal/testscript"

	"zabor"
	"zabor/internal/servers"
	"zabor/sqlstore"
)

// The commands, as a person types them. What the scripts can use beside
// testscript's own commands is in [scriptCommands]; $FENCE_SQLITE,
// $FENCE_MARIADB, $FENCE_POSTGRES and $REDIS (its parts: $REDIS_ADDR, $REDIS_DB)
// are empty servers, $FREE and $FREE2
// are addresses at which nothing listens.
func TestScripts(t *testing.T) {
	t.Parallel()
	program := binary(t)
	server := servers.Redis(t)
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Cmds:                scriptCommands(),
		Setup: func(e *testscript.Env) error {
			// A listener that is closed again: its port stays unused for a while.
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				return err
			}
			defer l.Close()
			l2, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				return err
			}
			defer l2.Close()
			for name, value := range map[string]string{
				"ZABOR": program, "FREE": l.Addr().String(), "FREE2": l2.Addr().String(), "NO_COLOR": "1",
				"REDIS": server.URL(), "REDIS_ADDR": server.Addr, "REDIS_DB": strconv.Itoa(server.DB),
				"FENCE_SQLITE":  "sqlite://" + filepath.Join(e.WorkDir, "fence.db"),
				"FENCE_MARIADB": servers.MariaDB(t), "FENCE_POSTGRES": servers.Postgres(t),
			} {
				e.Setenv(name, value)
			}
			return nil
		},
	})
}

func scriptCommands() map[string]func(ts *testscript.TestScript, neg bool, args []string) {
	type command = func(ts *testscript.TestScript, neg bool, args []string)
	positive := func(n int, usage string, run func(ts *testscript.TestScript, args []string)) command {
		return func(ts *testscript.TestScript, neg bool, args []string) {
			if neg || len(args) < n {
				ts.Fatalf("usage: %s", usage)
			}
			run(ts, args)
		}
	}
	return map[string]command{
		"zabor": positive(1, "zabor CODE ARGUMENTS… runs the program and checks its exit code", func(ts *testscript.TestScript, args []string) {
			code := 0
			if err := ts.Exec(ts.Getenv("ZABOR"), args[1:]...); err != nil {
				exit, ok := errors.AsType[*exec.ExitError](err)
				if !ok {
					ts.Fatalf("%v", err)
				}
				code = exit.ExitCode()
			}
			if strconv.Itoa(code) != args[0] {
				ts.Fatalf("exit code %d, want %s", code, args[0])
			}
		}),
		"row": positive(4, "row ADDRESS STATE ORDER STEP writes a row into a fence; ORDER as in a text of Go", func(ts *testscript.TestScript, args []string) {
			order, err := strconv.Unquote(`"` + args[2] + `"`)
			ts.Check(err)
			ts.Check(writeRow(args[0], zabor.State(args[1]), zabor.Key{Scope: "test", Order: order, Step: args[3]}))
		}),
		"sql": positive(2, "sql ADDRESS FILE runs a file's statements", func(ts *testscript.TestScript, args []string) {
			ts.Check(runSQL(args[0], ts.ReadFile(args[1])))
		}),
		"json": positive(2, "json PATH VALUE checks what is at PATH of the JSON on stdout; of an object its keys", func(ts *testscript.TestScript, args []string) {
			got, err := jsonAt(ts.ReadFile("stdout"), args[0])
			ts.Check(err)
			if want := strings.Join(args[1:], " "); got != want {
				ts.Fatalf("%s is\n%s\nwant\n%s", args[0], got, want)
			}
		}),
		"redis": positive(1, "redis ARGUMENTS… sends a command to $REDIS and shows the answer as stdout; an argument @FILE is a file's content without its last line end", func(ts *testscript.TestScript, args []string) {
			options, err := redis.ParseURL(ts.Getenv("REDIS"))
			ts.Check(err)
			client := redis.NewClient(options)
			defer client.Close()
			ctx, cancel := contextWithLimit()
			defer cancel()
			command := make([]any, len(args))
			for i, arg := range args {
				if command[i] = arg; strings.HasPrefix(arg, "@") {
					command[i] = strings.TrimSuffix(ts.ReadFile(arg[1:]), "\n")
				}
			}
			answer, err := client.Do(ctx, command...).Result()
			ts.Check(err)
			fmt.Fprintln(ts.Stdout(), answer)
		}),
		"http": positive(2, "http METHOD URL [BODY] shows the answer's body as stdout", func(ts *testscript.TestScript, args []string) {
			body := ""
			if len(args) > 2 {
				body = args[2]
			}
			answer, err := request(args[0], args[1], body)
			ts.Check(err)
			fmt.Fprint(ts.Stdout(), answer)
		}),
	}
}

func writeRow(address string, state zabor.State, k zabor.Key) error {
	store, err := sqlstore.Open(address)
	if err != nil {
		return err
	}
	defer store.Close()
	ctx, cancel := contextWithLimit()
	defer cancel()
	name := strings.Trim(strconv.QuoteToASCII(k.Order), `"`)
	row := zabor.Row{
		Key: k, State: state, Cause: zabor.ByCall, Claim: zabor.Claim{Epoch: 1, ID: [16]byte{1}},
		Endpoint: zabor.Endpoint{Provider: "acquirer"}, Generation: 1, ProviderKey: "key-of-" + name,
		Amount: zabor.Money{Minor: 1999, Currency: "EUR"}, Fingerprint: zabor.Fingerprint{Message: "m", Request: "f"}, Tries: 1, Unproven: 1, Reason: "written by a test",
		Open: zabor.Open{Request: []byte("{}"), PrepareKey: "prepare-" + name, Lease: time.Hour, HoldAfter: time.Hour, PendingFor: time.Hour},
	}
	if state == zabor.Declined { // the answer to its one send
		row.Unproven = 0
	}
	if state == zabor.Settled || state == zabor.Pending {
		row.Reference = "pay_" + name
	}
	_, err = store.Insert(ctx, row, zabor.Write{Lease: row.Open.Lease, DueIn: zabor.Never})
	return err
}

// runSQL runs statements as a database's own client would.
func runSQL(address, statements string) error {
	driver, dsn := "sqlite", strings.TrimPrefix(address, "sqlite://")
	switch {
	case strings.HasPrefix(address, "postgres://"):
		driver, dsn = "pgx", address
	case strings.HasPrefix(address, "mysql://"):
		host, name, _ := strings.Cut(strings.TrimPrefix(address, "mysql://root@"), "/")
		driver, dsn = "mysql", "root@tcp("+host+")/"+name+"?multiStatements=true"
	}
	db, err := sql.Open(driver, dsn)
	if err != nil {
		return err
	}
	defer db.Close()
	_, err = db.Exec(statements)
	return err
}

// jsonAt is the value at a dotted path of a JSON text: a text as it is, of an
// object its keys, of a list its length, anything else as JSON.
func jsonAt(text, path string) (string, error) {
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return "", fmt.Errorf("%w in %q", err, text)
	}
	if _, err := d.Token(); err != io.EOF {
		return "", fmt.Errorf("more than one JSON value in %q", text)
	}
	for name := range strings.FieldsFuncSeq(path, func(r rune) bool { return r == '.' }) {
		switch in := v.(type) {
		case map[string]any:
			v = in[name]
		case []any:
			i, err := strconv.Atoi(name)
			if err != nil || i >= len(in) {
				return "", fmt.Errorf("no %s of %s in %s", name, path, text)
			}
			v = in[i]
		}
	}
	switch v := v.(type) {
	case string:
		return v, nil
	case map[string]any:
		return strings.Join(slices.Sorted(maps.Keys(v)), " "), nil
	case []any:
		return strconv.Itoa(len(v)), nil
	}
	out, err := json.Marshal(v)
	return string(out), err
}

// request makes a request, again and again while nobody listens.
func request(method, url, body string) (string, error) {
	ctx, cancel := contextWithLimit()
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		req, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
		if err != nil {
			return "", err
		}
		req.Header.Set("Content-Type", "application/json")
		resp, err := http.DefaultClient.Do(req)
		if _, dial := errors.AsType[*net.OpError](err); dial && ctx.Err() == nil {
			<-tick.C
			continue
		}
		if err != nil {
			return "", err
		}
		defer resp.Body.Close()
		answer, err := io.ReadAll(resp.Body)
		return string(answer), err
	}
}

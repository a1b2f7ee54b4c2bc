package config

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
	"golang.org/x/sys/unix"
)

// exampleEnv sets what the example asks for.
func exampleEnv() Env {
	return environment(map[string]string{
		"DB_USERNAME": "shop", "DB_PASSWORD": "p@ss/w:rd", "DB_HOST": "db.example", "DB_DATABASE": "shop",
		"MESSENGER_TRANSPORT_DSN": "redis://localhost:6379/messages/symfony?dbindex=0",
		"STRIPE_SECRET":           "sk_test_1", "YOOKASSA_SHOP_ID": "501", "YOOKASSA_SECRET_KEY": "y", "ACQUIRER_TOKEN": "t",
		"ALERT_URL": "slack://token@channel", "OPS_HASH": someHash, "FINANCE_HASH": someHash,
		"ZABOR_KEY": "0123456789abcdef0123456789abcdef", "APP_KEY": "base64:x", "APP_SECRET": "s",
	})
}

var examples = []string{"testdata/zabor.example.yaml", "../../zabor.example.yaml"}

func TestTheExampleIsValid(t *testing.T) {
	for _, path := range examples {
		c, err := Load(path, exampleEnv())
		if err != nil {
			t.Fatal(err)
		}
		if got, want := string(c.Fence), "mysql://shop:p%40ss%2Fw%3Ard@db.example:3306/shop"; got != want {
			t.Errorf("fence %s, want %s", got, want)
		}
		if got, want := c.Fence.String(), "mysql://db.example:3306/shop"; got != want {
			t.Errorf("fence prints as %s, want %s", got, want)
		}
		if got := len(c.Compiled()); got != 2 {
			t.Errorf("%d steps, want 2", got)
		}
		if got, want := c.Steps["refund"].Part, Path("refundId"); got != want {
			t.Errorf("part %s, want %s", got, want)
		}
		if got, want := c.KeepApart, []KeepApart{{"laravel_database_laravel_cache_", 1}, {Prefix: "sessions:"}}; !slices.Equal(got, want) {
			t.Errorf("keep_apart %v, want %v", got, want)
		}
		if printed := fmt.Sprintf("%v %+v %#v", c.Providers["acquirer"], c.File, c.Providers["acquirer"].Headers); strings.Contains(printed, "Bearer t") || strings.Contains(printed, "p%40ss") {
			t.Errorf("a secret is printed: %s", printed)
		}
	}
}

// The schema knows every key of the examples, and knows no other.
func TestSchema(t *testing.T) {
	var schema map[string]any
	if err := json.Unmarshal(Schema(), &schema); err != nil {
		t.Fatal(err)
	}
	if got, want := schema["$schema"], "https://json-schema.org/draft/2020-12/schema"; got != want {
		t.Errorf("$schema=%v, want %s", got, want)
	}
	for _, path := range examples {
		content, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		var file any
		if err := yaml.Unmarshal(content, &file); err != nil {
			t.Fatal(err)
		}
		for _, wrong := range against(schema, file, path) {
			t.Error(wrong)
		}
	}
	for _, bad := range []any{
		map[string]any{"fence": "x", "lanse": uint64(1)},
		map[string]any{"fence": "x", "lanes": uint64(5000)},
		map[string]any{"fence": "x", "lanes": "many"},
		map[string]any{"fence": "x", "hold_after": uint64(30)},
		map[string]any{"fence": uint64(1)},
		map[string]any{},
		map[string]any{"fence": "x", "queues": map[string]any{"a": map[string]any{"missing_row": "perhaps"}}},
	} {
		if len(against(schema, bad, "file")) == 0 {
			t.Errorf("the schema takes %v", bad)
		}
	}
}

func TestFind(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	none := func(string) (string, bool) { return "", false }
	if _, err := os.Stat("/etc/zabor/zabor.yaml"); err != nil {
		if _, err := Find("", none); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("error %v, want fs.ErrNotExist", err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "zabor.yaml"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	set := func(name string) (string, bool) { return "env.yaml", name == "ZABOR_CONFIG" }
	for _, test := range []struct {
		flag   string
		lookup func(string) (string, bool)
		want   string
	}{
		{"flag.yaml", set, "flag.yaml"},
		{"", set, "env.yaml"},
		{"", none, "./zabor.yaml"},
	} {
		if got, err := Find(test.flag, test.lookup); err != nil || got != test.want {
			t.Errorf("Find(%q)=%q, %v; want %q", test.flag, got, err, test.want)
		}
	}
	if _, err := Load("gone.yaml", Env{}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("error %v, want fs.ErrNotExist", err)
	}
}

func TestNearest(t *testing.T) {
	names := []string{"retry_after", "redeliver_timeout", "prefix", "db"}
	for in, want := range map[string]string{
		"retry_aftr": "retry_after", "retryafter": "retry_after", "Retry_After": "retry_after", "prefxi": "prefix",
		"reserve": "", "d": "db", "xy": "", "redeliver-timeout": "redeliver_timeout", "": "",
	} {
		if got := nearest(in, names); got != want {
			t.Errorf("nearest(%q)=%q, want %q", in, got, want)
		}
	}
}

// A file costs no more than its length: neither depth nor a pipe that never ends.
func TestFilesWithoutBounds(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"lists":         "fence: " + strings.Repeat("[", 20000) + strings.Repeat("]", 20000) + "\n",
		"maps":          "fence: " + strings.Repeat("{a: ", 5000) + "1" + strings.Repeat("}", 5000) + "\n",
		"dashes":        "fence:\n  " + strings.Repeat("- ", 20000) + "x\n",
		"lists, quoted": "fence: " + strings.Repeat("[']', ", 200) + "x" + strings.Repeat("]", 200) + "\n",
	} {
		if _, err := Parse("zabor.yaml", []byte(text), Env{}); err == nil || !strings.Contains(err.Error(), "within each other") {
			t.Errorf("%s: %.200v", name, err)
		}
	}
	brackets := "# [[ {{\nfence: \"sqlite:///f.db\" # " + strings.Repeat("[", 100) + "\nbackoff: [1s]\n"
	if _, err := Parse("zabor.yaml", []byte(brackets), Env{}); err != nil {
		t.Errorf("brackets in comments: %v", err)
	}
	dir := t.TempDir()
	pipe, long := filepath.Join(dir, "pipe"), filepath.Join(dir, "long")
	if err := unix.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(long, make([]byte, maxFile+1), 0o600); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{pipe: "is no regular file", long: "at most 1048576"} {
		if _, err := Load(path, Env{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", path, err, want)
		}
	}
}

// A secret that every user of the machine may read is a warning.
func TestReadableSecrets(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(file, []byte("0123456789abcdef0123456789abcdef\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for mode, want := range map[os.FileMode]bool{0o600: false, 0o640: false, 0o644: true} {
		if err := os.Chmod(file, mode); err != nil {
			t.Fatal(err)
		}
		c, err := Parse("zabor.yaml", []byte("fence: 'sqlite:///f.db'\nencryption_key: '${ZABOR_KEY}'\n"), environment(map[string]string{"ZABOR_KEY_FILE": file}))
		if err != nil {
			t.Fatal(err)
		}
		if got := Errors(c.Warnings()).Error(); strings.Contains(got, "chmod 600 "+file) != want {
			t.Errorf("%o: %q, want a warning: %v", mode, got, want)
		}
	}
}

// Mistakes that people make are told in our words, each at its line and with a way out.
func TestCommonMistakes(t *testing.T) {
	t.Parallel()
	const file = `fence: "sqlite:///f.db"
redis: "redis://127.0.0.1:6379/0"
queues:
  payments: {laravel: {connection: redis, prefix: p_, retry_after: 90s}}
providers:
  stripe: {profile: stripe, secret: sk_live_abcdefghijklmnop}
  acquirer:
    profile: custom
    base_url: https://pay.example.com
    key: {header: Idempotency-Key, life: 24h, replays: all}
    reference: /id
    settled: {pointer: /status, values: [paid]}
    lookup: {path: "/p?r={{provider_key}}", items: /data, absent_after: 1m}
steps:
  charge:
    message: 'App\Jobs\X'
    order: orderId
    amount: amount
    currency: EUR
    provider: acquirer
    request: {path: /p, json: {amount: "{{minor}}"}}
    settled: "UPDATE orders SET s = :reference WHERE id = :order AND o = :orderId"
`
	for _, tt := range []struct{ old, new, want string }{
		{"sk_live", "pk_live", "zabor.yaml:6:37: providers.stripe.secret: this is the publishable key"},
		{"currency: EUR", "currency: EURO", "zabor.yaml:19:15: steps.charge.currency: EURO is no currency of ISO 4217"},
		{"{{minor}}", "{{amount}}", "zabor.yaml:21:40: steps.charge.request.json.amount: {{amount}} is unknown: write {{.amount}} for a property"},
		{":reference", ":ref", "did you mean :reference?"},
		{":order ", ":order_id ", "did you mean :order?"},
		{"    reference: /id", "    reference:/id", "zabor.yaml:11:5: not YAML: a key without a colon and a blank behind it: write KEY: VALUE"},
		{"  charge:\n", "\tcharge:\n", "zabor.yaml:15:1: not YAML: a tab stands where the line is indented: indent by blanks"},
		{"    order: orderId", "   order: orderId", "zabor.yaml:17:4: not YAML: the line is indented by fewer or more blanks"},
		{"'App\\Jobs\\X'", "'App\\Jobs\\X", "not YAML: a quote is not closed"},
		{"values: [paid]", "values: [paid", "not YAML: a list or a map is not closed"},
		{`path: /p, json: {amount: "{{minor}}"}`, `path: /p, json: {amount: {{minor}}}`, "not YAML"},
	} {
		text := strings.Replace(file, tt.old, tt.new, 1)
		if text == file {
			t.Fatalf("%q is not in the file", tt.old)
		}
		c, err := Parse("zabor.yaml", []byte(text), Env{})
		if err == nil {
			err = Errors(c.Warnings())
		}
		if !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s:\n%v\nwant %s", tt.new, err, tt.want)
		}
	}
	c, err := Parse("zabor.yaml", []byte(file), Env{})
	if err != nil {
		t.Fatal(err)
	}
	if got := Errors(c.Warnings()).Error(); strings.Contains(got, "did you mean") {
		t.Errorf("the file as it should be: %s", got)
	}
}

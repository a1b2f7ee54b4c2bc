package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// What init prints of an application passes config check, says where each value
// was found, and holds no secret.
func TestInit(t *testing.T) {
	t.Parallel()
	for shop, want := range map[string][]string{
		"laravel8": {
			`fence: "mysql://${DB_USERNAME}@${DB_HOST}:${DB_PORT}/${DB_DATABASE}"`, `redis: "redis://${REDIS_HOST}:${REDIS_PORT}/${REDIS_DB:-0}"`,
			`prefix: "shop_database_" # .env:1 (APP_NAME)`, `horizon: "shop_horizon:" # config/horizon.php:7`, `retry_after: 180s # config/queue.php:45`,
			`{prefix: "shop_database_shop_cache", db: 1}`, `# message: 'App\Jobs\ChargeOrder'`, `# order: order.id`, `# 'App\Jobs\SendLoginAlert': default`,
		},
		"laravel11": {`retry_after: 120s # .env:40 (REDIS_QUEUE_RETRY_AFTER)`, `timezone: "UTC" # .env:5 (APP_TIMEZONE)`, `# order: orderId`, `# amount: cents`},
		"symfony54": {
			`fence: "${DATABASE_URL}"`, `dsn: "${MESSENGER_TRANSPORT_DSN}?stream=shop&delete_after_ack=true"`, `redeliver_timeout: 300s # config/packages/messenger.yaml:11`,
			`failed: {queue_name: "failed"}`, `# message: 'App\Message\RefundOrder'`, `# order: orderId`,
		},
		"symfony7": {`dsn: "${MESSENGER_TRANSPORT_DSN}" # .env.local:2`, `redeliver_timeout: 300s # config/packages/messenger.yaml:20`, `'App\Enum\Currency': {Euro: "EUR", Dollar: "USD"} # src/Enum/Currency.php:5`},
	} {
		t.Run(shop, func(t *testing.T) {
			t.Parallel()
			folder := "../../doctor/testdata/" + shop + "/good"
			var out, log bytes.Buffer
			if code := run(t.Context(), []string{"init", folder}, &out, &log); code != exitGood {
				t.Fatalf("exit %d\n%s", code, log.String())
			}
			flat := strings.Join(strings.Fields(out.String()), " ")
			for _, text := range want {
				if !strings.Contains(flat, text) {
					t.Errorf("no %s in\n%s", text, out.String())
				}
			}
			for _, secret := range []string{"s3cret", "secret@", "8d2f37a1c64b0e95"} {
				if strings.Contains(out.String(), secret) {
					t.Errorf("%q is printed", secret)
				}
			}
			file, env := filepath.Join(t.TempDir(), "zabor.yaml"), filepath.Join(t.TempDir(), "env")
			if err := os.WriteFile(file, out.Bytes(), 0o600); err != nil {
				t.Fatal(err)
			}
			var variables []byte
			for _, name := range []string{".env", ".env.local"} {
				content, _ := os.ReadFile(filepath.Join(folder, name)) // not every shop has both
				variables = append(append(variables, content...), '\n')
			}
			if err := os.WriteFile(env, variables, 0o600); err != nil {
				t.Fatal(err)
			}
			var checked bytes.Buffer
			if code := run(t.Context(), []string{"config", "check", "-c", file, "--env-file", env}, &checked, &log); code != exitGood {
				t.Errorf("config check: exit %d\n%s%s\n%s", code, checked.String(), log.String(), out.String())
			}
		})
	}
}

// A DSN that is written out in messenger.yaml loses its password.
func TestInitSecrets(t *testing.T) {
	t.Parallel()
	for dsn, want := range map[string]string{
		"redis://:p%40ss@h:6379/s":      `"redis://:${REDIS_PASSWORD}@h:6379/s"`,
		"redis://p%40ss@h:6379/s":       `"redis://${REDIS_PASSWORD}@h:6379/s"`,
		"redis://u:p%40ss@h:6379/s":     `"redis://u:${REDIS_PASSWORD}@h:6379/s"`,
		"redis://h:6379/s?auth=p%40ss":  `"redis://h:6379/s?auth=${REDIS_PASSWORD}"`,
		"redis://%env(P)%@h:6379/s":     `"redis://${P}@h:6379/s"`,
		"redis://u:%env(P)%@h/s?lazy=1": `"redis://u:${P}@h/s?lazy=1"`,
	} {
		folder := t.TempDir()
		for name, content := range map[string]string{
			"composer.json": `{"require": {"symfony/messenger": "7.2.*"}}`, ".env": "APP_ENV=prod\nP=hidden\n",
			"config/packages/messenger.yaml": "framework:\n    messenger:\n        transports:\n            a: '" + dsn + "'\n",
		} {
			path := filepath.Join(folder, name)
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		var out, log bytes.Buffer
		if code := run(t.Context(), []string{"init", folder}, &out, &log); code != exitGood {
			t.Fatalf("exit %d\n%s", code, log.String())
		}
		if !strings.Contains(out.String(), "dsn: "+want) || strings.Contains(out.String(), "p%40ss") || strings.Contains(out.String(), "hidden") {
			t.Errorf("%s: want %s in\n%s", dsn, want, out.String())
		}
	}
}

package config

import (
	"os"
	"regexp"
	"testing"
)

// Each block of docs/recipes.md is a valid file, with a queue and a database beside it.
func TestRecipes(t *testing.T) {
	page, err := os.ReadFile("../../docs/recipes.md")
	if err != nil {
		t.Fatal(err)
	}
	const shop = `scope: shop
fence: "sqlite:///var/lib/zabor/fence.db"
redis: "redis://127.0.0.1:6379/0"
queues: {payments: {laravel: {connection: redis, prefix: laravel_database_, retry_after: 300s}}}
`
	variables := map[string]string{}
	for _, name := range regexp.MustCompile(`\$\{(\w+)\}`).FindAllSubmatch(page, -1) {
		variables[string(name[1])] = "sk_test_1234567890"
	}
	recipes := regexp.MustCompile("(?s)```yaml recipe\n(.*?)```").FindAllSubmatch(page, -1)
	if len(recipes) != 6 {
		t.Errorf("%d recipes", len(recipes))
	}
	for _, recipe := range recipes {
		file, err := Parse("zabor.yaml", append([]byte(shop), recipe[1]...), environment(variables))
		if err != nil {
			t.Errorf("%v\n%s", err, recipe[1])
			continue
		}
		for name := range file.Providers {
			if _, ok := file.Profile(name); !ok {
				t.Errorf("%s has no profile", name)
			}
		}
	}
}

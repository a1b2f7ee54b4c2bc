package provider_test

import (
	"flag"
	"os"
	"strings"
	"testing"

	"zabor/provider"
)

var update = flag.Bool("update", false, "write the tables of the manual anew")

// The manual has the tables as the profiles are.
func TestManual(t *testing.T) {
	const file, end = "../docs/providers.md", "<!-- End of the tables. -->\n"
	const begin = "<!-- Written by go test ./provider -run TestManual -update, from provider/profiles. -->\n"
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(data), begin)
	have, after, ends := strings.Cut(rest, end)
	if !ok || !ends {
		t.Fatalf("%s has no place for the tables", file)
	}
	want := "\n"
	for _, b := range provider.Builtins() {
		want += b.Markdown()
	}
	if *update {
		if err := os.WriteFile(file, []byte(before+begin+want+end+after), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if have != want {
		t.Errorf("%s is not as the profiles are; write its tables with: go test ./provider -run TestManual -update", file)
	}
}

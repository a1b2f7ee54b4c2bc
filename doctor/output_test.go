package doctor

import (
	"bytes"
	"path/filepath"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// The SARIF output is what its schema demands, and has every finding.
func TestSARIF(t *testing.T) {
	t.Parallel()
	schema, err := jsonschema.NewCompiler().Compile("testdata/sarif-schema-2.1.0.json") // of OASIS, as published
	if err != nil {
		t.Fatal(err)
	}
	found := Examine(open(t, "testdata/symfony7/bad"), Options{Zabor: true})
	found = append(found, Finding{Code: "ZB133", Severity: Error, Where: "Redis 127.0.0.1:6379", Found: "evicts", Fix: "noeviction"})
	for _, findings := range [][]Finding{nil, found} {
		var out bytes.Buffer
		if err := (Report{Findings: findings}).SARIF(&out, "1.2.3"); err != nil {
			t.Fatal(err)
		}
		document, err := jsonschema.UnmarshalJSON(&out)
		if err != nil {
			t.Fatal(err)
		}
		if err := schema.Validate(document); err != nil {
			t.Errorf("not SARIF 2.1.0: %v", err)
		}
		run := document.(map[string]any)["runs"].([]any)[0].(map[string]any)
		if got, want := len(run["results"].([]any)), len(findings); got != want {
			t.Errorf("%d results, want %d", got, want)
		}
		driver := run["tool"].(map[string]any)["driver"].(map[string]any)
		if got, want := len(driver["rules"].([]any)), len(Rules()); got != want {
			t.Errorf("%d rules, want %d", got, want)
		}
	}
}

// A baseline holds findings whose lines move, and not new ones beside them.
func TestBaseline(t *testing.T) {
	t.Parallel()
	old := []Finding{
		{Code: "ZB150", Where: "a.php", Line: 3, Found: "x", Excerpt: "  $a->charge();"},
		{Code: "ZB150", Where: "a.php", Line: 9, Found: "x", Excerpt: "  $a->charge();"},
		{Code: "ZB133", Where: "Redis", Found: "evicts"},
	}
	path := filepath.Join(t.TempDir(), "known.json")
	if err := NewBaseline(old).Write(path); err != nil {
		t.Fatal(err)
	}
	known, err := ReadBaseline(path)
	if err != nil {
		t.Fatal(err)
	}
	next := []Finding{
		{Code: "ZB150", Where: "a.php", Line: 30, Found: "x", Excerpt: "$a->charge();"},
		{Code: "ZB150", Where: "a.php", Line: 31, Found: "x", Excerpt: "$a->charge();"},
		{Code: "ZB150", Where: "a.php", Line: 32, Found: "x", Excerpt: "$a->charge();"},
		{Code: "ZB151", Where: "a.php", Line: 30, Found: "x", Excerpt: "$a->charge();"},
		{Code: "ZB133", Where: "Redis", Found: "evicts"},
	}
	left, n := known.Without(next)
	if n != 3 || len(left) != 2 || left[0].Line != 32 || left[1].Code != "ZB151" {
		t.Errorf("%d known, left %v", n, left)
	}
	if _, err := ReadBaseline(path + ".not"); err == nil {
		t.Error("a baseline that is not there is taken for an empty one")
	}
}

// No secret of an application is in what is printed.
func TestSecrets(t *testing.T) {
	t.Parallel()
	for _, shop := range []string{"symfony7", "symfony54"} {
		p := open(t, "testdata/"+shop+"/bad")
		var out bytes.Buffer
		r := Report{Findings: Examine(p, Options{Zabor: true}), Values: Values(p)}
		if err := r.Text(&out, true); err != nil {
			t.Fatal(err)
		}
		if err := r.SARIF(&out, ""); err != nil {
			t.Fatal(err)
		}
		for _, secret := range []string{"s3cret", "8d2f37a1c64b0e951a7c3df2b6408e19", "shop:secret"} {
			if strings.Contains(out.String(), secret) {
				t.Errorf("%s: %q is printed", shop, secret)
			}
		}
	}
}

package php

import (
	"bytes"
	"encoding/json"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"zabor/internal/servers"
)

// bodies are recorded serializations by file name, those of this package and the
// commands in the payloads that Laravel wrote, chained ones included.
func bodies(t testing.TB) map[string][]byte {
	t.Helper()
	m := commands(t)
	files, err := filepath.Glob("testdata/bodies/*.ser")
	if err != nil || len(files) == 0 {
		t.Fatalf("no recorded bodies: %v", err)
	}
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		m[filepath.Base(f)] = b
	}
	return m
}

func commands(t testing.TB) map[string][]byte {
	t.Helper()
	files, err := filepath.Glob("../../laravel/testdata/payloads/*.json")
	if err != nil || len(files) == 0 {
		t.Fatalf("no recorded payloads: %v", err)
	}
	m := map[string][]byte{}
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		var p struct{ Data json.RawMessage }
		var class struct{ Command string }
		if json.Unmarshal(b, &p) != nil || json.Unmarshal(p.Data, &class) != nil || !strings.HasPrefix(class.Command, "O:") {
			continue // a string job, or an encrypted one
		}
		m[filepath.Base(f)] = []byte(class.Command)
		v, err := Unmarshal([]byte(class.Command))
		if err != nil {
			t.Fatalf("%s: %v", f, err)
		}
		chained, _ := v.(*Object).Prop("chained")
		if list, ok := chained.(*Array); ok {
			for i, it := range list.Items {
				m[filepath.Base(f)+" chained "+strconv.Itoa(i)] = []byte(it.Value.(String))
			}
		}
	}
	return m
}

// PHP reads what is written back as what it wrote, also where something was put in
// front, which moves every back-reference.
func TestPHPReadsWhatIsWrittenBack(t *testing.T) {
	program := servers.Need(t, "php", "php-cli")
	type pair struct {
		Was []byte `json:"was"`
		Now []byte `json:"now"`
		In  string `json:"in"`
	}
	var names []string
	var pairs []pair
	for name, b := range bodies(t) {
		v, err := Unmarshal(b)
		if err != nil {
			t.Fatal(err)
		}
		same, err := Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		names, pairs = append(names, name), append(pairs, pair{b, same, ""})
		front := &Object{Class: "Front", Items: []Item{{String("a"), Int(1)}, {String("b"), &Array{Items: []Item{{Int(0), Null{}}}}}}}
		moved, err := Marshal(&Array{Items: []Item{{Int(0), front}, {Int(1), v}}})
		if err != nil {
			continue // it cannot be moved, and Marshal says so
		}
		names, pairs = append(names, name+", moved"), append(pairs, pair{b, moved, "1"})
	}
	input, err := json.Marshal(pairs)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program, "testdata/equal.php")
	cmd.Stdin = bytes.NewReader(input)
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("equal.php: %v\n%s", err, out)
	}
	answers := strings.Fields(string(out))
	if len(answers) != len(names) {
		t.Fatalf("%d answers to %d pairs", len(answers), len(names))
	}
	equal := 0
	for i, name := range names {
		switch answers[i] {
		case "equal":
			equal++
		case "unread": // it has a case of an enum that is not there, or an object with PHP's old Serializable
		default:
			t.Errorf("%s: PHP reads something else\nwas %q\nnow %q", name, pairs[i].Was, pairs[i].Now)
		}
	}
	if equal < len(names)*2/3 {
		t.Errorf("PHP could compare %d of %d", equal, len(names))
	}
}

func TestRecordedBodiesAreWrittenBackByteByByte(t *testing.T) {
	for name, b := range bodies(t) {
		t.Run(name, func(t *testing.T) {
			v, err := Unmarshal(b)
			if err != nil {
				t.Fatal(err)
			}
			got, err := Marshal(v)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(got, b) {
				t.Fatalf("written back differently:\n got %q\nwant %q", got, b)
			}
		})
	}
}

func mustUnmarshal(t *testing.T, s string) Value {
	t.Helper()
	v, err := Unmarshal([]byte(s))
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func TestUnmarshalRefuses(t *testing.T) {
	deep := strings.Repeat("a:1:{i:0;", MaxDepth+1) + "N;" + strings.Repeat("}", MaxDepth+1)
	for _, tt := range []struct{ name, in, want string }{
		{"nothing", "", "ends in the middle"},
		{"cut string", `s:9:"abc";`, "ends in the middle"},
		{"length in characters, not bytes", `s:3:"Zoë";`, `"\"" is missing`},
		{"rest", "i:1;i:2;", "4 bytes follow"},
		{"int overflow", "i:9223372036854775808;", "64 bits"},
		{"int with sign", "i:+5;", "as PHP writes it"},
		{"bool", "b:2;", "neither 0 nor 1"},
		{"float", "d:0x10;", "not a float"},
		{"float words", "d:nan;", "not a float"},
		{"length", "a:-1:{}", "not a length"},
		{"length of many", "a:99999999999:{}", "not a length"},
		{"fewer items", "a:2:{i:0;N;}", "neither an integer nor a string"},
		{"key", "a:1:{b:1;N;}", "neither an integer nor a string"},
		{"escaped string", `S:1:"\41";`, "not supported"},
		{"enum without case", `E:3:"Foo";`, "not class:case"},
		{"class", `O:0:"":0:{}`, "without a class"},
		{"reference to nothing", "a:1:{i:0;R:9;}", "not there"},
		{"reference zero", "a:1:{i:0;r:0;}", "not there"},
		{"reference to itself", "a:1:{i:0;r:2;}", "refers to itself"},
		{"object reference to an int", "a:2:{i:0;i:1;i:1;r:2;}", "not refer to an object"},
		{"reference past an opaque object", `a:3:{i:0;C:1:"A":0:{}i:1;O:1:"B":0:{}i:2;r:3;}`, "numbers values in a way of its own"},
		{"deep", deep, "inside each other"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			v, err := Unmarshal([]byte(tt.in))
			if err == nil {
				t.Fatalf("no error, value %#v", v)
			}
			if !strings.Contains(err.Error(), tt.want) {
				t.Fatalf("error %q, want %q in it", err, tt.want)
			}
		})
	}
}

func TestReferencesAreResolved(t *testing.T) {
	v := mustUnmarshal(t, `a:5:{i:0;O:1:"A":0:{}i:1;r:2;i:2;i:7;i:3;R:4;i:4;E:3:"S:A";}`)
	items := v.(*Array).Items
	if items[0].Value != items[1].Value {
		t.Error("r: gave another object")
	}
	if a, b := items[2].Value.(*Ref), items[3].Value.(*Ref); a != b || a.Value != Int(7) {
		t.Errorf("R: gave %v and %v", a, b)
	}
	if got, want := items[4].Value, (Enum{"S", "A"}); got != want {
		t.Errorf("enum %v, want %v", got, want)
	}
}

// A value put in front shifts every number behind it.
func TestReferencesAreNumberedAnew(t *testing.T) {
	v := mustUnmarshal(t, `a:3:{s:1:"a";O:1:"A":0:{}s:1:"b";a:2:{i:0;i:1;i:1;R:4;}s:1:"c";r:2;}`).(*Array)
	stamp := &Object{Class: "Stamp", Items: []Item{{String("n"), Int(5)}}}
	v.Items = append([]Item{{String("s"), stamp}}, v.Items...)
	got, err := Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	want := `a:4:{s:1:"s";O:5:"Stamp":1:{s:1:"n";i:5;}s:1:"a";O:1:"A":0:{}s:1:"b";a:2:{i:0;i:1;i:1;R:6;}s:1:"c";r:4;}`
	if string(got) != want {
		t.Fatalf("got  %s\nwant %s", got, want)
	}
}

func TestMarshalRefuses(t *testing.T) {
	loop := &Array{}
	loop.Items = []Item{{Int(0), loop}}
	moved := mustUnmarshal(t, `a:1:{i:0;C:1:"A":4:{r:1;}}`).(*Array)
	moved.Items = append([]Item{{String("x"), Null{}}}, moved.Items...)
	for name, v := range map[string]Value{
		"nil":              nil,
		"nil inside":       &Array{Items: []Item{{Key: Int(0)}}},
		"key":              &Array{Items: []Item{{Bool(true), Null{}}}},
		"float":            Float("1e"),
		"enum":             Enum{"A", ""},
		"class":            &Object{},
		"reference twice":  &Ref{&Ref{Null{}}},
		"array in itself":  loop,
		"moved and opaque": moved,
	} {
		if b, err := Marshal(v); err == nil {
			t.Errorf("%s: no error, wrote %q", name, b)
		}
	}
}

func TestPlain(t *testing.T) {
	v := mustUnmarshal(t, "O:9:\"App\\Order\":9:{s:2:\"id\";i:9223372036854775807;s:8:\"\x00*\x00state\";E:3:\"S:A\";"+
		"s:17:\"\x00App\\Order\x00secret\";s:3:\"a\x00b\";s:4:\"list\";a:2:{i:0;d:0.1;i:1;b:1;}s:3:\"map\";a:2:{i:1;N;s:1:\"x\";a:0:{}}"+
		"s:1:\"o\";O:8:\"stdClass\":1:{i:0;i:1;}s:4:\"same\";r:11;s:1:\"c\";C:1:\"A\":1:{x}s:1:\"r\";R:2;}")
	got, err := Plain(v)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]any{
		"id": int64(math.MaxInt64), "state": Enum{"S", "A"}, "secret": "a\x00b",
		"list": []any{0.1, true}, "map": map[string]any{"1": nil, "x": []any{}},
		"o": map[string]any{"0": int64(1)}, "same": map[string]any{"0": int64(1)},
		"c": map[string]any{}, "r": int64(math.MaxInt64),
	}
	if !reflect.DeepEqual(got, want) {
		t.Fatalf("got  %#v\nwant %#v", got, want)
	}
}

func TestPlainRefuses(t *testing.T) {
	bomb := strings.Repeat(`O:1:"A":2:{s:1:"a";`, 40) + `O:1:"A":0:{}`
	for n := 41; n > 1; n-- {
		bomb += `s:1:"b";r:` + strconv.Itoa(n) + `;}`
	}
	for _, tt := range []struct{ name, in, want string }{
		{"private twice", "O:1:\"B\":2:{s:4:\"\x00A\x00v\";i:1;s:4:\"\x00B\x00v\";i:2;}", `two values of the name "v"`},
		{"key twice", `a:3:{s:1:"k";i:1;i:5;i:1;s:1:"5";i:2;}`, `two values of the name "5"`},
		{"property name", "O:1:\"B\":1:{s:2:\"\x00A\";i:1;}", "not a property's name"},
		{"object in itself", `O:1:"A":1:{s:1:"a";r:1;}`, "holds itself"},
		{"array in itself", `a:1:{i:0;a:1:{i:0;R:2;}}`, "holds itself"},
		{"doubling 40 times", bomb, "more than"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			v, err := Plain(mustUnmarshal(t, tt.in))
			if err == nil {
				t.Fatalf("no error, %v", v)
			}
			if !strings.Contains(err.Error(), tt.want) {
				t.Fatalf("error %q, want %q in it", err, tt.want)
			}
		})
	}
}

func TestProp(t *testing.T) {
	o := mustUnmarshal(t, "O:1:\"B\":5:{s:4:\"\x00A\x00v\";i:1;s:4:\"\x00B\x00v\";i:2;s:1:\"x\";i:3;s:4:\"\x00*\x00y\";R:4;i:0;N;}").(*Object)
	for _, tt := range []struct {
		name string
		want Value
		ok   bool
	}{
		{"v", nil, false}, // two of them
		{"x", Int(3), true},
		{"y", Int(3), true},
		{"z", nil, false},
		{"0", nil, false},
	} {
		if got, ok := o.Prop(tt.name); got != tt.want || ok != tt.ok {
			t.Errorf("Prop(%q) = %v, %v, want %v, %v", tt.name, got, ok, tt.want, tt.ok)
		}
	}
}

// What Unmarshal accepts, Marshal writes so that it unmarshals equal.
func FuzzUnmarshal(f *testing.F) {
	for _, b := range bodies(f) {
		f.Add(b)
	}
	for _, s := range []string{
		`a:4:{i:0;O:1:"A":0:{}i:1;r:2;i:2;R:2;i:3;R:3;}`, `a:2:{i:0;a:1:{i:0;R:2;}i:1;R:1;}`, `a:2:{i:0;E:3:"S:A";i:1;E:3:"S:A";}`,
		`C:1:"A":4:{r:1;}`, "d:-0;", "i:-1;", "a:1:{i:0;R:1;}", `a:2:{i:0;r:1;i:1;R:2;}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		v, err := Unmarshal(in)
		if err != nil {
			return
		}
		out, err := Marshal(v)
		if err != nil {
			t.Fatalf("read but not written: %v", err)
		}
		again, err := Unmarshal(out)
		if err != nil {
			t.Fatalf("written as %q and not read: %v", out, err)
		}
		if !reflect.DeepEqual(v, again) {
			t.Fatalf("%q was read as\n%#v, its copy %q as\n%#v", in, v, out, again)
		}
		if twice, err := Marshal(again); err != nil || !bytes.Equal(twice, out) {
			t.Fatalf("written as %q and then as %q, error %v", out, twice, err)
		}
		Plain(v)
	})
}

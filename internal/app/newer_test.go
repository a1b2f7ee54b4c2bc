package app

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Syntax of PHP 8.1 to 8.5, each in a class whose method calls something: the call
// is found, or the file is told to be not understood.
func TestNewerPHP(t *testing.T) {
	t.Parallel()
	_, err := exec.LookPath("php")
	linted := err == nil
	for _, tt := range []struct{ name, since, php string }{
		{"enum cases named like keywords", "8.1", "enum E: string { case STATIC = 's'; case Default = 'd'; case ENUM = 'e'; case Match = 'm'; case Readonly = 'r'; case Print = 'p'; case New = 'n'; CALL }"},
		{"pure enum cases named like keywords", "8.1", "enum E { case STATIC; case Default; case Abstract; case List; case Array; CALL }"},
		{"a class that extends Enum", "8.1", "class E extends Enum { CALL }"},
		{"a class that extends \\Spatie\\Enum\\Enum", "8.1", "use Spatie\\Enum\\Enum; final class E extends Enum { CALL }"},
		{"a name of Enum", "8.1", "class E { public function f(Enum $x): ?Enum { return Enum::from($x); } CALL }"},
		{"a class of the name Readonly's kin", "8.1", "class E { public function match() {} public function enum() {} public function readonly() {} CALL }"},
		{"readonly properties", "8.1", "class E { public function __construct(public readonly int $a, protected readonly ?string $b = null) {} CALL }"},
		{"first-class callables", "8.1", "class E { function f() { return array_map(strlen(...), $this->g(...)); } CALL }"},
		{"intersections", "8.1", "class E { function f(A&B $x): never { exit; } CALL }"},
		{"new in initializers", "8.1", "class E { function __construct(private Log $l = new Log('x')) {} CALL }"},
		{"final constants", "8.1", "class E { final public const A = 1; CALL }"},
		{"octals", "8.1", "class E { const A = 0o17; CALL }"},
		{"readonly classes", "8.2", "final readonly class E { CALL }"},
		{"readonly classes, first", "8.2", "readonly final class E { CALL }"},
		{"unions of intersections", "8.2", "class E { function f((A&B)|null $x) {} CALL }"},
		{"true, false and null as types", "8.2", "class E { function f(): true { return true; } function g(): null { return null; } function h(): false { return false; } CALL }"},
		{"constants of traits", "8.2", "trait E { public const A = 1; CALL }"},
		{"typed constants", "8.3", "class E { public const string A = 'a'; final protected const ?int B = 1; const A|B C = D; CALL }"},
		{"constants fetched by name", "8.3", "class E { function f($n) { return Foo::{$n}; } CALL }"},
		{"anonymous readonly classes", "8.3", "class E { function f() { return new readonly class { }; } CALL }"},
		{"initial values of static variables", "8.3", "class E { function f() { static $x = g(); } CALL }"},
		{"property hooks", "8.4", "class E { public string $a { get => $this->b; set(string $v) { $this->b = trim($v); } } private string $b = ''; CALL }"},
		{"hooks of promoted properties", "8.4", "class E { public function __construct(public string $a { set => strtolower($value); }, private int $c = 1) {} CALL }"},
		{"hooks of interfaces", "8.4", "interface I { public string $a { get; } } class E { CALL }"},
		{"visibility of writing", "8.4", "class E { public private(set) string $a = ''; protected(set) int $b; public function __construct(public protected(set) int $c) {} CALL }"},
		{"new without parentheses", "8.4", "class E { function f() { return new Foo()->bar(); } CALL }"},
		{"the pipe", "8.5", "class E { function f($x) { return $x |> trim(...) |> strtoupper(...); } CALL }"},
		{"clone with", "8.5", "class E { function f($x) { return clone($x, ['a' => 1]); } CALL }"},
		{"void casts", "8.5", "class E { function f() { (void) g(); } CALL }"},
		{"final promoted properties", "8.5", "class E { function __construct(final public int $a) {} CALL }"},
		{"attributes of constants", "8.5", "#[\\Deprecated] const A = 1; class E { CALL }"},
		{"closures in constants", "8.5", "class E { const A = static function () { return 1; }; CALL }"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			text := "<?php\nnamespace App;\n" + strings.Replace(tt.php, "CALL", "public function zz(\\Stripe\\StripeClient $s) { $s->charges->create(['a' => 1]); }", 1) + "\n"
			if linted && tt.since <= "8.2" { // of the PHP that is installed
				file := filepath.Join(t.TempDir(), "x.php")
				if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
				if out, err := exec.Command("php", "-l", file).CombinedOutput(); err != nil {
					t.Fatalf("PHP itself does not take it: %s", out)
				}
			}
			s := parsePHP("x.php", []byte(text))
			if len(s.broken) > 0 {
				t.Fatalf("not understood: %+v", s.broken)
			}
			for _, c := range s.classes() {
				if m := c.Method("zz"); m != nil && len(m.Calls) == 1 && m.Calls[0].Name == "create" && c.Name == `App\E` {
					if strings.Contains(tt.php, "extends Enum") && Short(c.Extends) != "Enum" {
						t.Errorf("extends %s", c.Extends)
					}
					return
				}
			}
			t.Error("the call was not found")
		})
	}
}

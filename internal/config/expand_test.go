package config

import (
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestExpand(t *testing.T) {
	env := environment(map[string]string{"A": "one", "EMPTY": "", "TWICE": "${A}$$", "UNICODE": "é€"})
	for _, test := range []struct{ in, want, says string }{
		{"", "", ""},
		{"plain", "plain", ""},
		{"${A}", "one", ""},
		{"x${A}y${A}", "xoneyone", ""},
		{"${EMPTY}", "", ""},
		{"${EMPTY:-two}", "two", ""},
		{"${NONE:-two}", "two", ""},
		{"${NONE:-}", "", ""},
		{"${A:-two}", "one", ""},
		{"${NONE:-127.0.0.1:9464}", "127.0.0.1:9464", ""},
		{"${NONE:-a:-b}", "a:-b", ""},
		{"${NONE:-$}", "$", ""},
		{"$$", "$", ""},
		{"$${A}", "${A}", ""},
		{"$$$${A}", "$${A}", ""},
		{"$$${A}", "$one", ""},
		{"$A", "$A", ""},
		{"$1 and $", "$1 and $", ""},
		{"${TWICE}", "${A}$$", ""}, // put in once
		{"${UNICODE}", "é€", ""},
		{"${NONE}", "", "NONE is not set: set it, or NONE_FILE"},
		{"${", "", "${ has no closing brace"},
		{"${A", "", "${ has no closing brace"},
		{"${}", "", `"" is not a name`},
		{"${a b}", "", `"a b" is not a name`},
		{"${A-two}", "", `"A-two" is not a name`},
		{"${1A}", "", `"1A" is not a name`},
		{"${A:?text}", "", `"A:?text" is not a name`},
	} {
		got, err := expand(test.in, env, nil)
		if test.says != "" {
			if err == nil || !strings.Contains(err.Error(), test.says) {
				t.Errorf("%q became %q, error %v; want %q", test.in, got, err, test.says)
			}
		} else if err != nil || got != test.want {
			t.Errorf("%q became %q, %v; want %q", test.in, got, err, test.want)
		}
	}
}

func TestExpandWithinAnAddress(t *testing.T) {
	env := environment(map[string]string{
		"USER": "shop@eu", "PASSWORD": "p:a/s?s#w@r d%é", "HOST": "db.example", "IP6": "::1", "SOCKET": "/run/my db.sock",
		"BAD": "db/other", "WHOLE": "mysql://u:p%40@h/d", "DIR": "/var/lib/za bor", "NAME": "a&b=c",
	})
	for _, test := range []struct{ in, want, says string }{
		{"mysql://${USER}:${PASSWORD}@${HOST}:${PORT:-3306}/${NAME}", "mysql://shop%40eu:p%3Aa%2Fs%3Fs%23w%40r%20d%25%C3%A9@db.example:3306/a%26b%3Dc", ""},
		{"${WHOLE}", "mysql://u:p%40@h/d", ""},
		{"${WHOLE}?x=${NAME}", "mysql://u:p%40@h/d?x=a%26b%3Dc", ""},
		{"redis://${HOST}:6379/0", "redis://db.example:6379/0", ""},
		{"redis://${IP6}:6379/0", "redis://[::1]:6379/0", ""},
		{"redis://[${IP6}]:6379/0", "redis://[::1]:6379/0", ""},
		{"redis://:${PASSWORD}@${HOST}", "redis://:p%3Aa%2Fs%3Fs%23w%40r%20d%25%C3%A9@db.example", ""},
		{"redis://${BAD}/0", "", "the value of BAD holds a sign that no host or port has"},
		{"redis://${HOST}/messages?auth=${PASSWORD}", "redis://db.example/messages?auth=p%3Aa%2Fs%3Fs%23w%40r%20d%25%C3%A9", ""},
		{"unix://${SOCKET}", "unix:///run/my%20db.sock", ""},
		{"sqlite://${DIR}/fence.db", "sqlite:///var/lib/za%20bor/fence.db", ""},
		{"sqlite:///srv/${NAME}.db", "sqlite:///srv/a%26b%3Dc.db", ""},
		{"postgres:///shop?host=${DIR}", "postgres:///shop?host=%2Fvar%2Flib%2Fza%20bor", ""},
	} {
		got, err := expand(test.in, env, inAddress)
		if test.says != "" {
			if err == nil || !strings.Contains(err.Error(), test.says) {
				t.Errorf("%q became %q, error %v; want %q", test.in, got, err, test.says)
			}
			continue
		}
		if err != nil || got != test.want {
			t.Errorf("%q became %q, %v; want %q", test.in, got, err, test.want)
		}
		if _, err := url.Parse(got); err != nil {
			t.Errorf("%q became %q: %v", test.in, got, err)
		}
	}
}

// A value stays a value in a template, whatever it holds.
func TestExpandWithinATemplate(t *testing.T) {
	env := map[string]string{"TOKEN": "t", "ODD": "{{.secret}} {x} a/b?c#d"}
	file := change(t, `request: {path: /payments, json: {amount: "{{minor}}"}}`,
		`request: {path: "/${ODD}/{{order}}", json: {text: "${ODD}{{order}}"}}`)
	c, err := Parse("z", []byte(file), environment(env))
	if err != nil {
		t.Fatal(err)
	}
	spec := c.Steps["charge"].Request.spec()
	if got, want := spec.Path, "/%7B%7B.secret%7D%7D%20%7Bx%7D%20a%2Fb%3Fc%23d/{{order}}"; got != want {
		t.Errorf("path %s, want %s", got, want)
	}
	if got, want := spec.JSON.(map[string]any)["text"], `{{"{"}}{{"{"}}.secret}} {{"{"}}x} a/b?c#d{{order}}`; got != want {
		t.Errorf("text %s, want %s", got, want)
	}
}

func TestWhereAVariableComesFrom(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	file := write("secret", "of the file\n")
	lines := write("lines", "a\n\n")
	dos := write("dos", "a\r\n")
	write("CREDENTIAL", "of systemd\n")
	const gone = "/nonexistent/topsecret"
	for _, test := range []struct {
		name        string
		environment map[string]string
		dotenv      map[string]string
		variable    string
		want, says  string
	}{
		{"the environment", map[string]string{"A": "e"}, nil, "A", "e", ""},
		{"a file", map[string]string{"A_FILE": file}, nil, "A", "of the file", ""},
		{"only the last newline", map[string]string{"A_FILE": lines}, nil, "A", "a\n", ""},
		{"a newline of Windows", map[string]string{"A_FILE": dos}, nil, "A", "a", ""},
		{"a credential", map[string]string{"CREDENTIALS_DIRECTORY": dir}, nil, "CREDENTIAL", "of systemd", ""},
		{"dotenv", nil, map[string]string{"A": "d"}, "A", "d", ""},
		{"a file of dotenv", nil, map[string]string{"A_FILE": file}, "A", "of the file", ""},
		{"the environment wins", map[string]string{"A": "e"}, map[string]string{"A": "d"}, "A", "e", ""},
		{"an empty environment wins", map[string]string{"A": ""}, map[string]string{"A": "d"}, "A", "", ""},
		{"a file of the environment wins", map[string]string{"A_FILE": file}, map[string]string{"A": "d"}, "A", "of the file", ""},
		{"a credential wins over dotenv", map[string]string{"CREDENTIALS_DIRECTORY": dir}, map[string]string{"CREDENTIAL": "d"}, "CREDENTIAL", "of systemd", ""},
		{"two", map[string]string{"A": "topsecret", "A_FILE": file}, nil, "A", "", "A and A_FILE are both set: unset one of them"},
		{"a variable and a credential", map[string]string{"CREDENTIAL": "topsecret", "CREDENTIALS_DIRECTORY": dir}, nil, "CREDENTIAL", "", "CREDENTIAL and the file CREDENTIAL in $CREDENTIALS_DIRECTORY are both set"},
		{"a file and a credential", map[string]string{"CREDENTIAL_FILE": file, "CREDENTIALS_DIRECTORY": dir}, nil, "CREDENTIAL", "", "are both set"},
		{"two of dotenv", nil, map[string]string{"A": "d", "A_FILE": file}, "A", "", "are both set"},
		{"nowhere", map[string]string{"CREDENTIALS_DIRECTORY": dir}, nil, "A", "", "A is not set"},
		{"a file that is gone", map[string]string{"A_FILE": gone}, nil, "A", "", "A_FILE: the file cannot be read: no such file or directory"},
	} {
		t.Run(test.name, func(t *testing.T) {
			env := environment(test.environment)
			env.File = test.dotenv
			got, err := expand("${"+test.variable+"}", env, nil)
			if test.says == "" && (err != nil || got != test.want) {
				t.Fatalf("got %q, %v; want %q", got, err, test.want)
			}
			if test.says != "" && (err == nil || !strings.Contains(err.Error(), test.says)) {
				t.Fatalf("got %q, error %v; want %q", got, err, test.says)
			}
			if err != nil && strings.Contains(err.Error(), "topsecret") {
				t.Errorf("the error shows the value: %v", err)
			}
		})
	}
}

// Text without a dollar stays; a value goes in whole and is never looked at
// again; an address stays one address with the same host.
func FuzzExpand(f *testing.F) {
	for _, seed := range []string{"", "${A}", "$${A}", "a${A:-b}c", "${A", "$", "$$", "${A}${A}", "mysql://${A}:${A}@h/${A}?x=${A}", "unix://${A}", "h${A}@"} {
		f.Add(seed, "value")
		f.Add(seed, "${A}$$/:@?#{{")
	}
	f.Fuzz(func(t *testing.T, text, value string) {
		env := environment(map[string]string{"A": value})
		got, err := expand(text, env, nil)
		if err == nil && !strings.Contains(text, "$") && got != text {
			t.Errorf("%q became %q", text, got)
		}
		if whole, err := expand("<${A}>", env, nil); err != nil || whole != "<"+value+">" {
			t.Errorf("%q was put in as %q, %v", value, whole, err)
		}
		address, err := expand("mysql://${A}:${A}@host:3306/${A}?p=${A}", env, inAddress)
		if err != nil {
			t.Fatal(err)
		}
		u, err := url.Parse(address)
		if err != nil || u.Host != "host:3306" || u.User.Username() != value || u.Path != "/"+value || u.Query().Get("p") != value {
			t.Errorf("%q made the address %q, %v", value, address, err)
		}
		inAddress, _ := expand(text, env, inAddress)
		inTemplate, _ := expand(text, env, inTemplate)
		inPath, _ := expand(text, env, inPathTemplate)
		if !hasReference(text) && (inAddress != text || inTemplate != text || inPath != text) {
			t.Errorf("%q became %q, %q and %q", text, inAddress, inTemplate, inPath)
		}
	})
}

func FuzzParse(f *testing.F) {
	f.Add(base)
	f.Add("a: b: c")
	f.Add("steps: {x: {message: \"App\\Jobs\"}}")
	f.Add("fence: &a [*a]")
	f.Add("fence: |\n  ${A}\n")
	f.Add("- - -")
	f.Add("? a")
	example, err := os.ReadFile("testdata/zabor.example.yaml")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(string(example))
	f.Fuzz(func(t *testing.T, text string) {
		c, err := Parse("z.yaml", []byte(text), environment(map[string]string{"TOKEN": "topsecret"}))
		if (c == nil) == (err == nil) {
			t.Errorf("%v, %v", c, err)
		}
	})
}

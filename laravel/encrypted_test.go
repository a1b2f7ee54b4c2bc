package laravel

import (
	"crypto/aes"
	"crypto/cipher"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

const secretCommand = `O:6:"Secret":1:{s:7:"orderId";i:7;}`

// gcm encrypts as Laravel does with AES-256-GCM.
func gcm(t *testing.T, k AppKey, plain string, change func(map[string]string)) string {
	t.Helper()
	block, err := aes.NewCipher(k.key)
	if err != nil {
		t.Fatal(err)
	}
	aead, err := cipher.NewGCM(block)
	if err != nil {
		t.Fatal(err)
	}
	iv := []byte("twelve bytes")
	sealed := aead.Seal(nil, iv, []byte(plain), nil)
	b64 := base64.StdEncoding.EncodeToString
	e := map[string]string{"iv": b64(iv), "value": b64(sealed[:len(plain)]), "mac": "", "tag": b64(sealed[len(plain):])}
	if change != nil {
		change(e)
	}
	text, err := json.Marshal(e)
	if err != nil {
		t.Fatal(err)
	}
	return b64(text)
}

func twice(command string) string { return fmt.Sprintf(`s:%d:"%s";`, len(command), command) }

// recordedCommand is the encrypted command of a recorded payload, changed.
func recordedCommand(t *testing.T, change func(map[string]string)) string {
	t.Helper()
	p, err := parse(recorded(t, "v12-encrypted"))
	if err != nil {
		t.Fatal(err)
	}
	command := p.fields["data"].(map[string]any)["command"].(string)
	text, err := base64.StdEncoding.DecodeString(command)
	if err != nil {
		t.Fatal(err)
	}
	var e map[string]string
	if err := json.Unmarshal(text, &e); err != nil {
		t.Fatal(err)
	}
	change(e)
	if text, err = json.Marshal(e); err != nil {
		t.Fatal(err)
	}
	return base64.StdEncoding.EncodeToString(text)
}

func TestDecrypt(t *testing.T) {
	k, other := testKey(t, "k"), testKey(t, "x")
	short, err := ParseAppKey("sixteen bytes ok")
	if err != nil {
		t.Fatal(err)
	}
	cbc := recordedCommand(t, func(map[string]string) {})
	for _, tt := range []struct {
		name, command string
		keys          []AppKey
		want, fails   string
	}{
		{name: "CBC", command: cbc, keys: []AppKey{k}, want: `O:15:"App\Jobs\Secret"`},
		{name: "CBC with a previous key", command: cbc, keys: []AppKey{other, short, k}, want: `O:15:"App\Jobs\Secret"`},
		{name: "GCM", command: gcm(t, k, twice(secretCommand), nil), keys: []AppKey{k}, want: secretCommand},
		{name: "GCM with a previous key", command: gcm(t, k, twice(secretCommand), nil), keys: []AppKey{other, k}, want: secretCommand},
		{name: "AES-128", command: gcm(t, short, twice(secretCommand), nil), keys: []AppKey{short}, want: secretCommand},

		{name: "no key", command: cbc, fails: "give zabor the application's APP_KEY"},
		{name: "wrong key", command: cbc, keys: []AppKey{other}, fails: "no application key fits"},
		{name: "wrong key for GCM", command: gcm(t, k, twice(secretCommand), nil), keys: []AppKey{other}, fails: "no application key fits"},
		{name: "not base64", command: "hello!", keys: []AppKey{k}, fails: "neither a serialized object nor encrypted"},
		{name: "not JSON", command: "aGVsbG8=", keys: []AppKey{k}, fails: "neither a serialized object nor encrypted"},
		{name: "value changed", command: recordedCommand(t, func(e map[string]string) { e["value"] = "AAAA" + e["value"][4:] }), keys: []AppKey{k}, fails: "no application key fits"},
		{name: "iv changed", command: recordedCommand(t, func(e map[string]string) { e["iv"] = "AAAA" + e["iv"][4:] }), keys: []AppKey{k}, fails: "no application key fits"},
		{name: "mac missing", command: recordedCommand(t, func(e map[string]string) { e["mac"] = "" }), keys: []AppKey{k}, fails: "no application key fits"},
		{name: "mac not hexadecimal", command: recordedCommand(t, func(e map[string]string) { e["mac"] = "zz" }), keys: []AppKey{k}, fails: "not hexadecimal"},
		{name: "short tag", command: gcm(t, k, twice(secretCommand), func(e map[string]string) { e["tag"] = "AAAA" }), keys: []AppKey{k}, fails: "wrong length"},
		{name: "short iv", command: gcm(t, k, twice(secretCommand), func(e map[string]string) { e["iv"] = "AAAA" }), keys: []AppKey{k}, fails: "wrong length"},
		{name: "serialized once", command: gcm(t, k, secretCommand, nil), keys: []AppKey{k}, fails: "not a serialized string"},
		{name: "not serialized", command: gcm(t, k, "hello", nil), keys: []AppKey{k}, fails: "cannot be read"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := decrypt(tt.command, tt.keys)
			if tt.fails != "" {
				if err == nil || !strings.Contains(err.Error(), tt.fails) {
					t.Fatalf("error %v, want %q in it", err, tt.fails)
				}
				return
			}
			if err != nil || !strings.HasPrefix(got, tt.want) {
				t.Fatalf("decrypted %q, error %v, want %q", got, err, tt.want)
			}
		})
	}
}

func TestParseAppKey(t *testing.T) {
	for _, tt := range []struct {
		text string
		ok   bool
	}{
		{"base64:" + base64.StdEncoding.EncodeToString([]byte(strings.Repeat("k", 32))), true},
		{strings.Repeat("k", 32), true},
		{strings.Repeat("k", 16), true},
		{"", false},
		{"base64:", false},
		{"base64:***", false},
		{strings.Repeat("k", 31), false},
	} {
		k, err := ParseAppKey(tt.text)
		if (err == nil) != tt.ok {
			t.Errorf("ParseAppKey(%q): error %v", tt.text, err)
		}
		if err != nil && tt.text != "" && strings.Contains(err.Error(), tt.text) || strings.Contains(fmt.Sprintf("%v %+v", k, k), "kkk") {
			t.Errorf("the key %q is shown", tt.text)
		}
	}
}

func TestParseAppKeys(t *testing.T) {
	a, b := "base64:"+base64.StdEncoding.EncodeToString([]byte(strings.Repeat("a", 32))), strings.Repeat("b", 16)
	for _, tt := range []struct {
		text string
		want int
		err  string
	}{
		{"", 0, ""}, {a, 1, ""}, {a + "," + b, 2, ""}, {a + ", ," + b + " ,", 2, ""},
		{a + ",short", 0, "key number 2: application key of 5 bytes"},
	} {
		keys, err := ParseAppKeys(tt.text)
		if len(keys) != tt.want || (err == nil) != (tt.err == "") || err != nil && !strings.Contains(err.Error(), tt.err) {
			t.Errorf("%q: %d keys, error %v; want %d, %q", tt.text, len(keys), err, tt.want, tt.err)
		}
	}
}

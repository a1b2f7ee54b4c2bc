package laravel

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"zabor/internal/php"
	"zabor/worker"
)

// AppKey is an application key of Laravel, which encrypts the commands of
// classes that are ShouldBeEncrypted.
type AppKey struct{ key []byte }

// String hides the key.
func (AppKey) String() string { return "(application key)" }

// ParseAppKey reads a key as in APP_KEY: base64: and base64 text, or the key
// itself; 32 bytes, or 16 for AES-128.
func ParseAppKey(text string) (AppKey, error) {
	key := []byte(text)
	if b64, ok := strings.CutPrefix(text, "base64:"); ok {
		var err error
		if key, err = base64.StdEncoding.DecodeString(b64); err != nil {
			return AppKey{}, errors.New("application key: what follows base64: is not base64")
		}
	}
	if len(key) != 16 && len(key) != 32 {
		return AppKey{}, fmt.Errorf("application key of %d bytes: it must have 32, or 16 for AES-128", len(key))
	}
	return AppKey{key}, nil
}

// ParseAppKeys reads the application's key and, separated by commas, its previous
// ones as in APP_PREVIOUS_KEYS; the empty text is no key. An error does not show
// them.
func ParseAppKeys(text string) ([]AppKey, error) {
	var keys []AppKey
	for i, one := range strings.Split(text, ",") {
		if one = strings.TrimSpace(one); one == "" {
			continue
		}
		k, err := ParseAppKey(one)
		if err != nil {
			return nil, fmt.Errorf("key number %d: %w", i+1, err)
		}
		keys = append(keys, k)
	}
	return keys, nil
}

// errKey: a key does not fit, another one may.
var errKey = fmt.Errorf("no application key fits its encrypted command; give zabor the APP_KEY it was encrypted with (app_key, older ones too): %w", worker.ErrWrongSecret)

// decrypt turns an encrypted command into its serialization. The first of keys
// that fits is taken.
func decrypt(command string, keys []AppKey) (string, error) {
	if len(keys) == 0 {
		return "", fmt.Errorf("its command is encrypted; give zabor the application's APP_KEY (app_key): %w", worker.ErrWrongSecret)
	}
	text, err := base64.StdEncoding.DecodeString(command)
	if err != nil {
		return "", errors.New("its command is neither a serialized object nor encrypted")
	}
	var fields map[string]any
	if err := json.Unmarshal(text, &fields); err != nil {
		return "", errors.New("its command is neither a serialized object nor encrypted")
	}
	var e envelope
	for name, to := range map[string]*string{"iv": &e.iv, "value": &e.value, "mac": &e.mac, "tag": &e.tag} {
		*to, _ = fields[name].(string)
	}
	for _, k := range keys {
		plain, err := e.open(k)
		if errors.Is(err, errKey) {
			continue
		}
		if err != nil {
			return "", fmt.Errorf("its encrypted command cannot be read: %w", err)
		}
		// Serialized twice: by the queue, and by the encrypter again.
		v, err := php.Unmarshal(plain)
		if err != nil {
			return "", fmt.Errorf("its decrypted command cannot be read: %w", err)
		}
		s, ok := v.(php.String)
		if !ok {
			return "", errors.New("its decrypted command is not a serialized string")
		}
		return string(s), nil
	}
	return "", errKey
}

// envelope is what Laravel's encrypter writes: base64 texts, and for CBC the mac
// in hex.
type envelope struct{ iv, value, mac, tag string }

func (e envelope) open(k AppKey) ([]byte, error) {
	iv, err1 := base64.StdEncoding.DecodeString(e.iv)
	value, err2 := base64.StdEncoding.DecodeString(e.value)
	tag, err3 := base64.StdEncoding.DecodeString(e.tag)
	if err := errors.Join(err1, err2, err3); err != nil {
		return nil, err
	}
	block, err := aes.NewCipher(k.key)
	if err != nil {
		return nil, err
	}
	if len(tag) > 0 {
		gcm, err := cipher.NewGCM(block)
		if err != nil {
			return nil, err
		}
		if len(iv) != gcm.NonceSize() || len(tag) != gcm.Overhead() {
			return nil, errors.New("its iv or tag has the wrong length")
		}
		plain, err := gcm.Open(nil, iv, append(value, tag...), nil)
		if err != nil {
			return nil, errKey
		}
		return plain, nil
	}
	mac, err := hex.DecodeString(e.mac)
	if err != nil {
		return nil, errors.New("its mac is not hexadecimal")
	}
	h := hmac.New(sha256.New, k.key)
	h.Write([]byte(e.iv + e.value))
	if !hmac.Equal(mac, h.Sum(nil)) {
		return nil, errKey
	}
	if len(iv) != aes.BlockSize || len(value) == 0 || len(value)%aes.BlockSize != 0 {
		return nil, errors.New("its iv or value has the wrong length")
	}
	cipher.NewCBCDecrypter(block, iv).CryptBlocks(value, value)
	pad := int(value[len(value)-1])
	if pad == 0 || pad > aes.BlockSize {
		return nil, errors.New("its padding is wrong")
	}
	for _, b := range value[len(value)-pad:] {
		if int(b) != pad {
			return nil, errors.New("its padding is wrong")
		}
	}
	return value[:len(value)-pad], nil
}

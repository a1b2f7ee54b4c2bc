package provider

import (
	"bytes"
	"context"
	"crypto/pbkdf2"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"
)

// Auth is how requests are authenticated where fixed headers do not do it. The
// zero Auth adds nothing.
type Auth struct {
	Grant     *Grant     // nil: none
	Signature *Signature // nil: none
	Fields    *Fields    // nil: none
}

// proof is what requests are authenticated with: the profile's header and Auth, as
// they are now.
type proof struct {
	header http.Header
	auth   Auth
	place  func() string // see [Provider.Place]
}

// credentials is what a request is authenticated with that is made now. Those that
// could not be used take the place of none.
func (p *Provider) credentials() proof {
	if p.rotated != nil {
		if fresh, ok := p.rotated(); ok {
			header, err := compileHeader(fresh.Headers)
			if err == nil && fresh.Auth.validate() == nil {
				p.proof.Store(p.prove(fresh, header))
				p.forgetToken()
			}
		}
	}
	return *p.proof.Load()
}

// prove is what p's requests are authenticated with by a profile whose header is
// compiled.
func (c *compiled) prove(p Profile, header http.Header) *proof {
	return &proof{header, p.Auth, sync.OnceValue(func() string { return placeOf(c.base.String(), p.Account, p.Headers) })}
}

// placeOf is a digest of where requests go, and of whose they are there. It is kept
// with every row: so that nobody finds a weak secret by it, it is dear to make.
func placeOf(base, account string, headers Headers) string {
	parts := []string{base, account}
	if account == "" {
		for _, name := range slices.Sorted(maps.Keys(headers)) {
			parts = append(parts, strings.ToLower(name), headers[name])
		}
	}
	text, err := json.Marshal(parts)
	if err != nil {
		panic(err) // texts alone
	}
	const rounds, size = 10_000, 10
	digest, err := pbkdf2.Key(sha256.New, string(text), []byte("zabor place 1"), rounds, size)
	if err != nil {
		panic(err) // only of sizes that are not allowed
	}
	return hex.EncodeToString(digest)
}

// Place says where requests go now, and whose they are there: the same text for the
// same address and account, of 20 characters; where the provider has no name for the
// account, for the same headers. It is a [zabor.Fence]'s Place.
func (p *Provider) Place() string { return p.credentials().place() }

// Grant is an access token that is asked for with the account's credentials (RFC
// 6749, section 4.4), kept until it expires, and sent as a bearer. The request
// for it moves no money.
type Grant struct {
	Path            string // below base_url
	Account, Secret string
}

// Signature is a digest of a request's values in its own body, as T-Bank has it:
// SHA-256 in hexadecimal over the values of the JSON object's properties and the
// secret, sorted by name. What is a list or an object has no part in it.
type Signature struct {
	Account, Secret string
	AccountName     string // property that holds the account
	SecretName      string // under which the secret is sorted in; it is not sent
	Name            string // property that holds the digest
}

// Fields are the account and its secret as two fields of each request's form.
type Fields struct {
	Account, Secret         string
	AccountName, SecretName string
}

// add is r with the fields. A request without a body becomes a form; any other body
// than a form, and a form with one of the names, is an error.
func (f *Fields) add(r Request) (Request, error) {
	if kind, _ := mediaType(r.ContentType); kind != formType && len(r.Body) > 0 {
		return r, errors.New("the provider takes forms alone")
	}
	form, err := url.ParseQuery(string(r.Body))
	if err != nil || form.Has(f.AccountName) || form.Has(f.SecretName) {
		return r, fmt.Errorf("%s and %s are put into the form when it is sent; take them out", f.AccountName, f.SecretName)
	}
	fields := url.Values{f.AccountName: {f.Account}, f.SecretName: {f.Secret}}.Encode()
	if len(r.Body) > 0 {
		fields += "&" + string(r.Body)
	}
	r.ContentType, r.Body = formType, []byte(fields)
	return r, nil
}

func (a Auth) validate() error {
	if a.Grant != nil && (CheckPath(a.Grant.Path) != nil || a.Grant.Account == "" || a.Grant.Secret == "") {
		return errors.New("auth: the request for an access token needs a path, an account and a secret")
	}
	if s := a.Signature; s != nil && (s.Account == "" || s.Secret == "" || s.AccountName == "" || s.SecretName == "" || s.Name == "") {
		return errors.New("auth: a signature needs an account, a secret and the names of its properties")
	}
	if f := a.Fields; f != nil && (f.Account == "" || f.Secret == "" || f.AccountName == "" || f.SecretName == "") {
		return errors.New("auth: fields need an account, a secret and their names")
	}
	return nil
}

// sign is a body with account and digest in it. An account that is there already
// must be ours, and a digest that its maker has put there is replaced; of the rest
// no byte is changed.
func (s *Signature) sign(body []byte) ([]byte, error) {
	if len(body) == 0 {
		body = []byte("{}")
	}
	body, err := withoutDigest(body, s.Name)
	if err == nil {
		body, err = withField(body, s.AccountName, s.Account)
	}
	if err != nil {
		return nil, fmt.Errorf("the provider takes signed requests: %w", err)
	}
	document, err := decodeJSON(body)
	if err != nil {
		return nil, err
	}
	values := map[string]string{s.SecretName: s.Secret}
	for name, v := range document.(map[string]any) {
		switch v.(type) {
		case map[string]any, []any:
			continue
		}
		if name == s.SecretName {
			return nil, fmt.Errorf("%s is never sent: it belongs into the signature, which is made when the request is sent; take it out", name)
		}
		if values[name], err = asText(v); err != nil {
			return nil, fmt.Errorf("%s cannot be signed: %w", name, err)
		}
	}
	digest := sha256.New()
	for _, name := range slices.Sorted(maps.Keys(values)) {
		digest.Write([]byte(values[name]))
	}
	return withField(body, s.Name, hex.EncodeToString(digest.Sum(nil)))
}

// withoutDigest is body without its property of that name; where it has none, it
// is body itself.
func withoutDigest(body []byte, name string) ([]byte, error) {
	document, err := decodeJSON(body)
	object, ok := document.(map[string]any)
	if err != nil || !ok {
		return nil, errors.New("a JSON object is what can be signed, and the request has none")
	}
	if _, there := object[name]; !there {
		return body, nil
	}
	body, _, err = withoutField(body, name)
	return body, err
}

// token is a provider's access token. The zero token is none.
type token struct {
	mu    sync.Mutex // held while one is asked for: the others wait for it
	text  string
	until time.Time // with a reading of the monotonic clock
}

// bearer is an access token that holds for a while; one is asked for where there
// is none. An error says that there is none, so that nothing can be sent.
func (p *Provider) bearer(ctx context.Context) (string, error) {
	p.token.mu.Lock()
	defer p.token.mu.Unlock()
	if now := time.Now(); p.token.text != "" && !late(now, now.Round(0), p.token.until) {
		return p.token.text, nil
	}
	asked := time.Now()
	text, life, err := p.askToken(ctx)
	if err != nil {
		return "", fmt.Errorf("the provider gave no access token: %w", err)
	}
	p.token.text, p.token.until = text, asked.Add(life-min(life/2, time.Minute))
	return text, nil
}

// forgetToken takes back the access token, which the provider refuses.
func (p *Provider) forgetToken() {
	p.token.mu.Lock()
	defer p.token.mu.Unlock()
	p.token.text = ""
}

func (p *Provider) askToken(ctx context.Context) (text string, life time.Duration, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, p.base.String()+p.auth.Grant.Path, strings.NewReader("grant_type=client_credentials"))
	if err != nil {
		return "", 0, err
	}
	with := p.proof.Load() // whoever asks for it has looked already whether they are others
	maps.Copy(req.Header, with.header)
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	req.SetBasicAuth(with.auth.Grant.Account, with.auth.Grant.Secret)
	resp, err := p.lookups.Do(req)
	if err != nil {
		return "", 0, err
	}
	defer resp.Body.Close()
	a, err := readAnswer(resp)
	switch {
	case err != nil:
		return "", 0, err
	case a.status == http.StatusBadRequest, a.status == http.StatusUnauthorized, a.status == http.StatusForbidden:
		return "", 0, fmt.Errorf("it answered %d; are account and secret right, and of the same live or test system?", a.status)
	case a.status != http.StatusOK:
		return "", 0, fmt.Errorf("it answered %d", a.status)
	}
	var granted struct {
		Token   string      `json:"access_token"`
		Type    string      `json:"token_type"`
		Seconds json.Number `json:"expires_in"`
	}
	d := json.NewDecoder(bytes.NewReader(a.body))
	if err := d.Decode(&granted); err != nil || granted.Token == "" || strings.ContainsFunc(granted.Token, notInHeader) {
		return "", 0, errors.New("the answer has no access_token")
	}
	if granted.Type != "" && !strings.EqualFold(granted.Type, "bearer") {
		return "", 0, fmt.Errorf("it is of the type %.20q and not a bearer", granted.Type)
	}
	seconds, err := granted.Seconds.Int64()
	if err != nil || seconds < 0 {
		seconds = 0 // for this request only
	}
	return granted.Token, time.Duration(min(seconds, 24*60*60)) * time.Second, nil
}

// notInHeader reports whether a header's value cannot have r as part of a secret.
func notInHeader(r rune) bool { return r <= ' ' || r >= 0x7f }

// String keeps the secrets out of what is printed.
func (a Auth) String() string {
	switch {
	case a.Grant != nil:
		return "an access token for " + a.Grant.Account
	case a.Signature != nil:
		return "signed by " + a.Signature.Account
	case a.Fields != nil:
		return "the fields of " + a.Fields.Account
	}
	return "none"
}

// GoString keeps them out of %#v.
func (a Auth) GoString() string { return "provider.Auth(" + a.String() + ")" }

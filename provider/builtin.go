package provider

import (
	"embed"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"
)

// Builtin is what zabor knows about a provider: its profile without what belongs
// to an account, and why each value is as it is.
type Builtin struct {
	Name   string `yaml:"-" json:"name"` // as in the configuration
	Title  string `yaml:"title" json:"title"`
	Covers string `yaml:"covers" json:"covers"` // the part of the provider's API that the profile is about
	// Uncallable is why this version cannot call the provider; empty: it can.
	Uncallable string     `yaml:"uncallable" json:"uncallable,omitempty"`
	Auth       AuthKind   `yaml:"auth" json:"auth,omitempty"`
	AuthHeader string     `yaml:"auth_header" json:"auth_header,omitempty"` // of AuthHeader
	AuthPath   string     `yaml:"auth_path" json:"auth_path,omitempty"`     // of AuthGrant: where the access token is
	Account    string     `yaml:"account" json:"account,omitempty"`         // what the account is; empty: none is needed
	Test       TestSystem `yaml:"test" json:"-"`
	Console    Console    `yaml:"console" json:"console,omitzero"`
	Base       Profile    `yaml:"profile" json:"-"` // {account} in its address is the account
	// Why says where what is about the whole account is from, by its name (auth, base_url,
	// console, list …): the document, or that it is not verified. The lines say their own.
	Why map[string]string `yaml:"why" json:"-"`
}

// AuthKind is how requests are authenticated.
type AuthKind string

// The kinds.
const (
	AuthBearer AuthKind = "bearer" // Authorization: Bearer SECRET
	AuthBasic  AuthKind = "basic"  // Authorization: Basic of ACCOUNT:SECRET
	AuthHeader AuthKind = "header" // the secret alone in AuthHeader
	AuthGrant  AuthKind = "grant"  // an access token for account and secret, see [Grant]
	AuthSigned AuthKind = "signed" // a digest in the body, see [Signature]
	AuthFields AuthKind = "fields" // account and secret in the form, see [Fields]
)

// TestSystem is how credentials show that no real money moves.
type TestSystem struct {
	Secrets  []string `yaml:"secrets"`  // what such a secret begins with
	Accounts []string `yaml:"accounts"` // what such an account begins with
	Account  string   `yaml:"account"`  // such an account, whole
	Prefix   string   `yaml:"prefix"`   // written before such an account to say so, since nothing else shows it; not sent
	Suffix   string   `yaml:"suffix"`   // what such an account ends with
	BaseURL  string   `yaml:"base_url"` // empty: the profile's
}

//go:embed profiles/*.yaml
var profileFiles embed.FS

// Builtins are the providers that are known, by name. The embedded files are
// under test; a broken one is a panic.
func Builtins() []Builtin {
	names, err := fs.Glob(profileFiles, "profiles/*.yaml")
	if err != nil {
		panic(err)
	}
	var all []Builtin
	for _, name := range names { // sorted
		b, err := readBuiltin(name)
		if err != nil {
			panic(err)
		}
		all = append(all, b)
	}
	return all
}

// BuiltinNamed is the provider of that name, and whether there is one.
func BuiltinNamed(name string) (Builtin, bool) {
	all := Builtins()
	i := slices.IndexFunc(all, func(b Builtin) bool { return b.Name == name })
	if i < 0 {
		return Builtin{}, false
	}
	return all[i], true
}

func readBuiltin(name string) (Builtin, error) {
	data, err := profileFiles.ReadFile(name)
	if err != nil {
		return Builtin{}, err
	}
	b := Builtin{Name: strings.TrimSuffix(path.Base(name), ".yaml")}
	if err := yaml.UnmarshalWithOptions(data, &b, yaml.Strict()); err != nil {
		return Builtin{}, fmt.Errorf("%s: %w", name, err)
	}
	return b, nil
}

// Profile is b's profile for an account and its secret. An error begins with
// account or secret, or with profile where b cannot be called; it does not show
// the secret.
func (b Builtin) Profile(account, secret string) (Profile, error) {
	p := b.Base
	switch {
	case b.Uncallable != "":
		return p, fmt.Errorf("profile: %s is known and cannot be called: %s", b.Title, b.Uncallable)
	case secret == "":
		return p, fmt.Errorf("secret: missing; write the %s key that may move money, such as ${%s_SECRET}", b.Title, strings.ToUpper(b.Name))
	case strings.ContainsFunc(secret, notInHeader):
		return p, errors.New("secret: it has a blank or a sign that no header takes; is there a newline at its end?")
	case b.Account != "" && account == "":
		return p, fmt.Errorf("account: missing; write the %s", b.Account)
	case (b.Auth == AuthBasic || b.Auth == AuthGrant) && strings.Contains(strings.TrimPrefix(account, b.Test.Prefix), ":"):
		return p, errors.New("account: it has a colon, which HTTP Basic cannot hold")
	}
	if b.IsTest(account, secret) && b.Test.BaseURL != "" {
		p.BaseURL = b.Test.BaseURL
	}
	if b.Test.Prefix != "" {
		account = strings.TrimPrefix(account, b.Test.Prefix)
	}
	if strings.Contains(p.BaseURL, "{account}") {
		if strings.Trim(account, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-") != "" {
			return p, fmt.Errorf("account: %q cannot be part of a host's name; write the %s", account, b.Account)
		}
		p.BaseURL = strings.ReplaceAll(p.BaseURL, "{account}", account)
		p.Account = account
	}
	headers := maps.Clone(p.Headers)
	if headers == nil {
		headers = Headers{}
	}
	switch b.Auth {
	case AuthBasic:
		p.Account = account
		headers["Authorization"] = "Basic " + base64.StdEncoding.EncodeToString([]byte(account+":"+secret))
	case AuthHeader:
		headers[b.AuthHeader] = secret
	case AuthGrant:
		p.Account = account
		p.Auth.Grant = &Grant{Path: b.AuthPath, Account: account, Secret: secret}
	case AuthFields:
		p.Account = account
		p.Auth.Fields = &Fields{Account: account, Secret: secret, AccountName: "userName", SecretName: "password"}
	case AuthSigned:
		p.Account = account
		p.Auth.Signature = &Signature{Account: account, Secret: secret, AccountName: "TerminalKey", SecretName: "Password", Name: "Token"}
	default:
		headers["Authorization"] = "Bearer " + secret
	}
	p.Headers = headers
	return p, p.Validate()
}

// Units are those in which b's payments are listed and exported: of the line that is
// listed, else of the first charge, else of the first call with an amount. nil: b cannot
// be called.
func (b Builtin) Units() (units Units) {
	for _, l := range b.Base.Calls {
		switch {
		case b.Base.List != nil && l.Name == b.Base.List.Of, b.Base.List == nil && l.Does == Charges:
			return l.Amount.Units
		case units == nil:
			units = l.Amount.Units
		}
	}
	return units
}

// IsTest reports whether account and secret are known to move no real money.
func (b Builtin) IsTest(account, secret string) bool {
	begins := func(text string) func(string) bool {
		return func(prefix string) bool { return strings.HasPrefix(text, prefix) }
	}
	return b.Test.Account != "" && b.Test.Account == account ||
		b.Test.Prefix != "" && strings.HasPrefix(account, b.Test.Prefix) ||
		b.Test.Suffix != "" && strings.HasSuffix(account, b.Test.Suffix) ||
		slices.ContainsFunc(b.Test.Secrets, begins(secret)) || slices.ContainsFunc(b.Test.Accounts, begins(account))
}

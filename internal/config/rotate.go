package config

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"

	"zabor/provider"
)

// Rotation is what becomes of a configuration's secrets whose files change while
// the program runs. It may be used concurrently.
type Rotation struct {
	first   *Config
	content []byte
	env     Env
	followed[*Config]
}

// Rotation follows the files that hold c's secrets. report is told, once for each
// change, why one was not taken.
func (c *Config) Rotation(report func(error)) *Rotation {
	return &Rotation{first: c, content: c.content, env: c.env, followed: follow("a file with a secret", c, c.files, report)}
}

// Credentials is for [provider.Options]: it looks at the files each time it is
// called, and gives the profile of the provider of that name, once, when they have
// changed. Only headers and auth are other than at the start.
func (r *Rotation) Credentials(name string) func() (provider.Profile, bool) {
	if len(r.taken) == 0 {
		return nil
	}
	var mu sync.Mutex
	seen := 0
	return func() (provider.Profile, bool) {
		c, turn := r.current()
		mu.Lock()
		defer mu.Unlock()
		if turn == seen {
			return provider.Profile{}, false
		}
		seen = turn
		return c.Profile(name)
	}
}

// ProxyToken is what callers of the proxy must bring now; it looks at the files each
// time it is called. Empty: the configuration has none.
func (r *Rotation) ProxyToken() string {
	if c, _ := r.current(); c.Proxy != nil {
		return string(c.Proxy.Token)
	}
	return ""
}

// current is the configuration with the secrets as their files have them, or had
// them before they became unusable.
func (r *Rotation) current() (*Config, int) { return r.latest(r.read) }

// read reads the configuration once more, as it was at the start but for what the
// files hold. One that is away or empty, or from which the proxy would have no token,
// is none, whatever default there is.
func (r *Rotation) read(there secretFiles) (*Config, error) {
	for path, was := range r.taken {
		switch is := there[path]; {
		case is == nil:
			return nil, errors.New("it is away, or cannot be read")
		case is.Size() == 0 && was.Size() > 0:
			return nil, errors.New("it is empty")
		}
	}
	c, err := Parse(r.first.Path, r.content, r.env)
	if err != nil {
		return nil, err
	}
	if r.first.Proxy != nil && r.first.Proxy.Token != "" && (c.Proxy == nil || c.Proxy.Token == "") {
		return nil, errors.New("proxy.token: nothing is in it")
	}
	for name, was := range r.first.Providers {
		is := c.Providers[name]
		if is.Account != was.Account {
			return nil, fmt.Errorf("providers.%s: the account is another one, and rows are of the account that they were captured with: restart zabor for it", name)
		}
		if builtin, ok := provider.BuiltinNamed(was.Profile); ok && builtin.IsTest(is.Account, string(is.Secret)) != builtin.IsTest(was.Account, string(was.Secret)) {
			return nil, fmt.Errorf("providers.%s: one of the secrets is of the test system and the other is not: restart zabor if that is meant", name)
		}
	}
	return c, nil
}

// readSecret reads the file at path and remembers what it was like before.
func (e Env) readSecret(path string) ([]byte, error) {
	if e.files != nil {
		info, err := os.Stat(path)
		if err == nil {
			e.files[path] = info
		} else if !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
	}
	return os.ReadFile(path)
}

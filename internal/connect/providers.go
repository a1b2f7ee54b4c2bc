package connect

import (
	"context"
	"fmt"
	"maps"
	"net/url"
	"slices"

	"zabor"
	"zabor/internal/config"
	"zabor/internal/exit"
	"zabor/provider"
)

// Providers are the clients of the configured providers, by name.
type Providers map[string]*provider.Provider

// OpenProviders makes the clients of c's providers. Their credentials are those of
// secrets, also after a rotation.
func OpenProviders(c *config.Config, secrets *config.Rotation) (Providers, error) {
	made := Providers{}
	for _, name := range slices.Sorted(maps.Keys(c.Providers)) {
		profile, _ := c.Profile(name) // Parse has made one of each
		o := provider.Options{Keep: kept(c), Rotated: secrets.Credentials(name)}
		if address := string(c.Providers[name].Proxy); address != "" {
			var err error
			if o.Proxy, err = url.Parse(address); err != nil {
				// The error's own text has the address, and so its password.
				return nil, exit.Usage(fmt.Errorf("%s: providers.%s.proxy: not an address", c.Path, name), "write http://host:port, or http://user:password@host:port")
			}
		}
		one, err := provider.New(name, profile, o)
		if err != nil {
			return nil, exit.Usage(fmt.Errorf("%s: providers.%s: %w", c.Path, name, err), "")
		}
		made[name] = one
	}
	return made, nil
}

// kept returns how much of an answer is kept. It is the same for all processes: a
// worker may resolve a proxied row.
func kept(c *config.Config) provider.Keep {
	if c.Proxy == nil {
		return provider.Keep{}
	}
	keep := provider.Keep{Body: c.Proxy.KeepBody, Redact: c.Proxy.Redact}
	if keep.Body == 0 {
		keep.Body = -1 // none
	}
	return keep
}

// Call calls the provider of row. It is a [zabor.Call].
func (p Providers) Call(ctx context.Context, row zabor.Row) zabor.Outcome {
	one, ok := p[row.Provider]
	if !ok {
		return zabor.Outcome{Verdict: zabor.Unsent, Reason: fmt.Sprintf("provider %q is not in the configuration any more", row.Provider)}
	}
	return one.Call(ctx, row)
}

// Lookup looks row up at its provider. It is a [zabor.Lookup].
func (p Providers) Lookup(ctx context.Context, row zabor.Row) (zabor.Finding, error) {
	one, ok := p[row.Provider]
	if !ok {
		return zabor.Finding{}, fmt.Errorf("provider %q is not in the configuration any more; write it back until its rows are closed", row.Provider)
	}
	return one.Lookup(ctx, row)
}

// Endpoint returns the address and account of the provider of that name. It is empty for
// a name outside of the configuration.
func (p Providers) Endpoint(name string) string {
	if one, ok := p[name]; ok {
		return one.Place()
	}
	return ""
}

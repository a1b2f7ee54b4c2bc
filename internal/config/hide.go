package config

import (
	"slices"
	"strings"
)

// shortest is how long a value is, in bytes, that [Config.Hide] hides: shorter ones
// stand by chance in what is no secret.
const shortest = 6

// secretsOf are the values that variables have put into providers and steps, and
// so may put into a request; the longest first. An address is none of them.
func secretsOf(all []secret) []secret {
	put := slices.DeleteFunc(slices.Clone(all), func(s secret) bool {
		return len(s.value) < shortest || strings.HasSuffix(s.path, ".base_url") ||
			!strings.HasPrefix(s.path, "providers.") && !strings.HasPrefix(s.path, "steps.")
	})
	slices.SortStableFunc(put, func(a, b secret) int { return len(b.value) - len(a.value) })
	return put
}

// Hide is text, made of what the file says of a provider or a step, with the names
// of variables in place of what they hold.
func (c *Config) Hide(text string) string {
	for _, s := range c.put {
		text = strings.ReplaceAll(text, s.value, "${"+s.name+"}")
	}
	return text
}

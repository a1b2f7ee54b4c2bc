package app

import (
	"maps"
	"regexp"
	"slices"
	"strings"

	"zabor/internal/tenancy"
)

// Tenant is where an application notes beside its messages whose they are: the path as a
// step's scope has it, such as /tenant_id, and where that was found. Empty: it does not,
// as far as can be seen.
func (p *Project) Tenant() (path string, from Origin) {
	if p.Framework == Symfony {
		return p.tenantStamp()
	}
	for _, known := range tenantPackages {
		if _, ok := p.require[known.name]; !ok {
			continue
		}
		at := known.path
		if known.since > 0 && versionOf(p.require[known.name], Origin{}).Major >= known.since {
			at = known.newer
		}
		return at, Origin{File: "composer.json", Line: lineOf(p.files["composer.json"], `"`+known.name+`"`)}
	}
	for _, name := range slices.Sorted(maps.Keys(p.files)) {
		content := p.files[name]
		if !strings.HasSuffix(name, ".php") {
			continue
		}
		for _, way := range []struct {
			call  *regexp.Regexp
			under string
		}{{payloadCall, "/"}, {contextCall, "/context/"}} {
			for _, at := range way.call.FindAllSubmatchIndex(content, -1) {
				for _, member := range quoted.FindAllSubmatch(content[at[0]:at[1]], -1) {
					if field := string(member[1]); tenancy.Named(field) {
						return way.under + field, Origin{File: name, Line: 1 + strings.Count(string(content[:at[0]]), "\n")}
					}
				}
			}
		}
	}
	return "", Origin{}
}

// tenantPackages are packages that note the tenant beside each job: archtechx/tenancy
// QueueTenancyBootstrapper, spatie/laravel-multitenancy MakeQueueTenantAwareAction,
// which uses the context from version 4 on, and hyn/multi-tenant (1 December 2026).
var tenantPackages = []struct {
	name, path string
	since      int
	newer      string
}{
	{"stancl/tenancy", "/tenant_id", 0, ""},
	{"spatie/laravel-multitenancy", "/tenantId", 4, "/context/tenantId"},
	{"hyn/multi-tenant", "/website_id", 0, ""},
}

var (
	payloadCall = regexp.MustCompile(`(?s)\bcreatePayloadUsing\s*\(.{0,600}?[\]}]\s*\);`)
	contextCall = regexp.MustCompile(`(?s)\b(?:Context::|context\(\)->)(?:add|addHidden)\s*\([^;]{0,400};`)
	quoted      = regexp.MustCompile(`['"](\w+)['"]\s*(?:=>|,)`)
)

// tenantStamp is the property of a stamp of the application's that names a tenant.
func (p *Project) tenantStamp() (path string, from Origin) {
	for _, c := range p.Classes {
		if !p.Is(c, `Symfony\Component\Messenger\Stamp\StampInterface`) {
			continue
		}
		for _, property := range c.Properties {
			if tenancy.Named(property.Name) || strings.Contains(Short(c.Name), "Tenant") {
				return "/" + c.Name + "/" + property.Name, Origin{File: c.File, Line: property.Line}
			}
		}
	}
	return "", Origin{}
}

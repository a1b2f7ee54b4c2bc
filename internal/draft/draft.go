// Package draft writes a first zabor.yaml for a Laravel or Symfony application. The
// application is read and never run.
package draft

import (
	"cmp"
	"fmt"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"zabor/doctor"
	"zabor/internal/app"
)

// Of returns a zabor.yaml for p. Behind each value a comment says where it was found.
// A secret is the name of its variable. Steps are comments, to be completed.
func Of(p *app.Project) string {
	w := writer{Project: p, payments: doctor.Payments(p)}
	w.write()
	return w.text.String()
}

// writer writes a zabor.yaml for an application. It writes no secret: where
// one is needed, the name of its variable.
type writer struct {
	*app.Project
	payments []doctor.Payment
	text     strings.Builder
}

// line writes a line, with a comment where there is one.
func (w *writer) line(comment, format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if comment = strings.TrimSuffix(comment, "; "); comment != "" {
		text = fmt.Sprintf("%-60s # %s", text, comment)
	}
	w.text.WriteString(text + "\n")
}

func (w *writer) write() {
	w.line("", "# Made by \"zabor init\" of a %s application, for its environment %s.", w.Framework, w.Environment)
	w.line("", "# Behind each value: where it was found. Secrets are the application's own variables; check the file with")
	w.line("", "#     zabor config check -c zabor.yaml --env-file %s", filepath.ToSlash(filepath.Join(w.Root, ".env")))
	scope := w.scope()
	w.line("in every key: each shop and each environment needs another", "scope: %s", scope)
	w.database()
	w.redis()
	w.line("seals what the fence's table keeps of requests and answers; one is made by: openssl rand -base64 32", "encryption_key: %s", quote("${ZABOR_KEY:-}"))
	w.neighbours()
	w.queues()
	w.enums()
	w.steps()
	w.bus()
}

var noName = regexp.MustCompile(`[^a-z0-9]+`)

func (w *writer) scope() string {
	name := w.Config.Get("app.name").Str()
	if name == "" {
		if absolute, err := filepath.Abs(w.Root); err == nil {
			name = filepath.Base(absolute)
		}
	}
	slug := strings.Trim(noName.ReplaceAllString(strings.ToLower(name), "-"), "-")
	return cmp.Or(slug, "shop") + "-" + strings.Trim(noName.ReplaceAllString(strings.ToLower(w.Environment.Str()), "-"), "-")
}

// refer returns v for zabor.yaml: the variable of its origin, with its
// value as the default if the variable is not set; else its text. A secret is never a text.
func refer(v *app.Value, secret string) string {
	env := v.Origin().Env
	name, unset := strings.CutSuffix(env, " is not set")
	switch {
	case v == nil && secret == "":
		return ""
	case name == "" && secret != "":
		return "${" + secret + "}"
	case name == "":
		return escape(v.Str())
	case unset && secret == "" && v.Known():
		return "${" + name + ":-" + v.Str() + "}"
	case unset:
		return "${" + name + ":-}"
	}
	return "${" + name + "}"
}

// escape returns text without variables for zabor.yaml.
func escape(text string) string { return strings.ReplaceAll(text, "$", "$$") }

func quote(text string) string { return strconv.Quote(text) }

// database writes the fence's database: the application's own, so hooks can ride along.
func (w *writer) database() {
	const why = "the application's own database, so that its rows can ride along; "
	d := w.Database()
	if d != nil && d.URL != nil {
		w.line(why+d.URL.From.String(), "fence: %s", quote("${"+cmp.Or(strings.TrimSuffix(d.URL.From.Env, " is not set"), "DATABASE_URL")+"}"))
		return
	}
	if !d.Reachable() {
		w.line("the application's database is not known without running it, or is none of MySQL, MariaDB, PostgreSQL and SQLite: set the variable, or write the address", "fence: %s", quote("${ZABOR_FENCE}"))
		return
	}
	if d.Scheme == "sqlite" {
		w.line(why+d.Schema.From.String(), "fence: %s", quote(escape(w.DatabaseAddress().Str())))
		return
	}
	address := d.Scheme + "://" + refer(d.Username, "DB_USERNAME")
	if d.Password.Str() != "" {
		address += ":" + refer(d.Password, "DB_PASSWORD")
	}
	address += "@" + cmp.Or(refer(d.Host, ""), "localhost")
	if port := refer(d.Port, ""); port != "" {
		address += ":" + port
	}
	address += "/" + refer(d.Schema, "")
	if d.Socket.Str() != "" {
		address += "?unix_socket=" + refer(d.Socket, "")
	}
	w.line(why+d.Schema.From.String(), "fence: %s", quote(address))
}

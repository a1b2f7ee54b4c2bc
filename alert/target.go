package alert

import (
	"cmp"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nicholas-fedor/shoutrrr/pkg/router"
	"github.com/nicholas-fedor/shoutrrr/pkg/types"
)

// target is one address.
type target struct {
	kind    string // the service
	name    string // for people: number and service
	service types.Service
	secrets []string // parts of the address that no text may hold, the longest first
	queue   chan string
	lost    atomic.Int64 // messages that could not be delivered; it only rises
	told    int64        // of them, that the address was told of since; for run alone

	// pending is the try that was given up while the service still works on
	// it; nil: there is none. A service takes no context, and tries that hang
	// must not pile up.
	pending atomic.Pointer[chan error]
}

func newTarget(address string) (*target, error) {
	form, err := serviceForm(address)
	if err != nil {
		return nil, err
	}
	u, err := url.Parse(form)
	if err != nil {
		return nil, errors.New("the address cannot be read; write SERVICE://…, and percent-encode what has a meaning of its own in an address")
	}
	kind, _, _ := strings.Cut(strings.ToLower(u.Scheme), "+")
	var r router.ServiceRouter
	if kind == "logger" || !slices.Contains(r.ListServices(), kind) {
		return nil, fmt.Errorf("there is no service %.40q; write one of %s", kind, strings.Join(services(), ", "))
	}
	if kind == "matrix" && u.User.Username() != "" {
		return nil, errors.New("an address of matrix with a user logs in at every start; write the access token alone: matrix://:TOKEN@HOST/?rooms=ROOM")
	}
	service, err := r.NewService(kind)
	if err == nil {
		err = initialize(service, u)
	}
	if err != nil {
		return nil, fmt.Errorf("this is not the form of an address of %s; https://shoutrrr.nickfedor.com/ has it", kind)
	}
	t := &target{kind: kind, service: service, secrets: secretsOf(u, kind), queue: make(chan string, waiting)}
	if kind == "generic" {
		t.kind += " " + u.Host
	}
	return t, nil
}

// initialize gives service its address. The router of shoutrrr would do the same,
// but panics on a SERVICE+https:// address that it cannot convert.
func initialize(service types.Service, u *url.URL) error {
	if strings.Contains(u.Scheme, "+") {
		custom, ok := service.(types.CustomURLService)
		if !ok {
			return router.ErrCustomURLsNotSupported
		}
		var err error
		if u, err = custom.GetConfigURLFromCustom(u); err != nil {
			return err
		}
	}
	return service.Initialize(u, nil)
}

// services lists what can be written before ://.
func services() []string {
	var r router.ServiceRouter
	all := slices.DeleteFunc(r.ListServices(), func(s string) bool { return s == "logger" })
	slices.Sort(all)
	return all
}

// serviceForm is address in shoutrrr's form: webhooks of Slack, Discord and Teams
// are taken as they were given out. Any other web address is refused, since what
// it expects is not known.
func serviceForm(address string) (string, error) {
	address = strings.TrimSpace(address)
	u, err := url.Parse(address)
	if err != nil {
		return address, nil //nolint:nilerr // shoutrrr reads it, and says what is wrong
	}
	if u.Scheme != "https" && u.Scheme != "http" {
		return address, nil
	}
	host, parts := strings.ToLower(u.Hostname()), strings.Split(strings.Trim(u.Path, "/"), "/")
	switch {
	case host == "hooks.slack.com":
		if len(parts) == 4 && parts[0] == "services" {
			return "slack://hook:" + strings.Join(parts[1:], "-") + "@webhook", nil
		}
		return "", errors.New("this is not the whole webhook of Slack; it looks like https://hooks.slack.com/services/T…/B…/…")
	case host == "discord.com" || host == "discordapp.com" || strings.HasSuffix(host, ".discord.com"):
		if len(parts) == 4 && parts[0] == "api" && parts[1] == "webhooks" {
			form := "discord://" + url.PathEscape(parts[3]) + "@" + parts[2]
			if thread := u.Query().Get("thread_id"); thread != "" {
				form += "?thread_id=" + url.QueryEscape(thread)
			}
			return form, nil
		}
		return "", errors.New("this is not the whole webhook of Discord; it looks like https://discord.com/api/webhooks/NUMBER/TOKEN")
	case strings.HasSuffix(host, ".webhook.office.com"):
		return "teams+" + address, nil
	case strings.HasSuffix(host, ".logic.azure.com") || strings.HasSuffix(host, ".powerplatform.com"):
		return "", errors.New("this is a workflow of Power Automate, which decides by itself what it takes; let it begin with «When an HTTP request is received» and post the field message, " +
			"and write generic+ before its address and &template=json after it")
	}
	return "", fmt.Errorf("the web address at %s is no webhook of Slack, Discord or Teams; write generic+ before it to have the text posted there, with ?template=json as a JSON object with the field message", host)
}

// shortSecret is the length from which a part of an address counts as a secret.
const shortSecret = 4

// secretsOf lists the parts of an address that may be a secret: all but the
// service, its host where that is one, and short words.
func secretsOf(u *url.URL, kind string) []string {
	parts := []string{u.User.Username(), u.EscapedPath(), u.Path}
	if password, ok := u.User.Password(); ok {
		parts = append(parts, password)
		parts = append(parts, strings.Split(password, "-")...)
	}
	parts = append(parts, strings.Split(u.Path, "/")...)
	for _, values := range u.Query() {
		parts = append(parts, values...)
	}
	if kind != "generic" {
		parts = append(parts, u.Host)
	}
	var secrets []string
	for _, p := range parts {
		for _, form := range []string{p, url.QueryEscape(p), url.PathEscape(p)} {
			if len(form) >= shortSecret && !slices.Contains([]string{"hook", "webhook", "telegram", "json"}, form) {
				secrets = append(secrets, form)
			}
		}
	}
	slices.SortFunc(secrets, func(a, b string) int { return cmp.Or(len(b)-len(a), strings.Compare(a, b)) })
	return slices.Compact(secrets)
}

var (
	errSlow = errors.New("no answer in time; whether the message arrived is not known")
	errBusy = errors.New("the try before has still not ended")
)

// send tries once. The error holds no part of the address.
func (t *target) send(text string, timeout time.Duration) error {
	if p := t.pending.Load(); p != nil {
		select {
		case <-*p: //nolint:errcheck // its error was told when its time ran out
			t.pending.Store(nil)
		default:
			return errBusy
		}
	}
	done := make(chan error, 1)
	go func() { done <- t.service.Send(t.harmless(text), &types.Params{}) }()
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	select {
	case err := <-done:
		return t.redacted(err)
	case <-timer.C:
		t.pending.Store(&done)
		return errSlow
	}
}

// harmless is text without what would call people or make links in a chat.
func (t *target) harmless(text string) string {
	switch t.kind {
	case "slack":
		return strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;").Replace(text)
	case "discord", "mattermost", "rocketchat", "zulip":
		return strings.ReplaceAll(text, "@", "@\u200b")
	}
	return text
}

// redacted is err without the address, which services and net/http like to quote.
func (t *target) redacted(err error) error {
	if err == nil {
		return nil
	}
	if e, ok := errors.AsType[*url.Error](err); ok {
		err = e.Err
	}
	text := err.Error()
	for _, s := range t.secrets {
		text = strings.ReplaceAll(text, s, "…")
	}
	return errors.New(clean(text, longLine))
}

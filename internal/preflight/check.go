// Package preflight asks whether an installation is fit to take messages. There is one list
// of checks: a start refuses by it, and zabor config check --live prints all of it. No data
// is changed anywhere.
package preflight

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"zabor/internal/exit"
)

// Status is how a check ended.
type Status string

// The statuses.
const (
	Good        Status = "ok"
	Warning     Status = "warning" // a start says it, and goes on
	Wrong       Status = "wrong"   // a start refuses
	Unreachable Status = "unreachable"
	Unchecked   Status = "not checked"
)

// Check is one question with its answer. Its JSON is documented.
type Check struct {
	Status Status `json:"status"`
	What   string `json:"what"`  // such as queues.payments, steps.charge.load, providers.stripe
	Found  string `json:"found"` // empty: as it should be
	Fix    string `json:"fix"`
}

// wait is how long one server has to answer all questions of a check.
const wait = 20 * time.Second

// The fixes of several checks.
const (
	fixServer = "is the server up, and is its address right?"
	fixRedis  = "nothing was taken; is Redis up, and is its address right?"
)

// Require logs the warnings of checks about a queue, and returns the first refusal of a
// start: an [exit.Error] of usage, or of a server out of reach.
func Require(log *slog.Logger, queue string, checks []Check) error {
	for _, c := range checks {
		switch err := errors.New(c.Found); c.Status {
		case Wrong:
			return exit.Usage(err, c.Fix)
		case Unreachable:
			return exit.Unreachable(err, c.Fix)
		case Warning:
			about := []any{"queue", queue}
			if c.Fix != "" {
				about = append(about, "fix", c.Fix)
			}
			log.Warn(c.Found, about...)
		}
	}
	return nil
}

// Err returns the error at the end of a command with these checks; nil: no check is
// wrong.
func Err(checks []Check) error {
	n := map[Status]int{}
	for _, c := range checks {
		n[c.Status]++
	}
	switch {
	case n[Unreachable] > 0:
		return exit.Unreachable(fmt.Errorf("%d checks could not be made, since a server was not reached; %d found something wrong", n[Unreachable], n[Wrong]), "what is said of the others is true; nothing was changed")
	case n[Wrong] > 0:
		return exit.Bad(fmt.Errorf("%d checks found something wrong; nothing was changed", n[Wrong]), "")
	}
	return nil
}

// list collects checks.
type list []Check

// add adds a check. An error of several lines becomes one.
func (l *list) add(status Status, what, found, fix string) {
	*l = append(*l, Check{status, what, strings.Join(strings.Fields(found), " "), fix})
}

// failed adds an error; an exit.Error knows whether a server was away.
func (l *list) failed(what string, err error) {
	status, hint := Wrong, ""
	if f, ok := errors.AsType[*exit.Error](err); ok {
		hint = f.Hint
		if f.Code == exit.NotReached {
			status = Unreachable
		}
	}
	for line := range strings.Lines(err.Error()) {
		l.add(status, what, strings.TrimSpace(line), hint)
	}
}

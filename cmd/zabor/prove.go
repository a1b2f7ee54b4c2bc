package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync/atomic"
	"time"

	"github.com/alecthomas/kong"
	"golang.org/x/term"

	"zabor/internal/connect"
	"zabor/internal/console"
	"zabor/internal/exit"
	"zabor/internal/stopat"
	"zabor/prove"
)

type proveCommand struct {
	JSON     bool             `name:"json" help:"One JSON object."`
	HTML     string           `name:"html" placeholder:"FILE" help:"Also write one self-contained page: the table, the timeline of each cell, versions and settings."`
	Strategy []prove.Strategy `enum:"auto-ack,ack-after,unique-lock,fence" placeholder:"NAME" help:"Only these: auto-ack, ack-after, unique-lock, fence."`
	Moment   []prove.Moment   `enum:"before-capture,before-send,recaptured,sent,charged,answered,saved,in-ack" placeholder:"NAME" help:"Only these: before-capture, before-send, recaptured, sent, charged, answered, saved, in-ack."`
	Queue    []prove.Queue    `enum:"laravel,symfony" placeholder:"NAME" help:"Only these: laravel, symfony."`
	Death    []prove.Death    `enum:"sigkill,sigstop,sigterm" placeholder:"NAME" help:"Only these: sigkill, sigstop, sigterm."`

	Soak  bool          `help:"Instead of the table: kill, stall and restart at random, until --kills workers were killed."`
	Kills int           `placeholder:"N" help:"With --soak: how many; 100 where it is not given."`
	For   time.Duration `placeholder:"DURATION" help:"With --soak: stop killing after so long, however few were killed by then; the report says so."`
}

func (c *proveCommand) Run(p *program) error {
	if err := c.check(); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "zabor-prove-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	place, closePlace, err := p.place(dir)
	if err != nil {
		return err
	}
	if c.Soak {
		err = c.soak(p, place)
	} else {
		err = c.matrix(p, place)
	}
	left := closePlace()
	switch {
	case left == nil:
		return err
	case err == nil:
		return exit.Bad(fmt.Errorf("the proof is done, and not all that it had made on your servers could be removed: %w", left), leftHint)
	}
	p.Log.Error("not all that the proof had made on your servers could be removed; "+leftHint, "error", left)
	return err
}

const leftHint = "the next proof on these servers removes it, once it may; docs/prove.md says what there is"

func (c *proveCommand) check() error {
	chosen := len(c.Strategy) + len(c.Moment) + len(c.Queue) + len(c.Death)
	switch {
	case !c.Soak && (c.Kills != 0 || c.For != 0):
		return exit.Usage(errors.New("--kills and --for are for --soak"), "")
	case c.Soak && (chosen > 0 || c.HTML != ""):
		return exit.Usage(errors.New("--soak has no cells, and no page"), "take --strategy, --moment, --queue, --death and --html out")
	case c.Kills < 0 || c.For < 0:
		return exit.Usage(errors.New("--kills and --for must be above zero"), "")
	}
	return nil
}

// named reports whether the command line itself has the flag: a variable of the
// environment does not count.
func (p *program) named(flag string) bool {
	return slices.ContainsFunc(p.path, func(part *kong.Path) bool { return part.Flag != nil && part.Flag.Name == flag && !part.Resolved })
}

func (c *proveCommand) matrix(p *program, place *prove.Place) error {
	filter := prove.Filter{Strategies: c.Strategy, Moments: c.Moment, Queues: c.Queue, Deaths: c.Death}
	say := console.Progress(p.stderr)
	if !c.JSON {
		fmt.Fprintf(p.stdout, "One order for each place of the table. Its worker dies at the moment on the left, the queue hands the message\n"+
			"to another one, and the provider says how often the order was charged. 1 is good, 2 is charged twice, 0 is lost.\n"+
			"Columns L: Laravel's list, S: Symfony's stream. Here: %s.\n\n", place.Name)
	}
	start, cells := time.Now(), len(filter.Cells())
	var done, failed atomic.Int64
	report, err := prove.Matrix(p.ctx, place, filter, func(r prove.Result) {
		n := done.Add(1)
		if r.Strategy == prove.Fence && !r.Good() {
			failed.Add(1)
		}
		say("\r%-79s\r", fmt.Sprintf("%d of %d cells, %.0f s; the fence has failed in %d", n, cells, time.Since(start).Seconds(), failed.Load()))
	})
	say("\r%-79s\r", "")
	if err != nil {
		return unproven(p, err)
	}
	if c.HTML != "" {
		if err := writePage(c.HTML, report); err != nil {
			return err
		}
	}
	if c.JSON {
		if err := json.NewEncoder(p.stdout).Encode(report); err != nil {
			return err
		}
	} else {
		report.Print(p.stdout, coloured(p))
	}
	switch {
	case !report.Good:
		return exit.Bad(errors.New(report.Verdict()), "--html FILE has the timeline of each cell; please report it with that page")
	case !c.JSON && report.Fenced():
		fmt.Fprintf(p.stdout, "\n%s (%.1f s)\n", report.Verdict(), report.Seconds)
	}
	return nil
}

// unproven is the error of a proof without a report.
func unproven(p *program, err error) error {
	if p.ctx.Err() != nil {
		return exit.Bad(errors.New("the proof was stopped before its end: nothing is known of the fence by it"), "")
	}
	return fmt.Errorf("prove: %w", err)
}

func writePage(name string, report *prove.Report) error {
	f, err := os.Create(name)
	if err != nil {
		return fmt.Errorf("the page: %w", err)
	}
	return errors.Join(report.HTML(f), f.Close())
}

// coloured reports whether stdout wants colours.
func coloured(p *program) bool {
	f, ok := p.stdout.(*os.File)
	return ok && term.IsTerminal(int(f.Fd())) && os.Getenv("NO_COLOR") == ""
}

func (c *proveCommand) soak(p *program, place *prove.Place) error {
	kills := cmp.Or(c.Kills, 100)
	say := console.Progress(p.stderr)
	start := time.Now()
	report, err := prove.Soak(p.ctx, place, kills, c.For, func(killed int64) {
		say("\r%-79s\r", fmt.Sprintf("%d of %d workers killed, %.0f s", killed, kills, time.Since(start).Seconds()))
	})
	say("\r%-79s\r", "")
	if err != nil {
		return unproven(p, err)
	}
	if c.JSON {
		if err := json.NewEncoder(p.stdout).Encode(report); err != nil {
			return err
		}
	} else {
		report.Print(p.stdout)
	}
	if !report.Good {
		return exit.Bad(errors.New("the provider's charges and the rows of the fence are not equal, or something was left over"), "")
	}
	return nil
}

// proveWorkerCommand is a worker of a strategy without a fence. Its
// settings come by its input.
type proveWorkerCommand struct {
	StopAt string `help:"As that of worker."`
}

func (c *proveWorkerCommand) Run(p *program) error {
	var s prove.WorkerSettings
	if err := json.NewDecoder(os.Stdin).Decode(&s); err != nil {
		return exit.Usage(fmt.Errorf("no settings on the input: %w", err), `"zabor prove" starts this command`)
	}
	stop := stopat.Checkpoint(c.StopAt)
	return prove.RunWorker(p.ctx, s, prove.WorkerOptions{OpenRedis: connect.Redis, Hook: stopat.AckHook(stop), At: stop, Log: p.Log})
}

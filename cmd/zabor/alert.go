package main

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"zabor"
	"zabor/alert"
	"zabor/card"
	"zabor/internal/config"
	"zabor/internal/console"
	"zabor/internal/exit"
)

type alertCommand struct {
	Test alertTest `cmd:"" help:"Send a test to each alert address and say what became of it."`
}

type alertTest struct {
	JSON bool `name:"json" help:"One JSON array: address, delivered, error."`
}

func (c *alertTest) Run(p *program) error {
	file, err := p.load()
	if err != nil {
		return err
	}
	sender, err := p.sender(file)
	if err != nil {
		return err
	}
	defer p.closeSender(sender)
	results := sender.Test()
	if len(results) == 0 {
		return exit.Usage(fmt.Errorf("%s: there are no alert addresses: alerts go to the log only", file.Path), "write them under alerts:, such as alerts: [\"${ALERT_URL}\"]")
	}
	type line struct {
		Address   string `json:"address"`
		Delivered bool   `json:"delivered"`
		Error     string `json:"error,omitempty"`
	}
	lines, failed := make([]line, len(results)), 0
	for i, r := range results {
		lines[i] = line{Address: r.Address, Delivered: r.Err == nil}
		if r.Err != nil {
			lines[i].Error = r.Err.Error()
			failed++
		}
	}
	if c.JSON {
		if err := json.NewEncoder(p.stdout).Encode(lines); err != nil {
			return err
		}
	} else {
		for _, l := range lines {
			if l.Delivered {
				fmt.Fprintf(p.stdout, "%s: delivered\n", console.Printable(l.Address))
			} else {
				fmt.Fprintf(p.stdout, "%s: not delivered: %s\n", console.Printable(l.Address), console.Printable(l.Error))
			}
		}
	}
	if failed > 0 {
		return exit.Bad(fmt.Errorf("%d of %d alert addresses did not take the test", failed, len(results)), "alerts to them would be in zabor's log only")
	}
	return nil
}

// sender makes the sender to the file's alert addresses; those that a variable
// left empty are none.
func (p *proc) sender(file *config.Config) (*alert.Sender, error) {
	var addresses []string
	for _, a := range file.Alerts {
		if a != "" {
			addresses = append(addresses, string(a))
		}
	}
	sender, err := alert.New(addresses, p.log)
	if err != nil {
		return nil, exit.Usage(fmt.Errorf("%s: %w", file.Path, err), "nothing was started; \"zabor alert test\" tries the addresses")
	}
	return sender, nil
}

// alertsTime bounds the delivery of what waits at the end.
const alertsTime = 5 * time.Second

func (p *proc) closeSender(sender *alert.Sender) {
	ctx, cancel := context.WithTimeout(context.Background(), alertsTime)
	defer cancel()
	if err := sender.Close(ctx); err != nil {
		p.log.Error("not every alert was delivered", "error", err)
	}
}

// alerts makes p's alerts go to the file's addresses too, until the returned
// function is called.
func (p *proc) alerts(file *config.Config) (end func(), err error) {
	sender, err := p.sender(file)
	if err != nil {
		return nil, err
	}
	p.send, p.lost = sender.Send, sender.Lost
	return func() { p.closeSender(sender) }, nil
}

// alert tells a person: in the log, and at the alert addresses where the command
// has opened them.
func (p *proc) alert(a zabor.Alert) {
	a.Text = card.Mask(a.Text)
	level := p.log.Warn
	if a.Severity == zabor.Critical {
		level = p.log.Error
	}
	level("ALERT "+a.Code, "severity", a.Severity, "key", a.Key, "order", a.Key.Order, "step", a.Key.Step, "state", a.State, "amount", console.Money(a.Amount), "provider", a.Provider, "text", a.Text, "next", a.Next)
	if p.count != nil {
		p.count(a)
	}
	if p.send != nil {
		p.send(a)
	}
}

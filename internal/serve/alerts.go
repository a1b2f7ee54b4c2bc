package serve

import (
	"context"
	"fmt"
	"time"

	"zabor"
	"zabor/alert"
	"zabor/card"
	"zabor/internal/config"
	"zabor/internal/console"
	"zabor/internal/exit"
)

// Sender makes the sender to the file's alert addresses. An empty variable is no
// address.
func (p *Process) Sender(file *config.Config) (*alert.Sender, error) {
	var addresses []string
	for _, a := range file.Alerts {
		if a != "" {
			addresses = append(addresses, string(a))
		}
	}
	sender, err := alert.New(addresses, p.Log)
	if err != nil {
		return nil, exit.Usage(fmt.Errorf("%s: %w", file.Path, err), "nothing was started; \"zabor alert test\" tries the addresses")
	}
	return sender, nil
}

// alertsTime bounds the delivery of waiting alerts at the end.
const alertsTime = 5 * time.Second

// CloseSender delivers the alerts that wait, for at most five seconds.
func (p *Process) CloseSender(sender *alert.Sender) {
	ctx, cancel := context.WithTimeout(context.Background(), alertsTime)
	defer cancel()
	if err := sender.Close(ctx); err != nil {
		p.Log.Error("not every alert was delivered", "error", err)
	}
}

// Alerts makes p's alerts go to the file's addresses too, until the returned
// function is called.
func (p *Process) Alerts(file *config.Config) (end func(), err error) {
	sender, err := p.Sender(file)
	if err != nil {
		return nil, err
	}
	p.send, p.lost = sender.Send, sender.Lost
	return func() { p.CloseSender(sender) }, nil
}

// Alert tells a person: in the log, and at the alert addresses where the command
// has opened them.
func (p *Process) Alert(a zabor.Alert) {
	a.Text = card.Mask(a.Text)
	level := p.Log.Warn
	if a.Severity == zabor.Critical {
		level = p.Log.Error
	}
	level("ALERT "+a.Code, "severity", a.Severity, "key", a.Key, "order", a.Key.Order, "step", a.Key.Step, "state", a.State, "amount", console.Money(a.Amount), "provider", a.Provider, "text", a.Text, "next", a.Next)
	if p.count != nil {
		p.count(a)
	}
	if p.send != nil {
		p.send(a)
	}
}

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"

	"zabor/internal/console"
	"zabor/internal/exit"
	"zabor/internal/takeover"
)

// importResult is the result of an import; its JSON is documented.
type importResult struct {
	DryRun     bool                 `json:"dry_run"`
	Payments   []takeover.Source    `json:"payments"`
	Problems   []takeover.Problem   `json:"problems"` // examples, a hundred at most
	Queues     []takeover.Inventory `json:"queues"`
	WithoutKey []takeover.Unkeyed   `json:"without_key"` // examples, a hundred at most for each queue
}

func (c *importCommand) report(p *program, r importResult, paid *takeover.Payments) error {
	without, unseen := 0, []string(nil)
	for _, q := range r.Queues {
		without += q.WithoutKey
		if q.NoTransport {
			unseen = append(unseen, q.Queue)
		}
	}
	if c.JSON {
		if err := json.NewEncoder(p.stdout).Encode(r); err != nil {
			return err
		}
	} else {
		if paid != nil {
			if err := printPayments(p.stdout, paid, r.DryRun); err != nil {
				return err
			}
		}
		if err := r.print(p.stdout); err != nil {
			return err
		}
	}
	if paid != nil && paid.Unsure > 0 {
		return exit.Bad(fmt.Errorf("%d keys have two payments, or a row that says something else than the payment: none was chosen", paid.Unsure),
			"look them up at the provider, refund what was charged twice, and decide: zabor fence settle ORDER STEP REFERENCE --reason TEXT")
	}
	if len(unseen) > 0 {
		return exit.Bad(fmt.Errorf("there is no table of failed messages for queue %s: what failed before zabor came was not seen, and no row holds it", strings.Join(unseen, ", ")),
			"where the application keeps it elsewhere (a file, DynamoDB), look there, and retry none of it; make the table, or name it under failed:, and import again")
	}
	if without == 0 {
		return nil
	}
	return exit.Bad(fmt.Errorf("%d messages of steps have been with another worker, and no key can be made of them: no row holds them", without),
		"a worker parks them and calls nothing. Where you mend the configuration so that they get a key, run the import again before they are retried")
}

func (r importResult) print(to io.Writer) error {
	held := "held now"
	if r.DryRun {
		held = "would be held"
	}
	w := tabwriter.NewWriter(to, 0, 8, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(w, "queue\tmessages\tof no step\tnobody has had\thave a row\t%s\twithout a key\t\n", held)
	for _, q := range r.Queues {
		fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%d\t%d\t%d\t\n", q.Queue, q.Messages, q.NoStep, q.Fresh, q.Row, q.Held, q.WithoutKey)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	for _, q := range r.Queues {
		if q.FreshPaid > 0 {
			fmt.Fprintf(to, "queue %s: %d of the messages that nobody has had are of orders that were paid (%s): somebody has retried failed messages in PHP, or they were sent twice. "+
				"A payment explains these, and they are not charged again. Of the other %d, PHP may have charged those that were retried: docs/switching.md, \"Somebody has retried\", before a worker starts\n",
				q.Queue, q.FreshPaid, strings.Join(q.PaidOrders, ", "), q.Fresh-q.FreshPaid)
		}
	}
	for _, u := range r.WithoutKey {
		fmt.Fprintf(to, "queue %s, %s: message %s of %s: %s\n", u.Queue, u.Where, console.Printable(u.ID), console.Printable(u.Class), console.Printable(u.Reason))
	}
	return nil
}

// printPayments prints the part of the report about payments.
func printPayments(to io.Writer, p *takeover.Payments, dryRun bool) error {
	w := tabwriter.NewWriter(to, 0, 8, 2, ' ', tabwriter.AlignRight)
	now := "now"
	if dryRun {
		now = "to be"
	}
	fmt.Fprintf(w, "payments from\tread\t%s settled\thave a row\t%s held\tcontradict a row\tskipped\t\n", now, now)
	for _, s := range p.Sources {
		fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%d\t%d\t%d\t\n", s.Source, s.Read, s.Settled, s.Row, s.Held, s.Contradicted, s.Skipped)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	for _, s := range p.Sources {
		for _, reason := range slices.Sorted(maps.Keys(s.Reasons)) {
			fmt.Fprintf(to, "%s: skipped %d: %s\n", s.Source, s.Reasons[reason], reason)
		}
	}
	for _, one := range p.Problems {
		fmt.Fprintf(to, "%s: %s (%s)\n", one.Key.Plain(), console.Printable(one.What), strings.Join(one.Places, ", "))
	}
	_, err := fmt.Fprintln(to)
	return err
}

package main

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"zabor"
	"zabor/audit"
	"zabor/internal/console"
)

func (a *auditor) print(ledger *audit.Ledger, total audit.Total) error {
	switch {
	case a.c.JSON:
		return a.printJSON(ledger, total)
	case a.c.CSV:
		return a.printCSV(ledger)
	}
	w := tabwriter.NewWriter(a.stdout, 0, 8, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "provider 200s\tunique rows\tcharged twice\tlost\t")
	fmt.Fprintln(w, "-------------\t-----------\t-------------\t----\t")
	fmt.Fprintf(w, "%d\t%d\t%d\t%d\t\n", total.ProviderSuccesses, total.UniqueRows, total.DoubleCharged, total.Lost)
	w.Flush()
	fmt.Fprintf(a.stdout, "\nread: %d rows, %d successes of providers, %d payments, %d messages\n", total.Rows, total.Successes, total.Payments, total.Messages)
	if len(total.Double) > 0 {
		what := "charged beyond the first time"
		if a.Store == nil {
			what = "a fence would have stopped"
		}
		fmt.Fprintf(a.stdout, "%s: %s\n", what, moneyList(total.Double))
	}
	if len(total.AtRisk) > 0 {
		fmt.Fprintf(a.stdout, "in doubt or held: %s\n", moneyList(total.AtRisk))
	}
	if len(total.Differences) == 0 {
		if why := total.Uncompared(); why != "" {
			fmt.Fprintf(a.stdout, "nothing was compared: %s\n", why)
			return nil
		}
		fmt.Fprintln(a.stdout, "no differences")
		return nil
	}
	fmt.Fprintln(a.stdout)
	return a.printTable(ledger, total)
}

// mostLines is how many differences of a kind a person is shown.
const mostLines = 20

func (a *auditor) printTable(ledger *audit.Ledger, total audit.Total) error {
	w := tabwriter.NewWriter(a.stdout, 0, 8, 2, ' ', 0)
	fmt.Fprintln(w, "SEVERITY\tKIND\tORDER\tSTEP\tSTATE\tAMOUNT\tAGE\tWHAT")
	shown := map[audit.Kind]int64{}
	for d, err := range ledger.Differences(a.ctx) {
		if err != nil {
			return err
		}
		if shown[d.Kind]++; shown[d.Kind] > mostLines {
			continue
		}
		age := ""
		if !d.Since.IsZero() {
			age = time.Since(d.Since).Round(time.Second).String()
		}
		_, what, _ := strings.Cut(audit.Describe(d), ", ")
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", d.Severity, d.Kind, console.Printable(d.Key.Order), console.Printable(d.Key.Step), d.State, console.Money(d.Amount), age, what)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	for _, kind := range slices.Sorted(maps.Keys(total.Differences)) {
		if n := total.Differences[kind]; n > mostLines {
			fmt.Fprintf(a.stdout, "%s: %d in all; --csv has them\n", kind, n)
		}
	}
	return nil
}

func moneyList(list []zabor.Money) string {
	var texts []string
	for _, m := range list {
		texts = append(texts, console.Money(m))
	}
	return strings.Join(texts, ", ")
}

func (a *auditor) printCSV(ledger *audit.Ledger) error {
	w := csv.NewWriter(a.stdout)
	w.Write([]string{"severity", "kind", "scope", "order", "step", "state", "reference", "other", "amount", "currency", "other_amount", "other_currency", "since", "place"})
	for d, err := range ledger.Differences(a.ctx) {
		if err != nil {
			return err
		}
		w.Write([]string{string(d.Severity), string(d.Kind), console.KeyCell(d.Key.Scope), console.KeyCell(d.Key.Order), console.KeyCell(d.Key.Step), string(d.State), console.Cell(d.Reference), console.Cell(d.Other),
			minorText(d.Amount), d.Amount.Currency, minorText(d.OtherAmount), d.OtherAmount.Currency, console.Time(d.Since), console.Cell(d.Place)})
	}
	w.Flush()
	return w.Error()
}

func minorText(m zabor.Money) string {
	if m.Currency == "" {
		return ""
	}
	return strconv.FormatInt(m.Minor, 10)
}

// auditJSON is the documented shape of an audit, but for its differences.
type auditJSON struct {
	ProviderSuccesses int64                `json:"provider_successes"`
	UniqueRows        int64                `json:"unique_rows"`
	DoubleCharged     int64                `json:"double_charged"`
	Lost              int64                `json:"lost"`
	Rows              int64                `json:"rows"`
	Successes         int64                `json:"successes"`
	Payments          int64                `json:"payments"`
	Messages          int64                `json:"messages"`
	Kinds             map[audit.Kind]int64 `json:"kinds"`
	AtRisk            []moneyJSON          `json:"at_risk"`
	Double            []moneyJSON          `json:"double"`
	Skipped           []audit.Skipped      `json:"skipped"`
	Nameless          int64                `json:"nameless"`
	Uncompared        string               `json:"uncompared"` // empty: all was compared
}

type moneyJSON struct {
	Amount   int64  `json:"amount"` // minor units
	Currency string `json:"currency"`
}

type differenceJSON struct {
	Kind     audit.Kind     `json:"kind"`
	Severity audit.Severity `json:"severity"`
	console.Key
	State       string     `json:"state"` // empty: there is no row
	Reference   string     `json:"reference"`
	Other       string     `json:"other"`
	Amount      *moneyJSON `json:"amount"` // null: not known
	OtherAmount *moneyJSON `json:"other_amount"`
	Since       *string    `json:"since"`
	Place       string     `json:"place"`
}

// printJSON writes the differences one by one: there may be many.
func (a *auditor) printJSON(ledger *audit.Ledger, t audit.Total) error {
	head, err := json.Marshal(auditJSON{
		t.ProviderSuccesses, t.UniqueRows, t.DoubleCharged, t.Lost, t.Rows, t.Successes, t.Payments, t.Messages, t.Differences, moneysJSON(t.AtRisk), moneysJSON(t.Double),
		append([]audit.Skipped{}, t.Skipped...), t.Nameless, t.Uncompared(),
	})
	if err != nil {
		return err
	}
	fmt.Fprintf(a.stdout, "%s,\"differences\":[", head[:len(head)-1])
	separator := ""
	for d, err := range ledger.Differences(a.ctx) {
		if err != nil {
			return err
		}
		text, err := json.Marshal(differenceJSON{d.Kind, d.Severity, console.NewKey(d.Key), string(d.State), d.Reference, d.Other,
			moneyOrNull(d.Amount), moneyOrNull(d.OtherAmount), console.JSONTime(d.Since), d.Place})
		if err != nil {
			return err
		}
		fmt.Fprintf(a.stdout, "%s\n%s", separator, text)
		separator = ","
	}
	_, err = fmt.Fprintln(a.stdout, "]}")
	return err
}

func moneysJSON(list []zabor.Money) []moneyJSON {
	out := []moneyJSON{}
	for _, m := range list {
		out = append(out, moneyJSON{m.Minor, m.Currency})
	}
	return out
}

func moneyOrNull(m zabor.Money) *moneyJSON {
	if m.Currency == "" {
		return nil
	}
	return &moneyJSON{m.Minor, m.Currency}
}

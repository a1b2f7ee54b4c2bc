package prove

import (
	"fmt"
	"io"
	"slices"
	"strings"
)

// Tally is what one strategy did over its cells.
type Tally struct {
	Strategy                         Strategy
	Cells, Once, Twice, Lost, Unsaid int // Unsaid: charged once, and no row says so
	Unfinished                       int
}

// Tallies sums the cells up, by strategy.
func (r *Report) Tallies() []Tally {
	var all []Tally
	for _, s := range Strategies() {
		t := Tally{Strategy: s}
		for _, c := range r.Cells {
			if c.Strategy != s {
				continue
			}
			t.Cells++
			t.Twice += c.DoubleCharged
			t.Lost += c.Lost
			if c.Charges == 1 {
				t.Once++
				if c.UniqueRows == 0 {
					t.Unsaid++
				}
			}
			if c.Error != "" {
				t.Unfinished++
			}
		}
		if t.Cells > 0 {
			all = append(all, t)
		}
	}
	return all
}

// Fenced reports whether any cell is the fence's.
func (r *Report) Fenced() bool {
	return slices.ContainsFunc(r.Cells, func(c Result) bool { return c.Strategy == Fence })
}

// Verdict is what the report says of the fence, as a sentence; empty: it has none of
// its cells. What was not finished is no failure: the machine may have had no time
// for it, or a server may have been away.
func (r *Report) Verdict() string {
	failed, unfinished := 0, 0
	for _, c := range r.Cells {
		switch {
		case c.Strategy != Fence || c.Good():
		case c.Error != "" && c.Charges <= 1:
			unfinished++
		default:
			failed++
		}
	}
	switch {
	case !r.Fenced():
		return ""
	case failed > 0:
		return fmt.Sprintf("The fence has failed in %d cells: their orders were not charged exactly once, with a row that says so.", failed)
	case unfinished > 0:
		return fmt.Sprintf("Not proven: %d cells of the fence were not finished. In all others every order was charged exactly once, and its row says so.", unfinished)
	}
	return "The fence: every order was charged exactly once, and its row says so."
}

// At is the result of a cell; nil: it was not run.
func (r *Report) At(c Cell) *Result {
	i := slices.IndexFunc(r.Cells, func(have Result) bool { return have.Cell == c })
	if i < 0 {
		return nil
	}
	return &r.Cells[i]
}

// Mark is r as the table shows it: how often the order was charged, with a star
// where no row says so and an exclamation mark where the cell was not finished.
func (r *Result) Mark() string {
	if r == nil {
		return "·"
	}
	mark := fmt.Sprint(r.Charges)
	switch {
	case r.Error != "":
		mark += "!"
	case r.Charges > 0 && r.UniqueRows == 0:
		mark += "*"
	}
	return mark
}

// Colours of marks on a terminal.
const (
	green, yellow, red, plain = "\x1b[32m", "\x1b[33m", "\x1b[31m", "\x1b[0m"
)

func (r *Result) colour() string {
	switch {
	case r == nil:
		return ""
	case r.Charges > 1 || r.Error != "":
		return red
	case r.Charges == 0 || r.UniqueRows == 0:
		return yellow
	}
	return green
}

// Print writes the table.
func (r *Report) Print(w io.Writer, colours bool) {
	strategies := present(r, Strategies(), func(c Cell) Strategy { return c.Strategy })
	queues := present(r, Queues(), func(c Cell) Queue { return c.Queue })
	width := 3 * len(queues)
	for _, s := range strategies {
		width = max(width, len(s))
	}
	const left = 32
	for _, d := range present(r, Deaths(), func(c Cell) Death { return c.Death }) {
		head, under := d.Label(), ""
		if len(head) > left {
			head, under, _ = strings.Cut(head, ", ")
		}
		fmt.Fprintf(w, "%-*s", left, head)
		for _, s := range strategies {
			fmt.Fprintf(w, "  %-*s", width, s)
		}
		fmt.Fprintf(w, "\n%-*s", left, under)
		for range strategies {
			line := ""
			for _, q := range queues {
				line += fmt.Sprintf("%-3s", strings.ToUpper(string(q[:1])))
			}
			fmt.Fprintf(w, "  %-*s", width, line)
		}
		fmt.Fprintln(w)
		for _, m := range present(r, Moments(), func(c Cell) Moment { return c.Moment }) {
			fmt.Fprintf(w, "%-*s", left, m.Label())
			for _, s := range strategies {
				line := "  "
				for _, q := range queues {
					cell := r.At(Cell{s, m, q, d})
					mark := fmt.Sprintf("%-3s", cell.Mark())
					if colours {
						mark = cell.colour() + mark + plain
					}
					line += mark
				}
				fmt.Fprint(w, line, strings.Repeat(" ", width-3*len(queues)))
			}
			fmt.Fprintln(w)
		}
		fmt.Fprintln(w)
	}
	for _, t := range r.Tallies() {
		fmt.Fprintf(w, "%-12s %3d cells: %3d charged once, %3d charged twice, %3d lost", t.Strategy, t.Cells, t.Once, t.Twice, t.Lost)
		if t.Unsaid > 0 {
			fmt.Fprintf(w, "; %d of the charges are in no row (*)", t.Unsaid)
		}
		if t.Unfinished > 0 {
			fmt.Fprintf(w, "; %d not finished (!)", t.Unfinished)
		}
		fmt.Fprintln(w)
	}
	for _, c := range r.Cells {
		if c.Error != "" {
			fmt.Fprintf(w, "%s: %s\n", c.Cell, c.Error)
		}
	}
}

// String names the cell.
func (c Cell) String() string {
	return fmt.Sprintf("%s, %s, %s, %s", c.Strategy, c.Moment, c.Queue, c.Death)
}

// present are those of all that a cell of r has.
func present[T comparable](r *Report, all []T, of func(Cell) T) []T {
	return slices.DeleteFunc(all, func(one T) bool {
		return !slices.ContainsFunc(r.Cells, func(c Result) bool { return of(c.Cell) == one })
	})
}

// Print writes the report for a person.
func (r *SoakReport) Print(w io.Writer) {
	at := ""
	for _, m := range []string{"capturing", "sending", string(Charged), "answered", "saved", "acking", "any"} {
		if n := r.AtMoments[m]; n > 0 {
			at += fmt.Sprintf(", %d %s", n, m)
		}
	}
	fmt.Fprintf(w, "%-22s %d (%s)\n", "workers killed", r.Kills, strings.TrimPrefix(at, ", "))
	if r.TimeOver {
		fmt.Fprintf(w, "%-22s the time was over after %d of the %d kills that were asked for: what stands here is true of these alone\n", "NOT ALL", r.Kills, r.Wanted)
		if r.Trouble != "" {
			fmt.Fprintf(w, "%-22s %s\n", "could not start", r.Trouble)
		}
	}
	fmt.Fprintf(w, "%-22s %d\n", "stalled past reserve", r.Stalls)
	fmt.Fprintf(w, "%-22s %d\n", "stopped in order", r.Restarts)
	for name, n := range r.ServerKills {
		fmt.Fprintf(w, "%-22s %d\n", name+" killed", n)
	}
	fmt.Fprintf(w, "%-22s %d\n", "orders", r.Orders)
	fmt.Fprintf(w, "%-22s %d\n", "provider 200s", r.ProviderSuccesses)
	fmt.Fprintf(w, "%-22s %d\n", "unique rows", r.UniqueRows)
	if r.Mismatched > 0 {
		fmt.Fprintf(w, "%-22s %d\n", "rows of other charges", r.Mismatched)
	}
	fmt.Fprintf(w, "%-22s %d\n", "charged twice", r.DoubleCharged)
	fmt.Fprintf(w, "%-22s %d\n", "lost", r.Lost)
	fmt.Fprintf(w, "%-22s %d\n", "held", r.Held)
	fmt.Fprintf(w, "%-22s %d\n", "resolved by look-up", r.ByLookup)
	fmt.Fprintf(w, "%-22s %d\n", "surely not done, again", r.Repeated)
	fmt.Fprintf(w, "%-22s %.1f s\n", "slowest resolution", float64(r.Slowest)/1000)
	if r.Unsettled > 0 {
		fmt.Fprintf(w, "%-22s %d\n", "still open", r.Unsettled)
	}
	if r.Error != "" {
		fmt.Fprintf(w, "%s\n", r.Error)
	}
}

package prove

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"slices"
	"strings"
	"time"
)

//go:embed page.html
var pageText string

// HTML writes the report as one page that needs nothing else: no script, no
// style sheet, no picture from elsewhere.
func (r *Report) HTML(w io.Writer) error {
	page, err := template.New("page").Parse(pageText)
	if err != nil {
		return err
	}
	return page.Execute(w, r.page())
}

// page is what the template shows.
type page struct {
	*Report
	Date    string
	Tables  []table
	Details []detail
	Shown   string // the id of the detail that is shown before one is chosen
}

type table struct {
	Death      string
	Strategies []Strategy
	Queues     []Queue
	Rows       []tableRow
}

type tableRow struct {
	Moment string
	Cells  []tableCell
}

type tableCell struct {
	ID, Mark, Class, Title string
	First                  bool // of its strategy
}

// detail is one cell with its timeline.
type detail struct {
	*Result
	ID, Moment, Under, Death, Class string
	Picture                         picture
}

func (r *Report) page() page {
	p := page{Report: r, Date: r.Begun.Format("2 January 2006, 15:04:05 MST")}
	strategies := present(r, Strategies(), func(c Cell) Strategy { return c.Strategy })
	queues := present(r, Queues(), func(c Cell) Queue { return c.Queue })
	for _, d := range present(r, Deaths(), func(c Cell) Death { return c.Death }) {
		t := table{Death: d.Label(), Strategies: strategies, Queues: queues}
		for _, m := range present(r, Moments(), func(c Cell) Moment { return c.Moment }) {
			row := tableRow{Moment: m.Label()}
			for _, s := range strategies {
				for i, q := range queues {
					cell := r.At(Cell{s, m, q, d})
					one := tableCell{Mark: cell.Mark(), Class: cell.class(), First: i == 0, Title: m.Under(s)}
					if cell != nil {
						one.ID = id(cell.Cell)
						p.Details = append(p.Details, detail{
							Result: cell, ID: one.ID, Moment: m.Label(), Under: m.Under(s), Death: d.Label(), Class: one.Class, Picture: draw(cell.Timeline),
						})
					}
					row.Cells = append(row.Cells, one)
				}
			}
			t.Rows = append(t.Rows, row)
		}
		p.Tables = append(p.Tables, t)
	}
	// The best known of all: charged, killed before the answer, charged again.
	if classic := (Cell{AckAfter, Charged, Laravel, Kill}); r.At(classic) != nil {
		p.Shown = id(classic)
	} else if len(p.Details) > 0 {
		p.Shown = p.Details[0].ID
	}
	return p
}

func id(c Cell) string { return strings.ReplaceAll(c.name(), ".", "_") }

// class is how the page colours r.
func (r *Result) class() string {
	switch {
	case r == nil:
		return "none"
	case r.Charges > 1 || r.Error != "":
		return "bad"
	case r.Charges == 0 || r.UniqueRows == 0:
		return "poor"
	}
	return "good"
}

// picture is a timeline as it is drawn: time goes down, one event a line, and
// whoever it happened to has a column.
type picture struct {
	Height int
	TextAt int // where lines begin
	Lanes  []lane
	Bars   []bar
	Marks  []mark
	Gaps   []gap
}

type lane struct {
	X    int
	Name string
}

// bar is the life of a process, or the part of it in which it was stopped.
type bar struct {
	X, Y, Height int
	Class        string
}

type mark struct {
	X, Y       int
	Time, Text string
	Kind       Kind
}

type gap struct {
	Y    int
	Text string
}

// Measures of the picture, in its own units.
const (
	lineHeight = 22
	headHeight = 34
	firstLane  = 110
	laneWidth  = 62
)

// pauses shorter than this are not worth a line.
const shortPause = 400 * time.Millisecond

func draw(events []Event) picture {
	var p picture
	x := map[string]int{}
	for _, name := range []string{queued, before, first, second, provides} {
		if name == before && !slices.ContainsFunc(events, func(e Event) bool { return e.Who == before }) {
			continue
		}
		x[name] = firstLane + len(p.Lanes)*laneWidth
		p.Lanes = append(p.Lanes, lane{x[name], name})
	}
	p.TextAt = x[provides] + laneWidth - 18
	y, last := headHeight, 0.0
	open := map[string]bar{} // the bar of a process that is not at its end yet
	end := func(who string) {
		if b, ok := open[who]; ok {
			b.Height = y - b.Y
			p.Bars = append(p.Bars, b)
			delete(open, who)
		}
	}
	begin := func(who, class string) {
		end(who)
		open[who] = bar{X: x[who], Y: y, Class: class}
	}
	for i, e := range events {
		if wait := e.At - last; i > 0 && wait >= float64(shortPause.Milliseconds()) {
			y += lineHeight
			p.Gaps = append(p.Gaps, gap{y, fmt.Sprintf("%.1f s", wait/1000)})
		}
		last = e.At
		y += lineHeight
		switch e.Kind {
		case Began, Thawed:
			begin(e.Who, "lives")
		case Froze:
			begin(e.Who, "frozen")
		case Died, Ended:
			end(e.Who)
		}
		p.Marks = append(p.Marks, mark{x[e.Who], y, fmt.Sprintf("%.3f", e.At/1000), e.Text, e.Kind})
	}
	for _, who := range []string{before, first, second} {
		end(who)
	}
	p.Height = y + lineHeight
	return p
}

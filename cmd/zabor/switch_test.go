package main

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	"zabor/internal/exit"
	"zabor/internal/servers"
)

// The ways of docs/switching.md, walked by the document's own commands with the
// frameworks' real workers, on a shop that is charged by PHP and has had its
// accidents: a worker that was killed after the provider's 200, and jobs that
// failed after their charge, noted by the shop or not. The provider charges each
// request that reaches it.

// ways runs a walk for each framework.
func ways(t *testing.T, way func(*testing.T, *walk)) {
	t.Parallel()
	for _, framework := range []string{"laravel", "symfony"} {
		t.Run(framework, func(t *testing.T) {
			t.Parallel()
			way(t, newWalk(t, framework))
		})
	}
}

// The morning after a double charge: the look, in on the same queue, out, PHP
// charges again, and the shop comes back. Every order is charged once, but the one
// of last night; what nobody can explain is held, and nothing is lost.
func TestSwitch(t *testing.T) {
	ways(t, func(t *testing.T, w *walk) {
		const payments = "payments"
		// Before: PHP charges. One order twice, since a worker was killed between the
		// provider's 200 and the ack.
		w.dies("twice", payments)
		w.again()
		w.order("paid", "broken", "silent", "silent-too")
		w.works(payments, 4)
		w.dies("killed", payments)
		ready := []string{"late"}
		for i := range 10 {
			ready = append(ready, fmt.Sprintf("ready-%d", i))
		}
		w.order(append(ready[1:], "late+3600")...)
		if got := w.provider.Stats().Charges; got != 7 || w.parked() != 3 {
			t.Fatalf("PHP has charged %d times, and %d have failed; want 7 and 3", got, w.parked())
		}

		// Look: there is no fence yet.
		w.types(w.block("doctor"), exit.BadAnswer)
		w.export("")
		out := words(w.types(w.block("look-export"), exit.BadAnswer))
		if !strings.Contains(out, " charged-twice twice ") || !strings.Contains(out, " 7 6 1 0 ") {
			t.Errorf("the look does not find the order that was charged twice:\n%s", out)
		}
		w.types(w.block("look-query"), exit.Good) // the shop has noted one of the two
		refunded := w.provider.Charges("twice")[0].ID

		// Prepare, while PHP could go on.
		w.prepare("")
		before := w.dump()
		out = w.run("peek", exit.Good)
		if calls, holds := strings.Count(out, "verdict  call"), strings.Count(out, "verdict  hold"); calls != 11 || holds != 4 {
			t.Errorf("peek says call of %d messages and hold of %d, want 11 and 4\n%s", calls, holds, out)
		}
		if !maps.Equal(w.dump(), before) {
			t.Error("peek has changed something")
		}

		// In. The provider's list lacks what is newest.
		w.deploy(false)
		w.gone("messages")
		w.run("live", exit.Good)
		w.export(refunded, "killed", "silent-too")
		w.run("import", exit.Good)
		w.states("after the import", map[string]string{
			"twice": "settled", "paid": "settled", "broken": "settled", "silent": "settled", "silent-too": "held", "killed": "held", "late": "", "ready-0": "",
		})
		worker := w.begin("worker")
		w.charges(17)
		w.due()
		w.charges(18)
		eventuallyWithin(t, 2*limit, "the queue is empty, and what is held is parked", func() bool { return w.onQueue() == 0 && w.parked() == 4 })
		if out := w.run("peek", exit.Good); strings.Count(out, "verdict  repeat") != 2 || strings.Count(out, "verdict  hold") != 2 {
			t.Errorf("peek does not say repeat of two and hold of two failed messages:\n%s", out)
		}
		w.forgets("broken")
		for _, order := range ready {
			eventually(t, "order "+order+" is settled", func() bool { return w.state(order) == "settled" })
		}
		// What PHP charged and never noted, the lead notes.
		if out := words(w.run("audit", exit.BadAnswer)); strings.Count(out, " row-without-payment ") != 1 || !strings.Contains(out, " row-without-payment silent ") {
			t.Errorf("the audit does not say which order the shop does not know:\n%s", out)
		}
		w.noted("silent")
		w.end(worker)
		w.states("with zabor", map[string]string{"killed": "held", "silent-too": "held"})

		// Out: what is held is decided first.
		out = w.run("out", exit.BadAnswer)
		for _, text := range []string{"killed/charge is held", "silent-too/charge is held", "silent/charge is settled"} {
			if !strings.Contains(out, text) {
				t.Errorf("the drain does not say that %s:\n%s", text, out)
			}
		}
		w.settles("killed", "silent-too")
		w.forgets("silent")
		w.run("audit", exit.Good)
		w.run("out", exit.Good)
		if n := w.parked(); n != 0 {
			t.Errorf("%d failed messages are left, want none", n)
		}
		w.deploy(true)
		w.order("after")
		w.types(w.block("back-"+w.framework), exit.Good)
		w.dies("after-killed", payments)
		all := append(ready, "paid", "broken", "silent", "silent-too", "killed", "after")
		w.once(all...)

		// Coming back: PHP's accident of meanwhile is on the queue.
		w.order("again")
		w.deploy(false)
		w.gone("messages")
		if out := w.run("worker", exit.WrongUsage); !strings.Contains(out, "zabor import") {
			t.Errorf("a start without the import does not name it:\n%s", out)
		}
		w.export(refunded)
		w.run("live", exit.Good)
		w.run("import", exit.Good)
		worker = w.begin("worker")
		w.charges(21)
		w.due()
		eventuallyWithin(t, 2*limit, "the queue is empty", func() bool { return w.onQueue() == 0 })
		w.end(worker)
		if row := w.row("after-killed"); row.State != "settled" {
			t.Errorf("order after-killed is %s (%s), want settled", row.State, row.Reason)
		}
		w.noted("after-killed")
		w.once(append(all, "after-killed", "again")...)
		if n := len(w.provider.Charges("twice")); n != 2 || w.parked() != 0 {
			t.Errorf("order twice was charged %d times, and %d messages have failed; want the two of last night, and none", n, w.parked())
		}
	})
}

// By a queue with a new name, beside the old one, where PHP's accidents lie. At the
// worst moment, when PHP has stopped and nothing is imported yet, somebody types
// PHP's own retry: the provider's list stands against it.
func TestSwitchNewQueue(t *testing.T) {
	ways(t, func(t *testing.T, w *walk) {
		w.order("silent", "paid")
		w.works("payments", 2)
		w.prepare("")
		w.addQueue()
		w.run("check", exit.Good)
		w.order("old", "old-late+3600")
		w.setting("PAYMENT_QUEUE", "charges")
		w.order("new-0", "new-1")
		w.works("payments", 1)
		w.setting("PAYMENT_QUEUE", "payments")
		w.dies("killed", "payments")
		w.setting("PAYMENT_QUEUE", "charges")
		if out := w.types(w.blocks["env"]+"zabor peek payments", exit.Good); !strings.HasPrefix(out, "queue payments: 0 ready") {
			t.Errorf("PHP has not emptied the old queue:\n%s", out)
		}

		w.deploy(false)
		w.retries()
		if n := w.provider.Stats().Charges; n != 4 {
			t.Fatalf("%d charges, want PHP's 4", n)
		}
		w.gone("messages")
		w.run("live", exit.Good)
		w.export("")
		w.run("import", exit.Good)
		worker := w.begin("worker")
		w.charges(6)
		if w.parked() > 0 { // Symfony's retry has run the handler, which has no call any more
			w.forgets("silent")
		}
		w.due()
		w.charges(7)
		eventuallyWithin(t, 2*limit, "both queues are empty", func() bool { return w.onQueue() == 0 && w.parked() == 0 })
		if out := w.types(w.blocks["env"]+"zabor peek payments", exit.Good); out != "queue payments: 0 ready, 0 reserved, 0 delayed\n" {
			t.Errorf("something is left of the old queue:\n%s", out)
		}
		w.noted("silent", "killed")

		// The old queue goes.
		w.end(worker)
		w.dropQueue()
		worker = w.begin("worker")
		w.order("new-2")
		w.charges(8)
		eventually(t, "the queue is empty", func() bool { return w.onQueue() == 0 })
		w.end(worker)
		w.once("silent", "paid", "old", "old-late", "killed", "new-0", "new-1", "new-2")
	})
}

// Given up twice: before the import, which is nothing, and after it, which is the
// way out. Somebody starts a PHP worker at the wrong moment all the same.
func TestSwitchGivenUp(t *testing.T) {
	ways(t, func(t *testing.T, w *walk) {
		w.prepare("")
		w.order("a", "b")
		w.deploy(false)
		w.run("peek", exit.Good)
		w.deploy(true)
		w.works("payments", 2)
		w.once("a", "b")

		w.edit("absent_after: 1m", "absent_after: 1s")
		w.dies("killed", "payments")
		w.order("c", "d")
		w.deploy(false)
		w.gone("messages")
		w.run("live", exit.Good)
		w.blocks["import"] = withoutExport(w.block("import"))
		w.run("import", exit.Good)
		w.states("after the import", map[string]string{"a": "settled", "b": "settled", "killed": "held", "c": "", "d": ""})
		w.works("payments", 2) // the host has started again, and its workers
		if n := w.provider.Stats().Charges; n != 3 {
			t.Fatalf("%d charges, want 3: a handler without its call has none", n)
		}
		// Out, since there is an import: what PHP took is held as well, and was not
		// charged.
		w.gone("messages")
		w.run("out", exit.WrongUsage)
		w.run("import", exit.Good)
		w.states("after the second import", map[string]string{"killed": "held", "c": "held"})
		w.run("out", exit.BadAnswer)
		w.settles("killed")
		for _, order := range []string{"c", "d"} {
			if w.state(order) == "held" {
				w.releases(order)
			}
		}
		w.run("out", exit.Good)
		w.deploy(true)
		w.order("e")
		w.types(w.block("back-"+w.framework), exit.Good)
		w.once("a", "b", "killed", "c", "d", "e")
	})
}

// PHP keeps the call, and makes it through the proxy: that observes first, and is a
// fence then. At last a worker of zabor's takes from the same queue.
func TestSwitchBesidePHP(t *testing.T) {
	ways(t, func(t *testing.T, w *walk) {
		listen := fmt.Sprintf("127.0.0.1:%d", servers.Port(t))
		w.prepare(strings.Replace(w.block("proxy"), "127.0.0.1:8070", listen, 1))
		door := w.begin("proxy-start")
		door.logged("the proxy listens")
		w.setting("CHARGE_AT", "http://"+listen+"/acquirer")

		// Observed: as before, and counted.
		w.dies("twice", "payments")
		w.again()
		w.order("fine")
		w.works("payments", 1)
		door.logged("observed: a fence would have stopped this request")
		w.dies("seen", "payments")
		eventually(t, "the proxy has the answer for order seen", func() bool { return w.state("seen") == "settled" })
		w.export("")
		if out := words(w.run("observed", exit.BadAnswer)); strings.Count(out, " charged-twice ") != 1 || !strings.Contains(out, " charged-twice twice ") {
			t.Errorf("the audit does not find what a fence would have stopped:\n%s", out)
		}
		w.end(door)
		w.noted("twice") // the second is refunded

		// A fence, also for what was made while it only observed.
		w.edit("observe: true", "observe: false")
		door = w.begin("proxy-start")
		door.logged("the proxy listens")
		w.again()
		w.dies("fenced", "payments")
		w.again()
		w.once("fine", "seen", "fenced")
		if n := w.onQueue(); n != 0 || w.parked() != 0 {
			t.Errorf("%d messages are on the queue and %d have failed, want none", n, w.parked())
		}

		// Side by side.
		w.edit("  \"payments\":", "  \"payments\":\n    shared: true\n    #")
		w.run("live", exit.Good)
		w.blocks["import"] = withoutExport(w.block("import"))
		w.run("import", exit.Good)
		w.dies("by-php", "payments")
		worker := w.begin("worker")
		w.order("by-zabor")
		w.charges(7)
		eventually(t, "order by-zabor is settled", func() bool { return w.state("by-zabor") == "settled" })
		w.due()
		eventuallyWithin(t, 2*limit, "the queue is empty", func() bool { return w.onQueue() == 0 })
		w.mu.Lock()
		w.victim, w.doomed = worker.cmd.Process, "killed"
		w.mu.Unlock()
		w.order("killed")
		worker.exit(-1)
		w.due()
		w.works("payments", 1)
		eventuallyWithin(t, 3*limit, "order killed is decided", func() bool { return w.state("killed") == "settled" })
		if n := w.onQueue(); n != 0 {
			t.Errorf("%d messages are on the queue, want none", n)
		}
		if out := w.run("peek", exit.Good); strings.Count(out, "row      settled") != 2 {
			t.Errorf("peek does not say of the two failed messages that they were paid:\n%s", out)
		}
		w.forgets("by-php", "killed")
		w.end(door)
		w.once("fine", "seen", "fenced", "by-php", "by-zabor", "killed")
		if n := w.parked(); n != 0 {
			t.Errorf("%d failed messages are left, want none", n)
		}
	})
}

// words is text with single spaces.
func words(text string) string { return strings.Join(strings.Fields(text), " ") }

// withoutExport is the import of a shop whose provider has no list.
func withoutExport(block string) string {
	var all strings.Builder
	for line := range strings.Lines(block) {
		text, _, _ := strings.Cut(line, " --provider-export")
		all.WriteString(strings.TrimRight(text, "\n") + "\n")
	}
	return all.String()
}

// addQueue gives the configuration the queue charges beside the old one, whose
// entry it copies.
func (w *walk) addQueue() {
	w.t.Helper()
	text := w.read(w.file)
	_, entry, _ := strings.Cut(text, "queues:\n")
	entry, _, _ = strings.Cut(entry, "\n\n")
	copied := strings.NewReplacer(`"payments":`, `"charges":`, "MESSENGER_TRANSPORT_DSN", "CHARGES_TRANSPORT_DSN").Replace(entry)
	w.edit("queues:\n", "queues:\n"+copied+"\n")
}

// dropQueue takes the old queue out of the configuration.
func (w *walk) dropQueue() {
	w.t.Helper()
	text := w.read(w.file)
	at := strings.Index(text, `  "payments":`)
	length := strings.Index(text[at:], "\n\n")
	w.write(w.file, text[:at]+text[at+length:])
}

// Each step of the way in typed twice, and PHP's own retry of all that has failed
// typed after each: whatever the moment, no order is charged a second time, and none
// is lost. ZABOR_SOAK=1 walks them all; TestSwitchNewQueue has the worst.
func TestSwitchAtEachMoment(t *testing.T) {
	if !soaking() {
		t.Skip("ZABOR_SOAK=1 walks the way in once for each moment")
	}
	steps := []struct {
		name string
		do   func(*walk)
	}{
		{"call taken out", func(w *walk) { w.deploy(false) }},
		{"checked", func(w *walk) { w.gone("messages"); w.run("live", exit.Good) }},
		{"peeked", func(w *walk) { w.run("peek", exit.Good) }},
		{"imported", func(w *walk) { w.export(""); w.run("import", exit.Good) }},
		{"started", func(w *walk) {
			w.gone("messages")
			worker := w.begin("worker")
			worker.logged("msg=started")
			w.due()
			eventuallyWithin(w.t, 2*limit, "the queue is empty", func() bool { return w.onQueue() == 0 })
			w.end(worker)
		}},
	}
	for _, deed := range []string{"twice", "retried"} {
		for at, moment := range steps {
			t.Run(deed+" "+moment.name, func(t *testing.T) {
				ways(t, func(t *testing.T, w *walk) {
					w.order("paid", "broken", "silent")
					w.works("payments", 3)
					w.dies("killed", "payments")
					w.order("late+3600", "ready-0", "ready-1")
					w.prepare("")
					for n, step := range steps {
						step.do(w)
						switch {
						case n != at:
						case deed == "twice":
							step.do(w)
						default:
							w.retries()
						}
					}
					steps[len(steps)-1].do(w) // what the retry has put back
					w.noted("silent", "killed")
					for _, order := range []string{"broken", "silent"} {
						if w.parked() > 0 {
							w.forgets(order)
						}
					}
					w.run("out", exit.Good)
					w.once("paid", "broken", "silent", "killed", "late", "ready-0", "ready-1")
				})
			})
		}
	}
}

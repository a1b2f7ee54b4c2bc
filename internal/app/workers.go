package app

import (
	"bytes"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	shell "mvdan.cc/sh/v3/syntax"
)

// Worker is a process that takes messages, as the host starts it.
type Worker struct {
	By      string // supervisor, compose, systemd or kubernetes
	Name    string // of the program, service or container
	Command string // the whole command
	From    Origin // of the command
	// Grace is how long the process may still run after it was told to stop, as
	// it is written or by default of what starts it; nil: not known.
	Grace *Value
	// GraceTime is the same as a duration.
	GraceTime time.Duration

	words []string // of the command that works, without quotes
}

var workerCommand = regexp.MustCompile(`\b(queue:(?:work|listen)|horizon(?::work|:supervisor)?\b|messenger:consume|zabor["',\s]+(?:worker|serve))`)

// Kind is the program that works: queue:work, horizon, messenger:consume, zabor.
func (w Worker) Kind() string {
	switch m := workerCommand.FindString(w.Command); {
	case strings.HasPrefix(m, "zabor"):
		return "zabor"
	case strings.HasPrefix(m, "horizon"):
		return "horizon"
	case m == "queue:listen":
		return "queue:work"
	default:
		return m
	}
}

// supervised are the variables of supervisor in a command.
var supervised = regexp.MustCompile(`%\((\w+)\)[sd]`)

// wordsOf are the words of the command in line that works, as a shell splits them;
// of a line that is no shell's, what blanks divide.
func wordsOf(line string) []string {
	line = supervised.ReplaceAllString(line, "$1")
	file, err := shell.NewParser().Parse(strings.NewReader(line), "")
	if err != nil {
		return strings.Fields(strings.NewReplacer(`"`, " ", `'`, " ").Replace(line))
	}
	var found []string
	shell.Walk(file, func(n shell.Node) bool {
		call, ok := n.(*shell.CallExpr)
		if !ok || found != nil {
			return found == nil
		}
		var words []string
		for _, w := range call.Args {
			words = append(words, literal(line, w.Parts))
		}
		found = working(words)
		return true
	})
	return found
}

// working are words if they begin with a program that works, or those of the command
// that one of them holds, as in sh -c "…"; nil: there is none.
func working(words []string) []string {
	for _, word := range words {
		if strings.ContainsAny(word, " \t\n") && workerCommand.MatchString(word) {
			return wordsOf(word)
		}
	}
	if workerCommand.MatchString(strings.Join(words, " ")) {
		return words
	}
	return nil
}

// literal is a word of a shell without its quotes; what only the shell knows stands
// as it is written.
func literal(line string, parts []shell.WordPart) string {
	var b strings.Builder
	for _, part := range parts {
		switch part := part.(type) {
		case *shell.Lit:
			b.WriteString(strings.ReplaceAll(part.Value, `\`, ""))
		case *shell.SglQuoted:
			b.WriteString(part.Value)
		case *shell.DblQuoted:
			b.WriteString(literal(line, part.Parts))
		default:
			from, to := min(int(part.Pos().Offset()), len(line)), min(int(part.End().Offset()), len(line))
			b.WriteString(line[from:max(from, to)])
		}
	}
	return b.String()
}

// Flag is the value of --name=value or --name value; nil: it is not given.
func (w Worker) Flag(name string) *Value {
	words := w.words
	for i, word := range words {
		if value, ok := strings.CutPrefix(word, "--"+name+"="); ok {
			return scalar(String, value, w.From)
		}
		if word == "--"+name && i+1 < len(words) {
			return scalar(String, words[i+1], w.From)
		}
	}
	return nil
}

// Args are what follows the program's command and is no option.
func (w Worker) Args() []string {
	words := w.words
	start := slices.IndexFunc(words, func(word string) bool {
		return word == "messenger:consume" || word == "queue:work" || word == "queue:listen"
	})
	var args []string
	if start < 0 {
		return nil
	}
	for i := start + 1; i < len(words); i++ {
		if strings.HasPrefix(words[i], "-") {
			if !strings.Contains(words[i], "=") && slices.Contains([]string{"--queue", "--tries", "--timeout", "--sleep", "--memory", "--limit", "--time-limit", "--memory-limit", "--name", "--backoff", "--max-time", "--max-jobs", "--bus", "--keepalive", "-l", "-t", "-m", "-b"}, words[i]) {
				i++
			}
			continue
		}
		args = append(args, words[i])
	}
	return args
}

// workersIn reads the workers that a file starts, if it is one of the kinds that
// start workers.
func (p *Project) workersIn(name string) {
	base := path.Base(name)
	extension := path.Ext(base)
	var read func(string, []byte)
	switch {
	case extension == ".service":
		read = p.systemd
	case extension == ".conf" || extension == ".ini":
		read = p.supervisor
	case (extension == ".yaml" || extension == ".yml") && !strings.HasPrefix(name, "config/"):
		read = p.yamlWorkers
	default:
		return
	}
	content := p.read(name)
	if content == nil || !workerCommand.Match(content) {
		return
	}
	read(name, content)
}

// section is one of an INI file.
type section struct {
	name  string
	items map[string]*Value
}

// ini reads the sections of an INI file; a line that begins with white space
// goes on with the one before, in supervisor's manner, and a backslash at a
// line's end in systemd's.
func ini(name string, content []byte) []section {
	var list []section
	var last *Value
	for i, line := range bytes.Split(content, []byte("\n")) {
		text := string(line)
		trimmed := strings.TrimSpace(text)
		switch {
		case trimmed == "" || strings.HasPrefix(trimmed, ";") || strings.HasPrefix(trimmed, "#"):
		case strings.HasPrefix(trimmed, "[") && strings.HasSuffix(trimmed, "]"):
			list = append(list, section{name: trimmed[1 : len(trimmed)-1], items: map[string]*Value{}})
			last = nil
		case last != nil && (strings.TrimLeft(text, " \t") != text || strings.HasSuffix(last.Text, `\`)):
			last.Text = strings.TrimSuffix(last.Text, `\`) + " " + trimmed
		case len(list) > 0:
			key, value, ok := strings.Cut(trimmed, "=")
			if !ok {
				continue
			}
			if before, _, ok := strings.Cut(value, " ;"); ok {
				value = before
			}
			last = scalar(String, strings.TrimSpace(value), Origin{File: name, Line: i + 1})
			list[len(list)-1].items[strings.TrimSpace(key)] = last
		}
	}
	return list
}

func (p *Project) supervisor(name string, content []byte) {
	for _, s := range ini(name, content) {
		program, ok := strings.CutPrefix(s.name, "program:")
		command := s.items["command"]
		if !ok || command == nil || !workerCommand.MatchString(command.Text) {
			continue
		}
		p.worker("supervisor", program, command, wordsOf(command.Text), s.items["stopwaitsecs"], "10")
	}
}

func (p *Project) systemd(name string, content []byte) {
	items := map[string]*Value{}
	for _, s := range ini(name, content) {
		if s.name == "Service" {
			for key, value := range s.items {
				items[key] = value
			}
		}
	}
	command := items["ExecStart"]
	if command == nil || !workerCommand.MatchString(command.Text) {
		return
	}
	grace := items["TimeoutStopSec"]
	if grace == nil {
		grace = items["TimeoutSec"]
	}
	p.worker("systemd", strings.TrimSuffix(path.Base(name), ".service"), command, wordsOf(strings.TrimLeft(command.Text, "@-:+!")), grace, "90")
}

func (p *Project) yamlWorkers(name string, content []byte) {
	documents, broken := parseYAML(name, content)
	if broken != nil {
		p.Notices = append(p.Notices, *broken)
		return
	}
	for _, d := range documents {
		if services := d.Get("services"); services != nil && services.Kind == Map {
			for _, service := range services.Keys {
				s := services.Items[service]
				if command, words := commandOf(s, "entrypoint", "command"); command != nil {
					p.worker("compose", service, command, words, s.Get("stop_grace_period"), "10")
				}
			}
		}
		p.kubernetes(d)
	}
}

// kubernetes looks for pods at any depth of an object.
func (p *Project) kubernetes(v *Value) {
	if v == nil || v.Kind != Map {
		return
	}
	if containers := v.Items["containers"]; containers != nil {
		for _, c := range containers.List() {
			if command, words := commandOf(c, "command", "args"); command != nil {
				p.worker("kubernetes", c.Get("name").Str(), command, words, v.Items["terminationGracePeriodSeconds"], "30")
			}
		}
	}
	for _, key := range v.Keys {
		p.kubernetes(v.Items[key])
	}
}

// commandOf joins a command of strings or lists, and gives its words; nil: it starts
// no worker.
func commandOf(v *Value, keys ...string) (command *Value, words []string) {
	var text []string
	var from Origin
	for _, key := range keys {
		part := v.Get(key)
		for _, word := range part.List() {
			text = append(text, word.Str())
			if workerCommand.MatchString(strings.Join(text, " ")) && from == (Origin{}) {
				from = word.From
			}
		}
		switch {
		case part == nil:
		case part.Kind == Map: // a list: each entry is one word
			for _, word := range part.List() {
				words = append(words, word.Str())
			}
		default:
			if found := wordsOf(part.Str()); found != nil {
				words = append(words, found...)
			} else {
				words = append(words, strings.Fields(part.Str())...)
			}
		}
	}
	if from == (Origin{}) {
		return nil, nil
	}
	return scalar(String, strings.Join(text, " "), from), working(words)
}

// worker adds a worker whose grace may be written; standard is what the one who
// starts it gives otherwise, in seconds.
func (p *Project) worker(by, name string, command *Value, words []string, grace *Value, standard string) {
	w := Worker{By: by, Name: name, Command: command.Str(), From: command.From, Grace: grace, words: words}
	if w.Grace == nil {
		w.Grace = scalar(Int, standard, Origin{File: command.From.File, Line: command.From.Line, Default: by})
	}
	w.GraceTime, _ = graceTime(w.Grace.Str())
	p.Workers = append(p.Workers, w)
}

var units = strings.NewReplacer("minutes", "m", "minute", "m", "min", "m", "seconds", "s", "second", "s", "sec", "s", "hours", "h", "hour", "h", "hr", "h", " ", "")

// graceTime reads 90, 90s, 1m30s and 2min. infinity is very long.
func graceTime(text string) (time.Duration, bool) {
	if text == "infinity" {
		return 1 << 62, true
	}
	if n, err := strconv.ParseFloat(text, 64); err == nil {
		return time.Duration(n * float64(time.Second)), true
	}
	d, err := time.ParseDuration(units.Replace(text))
	return d, err == nil
}

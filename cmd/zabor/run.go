package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/alecthomas/kong"

	"zabor"
	"zabor/internal/console"
	"zabor/internal/exit"
	"zabor/internal/serve"
)

// cli is every command and flag. Global flags, and flags of commands without an end of their
// own, may also come as ZABOR_FLAG_NAME. A person's confirmations and filters may not.
type cli struct {
	Config    string `short:"c" placeholder:"FILE" help:"The configuration. Else $ZABOR_CONFIG, ./zabor.yaml, /etc/zabor/zabor.yaml."`
	EnvFile   string `placeholder:"FILE" help:"A dotenv file beside the environment, such as the application's .env; the environment wins."`
	LogFormat string `enum:"text,json" default:"text" help:"text or json; logs go to stderr."`
	LogLevel  string `enum:"debug,info,warn,error" default:"info" help:"debug, info, warn or error."`

	Demo      demoCommand      `cmd:"" help:"The main job on an embedded default: workers killed after the provider's 200, and 200s against rows at the end."`
	Prove     proveCommand     `cmd:"" help:"Kill a real worker at every point, under every strategy, and count the charges."`
	Worker    workerCommand    `cmd:"" help:"Take messages from the queues and run their steps through the fence; resolve what is in doubt."`
	Proxy     proxyCommand     `cmd:"" help:"Stand between an application and its payment providers: each (order, step) is called once, and a repeat gets the stored answer."`
	Dashboard dashboardCommand `cmd:"" help:"Pages for people: what is going on, what waits for somebody, and the decisions about it."`
	Serve     serveCommand     `cmd:"" help:"All that the configuration has, in one process: worker, proxy and dashboard."`
	Peek      peekCommand      `cmd:"" help:"What zabor would do with each message on the queues: key, request, verdict. Takes and changes nothing."`
	Import    importCommand    `cmd:"" help:"Once, before the first start: settled rows for what was charged before, held ones for what another worker has had."`
	Schema    schemaCommand    `cmd:"" help:"What the keys of each step are made of: what is in force, what is configured, and a person's word for a change."`
	Migrate   migrateCommand   `cmd:"" help:"Create or upgrade the tables, or print the SQL."`
	Fence     fenceCommand     `cmd:"" help:"Look at rows of the fence."`
	Failed    failedCommand    `cmd:"" help:"Failure transports of the queues: list, put back, forget."`
	Init      initCommand      `cmd:"" help:"Read a Laravel or Symfony application without running it, and print a zabor.yaml for it."`
	Doctor    doctorCommand    `cmd:"" help:"What in an application's configuration, in its source and on its servers will charge twice or lose a message."`
	Conf      configCommand    `cmd:"" name:"config" help:"Check the configuration, or print its schema."`
	Audit     auditCommand     `cmd:"" help:"Provider 200s against rows, rows against payments and messages. Reads only, and works without a fence too."`
	Alert     alertCommand     `cmd:"" help:"Alerts."`
	Providers providersCommand `cmd:"" help:"What zabor believes about each payment provider, and why."`
	Sandbox   sandboxCommand   `cmd:"" help:"A pretend payment provider with faults on demand."`
	Password  passwordCommand  `cmd:"" help:"The hash for a user of the dashboard, of a password that is typed or read from standard input."`
	Version   versionCommand   `cmd:"" help:"The version."`
	Complete  completeCommand  `cmd:"" name:"completion" help:"A script that completes commands and flags in a shell."`

	ProveWorker proveWorkerCommand `cmd:"" hidden:""`
	Manual      manualCommand      `cmd:"" hidden:"" help:"Write the manual's pages, as Markdown."`
}

// program is the argument of every command.
type program struct {
	ctx            context.Context
	stdout, stderr io.Writer
	*serve.Process
	cli   *cli
	model *kong.Application // the commands and flags
	path  []*kong.Path      // the command line, as it was read

	serves bool // the command runs until a signal: this is no failure
}

// run is the whole program; it returns the exit code.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	return runSeeded(ctx, args, stdout, stderr, nil)
}

func runSeeded(ctx context.Context, args []string, stdout, stderr io.Writer, seed func(zabor.Store) zabor.Store) int {
	var c cli
	code := -1
	parser, err := kong.New(&c,
		kong.Name("zabor"),
		kong.Description("A fence around payment calls: each (order, step) is charged at most once."),
		kong.Writers(stdout, stderr),
		kong.DefaultEnvars("ZABOR"),
		kong.PostBuild(withoutVariables),
		kong.Exit(func(n int) { code = n }),
		kong.UsageOnError(),
	)
	if err != nil {
		panic(err) // the cli struct itself is wrong
	}
	parsed, err := parser.Parse(asked(args))
	if code >= 0 {
		return code // help was asked for
	}
	if err != nil {
		fmt.Fprintf(stderr, "zabor: error: %v\n", err)
		fmt.Fprintf(stderr, "zabor: hint: %q shows every command and flag\n", "zabor --help")
		return exit.WrongUsage
	}
	p := &program{ctx: ctx, stdout: stdout, stderr: stderr, cli: &c, model: parser.Model, path: parsed.Path, Process: &serve.Process{Log: console.NewLog(stderr, c.LogFormat, c.LogLevel), Say: console.Progress(stderr), Version: version, Seed: seed}}
	p.Reload = p.load
	return p.report(parsed.Run(p))
}

// withoutVariables takes the environment variable from each flag of a command with an end
// of its own: a forgotten variable must not confirm.
func withoutVariables(k *kong.Kong) error {
	return kong.Visit(k.Model, func(node kong.Visitable, next kong.Next) error {
		command, ok := node.(*kong.Node)
		if ok && command.Type == kong.CommandNode && !slices.Contains([]string{"worker", "proxy", "dashboard", "serve"}, command.Name) {
			for _, flag := range command.Flags {
				flag.Envs, flag.Tag.Envs = nil, nil
			}
		}
		return next(nil)
	})
}

// asked is args in the words of the parser: no words, "help" and "--version" are
// typed first by many people.
func asked(args []string) []string {
	switch {
	case len(args) == 0:
		return []string{"--help"}
	case args[0] == "help":
		return append(slices.Clone(args[1:]), "--help")
	case args[0] == "--version" || args[0] == "-V":
		return []string{"version"}
	}
	return args
}

// report prints err with its hint and returns the exit code.
func (p *program) report(err error) int {
	if err == nil {
		return exit.Good
	}
	code, hint := exit.BadAnswer, ""
	if f, ok := errors.AsType[*exit.Error](err); ok {
		code, hint = f.Code, f.Hint
	}
	if p.ctx.Err() != nil && code == exit.NotReached {
		// This process did not wait for the server.
		if p.serves {
			fmt.Fprintln(p.stderr, "zabor: stopped before it had started; no message was taken")
			return exit.Good
		}
		err, code, hint = errors.New("stopped by a signal before it was done"), exit.BadAnswer, "what was done until then stays; type the same command again"
	}
	for _, line := range strings.Split(strings.TrimRight(err.Error(), "\n"), "\n") {
		fmt.Fprintf(p.stderr, "zabor: error: %s\n", line)
	}
	if hint != "" {
		fmt.Fprintf(p.stderr, "zabor: hint: %s\n", hint)
	}
	return code
}

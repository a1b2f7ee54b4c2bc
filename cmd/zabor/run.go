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

	Demo      demoCommand      `cmd:"" group:"try" help:"Charge 40 orders on built-in Redis and SQLite, kill workers after the charge, count double charges."`
	Prove     proveCommand     `cmd:"" group:"try" help:"Kill a real worker at every point, under every strategy, and count the charges."`
	Sandbox   sandboxCommand   `cmd:"" group:"try" help:"Run a pretend payment provider with faults on demand."`
	Doctor    doctorCommand    `cmd:"" group:"try" help:"Find settings and code of a Laravel or Symfony application that charge twice or lose a message."`
	Init      initCommand      `cmd:"" group:"setup" help:"Read a Laravel or Symfony application without running it, and print a zabor.yaml for it."`
	Conf      configCommand    `cmd:"" name:"config" group:"setup" help:"Check the configuration, or print its schema."`
	Providers providersCommand `cmd:"" group:"setup" help:"Show what zabor knows about each payment provider, with sources."`
	Migrate   migrateCommand   `cmd:"" group:"setup" help:"Create or upgrade the tables, or print the SQL."`
	Import    importCommand    `cmd:"" group:"setup" help:"Import past payments as settled. Hold jobs that a PHP worker already took."`
	Schema    schemaCommand    `cmd:"" group:"setup" help:"Show what the keys of each step are made of, and accept a change."`
	Password  passwordCommand  `cmd:"" group:"setup" help:"Print the hash of a password for a user of the dashboard."`
	Worker    workerCommand    `cmd:"" group:"run" help:"Take messages from the queues, charge each order once, and resolve doubtful calls."`
	Proxy     proxyCommand     `cmd:"" group:"run" help:"Stand between an application and its providers: each (order, step) is called once, a repeat gets the stored answer."`
	Dashboard dashboardCommand `cmd:"" group:"run" help:"Serve pages for people: numbers, charges that wait, decisions."`
	Serve     serveCommand     `cmd:"" group:"run" help:"Run worker, proxy and dashboard of the configuration in one process."`
	Peek      peekCommand      `cmd:"" group:"decide" help:"Show what zabor would do with each message on the queues. Read-only."`
	Fence     fenceCommand     `cmd:"" group:"decide" help:"List and show rows, and decide held charges."`
	Failed    failedCommand    `cmd:"" group:"decide" help:"List, retry and forget failed messages of the queues."`
	Audit     auditCommand     `cmd:"" group:"decide" help:"Compare a provider's successes with rows, payments and messages. Read-only, also without a fence."`
	Alert     alertCommand     `cmd:"" group:"tools" help:"Send a test alert."`
	Version   versionCommand   `cmd:"" group:"tools" help:"Print the version."`
	Complete  completeCommand  `cmd:"" name:"completion" group:"tools" help:"Print a script that completes commands and flags in a shell."`

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
		kong.Description("zabor stops double charges. Queues deliver at least once; zabor charges each (order, step) at most once."),
		kong.ExplicitGroups([]kong.Group{
			{Key: "try", Title: "Try, without any set-up:  zabor demo"},
			{Key: "setup", Title: "Set up:  zabor init /var/www/shop > zabor.yaml"},
			{Key: "run", Title: "Run:  zabor worker -c zabor.yaml"},
			{Key: "decide", Title: "Look and decide:  zabor fence list --state held"},
			{Key: "tools", Title: "Tools:  zabor completion bash"},
		}),
		kong.ConfigureHelp(kong.HelpOptions{NoExpandSubcommands: true}),
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

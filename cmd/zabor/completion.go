package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/alecthomas/kong"
)

// completeCommand prints a script that completes commands and flags, made of the
// same definitions that parse them.
type completeCommand struct {
	Shell string `arg:"" enum:"bash,zsh,fish" help:"bash, zsh or fish."`
}

func (c *completeCommand) Help() string {
	return "bash: source <(zabor completion bash). zsh: zabor completion zsh > _zabor, in a folder of $fpath. fish: zabor completion fish > ~/.config/fish/completions/zabor.fish"
}

func (c *completeCommand) Run(p *program) error {
	switch c.Shell {
	case "fish":
		completeFish(p.stdout, p.model.Node)
	case "zsh":
		fmt.Fprintln(p.stdout, "#compdef zabor")
		fmt.Fprintln(p.stdout, "autoload -U +X bashcompinit && bashcompinit")
		completeBash(p.stdout, p.model.Node)
	default:
		completeBash(p.stdout, p.model.Node)
	}
	return nil
}

// completeBash prints a function that looks up the words typed so far, flags left
// out, in a table of what may follow them.
func completeBash(w io.Writer, root *kong.Node) {
	fmt.Fprint(w, `_zabor() {
	local word path='zabor' words=''
	for word in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do
		case "$path $word" in
`)
	eachCommand(root, func(n *kong.Node, path string) {
		if n != root {
			fmt.Fprintf(w, "\t\t'%s') path='%s' ;;\n", path, path)
		}
	})
	fmt.Fprint(w, "\t\tesac\n\tdone\n\tcase $path in\n")
	eachCommand(root, func(n *kong.Node, path string) {
		var words []string
		for _, child := range shown(n) {
			words = append(words, child.Name)
		}
		for _, group := range n.AllFlags(true) {
			for _, f := range group {
				words = append(words, "--"+f.Name)
			}
		}
		fmt.Fprintf(w, "\t'%s') words='%s' ;;\n", path, strings.Join(words, " "))
	})
	fmt.Fprint(w, `	esac
	COMPREPLY=($(compgen -W "$words" -- "${COMP_WORDS[COMP_CWORD]}"))
}
complete -o default -F _zabor zabor
`)
}

func completeFish(w io.Writer, root *kong.Node) {
	eachCommand(root, func(n *kong.Node, path string) {
		words := strings.Fields(path)[1:]
		when := "__fish_use_subcommand"
		if len(words) > 0 {
			when = "__fish_seen_subcommand_from " + words[len(words)-1]
		}
		for _, child := range shown(n) {
			fmt.Fprintf(w, "complete -c zabor -n '%s' -f -a %s -d '%s'\n", when, child.Name, quoted(child.Help))
		}
		for _, f := range n.Flags {
			fmt.Fprintf(w, "complete -c zabor -n '%s' -l %s -d '%s'\n", when, f.Name, quoted(f.Help))
		}
	})
}

// quoted is text within single quotes of fish.
func quoted(text string) string { return strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace(text) }

// eachCommand gives every command that help shows, the program itself first, with
// the words that lead to it.
func eachCommand(root *kong.Node, do func(n *kong.Node, path string)) {
	var walk func(n *kong.Node, path string)
	walk = func(n *kong.Node, path string) {
		do(n, path)
		for _, child := range shown(n) {
			walk(child, path+" "+child.Name)
		}
	}
	walk(root, "zabor")
}

func shown(n *kong.Node) (children []*kong.Node) {
	for _, child := range n.Children {
		if !child.Hidden && child.Type == kong.CommandNode {
			children = append(children, child)
		}
	}
	return children
}

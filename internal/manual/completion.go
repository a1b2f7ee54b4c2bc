package manual

import (
	"fmt"
	"io"
	"strings"

	"github.com/alecthomas/kong"
)

// Completion prints a script for shell with the commands and flags of root.
// shell is bash, zsh or fish.
func Completion(w io.Writer, root *kong.Node, shell string) {
	if shell == "fish" {
		fish(w, root)
		return
	}
	if shell == "zsh" {
		fmt.Fprintln(w, "#compdef zabor")
		fmt.Fprintln(w, "autoload -U +X bashcompinit && bashcompinit")
	}
	bash(w, root)
}

// bash prints a function to look up the words typed so far, flags left
// out, in a table of the next words.
func bash(w io.Writer, root *kong.Node) {
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

func fish(w io.Writer, root *kong.Node) {
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

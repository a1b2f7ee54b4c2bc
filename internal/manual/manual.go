// Package manual writes man pages and shell completion. Its sources are the parsers of
// the commands and of zabor.yaml.
package manual

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
)

// Pages returns the manual of the command root, by file name: zabor.1, a page for
// each of its commands, and zabor.yaml.5, made of the file's JSON schema. Each text is
// Markdown without a title, for go-md2man.
func Pages(root *kong.Node, schema []byte) (map[string]string, error) {
	file, err := yamlPage(schema)
	if err != nil {
		return nil, err
	}
	pages := map[string]string{"zabor.1": programPage(root), "zabor.yaml.5": file}
	for _, n := range shown(root) {
		pages["zabor-"+n.Name+".1"] = commandPage(n)
	}
	return pages, nil
}

// programPage is zabor(1): the commands, and the facts common to all of them.
func programPage(root *kong.Node) string {
	var w strings.Builder
	fmt.Fprintf(&w, "# NAME\n\nzabor - %s\n\n", strings.TrimSuffix(markdown(lowerFirst(root.Help)), "."))
	w.WriteString("# SYNOPSIS\n\n**zabor** *COMMAND* [*options*]\n\n# DESCRIPTION\n\n")
	w.WriteString("Zabor takes messages that Laravel (Redis lists) and Symfony Messenger (Redis streams) applications put on Redis, or stands between an " +
		"application and its payment provider. It commits a row with a unique key (scope, order, step) before the call, and acks last. Where the " +
		"provider's answer is unknown, it finds out or holds; it never guesses.\n\n# COMMANDS\n\n")
	for _, n := range shown(root) {
		define(&w, "**zabor-"+n.Name+"**(1)", markdown(n.Help))
	}
	w.WriteString("# OPTIONS\n\nOf every command; each flag, of each command too, is also an environment variable: **--drain** is **ZABOR\\_DRAIN**.\n\n")
	flags(&w, root.Flags)
	w.WriteString("# FILES\n\n")
	define(&w, "*./zabor.yaml*, */etc/zabor/zabor.yaml*", "The configuration, **zabor.yaml**(5), where neither **-c** nor **ZABOR\\_CONFIG** names one.")
	define(&w, "*/etc/zabor/zabor.env*", "Variables of the service zabor.service.")
	define(&w, "*/var/lib/zabor*", "The home of the service: the place for **journal** and for a fence in SQLite.")
	w.WriteString("# EXIT STATUS\n\n")
	define(&w, "0", "Done, and the answer is good.")
	define(&w, "1", "Done, and the answer is bad: unequal counts, findings, a charge twice, a lost message.")
	define(&w, "2", "Usage or configuration: the message names what is wrong and what to write instead.")
	define(&w, "3", "A server cannot be reached; nothing was changed.")
	w.WriteString("# SEE ALSO\n\n**zabor.yaml**(5); */usr/share/doc/zabor/docs/switching.md*, from a shop without a fence to one with it.\n")
	return w.String()
}

// commandPage is the page of a command and its subcommands.
func commandPage(n *kong.Node) string {
	var w strings.Builder
	fmt.Fprintf(&w, "# NAME\n\nzabor-%s - %s\n\n# SYNOPSIS\n\n", n.Name, strings.TrimSuffix(markdown(lowerFirst(n.Help)), "."))
	var leaves []*kong.Node
	eachCommand(n, func(one *kong.Node, _ string) {
		if len(shown(one)) == 0 {
			leaves = append(leaves, one)
			fmt.Fprintf(&w, "%s\n\n", synopsis(one))
		}
	})
	if n.Detail != "" {
		fmt.Fprintf(&w, "# DESCRIPTION\n\n%s\n\n", markdown(n.Detail))
	}
	for _, one := range leaves {
		if one != n {
			fmt.Fprintf(&w, "# %s\n\n%s\n\n", strings.ToUpper(strings.TrimPrefix(one.FullPath(), "zabor ")), markdown(one.Help))
			if one.Detail != "" {
				fmt.Fprintf(&w, "%s\n\n", markdown(one.Detail))
			}
		} else {
			w.WriteString("# OPTIONS\n\n")
		}
		for _, arg := range one.Positional {
			define(&w, "*"+markdown(strings.ToUpper(arg.Name))+"*", markdown(arg.Help))
		}
		var own []*kong.Flag
		for at := one; at.Parent != nil; at = at.Parent {
			own = append(own, at.Flags...)
		}
		flags(&w, own)
	}
	w.WriteString("The options of **zabor**(1) are taken too.\n\n# SEE ALSO\n\n**zabor**(1), **zabor.yaml**(5)\n")
	return w.String()
}

// synopsis is one line: the command, its options, its arguments.
func synopsis(n *kong.Node) string {
	text := "**" + n.FullPath() + "** [*options*]"
	for _, arg := range n.Positional {
		name := "*" + markdown(strings.ToUpper(arg.Name)) + "*"
		if arg.IsCumulative() {
			name += " ..."
		}
		if !arg.Required {
			name = "[" + name + "]"
		}
		text += " " + name
	}
	return text
}

// flags writes the visible flags.
func flags(w *strings.Builder, list []*kong.Flag) {
	for _, f := range list {
		if f.Hidden {
			continue
		}
		name := "**--" + f.Name + "**"
		if f.Short != 0 {
			name = "**-" + string(f.Short) + "**, " + name
		}
		if !f.IsBool() {
			name += " *" + markdown(cmp.Or(f.PlaceHolder, strings.ToUpper(f.Name))) + "*"
		}
		text := markdown(f.Help)
		if f.HasDefault && f.Default != "" {
			text += " Default: " + markdown(f.Default) + "."
		}
		define(w, name, text)
	}
}

// property is one key of the file's schema.
type property struct {
	Description string
	Default     any
	Enum        []any
	Type        any
	Properties  map[string]property
	Additional  json.RawMessage `json:"additionalProperties"`
	Items       *property
	AnyOf       []property `json:"anyOf"`
	OneOf       []property `json:"oneOf"`
}

// yamlPage is zabor.yaml(5), made of the file's schema.
func yamlPage(schema []byte) (string, error) {
	var root property
	if err := json.Unmarshal(schema, &root); err != nil {
		return "", fmt.Errorf("the schema of zabor.yaml: %w", err)
	}
	var w strings.Builder
	w.WriteString("# NAME\n\nzabor.yaml - what zabor does, and with which servers\n\n# DESCRIPTION\n\n")
	w.WriteString("One YAML file. Unknown keys are errors; **zabor config check** names each with its line. Durations are *90s*, *1h*. **${NAME}** is the variable " +
		"NAME, else the file that **NAME\\_FILE** names, else the file NAME in **$CREDENTIALS\\_DIRECTORY**; **${NAME:-text}** has a default, **$$** is a dollar. " +
		"Class names are written in single quotes. *NAME* below is a name of your own.\n\n# KEYS\n\n")
	keys(&w, root, "")
	w.WriteString("# SEE ALSO\n\n**zabor-config**(1), **zabor-init**(1); */usr/share/doc/zabor/examples/zabor.yaml* has every key\n")
	return w.String(), nil
}

// keys writes the keys below path, with their own keys.
func keys(w *strings.Builder, of property, path string) {
	for _, name := range slices.Sorted(maps.Keys(of.Properties)) {
		one := of.Properties[name]
		full := strings.TrimPrefix(path+"."+name, ".")
		text := markdown(one.Description)
		if one.Default != nil {
			text += fmt.Sprintf(" Default: %s.", markdown(strings.Trim(fmt.Sprint(one.Default), "[]")))
		}
		if words := one.words(); len(words) > 0 {
			text += " One of: " + markdown(strings.Join(words, ", ")) + "."
		}
		if text = strings.TrimSpace(text); text != "" {
			define(w, "**"+markdown(full)+"**", text)
		}
		below(w, one, full)
	}
}

// below writes the keys below a key, in any form of the schema.
func below(w *strings.Builder, one property, path string) {
	keys(w, one, path)
	var each property
	if json.Unmarshal(one.Additional, &each) == nil { // false: there are no other keys
		below(w, each, path+".NAME")
	}
	if one.Items != nil {
		below(w, *one.Items, path+"[]")
	}
	for _, form := range append(one.AnyOf, one.OneOf...) {
		below(w, form, path)
	}
}

// words are the values of a key with a fixed list of them.
func (p property) words() (words []string) {
	for _, form := range append([]property{p}, p.AnyOf...) {
		for _, word := range form.Enum {
			words = append(words, fmt.Sprint(word))
		}
	}
	return words
}

// define writes a term and its meaning.
func define(w *strings.Builder, term, text string) {
	fmt.Fprintf(w, "%s\n: %s\n\n", term, cmp.Or(strings.ReplaceAll(text, "\n", " "), "-"))
}

// markdown escapes text for Markdown.
func markdown(text string) string {
	return strings.NewReplacer(`\`, `\\`, "`", "\\`", "*", `\*`, "_", `\_`, "[", `\[`, "]", `\]`, "<", `\<`, ">", `\>`, "#", `\#`, "|", `\|`).Replace(text)
}

// lowerFirst is a sentence as it goes on after a dash; an abbreviation stays.
func lowerFirst(text string) string {
	if len(text) > 1 && strings.ToUpper(text[1:2]) != text[1:2] || strings.HasPrefix(text, "A ") {
		return strings.ToLower(text[:1]) + text[1:]
	}
	return text
}

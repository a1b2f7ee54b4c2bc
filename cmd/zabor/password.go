package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/term"

	"zabor/dashboard/access"
	"zabor/internal/exit"
)

type passwordCommand struct {
	JSON bool `name:"json" help:"One JSON object: {\"hash\": …}."`
}

// Run asks for a password, or takes the first line of standard input, and prints
// its hash. A password is never an argument: those are seen by every process.
func (c *passwordCommand) Run(p *program) error {
	password, err := p.readPassword()
	if err != nil {
		return err
	}
	hash, err := access.Hash(password)
	if err != nil {
		return exit.Usage(err, "a few words in a row are long and easy to keep in mind")
	}
	if c.JSON {
		return json.NewEncoder(p.stdout).Encode(map[string]string{"hash": hash})
	}
	fmt.Fprintln(p.stdout, hash)
	return nil
}

func (p *program) readPassword() (string, error) {
	in := int(os.Stdin.Fd())
	if !term.IsTerminal(in) {
		line, err := bufio.NewReader(io.LimitReader(os.Stdin, access.MaxPassword+2)).ReadString('\n')
		if err != nil && !errors.Is(err, io.EOF) {
			return "", exit.Usage(fmt.Errorf("standard input: %w", err), "")
		}
		return strings.TrimSuffix(strings.TrimSuffix(line, "\n"), "\r"), nil
	}
	var typed [2]string
	for i, ask := range []string{"password: ", "once more: "} {
		fmt.Fprint(p.stderr, ask)
		text, err := term.ReadPassword(in)
		fmt.Fprintln(p.stderr)
		if err != nil {
			return "", exit.Usage(fmt.Errorf("the terminal: %w", err), "")
		}
		typed[i] = string(text)
	}
	if typed[0] != typed[1] {
		return "", exit.Usage(errors.New("the two passwords differ"), "type the same one twice")
	}
	return typed[0], nil
}

package main

import "zabor/internal/manual"

// completeCommand prints a script for the completion of commands and flags, made of the
// definitions of their parser.
type completeCommand struct {
	Shell string `arg:"" enum:"bash,zsh,fish" help:"bash, zsh or fish."`
}

func (c *completeCommand) Help() string {
	return "bash: source <(zabor completion bash). zsh: zabor completion zsh > _zabor, in a folder of $fpath. fish: zabor completion fish > ~/.config/fish/completions/zabor.fish"
}

func (c *completeCommand) Run(p *program) error {
	manual.Completion(p.stdout, p.model.Node, c.Shell)
	return nil
}

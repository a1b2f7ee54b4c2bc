package main

import (
	"encoding/json"
	"errors"
	"fmt"

	"zabor/internal/console"
	"zabor/internal/demo"
	"zabor/internal/exit"
)

type demoCommand struct {
	JSON   bool `name:"json" help:"One JSON object."`
	Orders int  `default:"40" help:"How many orders, half through Laravel's queue and half through Symfony's; at least 40."`
}

func (c *demoCommand) Run(p *program) error {
	if c.Orders < 40 || c.Orders > 10_000 {
		return exit.Usage(fmt.Errorf("--orders %d: from 40 to 10000", c.Orders), "")
	}
	say := func(string, ...any) {}
	if !c.JSON {
		say = console.Progress(p.stderr)
		fmt.Fprintf(p.stdout, "%d orders go through a Laravel list and a Symfony stream. Each time a worker has charged one of %d chosen\n"+
			"orders, and before it reads the provider's answer, the process is killed (SIGKILL) and another one is started.\n\n", c.Orders, demo.Kills)
	}
	result, err := demo.Run(p.ctx, c.Orders, say)
	if err != nil {
		return fmt.Errorf("demo: %w", err)
	}
	if c.JSON {
		if err := json.NewEncoder(p.stdout).Encode(result); err != nil {
			return err
		}
	} else {
		say("\r%-79s\r", "")
		result.Print(p.stdout)
	}
	if !result.Good() {
		return exit.Bad(errors.New("the provider's 200s and the rows of the fence are not equal"), "")
	}
	return nil
}

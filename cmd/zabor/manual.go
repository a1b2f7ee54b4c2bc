package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"zabor/internal/config"
	"zabor/internal/exit"
	"zabor/internal/manual"
)

// manualCommand writes the manual's pages as Markdown, with a title for go-md2man.
type manualCommand struct {
	Folder string `arg:"" help:"Where the pages are written: it is made where it is not there."`
	Date   string `help:"Of the release, as 2006-01-02."`
}

func (c *manualCommand) Run(p *program) error {
	if err := os.MkdirAll(c.Folder, 0o755); err != nil {
		return exit.Usage(err, "name a folder that can be made")
	}
	pages, err := manual.Pages(p.model.Node, config.Schema())
	if err != nil {
		return err
	}
	for name, text := range pages {
		at := strings.LastIndex(name, ".")
		title, section := name[:at], name[at+1:]
		head := fmt.Sprintf("%% %q %q %q \"zabor %s\" \"zabor\"\n\n", strings.ToUpper(title), section, c.Date, version)
		if err := os.WriteFile(filepath.Join(c.Folder, name+".md"), []byte(head+text), 0o644); err != nil { //nolint:gosec // a manual is for everybody
			return err
		}
	}
	return nil
}

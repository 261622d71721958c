package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/chokepoint-lab/chokepoint/internal/app"
	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/userfile"
)

func newManCommand(p *program) *cobra.Command {
	var dir string
	cmd := &cobra.Command{
		Use:    "man --output DIR",
		Hidden: true, // intended for packagers
		Short:  "Write a manual page for each command to a folder",
		Long: `Write a manual page for each command to a folder, such as /usr/local/share/man/man1.
chokepoint completion makes the completions for shells.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if dir == "" {
				return app.Usage("name a folder, such as --output man1", "man wants --output")
			}

			if err := os.MkdirAll(dir, 0o755); err != nil {
				return fmt.Errorf("write manual pages to %s: %v", dir, check.Underlying(err))
			}

			return manPages(p, cmd.Root(), dir)
		},
	}
	addOutput(cmd, &dir, "write the pages to this folder `DIR`")
	return cmd
}

// manPages writes the manual pages of a command and its subcommands, and prints their paths.
func manPages(p *program, cmd *cobra.Command, dir string) error {
	if cmd.Hidden {
		return nil
	}

	file := filepath.Join(dir, manName(cmd)+".1")
	if err := p.put(userfile.Create, file, []byte(manPage(cmd))); err != nil {
		return err
	}

	for _, sub := range cmd.Commands() {
		if err := manPages(p, sub, dir); err != nil {
			return err
		}
	}

	return nil
}

func manName(cmd *cobra.Command) string { return strings.ReplaceAll(cmd.CommandPath(), " ", "-") }

// manPage formats the help of a command with the macros of man(7).
func manPage(cmd *cobra.Command) string {
	var b builder
	b.printf(".TH %q 1 \"\" \"chokepoint\" \"User Commands\"\n.SH NAME\n%s \\- %s\n",
		strings.ToUpper(manName(cmd)), manName(cmd), roff(cmd.Short))
	about, rest, _ := strings.Cut(helpText(cmd), "\n\nUSAGE\n")
	b.printf(".SH DESCRIPTION\n%s", strings.ReplaceAll(roff(about+"\n"), "\n\n", "\n.PP\n"))
	for section := range strings.SplitSeq("USAGE\n"+rest, "\n\n") {
		title, text, _ := strings.Cut(section, "\n")
		b.printf(".SH %q\n.nf\n%s\n.fi\n", title, roff(strings.TrimRight(text, "\n")))
	}

	return b.String()
}

// roff escapes text for troff(1).
func roff(text string) string {
	text = strings.NewReplacer(`\`, `\e`, "-", `\-`, "…", "...").Replace(text)
	lines := strings.Split(text, "\n")
	for i, l := range lines {
		if strings.HasPrefix(l, ".") || strings.HasPrefix(l, "'") {
			lines[i] = `\&` + l
		}
	}

	return strings.Join(lines, "\n")
}

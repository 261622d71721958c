package main

import (
	"cmp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// furtherCodes lists the exit codes of commands except 0, 1, 2 and 130, which all commands have.
var furtherCodes = map[string][]int{
	"chokepoint run":         {codeFailed, codeThreshold, codeDirty},
	"chokepoint resume":      {codeFailed, codeThreshold, codeDirty},
	"chokepoint tune":        {codeFailed, codeDirty},
	"chokepoint diagnose":    {codeDirty},
	"chokepoint compare":     {codeThreshold},
	"chokepoint history":     {codeThreshold},
	"chokepoint upgrade":     {codeThreshold, codeDirty},
	"chokepoint bisect":      {codeThreshold, codeDirty},
	"chokepoint doctor":      {codeDirty},
	"chokepoint lab init":    {codeDirty},
	"chokepoint lab conform": {codeDirty},
	"chokepoint plan check":  {codeDirty},
	"chokepoint lab check":   {codeDirty},
	"chokepoint lab down":    {codeDirty},
	"chokepoint lab restore": {codeDirty},
}

// showHelp prints the help of a command to standard output.
func showHelp(cmd *cobra.Command) error { return write(cmd.OutOrStdout(), helpText(cmd)) }

// helpText returns a command's description, usage, subcommands, flags and exit codes.
func helpText(cmd *cobra.Command) string {
	var b builder
	usage := cmd.UseLine()
	if cmd.HasSubCommands() && !strings.Contains(cmd.Use, " ") { // the command only prints its help
		usage = cmd.CommandPath() + " COMMAND"
	}

	b.WriteString(strings.TrimSpace(cmp.Or(cmd.Long, cmd.Short+".")) + "\n\nUSAGE\n  " + usage + "\n")
	if cmd.HasSubCommands() {
		var rows grid
		for _, c := range cmd.Commands() {
			if !c.Hidden {
				rows.add("  "+c.Name(), c.Short)
			}
		}

		b.WriteString("\nCOMMANDS\n" + table(rows, 0))
	}

	flags := cmd.LocalFlags()
	if flags.HasAvailableFlags() {
		b.WriteString("\nFLAGS\n" + flags.FlagUsagesWrapped(88))
	}

	b.WriteString("\nEXIT STATUS\n" + exitStatus(cmd))
	return b.String()
}

// exitStatus describes the exit codes of a command. For the program itself, it describes all codes.
func exitStatus(cmd *cobra.Command) string {
	codes := exitCodes(cmd)
	var b builder
	for _, m := range exitMeanings {
		if slices.Contains(codes, m.code) {
			b.printf("  %3d  %s\n", m.code, meaning(cmd, m.code, m.text))
		}
	}

	return b.String()
}

// meaning describes an exit code of a command. It returns text, the general description, unless the command
// needs a more specific one.
func meaning(cmd *cobra.Command, code int, text string) string {
	path := cmd.CommandPath()
	runs := path == "chokepoint run" || path == "chokepoint resume"
	switch {
	case !cmd.HasParent():
	case code == codeOK && !runs:
		return "success"
	case code == codeUsage && !runs && !strings.HasPrefix(path, "chokepoint plan "):
		return "wrong command line; nothing was touched"
	case code == codeThreshold && runs:
		return "a threshold was missed"
	case code == codeThreshold:
		return "a regression was found"
	case code == codeInterrupted && !runs:
		return "interrupted"
	}

	return text
}

func exitCodes(cmd *cobra.Command) []int {
	if cmd.HasSubCommands() && cmd.HasParent() { // it does nothing but print its help
		return []int{codeOK, codeError, codeUsage}
	}

	codes := append([]int{codeOK, codeError, codeUsage, codeInterrupted}, furtherCodes[cmd.CommandPath()]...)
	for _, sub := range cmd.Commands() {
		codes = append(codes, exitCodes(sub)...)
	}

	return codes
}

package main

import (
	"cmp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// furtherCodes lists the commands that have a code except 0, 1, 2 and 130, which all commands have.
var furtherCodes = map[int]string{
	codeFailed:    "run, resume, tune",
	codeThreshold: "run, resume, compare, history, upgrade, bisect",
	codeDirty: "run, resume, tune, diagnose, upgrade, bisect, doctor, lab init, lab conform, plan check, " +
		"lab check, lab down, lab restore",
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

	codes := []int{codeOK, codeError, codeUsage, codeInterrupted}
	_, name, _ := strings.Cut(cmd.CommandPath(), " ")
	for code, commands := range furtherCodes {
		if slices.Contains(strings.Split(commands, ", "), name) {
			codes = append(codes, code)
		}
	}

	for _, sub := range cmd.Commands() {
		codes = append(codes, exitCodes(sub)...)
	}

	return codes
}

package main

import (
	"fmt"
	"io"
	"os"
	"strings"
)

// elsewhere are command lines of the documents that have a stage of their own in .ci/run, because they are
// long or must be judged.
var elsewhere = map[string]string{
	"go run ./cmd/chokepoint run": "stages run-as-root and run-as-user",
	"chokepoint run":              "stages run-as-root and run-as-user",
	"go test ./...":               "stage tests",
}

// commandsCommand prints the blocks marked "sh" of a document as one script.
func commandsCommand(args []string, _ io.Reader, out io.Writer) error {
	if len(args) != 1 {
		return fmt.Errorf("want one document")
	}
	text, err := os.ReadFile(args[0])
	if err != nil {
		return err
	}
	for _, line := range shellLines(string(text)) {
		if where, ok := elsewhere[line]; ok {
			line = "# in " + where + ": " + line
		}
		fmt.Fprintln(out, line)
	}
	return nil
}

// shellLines returns the lines of the fenced blocks whose language is sh.
func shellLines(text string) (lines []string) {
	inside, shell := false, false
	for line := range strings.SplitSeq(text, "\n") {
		if lang, ok := strings.CutPrefix(line, "```"); ok {
			inside = !inside
			shell = inside && strings.TrimSpace(lang) == "sh"
		} else if shell {
			command, _, _ := strings.Cut(line, "  #")
			lines = append(lines, strings.TrimRight(command, " "))
		}
	}
	return lines
}

// Program assert is what CI judges by: the outcome of go test with its skips, the cells of a finished run
// by their factors, the report beside its document, and the command lines that the documents promise. It
// reads files and standard input, and measures nothing.
package main

import (
	"fmt"
	"io"
	"os"
	"strings"
)

const usage = `usage:
  assert tests -allowed FILE [-logs] [-skipped FILE] [-counts FILE] < go-test-json
  assert cells -plan quick DOCUMENT
  assert report -document DOCUMENT REPORT
  assert observing DOCUMENT
  assert searches [-searches N] [-spread RATIO] [-metrics LIST] DOCUMENT
  assert commands MARKDOWN
`

func main() { os.Exit(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr)) }

func run(args []string, in io.Reader, out, talk io.Writer) int {
	commands := map[string]func([]string, io.Reader, io.Writer) error{
		"tests": testsCommand, "cells": cellsCommand, "report": reportCommand, "observing": observingCommand,
		"searches": searchesCommand, "commands": commandsCommand,
	}
	if len(args) == 0 || commands[args[0]] == nil {
		fmt.Fprint(talk, usage)
		return 2
	}
	if err := commands[args[0]](args[1:], in, out); err != nil {
		fmt.Fprintln(talk, "assert "+args[0]+":", err)
		return 1
	}
	return 0
}

// faults is what an assertion found wrong; as an error it lists all of it.
type faults []string

func (f *faults) add(format string, args ...any) { *f = append(*f, fmt.Sprintf(format, args...)) }

// must adds a fault unless something holds.
func (f *faults) must(holds bool, format string, args ...any) {
	if !holds {
		f.add(format, args...)
	}
}

func (f faults) err() error {
	if len(f) == 0 {
		return nil
	}
	return fmt.Errorf("%d faults\n  %s", len(f), strings.Join(f, "\n  "))
}

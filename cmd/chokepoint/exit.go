package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/chokepoint-lab/chokepoint/internal/app"
	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/lab"
)

// Exit codes are part of the API: scripts depend on them.
const (
	codeOK          = 0   // success, even if cells were skipped
	codeError       = 1   // the command did not do what it was asked
	codeUsage       = 2   // wrong command line or plan; nothing was changed
	codeFailed      = 3   // finished with failed trials
	codeThreshold   = 4   // a threshold was missed, or there is a regression
	codeDirty       = 5   // the lab could not be restored
	codeInterrupted = 130 // stopped by a signal
)

// exitMeanings maps kinds of errors to exit codes, with the description of each code for the help. The
// first matching kind applies.
var exitMeanings = []struct {
	code int
	of   error
	text string
}{
	{codeOK, nil, "success; skipped cells do not change it"},
	{codeError, nil, "error"},
	{codeUsage, app.ErrUsage, "wrong command line or plan; nothing was touched"},
	{codeFailed, app.ErrFailed, "finished, with failed trials or nothing measured"},
	{codeThreshold, app.ErrThreshold, "a threshold was missed, or a regression was found"},
	{codeDirty, lab.ErrDirty, "the lab could not be left as it was found; see chokepoint lab restore"},
	{codeInterrupted, app.ErrInterrupted, "interrupted; finished trials are kept"},
}

// precedence is the order of preference if several codes apply. Nothing else happens after a usage error.
var precedence = []int{codeUsage, codeDirty, codeInterrupted, codeError, codeThreshold, codeFailed, codeOK}

// exitError is the exit code of a command that has already printed everything, so that nothing about the
// error is printed.
type exitError int

func (e exitError) Error() string { return fmt.Sprintf("exit %d", int(e)) }

// interruptedBy replaces errors of a cancelled context with the interrupt that caused them, and keeps their
// hints.
func interruptedBy(err error) error {
	cause := app.ErrInterrupted
	rest := slices.DeleteFunc(app.Leaves(err), func(e error) bool {
		gone := errors.Is(e, context.Canceled) || errors.Is(e, app.ErrInterrupted)
		h := hints(e)
		if gone && len(h) > 0 {
			cause = check.WithHint(cause, h[0])
		}

		return gone
	})
	return errors.Join(append([]error{cause}, rest...)...)
}

// exitCode returns the exit code of an error. If several are joined, it returns the code with the highest
// precedence.
func exitCode(err error) int {
	if err == nil {
		return codeOK
	}

	all := app.Leaves(err)
	// A command that ran another command on a node exits with the exit code of that command.
	if len(all) == 1 {
		if exit, ok := all[0].(exitError); ok {
			return int(exit)
		}
	}

	rank := len(precedence) - 1
	for _, e := range all {
		rank = min(rank, slices.Index(precedence, leafCode(e)))
	}

	return precedence[rank]
}

func leafCode(err error) int {
	if exit, ok := errors.AsType[exitError](err); ok && slices.Contains(precedence, int(exit)) {
		return int(exit)
	}

	for _, k := range exitMeanings {
		if errors.Is(err, k.of) {
			return k.code
		}
	}
	return codeError
}

// printError prints each error on a line, followed by its hints without duplicates. With asJSON, it prints a
// JSON object instead.
func printError(w io.Writer, err error, code int, asJSON bool) {
	report := struct {
		Errors []string `json:"errors"`
		Hints  []string `json:"hints"`
		Exit   int      `json:"exit"`
	}{[]string{}, []string{}, code}
	text := ""
	for _, e := range app.Leaves(err) {
		if _, printed := e.(exitError); printed {
			continue
		}

		text += "chokepoint: error: " + check.Plain(e.Error()) + "\n"
		report.Errors = append(report.Errors, check.Plain(e.Error()))
		for _, h := range hints(e) {
			h = check.Plain(h)
			if !slices.Contains(report.Hints, h) {
				report.Hints = append(report.Hints, h)
				text += "hint: " + h + "\n"
			}
		}
	}

	if asJSON && text != "" {
		_ = printLine(w, report) // an error cannot be reported anywhere
		return
	}

	_, _ = io.WriteString(w, text)
}

// hints returns the hints of an error and of all errors that it wraps.
func hints(err error) []string {
	if err == nil {
		return nil
	}

	var found []string
	if h, ok := err.(interface{ Hint() string }); ok && h.Hint() != "" {
		found = append(found, h.Hint())
	}

	causes := []error{errors.Unwrap(err)}
	if j, ok := err.(interface{ Unwrap() []error }); ok {
		causes = j.Unwrap()
	}

	for _, e := range causes {
		found = append(found, hints(e)...)
	}

	return found
}

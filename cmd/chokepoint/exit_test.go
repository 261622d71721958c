package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/chokepoint-lab/chokepoint/internal/analysis"
	"github.com/chokepoint-lab/chokepoint/internal/app"
	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/lab"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

func TestExitCode(t *testing.T) {
	failed := app.Mark(app.ErrFailed, errors.New("1 of 2 trials failed"))
	missed := app.Mark(app.ErrThreshold, errors.New("goodput >= 300M was missed"))
	dirty := app.Dirty(fmt.Errorf("%w: 1 change is left", lab.ErrDirty))
	broken := errors.New("disk full")
	tests := []struct {
		name string
		err  error
		want int
	}{
		{"nothing", nil, 0},
		{"plain error", broken, 1},
		{"usage", app.Usage("", "x"), 2},
		{"usage inside of a sentence", fmt.Errorf("run: %w", app.Usage("", "x")), 2},
		{"failed trials", failed, 3},
		{"code of a command on a node", exitError(77), 77},
		{"such a code beside an error", errors.Join(exitError(77), broken), 1},
		{"threshold over failed", errors.Join(failed, missed), 4},
		{"error over threshold", errors.Join(missed, broken), 1},
		{"interrupt over error", errors.Join(broken, app.ErrInterrupted), 130},
		{"dirty over all", errors.Join(failed, missed, broken, app.ErrInterrupted, dirty), 5},
		{"joined twice", errors.Join(failed, errors.Join(missed, dirty)), 5},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := exitCode(tt.err)
			if got != tt.want {
				t.Errorf("exitCode: got %d, want %d", got, tt.want)
			}
		})
	}
}

func TestPrecedenceHoldsEveryCode(t *testing.T) {
	for _, m := range exitMeanings {
		if !slices.Contains(precedence, m.code) {
			t.Errorf("code %d: got no rank, want one", m.code)
		}
	}

	got, want := len(precedence), len(exitMeanings)
	if got != want {
		t.Errorf("ranks: got %d, want %d", got, want)
	}
}

func TestPrintError(t *testing.T) {
	twice := errors.Join(
		check.WithHint(errors.New("first"), "do this"),
		fmt.Errorf("second: %w", check.WithHint(errors.New("inner"), "do that")),
		check.WithHint(errors.New("third"), "do this"),
		exitError(codeFailed),
	)
	tests := []struct {
		name string
		err  error
		json bool
		want string
	}{
		{"lines", twice, false, "chokepoint: error: first\nhint: do this\nchokepoint: error: second: " +
			"inner\nhint: do that\nchokepoint: error: third\n"},
		{"object", twice, true,
			`{"errors":["first","second: inner","third"],"hints":["do this","do that"],"exit":1}` + "\n"},
		{"all was said", exitError(codeFailed), false, ""},
		{"all was said, as an object", exitError(codeFailed), true, ""},
		{"interrupted", interruptedBy(fmt.Errorf("list runs: %w", context.Canceled)), false,
			"chokepoint: error: interrupted\n"},
		{"interrupted and more", interruptedBy(errors.Join(context.Canceled,
			errors.New("left behind: ns x"))), false,
			"chokepoint: error: interrupted\nchokepoint: error: left behind: ns x\n"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var out bytes.Buffer
			printError(&out, tt.err, exitCode(tt.err), tt.json)
			d := cmp.Diff(out.String(), tt.want)
			if d != "" {
				t.Errorf("output (-got +want):\n%s", d)
			}
		})
	}
}

// Every command states its exit codes and what it does, refuses words it does not know, and has code that
// can return an error.
func TestEveryCommandIsComplete(t *testing.T) {
	p := &program{}
	var visit func(cmd *cobra.Command)
	visit = func(cmd *cobra.Command) {
		t.Run(cmd.CommandPath(), func(t *testing.T) {
			if cmd.Short == "" {
				t.Error("short description: got none, want one")
			}

			if cmd.RunE == nil || cmd.Run != nil {
				t.Error("code: want RunE and no Run")
			}

			// exec takes what stands behind --, which only its own code sees.
			if cmd.Args == nil && cmd.Name() != "help" && cmd.Name() != "exec" {
				t.Error("arguments: got no rule, want one")
			}

			if strings.Contains(helpText(cmd), "(default )") {
				t.Error("help: a flag has an empty default")
			}

			text := helpText(cmd)
			if !bytes.Contains([]byte(text), []byte("EXIT STATUS\n    0  ")) {
				t.Errorf("help: got %q, want a section EXIT STATUS", text)
			}

			for line := range strings.Lines(text) {
				if got := utf8.RuneCountInString(line); got > 95 {
					t.Errorf("help: got a line of %d columns, want at most 95: %s", got, line)
				}
			}
		})
		for _, sub := range cmd.Commands() {
			visit(sub)
		}
	}
	visit(newRoot(p))
}

// TestUsageLinesAreWhole: a usage line names no flag that the command lacks, and ends in [flags] if and only
// if there are flags that it does not name.
func TestUsageLinesAreWhole(t *testing.T) {
	named := regexp.MustCompile(`--[a-z-]+`)
	var visit func(cmd *cobra.Command)
	visit = func(cmd *cobra.Command) {
		line := cmd.UseLine()
		flags := named.FindAllString(line, -1)
		left := 0
		cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
			if !f.Hidden && f.Name != "help" && !slices.Contains(flags, "--"+f.Name) {
				left++
			}
		})
		got := strings.HasSuffix(line, " [flags]")
		if got != (left > 0) && !cmd.HasSubCommands() {
			t.Errorf("%q: got [flags] %v, want %v: %d flags are not named", line, got, left > 0, left)
		}

		for _, flag := range flags {
			if cmd.LocalFlags().Lookup(flag[2:]) == nil {
				t.Errorf("%q: got %s, want flags of the command alone", line, flag)
			}
		}

		for _, sub := range cmd.Commands() {
			visit(sub)
		}
	}
	visit(newRoot(&program{}))
}

// TestOneNameForOneThing: a flag has the same letter and the same kind of value in every command that has it,
// and no command calls by another name what has one.
func TestOneNameForOneThing(t *testing.T) {
	several := map[string][]string{
		"keep":   {"N", ""},                      // newest runs, or the changes that helped
		"from":   {"FORMAT", "STORE"},            // of files to import, or of runs to copy
		"output": {"FILE", "DIR"},                // of several files
		"set":    {"PATH=VALUE", "FACTOR=LEVEL"}, // of a plan, or of results that have none
	}
	taken := map[string]string{
		"report": "output", "bundle": "output", "file": "output",
		"budget": "for", "seconds": "for", "timeout": "for",
		"wan": "line", "link": "line",
		"on": "router", "machine": "router",
		"repeat": "set method.runs",
	}
	values := map[string]string{}
	letters := map[string]string{}
	var visit func(cmd *cobra.Command)
	visit = func(cmd *cobra.Command) {
		cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
			value, _ := pflag.UnquoteUsage(f)
			if f.Value.Type() == "bool" {
				value = ""
			}

			name := cmd.CommandPath() + " --" + f.Name
			before, ok := values[f.Name]
			if ok && before != value && !slices.Contains(several[f.Name], value) {
				t.Errorf("%s: got value %q, want %q as elsewhere", name, value, before)
			}

			if letter, ok := letters[f.Name]; ok && letter != f.Shorthand {
				t.Errorf("%s: got -%s, want -%s as elsewhere", name, f.Shorthand, letter)
			}

			if taken[f.Name] != "" {
				t.Errorf("%s: want --%s", name, taken[f.Name])
			}

			values[f.Name] = value
			letters[f.Name] = f.Shorthand
		})
		for _, sub := range cmd.Commands() {
			if !sub.Hidden || sub.Name() == "man" {
				visit(sub)
			}
		}
	}
	visit(newRoot(&program{}))
}

// TestHelpNamesDirty: commands that may leave a lab changed say so.
func TestHelpNamesDirty(t *testing.T) {
	root := newRoot(&program{})
	for _, path := range []string{"run", "resume", "tune", "diagnose", "lab conform", "lab init"} {
		cmd, _, err := root.Find(strings.Fields(path))
		if err != nil || !strings.Contains(helpText(cmd), "\n    5  the lab could not be left as it was") {
			t.Errorf("%s: %v; its help does not name exit status 5", path, err)
		}
	}
}

// TestNearestFlag: a mistyped flag is found by its letters, not by its beginning alone.
func TestNearestFlag(t *testing.T) {
	root := newRoot(&program{})
	for _, tt := range []struct{ command, name, want string }{
		{"run", "sede", "seed"},
		{"run", "stirct", "strict"},
		{"run", "mteer", "meter"},
		{"run", "otuput", "output"},
		{"run", "stric", "strict"},
		{"report", "fromat", "format"},
		{"delete", "kep", "keep"},
		{"limits", "tunel", "tunnel"},
		{"limits", "zzzzzz", ""},
	} {
		cmd, _, err := root.Find([]string{tt.command})
		if err != nil {
			t.Fatal(err)
		}

		got := nearestFlag(cmd, tt.name)
		if got != tt.want {
			t.Errorf("%s --%s: got %q, want %q", tt.command, tt.name, got, tt.want)
		}
	}
}

// TestFlagValuesHaveWords: a value that cannot be read is refused in our words, whatever the flag's type.
func TestFlagValuesHaveWords(t *testing.T) {
	var visit func(cmd *cobra.Command)
	visit = func(cmd *cobra.Command) {
		cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
			kind := f.Value.Type()
			if flagValues[kind].what == "" && !strings.HasPrefix(kind, "string") {
				t.Errorf("%s --%s: got no words for the type %s, want some", cmd.CommandPath(), f.Name, kind)
			}
		})
		for _, sub := range cmd.Commands() {
			visit(sub)
		}
	}
	visit(newRoot(&program{}))
}

func TestFurtherCodesNameCommands(t *testing.T) {
	root := newRoot(&program{})
	for _, commands := range furtherCodes {
		for path := range strings.SplitSeq(commands, ", ") {
			cmd, rest, err := root.Find(strings.Fields(path))
			if err != nil || len(rest) > 0 || cmd.CommandPath() != "chokepoint "+path {
				t.Errorf("%s: got no such command, want one", path)
			}
		}
	}
}

// TestCommandsThatMeasureRecord: what a command measures stays on this machine and is then sent to the store.
// Every command that may leave a lab behind measures, except those that never store a run.
func TestCommandsThatMeasureRecord(t *testing.T) {
	root := newRoot(&program{})
	for path := range strings.SplitSeq(furtherCodes[codeDirty], ", ") {
		cmd, _, err := root.Find(strings.Fields(path))
		if err != nil {
			t.Fatal(err)
		}

		_ = cmd.Flags().Set("prove", "true") // of diagnose alone
		name := strings.Fields(path)[0]
		stores := !slices.Contains(homeless, name) && !slices.Contains(runless, name)
		if stores && !records(cmd, name) {
			t.Errorf("%s: its runs are not sent to a server", path)
		}
	}
}

// TestErrorsArePlain: what a guest, a program or a node says within an error steers no terminal.
func TestErrorsArePlain(t *testing.T) {
	var b strings.Builder
	printError(&b, check.WithHint(errors.New("guest: \x1b]0;owned\a \u202edetpmet"), "see \x9b2J"), codeError,
		false)
	if strings.ContainsFunc(b.String(), check.Steers) || !strings.Contains(b.String(), "]0;owned") {
		t.Errorf("got %q, want it without what steers", b.String())
	}
}

// TestResultsArePlain: nor does what a result or a step of a plan says.
func TestResultsArePlain(t *testing.T) {
	const nasty = "put back \x1b]0;owned\a \u202edetpmet\n"
	var out strings.Builder
	p := &program{streams: streams{In: strings.NewReader("\n"), Out: &out, Err: &out}}
	p.connect()
	c := &analysis.RunComparison{Changes: []analysis.Change{{Kind: "environment", Name: nasty, A: nasty}}}
	if err := errors.Join(p.line(nil, nasty), p.document(nil, nasty), p.Ask(t.Context(),
		record.Step{Prompt: nasty}), p.document(c, comparisonText(c, nil, 0))); err != nil {
		t.Fatal(err)
	}

	if strings.ContainsFunc(out.String(), check.Steers) || strings.Count(out.String(), "]0;owned") != 5 {
		t.Errorf("got %q, want it without what steers", out.String())
	}
}

// TestAnInterruptedRunSaysHowItGoesOn, whatever the signal made of the error.
func TestAnInterruptedRunSaysHowItGoesOn(t *testing.T) {
	const command = "chokepoint resume 20260102-030405-aaaa continues it"
	for _, err := range []error{app.ErrInterrupted, context.Canceled} {
		got := interruptedBy(errors.Join(check.WithHint(err, command), errors.New("other")))
		h := hints(got)
		if !slices.Contains(h, command) || exitCode(got) != codeInterrupted {
			t.Errorf("of %v: got hints %q and code %d, want the command and %d", err, h, exitCode(got),
				codeInterrupted)
		}
	}
}

// TestWhereRunsAreIsSaid once, by each command that looks there.
func TestWhereRunsAreIsSaid(t *testing.T) {
	for command, want := range map[string]int{"list": 1, "help": 0} {
		var out, messages bytes.Buffer
		dir := t.TempDir()
		p := &program{
			streams: streams{Out: &out, Err: &messages},
			App: app.App{Dirs: app.Dirs{
				Data:    dir,
				State:   dir,
				Cache:   dir,
				Runtime: dir,
				Note:    "HOME is ignored",
			}},
		}
		p.execute(t.Context(), []string{command})
		got := strings.Count(messages.String(), "HOME is ignored")
		if got != want {
			t.Errorf("%s: said %d times, want %d: %q", command, got, want, messages.String())
		}
	}
}

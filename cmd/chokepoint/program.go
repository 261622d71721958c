package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/term"

	"github.com/chokepoint-lab/chokepoint/internal/app"
	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/plan"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// streams are the input and outputs of a command. Out receives the result, and Err receives messages and
// progress. Colours and cursor movement are used only on a terminal.
type streams struct {
	In       io.Reader
	Out, Err io.Writer
}

// asTerminal returns the file of a stream, and whether the stream is a terminal.
func asTerminal(stream any) (f *os.File, ok bool) {
	f, ok = stream.(*os.File)
	return f, ok && term.IsTerminal(int(f.Fd()))
}

// program holds the state of one invocation. It is passed to every command.
type program struct {
	streams
	app.App
	ran  bool  // a command has started; errors before that are usage errors
	json bool  // --json is set (see addJSON)
	lost error // write error of --help; cobra does not return it

	quiet bool // --quiet is set

	place string // value of --store
}

// newProgram returns a program with the streams and environment of the process.
func newProgram(hard <-chan struct{}) *program {
	p := &program{
		streams: streams{In: os.Stdin, Out: os.Stdout, Err: os.Stderr},
		App:     app.App{Dirs: app.FindDirs(os.Getenv, os.Geteuid()), Hurry: hard},
	}
	p.connect()
	return p
}

// connect sets the callbacks with which the app reports to the user and asks the user to carry out steps.
func (p *program) connect() {
	p.Note, p.Events = p.note, p.sink
	p.Command = func(seed uint64) string { return commandLine(os.Args, seed) }
	if p.In != nil {
		p.Ask = p.ask()
	}

	if in, ok := asTerminal(p.In); ok {
		p.Attended = true
		p.AskCode = func(ctx context.Context, address string) (string, error) {
			return p.askCode(ctx, int(in.Fd()), address)
		}
	}
}

// ask returns a function that prompts for a step and waits for Enter.
func (p *program) ask() func(context.Context, record.Step) error {
	answers := bufio.NewReader(p.In) // shared by all steps, because it reads ahead
	return func(ctx context.Context, s record.Step) error {
		fmt.Fprintf(p.Err, "\n%s, then press Enter ", strings.TrimRight(check.Plain(s.Prompt), ". "))
		_, err := within(ctx, func() (string, error) { return answers.ReadString('\n') })
		if errors.Is(err, io.EOF) {
			return app.Hinted("run it from a terminal, or take the steps out of the plan",
				"step %q: no one is there to press Enter", s.Prompt)
		}

		return err
	}
}

// execute runs the command line, prints errors, and returns the exit code.
func (p *program) execute(ctx context.Context, args []string) int {
	root := newRoot(p)
	root.SetArgs(args)
	root.SetIn(p.In)
	root.SetOut(p.Out)
	root.SetErr(p.Err)
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil && p.lost == nil {
		return codeOK
	}

	if p.lost != nil {
		p.ran, err = true, errors.Join(err, p.lost)
	}

	if !p.ran {
		err = asUsage(cmd, err)
	}

	if errors.Is(context.Cause(ctx), app.ErrInterrupted) {
		err = interruptedBy(err)
	}

	code := exitCode(err)
	printError(p.Err, err, code, p.json || !p.ran && wantsJSON(args))
	return code
}

// wantsJSON looks for --json on a command line that could not be parsed.
func wantsJSON(args []string) bool {
	end := slices.Index(args, "--")
	if end >= 0 {
		args = args[:end]
	}
	return slices.Contains(args, "--json") || slices.Contains(args, "--json=true")
}

// asUsage converts an error of cobra to one with exit code 2 and a hint.
func asUsage(cmd *cobra.Command, err error) error {
	if errors.Is(err, app.ErrUsage) {
		return err
	}

	text, _, _ := strings.Cut(err.Error(), "\n")
	m := exclusive().FindStringSubmatch(text)
	if m != nil {
		return app.Usage("leave out one of them", "--%s", strings.ReplaceAll(m[1], " ", " with --"))
	}

	return app.Usage(helpHint(cmd), "%s", text)
}

// exclusive matches cobra's error for two mutually exclusive flags (flag_groups.go,
// validateExclusiveFlagGroups).
var exclusive = check.Pattern(`none of the others can be; \[(.*)\] were all set$`)

func helpHint(cmd *cobra.Command) string {
	return cmd.CommandPath() + " --help shows how it is used"
}

func newRoot(p *program) *cobra.Command {
	root := &cobra.Command{
		Use:   "chokepoint",
		Short: "Measure what a router really forwards, and find what holds it back",
		Long: `chokepoint measures what a router really forwards, and finds what holds it back.

It builds a testbed or configures an existing one, runs a plan on it, and observes
every machine while traffic flows. It reports numbers with the reasons to doubt them.

RUN is a run's id or name, a unique prefix of one, latest, or latest~N: the run N runs
before the latest. Commands that name one run and change nothing take the latest if RUN
is left out.`,
		Version:       "chokepoint " + app.RunVersion(),
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.PersistentFlags().StringVar(&p.place, "store", "",
		"the runs are those of this `STORE`: a directory, or "+
			"the URL of a PostgreSQL database (default: $CHOKEPOINT_STORE)")
	root.SetVersionTemplate("{{.Version}}\n")
	root.CompletionOptions.DisableNoDescFlag = true
	root.CompletionOptions.HiddenDefaultCmd = true // intended for packagers, like man
	root.SetFlagErrorFunc(flagError)
	for _, make := range commands {
		root.AddCommand(make(p))
	}

	help := newHelp(root)
	root.SetHelpCommand(help)
	root.AddCommand(help)
	root.InitDefaultCompletionCmd()
	root.SetHelpFunc(func(cmd *cobra.Command, _ []string) { p.lost = cmp.Or(p.lost, showHelp(cmd)) })
	finish(p, root, p.completions())
	return root
}

// commands lists the constructors of all commands, in the order of the help.
var commands = []func(*program) *cobra.Command{newAdviseCommand, newCatalogCommand, newCompareCommand,
	newLimitsCommand, newImportCommand, newListCommand, newRenameCommand, newDeleteCommand,
	newPushCommand, newPullCommand, newPlanCommand, newBedCommand,
	newPredictCommand, newReportCommand, newServeCommand, newDoctorCommand, newRunCommand, newTuneCommand,
	newPeerCommand,
	newWatchCommand, newResumeCommand, newLabCommand, newShowCommand, newDiagnoseCommand,
	newEffectsCommand, newHistoryCommand, newUpgradeCommand, newBisectCommand, newManCommand}

// addJSON adds the flag --json to a command. Its value is in program.json when the command runs.
func addJSON(cmd *cobra.Command, usage string) *cobra.Command {
	cmd.Flags().Bool("json", false, usage)
	return cmd
}

// homeless lists the commands that do not use the program's directories. One of them, plan check, may need
// the directories for a lab and prepares them itself.
var homeless = strings.Fields("x help plan peer completion man")

// runless lists further commands that neither read nor write runs.
var runless = strings.Fields("lab watch doctor limits advise")

// atStore selects the store given by --store.
func (p *program) atStore(cmd *cobra.Command, name string) error {
	usesRuns := !slices.Contains(homeless, name) && !slices.Contains(runless, name)
	switch {
	case !usesRuns && p.place != "":
		return app.Usage("leave it out", "--store: %s uses no runs", cmd.CommandPath())
	case !usesRuns:
		return nil
	case p.place != "":
		p.Dirs = p.Dirs.At(p.place)
	}

	return p.Dirs.CheckStore()
}

// recording lists the commands that create runs or add to them.
var recording = strings.Fields("run resume tune upgrade bisect import")

// records reports whether a command is in recording, or is diagnose with --prove.
func records(cmd *cobra.Command, name string) bool {
	prove, _ := cmd.Flags().GetBool("prove")
	return slices.Contains(recording, name) || prove
}

// finish completes a command and its subcommands: groups reject unknown subcommands, flags get their
// completions, and a command sets program.ran when it starts.
func finish(p *program, cmd *cobra.Command, completions map[string]cobra.CompletionFunc) {
	if cmd.HasSubCommands() && cmd.RunE == nil {
		cmd.Args = knownSubcommand
		cmd.RunE = func(cmd *cobra.Command, _ []string) error { return showHelp(cmd) }
	}

	if cmd.Args == nil {
		cmd.Args = atMost(0)
	}

	cmd.DisableFlagsInUseLine = true
	flags := cmd.LocalFlags() // cobra builds this set anew at each call
	cmd.Use = useOf(cmd, flags)
	cmd.SuggestionsMinimumDistance = 2
	flags.VisitAll(func(f *pflag.Flag) {
		if complete := completions[f.Name]; complete != nil {
			cmd.RegisterFlagCompletionFunc(f.Name, complete) // unless the flag has a completion of its own
		}
	})
	run := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := nothingEmpty(cmd, args); err != nil {
			return err
		}

		p.ran = true
		p.quiet, _ = cmd.Flags().GetBool("quiet")
		p.json, _ = cmd.Flags().GetBool("json") // false if there is no such flag
		name := strings.Fields(cmd.CommandPath() + " x")[1]
		if err := p.atStore(cmd, name); err != nil {
			return err
		}

		if !slices.Contains(homeless, name) {
			if err := p.Dirs.Trusted(); err != nil {
				return err
			}

			if p.Dirs.Note != "" {
				p.note("%s", p.Dirs.Note)
			}
		}

		if records(cmd, name) {
			return p.Recorded(cmd.Context(), func() error { return run(cmd, args) })
		}

		return run(cmd, args)
	}
	for _, sub := range cmd.Commands() {
		finish(p, sub, completions)
	}
}

// useOf returns the usage line of a command: its arguments, the flags without which it does nothing, and
// [flags] if it has other flags.
func useOf(cmd *cobra.Command, flags *pflag.FlagSet) string {
	named := strings.FieldsFunc(cmd.Use, func(r rune) bool { return r != '-' && (r < 'a' || r > 'z') })
	more := false
	flags.VisitAll(func(f *pflag.Flag) {
		more = more || !f.Hidden && f.Name != "help" && !slices.Contains(named, "--"+f.Name)
	})
	if more {
		return cmd.Use + " [flags]"
	}

	return cmd.Use
}

// nothingEmpty returns an error if an argument or the value of a flag is empty, which usually means that a
// shell variable is not set.
func nothingEmpty(cmd *cobra.Command, args []string) (err error) {
	dash := cmd.ArgsLenAtDash()
	if dash >= 0 {
		args = args[:dash]
	}

	if slices.Contains(args, "") && !emptyName(cmd, args) {
		return app.Usage("usage: "+cmd.UseLine(), "%s: an argument is empty", cmd.CommandPath())
	}

	cmd.Flags().Visit(func(f *pflag.Flag) {
		if f.Value.Type() == "string" && f.Value.String() == "" && err == nil {
			err = app.Usage("leave it out, or give it a value", "--%s is empty", f.Name)
		}
	})
	return err
}

// flagError rewords an error about a flag, and suggests a similar flag.
func flagError(cmd *cobra.Command, err error) error {
	hint := helpHint(cmd)
	if unknown, ok := errors.AsType[*pflag.NotExistError](err); ok {
		near := nearestFlag(cmd, unknown.GetSpecifiedName())
		if near != "" {
			hint = "did you mean --" + near + "?"
		}

		if strings.Contains(cmd.Use, " -- ") { // the flag belongs to the command to run
			hint = "usage: " + cmd.UseLine()
		}
	}

	if wrong, ok := errors.AsType[*pflag.InvalidValueError](err); ok {
		return wrongValue(wrong.GetFlag(), wrong.GetValue())
	}

	if bare, ok := errors.AsType[*pflag.ValueRequiredError](err); ok {
		return app.Usage(usageOf(bare.GetFlag()), "--%s wants a value", bare.GetFlag().Name)
	}

	return app.Usage(hint, "%s", err.Error())
}

// flagValues describes, by type of flag, a value that is not allowed, with an example of one that is.
var flagValues = map[string]struct{ what, example string }{
	"bool":     {"neither true nor false", "true"},
	"int":      {"not a whole number", "4"},
	"float64":  {"not a number", "0.5"},
	"duration": {"not a time with its unit", "90s"},
}

// wrongValue returns the error for a value that a flag does not accept. It describes the allowed values.
func wrongValue(f *pflag.Flag, value string) error {
	is := flagValues[f.Value.Type()]
	hint := "write it like --" + f.Name + "=" + is.example + "; " + usageOf(f)
	return app.Usage(hint, "--%s %q is %s", f.Name, value, is.what)
}

// usageOf describes a flag on one line: its name, the name of its value, and what it does.
func usageOf(f *pflag.Flag) string {
	name, usage := pflag.UnquoteUsage(f)
	return strings.TrimSpace("--"+f.Name+" "+name) + ": " + strings.Join(strings.Fields(usage), " ")
}

// nearestFlag returns the flag that was probably meant, or "" if there is none. This is a flag that starts
// with name, or that differs from it by at most two letters.
func nearestFlag(cmd *cobra.Command, name string) string {
	var names, begin []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if f.Hidden {
			return
		}

		names = append(names, f.Name)
		if len(name) > 2 && (strings.HasPrefix(f.Name, name) || strings.HasPrefix(name, f.Name)) {
			begin = append(begin, f.Name)
		}
	})
	near := check.Nearest(name, names)
	if near == "" && len(begin) > 0 {
		return begin[len(begin)-1]
	}

	return near
}

// knownSubcommand returns an error for an unknown subcommand. Cobra calls it only with words that it did
// not recognise.
func knownSubcommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}

	word := args[0]
	meant := nearestCommand(cmd, word)
	_, isPlan := plan.BuiltIn(word)
	planMeant := check.Nearest(word, plan.BuiltIns())
	switch {
	case isPlan && !cmd.HasParent():
		meant = "run " + word
	case cmd.Flags().Lookup(word) != nil:
		meant = "--" + word
	case meant == "" && planMeant != "" && !cmd.HasParent():
		meant = "run " + planMeant
	}

	hint := helpHint(cmd)
	if meant != "" {
		hint = "did you mean " + cmd.CommandPath() + " " + meant + "?"
	}

	return app.Usage(hint, "unknown command %q for %s", word, cmd.CommandPath())
}

// nearestCommand returns the subcommand that was probably meant, or "" if there is none. This is a subcommand
// that differs from name by at most two letters, that starts with name, or that replaces a former command of
// that name.
func nearestCommand(group *cobra.Command, name string) string {
	var names []string
	for _, c := range group.Commands() {
		if c.IsAvailableCommand() {
			names = append(names, c.Name())
		}
	}

	near := check.Nearest(name, names)
	if near == "" {
		near = strings.Join(group.SuggestionsFor(name), " or ")
	}

	return near
}

// newHelp returns cobra's help command, modified to return an error for an unknown topic.
func newHelp(root *cobra.Command) *cobra.Command {
	return &cobra.Command{
		Use:   "help [COMMAND]",
		Short: "Show the help of a command",
		Args:  cobra.ArbitraryArgs,
		RunE: func(_ *cobra.Command, args []string) error {
			cmd, rest, err := root.Find(args)
			if err != nil || len(rest) > 0 {
				return knownSubcommand(cmd, args)
			}
			return showHelp(cmd)
		},
	}
}

// exactArgs requires one argument for each name.
func exactArgs(names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) < len(names) {
			return app.Usage("usage: "+cmd.UseLine(), "%s: missing %s", cmd.CommandPath(),
				strings.Join(names[len(args):], " "))
		}
		return atMost(len(names))(cmd, args)
	}
}

// runOf returns the run in a command's argument, or "latest" if there is no argument.
func runOf(args []string) string { return append(args, "latest")[0] }

// optionalArg allows at most one argument.
var optionalArg = atMost(1)

// atMost allows at most n arguments.
func atMost(n int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) > n {
			return app.Usage("usage: "+cmd.UseLine(), "%s: unexpected argument %q", cmd.CommandPath(),
				args[n])
		}
		return nil
	}
}

// known returns an error unless word is empty or in words. The error suggests the word that was probably
// meant. noun says what the words are, such as "devices".
func known(text, word, noun string, words ...string) error {
	if word == "" || slices.Contains(words, word) {
		return nil
	}
	return app.Usage(check.Choice(word, noun, words), text, word)
}

// between returns an error if the value of a flag is out of range.
func between(hint, flag string, n, low, high int) error {
	if n < low || n > high {
		return app.Usage(hint, "--%s %d is not from %d to %d", flag, n, low, high)
	}
	return nil
}

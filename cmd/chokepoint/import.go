package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"slices"

	"github.com/spf13/cobra"

	"github.com/chokepoint-lab/chokepoint/internal/analysis"
	"github.com/chokepoint-lab/chokepoint/internal/app"
	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/foreign"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/record/store"
	"github.com/chokepoint-lab/chokepoint/internal/registry/node"
	"github.com/chokepoint-lab/chokepoint/internal/trial/watch"
	"github.com/chokepoint-lab/chokepoint/internal/unit"
	"github.com/chokepoint-lab/chokepoint/internal/userfile"
)

func newImportCommand(p *program) *cobra.Command {
	var into string
	var undo, clockWrong bool
	var o foreignOptions
	cmd := &cobra.Command{
		Use: "import FILE… [--from FORMAT] [--set FACTOR=LEVEL]… | import FILE [--into RUN]\n" +
			"       [--clock-wrong] | import --undo [--into RUN]",
		Short: "Import results of other programs, or add a router's recording to a run",
		Long: `Make a stored run from results of other programs, to show, compare and report them. The
format of a FILE is detected from its content. Results with the same conditions are
repetitions of one cell. The run lists what they lack. If a file is damaged, the error
names the place, and nothing is stored.

Or add to a stored run what chokepoint-agent recorded on the router between two
machines, which the run itself could not reach. FILE is the output of one of these
commands, or - for standard input, to paste it:

  chokepoint-agent probe --json    during the run
  chokepoint-agent environment     at any time

The recording is aligned with the run by its traffic; the router's clock must be right
to within two minutes. A new import replaces an earlier one.`,
		Args: func(cmd *cobra.Command, args []string) error {
			if undo {
				return noArgs(cmd, args)
			}
			if len(args) > 1 && !cmd.Flags().Changed("into") && !clockWrong {
				return nil
			}
			return exactArgs("FILE")(cmd, args)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if undo {
				return undoImport(cmd.Context(), into, p)
			}
			debug.SetMemoryLimit(app.DocumentMemory)
			if o.from != "" || len(o.sets) > 0 || len(args) > 1 {
				return p.importForeign(cmd.Context(), args, nil, o)
			}
			in, err := openImport(cmd.Context(), args[0], p.In)
			if err != nil {
				return err
			}
			defer in.close()
			if !cmd.Flags().Changed("into") && !clockWrong && !in.recorded() {
				return p.importForeign(cmd.Context(), args, in, o)
			}
			return in.add(cmd.Context(), into, clockWrong, p)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.from, "from", "", "the files are in this `FORMAT`: "+formatWords())
	completeOne(cmd, "from", foreign.Formats())
	f.StringArrayVar(&o.sets, "set", nil, "a condition of all results: `FACTOR=LEVEL`; an empty\n"+
		"level removes the factor")
	f.BoolVar(&undo, "undo", false, "remove what was imported")
	f.BoolVar(&clockWrong, "clock-wrong", false,
		"align by traffic alone: the router's clock is off by\nmore than two minutes")
	cmd.MarkFlagsMutuallyExclusive("undo", "clock-wrong")
	f.StringVar(&into, "into", "latest", "the `RUN` that the recording belongs to")
	for _, flag := range []string{"into", "undo", "clock-wrong"} {
		cmd.MarkFlagsMutuallyExclusive("from", flag)
		cmd.MarkFlagsMutuallyExclusive("set", flag)
	}
	return addJSON(cmd, "for results of other programs: print one JSON object")
}

func formatWords() string {
	names := foreign.Formats()
	return list(names[:4]) + ",\n" + list(names[4:])
}

// maxImportBytes bounds a file to import: a day of samples of a second.
const maxImportBytes = 1 << 30

// input is a file to import, or a copy of standard input. It can be read from the beginning again.
type input struct {
	seeker
	name  string
	close func() error
}

type seeker interface {
	io.ReadSeeker
	io.ReaderAt
}

// openImport opens a file or standard input as UTF-8.
func openImport(ctx context.Context, file string, stdin io.Reader) (*input, error) {
	in, err := openAsIs(ctx, file, stdin)
	if err != nil {
		return nil, err
	}
	head := make([]byte, headBytes)
	n, err := in.ReadAt(head, 0)
	if err != nil && err != io.EOF || !foreign.Encoded(head[:n]) {
		return in, nil // whoever reads on meets the error again
	}
	text, err := foreign.Text(in)
	if err != nil {
		return nil, errors.Join(in.wrong(err), in.close())
	}
	in.seeker = bytes.NewReader(text)
	return in, nil
}

// wrong wraps an error of reading a file. It is a usage error if the text is wrong.
func (in *input) wrong(err error) error {
	if wrong, ok := errors.AsType[*foreign.Error](err); ok {
		return app.Usage(check.HintOf(wrong), "import %s: %s", in.name, check.Plain(wrong.Error()))
	}
	return fmt.Errorf("import %s: %w", in.name, err)
}

// headBytes of a file suffice to recognise its format.
const headBytes = 4096

// openAsIs opens a regular file, or reads standard input, which an interrupt ends.
func openAsIs(ctx context.Context, file string, stdin io.Reader) (*input, error) {
	if file != standard {
		f, err := userfile.OpenRegular(file)
		if err != nil {
			return nil, app.Usage("name a file, or - for standard input", "import %s: %v", file, err)
		}
		return &input{f, check.Plain(filepath.Base(file)), f.Close}, nil
	}
	in := &input{name: "standard input", close: func() error { return nil }}
	if f, ok := stdin.(*os.File); ok {
		if info, err := f.Stat(); err == nil && info.Mode().IsRegular() {
			in.seeker = f
			return in, nil
		}
	}
	text, err := within(ctx, func() ([]byte, error) {
		return io.ReadAll(io.LimitReader(stdin, foreign.MaxText+1))
	})
	switch {
	case err != nil:
		return nil, fmt.Errorf("import %s: %w", in.name, err)
	case len(text) > foreign.MaxText:
		return nil, app.Usage("a recording of chokepoint-agent may be larger as a file",
			"import %s: it is larger than %d MiB", in.name, foreign.MaxText>>20)
	}
	in.seeker = bytes.NewReader(text)
	return in, nil
}

// ofAgent matches the beginning of chokepoint-agent's output, object that of any JSON object behind a prompt.
var (
	ofAgent = regexp.MustCompile(`^\{\s*"(format"\s*:\s*"chokepoint|at_ns"|node")`)
	object  = regexp.MustCompile(`\{\s*"`)
)

// recorded reports whether chokepoint-agent printed it, not another program, and skips what stands before.
func (in *input) recorded() bool {
	head := make([]byte, headBytes)
	n, _ := in.ReadAt(head, 0)
	found := object.FindIndex(head[:n])
	if found == nil || !ofAgent.Match(head[found[0]:n]) {
		return false
	}
	size, err := in.Seek(0, io.SeekEnd)
	if err == nil {
		in.seeker = io.NewSectionReader(in.seeker, int64(found[0]), size-int64(found[0]))
	}
	return err == nil
}

// add adds a recording of chokepoint-agent to a run.
func (in *input) add(ctx context.Context, into string, clockWrong bool, p *program) error {
	switch size, err := in.Seek(0, io.SeekEnd); {
	case err != nil:
		return fmt.Errorf("import %s: %w", in.name, err)
	case size > maxImportBytes:
		return app.Usage("cut it to the time of the run", "import %s: it is larger than 1 GiB", in.name)
	}
	to, err := importedTo(ctx, p.Dirs, into)
	if err != nil {
		return err
	}
	note, summary, err := to.noteOf(in, in.name, clockWrong)
	if err != nil {
		return err
	}
	return addNote(ctx, to.run.ID, note, summary, p)
}

// undoImport removes an import from a run.
func undoImport(ctx context.Context, into string, p *program) error {
	to, err := importedTo(ctx, p.Dirs, into)
	if err != nil {
		return err
	}
	facts := 0
	for _, e := range to.run.Environments {
		if e.Node == to.router {
			facts++
		}
	}
	if len(to.run.Imports) == 0 && facts < 2 { // the run has told of it itself
		return app.Usage("chokepoint list shows the runs, --into names one",
			"import --undo: nothing was imported into run %s", to.run.ID)
	}
	summary := fmt.Sprintf("what was imported about the %s of run %s is taken back", to.router, to.run.ID)
	return addNote(ctx, to.run.ID, store.Note{ForgetSamples: to.router, ForgetFacts: to.router}, summary, p)
}

func addNote(ctx context.Context, run string, note store.Note, summary string, p *program) error {
	st, err := store.Open(ctx, p.Dirs.StoreFile())
	if err != nil {
		return err
	}
	if err := errors.Join(st.AddNote(ctx, run, note), st.Close()); err != nil {
		return err
	}
	return p.print(check.Plain(summary) + "\n")
}

// imported describes the run to import into: its unwatched router, and what its trials carried.
type imported struct {
	run      record.Run
	router   string
	carriage analysis.Carriage
}

// importedTo reads the run that is called into, one trial after the other.
func importedTo(ctx context.Context, d app.Dirs, into string) (*imported, error) {
	to := &imported{}
	watched := map[string]bool{}
	err := d.WithRun(ctx, into, func(st *store.Store, run record.Run) error {
		to.run = run
		if run.Status == record.RunRunning {
			return app.Hinted("import when it has ended", "import into run %s: it is still going on", run.ID)
		}
		for t, err := range st.Each(ctx, run.ID) {
			if err != nil {
				return err
			}
			to.carriage.Add(t)
			for name, n := range t.Nodes {
				for _, s := range n.Samples {
					watched[name] = watched[name] || s.Table != nil
				}
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	var found []string
	for _, t := range to.run.Topologies {
		for _, name := range t.Routers {
			if !slices.Contains(found, name) && !watched[name] {
				found = append(found, name)
			}
		}
	}
	if len(found) != 1 {
		return nil, app.Usage("import is for runs with --peer; chokepoint list shows the runs, "+
			"--into names one", "import into run %s: the run watched its routers itself", to.run.ID)
	}
	to.router = found[0]
	return to, nil
}

// noteOf reads output of the agent and returns what it adds to a run, with a summary.
func (to *imported) noteOf(text io.ReadSeeker, name string, clockWrong bool) (store.Note, string, error) {
	facts, err := factsIn(text)
	if err != nil {
		return store.Note{}, "", fmt.Errorf("import %s: %w", name, err)
	}
	if len(facts.Facts) > 0 {
		facts.Node = to.router
		return store.Note{Environments: []record.Environment{facts}, ForgetFacts: to.router},
			fmt.Sprintf("%s: %d facts about the %s of run %s", name, len(facts.Facts), to.router,
				to.run.ID), nil
	}
	// A day of samples is too large to keep: first read only those that show when it was.
	printed, err := readPrinted(text, name, func(probe string, _ int64) bool { return probe == "netdev" })
	if err != nil {
		return store.Note{}, "", err
	}
	var devices *record.Table
	for _, s := range printed.Samples {
		if s.Probe == "netdev" {
			devices = s.Table
		}
	}
	wall := to.wallOffset(printed)
	a, err := to.carriage.Align(devices, wall, clockWrong)
	if err != nil {
		return store.Note{}, "", fmt.Errorf("import %s into run %s: %w", name, to.run.ID, err)
	}
	clock := "related to the run's " + a.Text()
	if wall != 0 {
		clock = analysis.AheadWords(a.Offset-wall) + ", " + a.Text()
	}
	var keep func(probe string, at int64) bool
	thinned := ""
	if printed.Values > maxImported {
		thin := to.carriage.Thinner()
		keep = func(probe string, at int64) bool { return thin(probe, at-a.Offset) }
		thinned = "; it is long: of each trial's samples some are kept, and none from between them"
	}
	if printed, err = readPrinted(text, name, keep); err != nil {
		return store.Note{}, "", err
	}
	im := record.Import{Node: to.router, File: name, Offset: a.Offset, Bound: a.Bound, Match: a.Match,
		Samples: printed.Samples, Log: printed.Log}
	sources := onOurClock(&im)
	summary := fmt.Sprintf("%s: %s (%s) on the %s, in %d of %s of run %s; its clock is %s%s",
		name, unit.Count(len(sources), "source"), list(sources), to.router,
		to.carriage.Covered(im), unit.Count(to.carriage.Trials(), "trial"), to.run.ID, clock, thinned)
	if printed.Cut {
		summary += "; the last line is incomplete and was left out"
	}
	caveat := record.Caveat{Kind: "imported", Text: fmt.Sprintf("what the %s did comes from %s, which its "+
		"own probe wrote; its clock was %s%s", to.router, name, clock, thinned)}
	return store.Note{Imports: []record.Import{im}, Caveats: []record.Caveat{caveat},
		ForgetSamples: to.router}, summary, nil
}

// maxImported bounds the values of an import that is kept whole: 16 MB.
const maxImported = 2 << 20

// maxFacts bounds the text of chokepoint-agent environment, in bytes.
const maxFacts = 1 << 20

// factsIn reads the output of chokepoint-agent environment. Any other text yields none.
func factsIn(text io.ReadSeeker) (e record.Environment, err error) {
	if _, err = text.Seek(0, io.SeekStart); err != nil {
		return e, err
	}
	b, err := io.ReadAll(io.LimitReader(text, maxFacts+1))
	if err != nil || len(b) > maxFacts {
		return e, err
	}
	if json.NewDecoder(bytes.NewReader(check.PlainJSON(b))).Decode(&e) != nil {
		return record.Environment{}, nil
	}
	return e, nil
}

// readPrinted reads a text of chokepoint-agent probe from its beginning.
func readPrinted(text io.ReadSeeker, name string, keep func(string, int64) bool) (*watch.Printed, error) {
	_, err := text.Seek(0, io.SeekStart)
	if err != nil {
		return nil, fmt.Errorf("import %s: %w", name, err)
	}
	printed, err := watch.ReadPrinted(text, keep)
	if line := (*watch.LineError)(nil); errors.As(err, &line) {
		return nil, app.Usage("it must be what chokepoint-agent probe --json or chokepoint-agent "+
			"environment printed", "import %s: %v", name, err)
	}
	if err != nil {
		return nil, fmt.Errorf("import %s: %w", name, err)
	}
	return printed, nil
}

// onOurClock moves an import to the controller's clock, and returns the sources that it has.
func onOurClock(im *record.Import) (sources []string) {
	declared := map[string][]record.Metric{}
	for _, p := range node.Probes() {
		declared[p.Name()] = p.Metrics()
	}
	for i := range im.Samples {
		s := &im.Samples[i]
		s.Table.Shift(-im.Offset)
		if s.Metrics = declared[s.Probe]; s.Table != nil {
			sources = append(sources, s.Probe)
		}
	}
	for i := range im.Log {
		im.Log[i].At -= im.Offset
	}
	return sources
}

// wallOffset returns the offset of the monotonic clocks that follows from both wall clocks, 0 if unknown.
func (to *imported) wallOffset(p *watch.Printed) int64 {
	ours := to.carriage.Wall()
	if p.Realtime == 0 || ours == 0 {
		return 0
	}
	return ours - (p.Realtime - p.At)
}

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
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/chokepoint-lab/chokepoint/internal/analysis"
	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/record/store"
	"github.com/chokepoint-lab/chokepoint/internal/registry/node"
	"github.com/chokepoint-lab/chokepoint/internal/trial/watch"
	"github.com/chokepoint-lab/chokepoint/internal/unit"
)

func newImportCommand(p *program) *cobra.Command {
	var into string
	var undo, clockWrong bool
	cmd := &cobra.Command{
		Use:   "import FILE [--into RUN] [--clock-wrong] | import --undo [--into RUN]",
		Short: "Add to a stored run what an agent recorded on the router",
		Long: "Add to a stored run what chokepoint-agent recorded on the router between two\n" +
			"machines, which the run itself could not reach. FILE is the output of one of these\n" +
			"commands, or - for standard input, to paste it:\n\n" +
			"  chokepoint-agent probe --json    while the run went on\n" +
			"  chokepoint-agent environment     at any time\n\n" +
			"The traffic of the run tells exactly when it was, the router's clock roughly: it\n" +
			"must be right within two minutes. What was imported before is replaced.",
		Args: func(cmd *cobra.Command, args []string) error {
			if undo {
				return noArgs(cmd, args)
			}
			return exactArgs("FILE")(cmd, args)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if undo {
				return undoImport(cmd.Context(), into, p)
			}
			return importFile(cmd.Context(), args[0], into, clockWrong, p)
		},
	}
	cmd.Flags().BoolVar(&undo, "undo", false, "take back what was imported")
	cmd.Flags().BoolVar(&clockWrong, "clock-wrong", false,
		"have the traffic alone tell when it was: the router's\nclock is off by more than two minutes")
	cmd.MarkFlagsMutuallyExclusive("undo", "clock-wrong")
	cmd.Flags().StringVar(&into, "into", "latest", "the `RUN` that it belongs to")
	return cmd
}

// maxImportBytes bounds a file to import: a day of samples of a second.
const maxImportBytes = 1 << 30

func importFile(ctx context.Context, file, into string, clockWrong bool, p *program) (err error) {
	run, trials, err := loadRun(ctx, p.dirs, into)
	if err != nil {
		return err
	}
	router, err := unwatched(&run, trials)
	if err != nil {
		return err
	}
	from, name := p.In, "standard input"
	if file != standard {
		f, err := os.Open(file)
		if err != nil {
			return &usageError{fmt.Sprintf("import: %v", err), ""}
		}
		defer func() { err = errors.Join(err, f.Close()) }()
		from, name = f, filepath.Base(file)
	}
	text, err := io.ReadAll(io.LimitReader(from, maxImportBytes+1))
	switch {
	case err != nil:
		return fmt.Errorf("import %s: %w", name, err)
	case len(text) > maxImportBytes:
		return &usageError{fmt.Sprintf("import %s: it is larger than 1 GiB", name),
			"cut it to the time of the run"}
	}
	note, said, err := noteOf(text, name, router, run.ID, trials, clockWrong)
	if err != nil {
		return err
	}
	return addNote(ctx, run.ID, note, said, p)
}

// undoImport takes back what was imported into a run.
func undoImport(ctx context.Context, into string, p *program) error {
	run, trials, err := loadRun(ctx, p.dirs, into)
	if err != nil {
		return err
	}
	router, err := unwatched(&run, trials)
	if err != nil {
		return err
	}
	facts := 0
	for _, e := range run.Environments {
		if e.Node == router {
			facts++
		}
	}
	if len(run.Imports) == 0 && facts < 2 { // the run has told of it itself
		return &usageError{fmt.Sprintf("import --undo: nothing was imported into run %s", run.ID),
			"chokepoint list shows the runs, --into names one"}
	}
	said := fmt.Sprintf("what was imported about the %s of run %s is taken back", router, run.ID)
	return addNote(ctx, run.ID, store.Note{ForgetSamples: router, ForgetFacts: router}, said, p)
}

func addNote(ctx context.Context, run string, note store.Note, said string, p *program) error {
	st, err := store.Open(ctx, p.dirs.storeFile())
	if err != nil {
		return err
	}
	if err := errors.Join(st.AddNote(ctx, run, note), st.Close()); err != nil {
		return err
	}
	return write(p.Out, check.Plain(said)+"\n")
}

// unwatched is the router of a run that nothing watched.
func unwatched(run *record.Run, trials []record.Trial) (string, error) {
	if run.Status == record.RunRunning {
		return "", check.WithHint(fmt.Errorf("import into run %s: it is still going on", run.ID),
			"import when it has ended")
	}
	var found []string
	for _, t := range run.Topologies {
		for _, name := range t.Routers {
			if !slices.Contains(found, name) && !watched(name, trials) {
				found = append(found, name)
			}
		}
	}
	if len(found) != 1 {
		return "", &usageError{fmt.Sprintf("import into run %s: the run watched its routers itself", run.ID),
			"import is for runs with --peer; chokepoint list shows the runs, --into names one"}
	}
	return found[0], nil
}

func watched(node string, trials []record.Trial) bool {
	return slices.ContainsFunc(trials, func(t record.Trial) bool {
		return slices.ContainsFunc(t.Nodes[node].Samples,
			func(s record.Samples) bool { return s.Table != nil })
	})
}

// noteOf reads a text of the agent's, and says what it adds to a run.
func noteOf(text []byte, name, router, run string, trials []record.Trial, clockWrong bool) (store.Note,
	string, error) {
	text = check.PlainJSON(text) // as what an agent says on a connection
	var e record.Environment
	if json.Unmarshal(text, &e) == nil && len(e.Facts) > 0 {
		e.Node = router
		return store.Note{Environments: []record.Environment{e}, ForgetFacts: router},
			fmt.Sprintf("%s: %d facts about the %s of run %s", name, len(e.Facts), router, run), nil
	}
	printed, err := watch.ReadPrinted(bytes.NewReader(text))
	if line := (*watch.LineError)(nil); errors.As(err, &line) {
		return store.Note{}, "", &usageError{fmt.Sprintf("import %s: %v", name, err),
			"it must be what chokepoint-agent probe --json or chokepoint-agent environment printed"}
	}
	if err != nil {
		return store.Note{}, "", fmt.Errorf("import %s: %w", name, err)
	}
	var devices *record.Table
	for _, s := range printed.Samples {
		if s.Probe == "netdev" {
			devices = s.Table
		}
	}
	wall := wallOffset(printed, trials)
	a, err := analysis.AlignByTraffic(trials, devices, wall, clockWrong)
	if err != nil {
		return store.Note{}, "", fmt.Errorf("import %s into run %s: %w", name, run, err)
	}
	clock := "related to the run's " + a.Text()
	if wall != 0 {
		clock = analysis.AheadWords(a.Offset-wall) + ", " + a.Text()
	}
	im := record.Import{Node: router, File: name, Offset: a.Offset, Bound: a.Bound, Match: a.Match,
		Samples: printed.Samples, Log: printed.Log}
	var sources []string
	declared := map[string][]record.Metric{}
	for _, p := range node.Probes() {
		declared[p.Name()] = p.Metrics()
	}
	for i := range im.Samples {
		s := &im.Samples[i]
		s.Table.Shift(-a.Offset)
		if s.Metrics = declared[s.Probe]; s.Table != nil {
			sources = append(sources, s.Probe)
		}
	}
	for i := range im.Log {
		im.Log[i].At -= a.Offset
	}
	covered := analysis.Covered(im, trials)
	said := fmt.Sprintf("%s: %s (%s) on the %s, in %d of %s of run %s; its clock is %s",
		name, unit.Count(len(sources), "source"), strings.Join(sources, ", "), router, covered,
		unit.Count(len(trials), "trial"), run, clock)
	if printed.Cut {
		said += "; the last line is incomplete and was left out"
	}
	caveat := record.Caveat{Kind: "imported", Text: fmt.Sprintf("what the %s did comes from %s, which its "+
		"own probe wrote; its clock was %s", router, name, clock)}
	return store.Note{Imports: []record.Import{im}, Caveats: []record.Caveat{caveat}, ForgetSamples: router},
		said, nil
}

// wallOffset is what the wall clocks of both machines tell about the offset of their monotonic ones; 0 =
// nothing.
func wallOffset(p *watch.Printed, trials []record.Trial) int64 {
	if p.Realtime == 0 || len(trials) == 0 {
		return 0
	}
	ours := trials[0].Started.UnixNano() - trials[0].Origin
	return ours - (p.Realtime - p.At)
}

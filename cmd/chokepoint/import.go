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
	cmd := &cobra.Command{
		Use: "import FILE [--into RUN]", Short: "Add to a stored run what an agent recorded on the router",
		Long: "Add to a stored run what chokepoint-agent recorded on the router between two\n" +
			"machines, which the run itself could not reach. FILE is the output of one of these\n" +
			"commands, or - for standard input, to paste it:\n\n" +
			"  chokepoint-agent probe --json    while the run went on\n" +
			"  chokepoint-agent environment     at any time\n\n" +
			"The router's clock need not be right: the traffic of the run tells when it was.",
		Args: exactArgs("FILE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return importFile(cmd.Context(), args[0], into, p)
		},
	}
	cmd.Flags().StringVar(&into, "into", "latest", "the `RUN` that it belongs to")
	return cmd
}

// maxImportBytes bounds a file to import: a day of samples of a second.
const maxImportBytes = 1 << 30

func importFile(ctx context.Context, file, into string, p *program) (err error) {
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
	note, said, err := noteOf(text, name, router, run.ID, trials)
	if err != nil {
		return err
	}
	st, err := store.Open(ctx, p.dirs.storeFile())
	if err != nil {
		return err
	}
	if err := errors.Join(st.AddNote(ctx, run.ID, note), st.Close()); err != nil {
		return err
	}
	return write(p.Out, said+"\n")
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
func noteOf(text []byte, name, router, run string, trials []record.Trial) (store.Note, string, error) {
	var e record.Environment
	if json.Unmarshal(text, &e) == nil && len(e.Facts) > 0 {
		e.Node = router
		return store.Note{Environments: []record.Environment{e}},
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
	a, err := analysis.AlignByTraffic(trials, devices, wallOffset(printed, trials))
	if err != nil {
		return store.Note{}, "", fmt.Errorf("import %s: %w", name, err)
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
	said := fmt.Sprintf("%s: %s (%s) on the %s, in %d of %s of run %s; its clock is related to the run's %s",
		name, unit.Count(len(sources), "source"), strings.Join(sources, ", "), router, covered,
		unit.Count(len(trials), "trial"), run, a.Text())
	if printed.Cut {
		said += "; the last line is incomplete and was left out"
	}
	caveat := record.Caveat{Kind: "imported", Text: fmt.Sprintf("what the %s did comes from %s, which its "+
		"own probe wrote; its clock was related to the run's %s", router, name, a.Text())}
	return store.Note{Imports: []record.Import{im}, Caveats: []record.Caveat{caveat}}, said, nil
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

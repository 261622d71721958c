package app

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/analysis"
	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/record/store"
	"github.com/chokepoint-lab/chokepoint/internal/registry/node"
	"github.com/chokepoint-lab/chokepoint/internal/trial/watch"
	"github.com/chokepoint-lab/chokepoint/internal/unit"
)

// KeepRun stores a run that other programs measured, with its trials. If that fails, it stores nothing. If
// another run has the same name, the error is an ErrUsage.
func (d Dirs) KeepRun(ctx context.Context, run record.Run, trials []record.Trial) error {
	st, err := d.OpenOwn(ctx)
	if err != nil {
		return err
	}

	err = st.CreateRun(ctx, run)
	if err != nil {
		return errors.Join(ofRequest(err), st.Close())
	}

	for i := 0; err == nil && i < len(trials); i++ {
		err = st.AppendTrial(ctx, trials[i])
	}

	if err == nil {
		err = st.EndRun(ctx, run.ID, record.RunDone, "", run.Ended)
	}

	if err != nil {
		err = errors.Join(err, st.Remove(context.WithoutCancel(ctx), run.ID))
	}

	return errors.Join(err, st.Close())
}

// ImportRecording adds a recording to a run, and returns a summary. chokepoint-agent made the recording on a
// router. Messages refer to the recording by name. If clockWrong is set, ImportRecording ignores the router's
// wall clock and determines the time of the recording from the traffic alone.
func (d Dirs) ImportRecording(ctx context.Context, into string, text io.ReadSeeker, name string,
	clockWrong bool) (summary string, err error) {
	to, err := d.importedTo(ctx, into)
	if err != nil {
		return "", err
	}

	note, summary, err := to.noteOf(text, name, clockWrong)
	if err != nil {
		return "", err
	}

	return summary, d.addNote(ctx, to.run.ID, note)
}

// ForgetRecording removes all imports from a run, and returns a summary.
func (d Dirs) ForgetRecording(ctx context.Context, into string) (summary string, err error) {
	to, err := d.importedTo(ctx, into)
	if err != nil {
		return "", err
	}

	facts := 0
	for _, e := range to.run.Environments {
		if e.Node == to.router {
			facts++
		}
	}

	if len(to.run.Imports) == 0 && facts < 2 { // the only facts are those that the run itself recorded
		return "", Usage("chokepoint list shows the runs, --into names one",
			"import --undo: nothing was imported into run %s", to.run.ID)
	}

	summary = fmt.Sprintf("what was imported about the %s of run %s is taken back", to.router, to.run.ID)
	return summary, d.addNote(ctx, to.run.ID, store.Note{ForgetSamples: to.router, ForgetFacts: to.router})
}

func (d Dirs) addNote(ctx context.Context, run string, note store.Note) error {
	st, err := d.OpenOwn(ctx)
	if err != nil {
		return err
	}
	err = st.AddNote(ctx, run, note)
	if err == nil {
		err = st.SetResults(ctx, run, nil) // the stored results are out of date
	}

	return errors.Join(err, st.Close())
}

// imported describes the run to which a recording is added: the name of its router, and the traffic of its
// trials.
type imported struct {
	run      record.Run
	router   string
	carriage analysis.Carriage
}

// importedTo reads the run to which a recording is added, trial by trial.
func (d Dirs) importedTo(ctx context.Context, into string) (*imported, error) {
	to := &imported{}
	watched := map[string]bool{}
	err := d.WithRun(ctx, into, func(st *store.Store, run record.Run) error {
		to.run = run
		if run.Status == record.RunRunning {
			return Hinted("import when it has ended", "import into run %s: it is still going on", run.ID)
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
		return nil, Usage(
			"import is for runs with --peer; chokepoint list shows the runs, --into names one",
			"import into run %s: the run watched its routers itself", to.run.ID)
	}

	to.router = found[0]
	return to, nil
}

// noteOf parses output of the agent. It returns the note to add to the run, and a summary.
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

	// The samples of a day are too large to keep in memory. First read only the samples that show the
	// traffic, because they determine the time of the recording.
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

	im := record.Import{
		Node:    to.router,
		File:    name,
		Offset:  a.Offset,
		Bound:   a.Bound,
		Match:   a.Match,
		Samples: printed.Samples,
		Log:     printed.Log,
	}
	sources := onOurClock(&im)
	summary := fmt.Sprintf("%s: %s (%s) on the %s, in %d of %s of run %s; its clock is %s%s",
		name, unit.Count(len(sources), "source"), strings.Join(sources, ", "), to.router,
		to.carriage.Covered(im), unit.Count(to.carriage.Trials(), "trial"), to.run.ID, clock, thinned)
	if printed.Cut {
		summary += "; the last line is incomplete and was left out"
	}

	caveat := record.Caveat{
		Kind: "imported",
		Text: fmt.Sprintf(
			"what the %s did comes from %s, which its own probe wrote; its clock was %s%s",
			to.router, name, clock, thinned),
	}
	return store.Note{
		Imports:       []record.Import{im},
		Caveats:       []record.Caveat{caveat},
		ForgetSamples: to.router,
	}, summary, nil
}

// maxImported is the largest number of values (16 MB) that an import keeps without thinning.
const maxImported = 2 << 20

// maxFacts is the largest output of chokepoint-agent environment, in bytes.
const maxFacts = 1 << 20

// factsIn parses the output of chokepoint-agent environment. It returns no facts for other text.
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

// readPrinted rewinds text and parses it as output of chokepoint-agent probe.
func readPrinted(text io.ReadSeeker, name string, keep func(string, int64) bool) (*watch.Printed, error) {
	_, err := text.Seek(0, io.SeekStart)
	if err != nil {
		return nil, fmt.Errorf("import %s: %w", name, err)
	}

	printed, err := watch.ReadPrinted(text, keep)
	line := (*watch.LineError)(nil)
	if errors.As(err, &line) {
		return nil, Usage(
			"it must be what chokepoint-agent probe --json or chokepoint-agent environment printed",
			"import %s: %v", name, err)
	}

	if err != nil {
		return nil, fmt.Errorf("import %s: %w", name, err)
	}

	return printed, nil
}

// onOurClock converts the times of an import to the controller's clock. It returns the names of the probes
// that have samples.
func onOurClock(im *record.Import) (sources []string) {
	declared := map[string][]record.Metric{}
	for _, p := range node.Probes() {
		declared[p.Name] = p.Metrics()
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

// wallOffset returns the offset between the monotonic clocks of the router and of the controller. It derives
// the offset from their wall clocks. If the offset is unknown, it returns 0.
func (to *imported) wallOffset(p *watch.Printed) int64 {
	ours := to.carriage.Wall()
	if p.Realtime == 0 || ours == 0 {
		return 0
	}
	return ours - (p.Realtime - p.At)
}

package app

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/analysis"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/diagnosis"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/metrics"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/statistics"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/tuning"
	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/factor"
	"github.com/chokepoint-lab/chokepoint/internal/lab"
	"github.com/chokepoint-lab/chokepoint/internal/lab/journal"
	"github.com/chokepoint-lab/chokepoint/internal/plan"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/registry"
	"github.com/chokepoint-lab/chokepoint/internal/trial"
	"github.com/chokepoint-lab/chokepoint/internal/unit"
	"github.com/chokepoint-lab/chokepoint/internal/userfile"
)

// TuneOptions configure Tune.
type TuneOptions struct {
	RunOptions // Report is not used

	Try      []tuning.Change // changes to try in addition to those that the diagnosis suggests
	Only     bool            // try only the changes in Try
	MaxDelay time.Duration   // largest delay (p99) that a load may add
	MaxLoss  float64         // largest loss ratio
	Keep     bool            // keep the changes that helped in the lab named by Attach
}

// Tuned is the result of Tune.
type Tuned struct {
	tuning.Result
	Stays factor.Cell // settings that remain in the lab; nil means none
}

// CanTune returns an error if tuning cannot repeat the plan. If the plan has too few runs for a confidence
// interval, CanTune increases their number.
func CanTune(base *plan.Plan) error {
	m := &base.Design.Method
	if m.Search != nil || m.Soak > 0 {
		return Usage("leave out method.search and method.soak", "tune a plan that searches or soaks")
	}

	m.Adaptive, m.Runs = nil, max(m.Runs, statistics.MinInterval)
	return nil
}

// usualChanges is the number of changes for which FitTune leaves time, if the plan can be cut enough.
const usualChanges = 6

// FitTune shortens a plan so that tuning fits the budget. Tuning measures the router as found, tries
// usualChanges changes (each alone, and all together), and checks the changes that were kept.
func FitTune(base *plan.Plan, budget time.Duration) error {
	const fixed = 3 * (labTime + endTime)
	runs := time.Duration(base.Design.Method.Runs)
	rows := func(changes time.Duration) time.Duration { return blocksAsFound + runs*(2+changes) + runs*2 }
	for changes := time.Duration(usualChanges); changes > 0; changes-- {
		if base.Fit((budget-fixed)*runs/rows(changes), RowOverhead) == nil {
			return nil
		}
	}

	shortest := base.Design
	shortest.Cells = shortest.Cells[:1]
	shortest.Method.Duration = min(shortest.Method.Duration, plan.MinWindow)
	takes := fixed + plan.New(shortest).Estimate(RowOverhead)*rows(1)/runs
	return Usage("give a longer --for, or a shorter method.duration",
		"tune within %s: one cell as found, with one change, and once more with what is kept take about %s",
		unit.Seconds(budget), about(takes))
}

// Tune measures a plan without changes in the lab of head, tries changes that may help, and stores which
// changes helped. Unless Keep is set, it leaves the lab as found. If anything was measured, it returns a
// result even if it fails.
func (a *App) Tune(ctx context.Context, base *plan.Plan, head record.Run, o TuneOptions) (*Tuned, error) {
	t := a.tuner(base, head, o)
	err := t.asFound(ctx)
	if err == nil {
		err = t.rounds(ctx)
	}

	if err != nil {
		t.result.Ended = "not finished"
		if errors.Is(context.Cause(ctx), ErrInterrupted) {
			t.result.Ended = "interrupted"
		}

		if len(t.result.Runs) == 0 {
			return nil, err
		}
	}

	t.result.Tried = t.search.Tried
	if err == nil {
		t.result.Kept, t.result.Final = t.search.Kept, t.search.Final
		for _, c := range t.result.Kept {
			t.result.Permanent = append(t.result.Permanent, c.Commands(t.cell(c))...)
		}
	}

	stored := t.store()
	patch := t.settings()
	if err == nil && o.Keep && len(patch) > 0 {
		if err = t.keepIt(ctx, patch); err == nil {
			t.result.Stays = patch
		}
	}

	return &t.result, errors.Join(err, stored)
}

// Changes returns the changes that Tune would try without a diagnosis. It measures nothing.
func (a *App) Changes(base *plan.Plan, head record.Run, o TuneOptions) []tuning.Change {
	t := a.tuner(base, head, o)
	t.choose()
	return t.search.Candidates
}

// tuner searches for settings that help.
type tuner struct {
	again
	o      TuneOptions
	base   *plan.Plan
	idle   []float64 // idle round-trip time of each cell before any change, ns
	found  *analysis.Document
	result Tuned
	search tuning.Search
}

func (a *App) tuner(base *plan.Plan, head record.Run, o TuneOptions) *tuner {
	t := &tuner{o: o, base: base}
	t.App = a
	t.on = head
	t.other = o.Peer
	t.until = o.Until
	t.on.Attached = o.Attach
	if o.Peer.At != "" {
		t.on.Lab = record.LabPair
		t.on.Peer = o.Peer.At
	}

	router := ""
	if t.on.Machines != nil {
		router = t.on.Machines.Router.At
	}

	t.search.Candidates = o.Try
	t.result.Result = tuning.Result{
		Format: "chokepoint-tuning/1",
		When:   time.Now().UTC(),
		Plan:   base.Design.Name,
		Lab:    cmp.Or(o.Attach, t.on.Peer, router, t.on.Lab),
		Ended:  "done",
		Budget: tuning.Budget{AddedDelayNs: float64(o.MaxDelay), LossRatio: o.MaxLoss},
	}
	return t
}

// cell returns a cell of the plan with a change applied. If the change removes a level, the cell has the
// level that replaces it.
func (t *tuner) cell(c tuning.Change) factor.Cell {
	for _, arm := range t.arms([]tuning.Set{{c}}) {
		if len(arm.Cells) > 0 {
			return arm.Cells[0]
		}
	}
	return nil
}

// measure runs a plan and adds its run to the result. The id of the first run becomes the id of the result.
func (t *tuner) measure(ctx context.Context, pl *plan.Plan) (*analysis.Document, error) {
	doc, err := t.run(ctx, pl)
	if doc != nil {
		t.result.Runs = append(t.result.Runs, doc.Run.ID)
		t.result.ID = t.result.Runs[0]
	}
	return doc, err
}

// blocksAsFound is the number of blocks in which the router is measured as found, for its diagnosis.
const blocksAsFound = 3

// asFound measures the plan without changes, and chooses the changes to try from the diagnosis.
func (t *tuner) asFound(ctx context.Context) error {
	d := t.base.Design
	d.Method.Runs = blocksAsFound
	idle := &d.Measure.LatencyIdle
	if *idle == "" || *idle == plan.IdleOff && d.Measure.LatencyLoaded { // the added delay needs it
		*idle = plan.IdleBlock
	}

	t.note("tune: as found")
	doc, err := t.measure(ctx, plan.New(d))
	if err != nil {
		return err
	}

	t.found = doc
	var cells []factor.Cell
	for _, c := range doc.Cells {
		if c.Runs == 0 {
			continue
		}

		cells = append(cells, c.Factors)
		t.idle = append(t.idle, c.Metrics["rtt_idle_p50_ns"].Median)
		if c.Diagnosis != nil {
			t.result.Findings = append(t.result.Findings, fmt.Sprintf("%s: %s (%s)", c.Label,
				c.Diagnosis.Text, unit.Percent(c.Diagnosis.Confidence)))
		}
	}

	if len(cells) == 0 {
		return Mark(ErrFailed, Hinted("chokepoint show "+doc.Run.ID+" gives the reasons",
			"tune: nothing could be measured as found"))
	}

	t.base.Design.Cells = cells
	t.result.Holds = tuning.HoldsFor(doc, cells)
	t.choose()
	return nil
}

// choose adds candidates to the changes named by --try: the changes that an earlier result for the same
// router kept, the changes that the diagnosis suggests, and the standard ones.
func (t *tuner) choose() {
	v := t.other.Vocabulary()
	s := t.situation()
	if t.o.Only {
		return
	}

	if t.found == nil {
		t.note("tune: queues are chosen by those of the router as found, which --dry-run does not read; " +
			"only those in the place of the plan's are listed")
	} else {
		for _, c := range t.found.Cells {
			s.Diagnoses = append(s.Diagnoses, c.Diagnosis)
		}

		s.CPUs = cores(t.found)
		t.search.Candidates = append(t.search.Candidates, t.earlier()...)
		if quiet(s.Diagnoses) {
			t.note("tune: nothing holds the traffic back: only what --try names is tried")
			return
		}
	}

	for _, c := range tuning.Candidates(s) {
		load := func(name string) bool {
			k := v.Catalogue.Of(name).Kind
			return k == factor.Load || k == factor.Activity
		}
		fixed := t.other.At != "" && !slices.ContainsFunc(c.Levels.Names(), load)
		same := func(o tuning.Change) bool { return o.String() == c.String() }
		if !fixed && !slices.ContainsFunc(t.search.Candidates, same) {
			t.search.Candidates = append(t.search.Candidates, c)
		}
	}
}

// situation describes the router for choosing candidates, without diagnoses.
func (t *tuner) situation() tuning.Situation {
	var s tuning.Situation
	if t.found != nil {
		s = asFound(t.found)
	}

	s.Cells, s.Catalogue = t.base.Cells(), t.other.Vocabulary().Catalogue
	return s
}

// quiet reports whether no cell has a fault. An unstable cell may have one.
func quiet(all []*diagnosis.Diagnosis) bool {
	fault := func(d *diagnosis.Diagnosis) bool {
		return d == nil || !noFault(d.Class) || d.Class == diagnosis.Unstable
	}
	return len(all) > 0 && !slices.ContainsFunc(all, fault)
}

// cores returns the number of cores of the router that has the fewest, or 0 if it is unknown.
func cores(d *analysis.Document) int {
	fewest := 0
	for _, e := range d.Environment {
		n, err := strconv.Atoi(e.Facts["cores"])
		router := slices.ContainsFunc(d.Topologies, func(t record.Topology) bool {
			return slices.Contains(t.Routers, e.Node)
		})
		if router && err == nil && (fewest == 0 || n < fewest) {
			fewest = n
		}
	}
	return fewest
}

// ParseChange parses FACTOR=LEVEL, or several of them separated by semicolons.
func ParseChange(text string, v plan.Vocabulary) (tuning.Change, error) {
	c := tuning.Change{Levels: factor.Cell{}, Why: "named by --try"}
	for part := range strings.SplitSeq(text, ";") {
		name, level, ok := strings.Cut(strings.TrimSpace(part), "=")
		d, known := v.Lookup(name)
		switch {
		case !ok || name == "":
			return c, Usage("write, for example, --try queue=fq_codel", "--try %q is no FACTOR=LEVEL", text)
		case !known:
			return c, Usage("did you mean "+
				cmp.Or(check.Nearest(name, v.Names()), "queue")+"? chokepoint help plan",
				"--try: unknown factor %q", name)
		case level == "": // "" removes the factor
			c.Levels[name] = ""
			continue
		}

		canonical, err := d.Parse(level)
		if err != nil {
			return c, Usage(check.HintOf(err), "--try: %s: %v", name, err)
		}

		c.Levels[name] = canonical
	}
	return c, nil
}

// patched returns a plan that contains the given cells and, for each patch, the same cells with the patch
// applied.
func (t *tuner) patched(cells, patches []factor.Cell) (*plan.Plan, error) {
	return t.readPatched(plan.Patched{
		Name:        "tune-" + t.base.Design.Name,
		Description: "Changes of settings, in turn with the router as found.",
		Design:      t.base.Design,
		Cells:       cells,
		Patches:     patches,
		Copies:      1,
		Blocks:      t.base.Design.Method.Runs,
	})
}

// arms applies sets of changes to the plan's cells.
func (t *tuner) arms(sets []tuning.Set) []tuning.Arm {
	out := make([]tuning.Arm, len(sets))
	for i, set := range sets {
		arm := &out[i]
		arm.Set = set
		if len(set) == 0 {
			arm.Cells = t.base.Cells()
			continue
		}

		for _, cell := range t.base.Cells() {
			pl, err := t.patched([]factor.Cell{cell}, []factor.Cell{set.Patch()})
			if err != nil {
				arm.Why = err.Error()
				break
			}

			untouched := factor.Copy.With(cell, "a").Key()
			cells := slices.DeleteFunc(slices.Clone(pl.Cells()),
				func(c factor.Cell) bool { return c.Key() == untouched })
			switch {
			case len(pl.Skipped()) > 0:
				arm.Why = pl.Skipped()[0].Reason
			case len(cells) == 0: // keep the cell, because the changes do not apply to it
				cells = []factor.Cell{cell}
			}

			arm.Cells = append(arm.Cells, cells...)
		}

		same := slices.EqualFunc(arm.Cells, t.base.Cells(),
			func(a, b factor.Cell) bool { return a.Key() == b.Key() })
		if arm.Why == "" && same {
			arm.Why = "it changes nothing in this plan"
		}

		if arm.Why != "" {
			arm.Cells = nil
		}
	}
	return out
}

// rounds runs the rounds of the search until it has ended.
func (t *tuner) rounds(ctx context.Context) error {
	if err := t.possible(ctx); err != nil {
		return err
	}

	if len(t.search.Candidates) == 0 {
		return nil
	}

	for {
		r := t.search.Next()
		if r == nil {
			return nil
		}

		arms := t.arms(r.Sets)
		pl, err := t.planOf(arms)
		if err != nil {
			return err
		}

		if !t.inTime(pl, r) {
			t.search.Shorten()
			continue
		}

		found, err := t.round(ctx, r, arms, pl)
		if err != nil {
			return err
		}

		for i := range found {
			found[i].Round = r.Title
		}

		t.search.Take(found)
	}
}

// inTime reports whether the time limit leaves time for a round and for the measurements that must follow it.
func (t *tuner) inTime(pl *plan.Plan, r *tuning.Round) bool {
	if t.until.IsZero() {
		return true
	}

	takes := t.takes(pl, t.found)
	sets := len(r.Sets)
	return !time.Now().Add(takes + takes*time.Duration(r.Follow)/time.Duration(sets)).After(t.until)
}

// possible removes the candidates that are not possible in the lab or the plan, and records the reasons.
func (t *tuner) possible(ctx context.Context) error {
	var sets []tuning.Set
	for _, c := range t.search.Candidates {
		sets = append(sets, tuning.Set{c})
	}

	arms := t.arms(sets)
	for i := range arms {
		why := t.situation().Undoes(arms[i].Set[0])
		if why != "" {
			arms[i].Cells, arms[i].Why = nil, why
		}
	}

	if t.other.At == "" && len(sets) > 0 {
		pl, err := t.planOf(arms)
		if err != nil {
			return err
		}

		tried, err := t.Skips(ctx, pl, t.NewRunOn(pl, t.on), t.o.RunOptions)
		if err != nil {
			return err
		}

		skip(arms, tried.Skipped())
	}

	t.search.Candidates = nil
	for _, a := range arms {
		if a.Cells != nil {
			t.search.Candidates = append(t.search.Candidates, a.Set[0])
			continue
		}

		t.search.Tried = append(t.search.Tried, tuning.Scored{
			Round:   "left out",
			Set:     a.Set,
			Verdict: tuning.Impossible,
			Why:     a.Why,
		})
	}

	return nil
}

// skip removes all cells from an arm if one of them was skipped in the lab.
func skip(arms []tuning.Arm, skipped []record.Skipped) {
	for i := range arms {
		for _, s := range skipped {
			same := func(c factor.Cell) bool { return c.Key() == s.Factors.Key() }
			if slices.ContainsFunc(arms[i].Cells, same) {
				arms[i].Cells = nil
				arms[i].Why = s.Reason
			}
		}
	}
}

// planOf returns a plan with the cells of all arms, without duplicates.
func (t *tuner) planOf(arms []tuning.Arm) (*plan.Plan, error) {
	var patches []factor.Cell
	for _, a := range arms {
		if len(a.Set) > 0 && a.Cells != nil {
			patches = append(patches, a.Set.Patch())
		}
	}

	pl, err := t.patched(t.base.Cells(), patches)
	if err != nil {
		return nil, err
	}

	d := pl.Design
	d.Cells, d.Skipped = nil, nil
	seen := map[string]bool{}
	for _, a := range append([]tuning.Arm{{Cells: t.base.Cells()}}, arms...) {
		for _, c := range a.Cells {
			if !seen[c.Key()] {
				seen[c.Key()] = true
				d.Cells = append(d.Cells, c)
			}
		}
	}

	d.Method.Order, d.Baseline = plan.OrderBlocks, t.base.Cells()[0]
	return plan.New(d), nil
}

// round measures one round and scores its changes.
func (t *tuner) round(ctx context.Context, r *tuning.Round, arms []tuning.Arm,
	pl *plan.Plan) ([]tuning.Scored, error) {
	t.note("tune: %s", r.Title)
	t.guard = &guard{
		maxDelay: t.o.MaxDelay,
		tester:   t.found.Tester,
		unfit:    map[string]bool{},
		keep:     map[string]bool{},
	}
	for _, c := range t.base.Cells() {
		t.guard.keep[c.Key()] = true
	}

	doc, err := t.measure(ctx, pl)
	if err != nil {
		return nil, err
	}

	skip(arms, doc.Skipped)
	return tuning.Score(doc, arms, r.Pairs, t.idle, t.result.Budget), nil
}

// guard is a store that ends the trials of a change as soon as traffic stops or the delay far exceeds the
// limit.
type guard struct {
	trial.Store
	maxDelay time.Duration
	tester   []record.Ceiling // ceilings of the router as found
	keep     map[string]bool  // keys of the cells of the router as found

	mu    sync.Mutex
	unfit map[string]bool
}

// AppendTrial stores a trial. If the trial tried a change, AppendTrial also checks for harm.
func (g *guard) AppendTrial(ctx context.Context, t record.Trial) error {
	tried := t.Row.Kind == record.RowLoad && !g.keep[t.Row.Cell()]
	if tried && (t.Status == record.TrialFailed || g.late(&t)) {
		g.mu.Lock()
		g.unfit[t.Row.Cell()] = true
		g.mu.Unlock()
	}
	return g.Store.AppendTrial(ctx, t)
}

// late reports whether the median round-trip time of the probes exceeds that of the fastest probe by more
// than the limit.
func (g *guard) late(t *record.Trial) bool {
	rtts := metrics.Answered(t.Loaded) // sorted in ascending order
	return len(rtts) > 0 && time.Duration(statistics.MedianSorted(rtts)-rtts[0]) > g.maxDelay
}

func (g *guard) out(cell record.Factors) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.unfit[cell.Key()]
}

// settings returns the kept changes that are settings. Other changes, which concern loads and paths, end with
// the run.
func (t *tuner) settings() factor.Cell {
	c := registry.Catalogue()
	patch := t.result.Kept.Patch()
	maps.DeleteFunc(patch, func(name, _ string) bool {
		return c.Of(name).Kind != factor.Setting
	})
	return patch
}

// keepIt applies settings permanently in a lab made by lab up.
func (t *tuner) keepIt(ctx context.Context, patch factor.Cell) error {
	patch = maps.Clone(patch)
	// The level "" leaves the setting as found, so nothing must be applied.
	maps.DeleteFunc(patch, func(_, level string) bool { return level == "" })
	return t.WithJournal("tune-"+t.result.ID, func(j *journal.Journal) error {
		l, err := lab.Attach(t.Dirs.Labs(), t.o.Attach, registry.LabParts(), j)
		if err != nil {
			return err
		}

		settings, err := trial.SettingsOf(patch, l.Topology, registry.Catalogue())
		if err == nil {
			err = l.Keep(ctx, settings)
		}

		return errors.Join(err, Dirty(l.Close(context.WithoutCancel(ctx))))
	})
}

func (t *tuner) dir() string { return filepath.Join(t.Dirs.Data, "tuning") }

// store writes the result to a file of its own.
func (t *tuner) store() error {
	if err := Prepare(t.dir()); err != nil {
		return err
	}

	data, err := json.MarshalIndent(t.result.Result, "", "  ")
	if err != nil {
		return fmt.Errorf("encode result: %w", err)
	}

	file := filepath.Join(t.dir(), t.result.ID+".json")
	return userfile.Put(userfile.CreateReport, file, append(data, '\n'))
}

// earlier returns the changes that the latest result for the same plan and lab kept, if that result still
// applies. Otherwise, it tells the user what has changed.
func (t *tuner) earlier() []tuning.Change {
	names, err := filepath.Glob(filepath.Join(t.dir(), "*.json"))
	if err != nil {
		return nil
	}

	slices.Sort(names)
	for _, name := range slices.Backward(names) {
		data, err := os.ReadFile(name)
		var r tuning.Result
		if err == nil {
			err = json.Unmarshal(data, &r)
		}

		switch {
		case err != nil:
			t.note("read an earlier result: %s: %v", name, check.Underlying(err))
		case r.Plan == t.result.Plan && r.Lab == t.result.Lab && r.Ended == "done":
			if changed := r.Expired(t.result.Holds); len(changed) > 0 {
				t.note("the result of %s has expired: %s", r.When.Format(time.DateOnly),
					strings.Join(changed, ", "))
				return nil
			}

			t.note("the result of %s still holds: %s", r.When.Format(time.DateOnly), r.Kept)
			return r.Kept
		}
	}

	return nil
}

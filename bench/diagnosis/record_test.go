package diagnosis_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/chokepoint-lab/chokepoint/bench/rig"
	"github.com/chokepoint-lab/chokepoint/internal/analysis"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/diagnosis"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/metrics"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/statistics"
	"github.com/chokepoint-lab/chokepoint/internal/plan"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/record/store"
	"github.com/chokepoint-lab/chokepoint/internal/registry"
)

var (
	binary   = flag.String("binary", "", "the chokepoint that records, by its whole path")
	keepDir  = flag.String("keep", "", "the folder of a recording")
	rounds   = flag.Int("rounds", 0, "record so many instances of each class; 0 = all")
	only     = flag.String("only", "", "record these classes alone, separated by commas")
	vmLabs   = flag.String("labs", "local,vm", "record these labs alone")
	lockFile = flag.String("lock", "", "a file that is locked while a batch is recorded")
	seed     = flag.Uint64("seed", suiteSeed, "draw, or read, other instances, all of which are for tuning")
	perBatch = flag.Int("batch", 16, "instances that share a run")
)

// recorded is an instance as it was measured.
type recorded struct {
	instance
	Truths    []truth  `json:"truths,omitempty"` // the stronger first; none of an unknown cause
	Run       string   `json:"run"`
	Trials    []string `json:"trials"`
	Goodput   float64  `json:"goodput_bps"`
	Untouched float64  `json:"untouched_bps,omitempty"` // of the same cell without the cause
	Dropped   string   `json:"dropped,omitempty"`       // why it is no instance
	Seconds   float64  `json:"seconds,omitempty"`       // its share of the recording's time
}

// mostElsewhere is how much of a core what is neither the lab's nor planted may take while an instance is
// measured; the noise "busy" is an eighth of one by itself.
var mostElsewhere = map[bool]float64{false: .15, true: .3}

// elsewhere is how much it took.
func (x *aRun) elsewhere(r recorded) float64 {
	key, err := r.cells(false)[0].key()
	if err != nil {
		return 0
	}
	for _, cell := range x.document().Cells {
		if cell.Factors.Key() == key {
			return cell.Metrics[record.HostNode+"_"+metrics.ForeignRatio].Median
		}
	}
	return 0
}

// bite is what goodput must fall by for a cause to be one.
const bite = .15

// recorder measures instances, in a folder.
type recorder struct {
	t       *testing.T
	program rig.Program
	dir     string
}

const recordedFile = "instances.jsonl"

// TestRecord records what is not yet recorded. Interrupted, it goes on from there the next time.
func TestRecord(t *testing.T) {
	if *binary == "" || *keepDir == "" {
		t.Skip("skip: records for an hour or two: -binary and -keep say by what and where")
	}
	ctx, end := signal.NotifyContext(t.Context(), os.Interrupt, syscall.SIGTERM)
	defer end()
	program, err := rig.NewProgram(*keepDir, *binary, os.Geteuid())
	if err != nil {
		t.Fatal(err)
	}
	r := &recorder{t, program, *keepDir}
	done, err := readRecorded(filepath.Join(*keepDir, recordedFile))
	if err != nil {
		t.Fatal(err)
	}
	for _, batch := range batches(instances(*seed), done) {
		if err := r.batch(ctx, batch); ctx.Err() != nil {
			t.Fatal("interrupted; the same command goes on")
		} else if err != nil {
			t.Errorf("%s: %v", batch[0].stage(), err)
		}
	}
}

// in says whether a word is one of a list that commas separate.
func in(list, word string) bool { return slices.Contains(strings.Split(list, ","), word) }

// batches are the instances that are to be recorded, by rounds, those of a stage together.
func batches(all []instance, done []recorded) [][]instance {
	byStage := map[string][]instance{}
	for _, x := range all {
		class, _, _ := strings.Cut(x.ID, "#")
		if *rounds > 0 && x.Round >= *rounds || *only != "" && !in(*only, class) || !in(*vmLabs, x.Lab) ||
			slices.ContainsFunc(done, func(r recorded) bool { return r.ID == x.ID }) {
			continue
		}
		byStage[x.stage()] = append(byStage[x.stage()], x)
	}
	var out [][]instance
	for _, stage := range slices.Sorted(maps.Keys(byStage)) {
		out = slices.AppendSeq(out, slices.Chunk(byStage[stage], *perBatch))
	}
	return out
}

// batch records instances of one stage by one run; those with a cause that is no level by one without it
// first.
func (r *recorder) batch(ctx context.Context, batch []instance) (err error) {
	unlock, err := rig.Locked(*lockFile)
	if err != nil {
		return err
	}
	defer unlock()
	began := time.Now()
	x := batch[0]
	lab, err := r.labUp(ctx, x.Topology, x.Lab, 2)
	if err != nil {
		return err
	}
	defer func() {
		down, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
		defer cancel()
		_, downErr := r.program.Say(down, "lab", "down", lab)
		err = errors.Join(err, downErr)
	}()
	untouched := map[string]float64{}
	if x.Disturb != "" {
		run, err := r.run(ctx, lab, x.Noise, "", batch, false)
		if err != nil {
			return err
		}
		untouched = run.goodputs(batch)
	}
	run, err := r.run(ctx, lab, x.Noise, x.Disturb, batch, x.Disturb == "")
	if err != nil {
		return err
	}
	var out []recorded
	for _, one := range run.instances(batch, untouched) {
		if other := run.elsewhere(one); other > mostElsewhere[one.Noise == "busy"] {
			r.t.Logf("%s is recorded again: what is not the lab's took %.2f of a core", one.ID, other)
			continue
		}
		out = append(out, one)
	}
	for i := range out {
		out[i].Seconds = time.Since(began).Seconds() / float64(len(out))
	}
	return r.keep(out)
}

// labUp brings a lab up, whose guests have so many vCPUs, and returns its id.
func (r *recorder) labUp(ctx context.Context, topology, kind string, cpus int) (id string, err error) {
	args := []string{"lab", "up", topology, "--lab", kind, "--json"}
	if kind == record.LabVM {
		args = append(args, "--cpus", strconv.Itoa(cpus))
	}
	said, err := r.program.Say(ctx, args...)
	if err != nil {
		return "", err
	}
	var up struct {
		ID string `json:"id"`
	}
	if err := json.Unmarshal([]byte(said), &up); err != nil {
		return "", fmt.Errorf("read what lab up said: %w", err)
	}
	return up.ID, nil
}

// keep adds instances to the folder's list.
func (r *recorder) keep(all []recorded) error {
	f, err := os.OpenFile(filepath.Join(r.dir, recordedFile), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	return errors.Join(writeRecorded(f, all), f.Close())
}

func writeRecorded(to interface{ Write([]byte) (int, error) }, all []recorded) error {
	var lines bytes.Buffer
	for _, x := range all {
		line, err := json.Marshal(x)
		if err != nil {
			return err
		}
		lines.Write(append(line, '\n'))
	}
	_, err := to.Write(lines.Bytes())
	return err
}

// readRecorded reads a list of instances; a line that was cut off by a power failure is no line.
func readRecorded(file string) (all []recorded, err error) {
	text, err := os.ReadFile(file)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	for line := range bytes.Lines(text) {
		var x recorded
		if json.Unmarshal(line, &x) == nil {
			all = append(all, x)
		}
	}
	return all, err
}

// planOf is the text of a plan with these cells.
func planOf(seconds int, cells []levels) string {
	var b strings.Builder
	fmt.Fprintf(&b, "name: suite\n"+
		"method: {duration: %ds, warmup: 300ms, cooldown: 100ms, idle: 300ms, runs: 1, order: listed, "+
		"seed: 1}\n"+
		"measure: {latency_idle: block, latency_loaded: true, verify: false, telemetry: true}\n"+
		"include:\n", seconds)
	for _, c := range cells {
		text, _ := json.Marshal(c) // of strings alone
		fmt.Fprintf(&b, "  - %s\n", text)
	}
	return b.String()
}

// cells are those that an instance is measured by: with all of its causes first, then with each alone, then
// without.
func (x instance) cells(baseToo bool) []levels {
	out := []levels{x.cell(x.Faults...)}
	if len(x.Faults) > 1 {
		for _, f := range x.Faults {
			out = append(out, x.cell(f))
		}
	}
	if baseToo && x.Kind != kindHealthy && x.Kind != kindNatural {
		out = append(out, x.cell())
	}
	for _, c := range out {
		c["topology"] = x.Topology
	}
	return out
}

// aRun is one that was stored.
type aRun struct {
	record.Run
	trials  []record.Trial
	doc     *analysis.Document
	derived *analysis.Derivation
}

// run measures the cells of instances.
func (r *recorder) run(ctx context.Context, labID, noise, disturb string, batch []instance, baseToo bool) (
	x aRun, err error) {
	var cells []levels
	for _, in := range batch {
		for _, c := range in.cells(baseToo) {
			if !slices.ContainsFunc(cells, func(have levels) bool { return maps.Equal(have, c) }) {
				cells = append(cells, c)
			}
		}
	}
	file := r.program.At("plan.yaml")
	if err := os.WriteFile(file, []byte(planOf(batch[0].Window, cells)), 0o600); err != nil {
		return x, err
	}
	end, err := begin(ctx, r.program, labID, noise, disturb)
	if err != nil {
		return x, err
	}
	defer end()
	cmd := r.program.Command(ctx, "run", file, "--attach", labID, "--quiet", "--report",
		r.program.At("r.html"))
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 20 * time.Second
	said, err := cmd.CombinedOutput()
	const exitFailedTrials = 3
	exit, ok := errors.AsType[*exec.ExitError](err)
	if err != nil && !(ok && exit.ExitCode() == exitFailedTrials) {
		return x, fmt.Errorf("chokepoint run: %w: %s", err, said)
	}
	return r.latest(ctx)
}

// latest is the run that was stored last.
func (r *recorder) latest(ctx context.Context) (x aRun, err error) {
	st, err := store.OpenReadOnly(ctx, r.program.At("data/chokepoint/runs.db"))
	if err != nil {
		return x, err
	}
	defer st.Close()
	heads, err := st.Runs(ctx)
	if err != nil || len(heads) == 0 {
		return x, errors.Join(errors.New("the store has no run"), err)
	}
	return readRun(ctx, st, heads[0].ID)
}

func readRun(ctx context.Context, st *store.Store, id string) (x aRun, err error) {
	if x.Run, err = st.Find(ctx, id); err != nil {
		return x, err
	}
	x.Design.Catalogue = registry.Catalogue()
	x.trials, err = st.Trials(ctx, id)
	return x, err
}

// key is the identity of a cell, as the program that reads plans spells it.
func (c levels) key() (string, error) {
	p, err := plan.Read("suite.yaml", []byte(planOf(1, []levels{c})), registry.Vocabulary(), nil)
	if err != nil {
		return "", err
	}
	if len(p.Cells()) != 1 {
		return "", fmt.Errorf("%v is no cell: %v", c, p.Skipped())
	}
	return p.Cells()[0].Key(), nil
}

// trialsOf are those of a cell that ended well, or whose path was found not to carry what it should, and the
// median of their goodput; why says why there is none.
func (x *aRun) trialsOf(c levels) (ids []string, goodput float64, why string) {
	key, err := c.key()
	if err != nil {
		return nil, 0, err.Error()
	}
	for _, cell := range x.document().Cells {
		if cell.Factors.Key() == key {
			goodput = cell.Metrics[metrics.Goodput].Median
		}
	}
	for i := range x.trials {
		t := &x.trials[i]
		if t.Row.Kind != record.RowLoad || t.Row.Cell() != key {
			continue
		}
		if t.Failure != nil && t.Failure.Phase != record.PhaseVerify {
			why = t.Failure.Phase + ": " + t.Failure.Error
			continue
		}
		ids = append(ids, t.ID)
	}
	if len(ids) == 0 && why == "" {
		why = "there is no trial of it"
		for _, s := range slices.Concat(x.Skipped, x.Design.Skipped) {
			if s.Factors.Key() == key {
				why = "skipped: " + s.Reason
			}
		}
	}
	return ids, goodput, why
}

// instances are those of a batch as the run measured them, and their cells without a cause. Where there are
// none in the run, before has the goodput without.
func (x *aRun) instances(batch []instance, before map[string]float64) (out []recorded) {
	for _, in := range batch {
		r := recorded{instance: in, Run: x.ID}
		r.Trials, r.Goodput, r.Dropped = x.trialsOf(in.cells(false)[0])
		for _, f := range in.Faults {
			r.Truths = append(r.Truths, f.Truth)
		}
		switch {
		case len(r.Trials) == 0:
		case in.Kind == kindNatural && r.Goodput == 0:
			r.Dropped = "nothing arrived"
		case in.Kind == kindHealthy:
			r.Truths, r.Dropped = []truth{{Class: diagnosis.Healthy}}, x.unhealthy(in)
		case in.Kind != kindNatural:
			r, out = x.untouched(r, before, out)
		}
		out = append(out, r)
	}
	return out
}

// untouched holds an instance against the same without its cause, which is an instance by itself where it is
// known what limits it.
func (x *aRun) untouched(r recorded, before map[string]float64, out []recorded) (recorded, []recorded) {
	base := recorded{instance: r.instance, Run: x.ID}
	base.ID, base.Kind, base.Faults = r.ID+"/untouched", kindNatural, nil
	base.Trials, base.Goodput, base.Dropped = x.trialsOf(r.withTopology())
	if r.Disturb != "" {
		base.Trials, base.Goodput = nil, before[r.ID]
	}
	r.Untouched = base.Goodput
	if fell := 1 - r.Goodput/r.Untouched; !(fell > bite) && !r.harmless() {
		r.Dropped = fmt.Sprintf("it does not bite: goodput falls by %.0f %%", 100*fell)
	}
	if len(r.Faults) > 0 && r.Faults[0].Truth.Class == diagnosis.Thermal && !x.tightens(r) {
		r.Dropped = "the quota did not tighten within the window"
	}
	if len(r.Faults) == 2 {
		_, a, _ := x.trialsOf(r.cellOf(r.Faults[0]))
		_, b, _ := x.trialsOf(r.cellOf(r.Faults[1]))
		if b < a {
			slices.Reverse(r.Truths)
		}
		// Each must bite beside the other: against the cell without it, which has the other.
		if fell := 1 - r.Goodput/min(a, b); !(fell > bite) {
			r.Dropped = fmt.Sprintf("one cause does not bite beside the other: goodput falls by %.0f %%",
				100*fell)
		}
	}
	if r.Natural == nil || base.Goodput == 0 {
		return r, out
	}
	base.Truths = []truth{*r.Natural}
	if r.Natural.Class == diagnosis.Healthy {
		base.Kind, base.Dropped = kindHealthy, x.unhealthy(base.instance)
	}
	return r, append(out, base)
}

// tightens says that goodput fell within the window, which is what this class is: by a quarter from its first
// third to its last.
func (x *aRun) tightens(r recorded) bool {
	for i := range x.trials {
		if t := &x.trials[i]; slices.Contains(r.Trials, t.ID) && t.Traffic != nil {
			early, late := 0.0, 0.0
			third := (t.Window.End - t.Window.Start) / 3
			for _, f := range t.Traffic.Flows {
				c := statistics.NewCurve(f.Received.T, f.Received.Column("bytes"))
				a, _ := c.Moved(t.Window.Start, t.Window.Start+third)
				b, _ := c.Moved(t.Window.End-third, t.Window.End)
				early, late = early+a, late+b
			}
			return late < .75*early
		}
	}
	return false
}

// harmless says that what is planted need not lower goodput to be what is wrong: a queue that is too long,
// packets that pass the tunnel by.
func (x instance) harmless() bool {
	return slices.ContainsFunc(x.Faults, func(f planted) bool {
		return f.Truth.Class == "bufferbloat" || f.Truth.Class == "tunnel-bypassed"
	})
}

func (x instance) withTopology() levels { return x.cellOf() }

func (x instance) cellOf(faults ...planted) levels {
	return with(x.cell(faults...), "topology", x.Topology)
}

// unhealthy says why a load that asked for a rate did not get it.
func (x *aRun) unhealthy(in instance) string {
	key, err := in.cellOf().key()
	if err != nil {
		return err.Error()
	}
	for _, cell := range x.document().Cells {
		if cell.Factors.Key() != key {
			continue
		}
		if loss := cell.Metrics[metrics.LossRatio].Median; loss > .001 {
			return fmt.Sprintf("%.2f %% of its packets were lost", 100*loss)
		}
		for _, factor := range []string{"pacing", "rate"} {
			asked, err := strconv.ParseFloat(strings.TrimSuffix(in.Base[factor], "M"), 64)
			if got := cell.Metrics[metrics.Goodput].Median; err == nil && got < .97e6*asked {
				return fmt.Sprintf("of %v Mbit/s that were asked for %.1f arrived", asked, got/1e6)
			}
		}
	}
	return ""
}

// goodputs are those of instances without a cause, by their id.
func (x *aRun) goodputs(batch []instance) map[string]float64 {
	out := map[string]float64{}
	for _, in := range batch {
		_, out[in.ID], _ = x.trialsOf(in.cellOf())
	}
	return out
}

// document derives the run's once.
func (x *aRun) document() *analysis.Document {
	if x.doc == nil {
		x.derived = analysis.Begin(x.Run, len(x.trials))
		for _, t := range x.trials {
			x.derived.Add(t)
		}
		x.doc = x.derived.Document()
	}
	return x.doc
}

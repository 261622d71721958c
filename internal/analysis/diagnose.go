package analysis

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/diagnosis"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/evidence"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/metrics"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/validity"
	"github.com/chokepoint-lab/chokepoint/internal/factor"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// Observe combines a graded trial of a load with the reference values that are necessary for its diagnosis.
func Observe(run *record.Run, j *validity.Graded) *diagnosis.Observation {
	f := j.Trial.Row.Factors
	line := validity.CeilingOf(run, f)
	_, tester := validity.TesterCeiling(run, f)
	return &diagnosis.Observation{
		Run:     run,
		Trial:   fromStart(j),
		Metrics: j.Metrics,
		Reasons: j.Reasons,
		Line:    diagnosis.Limit{Kind: line.Kind, Value: line.Bps},
		Tester:  diagnosis.Limit{Metric: validity.TesterMetric(f), Value: tester},
	}
}

// fromStart returns the trial. If a TCP load stood still in the window, the window of the result begins with
// the warm-up: the packets of such a load were lost before the window, in which TCP only waits to send them
// again.
func fromStart(j *validity.Graded) *record.Trial {
	t := j.Trial
	got, ok := j.Metrics.Values[metrics.Goodput]
	if !ok || got > 0 || t.Window.Begin == 0 || t.Traffic == nil || t.Traffic.Load.Protocol != "tcp" {
		return t
	}

	t = new(*t)
	t.Window.Start = t.Window.Begin
	return t
}

// pathOf returns a key for a trial's path. The key changes with each boot of the path's router.
func (x *Derivation) pathOf(j *validity.Graded) string {
	return fmt.Sprint(x.run.Design.Path(j.Trial.Row.Factors).Key(), j.Trial.Boots)
}

// keepIdle stores the metrics of an idle measurement for the diagnosis of later loads on the same path.
func (x *Derivation) keepIdle(j *validity.Graded) {
	path := x.pathOf(j)
	if x.idle[path] == nil {
		x.idle[path] = map[int]map[string]float64{}
	}

	x.idle[path][j.Trial.Row.Block] = j.Metrics.Values
}

// idleOf returns the idle metrics of a load's path. They come from the block of the load or, if it has no
// idle measurement, from the last earlier block that has one.
func (x *Derivation) idleOf(j *validity.Graded) map[string]float64 {
	blocks := x.idle[x.pathOf(j)]
	last := -1
	for block := range blocks {
		if block <= j.Trial.Row.Block {
			last = max(last, block)
		}
	}

	return blocks[last]
}

// examined holds the diagnosis of one trial.
type examined struct {
	candidates []diagnosis.Candidate
	path       []diagnosis.Stage
	ledger     *diagnosis.Ledger
}

// Candidates returns the candidates and the goodput of the trial with the given id. It returns nil for an
// unknown trial or one without candidates.
func (x *Derivation) Candidates(trial string) (all []diagnosis.Candidate, bps float64) {
	for j, of := range x.kept {
		if j.Trial.ID == trial && of.causes != nil {
			return of.causes.candidates, j.Metrics.Values[metrics.Goodput]
		}
	}
	return nil, 0
}

func examine(o *diagnosis.Observation) *examined {
	x := &examined{candidates: diagnosis.Examine(o)}
	if o.Trial.Status != record.TrialFailed {
		x.path = o.Path()
		x.ledger = o.Ledger()
	}
	return x
}

// diagnosable reports whether a trial measured a load and has numbers and telemetry.
func diagnosable(j *validity.Graded) bool {
	return j.Grade != evidence.GradeFailed && j.Trial.Row.Kind == record.RowLoad && j.Trial.Traffic != nil &&
		j.Trial.Foreign == nil // imported trials are left out, because they have no telemetry
}

// failedOnPath reports whether a load failed because of what the path did to its packets. Although such a
// trial has no numbers, its cause can be diagnosed.
func failedOnPath(j *validity.Graded) bool {
	f := j.Trial.Failure
	return j.Grade == evidence.GradeFailed && j.Trial.Row.Kind == record.RowLoad && f != nil &&
		f.Phase == record.PhaseVerify
}

// diagnose sets the cell's diagnosis by combining the candidates of the cell's good trials.
func (g *group) diagnose(run *record.Run, of map[*validity.Graded]kept) {
	g.cell.GeneratorShare = generatorShare(run, &g.cell)
	var trials [][]diagnosis.Candidate
	var paths [][]diagnosis.Stage
	var rates []float64
	var ledgers []rated
	for _, j := range g.good() {
		x := of[j].causes
		if x == nil {
			continue
		}

		trials = append(trials, x.candidates)
		paths = append(paths, x.path)
		if v, ok := j.Metrics.Values[metrics.Goodput]; ok {
			rates = append(rates, v)
			ledgers = append(ledgers, rated{v, x.ledger})
		}
	}

	failed := len(trials) == 0
	if failed {
		for _, j := range g.trials {
			if x := of[j].causes; x != nil && failedOnPath(j) {
				trials = append(trials, x.candidates)
			}
		}
	}

	d := diagnosis.Conclude(trials, rates...)
	if d == nil || failed && d.Class == diagnosis.Unknown {
		return
	}

	d.Place(paths)
	d.Ledger = middleLedger(ledgers)
	d.Excluded = notSuspected(d.Excluded, g.cell.Reasons)
	for i := range d.Causes {
		d.Causes[i].Remedies = remediesFor(systemOf(run), factor.Tunnel.Of(g.factors),
			withoutLoss(run, d.Causes[i].Remedies))
	}

	g.cell.Diagnosis = d
}

// notSuspected removes tester-limited from the excluded classes if the cell is suspect for that reason.
func notSuspected(all []diagnosis.Exclusion, reasons []evidence.Reason) []diagnosis.Exclusion {
	suspect := slices.ContainsFunc(reasons, func(r evidence.Reason) bool {
		return r.Kind == evidence.ReasonTesterLimited
	})
	return slices.DeleteFunc(all, func(x diagnosis.Exclusion) bool {
		return suspect && x.Class == diagnosis.Tester
	})
}

// rated holds the ledger and the goodput of a trial.
type rated struct {
	bps    float64
	ledger *diagnosis.Ledger
}

// middleLedger returns the ledger of the trial with the median goodput. For an even number of trials, it uses
// the trial with the lower of the two middle rates.
func middleLedger(all []rated) *diagnosis.Ledger {
	if len(all) == 0 {
		return nil
	}

	slices.SortStableFunc(all, func(a, b rated) int { return cmp.Compare(a.bps, b.bps) })
	return all[(len(all)-1)/2].ledger
}

// systemOf returns the name that remedies use for the system of the device under test, or "" if the system is
// unknown.
func systemOf(run *record.Run) string {
	tested := run.Tested()
	if tested.Driven != record.DrivenByAgent {
		return tested.Driven // empty if the router could not be reached
	}

	system := ""
	for _, e := range run.Environments {
		if e.Node == tested.Name || e.Node == record.HostNode && system == "" {
			system = e.Facts["os"]
			if e.Facts["distribution"] == "openwrt" {
				system = "openwrt"
			}
		}
	}

	return system
}

// withoutLoss removes the "flowtable" remedy if it would bypass rules of the device under test.
func withoutLoss(run *record.Run, all []diagnosis.Remedy) []diagnosis.Remedy {
	tested := run.Tested()
	lost := slices.ContainsFunc(run.Environments, func(e record.Environment) bool {
		return e.Node == tested.Name && e.Inventory != nil &&
			diagnosis.FlowtableLoss(e.Inventory, tested) != ""
	})
	return slices.DeleteFunc(slices.Clone(all), func(r diagnosis.Remedy) bool {
		return lost && r.Factor == diagnosis.FlowtableFactor
	})
}

// remediesFor returns the remedies for a system, followed by the remedies for the system from which it
// derives. If the system is unknown, it returns all remedies. It leaves out remedies for other kinds of
// tunnels.
func remediesFor(system, tunnel string, all []diagnosis.Remedy) []diagnosis.Remedy {
	var own, general []diagnosis.Remedy
	for _, r := range all {
		switch {
		case !strings.HasPrefix(tunnel, r.Tunnel):
		case r.System == system && system != "":
			own = append(own, r)
		case r.System == "" || system == "" || system == "openwrt" && r.System == "linux",
			system == "opnsense" && r.System == "freebsd":
			general = append(general, r)
		}
	}
	return slices.Concat(own, general)
}

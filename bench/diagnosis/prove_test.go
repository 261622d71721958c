package diagnosis_test

import (
	"context"
	"encoding/json"
	"flag"
	"math"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/chokepoint-lab/chokepoint/bench/rig"
	"github.com/chokepoint-lab/chokepoint/internal/analysis"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/diagnosis"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/statistics"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

var proofs = flag.Int("proofs", 0, "put so many instances of each class to the test, with -binary and -keep")

var wrongOnly = flag.Bool("wrong-only", false, "with -proofs: under another name alone")

// proven is an instance whose cause, or another one under its name, was put to the test.
type proven struct {
	ID      string            `json:"id"`
	Class   string            `json:"class"` // what was put to the test
	Right   bool              `json:"right"` // it is the planted one
	Verdict string            `json:"verdict"`
	Proofs  []diagnosis.Proof `json:"proofs,omitempty"`
}

const (
	provenFile = "proven.jsonl"
	untested   = "no experiment" // the class has none that the lab can make
	harmless   = "does not bite" // so that there is nothing to prove, see recorder.untouched
)

// oneResource are classes that doses cannot tell apart, because what limits is the same resource: a label is
// not swapped within.
var oneResource = [][]string{
	{"link-rate", "shaper", "policer", "cross-traffic", "shaper-burst", "bufferbloat", "reverse-path"},
	{"softirq-one-core", "softirq-all-cores", "vpn-process", "crypto-workers", "rule-list", "log-flood",
		"other-load", "clock-down", "thermal", "shared-cpu", "backlog-budget", "fragmentation",
		"small-segments", "inline-inspection", "one-flow", "shaper-cpu"},
	{"random-loss", "rule-drop", "conntrack-invalid", "checksum-errors", "small-queue"},
	{"slow-reader", "slow-sender"}, {"receive-window", "send-buffer", "options-stripped"}}

// swapped returns another class than those that were planted, of another resource, that has a general
// experiment.
func swapped(id string, truths ...string) string {
	var may []string
	for _, class := range []string{"link-rate", "shaper", "softirq-one-core", "rule-list", "receive-window",
		"send-buffer", "random-loss"} {
		if !slices.ContainsFunc(truths, func(truth string) bool {
			return truth == class || slices.ContainsFunc(oneResource, func(of []string) bool {
				return slices.Contains(of, truth) && slices.Contains(of, class)
			})
		}) {
			may = append(may, class)
		}
	}
	d := rand.New(rand.NewPCG(suiteSeed, uint64(hash(id))))
	return may[d.IntN(len(may))]
}

// classes lists those of the instance's faults.
func (x instance) classes() (out []string) {
	for _, f := range x.Faults {
		out = append(out, f.Truth.Class)
	}
	return out
}

// TestProve puts right findings and deliberately wrong ones to the test, and says how often experiments
// decide rightly. Interrupted, it goes on from there the next time.
//
//	go test ./bench/diagnosis -v -timeout 0 -run TestProve -binary FILE -keep DIR -proofs 4 [-labs local]
func TestProve(t *testing.T) {
	if *binary == "" || *keepDir == "" || *proofs == 0 {
		t.Skip("skip: takes minutes for each instance: -binary, -keep and -proofs say by what, where and " +
			"of how many")
	}
	ctx, end := signal.NotifyContext(t.Context(), os.Interrupt, syscall.SIGTERM)
	defer end()
	program, err := rig.NewProgram(*keepDir, *binary, os.Geteuid())
	if err != nil {
		t.Fatal(err)
	}
	r := &recorder{t, program, *keepDir}
	file := filepath.Join(*keepDir, provenFile)
	done := readProven(t, file)
	for _, x := range instances(suiteSeed) {
		class, _, _ := strings.Cut(x.ID, "#")
		// What is unstable has no limit of its own: the one that it has besides is still there.
		if x.Kind != kindFault || x.Faults[0].Truth.Class == diagnosis.Unstable || x.Round >= *proofs ||
			*only != "" && !in(*only, class) || !in(*vmLabs, x.Lab) ||
			slices.ContainsFunc(done, func(p proven) bool { return p.ID == x.ID }) {
			continue
		}
		both, err := r.prove(ctx, x)
		if ctx.Err() != nil {
			t.Fatal("interrupted; the same command goes on")
		}
		if err != nil {
			t.Errorf("%s: %v", x.ID, err)
			continue
		}
		done = append(done, both...)
		keepProven(t, file, both)
	}
	quoteProofs(t, done)
}

// prove measures an instance, and puts its cause and another one to the test.
func (r *recorder) prove(ctx context.Context, x instance) (out []proven, err error) {
	unlock, err := rig.Locked(*lockFile)
	if err != nil {
		return nil, err
	}
	defer unlock()
	without, err := r.alone(ctx, x, x.cellOf())
	if err != nil {
		return nil, err
	}
	of, err := r.alone(ctx, x, x.cellOf(x.Faults...))
	if err != nil {
		return nil, err
	}
	_, untouched, _ := without.trialsOf(x.cellOf())
	_, goodput, _ := of.trialsOf(x.cellOf(x.Faults...))
	if fell := 1 - goodput/untouched; !(fell > bite) && !(recorded{instance: x}).harmless() {
		return []proven{{ID: x.ID, Class: x.Faults[0].Truth.Class, Right: true, Verdict: harmless}}, nil
	}
	for i, class := range []string{x.Faults[0].Truth.Class, swapped(x.ID, x.classes()...)} {
		if i == 0 && *wrongOnly {
			continue
		}
		p, err := r.test(ctx, of.ID, class)
		if err != nil {
			return nil, err
		}
		p.ID, p.Right = x.ID, i == 0
		out = append(out, p)
	}
	return out, nil
}

// test puts a class to the test as the cause of a run's cells.
func (r *recorder) test(ctx context.Context, run, class string) (p proven, err error) {
	p.Class, p.Verdict = class, untested
	if _, err := r.program.Say(ctx, "diagnose", run, "--prove", "--cause", class); err != nil {
		return p, err
	}
	said, err := r.program.Say(ctx, "show", run, "--json")
	if err != nil {
		return p, err
	}
	var doc analysis.Document
	if err := json.Unmarshal([]byte(said), &doc); err != nil {
		return p, err
	}
	if p.Proofs = proofsOf(&doc, class); len(p.Proofs) > 0 {
		p.Verdict = diagnosis.Decide(p.Proofs)
	}
	return p, nil
}

// alone measures one cell of an instance.
func (r *recorder) alone(ctx context.Context, x instance, cell levels) (aRun, error) {
	file := r.program.At("prove.yaml")
	if err := os.WriteFile(file, []byte(planOf(1, []levels{cell})), 0o600); err != nil {
		return aRun{}, err
	}
	args := []string{"run", file, "--quiet", "--lab", x.Lab}
	if x.Lab == record.LabVM {
		args = append(args, "--cpus", "2")
	}
	if _, err := r.program.Say(ctx, args...); err != nil {
		return aRun{}, err
	}
	return r.latest(ctx)
}

// proofsOf are the proofs of a class that a document has.
func proofsOf(doc *analysis.Document, class string) (out []diagnosis.Proof) {
	all := doc.Proofs
	for _, c := range doc.Cells {
		if c.Diagnosis != nil {
			for _, cause := range c.Diagnosis.Causes {
				all = append(all, cause.Proofs...)
			}
		}
	}
	for _, p := range all {
		if p.Class == class {
			out = append(out, p)
		}
	}
	return out
}

// quoteProofs prints the figures of what was put to the test.
func quoteProofs(t *testing.T, all []proven) {
	var right, wrong, tested count
	var errs []float64
	for _, p := range all {
		if p.Verdict == harmless {
			t.Logf("%-22s does not bite", p.ID)
			continue
		}
		if tested.add(p.Verdict != untested); p.Verdict == untested {
			continue
		}
		p.Verdict = diagnosis.Decide(p.Proofs)
		if p.Right {
			right.add(p.Verdict == diagnosis.Confirmed)
		} else {
			wrong.add(p.Verdict == diagnosis.Refuted)
		}
		t.Logf("%-22s as %-18s right %-5t %s", p.ID, p.Class, p.Right, p.Verdict)
		for _, q := range p.Proofs {
			if t.Logf("    %s", q.Text); p.Right && q.Gain != nil && q.Predicted > 0 {
				errs = append(errs, math.Abs(q.Predicted/q.Gain.Median-1))
				t.Logf("    gain predicted ×%.2f (%s), real ×%.2f", q.Predicted, q.PredictedBy, q.Gain.Median)
			}
		}
	}
	t.Logf("right findings confirmed: %s", right)
	t.Logf("wrong findings refuted: %s", wrong)
	t.Logf("of which there was an experiment: %s", tested)
	if len(errs) > 0 {
		t.Logf("predicted against real gain: median error %.0f %% of %d", 100*statistics.Median(errs),
			len(errs))
	}
}

// readProven reads what was put to the test before; a line that was cut off is no line.
func readProven(t *testing.T, file string) (all []proven) {
	text, err := os.ReadFile(file)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		var p proven
		if json.Unmarshal([]byte(line), &p) == nil {
			all = append(all, p)
		}
	}
	return all
}

func keepProven(t *testing.T, file string, all []proven) {
	f, err := os.OpenFile(file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, p := range all {
		if err := json.NewEncoder(f).Encode(p); err != nil {
			t.Fatal(err)
		}
	}
}

// TestSwappedLabelsAreWrong: no instance gets a label under which its own cause passes.
func TestSwappedLabelsAreWrong(t *testing.T) {
	classes := map[string]bool{}
	for _, x := range instances(suiteSeed) {
		if x.Kind != kindFault {
			continue
		}
		class := swapped(x.ID, x.classes()...)
		classes[class] = true
		for _, f := range x.Faults {
			for _, of := range oneResource {
				if f.Truth.Class == class || slices.Contains(of, class) &&
					slices.Contains(of, f.Truth.Class) {
					t.Errorf("%s: swapped to %s", x.ID, class)
				}
			}
		}
	}
	if len(classes) < 5 {
		t.Errorf("only %v are swapped to", classes)
	}
}

package diagnosis_test

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/chokepoint-lab/chokepoint/internal/analysis"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/diagnosis"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/statistics"
	"github.com/chokepoint-lab/chokepoint/internal/app"
)

var proofs = flag.Bool("proofs", false, "put classes to the test instead of recording")

var wrongOnly = flag.Bool("wrong-only", false, "with -proofs: under another name alone")

// proven holds an instance whose cause, or another one under its name, was put to the test.
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
)

// oneResource lists classes that steps cannot tell apart, because the same resource limits: a label is not
// swapped within.
var oneResource = [][]string{
	{"link-rate", "shaper", "policer", "cross-traffic", "shaper-burst", "bufferbloat", "reverse-path"},
	{"softirq-one-core", "softirq-all-cores", "vpn-process", "crypto-workers", "rule-list", "log-flood",
		"other-load", "clock-down", "thermal", "shared-cpu", "backlog-budget", "fragmentation",
		"small-segments", "inline-inspection", "one-flow", "shaper-cpu"},
	{"random-loss", "rule-drop", "conntrack-invalid", "checksum-errors", "small-queue", "replay-window",
		"tcp-in-tcp"},
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

	h := fnv.New64a()
	h.Write([]byte(id))
	d := rand.New(rand.NewPCG(*seed, h.Sum64()))
	return may[d.IntN(len(may))]
}

// test puts a class to the test as the cause of a run's cells.
func (r *recorder) test(ctx context.Context, run, class string) (p proven, err error) {
	p.Class, p.Verdict = class, untested
	a := r.program.App()
	doc, err := a.Dirs.Document(ctx, run)
	if err == nil {
		doc, err = a.Prove(ctx, doc, app.ProveOptions{Class: class})
	}

	if err != nil {
		return p, err
	}

	if p.Proofs = proofsOf(doc, class); len(p.Proofs) > 0 {
		p.Verdict = diagnosis.Decide(p.Proofs)
	}

	return p, nil
}

// proofsOf returns the proofs of a class that a document has.
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

func keepProven(t *testing.T, file string, p proven) {
	f, err := os.OpenFile(file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err == nil {
		err = errors.Join(json.NewEncoder(f).Encode(p), f.Close())
	}

	if err != nil {
		t.Fatal(err)
	}
}

// TestSwappedLabelsAreWrong: no mechanism gets a label under which its own cause passes.
func TestSwappedLabelsAreWrong(t *testing.T) {
	classes := map[string]bool{}
	for _, m := range catalogue.Mechanisms {
		if !m.limits() {
			continue
		}

		class := swapped(m.Name, append([]string{m.Class}, m.Accept...)...)
		classes[class] = true
		for _, of := range oneResource {
			if m.holds(class) || slices.Contains(of, class) && slices.Contains(of, m.Class) {
				t.Errorf("%s: swapped to %s", m.Name, class)
			}
		}
	}

	if len(classes) < 5 {
		t.Errorf("only %v are swapped to", classes)
	}
}

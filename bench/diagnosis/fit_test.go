package diagnosis_test

import (
	"compress/gzip"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/chokepoint-lab/chokepoint/internal/analysis"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/diagnosis"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

const weightsFile = "../../internal/analysis/diagnosis/weights.json"

var (
	steps    = flag.Int("steps", 300, "of the descent by which weights are fitted")
	leaveOut = flag.Bool("leave-out", false, "fit without each mechanism, too")
	plain    = flag.Float64("plain", .3, "how much an instance without its supporting terms counts")
	unseen   = flag.Float64("unseen", .02, "how much an instance without its class counts")
	drawn    = flag.Float64("drawn", .05, "how much a weight is drawn to its prior")
)

// example holds a recorded instance that weights are fitted to, with its candidates.
type example struct {
	outcome
	checked [][]diagnosis.Candidate // of each trial
	rates   []float64
	right   map[string]float64 // the classes that are right, and how right
}

// mechanism returns the name of what was planted, "" for a trial of the rules' tests.
func (e example) mechanism() string {
	if e.Planted == nil {
		return ""
	}
	return e.Planted.Mechanism
}

const accepted = .5 // how right a class is that describes a mechanism as well as its own

// known keeps for the next test what reading a recording gave.
var known struct {
	examples []example
	ledgers  []ledger
}

// examples reads the recorded instances and the trials of the rules' tests.
func examples(t testing.TB) []example {
	if known.examples == nil {
		readKnown(t)
	}
	return known.examples
}

func readKnown(t testing.TB) {
	list, stored := source(t)
	for x, of := range load(t, list, stored) {
		known.ledgers = append(known.ledgers, ledgersOf(x, of)...)
		for _, o := range diagnose(x, slices.DeleteFunc(of, x.disturbed)) {
			e := example{outcome: o, right: rightOf(o.recorded)}
			for _, id := range o.Trials {
				all, bps := x.derived.Candidates(id)
				if all != nil {
					e.checked, e.rates = append(e.checked, all), append(e.rates, bps)
				}
			}

			known.examples = append(known.examples, e)
		}
	}

	known.examples = append(known.examples, fixtures(t)...)
}

// fixtures returns the trials of the rules' tests, where one class limits them.
func fixtures(t testing.TB) (out []example) {
	files, err := filepath.Glob("../../internal/analysis/testdata/rules/*.json.gz")
	if err != nil {
		t.Fatal(err)
	}

	for _, file := range files {
		var x struct {
			Class string       `json:"class"`
			Run   record.Run   `json:"run"`
			Trial record.Trial `json:"trial"`
		}
		f, err := os.Open(file)
		if err != nil {
			t.Fatal(err)
		}

		z, err := gzip.NewReader(f)
		if err == nil {
			err = json.NewDecoder(z).Decode(&x)
		}

		if err := errors.Join(err, f.Close()); err != nil {
			t.Fatal(err)
		}

		d := analysis.Begin(x.Run, 1)
		d.Add(x.Trial)
		all, bps := d.Candidates(x.Trial.ID)
		if all != nil && x.Class != "" {
			out = append(out, example{outcome{recorded: recorded{ID: file}},
				[][]diagnosis.Candidate{all}, []float64{bps}, map[string]float64{x.Class: 1}})
		}
	}

	return out
}

// rightOf returns the classes that name what was planted, and how right each is.
func rightOf(r recorded) map[string]float64 {
	m := mechanismNamed(r.Planted.Mechanism)
	right := map[string]float64{}
	for _, class := range m.Accept {
		right[class] = accepted
	}

	if r.Planted.Lab != "" && m.Class == diagnosis.SoftirqAllCores {
		right[diagnosis.SharedCPU] = 1
	}

	right[m.Class] = 1
	return right
}

// model holds the weights in one list, with the prior that each is drawn to.
type model struct {
	index  map[[2]string]int
	names  [][2]string // class and term
	value  []float64
	priors []float64
	bases  []int  // the weight that a prior is added to: -1 for none
	needed []bool // the class requires the term
}

// newModel collects the terms of some examples.
func newModel(all []example) *model {
	m := &model{index: map[[2]string]int{}}
	m.samples(all)
	return m
}

func (m *model) at(class string, t diagnosis.Term) int {
	key := [2]string{class, t.Name}
	i, ok := m.index[key]
	if !ok {
		i = len(m.names)
		m.index[key] = i
		m.names = append(m.names, key)
		prior, aboveBase := diagnosis.Prior(t)
		base := -1
		if aboveBase {
			base = m.at(class, diagnosis.Term{Name: diagnosis.Base})
		}

		m.priors, m.bases = append(m.priors, prior), append(m.bases, base)
		m.needed = append(m.needed, t.Kind == diagnosis.Requires && base >= 0)
		m.value = append(m.value, m.prior(i))
	}

	return i
}

// prior returns the value that a weight is drawn to.
func (m *model) prior(i int) float64 {
	if m.bases[i] < 0 {
		return m.priors[i]
	}
	return m.priors[i] + m.value[m.bases[i]]
}

func (m *model) weights() diagnosis.Weights {
	out := diagnosis.Weights{}
	for i, key := range m.names {
		if out[key[0]] == nil {
			out[key[0]] = map[string]float64{}
		}

		out[key[0]][key[1]] = math.Round(m.value[i]*100) / 100
	}
	return out
}

// row holds the parts of a class in a trial, each with the index of its weight, and how right the class is.
type row struct {
	base  float64
	index []int
	part  []float64
	right float64
}

// sample holds a trial and how much it counts.
type sample struct {
	rows   []row
	weight float64
}

// samples returns the trials of some examples in three forms: as they are; as from a router that reports
// less, so that no supporting term is met; and as if no rule knew their cause.
func (m *model) samples(all []example) (out []sample) {
	for _, e := range all {
		out = append(append(out, m.of(e, 1, false)...), m.of(e, *plain, true)...)
		if e.right[diagnosis.Unknown] == 0 {
			out = append(out, m.of(e.without(), *unseen, false)...)
		}
	}
	return out
}

func (m *model) of(e example, weight float64, plain bool) (out []sample) {
	for _, checked := range e.checked {
		s := sample{[]row{{right: e.right[diagnosis.Unknown]}}, weight / float64(len(e.checked))}
		for _, j := range checked {
			if j.NotExamined != "" {
				continue
			}

			r := row{right: e.right[j.Class], base: j.Score}
			if len(j.Terms) > 0 {
				r = row{0, []int{m.at(j.Class, diagnosis.Term{Name: diagnosis.Base})}, []float64{1}, r.right}
			}

			for _, t := range j.Terms {
				at := m.at(j.Class, t)
				if !plain || t.Kind != diagnosis.Supports {
					r.index, r.part = append(r.index, at), append(r.part, t.Part())
				}
			}

			s.rows = append(s.rows, r)
		}

		out = append(out, s)
	}
	return out
}

// fit finds the weights that make what was planted likely (multinomial logistic regression), none below 0,
// those of required terms above the base of their class, each drawn to the prior of its kind.
func (m *model) fit(all []example) {
	samples := m.samples(all)
	n := len(m.value)
	mean := make([]float64, n)
	square := make([]float64, n)
	for step := range *steps {
		gradient := make([]float64, n)
		for i := range gradient {
			away := 2 * *drawn * (m.value[i] - m.prior(i))
			gradient[i] += away
			if m.bases[i] >= 0 {
				gradient[m.bases[i]] -= away
			}
		}

		for _, s := range samples {
			m.add(gradient, s)
		}

		// Adam (Kingma and Ba 2015).
		rate := .3 / (1 + float64(step)/30)
		for i, g := range gradient {
			mean[i], square[i] = .9*mean[i]+.1*g, .99*square[i]+.01*g*g
			a := mean[i] / (1 - math.Pow(.9, float64(step+1)))
			b := square[i] / (1 - math.Pow(.99, float64(step+1)))
			m.value[i] -= rate * a / (math.Sqrt(b) + 1e-6)
			switch {
			case m.needed[i]: // without it, the class is less likely than none
				m.value[i] = max(m.value[i], m.value[m.bases[i]]+1)
			case m.names[i][1] != diagnosis.Base:
				m.value[i] = max(m.value[i], 0)
			}
		}
	}
}

// add adds the gradient of the logarithm of the likelihood of one trial.
func (m *model) add(gradient []float64, of sample) {
	rows := of.rows
	p := make([]float64, len(rows))
	highest := 0.0
	for i, r := range rows {
		p[i] = r.base
		for k, at := range r.index {
			p[i] += m.value[at] * r.part[k]
		}

		highest = max(highest, p[i])
	}

	sum, right := 0.0, 0.0
	for i := range p {
		p[i] = math.Exp(p[i] - highest)
		sum = sum + p[i]
		right = right + p[i]*rows[i].right
	}

	const minRight = 1e-4 // a wrong but sure answer must not decide alone
	for i, r := range rows {
		d := p[i]/sum - p[i]*r.right/max(right, minRight*sum)
		for k, at := range r.index {
			gradient[at] += of.weight * d * r.part[k]
		}
	}
}

// say returns the diagnosis of an example with given weights.
func (e example) say(w diagnosis.Weights) outcome {
	if len(e.checked) == 0 { // no trial has a number
		return e.outcome
	}

	var trials [][]diagnosis.Candidate
	for _, checked := range e.checked {
		checked = slices.Clone(checked)
		diagnosis.Rate(checked, w)
		trials = append(trials, checked)
	}

	return outcome{recorded: e.recorded, d: diagnosis.Conclude(trials, e.rates...)}
}

// TestFit fits the weights to all recorded instances and compares them with the committed ones.
func TestFit(t *testing.T) {
	all := examples(t)
	m := newModel(all)
	m.fit(all)
	if *update {
		writeJSON(t, weightsFile, m.weights())
	}

	var committed diagnosis.Weights
	text, err := os.ReadFile(weightsFile)
	if err == nil {
		err = json.Unmarshal(text, &committed)
	}

	if err != nil {
		t.Fatal(err)
	}

	for class, fitted := range m.weights() {
		for term, w := range fitted {
			if got, ok := committed[class][term]; !ok || math.Abs(got-w) > .05 {
				t.Errorf("the weight of %s %s is %.2f, fitted %.2f: go -C bench test ./diagnosis -run "+
					"TestFit -update", class, term, got, w)
			}
		}
	}
}

// TestLeaveOneOut diagnoses each mechanism with weights that were fitted without it, and each instance with
// its class taken out of the rules: a cause that no rule knows.
func TestLeaveOneOut(t *testing.T) {
	if !*leaveOut {
		t.Skip("skip: fits once for each mechanism, which takes five minutes: -leave-out")
	}

	all := examples(t)
	var names []string
	for _, e := range all {
		name := e.mechanism()
		if name != "" && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}

	said := make([][]outcome, len(names))
	unknown := make([][]outcome, len(names))
	var fits sync.WaitGroup
	turns := make(chan bool, runtime.GOMAXPROCS(0))
	for i, name := range names {
		turns <- true
		fits.Go(func() {
			defer func() { <-turns }()
			is := func(e example) bool { return e.mechanism() == name }
			m := newModel(all)
			m.fit(slices.DeleteFunc(slices.Clone(all), is))
			for _, e := range all {
				if !is(e) {
					continue
				}

				said[i] = append(said[i], e.say(m.weights()))
				if e.right[diagnosis.Unknown] == 0 {
					unknown[i] = append(unknown[i], e.without().say(m.weights()))
				}
			}
		})
	}

	fits.Wait()
	var f leftOut
	for _, o := range slices.Concat(said...) {
		if !f.Mechanisms.add(o) {
			t.Logf("%s (%s) is %v, said: %s %.0f %%: %s", o.ID, o.Run, o.Truths, o.d.Class,
				100*o.d.Confidence, o.d.Text)
		}
	}

	for _, o := range slices.Concat(unknown...) {
		sure := o.d.Class != diagnosis.Unknown && o.d.Confidence >= minSure
		f.Classes.add(!sure)
		if sure {
			t.Logf("without its class: %s is %v, said: %s %.0f %%", o.ID, o.Truths, o.d.Class,
				100*o.d.Confidence)
		}
	}

	t.Logf("\n%s", f.markdown())
	if *update {
		writeJSON(t, leftOutFile, f)
	}
}

// leftOut holds the results of TestLeaveOneOut.
type leftOut struct {
	Mechanisms mechanismFigures
	Classes    count // taken out, where no other is named with confidence
}

const leftOutFile = "testdata/figures-left-out.json"

// markdown formats the figures for docs/diagnosis.md.
func (f leftOut) markdown() string {
	var b strings.Builder
	b.WriteString(f.Mechanisms.summary())
	fmt.Fprintf(&b, "| without its class, no other cause is named with 80 %% confidence or more | %s |\n\n%s",
		f.Classes, f.Mechanisms.Bins.markdown())
	b.WriteString("\n| class | named first | named instead |\n|---|---|---|\n")
	for _, class := range slices.Sorted(maps.Keys(f.Mechanisms.Classes)) {
		c := f.Mechanisms.Classes[class]
		said := f.Mechanisms.Instead[class]
		if len(said) > 0 {
			fmt.Fprintf(&b, "| %s | %d of %d | %s |\n", class, c.Top1.Right, c.Top1.Of, instead(class, said))
		}
	}

	return b.String()
}

// without removes the classes that are right, and what they explain, from the candidates of an example: its
// cause is then one that no rule knows.
func (e example) without() example {
	gone := []string{}
	for class := range e.right {
		gone = append(append(gone, class), diagnosis.SymptomsOf(class)...)
	}

	checked := e.checked
	e.checked = nil
	e.right = map[string]float64{diagnosis.Unknown: 1}
	for _, all := range checked {
		e.checked = append(e.checked, slices.DeleteFunc(slices.Clone(all), func(j diagnosis.Candidate) bool {
			return slices.Contains(gone, j.Class)
		}))
	}

	return e
}

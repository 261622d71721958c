package diagnosis_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/chokepoint-lab/chokepoint/bench/rig"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/diagnosis"
)

// outcome holds an instance with its diagnosis.
type outcome struct {
	recorded
	d *diagnosis.Diagnosis
}

// diagnose asks the rules about the instances of a run, as the document of the run has them.
func diagnose(x *aRun, all []recorded) (out []outcome) {
	cells := map[string]*diagnosis.Diagnosis{}
	for i, c := range x.document().Cells {
		cells[c.Factors.Key()] = x.Document.Cells[i].Diagnosis
	}

	for _, r := range all {
		o := outcome{recorded: r}
		for i := range x.Trials {
			t := &x.Trials[i]
			if slices.Contains(r.Trials, t.ID) {
				o.d = cells[t.Row.Cell()]
			}
		}

		if o.d == nil {
			o.d = &diagnosis.Diagnosis{Class: diagnosis.Unknown}
		}

		out = append(out, o)
	}

	return out
}

// count holds a number of right answers, of so many.
type count struct{ Right, Of int }

func (c *count) add(right bool) {
	c.Of++
	if right {
		c.Right++
	}
}

// share with its interval of 95 % (Wilson 1927).
func (c count) String() string {
	if c.Of == 0 {
		return "none"
	}

	low, high := rig.Wilson(c.Right, c.Of)
	return fmt.Sprintf("%.1f %% (%d of %d; %.1f to %.1f %%)", 100*float64(c.Right)/float64(c.Of), c.Right,
		c.Of, 100*low, 100*high)
}

const reliabilityBins = 5

// reliability counts right verdicts by their confidence.
type reliability [reliabilityBins]bin

// bin counts what was said with a confidence from its number ÷ reliabilityBins on.
type bin struct {
	Sum   float64 // of the confidences
	Named count
}

// add sorts what was said by its confidence.
func (r *reliability) add(d *diagnosis.Diagnosis, right bool) {
	if d.Class == diagnosis.Unknown {
		return
	}

	b := &r[min(int(d.Confidence*reliabilityBins), reliabilityBins-1)]
	b.Sum += d.Confidence
	b.Named.add(right)
}

func (r reliability) markdown() string {
	var b strings.Builder
	b.WriteString("| confidence | verdicts | mean confidence | right |\n|---|---|---|---|\n")
	for i, x := range r {
		if x.Named.Of > 0 {
			fmt.Fprintf(&b, "| %d to %d %% | %d | %.0f %% | %s |\n", 100*i/reliabilityBins,
				100*(i+1)/reliabilityBins, x.Named.Of, 100*x.Sum/float64(x.Named.Of), x.Named)
		}
	}

	return b.String()
}

// instead lists the wrong answers, the most frequent first.
func instead(class string, said map[string]int) string {
	names := slices.DeleteFunc(slices.Sorted(maps.Keys(said)), func(s string) bool { return s == class })
	slices.SortStableFunc(names, func(a, b string) int { return cmp.Compare(said[b], said[a]) })
	for i, name := range names {
		names[i] = fmt.Sprintf("%s %d", name, said[name])
	}

	return strings.Join(names, ", ")
}

// tally counts what the rules say of mechanisms.
type tally struct {
	Top1, Top2, Place count
	Sure              count // wrong, and 80 % sure or more
}

// mechanismFigures tallies a recording in all, by class and by mechanism.
type mechanismFigures struct {
	All                 tally
	Classes, Mechanisms map[string]*tally
	Instead             map[string]map[string]int // the truth, and what else was said
	Bins                reliability
}

const (
	mechanismFile = "testdata/figures-mechanisms.json"
	minSure       = .8
)

// add counts what is said of an instance, and returns whether that is right.
func (f *mechanismFigures) add(o outcome) bool {
	m := mechanismNamed(o.Planted.Mechanism)
	right := m.holds(o.d.Class) || o.Planted.Lab != "" && o.d.Class == diagnosis.SharedCPU &&
		m.holds(diagnosis.SoftirqAllCores) // namespaces have no cores of their own
	firstTwo := o.d.Causes[:min(2, len(o.d.Causes))]
	second := right || slices.ContainsFunc(firstTwo, func(c diagnosis.Cause) bool { return m.holds(c.Class) })
	place := o.Planted.at(m.Place).Node != "" && m.Class != diagnosis.Healthy
	placed := !place || m.placed(*o.Planted, o.d)
	for of, key := range map[*map[string]*tally]string{&f.Classes: m.Class, &f.Mechanisms: m.Name} {
		if *of == nil {
			*of = map[string]*tally{}
		}

		if (*of)[key] == nil {
			(*of)[key] = &tally{}
		}
	}

	f.Bins.add(o.d, right)
	if !right {
		if f.Instead == nil {
			f.Instead = map[string]map[string]int{}
		}

		if f.Instead[m.Class] == nil {
			f.Instead[m.Class] = map[string]int{}
		}

		f.Instead[m.Class][o.d.Class]++
	}

	for _, c := range []*tally{&f.All, f.Classes[m.Class], f.Mechanisms[m.Name]} {
		c.Top1.add(right)
		c.Top2.add(second)
		c.Sure.add(!right && o.d.Class != diagnosis.Unknown && o.d.Confidence >= minSure)
		if place {
			c.Place.add(placed)
		}
	}

	return right && placed
}

// TestMechanisms scores the rules on what raw tools planted. A figure that is lower than the committed one is
// a failure.
func TestMechanisms(t *testing.T) {
	var f mechanismFigures
	for _, e := range examples(t) {
		o := e.outcome
		if o.Planted == nil || f.add(o) {
			continue
		}

		at := o.d.Node + "/" + o.d.Element
		if !mechanismNamed(o.Planted.Mechanism).placed(*o.Planted, o.d) {
			at += ", which is not the place"
		}

		t.Logf("%s of run %s (%+v; %.1f of %.1f Mbit/s) is %v, said: %s %.0f %% at %s: %s", o.ID, o.Run,
			*o.Planted, o.Goodput/1e6, o.Untouched/1e6, o.Truths, o.d.Class, 100*o.d.Confidence, at, o.d.Text)
	}

	t.Logf("\n%s", f.markdown())
	if *keepDir != "" {
		return // another recording than the committed one has figures of its own
	}

	if *update {
		writeJSON(t, mechanismFile, f)
		return
	}

	before := readFigures[mechanismFigures](t, mechanismFile)
	for _, c := range []struct {
		what      string
		now, then count
	}{{"named first", f.All.Top1, before.All.Top1}, {"named among two", f.All.Top2, before.All.Top2},
		{"placed", f.All.Place, before.All.Place},
		{"not confidently wrong", f.All.Sure.Not(), before.All.Sure.Not()}} {
		if c.now.Of != c.then.Of || c.now.Right < c.then.Right {
			t.Errorf("%s: %d of %d, %d of %d before", c.what, c.now.Right, c.now.Of, c.then.Right, c.then.Of)
		}
	}
}

// Not counts the others.
func (c count) Not() count { return count{c.Of - c.Right, c.Of} }

// Percent formats the share.
func (c count) Percent() string { return fmt.Sprintf("%.1f %%", 100*float64(c.Right)/float64(c.Of)) }

// readFigures reads figures that a test has written.
func readFigures[T any](t *testing.T, file string) (f T) {
	text, err := os.ReadFile(file)
	if err == nil {
		err = json.Unmarshal(text, &f)
	}

	if err != nil {
		t.Fatal(err)
	}

	return f
}

// summary formats the figures of all mechanisms together.
func (f mechanismFigures) summary() string {
	var b strings.Builder
	fmt.Fprintf(&b, "| figure | %d mechanisms, %d instances |\n|---|---|\n", len(f.Mechanisms), f.All.Top1.Of)
	for _, row := range []struct {
		what string
		of   count
	}{{"the cause is named first", f.All.Top1}, {"the cause is among the first two", f.All.Top2},
		{"the place is right", f.All.Place}, {"another cause is named with 80 % confidence or more", f.All.Sure}} {
		fmt.Fprintf(&b, "| %s | %s |\n", row.what, row.of)
	}

	return b.String()
}

// markdown formats the figures for docs/diagnosis.md.
func (f mechanismFigures) markdown() string {
	var b strings.Builder
	b.WriteString(f.summary() + "\n" + f.Bins.markdown())
	b.WriteString("\n| class | mechanisms | named first | placed | named instead | confidently wrong |\n" +
		"|---|---|---|---|---|---|\n")
	for _, class := range slices.Sorted(maps.Keys(f.Classes)) {
		var names []string
		for _, m := range catalogue.Mechanisms {
			if c := f.Mechanisms[m.Name]; c != nil && m.Class == class {
				names = append(names, fmt.Sprintf("%s %d/%d", m.Name, c.Top1.Right, c.Top1.Of))
			}
		}

		c := f.Classes[class]
		fmt.Fprintf(&b, "| %s | %s | %d of %d | %d of %d | %s | %d |\n", class, strings.Join(names, ", "),
			c.Top1.Right, c.Top1.Of, c.Place.Right, c.Place.Of, instead(class, f.Instead[class]),
			c.Sure.Right)
	}

	return b.String()
}

package diagnosis_test

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/chokepoint-lab/chokepoint/bench/rig"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/diagnosis"
)

// outcome is an instance with what the rules say of it.
type outcome struct {
	recorded
	d *diagnosis.Diagnosis
}

// diagnose asks the rules about the instances of a run, as the document of the run has them.
func diagnose(x *aRun, all []recorded) (out []outcome) {
	cells := map[string]*diagnosis.Diagnosis{}
	for i, c := range x.document().Cells {
		cells[c.Factors.Key()] = x.doc.Cells[i].Diagnosis
	}
	for _, r := range all {
		o := outcome{recorded: r}
		for i := range x.trials {
			if t := &x.trials[i]; slices.Contains(r.Trials, t.ID) {
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

// count is how many of so many.
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

// figures are what a half of the suite says of the rules. They are kept, so that a change which lowers one
// is seen.
type figures struct {
	Half      string
	Instances map[string]int // by kind
	Top1      count          // the cause, or the stronger of two, is named first
	Top2      count          // all causes are among the first two
	Unknown   count          // causes that no rule knows are called unknown
	Alarms    count          // loads that nothing holds back of which a cause is named
	Detected  count          // something is wrong, or nothing
	Localised count          // the node, and its element where the cause has one
	Natural   count          // untouched loads that are flat out
	ByClass   map[string]*count
	Confusion map[string]map[string]int // the truth, and what was said
	Bins      reliability               // of the confidence with which a class was named
	Seconds   float64                   // to record it
}

const reliabilityBins = 5

// reliability counts right verdicts by their confidence.
type reliability [reliabilityBins]bin

// bin counts what was said with a confidence from its number ÷ reliabilityBins on.
type bin struct {
	Sum   float64 // of the confidences
	Named count
}

// quiet says that a class is no fault.
func quiet(class string) bool {
	r, known := diagnosis.RuleOf(class)
	return known && r.Quiet
}

// accuracy scores outcomes.
func accuracy(half string, all []outcome) figures {
	f := figures{Half: half, Instances: map[string]int{}, ByClass: map[string]*count{},
		Confusion: map[string]map[string]int{}}
	for _, o := range all {
		f.Seconds += o.Seconds
		said := o.d.Class
		truth := diagnosis.Unknown
		if len(o.Truths) > 0 {
			truth = o.Truths[0].Class
		}
		right := said == truth
		f.Detected.add(quiet(said) == quiet(truth))
		if strings.Contains(o.ID, "/") && o.Kind == kindNatural {
			f.Natural.add(right)
			continue
		}
		f.Instances[o.Kind]++
		if f.Confusion[truth] == nil {
			f.Confusion[truth], f.ByClass[truth] = map[string]int{}, &count{}
		}
		f.Confusion[truth][said]++
		f.ByClass[truth].add(right)
		f.Bins.add(o.d, right)
		switch o.Kind {
		case kindHealthy:
			f.Alarms.add(!quiet(said))
		case kindUnknown:
			f.Unknown.add(right)
		default:
			f.Top1.add(right)
			f.Top2.add(among(o.d.Causes, o.Truths))
			if t := o.Truths[0]; t.Node != "" {
				f.Localised.add(len(o.d.Causes) > 0 && t.at(o.d.Causes[0]))
			}
		}
	}
	return f
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

// at says that a cause is where the truth is.
func (t truth) at(c diagnosis.Cause) bool {
	return t.Node == c.Node && (t.Element == "" || t.Element == c.Element)
}

// among says that all truths are among the first two causes.
func among(causes []diagnosis.Cause, truths []truth) bool {
	for _, t := range truths {
		if !slices.ContainsFunc(causes[:min(2, len(causes))], func(c diagnosis.Cause) bool {
			return c.Class == t.Class
		}) {
			return false
		}
	}
	return true
}

// lowered lists the figures that are lower than they were.
func (f figures) lowered(before figures) (out []string) {
	less := func(what string, now, then count) {
		if now.Of == then.Of && now.Right < then.Right {
			out = append(out, fmt.Sprintf("%s: %d of %d, %d before", what, now.Right, now.Of, then.Right))
		}
		if now.Of != then.Of {
			out = append(out, fmt.Sprintf("%s: of %d instances, %d before: -update", what, now.Of, then.Of))
		}
	}
	less("named first", f.Top1, before.Top1)
	less("named among two", f.Top2, before.Top2)
	less("unknown", f.Unknown, before.Unknown)
	less("detected", f.Detected, before.Detected)
	less("localised", f.Localised, before.Localised)
	less("untouched", f.Natural, before.Natural)
	less("no false alarm", count{f.Alarms.Of - f.Alarms.Right, f.Alarms.Of},
		count{before.Alarms.Of - before.Alarms.Right, before.Alarms.Of})
	return out
}

// markdown is the figures as docs/diagnosis.md has them: of each class.
func (f figures) markdown() string {
	var b strings.Builder
	b.WriteString("| truth | right | named instead |\n|---|---|---|\n")
	for _, class := range slices.Sorted(maps.Keys(f.Confusion)) {
		fmt.Fprintf(&b, "| %s | %d of %d | %s |\n", class, f.ByClass[class].Right, f.ByClass[class].Of,
			instead(class, f.Confusion[class]))
	}
	return b.String()
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

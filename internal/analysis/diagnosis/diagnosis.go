// Package diagnosis determines what limited the traffic of a trial. Each class of limit has a file with its
// rule. A rule turns the observation of one trial into a candidate with its evidence, and Conclude ranks the
// candidates of a cell's trials. The package does no I/O. A rule whose input is missing reports "not
// examined", never "excluded".
package diagnosis

import (
	"cmp"
	"math"
	"slices"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/statistics"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// Rule describes one class of limit: its meaning, its check, the experiments that could refute it, and its
// remedies.
type Rule struct {
	Class string // stable identifier in the JSON document, such as "softirq-one-core"
	Text  string // label, meaning, remedies and more; words describes the format
	Words
	Check func(*Observation) Candidate
	// Experiments return experiments that could refute the cause. Each step states the share of the resource
	// that it leaves. No step lowers the rate of the load, because any path carries a lower rate, whatever
	// the cause. Tests adds the experiments for the kind of limit.
	Experiments []func(*Observation) Experiment
}

// rule returns the rule of a class.
func rule(class, text string, check func(*Observation) Candidate,
	experiments ...func(*Observation) Experiment) Rule {
	examine := func(o *Observation) Candidate { return checked(check, o) }
	return Rule{Class: class, Text: text, Check: examine, Experiments: experiments}
}

// Candidate is the result of one rule for one trial: a cause, with the evidence for and against it.
type Candidate struct {
	Cause
	// Terms holds the conditions from which Score is computed. Without Terms, the rule sets Score itself.
	Terms []Term
	// Score is the natural logarithm of the odds of this class against an unknown cause. It is NaN if the
	// class was not examined.
	Score       float64
	NotExamined string // why the class was not examined; "" if it was
	// Undecided explains why even a low score does not exclude the class.
	Undecided string
	// Elsewhere describes where the limit is, if no class fits it. ElsewhereNode is the node, if it is not
	// the cause's.
	Elsewhere, ElsewhereNode string
	Against                  *Fact // number that excludes the class, if there is one
}

// Experiment is a change of the plan that could refute a cause. It sets the factor to each step in random
// order, between windows without a change.
type Experiment struct {
	Class    string    `json:"class"`
	Factor   string    `json:"factor"`             // factor with its place, such as "cpu_quota@host"
	Steps    []string  `json:"steps"`              // levels
	Resource []float64 `json:"resource,omitempty"` // share of the resource at each step; 0.9 means 90 %
	From     string    `json:"from"`               // where the change is made: "tester", "end" or "router"
	// Expect is the elasticity of goodput that confirms the cause: 1 if the resource is the limit.
	Expect float64 `json:"expect"`
	Fix    string  `json:"fix,omitempty"` // level that removes the limit, if there is one
	Why    string  `json:"why"`
}

// Remedy is a change that removes or mitigates a limit, for one system.
type Remedy struct {
	System   string   `json:"system"` // "linux", "openwrt", "routeros", "freebsd"; "" means any
	Do       string   `json:"do"`     // the change in words
	Commands []string `json:"commands,omitempty"`
	Risk     string   `json:"risk,omitempty"`
	// Factor and Level express the remedy as a factor of plans, if there is one. chokepoint tune tries this
	// level.
	Factor string `json:"factor,omitempty"`
	Level  string `json:"level,omitempty"`
	Tunnel string `json:"-"` // kind of tunnel that the remedy applies to, such as "openvpn"; "" means any
	When   string `json:"-"` // name of a condition in conditions; "" means always
}

// Diagnosis is the diagnosis of a cell or trial.
type Diagnosis struct {
	Class      string  `json:"class"` // class of the first cause, or "unknown"
	Text       string  `json:"text"`  // the diagnosis in one sentence
	Confidence float64 `json:"confidence"`
	// Node and Element locate the limit, even if its class is unknown. They are empty if the location is
	// unknown.
	Node    string  `json:"node,omitempty"`
	Element string  `json:"element,omitempty"`
	Causes  []Cause `json:"causes"` // causes with a confidence of at least MinShown, most probable first
	// Excluded lists the classes that a number excludes.
	Excluded []Exclusion `json:"excluded,omitempty"`
	// NotExamined lists the classes without a result, because their input is missing or inconclusive.
	NotExamined []Gap   `json:"not_examined,omitempty"`
	Trials      int     `json:"trials"`
	Path        []Stage `json:"path,omitempty"` // parts of the path from near to far, with their utilisation
	// Ledger accounts for the packets and the delay of the trial with the median rate.
	Ledger *Ledger `json:"ledger,omitempty"`
}

// Cause is one possible class of limit, with its location: a node, or a part of a node such as a core,
// device, queue or process.
type Cause struct {
	Class      string  `json:"class"`
	Node       string  `json:"node,omitempty"`
	Element    string  `json:"element,omitempty"`
	Text       string  `json:"text"`       // wording of the diagnosis
	Confidence float64 `json:"confidence"` // probability, 0 to 1
	// GainAtMost is an upper bound of the gain from removing the limit: goodput afterwards ÷ goodput now. It
	// is 0 if unknown.
	GainAtMost  float64      `json:"gain_at_most,omitempty"`
	Facts       []Fact       `json:"facts"`
	Experiments []Experiment `json:"experiments,omitempty"`
	Remedies    []Remedy     `json:"remedies,omitempty"` // remedies that are not yet applied
	// Proofs holds the results of experiments about the cause, and Proved their joint result: "confirmed",
	// "refuted", "not refuted" or "undecided". Both are absent without an experiment.
	Proofs []Proof `json:"proofs,omitempty"`
	Proved string  `json:"proved,omitempty"`
}

// Exclusion is an excluded class, with the fact that excludes it.
type Exclusion struct {
	Class string `json:"class"`
	By    Fact   `json:"by"`
}

// Gap is a class that could not be examined, with the reason.
type Gap struct {
	Class string `json:"class"`
	Why   string `json:"why"`
}

// Named reports whether the diagnosis names its first cause.
func (d *Diagnosis) Named() bool { return len(d.Causes) > 0 && d.Causes[0].Class == d.Class }

const notKnown = "the limit is not known"

// Thresholds of the diagnosis.
const (
	MinShown = .05 // minimum confidence of a cause that is listed
	minNamed = .50 // minimum confidence of a cause that is named
	// If an unknown cause is less probable than minUnknown, it is not the diagnosis, even if several known
	// causes share the remaining probability.
	minUnknown = .10
	// contributes is the minimum score of a cause that is listed even if another cause outweighs it, because
	// both may limit the traffic.
	contributes = 1
	maxFacts    = 5
)

// Examine applies every rule to one trial and scores the candidates.
func Examine(o *Observation) []Candidate {
	var out []Candidate
	for _, r := range Rules() {
		out = append(out, r.examine(o))
	}

	explainAway(out)
	Rate(out, weights())
	for i, r := range Rules() {
		j := &out[i]
		for k := range j.Facts {
			j.Facts[k].Trial = o.ID
		}

		if j.Against != nil {
			j.Against = new(*j.Against)
			j.Against.Trial = o.ID
		}

		if j.Score > 0 {
			j.Experiments, j.Remedies = Tests(o, j.Class), o.remedies(j.Cause, r.Remedies)
		}
	}

	return out
}

// Rate scores the candidates of one trial with the given weights.
func Rate(all []Candidate, w Weights) {
	for i := range all {
		all[i].rate(w)
	}

	leaveToCauses(all)
}

// examine applies a rule to one trial, without a score.
func (r Rule) examine(o *Observation) Candidate {
	j := missing("the trial failed")
	if o.Status != record.TrialFailed && o.Traffic != nil || r.Has("of-failed") {
		j = r.Check(o)
	}

	j.Class = r.Class
	j.Facts = j.evidence()
	if j.Text == "" && len(j.Facts) > 0 {
		j.Text = j.Facts[0].Text
	}

	if r.Has("to-tester") && j.GainAtMost == 0 {
		j.GainAtMost = o.gainToTester()
	}

	if len(j.Terms) > 0 && !r.Has("any-rate") {
		j = j.with(o.satisfied())
	}

	j.Facts = j.Facts[:min(len(j.Facts), maxFacts)]
	return j
}

// Conclude combines the candidates of a cell's trials. Each class gets the median of its scores and the text
// of the trial nearest to the median. rates holds the goodput of the trials: the diagnosis mentions a wide
// spread, and if no other cause explains it, the cell is unstable.
func Conclude(trials [][]Candidate, rates ...float64) *Diagnosis {
	if len(trials) == 0 {
		return nil
	}

	byClass := map[string][]Candidate{}
	for _, j := range slices.Concat(trials...) {
		byClass[j.Class] = append(byClass[j.Class], j)
	}

	var checked []Candidate
	for _, r := range Rules() {
		all := byClass[r.Class]
		if len(all) > 0 {
			checked = append(checked, typical(all))
		}
	}

	e, apart := acrossTrials(checked, rates)
	d := conclude(checked)
	d.Trials = len(trials)
	d.exclude(byClass)
	if apart { // an even rate within one trial does not exclude a spread over trials
		d.Excluded = slices.DeleteFunc(d.Excluded, func(x Exclusion) bool { return x.Class == Unstable })
	}

	switch {
	case !apart, d.Class == Unstable:
	case d.Named():
		facts := d.Causes[0].Facts
		d.Causes[0].Facts = append(slices.Clone(facts[:min(len(facts), maxFacts-1)]), e)
	default:
		d.Text += "; " + e.Text
	}

	return d
}

// conclude ranks candidates, one per class, by probability.
func conclude(checked []Candidate) *Diagnosis {
	d := &Diagnosis{Class: Unknown, Causes: []Cause{}}
	var examined []Candidate
	for _, j := range checked {
		if j.NotExamined != "" {
			d.NotExamined = append(d.NotExamined, Gap{j.Class, j.NotExamined})
			continue
		}

		examined = append(examined, j)
	}

	unknown := weigh(examined)
	slices.SortStableFunc(examined, func(a, b Candidate) int {
		return cmp.Compare(b.Confidence, a.Confidence)
	})
	for _, j := range examined {
		switch {
		case j.Score > 0 && (j.Confidence >= MinShown || j.Score >= contributes):
			if j.Remedies == nil { // because the blackbox analysis sets no remedies
				r, _ := RuleOf(j.Class)
				j.Remedies = r.Remedies
			}

			d.Causes = append(d.Causes, j.Cause)
		case j.Undecided != "":
			d.NotExamined = append(d.NotExamined, Gap{j.Class, j.Undecided})
		case j.Against != nil && j.Score < 0:
			d.Excluded = append(d.Excluded, Exclusion{j.Class, *j.Against})
		}
	}

	if len(d.Causes) > 0 {
		first := d.Causes[0]
		if d.sureOfPlace() >= minNamed || unknown < minUnknown {
			d.Class = first.Class
			d.Text = first.Text
			d.Confidence = first.Confidence
			d.Node = first.Node
			d.Element = first.Element
			return d
		}

		d.Text = notKnown + "; closest known cause: " + first.Text
	} else {
		d.Text = notKnown + ": no known cause fits the measurements"
	}

	d.Confidence = unknown
	for _, j := range examined {
		if j.Elsewhere == "" {
			continue
		}

		d.Text = j.Elsewhere
		d.Node = j.Node
		d.Element = j.Element
		if j.ElsewhereNode != "" {
			d.Node, d.Element = j.ElsewhereNode, ""
		}

		break
	}

	return d
}

// exclude takes the evidence against each excluded class from the trial that shows the first cause, if that
// trial excludes the class, too. It then removes exclusions that contradict the causes.
func (d *Diagnosis) exclude(byClass map[string][]Candidate) {
	trial := ""
	if len(d.Causes) > 0 && len(d.Causes[0].Facts) > 0 {
		trial = d.Causes[0].Facts[0].Trial
	}

	for i, x := range d.Excluded {
		if trial == "" {
			trial = x.By.Trial
		}

		for _, j := range byClass[x.Class] {
			if j.Against != nil && j.Score < 0 && j.Against.Trial == trial {
				d.Excluded[i].By = *j.Against
			}
		}
	}

	// The location of the limit may be known although its class is unknown.
	limits := append(slices.Clone(d.Causes), Cause{Node: d.Node, Element: d.Element})
	d.Excluded = slices.DeleteFunc(d.Excluded, func(x Exclusion) bool {
		return slices.ContainsFunc(limits, func(c Cause) bool { return c.contradicts(x) })
	})
}

// overflowing lists classes that differ only in the queue that overflows.
var overflowing = []string{SmallQueue, WireguardQueue, BacklogBudget}

// contradicts reports whether the exclusion contradicts the cause: the excluded class may be the same limit
// at another place, or its evidence supports the cause. Packets lost at the cause's location exclude nothing.
func (c Cause) contradicts(x Exclusion) bool {
	alike := slices.Contains(overflowing, c.Class) && slices.Contains(overflowing, x.Class)
	lost := x.By.Metric == "drops" || x.By.Metric == "tx_dropped"
	lostThere := lost && x.By.Value != nil && *x.By.Value > 0 && x.By.Node != "" &&
		place{x.By.Node, x.By.Element} == c.place()
	speaks := func(e Fact) bool { return e.Text == x.By.Text }
	return alike || lostThere || slices.ContainsFunc(c.Facts, speaks)
}

// sureOfPlace returns the probability of the first cause's location: the sum over all causes there. A rate
// limit and the long queue in front of it, for example, share a location.
func (d *Diagnosis) sureOfPlace() (p float64) {
	for i, c := range d.Causes {
		known := c.Element != "" && c.Element != "path"
		if i == 0 || known && c.place() == d.Causes[0].place() {
			p += c.Confidence
		}
	}
	return p
}

func (c Cause) place() place { return place{c.Node, c.Element} }

// typical returns the candidate that represents the trials. If at least half of the trials were examined,
// this is the candidate with the median score (the lower of the two in the middle). Otherwise, it is a
// candidate that states why it was not examined. For the class "healthy", typical uses the lower quartile
// instead of the median: three of four trials must be unlimited.
func typical(all []Candidate) Candidate {
	lacks := func(j Candidate) bool { return j.NotExamined != "" }
	with := slices.DeleteFunc(slices.Clone(all), lacks)
	if 2*len(with) < len(all) {
		return all[slices.IndexFunc(all, lacks)]
	}

	slices.SortStableFunc(with, func(a, b Candidate) int { return cmp.Compare(a.Score, b.Score) })
	if with[0].Class == Healthy {
		return with[len(with)/4]
	}

	return with[(len(with)-1)/2]
}

// weigh turns scores into probabilities. It returns the probability of an unknown cause, with which the
// probabilities add up to 1.
func weigh(all []Candidate) (unknown float64) {
	highest := 0.0
	for _, j := range all {
		highest = max(highest, j.Score)
	}

	sum := math.Exp(-highest)
	for i, j := range all {
		all[i].Confidence = math.Exp(j.Score - highest)
		sum += all[i].Confidence
	}

	for i := range all {
		all[i].Confidence /= sum
	}

	return math.Exp(-highest) / sum
}

// need returns an input of a rule. If it is missing, need ends the check, and why is the reason why the class
// was not examined.
func need[T any](input T, why string) T {
	needs(why == "", why)
	return input
}

// needs is like need for an input that is not a value.
func needs(known bool, why string) {
	if !known {
		panic(gap(why))
	}
}

// gap is the reason with which needs ends a check.
type gap string

// checked returns the candidate of a check, which need may end.
func checked[T any](check func(T) Candidate, of T) (j Candidate) {
	defer func() {
		switch p := recover().(type) {
		case nil:
		case gap:
			j = missing(string(p))
		default:
			panic(p)
		}
	}()
	return check(of)
}

// spread returns the interquartile range ÷ the median.
func spread(values []float64) float64 {
	if len(values) < 2 {
		return 0
	}

	s := slices.Sorted(slices.Values(values))
	return ratio(statistics.QuantileSorted(s, .75)-statistics.QuantileSorted(s, .25),
		statistics.Median(values))
}

// Package diagnosis names what limited the traffic of a trial. There is one file per class of limit: a rule
// reads the observation of one trial and returns a candidate with its evidence, and Conclude ranks the
// candidates of a cell's trials. The package is pure. A rule that lacks its input reports "not examined",
// never "clear".
package diagnosis

import (
	"cmp"
	"math"
	"slices"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/statistics"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// Rule describes one class of limit: what it means, how it shows, what would decide, and what helps.
type Rule struct {
	Class string // the stable word of the document, such as "softirq-one-core"
	Text  string // see words
	Words
	// Ends is set if two ends alone, without telemetry of the router, can recognise the class.
	Ends bool
	// Quiet marks an answer that is not a fault: healthy, tester-limited, the CPUs that all roles share.
	Quiet bool
	// Wasteful is set if the limit itself costs CPU work, such as retransmissions, so that the same rate
	// costs less without it.
	Wasteful bool
	// OfFailed is set if the rule also applies to failed trials: these have a cause, but no number.
	OfFailed bool
	// ToTester is set if what the tester reaches alone bounds the gain, unless the candidate sets a bound.
	ToTester bool
	// Delay is set if packets wait too long, so that an experiment is measured by its RTT.
	Delay bool
	Check func(*Observation) Candidate
	// Experiments returns what would refute the cause, experiments from the tester's side first. Each step
	// states how much of the resource it leaves. Rates below the present one are not used: every path carries
	// them. Classes about CPU time add those of cpuSteps.
	Experiments func(*Observation) []Experiment
}

// Candidate is the result of one rule for one trial: a cause, and the evidence for and against it.
type Candidate struct {
	Cause
	// Terms holds the conditions of the class, from which Score is computed; without them Score is set.
	Terms []Term
	// Score is the logarithm of the odds that this class limited the traffic, against no known class; NaN if
	// it was not examined.
	Score       float64
	NotExamined string // why not: what is missing
	// Undecided explains why the class is not ruled out, however low its score.
	Undecided string
	// Elsewhere describes the place of the limit, for a cause that matches no class.
	Elsewhere string
	Against   *Fact // the number that rules it out, if one does
}

// Experiment is a change to the plan, in the vocabulary of factors, that would refute a cause: the factor
// takes each step in random order between untouched windows.
type Experiment struct {
	Class    string    `json:"class"`
	Factor   string    `json:"factor"`             // with its place: "cpu_quota@host"
	Steps    []string  `json:"steps"`              // levels
	Resource []float64 `json:"resource,omitempty"` // share of the resource that a step leaves: 0.9 = 90 %
	From     string    `json:"from"`               // "tester" or "router"
	// Expect is the elasticity of goodput that confirms the cause: 1 where the resource limits.
	Expect float64 `json:"expect"`
	Fix    string  `json:"fix,omitempty"` // level that removes the limit
	Why    string  `json:"why"`
}

// Remedy is a change that helps, for one system.
type Remedy struct {
	System   string   `json:"system"` // "linux", "openwrt", "routeros", "freebsd", "" = any
	Do       string   `json:"do"`     // in words
	Commands []string `json:"commands,omitempty"`
	Risk     string   `json:"risk,omitempty"`
	// Factor and Level express the remedy in the vocabulary of plans, where possible: tune tries them.
	Factor string `json:"factor,omitempty"`
	Level  string `json:"level,omitempty"`
	Tunnel string `json:"-"` // the kind of tunnel it is for, such as "openvpn"; "" = any
	When   string `json:"-"` // see conditions; "" = always
}

// Diagnosis is the verdict on a cell or trial.
type Diagnosis struct {
	Class      string  `json:"class"` // of the first cause, or "unknown"
	Text       string  `json:"text"`  // one sentence
	Confidence float64 `json:"confidence"`
	// Node and Element locate the limit, whether its class is known or not; "" = unknown.
	Node    string  `json:"node,omitempty"`
	Element string  `json:"element,omitempty"`
	Causes  []Cause `json:"causes"` // most probable first, those above MinShown
	// Excluded lists classes that were examined and ruled out, each by a number.
	Excluded []Exclusion `json:"excluded,omitempty"`
	// NotExamined lists classes without a result: their input is missing, or decides nothing.
	NotExamined []Gap   `json:"not_examined,omitempty"`
	Trials      int     `json:"trials"`
	Path        []Stage `json:"path,omitempty"` // near to far, with the utilisation of each part
	// Ledger accounts for the packets and the delay of the trial with the median rate.
	Ledger *Ledger `json:"ledger,omitempty"`
}

// Cause is one candidate class, at a node or a part of it: a core, a device, a queue, a process.
type Cause struct {
	Class      string  `json:"class"`
	Node       string  `json:"node,omitempty"`
	Element    string  `json:"element,omitempty"`
	Text       string  `json:"text"`       // as worded in the verdict
	Confidence float64 `json:"confidence"` // probability
	// GainAtMost bounds the gain from removing the limit: goodput then ÷ goodput now; 0 = unknown.
	GainAtMost  float64      `json:"gain_at_most,omitempty"`
	Facts       []Fact       `json:"facts"`
	Experiments []Experiment `json:"experiments,omitempty"`
	Remedies    []Remedy     `json:"remedies,omitempty"` // not yet applied
	// Proofs holds what experiments found about the cause, and Proved their joint verdict: "confirmed",
	// "refuted", "not refuted" or "undecided"; absent if there was none.
	Proofs []Proof `json:"proofs,omitempty"`
	Proved string  `json:"proved,omitempty"`
}

// Exclusion is a class that is ruled out.
type Exclusion struct {
	Class string `json:"class"`
	By    Fact   `json:"by"`
}

// Gap is a class that could not be examined.
type Gap struct {
	Class string `json:"class"`
	Why   string `json:"why"`
}

// Named reports whether the first cause is the answer.
func (d *Diagnosis) Named() bool { return len(d.Causes) > 0 && d.Causes[0].Class == d.Class }

const notKnown = "the limit is not known"

// Thresholds of the verdict.
const (
	MinShown = .05 // confidence of a cause that is listed
	minNamed = .50 // of a cause that is named as the answer
	// below which an unknown cause is not the answer, even if several known ones share the rest
	minUnknown = .10
	// score from which a cause is listed even if another outweighs it: both may limit the traffic
	contributes = 1
	maxFacts    = 5
)

// Examine applies every rule to one trial.
func Examine(o *Observation) []Candidate {
	out := examine(o)
	Rate(out, weights())
	for i, r := range Rules() {
		j := &out[i]
		j.ofTrial(o.Trial.ID)
		if j.Score > 0 {
			j.Experiments, j.Remedies = Tests(o, j.Class), o.remedies(j.Cause, r.Remedies)
		}
	}

	return out
}

// ofTrial names the trial of its facts.
func (j *Candidate) ofTrial(id string) {
	for i := range j.Facts {
		j.Facts[i].Trial = id
	}

	if j.Against != nil {
		against := *j.Against
		against.Trial = id
		j.Against = &against
	}
}

// Rate scores the candidates of one trial by weights.
func Rate(all []Candidate, w Weights) {
	for i := range all {
		all[i].rate(w)
	}

	leaveToCauses(all)
}

// examine returns the terms of every rule.
func examine(o *Observation) []Candidate {
	rules := Rules()
	out := make([]Candidate, 0, len(rules))
	for _, r := range rules {
		j := missing("the trial failed")
		if o.Trial.Status != record.TrialFailed && o.Trial.Traffic != nil || r.OfFailed {
			j = r.Check(o)
		}

		j.Class = r.Class
		j.Facts = j.evidence()
		if j.Text == "" && len(j.Facts) > 0 {
			j.Text = j.Facts[0].Text
		}

		if r.ToTester && j.GainAtMost == 0 {
			j.GainAtMost = o.gainToTester()
		}

		if len(j.Terms) > 0 && !slices.Contains(atAnyRate, r.Class) {
			j = j.with(o.satisfied())
		}

		j.Facts = j.Facts[:min(len(j.Facts), maxFacts)]
		out = append(out, j)
	}

	explainAway(out)
	return out
}

// Conclude joins the candidates of a cell's trials: each class gets the median of its scores, and the text of
// the trial nearest to it. Rates holds the trials' goodput: a wide spread is noted with the verdict, and if
// nothing else explains it the cell is unstable.
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
	if apart { // one even trial does not rule that out
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

// conclude ranks candidates, one of each class, by their probability.
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
			r, _ := RuleOf(j.Class)
			if j.Remedies == nil { // seen from the ends alone
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
	i := slices.IndexFunc(examined, func(j Candidate) bool { return j.Elsewhere != "" })
	if i >= 0 {
		d.Text = examined[i].Elsewhere
		d.Node = examined[i].Node
		d.Element = examined[i].Element
	}

	return d
}

// exclude takes the evidence against the excluded classes from the trial of the first cause's, where that
// rules them out too, and removes what contradicts the causes.
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

	// The limit may have a place although its class is not known.
	limits := append(slices.Clone(d.Causes), Cause{Node: d.Node, Element: d.Element})
	d.Excluded = slices.DeleteFunc(d.Excluded, func(x Exclusion) bool {
		return slices.ContainsFunc(limits, func(c Cause) bool { return c.contradicts(x) })
	})
}

// overflowing lists classes that differ only in which queue is full.
var overflowing = []string{SmallQueue, WireguardQueue, BacklogBudget}

// contradicts reports whether an excluded class may be the same limit as the cause at another place, or
// whether its evidence speaks for the cause: packets lost at the cause's place rule nothing out.
func (c Cause) contradicts(x Exclusion) bool {
	alike := slices.Contains(overflowing, c.Class) && slices.Contains(overflowing, x.Class)
	lost := x.By.Metric == "drops" || x.By.Metric == "tx_dropped"
	lostThere := lost && x.By.Value != nil && *x.By.Value > 0 && x.By.Node != "" &&
		place{x.By.Node, x.By.Element} == c.place()
	speaks := func(e Fact) bool { return e.Text == x.By.Text }
	return alike || lostThere || slices.ContainsFunc(c.Facts, speaks)
}

// sureOfPlace sums the probabilities of the causes at the element of the first one: a rate limit and the long
// queue in front of it share an element.
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

// typical returns the candidate with the median score (the lower of two), if half of the trials were
// examined; otherwise one that was not, with its reason. A load is unlimited if three of four trials are.
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

// weigh turns scores into probabilities, and returns that of an unknown cause: the rest up to one.
func weigh(all []Candidate) (unknown float64) {
	highest := 0.0
	for _, j := range all {
		highest = max(highest, j.Score)
	}

	sum := math.Exp(-highest)
	for _, j := range all {
		sum += math.Exp(j.Score - highest)
	}

	for i := range all {
		all[i].Confidence = math.Exp(all[i].Score-highest) / sum
	}

	return math.Exp(-highest) / sum
}

// given wraps a check that needs input from the trial: if read returns a reason why it is missing, the rule
// is not examined.
func given[T any](read func(*Observation) (of T, why string),
	check func(*Observation, T) Candidate) func(*Observation) Candidate {
	return func(o *Observation) Candidate {
		of, why := read(o)
		if why != "" {
			return missing(why)
		}
		return check(o, of)
	}
}

// always returns experiments that do not depend on the trial.
func always(all ...Experiment) func(*Observation) []Experiment {
	return func(*Observation) []Experiment { return all }
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

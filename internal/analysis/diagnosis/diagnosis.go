// Package diagnosis names what held the traffic of a trial back. One file a class of limit: a rule reads the
// observation of one trial and returns a judgement with its evidence, and Conclude ranks the judgements of a
// cell's trials. It is pure, and a rule that lacks what it reads says "not examined", never "clear".
package diagnosis

import (
	"cmp"
	"math"
	"slices"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/evidence"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/statistics"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// Rule is one class of limit: what it means, how it is seen, what would decide, and what helps.
type Rule struct {
	Class string // the stable word of the document, such as "softirq-one-core"
	Label string // in a sentence: "one core of the router is saturated by softirq"
	Means string // when the rule fires, in words, with the thresholds
	// Ends says that two ends alone, without telemetry of the router, can tell the class.
	Ends bool
	// Quiet marks an answer that is no fault: healthy, tester-limited, the CPUs that all roles share.
	Quiet bool
	// Wasteful says that the limit costs the CPUs work, such as packets that are sent again, so that what the
	// rate costs without it is less than with it.
	Wasteful bool
	// OfFailed says that it reads trials that failed, too: they have no number, but a cause.
	OfFailed bool
	// Delay says that the trouble is how long packets wait, so that a round trip answers an experiment.
	Delay bool
	Judge func(*Observation) Judgement
	// Experiments are what would refute the cause, those from the tester's side first. Each dose says what it
	// leaves of the resource. Rates below the present one are none: every path gives what is asked for.
	Experiments func(*Observation) []Experiment
	Remedies    []Remedy
}

// Judgement is what one rule makes of one trial.
type Judgement struct {
	Class string
	// Terms are the conditions of the class, by which it is scored; without them the score is set.
	Terms []Term
	// Score is the logarithm of the odds that this class held the traffic back, against no class that is
	// known; NaN where it was not examined.
	Score       float64
	NotExamined string // why not: what is missing
	// Undecided says why the class is not ruled out, however low its score.
	Undecided string
	// Place says where the limit is, of a cause that no class knows.
	Place   string
	Node    string // where the limit is
	Element string // the part of the node: a core, a device, a queue, a process
	Text    string // what is the matter, as the verdict says it
	// GainAtMost bounds what its removal can bring: goodput then ÷ goodput now; 0 = not known.
	GainAtMost  float64
	Facts       []evidence.Evidence // what it stands on
	Against     *evidence.Evidence  // the number that rules it out, if one does
	Experiments []Experiment
	Remedies    []Remedy // that are still to be done
}

// Experiment is a patch of the plan, in the vocabulary of factors, that would refute a cause: the factor
// takes each dose in random order between untouched windows.
type Experiment struct {
	Class    string    `json:"class"`
	Factor   string    `json:"factor"`             // with its place: "cpu_quota@host"
	Doses    []string  `json:"doses"`              // levels
	Resource []float64 `json:"resource,omitempty"` // what a dose leaves of the resource: 0.9 = 90 %
	From     string    `json:"from"`               // "tester" or "router"
	// Expect is the elasticity of goodput that confirms the cause: 1 where the resource limits.
	Expect float64 `json:"expect"`
	Fix    string  `json:"fix,omitempty"` // level that takes the limit away
	Why    string  `json:"why"`
}

// Remedy is a change that helps, for one system.
type Remedy struct {
	System   string   `json:"system"` // "linux", "openwrt", "routeros", "freebsd", "" = any
	Do       string   `json:"do"`     // in words
	Commands []string `json:"commands,omitempty"`
	Risk     string   `json:"risk,omitempty"`
	// Factor and Level are the same in the vocabulary of plans, where there is one: tune tries these.
	Factor string `json:"factor,omitempty"`
	Level  string `json:"level,omitempty"`
	Tunnel string `json:"-"` // the kind of tunnel that it is for, such as "openvpn"; "" = any
	// When says whether it is still to be done, by what the trial shows of the state; nil = always.
	When func(*Observation) bool `json:"-"`
}

// Diagnosis is what is said of a cell or trial.
type Diagnosis struct {
	Class      string  `json:"class"` // of the first cause, or "unknown"
	Text       string  `json:"text"`  // one sentence
	Confidence float64 `json:"confidence"`
	// Node and Element say where the limit is, whether it has a name or not; "" = not known.
	Node    string  `json:"node,omitempty"`
	Element string  `json:"element,omitempty"`
	Causes  []Cause `json:"causes"` // most probable first, those above LeastShown
	// Excluded are classes that were examined and spoken against, each by a number.
	Excluded []Exclusion `json:"excluded,omitempty"`
	// NotExamined are classes of which nothing is said: what they read is missing, or decides nothing.
	NotExamined []Gap   `json:"not_examined,omitempty"`
	Trials      int     `json:"trials"`
	Path        []Stage `json:"path,omitempty"` // near to far, with what was used of each part
	// Ledger accounts for the packets and the delay of the trial with the median rate.
	Ledger *Ledger `json:"ledger,omitempty"`
}

// Cause is one candidate.
type Cause struct {
	Class       string              `json:"class"`
	Node        string              `json:"node,omitempty"`
	Element     string              `json:"element,omitempty"`
	Text        string              `json:"text"`
	Confidence  float64             `json:"confidence"` // probability
	GainAtMost  float64             `json:"gain_at_most,omitempty"`
	Facts       []evidence.Evidence `json:"facts"`
	Experiments []Experiment        `json:"experiments,omitempty"`
	Remedies    []Remedy            `json:"remedies,omitempty"`
	// Proofs are what experiments said of the cause, and Proved what these say together: "confirmed",
	// "refuted", "not refuted" or "undecided"; absent where there was none.
	Proofs []Proof `json:"proofs,omitempty"`
	Proved string  `json:"proved,omitempty"`
}

// Exclusion is a class that is ruled out.
type Exclusion struct {
	Class string            `json:"class"`
	By    evidence.Evidence `json:"by"`
}

// Gap is a class that could not be examined.
type Gap struct {
	Class string `json:"class"`
	Why   string `json:"why"`
}

// Named reports whether the first cause is the answer.
func (d *Diagnosis) Named() bool { return len(d.Causes) > 0 && d.Causes[0].Class == d.Class }

const notKnown = "the limit is not known"

// Thresholds of what is said.
const (
	LeastShown = .05 // confidence of a cause that is listed
	leastNamed = .50 // of one that is named as the answer
	// below which an unknown cause is not the answer, though several known ones share the rest
	leastUnknown = .10
	// score from which a cause that another outweighs is listed, too: both may hold the traffic back
	contributes = 1
	mostFacts   = 5
)

// Examine asks every rule about one trial.
func Examine(o *Observation) []Judgement {
	out := examine(o)
	Rate(out, weights())
	for i, r := range Rules() {
		if j := &out[i]; j.Score > 0 {
			j.Experiments, j.Remedies = Tests(o, *j), o.remedies(r.Remedies)
		}
	}
	return out
}

// Rate scores the judgements of one trial by weights.
func Rate(all []Judgement, w Weights) {
	for i := range all {
		all[i].rate(w)
		if all[i].NotExamined != "" {
			all[i].Score = math.NaN()
		}
	}
	leaveToCauses(all)
}

// examine asks every rule for its terms.
func examine(o *Observation) []Judgement {
	rules := Rules()
	out := make([]Judgement, 0, len(rules))
	for _, r := range rules {
		j := missing("the trial failed")
		if o.Trial.Status != record.TrialFailed && o.Trial.Traffic != nil || r.OfFailed {
			j = r.Judge(o)
		}
		j.Class = r.Class
		if len(j.Terms) > 0 && !slices.Contains(atAnyRate, r.Class) {
			j = j.with(o.satisfied())
		}
		if len(j.Facts) > mostFacts {
			j.Facts = j.Facts[:mostFacts]
		}
		out = append(out, j)
	}
	explainAway(out)
	return out
}

// Conclude joins the judgements of a cell's trials: each class has the median of its scores, and the words of
// the trial that is nearest to it. Rates are the trials' goodput: that they lie far apart stands beside the
// verdict, and where nothing else explains it the cell is unstable.
func Conclude(trials [][]Judgement, rates ...float64) *Diagnosis {
	if len(trials) == 0 {
		return nil
	}
	byClass := map[string][]Judgement{}
	for _, all := range trials {
		for _, j := range all {
			byClass[j.Class] = append(byClass[j.Class], j)
		}
	}
	var judged []Judgement
	for _, r := range Rules() {
		if j, ok := middle(byClass[r.Class]); ok {
			judged = append(judged, j)
		}
	}
	e, apart := acrossTrials(judged, rates)
	d := conclude(judged)
	d.Trials = len(trials)
	switch {
	case !apart, d.Class == Unstable:
	case d.Named():
		facts := d.Causes[0].Facts
		d.Causes[0].Facts = append(slices.Clone(facts[:min(len(facts), mostFacts-1)]), e)
	default:
		d.Text += "; " + e.Text
	}
	return d
}

// conclude ranks one judgement of each class by its probability.
func conclude(judged []Judgement) *Diagnosis {
	d := &Diagnosis{Class: Unknown, Causes: []Cause{}}
	var examined []Judgement
	for _, j := range judged {
		if j.NotExamined != "" {
			d.NotExamined = append(d.NotExamined, Gap{j.Class, j.NotExamined})
			continue
		}
		examined = append(examined, j)
	}
	probability := probabilities(examined)
	slices.SortStableFunc(examined, func(a, b Judgement) int {
		return cmp.Compare(probability[b.Class], probability[a.Class])
	})
	for _, j := range examined {
		p := probability[j.Class]
		if j.Score <= 0 || p < LeastShown && j.Score < contributes {
			switch {
			case j.Undecided != "":
				d.NotExamined = append(d.NotExamined, Gap{j.Class, j.Undecided})
			case j.Against != nil && j.Score < 0:
				d.Excluded = append(d.Excluded, Exclusion{j.Class, *j.Against})
			case j.Score == absent && len(j.Facts) > 0:
				d.Excluded = append(d.Excluded, Exclusion{j.Class, j.Facts[0]})
			}
			continue
		}
		if r, _ := RuleOf(j.Class); j.Remedies == nil { // of ends alone
			j.Remedies = r.Remedies
		}
		d.Causes = append(d.Causes, Cause{Class: j.Class, Node: j.Node, Element: j.Element, Text: j.Text,
			Confidence: p, GainAtMost: j.GainAtMost, Facts: j.Facts, Experiments: j.Experiments,
			Remedies: j.Remedies})
	}
	unknown := 1.0
	for _, j := range examined { // in one order: the sum of floating-point numbers depends on it
		unknown -= probability[j.Class]
	}
	if len(d.Causes) > 0 && (d.sureOfPlace() >= leastNamed || unknown < leastUnknown) {
		first := d.Causes[0]
		d.Class, d.Text, d.Confidence = first.Class, first.Text, first.Confidence
		d.Node, d.Element = first.Node, first.Element
		return d
	}
	d.Confidence = max(unknown, 0)
	d.Text = notKnown + ": no known cause fits the measurements"
	if i := slices.IndexFunc(examined, func(j Judgement) bool { return j.Place != "" }); i >= 0 {
		d.Text, d.Node, d.Element = examined[i].Place, examined[i].Node, examined[i].Element
	} else if len(d.Causes) > 0 {
		d.Text = notKnown + "; closest known cause: " + d.Causes[0].Text
	}
	return d
}

// sureOfPlace sums the probabilities of the causes at the element of the first one: a rate and the long queue
// in front of it share theirs.
func (d *Diagnosis) sureOfPlace() (p float64) {
	for i, c := range d.Causes {
		first := d.Causes[0]
		same := c.Node == first.Node && c.Element == first.Element && c.Element != "" && c.Element != "path"
		if i == 0 || same {
			p += c.Confidence
		}
	}
	return p
}

// middle is the judgement with the median score (the lower of two), if a half of the trials were examined;
// else why they were not.
func middle(all []Judgement) (Judgement, bool) {
	if len(all) == 0 {
		return Judgement{}, false
	}
	lacks := func(j Judgement) bool { return j.NotExamined != "" }
	with := slices.DeleteFunc(slices.Clone(all), lacks)
	if 2*len(with) < len(all) {
		return all[slices.IndexFunc(all, lacks)], true
	}
	slices.SortStableFunc(with, func(a, b Judgement) int { return cmp.Compare(a.Score, b.Score) })
	return with[(len(with)-1)/2], true
}

// probabilities turns scores into probabilities that sum to at most one; the rest is that of an unknown
// cause.
func probabilities(all []Judgement) map[string]float64 {
	most := 0.0
	for _, j := range all {
		most = max(most, j.Score)
	}
	out, sum := make(map[string]float64, len(all)), math.Exp(-most)
	for _, j := range all {
		p := math.Exp(j.Score - most)
		out[j.Class] = p
		sum += p
	}
	for class := range out {
		out[class] /= sum
	}
	return out
}

// given judges by what a trial must tell first: where it does not, why is set and the rule not examined.
func given[T any](read func(*Observation) (of T, why string),
	judge func(*Observation, T) Judgement) func(*Observation) Judgement {
	return func(o *Observation) Judgement {
		of, why := read(o)
		if why != "" {
			return missing(why)
		}
		return judge(o, of)
	}
}

// always are experiments that do not depend on the trial.
func always(all ...Experiment) func(*Observation) []Experiment {
	return func(*Observation) []Experiment { return all }
}

// spread is the interquartile range ÷ the median.
func spread(values []float64) float64 {
	m := statistics.Median(values)
	if len(values) < 2 || m <= 0 {
		return 0
	}
	s := slices.Sorted(slices.Values(values))
	return (statistics.QuantileSorted(s, .75) - statistics.QuantileSorted(s, .25)) / m
}

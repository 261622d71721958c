package diagnosis

import (
	"cmp"
	"maps"
	"math"
	"slices"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/metrics"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/statistics"
	"github.com/chokepoint-lab/chokepoint/internal/factor"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// Results of an experiment.
const (
	Confirmed = "confirmed"
	Refuted   = "refuted"
	Undecided = "undecided"
	// NotRefuted is the best result of an experiment in which the rate should not change, because other
	// limits predict that, too.
	NotRefuted = "not refuted"
)

// Proof holds the result of an experiment about a cause: the response of the rate to steps of the resource.
type Proof struct {
	record.Experiment
	By     string      `json:"by"`     // id of the experiment's run
	Cell   factor.Cell `json:"cell"`   // the cell without changes
	Metric string      `json:"metric"` // measured metric: goodput, or an RTT for a cause about delay
	// Elasticity is Δ ln rate ÷ Δ ln resource over all steps, with its interval.
	Elasticity statistics.Line `json:"elasticity"`
	Untouched  float64         `json:"untouched"` // median rate without a change
	Answers    []Answer        `json:"answers"`
	// Knee is the share of the resource below which the resource limits the rate. It is 1 if the resource is
	// already the limit, and 0 if even the smallest step did not reach the limit. The resource above the knee
	// is slack, and 1 ÷ Knee is an upper bound of the gain from removing another limit.
	Knee float64 `json:"knee,omitempty"`
	// Headroom is the rate at which the next limit was met ÷ the untouched rate. It is 0 unless the resource
	// was raised and the rate followed only part of the way.
	Headroom float64 `json:"headroom,omitempty"`
	// Gain is the measured gain from removing the limit: rate afterwards ÷ untouched rate.
	Gain *statistics.Value `json:"gain,omitempty"`
	// Delay is the RTT with the cause removed ÷ the untouched RTT, if the cause is about delay.
	Delay *statistics.Value `json:"delay,omitempty"`
	// Predicted is the diagnosis's upper bound of the gain, and PredictedBy its source; 0 means unknown.
	Predicted   float64 `json:"predicted,omitempty"`
	PredictedBy string  `json:"predicted_by,omitempty"`
	Verdict     string  `json:"verdict"`
	Text        string  `json:"text"` // the result in one sentence
}

// Answer is the response to one step. Ratio is the rate ÷ the untouched rate in the same block.
type Answer struct {
	record.SweepStep
	Ratio statistics.Value `json:"ratio"`
}

// Steps holds the rates of an experiment. Untouched maps each block to the rates of its windows without a
// change. Of maps each step's level to its rates by block.
type Steps struct {
	Untouched map[int][]float64
	Of        map[string]map[int]float64
}

// nearEnough is the largest distance at which an elasticity agrees with its expected value. It is half the
// distance between the elasticity of a limiting resource (1) and that of a resource with slack (0).
const nearEnough = .5

// Prove evaluates an experiment about a cause. metric names the values in d: goodput, or another metric such
// as an RTT.
func Prove(e record.Experiment, metric string, d Steps) *Proof {
	p := &Proof{Experiment: e, Metric: metric, Answers: []Answer{}, Verdict: Undecided}
	var all []float64
	base := map[int]float64{}
	for block, rates := range d.Untouched {
		logs := positiveLogs(rates)
		if len(logs) > 0 {
			base[block] = statistics.Total(logs) / float64(len(logs))
			all = append(all, positive(rates)...)
		}
	}

	if len(all) > 0 {
		p.Untouched = statistics.Median(all)
	}

	fixed := ratiosOf(d.Of[e.Fix], base)
	opened := flows(d.Of[e.Fix])
	switch {
	case metric != metrics.Goodput: // an RTT is reliably shorter only if the cause is removed
		p.checkFix(fixed)
	case e.Fix != "" && opened > 1 && opened == len(d.Untouched) && len(base) <= 1:
		// Traffic flows in every block without the limit, but in at most one block with it, so that there are
		// too few blocks to compare rates.
		p.Verdict = Confirmed
		without := "nothing arrives without it"
		if len(base) > 0 {
			without = say("without it anything arrives in %d of %d blocks", len(base), len(d.Untouched))
		}

		p.Text = say("confirmed by %s %s: %s, and traffic flows with it in all", p.Factor, p.Fix, without)
	case len(e.Steps) == 0:
		p.checkFix(fixed)
	case len(all) == 0:
		p.checkDead(d)
	default:
		if e.Fix != "" && len(fixed) > 0 {
			p.Gain = new(summariseLogs(fixed))
		}

		p.checkSteps(d, base)
	}

	return p
}

// checkSteps sets the verdict according to how the rate responds to the steps.
func (p *Proof) checkSteps(d Steps, base map[int]float64) {
	relative := map[int][]statistics.Point{} // ratios to the untouched windows, by block
	for _, step := range p.Steps {
		ratios := ratiosOf(d.Of[step.Level], base)
		if len(ratios) == 0 {
			continue
		}

		a := Answer{step, summariseLogs(ratios)}
		p.Answers = append(p.Answers, a)
		if step.Resource > 1 && p.falls() { // the step only looks for the next limit
			// A raised limit may itself reduce the rate, but does so less if it is raised further.
			if a.Ratio.Median < nextMet*step.Resource {
				p.Headroom = max(p.Headroom, a.Ratio.Median)
			}
			continue
		}

		x := math.Log(step.Resource)
		for block, y := range ratios {
			relative[block] = append(relative[block], statistics.Point{X: x, Y: y})
		}
	}

	var blocks [][]statistics.Point
	for _, block := range slices.Sorted(maps.Keys(base)) {
		var points []statistics.Point
		for _, y := range positiveLogs(d.Untouched[block]) {
			points = append(points, statistics.Point{Y: y - base[block]})
		}

		blocks = append(blocks, append(points, relative[block]...))
	}

	line, ok := statistics.BlockSlope(blocks)
	p.Elasticity = line
	if !ok {
		p.Text = "no step has a rate: nothing can be concluded"
		return
	}

	if k, ok := statistics.Knee(without(relative, -1)); ok {
		p.Knee = k
	}

	p.check(p.falls() && slack(relative))
}

// minDead is the minimum number of untouched windows without any traffic after which a limit that passes some
// traffic is excluded.
const minDead = 6

// checkDead sets the verdict for an experiment in which no traffic arrives in any untouched window. Traffic
// during a step, in at least two blocks, refutes a cause that predicts no improvement from that step: a step
// that reduces the resource, or one that should not change the rate.
func (p *Proof) checkDead(d Steps) {
	p.Text = "no untouched window has a rate: nothing can be concluded"
	windows := 0
	for _, rates := range d.Untouched {
		windows += len(rates)
	}

	if r, _ := RuleOf(p.Class); windows >= minDead && r.Kind != "" {
		p.Verdict = Refuted
		p.Text = say("refuted: nothing arrives in any of %d untouched windows, and a limit of this kind "+
			"lets some of it through", windows)
	}

	for _, step := range p.Steps {
		if flows(d.Of[step.Level]) > 1 && (step.Resource < 1 || p.Expect < nearEnough) {
			p.Verdict = Refuted
			p.Text = say("refuted by steps of %s: nothing arrives without them, but traffic flows with "+
				"%s, which should not free it", p.Factor, step.Level)
			return
		}
	}
}

// flows returns the number of blocks in which any traffic arrived.
func flows(rates map[int]float64) int { return len(positive(slices.Collect(maps.Values(rates)))) }

// without returns the points of all blocks except one.
func without(byBlock map[int][]statistics.Point, one int) (out []statistics.Point) {
	for _, block := range slices.Sorted(maps.Keys(byBlock)) {
		if block != one {
			out = append(out, byBlock[block]...)
		}
	}
	return out
}

// A resource has slack if the rate has a sharp bend below maxKnee or does not respond at all, instead of
// falling slowly over all steps. This must hold whichever block is left out, and needs at least minBlocks
// blocks.
const (
	maxKnee   = .85
	minBlocks = 3
)

func slack(byBlock map[int][]statistics.Point) bool {
	for block := range byBlock {
		points := without(byBlock, block)
		k, bends := statistics.Knee(points)
		if bends && (k > maxKnee || !sharp(points, math.Log(k))) {
			return false
		}
	}
	return len(byBlock) >= minBlocks
}

// Raised reports whether a step raised the resource to find the next limit.
func (p *Proof) Raised() bool {
	return p.falls() && slices.ContainsFunc(p.Steps, func(d record.SweepStep) bool { return d.Resource > 1 })
}

// falls reports whether a step reduces the resource.
func (p *Proof) falls() bool {
	return slices.ContainsFunc(p.Steps, func(d record.SweepStep) bool { return d.Resource < 1 })
}

// nextMet is a share of the factor by which a resource was raised. If the rate rises by less than this share,
// it has met another limit.
const nextMet = .8

// minGain is the minimum factor by which the rate rises, or a delay falls, if a limit is removed.
const minGain = 1.1

// checkFix sets the verdict by how much the rate rises, or the delay falls, when the supposed limit is
// removed.
func (p *Proof) checkFix(ratios map[int]float64) {
	if len(ratios) < 2 {
		p.Text = say("too few windows to tell: %d with %s %s", len(ratios), p.Factor, p.Fix)
		return
	}

	v := summariseLogs(ratios)
	low := v.Low
	high := v.High
	is := "the rate rises"
	isNot := "the rate does not rise"
	if p.Metric == metrics.Goodput {
		p.Gain = &v
	} else {
		p.Delay = &v
		low = 1 / v.High
		high = 1 / v.Low
		is = "the delay falls"
		isNot = "the delay does not fall"
	}

	what := "the interval allows both"
	switch {
	case low > minGain:
		p.Verdict, what = Confirmed, is
	case high < minGain:
		p.Verdict, what = Refuted, isNot
	}

	p.Text = say("%s by %s %s: %s (%m, %m to %m)", p.Verdict, p.Factor, p.Fix, what, v.Median, v.Low, v.High)
}

// frees reports whether the rate rises when the limit is removed.
func (p *Proof) frees() bool { return p.Gain != nil && p.Gain.N > 1 && p.Gain.Low > minGain }

// check compares the elasticity with the expected value. If the rate should not change, a change refutes the
// cause, but a constant rate does not confirm it, because other limits predict that, too.
func (p *Proof) check(slack bool) {
	l := p.Elasticity
	what := "the rate follows it"
	if l.Level == 0 {
		p.Text = say("too few windows to tell: elasticity %.2g from %d windows", l.Slope, l.N)
		return
	}

	moves := p.Expect >= nearEnough
	below := p.Expect - nearEnough
	above := p.Expect + nearEnough
	switch {
	case moves && l.Low > below && l.Low <= 2*p.Expect:
		p.Verdict = Confirmed
	case moves && p.frees():
		// If removing something raises the rate, it is a limit, however noisy the steps are.
		p.Verdict, what = Confirmed, "the steps leave it open, but without it the rate rises"
	case moves && l.High < below:
		p.Verdict, what = Refuted, "the rate does not follow it"
	case !moves && (l.Low > above || l.High < below):
		p.Verdict, what = Refuted, "the rate moves with it, but should not"
	case !moves && l.Low > below && l.High < above:
		p.Verdict, what = NotRefuted, "the rate does not move with it, as expected, and as with other limits"
	case moves && slack && l.High < 1+nearEnough:
		p.Verdict, what = Refuted, "the rate follows it no more than its slack allows"
	case p.Gain != nil && p.Gain.N > 1 && p.Gain.High < minGain:
		p.Verdict, what = Refuted, "the interval allows both, but without it the rate does not rise"
	case moves && l.Low > 2*p.Expect:
		what = "the rate falls far more than that"
	default:
		what = "the interval allows both"
	}

	p.Text = say("%s by steps of %s: %s (elasticity %.2g, %.2g to %.2g, expected %.2g)", p.Verdict,
		p.Factor, what, l.Slope, l.Low, l.High, p.Expect)
	smallest := 1.0
	for _, a := range p.Answers {
		smallest = min(smallest, a.Resource)
	}

	switch {
	case !moves:
	case p.Verdict == Refuted && p.Knee > 0:
		p.Text += say("; it only limits below %h of what there is", p.Knee)
	case p.Verdict == Refuted && smallest < 1:
		p.Text += say("; %h of it is enough", smallest)
	case p.Verdict == Confirmed && p.Headroom > 0:
		p.Text += say("; raised, it meets the next limit at %m the rate", p.Headroom)
	}

	if p.Gain != nil {
		p.Text += say("; without it %m the rate", p.Gain.Median)
	}
}

// Predict records the lowest gain that was predicted before the measurement, and its source.
func (p *Proof) Predict(gain float64, by string) {
	if gain > 0 && (p.Predicted == 0 || gain < p.Predicted) {
		p.Predicted, p.PredictedBy = gain, by
	}
}

// Decide combines the results of the experiments about a cause. If the rate rose when the limit was removed,
// the cause is confirmed, whatever the other results. Otherwise, a refutation outweighs any other
// confirmation. Such a confirmation counts only if the rate had to change in the experiment. Experiments in
// which the rate should not change can only refute.
func Decide(proofs []Proof) string {
	verdict := Undecided
	for _, p := range proofs {
		switch {
		case p.Verdict == Confirmed && p.frees():
			return Confirmed
		case p.Verdict == Refuted:
			verdict = Refuted
		case verdict == Refuted:
		case p.Verdict == Confirmed && p.Expect >= nearEnough:
			verdict = Confirmed
		case p.Verdict == NotRefuted && verdict != Confirmed:
			verdict = NotRefuted
		}
	}
	return verdict
}

// sharp reports whether a line with a bend at lnK fits the points better than a straight line.
func sharp(points []statistics.Point, lnK float64) bool {
	var sxx, sxy, bent, straight float64
	for _, p := range points {
		sxx += p.X * p.X
		sxy += p.X * p.Y
	}

	for _, p := range points {
		bent += math.Abs(p.Y - min(0, p.X-lnK))
		straight += math.Abs(p.Y - p.X*sxy/sxx)
	}

	return bent < straight
}

func positive(rates []float64) []float64 {
	return slices.DeleteFunc(slices.Clone(rates), func(r float64) bool { return r <= 0 })
}

func positiveLogs(rates []float64) []float64 {
	logs := positive(rates)
	for i, r := range logs {
		logs[i] = math.Log(r)
	}
	return logs
}

// ratiosOf returns ln(rate ÷ untouched rate) by block.
func ratiosOf(rates, base map[int]float64) map[int]float64 {
	out := map[int]float64{}
	for block, r := range rates {
		if b, ok := base[block]; ok && r > 0 {
			out[block] = math.Log(r) - b
		}
	}
	return out
}

func summariseLogs(byBlock map[int]float64) statistics.Value {
	values := statistics.ByBlock(byBlock)
	for i, v := range values {
		values[i] = math.Exp(v)
	}
	return statistics.Summarise(values)
}

// Tests returns the experiments that test a cause, at most one per factor. They come from the levels in the
// plan, from the cause's rule, and from the kind of limit. Experiments at the tester come first.
func Tests(o *Observation, class string) (out []Experiment) {
	r, _ := RuleOf(class)
	all := o.statedTests(r)
	for _, experiment := range r.Experiments {
		all = append(all, experiment(o))
	}

	for _, e := range append(all, o.sweepTests(r)...) {
		e = o.fit(e)
		e.Class = class
		known := slices.ContainsFunc(out, func(x Experiment) bool { return x.Factor == e.Factor })
		if !known && (len(e.Steps) > 1 || len(e.Steps) == 0 && e.Fix != "") {
			out = append(out, e)
		}
	}

	slices.SortStableFunc(out, func(a, b Experiment) int {
		return cmp.Compare(yes(a.From != FromTester), yes(b.From != FromTester))
	})
	return out
}

package diagnosis

import (
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/metrics"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/statistics"
	"github.com/chokepoint-lab/chokepoint/internal/factor"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// answer makes the rates of an experiment of three blocks: what an untouched window, or a step, has of the
// resource goes through response, with noise.
func answered(e record.Experiment, response func(resource float64) float64) Steps {
	rng := rand.New(rand.NewPCG(3, 3))
	rate := func(resource float64) float64 {
		return 1e8 * response(resource) * math.Exp(.03*rng.NormFloat64())
	}
	d := Steps{map[int][]float64{}, map[string]map[int]float64{}}
	for block := 1; block <= 3; block++ {
		d.Untouched[block] = []float64{rate(1), rate(1), rate(1)}
		for _, step := range e.Steps {
			if d.Of[step.Level] == nil {
				d.Of[step.Level] = map[int]float64{}
			}

			d.Of[step.Level][block] = rate(step.Resource)
		}
	}

	return d
}

func TestProve(t *testing.T) {
	limits := func(r float64) float64 { return r }
	slack := func(k float64) func(float64) float64 { return func(r float64) float64 { return min(1, r/k) } }
	still := func(float64) float64 { return 1 }
	down := record.Experiment{
		Class:  "shaper",
		Factor: "shape@router.wan",
		Expect: 1,
		Steps: []record.SweepStep{
			{Level: "a", Resource: .85}, {Level: "b", Resource: .7}, {Level: "c", Resource: .5}},
	}
	up := record.Experiment{
		Class:  "receive-window",
		Factor: "socket_buffer",
		Expect: 1,
		Steps: []record.SweepStep{
			{Level: "a", Resource: 1.5}, {Level: "b", Resource: 2.5}, {Level: "c", Resource: 4}},
	}
	flat := down
	flat.Expect = 0
	for _, c := range []struct {
		name     string
		e        record.Experiment
		response func(float64) float64
		want     string
		knee     float64
		says     string
	}{
		{"the resource limits", down, limits, Confirmed, 1, "the rate follows it"},
		{"slack of 45 %", down, slack(.55), Refuted, .55, "only limits below 5"},
		{"slack beyond the steps", down, still, Refuted, 0, "50.0 % of it is enough"},
		{"slack of 25 %", down, slack(.75), Refuted, .75, "only limits below 7"},
		{"between", down, math.Sqrt, Undecided, .87, "allows both"},
		{"falls far more than it should", down, func(r float64) float64 { return math.Pow(r, 4) }, Undecided, 1,
			"far more"},
		{"more of it helps", up, limits, Confirmed, 0, ""},
		{"more of it does nothing", up, still, Refuted, 0, "does not follow"},
		{"must not move, and does not", flat, still, NotRefuted, 0, "as expected"},
		{"must not move, and does", flat, limits, Refuted, 1, "but should not"},
	} {
		p := Prove(c.e, "goodput_bps", answered(c.e, c.response))
		if p.Verdict != c.want || math.Abs(p.Knee-c.knee) > .04 || !strings.Contains(p.Text, c.says) {
			t.Errorf("%s: got %s, knee %g: %s", c.name, p.Verdict, p.Knee, p.Text)
		}

		if len(p.Answers) != 3 || p.Answers[2].Ratio.N != 3 || math.Abs(p.Untouched/1e8-1) > .1 {
			t.Errorf("%s: got %+v", c.name, p.Answers)
		}
	}
}

// TestProveDelay: where a finding is about delay, what empties the queue must make it fall.
func TestProveDelay(t *testing.T) {
	e := record.Experiment{Class: Bufferbloat, Factor: "pacing", Fix: "8M", Expect: 1}
	for _, c := range []struct {
		paced float64
		want  string
		says  string
	}{
		{2e6, Confirmed, "the delay falls (×0.0"},
		{101e6, Refuted, "the delay does not fall"},
		{400e6, Refuted, "the delay does not fall"},
		{0, Undecided, "too few windows"},
	} {
		p := Prove(e, metrics.RTTTCP, Steps{map[int][]float64{1: {100e6, 110e6}, 2: {100e6}, 3: {101e6}},
			map[string]map[int]float64{"8M": {1: c.paced, 2: 1.01 * c.paced, 3: c.paced}}})
		if p.Verdict != c.want || !strings.Contains(p.Text, c.says) || p.Gain != nil {
			t.Errorf("%g ms: got %s: %s", c.paced/1e6, p.Verdict, p.Text)
		}
	}
}

// TestProveOfLittle: windows without a rate are no evidence, and one pair of windows gives no verdict.
func TestProveOfLittle(t *testing.T) {
	e := record.Experiment{
		Factor: "shape",
		Expect: 1,
		Fix:    "off",
		Steps:  []record.SweepStep{{Level: "a", Resource: .5}},
	}
	for _, d := range []Steps{
		{},
		{Untouched: map[int][]float64{1: {0}}, Of: map[string]map[int]float64{"a": {1: 5}}},
		{Untouched: map[int][]float64{1: {10}}, Of: map[string]map[int]float64{"a": {2: 5}}},
		{Untouched: map[int][]float64{1: {10}}, Of: map[string]map[int]float64{"a": {1: 5}}},
	} {
		if p := Prove(e, "goodput_bps", d); p.Verdict != Undecided || p.Text == "" {
			t.Errorf("%+v: got %s: %s", d, p.Verdict, p.Text)
		}
	}

	// Nothing gets through, but does with a step that should not free it; one that should says nothing.
	opened := Steps{
		Untouched: map[int][]float64{1: {0}, 2: {0}},
		Of:        map[string]map[int]float64{"a": {1: 5, 2: 5}},
	}
	for _, c := range []struct {
		expect, resource float64
		want             string
	}{{0, 2, Refuted}, {1, .5, Refuted}, {1, 2, Undecided}} {
		x := record.Experiment{
			Factor: "mss",
			Expect: c.expect,
			Steps: []record.SweepStep{{
				Level:    "a",
				Resource: c.resource,
			}},
		}
		if p := Prove(x, "goodput_bps", opened); p.Verdict != c.want {
			t.Errorf("expect %g of %g: got %s: %s", c.expect, c.resource, p.Verdict, p.Text)
		}
	}

	dead := Steps{Untouched: map[int][]float64{1: {0, 0}, 2: {0, 0}, 3: {0, 0}}}
	for class, want := range map[string]string{Shaper: Refuted, SendBuffer: Refuted, RandomLoss: Refuted,
		PMTUBlackHole: Undecided} {
		x := record.Experiment{
			Class:  class,
			Factor: "streams",
			Expect: 1,
			Steps:  []record.SweepStep{{Level: "2", Resource: 2}},
		}
		if p := Prove(x, "goodput_bps", dead); p.Verdict != want {
			t.Errorf("nothing arrives, said to be %s: got %s: %s", class, p.Verdict, p.Text)
		}
	}

	p := Prove(e, "goodput_bps", Steps{map[int][]float64{1: {10, 10}, 2: {20}},
		map[string]map[int]float64{"a": {1: 5, 2: 10}, "off": {1: 40, 2: 80}}})
	if p.Gain == nil || math.Abs(p.Gain.Median-4) > 1e-9 {
		t.Errorf("gain: got %+v, want 4", p.Gain)
	}

	p.Predict(0, "nothing")
	p.Predict(5, "a")
	p.Predict(4.5, "b")
	p.Predict(9, "c")
	if p.Predicted != 4.5 || p.PredictedBy != "b" {
		t.Errorf("predicted: got %g by %s, want the lowest bound", p.Predicted, p.PredictedBy)
	}
}

func TestDecide(t *testing.T) {
	of := func(expect float64, verdict string) Proof {
		return Proof{Experiment: record.Experiment{Expect: expect}, Verdict: verdict}
	}
	removed := func(low float64) Proof {
		p := of(1, Confirmed)
		p.Gain = &statistics.Value{Spread: statistics.Spread{Low: low, High: 4, N: 3}, Median: 3}
		return p
	}
	for _, c := range []struct {
		proofs []Proof
		want   string
	}{
		{nil, Undecided},
		{[]Proof{of(1, Confirmed)}, Confirmed},
		{[]Proof{of(1, Confirmed), of(0, Refuted)}, Refuted},
		{[]Proof{of(0, Confirmed)}, Undecided},
		{[]Proof{of(0, Confirmed), of(0, Confirmed)}, Undecided},
		{[]Proof{of(0, Confirmed), of(1, Confirmed)}, Confirmed},
		{[]Proof{of(0, Confirmed), of(1, Undecided)}, Undecided},
		{[]Proof{of(0, NotRefuted), of(1, Undecided)}, NotRefuted},
		{[]Proof{of(0, NotRefuted), of(1, Confirmed)}, Confirmed},
		{[]Proof{of(0, NotRefuted), of(0, Refuted)}, Refuted},
		{[]Proof{removed(2), of(1, Refuted)}, Confirmed},
		{[]Proof{removed(1.05), of(1, Refuted)}, Refuted},
	} {
		got := Decide(c.proofs)
		if got != c.want {
			t.Errorf("%+v: got %s, want %s", c.proofs, got, c.want)
		}
	}
}

// observed is a trial of one TCP flow of 1448-byte segments in a cell.
func observed(cell factor.Cell) *Observation {
	t := &record.Trial{
		Row: record.Row{Assignment: record.Assignment{Kind: record.RowLoad, Factors: cell}},
		Traffic: &record.Traffic{
			Load: record.Load{Protocol: "tcp"},
			Flows: []record.Flow{{
				ReceivedBytes: 10e6,
				ReceiverNs:    1e9,
				TCP:           &record.TCP{MSS: 1448, MinRTTNs: 5e6},
			}},
		},
	}
	var r record.Run
	r.Design.Catalogue = &factor.Catalogue{Factors: append(factor.Base(factor.Options{}),
		factor.Declaration{Name: "shape", Without: &factor.Without{Level: "off"}},
		factor.Declaration{Name: "fault", Without: &factor.Without{Level: "none"}},
		factor.Declaration{Name: "cpu_quota", Without: &factor.Without{Level: "off"}})}
	return &Observation{
		Run:   &r,
		Trial: t,
		Metrics: &metrics.Measured{
			Values: map[string]float64{metrics.Goodput: 8e7}},
	}
}

func TestTestsOfACell(t *testing.T) {
	const tbf = "tbf rate 50M burst 128k limit 256k"
	for _, c := range []struct {
		class string
		cell  factor.Cell
		want  string // of the experiment with that factor, steps and what they leave, and the fix
	}{
		{"shaper", factor.Cell{"shape@router.wan": "50M"}, "shape@router.wan 42500k 35000k 25000k 400000k " +
			"51200000k fix off"},
		{"link-rate", factor.Cell{"queue@router.wan": tbf}, "queue@router.wan tbf rate 42500k burst 128k " +
			"limit 256k tbf rate 35M burst 128k limit 256k tbf rate 25M burst 128k limit 256k tbf rate " +
			"400M burst 1m limit 256k tbf rate 51200M burst 8m limit 256k fix " + longQueue},
		{"link-rate", factor.Cell{"fault@router.wan": "link_rate=1.5G+loss=1%"},
			"fault@router.wan link_rate=1275M+loss=1% link_rate=1050M+loss=1% link_rate=750M+loss=1% " +
				"link_rate=12000M+loss=1% link_rate=1536000M+loss=1% fix loss=1%"},
		{"receive-window", factor.Cell{"fault@server": "receive_buffer=16k"},
			"fault@server receive_buffer=13926 receive_buffer=11469 receive_buffer=8192 receive_buffer=131072 " +
				"receive_buffer=16777216 fix none"},
		{"softirq-one-core", factor.Cell{"cpu_quota@host": "40%"}, "cpu_quota@host 34% 28% 20% fix off"},
		{"shaper", factor.Cell{"streams": "2"}, "streams 4 8 fix "},
		{"softirq-one-core", factor.Cell{}, "mss 1014 652 434 fix "},
		{"receive-window", factor.Cell{}, "socket_buffer 75000 125000 200000 fix "},
	} {
		o := observed(c.cell)
		var got []string
		r, _ := RuleOf(c.class)
		for _, e := range append(o.statedTests(r), o.sweepTests(r)...) {
			got = append(got, e.Factor+" "+strings.Join(e.Steps, " ")+" fix "+e.Fix)
			if len(e.Steps) != len(e.Resource) || e.Why == "" || e.From == "" {
				t.Errorf("%s: incomplete: %+v", c.class, e)
			}
		}

		if !slices.Contains(got, c.want) {
			t.Errorf("%s in %v: got %q, want %q", c.class, c.cell, got, c.want)
		}
	}
}

// TestRulesTestsFitTheCell: every experiment that a class is put to can be made, from the tester's side
// first.
func TestRulesTestsFitTheCell(t *testing.T) {
	for _, r := range Rules() {
		router := false
		for _, e := range Tests(observed(factor.Cell{"protocol": "tcp", "cpu_quota@host": "50%"}),
			r.Class) {
			if e.From == FromTester && router {
				t.Errorf("%s: %s comes after what is done on the router", r.Class, e.Factor)
			}

			router = router || e.From != FromTester
			if e.Class != r.Class {
				t.Errorf("%s: an experiment about %q", r.Class, e.Class)
			}

			for i, share := range e.Resource {
				if share == 1 || share <= 0 || len(e.Steps) != len(e.Resource) {
					t.Errorf("%s: step %s of %s leaves %g", r.Class, e.Steps[i], e.Factor, share)
				}
			}
		}
	}
}

// TestProveByFix: what takes a limit away confirms it by a rate that rises, and refutes it by one that does
// not; where nothing arrived before, any rate is a gain.
func TestProveByFix(t *testing.T) {
	e := record.Experiment{Class: Fragmentation, Factor: "mss", Fix: "1300", Expect: 1}
	for _, c := range []struct {
		name      string
		untouched []float64
		fixed     []float64
		want      string
	}{
		{"rises", []float64{1e7, 1.1e7, 1.05e7}, []float64{3e7, 3.1e7, 3.2e7}, Confirmed},
		{"stays", []float64{1e7, 1.1e7, 1.05e7}, []float64{1.02e7, 1.06e7, 1.04e7}, Refuted},
		{"falls or rises", []float64{1e7, 1e7, 1e7}, []float64{.8e7, 1.5e7, 1.3e7}, Undecided},
		{"nothing before", []float64{0, 0, 0}, []float64{3e7, 3.1e7, 3.2e7}, Confirmed},
		{"hardly anything before", []float64{0, 3e4, 0}, []float64{3e7, 3.1e7, 3.2e7}, Confirmed},
		{"nothing at all", []float64{0, 0, 0}, []float64{0, 0, 0}, Undecided},
		{"nothing before, and seldom after", []float64{0, 0, 0}, []float64{0, 3.1e7, 3.2e7}, Undecided},
		{"one window", []float64{1e7}, []float64{3e7}, Undecided},
	} {
		d := Steps{map[int][]float64{}, map[string]map[int]float64{"1300": {}}}
		for block, r := range c.untouched {
			d.Untouched[block], d.Of["1300"][block] = []float64{r, r}, c.fixed[block]
		}

		p := Prove(e, metrics.Goodput, d)
		if p.Verdict != c.want || p.Text == "" {
			t.Errorf("%s: got %s (%s), want %s", c.name, p.Verdict, p.Text, c.want)
		}
	}
}

// TestHeadroom: a raised resource says where the next limit lies, and nothing of whether this one limits.
func TestHeadroom(t *testing.T) {
	e := record.Experiment{
		Class:  Shaper,
		Factor: "shape",
		Fix:    "off",
		Expect: 1,
		Steps: []record.SweepStep{
			{Level: "42M", Resource: .85}, {Level: "35M", Resource: .7}, {Level: "25M", Resource: .5},
			{Level: "400M", Resource: 8}, {Level: "51200M", Resource: 1024}},
	}
	// The next limit, and the headroom: near by, far away, or not met.
	for next, want := range map[float64]float64{150e6: 3, 1000e6: 20, 48000e6: 0} {
		d := Steps{map[int][]float64{}, map[string]map[int]float64{"42M": {}, "35M": {}, "25M": {},
			"400M": {}, "51200M": {}, "off": {}}}
		for block := range 3 {
			d.Untouched[block] = []float64{50e6, 50.1e6, 49.9e6}
			for level, rate := range map[string]float64{"42M": 42.5e6, "35M": 35e6, "25M": 25e6,
				"400M": min(400e6, next), "51200M": min(51200e6, next*1.01), "off": next * 1.02} {
				d.Of[level][block] = rate * (1 + .001*float64(block))
			}
		}

		p := Prove(e, metrics.Goodput, d)
		if p.Verdict != Confirmed || math.Abs(p.Headroom-want) > .3 || math.Abs(p.Elasticity.Slope-1) > .05 {
			t.Errorf("%.0f bit/s: %s, headroom %.2f, want %v: %s", next, p.Verdict, p.Headroom, want, p.Text)
		}
	}
}

// TestRemovalDecidesWhereStepsDoNot: steps that answer at random decide nothing, but what sets the rate free,
// or does not, when it is taken away.
func TestRemovalDecidesWhereStepsDoNot(t *testing.T) {
	e := record.Experiment{
		Class:  Policer,
		Factor: "policer",
		Fix:    "off",
		Expect: 1,
		Steps: []record.SweepStep{
			{Level: "16M", Resource: .85}, {Level: "13M", Resource: .7}, {Level: "9M", Resource: .5}},
	}
	for without, want := range map[float64]string{5: Confirmed, 1: Refuted, 0: Undecided} {
		d := Steps{map[int][]float64{}, map[string]map[int]float64{"16M": {}, "13M": {}, "9M": {}, "off": {}}}
		for block, noise := range []float64{.6, 1.5, 1} {
			d.Untouched[block] = []float64{10e6, 10e6 / noise}
			d.Of["16M"][block], d.Of["13M"][block], d.Of["9M"][block] = 9e6, 8e6*noise, 6e6/noise
			d.Of["off"][block] = without * 9e6 / math.Sqrt(noise)
		}

		p := Prove(e, metrics.Goodput, d)
		if p.Verdict != want {
			t.Errorf("×%v without it: got %s (%s), want %s", without, p.Verdict, p.Text, want)
		}
	}
}

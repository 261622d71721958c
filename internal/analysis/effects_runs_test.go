package analysis

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/model"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/statistics"
	"github.com/chokepoint-lab/chokepoint/internal/catalogue"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// publishedByClock are the rates of the study of the RB5009 by clock and queue, up.
func publishedByClock(t *testing.T) map[string]map[string]float64 {
	t.Helper()
	c, err := catalogue.Published()
	if err != nil {
		t.Fatal(err)
	}

	out := map[string]map[string]float64{"auto": {}, "1400": {}}
	for _, r := range c.Filtered(catalogue.Filter{Source: "rb5009", Streams: 4}) {
		if r.Direction == "up" && r.GoodputBps != nil {
			out[r.Clock][r.Queue] = *r.GoodputBps
		}
	}
	return out
}

// handRun is a run that varies the queue of a router whose clock somebody has set before, as RouterOS tells
// it. The rates are those of the study, times what else changed since the other run.
func handRun(t *testing.T, id, clock string, blocks int, seed uint64, drift float64) *Document {
	t.Helper()
	rates := publishedByClock(t)[clock]
	queues := []string{"only-hardware-queue", "fq-codel", "cake"}
	var cells []record.Factors
	for _, queue := range queues {
		if rates[queue] == 0 {
			t.Fatalf("the study has no rate of %s at %s", queue, clock)
		}

		cells = append(cells, quickFactors("streams", "4", "queue@router.wan", queue))
	}

	s := newSynthetic(seed)
	var trials []record.Trial
	for block := 1; block <= blocks; block++ {
		for i, f := range cells {
			rate := rates[queues[i]] * drift * (1 + .01*s.rng.NormFloat64())
			trials = append(trials, s.trial(f, block, len(cells)*block+i, rate))
		}
	}

	run := syntheticRun(cells...)
	run.ID = id
	setting := map[string]string{"auto": "auto", "1400": "1400MHz"}[clock]
	i := slices.IndexFunc(run.Environments, func(e record.Environment) bool { return e.Node == "router" })
	if i < 0 {
		i = len(run.Environments)
		run.Environments = append(slices.Clone(run.Environments), record.Environment{Node: "router"})
	}

	run.Environments[i].Facts = map[string]string{"cpu_frequency_set": setting, "product": "RB5009UPr+S+IN"}
	return Derive(run, trials)
}

// TestQueueAndClockByHand: a router's clock takes a reboot, so each run has one. What the queue gains at each
// clock is measured within a run, and their ratio is right although the second run is 7 % slower throughout.
// Neither that ratio nor the gain of the clock has a verdict: two runs prove nothing.
func TestQueueAndClockByHand(t *testing.T) {
	docs := []*Document{handRun(t, "a", "auto", 6, 1, 1), handRun(t, "b", "1400", 6, 2, .93)}
	e, err := EffectsOfRuns(docs, nil)
	if err != nil {
		t.Fatal(err)
	}

	i := slices.IndexFunc(e.Interactions, func(x model.Interaction) bool {
		return x.Factor == "queue@router.wan" && x.With == "clock" || x.Factor == "clock" &&
			x.With == "queue@router.wan"
	})
	if i < 0 {
		t.Fatalf("there is no interaction of queue and clock: %+v", e.Interactions)
	}

	x := e.Interactions[i]
	want := (853 / 369.2) / (883. / 852)
	ratio := math.Exp(math.Abs(math.Log(x.Ratio.Value)))
	if math.Abs(ratio/want-1) > .03 || !x.Between || x.Blocks != 1 || x.Verdict != statistics.TooFew() {
		t.Errorf("interaction: got ×%g, want ×%g of one pair of runs: %+v", ratio, want, x)
	}

	for _, m := range e.Main {
		between := m.Factor == "clock"
		if m.Between != between || between && (m.Blocks != 1 || m.Verdict != statistics.TooFew()) {
			t.Errorf("%s %s: between runs %v, of %d, %s", m.Factor, m.Level, m.Between, m.Blocks, m.Verdict)
		}
	}

	if len(e.Runs) != 2 || e.Runs[1].Levels["clock"] != "1400MHz" {
		t.Errorf("runs: %+v", e.Runs)
	}

	for _, text := range e.Differs {
		if strings.Contains(text, "cpu_frequency_set") {
			t.Errorf("the clock is a factor, and is listed as a difference, too: %s", text)
		}
	}
}

// TestRunsRepeatWhatIsSetByHand: a verdict on what was set between runs needs six of each, whatever blocks
// they have; runs that are alike add blocks.
func TestRunsRepeatWhatIsSetByHand(t *testing.T) {
	var docs []*Document
	var clocks []string
	for i := range 6 {
		for _, clock := range []string{"auto", "1400"} {
			docs = append(docs, handRun(t, clock+string(rune('a'+i)), clock, 2, uint64(len(docs)), 1))
			clocks = append(clocks, clock)
		}
	}

	e, err := EffectsOfRuns(docs, map[string][]string{"frequency": clocks})
	if err != nil {
		t.Fatal(err)
	}

	i := slices.IndexFunc(e.Main, func(m model.Effect) bool { return m.Factor == "frequency" })
	if i < 0 || e.Main[i].Blocks != 6 || e.Main[i].Verdict != statistics.Different {
		t.Errorf("frequency: %+v", e.Main)
	}

	for _, x := range e.Interactions {
		if !x.Between || x.Blocks != 6 || x.Verdict != statistics.Different {
			t.Errorf("queue and frequency: %+v", x)
		}
	}

	i = slices.IndexFunc(e.Main, func(m model.Effect) bool { return m.Level == "fq-codel" })
	if i < 0 || e.Main[i].Blocks != 12 || e.Main[i].Between {
		t.Errorf("queue: %+v", e.Main)
	}
}

// TestBlocksOfUnequalRuns: of runs with 8 and 6 blocks the two that one lacks are counted, and the chart is
// drawn without them.
func TestBlocksOfUnequalRuns(t *testing.T) {
	docs := []*Document{handRun(t, "a", "auto", 8, 1, 1), handRun(t, "b", "1400", 6, 2, 1)}
	e, err := EffectsOfRuns(docs, nil)
	if err != nil {
		t.Fatal(err)
	}

	for _, m := range e.Main {
		if m.Unused != 2 || m.Measured != 8 || !m.Between && m.Blocks != 6 {
			t.Errorf("%s %s: %d of %d blocks unused, %d counted", m.Factor, m.Level, m.Unused, m.Measured,
				m.Blocks)
		}
	}

	docs[0] = handRun(t, "a", "auto", 6, 1, 1) // the same random numbers
	same, err := EffectsOfRuns(docs, nil)
	if err != nil {
		t.Fatal(err)
	}

	diff := cmp.Diff(same.Charts, e.Charts)
	if diff != "" {
		t.Errorf("charts without and with unused blocks: %s", diff)
	}
}

// TestCellsPairWithinTheirRun: a cell that only the second of two like runs has is compared with that run's
// other cells, and not with the first run's.
func TestCellsPairWithinTheirRun(t *testing.T) {
	one := quickFactors()
	two := quickFactors("streams", "4")
	var docs []*Document
	for _, cells := range [][]record.Factors{{one}, {one, two}} {
		rates := []float64{4e8, 8e8}[:len(cells)]
		if len(docs) == 0 {
			rates = []float64{1e8}
		}

		run, trials := sharesRun(cells, rates)
		run.ID = string(rune('a' + len(docs)))
		docs = append(docs, Derive(run, trials))
	}

	e, err := EffectsOfRuns(docs, nil)
	if err != nil {
		t.Fatal(err)
	}

	if len(e.Main) != 1 || e.Main[0].Between || math.Abs(e.Main[0].Ratio.Value-2) > .1 {
		t.Errorf("got %+v, want twice within the second run", e.Main)
	}
}

// TestQueueByHand: a queue that was set by hand is a factor as well, as a router with RouterOS and as Linux
// tell it; in a run that sets queues itself, what was found before is none.
func TestQueueByHand(t *testing.T) {
	run := func(id, queue string, rate float64, agent bool, cells ...record.Factors) *Document {
		run, trials := sharesRun(cells, slices.Repeat([]float64{rate}, len(cells)))
		run.ID = id
		e := record.Environment{Node: "router", Facts: map[string]string{"device:wan:queue": queue}}
		if agent {
			e.Facts = nil
			e.Inventory = &record.Inventory{Devices: []record.NetDevice{{
				Name:   "wan",
				Queues: []record.QueueFacts{{Kind: queue, Handle: "1:", Parent: "root", Level: queue}},
			}}}
		}

		run.Environments = []record.Environment{e}
		return Derive(run, trials)
	}
	for _, agent := range []bool{false, true} {
		e, err := EffectsOfRuns([]*Document{run("a", "pfifo", 4e8, agent, quickFactors()),
			run("b", "fq_codel", 8e8, agent, quickFactors())}, nil)
		if err != nil {
			t.Fatal(err)
		}

		if len(e.Main) != 1 || e.Main[0].Factor != "queue of wan" || !e.Main[0].Between ||
			math.Abs(e.Main[0].Ratio.Value-2) > .1 || len(e.Differs) > 0 {
			t.Errorf("agent %v: %+v, differs: %q", agent, e.Main, e.Differs)
		}
	}

	own := quickFactors("queue@router.wan", "cake")
	e, err := EffectsOfRuns([]*Document{run("a", "pfifo", 4e8, false, own),
		run("b", "fq_codel", 8e8, false, own)}, nil)
	if err != nil || len(e.Main) > 0 {
		t.Errorf("runs that set the queue: %v, %+v", err, e.Main)
	}
}

// TestLabelsOfRunsAreChecked: a label has a level for each run, and is not what a run itself varied.
func TestLabelsOfRunsAreChecked(t *testing.T) {
	docs := []*Document{handRun(t, "a", "auto", 1, 1, 1), handRun(t, "b", "1400", 1, 2, 1)}
	for _, test := range []struct {
		labels map[string][]string
		want   string
	}{
		{map[string][]string{"clock": {"auto"}}, "clock has 1 levels for 2 runs"},
		{map[string][]string{"queue@router.wan": {"x", "y"}}, "queue@router.wan varies within run a"},
	} {
		_, err := EffectsOfRuns(docs, test.labels)
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%v: got %v, want %q", test.labels, err, test.want)
		}
	}
}

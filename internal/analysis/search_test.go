package analysis

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/evidence"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/method"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/metrics"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/search"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/validity"
	"github.com/chokepoint-lab/chokepoint/internal/labtest/quick"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// searchRun is a run of one search on a device that carries capacity.
func searchRun(t *testing.T, m record.Method, capacity, greatest float64) (record.Run, []record.Trial) {
	t.Helper()
	f := record.Factors{"topology": "forward", "protocol": "udp", "packet_size": "128", "ip": "4",
		"direction": "up", "streams": "1", "rate": "flat", "tunnel": "none"}
	m.Runs = 1
	run := record.Run{
		RunHead: record.RunHead{ID: "r", Status: record.RunDone},
		Design:  designOf(f),
	}
	run.Design.Method = m
	inLab(&run, "local")
	var trials []record.Trial
	var known []*record.Trial
	for len(trials) < 300 {
		next, more, err := search.NextOfSearch(m, record.UnitPackets, greatest, 1, known, nil)
		if err != nil {
			t.Fatal(err)
		}

		if !more {
			return run, trials
		}

		n := int64(len(trials) + 1)
		asked := int64(next.Load * next.Duration.Seconds())
		arrived := min(asked, int64(capacity*next.Duration.Seconds()))
		tr := record.Trial{
			Row: record.Row{
				Assignment: record.Assignment{
					Block:   1,
					Index:   1,
					Kind:    record.RowLoad,
					Factors: f,
				},
				ID: "b1-r01",
			},
			TrialHead: record.TrialHead{
				ID:      "b1-r01." + string(rune('a'+n%26)),
				Search:  &next,
				Started: time.Unix(1000+2*n, 0),
			},
			Attempt: int(n),
			Status:  record.TrialOK,
			Ended:   int64(next.Duration),
			Window:  record.Window{End: int64(next.Duration)},
			Traffic: counted(record.Packets{Sent: asked, Received: arrived, Lost: asked - arrived}),
		}
		tr.Traffic.Flows[0].ReceiverNs, tr.Traffic.Flows[0].SenderNs = int64(next.Duration),
			int64(next.Duration)
		trials = append(trials, tr)
		known = append(known, &tr)
	}

	t.Fatal("the search does not end")
	return run, nil
}

func TestOutcomeOfASearchIsReadFromItsTrials(t *testing.T) {
	run, trials := searchRun(t, quick.SearchMethod(), 123456, 1e6)
	d := Derive(run, trials)
	if len(d.Searches) != 1 || len(d.Trials) != len(trials) || d.Searching.Preset != "quick" {
		t.Fatalf("got %d searches and %d trials", len(d.Searches), len(d.Trials))
	}

	s := d.Searches[0]
	if !s.Ended || s.Max != 1e6 || s.Interfaces != 1 || s.Trials != len(trials) ||
		s.Seconds != float64(2*(len(trials)-1)+1) ||
		s.EffectiveSeconds < 1.49*float64(len(trials)) {
		t.Errorf("got %+v of %d trials", s, len(trials))
	}

	for _, r := range s.Results {
		if r.Irregular != "" || *r.Upper / *r.Lower > 1.0102 || *r.Lower > 123456/.995 || *r.Upper < 123455 {
			t.Errorf("goal %s: got %v to %v, irregular %q", r.Goal, *r.Lower, *r.Upper, r.Irregular)
		}

		got, want := *r.ThroughputBps, *r.Throughput*800
		if got != want {
			t.Errorf("goal %s: got %v bit/s of payload, want %v", r.Goal, got, want)
		}
	}

	c := d.Cells[0]
	if c.Metrics[metrics.ThroughputNDR].Median != *s.Results[0].Throughput ||
		c.Metrics[metrics.ThroughputPDR].Median != *s.Results[1].Throughput ||
		c.Metrics[metrics.SearchSeconds].Median != s.Seconds || c.Metrics[metrics.LossRatio].Median != 0 ||
		c.Runs != 1 {
		t.Errorf("cell: got %v", c.Metrics)
	}

	for _, m := range []string{metrics.ThroughputNDR, metrics.ThroughputPDR, metrics.SearchSeconds} {
		declared := false
		for _, have := range d.Metrics {
			declared = declared || have.Name == m
		}

		if !declared {
			t.Errorf("metric %s is not declared in the document", m)
		}
	}
}

// A result that is irregular is no number of its cell.
func TestIrregularSearchesHaveNoMetric(t *testing.T) {
	run, trials := searchRun(t, quick.SearchMethod(), 2e6, 1e6)
	d := Derive(run, trials)
	c := d.Cells[0]
	_, has := c.Metrics[metrics.ThroughputNDR]
	if has || !strings.Contains(c.Missing[metrics.ThroughputNDR],
		"greatest load") {
		t.Errorf("got %v, missing %q", c.Metrics[metrics.ThroughputNDR], c.Missing[metrics.ThroughputNDR])
	}

	kinds := map[string]bool{}
	for _, k := range c.Caveats {
		kinds[k.Kind] = true
	}

	if !kinds["irregular-search"] || !kinds["at-the-bound"] {
		t.Errorf("caveats: got %v, want that the search is irregular", c.Caveats)
	}

	run.Status = record.RunInterrupted
	s := Derive(run, trials[:3]).Searches[0]
	if s.Ended || !strings.Contains(s.Results[0].Irregular,
		"the run was interrupted") {
		t.Errorf("three trials: got %+v", s)
	}
}

func TestASearchKeepsTheLimitsWithWhichItBegan(t *testing.T) {
	m := quick.SearchMethod()
	_, trials := searchRun(t, m, 123456, 1e6)
	known := []*record.Trial{&trials[0], &trials[1]}
	next, more, err := search.NextOfSearch(m, record.UnitPackets, 5e5, 1, known, nil)
	if err != nil || !more || next.Max != 1e6 || next.Load != trials[2].Search.Load {
		t.Errorf("with another ceiling: got %+v, %v, %v, want the trial that follows below 1 Mpps", next,
			more, err)
	}
}

func TestTestsOfRFC2544AreRead(t *testing.T) {
	m := quick.SearchMethod()
	m.Search.Latency = &record.Test{Duration: time.Second, Repeats: 2}
	m.Search.FrameLoss = &record.Test{Duration: time.Second, Repeats: 2}
	m.Search.BackToBack = &record.Test{Duration: time.Second, Repeats: 2}
	run, trials := searchRun(t, m, 5e5, 1e6)
	s := Derive(run, trials).Searches[0]
	if len(s.Latency) != 4 || s.Latency[0].Share != .1 || s.Latency[3].Load != *s.Results[0].Lower ||
		s.Latency[3].Loss.N != 2 {
		t.Errorf("latency: got %+v", s.Latency)
	}

	// Loss at 100, 90, 80, 70, 60 %, then twice none.
	if len(s.FrameLoss) != 7 || s.FrameLoss[0].Loss.Median != .5 || s.FrameLoss[0].Loss.N != 2 ||
		s.FrameLoss[6].Loss.Median != 0 {
		t.Errorf("frame loss: got %+v", s.FrameLoss)
	}

	if len(s.BackToBack) != 1 || s.BackToBack[0].Frames != nil || !s.BackToBack[0].Limited {
		t.Errorf("back-to-back without a buffer: got %+v", s.BackToBack)
	}

	if s.Trials >= len(trials) {
		t.Errorf("got %d trials of the search, want those of the other tests left out of %d", s.Trials,
			len(trials))
	}
}

// Implied and corrected buffer time of RFC 9004: 60,000 frames at 1 Mpps, of which 40 % are forwarded
// meanwhile.
func TestBufferTimeIsCorrected(t *testing.T) {
	m := quick.SearchMethod()
	m.Search.BackToBack = &record.Test{Duration: time.Second, Repeats: 1}
	at := func(d time.Duration, lost int64) *validity.Graded {
		sent := int64(1e6 * d.Seconds())
		traffic := counted(record.Packets{Sent: sent, Received: sent - lost, Lost: lost})
		traffic.Flows[0].SenderNs = int64(d)
		return &validity.Graded{Trial: &record.Trial{
			TrialHead: record.TrialHead{Search: &record.SearchTrial{
				TrialInput: record.TrialInput{
					Load:     1e6,
					Duration: d,
				},
				Test: record.TestBackToBack,
			}},
			Status:  record.TrialOK,
			Traffic: traffic,
		}}
	}
	lower := 4e5
	got := backToBack(m, 1e6, []*validity.Graded{at(time.Second, 9e5), at(60*time.Millisecond, 0),
		at(65*time.Millisecond, 10)},
		method.Outcome{Results: []method.Result{{Lower: &lower}}})
	if got.Frames == nil || got.Frames.Median != 60000 || !got.Limited || got.Rate != 1e6 ||
		got.BufferSeconds != .06 || *got.CorrectedSeconds != .06*.6 {
		t.Errorf("got %+v", got)
	}

	slow := at(time.Second, 0) // a tester that cannot send faster than the router forwards fills no buffer
	slow.Trial.Traffic.Flows[0].SenderNs = 4e9
	got = backToBack(m, 1e6, []*validity.Graded{slow},
		method.Outcome{Results: []method.Result{{Lower: &lower}}})
	if got.Rate != 25e4 || got.BufferSeconds != 4 || *got.CorrectedSeconds != 0 {
		t.Errorf("at a quarter of the load: got %+v, corrected %v", got, *got.CorrectedSeconds)
	}
}

func TestDeviationsFromRFC2544(t *testing.T) {
	m := quick.SearchMethod()
	m.Search.Latency = &record.Test{Duration: time.Second, Repeats: 1}
	m.Search.BackToBack = &record.Test{Duration: time.Second, Repeats: 1}
	run := record.Run{Design: record.Design{Procedure: record.Procedure{Method: m}}}
	inLab(&run, "local")
	short := deviations(&run)
	preset, _ := method.PresetNamed("rfc2544")
	m.Warmup = 0
	m.Cooldown = 7 * time.Second
	m.Search.Goals = preset.Goals
	m.Search.Latency = &record.Test{Duration: 2 * time.Minute, Repeats: 20}
	m.Search.BackToBack = &record.Test{Duration: 2 * time.Second, Repeats: 50}
	run.Design.Method = m
	inLab(&run, "ssh")
	long := deviations(&run)
	for _, c := range []struct {
		in   []string
		part string
		want bool
	}{
		{short, "trials of 1s, not 60 s", true}, {long, "not 60 s", false},
		{short, "a loss of", true}, {long, "a loss of", false},
		{short, "without a pause between", true}, {long, "without a pause between", false},
		{short, "residual frames", true}, {long, "residual frames", false},
		{short, "1 × 1s at each rate", true}, {long, "at each rate", false},
		{short, "1 repeats of bursts", true}, {long, "repeats of bursts", false},
		{short, "shares the machine", true}, {long, "shares the machine", false},
		{long, "round trip of a probe", true}, {long, "no shortest gap", true},
		{long, "one pair of addresses", true},
	} {
		got := strings.Contains(strings.Join(c.in, "\n"), c.part)
		if got != c.want {
			t.Errorf("%q: got %v, want %v, in\n%s", c.part, got, c.want, strings.Join(c.in, "\n"))
		}
	}
}

// A generator that falls short is not the path's loss: the result is the tester's, and says so.
func TestSearchThatFoundTheTesterSaysSo(t *testing.T) {
	run, trials := searchRun(t, quick.SearchMethod(), 123456, 1e6)
	if got := Derive(run, trials); got.Searches[0].Results[0].UnsentShare != 0 ||
		got.Cells[0].Grade == evidence.GradeFailed {
		t.Errorf("lost in transit: got %+v", got.Searches[0].Results[0])
	}

	for i := range trials {
		p := trials[i].Traffic.Flows[0].Packets
		p.Unsent, p.Sent, p.Lost = p.Lost, p.Received, 0
	}

	d := Derive(run, trials)
	var kinds []string
	for _, r := range d.Cells[0].Reasons {
		kinds = append(kinds, r.Kind)
	}

	if got := d.Searches[0].Results[0].UnsentShare; got != 1 || !strings.Contains(strings.Join(kinds, " "),
		evidence.ReasonTesterLimited) || d.Cells[0].Grade != evidence.GradeSuspect {
		t.Errorf("never sent: got share %v and reasons %v of a %s cell, want tester-limited", got, kinds,
			d.Cells[0].Grade)
	}
}

// A search that found nothing has trials all the same: its cell has the numbers of the least load, and no
// throughput.
func TestSearchWithoutALowerBoundShowsTheLeastLoad(t *testing.T) {
	run, trials := searchRun(t, quick.SearchMethod(), 500, 1e6)
	d := Derive(run, trials)
	c := d.Cells[0]
	r := d.Searches[0].Results[0]
	if r.Lower != nil || !strings.Contains(r.Irregular,
		"least load allowed is an upper bound") {
		t.Errorf("got %+v, want no lower bound", r)
	}

	_, has := c.Metrics[metrics.ThroughputNDR]
	if has || c.Grade == evidence.GradeFailed ||
		c.Metrics[metrics.PacketRate].Median != 500 || c.Metrics[metrics.LossRatio].Median != .5 {
		t.Errorf("got a %s cell with %v, want the loss at the least load", c.Grade, c.Metrics)
	}
}

// Where delay, not loss, makes the upper bound, what was unsent says nothing.
func TestUnsentFramesOfALowLossTrialSayNothing(t *testing.T) {
	m := quick.SearchMethod()
	for i := range m.Search.Goals {
		m.Search.Goals[i].MaxDelay = time.Millisecond // and no trial has a delay
	}

	run, trials := searchRun(t, m, 1e9, 1e6)
	for i := range trials {
		p := trials[i].Traffic.Flows[0].Packets
		p.Unsent, p.Sent, p.Received = 1, p.Sent-1, p.Received-1
	}

	s := Derive(run, trials).Searches[0]
	if s.Results[0].Upper == nil || s.Results[0].UnsentShare != 0 {
		t.Errorf("got %+v, want an upper bound that is not the tester's", s.Results[0])
	}
}

func counted(flows ...record.Packets) *record.Traffic {
	t := &record.Traffic{Load: record.Load{Protocol: "udp"}}
	for _, p := range flows {
		t.Flows = append(t.Flows, record.Flow{Packets: &p, ReceiverNs: 1e9, SenderNs: 1e9})
	}
	return t
}

// TestASearchSaysThatItsOwnBurstsWereLost: what a late sender makes good at once may overfill a policer's
// bucket, and then the search has found how large that is.
func TestASearchSaysThatItsOwnBurstsWereLost(t *testing.T) {
	for burst, doubted := range map[string]bool{"200000": true, "20000": false} {
		run, trials := searchRun(t, quick.SearchMethod(), 123456, 1e6)
		run.Design.Cells[0]["policer"] = "300M" // of the trials, too
		for i := range trials {
			trials[i].Traffic.Details = map[string]string{"near.burst_most_bytes": burst}
		}

		d := Derive(run, trials)
		got := slices.ContainsFunc(d.Cells[0].Reasons, func(r evidence.Reason) bool {
			return r.Kind == evidence.ReasonTesterLimited && strings.Contains(r.Text, "bucket")
		})
		if got != doubted || (d.Searches[0].Results[0].Bursts > 0) != doubted {
			t.Errorf("bursts of %s bytes: got %v, %+v", burst, d.Cells[0].Reasons, d.Searches[0].Results)
		}
	}
}

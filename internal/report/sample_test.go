package report

import (
	"fmt"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/analysis"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/comparison"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/evidence"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/method"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/metrics"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/statistics"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// hostile is text that each renderer must not take for its own markup.
const hostile = `<script>alert(1)</script> & "quotes" | pipe *star* _under_ [x](y) ` + "`tick` \x1b[2J\a\r"

// samples are the documents that every renderer is tried on.
func samples() map[string]*analysis.Document {
	return map[string]*analysis.Document{
		"quick":   sampleDocument(),
		"small":   smallDocument(),
		"sweep":   sweepDocument(),
		"damaged": damagedDocument(),
		"search":  searchDocument(),

		"interrupted": interruptedDocument(),
		"empty": {
			Format: record.Format,
			Run: analysis.RunHead{
				RunHead: record.RunHead{ID: "20261121-153012-0000", Status: record.RunInterrupted},
				Plan:    "quick",
			},
		},
	}
}

// smallDocument is small enough for goldens of every kind.
func smallDocument() *analysis.Document {
	all := quickCells()
	return documentOf([]cellPlan{all[0], all[4], all[9]}, 2)
}

// sweepDocument has what quick has not: six runs, a real ceiling, streams and packet sizes, two topologies.
func sweepDocument() *analysis.Document {
	var plans []cellPlan
	for _, tunnel := range []string{"none", "wireguard"} {
		for i, streams := range []string{"1", "2", "4", "8"} {
			bps := map[string]float64{"none": 935e6, "wireguard": 310e6}[tunnel] * (1 - .05/float64(i+1))
			f := base("tunnel", tunnel, "streams", streams)
			if tunnel != "none" {
				f["mtu"] = "1420"
			}

			words := map[string]string{"none": "no tunnel"}[tunnel]
			if words == "" {
				words = tunnel
			}

			words += " · TCP · " + streams + " streams"
			plans = append(plans, cellPlan{f, words, bps, 0, 0, 11e3, 2e6, 9e6,
				20, .93, "Good", .02})
		}
	}

	for _, size := range []string{"55", "64", "200", "500", "1500"} {
		var n float64
		if _, err := fmt.Sscan(size, &n); err != nil {
			panic(err)
		}

		pps := min(610e3, 941e6/8/(n+38))
		plans = append(plans, cellPlan{base("protocol", "udp", "packet_size", size), "UDP " + size +
			"-byte packets", pps * n * 8, pps,
			.02 / n, 11e3, .5e6, 3e6, 0, 1, "Very good", .01})
	}

	d := documentOf(plans, 6)
	d.Run.Plan, d.Run.Description = "sweep", "streams and packet sizes on a shaped link"
	for i := range d.Cells {
		c := &d.Cells[i]
		c.Ceiling = analysis.CellCeiling{Kind: "tbf 1G on router/wan", HeaderEfficiency: .9415}
		if !packets(c) {
			c.Ceiling.Bps = 941.5e6
			c.Ceiling.Ratio = c.Metrics[goodput].Median / 941.5e6
		}
	}

	addUnderLoad(d)
	site := forwardTopology()
	site.Name = "site-to-site"
	site.Tunnel = [2]string{"router-a", "router-b"}
	site.Routers = []string{"router-a", "router-b"}
	site.Nodes = []record.TopoNode{{Name: "client"}, {Name: "router-a", Router: true}, {Name: "wan"},
		{Name: "router-b", Router: true}, {Name: "server"}}
	site.Links = nil
	for i, name := range []string{"lan-a", "wan-a", "wan-b", "lan-b"} {
		site.Links = append(site.Links, record.TopoLink{
			Name: name,
			Ends: [2]record.TopoPort{
				{Node: site.Nodes[i].Name, Port: name}, {Node: site.Nodes[i+1].Name, Port: name}},
		})
	}

	d.Topologies = append(d.Topologies, site)
	return d
}

// addUnderLoad grades the first two cells as up and both of one path.
func addUnderLoad(d *analysis.Document) {
	value := func(x float64) statistics.Value {
		return statistics.Value{
			Spread: statistics.Spread{
				Low:      x,
				High:     x,
				N:        1,
				Interval: statistics.IntervalSingle,
			},
			Median: x,
			Values: []float64{x},
		}
	}
	added := 6.5e6
	more := 41e6
	rpm := 2150.0
	one := &d.Cells[0]
	two := &d.Cells[1]
	one.Metrics[rttAdded], one.Metrics[responsiveness], two.Metrics[rttAdded] = value(added), value(rpm),
		value(more)
	two.Missing = map[string]string{responsiveness: "of a kind of request none was made"}
	one.Latency = map[string]analysis.Distribution{"loaded": {
		Probe:    "icmp",
		Spacing:  record.Exponential,
		Stamps:   []string{"kernel"},
		Includes: []string{"from here to there"},
		Sent:     10,
		HDR:      "x",
	}}
	d.UnderLoad = []analysis.UnderLoad{{
		Label:   "no tunnel",
		AddedNs: 23e6,
		Grade:   "A",
		Directions: map[string]analysis.LoadedPath{
			"up": {
				Cell:       one.Factors,
				AddedNs:    &added,
				Grade:      "A",
				RPM:        &rpm,
				Band:       "good",
				Confidence: metrics.ConfidenceMedium,
			},
			"both": {
				Cell:    two.Factors,
				AddedNs: &more,
				Grade:   "B",
				Why:     "of a kind of request none was made",
			},
		},
	}}
}

// damagedDocument has failed trials and cells, a missed requirement, hostile text, and a run that was
// interrupted.
func damagedDocument() *analysis.Document {
	d := sampleDocument()
	d.Run.Status = record.RunInterrupted
	d.Run.Reason = "Ctrl-C"
	d.Summary = append(d.Summary, hostile)
	d.Caveats = append(d.Caveats, record.Caveat{Kind: "hostile", Text: hostile})
	d.Conditions["note"] = hostile
	c := &d.Cells[4]
	c.Grade = evidence.GradeFailed
	c.Metrics = nil
	c.Runs = 0
	c.Failed = 3
	c.Consistency, c.Diagnosis = nil, nil
	c.Missing = map[string]string{"goodput_bps": "all trials failed"}
	c.Reasons = []evidence.Reason{{
		Kind:  evidence.ReasonNotInTunnel,
		Text:  "the tunnel's counters did not move while 1.2 MB were offered " + hostile,
		Trial: "b1-r06.1",
	}}
	for i := range d.Trials {
		t := &d.Trials[i]
		if t.Kind == record.RowLoad && t.Factors.Key() == c.Factors.Key() {
			t.Grade = evidence.GradeFailed
			t.Metrics = nil
			t.Series = nil
			t.Failure = &record.Failure{
				Phase: record.PhaseVerify,
				Error: "verify path of " + t.Row + ": " +
					hostile,
				Hint: "chokepoint lab check",
			}
		}
	}

	d.Thresholds = []comparison.Threshold{
		{Requirement: "goodput >= 1G where tunnel=wireguard", Factors: c.Factors, Reason: "the cell failed"},
		{
			Requirement: "loss_ratio <= 0.001",
			Factors:     d.Cells[9].Factors,
			Metric:      "loss_ratio",
			Op:          "<=",
			Limit:       .001,
			Value:       .0131,
		},
		{Requirement: "goodput >= 1G where nat=forward", Reason: "no cell matches"},
	}
	for i := range d.Cells[5].Metrics {
		v := d.Cells[5].Metrics[i]
		v.N, v.Values, v.Interval, v.Low, v.High = 1, v.Values[:1], statistics.IntervalSingle, 0, 0
		v.Median = v.Values[0]
		d.Cells[5].Metrics[i] = v
	}

	d.Cells[5].Runs, d.Cells[5].Failed = 1, 2
	d.Comparisons = d.Comparisons[1:]
	d.Comparisons[0].Confounders = []string{"kernel differs: 6.1 and 6.6", hostile}
	d.Comparisons[0].Verdict = "confounded"
	d.Run.Cuts = []string{"3 of 6 repetitions", "the cell " + hostile}
	for i := range d.Cells {
		x := d.Cells[i].Diagnosis
		if x != nil && x.Class == "shaper" {
			x.Text = hostile
			x.Causes[0].Facts[0].Text = hostile
			x.Path[4].Label = hostile
		}
	}

	d.Verdicts = analysis.Verdicts(d.Cells)
	return d
}

// interruptedDocument was stopped before its first load.
func interruptedDocument() *analysis.Document {
	d := smallDocument()
	d.Run.Status = record.RunInterrupted
	d.Run.Reason = "Ctrl-C"
	d.Summary = nil
	d.Trials = nil
	d.Comparisons = nil
	d.Thresholds = nil
	d.Tester = nil
	d.UnderLoad = nil
	for i := range d.Cells {
		d.Cells[i] = analysis.Cell{Cell: metrics.Cell{
			ID:      d.Cells[i].ID,
			Factors: d.Cells[i].Factors,
			Label:   d.Cells[i].Label,
			Grade:   evidence.GradeNotReached,
			Reasons: []evidence.Reason{{
				Kind: evidence.ReasonRunEnded,
				Text: "the run was interrupted (Ctrl-C)",
			}},
		}}
	}

	d.Verdicts = analysis.Verdicts(d.Cells)
	return d
}

// searchDocument has two searches: one whole, one that hit the greatest load for a goal.
func searchDocument() *analysis.Document {
	var plans []cellPlan
	for _, size := range []string{"110", "1500"} {
		plans = append(plans, cellPlan{base("protocol", "udp", "packet_size", size), "UDP " + size +
			"-byte packets", 80e6, 90e3, 0, 11e3, .5e6, 3e6, 0, 1, "Very good", .01})
	}

	d := documentOf(plans, 1)
	preset, _ := method.PresetNamed("quick")
	preset.Goals[1].MaxDelay = 5 * time.Millisecond
	d.Searching = &analysis.Searching{
		Preset:     preset.Name,
		Goals:      preset.Goals,
		Notes:      []string{"A width is (upper bound - lower bound) ÷ upper bound."},
		Deviations: []string{"goal ndr: trials of 1s, not 60 s (section 24)", hostile},
	}
	of := func(v float64) *float64 { return &v }
	single := func(v float64) statistics.Value { return statistics.Summarise([]float64{v}) }
	both := analysis.SearchView{
		SearchLimits: record.SearchLimits{
			Unit:       record.UnitPackets,
			Min:        1000,
			Max:        200e3,
			Interfaces: 2,
		},
		Row:              "b1-r01",
		Block:            1,
		Factors:          plans[0].factors,
		Label:            plans[0].label,
		Ended:            true,
		Trials:           23,
		Seconds:          34.5,
		EffectiveSeconds: 30,
		Results: []analysis.SearchResult{
			{
				Result: method.Result{
					Goal:        "ndr",
					Lower:       of(90100),
					Upper:       of(90900),
					Throughput:  of(90100),
					LowerTrials: 7,
					UpperTrials: 8,
				},
				ThroughputBps: of(118e6),
			},
			{
				Result: method.Result{
					Goal:        "pdr",
					Lower:       of(90900),
					Upper:       of(91700),
					Throughput:  of(90512),
					LowerTrials: 8,
					UpperTrials: 8,
				},
				ThroughputBps: of(119e6),
			}},
		Steps: []analysis.SearchStep{{
			Trial:     "b1-r01.1",
			Test:      record.TestThroughput,
			Load:      200e3,
			Seconds:   1,
			LossRatio: .55,
			Warmup:    true,
		},
			{Trial: "b1-r01.2", Test: record.TestThroughput, Load: 90100, Seconds: 1}},
		FrameLoss: []analysis.FrameLoss{{Share: 1, Load: 200e3, Loss: single(.55)}, {
			Share: .4,
			Load:  80e3,
			Loss:  single(0),
		}},
		BackToBack: []analysis.BackToBack{{
			Frames:           &[]statistics.Value{single(2400)}[0],
			Limited:          true,
			BufferSeconds:    .012,
			CorrectedSeconds: of(.0066),
		}},
	}
	p50 := single(210e3)
	p99 := single(900e3)
	for _, share := range method.LatencyShares() {
		both.Latency = append(both.Latency, analysis.LatencyAt{
			Share: share,
			Load:  share * 90100,
			P50:   &p50,
			P99:   &p99,
			Loss:  single(0),
		})
	}

	top := analysis.SearchView{
		SearchLimits: record.SearchLimits{
			Unit:       record.UnitBits,
			Min:        1000,
			Max:        200e3,
			Interfaces: 1,
		},
		Row:     "b1-r02",
		Block:   1,
		Factors: plans[1].factors,
		Label:   plans[1].label,
		Why:     "the run was interrupted",
		Trials:  4,
		Seconds: 6,
		Results: []analysis.SearchResult{
			{Result: method.Result{
				Goal:        "ndr",
				Irregular:   "the greatest load allowed is a lower bound: more may be possible",
				Lower:       of(200e3),
				Throughput:  of(200e3),
				LowerTrials: 4,
			}},
			{Result: method.Result{
				Goal:      "pdr",
				Irregular: "no load was decided; the search did not end: the run was interrupted",
			}}},
	}
	d.Scaling = []analysis.Scaling{{
		Factor:  "streams",
		Label:   "no tunnel",
		Scaling: statistics.Scaling{SingleBps: 1e9, Contention: .12, Coherence: .003},
		Peak:    17.1,
		PeakBps: 4.5e9,
		R2:      .991,
		Text:    "streams: one carries 1 Gbit/s; 12 % of the work is serial",
	},
		{
			Factor:  "tunnels",
			Label:   hostile,
			Scaling: statistics.Scaling{SingleBps: 1e9, Contention: 1},
			R2:      .99,
			Text:    hostile,
		}}
	d.Soaks = []analysis.Soak{{
		Label:     "4 streams",
		Windows:   24,
		Hours:     2,
		Throttled: 1,
		Failed:    2,
		Missing:   []string{hostile},
		Trends: []analysis.Trend{
			{Kind: analysis.TrendDrift, Text: "goodput_bps: no trend"}, {
				Kind: analysis.TrendLeak,
				Text: "host memory in use: it grew by 80 MB",
				Real: true,
			}},
	}}
	d.Searches = []analysis.SearchView{both, top}
	return d
}

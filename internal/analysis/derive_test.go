package analysis

import (
	"encoding/json"
	"maps"
	"math"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/evidence"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/metrics"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

func cellOf(t *testing.T, d *Document, f record.Factors) *Cell {
	t.Helper()
	for i := range d.Cells {
		if d.Cells[i].Factors.Key() == f.Key() {
			return &d.Cells[i]
		}
	}

	t.Fatalf("no cell %s", f.Key())
	return nil
}

func TestDeriveIsDeterministic(t *testing.T) {
	run, trials := quickRun(3)
	a, err := json.Marshal(Derive(run, trials))
	if err != nil {
		t.Fatal(err)
	}

	b, err := json.Marshal(Derive(run, trials))
	if err != nil {
		t.Fatal(err)
	}

	diff := cmp.Diff(string(a), string(b))
	if diff != "" {
		t.Errorf("two derivations differ (-first +second)\n%s", diff)
	}
}

func TestDeriveCleanRun(t *testing.T) {
	run, trials := quickRun(6)
	d := Derive(run, trials)
	got, want := len(d.Cells), len(run.Design.Cells)
	if got != want {
		t.Fatalf("%d cells, want %d", got, want)
	}

	for _, c := range d.Cells {
		if c.Grade != evidence.GradeValid || len(c.Reasons) > 0 || len(c.Caveats) > 0 {
			t.Errorf("%s: grade %s, reasons %v, caveats %v, want plainly valid", c.Label, c.Grade, c.Reasons,
				c.Caveats)
		}

		if c.Runs != 6 || c.Failed != 0 {
			t.Errorf("%s: %d runs and %d failed, want 6 and 0", c.Label, c.Runs, c.Failed)
		}

		for name := range c.Missing {
			_, both := c.Metrics[name]
			if both {
				t.Errorf("%s: %s is measured and missing", c.Label, name)
			}
		}
	}

	for _, v := range d.Trials {
		if v.Grade != evidence.GradeValid {
			t.Errorf("trial %s is %s: %v", v.ID, v.Grade, v.Reasons)
		}
	}

	for _, m := range d.Metrics {
		if m.Unit == "" || m.Doc == "" || m.Scope == "" {
			t.Errorf("metric %+v is not fully declared", m)
		}
	}
}

// TestACountOfAnEvenNumberOfTrials is their median, which may be a fraction, as the reference says.
func TestACountOfAnEvenNumberOfTrials(t *testing.T) {
	run, trials := quickRun(2)
	for i := range trials {
		if trials[i].Row.Kind != record.RowLoad {
			continue
		}

		for k := range trials[i].Traffic.Flows {
			tcp := trials[i].Traffic.Flows[k].TCP
			if tcp != nil {
				tcp.Retransmits = new(int64(trials[i].Row.Block)) // 1, then 2
			}
		}
	}

	v := cellOf(t, Derive(run, trials), quickFactors()).Metrics[metrics.Retransmits]
	if v.N != 2 || v.Median != 1.5 {
		t.Errorf("of 1 and 2 segments: got %+v, want a median of 1.5", v)
	}

	reference, err := os.ReadFile("../../docs/reference/json.md")
	const said = "A cell's count is a median: with an even number of trials it may be a fraction."
	if err != nil || !strings.Contains(strings.Join(strings.Fields(string(reference)), " "), said) {
		t.Errorf("the reference does not say %q: %v", said, err)
	}
}

// The numbers of one trial follow from its raw data.
func TestTrialMetrics(t *testing.T) {
	run, trials := quickRun(1)
	d := Derive(run, trials)
	near := func(name string, got, want, tolerance float64) {
		t.Helper()
		if math.Abs(got-want) > tolerance*math.Abs(want) {
			t.Errorf("%s = %v, want %v", name, got, want)
		}
	}
	tcp := cellOf(t, d, quickFactors()).Metrics
	near("goodput", tcp[metrics.Goodput].Median, 5.8e9, .05)
	near("busiest core", tcp["host_busiest_core_ratio"].Median, .89, 1e-6)
	near("all cores", tcp["host_cpu_ratio"].Median, .84, 1e-6)
	near("softirq", tcp["host_softirq_busiest_core_ratio"].Median, .34, 1e-6)
	near("steal", tcp["host_steal_ratio"].Median, .01, 1e-6)
	near("foreign", tcp["host_foreign_cpu_ratio"].Median, .02, 1e-6)
	near("goodput per CPU second", tcp[metrics.GoodputPerCPU].Median, tcp[metrics.Goodput].Median/1.68, 1e-6)
	near("engine CPU", tcp[metrics.EngineCPU].Median, 7.75, 1e-9)
	near("time squeeze", tcp[metrics.SoftnetSqueeze].Median, 50, 1e-6)
	near("rwnd", tcp[metrics.RwndLimited].Median, .1, 1e-6)
	near("network", tcp[metrics.NetworkLimited].Median, .9, 1e-6)
	near("rtt added", tcp[metrics.RTTAdded].Median,
		tcp["rtt_loaded_p50_ns"].Median-tcp["rtt_idle_p50_ns"].Median,
		1e-9)
	udp := cellOf(t, d, quickFactors("protocol", "udp"))
	near("packets", udp.Metrics[metrics.PacketRate].Median, udp.Metrics[metrics.Goodput].Median/8/36, 1e-4)
	near("loss", udp.Metrics[metrics.LossRatio].Median, 100/(udp.Metrics[metrics.PacketRate].Median*10+100),
		1e-4)
	if _, ok := udp.Metrics[metrics.Retransmits]; ok {
		t.Error("a UDP cell has retransmits")
	}

	both := cellOf(t, d, quickFactors("direction", "both")).Metrics
	near("sum of directions", both[metrics.GoodputUp].Median+both[metrics.GoodputDown].Median,
		both[metrics.Goodput].Median, 1e-9)
}

func TestTypedWattsServeWhereNoneAreMeasured(t *testing.T) {
	run, trials := quickRun(1)
	run.Design.Conditions = map[string]string{record.WattsCondition: "31 W"}
	c := cellOf(t, Derive(run, trials), quickFactors())
	got, want := c.Metrics[metrics.GoodputPerWatt].Median,
		c.Metrics[metrics.Goodput].Median/31
	if math.Abs(got/want-1) > 1e-9 {
		t.Errorf("goodput per watt %v, want %v", got, want)
	}

	if _, ok := c.Metrics["host_power_w"]; ok {
		t.Error("host_power_w has a number although nothing measured it")
	}
}

func TestMissingHasReasons(t *testing.T) {
	run, trials := quickRun(1)
	d := Derive(run, trials)
	c := cellOf(t, d, quickFactors())
	want := map[string]string{
		"router_busiest_core_ratio": "the router shares the host's cores",
		"host_power_w":              "no RAPL and no hwmon power sensor",
		metrics.GoodputPerWatt:      "no RAPL and no hwmon power sensor",
		metrics.GoodputPerRouter:    "the router shares the host's cores",
		metrics.ConntrackUsed:       "nf_conntrack is not loaded",
		metrics.Fragments:           "probe snmp did not run",
	}
	for name, why := range want {
		if _, ok := c.Metrics[name]; ok {
			t.Errorf("%s has a number, want none", name)
		}

		got := c.Missing[name]
		if got != why {
			t.Errorf("missing %s: %q, want %q", name, got, why)
		}
	}

	// A machine of its own has router figures.
	inLab(&run, "ssh")
	for i := range trials {
		n := trials[i].Nodes["router"]
		n.Samples = append(n.Samples, trials[i].Nodes["host"].Samples[0])
		trials[i].Nodes["router"] = n
	}

	c = cellOf(t, Derive(run, trials), quickFactors())
	if got, ok := c.Metrics["router_busiest_core_ratio"]; !ok || math.Abs(got.Median-.89) > 1e-6 {
		t.Errorf("router_busiest_core_ratio = %v, %v, want 0.89", got.Median, ok)
	}

	if got, want := c.Metrics[metrics.GoodputPerRouter].Median,
		c.Metrics[metrics.Goodput].Median/1.68; math.Abs(got/want-1) > 1e-6 {
		t.Errorf("%s = %v, want %v", metrics.GoodputPerRouter, got, want)
	}
}

func TestFailedTrialHasNoNumber(t *testing.T) {
	run, trials := quickRun(3)
	bad := 3 // the first load trial
	trials[bad].Status = record.TrialFailed
	trials[bad].Failure = &record.Failure{Phase: record.PhaseWindow, Error: "receiver died"}
	d := Derive(run, trials)
	c := cellOf(t, d, trials[bad].Row.Factors)
	if c.Grade != evidence.GradeSuspect || c.Failed != 1 || c.Runs != 2 || c.Metrics[metrics.Goodput].N != 2 {
		t.Errorf("grade %s, failed %d, runs %d, n %d", c.Grade, c.Failed, c.Runs,
			c.Metrics[metrics.Goodput].N)
	}

	if len(c.Reasons) != 1 || c.Reasons[0].Kind != evidence.ReasonFailedTrials ||
		!strings.Contains(c.Reasons[0].Text,
			"receiver died") {
		t.Errorf("reasons %v", c.Reasons)
	}

	for _, v := range d.Trials {
		if v.ID == trials[bad].ID && (v.Grade != evidence.GradeFailed || v.Metrics != nil ||
			v.Series != nil) {
			t.Errorf("failed trial shows %v", v.Metrics)
		}
	}

	// A repetition with success replaces it, and says so.
	again := newSynthetic(1).trial(trials[bad].Row.Factors, 1, trials[bad].Row.Index, 5e9)
	again.ID = trials[bad].Row.ID + ".2"
	again.Attempt = 2
	c = cellOf(t, Derive(run, append(trials, again)), trials[bad].Row.Factors)
	if c.Grade != evidence.GradeValid || c.Runs != 3 || len(c.Caveats) != 1 ||
		c.Caveats[0].Kind != "repeated" {
		t.Errorf("after a repetition: grade %s, runs %d, caveats %v", c.Grade, c.Runs, c.Caveats)
	}

	// What happened to several is said once, in words that other cells share.
	third := trials[bad]
	third.ID, third.Attempt, again.ID, again.Attempt = again.ID, 2, trials[bad].Row.ID+".3", 3
	c = cellOf(t, Derive(run, append(trials, third, again)), trials[bad].Row.Factors)
	want := "2 trials failed in window: receiver died; they were repeated"
	if len(c.Caveats) != 1 ||
		c.Caveats[0].Text != want {
		t.Errorf("after two repetitions: caveats %v, want %q", c.Caveats, want)
	}
}

func TestCellWithoutTrials(t *testing.T) {
	run, trials := quickRun(1)
	run.Status = record.RunInterrupted
	run.Reason = "Ctrl-C"
	extra := quickFactors("streams", "16")
	run.Design.Cells = append(run.Design.Cells, extra)
	run.Design.Requirements = []record.Requirement{
		{
			Text:   "goodput >= 1G where streams=16",
			Metric: metrics.Goodput,
			Op:     ">=",
			Value:  1e9,
			Where:  map[string]string{"streams": "16"},
		},
	}
	d := Derive(run, trials)
	c := cellOf(t, d, extra)
	if c.Grade != evidence.GradeNotReached || len(c.Metrics) != 0 || len(c.Reasons) != 1 ||
		!strings.Contains(c.Reasons[0].Text, "Ctrl-C") {
		t.Errorf("grade %s, metrics %v, reasons %v", c.Grade, c.Metrics, c.Reasons)
	}

	words := strings.Join(d.Summary, "\n")
	for _, want := range []string{"1 of 8 cells not reached: the run was interrupted (Ctrl-C).",
		"0 of 1 checks of the plan's requirements are met; not checked: 1."} {
		if !strings.Contains(words, want) || strings.Contains(words, "failed") {
			t.Errorf("summary %q, want %q in it and no failure", words, want)
		}
	}

	if len(d.Thresholds) != 1 || d.Thresholds[0].Met || d.Thresholds[0].Reason != "the cell was not "+
		"reached: the run was interrupted (Ctrl-C)" {
		t.Errorf("thresholds %+v", d.Thresholds)
	}
}

func TestSkippedCellsAreNoFailures(t *testing.T) {
	run, trials := quickRun(3)
	cell := quickFactors("tunnel", "openvpn")
	run.Design.Cells = append(run.Design.Cells, cell)
	run.Skipped = []record.Skipped{{Factors: cell, Reason: "openvpn is not installed"}}
	d := Derive(run, trials)
	for _, c := range d.Cells {
		if c.Factors["tunnel"] == "openvpn" {
			t.Errorf("skipped cell is listed with grade %s", c.Grade)
		}
	}

	if len(d.Skipped) != 1 {
		t.Fatalf("%d skipped, want 1", len(d.Skipped))
	}

	got := d.Skipped[0]
	if got.ID != cell.ID() || got.Label == "" || got.Label == d.Cells[0].Label {
		t.Errorf("got the id %q and label %q, want %q and a label of its own", got.ID, got.Label, cell.ID())
	}
}

func TestThresholds(t *testing.T) {
	run, trials := quickRun(3)
	run.Skipped = []record.Skipped{{
		Factors: quickFactors("tunnel", "openvpn"),
		Reason:  "openvpn is not installed",
	}}
	where := func(pairs ...string) map[string]string {
		m := map[string]string{}
		for i := 0; i < len(pairs); i += 2 {
			m[pairs[i]] = pairs[i+1]
		}
		return m
	}
	tests := []struct {
		name   string
		r      record.Requirement
		met    []bool
		reason string
	}{
		{"met", record.Requirement{
			Metric: metrics.Goodput,
			Op:     ">=",
			Value:  1e9,
			Where:  where("nat", "masquerade"),
		},
			[]bool{true}, ""},
		{"missed", record.Requirement{
			Metric: metrics.Goodput,
			Op:     ">",
			Value:  6e9,
			Where:  where("nat", "masquerade"),
		}, []bool{false}, ""},
		{"lower is better", record.Requirement{
			Metric: metrics.LossRatio,
			Op:     "<=",
			Value:  .01,
			Where:  where("protocol", "udp"),
		}, []bool{true}, ""},
		{"valid", record.Requirement{
			Metric: record.Validity,
			Op:     "=",
			Where:  where("nat", "masquerade"),
		}, []bool{true}, ""},
		{"skipped is not valid", record.Requirement{
			Metric: record.Validity,
			Op:     "=",
			Where:  where("tunnel", "openvpn"),
		}, []bool{false}, "not installed"},
		{"missing metric", record.Requirement{
			Metric: "host_power_w",
			Op:     "<",
			Value:  10,
			Where:  where("protocol", "udp"),
		}, []bool{false}, "no RAPL"},
		{"skipped", record.Requirement{
			Metric: metrics.Goodput,
			Op:     ">=",
			Value:  1,
			Where: where("tunnel",
				"openvpn"),
		}, []bool{false}, "not installed"},
		{"nothing", record.Requirement{
			Metric: metrics.Goodput,
			Op:     ">=",
			Value:  1,
			Where: where("tunnel",
				"ipsec"),
		},
			[]bool{false}, "no cell matches"},
		{"several", record.Requirement{
			Metric: metrics.Goodput,
			Op:     ">=",
			Value:  2e9,
			Where: where("streams",
				"4"),
		},
			[]bool{true, false}, ""},
		{"absent factor at its default", record.Requirement{
			Metric: metrics.Goodput,
			Op:     ">=",
			Value:  1,
			Where:  where("queue", "default", "nat", "masquerade"),
		}, []bool{true}, ""},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			run.Design.Requirements = []record.Requirement{test.r}
			got := Derive(run, trials).Thresholds
			met := []bool{}
			reasons := ""
			for _, x := range got {
				met = append(met, x.Met)
				reasons += x.Reason
			}

			diff := cmp.Diff(test.met, met)
			if diff != "" {
				t.Errorf("met (-want +got)\n%s", diff)
			}

			if !strings.Contains(reasons, test.reason) {
				t.Errorf("reasons %q, want %q in them", reasons, test.reason)
			}
		})
	}
}

func TestObserving(t *testing.T) {
	run, trials := quickRun(1)
	o := Derive(run, trials).Observing
	// The median read of cpu took 40 µs, the mean 50; netdev has no median.
	if math.Abs(o.CoreRatio-.0006) > 1e-9 || math.Abs(o.ChargedRatio-.0007) > 1e-9 ||
		math.Abs(o.FastRatio-.0006) > 1e-9 || math.Abs(o.Probes["cpu"]-.0004) > 1e-9 {
		t.Errorf("observing %+v", o)
	}
}

func TestSummaryNamesWhatWasMeasured(t *testing.T) {
	run, trials := quickRun(3)
	run.Design.Description = "this machine acting as a router: how fast\nit forwards. More is in the guide.\n"
	d := Derive(run, trials)
	if got, want := d.Summary[0], "This machine acting as a router: how fast it forwards."; got != want {
		t.Errorf("first line %q, want %q", got, want)
	}

	text := strings.Join(d.Summary, "\n")
	for _, want := range []string{"Gbit/s", "n = 3", "range", "wireguard", "without", "bufferbloat grade",
		"share this machine's cores", "lost"} {
		if !strings.Contains(text, want) {
			t.Errorf("summary lacks %q:\n%s", want, text)
		}
	}
}

// Power comes from the source that covers most, and no joule counts twice.
func TestPower(t *testing.T) {
	tests := []struct {
		name   string
		growth map[string]float64 // J/s of energy columns, or the reading of others
		want   float64
	}{
		{"packages without their parts", map[string]float64{"intel-rapl:0.package-0/energy_j": 20,
			"intel-rapl:0:0.core/energy_j": 15, "intel-rapl:1.package-1/energy_j": 10}, 30},
		{"the platform holds its packages", map[string]float64{"intel-rapl:0.package-0/energy_j": 20,
			"intel-rapl:1.psys/energy_j": 45}, 45},
		{"a package shown twice", map[string]float64{"intel-rapl-mmio:0.package-0/energy_j": 20,
			"intel-rapl:0.package-0/energy_j": 20}, 20},
		{"a sensor's meter", map[string]float64{"hwmon0.amd_energy.energy1/energy_j": 7,
			"hwmon1.ina.power1/power_w": 3}, 7},
		{"a sensor's reading", map[string]float64{"hwmon1.ina.power1/power_w": 3}, 3},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			trial := newSynthetic(1).trial(quickFactors(), 1, 1, 1e9)
			names := slices.Sorted(maps.Keys(test.growth))
			power := record.NewTable(names...)
			for s := range int64(13) {
				var values []float64
				for _, n := range names {
					v := test.growth[n]
					if strings.HasSuffix(n, "energy_j") {
						v *= float64(s)
					}

					values = append(values, v)
				}

				power.Append(trial.Window.Begin+s*second, values...)
			}

			n := trial.Nodes["host"]
			n.Samples = append([]record.Samples{{Probe: "power", Table: power}}, n.Samples...)
			trial.Nodes["host"] = n
			c := Derive(syntheticRun(quickFactors()), []record.Trial{trial}).Cells[0]
			if got := c.Metrics["host_power_w"].Median; math.Abs(got-test.want) > 1e-9 {
				t.Errorf("%v W, want %v", got, test.want)
			}

			if got, want := c.Metrics[metrics.GoodputPerWatt].Median,
				c.Metrics[metrics.Goodput].Median/test.want; math.Abs(got/want-1) > 1e-9 {
				t.Errorf("goodput per watt %v, want %v", got, want)
			}
		})
	}
}

package analysis

import (
	"math"
	"strings"
	"testing"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/metrics"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// read gives a trial a meter's readings, a second apart, from before its load until some seconds after its
// window has begun.
func read(t *record.Trial, watts float64, seconds int64) {
	table := record.NewTable("power_w")
	for at := t.Window.Begin - second/2; at <= t.Window.Start+seconds*second; at += second {
		table.Append(at, watts)
	}

	t.Meter = &record.Samples{
		Probe: record.MeterProbe,
		Scope: record.ScopeNode,
		Table: table,
		Metrics: []record.Metric{{
			Name: "power_w",
			Unit: "W",
			Doc:  "power of host by shelly://plug, in steps of 0.1 W",
		}},
	}
}

func meteredRun(m record.Meter) (record.Run, []record.Trial) {
	run, trials := quickRun(3)
	run.Meter = &m
	for i := range trials {
		watts := map[bool]float64{true: 4.2, false: 6.8}[trials[i].Row.Kind == record.RowIdle]
		if trials[i].Row.Block == 3 && watts == 6.8 {
			watts = 7.2
		}

		read(&trials[i], watts, 30)
	}

	return run, trials
}

// The meter's readings are joined with the windows: those of the idle path, and those of the load.
func TestMeteredPower(t *testing.T) {
	run, trials := meteredRun(record.Meter{At: "shelly://plug"})
	d := Derive(run, trials)
	c := cellOf(t, d, quickFactors())
	for name, want := range map[string]float64{metrics.PowerIdle: 4.2, metrics.PowerLoaded: 6.8,
		metrics.PowerReadings: 10, metrics.GoodputPerWatt: c.Metrics[metrics.Goodput].Median / 6.8} {
		v := c.Metrics[name]
		if v.N != 3 || math.Abs(v.Median/want-1) > .02 {
			t.Errorf("%s: got %+v, want %v of 3 trials", name, v, want)
		}
	}

	if v := c.Metrics[metrics.PowerLoaded]; v.Low != 6.8 || v.High != 7.2 {
		t.Errorf("power under load: got %+v, want from 6.8 to 7.2", v)
	}

	wantCaveat(t, d, "power-metered", "power of host by shelly://plug, in steps of 0.1 W")
	if d.Run.Meter == nil || d.Run.Meter.At != "shelly://plug" {
		t.Errorf("the run's meter: got %+v", d.Run.Meter)
	}
}

func wantCaveat(t *testing.T, d *Document, kind, text string) {
	t.Helper()
	for _, c := range d.Caveats {
		if c.Kind == kind && strings.Contains(c.Text, text) {
			return
		}
	}

	t.Errorf("caveats: got %v, want %s: %s", d.Caveats, kind, text)
}

// A meter that dies in a window gives that trial no number, whatever it told before and other sources tell.
func TestMeterThatDies(t *testing.T) {
	run, trials := meteredRun(record.Meter{At: "shelly://plug"})
	run.Design.Conditions = map[string]string{record.WattsCondition: "31 W"}
	for i := range trials {
		switch tr := &trials[i]; {
		case tr.Row.Block == 2:
			read(tr, 50, 5)
		case tr.Row.Block == 3:
			tr.Meter = &record.Samples{
				Probe:       record.MeterProbe,
				Unavailable: "the meter gave no reading: gone",
			}
		}
	}

	d := Derive(run, trials)
	c := cellOf(t, d, quickFactors())
	for _, name := range []string{metrics.PowerLoaded, metrics.GoodputPerWatt} {
		v := c.Metrics[name]
		if v.N != 1 {
			t.Errorf("%s: got %+v, want that of the first trial alone", name, v)
		}
	}

	if v := c.Metrics[metrics.PowerIdle]; v.N != 1 || v.Median != 4.2 {
		t.Errorf("power idle: got %+v, want 4.2 W of one measurement", v)
	}

	missing := map[string]bool{}
	for _, v := range d.Trials {
		missing[v.Missing[metrics.PowerLoaded]] = true
		if v.Grade != "valid" {
			t.Errorf("trial %s is %s, want valid: its other numbers stand", v.ID, v.Grade)
		}
	}

	for _, why := range []string{"the readings of the meter do not cover the window",
		"the meter gave no reading: gone"} {
		if !missing[why] {
			t.Errorf("reasons: got %v, want %q", missing, why)
		}
	}
}

func TestTypedInPower(t *testing.T) {
	run, trials := quickRun(3)
	run.Meter = &record.Meter{At: "typed:idle=4.2,loaded=6.8", IdleW: 4.2, LoadedW: 6.8}
	d := Derive(run, trials)
	c := cellOf(t, d, quickFactors())
	if got, want := c.Metrics[metrics.GoodputPerWatt].Median,
		c.Metrics[metrics.Goodput].Median/6.8; math.Abs(got/want-1) > 1e-9 {
		t.Errorf("goodput per watt: got %v, want %v", got, want)
	}

	if got := c.Metrics[metrics.PowerIdle]; got.Median != 4.2 {
		t.Errorf("power idle: got %+v, want 4.2", got)
	}

	wantCaveat(t, d, "power-typed-in", "typed in, the same for every trial: idle 4.20 W, loaded 6.80 W")
	run.Meter = &record.Meter{At: "typed:idle=4.2", IdleW: 4.2}
	c = cellOf(t, Derive(run, trials), quickFactors())
	why := c.Missing[metrics.GoodputPerWatt]
	if why != "it was not typed in" {
		t.Errorf("goodput per watt without watts under load: got %q", why)
	}
}

// Without a meter the sensors of the machine tell the power of the idle path, too.
func TestPowerOfSensorsIdle(t *testing.T) {
	run, trials := quickRun(1)
	for i := range trials {
		tr := &trials[i]
		watts := map[bool]float64{true: 9, false: 15}[tr.Row.Kind == record.RowIdle]
		power := record.NewTable("hwmon1.ina.power1/power_w")
		for s := range int64(13) {
			power.Append(tr.Window.Begin+s*second, watts)
		}

		n := tr.Nodes["host"]
		n.Samples = append([]record.Samples{{Probe: "power", Table: power}}, n.Samples...)
		tr.Nodes["host"] = n
	}

	c := cellOf(t, Derive(run, trials), quickFactors())
	if idle, load := c.Metrics[metrics.PowerIdle].Median, c.Metrics[metrics.PowerLoaded].Median; idle != 9 ||
		load != 15 {
		t.Errorf("got %v W idle, %v W under load, want 9 and 15", idle, load)
	}

	// The idle phase of a trial, where each has one of its own.
	for i := range trials {
		tr := &trials[i]
		tr.Phases = append(tr.Phases, record.Phase{
			Name:  record.PhaseIdle,
			Start: tr.Window.Begin,
			End:   tr.Window.Begin + 2*second,
		})
	}

	c = cellOf(t, Derive(run, trials), quickFactors())
	if idle := c.Metrics[metrics.PowerIdle].Median; idle != 15 {
		t.Errorf("got %v W in the trial's own idle phase, want its 15", idle)
	}
}

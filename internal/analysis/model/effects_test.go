package model

import (
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/statistics"
	"github.com/chokepoint-lab/chokepoint/internal/catalogue"
)

// TestQueueAndClock: what the study of the RB5009 found. From the hardware queue to fq_codel the rate goes up
// 2.31-fold at the automatic clock, and 1.04-fold at 1400 MHz.
func TestQueueAndClock(t *testing.T) {
	c := published(t)
	e := FindEffects(Observe(c.Filtered(catalogue.Filter{Source: "rb5009"})))
	const want = "queue and clock: whether they interact cannot be told: fq-codel against " +
		"only-hardware-queue is ×1.04 at clock 1400 and ×2.31 at clock auto"
	var got []string
	for _, x := range e.Interactions {
		got = append(got, x.Text())
	}

	if !slices.Contains(got, want) {
		t.Errorf("got  %s\nwant %s", strings.Join(got, "\n"), want)
	}

	i := slices.IndexFunc(e.Main, func(x Effect) bool { return x.Level == "fq-codel" })
	near(t, "fq-codel, main effect", e.Main[i].Ratio.Value, math.Sqrt(853/369.2*883/852), 1e-9)
	if x := e.Main[i]; x.Settings != 2 || x.Blocks != 1 || x.Ratio.Level != 0 ||
		x.Verdict != statistics.TooFew() {
		t.Errorf("fq-codel: %+v", x)
	}

	// what has no partner that differs in it alone has no effect
	for _, x := range e.Main {
		if strings.Contains(x.Level, "soak") {
			t.Errorf("the soak: %+v", x)
		}
	}

	// the clock also makes up what the direction takes
	if len(e.Charts) != 2 || len(e.Charts[0].Bars) != 4 || len(e.Charts[1].Bars) != 8 {
		t.Errorf("charts: %+v", e.Charts)
	}
}

// TestLevelsOverTheSameSettings: on each device of the study eight streams are quicker than four and these
// than two; so they are in the mean, over the settings that have all of them. A chart says which it is of.
func TestLevelsOverTheSameSettings(t *testing.T) {
	e := FindEffects(Observe(published(t).Filtered(catalogue.Filter{Source: "filogic"})))
	last := 1.0
	for _, x := range e.Main {
		if x.Factor == "streams" {
			if x.Ratio.Value <= last || x.Settings != 2 || x.Apart {
				t.Errorf("%s streams: %g over %d settings after %g", x.Level, x.Ratio.Value, x.Settings,
					last)
			}

			last = x.Ratio.Value
		}
	}

	near(t, "eight streams", last, math.Sqrt(2480./1580*615/490), 1e-9)
	var got []string
	for _, c := range e.Charts {
		got = append(got, strings.Join(c.Factors, " and ")+" at "+c.At)
	}

	want := []string{"device and streams at tunnel+mtu wireguard+1420",
		"tunnel+mtu and streams at device OpenWrt One",
		"streams and condition at device BPI-R4; tunnel+mtu none+1500"}
	if !slices.Equal(got, want) {
		t.Errorf("charts: got %q, want %q", got, want)
	}

	// no setting has all three levels: each ratio is of its own, and says so
	var apart []Observation
	for i, at := range []string{"a1", "b1", "b2", "c2"} {
		apart = append(apart, Observation{Levels: map[string]string{"x": at[:1], "y": at[1:]},
			ByBlock: map[int]float64{0: float64(i+1) * 100}})
	}

	for _, x := range FindEffects(apart, []string{"x", "y"}).Main {
		if x.Apart != (x.Factor == "x") {
			t.Errorf("%s %s: apart is %v", x.Factor, x.Level, x.Apart)
		}
	}
}

// made is a matrix of blocks in which b doubles the rate, d does nothing, and f doubles it only without b.
func made(blocks int, noise float64) (out []Observation) {
	random := rand.New(rand.NewPCG(7, 7))
	for _, x := range []string{"a", "b"} {
		for _, y := range []string{"c", "d"} {
			for _, z := range []string{"e", "f"} {
				o := Observation{
					Levels:  map[string]string{"x": x, "y": y, "z": z, "w": x + "!", "v": "always"},
					ByBlock: map[int]float64{},
				}
				for block := range blocks {
					rate := 1e6 * float64(block+1) // blocks differ; pairs do not
					if x == "b" || z == "f" {
						rate *= 2
					}

					o.ByBlock[block] = rate * math.Exp(noise*random.NormFloat64())
				}

				out = append(out, o)
			}
		}
	}
	return out
}

func TestEffects(t *testing.T) {
	e := FindEffects(made(8, .002), []string{"v", "w", "x", "y", "z"})
	var got []string
	for _, x := range e.Main {
		got = append(got, x.Factor+" "+x.Level+": "+x.Verdict)
	}

	for _, x := range e.Interactions {
		got = append(got, x.Factor+" and "+x.With+": "+x.Verdict)
	}

	want := []string{"w+x b!+b: different", "y d: same within ±2 %", "z f: different",
		"w+x and z: different", "w+x and y: same within ±2 %", "y and z: same within ±2 %"}
	slices.Sort(got[3:])
	slices.Sort(want[3:])
	diff := cmp.Diff(want, got)
	if diff != "" {
		t.Errorf("verdicts (-want +got)\n%s", diff)
	}

	near(t, "x", e.Main[0].Ratio.Value, math.Sqrt2, .01) // ×2 at e, ×1 at f
	near(t, "x at z e", e.Interactions[0].EffectBeside.Value, 2, .01)
	near(t, "x at z f", e.Interactions[0].EffectAt.Value, 1, .01)
	if !strings.Contains(e.Interactions[0].Text(), "w+x and z interact: ") {
		t.Errorf("Text() = %s", e.Interactions[0].Text())
	}

	if len(e.Charts) != 1 || len(e.Charts[0].Bars) != 4 {
		t.Errorf("charts: %+v", e.Charts)
	}
}

// TestNoEffects: in matrices of pure noise at most 5 % find a difference anywhere; few blocks, and a
// block that lacks a cell, give no verdict.
func TestNoEffects(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	const runs = 300
	wrong := 0
	for range runs {
		o := made(7, 0)
		for i := range o {
			for block := range o[i].ByBlock {
				o[i].ByBlock[block] = 1e9 * math.Exp(.1*random.NormFloat64())
			}
		}

		e := FindEffects(o, []string{"x", "y", "z"})
		found := slices.ContainsFunc(e.Main, func(x Effect) bool { return x.Verdict == statistics.Different })
		if found || slices.ContainsFunc(e.Interactions, func(x Interaction) bool {
			return x.Verdict == statistics.Different
		}) {
			wrong++
		}
	}

	if wrong > runs*8/100 { // 5 % give or take two standard deviations
		t.Errorf("%d of %d matrices of noise have an effect", wrong, runs)
	}

	o := made(6, .001)
	delete(o[0].ByBlock, 3)
	for _, x := range FindEffects(o, []string{"x", "y", "z"}).Main {
		if x.Blocks != 5 || x.Ratio.Level != 0 || x.Verdict == statistics.Different ||
			x.Verdict == statistics.SameWithin {
			t.Errorf("%s with a cell lost: %+v", x.Factor, x)
		}
	}

	if e := FindEffects(nil, []string{"x"}); len(e.Main)+len(e.Interactions)+len(e.Charts) != 0 {
		t.Errorf("of nothing: %+v", e)
	}
}

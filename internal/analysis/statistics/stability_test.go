package statistics

import (
	"math"
	"math/rand/v2"
	"testing"
)

// Simulated series of rates around 100.

func steady(rng *rand.Rand, n int, noise float64) []float64 {
	return correlated(rng, n, noise, 0)
}

// correlated is an autoregressive series of order 1.
func correlated(rng *rand.Rand, n int, noise, rho float64) []float64 {
	out := make([]float64, n)
	x := rng.NormFloat64()
	for i := range out {
		out[i] = 100 * (1 + noise*x)
		x = rho*x + math.Sqrt(1-rho*rho)*rng.NormFloat64()
	}

	return out
}

// reno rises evenly from half to the full rate and falls at a drop.
func reno(rng *rand.Rand, n int, period float64) []float64 {
	out := make([]float64, n)
	phase := rng.Float64()
	for i := range out {
		_, f := math.Modf(phase + float64(i)/period)
		out[i] = 50 + 50*f
	}

	return out
}

// cubic falls to 70 % and rises by the cubic function of RFC 9438 §4.2.
func cubic(rng *rand.Rand, n int, period float64) []float64 {
	out := make([]float64, n)
	phase := rng.Float64()
	for i := range out {
		_, f := math.Modf(phase + float64(i)/period)
		out[i] = 100 * (1 - .3*math.Pow(1-f, 3))
	}

	return out
}

// stalling has no traffic in a share of its bins.
func stalling(rng *rand.Rand, n int, share float64) []float64 {
	out := steady(rng, n, .02)
	for i := range out {
		if rng.Float64() < share {
			out[i] = 0
		}
	}
	return out
}

func TestConsistencyWords(t *testing.T) {
	tests := []struct {
		name  string
		draw  func(*rand.Rand) []float64
		words []string // acceptable
	}{
		{"steady, 1 % noise", func(r *rand.Rand) []float64 { return steady(r, 50, .01) },
			[]string{"Very good"}},
		{"steady, 2 % noise", func(r *rand.Rand) []float64 { return steady(r, 50, .02) },
			[]string{"Very good"}},
		{"slow change is no unevenness", func(r *rand.Rand) []float64 {
			v := steady(r, 50, .01)
			for i := range v {
				v[i] *= 1 + float64(i)/50
			}
			return v
		}, []string{"Very good"}},
		{"5 % noise", func(r *rand.Rand) []float64 { return steady(r, 50, .05) }, []string{"Good"}},
		{"CUBIC without a queue", func(r *rand.Rand) []float64 { return cubic(r, 50, 10) },
			[]string{"Good", "Fair"}},
		{"12 % noise", func(r *rand.Rand) []float64 { return steady(r, 50, .12) }, []string{"Fair"}},
		{"Reno without a queue", func(r *rand.Rand) []float64 { return reno(r, 50, 10) }, []string{"Poor"}},
		{"a tenth stalled", func(r *rand.Rand) []float64 { return stalling(r, 500, .1) }, []string{"Poor"}},
	}
	for i, test := range tests {
		rng := source(uint64(200 + i))
		hit := 0
		const n = 1000
		for range n {
			ratio, ok := Evenness(test.draw(rng))
			if !ok {
				t.Fatalf("%s: no ratio", test.name)
			}

			for _, w := range test.words {
				if ConsistencyWord(ratio) == w {
					hit++
				}
			}
		}

		if float64(hit)/n < .97 {
			t.Errorf("%s: worded %v in %.1f %%, want 97 %% or more", test.name, test.words,
				100*float64(hit)/n)
		}
	}
}

// On normal noise the ratio estimates the coefficient of variation.
func TestEvennessEstimatesVariation(t *testing.T) {
	rng := source(210)
	for _, noise := range []float64{.01, .05, .2} {
		sum := 0.0
		for range 2000 {
			r, _ := Evenness(steady(rng, 20, noise))
			sum += r
		}

		got := sum / 2000
		if math.Abs(got/noise-1) > .02 {
			t.Errorf("noise %g: mean ratio %g", noise, got)
		}
	}
}

func TestEvennessNeedsData(t *testing.T) {
	for name, v := range map[string][]float64{"none": nil, "short": {1, 2, 3, 4, 5, 6},
		"nothing flowed": make([]float64, 20)} {
		if r, ok := Evenness(v); ok {
			t.Errorf("%s: ratio %v, want none", name, r)
		}
	}
}

// The window of quick, a second and a half, is checked.
func TestEvennessOfAShortWindow(t *testing.T) {
	var c Curve
	for at := int64(0); at <= 2e9; at += 100e6 {
		c.T, c.V = append(c.T, at), append(c.V, float64(at))
	}

	if r, ok := WindowEvenness([]Curve{c}, 200e6, 1700e6); !ok || r > 1e-6 {
		t.Errorf("an even rate in a window of 1.5 s: %v, %v; want 0, true", r, ok)
	}
}

// A steady series is called drifting in far less than 5 % of windows, also when its noise is large or slow.
func TestDriftFalseAlarms(t *testing.T) {
	tests := []struct {
		name string
		draw func(*rand.Rand) []float64
		most float64
	}{
		{"2 % noise", func(r *rand.Rand) []float64 { return steady(r, 20, .02) }, .001},
		{"10 % noise", func(r *rand.Rand) []float64 { return steady(r, 20, .10) }, .005},
		{"10 % noise, long window", func(r *rand.Rand) []float64 { return steady(r, 30, .10) }, .005},
		{"2 % noise, short window", func(r *rand.Rand) []float64 { return steady(r, 16, .02) }, .001},
		{"10 % noise, short window", func(r *rand.Rand) []float64 { return steady(r, 16, .10) }, .01},
		{"30 % noise", func(r *rand.Rand) []float64 { return steady(r, 20, .30) }, .005},
		{"slow noise of 3 %", func(r *rand.Rand) []float64 { return correlated(r, 30, .03, .8) }, .01},
		{"correlated noise of 10 %", func(r *rand.Rand) []float64 { return correlated(r, 20, .10, .5) }, .05},
		{"Reno's sawtooth", func(r *rand.Rand) []float64 { return reno(r, 30, 7) }, .02},
		{"CUBIC's sawtooth", func(r *rand.Rand) []float64 { return cubic(r, 30, 9) }, .02},
	}
	for i, test := range tests {
		rng := source(uint64(300 + i))
		alarms := 0
		for range draws {
			_, found := Drift(test.draw(rng))
			if found {
				alarms++
			}
		}

		share := float64(alarms) / draws
		if share > test.most {
			t.Errorf("%s: false alarms in %.2f %%, want at most %.2f %%", test.name, 100*share, 100*test.most)
		}
	}
}

// Throttling and a warm-up that is too short are found.
func TestDriftPower(t *testing.T) {
	tests := []struct {
		name   string
		change func(x float64) float64 // factor at position 0…1
		rises  bool
	}{
		{"throttled to 80 % half-way", func(x float64) float64 {
			if x > .5 {
				return .8
			}
			return 1
		}, false},
		{"falls evenly by 25 %", func(x float64) float64 { return 1 - .25*x }, false},
		{"slow start", func(x float64) float64 { return 1 - .5*math.Exp(-4*x) }, true},
	}
	for i, test := range tests {
		rng := source(uint64(400 + i))
		hit := 0
		for range 1000 {
			v := steady(rng, 20, .02)
			for k := range v {
				v[k] *= test.change(float64(k) / float64(len(v)))
			}

			change, found := Drift(v)
			if found && (change > 0) == test.rises {
				hit++
			}
		}

		if hit < 990 {
			t.Errorf("%s: found in %d of 1000, want 990 or more", test.name, hit)
		}
	}
}

package analysis

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/evidence"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/metrics"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/statistics"
	"github.com/chokepoint-lab/chokepoint/internal/catalogue"
	"github.com/chokepoint-lab/chokepoint/internal/factor"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// TestEffectsOfARun: a run in which two factors vary says what each does; one in which a single factor does
// says nothing.
func TestEffectsOfARun(t *testing.T) {
	run, trials := quickRun(6)
	d := Derive(run, trials)
	if d.Effects == nil {
		t.Fatal("there are no effects")
	}

	seen := map[string]float64{}
	for _, x := range d.Effects.Main {
		seen[x.Factor+" "+x.Level] = x.Ratio.Value
		if x.Ratio.Level == 0 || x.Blocks != 6 {
			t.Errorf("%s %s: %+v, want an interval of 6 blocks", x.Factor, x.Level, x)
		}
	}

	r := seen["nat masquerade"]
	if math.Abs(r/(5.5/5.8)-1) > .03 {
		t.Errorf("ratio of NAT: %v of %v", r, seen)
	}

	one := *d
	one.Cells = slices.DeleteFunc(slices.Clone(d.Cells), func(c Cell) bool {
		return !maps.Equal(factor.Streams.With(c.Factors, ""), factor.Streams.With(quickFactors(), ""))
	})
	e := EffectsOf(&one)
	if e != nil || len(one.Cells) != 2 {
		t.Errorf("effects of streams alone, of %d cells: %+v", len(one.Cells), e)
	}
}

// TestEffectsAgainstTheDefaultMTU: each MTU is compared with the one that nobody has to set, and a suspect
// cell makes what rests on it suspect.
func TestEffectsAgainstTheDefaultMTU(t *testing.T) {
	mtus := []string{"1280", "1420", "1500"}
	run, trials := sharesRun(distinctFactors(mtus, func(mtu string) record.Factors {
		return quickFactors("tunnel", "wireguard", "mtu", mtu)
	}), []float64{300e6, 400e6, 4e6})
	d := Derive(run, trials)
	for i := range d.Cells {
		d.Cells[i].Grade = evidence.GradeValid
		if factor.MTU.Is(d.Cells[i].Factors, "1500") {
			d.Cells[i].Grade = evidence.GradeSuspect
		}
	}

	var got []string
	for _, x := range Effects(d).Main {
		got = append(got, fmt.Sprintf("%s against %s, default %v, suspect %v", x.Level, x.Against, x.Default,
			x.Suspect))
	}

	want := []string{"1280 against 1420, default true, suspect false",
		"1500 against 1420, default true, suspect true"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestEffectsGoByTheRuleOfComparisons: there is no verdict on fewer than six blocks, whatever the size of an
// effect, as between cells of the run.
func TestEffectsGoByTheRuleOfComparisons(t *testing.T) {
	for _, blocks := range []int{1, 3, 5, 6} {
		run, trials := quickRun(blocks)
		d := Derive(run, trials)
		verdicts := map[string]bool{}
		for _, part := range d.Effects.Parts() {
			for _, x := range part.Main {
				verdicts[x.Verdict] = true
			}

			for _, x := range part.Interactions {
				verdicts[x.Verdict] = true
			}
		}

		for _, c := range d.Comparisons {
			if c.Metric == metrics.Goodput {
				verdicts[c.Verdict] = true
			}
		}

		few := statistics.TooFew()
		if blocks < 6 && (len(verdicts) != 1 || !verdicts[few]) || blocks == 6 && (verdicts[few] ||
			!verdicts[statistics.Different]) {
			t.Errorf("%d blocks: verdicts %v", blocks, verdicts)
		}
	}
}

// TestLoadsOfOneKindAreCompared: packets of UDP, short flows and streams of TCP never stand in one ratio, in
// effects or between cells.
func TestLoadsOfOneKindAreCompared(t *testing.T) {
	cells := []record.Factors{quickFactors(), quickFactors("streams", "4"),
		quickFactors("protocol", "udp"), quickFactors("protocol", "udp", "streams", "4"),
		quickFactors("engine", "flows", "flow_size", "10000"),
		quickFactors("engine", "flows", "flow_size", "10000", "streams", "4")}
	s := newSynthetic(2)
	var trials []record.Trial
	for block := 1; block <= 6; block++ {
		for i, f := range cells {
			trials = append(trials, s.trial(f, block, len(cells)*block+i, 1e9*float64(1+i)))
		}
	}

	run := syntheticRun(cells...)
	for _, baseline := range []record.Factors{nil, {"protocol": "tcp"}, {"engine": "native"},
		quickFactors()} {
		run.Design.Baseline = baseline
		d := Derive(run, trials)
		for _, c := range d.Comparisons {
			if metrics.LoadOf(c.Factors) != metrics.LoadOf(c.Against) {
				t.Errorf("%s of %s with %s", c.Metric, c.Factors.Key(), c.Against.Key())
			}
		}

		var parts []string
		e := Effects(d)
		for _, part := range e.Parts() {
			for _, x := range part.Main {
				parts = append(parts, part.Of+"|"+part.Metric+"|"+x.Factor)
			}
		}

		want := []string{"||streams", "UDP packets|packet_rate_pps|streams",
			"short flows|goodput_bps|streams"}
		diff := cmp.Diff(want, parts)
		if diff != "" {
			t.Errorf("effects (-want +got):\n%s", diff)
		}
	}
}

// TestEffectsOfStudies: each study of the catalogue that has rates in two settings has effects, those of
// ciphers with their own units.
func TestEffectsOfStudies(t *testing.T) {
	c, err := catalogue.Published()
	if err != nil {
		t.Fatal(err)
	}

	for _, s := range c.Sources {
		e := PublishedEffects(c, s.ID)
		n := 0
		for _, part := range e.Parts() {
			n += len(part.Main)
		}

		if n == 0 {
			t.Errorf("study %s has no effects", s.ID)
		}
	}

	e := PublishedEffects(c, "ciphers")
	got := map[string]string{}
	for _, part := range e.Ciphers {
		got[part.Of] = part.Metric
	}

	want := map[string]string{"openssl, encrypt and decrypt": metrics.CipherRate,
		"openssl, hash": metrics.CipherRate, "openssl, derive": metrics.CipherOps,
		"openssl, sign and verify": metrics.CipherOps}
	diff := cmp.Diff(want, got)
	if diff != "" {
		t.Errorf("parts (-want +got):\n%s", diff)
	}
}

// TestEffectsOfCiphers: each library, and each end that algorithms have, is by itself, with its own metric,
// beside the traffic of the same run.
func TestEffectsOfCiphers(t *testing.T) {
	cipher := func(library, algorithm, operation, threads string) record.Factors {
		f := cipherFactors(library, algorithm)
		f["operation"], f["threads"] = operation, threads
		if operation != "encrypt" {
			delete(f, "cipher_mode")
		}

		if operation == "sign" || operation == "verify" {
			delete(f, "block_size")
		}

		return f
	}
	cells := []record.Factors{quickFactors(), quickFactors("streams", "4")}
	rates := []float64{1e9, 2e9}
	for _, of := range []struct {
		library, operation string
		algorithms         []string
		rates              []float64
	}{{"openssl", "encrypt", []string{"aes-128-gcm", "chacha20-poly1305"}, []float64{1e9, 3e9}},
		{"go", "encrypt", []string{"aes-128-gcm", "chacha20-poly1305"}, []float64{5e9, 1e9}},
		{"openssl", "hash", []string{"sha1", "sha256"}, []float64{5e8, 1e9}},
		{"openssl", "sign", []string{"ed25519", "ed448"}, []float64{30e3, 5e3}},
		{"openssl", "verify", []string{"ed25519", "ed448"}, []float64{10e3, 5e3}}} {
		for i, algorithm := range of.algorithms {
			cells = append(cells, cipher(of.library, algorithm, of.operation, "1"))
			rates = append(rates, of.rates[i])
		}
	}

	s := newSynthetic(5)
	var trials []record.Trial
	for block := 1; block <= 6; block++ {
		for i, f := range cells {
			if i < 2 {
				trials = append(trials, s.trial(f, block, len(cells)*block+i, rates[i]))
				continue
			}

			trials = append(trials, s.cipherTrial(f, block, len(cells)*block+i, rates[i]))
		}
	}

	d := Derive(syntheticRun(cells...), trials)
	if d.Effects == nil {
		t.Fatal("there are no effects")
	}

	got := map[string]float64{}
	for _, part := range d.Effects.Parts() {
		for _, x := range part.Main {
			got[strings.Join([]string{part.Of, part.Metric, x.Factor, x.Level, x.Against}, "|")] =
				math.Round(10*x.Ratio.Value) / 10
		}

		if len(part.Charts) != 1 || len(part.Charts[0].Bars) < 2 {
			t.Errorf("charts of %q: got %+v, want one", part.Of, part.Charts)
		}
	}

	ops, bits := "openssl, sign and verify|cipher_operations_per_s|", "encrypt and decrypt|cipher_rate_bps|"
	want := map[string]float64{"||streams|4|1": 2,
		"openssl, " + bits + "algorithm|chacha20-poly1305|aes-128-gcm": 3,
		"go, " + bits + "algorithm|chacha20-poly1305|aes-128-gcm":      .2,
		"openssl, hash|cipher_rate_bps|algorithm|sha256|sha1":          2,
		ops + "algorithm|ed448|ed25519":                                .3, // √(1/6 × 1/2)
		ops + "operation|verify|sign":                                  .6, // √(1/3 × 1)
	}
	diff := cmp.Diff(want, got)
	if diff != "" {
		t.Errorf("effects (-want +got):\n%s", diff)
	}
}

// TestLabelsAreThoseOfTheRun: labels made of factors alone are those that the document has.
func TestLabelsAreThoseOfTheRun(t *testing.T) {
	run, trials := quickRun(2)
	d := Derive(run, trials)
	var cells []record.Factors
	var want []string
	for _, c := range d.Cells {
		cells, want = append(cells, c.Factors), append(want, c.Label)
	}

	diff := cmp.Diff(want, Labels(run.Design.Catalogue, cells))
	if diff != "" {
		t.Errorf("labels (-document +factors):\n%s", diff)
	}
}

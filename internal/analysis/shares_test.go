package analysis

import (
	"math"
	"testing"

	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// sharesRun is a run with cells of these rates, with two blocks.
func sharesRun(cells []record.Factors, rates []float64) (record.Run, []record.Trial) {
	s := newSynthetic(3)
	var trials []record.Trial
	for block := 1; block <= 2; block++ {
		for i, f := range cells {
			trials = append(trials, s.trial(f, block, len(cells)*block+i, rates[i]))
		}
	}
	return syntheticRun(cells...), trials
}

// TestSharesOfBaselineAndMTU: a cell's share is of the same load without a tunnel, or without what else it
// differs in, and of the default MTU where several were measured. Another load is no baseline.
func TestSharesOfBaselineAndMTU(t *testing.T) {
	wireguard := func(mtu string) record.Factors { return quickFactors("tunnel", "wireguard", "mtu", mtu) }
	cells := []record.Factors{quickFactors(), quickFactors("streams", "4"), quickFactors("nat", "masquerade"),
		wireguard("1420"), wireguard("1280")}
	run, trials := sharesRun(cells, []float64{4e9, 8e9, 3e9, 2e9, 1.8e9})
	run.Design.Baseline = quickFactors() // differs from four streams in the load
	d := Derive(run, trials)
	for i, want := range []struct {
		baseline, mtu float64
		of            string
	}{
		{},
		{},
		{baseline: .75, of: "same without address translation"},
		{baseline: .5, mtu: 1, of: "same without tunnel"},
		{baseline: .45, mtu: .9, of: "same without tunnel"},
	} {
		c := d.Cells[i]
		check := func(what string, got *Share, want float64) {
			t.Helper()
			switch {
			case want == 0 && got != nil:
				t.Errorf("%s: %s: got %+v, want none", c.Label, what, got)
			case want > 0 && (got == nil || math.Abs(got.Ratio/want-1) > .02):
				t.Errorf("%s: %s: got %+v, want %g", c.Label, what, got, want)
			}
		}
		check("of baseline", c.OfBaseline, want.baseline)
		check("of default MTU", c.OfDefaultMTU, want.mtu)
		if c.OfBaseline != nil && c.OfBaseline.Of != want.of {
			t.Errorf("%s: of %q, want %q", c.Label, c.OfBaseline.Of, want.of)
		}

		if c.OfDefaultMTU != nil && c.OfDefaultMTU.Of != "default MTU 1420" {
			t.Errorf("%s: of %q", c.Label, c.OfDefaultMTU.Of)
		}
	}
}

// TestUses: the slowest cell bounds the line, and what was not measured is said not to be.
func TestUses(t *testing.T) {
	cells := []record.Factors{quickFactors(), quickFactors("direction", "down"),
		quickFactors("tunnel", "wireguard"), quickFactors("protocol", "udp", "packet_size", "64")}
	run, trials := sharesRun(cells, []float64{941e6, 470e6, 300e6, 100e6})
	got := map[string]UseCase{}
	for _, u := range Derive(run, trials).Uses {
		got[u.Use] = u
		if u.Rule == "" || u.Measured() != (u.Verdict != "not measured") {
			t.Errorf("%+v", u)
		}
	}

	line := got["Internet line, routed"]
	if line.Cell["direction"] != "down" || line.LineBps < 470e6/.96 || line.LineBps > 470e6/.93 {
		t.Errorf("line: %+v, want the one that 470 Mbit/s down fill", line)
	}

	vpn := got["Working from home by VPN, WireGuard"]
	if vpn.Verdict != "enough for lines up to 333 Mbit/s" {
		t.Errorf("VPN: %+v", vpn)
	}

	for _, use := range []string{"Internet line behind NAT", "Internet line, IPv6", "Many short connections",
		"Full load for hours"} {
		if u, ok := got[use]; !ok || u.Measured() {
			t.Errorf("%s: %+v, want it not measured", use, u)
		}
	}

	if u := got["Many small packets"]; !u.Measured() || u.Cell["packet_size"] != "64" {
		t.Errorf("packets: %+v", u)
	}
}

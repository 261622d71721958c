package model

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestAdviseNamesTheSetting: a router that is fast enough with some settings only has these named. The RB5009
// is, at 900 Mbit/s, with its clock held and fq_codel; of its other queues nobody tried the way down.
func TestAdviseNamesTheSetting(t *testing.T) {
	c := published(t)
	scores := LeaveOneOut(c, c.Results, OfPublished)
	advice := func(device, tunnel string, wan float64, mtu int) Advice {
		t.Helper()
		n := Need{WANBps: wan, Tunnel: tunnel, MTU: FittingMTU(tunnel), Users: 4, BusyHours: 2}
		if mtu > 0 {
			n.MTU = mtu
			n.OnlyMTU = true
		}

		all := Advise(c, n, scores)
		return all[slices.IndexFunc(all, func(a Advice) bool { return a.Device == device })]
	}
	words := func(all []Settings) (out []string) {
		for _, s := range all {
			out = append(out, s.Words)
		}
		return out
	}
	for _, test := range []struct {
		device, tunnel string
		wan            float64
		mtu            int
		verdict        string
		settings       []string
	}{
		{"RB5009UPr+S+IN", "wireguard", 900e6, 0, EnoughIf, []string{"clock at 1400 MHz and queue fq-codel"}},
		{"RB5009UPr+S+IN", "wireguard", 1e9, 0, Borderline, nil},
		{"RB5009UPr+S+IN", "wireguard", 200e6, 0, Enough, nil},
		{"BPI-R4", "none", 5e9, 0, EnoughIf, []string{"hardware offload on"}},
		{"BPI-R4", "wireguard", 2e9, 0, Enough, nil},
		{"BPI-R4", "wireguard", 2.5e9, 0, Borderline, nil}, // its results with 4 streams are impossible
		{"Buffalo WZR-HP-G300NH", "openvpn", 20e6, 0, EnoughIf, []string{"MTU 6000"}},
		{"Utilite Standard", "openvpn", 60e6, 0, EnoughIf, []string{"MTU 6000"}},
		{"Utilite Standard", "openvpn", 60e6, 1448, NotEnough, nil},
	} {
		a := advice(test.device, test.tunnel, test.wan, test.mtu)
		if diff := cmp.Diff(test.settings, words(a.If)); diff != "" || a.Verdict != test.verdict {
			t.Errorf("%s, %s, %g: got %s, settings (-want +got):\n%s", test.device, test.tunnel, test.wan,
				a.Verdict, diff)
		}
	}

	a := advice("RB5009UPr+S+IN", "wireguard", 1e9, 0)
	if a.Nearest == nil || a.Nearest.Words != "clock at 1400 MHz and queue fq-codel" ||
		a.Nearest.LowBps != 812e6 {
		t.Errorf("nearest to a gigabit: %+v", a.Nearest)
	}

	a = advice("RB5009UPr+S+IN", "wireguard", 900e6, 0)
	if !slices.Contains(a.Missing, "down with clock at 1400 MHz and queue cake") {
		t.Errorf("unknown: %q", a.Missing)
	}
}

// TestPowerPerYear: the draws of a study over the hours of a year, and what was assumed where one is missing.
func TestPowerPerYear(t *testing.T) {
	c := published(t)
	y := yearOf(c, "Turris Omnia", Need{BusyHours: 2, Price: .5})
	near(t, "least", y.LowKWh, (14*22+16*2)*.365, 1e-9)
	near(t, "most", y.HighKWh, 16*24*.365, 1e-9)
	near(t, "cost", y.HighCost, 16*24*.365/2, 1e-9)
	if y.Text() != "124 to 140 kWh a year, which cost 62.0 to 70.1" {
		t.Errorf("%q", y.Text())
	}

	y = yearOf(c, "Turris Omnia (2021)", Need{BusyHours: 2})
	if y == nil || !strings.Contains(y.Basis, "always at full load") || y.HighCost != 0 {
		t.Errorf("a draw under load alone: %+v", y)
	}

	if y := yearOf(c, "BPI-R4", Need{BusyHours: 2}); y != nil {
		t.Errorf("without a published draw: %+v", y)
	}
}

// TestAdviseForIPsec: nobody published a rate of IPsec, so it is bounded: by the cipher on one core, or by
// what a device forwards unencrypted past its policies.
func TestAdviseForIPsec(t *testing.T) {
	c := published(t)
	n := Need{WANBps: 1e9, Tunnel: "esp", MTU: FittingMTU("esp"), Users: 1}
	got := map[string]Advice{}
	for _, a := range Advise(c, n, LeaveOneOut(c, c.Results, OfPublished)) {
		got[a.Device] = a
		if a.Verdict == Enough || a.Verdict == NotEnough && a.Device != "APU4d4 (2021)" {
			t.Errorf("%s is %s: %s", a.Device, a.Verdict, a.Why)
		}
	}

	for device, why := range map[string]string{
		"mt7621":        "in software on 1 core; a crypto engine may do more",
		"APU4d4 (2021)": "585 Mbit/s, by what it forwards unencrypted past idle IPsec policies",
		"bcm4708":       "in software on 1 core",
		"Edge4Go":       "its link",
		"TP-Link TL-WDR4300": "its cipher gives no bound: unknown is the speed of aes-128-gcm, " +
			"chacha20-poly1305, sha1, sha256",
	} {
		if !strings.Contains(got[device].Why, why) {
			t.Errorf("%s: got %q, want %q", device, got[device].Why, why)
		}
	}
}

package app

import (
	"errors"
	"testing"

	"github.com/chokepoint-lab/chokepoint/internal/factor"
	"github.com/chokepoint-lab/chokepoint/internal/plan"
)

func TestPeerAddress(t *testing.T) {
	for given, want := range map[string]string{
		"192.0.2.7":              "192.0.2.7:20100",
		"192.0.2.7:7":            "192.0.2.7:7",
		"2001:db8::7":            "[2001:db8::7]:20100",
		"[2001:db8::7]":          "[2001:db8::7]:20100",
		"[2001:db8::7]:7":        "[2001:db8::7]:7",
		"fe80::1%eth0":           "[fe80::1%eth0]:20100",
		"pc.lan":                 "pc.lan:20100",
		"pc.lan:7":               "pc.lan:7",
		"iperf3://pc.lan":        "pc.lan:5201",
		"iperf3://192.0.2.7:99":  "192.0.2.7:99",
		"iperf3://[2001:db8::7]": "[2001:db8::7]:5201",
		"":                       "",
		":20100":                 "",
		"pc.lan:":                "",
		"pc.lan:70000":           "",
		"http://pc.lan":          "",
		"user@pc.lan":            "",
		"iperf3://":              "",
	} {
		got, err := Peer{At: given}.address()
		switch {
		case want == "" && !errors.Is(err, ErrUsage):
			t.Errorf("%q: got %q, %v, want a usage error", given, got, err)
		case want != "" && (err != nil || got != want):
			t.Errorf("%q: got %q, %v, want %q", given, got, err, want)
		}
	}
}

func TestVersionsOfOneSource(t *testing.T) {
	for _, tt := range []struct {
		a, b string
		same bool
	}{
		{"v1.2.3 go1.26.8 linux/amd64", "v1.2.3 go1.26.8 linux/arm64", true},
		{"v1.2.3 go1.26.8 linux/amd64", "v1.2.4 go1.26.8 linux/amd64", false},
		{"", "v1.2.4 go1.26.8 linux/amd64", false},
	} {
		got := source(tt.a) == source(tt.b)
		if got != tt.same {
			t.Errorf("%q and %q: got the same source %v, want %v", tt.a, tt.b, got, tt.same)
		}
	}
}

// TestWithAPeerNoLevelOfNATIsClaimed: what lies between is found out, and the plan's default says nothing of
// it. Where a plan names no version of IP, an address of IPv6 is measured by IPv6.
func TestWithAPeerNoLevelOfNATIsClaimed(t *testing.T) {
	for peer, ip := range map[string]string{"[2001:db8::7]:20100": "6", "2001:db8::7": "6", "192.0.2.7": "4",
		"router.example": "4", "::ffff:192.0.2.7": "4"} {
		o := Peer{At: peer}
		for _, name := range []string{"quick", "path"} {
			p, err := plan.ReadBuiltIn(name, o.Vocabulary(), nil)
			if err != nil {
				t.Fatal(err)
			}

			d := p.Design
			d.Measure.VerifyAll = true
			third := d
			if o.limit(&d); !d.Measure.VerifyAll {
				t.Errorf("%s, %s: got no verification of every load, want it as the plan says", peer, name)
			}

			(Peer{At: iperf3Scheme + peer}).limit(&third)
			if third.Measure.Verify || third.Measure.VerifyAll {
				t.Errorf("%s, %s: got %+v with iperf3, which verifies nothing", peer, name, third.Measure)
			}

			for _, cell := range append(d.Cells, d.Baseline) {
				level := cell["nat"]
				if level == "off" {
					t.Errorf("%s, %s: got a cell with nat=off: %s", peer, name, cell.Key())
				}

				if name == "quick" && cell["ip"] != ip {
					t.Errorf("%s, %s: got a cell over IPv%s, want IPv%s", peer, name, cell["ip"], ip)
				}
			}
		}
	}
}

// TestPatchedPlansSayOfNATWhatTheirCellsSay: a level that the cells of a run do not have, since it was not
// set there, would make others of them.
func TestPatchedPlansSayOfNATWhatTheirCellsSay(t *testing.T) {
	p, err := plan.ReadBuiltIn("quick", Peer{}.Vocabulary(), nil)
	if err != nil {
		t.Fatal(err)
	}

	for _, nat := range []string{"", "off", "masquerade"} {
		cell := factor.NAT.With(p.Cells()[0], nat)
		pl, err := again{}.readPatched(plan.Patched{
			Name:        "patched",
			Description: "x",
			Design:      p.Design,
			Cells:       []factor.Cell{cell},
			Patches:     []factor.Cell{{"streams": "4"}},
			Copies:      1,
			Blocks:      2,
		})
		if err != nil {
			t.Fatal(err)
		}

		if got, want := pl.Cells()[0].Key(), factor.Copy.With(cell, "a").Key(); got != want {
			t.Errorf("nat %q: untouched: got %s, want %s", nat, got, want)
		}

		if got, want := pl.Cells()[1].Key(), factor.Streams.With(cell, "4").Key(); got != want {
			t.Errorf("nat %q: patched: got %s, want %s", nat, got, want)
		}

		if pl.Design.Baseline["nat"] != nat {
			t.Errorf("nat %q: the baseline has %q", nat, pl.Design.Baseline["nat"])
		}
	}
}

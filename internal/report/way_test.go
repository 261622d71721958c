package report

import (
	"slices"
	"strings"
	"testing"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/diagnosis"
)

// TestWay: the picture shows the stages that count packets, with exact numbers, and the lines say what died,
// what waited and what is left.
func TestWay(t *testing.T) {
	n := func(v float64) *float64 { return &v }
	l := &diagnosis.Ledger{
		Data: []diagnosis.Account{
			{Node: "server", Element: "wan", Stage: diagnosis.StageQueue, Missing: "noqueue counts nothing"},
			{
				Node:    "router",
				Element: "ip",
				Stage:   diagnosis.StageIP,
				In:      n(12345),
				Out:     n(12089),
				Died:    []diagnosis.Death{{Packets: 256, By: "a rule"}},
			},
			{
				Node:     "router",
				Element:  "lan",
				Stage:    diagnosis.StageQueue,
				In:       n(12089),
				Out:      n(12089),
				WaitedNs: 7.37e6,
			}},
		MissedPackets: []float64{250, 262},
		DiedPackets:   256,
		AddedNs:       n(9.5e6),
		WaitedNs:      7.37e6,
		WaitedWhere:   "waiting for core 0 of the router, which was busy for 97 %",
	}
	want := []string{"the ends miss 250 to 262 packets; died: 256 at the router's network stack, by a rule",
		"the load adds 9.50 ms to its RTT: 7.37 ms in the router's lan queue; 2.13 ms waiting for core 0 of the " +
			"router, which was busy for 97 %"}
	got := ledgerLines(l)
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}

	for _, width := range []float64{wideWidth, narrowWidth} {
		svg := way{l}.Draw(width).svg("", "")
		for _, text := range []string{">router<", ">12,345<", ">12,089<", ">256<", ">7.37 ms<",
			">lan queue<"} {
			if !strings.Contains(svg, text) {
				t.Errorf("at %v pixels the picture lacks %q", width, text)
			}
		}

		if strings.Contains(svg, ">server<") {
			t.Errorf("at %v pixels the picture has a stage that counts nothing", width)
		}
	}
}

// TestBalance: a stage may lose or gain as much as passes between two readings of counters. At the sender a
// greater difference is a number of batches, which is left out and explained; elsewhere there is no picture.
func TestBalance(t *testing.T) {
	stage := func(node string, in, out, died, held float64) diagnosis.Account {
		a := diagnosis.Account{
			Node:    node,
			Element: "ip",
			Stage:   diagnosis.StageIP,
			In:      &in,
			Out:     &out,
			Held:    held,
		}
		if died > 0 {
			a.Died = []diagnosis.Death{{Packets: died, By: "a rule"}}
		}
		return a
	}
	for _, test := range []struct {
		name           string
		sender, router diagnosis.Account
		batches, whole bool
	}{
		{"readings", stage("client", 312900, 312805, 0, 0), stage("router", 313008, 312709, 0, 0), false, true},
		{"batches", stage("client", 2939, 312805, 0, 0), stage("router", 313008, 313008, 0, 0), true, true},
		{"deaths and backlog", stage("client", 650, 650, 0, 0), stage("router", 650, 400, 200, 50), false, true},
		{"without a reason", stage("client", 650, 650, 0, 0), stage("router", 650, 721, 0, 0), false, false},
	} {
		w := way{&diagnosis.Ledger{Data: []diagnosis.Account{test.sender, test.router}}}
		if batches := w.rows()[0].In == nil; batches != test.batches ||
			strings.Contains(w.caption(), "batches") != test.batches {
			t.Errorf("%s: the sender counted batches: got %v and %q, want %v", test.name, batches,
				w.caption(), test.batches)
		}

		if gap := w.gap(); (gap == "") != test.whole {
			t.Errorf("%s: got %q, want a gap: %v", test.name, gap, !test.whole)
		}
	}
}

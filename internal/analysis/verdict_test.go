package analysis

import (
	"math"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/comparison"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/diagnosis"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/evidence"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/metrics"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/validity"
	"github.com/chokepoint-lab/chokepoint/internal/factor"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// Cells of which the same was found share a verdict; where their words differ, it has those of the class.
func TestVerdictsGroupCells(t *testing.T) {
	cell := func(name, class, element, text string, p float64) Cell {
		return Cell{
			Cell: metrics.Cell{Label: name, Factors: record.Factors{"tunnel": name}},
			Diagnosis: &diagnosis.Diagnosis{
				Class:      class,
				Text:       text,
				Confidence: p,
				Causes: []diagnosis.Cause{{
					Class:   diagnosis.Tester,
					Node:    "client",
					Element: element,
				}},
			},
		}
	}
	got := Verdicts([]Cell{cell("a", diagnosis.Unknown, "", "nothing fits", .7),
		cell("b", diagnosis.Tester, "cpu0", "it reaches 5 Gbit/s", .8), {Cell: metrics.Cell{Label: "idle"}},
		cell("c", diagnosis.Tester, "cpu0", "it reaches 6 Gbit/s", .9),
		cell("d", diagnosis.Tester, "cpu1", "another core", .6)})
	if len(got) != 3 {
		t.Fatalf("got %d verdicts, want 3: %+v", len(got), got)
	}

	first := got[0]
	if first.Text != diagnosis.LabelOf(diagnosis.Tester) || first.Confidence != [2]float64{.8, .9} ||
		!slices.Equal(first.Labels, []string{"b", "c"}) || first.Labels[first.Shown] != "c" {
		t.Errorf("got %+v, want cells b and c with the label of their class, c shown", first)
	}

	if got[1].Text != "another core" || got[2].Text != "nothing fits" {
		t.Errorf("got %q and %q, want the cells' own words", got[1].Text, got[2].Text)
	}
}

// Every cell with a load has a diagnosis, stands in one verdict, and shows the use of its path from end to
// end; the cores that all roles share come last.
func TestEveryCellIsDiagnosed(t *testing.T) {
	d := Derive(quickRun(3))
	n := map[string]int{}
	for _, x := range d.Verdicts {
		for _, f := range x.Cells {
			n[f.Key()]++
		}
	}

	for _, c := range d.Cells {
		if _, ok := c.Metrics[metrics.Goodput]; ok && (c.Diagnosis == nil || n[c.Factors.Key()] != 1) {
			t.Errorf("%s: diagnosis %v in %d verdicts, want one", c.Label, c.Diagnosis, n[c.Factors.Key()])
		}
	}

	c := cellOf(t, d, quickFactors())
	got := c.GeneratorShare
	if got <= 0 || got > 1 {
		t.Errorf("the load generator took %v of the CPU time", got)
	}

	path := c.Diagnosis.Path
	if len(path) < 3 || path[0].Node != "client" || path[len(path)-1].Node != record.HostNode {
		t.Fatalf("got %+v, want the stages from the client on, the host's last", path)
	}

	at := slices.IndexFunc(path, func(s diagnosis.Stage) bool { return s.Label == "busiest core" })
	if at < 0 || path[at].Utilisation == nil || math.Abs(*path[at].Utilisation-.89) > .01 {
		t.Errorf("got %+v, want a busiest core that is busy for 89 %% of the time", path)
	}
}

// While a run goes on each trial of a load has a candidate of its own; others, and failed ones, have none.
func TestCandidateOfOneTrial(t *testing.T) {
	run, trials := quickRun(1)
	for _, trial := range trials {
		load := trial.Row.Kind == record.RowLoad && trial.Status == record.TrialOK
		d := candidate(&run, validity.GradeTrial(&run, &trial))
		if (d != nil) != load || d != nil && d.Trials != 1 {
			t.Errorf("%s %s: got %+v", trial.Row.Kind, trial.Status, d)
		}
	}

	failed := trials[len(trials)-1]
	failed.Status = record.TrialFailed
	failed.Failure = &record.Failure{Phase: "load", Error: "no route"}
	if d := candidate(&run, validity.GradeTrial(&run, &failed)); d != nil {
		t.Errorf("a failed trial has the candidate %+v", d)
	}
}

// A user is told the commands of the router's own system, or of all where it is not known.
func TestRemediesAreTheSystems(t *testing.T) {
	all := []diagnosis.Remedy{{System: "linux"}, {System: "openwrt"}, {System: "freebsd"}, {System: ""}}
	for system, want := range map[string]string{"linux": "linux,", "openwrt": "openwrt,linux,",
		"freebsd": "freebsd,", "opnsense": "freebsd,", "": "linux,openwrt,freebsd,"} {
		var got []string
		for _, r := range remediesFor(system, "wireguard", all) {
			got = append(got, r.System)
		}

		if strings.Join(got, ",") != want {
			t.Errorf("%q: got %v, want %s", system, got, want)
		}
	}
}

// Nobody with WireGuard is told to change OpenVPN.
func TestRemediesAreTheTunnels(t *testing.T) {
	all := []diagnosis.Remedy{{Do: "a", Tunnel: "wireguard"}, {Do: "b", Tunnel: "openvpn"}, {Do: "c"}}
	for tunnel, want := range map[string]string{"wireguard-userspace": "ac", "openvpn": "bc", "none": "c"} {
		got := ""
		for _, r := range remediesFor("linux", tunnel, all) {
			got += r.Do
		}

		if got != want {
			t.Errorf("%s: got %s, want %s", tunnel, got, want)
		}
	}
}

// What a tunnel was resolved to stands beside its name, once.
func TestTunnelIsSaidOnce(t *testing.T) {
	d := Derive(quickRun(1))
	for resolved, want := range map[string]string{"wireguard-userspace": "WireGuard (userspace)",
		"wireguard (client userspace, router kernel)": "WireGuard (client userspace, router kernel)",
		"wireguard": "WireGuard"} {
		c := &Cell{
			Cell:     metrics.Cell{Factors: quickFactors("tunnel", "wireguard")},
			Resolved: record.Factors{"tunnel": resolved},
		}
		got := d.TunnelWords(c)
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// A grade of A is no finding; what is worse is.
func TestFindingsAreWhatIsWrong(t *testing.T) {
	for added, want := range map[float64]int{20e6: 0, 45e6: 1, 500e6: 1} {
		run, trials := quickRun(1)
		s := newSynthetic(3)
		for i := range trials {
			if trials[i].Loaded != nil {
				trials[i].Loaded = s.latency(trials[i].Window, added, 1)
			}
		}

		c := cellOf(t, Derive(run, trials), quickFactors())
		if len(c.Findings) != want {
			t.Errorf("%v ns added: findings %v, want %d", added, c.Findings, want)
		}
	}
}

// A tunnel is called what its level is.
func TestTunnelCostNamesTheTunnel(t *testing.T) {
	d := Derive(quickRun(1))
	words := d.Catalogue.Of(string(factor.Tunnel)).Without.Words
	d.Comparisons = []comparison.Comparison{{
		Metric:  metrics.Goodput,
		Name:    words,
		Ratio:   .5,
		Factors: quickFactors("tunnel", "wireguard"),
	}}
	if got := tunnelCost(d); len(got) != 1 || !strings.HasPrefix(got[0], "Inside WireGuard ") {
		t.Errorf("got %q", got)
	}
}

// TestSummaryAnswersNATAndMTU: what was measured of both is said, over all comparisons of several.
func TestSummaryAnswersNATAndMTU(t *testing.T) {
	wireguard := func(streams, mtu string) record.Factors {
		return quickFactors("tunnel", "wireguard", "mtu", mtu, "streams", streams)
	}
	cells := []record.Factors{quickFactors(), quickFactors("nat", "masquerade"), wireguard("1", "1420"),
		wireguard("1", "1280"), wireguard("1", "1500")}
	rates := []float64{4e9, 3e9, 2e9, 1.8e9, 4e6}
	match := func(want ...string) {
		t.Helper()
		text := strings.Join(Derive(sharesRun(cells, rates)).Summary, "\n")
		for _, w := range want {
			if !regexp.MustCompile(w).MatchString(text) {
				t.Errorf("want %q in\n%s", w, text)
			}
		}
	}
	match("there remained 7[456].* of the goodput of the same path without address translation.",
		"Inside WireGuard there remained (50|49|51).* % of", // at the default MTU
		"The best other MTU, 1280, carried (90|89).* % of what the default MTU 1420 did")
	d := Derive(sharesRun(cells, rates))
	for i := range d.Cells {
		d.Cells[i].Grade = evidence.GradeSuspect
	}

	for _, text := range slices.Concat(tunnelCost(d), natCost(d), mtuWords(d)) {
		if !strings.HasSuffix(text, ", suspect.") {
			t.Errorf("of suspect cells: %s", text)
		}
	}

	cells = append(cells, quickFactors("streams", "4"), quickFactors("nat", "masquerade", "streams", "4"),
		wireguard("4", "1420"), wireguard("4", "1280"))
	rates = append(rates, 4e9, 2e9, 2e9, 1e9)
	match("With address translation there remained (50|49|51).* to 7[456].* \\(2 comparisons\\).",
		"The best other MTU carried (50|49|51).* to (90|89).* \\(2 comparisons\\).")
}

// A cell that took all runs that an adaptive plan allows says so if its interval is still too wide.
func TestAdaptiveStopsAtItsMost(t *testing.T) {
	said := func(width float64, most, failed int) bool {
		run, trials := quickRun(6)
		for i := range trials { // what failed took its turn as well
			k := &trials[i]
			if failed > 0 && k.Row.Kind == record.RowLoad && k.Row.Cell() == quickFactors().Key() {
				k.Status = record.TrialFailed
				k.Failure = &record.Failure{Phase: "load"}
				failed = failed - 1
			}
		}

		run.Design.Method.Adaptive = &record.Adaptive{Min: 6, Max: most, Width: width}
		return slices.ContainsFunc(cellOf(t, Derive(run, trials), quickFactors()).Caveats,
			func(c record.Caveat) bool {
				return c.Kind == "interval-not-reached" && strings.Contains(c.Text, "after 6 runs")
			})
	}
	for _, tt := range []struct {
		width        float64
		most, failed int
		want         bool
	}{{1e-4, 6, 0, true}, {.5, 6, 0, false}, {1e-4, 7, 0, false}, {1e-4, 6, 1, true}, {1e-4, 7, 1, false}} {
		got := said(tt.width, tt.most, tt.failed)
		if got != tt.want {
			t.Errorf("%+v: said %v", tt, got)
		}
	}
}

package analysis

import (
	"slices"
	"strings"
	"testing"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/comparison"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/metrics"
	"github.com/chokepoint-lab/chokepoint/internal/factor"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// The verdict of the fastest cells names the busiest core and the tester's share.
func TestVerdict(t *testing.T) {
	d := Derive(quickRun(3))
	if len(d.Verdict) != 2 || !strings.HasPrefix(d.Verdict[0], "Without a tunnel: the busiest core") ||
		!strings.HasPrefix(d.Verdict[1], "Through WireGuard: ") {
		t.Fatalf("the verdict is %q", d.Verdict)
	}
	for _, want := range []string{"89.0 % of the time", "of all CPU time that was used",
		"of what the tester reaches alone (tcp loopback, 1 stream)"} {
		if !strings.Contains(d.Verdict[0], want) {
			t.Errorf("%q lacks %q", d.Verdict[0], want)
		}
	}
}

// Between two machines the busier end is the resource that is known to be busiest.
func TestVerdictOfTwoMachines(t *testing.T) {
	f := quickFactors()
	run := syntheticRun(f)
	run.Lab = record.LabPair
	var trials []record.Trial
	for i := range 3 {
		trial := newSynthetic(uint64(i)).trial(f, i+1, i+1, 1e9)
		near := trial.Nodes["host"]
		idle := newSynthetic(uint64(i)).nodes(trial.Window)["host"]
		for k, name := range idle.Samples[0].Table.Names {
			if strings.HasSuffix(name, "/system_ns") {
				clear(idle.Samples[0].Table.V[k])
			}
		}
		trial.Nodes = map[string]record.NodeData{"client": idle, "server": near}
		trials = append(trials, trial)
	}
	d := Derive(run, trials)
	if len(d.Verdict) != 1 || !strings.Contains(d.Verdict[0], "the busiest core of the server, an end of "+
		"the path, was busy for 89.0 % of the time") {
		t.Errorf("the verdict is %q, want the busier end", d.Verdict)
	}
}

// What a tunnel was resolved to stands beside its name, once.
func TestTunnelIsSaidOnce(t *testing.T) {
	d := Derive(quickRun(1))
	for resolved, want := range map[string]string{"wireguard-userspace": "through WireGuard (userspace)",
		"wireguard (client userspace, router kernel)": "through WireGuard (client userspace, router kernel)",
		"wireguard": "through WireGuard"} {
		c := &Cell{Factors: quickFactors("tunnel", "wireguard"), Resolved: record.Factors{"tunnel": resolved}}
		if got := d.with(c); got != want {
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
	d.Comparisons = []comparison.Comparison{{Metric: metrics.Goodput, Name: words, Ratio: .5,
		Factors: quickFactors("tunnel", "wireguard")}}
	if got := tunnelCost(d); len(got) != 1 || !strings.HasPrefix(got[0], "Inside WireGuard ") {
		t.Errorf("got %q", got)
	}
	for ratio, want := range map[float64]string{.5: "50.0 % of", 2.33: "2.33 times", 2330: "2,330 times"} {
		if got := timesWords(ratio); got != want {
			t.Errorf("%v: got %q, want %q", ratio, got, want)
		}
	}
}

// A cell that took all runs that an adaptive plan allows says so if its interval is still too wide.
func TestAdaptiveStopsAtItsMost(t *testing.T) {
	said := func(width float64, most, failed int) bool {
		run, trials := quickRun(6)
		for i := range trials { // what failed took its turn as well
			k := &trials[i]
			if failed > 0 && k.Row.Kind == record.RowLoad && k.Row.Cell() == quickFactors().Key() {
				k.Status, k.Failure, failed = record.TrialFailed, &record.Failure{Phase: "load"}, failed-1
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
		if got := said(tt.width, tt.most, tt.failed); got != tt.want {
			t.Errorf("%+v: said %v", tt, got)
		}
	}
}

package analysis

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/metrics"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// TestGuestsAreSaid: what a virtual router's numbers mean stands in the summary and among the caveats.
func TestGuestsAreSaid(t *testing.T) {
	const nothing = "an emulated router's absolute speed means nothing; only its ratios and counters count"
	tests := []struct {
		lab, accel string
		first      string
		emulated   bool
		shared     string
	}{
		{"local", "", "This machine acting as a router: how fast it forwards.", false,
			"client, router and server share this machine's cores"},
		{"vm", "tcg", "An emulated router: how fast it forwards.", true, "vCPUs"},
		{"vm:arm64", "", "An emulated router: how fast it forwards.", true, "vCPUs"},
		{"vm", "kvm", "A virtual router: how fast it forwards.", false, "vCPUs"},
	}
	for _, tt := range tests {
		t.Run(tt.lab+" "+tt.accel, func(t *testing.T) {
			run, trials := quickRun(3)
			inLab(&run, tt.lab)
			run.Design.Description = "This machine acting as a router: how fast it forwards. More is in " +
				"the guide."
			if tt.accel != "" {
				run.Environments = append(run.Environments, record.Environment{
					Node:  "host",
					Facts: map[string]string{"guest_accel": tt.accel},
				})
			}

			if tt.accel == "kvm" {
				run.Nodes[1].CPUs = record.CPUsVirtual
			}

			d := Derive(run, trials)
			if d.Summary[0] != tt.first || !strings.HasPrefix(d.Run.Description, strings.TrimSuffix(tt.first,
				"forwards.")) {
				t.Errorf("first line %q, description %q, want %q", d.Summary[0], d.Run.Description, tt.first)
			}

			if got := slices.Contains(d.Summary, "An"+nothing[2:]+"."); got != tt.emulated {
				t.Errorf("summary says that absolute speeds mean nothing: got %v, want %v:\n%s", got,
					tt.emulated, strings.Join(d.Summary, "\n"))
			}

			kinds := map[string]string{}
			for _, c := range d.Caveats {
				kinds[c.Kind] = c.Text
			}

			if got := kinds["emulated"]; (got == nothing) != tt.emulated {
				t.Errorf("caveat: got %q, want it: %v", got, tt.emulated)
			}

			if got := kinds["shared-cores"]; !strings.Contains(got, tt.shared) {
				t.Errorf("shared cores: got %q, want %q", got, tt.shared)
			}
		})
	}
}

// TestWhatAGuestTells: sums over the window of what only a guest, or its host, has sources for.
func TestWhatAGuestTells(t *testing.T) {
	run, trials := quickRun(1)
	inLab(&run, "vm")
	for i := range trials {
		w := trials[i].Window
		add := func(node, probe string, from, to []float64, names ...string) {
			table := record.NewTable(names...)
			table.Append(w.Start, from...)
			table.Append(w.End, to...)
			n := trials[i].Nodes[node]
			n.Samples = append(n.Samples, record.Samples{Probe: probe, Table: table})
			trials[i].Nodes[node] = n
		}
		cores := float64(w.End - w.Start)
		add("host", "guests", []float64{7, 9}, []float64{7 + cores, 9 + cores/2}, "router/vcpu0/guest_cpu_ns",
			"router/main/guest_cpu_ns")
		add("router", "clock", []float64{6e8, math.NaN(), 9e8}, []float64{math.NaN(), 4e8, math.NaN()},
			"cpu0/loop_rate_hz", "cpu1/loop_rate_hz", "cpu0/loop_rate_best_hz")
		add("router", "drops", []float64{1, 1}, []float64{5, 4}, "skb_drops", "NO_SOCKET/skb_drops")
		add("router", "xfrm", []float64{1, 2}, []float64{2, 9}, "XfrmInNoStates", "XfrmOutPolBlock")
		add("router", "flows", []float64{3, 1}, []float64{4, 2}, "flows_tracked", "flows_offloaded")
	}

	c := cellOf(t, Derive(run, trials), quickFactors())
	want := map[string]float64{metrics.GuestsCPU: 1.5, "router_loop_rate_hz": 5e8, metrics.KernelDrops: 4,
		metrics.IPsecDrops:     8,
		metrics.FlowsOffloaded: 2}
	for name, v := range want {
		got := c.Metrics[name].Median
		if math.Abs(got/v-1) > 1e-9 {
			t.Errorf("%s: got %v (missing: %s), want %v", name, got, c.Missing[name], v)
		}
	}

	inLab(&run, "local")
	c = cellOf(t, Derive(run, trials), quickFactors())
	if _, ok := c.Metrics[metrics.KernelDrops]; ok || c.Missing[metrics.KernelDrops] == "" {
		t.Errorf("%s in lab local: got a number, or no reason (%q), want none", metrics.KernelDrops,
			c.Missing[metrics.KernelDrops])
	}
}

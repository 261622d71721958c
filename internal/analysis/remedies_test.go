package analysis

import (
	"slices"
	"strings"
	"testing"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/diagnosis"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// offloading lets the router's flowtable carry the connections.
func offloading(_ *record.Run, tr *record.Trial) {
	n := tr.Nodes["router"]
	n.Samples = slices.DeleteFunc(slices.Clone(n.Samples), func(s record.Samples) bool {
		return s.Probe == "flows"
	})
	n.Samples = append(n.Samples, record.Samples{
		Probe: "flows",
		Scope: record.ScopeNode,
		Table: &record.Table{
			Names: []string{"flows_tracked", "flows_offloaded"},
			T:     []int64{tr.Window.Start, tr.Window.End},
			V:     [][]float64{{9, 9}, {8, 8}},
		},
	})
	tr.Nodes["router"] = n
}

// autotuned lets nobody set the receiver's buffer, which has a size under a ceiling.
func autotuned(buffer, ceiling string) func(*record.Run, *record.Trial) {
	return func(run *record.Run, tr *record.Trial) {
		delete(tr.Row.Factors, "fault")
		tr.Traffic.Details["far.rcvbuf_bytes"] = buffer
		run.Environments = append([]record.Environment{{
			Node: "server",
			Facts: map[string]string{
				"sysctl:net.ipv4.tcp_rmem": "4096 131072 " + ceiling},
		}}, run.Environments...)
	}
}

// fitting gives the tunnel's devices an MTU that fits.
func fitting(run *record.Run, _ *record.Trial) {
	run.Environments = append(run.Environments, record.Environment{
		Node: "server",
		Inventory: &record.Inventory{Devices: []record.NetDevice{{
			Name: "wg0",
			Kind: "wireguard",
			MTU:  1420,
		}}},
	})
}

// No remedy is offered that is the case, or that the state leaves no room for.
func TestRemediesAreStillToBeDone(t *testing.T) {
	for _, tt := range []struct {
		of          example
		class, word string
		want        bool
	}{
		{example{"all-cores", nil}, diagnosis.SoftirqAllCores, "flowtable", true},
		{example{"all-cores", offloading}, diagnosis.SoftirqAllCores, "flowtable", false},
		{example{"rules", offloading}, diagnosis.RuleList, "flow", false},
		{example{"receive-window", autotuned("8192", "8192")}, diagnosis.ReceiveWindow, "autotune", true},
		{example{"receive-window", autotuned("8192", "999999")}, diagnosis.ReceiveWindow, "autotune", false},
		{example{"receive-window", autotuned("131072", "33554432")}, diagnosis.ReceiveWindow, "scale", true},
		{example{"receive-window", nil}, diagnosis.ReceiveWindow, "scale", false},
		{example{"fragmentation", nil}, diagnosis.Fragmentation, "tunnel MTU", true},
		{example{"fragmentation", fitting}, diagnosis.Fragmentation, "tunnel MTU", false},
		{example{"fragmentation", fitting}, diagnosis.Fragmentation, "MSS", true},
		{example{"link-rate", throttling(0, "")}, diagnosis.LinkRate, "use a faster link", true},
		{example{"link-rate", nil}, diagnosis.LinkRate, "use a faster link", false},
		{example{"link-rate", nil}, diagnosis.LinkRate, "change fault@router.wan=link_rate=30M, which", true},
		{example{"shaper", nil}, diagnosis.Shaper, "change shape@router.wan=30M, which the plan", true},
		{example{"link-rate", throttling(32e6, "tbf")}, diagnosis.LinkRate, "use a faster link", false},
		{example{"link-rate", throttling(32e6, "tbf")}, diagnosis.Shaper, "raise the shaper's rate", true},
		{example{"one-core", nil}, diagnosis.SoftirqOneCore, "RPS", true},
		{example{"one-core", func(run *record.Run, _ *record.Trial) {
			know(run, "device:lan:rx-0:rps_cpus", "3")
		}}, diagnosis.SoftirqOneCore, "RPS", false},
	} {
		j := checked(t, tt.of, tt.class)
		got := slices.ContainsFunc(j.Remedies, func(r diagnosis.Remedy) bool {
			return strings.Contains(r.Do, tt.word)
		})
		if got != tt.want {
			t.Errorf("%s of %s (%.1f): %q is offered: %v, want %v", tt.class, tt.of.file, j.Score, tt.word,
				got, tt.want)
		}
	}
}

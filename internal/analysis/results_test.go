package analysis

import (
	"cmp"
	"testing"

	diff "github.com/google/go-cmp/cmp"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/evidence"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/metrics"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/statistics"
	"github.com/chokepoint-lab/chokepoint/internal/factor"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// Results keep the firmware apart: from the factors and labels of a cell, and from the name of a device.
func TestResultsOfARun(t *testing.T) {
	cell := func(tunnel, firmware string) Cell {
		c := Cell{Runs: 6}
		c.Factors = record.Factors{"tunnel": tunnel, "firmware": firmware}
		c.Label = tunnel + " · firmware " + firmware
		c.Grade = evidence.GradeSuspect
		c.Reasons = []evidence.Reason{{Kind: "background-load", Text: "other programs ran"}}
		c.Metrics = map[string]statistics.Value{
			metrics.Goodput:    {Median: 1e9, Spread: statistics.Spread{N: 6, Low: 9e8, High: 2e9}},
			metrics.PacketRate: {Median: 1e5, Spread: statistics.Spread{N: 6, Low: 9e4, High: 2e5}},
			"router_softirq":   {Median: 1},
		}
		return c
	}
	facts := map[string]string{"product": "Example R1", "distribution": "openwrt",
		"distribution_release": "24.10.1", "kernel": "6.6.86"}
	d := &Document{
		Catalogue: &factor.Catalogue{},
		Topologies: []record.Topology{{
			Nodes: []record.TopoNode{{Name: "client"}, {Name: "router", Router: true}},
		}},
		Environment: []record.Environment{
			{Node: "client", Facts: map[string]string{"kernel": "6.1"}},
			{Node: "router", Facts: facts},
		},
		Cells: []Cell{cell("none", "24.10.0"), cell("none", "24.10.1"), cell("wireguard", "24.10.1")},
	}
	d.Run.Lab = record.LabSSH
	d.Run.Device = "Example R1, openwrt 24.10.1"
	got := d.Results()
	facts1 := record.ResultFacts{
		Derivation: ResultsDerivation,
		Device:     "Example R1",
		Firmware:   "openwrt 24.10.1",
		Kernel:     "6.6.86",
	}
	if text := diff.Diff(got.ResultFacts, facts1); text != "" {
		t.Errorf("facts differ (-got +want):\n%s", text)
	}

	want := record.CellResult{
		Factors:  record.Factors{"tunnel": "none"},
		Firmware: "24.10.1",
		Label:    "tunnel none",
		Grade:    evidence.GradeSuspect,
		Why:      "other programs ran",
		Metric:   metrics.PacketRate,
		Metrics: map[string]record.Estimate{
			metrics.Goodput:    {N: 6, Median: 1e9, Low: 9e8, High: 2e9},
			metrics.PacketRate: {N: 6, Median: 1e5, Low: 9e4, High: 2e5},
		},
	}
	if text := diff.Diff(got.Cells[1], want); text != "" {
		t.Errorf("cell differs (-got +want):\n%s", text)
	}

	d.Series = &record.Series{ID: "upgrade-1"}
	if got := d.Results().Series; got != "upgrade-1" {
		t.Errorf("series: got %q", got)
	}

	d.Environment = nil
	for _, typed := range []string{"the tidy router", ""} {
		d.Run.Device = typed
		if got, want := d.Results().Device, cmp.Or(typed, record.LabSSH); got != want {
			t.Errorf("device called %q: got %q, want %q", typed, got, want)
		}
	}
}

// In namespaces the router's kernel is that of the machine; of a router that nobody reaches it is unknown.
func TestKernelOfResults(t *testing.T) {
	for lab, want := range map[string]string{record.LabLocal: "6.1", record.LabPair: "", record.LabSSH: ""} {
		d := &Document{Environment: []record.Environment{{
			Node:  record.HostNode,
			Facts: map[string]string{"kernel": "6.1"},
		}}}
		d.Run.Lab = lab
		if got := d.Results().Kernel; got != want {
			t.Errorf("lab %s: kernel %q, want %q", lab, got, want)
		}
	}
}

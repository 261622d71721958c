package analysis

import (
	"strings"
	"testing"

	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// TestTwoBootsAreTwoRouters: nothing is computed of trials of two boots of a router together. Those of the
// boot with fewer are set aside, and the run says so.
func TestTwoBootsAreTwoRouters(t *testing.T) {
	for _, tt := range []struct {
		name   string
		booted func(i, n int) string // the boot of the i-th of n trials
		aside  func(i, n int) bool
	}{
		{"one boot", func(int, int) string { return "a" }, func(int, int) bool { return false }},
		{"none known", func(int, int) string { return "" }, func(int, int) bool { return false }},
		{"anew near the end", func(i, n int) string { return "aab"[i*3/n:][:1] },
			func(i, n int) bool { return i*3/n == 2 }},
		{"anew near the beginning", func(i, n int) string { return "abb"[i*3/n:][:1] },
			func(i, n int) bool { return i*3/n == 0 }},
		{"twice", func(i, n int) string { return "abbc"[i*4/n:][:1] },
			func(i, n int) bool { return i*4/n == 0 || i*4/n == 3 }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			run, trials := quickRun(6)
			aside := map[string]bool{}
			for i := range trials {
				boot := tt.booted(i, len(trials))
				if boot != "" {
					trials[i].Boots = map[string]string{"router": boot}
				}

				if tt.aside(i, len(trials)) {
					aside[trials[i].ID] = true
				}
			}

			d := Derive(run, trials)
			for _, v := range d.Trials {
				failed := v.Grade == "failed"
				if failed != aside[v.ID] {
					t.Errorf("trial %s is set aside: %v, want %v", v.ID, failed, aside[v.ID])
				}
			}

			said := false
			for _, c := range d.Caveats {
				said = said || c.Kind == "other-boots" && strings.Contains(c.Text, "set aside")
			}

			if said != (len(aside) > 0) {
				t.Errorf("the run says so: %v, want %v", said, len(aside) > 0)
			}

			for _, c := range d.Cells {
				want := 0
				for i := range trials {
					row := trials[i].Row
					if row.OfCell() && row.Cell() == c.Factors.Key() && !aside[trials[i].ID] {
						want++
					}
				}

				if c.Runs != want {
					t.Errorf("cell %s has %d runs, want %d", c.Label, c.Runs, want)
				}
			}
		})
	}
}

// TestNodesOfOneKernel: ends that share a kernel share its cores. What one sees of the other's load is not
// other work, and the run says that they share them.
func TestNodesOfOneKernel(t *testing.T) {
	checked := func(kernel string, foreign float64) *Document {
		run, trials := quickRun(3)
		run.Lab = record.LabSSH
		run.Nodes = nil
		for _, name := range []string{"client", "router", "server"} {
			run.Nodes = append(run.Nodes, record.NodeFacts{
				Name:      name,
				Driven:    record.DrivenByAgent,
				OwnKernel: true,
				CPUs:      record.CPUsOwn,
				Clock:     record.ClockRelated,
				Kernel:    kernel,
			})
		}

		for i := range trials {
			w := trials[i].Window
			trials[i].Nodes = map[string]record.NodeData{}
			for _, n := range run.Nodes {
				table := record.NewTable("foreign_cpu_ns", "lab_cpu_ns", "foreign_processes")
				for at := w.Begin - second; at <= w.Stop+second; at += second / 10 {
					// Each node's own processes use half a core, and so those of the others a whole one.
					since := float64(at - w.Begin)
					table.Append(at, since*(1+foreign), since/2, 3)
				}

				trials[i].Nodes[n.Name] = record.NodeData{Samples: []record.Samples{{
					Probe: "foreign",
					Scope: record.ScopeHost,
					Table: table,
				}}}
			}
		}

		return Derive(run, trials)
	}
	for _, tt := range []struct {
		name, kernel    string
		foreign         float64
		suspect, shared bool
	}{
		{"one kernel, each other's load", "client", 0, false, true},
		{"one kernel, other work", "client", .8, true, true},
		{"kernels of their own", "", 0, true, false},
	} {
		d := checked(tt.kernel, tt.foreign)
		suspect, shared := false, false
		for _, v := range d.Trials {
			for _, r := range v.Reasons {
				suspect = suspect || r.Kind == "background-load"
			}
		}

		for _, c := range d.Caveats {
			shared = shared || c.Kind == "shared-cores" && strings.Contains(c.Text,
				"client, router, server have one kernel")
		}

		if suspect != tt.suspect || shared != tt.shared {
			t.Errorf("%s: background load %v, want %v; told that cores are shared %v, want %v", tt.name,
				suspect, tt.suspect, shared, tt.shared)
		}
	}
}

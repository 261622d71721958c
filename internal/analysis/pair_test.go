package analysis

import (
	"slices"
	"strings"
	"testing"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/evidence"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// pairTrial is a trial between two machines of which nobody watched the router: both ends have what the one
// machine of a local lab has.
func pairTrial() (record.Run, record.Trial) {
	f := quickFactors()
	run := syntheticRun(f)
	inLab(&run, "pair")
	run.Design.Description = "This machine acting as a router: how fast it forwards between two others. More."
	t := newSynthetic(7).trial(f, 1, 1, 1e9)
	other := newSynthetic(8).trial(f, 1, 1, 1e9)
	t.Nodes = map[string]record.NodeData{"client": t.Nodes["host"], "server": other.Nodes["host"],
		"router": {Samples: []record.Samples{{
			Probe:       "all",
			Scope:       record.ScopeNode,
			Unavailable: "nobody is there",
		}}}}
	return run, t
}

// TestPairSaysWhatIsMissing: what only the router could tell, and what only one machine of all could.
func TestPairSaysWhatIsMissing(t *testing.T) {
	run, trial := pairTrial()
	d := Derive(run, []record.Trial{trial})
	c := d.Cells[0]
	if c.Grade != evidence.GradeValid {
		t.Errorf("grade: got %s for %v, want valid", c.Grade, c.Reasons)
	}

	missing := d.Trials[0].Missing
	for metric, want := range map[string]string{
		"router_cpu_ratio": "nobody is there", "router_interface_drops": "nobody is there",
		"host_cpu_ratio": "no machine carries all nodes",
	} {
		got := missing[metric]
		if got != want {
			t.Errorf("%s is missing: got %q, want %q", metric, got, want)
		}
	}

	if want := "What lies between two machines: how fast it forwards between them."; d.Summary[0] != want {
		t.Errorf("summary: got %q, want %q", d.Summary[0], want)
	}

	for _, c := range d.Caveats {
		if c.Kind == "shared-cores" {
			t.Errorf("caveat: got %q, want none that cores are shared", c.Text)
		}
	}
}

// TestPairWatchesBothEnds: a busy core, others at work, and a hypervisor make either end doubtful; in a
// local lab they are one machine's.
func TestPairWatchesBothEnds(t *testing.T) {
	for _, node := range []string{"client", "server"} {
		for name, tt := range map[string]struct {
			kind, text string
			plant      func(t *record.Trial)
		}{
			"busy core": {evidence.ReasonTesterLimited, "cpu0 of the " + node + ", an end of the path",
				func(t *record.Trial) {
					cpu := table(t, node, "cpu")
					for i, n := range cpu.Names {
						if n == "cpu0/idle_ns" {
							for j := range cpu.V[i] {
								cpu.V[i][j] = cpu.V[i][0]
							}
						}
					}
				}},
			"others": {evidence.ReasonBackgroundLoad, "processes that are not the lab's used",
				func(t *record.Trial) { after(t, table(t, node, "foreign"), "foreign_cpu_ns", 2e9) }},
			"steal": {evidence.ReasonBackgroundLoad, "of the cores of the " + node + " away",
				func(t *record.Trial) {
					after(t, table(t, node, "cpu"), "cpu0/steal_ns", 1e9)
					after(t, table(t, node, "cpu"), "cpu1/steal_ns", 1e9)
				}},
		} {
			run, trial := pairTrial()
			tt.plant(&trial)
			reasons := Derive(run, []record.Trial{trial}).Cells[0].Reasons
			found := slices.ContainsFunc(reasons, func(r evidence.Reason) bool {
				return r.Kind == tt.kind &&
					strings.Contains(r.Text, tt.text)
			})
			if !found || len(reasons) != 1 {
				t.Errorf("%s on %s: got %v, want %s alone with %q", name, node, reasons, tt.kind, tt.text)
			}
		}
	}
}

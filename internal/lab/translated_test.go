package lab_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/lab"
	"github.com/chokepoint-lab/chokepoint/internal/labtest"
	"github.com/chokepoint-lab/chokepoint/internal/labtest/expect"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/registry"
	"github.com/chokepoint-lab/chokepoint/internal/registry/node"
	"github.com/chokepoint-lab/chokepoint/internal/trial"
)

// TestNoNATIsNotClaimedOfWhatTranslates: in a lab whose router was told before to translate addresses, cells
// that ask for nat=off are skipped, and others do not say it; IPv6 passes as it is. The cells of a run with
// trials stay as they are, and are measured unless its plan asks for nat=off.
func TestNoNATIsNotClaimedOfWhatTranslates(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	l, id := labtest.UpIn(t, dir, "forward", registry.LabParts())
	able6 := l.CheckSetting(labtest.Context(t), record.Setting{
		Knob:  "sysctl:net.ipv6.conf.all.forwarding",
		Node:  "router",
		Value: "1",
	}).State == check.Yes
	for name, tt := range map[string]struct {
		matrix, router string
		ran, skipped   []string // levels of nat, "" = the cell has none
	}{
		"asked for": {`{nat: ["off", masquerade]}`, "masquerade", []string{"masquerade"}, []string{"off"}},
		"asked for once": {"{streams: [1, 2]}\ninclude: [{nat: \"off\", streams: 3}]", "masquerade", nil,
			[]string{"off", "off", "off"}},
		"the default": {"{streams: [1, 2]}\ninclude: [{nat: masquerade}]", "masquerade",
			[]string{"", "", "masquerade"}, nil},
		"not translated":       {`{nat: ["off", masquerade]}`, "off", []string{"off", "masquerade"}, nil},
		"IPv6":                 {"{ip: [4, 6]}", "masquerade", []string{"", "off"}, nil},
		"the default, resumed": {"{streams: [1, 2]}", "masquerade", []string{"off", "off"}, nil},
		"asked for, resumed": {`{nat: ["off", masquerade]}`, "masquerade", []string{"masquerade"},
			[]string{"off"}},
	} {
		t.Run(name, func(t *testing.T) {
			if strings.Contains(tt.matrix, "6") && !able6 {
				t.Skip("skip: this kernel has no IPv6")
			}

			must(t, l.Reconcile(labtest.Context(t), []record.Setting{{
				Knob:  "nat",
				Node:  "router",
				Value: tt.router,
			}}))
			p := labtest.ReadPlan(t, "name: x\nmethod: {runs: 1, seed: 1}\nmatrix: "+tt.matrix+"\n",
				registry.Vocabulary())
			labs := &lab.Locals{Local: lab.Local{ID: "run", Dir: dir, Parts: registry.LabParts()}}
			var err error
			labs.Attached, err = lab.Attach(dir, id, registry.LabParts(), nil)
			must(t, err)
			c := &trial.Campaign{
				Run: record.Run{
					RunHead:  record.RunHead{ID: "run", Lab: record.LabLocal},
					Attached: id,
					Design:   p.Design,
				},
				Plan:    p,
				Labs:    labs,
				Engines: node.Engines(),
				Prober:  node.Prober(),
			}
			if strings.HasSuffix(name, "resumed") {
				c.Done = make([]record.Trial, 1)
			}

			must(t, c.Prepare(labtest.Context(t)))
			must(t, c.Close(labtest.Context(t)))
			var ran, skipped []string
			for _, cell := range c.Run.Design.Cells {
				s := slices.IndexFunc(c.Run.Skipped, func(s record.Skipped) bool {
					return s.Factors.Key() == cell.Key()
				})
				if s < 0 {
					ran = append(ran, cell["nat"])
					continue
				}

				skipped = append(skipped, cell["nat"])
				const want = "nat=off on router: what is there translates addresses: server does not see " +
					"client by its own one"
				if s := c.Run.Skipped[s]; s.Reason != want || !strings.Contains(s.Hint, "nft delete rule") {
					t.Errorf("skipped: %s (%s)", s.Reason, s.Hint)
				}
			}

			expect.Same(t, "levels of nat that are run, and skipped", [][]string{tt.ran, tt.skipped},
				[][]string{ran, skipped})
			got := c.Run.Design.Baseline["nat"]
			if name == "the default" && got != "" {
				t.Errorf("the baseline says nat=%s", got)
			}
		})
	}
}

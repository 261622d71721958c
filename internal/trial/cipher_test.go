package trial_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/chokepoint-lab/chokepoint/internal/analysis"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/metrics"
	"github.com/chokepoint-lab/chokepoint/internal/lab"
	"github.com/chokepoint-lab/chokepoint/internal/lab/agent"
	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/labtest"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/registry"
	"github.com/chokepoint-lab/chokepoint/internal/registry/node"
	"github.com/chokepoint-lab/chokepoint/internal/trial"
)

// oneLab lends the same lab for every topology.
type oneLab struct{ lab *lab.Lab }

func (o oneLab) For(context.Context, string, record.GuestSize) (*lab.Lab, error) { return o.lab, nil }
func (oneLab) Close(context.Context) error                                       { return nil }

// oneNode is a lab of this machine alone, whose programs are those of a folder.
func oneNode(t *testing.T, programs string) *lab.Lab {
	t.Helper()
	t.Setenv("PATH", programs)
	a := host.Inside(t.Context(), agent.Handlers(agent.ChildRole, node.Parts()))
	l, err := lab.Assemble("x", record.Topology{
		Name:  "one",
		Near:  "router",
		Far:   "router",
		Nodes: []record.TopoNode{{Name: "router"}},
	}, []*lab.Node{{
		Name:  "router",
		Agent: a,
		Facts: record.NodeFacts{OwnKernel: true, CPUs: record.CPUsOwn, Clock: record.ClockSame},
	},
		{
			Name:  lab.HostNode,
			Agent: host.Inside(t.Context(), agent.Handlers(agent.ChildRole, node.Parts())),
			Facts: record.NodeFacts{CPUs: record.CPUsShared},
		}}, lab.Parts{}, nil)
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() {
		if err := l.Close(t.Context()); err != nil && t.Context().Err() == nil {
			t.Error(err)
		}
	})
	return l
}

// fake is an openssl that answers for some algorithms, and writes down what it was asked.
const fake = `#!/bin/sh
[ "$1" = version ] && { echo 'OpenSSL 9.9'; exit; }
echo "$*" >>"${0%/*}/asked"
case "$*" in
*sha256) echo +H:1420; echo +F:1:sha256:2840000.00 ;;
*ed25519) echo +F6:0:253:Ed25519:100.0:50.0 ;;
*) echo 'unknown cipher' >&2; exit 1 ;;
esac
`

// TestCiphersOfAPlan: each cell is measured on its node without any traffic, what openssl cannot do is
// skipped with what it says, and the document tells rates and advice.
func TestCiphersOfAPlan(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "openssl"), []byte(fake), 0o755); err != nil {
		t.Fatal(err)
	}

	p := labtest.ReadPlan(t, `
name: x
method: {runs: 2, duration: 1s, warmup: 0, cooldown: 0, seed: 1}
matrix: {engine: cipher, algorithm: [sha256, ed25519, x448]}
include:
  - {engine: cipher, library: go, algorithm: [chacha20-poly1305, aes-128-gcm], threads: [1, all]}
measure: {latency_idle: block, verify: true}
`, registry.Vocabulary())
	var trials labtest.Trials
	c := &trial.Campaign{
		Run: record.Run{
			RunHead: record.RunHead{ID: "run-1", Status: record.RunDone},
			Design:  p.Design,
		},
		Plan:       p,
		Labs:       oneLab{oneNode(t, dir)},
		Probes:     node.Probes(),
		Engines:    node.Engines(),
		Store:      &trials,
		NewInterim: interim,
	}
	if err := c.Prepare(t.Context()); err != nil {
		t.Fatal(err)
	}

	if len(c.Run.Skipped) != 1 || c.Run.Skipped[0].Factors["algorithm"] != "x448" ||
		!strings.Contains(c.Run.Skipped[0].Reason, "unknown cipher") {
		t.Errorf("skipped: got %+v, want x448 with what openssl said", c.Run.Skipped)
	}

	kinds := c.Kinds()
	if len(kinds) > 0 {
		t.Errorf("kinds of traffic: got %v, want none", kinds)
	}

	if out, err := c.Execute(t.Context()); err != nil || out.Failed > 0 || out.Trials != 12 {
		t.Errorf("got %+v, %v, want 12 trials of 6 cells", out, err)
	}

	if err := c.Close(t.Context()); err != nil {
		t.Error(err)
	}

	rates := map[string]float64{}
	for _, tr := range trials {
		var phases []string
		for _, ph := range tr.Phases {
			phases = append(phases, ph.Name)
		}

		diff := cmp.Diff([]string{"set-up", "window", "drain", "collect"}, phases)
		if diff != "" ||
			tr.Row.Kind != record.RowCipher || tr.Cipher == nil || tr.Nodes["router"].Samples == nil {
			t.Fatalf("trial %s of kind %s, cipher %+v (%v): phases (-want +got):\n%s", tr.ID, tr.Row.Kind,
				tr.Cipher, tr.Failure, diff)
		}

		if tr.Cipher.Node != "router" || tr.Cipher.Version == "" ||
			tr.Resolved["library"] != tr.Cipher.Version {
			t.Errorf("trial %s: got %+v resolved to %v", tr.ID, tr.Cipher, tr.Resolved)
		}

		if tr.Cipher.Library == "openssl" {
			rates[tr.Cipher.Algorithm+" "+tr.Cipher.Operation] = tr.Cipher.Rate
		} else if tr.Cipher.Rate < 1e5 {
			t.Errorf("%+v: got less than 100 kB/s", tr.Cipher)
		}
	}

	if diff := cmp.Diff(map[string]float64{"sha256 hash": 2.84e6, "ed25519 sign": 100}, rates); diff != "" {
		t.Errorf("rates by openssl (-want +got):\n%s", diff)
	}

	d := analysis.Derive(c.Run, trials)
	if len(d.Ciphers) != 1 || d.Ciphers[0].Versions["openssl"] != "OpenSSL 9.9" ||
		len(d.Ciphers[0].Advice) == 0 {
		t.Errorf("ciphers of the document: got %+v, want those of one node with advice", d.Ciphers)
	}

	for i := range d.Cells {
		c := &d.Cells[i]
		if v, ok := c.Metrics[metrics.RateOf(c.Factors)]; !ok || v.N != 2 {
			t.Errorf("%s: got rate %+v (%v), want two trials", c.Label, v, c.Reasons)
		}
	}
}

// TestCipherWithoutItsLibrary: cells of a library that the node lacks are skipped, with what to do about it.
func TestCipherWithoutItsLibrary(t *testing.T) {
	l := oneLab{oneNode(t, t.TempDir())}
	for _, tt := range []struct {
		long         time.Duration
		reason, hint string
	}{
		{2 * time.Minute, "for 1m0s at most", "set method.duration"},
		{time.Second, "measure with openssl on router", "library go"},
	} {
		c := rig(t, "name: x\nmethod: {runs: 1}\nmatrix: {engine: cipher}\n")
		c.Campaign.Labs = l
		c.Probes = nil
		c.Plan.Design.Method.Duration = tt.long
		if err := c.Prepare(t.Context()); err != nil {
			t.Fatal(err)
		}

		s := c.Run.Skipped
		if len(s) != 1 || !strings.Contains(s[0].Reason, tt.reason) ||
			!strings.Contains(s[0].Hint, tt.hint) {
			t.Errorf("%s: skipped %+v, want one for %q with hint %q", tt.long, s, tt.reason, tt.hint)
		}
	}
}

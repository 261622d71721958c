package trial_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/ciphers"
	"github.com/chokepoint-lab/chokepoint/internal/lab"
	"github.com/chokepoint-lab/chokepoint/internal/lab/agent"
	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/registry/node"
	"github.com/chokepoint-lab/chokepoint/internal/trial"
)

// oneNode is a lab of this machine alone, whose programs are those of a folder.
func oneNode(t *testing.T, programs string) *lab.Lab {
	t.Helper()
	t.Setenv("PATH", programs)
	a := host.Inside(t.Context(), agent.Handlers(agent.ChildRole, node.Parts()))
	l, err := lab.Assemble("x", record.Topology{Name: "one", Near: "router", Far: "router",
		Nodes: []record.TopoNode{{Name: "router"}}}, []*lab.Node{{Name: "router", Agent: a,
		Facts: record.NodeFacts{OwnKernel: true, CPUs: record.CPUsOwn, Clock: record.ClockSame}},
		{Name: lab.HostNode, Agent: host.Inside(t.Context(), agent.Handlers(agent.ChildRole, node.Parts())),
			Facts: record.NodeFacts{CPUs: record.CPUsShared}}}, lab.Parts{}, nil)
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

func TestCiphersThroughOpenSSL(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "openssl"), []byte(fake), 0o755); err != nil {
		t.Fatal(err)
	}
	o := trial.CipherSpeed{Algorithms: []string{"sha256", "ed25519", "x448"}, Blocks: []int{1420},
		Libraries: []string{ciphers.OpenSSL}, Threads: []int{1}, Seconds: 1, Repetitions: 6, Seed: 3}
	var long time.Duration
	d, err := o.Measure(t.Context(), oneNode(t, dir), "router", node.Probes(),
		func(d time.Duration) { long = d })
	if err != nil {
		t.Fatal(err)
	}
	if want := 24 * time.Second; long != want || d.Versions[ciphers.OpenSSL] != "OpenSSL 9.9" {
		t.Errorf("got %s of %q, want %s of OpenSSL 9.9", long, d.Versions[ciphers.OpenSSL], want)
	}
	got := map[string]float64{}
	for _, r := range d.Results {
		got[r.Algorithm+" "+r.Operation] = r.Rate.Median
		if r.Rate.N != 6 {
			t.Errorf("%s: got %d repetitions, want 6", r.Algorithm, r.Rate.N)
		}
	}
	want := map[string]float64{"sha256 hash": 2.84e6, "ed25519 sign": 100, "ed25519 verify": 50}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("medians (-want +got):\n%s", diff)
	}
	if len(d.Missing) != 1 || d.Missing[0].Algorithm != "x448" ||
		!strings.Contains(d.Missing[0].Why, "unknown cipher") {
		t.Errorf("missing: got %+v, want x448 with what openssl said", d.Missing)
	}
	asked, err := os.ReadFile(filepath.Join(dir, "asked"))
	if err != nil {
		t.Fatal(err)
	}
	// What failed once is not tried again, and repetitions are interleaved.
	if n := strings.Count(string(asked), "\n"); n != 13 {
		t.Errorf("openssl was asked %d times, want 13:\n%s", n, asked)
	}
	six := strings.Repeat("speed -mr -elapsed -seconds 1 ed25519\n", 6)
	if strings.Contains(string(asked), six) {
		t.Errorf("all repetitions of one cell were in a row:\n%s", asked)
	}
}

// TestCiphersWithoutOpenSSL: Go's libraries take over, and say that it was they.
func TestCiphersWithoutOpenSSL(t *testing.T) {
	l := oneNode(t, t.TempDir())
	o := trial.CipherSpeed{Algorithms: []string{"sha256", "ed448"}, Blocks: []int{1024}, Threads: []int{1},
		Seconds: 1, Repetitions: 1}
	d, err := o.Measure(t.Context(), l, "router", node.Probes(), func(time.Duration) {})
	if err != nil {
		t.Fatal(err)
	}
	missing := map[string]bool{}
	for _, m := range d.Missing {
		missing[m.Library+" "+m.Algorithm] = m.Why != ""
	}
	for _, r := range d.Results {
		if r.Library == ciphers.OpenSSL || r.Algorithm != "sha256" || r.Rate.Median < 1e5 {
			t.Errorf("got %+v, want sha256 by others than openssl, at 100 kB/s or more", r)
		}
	}
	if len(d.Results) == 0 || d.Results[0].Library != ciphers.Go || !missing["go ed448"] ||
		!missing["kernel ed448"] {
		t.Errorf("got %+v without %v, want sha256 by Go, and ed448 missing with a reason", d.Results, missing)
	}
	o.Libraries = []string{ciphers.OpenSSL}
	if _, err := o.Measure(t.Context(), l, "router", node.Probes(),
		func(time.Duration) {}); !errors.Is(err, host.ErrUnsupported) {
		t.Errorf("with openssl, which is not there: got %v, want %v", err, host.ErrUnsupported)
	}
}

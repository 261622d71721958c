package registry_test

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/lab"
	"github.com/chokepoint-lab/chokepoint/internal/lab/journal"
	"github.com/chokepoint-lab/chokepoint/internal/labtest"
	"github.com/chokepoint-lab/chokepoint/internal/labtest/apart"
	"github.com/chokepoint-lab/chokepoint/internal/labtest/expect"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/registry"
	"github.com/chokepoint-lab/chokepoint/internal/trial"
	"github.com/chokepoint-lab/chokepoint/internal/trial/traffic/ceiling"
)

// TestCeilingsOfEveryEngine: beside a lab, the tester alone is measured in a lab of its own, of which
// nothing is left, however it ends.
func TestCeilingsOfEveryEngine(t *testing.T) {
	apart.Long(t, "takes longer than a package has")
	dir := t.TempDir()
	l, id := labtest.UpIn(t, dir, "forward", registry.LabParts())
	j, err := journal.Create(filepath.Join(t.TempDir(), "journal"), id, "")
	must(t, err)
	own := lab.Local{ID: id, Dir: dir, Journal: j, Parts: registry.LabParts()}
	wire := record.Link{Offload: "wire"}
	super := record.Link{Offload: "super"}
	small := record.Load{Protocol: "udp", PacketSize: 64}
	frames := ceiling.KindOf("xdp", record.Load{Protocol: "udp", PacketSize: 46, Streams: 2}, wire)
	kinds := []ceiling.Kind{frames, ceiling.KindOf("native", record.Load{Protocol: "tcp"}, super),
		ceiling.KindOf("native", record.Load{Protocol: "tcp"}, wire),
		ceiling.KindOf("native", small, wire), ceiling.KindOf("native", record.Load{
			Protocol:   "udp",
			PacketSize: 9000,
		}, wire),
		ceiling.KindOf("native", record.Load{Protocol: "tcp"}, record.Link{Offload: "wire", MTU: 9000}),
		ceiling.KindOf("native", small, super),
		ceiling.KindOf("flows", record.Load{Protocol: "tcp"}, wire), ceiling.KindOf("requests",
			record.Load{Protocol: "tcp"}, wire)}
	names := []string{"xdp direct, 64-byte frames, 2 streams", "tcp direct, 1 stream, super",
		"tcp direct, 1 stream", "udp direct, 64-byte packets",
		"udp direct, 9000-byte packets", "tcp direct, 1 stream, MTU 9000",
		"udp direct, 64-byte packets, super",
		"flows direct, size 10000, 1 stream", "requests direct, 100 and 1000 bytes, 1 stream"}
	n, err := l.Node(labtest.Context(t), "client")
	must(t, err)
	if _, _, err := n.Agent.Clock(labtest.Context(t)); err != nil { // it answers, and stays
		t.Fatal(err)
	}

	resident := labtest.Descendants(os.Getpid())

	got, err := trial.Ceilings(labtest.Context(t), l, own, kinds)
	must(t, err)
	if len(got) != len(kinds) {
		t.Fatalf("got %+v, want %v", got, kinds)
	}

	for i, c := range got {
		k := kinds[i]
		if c.Kind != names[i] || c.Engine != k.Engine || c.Offload != k.Offload || c.MTU != k.MTU ||
			c.Value < 1000 || c.Note == "" {
			t.Errorf("got %+v, want some of %v", c, k)
		}

		// The link's packets are the kind's: only those of a wire are cut before it.
		cut := strings.Contains(c.Note,
			"which the kernel cuts before the first device")
		if k.Protocol == "udp" && k.Engine == "" &&
			cut != (k.Offload == "wire") {
			t.Errorf("%s: batches cut before the link %v, want %v: %s", c.Kind, cut, !cut, c.Note)
		}

		t.Logf("%+v", c)
	}

	alone(t, dir, id, resident)

	ctx, cancel := context.WithTimeout(labtest.Context(t), 250*time.Millisecond)
	defer cancel()
	if got, err := trial.Ceilings(ctx, l, own, []ceiling.Kind{frames}); err == nil || len(got) > 0 {
		t.Errorf("interrupted: got %v and %v, want an error alone", got, err)
	}

	alone(t, dir, id, resident)

	own.Dir = filepath.Join(dir, id, "lab.json") // no folder
	some, err := trial.Ceilings(labtest.Context(t), l, own, kinds[:2])
	if err == nil || !strings.Contains(err.Error(), "measure the tester's ceiling: ") || len(some) > 0 {
		t.Errorf("without a lab of its own: got %v and %v, want why there is no ceiling", some, err)
	}

	alone(t, dir, id, resident)
	if err := j.Close(); err != nil {
		t.Errorf("journal: %v, want nothing to put back", err)
	}
}

// alone: of all labs only one is left, and of processes those that were there.
func alone(t *testing.T, dir, id string, resident []int) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 || entries[0].Name() != id {
		t.Errorf("labs: got %v (%v), want %s alone", entries, err, id)
	}

	expect.Soon(t, 2*time.Second, "other processes", nil, func() []int {
		return slices.DeleteFunc(labtest.Descendants(os.Getpid()),
			func(pid int) bool { return slices.Contains(resident, pid) })
	})
}

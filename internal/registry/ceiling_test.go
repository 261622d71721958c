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
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/registry"
	"github.com/chokepoint-lab/chokepoint/internal/trial"
	"github.com/chokepoint-lab/chokepoint/internal/trial/traffic"
)

// TestCeilingsOfEveryEngine: beside a lab, the tester alone is measured with
// sockets over its loopback device and with frames in a lab of their own, of
// which nothing is left, however it ends.
func TestCeilingsOfEveryEngine(t *testing.T) {
	dir := t.TempDir()
	l, id := labtest.UpIn(t, dir, "forward", registry.LabParts())
	j, err := journal.Create(filepath.Join(t.TempDir(), "journal"), id)
	if err != nil {
		t.Fatal(err)
	}
	own := lab.Local{ID: id, Dir: dir, Journal: j, Parts: registry.LabParts()}
	frames := traffic.KindOf("xdp", record.Load{Protocol: "udp", PacketSize: 46, Streams: 2})
	kinds := []traffic.Kind{frames, traffic.KindOf("flows", record.Load{Protocol: "tcp"}), traffic.KindOf("requests", record.Load{Protocol: "tcp"})}
	n, err := l.Node(labtest.Context(t), "client")
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := n.Agent.Clock(labtest.Context(t)); err != nil { // it answers, and stays
		t.Fatal(err)
	}
	resident := labtest.Descendants(os.Getpid())

	got, err := trial.Ceilings(labtest.Context(t), l, own, kinds)
	if err != nil {
		t.Fatal(err)
	}
	want := []traffic.Kind{kinds[1], kinds[2], frames}
	if len(got) != len(want) {
		t.Fatalf("got %+v, want %v", got, want)
	}
	for i, c := range got {
		if c.Kind != want[i].String() || c.Engine != want[i].Engine || c.Value < 1000 || c.Note == "" {
			t.Errorf("got %+v, want some of %v", c, want[i])
		}
		t.Logf("%+v", c)
	}
	alone(t, dir, id, resident)

	ctx, cancel := context.WithTimeout(labtest.Context(t), 250*time.Millisecond)
	defer cancel()
	if got, err := trial.Ceilings(ctx, l, own, []traffic.Kind{frames}); err == nil || len(got) > 0 {
		t.Errorf("interrupted: got %v and %v, want an error alone", got, err)
	}
	alone(t, dir, id, resident)

	own.Dir = filepath.Join(dir, id, "lab.json") // no folder
	some, err := trial.Ceilings(labtest.Context(t), l, own, kinds[:2])
	if err == nil || !strings.Contains(err.Error(), "ceiling of frames") || len(some) != 1 || some[0].Engine != "flows" {
		t.Errorf("without a lab for frames: got %v and %v, want that of flows, and why there is no other", some, err)
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
	var left []int
	for range 100 {
		left = slices.DeleteFunc(labtest.Descendants(os.Getpid()), func(pid int) bool { return slices.Contains(resident, pid) })
		if len(left) == 0 {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
	t.Errorf("processes: %v are left", left)
}

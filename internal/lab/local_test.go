package lab_test

import (
	"context"
	"errors"
	"fmt"
	"math/bits"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/lab"
	"github.com/chokepoint-lab/chokepoint/internal/lab/vm"
	"github.com/chokepoint-lab/chokepoint/internal/labtest"
	"github.com/chokepoint-lab/chokepoint/internal/labtest/expect"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/registry"
)

func forward(t *testing.T) record.Topology {
	t.Helper()
	shape, err := lab.TopologyNamed("forward")
	must(t, err)
	return shape
}

// wantEmpty: a directory of labs that holds none, or that does not exist.
func wantEmpty(t *testing.T, dir string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}

	if len(entries) > 0 {
		t.Errorf("directory of labs: got %v, want none", entries)
	}
}

// machine returns what a test on a real lab may not leave behind, as text: the network devices and mounts of
// this namespace, and the processes that descend from this one.
func machine(t testing.TB) []string {
	t.Helper()
	var out []string
	entries, err := os.ReadDir("/sys/class/net")
	labtest.MustDo(t, err, "list devices")
	for _, e := range entries {
		out = append(out, "device "+e.Name())
	}

	mounts, err := os.ReadFile("/proc/self/mounts")
	labtest.MustDo(t, err, "read mounts")
	for line := range strings.Lines(string(mounts)) {
		out = append(out, "mount "+strings.TrimSpace(line))
	}

	for _, pid := range labtest.Descendants(os.Getpid()) {
		out = append(out, "process "+strconv.Itoa(pid))
	}

	return out
}

// leavesNothing runs f and compares the machine before and after; what ends a little later than f is waited
// for.
func leavesNothing(t *testing.T, f func()) {
	t.Helper()
	before := machine(t)
	f()
	expect.Soon(t, 2*time.Second, "left behind", nil, func() []string {
		return slices.DeleteFunc(machine(t), func(s string) bool { return slices.Contains(before, s) })
	})
}

// TestUpCarriesAndLeavesNothing brings up each topology, sends full packets of both IP versions along its
// plain path, and finds nothing after Close.
func TestUpCarriesAndLeavesNothing(t *testing.T) {
	for _, shape := range lab.Topologies() {
		t.Run(shape.Name, func(t *testing.T) {
			dir := t.TempDir()
			leavesNothing(t, func() {
				l := up(t, lab.Local{ID: "one", Topology: shape, Dir: dir})
				for ip := 4; ip <= 6; ip += 2 {
					labtest.WantReach(t, l, 0, ip, 1501, 100, 1500)
				}

				wantClosed(t, l, nil)
			})
			wantEmpty(t, dir)
		})
	}
}

func TestTwoLabsSideBySide(t *testing.T) {
	dir := t.TempDir()
	leavesNothing(t, func() {
		var labs []*lab.Lab
		for _, id := range []string{"a", "b"} {
			labs = append(labs, up(t, lab.Local{ID: id, Dir: dir}))
		}

		// What is set in one is not seen in the other, and both carry.
		hold(t, labs[0], record.Setting{Knob: "link_mtu", Node: "router", Value: "1400"})
		for i, want := range [][]int{{1400}, {1400, 1500}} {
			got := labtest.Reach(t, labs[i], 0, 4, 1500, 1400)
			if !slices.Equal(got.Back, want) {
				t.Errorf("lab %s: packets of %v bytes came back, want %v", labs[i].ID, got.Back, want)
			}
		}

		for _, l := range labs {
			wantClosed(t, l, nil)
		}
	})
	wantEmpty(t, dir)
}

// TestUpThatFailsLeavesNothing plants a fault at each step of Up.
func TestUpThatFailsLeavesNothing(t *testing.T) {
	broken := func(change func(s *record.Topology)) func(t *testing.T, o *lab.Local) {
		return func(_ *testing.T, o *lab.Local) { change(&o.Topology) }
	}
	tests := []struct {
		name  string
		plant func(t *testing.T, o *lab.Local)
		want  string
	}{
		{"the runtime directory is a file", func(t *testing.T, o *lab.Local) {
			o.Dir = filepath.Join(o.Dir, "file", "labs")
			must(t, os.WriteFile(filepath.Dir(o.Dir), nil, 0o600))
		}, "create lab directory"},
		{"a port's name is too long", broken(func(s *record.Topology) {
			s.Links[0].Ends[0].Port = "a-name-of-more-than-fifteen-bytes"
		}), "join client and router"},
		{"two links have one port", broken(func(s *record.Topology) { s.Links[1].Ends[0].Port = "lan" }),
			"join router and server"},
		{"a node's name is no file's", broken(func(s *record.Topology) { s.Nodes[0].Name = "no/name" }),
			"listen for node no/name"},
		{"the journal is closed", func(t *testing.T, o *lab.Local) {
			o.Journal = newJournal(t, t.TempDir(), "x")
			must(t, o.Journal.Close())
		}, "write journal"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			shape := forward(t)
			o := lab.Local{ID: "x", Topology: shape, Dir: t.TempDir(), Parts: registry.LabParts()}
			dir := o.Dir
			tt.plant(t, &o)
			leavesNothing(t, func() {
				_, err := o.Up(labtest.Context(t))
				if err == nil || strings.Count(err.Error(), tt.want) != 1 {
					labtest.Refused(t, err)
					t.Errorf("got error %v, want one with %q, once", err, tt.want)
				}
			})
			_, err := os.Stat(filepath.Join(dir, "x"))
			expect.Error(t, "the lab's directory", err, os.ErrNotExist)
		})
	}
}

// TestLinksOfSeveralQueues: each end of each link has as many receive queues as asked for, and, for root, a
// transmit queue of its own for each processor.
func TestLinksOfSeveralQueues(t *testing.T) {
	for _, queues := range []int{1, 2, 5} {
		l, _ := labtest.UpLocal(t, lab.Local{Dir: t.TempDir(), Queues: queues, Parts: registry.LabParts()},
			"forward")
		if got := strings.Contains(l.Note, "each virtual link has"); got != (queues > 1) {
			t.Errorf("%d queues: note %q, want one of several queues only", queues, l.Note)
		}

		if os.Geteuid() != 0 || queues == 1 {
			continue // the kernel lets an ordinary user choose nothing, and of one queue there is no choice
		}

		for _, link := range l.Topology.Links {
			for _, end := range link.Ends {
				dir := "/sys/class/net/" + end.Port + "/queues/"
				got := strings.Fields(labtest.Exec(t, l, end.Node, "sh", "-c", "ls -d "+dir+"rx-* && cat "+
					dir+"tx-*/xps_cpus"))
				var want []string
				for q := range queues {
					want = append(want, fmt.Sprintf("%srx-%d", dir, q))
				}

				served := 0
				for i, text := range got[min(queues, len(got)):] {
					mask, err := strconv.ParseUint(text, 16, 32)
					if err != nil {
						t.Fatalf("%s of %s: mask %q: %v", end.Port, end.Node, text, err)
					}

					served += bits.OnesCount64(mask)
					if mask&(1<<i) == 0 != (i >= runtime.NumCPU()) {
						t.Errorf("%s of %s: queue %d serves the processors %s, want its own among them",
							end.Port, end.Node, i, text)
					}
				}

				cpus := runtime.NumCPU()
				if !slices.Equal(got[:min(queues, len(got))], want) ||
					len(got) != 2*queues || served != cpus {
					t.Errorf("%s of %s: got %v, want %d queues each way for %d processors", end.Port,
						end.Node, got, queues, cpus)
				}
			}
		}
	}
}

func TestUpDoesNotTouchADirectoryThatExists(t *testing.T) {
	dir := t.TempDir()
	keep := filepath.Join(dir, "x", "keep")
	must(t, os.MkdirAll(keep, 0o700))
	_, err := lab.Local{ID: "x", Topology: forward(t), Dir: dir}.Up(labtest.Context(t))
	expect.Error(t, "up", err, os.ErrExist)
	if _, err := os.Stat(keep); err != nil {
		t.Errorf("what was there: %v, want it untouched", err)
	}
}

// TestUpCanBeCancelledAtAnyMoment cancels in every phase of the 20 ms that a lab needs.
func TestUpCanBeCancelledAtAnyMoment(t *testing.T) {
	cause := errors.New("changed my mind")
	for delay := time.Duration(0); delay <= 30*time.Millisecond; delay += 5 * time.Millisecond {
		dir := t.TempDir()
		leavesNothing(t, func() {
			ctx, cancel := context.WithCancelCause(context.Background())
			timer := time.AfterFunc(delay, func() { cancel(cause) })
			defer timer.Stop()
			if delay == 0 {
				cancel(cause)
			}

			l, err := lab.Local{ID: "x", Topology: forward(t), Dir: dir}.Up(ctx)
			switch {
			case err == nil:
				wantClosed(t, l, nil)
			case !errors.Is(err, cause):
				labtest.Refused(t, err)
				t.Errorf("cancelled after %s: got %v, want the cause", delay, err)
			}
		})
		wantEmpty(t, dir)
	}
}

func TestDetachedLabStaysUntilDown(t *testing.T) {
	dir := t.TempDir()
	leavesNothing(t, func() {
		wantClosed(t, up(t, lab.Local{ID: "kept", Dir: dir, Detached: true}), nil)
		kept := onlyLab(t, dir)
		if !kept.Alive() || !kept.Detached {
			t.Fatalf("after Close: got %+v, want it alive and detached", kept)
		}

		l := attach(t, dir, nil)
		labtest.WantReach(t, l, 0, 4, 0, 1500)
		hold(t, l, aSetting)
		takeTurns(t, dir)
		wantClosed(t, l, nil)
		if err := lab.Down(dir, kept); err != nil {
			t.Errorf("down: %v", err)
		}

		if kept.Alive() {
			t.Error("after Down: the holder lives, want it gone")
		}
	})
	wantEmpty(t, dir)
	if _, err := lab.Attach(dir, "kept", registry.LabParts(), nil); err == nil {
		t.Error("attach to a lab that is down: got no error, want one")
	}
}

// takeTurns: one campaign at a time has the lab, and those who only look are no campaign.
func takeTurns(t *testing.T, dir string) {
	t.Helper()
	j := newJournal(t, t.TempDir(), "x")
	defer j.Close()
	for range 2 { // the second time the first has left
		one := attach(t, dir, j)
		_, err := lab.Attach(dir, "kept", registry.LabParts(), j)
		expect.Error(t, "a second campaign", err, "another run is using it")
		wantClosed(t, one, nil)
	}
}

// TestLocalsLendEachTopologyOnce, and take back what they made.
func TestLocalsLendEachTopologyOnce(t *testing.T) {
	dir := t.TempDir()
	leavesNothing(t, func() {
		labs := &lab.Locals{Local: lab.Local{ID: "run", Dir: dir, Parts: registry.LabParts()}}
		seen := map[*lab.Lab]bool{}
		for _, topology := range []string{"to-router", "direct", "to-router"} {
			l, err := labs.For(labtest.Context(t), topology, record.GuestSize{})
			labtest.Refused(t, err)
			if err != nil || l.Topology.Name != topology || l.ID != "run-"+topology {
				t.Fatalf("lab for %s: got %+v, %v", topology, l, err)
			}

			seen[l] = true
		}

		if len(seen) != 2 {
			t.Errorf("labs: got %d for two topologies, want one each", len(seen))
		}

		if _, err := labs.For(labtest.Context(t), "ring", record.GuestSize{}); err == nil {
			t.Error("lab for an unknown topology: got no error, want one")
		}

		attached := &lab.Locals{Attached: firstOf(seen)}
		var no *lab.NoTopology
		_, err := attached.For(labtest.Context(t), "site-to-site", record.GuestSize{})
		if !errors.As(err, &no) || no.Topology != "site-to-site" {
			t.Errorf("another topology of an attached lab: got %v, want that there is none", err)
		}

		if err := labs.Close(labtest.Context(t)); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	wantEmpty(t, dir)
}

// TestRoutersOfOneSize: namespaces, and what has been booted already, have no size of their own; nor is the
// command line of a disk's kernel ours.
func TestRoutersOfOneSize(t *testing.T) {
	size := record.GuestSize{MemoryMB: 512}
	var no *lab.NoTopology
	for name, labs := range map[string]interface {
		For(context.Context, string, record.GuestSize) (*lab.Lab, error)
	}{
		"namespaces": &lab.Locals{}, "attached": &lab.Locals{Attached: &lab.Lab{}}, "pair": &lab.Peers{},
		"mipsel": &lab.Locals{Local: lab.Local{Guest: &vm.Guest{CPUs: 2, Image: vm.Image{Arch: "mipsel"}}}},
		"disk":   &lab.Locals{Local: lab.Local{Guest: &vm.Guest{Disk: &vm.Disk{}}}},
	} {
		size.Mitigations = map[string]string{"disk": "off"}[name]
		if _, err := labs.For(t.Context(), "forward", size); !errors.As(err, &no) {
			t.Errorf("%s: got %v, want that there is none", name, err)
		}
	}
}

func firstOf(labs map[*lab.Lab]bool) *lab.Lab {
	for l := range labs {
		return l
	}
	return nil
}

package lab

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/lab/journal"
	"github.com/chokepoint-lab/chokepoint/internal/labtest/expect"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// small is a lab of two nodes below a directory of the test's own.
func small(t *testing.T) Local {
	t.Helper()
	shape, err := TopologyNamed("direct")
	must(t, err)
	return Local{ID: "x", Topology: shape, Dir: t.TempDir()}
}

// mayMake skips the test if it was the kernel that refused.
func mayMake(t *testing.T, err error) {
	t.Helper()
	if err != nil && os.Geteuid() != 0 && (errors.Is(err, unix.EPERM) || errors.Is(err, unix.ENOSPC) ||
		strings.Contains(err.Error(), unix.EPERM.Error())) {
		t.Skip("skip: this kernel refuses user namespaces to ordinary users")
	}
}

// TestUpBlamesNoNamespacesForFaultsInside: the namespaces were made, so the advice to allow them would lead
// astray.
func TestUpBlamesNoNamespacesForFaultsInside(t *testing.T) {
	o := small(t)
	o.Topology.Links = slices.Clone(o.Topology.Links)
	o.Topology.Links[0].Ends[0].Port = "a-name-of-more-than-fifteen-bytes"
	_, err := o.Up(t.Context())
	mayMake(t, err)
	expect.Error(t, "nodes that cannot be joined", err, "join ")
	expect.Hint(t, "nodes that cannot be joined", err, "")
}

// TestUpTellsWhenTheKernelRefused starts a holder that has no power over its mounts, as where user
// namespaces are made and then restricted.
func TestUpTellsWhenTheKernelRefused(t *testing.T) {
	log, err := os.Create(filepath.Join(t.TempDir(), "log"))
	must(t, err)
	defer log.Close()
	child, err := host.Spawn{Args: []string{HolderRole}, Namespaces: unix.CLONE_NEWUSER, Stderr: log}.Start()
	mayMake(t, err)
	must(t, err)
	defer child.Close()
	o := small(t)
	o.ID = "" // its directory is there
	err = begin(child, o)
	var r *refused
	if !errors.As(err, &r) || !strings.Contains(err.Error(), "mounts") {
		t.Errorf("got %v, want it to be the mounts that were refused", err)
	}

	if os.Geteuid() != 0 {
		expect.Hint(t, "begin", noNamespaces(err), "let ordinary users make user namespaces")
	}
}

// TestUpNamesItsTimeout: so many nodes take their time.
func TestUpNamesItsTimeout(t *testing.T) {
	o := small(t)
	o.ID = "" // its directory is there
	o.Topology = record.Topology{Name: "flood"}
	for i := range 100 {
		o.Topology.Nodes = append(o.Topology.Nodes, record.TopoNode{Name: fmt.Sprint("n", i)})
	}

	_, err := o.startHolder(t.Context(), time.Millisecond)
	mayMake(t, err)
	expect.Error(t, "up", err, "not up within 1ms")
	expect.Hint(t, "up", err, "")
}

// TestUpThatFailsLateClosesItsJournal: the entry of a lab that was taken away again must not be left for
// restore. A directory is where the lab's description should go, from the moment that the lab's own exists.
func TestUpThatFailsLateClosesItsJournal(t *testing.T) {
	o := small(t)
	var err error
	o.Journal, err = journal.Create(t.TempDir(), "me", "")
	must(t, err)
	ended := make(chan error, 1)
	go func() {
		_, err := o.Up(t.Context())
		ended <- err
	}()
	for until := time.Now().Add(5 * time.Second); ; time.Sleep(50 * time.Microsecond) {
		if err := os.Mkdir(filepath.Join(o.Dir, o.ID, infoFile), 0o700); err == nil ||
			time.Now().After(until) {
			break
		}
	}

	err = <-ended
	mayMake(t, err)
	expect.Error(t, "a lab whose description cannot be written", err, unix.EISDIR)
	if err := o.Journal.Close(); err != nil {
		t.Errorf("journal: got %v, want nothing left to undo", err)
	}
}

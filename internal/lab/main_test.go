package lab_test

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/analysis"
	"github.com/chokepoint-lab/chokepoint/internal/lab"
	"github.com/chokepoint-lab/chokepoint/internal/lab/journal"
	"github.com/chokepoint-lab/chokepoint/internal/lab/vm"
	"github.com/chokepoint-lab/chokepoint/internal/labtest"
	"github.com/chokepoint-lab/chokepoint/internal/labtest/apart"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/registry"
	"github.com/chokepoint-lab/chokepoint/internal/trial"
)

// interim analyses a campaign's trials as the program does.
func interim(run *record.Run) trial.Interim { return analysis.NewInterim(run) }

// TestMain lets the test program play the roles of a lab, and the parts of the tests that must die in a
// process of their own.
func TestMain(m *testing.M) {
	if handled, err := registry.Serve(os.Args[1:]); handled {
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	if part := os.Getenv(partMark); part != "" {
		if err := play(part, os.Getenv(partDir)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	// Under the race detector each process would sleep for a second before it ends, and with it each part
	// of a lab.
	os.Setenv("GORACE", "atexit_sleep_ms=0")
	apart.SideBySide(4)
	os.Exit(m.Run())
}

const (
	partMark = "CHOKEPOINT_TEST_PART"
	partDir  = "CHOKEPOINT_TEST_DIR"
)

// aSetting can be made by everyone on every kernel.
var aSetting = record.Setting{Knob: "txqueuelen", Node: "router", Value: "77"}

// play is a controller that comes to some point, says so on standard output, and waits to be killed.
func play(part, dir string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if part == "subscriber" {
		return subscribe(ctx, "wan")
	}
	j, err := journal.Create(dir+"/journal", part, "")
	if err != nil {
		return err
	}
	var l *lab.Lab
	switch part {
	case "owner":
		shape, err := lab.TopologyNamed("forward")
		if err != nil {
			return err
		}
		l, err = lab.Local{ID: "owned", Topology: shape, Dir: dir + "/labs", Journal: j,
			Parts: registry.LabParts()}.Up(ctx)
		if err != nil {
			return err
		}
	case "booting":
		shape, err := lab.TopologyNamed("forward")
		if err != nil {
			return err
		}
		fmt.Println("ready") // and never again
		g := vm.NewForeignGuest(vm.Disk{File: dir + "/disk", Format: "raw",
			Login: vm.Login{Method: vm.LoginSerial,
				User: "root"}, Agent: "/proc/self/exe"})
		_, err = lab.Local{ID: "owned", Topology: shape, Dir: dir + "/labs", Journal: j, Guest: &g,
			Parts: registry.LabParts()}.Up(ctx)
		return err
	case "guest":
		if l, err = lab.Attach(dir+"/labs", "kept", registry.LabParts(), j); err != nil {
			return err
		}
	}
	if err := l.Reconcile(ctx, []record.Setting{aSetting}); err != nil {
		return err
	}
	fmt.Println("ready")
	<-ctx.Done()
	return context.Cause(ctx)
}

// upGuest is labtest.UpIn for a lab whose routers are such guests.
func upGuest(t testing.TB, dir, topology string, g *vm.Guest, parts lab.Parts) (*lab.Lab, string) {
	t.Helper()
	return labtest.UpLocal(t, lab.Local{Dir: dir, Guest: g, Parts: parts}, topology)
}

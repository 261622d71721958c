package lab_test

import (
	"context"
	"errors"
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
	"github.com/chokepoint-lab/chokepoint/internal/registry/node"
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

	part := os.Getenv(partMark)
	if part != "" {
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

		l, err = lab.Local{
			ID:       "owned",
			Topology: shape,
			Dir:      dir + "/labs",
			Journal:  j,
			Parts:    registry.LabParts(),
		}.Up(ctx)
		if err != nil {
			return err
		}
	case "booting":
		shape, err := lab.TopologyNamed("forward")
		if err != nil {
			return err
		}

		fmt.Println("ready") // and never again
		g := vm.NewForeignGuest(vm.Disk{
			File:   dir + "/disk",
			Format: "raw",
			Login: vm.Login{
				Method: vm.LoginSerial,
				User:   "root",
			},
			Agent: "/proc/self/exe",
		})
		_, err = lab.Local{
			ID:       "owned",
			Topology: shape,
			Dir:      dir + "/labs",
			Journal:  j,
			Guest:    &g,
			Parts:    registry.LabParts(),
		}.Up(ctx)
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
func upGuest(t testing.TB, dir, topology string, g *vm.Guest) (*lab.Lab, string) {
	t.Helper()
	return labtest.UpLocal(t, lab.Local{Dir: dir, Guest: g, Parts: registry.LabParts()}, topology)
}

// up makes a lab, of topology forward unless it names another. Whoever calls it takes the lab down.
func up(t *testing.T, o lab.Local) *lab.Lab {
	t.Helper()
	o.Parts = registry.LabParts()
	if o.Topology.Name == "" {
		o.Topology = forward(t)
	}

	l, err := o.Up(labtest.Context(t))
	labtest.Refused(t, err)
	must(t, err)
	return l
}

func attach(t *testing.T, dir string, j *journal.Journal) *lab.Lab {
	t.Helper()
	l, err := lab.Attach(dir, "kept", registry.LabParts(), j)
	must(t, err)
	return l
}

func newJournal(t *testing.T, dir, owner string) *journal.Journal {
	t.Helper()
	j, err := journal.Create(dir, owner, "")
	must(t, err)
	return j
}

// onlyLab is the one lab below a directory.
func onlyLab(t *testing.T, dir string) lab.Info {
	t.Helper()
	infos, err := lab.List(dir)
	if err != nil || len(infos) != 1 {
		t.Fatalf("labs: got %v, %v, want one", infos, err)
	}

	return infos[0]
}

// wantClosed closes a lab, and its journal if it has one: nothing may be left to undo.
func wantClosed(t *testing.T, l *lab.Lab, j *journal.Journal) {
	t.Helper()
	err := l.Close(labtest.Context(t))
	if j != nil {
		err = errors.Join(err, j.Close())
	}

	if err != nil {
		t.Errorf("close: got %v, want nothing left", err)
	}
}

// campaign is one over a lab of topology forward, with its trials.
type campaign struct {
	*trial.Campaign
	labs   *lab.Locals
	lab    *lab.Lab
	trials labtest.Trials
}

func newCampaign(t *testing.T, labs *lab.Locals, runs int, matrix string,
	length, warmup time.Duration) *campaign {
	t.Helper()
	p := labtest.ReadPlan(t, fmt.Sprintf(`
name: x
method: {runs: %d, order: listed, seed: 1}
matrix: {%s}
measure: {latency_idle: off, latency_loaded: false, verify: false, telemetry: true}
`, runs, matrix), registry.Vocabulary())
	p.Design.Method.Duration, p.Design.Method.Warmup = length, warmup
	labs.ID, labs.Dir, labs.Parts = "run", t.TempDir(), registry.LabParts()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	l, err := labs.For(ctx, "forward", record.GuestSize{})
	labtest.Refused(t, err)
	must(t, err)
	c := &campaign{labs: labs, lab: l}
	c.Campaign = &trial.Campaign{
		Plan:       p,
		Labs:       labs,
		Engines:    node.Engines(),
		Prober:     node.Prober(),
		Probes:     node.Probes(),
		NewInterim: interim,
		Store:      &c.trials,
		Run: record.Run{
			RunHead:    record.RunHead{ID: "run", Lab: l.Kind},
			Design:     p.Design,
			Topologies: []record.Topology{l.Topology},
		},
	}
	return c
}

// onPhase calls do when a phase begins for the nth time.
func (c *campaign) onPhase(phase string, nth int, do func()) {
	n := 0
	c.Sink = func(e record.Event) {
		if e.Event != "phase" || e.Phase != phase {
			return
		}

		if n++; n == nth {
			do()
		}
	}
}

// conclude makes all trials and takes the labs down.
func (c *campaign) conclude(t *testing.T) (closed error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	must(t, c.Prepare(ctx))
	if _, err := c.Execute(ctx); err != nil {
		t.Error(err)
	}

	return c.Close(ctx)
}

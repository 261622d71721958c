// Package app implements the operations on runs: run, resume, prove, tune, watch, compare, import and delete,
// each as one function. It parses no command line and prints nothing. It reports progress through the
// functions in App, so a command line, a test or a server can call it.
package app

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/lab"
	"github.com/chokepoint-lab/chokepoint/internal/lab/journal"
	"github.com/chokepoint-lab/chokepoint/internal/lab/vm"
	"github.com/chokepoint-lab/chokepoint/internal/plan"
	"github.com/chokepoint-lab/chokepoint/internal/probe"
	"github.com/chokepoint-lab/chokepoint/internal/progress"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/record/store"
	"github.com/chokepoint-lab/chokepoint/internal/registry"
)

// App holds the directories of runs, and the functions that interact with the user. Only Dirs must be set.
type App struct {
	Dirs Dirs

	// Command returns the command line that repeats the run, given its seed.
	Command func(seed uint64) string
	// Note receives messages that are not errors.
	Note func(format string, args ...any)
	// Events opens the sink for a run's events. The run closes the sink.
	Events func() progress.Sink
	// Ask asks the user to do a step of the plan, and returns when the step is done.
	Ask func(ctx context.Context, s record.Step) error
	// Attended reports whether Ask reaches a user at a terminal, who can also install firmware by hand.
	Attended bool
	// AskCode asks the user for the code that the peer at address shows.
	AskCode func(ctx context.Context, address string) (string, error)
	// Hurry is closed when the user no longer waits for the lab to be restored. The run then reports the
	// changes that have not been undone.
	Hurry <-chan struct{}
}

// note calls Note, if it is set.
func (a *App) note(format string, args ...any) {
	if a.Note != nil {
		a.Note(format, args...)
	}
}

// events opens the sink for a run's events.
func (a *App) events() progress.Sink {
	if a.Events == nil {
		return progress.Quiet(io.Discard)
	}
	return a.Events()
}

// RowOverhead is the estimated time to set up, drain and collect one row in a local lab.
const RowOverhead = 400 * time.Millisecond

// NewID returns a new id, derived from the current time, for a lab without a run.
func NewID() string { return store.NewID(time.Now(), uint16(rand.Uint32())) }

// idForm matches the ids that NewID returns.
var idForm = check.Pattern(`^[0-9]{8}-[0-9]{6}-[0-9a-f]{4}$`)

// CheckID refuses an id that NewID cannot have returned.
func CheckID(id string) error {
	if !idForm().MatchString(id) {
		return Usage("the first note of the command to continue has its ID", "--resume %q is no ID", id)
	}
	return nil
}

// NewRun returns the head of a run of a plan that starts now. The caller sets the lab.
func (a *App) NewRun(pl *plan.Plan) record.Run {
	run := record.Run{
		RunHead: record.RunHead{
			ID:         NewID(),
			Device:     pl.Design.Device,
			Notes:      pl.Design.Notes,
			Started:    time.Now().UTC(),
			Status:     record.RunRunning,
			Version:    RunVersion(),
			BinaryHash: binaryHash(),
		},
		Kernel: probe.KernelRelease(),
		Design: pl.Design,
	}
	if a.Command != nil {
		run.Command = a.Command(pl.Design.Method.Seed)
	}
	return run
}

// AgentProgram returns the path of the agent for an architecture, and builds it if necessary.
func (a *App) AgentProgram(ctx context.Context, arch string) (string, error) {
	cache := a.Dirs.VMCache()
	if err := Prepare(cache); err != nil {
		return "", err
	}
	return vm.GuestProgram(ctx, arch, cache, vm.OwnSource(), a.noteText)
}

func (a *App) noteText(text string) { a.note("%s", text) }

// WithJournal calls f with a new journal, in which f records its changes. owner identifies the journal to
// other processes.
func (a *App) WithJournal(owner string, f func(*journal.Journal) error) error {
	if err := Prepare(a.Dirs.Runtime, a.Dirs.State); err != nil {
		return err
	}
	defer a.Dirs.ClearRuntime()
	j, err := journal.Create(a.Dirs.Journals(), owner, a.Dirs.Labs())
	if err != nil {
		return err
	}

	return errors.Join(f(j), j.Close())
}

// Local returns a lab of network namespaces that is not up yet. Its changes are recorded in j.
func (a *App) Local(id string, j *journal.Journal) lab.Local {
	return lab.Local{
		ID:       id,
		Topology: lab.Topologies()[0],
		Dir:      a.Dirs.Labs(),
		Journal:  j,
		State:    a.Dirs.State,
		Parts:    registry.LabParts(),
	}
}

// Remote returns a lab of real machines that is not up yet. Its changes are recorded in j.
func (a *App) Remote(id string, m record.Machines, j *journal.Journal) lab.Remote {
	return lab.Remote{
		ID:       id,
		Machines: m,
		Dir:      a.Dirs.Labs(),
		Journal:  j,
		Parts:    registry.LabParts(),
		Program:  a.AgentProgram,
	}
}

// unhurried returns a context that ends with its parent, or when the user no longer waits. stop releases it.
func (a *App) unhurried(parent context.Context) (ctx context.Context, stop func()) {
	ctx, cancel := context.WithCancel(parent)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		select {
		case <-a.Hurry:
			cancel()
		case <-ctx.Done():
		}
	}()
	return ctx, func() { cancel(); <-ended }
}

// binaryHash returns a hash of the program, with which resume detects another build.
func binaryHash() string {
	f, err := os.Open("/proc/self/exe")
	if err != nil {
		return ""
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return ""
	}

	return fmt.Sprintf("%x", h.Sum(nil))
}

package app

import (
	"context"
	"errors"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/lab/journal"
	"github.com/chokepoint-lab/chokepoint/internal/lab/vm"
	"github.com/chokepoint-lab/chokepoint/internal/probe"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/registry/node"
	"github.com/chokepoint-lab/chokepoint/internal/trial"
	"github.com/chokepoint-lab/chokepoint/internal/trial/traffic/ceiling"
)

// Findings describes the capabilities of this machine, and the ceilings of the tester.
type Findings struct {
	Version      string             `json:"version"`
	Kernel       string             `json:"kernel"`
	Lab          trial.Capability   `json:"lab"`
	Note         string             `json:"note,omitempty"`
	Capabilities []trial.Capability `json:"capabilities"`
	Ceilings     []record.Ceiling   `json:"ceilings"`
	Timer        *trial.Timer       `json:"timer,omitempty"`
}

// Examine determines the capabilities of this machine, using a temporary lab. It returns findings even if it
// fails.
func (a *App) Examine(ctx context.Context) (*Findings, error) {
	id := "doctor-" + NewID()
	f := &Findings{Version: "chokepoint " + RunVersion(), Kernel: probe.KernelRelease()}
	err := Dirty(a.WithJournal(id, func(j *journal.Journal) error { return f.examine(ctx, id, j, a) }))
	if ctx.Err() != nil {
		err = errors.Join(context.Cause(ctx), err)
	}

	return f, err
}

// examine brings up a lab and tests it. If the lab cannot be brought up, that is a finding and not an error.
func (f *Findings) examine(ctx context.Context, id string, j *journal.Journal, a *App) (err error) {
	f.Lab = trial.Capability{Area: "lab", Name: "local"}
	start := time.Now()
	for _, arch := range vm.Arches() {
		f.Capabilities = append(f.Capabilities, trial.Capability{
			Area:   "guest",
			Name:   "QEMU for " + arch,
			Answer: vm.CheckEmulator(ctx, arch),
		})
	}

	f.Capabilities = append(f.Capabilities, trial.Capability{
		Area:   "guest",
		Name:   "KVM",
		Answer: vm.TryKVM(ctx),
	})
	own := a.Local(id, j)
	l, err := own.Up(ctx)
	if err != nil {
		f.Lab.Answer = check.Not("%v", err).Hinted("%s", check.HintOf(err))
		return nil
	}
	defer func() { err = errors.Join(err, l.Close(context.WithoutCancel(ctx))) }()
	f.Lab.Answer = check.OKBecause("up in %s", time.Since(start).Round(time.Millisecond))
	f.Note = l.Note
	more, err := trial.Examine(ctx, l, node.Tunnels(), node.Engines(), node.Probes())
	if f.Capabilities = append(f.Capabilities, more...); err != nil {
		return err
	}

	if f.Ceilings, err = trial.Ceilings(ctx, l, own, ceiling.UsualKinds()); err != nil {
		return err
	}

	t, err := trial.MeasureTimer(ctx, l, node.Prober())
	f.Timer = &t
	return err
}

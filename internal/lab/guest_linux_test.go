package lab_test

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/lab"
	"github.com/chokepoint-lab/chokepoint/internal/lab/agent"
	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/lab/kernel"
	"github.com/chokepoint-lab/chokepoint/internal/lab/vm"
	"github.com/chokepoint-lab/chokepoint/internal/labtest"
	"github.com/chokepoint-lab/chokepoint/internal/labtest/expect"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// TestCampaignOutlivesAGuest: the trial in which a router's kernel panics fails with its last words, so
// does the one in which its processors stall, long before its time is over, and the next one runs on
// a fresh guest with the same settings.
func TestCampaignOutlivesAGuest(t *testing.T) {
	guest := labtest.Guest(t)
	t.Run("panics", func(t *testing.T) {
		kept := outlives(t, guest, "Kernel panic", func(_ string, l *lab.Lab) { crash(t, l) })
		if !strings.Contains(kept, "Kernel panic") {
			t.Errorf("console that was kept: got %q, want a panic", kept)
		}
	})
	t.Run("stalls", func(t *testing.T) {
		outlives(t, guest, "hung, no answer within 10s", func(dir string, l *lab.Lab) {
			freeze(t, dir, l.ID, syscall.SIGSTOP)
		})
	})
}

// outlives runs three trials, strikes the guest in the second, and returns what its console said.
func outlives(t *testing.T, guest *vm.Guest, said string,
	strike func(dir string, l *lab.Lab)) (console string) {
	labs := &lab.Locals{Local: lab.Local{Guest: guest}, Keep: t.TempDir()}
	c := newCampaign(t, labs, 3, "streams: 1, txqueuelen@router: 77",
		200*time.Millisecond, 0)
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	started := 0
	c.Sink = func(e record.Event) {
		if e.Event == "trial-started" {
			started++
		}

		if e.Event == "phase" && e.Phase == record.PhaseWarmup && started == 2 {
			strike(c.labs.Dir, c.lab)
		}
	}
	must(t, c.Prepare(ctx))
	if _, err := c.Execute(ctx); err != nil {
		t.Error(err)
	}

	if got := queueLength(t, c.lab); got != "77" {
		t.Errorf("queue length of the fresh guest: got %s, want the plan's 77", got)
	}

	var got []string
	for _, tr := range c.trials {
		got = append(got, tr.Status)
		if tr.Failure == nil {
			continue
		}

		took := time.Duration(tr.Ended - tr.Origin)
		t.Log(tr.ID, ": ", took, ": ", tr.Failure.Phase, ": ", tr.Failure.Error)
		if !strings.Contains(tr.Failure.Error, said) || !strings.Contains(tr.Failure.Error, "its console") {
			t.Errorf("failure of trial %s: got %q, want %q and the console's last words in it", tr.ID,
				tr.Failure.Error, said)
		}

		if took > 30*time.Second {
			t.Errorf("trial %s: it was noticed after %v only", tr.ID, took)
		}
	}

	want := []string{record.TrialOK, record.TrialFailed, record.TrialOK}
	if !slices.Equal(got, want) {
		t.Errorf("trials: got %v, want %v", got, want)
	}

	if err := c.Close(ctx); err != nil {
		t.Errorf("close: %v", err)
	}

	kept, err := os.ReadFile(filepath.Join(c.labs.Keep, "forward-router.console"))
	if err != nil || strings.Count(string(kept), "ready: kernel") != 2 {
		t.Errorf("console that was kept: got %q, %v, want two boots", kept, err)
	}

	return string(kept)
}

// freeze stops the emulator of a lab's only guest, or lets it go on.
func freeze(t *testing.T, dir, id string, with syscall.Signal) {
	pids, err := kernel.Guests(filepath.Join(dir, id))
	if err != nil || len(pids) != 1 {
		t.Errorf("emulators of lab %s: got %v, %v, want one", id, pids, err)
	}

	for pid := range pids {
		if err := syscall.Kill(pid, with); err != nil {
			t.Error(err)
		}
	}
}

// crash has the router's kernel panic, which ends QEMU, and waits for that.
func crash(t *testing.T, l *lab.Lab) {
	n, err := l.Node(t.Context(), "router")
	if err != nil {
		t.Error(err)
		return
	}

	if _, err := n.Agent.Open(t.Context(), agent.VerbExec,
		agent.Exec{Args: []string{"sh", "-c", "echo c > /proc/sysrq-trigger"}}); err != nil {
		t.Error(err)
		return
	}

	for err == nil {
		_, _, err = n.Agent.Clock(t.Context())
	}

	expect.Error(t, "agent of the guest that panicked", err, host.ErrUnreachable, "Kernel panic")
}

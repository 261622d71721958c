package lab_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/lab"
	"github.com/chokepoint-lab/chokepoint/internal/lab/agent"
	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/lab/journal"
	"github.com/chokepoint-lab/chokepoint/internal/labtest"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// killAgent kills a node's agent from within, and waits until that is seen.
func killAgent(t *testing.T, l *lab.Lab, name string) {
	t.Helper()
	ctx := labtest.Context(t)
	n, err := l.Node(ctx, name)
	must(t, err)
	if _, err := n.Agent.Open(ctx, agent.VerbExec,
		agent.Exec{Args: []string{"sh", "-c", "kill -9 $PPID"}}); err != nil {
		t.Fatal(err)
	}

	for err == nil {
		_, _, err = n.Agent.Clock(ctx)
	}

	if !errors.Is(err, host.ErrUnreachable) {
		t.Fatalf("agent of %s: got %v, want it gone", name, err)
	}
}

func queueLength(t *testing.T, l *lab.Lab) string {
	t.Helper()
	return strings.TrimSpace(labtest.Exec(t, l, "router", "cat", "/sys/class/net/lan/tx_queue_len"))
}

// upForward is a lab of our own, with a journal.
func upForward(t *testing.T) (*lab.Lab, *journal.Journal) {
	t.Helper()
	return upForwardIn(t, t.TempDir())
}

func upForwardIn(t *testing.T, dir string) (*lab.Lab, *journal.Journal) {
	t.Helper()
	j := newJournal(t, dir+"/journal", "me")
	return up(t, lab.Local{ID: "mine", Dir: dir + "/labs", Journal: j}), j
}

// TestATunnelThatHangsIsLaidAnew: whichever end's process is stopped, it is killed, and the next tunnel has
// its device.
func TestATunnelThatHangsIsLaidAnew(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"wireguard-userspace", "esp"} {
		for end := range 2 {
			t.Run(fmt.Sprintf("%s at end %d", kind, end), func(t *testing.T) {
				t.Parallel() // it waits
				dir := t.TempDir()
				l, j := upForwardIn(t, dir)
				hangs(t, l, onlyLab(t, dir+"/labs").Pid, kind, end)
				wantClosed(t, l, j)
			})
		}
	}
}

func hangs(t *testing.T, l *lab.Lab, holder int, kind string, end int) {
	wire := lab.TunnelSpec{Kind: kind}
	c := l.CheckTunnel(labtest.Context(t), wire)
	if c.State == check.No {
		t.Skipf("skip: this kernel has no such tunnel: %s", c.Reason)
	}

	for _, n := range l.Topology.Nodes { // their agents are there
		_, err := l.Node(labtest.Context(t), n.Name)
		must(t, err)
	}

	before := labtest.Descendants(holder)
	_, err := l.Path(labtest.Context(t), wire)
	must(t, err)
	ends := slices.DeleteFunc(labtest.Descendants(holder),
		func(pid int) bool { // what an agent has started besides is no end
			line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
			return slices.Contains(before, pid) || !bytes.Contains(line, []byte("agent-child"))
		})
	slices.Sort(ends)
	if len(ends) != 2 {
		t.Fatalf("processes of the tunnel: got %v, want one for each end", ends)
	}

	must(t, syscall.Kill(ends[end], syscall.SIGSTOP))
	began := time.Now()
	l.Reconnect(labtest.Context(t))
	t.Logf("renewed in %s", time.Since(began).Round(time.Millisecond))
	p, err := l.Path(labtest.Context(t), wire)
	if err != nil {
		t.Fatalf("laid anew: %v", err)
	}

	left := alive(ends)
	if len(left) > 0 {
		t.Errorf("processes of the tunnel that hung: %v live, want none", left)
	}

	labtest.WantReach(t, l, p.Slot, 4, 0, 1000) // through the tunnel laid anew
	_, err = l.Path(labtest.Context(t), lab.TunnelSpec{Kind: "none"})
	must(t, err)
}

// TestRenew: after the agents of a router and of a tunnel's end have died, what was set is settled again and
// the tunnel carries again.
func TestRenew(t *testing.T) {
	l, j := upForward(t)
	want := []record.Setting{aSetting}
	wire := lab.TunnelSpec{Kind: "wireguard"}
	before := queueLength(t, l)
	hold(t, l, want...)
	_, err := l.Path(labtest.Context(t), wire)
	must(t, err)
	if fresh, found := l.Reconnect(labtest.Context(t)); fresh || found != nil {
		t.Error("renew with all agents alive: got new ones, want none")
	}

	_, err = l.Path(labtest.Context(t), wire)
	must(t, err)
	killAgent(t, l, "router")
	killAgent(t, l, "server")
	if fresh, found := l.Reconnect(labtest.Context(t)); !fresh || !errors.Is(found, host.ErrUnreachable) {
		t.Error("renew after two agents have died: got no new ones, want two")
	}

	for _, step := range []struct {
		want   []record.Setting
		length string
	}{{want, aSetting.Value}, {nil, before}} {
		if err := l.Reconcile(labtest.Context(t), step.want); err != nil {
			t.Errorf("settle %v: %v", step.want, err)
		}

		got := queueLength(t, l)
		if got != step.length {
			t.Errorf("settled %v: queue length %s, want %s", step.want, got, step.length)
		}
	}

	p, err := l.Path(labtest.Context(t), wire)
	must(t, err)
	labtest.WantReach(t, l, p.Slot, 4, 0, 1000) // through the tunnel laid anew
	wantClosed(t, l, j)
}

// TestCloseAfterADeadAgent: what was set in a lab that is gone is no dirt, and in one that stays it is put
// back all the same.
func TestCloseAfterADeadAgent(t *testing.T) {
	t.Run("owned", func(t *testing.T) {
		l, j := upForward(t)
		hold(t, l, aSetting)
		killAgent(t, l, "router")
		wantClosed(t, l, j)
	})
	t.Run("attached", func(t *testing.T) {
		dir := t.TempDir()
		up(t, lab.Local{ID: "kept", Dir: dir, Detached: true})
		defer lab.Down(dir, onlyLab(t, dir))
		j := newJournal(t, t.TempDir(), "me")
		l := attach(t, dir, j)
		watcher := attach(t, dir, nil)
		defer watcher.Close(labtest.Context(t))
		before := queueLength(t, watcher)
		hold(t, l, aSetting)
		killAgent(t, l, "router")
		wantClosed(t, l, j)
		got := queueLength(t, watcher)
		if got != before {
			t.Errorf("after close: queue length %s, want %s", got, before)
		}
	})
}

// TestCampaignOutlivesAnAgent: the trial in which a router's agent dies fails, those after it do not.
func TestCampaignOutlivesAnAgent(t *testing.T) {
	t.Parallel()
	c := newCampaign(t, &lab.Locals{}, 3, "streams: 1, tunnel: wireguard, txqueuelen@router: 77",
		time.Second, 0) // which an end may be half of late
	started := 0
	c.Sink = func(e record.Event) {
		if e.Event != "trial-started" {
			return
		}

		if started++; started == 2 {
			killAgent(t, c.lab, "router")
		}
	}
	must(t, c.conclude(t))
	var got []string
	for _, tr := range c.trials {
		got = append(got, tr.Status)
		if tr.Failure != nil {
			t.Log(fmt.Sprint(tr.ID, ": ", tr.Failure.Phase, ": ", tr.Failure.Error))
		}
	}

	want := slices.Repeat([]string{record.TrialOK}, len(got))
	if len(want) > 1 {
		want[1] = record.TrialFailed
	}

	if len(got) < 3 || !slices.Equal(got, want) {
		t.Errorf("trials: got %v, want only the second failed, of three or more", got)
	}
}

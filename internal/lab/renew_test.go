package lab_test

import (
	"bytes"
	"context"
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
	"github.com/chokepoint-lab/chokepoint/internal/registry"
	"github.com/chokepoint-lab/chokepoint/internal/registry/node"
	"github.com/chokepoint-lab/chokepoint/internal/trial"
)

// killAgent kills a node's agent from within, and waits until that is seen.
func killAgent(t *testing.T, l *lab.Lab, name string) {
	t.Helper()
	ctx := labtest.Context(t)
	n, err := l.Node(ctx, name)
	if err != nil {
		t.Fatal(err)
	}
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
	j, err := journal.Create(dir+"/journal", "me", "")
	if err != nil {
		t.Fatal(err)
	}
	l, err := lab.Local{ID: "mine", Topology: forward(t), Dir: dir + "/labs", Journal: j,
		Parts: registry.LabParts()}.Up(labtest.Context(t))
	labtest.Refused(t, err)
	if err != nil {
		t.Fatal(err)
	}
	return l, j
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
				infos, err := lab.List(dir + "/labs")
				if err != nil || len(infos) != 1 {
					t.Fatalf("labs: got %v, %v, want one", infos, err)
				}
				hangs(t, l, infos[0].Pid, kind, end)
				if err := errors.Join(l.Close(labtest.Context(t)), j.Close()); err != nil {
					t.Errorf("close: %v", err)
				}
			})
		}
	}
}

func hangs(t *testing.T, l *lab.Lab, holder int, kind string, end int) {
	wire := lab.TunnelSpec{Kind: kind}
	if c := l.CheckTunnel(labtest.Context(t), wire); c.State == check.No {
		t.Skipf("skip: this kernel has no such tunnel: %s", c.Reason)
	}
	for _, n := range l.Topology.Nodes { // their agents are there
		if _, err := l.Node(labtest.Context(t), n.Name); err != nil {
			t.Fatal(err)
		}
	}
	before := labtest.Descendants(holder)
	if _, err := l.Path(labtest.Context(t), wire); err != nil {
		t.Fatal(err)
	}
	ends := slices.DeleteFunc(labtest.Descendants(holder),
		func(pid int) bool { // what an agent has started besides is no end
			line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
			return slices.Contains(before, pid) || !bytes.Contains(line, []byte("agent-child"))
		})
	slices.Sort(ends)
	if len(ends) != 2 {
		t.Fatalf("processes of the tunnel: got %v, want one for each end", ends)
	}
	if err := syscall.Kill(ends[end], syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	l.Reconnect(labtest.Context(t))
	t.Logf("renewed in %s", time.Since(began).Round(time.Millisecond))
	p, err := l.Path(labtest.Context(t), wire)
	if err != nil {
		t.Fatalf("laid anew: %v", err)
	}
	if left := alive(ends); len(left) > 0 {
		t.Errorf("processes of the tunnel that hung: %v live, want none", left)
	}
	if got := labtest.Reach(t, l, p.Slot, 4, 0, 1000); len(got.Back) != 1 {
		t.Errorf("through the tunnel laid anew: got %v (%s), want the packet back", got.Back, got.Note)
	}
	if _, err := l.Path(labtest.Context(t), lab.TunnelSpec{Kind: "none"}); err != nil {
		t.Fatal(err)
	}
}

// TestRenew: after the agents of a router and of a tunnel's end have died, what was set is settled again and
// the tunnel carries again.
func TestRenew(t *testing.T) {
	l, j := upForward(t)
	want, wire := []record.Setting{aSetting}, lab.TunnelSpec{Kind: "wireguard"}
	before := queueLength(t, l)
	if err := l.Reconcile(labtest.Context(t), want); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Path(labtest.Context(t), wire); err != nil {
		t.Fatal(err)
	}
	if fresh, found := l.Reconnect(labtest.Context(t)); fresh || found != nil {
		t.Error("renew with all agents alive: got new ones, want none")
	}
	if _, err := l.Path(labtest.Context(t), wire); err != nil {
		t.Fatal(err)
	}
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
		if got := queueLength(t, l); got != step.length {
			t.Errorf("settled %v: queue length %s, want %s", step.want, got, step.length)
		}
	}
	p, err := l.Path(labtest.Context(t), wire)
	if err != nil {
		t.Fatal(err)
	}
	if got := labtest.Reach(t, l, p.Slot, 4, 0, 1000); len(got.Back) != 1 {
		t.Errorf("through the tunnel laid anew: got %v (%s), want the packet back", got.Back, got.Note)
	}
	if err := errors.Join(l.Close(labtest.Context(t)), j.Close()); err != nil {
		t.Errorf("close: %v", err)
	}
}

// TestCloseAfterADeadAgent: what was set in a lab that is gone is no dirt, and in one that stays it is put
// back all the same.
func TestCloseAfterADeadAgent(t *testing.T) {
	t.Run("owned", func(t *testing.T) {
		l, j := upForward(t)
		if err := l.Reconcile(labtest.Context(t), []record.Setting{aSetting}); err != nil {
			t.Fatal(err)
		}
		killAgent(t, l, "router")
		if err := errors.Join(l.Close(labtest.Context(t)), j.Close()); err != nil {
			t.Errorf("close: got %v, want nothing left", err)
		}
	})
	t.Run("attached", func(t *testing.T) {
		dir := t.TempDir()
		_, err := lab.Local{ID: "kept", Topology: forward(t), Dir: dir, Detached: true,
			Parts: registry.LabParts()}.Up(labtest.Context(t))
		labtest.Refused(t, err)
		if err != nil {
			t.Fatal(err)
		}
		infos, err := lab.List(dir)
		if err != nil || len(infos) != 1 {
			t.Fatalf("labs: got %v, %v, want one", infos, err)
		}
		defer lab.Down(dir, infos[0])
		j, err := journal.Create(t.TempDir(), "me", "")
		if err != nil {
			t.Fatal(err)
		}
		l, err := lab.Attach(dir, "kept", registry.LabParts(), j)
		if err != nil {
			t.Fatal(err)
		}
		watcher, err := lab.Attach(dir, "kept", registry.LabParts(), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer watcher.Close(labtest.Context(t))
		before := queueLength(t, watcher)
		if err := l.Reconcile(labtest.Context(t), []record.Setting{aSetting}); err != nil {
			t.Fatal(err)
		}
		killAgent(t, l, "router")
		if err := errors.Join(l.Close(labtest.Context(t)), j.Close()); err != nil {
			t.Errorf("close: got %v, want nothing left", err)
		}
		if got := queueLength(t, watcher); got != before {
			t.Errorf("after close: queue length %s, want %s", got, before)
		}
	})
}

// TestCampaignOutlivesAnAgent: the trial in which a router's agent dies fails, those after it do not.
func TestCampaignOutlivesAnAgent(t *testing.T) {
	t.Parallel()
	p := labtest.ReadPlan(t, `
name: x
method: {runs: 3, order: listed, seed: 1}
matrix: {streams: 1, tunnel: wireguard, txqueuelen@router: 77}
measure: {latency_idle: off, latency_loaded: false, verify: false, telemetry: true}
`, registry.Vocabulary())
	p.Design.Method.Duration = time.Second // which an end may be half of late
	labs := &lab.Locals{Owner: "run", Dir: t.TempDir(), Parts: registry.LabParts()}
	l, err := labs.For(labtest.Context(t), "forward", record.GuestSize{})
	labtest.Refused(t, err)
	if err != nil {
		t.Fatal(err)
	}
	var trials labtest.Trials
	c := &trial.Campaign{Run: record.Run{ID: "run", Design: p.Design}, Plan: p, Labs: labs,
		Engines: node.Engines(),
		Prober:  node.Prober(), Probes: node.Probes(), NewInterim: interim, Store: &trials}
	started := 0
	c.Sink = func(e record.Event) {
		if e.Event != "trial-started" {
			return
		}
		if started++; started == 2 {
			killAgent(t, l, "router")
		}
	}
	if err := c.Prepare(labtest.Context(t)); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if _, err := c.Execute(ctx); err != nil {
		t.Error(err)
	}
	if err := c.Close(labtest.Context(t)); err != nil {
		t.Errorf("close: %v", err)
	}
	var got []string
	for _, tr := range trials {
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

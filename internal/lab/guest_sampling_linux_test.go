package lab_test

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/lab"
	"github.com/chokepoint-lab/chokepoint/internal/lab/agent"
	"github.com/chokepoint-lab/chokepoint/internal/lab/driver"
	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/lab/kernel"
	"github.com/chokepoint-lab/chokepoint/internal/lab/vm"
	"github.com/chokepoint-lab/chokepoint/internal/labtest"
	"github.com/chokepoint-lab/chokepoint/internal/probe"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/registry"
	"github.com/chokepoint-lab/chokepoint/internal/registry/node"
	"github.com/chokepoint-lab/chokepoint/internal/trial/watch"
)

// What sampling once a second may cost a router, as a share of a core of which it has a fifth.
const (
	agentLimit     = .01
	agentlessLimit = .03
	quota          = .2
	// By its own account, which also has what the quota withholds amid a sample, an emulated core takes more.
	emulated = 4
)

// cost holds what sampling takes of a core, by the account of who does it, and by the machine's of the guest
// above one in which nothing goes on.
type cost struct{ own, machine float64 }

// threadTime prints what the threads of the process $1 have used of a CPU, in ns (sched-stats(5)).
const threadTime = `n=0; for t in /proc/$1/task/*/schedstat; do read ns rest <$t; n=$((n+ns)); done; echo $n`

// shellTime prints what the shells that sample and their awk have used of a CPU, and their children that have
// ended, in ns; of the latter there are ticks of 10 ms (proc(5)). Such a process has the sampler in the first
// line of its command. No program is started.
const shellTime = `n=0
for p in /proc/[0-9]*; do IFS= read -r line <$p/cmdline; case $line in
*"sample()"*) read ns rest <$p/schedstat; read line <$p/stat; set -- ${line##*) }; shift 13
n=$((n+ns+($1+$2)*10000000));; esac; done 2>/dev/null
echo $n`

// samplingCost returns what one sample a second takes: by the router's agent with all sources, and by its
// shell. What the machine has spent is told by taken.
func samplingCost(t *testing.T, l *lab.Lab, length time.Duration,
	taken func() time.Duration) (byAgent, byShell cost) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*length)
	defer cancel()
	n, err := l.Node(ctx, "router")
	must(t, err)
	number := func(script string, args ...string) time.Duration {
		t.Helper()
		out := labtest.Exec(t, l, "router", append([]string{"sh", "-c", script, "sh"}, args...)...)
		v, err := strconv.ParseInt(strings.TrimSpace(out), 10, 64)
		if err != nil {
			t.Fatalf("got %q: %v", out, err)
		}

		return time.Duration(v)
	}
	const nothing = "nothing"
	idle := 0.
	share := func(what string, read func() time.Duration, wait func()) cost {
		before := read()
		begun := time.Now()
		spent := taken()
		wait()
		over := time.Since(begun)
		spent = taken() - spent
		used := read() - before
		if used <= 0 && what != nothing {
			t.Fatalf("%s: nothing is found that has used a CPU", what)
		}

		t.Logf("note: %s, once a second: %v of %v, %.2f %% of a core; all of it %.2f %% of the machine's",
			what, used.Round(time.Millisecond), over.Round(time.Second), 100*float64(used)/float64(over),
			100*float64(spent)/float64(over))
		return cost{float64(used) / float64(over), float64(spent)/float64(over) - idle}
	}
	idle = share(nothing, func() time.Duration { return 0 }, func() { time.Sleep(length / 2) }).machine

	pid := strings.TrimSpace(labtest.Exec(t, l, "router", "sh", "-c", "echo $PPID"))
	ofAgent := func() time.Duration { return number(threadTime, pid) }
	share("the agent without sampling", ofAgent, func() { time.Sleep(length / 2) })
	w, err := watch.Start(ctx, n.Agent, "router", probe.Names(node.Probes()), watch.Options{
		Fast:    time.Second,
		Options: probe.Options{Own: []int{os.Getpid()}},
	})
	must(t, err)
	time.Sleep(time.Second)
	from := host.Monotonic()
	byAgent = share("the agent, all sources", ofAgent, func() { time.Sleep(length) })
	data, err := w.Collect(ctx, from, host.Monotonic())
	must(t, err)
	for _, c := range data.Cost {
		t.Logf("%s: %d reads, %v of CPU", c.Probe, c.Reads, time.Duration(c.CPUNs).Round(time.Millisecond))
	}

	must(t, w.Close())

	by, err := driver.Linux{}.Watch(ctx, agent.NewHost("router", n.Agent), time.Second)
	must(t, err)
	from = host.Monotonic()
	byShell = share("a router's shell", func() time.Duration { return number(shellTime) }, func() {
		for end := time.Now().Add(length); time.Now().Before(end); time.Sleep(driver.Silence / 4) {
			must(t, by.Keep(ctx))
		}
	})
	data, err = by.Collect(ctx, from, host.Monotonic())
	if err != nil || len(data.Cost) != 1 || data.Cost[0].Reads < int64(length/time.Second)/2 {
		t.Fatalf("samples: %v, cost %+v, want them", err, data.Cost)
	}

	t.Logf("note: the shell took a sample every %v",
		(time.Duration(data.Cost[0].OverNs) / time.Duration(data.Cost[0].Reads)).Round(time.Millisecond))
	must(t, by.Close(ctx))
	return byAgent, byShell
}

// samplingTime is for how long the cost is looked at.
func samplingTime() time.Duration {
	if testing.Short() {
		return 40 * time.Second
	}
	return 2 * time.Minute
}

// TestGuestSamplingCost: of a guest's core of which the machine gives it a fifth; and of this machine's core,
// as if a namespace had a fifth of it.
func TestGuestSamplingCost(t *testing.T) {
	guest := labtest.Guest(t)
	guest.CPUs = 1
	t.Run("guest", func(t *testing.T) { t.Parallel(); ofGuest(t, guest) })
	t.Run("namespace", func(t *testing.T) {
		t.Parallel()
		l := labtest.Up(t, "forward", registry.LabParts())
		byAgent, byShell := samplingCost(t, l, samplingTime(), func() time.Duration { return 0 })
		t.Logf("note: in a namespace, of a fifth of a core: %.2f %% by the agent, %.2f %% by the shell",
			100*byAgent.own/quota, 100*byShell.own/quota)
		if byAgent.own > agentLimit*quota || byShell.own > agentlessLimit*quota {
			t.Errorf("more than %.0f %% and %.0f %%", 100*agentLimit, 100*agentlessLimit)
		}
	})
}

func ofGuest(t *testing.T, guest *vm.Guest) {
	dir := t.TempDir()
	l, id := upGuest(t, dir, "forward", guest)
	ofMachine(t, l, filepath.Join(dir, id))
}

// ofMachine is of a lab whose router is a guest; dir is the lab's folder.
func ofMachine(t *testing.T, l *lab.Lab, dir string) {
	fifth := record.Setting{Knob: "cpu_quota", Node: lab.HostNode, Value: "20%"}
	a := l.CheckSetting(t.Context(), fifth)
	if a.State != check.Yes {
		t.Fatal(a.Reason)
	}

	must(t, l.Reconcile(t.Context(), []record.Setting{fifth}))
	accel := l.MachineFacts(t.Context())["guest_accel"]
	limit := 1.
	if accel != "kvm" {
		limit = emulated
	}

	t.Logf("note: a guest by %s at a cpu_quota of 20 %%", accel)
	byAgent, byShell := samplingCost(t, l, samplingTime(), func() time.Duration {
		used, err := kernel.GuestCPUTime(dir)
		must(t, err)
		return used
	})
	if byAgent.own > agentLimit*limit || byShell.own > agentlessLimit {
		t.Errorf("%.4f by the agent and %.4f by the shell, %.4f and %.4f are allowed", byAgent.own,
			byShell.own, agentLimit*limit, agentlessLimit)
	}

	t.Logf("note: of this machine's core, above a guest in which nothing goes on: %.2f %% by the agent, "+
		"%.2f %% by the shell", 100*byAgent.machine, 100*byShell.machine)
	if byAgent.machine > agentLimit || byShell.machine > agentlessLimit {
		t.Errorf("more than %.0f %% and %.0f %%", 100*agentLimit, 100*agentlessLimit)
	}
}

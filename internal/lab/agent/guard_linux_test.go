package agent_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/lab/agent"
	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/lab/knob"
	"github.com/chokepoint-lab/chokepoint/internal/labtest"
	"github.com/chokepoint-lab/chokepoint/internal/labtest/expect"
)

// inFile is a setting that outlives processes: the file which the place names as its port.
type inFile struct{ *dial }

func (inFile) Read(_ context.Context, p knob.Place, _ knob.State) (knob.State, error) {
	b, err := os.ReadFile(p.Port)
	return knob.State(b), err
}

func (inFile) Apply(_ context.Context, p knob.Place, s knob.State) error {
	return os.WriteFile(p.Port, []byte(s), 0o600)
}

// machineAgent is the agent of a machine, which holds a setting in a file that was "one" and is "ten".
func machineAgent(t *testing.T) (process *host.Child, s host.Session, file string) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "setting")
	must(t, os.WriteFile(file, []byte("one"), 0o600))
	process, err := host.Spawn{Args: []string{agent.MachineRole}}.Start()
	must(t, err)
	t.Cleanup(func() { process.Close() })
	a := host.Connect(process)
	s, err = a.Open(labtest.Context(t), "knob/dial", agent.KnobRequest{
		Place: knob.Place{Port: file},
		Want:  "ten",
	})
	must(t, err)
	var held agent.KnobReply
	for _, want := range []knob.State{"one", "ten"} {
		if err := s.Recv(&held); err != nil || held.State != want {
			t.Fatalf("got %q, %v, want %q", held.State, err, want)
		}

		if want == "one" {
			must(t, s.Send(struct{}{}))
		}
	}

	return process, s, file
}

// putBack waits until a file is again what it was.
func putBack(t *testing.T, file string) {
	t.Helper()
	expect.Soon(t, 10*time.Second, "it", "one", func() string {
		b, err := os.ReadFile(file)
		must(t, err)
		return string(b)
	})
}

// guardOf is the process that an agent has started (proc(5): the fourth word of stat is the parent).
func guardOf(t *testing.T, parent *host.Child) int {
	t.Helper()
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	must(t, err)
	for _, path := range stats {
		b, _ := os.ReadFile(path) // it may have ended
		_, rest, _ := strings.Cut(string(b), ") ")
		f := strings.Fields(rest)
		if len(f) > 1 && f[1] == strconv.Itoa(parent.Pid()) {
			pid, err := strconv.Atoi(strings.Split(path, "/")[2])
			must(t, err)
			return pid
		}
	}

	t.Fatal("the agent has no guard")
	return 0
}

// TestAKilledAgentLeavesNothing: what the agent of a machine has set is put back when it ends, and when it is
// killed, by its guard. Until then nobody else has the machine.
func TestAKilledAgentLeavesNothing(t *testing.T) {
	for name, end := range map[string]func(*host.Child) error{
		"hung up": (*host.Child).HangUp, "killed": (*host.Child).Kill,
	} {
		t.Run(name, func(t *testing.T) {
			process, _, file := machineAgent(t)
			must(t, end(process))
			putBack(t, file)
		})
	}

	t.Run("its guard is slow", func(t *testing.T) {
		process, _, file := machineAgent(t)
		guard := guardOf(t, process)
		must(t, errors.Join(syscall.Kill(guard, syscall.SIGSTOP), process.Kill()))
		_ = process.Wait() // of a killed one it is an error
		second := labtest.Serve(agent.Handlers(agent.MachineRole, agent.Parts{}))
		err := second.Invoke(labtest.Context(t), agent.VerbFree, struct{}{}, nil)
		expect.Error(t, "a second controller", err, "its agent is process "+strconv.Itoa(guard))
		must(t, errors.Join(second.Close(), syscall.Kill(guard, syscall.SIGCONT)))
		putBack(t, file)
	})
}

// TestAKilledGuardIsTold: what it held may still be set.
func TestAKilledGuardIsTold(t *testing.T) {
	process, s, _ := machineAgent(t)
	must(t, syscall.Kill(guardOf(t, process), syscall.SIGKILL))
	expect.Error(t, "the session", s.Recv(nil), host.ErrNotUndone)
}

package lab

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/lab/agent"
	"github.com/chokepoint-lab/chokepoint/internal/lab/driver"
	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/labtest/apart"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// TestAgentAndGuardExclude: of an agent and a driver's guard on one machine the later one is refused, either
// way round, before it changes anything. A run is told so when it begins.
func TestAgentAndGuardExclude(t *testing.T) {
	t.Parallel()
	apart.Needs(t, "tc")
	apart.Network(t, func(ctx context.Context) error {
		h := host.Local()
		by := driver.Linux{}
		process, err := host.Spawn{Args: []string{agent.MachineRole}}.Start()
		if err != nil {
			return err
		}

		n := &Node{Name: "router", Agent: host.Connect(process)}
		n.Facts.CPUs = "own"
		defer n.Agent.Close()
		refused := func(what string, err error, by string) {
			t.Helper()
			if err == nil || !strings.Contains(err.Error(), by) || check.HintOf(err) == "" {
				t.Errorf("%s: got %v, want it refused for %q, with a hint", what, err, by)
			}
		}
		begun := func(n *Node) error { return n.free(ctx) }

		name, err := by.Guard(ctx, h, "", nil, time.Hour)
		if err != nil {
			return err
		}

		turn := agent.KnobRequest{Want: "pfifo limit 50", Restore: true}
		turn.Place.Node, turn.Place.Port = "router", "lo"
		refused("agent beside a guard", n.Agent.Invoke(ctx, host.Verb(host.FamilyKnob, "queue"), turn, nil),
			name)
		refused("run by agent beside a guard", begun(n), name)
		agentless := &Node{Name: "router", Host: h, Driver: by}
		refused("run by a driver beside a guard", begun(agentless), name)
		refused("run by a driver beside another guard", agentless.free(ctx, name+"x", "none"), name)
		if err := agentless.free(ctx, "none", name); err != nil {
			t.Errorf("beside its own guard: got %v, want it free", err)
		}

		q, err := by.Read(ctx, h, record.Setting{Knob: "queue", Port: "lo"})
		if err != nil || q != "noqueue" {
			t.Errorf("beside a guard the agent has set: got %q, %v, want noqueue", q, err)
		}

		if err := errors.Join(by.Dismiss(ctx, h, name), begun(n), begun(agentless),
			n.Agent.Invoke(ctx, host.Verb(host.FamilyKnob, "queue"), turn, nil)); err != nil {
			return fmt.Errorf("after the guard was dismissed: %w", err)
		}

		_, err = by.Guard(ctx, h, "", nil, time.Hour)
		refused("guard beside an agent", err, "its agent is process ")
		refused("run by a driver beside an agent", begun(agentless), "its agent is process ")
		if err := n.Agent.Close(); err != nil {
			return err
		}

		return begun(agentless)
	})
}

// TestOthersKeepNoDriverOff: what another user of the machine makes is not taken for a controller.
func TestOthersKeepNoDriverOff(t *testing.T) {
	apart.Network(t, func(ctx context.Context) error {
		// In the name of a process that has it not.
		l, err := net.Listen("unix", "@chokepoint-agent-machine-1-x")
		if err != nil {
			return err
		}
		defer l.Close()
		dir, err := os.MkdirTemp("/tmp", "chokepoint-guard-")
		if err != nil {
			return err
		}
		defer os.RemoveAll(dir)
		if err := errors.Join(os.WriteFile(dir+"/touched", []byte("1\n"), 0o644),
			os.Chown(dir, 65534, 65534)); err != nil {
			return err
		}

		name, err := driver.Linux{}.Guard(ctx, host.Local(), "", nil, time.Hour)
		return errors.Join(err, os.RemoveAll(name))
	})
}

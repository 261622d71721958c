package agent_test

import (
	"testing"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/lab/agent"
	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/lab/knob"
	"github.com/chokepoint-lab/chokepoint/internal/labtest"
)

// TestAgentKeepsItsKernel: which kernel settings may be set is decided by how an agent was started, not by
// what it is asked, whoever asks.
func TestAgentKeepsItsKernel(t *testing.T) {
	t.Parallel()
	const pattern = "kernel.core_pattern"
	asked := knob.Place{Node: "server", OwnKernel: true, Sysctls: knob.OfGuest}
	for _, tt := range []struct {
		name    string
		role    string
		sysctls knob.Permission
		want    check.State
	}{
		{"of a machine", agent.MachineRole, "", check.No},
		{"its guard", agent.GuardRole, "", check.No},
		{"of this machine", agent.Role, "", check.No},
		{"of a namespace", agent.Role, knob.OfNamespace, check.No},
		{"of a machine whose owner allows another", agent.MachineRole, "kernel.timer_migration", check.No},
	} {
		t.Run(tt.name, func(t *testing.T) {
			a := labtest.Serve(agent.Handlers(tt.role, agent.Parts{
				Knobs:   []knob.Knob{knob.Sysctl()},
				Sysctls: tt.sysctls,
			}))
			defer a.Close()
			for _, name := range []string{pattern, "kernel/core_pattern", "vm.swappiness"} {
				turn := agent.KnobRequest{Place: asked, Want: knob.State(name + "=1"), Check: true}
				verb := host.Verb(host.FamilyKnob, knob.Sysctl().Name())
				var held agent.KnobReply
				must(t, a.Invoke(labtest.Context(t), verb, turn, &held))
				if held.Answer == nil || held.Answer.State != tt.want {
					t.Errorf("%s: got %+v, want %v", name, held.Answer, tt.want)
				}

				turn.Check, turn.Restore = false, true
				if err := a.Invoke(labtest.Context(t), verb, turn, &held); err == nil {
					t.Errorf("put back %s: got no error, want a refusal", name)
				}
			}
		})
	}
}

func TestArguments(t *testing.T) {
	for _, sysctls := range []knob.Permission{"", knob.OfNamespace, "kernel.timer_migration,vm.swappiness"} {
		role, got, err := agent.Started(agent.Arguments(agent.GuardRole, sysctls))
		if err != nil || role != agent.GuardRole || got != sysctls {
			t.Errorf("%q: got %q, %q, %v", sysctls, role, got, err)
		}
	}

	for _, args := range [][]string{{agent.Role, "net", "more"}, {agent.Role, "now"}, {agent.MachineRole, ""},
		{agent.MachineRole, string(knob.OfGuest)}, {agent.MachineRole, "kernel.a,all"}} {
		if role, got, err := agent.Started(args); err == nil || role != args[0] || got != "" {
			t.Errorf("%q: got %q, %q, %v, want an error", args, role, got, err)
		}
	}

	for _, args := range [][]string{nil, {"run"}, {"run", "net"}} {
		if role, _, err := agent.Started(args); role != "" || err != nil {
			t.Errorf("%q: got %q, %v, want none of an agent", args, role, err)
		}
	}
}

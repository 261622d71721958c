package agent_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/lab/agent"
	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/lab/knob"
	"github.com/chokepoint-lab/chokepoint/internal/labtest"
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

// TestAKilledAgentLeavesNothing: what the agent of a machine has set is put back when it ends, and when it is
// killed, by the process that held it.
func TestAKilledAgentLeavesNothing(t *testing.T) {
	for name, end := range map[string]func(*host.Child) error{
		"hung up": (*host.Child).HangUp, "killed": (*host.Child).Kill,
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "setting")
			if err := os.WriteFile(file, []byte("one"), 0o600); err != nil {
				t.Fatal(err)
			}
			process, err := host.Spawn{Args: []string{agent.MachineRole}}.Start()
			if err != nil {
				t.Fatal(err)
			}
			a := host.Connect(process)
			s, err := a.Open(labtest.Context(t), "knob/dial", agent.Turn{Place: knob.Place{Port: file},
				Want: "ten"})
			if err != nil {
				t.Fatal(err)
			}
			var held agent.Held
			for _, want := range []knob.State{"one", "ten"} {
				if err := s.Recv(&held); err != nil || held.State != want {
					t.Fatalf("got %q, %v, want %q", held.State, err, want)
				}
				if want == "one" {
					if err := s.Send(struct{}{}); err != nil {
						t.Fatal(err)
					}
				}
			}
			if err := end(process); err != nil {
				t.Fatal(err)
			}
			_ = process.Wait() // of a killed one it is an error
			for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) {
				b, err := os.ReadFile(file)
				if err != nil || time.Now().After(deadline) {
					t.Fatalf("it is %q, %v, want it put back", b, err)
				}
				if string(b) == "one" {
					break
				}
			}
		})
	}
}

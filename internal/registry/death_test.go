package registry_test

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/lab/agent"
	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/lab/knob"
	"github.com/chokepoint-lab/chokepoint/internal/labtest"
	"github.com/chokepoint-lab/chokepoint/internal/labtest/expect"
	"github.com/chokepoint-lab/chokepoint/internal/registry"
)

// TestAgentUndoesAllWhenItsControllerDies loses the connection of an agent with many sessions at once, as a
// killed controller does: the answers of the first that end must not keep the others from undoing.
func TestAgentUndoesAllWhenItsControllerDies(t *testing.T) {
	dir := t.TempDir()
	l, id := labtest.UpIn(t, dir, "forward", registry.LabParts())
	state := func() string {
		return labtest.Exec(t, l, "router", "cat", "/sys/class/net/lan/tx_queue_len",
			"/sys/class/net/wan/tx_queue_len",
			"/sys/class/net/lan/mtu", "/sys/class/net/wan/mtu")
	}
	before := state()
	conn := dialRouter(t, filepath.Join(dir, id))
	a := host.Connect(conn)
	for i, turn := range []struct {
		knob, port, want string
	}{{"txqueuelen", "lan", "77"}, {"txqueuelen", "wan", "78"}, {"link_mtu", "lan", "1400"},
		{"link_mtu", "wan", "1401"}} {
		hold(t, a, turn.knob, turn.port, turn.want, true)
		hold(t, a, turn.knob, turn.port, fmt.Sprint(1500+i), false) // ends at once, having changed nothing
	}

	if got, want := strings.Fields(state()), "[77 78 1400 1401]"; fmt.Sprint(got) != want {
		t.Fatalf("with the settings: got %v, want %s", got, want)
	}

	must(t, conn.Close())
	expect.Soon(t, 3*time.Second, "3 s after the controller's death", before, state)
}

// dialRouter has an agent started on the router. The path goes through the open directory, since unix(7)
// allows only 108 bytes.
func dialRouter(t *testing.T, dir string) net.Conn {
	t.Helper()
	d, err := os.Open(dir)
	must(t, err)
	defer d.Close()
	c, err := net.Dial("unix", fmt.Sprintf("/proc/self/fd/%d/router.sock", d.Fd()))
	must(t, err)
	t.Cleanup(func() { c.Close() })
	return c
}

// hold opens a session of a knob, and makes the setting if it is told to.
func hold(t *testing.T, a host.Agent, name, port, want string, apply bool) {
	t.Helper()
	s, err := a.Open(labtest.Context(t), host.Verb(host.FamilyKnob, name),
		agent.KnobRequest{
			Place: knob.Place{Node: "router", Port: port, Ports: []string{"lan", "wan"}},
			Want:  knob.State(want),
		})
	must(t, err)
	var held agent.KnobReply
	if err := s.Recv(&held); err != nil {
		t.Fatalf("read %s of %s: %v", name, port, err)
	}

	if !apply {
		return
	}

	must(t, s.Send(struct{}{}))
	if err := s.Recv(&held); err != nil || held.State != knob.State(want) {
		t.Fatalf("apply %s=%s to %s: got %q, %v", name, want, port, held.State, err)
	}
}

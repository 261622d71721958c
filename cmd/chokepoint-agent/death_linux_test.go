package main

import (
	"net"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/chokepoint-lab/chokepoint/internal/lab/agent"
	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/lab/knob"
)

// TestMain lets the test program be the agent.
func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == agent.Role {
		main()
	}

	os.Exit(m.Run())
}

// TestAgentOutlivesItsController loses the connection of an agent with many sessions: it must leave when
// all have ended, not by the signal that the first answer to nobody raises. The settings are read and never
// made.
func TestAgentOutlivesItsController(t *testing.T) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}

	near := os.NewFile(uintptr(pair[0]), "near")
	far := os.NewFile(uintptr(pair[1]), "far")
	conn, err := net.FileConn(near)
	near.Close()
	if err != nil {
		t.Fatal(err)
	}

	child, err := host.Spawn{Args: []string{agent.Role}, Conn: far}.Start()
	far.Close()
	if err != nil {
		t.Fatal(err)
	}

	a := host.Connect(conn)
	for range 16 {
		s, err := a.Open(t.Context(), host.Verb(host.FamilyKnob, "txqueuelen"),
			agent.KnobRequest{Place: knob.Place{Node: "here", Port: "lo"}, Want: "77"})
		if err != nil {
			t.Fatal(err)
		}

		var held agent.KnobReply
		if err := s.Recv(&held); err != nil {
			t.Fatal(err)
		}
	}

	if err := conn.Close(); err != nil {
		t.Fatal(err)
	}

	if err := child.Wait(); err != nil {
		t.Errorf("agent: got %v, want it to leave by itself", err)
	}
}

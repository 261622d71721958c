package watch

import (
	"context"
	"io"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/probe"
)

// stdio is the line of a process to the one that started it.
type stdio struct {
	io.Reader
	io.WriteCloser
}

const asNode = "CHOKEPOINT_TEST_WATCH_NODE"

// TestMain is the node of the test below, where it is started as one.
func TestMain(m *testing.M) {
	if os.Getenv(asNode) == "" {
		os.Exit(m.Run())
	}

	host.Serve(context.Background(), stdio{os.Stdin, os.Stdout},
		map[string]host.Handler{Verb: Serve([]probe.Probe{countingProbe()})})
}

// TestAStoppedProcessIsAStallOfItsTime: a node's process is stopped in a time that is collected, and goes on
// only while it is asked for it. The answer has the stall, and that of the time after has it not.
func TestAStoppedProcessIsAStallOfItsTime(t *testing.T) {
	const stopped = 1500 * time.Millisecond
	node := exec.Command(os.Args[0])
	node.Env = append(os.Environ(), asNode+"=1")
	node.Stderr = os.Stderr
	in, err := node.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}

	out, err := node.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}

	if err := node.Start(); err != nil {
		t.Fatal(err)
	}

	agent := host.Connect(stdio{out, in})
	defer func() { agent.Close(); in.Close(); node.Wait() }()
	w, err := Start(t.Context(), agent, "n", []string{"counting"}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	for range 5 {
		from := host.Monotonic()
		time.Sleep(300 * time.Millisecond)
		syscall.Kill(node.Process.Pid, syscall.SIGSTOP)
		time.AfterFunc(stopped, func() { syscall.Kill(node.Process.Pid, syscall.SIGCONT) })
		to := host.Monotonic() + int64(stopped)/2
		d, err := w.Collect(t.Context(), from, to)
		if err != nil {
			t.Fatal(err)
		}

		longest := int64(0)
		for _, s := range d.Stalls {
			if s.At-s.LateNs <= to {
				longest = max(longest, s.LateNs)
			}
		}

		if longest < int64(stopped)*8/10 {
			t.Errorf("stalls: got %v, want one of %v that began by %d", d.Stalls, stopped, to)
		}

		time.Sleep(100 * time.Millisecond)
	}
}

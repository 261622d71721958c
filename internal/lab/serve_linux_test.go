package lab

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"testing"
	"time"
)

// TestServeNodeOutlivesAgentsThatDoNotStart: no program can be given an argument with a zero byte.
func TestServeNodeOutlivesAgentsThatDoNotStart(t *testing.T) {
	at := &net.UnixAddr{Name: fmt.Sprintf("@chokepoint-test-%d", os.Getpid()), Net: "unix"}
	ln, err := net.ListenUnix("unix", at)
	must(t, err)
	ended := make(chan error, 1)
	go func() {
		ended <- serveNode(t.Context(), ln, func(_ context.Context, c *net.UnixConn) error {
			return startAgent(c, []string{"\x00"})
		})
	}()
	for range 3 {
		c, err := net.DialUnix("unix", nil, at)
		if err != nil {
			t.Fatalf("dial: %v, want the node served", err)
		}

		c.SetDeadline(time.Now().Add(5 * time.Second))
		t.Cleanup(func() { c.Close() })
		if _, err := c.Read(make([]byte, 1)); err != io.EOF {
			t.Errorf("connection without an agent: got %v, want it closed", err)
		}
	}

	ln.Close()
	if err := <-ended; err != nil {
		t.Errorf("got %v, want nil once the listener is closed", err)
	}
}

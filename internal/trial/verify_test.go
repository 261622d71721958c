package trial

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/lab/agent"
	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
)

// TestEndEchoDoesNotWaitForASilentNode: the node neither ends the echo nor
// says anything more.
func TestEndEchoDoesNotWaitForASilentNode(t *testing.T) {
	near, far := net.Pipe()
	silent := func(ctx context.Context, s host.Session) error {
		if err := s.Recv(nil); err != nil {
			return err
		}
		<-ctx.Done()
		return nil
	}
	served := make(chan error, 1)
	go func() {
		served <- host.Serve(context.Background(), far, map[string]host.Handler{agent.VerbEcho: silent})
	}()
	a := host.Connect(near)
	s, err := a.Open(context.Background(), agent.VerbEcho, agent.EchoAt{})
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		endEcho(s)
		close(ended)
	}()
	select {
	case <-ended:
	case <-time.After(echoEnd + 3*time.Second):
		t.Error("the echo's end is still waited for")
	}
	a.Close()
	if err := <-served; err != nil {
		t.Errorf("node: %v", err)
	}
}

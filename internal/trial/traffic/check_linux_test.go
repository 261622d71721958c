package traffic_test

import (
	"context"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/trial/traffic"
	"github.com/chokepoint-lab/chokepoint/internal/trial/traffic/stream"
)

func TestCheckAsksTheNodes(t *testing.T) {
	near, far := ends(t, loopback4)
	load := tcpLoad(1, record.Up, "near")
	if a := (stream.Native{}).Check(t.Context(), near, far, load); a.State != check.Yes {
		t.Errorf("%s: %+v, want yes", load.Congestion, a)
	}

	load.Congestion = "nonesuch"
	if a := (stream.Native{}).Check(t.Context(), near, far, load); a.State != check.No || a.Hint == "" {
		t.Errorf("congestion control nonesuch: %+v, want no with a hint", a)
	}

	if _, err := (stream.Native{}).Offer(t.Context(), near, far, load,
		newStopwatch(time.Second)); err == nil {
		t.Error("offered load with congestion control nonesuch")
	}
}

// answering is a node whose every verb ends with err.
func answering(t *testing.T, err error) traffic.End {
	t.Helper()
	a, b := net.Pipe()
	done := make(chan struct{})
	go func() {
		defer close(done)
		host.Serve(context.Background(), b, map[string]host.Handler{
			"traffic/native": func(context.Context, host.Session) error { return err },
		})
	}()
	agent := host.Connect(a)
	t.Cleanup(func() {
		agent.Close()
		<-done
	})
	return traffic.End{Node: "odd", Agent: agent, Addr: loopback4, Target: loopback4}
}

func TestCheckTellsNoFromUnknown(t *testing.T) {
	near, _ := ends(t, loopback4)
	load := tcpLoad(1, record.Up, "near")
	for _, tc := range []struct {
		name string
		err  error
		want check.State
	}{
		{"unsupported", fmt.Errorf("here: %w", host.ErrUnsupported), check.No},
		{"some failure", fmt.Errorf("out of order"), check.Unknown},
	} {
		a := (stream.Native{}).Check(t.Context(), near, answering(t, tc.err), load)
		if a.State != tc.want ||
			a.Reason == "" {
			t.Errorf("%s: got %+v, want %v with a reason", tc.name, a, tc.want)
		}
	}
}

// TestNodesCheckLoadsThemselves: a controller of somebody else's need not have done so.
func TestNodesCheckLoadsThemselves(t *testing.T) {
	near, _ := ends(t, loopback4)
	udp := record.Load{Protocol: "udp", Direction: record.Up, Streams: 1, IP: 4, PacketSize: 1}
	echo := record.Load{Protocol: "echo", Streams: 1, IP: 4, PacketSize: 1, Interval: time.Millisecond}
	none := udp
	none.Protocol = ""
	for _, tc := range []struct {
		verb string
		load record.Load
		want string
	}{{"traffic/native", udp, "no room"}, {"traffic/echo", echo, "no room"},
		{"traffic/icmp", echo, "no room"}, {"traffic/echo", udp, "want echo"}, {"traffic/native", none, "want tcp or udp"},
		{"traffic/native", echo, "protocol"}} {
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		err := near.Agent.Invoke(ctx, tc.verb, traffic.Request{
			Side: "near",
			Addr: loopback4,
			Peer: loopback4,
			Port: 9,
			Load: tc.load,
		}, nil)
		cancel()
		if err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s of %s: got %v, want %q", tc.verb, tc.load.Protocol, err, tc.want)
		}
	}
}

func TestNodeThatEndsAtOnce(t *testing.T) {
	near, _ := ends(t, loopback4)
	_, err := stream.Native{}.Offer(t.Context(), near, answering(t, nil), tcpLoad(1, record.Up, "near"),
		newStopwatch(time.Second))
	wantError(t, err, "far end (odd)", "without a result")
}

func TestTCPUnauthenticatedClientsAreDropped(t *testing.T) {
	near, far := ends(t, loopback4)
	load := tcpLoad(2, record.Up, "near")
	load.Port = freePort(t)
	done := make(chan struct{})
	stopped := make(chan int)
	go func() {
		met := 0
		defer func() { stopped <- met }()
		for {
			select {
			case <-done:
				return
			case <-time.After(100 * time.Microsecond):
			}

			c, err := net.DialTCP("tcp", nil, &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: load.Port})
			if err != nil {
				continue
			}

			met++
			c.Write([]byte("GET / HTTP/1.1\r\n\r\n"))
			defer c.Close()
		}
	}()
	got, err := stream.Native{}.Offer(t.Context(), near, far, load, newStopwatch(100*time.Millisecond))
	close(done)
	met := <-stopped
	if err != nil {
		t.Fatal(err)
	}

	if len(got.Flows) != 2 || got.Flows[0].ReceivedBytes == 0 {
		t.Errorf("flows %+v", got.Flows)
	}

	t.Logf("%d other clients came", met)
}

func TestUDPVerifiesEveryByte(t *testing.T) {
	near, far := ends(t, loopback4)
	load := udpLoad(1, record.Up, "near", 500, 3000)
	load.Verify = true
	got := offered(t, near, far, load, newStopwatch(100*time.Millisecond))
	f := got.Flows[0]
	if f.Corrupt != 0 || f.Verified < f.Packets.Received*(500-28-traffic.DatagramHeader) ||
		f.Packets.Received == 0 {
		t.Errorf("verified %d, corrupt %d of %+v", f.Verified, f.Corrupt, f.Packets)
	}
}

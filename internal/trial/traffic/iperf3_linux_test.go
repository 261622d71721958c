package traffic_test

import (
	"context"
	"testing"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/trial/traffic"
	"github.com/chokepoint-lab/chokepoint/internal/trial/traffic/iperf3"
)

// needIperf3 skips where the adapter's peer is not installed.
func needIperf3(t *testing.T, near, far traffic.End, load record.Load) {
	t.Helper()
	a := (iperf3.Engine{}).Check(t.Context(), near, far, load)
	if a.State != check.Yes {
		t.Skip("skip: iperf3 is not installed")
	}
}

func TestIperf3EveryOpenerAndDirection(t *testing.T) {
	for _, tc := range []struct{ protocol, opener, direction string }{
		{"tcp", "near", record.Up}, {"tcp", "far", record.Up}, {"tcp", "near", record.Both},
		{"udp", "near", record.Down},
	} {
		t.Run(tc.protocol+" "+tc.opener+" opens, data "+tc.direction, func(t *testing.T) {
			t.Parallel() // each sleeps most of its time in iperf3's own set-up
			near, far := ends(t, loopback4)
			load := tcpLoad(2, tc.direction, tc.opener)
			load.Protocol = tc.protocol
			load.Duration = time.Second
			if tc.protocol == "udp" {
				load.PacketSize, load.RateBps = 300, 8e6
			}

			needIperf3(t, near, far, load)
			got := carried(t, iperf3.Engine{}, near, far, load, newStopwatch(time.Second))
			want := len(traffic.FlowsOf(load))
			if len(got.Flows) != want {
				t.Fatalf("got %d flows, want %d", len(got.Flows), want)
			}

			for _, f := range got.Flows {
				if f.ReceivedBytes <= 0 || f.ReceiverNs < 5e8 || tc.direction != record.Both &&
					f.Direction != tc.direction {
					t.Errorf("flow %+v", f)
				}

				if f.Packets != nil && (f.Packets.Sent == 0 || f.Packets.Sent != f.Packets.Received+
					f.Packets.Lost) {
					t.Errorf("accounts %+v", f.Packets)
				}
			}

			u := got.Ends["near"]
			if u.UserNs+u.SystemNs <= 0 {
				t.Errorf("usage of near end: %+v, want some", u)
			}
		})
	}
}

func TestIperf3CancelIsPrompt(t *testing.T) {
	near, far := ends(t, loopback4)
	load := tcpLoad(1, record.Up, "near")
	load.Duration = 20 * time.Second
	needIperf3(t, near, far, load)
	wantPromptEnd(t, 2*time.Second, func(ctx context.Context) error {
		_, err := iperf3.Engine{}.Offer(ctx, near, far, load, newStopwatch(20*time.Second))
		return err
	})
}

func TestIperf3PortInUse(t *testing.T) {
	near, far := ends(t, loopback4)
	load := tcpLoad(1, record.Up, "near")
	needIperf3(t, near, far, load)
	load.Port = freePort(t)
	newTCPSink(t, load.Port)
	_, err := iperf3.Engine{}.Offer(t.Context(), near, far, load, newStopwatch(time.Second))
	wantError(t, err, "far end")
}

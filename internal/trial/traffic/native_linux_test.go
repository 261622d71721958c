package traffic_test

import (
	"context"
	"sort"
	"testing"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/trial/traffic"
	"github.com/chokepoint-lab/chokepoint/internal/trial/traffic/stream"
)

func TestTCPEveryOpenerAndDirection(t *testing.T) {
	eachWay(t, func(t *testing.T, opener, direction string) {
		near, far := ends(t, loopback4)
		clock := newStopwatch(150 * time.Millisecond)
		load := tcpLoad(2, direction, opener)
		got := carried(t, stream.Native{}, near, far, load, clock)
		want := len(traffic.FlowsOf(load))
		if len(got.Flows) != want {
			t.Fatalf("got %d flows, want %d", len(got.Flows), want)
		}

		moved := map[string]int64{}
		for _, f := range got.Flows {
			checkTCPFlow(t, f, clock.timeline)
			moved[f.Direction] += f.ReceivedBytes
		}

		// A single stream may starve on a busy machine.
		for d, n := range moved {
			if n <= 0 {
				t.Errorf("nothing arrived in direction %s", d)
			}
		}
	})
}

// edgeTolerance bounds how late a reading may be on a machine that is busy with other tests; the length that
// is recorded is the true one in any case.
const edgeTolerance = 250 * time.Millisecond

// sentBy returns what a sender's series says last until at: a receiver that is at the end of its stream is
// read no more, a sender is.
func sentBy(sent *record.Table, at int64) float64 {
	i := sort.Search(len(sent.T), func(i int) bool { return sent.T[i] > at })
	if i == 0 {
		return 0
	}
	return sent.V[0][i-1]
}

func checkTCPFlow(t *testing.T, f record.Flow, w record.Window) {
	t.Helper()
	for name, ns := range map[string]int64{"sender": f.SenderNs, "receiver": f.ReceiverNs} {
		d := ns - (w.End - w.Start)
		if d < -int64(edgeTolerance) || d > int64(edgeTolerance) {
			t.Errorf("%s's window is %v off the plan", name, time.Duration(d))
		}
	}

	if f.TCP == nil || f.TCP.Congestion != congestion() || f.TCP.MSS <= 0 || f.SentBytes > 0 &&
		f.TCP.BusyNs <= 0 {
		t.Errorf("TCP = %+v, want %s with a segment size and busy time", f.TCP, congestion())
	}

	for name, table := range map[string]*record.Table{"sent": f.Sent, "received": f.Received,
		"tcp_info": f.TCP.Series} {
		if table == nil || len(table.T) < 3 {
			t.Fatalf("%s series is too short: %v", name, table)
		}

		col := table.V[0]
		if name == "tcp_info" {
			col = table.Column("bytes_acked")
		}

		for i := range col {
			if i > 0 && (col[i] < col[i-1] || table.T[i] <= table.T[i-1]) {
				t.Fatalf("%s series falls at %d", name, i)
			}
		}
	}

	last := len(f.Received.T) - 1
	total := f.Received.V[0][last]
	sent := sentBy(f.Sent, f.Received.T[last])
	if sent > total+64<<20 || f.ReceivedBytes > int64(total) {
		t.Errorf("sent %v, received %v in all, window %v: does not fit together", sent, total,
			f.ReceivedBytes)
	}
}

func TestTCPVerifiesEveryByte(t *testing.T) {
	near, far := ends(t, loopback6)
	load := tcpLoad(2, record.Both, "near")
	load.IP, load.Verify = 6, true
	got := carried(t, stream.Native{}, near, far, load, newStopwatch(200*time.Millisecond))
	for _, f := range got.Flows {
		if f.Corrupt != 0 || f.Verified < f.ReceivedBytes || f.Verified == 0 {
			t.Errorf("stream %d %s: verified %d, corrupt %d of %d", f.Stream, f.Direction, f.Verified,
				f.Corrupt, f.ReceivedBytes)
		}
	}
}

func TestProgressIsReported(t *testing.T) {
	near, far := ends(t, loopback4)
	clock := newStopwatch(600 * time.Millisecond)
	if _, err := (stream.Native{}).Offer(t.Context(), near, far, tcpLoad(1, record.Down, "near"),
		clock); err != nil {
		t.Fatal(err)
	}

	if len(clock.progress) == 0 || clock.progress[len(clock.progress)-1].ReceivedBps <= 0 {
		t.Errorf("progress %+v, want a rate", clock.progress)
	}
}

func TestTCPVerifyFindsPlantedCorruption(t *testing.T) {
	near, far := ends(t, loopback4)
	load := tcpLoad(2, record.Up, "near")
	load.Verify = true
	(&tcpRelay{harmAt: traffic.PreambleSize + 12345}).through(t, &far, &load)
	got := carried(t, stream.Native{}, near, far, load, newStopwatch(200*time.Millisecond))
	for _, f := range got.Flows {
		if f.Corrupt != 1 {
			t.Errorf("stream %d: %d corrupt bytes, want the planted one", f.Stream, f.Corrupt)
		}
	}
}

func TestTCPRefused(t *testing.T) {
	near, far := ends(t, loopback4)
	far.Target = relayed // nobody listens there
	_, err := stream.Native{}.Offer(t.Context(), near, far, tcpLoad(1, record.Up, "near"),
		newStopwatch(time.Second))
	wantError(t, err, "near end", "connect to 127.0.0.2:", "refused")
}

func TestUDPRefused(t *testing.T) {
	near, far := ends(t, loopback4)
	far.Target = relayed
	_, err := stream.Native{}.Offer(t.Context(), near, far, udpLoad(1, record.Up, "near", 100, 0),
		newStopwatch(time.Second))
	wantError(t, err, "near end", "say hello to 127.0.0.2:", "refused")
}

func TestOneSideDies(t *testing.T) {
	for _, protocol := range []string{"tcp", "udp"} {
		t.Run(protocol, func(t *testing.T) {
			near, far := ends(t, loopback4)
			time.AfterFunc(300*time.Millisecond, func() { far.Agent.Close() })
			load := tcpLoad(1, record.Up, "near")
			load.Protocol, load.PacketSize = protocol, 200
			began := time.Now()
			_, err := stream.Native{}.Offer(t.Context(), near, far, load, newStopwatch(20*time.Second))
			wantError(t, err, "end (")
			d := time.Since(began)
			if d > 3*time.Second {
				t.Errorf("noticed after %v", d)
			}
		})
	}
}

func TestCancelIsPrompt(t *testing.T) {
	for _, protocol := range []string{"tcp", "udp"} {
		t.Run(protocol, func(t *testing.T) {
			near, far := ends(t, loopback4)
			load := tcpLoad(2, record.Both, "near")
			load.Protocol, load.PacketSize = protocol, 200
			wantPromptEnd(t, 1500*time.Millisecond, func(ctx context.Context) error {
				_, err := stream.Native{}.Offer(ctx, near, far, load, newStopwatch(20*time.Second))
				return err
			})
		})
	}
}

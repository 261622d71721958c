package traffic_test

import (
	"net/netip"
	"testing"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/trial/traffic"
	"github.com/chokepoint-lab/chokepoint/internal/trial/traffic/iperf3"
	"github.com/chokepoint-lab/chokepoint/internal/trial/traffic/stream"
)

// TestStreamsTakeThePathsInTurn: each stream, in both directions, runs between the addresses of its path,
// whoever opens.
func TestStreamsTakeThePathsInTurn(t *testing.T) {
	at := func(host string) netip.Addr { return netip.MustParseAddr("127.0." + host) }
	nears := []string{"1.1", "2.1", "3.1"}
	fars := []string{"1.2", "2.2", "3.2"}
	for _, protocol := range []string{"tcp", "udp"} {
		for _, opener := range []string{"near", "far"} {
			t.Run(protocol+", "+opener+" opens", func(t *testing.T) {
				near, far := ends(t, at(nears[0]))
				far.Addr, far.Target = at(fars[0]), at(fars[0])
				for i := range 2 {
					near.Beside, far.Beside = append(near.Beside, at(nears[i+1])),
						append(far.Beside, at(fars[i+1]))
				}

				load := tcpLoad(4, record.Both, opener)
				if protocol == "udp" {
					load = udpLoad(4, record.Both, opener, 200, 4000)
				}

				load.Tunnels = 3
				got := carried(t, stream.Native{}, near, far, load, newStopwatch(100*time.Millisecond))
				if len(got.Flows) != 8 {
					t.Fatalf("got %d flows, want 8", len(got.Flows))
				}

				for _, f := range got.Flows {
					way := []int{0, 1, 2, 0}[f.Stream-1]
					from := at(nears[way])
					to := at(fars[way])
					if f.Direction == record.Down {
						from, to = to, from
					}

					local := netip.MustParseAddrPort(f.Local)
					remote := netip.MustParseAddrPort(f.Remote)
					if local.Addr() != from || remote.Addr() != to {
						t.Errorf("stream %d %s runs from %v to %v, want from %v to %v", f.Stream, f.Direction,
							local, remote, from, to)
					}
				}
			})
		}
	}
}

func TestIperf3KnowsOnePathOnly(t *testing.T) {
	load := tcpLoad(4, record.Up, "near")
	load.Tunnels = 2
	a := (iperf3.Engine{}).Check(t.Context(), traffic.End{}, traffic.End{}, load)
	if a.Reason == "" {
		t.Errorf("got %+v, want a reason why not", a)
	}
}

package guest_test

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/chokepoint-lab/chokepoint/internal/overhead"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// counters gives how far the probes' counters grew in the window of a cell's trial, or all its time if it
// failed before.
type counters map[string]float64

func (c campaign) counters(t *testing.T, want record.Factors) (counters, *record.Trial) {
	trial, err := c.trial(want)
	if err != nil {
		t.Fatal(err)
	}
	return growth(trial), trial
}

// perPacket is the mean length of the packets that a port took in (rx) or gave out (tx). Ethernet's header
// counts on a link, and is none in a tunnel.
func (c counters) perPacket(port, way string) float64 {
	return c[port+"/"+way+"_bytes"] / c[port+"/"+way+"_packets"]
}

// tunnelPort is the device of a router's tunnel: of several, which stand beside each other in one lab, the
// one that carried the load.
func (c counters) tunnelPort(router string) string {
	port := router + "/netdev/tun"
	most := 0.0
	for name, n := range c {
		if at, ok := strings.CutSuffix(name, "/rx_bytes"); ok && strings.HasPrefix(name, router+
			"/netdev/tun") && n > most {
			port, most = at, n
		}
	}

	return port
}

// received is the payload that arrived from the begin of the load on, and until when. From there on nothing
// lies in buffers that could not be told from what was lost: on a slow router that is much of a window's
// load.
func received(t *record.Trial) (bytes float64, until int64) {
	until = math.MaxInt64
	for i := range t.Traffic.Flows {
		r := t.Traffic.Flows[i].Received
		last := len(r.T) - 1
		bytes += r.Column("bytes")[last]
		until = min(until, r.T[last])
	}
	return bytes, until
}

// grew returns how far a counter, "router/snmp/IpReasmOKs", went from its last sample before the load on,
// until a time between two samples.
func grew(t *record.Trial, name string, until int64) float64 {
	node, name, _ := strings.Cut(name, "/")
	probe, counter, _ := strings.Cut(name, "/")
	before := math.NaN()
	last := math.NaN()
	at := int64(0)
	for _, s := range t.Nodes[node].Samples {
		if s.Probe != probe || s.Table == nil {
			continue
		}

		for i, v := range s.Table.Column(counter) {
			now := s.Table.T[i]
			switch {
			case math.IsNaN(v): // the device is not there
			case now <= t.Window.Begin || math.IsNaN(before):
				before = v
				last = v
				at = now
			case now <= until:
				last, at = v, now
			case at < until:
				last += (v - last) * float64(until-at) / float64(now-at)
				at = until
			}
		}
	}

	return last - before
}

// total returns what a column has at the end of the load, of all flows.
func total(t *record.Trial, of func(*record.Flow) []float64) (sum float64) {
	for i := range t.Traffic.Flows {
		column := of(&t.Traffic.Flows[i])
		sum += column[len(column)-1]
	}
	return sum
}

// sentAgain returns how many segments TCP sent again in the whole load.
func sentAgain(f *record.Flow) []float64 { return f.TCP.Series.Column("retransmits") }

// left is the payload that left the senders at least once. What does so later is refused by the receivers
// at once: little of a load of seconds.
func left(f *record.Flow) []float64 { return f.Sent.Column("bytes") }

// probed are the latency probe's packets that went through beside the load until a time: those that were
// answered. On a slow router they are a hundredth of all bytes.
func probed(t *record.Trial, until int64) (packets, size int) {
	if t.Loaded == nil {
		return 0, 0
	}

	for i, at := range t.Loaded.SentAt {
		rtt := t.Loaded.RTT[i]
		if rtt >= 0 && at+rtt <= until {
			packets++
		}
	}
	return packets, t.Loaded.Size
}

// carried holds the bytes that a tunnel's counter has, without those of probes, against the payload of the
// whole load: full packets of an inner length m with TCP's time stamps. A packet of an inner length counts
// as many bytes as counted says. The counter has at least what arrived in the same time; and when nothing
// is on its way any more, at most what was sent. What was sent again may have been lost on either side of
// it.
func carried(t *testing.T, text, counter string, load *record.Trial, m int, counted func(inner int) int) {
	payload := float64(m - overhead.IPv4Header - overhead.TCPHeader - overhead.TCPTimestamps)
	counts := func(until int64) float64 {
		probes, size := probed(load, until)
		fmt.Fprintf(t.Output(), "note: %s, probes beside the load: %d of %d bytes\n", text, probes, size)
		return (grew(load, counter, until) - float64(probes*counted(size))) * payload / float64(counted(m))
	}
	arrived, until := received(load)
	again := payload * total(load, sentAgain)
	fmt.Fprintf(t.Output(), "note: %s, share of bytes that were sent again: %.4g\n", text, again/arrived)
	hold(t, text+", bytes in the tunnel ÷ what goodput and headers make", counts(until)/arrived, .98, 0)
	hold(t, text+", bytes in the tunnel ÷ what was sent, and sent again",
		counts(math.MaxInt64)/(total(load, left)+again), 0, 1.02)
}

// moved returns how far the path's own counters went in the whole load, of one node: "lan rx_bytes", "tun
// tunnel_sent_bytes".
func moved(t *testing.T, load *record.Trial, node string) map[string]float64 {
	out := map[string]float64{}
	if load.Path != nil {
		for _, m := range load.Path.Counters {
			if m.When == "load" && m.Node == node {
				out[strings.TrimRight(m.Device, "0123456789")+" "+m.Counter] = float64(m.After - m.Before)
			}
		}
	}

	n := out["wan tx_packets"]
	if n < 1000 {
		t.Fatalf("trial %s: %v packets left %s, too few to check", load.ID, n, node)
	}

	return out
}

// checkWireGuard: on its way from the client to the router each packet is longer by the headers; the
// kernel's own counter has all of it but those of IP and UDP (message_data_len of
// drivers/net/wireguard/messages.h). The few packets that are not full ones, of the latency probe, are
// padded. Means are compared, since the router may drop some between its ports.
func checkWireGuard(t *testing.T, c campaign) {
	n, load := c.counters(t, wireGuard)
	m := moved(t, load, "router")
	const mtu = 1420
	tunnel := overhead.Tunnel{Kind: overhead.WireGuard, MTU: mtu}
	headers := float64(tunnel.Outer(mtu) - mtu)
	const outside = overhead.IPv4Header + overhead.UDPHeader
	port := n.tunnelPort("router")
	hold(t, "WireGuard, bytes per packet outside - inside",
		m["lan rx_bytes"]/m["lan rx_packets"]-m["wan tx_bytes"]/m["wan tx_packets"], headers-.5, headers+3)
	hold(t, "WireGuard, bytes per packet on the LAN - by its own counter",
		n.perPacket("router/netdev/lan", "rx")-n.perPacket(port, "rx"),
		overhead.Ethernet+outside-2, overhead.Ethernet+outside+2)
	carried(t, "WireGuard", port+"/rx_bytes", load, mtu,
		func(inner int) int { return tunnel.Outer(inner) - outside })
}

// checkESP: the counters of the security associations have inner packets, and those of the ports what ESP
// makes of them.
func checkESP(t *testing.T, c campaign) {
	n, load := c.counters(t, esp)
	m := moved(t, load, "router-a")
	const mtu = 1446 // what fits into 1500
	tunnel, _ := overhead.Named("esp")
	headers := float64(tunnel.Outer(mtu) - mtu)
	outside := m["wan tx_bytes"] / m["wan tx_packets"]
	inside := m["tun tunnel_sent_bytes"] / m["lan rx_packets"]
	hold(t, "ESP, bytes per packet on the WAN - by the security association",
		outside-inside-overhead.Ethernet, headers-.5, headers+3)
	hold(t, "ESP, bytes on the LAN ÷ by the security association",
		(m["lan rx_bytes"]-overhead.Ethernet*m["lan rx_packets"])/m["tun tunnel_sent_bytes"], .995, 1.005)
	carried(t, "ESP", n.tunnelPort("router-b")+"/rx_bytes", load, mtu, func(inner int) int { return inner })
}

// checkTooLarge: an inner packet of 1500 bytes makes an outer one of 1560, which goes in two fragments that
// the router has to put together.
func checkTooLarge(t *testing.T, c campaign) {
	n, _ := c.counters(t, tooLarge)
	fitting, _ := c.counters(t, wireGuard)
	tunnel := overhead.Tunnel{Kind: overhead.WireGuard, MTU: 1500}
	pieces := float64(len(overhead.Fragments(overhead.V4, tunnel.Outer(1500), 1500)))
	whole := n["router/snmp/IpReasmOKs"]
	hold(t, "WireGuard with an MTU of 1500, packets that the router put together", whole, 20, 0)
	hold(t, "WireGuard with an MTU of 1500, fragments per packet", n["router/snmp/IpReasmReqds"]/whole,
		pieces-.1, pieces+.1)
	hold(t, "WireGuard with an MTU of 1420, fragments", fitting["router/snmp/IpReasmReqds"], 0, .5)
}

// checkOpenVPN: without OpenVPN's own fragments and MSS fixing, each full packet is fragmented by IP
// outside: 1500 bytes make 1500 and 72, and 6000 make four of 1500 and one of 132.
func checkOpenVPN(t *testing.T, c campaign) {
	for mtu, cell := range map[int]record.Factors{1500: openVPN, 6000: openVPN6K} {
		t.Run(fmt.Sprint(mtu), func(t *testing.T) {
			n, load := c.counters(t, cell)
			text := fmt.Sprintf("OpenVPN with an MTU of %d", mtu)
			tunnel := overhead.Tunnel{Kind: overhead.OpenVPNUDP, MTU: mtu}
			pieces := float64(len(overhead.Fragments(overhead.V4, tunnel.Outer(mtu), 1500)))
			payload := mtu - overhead.IPv4Header - overhead.TCPHeader - overhead.TCPTimestamps
			arrived, until := received(load)
			hold(t, text+", fragments per packet outside",
				n["router/snmp/IpReasmReqds"]/n["router/snmp/IpReasmOKs"], pieces-.2, pieces+.05)
			hold(t, text+", packets outside ÷ what goodput makes",
				grew(load, "router/snmp/IpReasmOKs", until)*float64(payload)/arrived, .9, 1.1)
		})
	}
}

// checkOverfull: 60 connections do not fit into a table of 20.
func checkOverfull(t *testing.T, c campaign) {
	n, load := c.counters(t, overfull)
	unlimited, _ := c.counters(t, offloaded)
	full := 0
	for _, l := range load.Nodes["router"].Log {
		if strings.Contains(l.Text, "table full, dropping packet") {
			full++
		}
	}

	hold(t, "60 connections in a table of 20, packets dropped by connection tracking",
		n["router/conntrack/drop"], 20, 0)
	hold(t, "60 connections in a table of 20, lines of the kernel's log that say so", float64(full), 1, 0)
	hold(t, "without a limit, packets dropped by connection tracking", unlimited["router/conntrack/drop"], 0,
		.5)
}

// TestProbedCountsWhatWasAnswered: a lost probe may not have come to the tunnel, and one under way is after
// the end of what is compared.
func TestProbedCountsWhatWasAnswered(t *testing.T) {
	trial := &record.Trial{}
	if n, size := probed(trial, 100); n != 0 || size != 0 {
		t.Errorf("without a probe: got %d of %d bytes", n, size)
	}

	trial.Loaded = &record.Latency{Size: 92, SentAt: []int64{10, 20, 30, 90}, RTT: []int64{5, -1, 7, 11}}
	if n, size := probed(trial, 100); n != 2 || size != 92 {
		t.Errorf("of four, one lost and one late: got %d of %d bytes, want 2 of 92", n, size)
	}
}

// TestTunnelPortIsTheOneThatCarried: of two tunnels in one lab the idle one is not checked.
func TestTunnelPortIsTheOneThatCarried(t *testing.T) {
	c := counters{"router/netdev/tun1/rx_bytes": 0, "router/netdev/tun2/rx_bytes": 9e6,
		"router/netdev/wan/rx_bytes": 9e7, "client/netdev/tun3/rx_bytes": 9e8}
	got, want := c.tunnelPort("router"), "router/netdev/tun2"
	if got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/chokepoint-lab/chokepoint/bench/rig"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/trial/traffic"
)

// side is one of the two sides of a comparison.
type side struct {
	engine traffic.Engine
	load   record.Load
	path   int // plainPath if not given
}

// comparison is a row: ours ÷ peer, of one quantity.
type comparison struct {
	name, peer   string
	offload      string
	settings     []record.Setting // besides
	ours, theirs side
	of           quantity

	target, stretch float64
	within          float64 // tolerated deviation of the ratio from 1; 0 = the two bounds above
}

var native, iperf3 = rig.Engine("native"), rig.Engine("iperf3")

type suite struct {
	name, title string
	rows        []comparison
}

// suites are the rows of the issue that can be measured with native sockets.
func suites() []suite {
	return []suite{
		{"tcp-super", "TCP goodput, packets of up to 64 KiB", []comparison{
			tcpAgainst("super", 1, goodput, 1.4, 1.6), tcpAgainst("super", 4, goodput, 1.7, 1.9)}},
		{"tcp-wire", "TCP goodput, every 1500-byte packet real", []comparison{
			tcpAgainst("wire", 1, goodput, 1.0, 1.1), tcpAgainst("wire", 4, goodput, 1.7, 1.95)}},
		{"cpu", "CPU seconds per GB, both ends", []comparison{tcpAgainst("wire", 4, cost, .5, .4)}},
		{"udp", "UDP packets that arrived per second, two senders", []comparison{
			udpAgainst(record.UDPCount, 64, 4, 4.5), udpAgainst(record.UDPCount, 512, 4, 4.5),
			udpAgainst(record.UDPCount, 1400, 3.5, 4),
			udpAgainst(record.UDPExact, 64, 2, 2.5), udpAgainst(record.UDPExact, 512, 2, 2.5),
			udpAgainst(record.UDPExact, 1400, 2, 2.5)}},
		{"growth", "cost of growth: many flows against one", []comparison{
			growth("super", tcp(1), tcp(512)), growth("wire", tcp(1), tcp(512)),
			growth("wire", udp(record.UDPCount, 512, 1), udp(record.UDPCount, 512, 10_000)),
			growth("wire", udp(record.UDPExact, 512, 1), udp(record.UDPExact, 512, 10_000))}},
		{"wireguard", "TCP goodput through WireGuard in user space", []comparison{tunnelled("super", 4, 5),
			tunnelled("wire", 1.5, 1.65)}},
		{"agreement", "goodput behind a queue of 300 Mbit/s", []comparison{shaped(1), shaped(4)}},
	}
}

// tunnelled returns one stream through either tunnel.
func tunnelled(offload string, target, stretch float64) comparison {
	return comparison{
		name:    offload + ", 1 stream",
		peer:    "wireguard-go",
		offload: offload,
		of:      goodput,
		target:  target,
		stretch: stretch,
		ours:    side{native, tcp(1), ourTunnel},
		theirs:  side{native, tcp(1), peerTunnel},
	}
}

func tcp(streams int) record.Load {
	return record.Load{Protocol: "tcp", Streams: streams, Congestion: "cubic"}
}

// udp returns a load at full rate; payload is that of a datagram.
func udp(mode string, payload, streams int) record.Load {
	const headers = 20 + 8 // of IPv4 and UDP
	return record.Load{Protocol: "udp", Streams: streams, PacketSize: payload + headers, UDPMode: mode}
}

func tcpAgainst(offload string, streams int, of quantity, target, stretch float64) comparison {
	name := fmt.Sprintf("%s, %d streams", offload, streams)
	return comparison{
		name:    strings.Replace(name, " 1 streams", " 1 stream", 1),
		peer:    "iperf3",
		offload: offload,
		of:      of,
		target:  target,
		stretch: stretch,
		ours:    side{engine: native, load: tcp(streams)},
		theirs:  side{engine: iperf3, load: tcp(streams)},
	}
}

func udpAgainst(mode string, payload int, target, stretch float64) comparison {
	return comparison{
		name:    fmt.Sprintf("wire, %d B payload, %s mode", payload, mode),
		peer:    "iperf3 -u -b 0",
		offload: "wire",
		of:      delivered,
		target:  target,
		stretch: stretch,
		ours:    side{engine: native, load: udp(mode, payload, 2)},
		theirs:  side{engine: iperf3, load: udp("", payload, 1)},
	}
}

func growth(offload string, one, many record.Load) comparison {
	name := fmt.Sprintf("%s, %s, %d flows", offload, one.Protocol, many.Streams)
	of := goodput
	if one.Protocol == "udp" {
		name = name + ", " + one.UDPMode + " mode"
		of = delivered
	}

	return comparison{
		name:    name,
		peer:    "ours, 1 flow",
		offload: offload,
		of:      of,
		target:  .8,
		stretch: .9,
		ours:    side{engine: native, load: many},
		theirs:  side{engine: native, load: one},
	}
}

// shaped makes real packets wait in a queue of 300 Mbit/s, whose burst of 14 ms is so long that a late timer
// costs no rate: there both engines must get the same result.
func shaped(streams int) comparison {
	c := tcpAgainst("wire", streams, goodput, 0, 0)
	c.name = c.name + " behind tbf"
	c.within = .03
	c.ours.load.Warmup = time.Second
	c.theirs.load.Warmup = time.Second // until the burst is gone
	c.settings = []record.Setting{{
		Knob:  "queue",
		Node:  "router",
		Port:  "wan",
		Value: "tbf rate 300M burst 512k limit 1M",
	}}
	return c
}

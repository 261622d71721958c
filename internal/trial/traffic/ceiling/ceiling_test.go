package ceiling

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/chokepoint-lab/chokepoint/internal/factor"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

func TestKindsOfLoads(t *testing.T) {
	wired := record.Link{Offload: "wire"}
	tcp := func(streams int) Kind { return Kind{Protocol: "tcp", Streams: streams, Link: wired} }
	udp := func(streams, size int) Kind {
		return Kind{Protocol: "udp", Streams: streams, PacketSize: size, Link: wired}
	}
	var all []Kind
	for _, l := range []record.Load{
		{Protocol: "tcp", Streams: 4}, {Protocol: "tcp", Streams: 1}, {Protocol: "tcp", Streams: 4},
		{Protocol: "tcp", Streams: 900},
		{Protocol: "udp", Streams: 2, PacketSize: 64}, {Protocol: "udp", Streams: 1, PacketSize: 64},
	} {
		all = append(all, KindOf("native", l, wired))
	}

	for _, size := range []int{1500, 128, 256, 512, 1024, 1280} {
		all = append(all, KindOf("iperf3", record.Load{Protocol: "udp", PacketSize: size}, wired))
	}

	for _, streams := range []int{1, 3} {
		all = append(all, KindOf("native", record.Load{
			Protocol: "udp",
			Streams:  streams,
			Sizes:    factor.IMIXSizes("6"),
		},
			wired))
	}

	for _, l := range []record.Load{{PacketSize: 46, Streams: 3}, {PacketSize: 1500}, {PacketSize: 46}} {
		l.Protocol = "udp"
		all = append(all, KindOf("xdp", l, wired))
	}

	for _, l := range []record.Load{{FlowSize: "websearch"}, {Streams: 8}, {Streams: 8, FlowSize: "10000"},
		{ConnectionRate: 5}} {
		l.Protocol = "tcp"
		all = append(all, KindOf("flows", l, wired))
	}

	all = append(all, KindOf("requests", record.Load{
		Protocol:     "tcp",
		Direction:    record.Both,
		ResponseSize: 7,
	}, wired))
	flows := func(streams int, size string) Kind {
		return Kind{Engine: "flows", Protocol: "tcp", Streams: streams, FlowSize: size, Link: wired}
	}
	mix := Kind{Protocol: "udp", Streams: 3, IMIX: true, Link: wired}
	want := []Kind{tcp(1), tcp(4), tcp(64), udp(2, 64), udp(1, 256), udp(1, 1024), udp(1, 1500), mix,
		flows(8, "10000"), flows(64, "10000"), flows(1, "websearch"),
		{Engine: "requests", Protocol: "tcp", Streams: 1, RequestSize: 100, ResponseSize: 7, Link: wired},
		{Engine: "xdp", Protocol: "udp", Streams: 3, PacketSize: 46}, {
			Engine:     "xdp",
			Protocol:   "udp",
			Streams:    1,
			PacketSize: 1500,
		}}
	diff := cmp.Diff(want, Few(all))
	if diff != "" {
		t.Errorf("kinds (-want +got):\n%s", diff)
	}

	if got := Few(nil); got != nil {
		t.Errorf("of no load: %v", got)
	}

	names := []string{"tcp loopback, 1 stream", "tcp loopback, 4 streams", "tcp loopback, 64 streams",
		"udp loopback, 64-byte packets, 2 streams",
		"udp loopback, 256-byte packets", "udp loopback, 1024-byte packets",
		"udp loopback, 1500-byte packets", "udp loopback, IMIX packets, 3 streams",
		"flows loopback, size 10000, 8 streams", "flows loopback, size 10000, 64 streams",
		"flows loopback, size websearch, 1 stream",
		"requests loopback, 100 and 7 bytes, 1 stream", "xdp loopback, 64-byte frames, 3 streams",
		"xdp loopback, 1518-byte frames"}
	for i, name := range names {
		got := want[i].Over("loopback")
		if got != name {
			t.Errorf("kind %d: %q, want %q", i, got, name)
		}
	}
}

// TestKindsOfLinks: what decides on the packets of a link makes another kind, where the traffic minds it.
func TestKindsOfLinks(t *testing.T) {
	var all []Kind
	for _, over := range []record.Link{{Offload: "wire", MTU: 9000}, {Offload: "super", MTU: 1400},
		{Offload: "wire"}, {Offload: "wire", MTU: 1500}} {
		for _, l := range []record.Load{{Protocol: "tcp"}, {Protocol: "udp", PacketSize: 64},
			{Protocol: "udp", PacketSize: 9000},
			{Protocol: "udp", PacketSize: 64, UDPMode: record.UDPCount}, {
				Protocol:   "udp",
				PacketSize: 64,
				UDPMode:    record.UDPExact,
			}} {
			all = append(all, KindOf("native", l, over))
		}

		all = append(all, KindOf("xdp", record.Load{Protocol: "udp", PacketSize: 46}, over))
	}

	var got []string
	for _, k := range Few(all) {
		got = append(got, fmt.Sprintf("%s/%d", k.Over("direct"), k.MTU))
	}

	want := []string{
		"tcp direct, 1 stream, super/0", "tcp direct, 1 stream/0", "tcp direct, 1 stream, MTU 9000/9000",
		"udp direct, 64-byte packets, super/0", "udp direct, 9000-byte packets, super/9000",
		"udp direct, 64-byte packets, count mode, super/0",
		"udp direct, 64-byte packets/0", "udp direct, 9000-byte packets/9000",
		"udp direct, 64-byte packets, count mode/0",
		"xdp direct, 64-byte frames/0",
	}
	diff := cmp.Diff(want, got)
	if diff != "" {
		t.Errorf("kinds (-want +got):\n%s", diff)
	}
}

package iperf3

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// TestThirdPartyCountsAreThoseOfBoth: what the client's file says alone is what both files say together,
// but for the series of the end that has none.
func TestThirdPartyCountsAreThoseOfBoth(t *testing.T) {
	for name, load := range map[string]record.Load{
		"tcp-2":       {Protocol: "tcp", Direction: record.Up, Streams: 2},
		"tcp-reverse": {Protocol: "tcp", Direction: record.Down, Streams: 1},
		"tcp-bidir-2": {Protocol: "tcp", Direction: record.Both, Streams: 2},
		"udp-2":       {Protocol: "udp", Direction: record.Up, Streams: 2, PacketSize: 200},
		"udp-reverse": {Protocol: "udp", Direction: record.Down, Streams: 1, PacketSize: 200},
		"udp-bidir":   {Protocol: "udp", Direction: record.Both, Streams: 1, PacketSize: 200},
	} {
		t.Run(name, func(t *testing.T) {
			load.IP, load.Opener = 4, "near"
			client, server := iperf3Files(t, name)
			want, err := joinIperf3(load, client, server, 0)
			if err != nil {
				t.Fatal(err)
			}

			got, err := joinIperf3(load, client, nil, 0)
			if err != nil {
				t.Fatal(err)
			}

			if len(got.Flows) != len(want.Flows) {
				t.Fatalf("flows: got %d, want %d", len(got.Flows), len(want.Flows))
			}

			for i, w := range want.Flows {
				g := got.Flows[i]
				if g.Direction != w.Direction || g.SentBytes != w.SentBytes ||
					g.ReceivedBytes != w.ReceivedBytes {
					t.Errorf("flow %d: got %s, %d sent, %d received; want %s, %d, %d", i,
						g.Direction, g.SentBytes, g.ReceivedBytes, w.Direction, w.SentBytes, w.ReceivedBytes)
				}

				diff := cmp.Diff(w.Packets, g.Packets)
				if diff != "" {
					t.Errorf("flow %d: packets (-want +got):\n%s", i, diff)
				}

				if g.Local != w.Local || g.Remote != w.Remote {
					t.Errorf("flow %d: got %s to %s, want %s to %s", i, g.Local, g.Remote, w.Local, w.Remote)
				}

				up := g.Direction == record.Up
				if (g.Received == nil) != up || (g.Sent == nil) == up {
					t.Errorf("flow %d %s: series of sender %v, of receiver %v; want only that of the "+
						"near end", i, g.Direction, g.Sent != nil, g.Received != nil)
				}
			}
		})
	}
}

package iperf3

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/trial/traffic"
)

func iperf3Files(t testing.TB, name string) (client, server []byte) {
	t.Helper()
	for side, to := range map[string]*[]byte{"client": &client, "server": &server} {
		b, err := os.ReadFile("testdata/" + name + "." + side + ".json")
		if err != nil {
			t.Fatal(err)
		}

		*to = b
	}
	return client, server
}

// The expected lines were read out of the files by share: direction, stream, bytes sent and received,
// packets, retransmits, who sends to whom.
func TestIperf3Goldens(t *testing.T) {
	for _, tc := range []struct {
		name, protocol, direction, opener string
		streams                           int
	}{
		{"tcp-2", "tcp", record.Up, "near", 2},
		{"tcp-reverse", "tcp", record.Down, "near", 1},
		{"tcp-reverse", "tcp", record.Up, "far", 1},
		{"tcp-bidir-2", "tcp", record.Both, "near", 2},
		{"udp-2", "udp", record.Up, "near", 2},
		{"udp-reverse", "udp", record.Down, "near", 1},
		{"udp-bidir", "udp", record.Both, "far", 1},
	} {
		t.Run(tc.name+" "+tc.opener, func(t *testing.T) {
			load := record.Load{
				Protocol:  tc.protocol,
				Direction: tc.direction,
				Opener:    tc.opener,
				Streams:   tc.streams,
				IP:        4,
			}
			if tc.protocol == "udp" {
				load.PacketSize = 200
			}

			client, server := iperf3Files(t, tc.name)
			got, err := joinIperf3(load, client, server, 1000)
			if err != nil {
				t.Fatal(err)
			}

			var b strings.Builder
			for _, f := range got.Flows {
				fmt.Fprintf(&b, "%s %d %s>%s sent %d in %d received %d in %d", f.Direction, f.Stream, f.Local,
					f.Remote,
					f.SentBytes, f.SenderNs, f.ReceivedBytes, f.ReceiverNs)
				if f.TCP != nil {
					fmt.Fprintf(&b, " %s retransmits %d min_rtt %d mss %d info %d", f.TCP.Congestion,
						*f.TCP.Retransmits, f.TCP.MinRTTNs, f.TCP.MSS, len(f.TCP.Series.T))
				}

				if f.Packets != nil {
					p := f.Packets
					fmt.Fprintf(&b, " packets {Sent:%d Unsent:%d Received:%d Lost:%d Reordered:%d Size:%d}",
						p.Sent, p.Unsent, p.Received, p.Lost, *p.Reordered, p.Size)
					if p.Duplicates != nil {
						t.Errorf("%d duplicates, which iperf3 does not count", *p.Duplicates)
					}
				}

				fmt.Fprintf(&b, " intervals %d %d\n", len(f.Sent.T), len(f.Received.T))
			}

			golden := "testdata/" + tc.name + "." + tc.opener + ".golden"
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatalf("%v; got:\n%s", err, b.String())
			}

			diff := cmp.Diff(string(want), b.String())
			if diff != "" {
				t.Errorf("flows differ (-want +got):\n%s", diff)
			}

			if got.Version != "3.12" || len(got.Raw) == 0 || len(got.Caveats) == 0 {
				t.Errorf("version %q, %d raw bytes, caveats %v", got.Version, len(got.Raw), got.Caveats)
			}
		})
	}
}

func TestIperf3Failures(t *testing.T) {
	client, server := iperf3Files(t, "tcp-2")
	refused, err := os.ReadFile("testdata/refused.client.json")
	if err != nil {
		t.Fatal(err)
	}

	load := record.Load{Protocol: "tcp", Direction: record.Up, Opener: "near", Streams: 2, IP: 4}
	for name, tc := range map[string]struct {
		client, server []byte
		streams        int
		want           string
	}{
		"refused":         {refused, server, 2, "unable to connect to server: Connection refused"},
		"empty":           {nil, server, 2, "client's: read iperf3 output"},
		"cut off":         {client[:len(client)/2], server, 2, "client's: read iperf3 output"},
		"no server":       {client, []byte("{}"), 2, "server's: read iperf3 output: no stream"},
		"missing streams": {client, server, 3, "2 streams, want 3"},
	} {
		load.Streams = tc.streams
		got, err := joinIperf3(load, tc.client, tc.server, 0)
		if err == nil || !strings.Contains(err.Error(), tc.want) || got != nil {
			t.Errorf("%s: got %v, %v; want an error with %q", name, got, err, tc.want)
		}
	}
}

// TestImpossibleIperf3OutputFails: numbers that nothing can have counted make no result, above all not a
// valid rate of 0.
func TestImpossibleIperf3OutputFails(t *testing.T) {
	edit := func(b []byte, part, key string, to any) []byte {
		var doc map[string]any
		if err := json.Unmarshal(b, &doc); err != nil {
			t.Fatal(err)
		}

		stream := doc["end"].(map[string]any)["streams"].([]any)[0].(map[string]any)
		if part == "interval" {
			interval := doc["intervals"].([]any)[1].(map[string]any)
			stream = map[string]any{part: interval["streams"].([]any)[0]}
		}

		stream[part].(map[string]any)[key] = to
		b, err := json.Marshal(doc)
		if err != nil {
			t.Fatal(err)
		}

		return b
	}
	for name, tc := range map[string]struct {
		protocol, part, key string
		to                  any
		fails               bool
	}{
		"negative bytes":               {"tcp", "receiver", "bytes", -5, true},
		"absurd bytes":                 {"tcp", "sender", "bytes", 9e18, true},
		"negative interval":            {"tcp", "interval", "bytes", -5, true},
		"ends before it starts":        {"tcp", "sender", "end", -1, true},
		"more lost than sent":          {"udp", "udp", "lost_packets", 1e6, true},
		"less lost than none":          {"udp", "udp", "lost_packets", -1e3, true},
		"absurd packets":               {"udp", "udp", "packets", 9e18, true},
		"as it was":                    {"tcp", "receiver", "bytes", 1e6, false},
		"a late packet of an interval": {"udp", "interval", "lost_packets", -3, false},
		"retransmits not known":        {"tcp", "sender", "retransmits", -1, false},
	} {
		client, server := iperf3Files(t, tc.protocol+"-2")
		load := record.Load{Protocol: tc.protocol, Direction: record.Up, Opener: "near", Streams: 2, IP: 4}
		got, err := joinIperf3(load, edit(client, tc.part, tc.key, tc.to), server, 0)
		if (err != nil) != tc.fails || tc.fails && got != nil {
			t.Errorf("%s: got %v, want a failure: %v", name, err, tc.fails)
		}
	}
}

func TestIperf3Arguments(t *testing.T) {
	q := traffic.Request{
		Side: "near",
		Addr: netip.MustParseAddr("127.0.0.1"),
		Peer: netip.MustParseAddr("127.0.0.1"),
		Port: 5201,
		Load: record.Load{
			Protocol:   "udp",
			Direction:  record.Both,
			Streams:    2,
			IP:         4,
			PacketSize: 200,
			RateBps:    4e6,
			Opener:     "near",
			Warmup:     1500e6,
			Duration:   2100e6,
			Interval:   100e6,
		},
	}
	got := strings.Join(iperf3Arguments(q), " ")
	want := "-c 127.0.0.1 -B 127.0.0.1 -p 5201 -J -4 -P 2 -t 3 -i 0.10 -O 2 --bidir -u -l 172 -b 1000000"
	if got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}

	q.Load.Protocol = "tcp"
	q.Load.Direction = record.Down
	q.Load.Congestion = "reno"
	q.Load.MSS = 1200
	q.Load.Warmup = 0
	got = strings.Join(iperf3Arguments(q), " ")
	if want := "-c 127.0.0.1 -B 127.0.0.1 -p 5201 -J -4 -P 2 -t 3 -i 0.10 -R -C reno -M 1200 --fq-rate " +
		"2000000"; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestIperf3MarksAndSizesWhatItSends(t *testing.T) {
	q := traffic.Request{
		Side: "near",
		Load: record.Load{
			Protocol:  "tcp",
			Direction: record.Up,
			Streams:   1,
			IP:        4,
			DSCP:      46,
			Buffer:    1 << 20,
		},
	}
	got := strings.Join(iperf3Arguments(q), " ")
	for _, want := range []string{"--dscp 46", "-w 524288"} {
		if !strings.Contains(got, want) {
			t.Errorf("arguments %q lack %q", got, want)
		}
	}

	q.Load.Congestion = "cubic+reno"
	a := checkIperf3(q.Load)
	if a.State.String() != "no" {
		t.Errorf("two congestion controls: got %v, want no", a)
	}
}

func FuzzIperf3(f *testing.F) {
	for _, name := range []string{"tcp-2", "tcp-bidir-2", "udp-2", "udp-bidir"} {
		client, server := iperf3Files(f, name)
		f.Add(client, server)
	}

	f.Fuzz(func(t *testing.T, client, server []byte) {
		for _, opener := range []string{"near", "far"} {
			load := record.Load{Protocol: "tcp", Direction: record.Both, Opener: opener, Streams: 1, IP: 4}
			got, err := joinIperf3(load, client, server, 0)
			if err != nil && got != nil {
				t.Errorf("both a result and %v", err)
			}

			if err != nil {
				continue
			}

			for _, fl := range got.Flows {
				if fl.ReceivedBytes < 0 || fl.SentBytes < 0 || fl.SenderNs < 0 || fl.ReceiverNs < 0 {
					t.Errorf("negative counts: %+v", fl)
				}

				p := fl.Packets
				if p != nil && p.Sent != p.Received+p.Lost {
					t.Errorf("accounts: %+v", p)
				}
			}
		}
	})
}

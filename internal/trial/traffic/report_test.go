package traffic

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

func TestCheckLoad(t *testing.T) {
	sound := record.Load{Protocol: "udp", Direction: record.Up, Streams: 1, IP: 4, PacketSize: 64}
	for name, tc := range map[string]struct {
		change func(l *record.Load)
		want   check.State
		word   string
	}{
		"64 bytes in IPv4": {func(*record.Load) {}, check.Yes, ""},
		"55 bytes in IPv4": {func(l *record.Load) { l.PacketSize = 55 }, check.Yes, ""},
		"44 bytes in IPv4": {func(l *record.Load) { l.PacketSize = 44 }, check.Yes, ""},
		"43 bytes in IPv4": {func(l *record.Load) { l.PacketSize = 43 }, check.No, "smallest are 44"},
		"64 bytes in IPv6": {func(l *record.Load) { l.IP = 6 }, check.Yes, ""},
		"55 bytes in IPv6": {func(l *record.Load) { l.IP, l.PacketSize = 6, 55 }, check.No,
			"smallest are 64"},
		"too large for IP": {func(l *record.Load) { l.PacketSize = 65536 }, check.No, "65535"},
		"several sizes": {func(l *record.Load) {
			l.PacketSize = 0
			l.Sizes = []int{44, 1500}
		},
			check.Yes, ""},
		"one of them too small": {func(l *record.Load) {
			l.PacketSize = 0
			l.Sizes = []int{1500, 43}
		},
			check.No, "smallest are 44"},
		"one of them too large": {func(l *record.Load) {
			l.PacketSize = 0
			l.Sizes = []int{44, 65536}
		},
			check.No, "65535"},
		"several sizes, counted": {func(l *record.Load) {
			l.PacketSize = 0
			l.Sizes = []int{44, 1500}
			l.UDPMode = "count"
		}, check.No, "one by one"},
		"no direction": {func(l *record.Load) { l.Direction = "" }, check.No, "0 flows"},
		"no streams":   {func(l *record.Load) { l.Streams = 0 }, check.No, "0 flows"},
		"many streams": {func(l *record.Load) {
			l.Streams = 10_000
			l.Direction = record.Both
		},
			check.Yes, ""},
		"too many streams": {func(l *record.Load) { l.Streams = 20481 }, check.No, "20481 flows"},
		"too many in both": {func(l *record.Load) {
			l.Streams = 10241
			l.Direction = record.Both
		},
			check.No, "20482 flows"},
		"too many of TCP": {func(l *record.Load) { l.Protocol, l.Streams = "tcp", 2049 }, check.No,
			"2049 flows: want 1 to 2048"},
		"DSCP of seven bits": {func(l *record.Load) { l.DSCP = 64 }, check.No, "want 0 to 63"},
		"unknown protocol":   {func(l *record.Load) { l.Protocol = "sctp" }, check.No, "sctp"},
		"unknown IP version": {func(l *record.Load) { l.IP = 5 }, check.No, "IP version 5"},
		"TCP needs no packet size": {func(l *record.Load) { l.Protocol, l.PacketSize = "tcp", 0 }, check.Yes,
			""},
	} {
		l := sound
		tc.change(&l)
		got := CheckLoad(l)
		if got.State != tc.want || !strings.Contains(got.Reason, tc.word) {
			t.Errorf("%s: got %v (%s), want %v with %q", name, got.State, got.Reason, tc.want, tc.word)
		}
	}
}

// reports are both ends' halves of one UDP flow up.
func udpReports() [2]EndReport {
	return [2]EndReport{
		{
			Flows: []FlowReport{{
				Sends:   true,
				Addr:    "a:1",
				Packets: record.Packets{Sent: 100},
				Bytes:   3600,
				Ns:      1000,
				Table:   record.NewTable("bytes", "packets"),
			}},
			Details: map[string]string{"mode": "x"},
		},
		{
			Flows: []FlowReport{{
				Addr: "b:2",
				Packets: record.Packets{
					Received:   90,
					Lost:       10,
					Duplicates: new(int64),
					Reordered:  new(int64),
				},
				Highest:   98,
				Announced: 100,
				Ns:        900,
				Table:     record.NewTable("bytes", "packets"),
			}},
			Details: map[string]string{"socket_drops": "0"},
		},
	}
}

func TestJoinClosesTheAccounts(t *testing.T) {
	load := record.Load{Protocol: "udp", Direction: record.Up, Streams: 1, PacketSize: 64}
	got, err := join("native", load, udpReports())
	if err != nil {
		t.Fatal(err)
	}

	f := got.Flows[0]
	want := record.Packets{
		Sent:       100,
		Received:   90,
		Lost:       10,
		Size:       64,
		Duplicates: new(int64),
		Reordered:  new(int64),
	}
	diff := cmp.Diff(&want, f.Packets)
	if diff != "" || f.Local != "a:1" || f.Remote != "b:2" ||
		got.Details["near.mode"] != "x" {
		t.Errorf("flow %+v (-want +got):\n%s", f, diff)
	}

	if f.ReceiverNs != 1000 {
		t.Errorf("receiver's window %d, want the sender's 1000: silence at the end is loss", f.ReceiverNs)
	}

	if len(got.Caveats) != 0 {
		t.Errorf("caveats %v of a clean run, want none", got.Caveats)
	}

	// Without any packet of the cool-down the tail comes from the sender.
	r := udpReports()
	r[1].Flows[0].Announced, r[1].Flows[0].Lost = -1, 8
	if got, err = join("native", load, r); err != nil || got.Flows[0].Packets.Lost != 10 {
		t.Errorf("unannounced tail: got %v, %v; want 10 lost", got, err)
	}

	r = udpReports()
	r[1].Details = map[string]string{"socket_drops": "7"}
	if got, err = join("native", load, r); err != nil || len(got.Caveats) != 1 ||
		got.Caveats[0].Kind != "receiver-drops" {
		t.Errorf("full socket buffer: got %v, %v; want a caveat", got, err)
	}

	r = udpReports()
	r[1].Details = nil
	if got, err = join("native", load, r); err != nil || len(got.Caveats) != 1 ||
		got.Caveats[0].Kind != "unknown-drops" {
		t.Errorf("a socket buffer that says nothing: got %v, %v; want a caveat", got, err)
	}

	r = udpReports()
	r[1].Usage.EdgeLateNs = int64(record.SendersMargin) + 1
	if got, err = join("native", load, r); err != nil || len(got.Caveats) != 1 ||
		got.Caveats[0].Kind != "late-edge" {
		t.Errorf("CPU time read late: got %v, %v; want a caveat", got, err)
	}

	for name, spoil := range map[string]func(r *[2]EndReport){
		"a packet too many": func(r *[2]EndReport) { r[1].Flows[0].Received++ },
		"a packet too few":  func(r *[2]EndReport) { r[0].Flows[0].Sent++ },
		"false announcement": func(r *[2]EndReport) {
			r[1].Flows[0].Announced, r[1].Flows[0].Highest = -1,
				101
		},
		"a flow is missing":  func(r *[2]EndReport) { r[1].Flows = nil },
		"gaps counted twice": func(r *[2]EndReport) { r[1].Flows[0].Lost = 20 },
		"more than everything": func(r *[2]EndReport) {
			r[1].Flows[0].Received, r[1].Flows[0].Lost = 110,
				-10
		},
	} {
		r := udpReports()
		spoil(&r)
		if _, err := join("native", load, r); err == nil {
			t.Errorf("%s: joined without an error", name)
		}
	}
}

// Of a load of TCP that an end read half a window late or more nothing is known, nor of datagrams whose
// sender began that late.
func TestLateEdgeIsNoMeasurement(t *testing.T) {
	window := 400 * time.Millisecond
	for _, tc := range []struct {
		protocol  string
		near, far time.Duration
		up, down  time.Duration // of the window in which a sender sent
		waited    string        // ns
		want      string
	}{
		{protocol: "tcp"},
		{protocol: "tcp", near: window/2 - 1},
		{
			protocol: "tcp",
			far:      window / 2,
			want:     "the far end read its counts 200ms late at an edge of the window of 400ms",
		},
		{protocol: "tcp", near: 2 * window, want: "the near end read its counts 800ms late"},
		// counted by those that send and receive
		{protocol: "udp", near: 2 * window, far: 2 * window, up: window, down: window},
		{protocol: "udp", up: window/2 + 1, down: 2 * window},
		{
			protocol: "udp",
			up:       window / 2,
			down:     window,
			want:     "the near end began to send stream 1 200ms late at an edge of the window of 400ms",
		},
		{
			protocol: "udp",
			up:       window,
			want: "the far end began to send stream 2 400ms late at an edge of " +
				"the window of 400ms: its machine had no time for it",
		},
		{
			protocol: "udp",
			up:       window,
			waited:   "1500000000",
			want: "began to send stream 2 400ms late at an edge of the window of 400ms: it waited 1.5s for " +
				"its CPU",
		},
	} {
		got := &record.Traffic{
			Load: record.Load{Protocol: tc.protocol, Duration: window},
			Ends: map[string]record.EndUsage{"near": {EdgeLateNs: int64(tc.near)},
				"far": {EdgeLateNs: int64(tc.far)}},
			Details: map[string]string{"far.waited_ns": tc.waited},
			Flows: []record.Flow{{Stream: 1, Direction: record.Up, SenderNs: int64(tc.up)},
				{Stream: 2, Direction: record.Down, SenderNs: int64(tc.down)}},
		}
		if tc.protocol == "udp" {
			got.Flows[0].Packets, got.Flows[1].Packets = &record.Packets{}, &record.Packets{}
		}

		err := Measured(got)
		if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%+v: got %v", tc, err)
		}
	}
}

func TestReportsMoveToTheControllersClock(t *testing.T) {
	table := record.NewTable("bytes")
	table.Append(5000, 1)
	series := record.NewTable("rtt_ns")
	series.Append(6000, 1)
	r := EndReport{Flows: []FlowReport{{Table: table, TCP: &record.TCP{Series: series}}}}
	r.shift(-4000)
	if table.T[0] != 1000 || series.T[0] != 2000 {
		t.Errorf("times %d, %d; want 1000, 2000", table.T[0], series.T[0])
	}

	w := shiftWindow(record.Window{Begin: 1, Start: 2, End: 3, Stop: 4}, 10)
	if w != (record.Window{Begin: 11, Start: 12, End: 13, Stop: 14}) {
		t.Errorf("shifted timeline %+v", w)
	}
}

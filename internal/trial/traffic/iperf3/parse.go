package iperf3

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"math"

	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// iperf3Report holds the values of iperf3's -J output that are used. The keys differ between versions. The
// value of "sender" does not distinguish the lines of sender and receiver: it is true if the end that
// wrote the file sends in that stream.
type iperf3Report struct {
	Start struct {
		Connected []iperf3Socket `json:"connected"`
		Version   string         `json:"version"`
		MSS       int            `json:"tcp_mss"`
		DefaultMS int            `json:"tcp_mss_default"`
		Sndbuf    int64          `json:"sndbuf_actual"`
		Rcvbuf    int64          `json:"rcvbuf_actual"`
		Timestamp struct {
			Seconds float64 `json:"timesecs"`
		} `json:"timestamp"`
		Accepted  *struct{} `json:"accepted_connection"` // present only in output of a server
		TestStart struct {
			Protocol string  `json:"protocol"`
			Streams  int     `json:"num_streams"`
			Block    int     `json:"blksize"`
			Omit     float64 `json:"omit"`
			Duration float64 `json:"duration"`
			Reverse  int     `json:"reverse"`
			Bidir    int     `json:"bidir"` // key absent before iperf3 3.15
			TOS      int     `json:"tos"`
			Rate     float64 `json:"target_bitrate"` // per stream
			Interval float64 `json:"interval"`
		} `json:"test_start"`
	} `json:"start"`
	Intervals []iperf3Interval `json:"intervals"`
	End       struct {
		Streams    []iperf3Totals `json:"streams"`
		Congestion string         `json:"sender_tcp_congestion"`
	} `json:"end"`
	Error  string        `json:"error"`
	Title  string        `json:"title"`
	Extra  string        `json:"extra_data"`
	Server *iperf3Report `json:"server_output_json"` // present with --get-server-output
}

type iperf3Interval struct {
	Streams []iperf3Counts `json:"streams"`
}

type iperf3Totals struct {
	Sender   *iperf3Counts `json:"sender"`
	Receiver *iperf3Counts `json:"receiver"`
	UDP      *iperf3Counts `json:"udp"`
}

type iperf3Socket struct {
	Socket     int    `json:"socket"`
	LocalHost  string `json:"local_host"`
	LocalPort  int    `json:"local_port"`
	RemoteHost string `json:"remote_host"`
	RemotePort int    `json:"remote_port"`
}

// iperf3Counts holds the counts of an interval or of the whole test. A nil count is unknown. A sender's
// TCP_INFO is nil or -1 on systems other than Linux and FreeBSD.
type iperf3Counts struct {
	Socket      int      `json:"socket"`
	Start       float64  `json:"start"`
	End         float64  `json:"end"`
	Bytes       *float64 `json:"bytes"`
	Packets     *float64 `json:"packets"`
	Lost        *float64 `json:"lost_packets"`
	OutOfOrder  *float64 `json:"out_of_order"`
	Retransmits *float64 `json:"retransmits"`
	Cwnd        *float64 `json:"snd_cwnd"`
	RTT         *float64 `json:"rtt"`     // µs
	RTTVar      *float64 `json:"rttvar"`  // µs
	MinRTT      *float64 `json:"min_rtt"` // µs
	Omitted     bool     `json:"omitted"`
	Sender      *bool    `json:"sender"` // the end that wrote the file sends; absent before 3.7
}

// scaled returns v times scale, or NaN if v is unknown.
func scaled(v *float64, scale float64) float64 {
	if v == nil || *v < 0 {
		return math.NaN()
	}
	return *v * scale
}

// orZero returns a count, or 0 if it is unknown.
func orZero(v *float64) float64 {
	if v == nil {
		return 0
	}
	return *v
}

// wholeCount returns a rounded count, or nil if it is unknown.
func wholeCount(v *float64) *int64 {
	if v == nil || *v < 0 {
		return nil
	}
	return new(wholeNumber(*v))
}

// length returns the time in ns that one end measured, which is the end of its last interval. The duration in
// the totals is used only if there are no intervals, because for some directions it is the duration of the
// other end (iperf3 3.12 with --bidir).
func (side iperf3Side) length(t *iperf3Counts) int64 {
	last := t.End - t.Start
	for _, i := range side.Intervals {
		for _, s := range i.Streams {
			if s.Socket == side.socket && !s.Omitted {
				last = s.End
			}
		}
	}
	return nanoseconds(last)
}

func nanoseconds(s float64) int64 { return wholeNumber(s * 1e9) }

// wholeNumber rounds a count. It returns 0 for negative counts, which plausible permits.
func wholeNumber(v float64) int64 {
	if math.IsNaN(v) || v < 0 || v > 1<<62 {
		return 0
	}
	return int64(math.Round(v))
}

// readIperf3 parses the output of one end. If the output contains an error of iperf3, readIperf3 returns
// it.
func readIperf3(b []byte) (*iperf3Report, error) {
	var r iperf3Report
	if err := json.Unmarshal(b, &r); err != nil {
		return nil, fmt.Errorf("read iperf3 output: %w", err)
	}
	return &r, r.check()
}

// FailedError reports that iperf3 failed. Text is iperf3's message.
type FailedError struct{ Text string }

func (e *FailedError) Error() string { return "iperf3: " + e.Text }

// check returns an error if the report has no valid result.
func (r *iperf3Report) check() error {
	if r.Error != "" {
		return &FailedError{r.Error}
	}

	if len(r.End.Streams) == 0 {
		return errors.New("read iperf3 output: no stream in it")
	}

	for _, i := range r.Intervals {
		for _, s := range i.Streams {
			s.Lost = nil // negative if late packets arrived that an earlier interval had counted as lost
			if err := s.plausible(); err != nil {
				return fmt.Errorf("read iperf3 output: socket %d, from %g s: %w", s.Socket, s.Start, err)
			}
		}
	}

	for n, s := range r.End.Streams {
		for _, total := range []*iperf3Counts{s.Sender, s.Receiver, s.UDP} {
			if err := total.plausible(); err != nil {
				return fmt.Errorf("read iperf3 output: stream %d: %w", n+1, err)
			}
		}
	}

	return nil
}

// Limits of plausible counts. The receiver counts losses, and the sender counts packets sent. These counts
// may differ by the packets in transit at the start and the end. Therefore, the number of lost packets may
// exceed the number sent, or be negative.
const (
	maxCounted  = 1 << 53
	edgeShare   = .01
	edgePackets = 10
)

// plausible returns an error if counts are impossible.
func (c *iperf3Counts) plausible() error {
	if c == nil {
		return nil
	}

	for _, v := range []struct {
		name     string
		is, most float64
	}{{"bytes", orZero(c.Bytes), maxCounted}, {"packets", orZero(c.Packets), maxCounted},
		{"start", c.Start, 1e7}, {"end", c.End, 1e7},
		{"retransmits", max(orZero(c.Retransmits), 0), maxCounted}} { // -1 means unknown
		if !(v.is >= 0 && v.is <= v.most) {
			return fmt.Errorf("%s are %g, which is impossible", v.name, v.is)
		}
	}

	packets := orZero(c.Packets)
	slack := edgeShare*packets + edgePackets
	for name, count := range map[string]*float64{"lost_packets": c.Lost, "out_of_order": c.OutOfOrder} {
		v := orZero(count)
		if !(v >= -slack && v <= packets+slack) {
			return fmt.Errorf("%s are %g of %g packets, which is impossible", name, v, packets)
		}
	}

	if c.End < c.Start-1 { // jitter at the end of the warm-up explains up to 1 s
		return fmt.Errorf("it ends at %g s and starts at %g s", c.End, c.Start)
	}

	return nil
}

// iperf3Flows joins the streams of client and server. clientFar is set if the client is the far end. For
// the series, base is the start of the measured part in ns.
func iperf3Flows(client, server *iperf3Report, clientFar bool, size int, base int64) ([]record.Flow, error) {
	if len(server.End.Streams) != len(client.End.Streams) {
		return nil, fmt.Errorf("join iperf3 output: the client has %d streams, the server %d",
			len(client.End.Streams), len(server.End.Streams))
	}

	var flows []record.Flow
	count := map[string]int{}
	for i, s := range client.End.Streams {
		total := cmp.Or(s.UDP, s.Sender)
		if total == nil || s.UDP == nil && s.Receiver == nil {
			return nil, fmt.Errorf("join iperf3 output: stream %d has no totals", i+1)
		}

		clientSends := client.Start.TestStart.Reverse == 0
		if total.Sender != nil {
			clientSends = *total.Sender
		}

		f := record.Flow{Direction: record.Up}
		if clientSends == clientFar {
			f.Direction = record.Down
		}

		count[f.Direction]++
		f.Stream = count[f.Direction]
		other := server.End.Streams[i].Sender
		if s.UDP != nil {
			other = server.End.Streams[i].UDP
		}

		if other == nil {
			return nil, fmt.Errorf("join iperf3 output: stream %d has no totals of the server", i+1)
		}

		sends := iperf3Side{client, total.Socket}
		receives := iperf3Side{server, other.Socket}
		if !clientSends {
			sends, receives = receives, sends
		}

		f.Local, f.Remote = sends.name(), receives.name()
		f.TCP = &record.TCP{
			Congestion: sends.End.Congestion,
			Series:     record.NewTable("rtt_ns", "rttvar_ns", "cwnd_bytes", "retransmits"),
		}
		f.Sent = sends.series(base, f.TCP.Series)
		f.Received = receives.series(base, nil)
		var err error
		if s.UDP != nil {
			err = udpTotals(&f, s.UDP, other, clientSends, sends, receives)
			f.TCP, f.Packets.Size = nil, size
		} else {
			err = tcpTotals(&f, s.Sender, s.Receiver, sends, receives)
		}

		if err != nil {
			return nil, fmt.Errorf("join iperf3 output: stream %d: %w", i+1, err)
		}

		flows = append(flows, f)
	}

	return flows, nil
}

// tcpTotals sets the totals of a TCP flow. The client's file has the counts of both ends, because the
// server sends its counts to the client. In the server's file, the counts of the client are zero.
func tcpTotals(f *record.Flow, sent, received *iperf3Counts, sends, receives iperf3Side) error {
	if sent.Bytes == nil || received.Bytes == nil {
		return errors.New("how many bytes were sent or received is unknown")
	}

	f.SentBytes, f.ReceivedBytes = wholeNumber(*sent.Bytes), wholeNumber(*received.Bytes)
	f.SenderNs, f.ReceiverNs = sends.length(sent), receives.length(received)
	f.TCP.Retransmits = wholeCount(sent.Retransmits)
	for _, r := range []iperf3Side{sends, receives} { // a server may not report the segment size
		f.TCP.MSS = max(f.TCP.MSS, r.Start.MSS, r.Start.DefaultMS)
	}

	for _, s := range sends.End.Streams {
		// The round-trip time is only in the sender's file.
		if s.Sender != nil && s.Sender.Socket == sends.socket {
			f.TCP.MinRTTNs = wholeNumber(scaled(s.Sender.MinRTT, 1000))
		}
	}

	return nil
}

// udpTotals sets the totals of a UDP flow. The sender counts packets sent. The receiver counts losses; the
// client's file contains them for every direction. The receiver's packet count is not used, because it
// differs by the packets in transit at the start and the end.
func udpTotals(f *record.Flow, client, server *iperf3Counts, clientSends bool,
	sends, receives iperf3Side) error {
	p := &record.Packets{UnsentUnknown: true}
	f.Packets = p
	sent, received := client, server
	if !clientSends {
		sent, received = server, client
	}

	f.SenderNs, f.ReceiverNs = sends.length(sent), receives.length(received)
	switch {
	case sent.Bytes == nil || sent.Packets == nil:
		return errors.New("how many packets were sent is unknown")
	case client.Lost == nil:
		return errors.New("how many packets were lost is unknown")
	}

	p.Sent = wholeNumber(*sent.Packets)
	p.Lost = min(wholeNumber(*client.Lost), p.Sent)
	if client.OutOfOrder != nil {
		p.Reordered = new(wholeNumber(*client.OutOfOrder)) // iperf3 does not count Duplicates
	}

	p.Received = p.Sent - p.Lost
	f.SentBytes = wholeNumber(*sent.Bytes)
	if p.Sent > 0 {
		f.ReceivedBytes = wholeNumber(*sent.Bytes * (float64(p.Received) / float64(p.Sent)))
	}

	return nil
}

// iperf3Side holds one end of a stream, as reported in the file of that end.
type iperf3Side struct {
	*iperf3Report
	socket int
}

func (s iperf3Side) name() string {
	for _, c := range s.Start.Connected {
		if c.Socket == s.socket {
			return joinHostPort(c.LocalHost, c.LocalPort)
		}
	}
	return ""
}

// series returns the cumulative counts of a socket from base on, without the omitted warm-up. It adds the
// sender's TCP_INFO to tcp, unless tcp is nil.
func (side iperf3Side) series(base int64, tcp *record.Table) *record.Table {
	t := record.NewTable("bytes", "packets")
	t.Append(base, 0, 0)
	bytes := 0.0
	packets := 0.0
	retransmits := 0.0
	for _, i := range side.Intervals {
		for _, s := range i.Streams {
			if s.Socket != side.socket || s.Omitted {
				continue
			}

			if s.Bytes == nil { // because later sums would be unknown
				return t
			}

			at := base + nanoseconds(s.End)
			bytes, packets = bytes+*s.Bytes, packets+orZero(s.Packets)-orZero(s.Lost)
			retransmits += scaled(s.Retransmits, 1)
			t.Append(at, bytes, packets)
			if tcp != nil {
				tcp.Append(at, scaled(s.RTT, 1000), scaled(s.RTTVar, 1000), scaled(s.Cwnd, 1), retransmits)
			}
		}
	}

	return t
}

// bothNames returns both addresses of the connection with the given local address.
func (r *iperf3Report) bothNames(local string) (string, string) {
	for _, c := range r.Start.Connected {
		if joinHostPort(c.LocalHost, c.LocalPort) == local {
			return local, joinHostPort(c.RemoteHost, c.RemotePort)
		}
	}
	return local, ""
}

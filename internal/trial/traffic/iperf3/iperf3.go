// Package iperf3 offers load with an installed iperf3, and parses its output.
package iperf3

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/trial/traffic"
)

// Engine offers load with an installed iperf3, so that results can be compared with other people's results.
// The measured window is the duration in iperf3's report, without the warm-up. iperf3 starts its test when
// its connections are open.
type Engine struct{}

// Name returns "iperf3".
func (Engine) Name() string { return "iperf3" }

// Limits of iperf3: payload of a datagram in bytes, and streams per direction.
const (
	smallestBlock = 16
	maxStreams    = 128
)

// Check checks whether iperf3 is installed on both nodes. A third party's server is not checked.
func (e Engine) Check(ctx context.Context, near, far traffic.End, load record.Load) check.Answer {
	ends := []traffic.End{near, far}
	if far.ThirdParty == e.Name() {
		ends = ends[:1]
	}
	return traffic.CheckEnds(ctx, e.Name(), load, checkIperf3(load), ends...)
}

func checkIperf3(load record.Load) check.Answer {
	a := traffic.CheckLoad(load)
	if a.State != check.Yes {
		return a
	}

	switch {
	case load.Verify:
		return check.Not("iperf3 does not check the content")
	case len(load.Sizes) > 0:
		return check.Not("packets of several sizes: iperf3 sends one")
	case load.Protocol == "udp" && load.PacketSize-traffic.PacketOverhead(load.IP) < smallestBlock:
		return check.Not("%d-byte packets: iperf3 needs %d bytes of payload", load.PacketSize, smallestBlock)
	case load.Tunnels > 1:
		return check.Not("iperf3 sends all its streams to one address, and each tunnel leads to another")
	case load.UDPMode == record.UDPCount || load.GSO != "":
		return check.Not("how datagrams are sent and counted is iperf3's own business")
	case len(traffic.Congestions(load)) > 1:
		return check.Not("iperf3 gives all its streams one congestion control")
	case load.Streams > maxStreams:
		return check.Not("%d streams: iperf3 allows %d", load.Streams, maxStreams)
	}

	return check.OK()
}

// iperf3Output holds the output of iperf3 on one node.
type iperf3Output struct {
	JSON    []byte     `json:"json"`
	Usage   host.Usage `json:"usage"`
	Started int64      `json:"started_ns"` // start of the process, in the time of the node's clock
}

// Offer runs iperf3 as the client at the opener and as the server at the listener. A third party's server
// already runs; its counts are the results that it sends to the client at the end.
func (e Engine) Offer(ctx context.Context, near, far traffic.End, load record.Load,
	c traffic.Conductor) (*record.Traffic, error) {
	a := checkIperf3(load)
	if a.State != check.Yes {
		return nil, fmt.Errorf("offer %s load by iperf3: %s", load.Protocol, a.Reason)
	}

	raw, err := traffic.Conduct(ctx, e.Name(), load, c, near, far)
	if err != nil {
		return nil, err
	}

	var out [2]iperf3Output
	ends := map[string]record.EndUsage{}
	for i, end := range []traffic.End{near, far} {
		if end.ThirdParty != "" {
			continue
		}

		if err := json.Unmarshal(raw[i][0], &out[i]); err != nil {
			return nil, fmt.Errorf("read the result of %s: %w", end.Node, err)
		}

		out[i].Started -= end.Offset
		ends[[]string{"near", "far"}[i]] = record.EndUsage{
			Node:     end.Node,
			UserNs:   out[i].Usage.UserNs,
			SystemNs: out[i].Usage.SystemNs,
			CPUs:     end.CPUs,
		}
	}

	client := out[0]
	server := out[1]
	if load.Opener == "far" && far.ThirdParty == "" {
		client, server = server, client
	}

	t, err := joinIperf3(load, client.JSON, server.JSON, client.Started)
	if err != nil {
		return nil, err
	}

	t.Ends = ends
	return t, nil
}

// joinIperf3 converts the output of both ends. If the server is a third party's, its output is nil, and
// the series of that end are missing.
func joinIperf3(load record.Load, client, server []byte, started int64) (*record.Traffic, error) {
	cr, err := readIperf3(client)
	if err != nil {
		return nil, fmt.Errorf("client's: %w", err)
	}

	sr := cr
	raw := map[string]json.RawMessage{"client": client}
	if server != nil {
		raw["server"] = server
		if sr, err = readIperf3(server); err != nil {
			return nil, fmt.Errorf("server's: %w", err)
		}
	}

	t, err := joinReports(load, cr, sr, started)
	if err != nil {
		return nil, err
	}

	if server == nil {
		if err := cr.keepOwn(t, true); err != nil {
			return nil, err
		}

		t.Caveats = append(t.Caveats, record.Caveat{
			Kind: "third-party",
			Text: "the far end is a third party's iperf3: its counts are what it told, and of its machine " +
				"nothing is known",
		})
	}

	if t.Raw, err = json.Marshal(raw); err != nil {
		return nil, fmt.Errorf("keep iperf3 output: %w", err)
	}

	return t, nil
}

// joinReports converts the reports of both ends.
func joinReports(load record.Load, cr, sr *iperf3Report, started int64) (*record.Traffic, error) {
	base := started + int64(wholeSeconds(load.Warmup))*int64(time.Second)
	flows, err := iperf3Flows(cr, sr, load.Opener == "far", load.PacketSize, base)
	want := len(traffic.FlowsOf(load))
	if err == nil && len(flows) != want {
		err = fmt.Errorf("join iperf3 output: %d streams, want %d", len(flows), want)
	}

	if err != nil {
		return nil, err
	}

	t := &record.Traffic{
		Engine:  "iperf3",
		Version: strings.TrimPrefix(cr.Start.Version, "iperf "),
		Load:    load,
		Flows:   flows,
		Details: map[string]string{"mode": "iperf3 " + load.Protocol, "congestion": cr.End.Congestion},
		Caveats: []record.Caveat{
			{
				Kind: "engine-window",
				Text: "iperf3 sets its own window: whole seconds, from its " +
					"connections' start, warm-up omitted by itself",
			},
			{Kind: "engine-usage", Text: "the CPU time of iperf3 is that of its whole run"},
		},
	}
	for name, bytes := range map[string]int64{"block_bytes": int64(cr.Start.TestStart.Block),
		"client.sndbuf_bytes": cr.Start.Sndbuf, "client.rcvbuf_bytes": cr.Start.Rcvbuf} {
		if bytes > 0 { // unknown otherwise
			t.Details[name] = strconv.FormatInt(bytes, 10)
		}
	}

	if load.Protocol == "udp" {
		t.Caveats = append(t.Caveats, record.Caveat{
			Kind: "engine-accounts",
			Text: "iperf3 gives packets sent and lost; those received are the difference and not a count",
		})
	}

	return t, nil
}

// wholeSeconds rounds up to seconds, because iperf3 does not accept fractions.
func wholeSeconds(d time.Duration) int { return int((d + time.Second - 1) / time.Second) }

// iperf3Arguments returns the arguments for one end. Rates are per stream.
func iperf3Arguments(q traffic.Request) []string {
	port := strconv.Itoa(q.Port)
	if q.Listen {
		return []string{"-s", "-1", "-J", "-B", q.Addr.String(), "-p", port, "-i",
			iperf3Seconds(q.Load.Interval)}
	}

	l := q.Load
	args := []string{"-c", q.Peer.String(), "-B", q.Addr.String(), "-p", port, "-J",
		"-" + strconv.Itoa(l.IP), "-P", strconv.Itoa(l.Streams),
		"-t", strconv.Itoa(max(wholeSeconds(l.Duration), 1)), "-i", iperf3Seconds(l.Interval)}
	add := func(given bool, words ...string) {
		if given {
			args = append(args, words...)
		}
	}
	udp := l.Protocol == "udp"
	sends := (traffic.FlowKey{Direction: l.Direction}).Sends(q.Side)
	rate := strconv.FormatFloat(l.RateBps/float64(max(len(traffic.FlowsOf(l)), 1)), 'f', 0, 64)
	w := wholeSeconds(l.Warmup)
	add(w > 0, "-O", strconv.Itoa(w))
	add(l.Direction == record.Both, "--bidir")
	add(l.Direction != record.Both && !sends, "-R")
	add(l.DSCP > 0, "--dscp", strconv.Itoa(l.DSCP))
	add(udp, "-u", "-l", strconv.Itoa(l.PacketSize-traffic.PacketOverhead(l.IP)), "-b", rate)
	add(!udp && l.Congestion != "", "-C", l.Congestion)
	add(!udp && l.MSS > 0, "-M", strconv.Itoa(l.MSS))
	add(!udp && l.RateBps > 0, "--fq-rate", rate)
	add(!udp && l.Buffer > 0, "-w", strconv.Itoa(l.Buffer/2)) // halved, because the kernel doubles it
	return args
}

// iperf3Seconds formats an interval in seconds, from 0.1 to 60.
func iperf3Seconds(d time.Duration) string {
	if d <= 0 {
		d = time.Second
	}
	return strconv.FormatFloat(min(max(d, 100*time.Millisecond), time.Minute).Seconds(), 'f', 2, 64)
}

func joinHostPort(h string, port int) string { return net.JoinHostPort(h, strconv.Itoa(port)) }

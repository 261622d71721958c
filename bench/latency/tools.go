package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"time"

	"github.com/chokepoint-lab/chokepoint/bench/rig"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/metrics"
	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// measured holds the results of one run of a tool.
type measured struct {
	rtt  []float64 // ns, sorted
	sent int
}

// tools measure the path once.
var tools = [...]struct {
	name, what string
	run        func(context.Context, *bench) (measured, error)
}{
	{"echo", "kernel stamps at the client, less the echo's residence: network only", ours("echo")},
	{"icmp", "kernel stamps at the client; the far kernel's answer is in it", ours("icmp")},
	{"irtt", "process to process: both ends' wake-ups are in it", irtt},
	{"ping", "send call to kernel stamp; the far kernel's answer is in it", ping},
}

// ours measures with one of our probes. Every slot must be accounted for, and every probe stamped by the
// kernel: otherwise it is another measurement.
func ours(name string) func(context.Context, *bench) (measured, error) {
	return func(ctx context.Context, b *bench) (measured, error) {
		load := record.Load{
			Protocol:   "echo",
			Direction:  record.Up,
			Streams:    1,
			IP:         4,
			PacketSize: packetSize,
			Opener:     "near",
			Port:       20900,
			Duration:   time.Duration(b.seconds) * time.Second,
			Interval:   interval,
			Tag:        fmt.Sprintf("latency %d", host.Monotonic()),
		}
		l, err := rig.Prober(name).Probe(ctx, b.ends[0], b.ends[1], load, rig.Clock{Load: load})
		if err != nil {
			return measured{}, err
		}

		r := measured{metrics.Answered(l), len(l.RTT)}
		switch {
		case l.Stamps != "kernel":
			err = fmt.Errorf("%s stamps (%v), want the kernel's", l.Stamps, l.Details)
		case r.sent+int(l.SkippedSlots) != b.count():
			err = fmt.Errorf("%d probes and %d slots skipped, want %d together", r.sent, l.SkippedSlots,
				b.count())
		case len(r.rtt) == 0:
			err = fmt.Errorf("no probe of %d was answered", r.sent)
		}

		return r, err
	}
}

// at returns the address at which irtt's server listens.
func (b *bench) at() string { return b.ends[1].Addr.String() + ":2112" }

func irtt(ctx context.Context, b *bench) (measured, error) {
	out, err := rig.Exec(ctx, b.lab, b.ends[0].Node, "", "irtt", "client", "-Q", "-i", interval.String(),
		"-d", fmt.Sprintf("%ds", b.seconds), "-l", strconv.Itoa(packetSize-headers), "-o", "-", b.at())
	if err != nil {
		return measured{}, err
	}
	return readIRTT([]byte(out))
}

// readIRTT parses the used part of irtt's JSON.
func readIRTT(out []byte) (measured, error) {
	var r struct {
		RoundTrips []struct {
			Lost  string
			Delay struct{ RTT int64 }
		} `json:"round_trips"`
	}
	if err := json.Unmarshal(out, &r); err != nil {
		return measured{}, fmt.Errorf("read irtt's result: %w", err)
	}

	m := measured{sent: len(r.RoundTrips)}
	for _, t := range r.RoundTrips {
		if t.Lost == "false" && t.Delay.RTT > 0 {
			m.rtt = append(m.rtt, float64(t.Delay.RTT))
		}
	}

	if len(m.rtt) == 0 {
		return measured{}, errors.New("read irtt's result: no round trip in it")
	}

	slices.Sort(m.rtt)
	return m, nil
}

func ping(ctx context.Context, b *bench) (measured, error) {
	out, err := rig.Exec(ctx, b.lab, b.ends[0].Node, "", "ping", "-n", "-i",
		fmt.Sprintf("%.3f", interval.Seconds()), "-c", strconv.Itoa(b.count()), "-s",
		strconv.Itoa(packetSize-headers), "-W", "1", b.ends[1].Addr.String())
	if err != nil {
		return measured{}, err
	}
	return readPing([]byte(out))
}

var (
	pingReply   = regexp.MustCompile(`(?m)^[0-9]+ bytes from .* time=([0-9.]+) ms`)
	pingSummary = regexp.MustCompile(`(?m)^([0-9]+) packets transmitted`)
)

// readPing parses the output of iputils' ping.
func readPing(out []byte) (m measured, err error) {
	for _, found := range pingReply.FindAllSubmatch(out, -1) {
		ms, err := strconv.ParseFloat(string(found[1]), 64)
		if err != nil {
			return measured{}, fmt.Errorf("read ping's reply %q: %w", found[0], err)
		}

		m.rtt = append(m.rtt, ms*1e6)
	}

	total := pingSummary.FindSubmatch(out)
	if total == nil || len(m.rtt) == 0 {
		return measured{}, errors.New("read ping's output: no reply or no summary in it")
	}

	m.sent, _ = strconv.Atoi(string(total[1]))
	slices.Sort(m.rtt)
	return m, nil
}

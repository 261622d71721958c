package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/chokepoint-lab/chokepoint/bench/rig"
	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/trial/traffic"
)

// newest is an iperf3 that was built from source, with the options that make it fastest: pages are sent
// from a file, and the receiver truncates.
type newest struct {
	stand *stand
	file  string
	traffic.Pair
}

// againstNewest is the comparison at what both reach by all cores.
func (b *stand) againstNewest() comparison {
	c := tcpAgainst("super", 4, goodput(), .97, 1)
	c.theirs.engine, c.peer = newest{stand: b, file: b.options.newest}, "newest iperf3 -Z --skip-rx-copy"
	return c
}

// Name implements traffic.Engine.
func (n newest) Name() string { return "iperf3 newest" }

// Check implements traffic.Engine.
func (n newest) Check(context.Context, traffic.End, traffic.End, record.Load) check.Answer {
	return check.OK()
}

// Serve implements traffic.Engine.
func (n newest) Serve(context.Context, host.Session) error { return errors.ErrUnsupported }

// Offer implements traffic.Engine.
func (n newest) Offer(ctx context.Context, near, far traffic.End, load record.Load,
	_ traffic.Conductor) (*record.Traffic, error) {
	const port = "5301"
	server, err := rig.Start(ctx, n.stand.lab, far.Node, n.file, "-s", "-1", "-p", port)
	if err != nil {
		return nil, err
	}
	defer server.Close()
	args := []string{n.file, "-c", far.Target.String(), "-p", port, "-J", "-Z", "--skip-rx-copy", "-C",
		load.Congestion,
		"-t", strconv.Itoa(int(load.Duration / time.Second)), "-P", strconv.Itoa(load.Streams)}
	var text string
	for range 20 { // until the server listens
		if text, err = rig.Exec(ctx, n.stand.lab, near.Node, "", args...); err == nil || ctx.Err() != nil {
			break
		}
		time.Sleep(50 * time.Millisecond)
	}
	if err != nil {
		return nil, err
	}
	var out struct {
		End struct {
			Sum struct {
				Bytes   int64   `json:"bytes"`
				Seconds float64 `json:"seconds"`
			} `json:"sum_received"`
		} `json:"end"`
	}
	if err := json.Unmarshal([]byte(text), &out); err != nil {
		return nil, fmt.Errorf("read the output of %s: %w", n.file, err)
	}
	return &record.Traffic{Engine: n.Name(), Load: load,
		Flows: []record.Flow{{Stream: 1, Direction: record.Up,
			ReceivedBytes: out.End.Sum.Bytes, ReceiverNs: int64(out.End.Sum.Seconds * 1e9)}}}, nil
}

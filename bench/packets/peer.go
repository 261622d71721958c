package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/chokepoint-lab/chokepoint/bench/rig"
	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
)

// peer runs xdp-trafficgen from client to server, where xdp-bench drops the frames, and returns the frames
// per second counted by the server's device.
func (b *bench) peer(ctx context.Context) (pps float64, err error) {
	// Both undo their changes only if asked to end.
	start := func(node string, spare time.Duration, args ...string) (host.Session, error) {
		limit := fmt.Sprintf("%.1f", (b.length + spare).Seconds())
		return rig.Start(ctx, b.lab, node, append([]string{"timeout", "-s", "INT", limit}, args...)...)
	}
	sink, err := start("server", 6*time.Second, b.sink, "drop", "lan", "-p", "no-touch", "-m", "native",
		"-i", "60")
	if err != nil {
		return 0, err
	}
	defer end(sink)
	time.Sleep(500 * time.Millisecond)
	generator, err := start("client", 4*time.Second, b.generator, "udp", "lan", "-t", "1", "-I", "60")
	if err != nil {
		return 0, err
	}
	defer end(generator)
	received := func() (packets float64, at int64) {
		at = host.Monotonic()
		c, failed := b.lab.Counters(ctx, "server", "lan")
		err = cmp.Or(err, failed)
		return float64(c["lan"].RxPackets), (at + host.Monotonic()) / 2
	}
	first, _ := received()
	for now, tries := first, 0; err == nil && now <= first+1000; tries++ {
		if tries == 100 {
			return 0, errors.New("xdp-trafficgen sent nothing within 10 s")
		}

		time.Sleep(100 * time.Millisecond)
		now, _ = received()
	}

	time.Sleep(300 * time.Millisecond) // a warm-up
	before, from := received()
	time.Sleep(b.length)
	after, to := received()
	pps = (after - before) / float64(to-from) * 1e9
	if b.verbose {
		fmt.Fprintf(b.log, "xdp-trafficgen: %.0f pps\n", pps)
	}

	return pps, err
}

// end waits until a command has ended.
func end(s host.Session) {
	s.Finish()
	for s.Recv(nil) == nil {
	}

	s.Close()
}

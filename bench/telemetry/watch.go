package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"strconv"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/trial/probe"
	"github.com/chokepoint-lab/chokepoint/internal/trial/watch"
)

// fast are the sources that are read at the fast pace.
var fast = [...]string{"cpu", "softirq", "softnet", "netdev", "qdisc"}

// sample reads the fast sources at a rate, through an agent of its own as a lab does, until its input ends.
// Then it says how often each was read.
func sample(ctx context.Context, rate string, in io.Reader, out io.Writer) (err error) {
	hz, err := strconv.Atoi(rate)
	if err != nil || hz < 1 || hz > 1000 {
		return fmt.Errorf("rate %q: want 1 to 1000 a second", rate)
	}
	near, far := net.Pipe()
	served := make(chan error, 1)
	go func() { served <- host.Serve(ctx, far, watch.Handlers(probe.Root{})) }()
	a := host.Connect(near)
	defer func() {
		a.Close()
		<-served
	}()
	w, err := watch.Start(ctx, a, "host", fast[:], watch.Options{Fast: time.Second / time.Duration(hz)})
	if err != nil {
		return err
	}
	defer w.Close()
	from := host.Monotonic()
	if _, err := io.Copy(io.Discard, in); err != nil {
		return err
	}
	data, err := w.Collect(ctx, from, host.Monotonic())
	if err != nil {
		return err
	}
	for _, s := range data.Samples {
		reads := 0
		if s.Table != nil {
			reads = len(s.Table.T)
		}
		fmt.Fprintf(out, "%s %d\n", s.Probe, reads)
	}
	return nil
}

package trial

import (
	"context"
	"errors"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/lab"
	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/probe"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// Look samples the telemetry of one node. At each interval, it calls show with the samples and with the
// start and end of the interval in the samples' clock. It returns when ctx is done or show returns an
// error. It changes nothing.
func Look(ctx context.Context, l *lab.Lab, node string, probes []probe.Probe, every time.Duration,
	show func(node record.NodeFacts, data record.NodeData, from, to int64) error) (err error) {
	n, err := l.Node(ctx, node)
	if err != nil {
		return err
	}

	w := newWatches(l)
	if err := w.open(ctx, n, probes); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.Close()) }()
	one := w.watchers[node]
	if one == nil {
		return errors.New(w.missing[node])
	}

	for from := host.Monotonic(); host.Pause(ctx, every) == nil; {
		to := host.Monotonic()
		data, err := one.Collect(ctx, from, to)
		if ctx.Err() != nil {
			break
		}

		if err != nil {
			return err
		}

		if err := show(n.Describe(), data, from, to); err != nil {
			return err
		}

		from = to
	}

	return nil
}

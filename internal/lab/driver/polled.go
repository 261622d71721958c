package driver

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

const (
	mostLine    = 4 << 20         // bytes of a line
	mostSamples = 2 * keptSamples // are held for those who ask
	clockDrift  = 1e9             // in ns, by which a router's clock may go otherwise between two readings
)

// taken is one sample of a router that keeps none: the columns of each probe.
type taken struct {
	at     int64 // the router's clock
	probes map[string]map[string]float64
}

func (s taken) when() int64 { return s.at }

// put takes a value; what is not told has none.
func (s taken) put(probe, column, text string, scale float64) {
	n, err := strconv.ParseFloat(strings.TrimSuffix(text, "%"), 64)
	if err == nil && n >= 0 && !math.IsInf(n, 0) {
		s.probes[probe][column] = n * scale
	}
}

// polled watches a router that keeps no samples: what it prints at once waits here until it is asked for. The
// functions are the system's part.
type polled struct {
	host host.Host
	// clock reads the router's clock, in ns; the samples are between two readings.
	clock func(ctx context.Context) (at int64, err error)
	// besides is what is read at both ends of a trial alone, at about a time of the router's clock.
	besides func(ctx context.Context, at int64) taken
	keep    func(ctx context.Context)       // keeps the loop going
	leave   func(ctx context.Context) error // removes what keeps it
	tables  func(samples []taken, offset int64, why string) []record.Samples

	loop        host.Process
	said, ended <-chan struct{}
	closed      bool
	once        sync.Once
	why, killed error // see over

	mu            sync.Mutex
	offset, bound int64 // the router's clock = our CLOCK_MONOTONIC + offset, ± bound
	samples       []taken
	ends          []taken            // see besides
	busy          map[string]float64 // what each core and thread has worked so far, by column
	trouble       error              // of the last sample that could not be read
}

// begin has a loop print samples, whose lines hear takes.
func (w *polled) begin(ctx context.Context, loop func() (host.Process, error), hear func(string)) (Watch,
	error) {
	err := w.relate(ctx)
	if err == nil {
		w.loop, err = loop()
	}
	if err != nil {
		return nil, fmt.Errorf("watch %s: %w", w.host.Name(), err)
	}
	w.said = host.Lines(w.loop.Stderr(), func(string) {})
	w.ended = host.LongLines(w.loop.Stdout(), mostLine, hear)
	if err := w.await(ctx, math.MinInt64); err != nil {
		return nil, errors.Join(fmt.Errorf("watch %s: %w", w.host.Name(), err), w.Close(ctx))
	}
	return w, nil
}

// relate reads the router's clock between two readings of ours, and then what is read beside the samples.
func (w *polled) relate(ctx context.Context) error {
	before := host.Monotonic()
	at, err := w.clock(ctx)
	after := host.Monotonic()
	if err != nil {
		return fmt.Errorf("relate the clock: %w", err)
	}
	offset := at - (before + (after-before)/2)
	ends := w.besides(ctx, offset+host.Monotonic())
	w.mu.Lock()
	defer w.mu.Unlock()
	w.offset, w.bound = offset, (after-before)/2+1
	w.ends = append(w.ends, ends)
	w.ends = w.ends[max(0, len(w.ends)-mostSamples):]
	return nil
}

// Keep implements Watch.
func (w *polled) Keep(ctx context.Context) error {
	select {
	case <-w.ended:
		return errors.Join(fmt.Errorf("keep %s sampled: the loop has ended", w.host.Name()), w.over())
	default:
	}
	w.keep(ctx)
	return nil
}

// over ends the loop, and tells how it has ended.
func (w *polled) over() error {
	w.once.Do(func() {
		w.killed = w.loop.Kill()
		<-w.ended
		<-w.said
		_, w.why = w.loop.Wait()
	})
	return w.why
}

// add takes a sample, or why there is none.
func (w *polled) add(s taken, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.trouble = err; err != nil {
		return
	}
	since := int64(0)
	if n := len(w.samples); n > 0 {
		since = max(0, s.at-w.samples[n-1].at)
	}
	if w.busy == nil {
		w.busy = map[string]float64{}
	}
	// The shares of the time since the sample before become what was worked since the first.
	for _, probe := range []string{"cpu", "kthreads"} {
		for name, percent := range s.probes[probe] {
			w.busy[name] += percent / 100 * float64(since)
			s.probes[probe][name] = w.busy[name]
		}
	}
	w.samples = append(w.samples, s)
	w.samples = w.samples[max(0, len(w.samples)-mostSamples):]
}

// await waits for a sample later than a time of the router's.
func (w *polled) await(ctx context.Context, at int64) error {
	const patience = 30 * time.Second // a full router answers late
	for begun := host.Monotonic(); ; {
		w.mu.Lock()
		n, trouble := len(w.samples), w.trouble
		late := n > 0 && w.samples[n-1].at >= at
		w.mu.Unlock()
		if late {
			return nil
		}
		select {
		case <-w.ended:
			return errors.Join(errors.New("the sampling loop has ended"), w.over(), trouble)
		default:
		}
		if host.Monotonic()-begun > int64(patience) {
			return errors.Join(errors.New("no sample comes"), trouble)
		}
		if err := host.Pause(ctx, 20*time.Millisecond); err != nil {
			return err
		}
	}
}

// Collect implements Watch.
func (w *polled) Collect(ctx context.Context, from, to int64) (d record.NodeData, err error) {
	w.mu.Lock()
	clock := record.Clock{OffsetBefore: w.offset, BoundBefore: w.bound}
	closed := w.closed
	w.mu.Unlock()
	if closed {
		err = errors.New("it is closed")
	} else {
		err = w.relate(ctx)
	}
	if err == nil {
		err = w.await(ctx, to+w.offset+w.bound)
	}
	if err != nil {
		return d, fmt.Errorf("collect samples of %s: %w", w.host.Name(), err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	clock.OffsetAfter, clock.BoundAfter = w.offset, w.bound
	offset := clock.OffsetBefore + (clock.OffsetAfter-clock.OffsetBefore)/2
	d.Clock = clock
	samples, why := slices.Concat(between(w.samples, taken.when, from+offset, to+offset),
		between(w.ends, taken.when, from+offset, to+offset)), ""
	step := time.Duration(clock.OffsetAfter - clock.OffsetBefore).Abs()
	if int64(step) > clock.BoundBefore+clock.BoundAfter+clockDrift {
		samples, why = nil, fmt.Sprintf("the router's clock was set, by %s", step.Round(time.Millisecond))
	}
	d.Samples = w.tables(samples, offset, why)
	return d, nil
}

// tablesOf are the series of samples as the probes record them, or why there are none.
func tablesOf(sources []source, samples []taken, offset int64, why string,
	besides ...record.Metric) []record.Samples {
	read := map[string]*replayed{}
	for _, x := range sources {
		read[x.probe] = &replayed{why: why}
	}
	for _, s := range samples {
		for name, told := range s.probes {
			var row values
			for _, column := range slices.Sorted(maps.Keys(told)) {
				row.add(column, told[column])
			}
			read[name].add(s.at-offset, row.names, row.v)
		}
	}
	return seriesOf(sources, read, besides...)
}

// untold adds series that a system does not tell.
func untold(out []record.Samples, why string, names ...string) []record.Samples {
	for _, name := range names {
		out = append(out, record.Samples{Probe: name, Scope: record.ScopeHost, Unavailable: why})
	}
	return out
}

// Close implements Watch.
func (w *polled) Close(ctx context.Context) error {
	w.mu.Lock()
	closed := w.closed
	w.closed = true
	w.mu.Unlock()
	if closed {
		return nil
	}
	err := w.leave(ctx)
	_ = w.over() // it is killed
	if err = errors.Join(err, w.killed); err != nil {
		return fmt.Errorf("end the watch of %s: %w", w.host.Name(), err)
	}
	return nil
}

package shortflow

import (
	"math/rand/v2"

	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/trial/traffic"
)

// flowArrivals are the times at which one of several threads begins flows.
type flowArrivals struct {
	next    int64
	origin  int64
	count   int64
	every   float64 // ns between those of all threads
	threads int64
	thread  int64
	rng     *rand.Rand // nil: evenly spaced
}

func (d *flowArrivals) begin(at int64) {
	d.origin, d.next = at, at
	d.advance()
}

// advance goes to the next arrival. Even ones are computed from their number, so that no error adds up;
// those of several threads together are evenly spaced, or together a Poisson process.
func (d *flowArrivals) advance() {
	if d.rng != nil {
		d.next += int64(d.rng.ExpFloat64() * d.every * float64(d.threads))
		return
	}
	d.next = d.origin + int64(float64(d.count*d.threads+d.thread)*d.every)
	d.count++
}

// newArrivals are those of a thread; nil where no rate is asked for.
func newArrivals(load record.Load, thread, threads int) *flowArrivals {
	if load.ConnectionRate <= 0 {
		return nil
	}
	d := &flowArrivals{every: 1e9 / load.ConnectionRate, thread: int64(thread), threads: int64(threads)}
	if load.Spacing != record.Isochronous {
		d.rng = rand.New(rand.NewPCG(uint64(traffic.TagHash(load.Tag)), uint64(thread)))
	}
	return d
}

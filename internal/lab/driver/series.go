package driver

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"path"
	"slices"
	"strconv"

	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/probe"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// related holds what relates a router's clock to ours: its time is our CLOCK_MONOTONIC + offset, ± bound.
type related struct{ offset, bound int64 }

// relate reads a router's clock, which resolves step, between two readings of ours.
func relate(read func() (at, step int64, err error)) (related, error) {
	before := host.Monotonic()
	at, step, err := read()
	after := host.Monotonic()
	if err != nil {
		return related{}, fmt.Errorf("relate the clock: %w", err)
	}
	half := (after - before) / 2
	return related{at + step/2 - (before + half), half + max(step/2, 1)}, nil
}

// until returns the clock of what was sampled between two readings of it, and the offset to go by.
func (r related) until(later related) (c record.Clock, offset int64) {
	c = record.Clock{OffsetBefore: r.offset, BoundBefore: r.bound, OffsetAfter: later.offset,
		BoundAfter: later.bound}
	return c, c.OffsetBefore + (c.OffsetAfter-c.OffsetBefore)/2
}

// between keeps the samples of from…to and the nearest outside on either side.
func between[S any](all []S, when func(S) int64, from, to int64) []S {
	first, last := 0, len(all)
	for i, s := range all {
		if when(s) <= from {
			first = i
		}
		if when(s) >= to {
			last = i + 1
			break
		}
	}
	return all[min(first, last):last]
}

// values holds one sample: columns with their values, in order.
type values struct {
	names []string
	v     []float64
}

func (x *values) add(name string, v float64) {
	x.names, x.v = append(x.names, name), append(x.v, v)
}

// parse adds a whole number; what is none has no value.
func (x *values) parse(name, text string, scale float64) {
	if v, err := strconv.ParseUint(text, 10, 63); err == nil {
		x.add(name, float64(v)*scale)
	}
}

// source is a probe whose series a system has: what its columns mean there, why there may be none, and how a
// sample is read, of FreeBSD.
type source struct {
	probe, doc, absent string
	read               func(s bsdSample) values
}

// seriesOf are the series of sources, as probes have them, or as what a system has besides.
func seriesOf(sources []source, read map[string]*replayed, besides ...record.Metric) (out []record.Samples) {
	for _, p := range probe.All(probe.Root{}) {
		for _, x := range sources {
			if r := read[p.Name()]; x.probe == p.Name() {
				metrics := slices.DeleteFunc(slices.Concat(p.Metrics(), besides), func(m record.Metric) bool {
					return !slices.ContainsFunc(r.columns, func(name string) bool {
						return path.Base(name) == m.Name
					})
				})
				for i := range metrics {
					metrics[i].Doc, metrics[i].Scope = x.doc, probe.Scope(p)
				}
				out = append(out, r.table(p.Name(), probe.Scope(p), metrics, cmp.Or(r.why, x.absent)))
			}
		}
	}
	return out
}

// costOf computes the CPU time of the sampling process between its first and its last sample.
func costOf(name string, samples []snapshot) []record.Cost {
	own := slices.DeleteFunc(slices.Clone(samples), func(s snapshot) bool { return s.cpu < 0 })
	n := len(own)
	if n < 2 {
		return nil
	}
	return []record.Cost{{Probe: name, Reads: int64(n - 1), OverNs: own[n-1].at - own[0].at,
		CPUNs: max(0, own[n-1].cpu-own[0].cpu)}}
}

// replayed is one probe with what it has read.
type replayed struct {
	probe   probe.Probe
	sampler probe.Sampler // nil: it cannot be had, for the reason why
	why     string
	columns []string            // all that there ever were, maxColumns of them
	known   map[string]struct{} // the same
	at      []int64
	rows    []map[string]float64
}

func (r *replayed) take(at int64) {
	if r.sampler == nil {
		return
	}
	var names []string
	var row []float64
	err := probe.ErrColumns
	// Columns that change at every sample are given up.
	for tries := 0; tries < 3 && errors.Is(err, probe.ErrColumns); tries++ {
		names = r.sampler.Columns()
		row = make([]float64, len(names))
		err = r.sampler.Sample(row)
	}
	if err != nil {
		r.why = err.Error()
		return
	}
	r.add(at, names, row)
}

// add takes one sample: a value for each name. A router chooses how many there are; what is too many is left
// out.
func (r *replayed) add(at int64, names []string, row []float64) {
	values := map[string]float64{}
	for i, name := range names {
		if _, known := r.known[name]; !known {
			if len(r.columns) == maxColumns {
				continue
			}
			if r.known == nil {
				r.known = map[string]struct{}{}
			}
			r.known[name] = struct{}{}
			r.columns = append(r.columns, name)
		}
		values[name] = row[i]
	}
	r.at, r.rows = append(r.at, at), append(r.rows, values)
}

func (r *replayed) samples() record.Samples {
	return r.table(r.probe.Name(), probe.Scope(r.probe), r.probe.Metrics(), r.why)
}

// table makes a probe's series of what was read, or says why there is none.
func (r *replayed) table(name, scope string, metrics []record.Metric, why string) record.Samples {
	out := record.Samples{Probe: name, Scope: scope}
	if len(r.rows) == 0 || len(r.columns) == 0 {
		out.Unavailable = cmp.Or(why, "no sample was taken in that time")
		return out
	}
	out.Table, out.Metrics = tableOf(r.columns, r.at, r.rows), metrics
	return out
}

// tableOf has no value where a row lacks a column.
func tableOf(columns []string, at []int64, rows []map[string]float64) *record.Table {
	t := record.NewTable(columns...)
	for i, values := range rows {
		row := make([]float64, len(columns))
		for j, name := range columns {
			v, ok := values[name]
			if !ok {
				v = math.NaN()
			}
			row[j] = v
		}
		t.Append(at[i], row...)
	}
	return t
}

package driver

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/probe"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// related is the offset of a router's clock from our clock: the router's time is our CLOCK_MONOTONIC plus
// offset, with an error of at most bound. Both are in ns.
type related struct{ offset, bound int64 }

// relate reads a router's clock between two readings of our clock. step is the resolution of the router's
// clock.
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

// until returns the clock relation for samples taken between two comparisons of the clocks. r is the result
// of the first comparison, and later is the result of the second. offset is the mean of their offsets.
func (r related) until(later related) (c record.Clock, offset int64) {
	c = record.Clock{
		OffsetBefore: r.offset,
		BoundBefore:  r.bound,
		OffsetAfter:  later.offset,
		BoundAfter:   later.bound,
	}
	return c, c.OffsetBefore + (c.OffsetAfter-c.OffsetBefore)/2
}

// between returns the samples whose times lie between from and to, and the nearest sample before and after
// this interval.
func between[S interface{ when() int64 }](all []S, from, to int64) []S {
	first := 0
	last := len(all)
	for i, s := range all {
		if s.when() <= from {
			first = i
		}

		if s.when() >= to {
			last = i + 1
			break
		}
	}

	return all[min(first, last):last]
}

// values holds the values of a probe in one sample, by column.
type values map[string]float64

// put adds a number multiplied by scale. It ignores text that is not a number.
func (x values) put(column, text string, scale float64) {
	n, err := strconv.ParseFloat(strings.TrimSuffix(text, "%"), 64)
	if err == nil && n >= 0 && !math.IsInf(n, 0) {
		x[column] = n * scale
	}
}

// taken is a sample with the values of each probe.
type taken struct {
	at     int64 // the router's clock in ns
	probes map[string]values
}

func (s taken) when() int64 { return s.at }

// source describes a probe that a system supports: the meaning of its columns on that system, the reason if
// there are no values, and, for FreeBSD, the function that parses a sample.
type source struct {
	probe, doc, absent string
	read               func(s bsdSample) values
}

// seriesOf returns the series of sources. further lists metrics that are specific to the system.
func seriesOf(sources []source, samples []taken, offset int64, why string,
	further ...record.Metric) (out []record.Samples) {
	for _, p := range probe.All(probe.Root{}) {
		i := slices.IndexFunc(sources, func(x source) bool { return x.probe == p.Name })
		if i < 0 {
			continue
		}

		s := series(p, samples, offset, cmp.Or(why, sources[i].absent))
		if s.Table != nil {
			s.Metrics = slices.DeleteFunc(slices.Concat(s.Metrics, further), func(m record.Metric) bool {
				return !slices.ContainsFunc(s.Table.Names, func(name string) bool {
					return path.Base(name) == m.Name
				})
			})
			for at := range s.Metrics {
				s.Metrics[at].Doc, s.Metrics[at].Scope = sources[i].doc, s.Scope
			}
		}

		out = append(out, s)
	}
	return out
}

// series returns the series of a probe. If there are no samples, why states the reason.
func series(p probe.Probe, samples []taken, offset int64, why string) record.Samples {
	out := record.Samples{Probe: p.Name, Scope: p.Scope}
	if out.Table = tableOf(p.Name, samples, offset); out.Table != nil {
		out.Metrics = p.Metrics()
	} else {
		out.Unavailable = cmp.Or(why, "no sample was taken in that time")
	}
	return out
}

// tableOf returns a table with a probe's values in samples, or nil if there are none. Missing values are NaN.
// It drops columns beyond maxColumns, because the router determines the number of columns.
func tableOf(probe string, samples []taken, offset int64) *record.Table {
	columns := map[string]bool{}
	for _, s := range samples {
		for name := range s.probes[probe] {
			columns[name] = true
		}
	}

	names := slices.Sorted(maps.Keys(columns))
	if len(names) == 0 {
		return nil
	}

	names = names[:min(len(names), maxColumns)]
	t := record.NewTable(names...)
	for _, s := range samples {
		if len(s.probes[probe]) == 0 {
			continue
		}

		row := make([]float64, len(names))
		for i, name := range names {
			v, ok := s.probes[probe][name]
			if !ok {
				v = math.NaN()
			}

			row[i] = v
		}

		t.Append(s.at-offset, row...)
	}

	return t
}

// costOf returns the CPU time that the sampling process used between the first and the last sample.
func costOf(name string, samples []snapshot) []record.Cost {
	own := slices.DeleteFunc(slices.Clone(samples), func(s snapshot) bool { return s.cpu < 0 })
	n := len(own)
	if n < 2 {
		return nil
	}

	return []record.Cost{{
		Probe:  name,
		Reads:  int64(n - 1),
		OverNs: own[n-1].at - own[0].at,
		CPUNs:  max(0, own[n-1].cpu-own[0].cpu),
	}}
}

package analysis

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/statistics"
	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/unit"
)

// Carriage holds the traffic of a run's trials. This traffic shows when an import was recorded relative to
// the run. Trials are added one by one, because the trials of a day-long run are too large to load at once.
type Carriage struct{ trials []carried }

// carried holds the received bytes of one trial's flows, and the trial's times on the controller's clock.
type carried struct {
	origin, ended int64
	started       time.Time
	bytes         statistics.Curve
}

// Add adds a trial and keeps only its traffic. Trials may be added in any order.
func (c *Carriage) Add(t record.Trial) {
	c.trials = append(c.trials, carried{t.Origin, t.Ended, t.Started, carriedIn(t)})
}

// Trials returns the number of trials that were added.
func (c *Carriage) Trials() int { return len(c.trials) }

// Wall returns the controller's wall clock (Unix time in ns) at which its monotonic clock was 0, or 0 if no
// trial was added.
func (c *Carriage) Wall() int64 {
	if len(c.trials) == 0 {
		return 0
	}
	return c.trials[0].started.UnixNano() - c.trials[0].origin
}

// Align returns the offset of a machine's clock at which the bytes received by the machine's network devices
// (netdev) best match the bytes of the trials' flows. wall is the offset according to the wall clocks, or 0
// if unknown. The result must lie within ClocksAgree of wall, because other runs of the same plan look the
// same at other times. If wrong is set, the machine's wall clock is wrong, and any offset is possible.
func (c *Carriage) Align(netdev *record.Table, wall int64, wrong bool) (statistics.Aligned, error) {
	carried := c.curve()
	if len(carried.T) == 0 {
		return statistics.Aligned{}, errors.New("the run has no trial with a series of its traffic")
	}

	seen := receivedOf(netdev)
	if len(seen.T) < 3 {
		return statistics.Aligned{}, errors.New("there are fewer than three samples of netdev")
	}

	if wrong {
		return statistics.Align(carried, seen, wall, 0)
	}

	const hint = "if that machine's clock is wrong, --clock-wrong has the traffic alone tell when it was"
	if wall == 0 {
		return statistics.Aligned{}, check.WithHint(errors.New("its wall clock is not stated"), hint)
	}

	a, err := statistics.Align(carried, seen, wall, int64(ClocksAgree))
	if err == nil {
		return a, nil
	}

	far, other := statistics.Align(carried, seen, wall, 0)
	if other == nil {
		return a, check.WithHint(fmt.Errorf("by its traffic it would be of this run if its clock were "+
			"%s: the clocks must agree within %s", AheadWords(far.Offset-wall),
			unit.Duration(ClocksAgree)), hint)
	}

	return a, err
}

// Thinner returns a function that reports whether to keep a sample of a long import, given the sample's
// source and its time on the controller's clock. Samples of a source must be passed in order of time. The
// function keeps samples during each trial, at intervals that depend on the trial's length, and one sample
// before and after the trial.
func (c *Carriage) Thinner() func(source string, at int64) bool {
	trials := slices.Clone(c.trials)
	slices.SortFunc(trials, func(a, b carried) int { return cmp.Compare(a.ended, b.ended) })
	last := map[string]int64{}
	return func(source string, at int64) bool {
		i := sort.Search(len(trials), func(i int) bool {
			return at <= trials[i].ended+trials[i].apart()
		})
		if i == len(trials) || at < trials[i].origin-trials[i].apart() {
			return false
		}

		before, had := last[source]
		if had && at >= before && at-before < trials[i].apart() {
			return false
		}

		last[source] = at
		return true
	}
}

// thinRows is the minimum number of samples of a source that Thinner keeps for a trial, if there are that
// many.
const thinRows = 32

func (c carried) apart() int64 { return (c.ended - c.origin) / thinRows }

// ClocksAgree is the largest accepted error of the wall clock of a machine whose recording is imported.
const ClocksAgree = 2 * time.Minute

// AheadWords describes how far a clock is ahead of the run's clock. ns is negative if it is behind.
func AheadWords(ns int64) string {
	word := "ahead"
	if ns < 0 {
		ns = -ns
		word = "behind"
	}

	round := time.Millisecond
	if ns > int64(10*time.Second) {
		round = time.Second
	}

	return unit.Duration(time.Duration(ns).Round(round)) + " " + word
}

// curve returns the traffic of all trials as one counter.
func (c *Carriage) curve() statistics.Curve {
	trials := slices.Clone(c.trials)
	slices.SortStableFunc(trials, func(a, b carried) int { return cmp.Compare(a.origin, b.origin) })
	var out statistics.Curve
	total := 0.0
	for _, t := range trials {
		for i, at := range t.bytes.T {
			if len(out.T) == 0 || at > out.T[len(out.T)-1] {
				out.T = append(out.T, at)
				out.V = append(out.V, total+t.bytes.V[i])
			}
		}

		n := len(out.V)
		if n > 0 {
			total = out.V[n-1]
		}
	}

	return out
}

// carriedIn returns the traffic of a trial's flows as one counter. To limit its size, the counter has only
// the sampling times of the flow with the most samples, and the first and the last sampling time of each
// flow.
func carriedIn(t record.Trial) (out statistics.Curve) {
	if t.Traffic == nil {
		return out
	}

	var flows []statistics.Curve
	var times, edges []int64
	for _, f := range t.Traffic.Flows {
		table := cmp.Or(f.Received, f.Sent)
		v := table.Column("bytes")
		if len(v) > 1 {
			flows = append(flows, statistics.NewCurve(table.T, v))
			edges = append(edges, table.T[0], table.T[len(table.T)-1])
			if len(table.T) > len(times) {
				times = table.T
			}
		}
	}

	times = slices.Compact(slices.Sorted(slices.Values(slices.Concat(times, edges))))
	out.T = times
	out.V = make([]float64, len(times))
	for i, at := range times {
		for _, c := range flows {
			out.V[i] += c.At(at) - c.V[0]
		}
	}

	return out
}

// receivedOf returns the sum of the bytes received by all devices except loopback. It ignores decreases of a
// counter, and the first value of a counter that appears later.
func receivedOf(netdev *record.Table) statistics.Curve {
	if netdev == nil {
		return statistics.Curve{}
	}

	out := statistics.Curve{T: netdev.T, V: make([]float64, len(netdev.T))}
	for i, name := range netdev.Names {
		device, counter, _ := strings.Cut(name, "/")
		if counter != "rx_bytes" || device == "lo" {
			continue
		}

		sum := 0.0
		for j := range out.V {
			if j > 0 && netdev.V[i][j] > netdev.V[i][j-1] { // false for NaN
				sum += netdev.V[i][j] - netdev.V[i][j-1]
			}

			out.V[j] += sum
		}
	}

	return out
}

// withImports returns the trial with the imported samples that were recorded during the trial. It does not
// modify the data to which t refers.
func withImports(run *record.Run, t record.Trial) record.Trial {
	if len(run.Imports) == 0 {
		return t
	}

	t.Nodes = maps.Clone(t.Nodes)
	if t.Nodes == nil { // the trial has no telemetry
		t.Nodes = map[string]record.NodeData{}
	}

	for _, im := range run.Imports {
		if d, ok := during(im, t.Origin, t.Ended); ok {
			t.Nodes[im.Node] = d
			t.Caveats = slices.DeleteFunc(slices.Clone(t.Caveats), func(c record.Caveat) bool {
				return c.Kind == "router-not-watched" && strings.HasPrefix(c.Text, im.Node+" ")
			})
		}
	}

	return t
}

// during returns the part of an import between two times, and one sample before and after that part. ok is
// false if no source has samples in this part.
func during(im record.Import, from, to int64) (d record.NodeData, ok bool) {
	d.Clock = record.Clock{
		OffsetBefore: im.Offset,
		BoundBefore:  im.Bound,
		OffsetAfter:  im.Offset,
		BoundAfter:   im.Bound,
	}
	for _, s := range im.Samples {
		if s.Table != nil {
			times := s.Table.T
			first, _ := slices.BinarySearch(times, from)
			last, _ := slices.BinarySearch(times, to+1)
			first = max(first-1, 0)
			last = min(last+1, len(times))
			if last-first < 2 || times[last-1] < from || times[first] > to {
				s.Table = nil
				s.Unavailable = "probe " + s.Probe + " took no sample then"
			} else {
				part := &record.Table{Names: s.Table.Names, T: times[first:last]}
				for _, v := range s.Table.V {
					part.V = append(part.V, v[first:last])
				}

				s.Table = part
				ok = true
			}
		}

		d.Samples = append(d.Samples, s)
	}

	for _, l := range im.Log {
		if l.At >= from && l.At <= to {
			d.Log = append(d.Log, l)
		}
	}

	return d, ok
}

// merged merges environments of the same node from several sources.
func merged(environments []record.Environment) []record.Environment {
	var out []record.Environment
	for _, e := range environments {
		i := slices.IndexFunc(out, func(o record.Environment) bool { return o.Node == e.Node })
		if i < 0 {
			out = append(out, e)
			continue
		}

		o := record.Environment{
			Node:           e.Node,
			Facts:          map[string]string{},
			Missing:        map[string]string{},
			Inventory:      cmp.Or(out[i].Inventory, e.Inventory),
			InventoryAfter: cmp.Or(out[i].InventoryAfter, e.InventoryAfter),
		}
		for _, from := range []record.Environment{out[i], e} {
			maps.Copy(o.Facts, from.Facts)
			maps.Copy(o.Missing, from.Missing)
		}

		delete(o.Missing, "all else") // the later environment lists the missing facts
		out[i] = o
	}
	return out
}

// Covered returns the number of trials for which an import has samples.
func (c *Carriage) Covered(im record.Import) int {
	n := 0
	for _, t := range c.trials {
		if _, ok := during(im, t.origin, t.ended); ok {
			n++
		}
	}
	return n
}

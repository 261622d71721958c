package model

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/statistics"
	"github.com/chokepoint-lab/chokepoint/internal/catalogue"
	"github.com/chokepoint-lab/chokepoint/internal/unit"
)

// axis is a numeric attribute along which a device's own results are interpolated.
type axis struct {
	name  string
	level func(catalogue.Result) int
}

// sizeAxis returns the axis of sizes for a query: packet sizes for UDP, otherwise MTUs.
func sizeAxis(q catalogue.Result) axis {
	if q.Protocol == "udp" && q.MTU == 0 {
		return axis{"packet", func(r catalogue.Result) int { return r.Packet }}
	}
	return axis{"mtu", func(r catalogue.Result) int { return r.MTU }}
}

func streamAxis() axis {
	return axis{"streams", func(r catalogue.Result) int { return r.Streams }}
}

// namedAxes returns the axes for which a query names a level.
func namedAxes(q catalogue.Result) []axis {
	return slices.DeleteFunc([]axis{sizeAxis(q), streamAxis()}, func(a axis) bool { return a.level(q) == 0 })
}

var errNoAxis = errors.New("no MTU, packet size or number of streams is named")

// ownSweeps returns the sweeps of the device's own results that match q in all attributes except its axes. It
// leaves out results above the link rate, and packet sizes that need a different number of fragments.
func (w world) ownSweeps(q catalogue.Result) [][]catalogue.Result {
	var names []string
	for _, a := range namedAxes(q) {
		names = append(names, a.name)
	}

	_, _, fragments := packetOf(q)
	var out [][]catalogue.Result
	for _, sweep := range w.sweeps(q, names...) {
		sweep = slices.DeleteFunc(sweep, func(r catalogue.Result) bool {
			_, _, outside := packetOf(r)
			return outside != fragments || w.beyondPort(r)
		})
		if len(sweep) > 0 {
			out = append(out, sweep)
		}
	}

	return out
}

// byNeighbours interpolates between the device's own results on both sides of the requested levels.
func (w world) byNeighbours(q catalogue.Result) (Estimate, error) {
	if len(namedAxes(q)) == 0 {
		return Estimate{}, errNoAxis
	}

	var g gathered
	g.each(w.ownSweeps(q), func(sweep []catalogue.Result) (float64, string, error) {
		near, err := interpolate(sweep, q)
		if err != nil {
			return 0, "", err
		}

		g.rests(near.rows)
		return near.bps, near.text(), nil
	})
	return g.estimate(w.noSweep(q, namedAxes(q)[0].name), ByNeighbours,
		"the same thing limits between the neighbours as at them")
}

// between holds an interpolated rate, and the results used for the interpolation.
type between struct {
	bps  float64
	rows []catalogue.Result
}

// text describes the results used for the interpolation, such as "filogic: 520 Mbit/s at mtu 1280, streams 4;
// 595 Mbit/s at mtu 1400, streams 4".
func (b between) text() string {
	var each []string
	for _, r := range b.rows {
		each = once(each, fmt.Sprintf("%s at %s", unit.Bitrate(*r.GoodputBps), levelsOf(r)))
	}

	return origin(b.rows) + ": " + strings.Join(each, "; ")
}

// interpolate interpolates along one axis if the sweep has results at the requested level of the other axis.
// Otherwise, it interpolates along both axes in turn, starting at the nearest result that allows this.
func interpolate(sweep []catalogue.Result, q catalogue.Result) (between, error) {
	axes := namedAxes(q)
	if len(axes) == 1 {
		return along(axes[0], sweep, q)
	}

	size := axes[0]
	streams := axes[1]
	bySize, err := along(size, at(sweep, streams, q), q)
	if err == nil {
		return bySize, nil
	}

	byStreams, err := along(streams, at(sweep, size, q), q)
	if err == nil {
		return byStreams, nil
	}

	for _, corner := range nearestFirst(sweep, q) {
		bySize, errSize := along(size, at(sweep, streams, corner), q)
		byStreams, errStreams := along(streams, at(sweep, size, corner), q)
		if errSize == nil && errStreams == nil {
			base := medianRate(at(at(sweep, streams, corner), size, corner))
			return between{bySize.bps * byStreams.bps / base, append(bySize.rows, byStreams.rows...)}, nil
		}
	}

	return between{}, fmt.Errorf("none of its results lie on both sides of %s", levelsOf(q))
}

// at returns the results of a sweep that have the same level on axis a as the given result.
func at(sweep []catalogue.Result, a axis, like catalogue.Result) []catalogue.Result {
	return without(sweep, func(r catalogue.Result) bool { return a.level(r) != a.level(like) })
}

func medianRate(rows []catalogue.Result) float64 {
	var rates []float64
	for _, r := range rows {
		rates = append(rates, *r.GoodputBps)
	}
	return statistics.Median(rates)
}

// along interpolates the rate on one axis. On the axis of sizes, it interpolates the time per packet, which
// it assumes to be linear in the size. On the axis of streams, it assumes that the rate is linear in the
// logarithm of their number.
func along(a axis, sweep []catalogue.Result, q catalogue.Result) (between, error) {
	low, high := around(a, sweep, a.level(q))
	if len(low) == 0 || len(high) == 0 {
		return between{}, fmt.Errorf("none of its results lie on both sides of %s %d", a.name, a.level(q))
	}

	if a.level(low[0]) == a.level(high[0]) {
		return between{medianRate(low), low}, nil
	}

	rows := append(low[:1:1], high[0])
	bottom := float64(a.level(low[0]))
	top := float64(a.level(high[0]))
	wanted := float64(a.level(q))
	if a.name == streamAxis().name {
		share := math.Log(wanted/bottom) / math.Log(top/bottom)
		from := medianRate(low)
		to := medianRate(high)
		return between{from + share*(to-from), rows}, nil
	}

	from := sizeOf(low[0], medianRate(low)).time()
	to := sizeOf(high[0], medianRate(high)).time()
	time := from + (wanted-bottom)/(top-bottom)*(to-from)
	return between{float64(payloadAs(low[0], q)) * 8e9 / time, rows}, nil
}

// around returns the results at the nearest level on each side of a level. Results at the level itself are
// both low and high.
func around(a axis, sweep []catalogue.Result, level int) (low, high []catalogue.Result) {
	for _, r := range sweep {
		is := a.level(r)
		if is <= level && (len(low) == 0 || is > a.level(low[0])) {
			low = at(sweep, a, r)
		}

		if is >= level && (len(high) == 0 || is < a.level(high[0])) {
			high = at(sweep, a, r)
		}
	}
	return low, high
}

// sizeOf returns a point of a sweep of sizes, with the size of the result and the given rate.
func sizeOf(r catalogue.Result, bps float64) Size {
	packet, payload, _ := packetOf(r)
	return Size{packet, payload, bps}
}

// payloadAs returns the payload of the query's packet, counting the same headers as in result r.
func payloadAs(r, q catalogue.Result) int {
	packet, payload, _ := packetOf(r)
	asked, _, _ := packetOf(q)
	return asked - packet + payload
}

// nearestFirst returns the results sorted by the distance of their levels from the levels of the query,
// closest first. A distance is the logarithm of a ratio.
func nearestFirst(sweep []catalogue.Result, q catalogue.Result) []catalogue.Result {
	distance := func(r catalogue.Result) float64 {
		sum := 0.0
		for _, a := range namedAxes(q) {
			sum += math.Abs(math.Log(float64(a.level(r)) / float64(a.level(q))))
		}
		return sum
	}
	out := slices.Clone(sweep)
	slices.SortStableFunc(out, func(a, b catalogue.Result) int {
		return cmp.Compare(distance(a), distance(b))
	})
	return out
}

// byNearest estimates the rate from the nearest of the device's own results, if the device has no results on
// both sides of the requested levels. On each axis, the level of this result and the requested level may
// differ by at most a factor of 2 (see reach). byNearest assumes that the time per packet does not depend on
// the size, and that the rate does not depend on the number of streams.
func (w world) byNearest(q catalogue.Result) (Estimate, error) {
	if len(namedAxes(q)) == 0 {
		return Estimate{}, errNoAxis
	}

	if _, err := w.byNeighbours(q); err == nil {
		return Estimate{}, errors.New("its results lie on both sides of the question")
	}

	var g gathered
	g.each(w.ownSweeps(q), func(sweep []catalogue.Result) (float64, string, error) {
		near := nearestFirst(sweep, q)[0]
		for _, a := range namedAxes(q) {
			if a.level(near) > reach*a.level(q) || a.level(q) > reach*a.level(near) {
				return 0, "", fmt.Errorf("its nearest result is at %s, more than a factor of %d away",
					levelsOf(near), reach)
			}
		}

		if g.reason != nil { // one sweep that is too far away refuses those after it
			return 0, "", g.reason
		}

		rows := []catalogue.Result{near}
		g.rests(rows)
		_, payload, _ := packetOf(near)
		bps := *near.GoodputBps * float64(payloadAs(near, q)) / float64(payload)
		return bps, between{bps, rows}.text(), nil
	})
	return g.estimate(w.noSweep(q, namedAxes(q)[0].name), ByNearest,
		"a packet takes as long as there, and so many streams carry as much")
}

// levelsOf describes the levels of a result on the axes, such as "mtu 1400, streams 4".
func levelsOf(r catalogue.Result) string {
	var words []string
	for _, a := range namedAxes(r) {
		words = append(words, fmt.Sprint(a.name, " ", a.level(r)))
	}
	return strings.Join(words, ", ")
}

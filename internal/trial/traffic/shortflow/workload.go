package shortflow

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/trial/traffic"
)

// maxFlowBytes limits the size of a flow, so that each position in the pattern is used only once.
const maxFlowBytes = 1 << 31

// flowPacket is the packet size in bytes that published distributions assume.
const flowPacket = 1500

// FlowSizes describes a distribution of flow sizes.
type FlowSizes struct {
	fixed  int64
	mean   float64     // mean size in bytes, for an exponential distribution
	points []sizePoint // points of a published distribution
}

// sizePoint holds the share of all flows that have at most the given number of packets. Between two
// points, sizes are distributed uniformly. All flows of the first point's share have the first point's
// size.
type sizePoint struct {
	packets int64
	share   float64
}

// Published distributions, as tabulated for the simulations of pFabric (Alizadeh et al., SIGCOMM 2013):
// web search from DCTCP (Alizadeh et al., SIGCOMM 2010), and data mining from VL2 (Greenberg et al.,
// SIGCOMM 2009).
var (
	webSearch = [...]sizePoint{{6, .15}, {13, .2}, {19, .3}, {33, .4}, {53, .53}, {133, .6}, {667, .7},
		{1333, .8}, {3333, .9}, {6667, .97}, {20000, 1}}
	dataMining = [...]sizePoint{{1, .5}, {2, .6}, {3, .7}, {7, .8}, {267, .9}, {2107, .95}, {66667, .99},
		{666667, 1}}
)

const flowSizeForms = "bytes such as 10000, exponential and its mean such as exponential 10000, websearch " +
	"or datamining"

// ParseFlowSizes parses a distribution: a number of bytes, "exponential" and a mean in bytes, "websearch",
// or "datamining".
func ParseFlowSizes(text string) (FlowSizes, error) {
	number, exponential := strings.CutPrefix(text, "exponential ")
	switch text {
	case "websearch":
		return FlowSizes{points: webSearch[:]}, nil
	case "datamining":
		return FlowSizes{points: dataMining[:]}, nil
	}

	n, err := strconv.ParseInt(number, 10, 64)
	if err != nil || n < 1 || n > maxFlowBytes || strconv.FormatInt(n, 10) != number {
		return FlowSizes{}, fmt.Errorf("%q is not %s", text, flowSizeForms)
	}

	if exponential {
		return FlowSizes{mean: float64(n)}, nil
	}

	return FlowSizes{fixed: n}, nil
}

// FlowSizeLevel parses a level of the factor flow_size.
func FlowSizeLevel(text string) (string, error) {
	if _, err := ParseFlowSizes(text); err != nil {
		return "", err
	}
	return text, nil
}

// draw returns a random size for the next flow, at least one byte.
func (s *FlowSizes) draw(rng *rand.Rand) int64 {
	switch {
	case s.fixed > 0:
		return s.fixed
	case s.mean > 0:
		return min(int64(rng.ExpFloat64()*s.mean)+1, maxFlowBytes)
	}

	at := rng.Float64()
	for i, p := range s.points {
		if at >= p.share {
			continue
		}

		if i == 0 {
			return p.packets * flowPacket
		}

		before := s.points[i-1]
		share := (at - before.share) / (p.share - before.share)
		return int64((float64(before.packets) + share*float64(p.packets-before.packets)) * flowPacket)
	}

	return s.points[len(s.points)-1].packets * flowPacket
}

// flowClasses lists the minimum sizes in bytes of the classes for which completion times are recorded
// separately. As in pFabric, the classes are below 100 kB, below 10 MB, and above.
var flowClasses = [...]int64{0, 100e3, 10e6}

func flowClass(size int64) int {
	for i := len(flowClasses) - 1; i > 0; i-- {
		if size >= flowClasses[i] {
			return i
		}
	}
	return 0
}

// flowArrivals computes the times at which one of several threads starts flows.
type flowArrivals struct {
	next    int64
	origin  int64
	count   int64
	every   float64 // mean interval in ns between the flows of all threads
	threads int64
	thread  int64
	rng     *rand.Rand // random generator; nil for equal intervals
}

func (d *flowArrivals) begin(at int64) {
	d.origin, d.next = at, at
	d.advance()
}

// advance moves to the next arrival. With equal intervals, the time of an arrival is computed from its
// number, so that errors do not accumulate. Over all threads together, the intervals are equal or the
// arrivals are a Poisson process.
func (d *flowArrivals) advance() {
	if d.rng != nil {
		d.next += int64(d.rng.ExpFloat64() * d.every * float64(d.threads))
		return
	}

	d.next = d.origin + int64(float64(d.count*d.threads+d.thread)*d.every)
	d.count++
}

// newArrivals returns the arrivals of a thread, or nil if the load has no connection rate.
func newArrivals(load record.Load, thread, threads int) *flowArrivals {
	if load.ConnectionRate <= 0 {
		return nil
	}

	d := &flowArrivals{every: 1e9 / load.ConnectionRate, thread: int64(thread), threads: int64(threads)}
	if load.Spacing != record.Isochronous {
		d.rng = rand.New(rand.NewPCG(uint64(traffic.TagHash(traffic.TagSchedule, load.Tag)), uint64(thread)))
	}

	return d
}

package traffic

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// Bounds of a request, which may come from somebody else's controller: beyond them no plan goes, and sums of
// what is within them do not overflow.
const (
	largestPacket = 40 + 1<<16 - 1 // bytes, of IPv6
	longestList   = 4096
	longestText   = 1024
	longestLoad   = 30 * 24 * time.Hour
	minInterval   = 10 * time.Microsecond
	maxIntervals  = 50_000_000
	highestRate   = 1e15 // bits or connections a second
)

// check says what of a request is out of bounds. It comes before anything is made of it.
func (q Request) check() error {
	l := q.Load
	whole := func(name string, n, most int) error {
		if n < 0 || n > most {
			return fmt.Errorf("%s %d: want 0 to %d", name, n, most)
		}
		return nil
	}
	rate := func(name string, r float64) error {
		if !(r >= 0 && r <= highestRate) { // nor is it no number
			return fmt.Errorf("%s %v: want 0 to %v", name, r, float64(highestRate))
		}
		return nil
	}
	long := func(name string, d time.Duration) error {
		if d < 0 || d > longestLoad {
			return fmt.Errorf("%s %v: want 0 to %v", name, d, longestLoad)
		}
		return nil
	}
	for _, err := range []error{
		whole("streams", l.Streams, maxUDPFlows), whole("number of packet sizes", len(l.Sizes), longestList),
		whole("packet size", l.PacketSize, largestPacket), whole("port", q.Port, math.MaxUint16),
		whole("port of the load", l.Port, math.MaxUint16), whole("segment size", l.MSS, math.MaxUint16),
		whole("socket buffer", l.Buffer, math.MaxInt32), whole("tunnels", l.Tunnels, longestList),
		whole("number of paths", len(q.Beside), longestList),
		whole("number of cores", len(q.CPUs), longestList),
		whole("length of the tag", len(l.Tag), longestText),
		whole("length of the congestion control", len(l.Congestion), longestText),
		whole("length of the flow size", len(l.FlowSize), longestText),
		whole("request size", l.RequestSize, math.MaxInt),
		whole("response size", l.ResponseSize, math.MaxInt),
		whole("send buffer", max(l.Near.SendBuffer, l.Far.SendBuffer), math.MaxInt32),
		whole("receive buffer", max(l.Near.ReceiveBuffer, l.Far.ReceiveBuffer), math.MaxInt32),
		rate("read rate", max(l.Near.ReadRateBps, l.Far.ReadRateBps)),
		rate("write rate", max(l.Near.WriteRateBps, l.Far.WriteRateBps)),
		rate("rate", l.RateBps), rate("connection rate", l.ConnectionRate), long("warm-up", l.Warmup),
		long("duration", l.Duration), long("interval", l.Interval),
	} {
		if err != nil {
			return err
		}
	}
	if i := slices.IndexFunc(l.Sizes, func(n int) bool { return n < 1 || n > largestPacket }); i >= 0 {
		return fmt.Errorf("packet size %d: want 1 to %d", l.Sizes[i], largestPacket)
	}
	if l.Interval > 0 && l.Interval < minInterval {
		return fmt.Errorf("interval %v: want 0, or %v or more", l.Interval, minInterval)
	}
	return nil
}

// checkWindow says what of a timeline is out of bounds for a load.
func checkWindow(w record.Window, l record.Load) error {
	if w.Begin < 0 || w.Start < w.Begin || w.End < w.Start || w.Stop < w.End {
		return fmt.Errorf("timeline %+v: its times are not in order", w)
	}
	length := time.Duration(w.Stop - w.Begin)
	if length > longestLoad || l.Interval > 0 && length/l.Interval > maxIntervals {
		return fmt.Errorf("timeline of %v with a value each %v: it is too long", length, l.Interval)
	}
	return nil
}

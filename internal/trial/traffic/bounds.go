package traffic

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// Limits of a request, which may come from another user's controller. No plan exceeds them, and sums of
// values within the limits do not overflow.
const (
	largestPacket = 40 + 1<<16 - 1 // length in bytes of the largest IPv6 packet
	longestList   = 4096
	longestText   = 1024
	longestLoad   = 30 * 24 * time.Hour
	minInterval   = 10 * time.Microsecond
	maxIntervals  = 50_000_000
	highestRate   = 1e15 // bit/s, or connections per second
)

// within returns an error unless n is between 0 and most. The error contains the name of the value.
func within[N int | float64 | time.Duration](name string, n, most N) error {
	if !(n >= 0 && n <= most) { // also true if n is NaN
		return fmt.Errorf("%s %v: want 0 to %v", name, n, most)
	}
	return nil
}

// check returns an error if a value is out of range. It must be called before the request has any effect.
func (q Request) check() error {
	l := q.Load
	err := cmp.Or(
		within("streams", l.Streams, maxUDPFlows),
		within("number of packet sizes", len(l.Sizes), longestList),
		within("packet size", l.PacketSize, largestPacket),
		within("port", q.Port, math.MaxUint16),
		within("port of the load", l.Port, math.MaxUint16),
		within("segment size", l.MSS, math.MaxUint16),
		within("socket buffer", l.Buffer, math.MaxInt32),
		within("tunnels", l.Tunnels, longestList),
		within("number of paths", len(q.Beside), longestList),
		within("number of cores", len(q.CPUs), longestList),
		within("length of the tag", len(l.Tag), longestText),
		within("length of the congestion control", len(l.Congestion), longestText),
		within("length of the flow size", len(l.FlowSize), longestText),
		within("request size", l.RequestSize, math.MaxInt),
		within("response size", l.ResponseSize, math.MaxInt),
		within("send buffer", max(l.Near.SendBuffer, l.Far.SendBuffer), math.MaxInt32),
		within("receive buffer", max(l.Near.ReceiveBuffer, l.Far.ReceiveBuffer), math.MaxInt32),
		within("read rate", max(l.Near.ReadRateBps, l.Far.ReadRateBps), highestRate),
		within("write rate", max(l.Near.WriteRateBps, l.Far.WriteRateBps), highestRate),
		within("rate", l.RateBps, highestRate),
		within("connection rate", l.ConnectionRate, highestRate),
		within("warm-up", l.Warmup, longestLoad),
		within("duration", l.Duration, longestLoad),
		within("interval", l.Interval, longestLoad),
	)
	if err != nil {
		return err
	}

	i := slices.IndexFunc(l.Sizes, func(n int) bool { return n < 1 || n > largestPacket })
	if i >= 0 {
		return fmt.Errorf("packet size %d: want 1 to %d", l.Sizes[i], largestPacket)
	}

	if l.Interval > 0 && l.Interval < minInterval {
		return fmt.Errorf("interval %v: want 0, or %v or more", l.Interval, minInterval)
	}

	return nil
}

// checkWindow returns an error if a timeline is invalid or too long for the load.
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

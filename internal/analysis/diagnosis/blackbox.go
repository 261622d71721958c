package diagnosis

import (
	"cmp"
	"math"
	"slices"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/metrics"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/statistics"
	"github.com/chokepoint-lab/chokepoint/internal/factor"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// Cell holds the measurements of both ends for one load on a path. It contains nothing from the nodes in
// between.
type Cell struct {
	Factors record.Factors
	Metrics map[string]statistics.Value
	Failed  int     // number of trials without results
	Seconds float64 // length of the window in seconds
}

// Path describes the path between two ends, as far as the ends can see it: the class of limit in each
// direction, and its numbers.
type Path struct {
	Factors    record.Factors  `json:"factors"` // factors of the cells, without those of the loads
	Label      string          `json:"label"`
	Text       string          `json:"text"`
	Directions []PathDirection `json:"directions"`
	Facts      []Fact          `json:"facts,omitempty"` // facts about both directions together
	// Access lists the kinds of access that would reveal more, easiest first.
	Access []string `json:"access"`
}

// PathDirection is the diagnosis of one direction.
type PathDirection struct {
	Direction string `json:"direction"`
	Diagnosis
	Numbers []Fact `json:"numbers"`
}

// Blackbox diagnoses a path from its cells. It returns nil if the sweep is incomplete: it needs at least TCP
// with one stream, and UDP at full rate with two packet sizes.
func Blackbox(cells []Cell) *Path {
	var p Path
	for _, direction := range []string{record.Up, record.Down} {
		s := sweepOf(cells, direction)
		if s.one == nil || len(s.flat) < 2 {
			continue
		}

		d := conclude(s.check())
		d.exclude(nil)
		p.Directions = append(p.Directions, PathDirection{direction, *d, s.numbers()})
	}

	if len(p.Directions) == 0 {
		return nil
	}

	p.Text = pathText(p.Directions)
	p.addBoth(cells)
	for _, d := range p.Directions {
		for _, c := range d.Causes {
			more := access[c.Class]
			if more != "" && !slices.Contains(p.Access, more) {
				p.Access = append(p.Access, more)
			}
		}
	}

	p.Access = append(p.Access, accessAny)
	return &p
}

// sweep holds the cells of one direction by their purpose, and values derived from them.
type sweep struct {
	one, many, short *Cell     // TCP with one stream, several streams, and small segments
	flat             []*Cell   // UDP at full rate, one stream, sorted by packet size
	spread           *Cell     // UDP at full rate, several streams
	low, half        *Cell     // UDP at a low rate, and at half of the measured limit
	opened           *Cell     // short flows that start at a set rate
	bursts           *Cell     // short flows as in opened, but each as long as TCP's initial window
	rates            []float64 // bit/s of the cells of flat whose load exceeded the path
	packets, bytes   float64   // degree, 0 to 1, to which the limit counts packets or bytes
	uncounted        string    // reason why packets and bytes are unknown
	bps, pps         float64   // medians of the cells in rates: bit/s with the Ethernet header, and packets/s
	idleNs           float64
	probedNs, tcpNs  float64 // delay that TCP adds to the RTT of probes, and to its own RTT
}

// A load at full rate exceeds the path if at least this share of its packets is lost, or if it adds at least
// this delay.
const (
	lostFlat   = .02
	queuedFlat = 2e6 // ns
)

// ethernetHeader is the number of bytes that the kernel's rate limiters count in addition to the IP packet.
const ethernetHeader = 14

// burstBytes is approximately TCP's initial window: ten segments (RFC 6928).
const burstBytes = 14_000

func sweepOf(cells []Cell, direction string) *sweep {
	s := &sweep{}
	for i := range cells {
		c := &cells[i]
		f := c.Factors
		if !factor.Direction.Is(f, direction) {
			continue
		}

		streams := factor.Streams.Number(f)
		udp := factor.Protocol.Is(f, factor.UDP)
		flat := factor.Rate.Is(f, factor.Flat)
		switch {
		case factor.ConnectionRate.In(f) && factor.FlowSize.Number(f) >= burstBytes:
			s.bursts = c
		case factor.ConnectionRate.In(f):
			s.opened = c
		case !factor.Engine.Is(f, factor.Native):
		case udp && flat && streams == 1:
			s.flat = append(s.flat, c)
		case udp && flat:
			s.spread = c
		case udp && streams != 1:
		case udp && factor.Rate.Bitrate(f) > 0:
			s.low = c
		case udp:
			s.half = c
		case factor.MSS.In(f):
			s.short = c
		case streams == 1:
			s.one = c
		case s.many == nil || streams > factor.Streams.Number(s.many.Factors):
			s.many = c
		}
	}

	slices.SortFunc(s.flat, func(a, b *Cell) int { return cmp.Compare(a.size(), b.size()) })
	s.measure()
	return s
}

// measure determines whether the limit counts packets or bytes.
func (s *sweep) measure() {
	var pps []float64
	for _, c := range s.flat {
		if c.pps() > 0 && c.exceeds() {
			pps, s.rates = append(pps, c.pps()), append(s.rates, c.bps())
		}
	}

	for _, c := range []*Cell{s.half, s.low, s.many, s.one} {
		s.idleNs = cmp.Or(c.median(metrics.RTTIdle), s.idleNs)
	}

	for _, c := range []*Cell{s.one, s.many} {
		s.probedNs = max(s.probedNs, c.median(metrics.RTTAdded))
		s.tcpNs = max(s.tcpNs, c.median(metrics.RTTTCP)-max(c.median(metrics.MinRTTTCP), s.idleNs))
	}

	if len(s.rates) == 0 {
		s.uncounted = "no load exceeded the path: its limit is above what the tester can send"
		return
	}

	s.uncounted = "only one packet size exceeded the path"
	s.bps, s.pps = statistics.Median(s.rates), statistics.Median(pps)
	small, large := s.sizes()
	if min(small.pps(), large.pps()) <= 0 {
		return
	}

	// slope is Δ ln packets per second ÷ Δ ln packet size. If the sender did not exceed the limit, its rate
	// is only a lower bound of the path's rate.
	slope := math.Log(large.pps()/small.pps()) /
		math.Log((large.size()+ethernetHeader)/(small.size()+ethernetHeader))
	if small.exceeds() && (large.exceeds() || slope > -.3) || large.exceeds() && slope < -.3 {
		s.packets, s.bytes, s.uncounted = degree(slope, -.65, -.2), degree(slope, -.35, -.8), ""
	}
}

// sizes returns the full-rate UDP cells with the smallest and the largest packets.
func (s *sweep) sizes() (small, large *Cell) { return s.flat[0], s.flat[len(s.flat)-1] }

// value returns the median of a metric, and false if it is missing or c is nil.
func (c *Cell) value(metric string) (float64, bool) {
	if c == nil {
		return 0, false
	}

	v, ok := c.Metrics[metric]
	return v.Median, ok
}

// median is like value, but returns 0 if the metric is missing.
func (c *Cell) median(metric string) float64 {
	v, _ := c.value(metric)
	return v
}

func (c *Cell) size() float64 { return float64(factor.PacketSize.Number(c.Factors)) }

// pps returns the packets that arrived per second, bps the bits per second including the Ethernet header, and
// goodput the payload bits per second. They return 0 if the value is missing.
func (c *Cell) pps() float64 { return c.median(metrics.PacketRate) }

func (c *Cell) bps() float64 { return c.pps() * 8 * (c.size() + ethernetHeader) }

func (c *Cell) goodput() float64 { return c.median(metrics.Goodput) }

// lost returns the lost share of the packets that were sent. Packets that could not be sent are left out.
func (c *Cell) lost() float64 {
	unsent := c.median(metrics.UnsentRatio)
	return max(c.median(metrics.LossRatio)-unsent, 0) / max(1-unsent, 1e-9)
}

// exceeds reports whether a load at full rate was more than the path carries.
func (c *Cell) exceeds() bool {
	return c.lost() >= lostFlat || c.median(metrics.RTTAdded) >= queuedFlat
}

// again returns the number of retransmissions ÷ the number of full segments that TCP delivered.
func (c *Cell) again() float64 {
	if c.goodput() == 0 {
		return 0
	}
	return c.median(metrics.Retransmits) / (c.goodput() / 8 / 1448 * max(c.Seconds, 1e-3))
}

// tcp returns the highest goodput of TCP with full segments, and udp the highest goodput of UDP at full rate.
func (s *sweep) tcp() float64 { return max(s.one.goodput(), s.many.goodput()) }

func (s *sweep) udp() float64 { return greatest(s.flat, (*Cell).goodput).goodput() }

// addedNs returns the delay that TCP adds to the RTT of probes or to its own RTT, whichever delay is larger.
func (s *sweep) addedNs() float64 { return max(s.probedNs, s.tcpNs) }

// queueBytes returns the length of the queue while TCP fills the path.
func (s *sweep) queueBytes() float64 { return s.addedNs() / 1e9 * s.bps / 8 }

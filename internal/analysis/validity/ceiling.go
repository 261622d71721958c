package validity

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/evidence"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/metrics"
	"github.com/chokepoint-lab/chokepoint/internal/factor"
	"github.com/chokepoint-lab/chokepoint/internal/overhead"
	"github.com/chokepoint-lab/chokepoint/internal/qdisc"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/unit"
)

// ceiling is an upper bound of a cell's goodput.
type ceiling struct {
	Kind       string
	Bps        float64 // upper bound of goodput; 0 means none
	Burst      float64 // bytes that may pass in addition to the rate, in total
	Bucket     float64 // size of a policer's bucket in bytes: larger bursts lose packets; 0 means no limit
	Efficiency float64 // payload ÷ wire bytes, on the link with the most headers
}

// limit is a known or stated rate limit. up and down describe the traffic to which it applies, as the
// function passes returns them.
type limit struct {
	kind, place string
	rate        float64 // in bit/s
	burst       float64 // in bytes
	count       func(on overhead.Path, size int) int
	up, down    []bool
	mtu         int // discovered MTU of the path; 0 means the MTU that the factors set
}

// aboveCeiling returns a reason if more data arrived than the path can carry, so that something was not
// measured as intended. It ignores verifying trials, which are too short for a shaper's burst.
func aboveCeiling(s trialCheck) []evidence.Reason {
	if s.ceil.Bps <= 0 || s.t.Row.Kind != record.RowLoad {
		return nil
	}

	// If a bucket was full at the start of the window, its content may pass within the window.
	rate := s.m.Values[metrics.Goodput] - 8*s.ceil.Burst/s.t.Window.Seconds()
	ratio := rate / s.ceil.Bps
	if ratio > gateCeiling {
		return because(evidence.ReasonAboveCeiling, at{
			Metric: metrics.Goodput,
			Value:  new(s.m.Values[metrics.Goodput]),
		}, "%s of the ceiling of %s (%s)", unit.Percent(ratio),
			unit.Bitrate(s.ceil.Bps), s.ceil.Kind)
	}

	return nil
}

// CeilingOf returns a cell's ceiling, which is the lowest of the known or stated rates on its path: rates of
// queues, shapers, policers, network cards, and of the link to which a condition, such as a delay, applies. A
// virtual link has no rate.
func CeilingOf(run *record.Run, f record.Factors) ceiling {
	tunnelled := metrics.PathOf(f, true)
	c := ceiling{
		Kind: "none: virtual link",
		Efficiency: metrics.PayloadShare(f, metrics.HeadersOf(f), func(size int) int {
			return tunnelled.Bytes(size, overhead.LayerWire)
		}),
	}
	tested := run.Tested()
	if tested.CPUs != record.CPUsShared && !tested.Guest() {
		c.Kind = "none: no link rate is known"
	}

	headers := headersOf(run, f)
	for _, l := range slices.Concat(settingLimits(run, f), cardLimits(run, f)) {
		bps := l.goodput(f, headers)
		if bps > 0 && (c.Bps == 0 || bps < c.Bps) {
			c.Bps = bps
			c.Burst = l.burst
			c.Bucket = 0
			if l.kind == string(factor.Policer) {
				c.Bucket = l.burst
			}

			c.Kind = l.kind + " " + unit.Bitrate(l.rate).String()
			if l.place != "" {
				c.Kind += " on " + strings.ReplaceAll(l.place, ".", "/")
			}
		}
	}

	return c
}

// settingLimits returns the limits that the factors of the cell set.
func settingLimits(run *record.Run, f record.Factors) []limit {
	var out []limit
	top := metrics.TopologyOf(run, f)
	for place, level := range factor.Queue.Each(f) {
		q, err := qdisc.ParseOne(level)
		if err != nil || q.Parent != 0 {
			continue // the queue of a class limits only a part of the traffic
		}

		node, port, _ := strings.Cut(place, ".")
		l := shaper(q)
		l.place = place
		l.up, l.down = passes(top, node, port)
		out = append(out, l)
	}

	for _, name := range []factor.Name{factor.Shaper, factor.Policer} {
		for place, level := range name.Each(f) {
			node, port, placed := strings.Cut(place, ".")
			up, down := passes(top, node, port)
			count := bytesAt(overhead.LayerFrame)
			// A policer acts on arriving packets: data arrives through the port from which data of the other
			// direction leaves.
			if name == factor.Policer {
				up, down = down, up
				count = arriving(f, headersOf(run, f))
			}

			// Without a place, a shaper is at the port that faces the far end, and a policer at the port that
			// faces the near end.
			if !placed {
				down = nil
			}

			rate := factor.Bitrate(level)
			out = append(out, limit{string(name), place, rate, bucketOf(rate), count, up, down, 0})
		}
	}

	rate := factor.Bitrate(run.Design.Conditions[record.LinkCondition])
	return append(out, limit{record.LinkCondition, "", rate, 0, bytesAt(overhead.LayerWire), []bool{true},
		[]bool{true}, 0})
}

// bucketOf returns the size of a bucket that holds the bytes of 2 ms at a rate, and at least 128 KiB. The
// factors shape and policer have such buckets.
func bucketOf(rate float64) float64 { return max(rate*.002/8, 128<<10) }

// bytesAt returns a function that counts the bytes of an inner packet at a layer. tbf, htb and similar
// queueing disciplines count frames. See overhead.Link.Frame.
func bytesAt(layer overhead.Layer) func(overhead.Path, int) int {
	return func(on overhead.Path, size int) int { return on.Bytes(size, layer) }
}

// arriving returns a function that counts bytes as a policer does, without the header of the frame. Because
// GRO may merge packets before they are counted, only their payload is certain to count.
func arriving(f record.Factors, headers int) func(overhead.Path, int) int {
	if factor.Offload.Is(f, "wire") {
		return bytesAt(overhead.LayerIP)
	}
	return func(_ overhead.Path, size int) int { return size - headers }
}

// cardLimits returns the rates of the network cards through which the ends reach each other, if each end is a
// separate machine. It uses only cards with a hardware driver, because bonds, bridges and virtual cards have
// a nominal speed or none. If the MTU of the path was not discovered, cardLimits returns nothing.
func cardLimits(run *record.Run, f record.Factors) []limit {
	top := metrics.TopologyOf(run, f)
	if top == nil {
		return nil
	}

	path := fmt.Sprintf("path_ipv%d:", metrics.IPOf(f, factor.IP))
	mtu := 0
	for _, e := range run.Environments {
		if n, err := strconv.Atoi(e.Facts[path+"mtu"]); err == nil && slices.Contains(top.Routers, e.Node) {
			mtu = n
		}
	}

	var out []limit
	for _, e := range run.Environments {
		if mtu == 0 || e.Node != top.Near && e.Node != top.Far || !run.Node(e.Node).OwnMachine() {
			continue
		}

		device := "device:" + e.Facts[path+"device"]
		driver := e.Facts[device+":driver"]
		mbps, err := strconv.ParseFloat(e.Facts[device+":speed_mbps"], 64)
		if driver != "" && !record.VirtualDriver(driver) && err == nil && mbps > 0 {
			out = append(out, limit{"network card", e.Node, mbps * 1e6, 0, bytesAt(overhead.LayerWire),
				[]bool{true}, []bool{true}, mtu})
		}
	}

	return out
}

// headersOf is like metrics.HeadersOf, but does not count TCP timestamps unless both ends use them. A real
// machine may report this setting. Namespaces and guests have the kernel's default, which is on.
func headersOf(run *record.Run, f record.Factors) int {
	const setting = "net.ipv4.tcp_timestamps"
	headers := metrics.HeadersOf(f)
	top := metrics.TopologyOf(run, f)
	if top == nil || factor.Protocol.Is(f, factor.UDP) {
		return headers
	}

	for _, end := range []string{top.Near, top.Far} {
		level := ""
		for _, e := range run.Environments {
			if e.Node == end {
				level = e.Facts["sysctl:"+setting]
			}
		}

		for place, set := range factor.Name("sysctl:" + setting).Each(f) {
			if place == "" || place == end {
				level = set
			}
		}

		if level == "0" || level == "" && run.Node(end).OwnMachine() {
			return headers - overhead.TCPTimestamps
		}
	}

	return headers
}

// shaper returns the limit of a queue with a rate. It has no burst for cake, which has no bucket.
func shaper(q qdisc.Queue) limit {
	l := limit{kind: q.Kind, rate: q.RateBps(), count: bytesAt(overhead.LayerFrame)}
	if q.Kind == "cake" {
		l.count = cakeCounts(q)
		return l
	}

	l.burst = cmp.Or(float64(q.Values["burst"]), bucketOf(l.rate))
	return l
}

// cakeCounts returns a function that counts bytes as cake does (cake_calc_overhead in net/sched/sch_cake.c).
// If an overhead is set, cake counts the IP packet plus the overhead, otherwise the frame. The number is at
// least mpu. It is then rounded up to ATM cells (53 bytes for each 48) or, for PTM, increased by one byte for
// each 64 bytes or part of them.
func cakeCounts(q qdisc.Queue) func(overhead.Path, int) int {
	extra, given := q.Values["overhead"]
	return func(on overhead.Path, size int) int {
		return on.BytesBy(size, func(l3 int) int {
			n := on.Link.Frame(l3)
			if given {
				n = l3 + int(extra)
			}

			n = max(n, int(q.Values["mpu"]))
			switch q.Word("cells") {
			case "atm":
				n = (n + 47) / 48 * 53
			case "ptm":
				n += (n + 63) / 64
			}

			return n
		})
	}
}

// goodput returns the goodput that a limit allows a cell, or 0 if some of the cell's data does not pass the
// limit. It does not count acknowledgements. If the acknowledgements of the other direction pass the same
// limit, the result is only an upper bound.
func (l limit) goodput(f record.Factors, headers int) float64 {
	if l.mtu > 0 {
		f = f.Clone()
		factor.LinkMTU.Set(f, strconv.Itoa(l.mtu))
	}

	least := func(passes []bool) float64 {
		least := 0.0
		for _, inTunnel := range passes {
			on := metrics.PathOf(f, inTunnel)
			share := metrics.PayloadShare(f, headers, func(size int) int { return l.count(on, size) })
			g := l.rate * share
			if share > 0 && (least == 0 || g < least) {
				least = g
			}
		}
		return least
	}
	switch factor.Direction.Of(f) {
	case record.Down:
		return least(l.down)
	case record.Both:
		a := least(l.up)
		b := least(l.down)
		if a > 0 && b > 0 {
			return a + b
		}
		return 0
	}

	return least(l.up)
}

// passes returns one entry for each port through which data leaves a node. up holds the entries for data to
// the far end, and down the entries for data to the near end. An entry is true if a tunnel crosses the link
// at the port. If node is empty, passes returns the entries of the ports of all routers.
func passes(top *record.Topology, node, port string) (up, down []bool) {
	if top == nil {
		if node == "" {
			return []bool{false}, []bool{false}
		}
		return nil, nil
	}

	leaves := func(p record.TopoPort) bool {
		return (p.Node == node || node == "" && slices.Contains(top.Routers, p.Node)) &&
			(port == "" || port == p.Port)
	}
	tunnelled := false
	for _, l := range top.Links { // from near to far
		near := l.Ends[0]
		far := l.Ends[1]
		tunnelled = (tunnelled || near.Node == top.Tunnel[0]) && near.Node != top.Tunnel[1]
		if leaves(near) {
			up = append(up, tunnelled)
		}

		if leaves(far) {
			down = append(down, tunnelled)
		}
	}

	return up, down
}

// TesterMetric returns the metric of a cell that can be compared with the tester's ceiling.
func TesterMetric(f record.Factors) string {
	switch {
	case factor.Engine.Is(f, "flows"):
		return metrics.FlowRate
	case factor.Engine.Is(f, "requests"):
		return metrics.RequestRate
	}
	return metrics.RateOf(f)
}

// ControlOf reports whether control is the control cell of another cell. A control cell has the same load
// through the same tunnel, with no router between the ends. ControlOf ignores the factors of the other cell
// that need a router.
func ControlOf(control, cell record.Factors) bool {
	if !factor.Topology.Is(control, "direct") || factor.Topology.Is(cell, "direct") {
		return false
	}

	control = control.Clone()
	factor.Topology.Set(control, factor.Topology.Of(cell))
	factor.NAT.Set(control, factor.NAT.Of(cell))
	return cell.Has(control)
}

// framesOfACore is a frame rate that no known core exceeds. If neither the plan nor a ceiling of the tester
// gives a maximum, a search with the engine xdp starts at this rate.
const framesOfACore = 10e6

// TesterRate returns the tester's ceiling for a cell, in packets, bits or new connections per second. If it
// was not measured, TesterRate returns framesOfACore for the engine xdp, and 0 otherwise.
func TesterRate(run *record.Run, f record.Factors) float64 {
	_, rate := TesterCeiling(run, f)
	if rate == 0 && factor.Engine.Is(f, "xdp") {
		return framesOfACore
	}
	return rate
}

// TesterCeiling returns the tester's ceiling that fits a cell best. It must have the same engine, protocol
// and link and, for flows and requests, the same sizes. Of several such ceilings, TesterCeiling returns the
// one whose number of streams or packet size is nearest by ratio. IMIX has a separate ceiling, because it is
// never sent in GSO batches.
func TesterCeiling(run *record.Run, f record.Factors) (kind string, value float64) {
	engine := ""
	udp := factor.Protocol.Is(f, factor.UDP)
	if factor.Engine.Is(f, "flows", "requests", "xdp") {
		engine = factor.Engine.Of(f)
	}

	want := float64(factor.Streams.Number(f))
	switch {
	case udp:
		want = float64(factor.PacketSize.Number(f))
	case engine == "flows" && (factor.ConnectionRate.In(f) || run.Design.Method.Search != nil):
		want = math.MaxInt32 // the load opens as many streams as it needs
	}

	jumbo := factor.LinkMTU.Number(f)
	if jumbo <= 1500 {
		jumbo = 0
	}

	nearest := math.Inf(1)
	for _, c := range run.Ceilings {
		switch words := strings.Fields(strings.ToLower(c.Kind)); {
		case c.Offload != "" && (!factor.Offload.Is(f, c.Offload) || !udp && c.MTU != jumbo), udp &&
			(c.UDPMode == factor.UDPCount) != factor.UDPMode.Is(f, factor.UDPCount), c.Engine != engine,
			c.IMIX != factor.PacketSize.Is(f, factor.IMIX), engine == "" && !slices.Contains(words,
				factor.Protocol.Of(f)), (c.Unit == "pps") != udp, engine == "flows" && !factor.FlowSize.Is(f,
				c.FlowSize), engine == "requests" && (c.RequestSize != factor.RequestSize.Number(f) ||
				c.ResponseSize != factor.ResponseSize.Number(f)):
			continue
		}

		size := c.Streams // or the packet size with which the ceiling was measured
		if udp {
			size = c.PacketSize
		}

		off := math.Abs(math.Log(float64(max(size, 1)) / max(want, 1)))
		if kind == "" || off < nearest {
			kind = c.Kind
			value = c.Value
			nearest = off
		}
	}

	return kind, value
}

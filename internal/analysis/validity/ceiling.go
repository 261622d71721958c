package validity

import (
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/metrics"
	"github.com/chokepoint-lab/chokepoint/internal/factor"
	"github.com/chokepoint-lab/chokepoint/internal/overhead"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/unit"
)

// ceiling is what a cell's goodput can be compared with.
type ceiling struct {
	Kind       string
	Bps        float64 // of goodput; 0 = none
	Efficiency float64 // payload ÷ wire bytes on the link with the most headers
}

// CeilingOf computes a cell's ceiling. Only a shaper's rate, or a rate that the lab states, is real: a
// virtual link has none.
func CeilingOf(run *record.Run, f record.Factors) ceiling {
	tunnelled := metrics.PathOf(f, true)
	c := ceiling{Kind: "none: virtual link", Efficiency: metrics.PayloadShare(f, tunnelled,
		overhead.LayerWire)}
	if tested := run.Tested(); tested.CPUs != record.CPUsShared && !tested.Guest() {
		c.Kind = "none: no link rate is known"
	}
	top := metrics.TopologyOf(run, f)
	for place, level := range factor.Queue.Each(f) {
		kind, rate, ok := shaper(level)
		if !ok {
			continue
		}
		node, port, _ := strings.Cut(place, ".")
		up, down := passes(top, node, port)
		if limit := shapedGoodput(f, rate, up, down); limit > 0 && (c.Bps == 0 || limit < c.Bps) {
			c.Bps = limit
			c.Kind = kind + " " + unit.Bitrate(rate).String()
			if node != "" {
				c.Kind += " on " + strings.TrimSuffix(node+"/"+port, "/")
			}
		}
	}
	return c
}

// shaper reads the level of a queue that sets a rate, such as "tbf rate 300M burst 128k".
func shaper(level string) (kind string, rate float64, ok bool) {
	words := strings.FieldsFunc(level, func(r rune) bool { return r == ' ' || r == '=' || r == ',' })
	if len(words) < 3 {
		return "", 0, false
	}
	for i, w := range words[:len(words)-1] {
		if w != "rate" && w != "bandwidth" {
			continue
		}
		if r, err := unit.ParseBitrate(words[i+1]); err == nil && r > 0 {
			return words[0], float64(r), true
		}
	}
	return "", 0, false
}

// shapedGoodput is the goodput that shapers of a rate leave to a cell, or 0 if some of its data passes
// none. tbf and htb count bytes of the frame, see overhead.Link.Frame; acknowledgements of the other
// direction are left out, so it is an upper bound where they share a shaper with data.
func shapedGoodput(f record.Factors, rate float64, up, down []bool) float64 {
	limit := func(passes []bool) float64 {
		least := 0.0
		for _, inTunnel := range passes {
			share := metrics.PayloadShare(f, metrics.PathOf(f, inTunnel), overhead.LayerFrame)
			if l := rate * share; share > 0 && (least == 0 || l < least) {
				least = l
			}
		}
		return least
	}
	switch factor.Direction.Of(f) {
	case record.Down:
		return limit(down)
	case record.Both:
		if a, b := limit(up), limit(down); a > 0 && b > 0 {
			return a + b
		}
		return 0
	}
	return limit(up)
}

// passes lists how often data leaves through a port when it goes up (to far) and down: one entry per pass,
// true where a tunnel is laid over the port's link. A factor without a place stands for every port of the
// routers.
func passes(top *record.Topology, node, port string) (up, down []bool) {
	if top == nil {
		if node == "" {
			return []bool{false}, []bool{false}
		}
		return nil, nil
	}
	route := routeOf(top)
	end := func(name string) int {
		return slices.IndexFunc(route, func(h hop) bool { return h.node == name })
	}
	first, last := end(top.Tunnel[0]), end(top.Tunnel[1])
	for i, h := range route {
		if h.node != node && (node != "" || !slices.Contains(top.Routers, h.node)) {
			continue
		}
		if h.next != "" && (port == "" || port == h.next) {
			up = append(up, first >= 0 && i >= first && i < last)
		}
		if h.back != "" && (port == "" || port == h.back) {
			down = append(down, first >= 0 && i > first && i <= last)
		}
	}
	return up, down
}

// hop is a node on the path from near to far with its ports on that path.
type hop struct{ node, back, next string }

// routeOf finds the shortest path from near to far over the topology's links.
func routeOf(top *record.Topology) []hop {
	type step struct{ from, out, in string } // node, port left through, port arrived at
	came := map[string]step{top.Near: {}}
	queue := []string{top.Near}
	for len(queue) > 0 {
		at := queue[0]
		queue = queue[1:]
		for _, l := range top.Links {
			for side := range l.Ends {
				a, b := l.Ends[side], l.Ends[1-side]
				if _, seen := came[b.Node]; a.Node == at && !seen {
					came[b.Node] = step{at, a.Port, b.Port}
					queue = append(queue, b.Node)
				}
			}
		}
	}
	if _, reached := came[top.Far]; !reached {
		return nil
	}
	var route []hop
	next := ""
	for at := top.Far; ; at = came[at].from {
		s := came[at]
		route = append([]hop{{at, s.in, next}}, route...)
		if at == top.Near {
			return route
		}
		next = s.out
	}
}

// TesterMetric is what of a cell is compared with the tester's own ceiling.
func TesterMetric(f record.Factors) string {
	switch {
	case factor.Engine.Is(f, "flows"):
		return metrics.FlowRate
	case factor.Engine.Is(f, "requests"):
		return metrics.RequestRate
	}
	return metrics.RateOf(f)
}

// framesOfACore is more frames per second than one core makes, on any machine known: where a search for the
// xdp engine begins if neither the plan says nor the tester's own ceiling is known.
const framesOfACore = 10e6

// TesterRate is what the tester alone can reach for a cell, in packets, bits or new connections per second,
// or 0 where nothing was measured. Of the xdp engine it then is a bound.
func TesterRate(run *record.Run, f record.Factors) float64 {
	_, rate := TesterCeiling(run, f)
	if rate == 0 && factor.Engine.Is(f, "xdp") {
		return framesOfACore
	}
	return rate
}

// TesterCeiling picks the tester's own ceiling that is closest to a cell: by engine, protocol and link, of
// flows and requests by their sizes too, then by streams or packet size, whichever differs by the smallest
// factor. IMIX, which is never sent in UDP GSO batches, has a ceiling of its own.
func TesterCeiling(run *record.Run, f record.Factors) (kind string, value float64) {
	engine, udp := "", factor.Protocol.Is(f, factor.UDP)
	if factor.Engine.Is(f, "flows", "requests", "xdp") {
		engine = factor.Engine.Of(f)
	}
	want := float64(factor.Streams.Number(f))
	switch {
	case udp:
		want = float64(factor.PacketSize.Number(f))
	case engine == "flows" && (factor.ConnectionRate.In(f) || run.Design.Method.Search != nil):
		want = math.MaxInt32 // as many at once as it takes
	}
	jumbo := factor.LinkMTU.Number(f)
	if jumbo <= 1500 {
		jumbo = 0
	}
	nearest := math.Inf(1)
	for _, c := range run.Ceilings {
		switch words := strings.Fields(strings.ToLower(c.Kind)); {
		case c.Offload != "" && (!factor.Offload.Is(f, c.Offload) || !udp && c.LinkMTU != jumbo), udp &&
			(c.UDPMode == factor.UDPCount) != factor.UDPMode.Is(f, factor.UDPCount), c.Engine != engine,
			c.IMIX != factor.PacketSize.Is(f, factor.IMIX), engine == "" && !slices.Contains(words,
				factor.Protocol.Of(f)), (c.Unit == "pps") != udp, engine == "flows" && !factor.FlowSize.Is(f,
				c.FlowSize), engine == "requests" && (c.RequestSize != factor.RequestSize.Number(f) ||
				c.ResponseSize != factor.ResponseSize.Number(f)):
			continue
		}
		if off := math.Abs(math.Log(sizeOf(c, udp) / max(want, 1))); kind == "" || off < nearest {
			kind, value, nearest = c.Kind, c.Value, off
		}
	}
	return kind, value
}

// sizeOf is the number of streams or the packet size that a ceiling was measured with. Those of older runs
// say it in their name alone.
func sizeOf(c record.Ceiling, udp bool) float64 {
	n := c.Streams
	if udp {
		n = c.PacketSize
	}
	if n == 0 {
		for _, word := range strings.FieldsFunc(c.Kind, func(r rune) bool { return r < '0' || r > '9' }) {
			n, _ = strconv.Atoi(word)
		}
	}
	return float64(max(n, 1))
}

package validity

import (
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/metrics"
	"github.com/chokepoint-lab/chokepoint/internal/factor"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

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

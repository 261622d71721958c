package validity

import (
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/metrics"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// TesterMetric is what of a cell is compared with the tester's own ceiling.
func TesterMetric(f record.Factors) string {
	switch {
	case f["engine"] == "flows":
		return metrics.FlowRate
	case f["engine"] == "requests":
		return metrics.RequestRate
	case f["protocol"] == "udp":
		return metrics.PacketRate
	}
	return metrics.Goodput
}

// framesOfACore is more frames per second than one core makes, on any machine known: where a search for the
// xdp engine begins if neither the plan says nor the tester's own ceiling is known.
const framesOfACore = 10e6

// TesterRate is what the tester alone can reach for a cell, in packets, bits or new connections per second,
// or 0 where nothing was measured. Of the xdp engine it then is a bound.
func TesterRate(run *record.Run, f record.Factors) float64 {
	_, rate := TesterCeiling(run, f)
	if rate == 0 && f["engine"] == "xdp" {
		return framesOfACore
	}
	return rate
}

// TesterCeiling picks the tester's own ceiling that is closest to a cell: by engine, protocol and link, of
// flows and requests by their sizes too, then by streams or packet size, whichever differs by the smallest
// factor. IMIX, which is never sent in trains, has a ceiling of its own.
func TesterCeiling(run *record.Run, f record.Factors) (kind string, value float64) {
	engine := ""
	switch f["engine"] {
	case "flows", "requests", "xdp":
		engine = f["engine"]
	}
	udp := f["protocol"] == "udp"
	want, _ := strconv.ParseFloat(f["streams"], 64)
	switch {
	case udp:
		want, _ = strconv.ParseFloat(f["packet_size"], 64)
	case engine == "flows" && (f["connection_rate"] != "" || run.Design.Method.Search != nil):
		want = math.MaxInt32 // as many at once as it takes
	}
	jumbo, _ := strconv.Atoi(f["link_mtu"])
	if jumbo <= 1500 {
		jumbo = 0
	}
	nearest := math.Inf(1)
	for _, c := range run.Ceilings {
		words := strings.Fields(strings.ToLower(c.Kind))
		switch {
		case c.Offload != "" && (c.Offload != f["offload"] || !udp && c.LinkMTU != jumbo), udp &&
			(c.UDPMode == record.UDPCount) != (f["udp_mode"] == record.UDPCount):
			continue
		case c.Engine != engine, c.IMIX != (f["packet_size"] == record.IMIX), engine == "" &&
			!slices.Contains(words, f["protocol"]), (c.Unit == "pps") != udp:
			continue
		case engine == "flows" && c.FlowSize != f["flow_size"]:
			continue
		case engine == "requests" && (strconv.Itoa(c.RequestSize) != f["request_size"] ||
			strconv.Itoa(c.ResponseSize) != f["response_size"]):
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

package metrics

import (
	"slices"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/cipher"
	"github.com/chokepoint-lab/chokepoint/internal/factor"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// Absent explains why a metric cannot exist in a cell of a design. It returns "" if the metric can exist.
func Absent(metric string, d record.Design, cell factor.Cell) string {
	among := func(all []record.Metric) bool {
		return slices.ContainsFunc(all, func(m record.Metric) bool { return m.Name == metric })
	}
	of := func(stems ...string) bool {
		return slices.ContainsFunc(stems, func(s string) bool { return strings.HasPrefix(metric, s) })
	}
	udp := factor.Protocol.Is(cell, factor.UDP)
	sends := factor.Sends(cell)
	switch {
	case sends && among(cipherMetrics()):
		return "it is of a cipher, which engine cipher measures"
	case !sends && of(CipherRate, CyclesPerByte) && !cipher.BlockFactor.In(cell),
		!sends && of(CipherOps, CyclesPerOp) && cipher.BlockFactor.In(cell):
		return "ciphers and hashes have a rate in bits, keys have operations"
	case !sends && !among(slices.Concat(cipherMetrics(), loadMetrics(), dropMetrics())):
		return "engine cipher sends nothing"
	case !udp && of(PacketRate, offeredRate, LossRatio, UnsentRatio, duplicates, Reordered, delayVariation,
		longestGap, oneWayP50, oneWayP99):
		return "it is of UDP packets, and protocol is " + factor.Protocol.Of(cell)
	case udp && among(tcpMetrics()):
		return "it is of TCP, and protocol is udp"
	case of(GoodputUp, GoodputDown) && !factor.Direction.Is(cell, factor.Both):
		return "it is of both directions at once, and direction is " + factor.Direction.Of(cell)
	case among(searchMetrics()) && !d.Searches(record.Assignment{Kind: record.RowLoad, Factors: cell}):
		return "the plan has no method.search of it"
	case of("rtt_loaded_", RTTAdded) && !d.Measure.LatencyLoaded:
		return "measure.latency_loaded is false"
	case of("rtt_idle_", RTTAdded, PowerIdle) && d.Measure.LatencyIdle == "off":
		return "measure.latency_idle is off"
	case of("flow") && among(flowMetrics()) && !factor.FlowSize.In(cell):
		return "it is of short flows, which engine flows makes"
	case of("request") && among(flowMetrics()) && !factor.RequestSize.In(cell):
		return "it is of requests, which engine requests makes"
	case !d.Measure.Telemetry && (among(dropMetrics()) || of(record.HostNode+"_", "router_", "client_",
		"server_")):
		return "measure.telemetry is false"
	}

	return ""
}

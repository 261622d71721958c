package shortflow

import (
	"fmt"

	"github.com/chokepoint-lab/chokepoint/internal/factor"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// Factors declares what a cell says of short flows.
func (Flows) Factors() []factor.Declaration {
	flows := factor.Beside(factor.Engine, "engine is not flows",
		func(e string) bool { return e == (Flows{}).Name() })
	return []factor.Declaration{
		{
			Name: "flow_size", Unit: "bytes, exponential MEAN, websearch, datamining", Kind: factor.Load,
			Base: true, Default: "10000", Dependent: true,
			Doc:   "payload of each short flow, or the distribution from which it is drawn",
			Parse: FlowSizeLevel, Applies: flows, Conflict: flowConflict,
		},
		{
			Name: "connection_rate", Unit: "flows/s", Kind: factor.Load, Applies: flows,
			Parse: factor.ConnectionRateLevel,
			Doc: "short flows that are begun each second, however slow the answers; each stream begins the " +
				"next when one has ended if not given",
		},
		{
			Name: "arrivals", Kind: factor.Load, Levels: []string{record.Exponential, record.Isochronous},
			Parse: factor.Choice(record.Exponential, record.Isochronous),
			Doc:   "times between flows that are begun at a rate; exponential if not given",
			Applies: factor.Beside(factor.ConnectionRate, "connection_rate is not given",
				func(rate string) bool { return rate != "" }),
		},
	}
}

// Factors declares what a cell says of requests.
func (Requests) Factors() []factor.Declaration {
	requests := factor.Beside(factor.Engine, "engine is not requests",
		func(e string) bool { return e == (Requests{}).Name() })
	return []factor.Declaration{
		{
			Name: "request_size", Unit: "bytes", Doc: "payload of each request", Kind: factor.Load,
			Base:    true,
			Default: "100", Parse: factor.Whole(1, mostMessage), Applies: requests, Dependent: true,
			Conflict: func(c factor.Cell) string {
				if reason := flowConflict(c); reason != "" || factor.Direction.Is(c, factor.Both) {
					return reason
				}
				return "requests go one way and responses the other: write direction: both"
			},
		},
		{
			Name: "response_size", Unit: "bytes", Doc: "payload of each response", Kind: factor.Load,
			Base: true, Default: "1000", Parse: factor.Whole(1, mostMessage), Applies: requests,
			Dependent: true,
		},
	}
}

// flowConflict: flows and requests are TCP, as fast as it goes.
func flowConflict(c factor.Cell) string {
	switch {
	case !factor.Protocol.Is(c, factor.TCP):
		return fmt.Sprintf("engine %s needs protocol: tcp", factor.Engine.Of(c))
	case factor.Pacing.In(c):
		return fmt.Sprintf("engine %s does not pace TCP", factor.Engine.Of(c))
	}
	return ""
}

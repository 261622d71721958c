package plan

import (
	"fmt"

	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/unit"
)

// Engines whose load are flows or requests instead of streams.
const (
	engineFlows    = "flows"
	engineRequests = "requests"
)

const (
	mostMessage        = 1 << 30
	mostConnectionRate = 1e7
)

// flowFactors are those of the engines flows and requests.
func flowFactors(o BaseOptions) []Factor {
	if o.FlowSize == nil {
		return nil
	}
	flows := onlyWith("engine", "engine is not flows", func(e string) bool { return e == engineFlows })
	requests := onlyWith("engine", "engine is not requests",
		func(e string) bool { return e == engineRequests })
	return []Factor{
		{
			Name: "flow_size", Unit: "bytes, exponential MEAN, websearch, datamining", Base: true,
			Default: "10000",
			Doc:     "payload of each short flow, or the distribution from which it is drawn",
			Parse:   o.FlowSize, Applies: flows, Conflict: flowConflict,
		},
		{
			Name: "connection_rate", Unit: "flows/s", Parse: parseConnectionRate, Applies: flows,
			Doc: "short flows that are begun each second, however slow the answers; each stream begins the " +
				"next when one has ended if not given",
		},
		{
			Name: "arrivals", Levels: []string{record.Exponential, record.Isochronous},
			Parse: Choice(record.Exponential, record.Isochronous),
			Doc:   "times between flows that are begun at a rate; exponential if not given",
			Applies: func(c record.Factors) (bool, string) {
				return c["connection_rate"] != "", "connection_rate is not given"
			},
		},
		{
			Name: "request_size", Unit: "bytes", Doc: "payload of each request", Base: true, Default: "100",
			Parse: Whole(1, mostMessage), Applies: requests, Conflict: flowConflict,
		},
		{
			Name: "response_size", Unit: "bytes", Doc: "payload of each response", Base: true,
			Default: "1000",
			Parse:   Whole(1, mostMessage), Applies: requests,
		},
	}
}

// flowConflict: flows and requests are TCP, as fast as it goes.
func flowConflict(c record.Factors) string {
	switch {
	case c["protocol"] != "tcp":
		return fmt.Sprintf("engine %s needs protocol: tcp", c["engine"])
	case c["pacing"] != "":
		return fmt.Sprintf("engine %s does not pace TCP", c["engine"])
	case c["engine"] == engineRequests && c["direction"] != record.Both:
		return "requests go one way and responses the other: write direction: both"
	}
	return ""
}

// parseConnectionRate reads how many connections a second are begun.
func parseConnectionRate(text string) (string, error) {
	rate, err := unit.ParsePacketRate(text)
	if err != nil || rate < 1 || rate > mostConnectionRate {
		return "", &LevelError{Text: text,
			Want: "a rate from 1 to 10M connections a second, such as 500 or 2k"}
	}
	return rateText(float64(rate)), nil
}

// flowSearchConflict is why the rate of new connections cannot be looked for.
func flowSearchConflict(s *record.Search, cell record.Factors) string {
	switch {
	case cell["connection_rate"] != "":
		return "the rate is what the search looks for: leave out connection_rate"
	case s.MaxHz == 0:
		return "a search for new connections needs method.search.max_connections"
	case s.Goals[0].MaxDelay > 0:
		return "max_added_delay is for packets and paced TCP: new connections are late by themselves"
	}
	return ""
}

// Package shortflow offers many short TCP flows, or requests and responses on persistent connections.
package shortflow

import (
	"cmp"
	"encoding/binary"
	"fmt"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/factor"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/trial/traffic"
)

// Flows opens a TCP connection for each flow. The sizes of flows are drawn from a distribution. Either
// each stream starts the next flow when the previous one has ended, or flows start at a rate, regardless
// of how fast they end. The node side requires Linux.
type Flows struct{ traffic.Plain[Flows] }

// Name returns "flows".
func (Flows) Name() string { return "flows" }

// Requests sends requests on persistent connections. Each connection has one request at a time and waits
// for its response. The node side requires Linux.
type Requests struct{ traffic.Plain[Requests] }

// Name returns "requests".
func (Requests) Name() string { return "requests" }

// Default sizes of flows, requests and responses, in bytes.
const (
	defaultFlowSize = "10000"
	defaultRequest  = 100
	defaultResponse = 1000
)

// maxOpenFlows is the maximum number of simultaneous connections of an opener that starts flows at a rate.
// Further flows wait, and their durations include the waiting time.
const maxOpenFlows = 4096

// maxConnectionRate is the maximum rate of new connections. It is far above what sockets can handle.
const maxConnectionRate = 1e7

// Asked returns a load of requests, because the default load, a TCP stream, does not consist of requests.
func (e Requests) Asked() []traffic.Asked {
	return []traffic.Asked{{Load: record.Load{Protocol: "tcp", Direction: record.Both}}}
}

// CheckLoad permits only TCP without a rate of bytes.
func (Flows) CheckLoad(load record.Load) check.Answer {
	if _, err := ParseFlowSizes(FlowSizeOf(load)); err != nil {
		return check.Not("flow size %v", err)
	}

	if !(load.ConnectionRate >= 0 && load.ConnectionRate <= maxConnectionRate) {
		return check.Not("%g connections a second: want up to %g", load.ConnectionRate,
			float64(maxConnectionRate))
	}
	return checkUnpacedTCP(load)
}

// CheckLoad permits only TCP in both directions without a rate of bytes.
func (Requests) CheckLoad(load record.Load) check.Answer {
	if load.Direction != record.Both {
		return check.Not("direction %s: requests go one way and responses the other, so want both",
			load.Direction)
	}

	for _, size := range []int{load.RequestSize, load.ResponseSize} {
		if size < 0 || size > maxMessage {
			return check.Not("a message of %d bytes: want up to %d", size, maxMessage)
		}
	}
	return checkUnpacedTCP(load)
}

// maxMessage limits a request or response, in bytes.
const maxMessage = 1 << 30

func checkUnpacedTCP(load record.Load) check.Answer {
	switch {
	case load.Protocol != "tcp":
		return check.Not("protocol %q: want tcp", load.Protocol)
	case load.RateBps > 0:
		return check.Not("its connections are not paced; the engine native does that")
	}
	return traffic.CheckLoad(load)
}

// FlowSizeOf returns the flow size of a load, or the default.
func FlowSizeOf(load record.Load) string { return cmp.Or(load.FlowSize, defaultFlowSize) }

// MessageSizes returns the sizes of a request and of its response, in bytes.
func MessageSizes(load record.Load) (request, response int64) {
	return int64(cmp.Or(load.RequestSize, defaultRequest)), int64(cmp.Or(load.ResponseSize, defaultResponse))
}

// The opener sends a header before the payload: the number of the flow, the number of payload bytes that
// follow, and the number of bytes that the listener must send. The answer begins with the number of bytes
// received, and the number of received bytes that differ from the bytes sent.
const (
	flowHeaderSize = 24
	answerSize     = 16
)

type flowHeader struct{ number, gives, wants uint64 }

func (a flowHeader) put(b []byte) {
	binary.BigEndian.PutUint64(b, a.number)
	binary.BigEndian.PutUint64(b[8:], a.gives)
	binary.BigEndian.PutUint64(b[16:], a.wants)
}

func readFlowHeader(b []byte) (a flowHeader, ok bool) {
	if len(b) != flowHeaderSize {
		return flowHeader{}, false
	}

	a = flowHeader{binary.BigEndian.Uint64(b), binary.BigEndian.Uint64(b[8:]),
		binary.BigEndian.Uint64(b[16:])}
	if a.gives > maxFlowBytes || a.wants > maxFlowBytes {
		return flowHeader{}, false
	}

	return a, true
}

// flowPosition returns the position in the pattern at which the payload of a flow begins. Each flow has a
// separate range.
func flowPosition(number uint64) uint64 { return number << 32 }

func putAnswer(b []byte, arrived, wrong uint64) {
	binary.BigEndian.PutUint64(b, arrived)
	binary.BigEndian.PutUint64(b[8:], wrong)
}

// readAnswer returns the number of payload bytes that the listener received.
func readAnswer(b []byte) (arrived uint64) { return binary.BigEndian.Uint64(b) }

// Factors declares the factors of engine flows.
func (Flows) Factors() []factor.Declaration {
	flows := factor.Beside(factor.Engine, "engine is not flows",
		func(e string) bool { return e == (Flows{}).Name() })
	return []factor.Declaration{
		{
			Name:      "flow_size",
			Unit:      "bytes, exponential MEAN, websearch, datamining",
			Kind:      factor.Load,
			Base:      true,
			Default:   "10000",
			Dependent: true,
			Doc:       "payload of each short flow, or the distribution from which it is drawn",
			Parse:     FlowSizeLevel,
			Applies:   flows,
			Conflict:  flowConflict,
		},
		{
			Name:    "connection_rate",
			Unit:    "flows/s",
			Kind:    factor.Load,
			Applies: flows,
			Parse:   factor.ConnectionRateLevel,
			Doc: "short flows started per second, even if the answers are slow; if not given, each " +
				"stream starts a flow when its previous one has ended",
		},
		{
			Name:   "arrivals",
			Kind:   factor.Load,
			Levels: []string{record.Exponential, record.Isochronous},
			Parse:  factor.Choice(record.Exponential, record.Isochronous),
			Doc: "distribution of the intervals between the starts of flows, with connection_rate; " +
				"exponential if not given",
			Applies: factor.Beside(factor.ConnectionRate, "connection_rate is not given",
				func(rate string) bool { return rate != "" }),
		},
	}
}

// Factors declares the factors of engine requests.
func (Requests) Factors() []factor.Declaration {
	requests := factor.Beside(factor.Engine, "engine is not requests",
		func(e string) bool { return e == (Requests{}).Name() })
	return []factor.Declaration{
		{
			Name:      "request_size",
			Unit:      "bytes",
			Doc:       "payload of each request",
			Kind:      factor.Load,
			Base:      true,
			Default:   "100",
			Parse:     factor.Whole(1, maxMessage),
			Applies:   requests,
			Dependent: true,
			Conflict: func(c factor.Cell) string {
				reason := flowConflict(c)
				if reason != "" || factor.Direction.Is(c, factor.Both) {
					return reason
				}
				return "requests go one way and responses the other: write direction: both"
			},
		},
		{
			Name:      "response_size",
			Unit:      "bytes",
			Doc:       "payload of each response",
			Kind:      factor.Load,
			Base:      true,
			Default:   "1000",
			Parse:     factor.Whole(1, maxMessage),
			Applies:   requests,
			Dependent: true,
		},
	}
}

// flowConflict returns an error text unless the cell is TCP at full rate.
func flowConflict(c factor.Cell) string {
	switch {
	case !factor.Protocol.Is(c, factor.TCP):
		return fmt.Sprintf("engine %s needs protocol: tcp", factor.Engine.Of(c))
	case factor.Pacing.In(c):
		return fmt.Sprintf("engine %s does not pace TCP", factor.Engine.Of(c))
	}
	return ""
}

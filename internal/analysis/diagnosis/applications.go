package diagnosis

import (
	"cmp"
	"strconv"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/metrics"
	"github.com/chokepoint-lab/chokepoint/internal/factor"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// tcpShares holds shares of the window. busy is the share in which TCP had data to send. rwnd and sndbuf are
// the shares in which the receive window or the send buffer stopped it.
type tcpShares struct{ busy, rwnd, sndbuf float64 }

func tcpTimes(o *Observation) (s tcpShares, why string) {
	if !o.IsTCP() {
		return s, "the load is not TCP"
	}

	busy, ok := o.Metric(metrics.BusyRatio) // the engine reports all three or none
	if !ok {
		return s, cmp.Or(o.Metrics.Missing[metrics.BusyRatio], "the engine reports no TCP_INFO")
	}

	return tcpShares{busy, o.value(metrics.RwndLimited), o.value(metrics.SndbufLimited)}, ""
}

// buffers returns the sizes of the sender's and the receiver's socket buffers in bytes, as their kernels
// report them. A size of 0 means unknown.
func (o *Observation) buffers() (send, receive float64) {
	read := func(key string) float64 {
		v, _ := strconv.ParseFloat(o.Traffic.Details[key], 64)
		return v
	}
	switch o.load().Direction {
	case record.Down:
		return read("far.sndbuf_bytes"), read("near.rcvbuf_bytes")
	case record.Both:
		return 0, 0
	}
	return read("near.sndbuf_bytes"), read("far.rcvbuf_bytes")
}

// inFlight returns the bytes that each flow had in flight (goodput per flow × RTT), and TCP's RTT in ns.
func (o *Observation) inFlight() (bytes, rtt float64) {
	got := o.goodput()
	rtt = o.value("rtt_tcp_ns")
	return got / 8 * rtt / 1e9 / float64(max(len(o.Traffic.Flows), 1)), rtt
}

// zeroWindows returns how often per second the receiver advertised a zero window. ok is false if the counters
// are missing.
func (o *Observation) zeroWindows() (hz float64, e Fact, ok bool) {
	_, receiver := o.Ends()
	n, ok := o.grew(receiver, "TcpExtTCPToZeroWindowAdv TcpExtTCPWantZeroWindowAdv")
	hz = o.perSecond(n)
	return hz, fact("TcpExtTCPToZeroWindowAdv", receiver, "socket", hz,
		"the receiver advertised a zero window %g times per second"), ok
}

// flightFact reports the result of inFlight for one end.
func flightFact(node string, bytes, rtt float64) Fact {
	return fact("bytes_in_flight", node, "socket", bytes, "%g kB per flow were in flight in TCP's RTT of %n",
		bytes/1e3, rtt)
}

func rwndFact(s tcpShares) Fact {
	return seen(metrics.RwndLimited, s.rwnd, "the receive window limited TCP for %h of the time")
}

// streamSteps returns an experiment with two to four times as many connections.
func streamSteps(expect float64, why string) func(*Observation) Experiment {
	return func(o *Observation) Experiment {
		return scaled(factor.Streams, float64(max(o.load().Streams, 1)), expect, why, 2, 3, 4)
	}
}

package diagnosis

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/factor"
	"github.com/chokepoint-lab/chokepoint/internal/qdisc"
)

// longQueue is the queue level that replaces a rate limit.
const longQueue = "pfifo limit 1000"

// Places where an experiment changes something.
const (
	FromTester = "tester" // the traffic that the tester sends
	FromEnd    = "end"    // a setting of an end
	FromRouter = "router"
)

// stepShares lists the shares of a resource that steps leave. Large steps exceed the noise of a window. The
// smallest share detects slack of up to half of the resource.
var stepShares = []float64{.85, .7, .5}

// raised lists the factors by which steps raise a level of the plan, so that the rate meets the next limit,
// whether it is near or far.
var raised = []float64{8, 1024}

// Kinds of limits. All limits of a kind respond to the same steps.
const (
	ByRate   = "rate"   // bits per second, whatever the packets and flows
	ByPacket = "packet" // packets per second, for lack of CPU time
	byWindow = "window" // bytes in flight per flow
	byFlow   = "flow"   // limit of each flow
)

// takenWhole lists the faults that can only be removed entirely. If such a fault is the cause, the rate must
// rise without it.
const takenWhole = "log_flood cpu_hog cpu_tightening reorder loss tiny_queue backlog budget tunnel_queue"

// statedTests returns experiments that scale a level of the cell.
func (o *Observation) statedTests(r Rule) (out []Experiment) {
	cell := o.Row.Factors
	for _, wanted := range r.Planted {
		for _, name := range cell.Names() {
			plain, _ := factor.Split(name)
			if plain != wanted && !hasFault(cell[name], wanted) {
				continue
			}

			e := o.statedTest(name, wanted)
			if len(e.Steps) >= len(stepShares) || among(wanted, takenWhole) && e.Fix != "" {
				out = append(out, e)
			}
		}
	}
	return out
}

// statedTest returns an experiment that scales the resource that a level of the cell sets, or removes the
// level if it cannot be scaled.
func (o *Observation) statedTest(name, wanted string) Experiment {
	level := o.Row.Factors[name]
	none := cmp.Or(o.Run.Design.Catalogue.Of(name).Without, &factor.Without{}).Level
	if _, rated := ratedQueue(level); none == "" && rated {
		none = longQueue
	}

	if hasFault(level, wanted) {
		none = cmp.Or(replaceFault(level, wanted, ""), none)
	}

	e := Experiment{
		Factor: name,
		From:   FromRouter,
		Expect: 1,
		Fix:    none,
		Why:    "if this is the limit, the rate falls in proportion",
	}
	if among(wanted, takenWhole) {
		e.Why = "without what limits, the rate rises"
		return e
	}

	shares := stepShares
	if wanted != "cpu_quota" { // a quota is a share of the whole and cannot exceed it
		shares = slices.Concat(stepShares, raised)
	}

	for _, share := range shares {
		amount := share
		if wanted == "rules" {
			amount = 1 / share // more rules mean a lower packet rate
		}

		if scaled, ok := scaledFault(level, wanted, amount); ok {
			e.Steps, e.Resource = append(e.Steps, scaled), append(e.Resource, share)
		}
	}

	return e
}

// hasFault reports whether a level of the factor "fault" contains the named fault.
func hasFault(level, name string) bool { return strings.Contains("+"+level, "+"+name+"=") }

// faultAmount returns the amount of the named fault in a level of the factor "fault".
func faultAmount(level, name string) string {
	_, rest, _ := strings.Cut("+"+level, "+"+name+"=")
	amount, _, _ := strings.Cut(rest, "+")
	return amount
}

// replaceFault replaces the named fault in a level of the factor "fault".
func replaceFault(level, name, by string) string {
	fault := "+" + name + "=" + faultAmount(level, name)
	return strings.TrimPrefix(strings.Replace("+"+level, fault, by, 1), "+")
}

// scaledFault returns a level with its amount multiplied by share. For the factor "fault", this is the amount
// of the named fault.
func scaledFault(level, name string, share float64) (string, bool) {
	if !hasFault(level, name) {
		return scaledLevel(level, share, 1000)
	}

	thousand := 1000.
	if strings.HasSuffix(name, "_buffer") {
		thousand = 1024
	}

	scaled, ok := scaledLevel(faultAmount(level, name), share, thousand)
	return replaceFault(level, name, "+"+name+"="+scaled), ok
}

var amountForm = check.Pattern(`^([0-9]+(?:\.[0-9]+)?)([kKmMgG]?|%)$`)

// ratedQueue returns the queue that a level describes, and whether that queue limits a rate.
func ratedQueue(level string) (qdisc.Queue, bool) {
	q, err := qdisc.ParseOne(level)
	return q, err == nil && q.Values["rate"] > 0
}

// scaledLevel multiplies a level by share. The level is one amount, such as "50M" or "80%", or a queue with a
// rate. thousand is the ratio between successive unit prefixes.
func scaledLevel(level string, share, thousand float64) (string, bool) {
	if q, ok := ratedQueue(level); ok {
		q = q.With("rate", uint64(q.RateBps()*share)/8*8)
		burst := float64(q.Values["burst"])
		if burst > 0 && share > 1 { // otherwise the bucket would be too small for the rate
			q = q.With("burst", uint64(burst*min(share, maxBurstFactor)))
		}
		return q.String(), true
	}

	found := amountForm().FindStringSubmatch(level)
	if found == nil {
		return "", false
	}

	amount, _ := strconv.ParseFloat(found[1], 64) // the form allows only numbers
	amount *= share
	if found[2] == "%" {
		return strconv.FormatFloat(math.Round(amount*100)/100, 'f', -1, 64) + "%", amount >= 1
	}

	// Use the next smaller unit and a whole number, which every level's parser accepts.
	down := map[string]string{"m": "k", "g": "M"}[strings.ToLower(found[2])]
	if found[2] != "" {
		amount *= thousand
	}

	return strconv.FormatFloat(math.Round(amount), 'f', -1, 64) + down, amount >= 1
}

// maxBurstFactor is the largest factor by which a token bucket is enlarged, because the kernel limits its
// size.
const maxBurstFactor = 64

// scaled returns an experiment at the tester. Each step multiplies now, the present amount of the factor, by
// one of the shares.
func scaled(name factor.Name, now, expect float64, why string, shares ...float64) Experiment {
	e := Experiment{Factor: string(name), From: FromTester, Expect: expect, Why: why, Resource: shares}
	for _, share := range shares {
		e.Steps = append(e.Steps, strconv.Itoa(int(math.Round(now*share))))
	}
	return e
}

// removing returns an experiment at the tester with the level of a factor at which the limit does not apply.
func removing(name factor.Name, level, why string) func(*Observation) Experiment {
	return func(*Observation) Experiment {
		return Experiment{Factor: string(name), From: FromTester, Expect: 1, Fix: level, Why: why}
	}
}

// sweepTests returns the experiments for a class's kind of limit. The ends can run most of these experiments,
// such as smaller segments, more flows or larger windows, without access to the nodes in between. Only a
// guest's host can reduce its CPU quota.
func (o *Observation) sweepTests(r Rule) (out []Experiment) {
	size, sizes := o.packetSize()
	segments := func(expect float64, why string, shares ...float64) {
		if size > 300 {
			out = append(out, scaled(sizes, size, expect, why, shares...))
		}
	}
	flows := func(expect float64, why string) {
		now := float64(max(factor.Streams.Number(o.Row.Factors), 1))
		out = append(out, scaled(factor.Streams, now, expect, why, 2, 4))
	}
	switch r.Kind {
	case ByPacket:
		segments(1, "a per-packet limit carries fewer bytes in smaller packets", .7, .45, .3)
		// TCP's loss may determine its rate. That rate is proportional to the segment size, like a limit of
		// packets per second (Mathis et al. 1997), and applies to each flow.
		lost, _ := o.resent()
		if o.IsTCP() && lost > .001 {
			flows(0, "what a CPU forwards does not double with the number of flows")
		}

		guest := func(node string) bool { return o.Run.Node(node).Guest() }
		if !r.Has("quiet") && slices.ContainsFunc(o.Routers(), guest) {
			out = append(out, Experiment{
				Factor:   "cpu_quota@host",
				From:     FromRouter,
				Expect:   1,
				Why:      "a saturated core moves proportionally fewer packets with less CPU time",
				Steps:    []string{"80%", "60%", "45%"},
				Resource: []float64{.8, .6, .45},
			})
		}
	case byFlow:
		if o.IsTCP() {
			segments(1, "where loss limits, the rate is in proportion to the segment (Mathis et al. 1997)",
				.7, .45, .3)
		}

		flows(1, "with a per-flow limit, more flows carry more")
	case ByRate:
		segments(0, "a limit in bits per second does not depend on packet size", .85, .75, .65)
		flows(0, "a limit on the total rate does not depend on the number of flows")
		if o.goodput() > 0 && !o.bothWays() {
			out = append(out, o.crossTraffic())
		}
	case byWindow:
		// The fastest flow needs at least this many bytes in flight, given its rate and its minimum RTT.
		bytes := 16. * 1024
		for _, f := range o.tcpFlows() {
			rate := ratio(float64(f.ReceivedBytes), float64(f.ReceiverNs))
			bytes = max(bytes, rate*float64(f.TCP.MinRTTNs))
		}

		if o.IsTCP() && !o.statesWindow() {
			out = append(out, scaled(factor.SocketBuffer, bytes, 1,
				"if the window limits, a larger one carries more", 1.5, 2.5, 4))
		}
	}

	return out
}

// crossTraffic returns an experiment that leaves shares of a rate limit to the load. Datagrams without
// congestion control, from the sending end, use the rest.
func (o *Observation) crossTraffic() Experiment {
	sender, _ := o.Ends()
	e := Experiment{
		Factor:   "fault@" + sender,
		From:     FromEnd,
		Expect:   1,
		Why:      "what other traffic takes of a limited rate, the load has to do without",
		Resource: []float64{.7, .4, .2},
	}
	before := ""
	level := o.Row.Factors[e.Factor]
	if level != "" && level != "none" {
		before = level + "+"
	}

	for _, left := range e.Resource {
		e.Steps = append(e.Steps, say("%scross_traffic=%.0fk", before, o.goodput()*(1-left)/1e3))
	}

	return e
}

// statesWindow reports whether the cell sets the bytes that may be in flight, so that no other setting has an
// effect.
func (o *Observation) statesWindow() bool {
	cell := o.Row.Factors
	return factor.SocketBuffer.In(cell) || slices.ContainsFunc(cell.Names(), func(name string) bool {
		return hasFault(cell[name], "receive_buffer") || hasFault(cell[name], "send_buffer")
	})
}

// packetSize returns the size of the packets or segments that the cell sends, and the factor that sets it.
func (o *Observation) packetSize() (float64, factor.Name) {
	cell := o.Row.Factors
	switch {
	case o.IsTCP():
		return float64(o.mss()), factor.MSS
	case factor.FrameSize.In(cell):
		return float64(factor.FrameSize.Number(cell)), factor.FrameSize
	}
	return float64(factor.PacketSize.Number(cell)), factor.PacketSize
}

// fit adapts the steps of an experiment to the cell: segment sizes and quotas are relative to the cell's own.
// It omits steps that change nothing.
func (o *Observation) fit(e Experiment) Experiment {
	now := o.Row.Factors[e.Factor]
	size, sizes := o.packetSize()
	fitted := e
	fitted.Steps, fitted.Resource = nil, nil
	for i, share := range e.Resource {
		level := e.Steps[i]
		switch {
		case e.Factor == string(sizes):
			bytes, _ := strconv.ParseFloat(level, 64)
			share = ratio(bytes, size)
		case strings.HasSuffix(level, "%") && strings.HasSuffix(now, "%"):
			if scaled, ok := scaledLevel(now, share, 1000); ok {
				level = scaled
			}
		}

		if share > 0 && level != now && math.Abs(share-1) > .02 {
			fitted.Steps = append(fitted.Steps, level)
			fitted.Resource = append(fitted.Resource, math.Round(share*1e4)/1e4)
		}
	}

	return fitted
}

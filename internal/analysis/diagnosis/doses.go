package diagnosis

import (
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/metrics"
	"github.com/chokepoint-lab/chokepoint/internal/factor"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// longQueue is the queue level that removes a rate limit.
const longQueue = "pfifo limit 1000"

// Where doses are applied.
const (
	FromTester = "tester" // by what is sent
	FromEnd    = "end"    // by a setting at an end
	FromRouter = "router"
)

// doseShares lists the doses of what can be taken away, as the share left. Large ones stand out of the noise
// of a window, and the smallest share finds slack of up to a half.
var doseShares = []float64{.85, .7, .5}

// raised lists the doses that raise what a plan states, so far that the rate meets the next limit, near by or
// far away.
var raised = []float64{8, 1024}

// Kinds of limit that respond to the same doses.
const (
	byRate   = "rate"   // bits per second, whatever the packets and flows
	byPacket = "packet" // packets per second
	byWindow = "window" // bytes in flight per flow
	byFlow   = "flow"   // a limit per flow
)

// kindOf maps a class to the kind of doses it responds to.
var kindOf = map[string]string{
	LinkRate: byRate, Shaper: byRate, Policer: byRate,
	SoftirqOneCore: byPacket, SoftirqAllCores: byPacket, VPNProcess: byPacket,
	CryptoWorkers: byPacket, RuleList: byPacket, LogFlood: byPacket, SharedCPU: byPacket,
	ClockDown: byPacket, OtherLoad: byPacket, Thermal: byPacket,
	ReceiveWindow: byWindow, SendBuffer: byWindow,
	RandomLoss: byFlow,
}

// OfCPU reports whether a class is about CPU time, so that its finding knows how much CPU time would be free.
func OfCPU(class string) bool { return kindOf[class] == byPacket }

// planted lists, by class, the faults and knobs whose level sets the amount of a resource.
var planted = map[string][]string{
	LinkRate: {"link_rate", "queue", "shape"}, Shaper: {"shape", "link_rate", "queue"},
	Policer:        {"policer"},
	SlowReader:     {"slow_reader"},
	SlowSender:     {"slow_writer"}, // below the rate it asks for, every path carries the load
	ReceiveWindow:  {"receive_buffer", "socket_buffer"},
	SendBuffer:     {"send_buffer", "socket_buffer"},
	SmallQueue:     {"tiny_queue"},
	SoftirqOneCore: {"cpu_quota"}, SoftirqAllCores: {"cpu_quota"}, ClockDown: {"cpu_quota"},
	VPNProcess: {"cpu_quota"}, CryptoWorkers: {"cpu_quota"}, RuleList: {"rules", "cpu_quota"},
	LogFlood: {"log_flood", "cpu_quota"}, OtherLoad: {"cpu_hog", "cpu_quota"}, Thermal: {"cpu_tightening"},
	ConntrackFull: {"conntrack_max"}, Reordering: {"reorder"}, RandomLoss: {"loss"},
	BacklogBudget: {"backlog", "budget"}, WireguardQueue: {"tunnel_queue"},
}

// takenWhole lists the faults that cannot be taken away in part: without them the rate must rise.
var takenWhole = []string{"log_flood", "cpu_hog", "cpu_tightening", "reorder", "loss", "tiny_queue",
	"backlog", "budget", "tunnel_queue"}

// statedTests returns experiments that change a level of the cell in proportion.
func (o *Observation) statedTests(class string) []Experiment {
	var out []Experiment
	cell := o.Trial.Row.Factors
	for _, wanted := range planted[class] {
		for _, name := range cell.Names() {
			e := Experiment{
				Class:  class,
				Factor: name,
				From:   FromRouter,
				Expect: 1,
				Why:    "if this is the limit, the rate falls in proportion",
			}
			plain, _ := factor.Split(name)
			level := cell[name]
			if plain != wanted && !hasFault(level, wanted) {
				continue
			}
			if w := o.Run.Design.Catalogue.Of(name).Without; w != nil {
				e.Fix = w.Level
			}
			if e.Fix == "" && rateForm.MatchString(level) {
				e.Fix = longQueue
			}
			scale := func(share float64) (string, bool) { return scaledLevel(level, share, 1000) }
			if plain != wanted { // one of several faults
				e.Fix = withoutFault(level, wanted, e.Fix)
				scale = func(share float64) (string, bool) { return scaledFault(level, wanted, share) }
			}
			if slices.Contains(takenWhole, wanted) {
				if e.Fix != "" && e.Fix != level {
					e.Why = "without what limits, the rate rises"
					out = append(out, e)
				}
				continue
			}
			dose := func(share float64) {
				amount := share
				if wanted == "rules" {
					amount = 1 / share // the more there are, the fewer packets
				}
				if level, ok := scale(amount); ok {
					e.Doses, e.Resource = append(e.Doses, level), append(e.Resource, share)
				}
			}
			for _, share := range doseShares {
				dose(share)
			}
			if len(e.Doses) < len(doseShares) {
				continue
			}
			if wanted != "cpu_quota" { // of which there is no more than all
				for _, share := range raised {
					dose(share)
				}
			}
			out = append(out, e)
		}
	}
	return out
}

// hasFault reports whether a level of the factor fault has a part of that name.
func hasFault(level, name string) bool {
	return slices.ContainsFunc(strings.Split(level, "+"), func(p string) bool {
		return strings.HasPrefix(p, name+"=")
	})
}

// withoutFault returns a level of the factor fault without one of its parts, or none if that was the only
// one.
func withoutFault(level, name, none string) string {
	parts := slices.DeleteFunc(strings.Split(level, "+"), func(p string) bool {
		return strings.HasPrefix(p, name+"=")
	})
	if len(parts) == 0 {
		return none
	}
	return strings.Join(parts, "+")
}

// scaledFault returns a level of the factor fault with the amount of one part scaled by share.
func scaledFault(level, name string, share float64) (string, bool) {
	parts := strings.Split(level, "+")
	for i, p := range parts {
		if amount, ok := strings.CutPrefix(p, name+"="); ok {
			thousand := 1000.
			if strings.HasSuffix(name, "_buffer") {
				thousand = 1024
			}
			scaled, ok := scaledLevel(amount, share, thousand)
			parts[i] = name + "=" + scaled
			return strings.Join(parts, "+"), ok
		}
	}
	return "", false
}

var (
	amountForm = regexp.MustCompile(`^([0-9]+(?:\.[0-9]+)?)([kKmMgG]?|%)$`)
	rateForm   = regexp.MustCompile(`\brate ([0-9.]+[kKmMgG]?)(?:bit)?\b`)
	burstForm  = regexp.MustCompile(`\bburst ([0-9.]+[kKmMgG]?)\b`)
)

// scaledLevel scales a level that is one amount, such as "50M" or "80%", or a queue that has a rate. thousand
// is the step between its unit prefixes.
func scaledLevel(level string, share, thousand float64) (string, bool) {
	if level, ok := scaledPart(level, rateForm, share, thousand); ok {
		if share > 1 { // otherwise the bucket is too small for the rate
			level, _ = scaledPart(level, burstForm, min(share, maxBurstFactor), 1024)
		}
		return level, true
	}
	found := amountForm.FindStringSubmatch(level)
	if found == nil {
		return "", false
	}
	amount, err := strconv.ParseFloat(found[1], 64)
	if err != nil || amount <= 0 {
		return "", false
	}
	amount *= share
	if found[2] == "%" {
		return strconv.FormatFloat(math.Round(amount*100)/100, 'f', -1, 64) + "%", amount >= 1
	}
	// In the next smaller unit, as a whole number: every level parses that.
	down := map[string]string{"m": "k", "g": "M"}[strings.ToLower(found[2])]
	if found[2] != "" {
		amount *= thousand
	}
	return strconv.FormatFloat(math.Round(amount), 'f', -1, 64) + down, amount >= 1
}

// maxBurstFactor bounds the factor by which a token bucket is raised: the kernel accepts no more.
const maxBurstFactor = 64

// scaledPart returns a level with the amount that form matches scaled by share, or the level unchanged where
// nothing matches.
func scaledPart(level string, form *regexp.Regexp, share, thousand float64) (string, bool) {
	found := form.FindStringSubmatchIndex(level)
	if found == nil {
		return level, false
	}
	scaled, ok := scaledLevel(level[found[2]:found[3]], share, thousand)
	return level[:found[2]] + scaled + level[found[3]:], ok
}

// testerTests returns the experiments that the ends can run without access to the nodes in between: smaller
// segments at any rate, more flows, larger windows.
func (o *Observation) testerTests(class string) []Experiment {
	kind, cell := kindOf[class], o.Trial.Row.Factors
	var out []Experiment
	add := func(factorName string, expect float64, why string, level func(share float64) string,
		doses ...float64) {
		e := Experiment{
			Class:  class,
			Factor: factorName,
			From:   FromTester,
			Expect: expect,
			Why:    why,
		}
		for _, share := range doses {
			e.Doses, e.Resource = append(e.Doses, level(share)), append(e.Resource, share)
		}
		out = append(out, e)
	}
	whole := func(of float64) func(float64) string {
		return func(share float64) string { return strconv.Itoa(int(math.Round(of * share))) }
	}
	if size, name := o.packetSize(); size > 300 && kind != byWindow && kind != "" {
		switch {
		case kind == byPacket:
			add(name, 1, "a per-packet limit carries fewer bytes in smaller packets", whole(size),
				.7, .45, .3)
		case kind == byFlow && o.IsTCP():
			add(name, 1, "where loss limits, the rate is in proportion to the segment (Mathis et al. 1997)",
				whole(size), .7, .45, .3)
		case kind == byRate:
			add(name, 0, "a limit in bits per second does not depend on packet size", whole(size), .85,
				.75, .65)
		}
	}
	streams := float64(max(factor.Streams.Number(cell), 1))
	switch kind {
	case byPacket:
		if o.lossy() {
			add("streams", 0, "what a CPU forwards does not double with the number of flows",
				whole(streams), 2, 4)
		}
	case byRate:
		add("streams", 0, "a limit on the total rate does not depend on the number of flows",
			whole(streams), 2, 4)
		if e, ok := o.crossTraffic(); ok {
			out = append(out, e)
		}
	case byFlow:
		add("streams", 1, "with a per-flow limit, more flows carry more", whole(streams), 2, 4)
	case byWindow:
		if w := o.minWindow(); o.IsTCP() && w > 0 && !o.statesWindow() {
			add("socket_buffer", 1, "if the window limits, a larger one carries more", whole(w), 1.5, 2.5, 4)
		}
	}
	return out
}

// crossTraffic returns doses of how much of a limit on the total rate is left to the load: datagrams from the
// sending end take the rest, without congestion control.
func (o *Observation) crossTraffic() (e Experiment, ok bool) {
	cell, t := o.Trial.Row.Factors, o.Topology()
	rate := o.Metrics.Values[metrics.Goodput]
	if t == nil || rate <= 0 {
		return e, false
	}
	node := t.Near
	switch {
	case factor.Direction.Is(cell, record.Down):
		node = t.Far
	case !factor.Direction.Is(cell, "", record.Up):
		return e, false
	}
	e = Experiment{
		Factor: "fault@" + node,
		From:   FromEnd,
		Expect: 1,
		Why:    "what other traffic takes of a limited rate, the load has to do without",
	}
	before := ""
	if level := cell[e.Factor]; level != "" && level != "none" {
		before = level + "+"
	}
	for _, left := range []float64{.7, .4, .2} {
		e.Doses = append(e.Doses, before+"cross_traffic="+strconv.FormatFloat(math.Round(rate*(1-left)/1e3),
			'f', -1, 64)+"k")
		e.Resource = append(e.Resource, left)
	}
	return e, true
}

// statesWindow reports whether the cell sets how much may be in flight: then no other setting has an effect.
func (o *Observation) statesWindow() bool {
	cell := o.Trial.Row.Factors
	return factor.SocketBuffer.In(cell) || slices.ContainsFunc(cell.Names(), func(name string) bool {
		return hasFault(cell[name], "receive_buffer") || hasFault(cell[name], "send_buffer")
	})
}

// lossy reports whether TCP loses so much that loss may set its rate: that rate is proportional to the
// segment size, as with a limit in packets per second (Mathis et al. 1997), and each flow has its own.
func (o *Observation) lossy() bool {
	lost, _, _ := o.resent()
	return o.IsTCP() && lost > .001
}

// packetSize returns the size of the packets or segments the cell sends, and the factor that changes it.
func (o *Observation) packetSize() (float64, string) {
	cell := o.Trial.Row.Factors
	if !o.IsTCP() {
		if factor.FrameSize.In(cell) {
			return float64(factor.FrameSize.Number(cell)), string(factor.FrameSize)
		}
		return float64(factor.PacketSize.Number(cell)), string(factor.PacketSize)
	}
	if o.Trial.Traffic != nil {
		for _, f := range o.Trial.Traffic.Flows {
			if f.TCP != nil && f.TCP.MSS > 0 {
				return float64(f.TCP.MSS), string(factor.MSS)
			}
		}
	}
	return 0, string(factor.MSS)
}

// minWindow returns how many bytes the fastest flow needed in flight, from its rate and its minimum RTT.
func (o *Observation) minWindow() float64 {
	most := 0.0
	if o.Trial.Traffic == nil {
		return 0
	}
	for _, f := range o.Trial.Traffic.Flows {
		if f.TCP != nil && f.ReceiverNs > 0 {
			most = max(most, float64(f.ReceivedBytes)/float64(f.ReceiverNs)*float64(f.TCP.MinRTTNs))
		}
	}
	return max(most, 16<<10)
}

// fit adapts the doses of a rule to the cell: segment sizes relative to the cell's, quotas relative to its
// own. It drops a dose that changes nothing.
func (o *Observation) fit(e Experiment) Experiment {
	cell := o.Trial.Row.Factors
	doses, resource := e.Doses, e.Resource
	e.Doses, e.Resource = nil, nil
	for i, share := range resource {
		level := doses[i]
		switch size, sizes := o.packetSize(); {
		case e.Factor == sizes:
			bytes, err := strconv.Atoi(level)
			if size <= 0 || err != nil {
				continue
			}
			share = float64(bytes) / size
		case strings.HasSuffix(level, "%") && strings.HasSuffix(cell[e.Factor], "%"):
			if scaled, ok := scaledLevel(cell[e.Factor], share, 1000); ok {
				level = scaled
			}
		}
		if level != cell[e.Factor] && math.Abs(share-1) > .02 {
			e.Doses, e.Resource = append(e.Doses, level), append(e.Resource, math.Round(share*1e4)/1e4)
		}
	}
	return e
}

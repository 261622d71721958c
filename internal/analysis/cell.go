package analysis

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// judged is one trial with what was computed of it.
type judged struct {
	t       *record.Trial
	m       *measured
	grade   string
	reasons []Reason
}

// group is a cell with its trials, in run order.
type group struct {
	factors record.Factors
	trials  []*judged
	missing string // why there is no trial at all
	idle    []*judged
	verify  []*judged
	found   []*judged // of each search the trial that stands for it
	search  []*SearchView
	cell    Cell
}

// good are the trials that have numbers; a repeated row counts once, with its last good attempt, and one
// that was searched with the trial that stands for it.
func (g *group) good() []*judged {
	if len(g.search) > 0 {
		return g.found
	}
	return lastGood(g.trials)
}

// byBlock is a metric's value in each block; idle metrics come from the idle measurements of the path where
// the trials themselves have none.
func (g *group) byBlock(metric string) map[int]float64 {
	out := map[int]float64{}
	for _, source := range [][]*judged{lastGood(g.idle), g.good()} {
		for _, j := range source {
			if v, ok := j.m.values[metric]; ok {
				out[j.t.Row.Block] = v
			}
		}
	}
	return out
}

// groups sorts trials into the cells of the design, in the order listed; cells of the trials come after
// those of the design.
func groups(run *record.Run, trials []*judged) []*group {
	var out []*group
	index := map[string]*group{}
	add := func(f record.Factors) *group {
		key := f.Key()
		if g, ok := index[key]; ok {
			return g
		}
		g := &group{factors: f}
		index[key] = g
		out = append(out, g)
		return g
	}
	skipped := map[string]bool{} // listed with their reasons instead
	for _, s := range skippedCells(run, trials) {
		skipped[s.Factors.Key()] = true
	}
	for _, f := range run.Design.Cells {
		if !skipped[f.Key()] {
			add(f)
		}
	}
	idle, verify := map[string][]*judged{}, map[string][]*judged{}
	for _, j := range trials {
		path := j.t.Row.Factors.Path().Key()
		switch j.t.Row.Kind {
		case record.RowIdle:
			idle[path] = append(idle[path], j)
		case record.RowVerify:
			verify[path] = append(verify[path], j)
		default:
			g := add(j.t.Row.Factors)
			g.trials = append(g.trials, j)
		}
	}
	for _, g := range out {
		path := g.factors.Path().Key()
		g.idle, g.verify = idle[path], verify[path]
	}
	return out
}

// skippedCells are those of the design and of the lab, without those that have a trial: a run that is
// resumed may be able to do what it could not at first.
func skippedCells(run *record.Run, trials []*judged) []record.Skipped {
	measured := map[string]bool{}
	for _, j := range trials {
		if j.t.Row.Kind == record.RowLoad {
			measured[j.t.Row.Factors.Key()] = true
		}
	}
	out := []record.Skipped{}
	for _, s := range slices.Concat(run.Design.Skipped, run.Skipped) {
		if !measured[s.Factors.Key()] {
			out = append(out, s)
		}
	}
	return out
}

// summariseCell fills in metrics, missing ones, ceiling and consistency.
func (g *group) summariseCell(run *record.Run, declarations []record.Metric) {
	c := &g.cell
	good := g.good()
	c.Metrics, c.Missing = map[string]Value{}, map[string]string{}
	if len(good) == 0 {
		return
	}
	g.summariseLatency(good)
	g.addDistributions(good)
	for _, m := range declarations {
		if strings.HasPrefix(m.Name, "rtt_idle_") || strings.HasPrefix(m.Name, "rtt_loaded_") {
			continue
		}
		var values []float64
		why := ""
		for _, j := range good {
			if v, ok := j.m.values[m.Name]; ok {
				values = append(values, v)
			} else if w, ok := j.m.missing[m.Name]; ok {
				why = w
			}
		}
		switch {
		case len(values) > 0:
			c.Metrics[m.Name] = Summarise(values)
		case why != "":
			c.Missing[m.Name] = why
		}
		if n := len(values); n > 0 && n < len(good) {
			c.Caveats = append(c.Caveats, record.Caveat{Kind: "partly-missing",
				Text: fmt.Sprintf("%s: known in %d of %d trials (%s)", m.Name, n, len(good), why)})
		}
	}
	if v, ok := c.Metrics[consistency]; ok {
		c.Consistency = cellConsistency(v.Values)
	}
	g.addCeiling(run)
}

func (g *group) addCeiling(run *record.Run) {
	c := &g.cell
	ceil := ceilingOf(run, g.factors)
	c.Ceiling = CellCeiling{Kind: ceil.Kind, Bps: ceil.Bps, HeaderEfficiency: ceil.Efficiency}
	v, ok := c.Metrics[goodput]
	if !ok {
		return
	}
	if ceil.Bps > 0 {
		c.Ceiling.Ratio = v.Median / ceil.Bps
	}
	kind, top := testerCeiling(run, g.factors)
	if top <= 0 {
		return
	}
	if metric := testerMetric(g.factors); metric != goodput {
		if v, ok = c.Metrics[metric]; !ok {
			return
		}
	}
	value := v.Median
	c.Ceiling.TesterKind, c.Ceiling.TesterRatio = kind, value/top
	if !sharesCores(run) && top < 1.2*value {
		c.Reasons = append(c.Reasons, Reason{Kind: ReasonTesterLimited,
			Text: fmt.Sprintf("the tester alone (%s) is less than 1.2 times as fast", kind)})
		c.Grade = GradeSuspect
	}
}

// testerMetric is what of a cell is compared with the tester's own ceiling.
func testerMetric(f record.Factors) string {
	switch {
	case f["engine"] == "flows":
		return flowRate
	case f["engine"] == "requests":
		return requestRate
	case f["protocol"] == "udp":
		return packetRate
	}
	return goodput
}

// framesOfACore is more frames per second than one core makes, on any machine known: where a search for the
// xdp engine begins if neither the plan says nor the tester's own ceiling is known.
const framesOfACore = 10e6

// TesterRate is what the tester alone can reach for a cell, in packets, bits or new connections per second,
// or 0 where nothing was measured. Of the xdp engine it then is a bound.
func TesterRate(run *record.Run, f record.Factors) float64 {
	_, rate := testerCeiling(run, f)
	if rate == 0 && f["engine"] == "xdp" {
		return framesOfACore
	}
	return rate
}

// testerCeiling picks the tester's own ceiling that is closest to a cell: by engine, protocol and link, of
// flows and requests by their sizes too, then by streams or packet size, whichever differs by the smallest
// factor. IMIX, which is never sent in trains, has a ceiling of its own.
func testerCeiling(run *record.Run, f record.Factors) (kind string, value float64) {
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

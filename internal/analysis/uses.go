package analysis

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/evidence"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/metrics"
	"github.com/chokepoint-lab/chokepoint/internal/factor"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/unit"
)

// UseCase describes what the results of a run mean for one use of a router.
type UseCase struct {
	Use     string         `json:"use"`
	Verdict string         `json:"verdict"`            // in words, or "not measured"
	Because string         `json:"because,omitempty"`  // numbers that the verdict is based on
	Rule    string         `json:"rule"`               // rule that determines the verdict
	LineBps float64        `json:"line_bps,omitempty"` // fastest line that the router fills
	Cell    record.Factors `json:"cell,omitempty"`     // cell that the verdict is based on
	Grade   string         `json:"grade,omitempty"`    // grade of that cell
}

// Measured reports whether the run has results for the use.
func (u UseCase) Measured() bool { return u.Because != "" }

const notMeasured = "not measured"

// smallPacket is the largest size in bytes of a packet that counts as small.
const smallPacket = 128

// UsesOf returns what a run means for common uses. Each verdict is based on valid cells or, if there are
// none, on the bounds of suspect cells. If a router is emulated, there are no verdicts.
func UsesOf(d *Document) []UseCase {
	plain := func(f record.Factors) bool { return factor.Tunnel.Is(f, factor.NoTunnel) }
	found := map[string]bool{} // IP versions for which the path between two machines has NAT
	for _, w := range d.Ways {
		found[strconv.Itoa(w.IP)] = w.NAT != "" && w.NAT != "none"
	}

	translated := func(f record.Factors) bool {
		set := factor.NAT.In(f) && !factor.NAT.Is(f, factor.Off)
		return plain(f) && (set || found[cmp.Or(factor.IP.Of(f), "4")])
	}
	routed := func(f record.Factors) bool { return plain(f) && !translated(f) }
	six := func(f record.Factors) bool { return plain(f) && factor.IP.Is(f, "6") }
	out := []UseCase{
		d.lineUse("Internet line, routed", "TCP without a tunnel or address translation", routed),
		d.lineUse("Internet line behind NAT", "TCP with address translation, without a tunnel", translated),
		d.lineUse("Internet line, IPv6", "TCP over IPv6, without a tunnel", six),
	}
	out = append(out, d.tunnelUses()...)
	out = append(out, d.latencyUse(), d.packetUse(), d.connectionUse(), d.hoursUse())
	if d.Emulated() { // the speed of an emulated router means nothing
		for i, u := range out {
			out[i] = UseCase{Use: u.Use, Verdict: notMeasured, Rule: u.Rule}
		}
	}

	return out
}

// tunnelUses returns the use case of each kind of tunnel in the run. If there is no tunnel, it returns one
// use case that was not measured.
func (d *Document) tunnelUses() (out []UseCase) {
	const use = "Working from home by VPN"
	for _, name := range d.levelsOf(string(factor.Tunnel)) {
		if name == factor.NoTunnel {
			continue
		}

		words := d.Catalogue.Of(string(factor.Tunnel)).Words(name)
		out = append(out, d.lineUse(use+", "+words, "TCP through the tunnel", func(f record.Factors) bool {
			return factor.Tunnel.Is(f, name)
		}))
	}

	if len(out) == 0 {
		out = append(out, d.lineUse(use, "TCP through a tunnel", func(record.Factors) bool { return false }))
	}

	return out
}

// usable returns the cells on which verdicts may be based: cells that have the metric and a router, and for
// which want returns true. The last argument is a function that returns the kind of a cell. For each kind,
// usable returns the valid cells or, if there are none, the suspect ones.
func (d *Document) usable(metric string, want func(record.Factors) bool,
	of func(record.Factors) string) (usable []*Cell) {
	var suspect []*Cell
	var kinds []string // kinds that have valid cells
	for i := range d.Cells {
		c := &d.Cells[i]
		_, measured := c.Metrics[metric]
		if !measured || factor.Topology.Is(c.Factors, "direct") || !want(c.Factors) {
			continue
		}

		if c.Grade == evidence.GradeValid {
			usable = append(usable, c)
			kinds = once(kinds, of(c.Factors))
		} else {
			suspect = append(suspect, c)
		}
	}

	for _, c := range suspect {
		if !slices.Contains(kinds, of(c.Factors)) {
			usable = append(usable, c)
		}
	}

	return usable
}

// lineUse returns the use case of a line. Its verdict is the fastest line that the slowest of the wanted
// cells fills.
func (d *Document) lineUse(use, what string, want func(record.Factors) bool) UseCase {
	u := UseCase{
		Use:     use,
		Verdict: notMeasured,
		Rule: "the slowest cell of " + what + ", up or down, unpaced, with the MTU that nobody has to set: " +
			"its goodput, of a suspect cell the lower bound, divided by the share of payload on the wire " +
			"is the line that it fills",
	}
	cells := d.ByKey()
	var worst *Cell
	var directions []string
	for _, c := range d.usable(metrics.Goodput, func(f record.Factors) bool {
		return want(f) && metrics.LoadOf(f) == "" && factor.Direction.Is(f, record.Up, record.Down) &&
			factor.Pacing.Bitrate(f) == 0
	}, factor.Direction.Of) {
		if !d.usualMTU(cells, c.Factors, metrics.Goodput) {
			continue
		}

		slower := worst == nil || atLeast(c, metrics.Goodput) < atLeast(worst, metrics.Goodput)
		if slower && c.Ceiling.HeaderEfficiency > 0 {
			worst = c
		}

		directions = once(directions, factor.Direction.Of(c.Factors))
	}

	if worst == nil {
		return u
	}

	if u.decide(worst, metrics.Goodput) {
		u.LineBps = atLeast(worst, metrics.Goodput) / worst.Ceiling.HeaderEfficiency
		u.Verdict = "enough for lines up to " + unit.Bitrate(u.LineBps).String()
	}

	level := defaultMTU(d.Catalogue, worst.Factors)
	if level != "" && !factor.MTU.Is(worst.Factors, level) {
		u.Because += ", without a number at the default MTU " + level
	}

	if len(directions) == 1 {
		u.Because += ", the only direction measured: " + directions[0]
	}

	return u
}

// usualMTU reports whether a cell has the default MTU. It also returns true if no other cell has the metric
// with the default MTU and otherwise the same levels.
func (d *Document) usualMTU(cells map[string]*Cell, f record.Factors, metric string) bool {
	for _, link := range []string{"", "1500"} { // a plan may set the default, 1500, in every cell
		usual := factor.LinkMTU.With(f, link)
		level := defaultMTU(d.Catalogue, usual)
		if level != "" {
			usual = factor.MTU.With(usual, level)
		}

		if usual.Key() == f.Key() {
			return true
		}

		other := cells[usual.Key()]
		if other == nil {
			continue
		}

		_, measured := other.Metrics[metric]
		if measured {
			return false
		}
	}

	return true
}

// atLeast returns the number on which a verdict is based: the median of a valid cell, or the lower end of a
// suspect cell's interval.
func atLeast(c *Cell, metric string) float64 {
	v := c.Metrics[metric]
	if c.Grade == evidence.GradeValid {
		return v.Median
	}
	return v.Low
}

// decide sets the cell and the number on which the verdict is based. It returns false for a suspect cell
// without an interval.
func (u *UseCase) decide(c *Cell, metric string) bool {
	u.Because = c.Label + ": " + metrics.Say(metric, c.Metrics[metric].Median)
	return u.rest(c, metric, "lower", c.Metrics[metric].Low)
}

// rest sets the cell on which the verdict is based and, if the cell is suspect, which end of its interval is
// used.
func (u *UseCase) rest(c *Cell, metric, side string, bound float64) bool {
	u.Cell = c.Factors
	u.Grade = c.Grade
	if c.Grade == evidence.GradeValid {
		return true
	}

	var kinds []string
	for _, r := range c.Reasons {
		kinds = once(kinds, r.Kind)
	}

	u.Because += ", " + c.Grade
	if len(kinds) > 0 {
		u.Because += " (" + strings.Join(kinds, ", ") + ")"
	}

	if c.Metrics[metric].N < 2 {
		u.Verdict = "cannot tell"
		u.Because += ": one run has no " + side + " bound"
		return false
	}

	u.Because += ": the verdict rests on the " + side + " bound, " + metrics.Say(metric, bound)
	return true
}

// latencyUse returns the use case of latency. It grades the path and direction on which a load adds the most
// latency.
func (d *Document) latencyUse() UseCase {
	u := UseCase{
		Use:     "Games and calls while the line is full",
		Verdict: notMeasured,
		Rule: "the bufferbloat grade of the path and direction to which TCP adds most, of a suspect cell " +
			"that of the upper bound: A+ and A are good, B is fair, the rest poor",
	}
	cells := d.ByKey()
	most := -1.0
	for _, p := range d.UnderLoad {
		for _, direction := range keys(p.Directions) {
			x := p.Directions[direction]
			c := cells[x.Cell.Key()]
			if x.AddedNs == nil || c == nil || !d.usualMTU(cells, x.Cell, metrics.RTTAdded) {
				continue
			}

			ns := *x.AddedNs
			added := "adds " + unit.Nanoseconds(ns)
			if x.AddedInNoise {
				ns = 0
				added = "adds nothing measurable"
			}

			grade := c.Grade
			better := grade == evidence.GradeValid && u.Grade != evidence.GradeValid
			worse := grade != evidence.GradeValid && u.Grade == evidence.GradeValid
			if worse || !better && ns <= most {
				continue
			}

			most = ns
			u.Because = strings.TrimPrefix(fmt.Sprintf("%s, %s: load %s, grade %s", p.Label, direction, added,
				x.Grade), ", ")
			high := c.Metrics[metrics.RTTAdded].High
			grade = x.Grade
			if c.Grade != evidence.GradeValid {
				grade = metrics.Bufferbloat(high)
			}

			if u.rest(c, metrics.RTTAdded, "upper", high) {
				u.Verdict = gradeWords(grade)
			}
		}
	}

	return u
}

func gradeWords(grade string) string {
	switch grade {
	case "A+", "A":
		return "good"
	case "B":
		return "fair"
	}
	return "poor"
}

// packetUse returns the use case of small packets, based on their highest rate.
func (d *Document) packetUse() UseCase {
	u := UseCase{
		Use:     "Many small packets",
		Verdict: notMeasured,
		Rule: fmt.Sprintf("the cell without a tunnel in which most UDP packets of at most %d bytes arrived",
			smallPacket),
	}
	c := d.fastest(metrics.PacketRate, func(f record.Factors) bool {
		size := factor.PacketSize.Number(f)
		return factor.Tunnel.Is(f, factor.NoTunnel) && size > 0 && size <= smallPacket
	})
	if c == nil {
		return u
	}

	if u.decide(c, metrics.PacketRate) {
		u.Verdict = fmt.Sprintf("%s of %s bytes", unit.PacketRate(atLeast(c, metrics.PacketRate)),
			factor.PacketSize.Of(c.Factors))
	}

	if loss, ok := c.Metrics[metrics.LossRatio]; ok {
		u.Because += ", " + unit.Percent(loss.Median) + " of those sent lost"
	}

	return u
}

// connectionUse returns the use case of new connections, based on their highest rate.
func (d *Document) connectionUse() UseCase {
	u := UseCase{
		Use:     "Many short connections",
		Verdict: notMeasured,
		Rule:    "the cell with most TCP connections that were opened and completed in a second",
	}
	c := d.fastest(metrics.FlowRate, func(record.Factors) bool { return true })
	if c != nil && u.decide(c, metrics.FlowRate) {
		u.Verdict = metrics.Say(metrics.FlowRate, atLeast(c, metrics.FlowRate))
	}

	return u
}

func (d *Document) fastest(metric string, want func(record.Factors) bool) (best *Cell) {
	for _, c := range d.usable(metric, want, func(record.Factors) string { return "" }) {
		if best == nil || c.Metrics[metric].Median > best.Metrics[metric].Median {
			best = c
		}
	}
	return best
}

// hoursUse returns the use case of continuous load. It describes whether the results stayed the same over a
// soak.
func (d *Document) hoursUse() UseCase {
	u := UseCase{
		Use:     "Full load for hours",
		Verdict: notMeasured,
		Rule:    "steady: a soak in which no quantity has a trend beyond chance, and no window failed",
	}
	for _, s := range d.Soaks {
		var bad []string
		if s.Failed > 0 {
			bad = append(bad, unit.Count(s.Failed, "window")+" failed")
		}

		for _, t := range s.Trends {
			if t.Real {
				bad = append(bad, t.Text)
			}
		}

		u.Because = strings.TrimPrefix(s.Label+", ", ", ") + unit.Significant(s.Hours, 3) + " h"
		u.Cell = s.Factors
		u.Verdict = "steady"
		if len(bad)+len(s.Trends) == 0 { // too few windows for a trend
			u.Verdict = "cannot tell"
			u.Because += ": " + strings.Join(s.Missing, "; ")
			return u
		}

		if len(bad) > 0 {
			u.Verdict = "not steady"
			u.Because += ": " + strings.Join(bad, "; ")
			return u
		}
	}
	return u
}

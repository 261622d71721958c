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

// UseCase says what the results of a run mean for one use of a router.
type UseCase struct {
	Use     string         `json:"use"`
	Verdict string         `json:"verdict"`            // in words; "not measured"
	Because string         `json:"because,omitempty"`  // the numbers that it rests on
	Rule    string         `json:"rule"`               // by which it follows from them
	LineBps float64        `json:"line_bps,omitempty"` // the fastest line that the router fills
	Cell    record.Factors `json:"cell,omitempty"`     // that decides
	Grade   string         `json:"grade,omitempty"`    // of that cell
}

// Measured reports whether the run says anything about the use.
func (u UseCase) Measured() bool { return u.Because != "" }

const notMeasured = "not measured"

// smallPacket is the size in bytes up to which packets count as small.
const smallPacket = 128

// UsesOf says what a run means for usual uses. Each verdict follows from valid cells by its rule, or from
// suspect ones where there are no others; an emulated router has none.
func UsesOf(d *Document) []UseCase {
	plain := func(f record.Factors) bool { return factor.Tunnel.Is(f, factor.NoTunnel) }
	found := map[string]bool{} // versions of IP whose addresses a path between two machines translates
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
	if d.Emulated() { // its speed says nothing about a router
		for i, u := range out {
			out[i] = UseCase{Use: u.Use, Verdict: notMeasured, Rule: u.Rule}
		}
	}

	return out
}

// tunnelUses has one use for each kind of tunnel, or one that was not measured.
func (d *Document) tunnelUses() (out []UseCase) {
	const use = "Working from home by VPN"
	var seen []string
	for i := range d.Cells {
		name := factor.Tunnel.Of(d.Cells[i].Factors)
		if name == "" || name == factor.NoTunnel || slices.Contains(seen, name) {
			continue
		}

		seen = append(seen, name)
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

// usable returns the cells of a router that a verdict may rest on: of each kind, which of names, the valid
// ones, else those that are suspect.
func (d *Document) usable(metric string, want func(record.Factors) bool,
	of func(record.Factors) string) (usable []*Cell) {
	var suspect []*Cell
	var kinds []string // with valid cells
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

// lineUse names the fastest line that the slowest of some cells fills.
func (d *Document) lineUse(use, what string, want func(record.Factors) bool) UseCase {
	u := UseCase{
		Use:     use,
		Verdict: notMeasured,
		Rule: "the slowest cell of " + what + ", up or down, unpaced: its goodput divided by the share " +
			"of payload on the wire is the line that it fills",
	}
	var worst *Cell
	var directions []string
	for _, c := range d.usable(metrics.Goodput, func(f record.Factors) bool {
		return want(f) && metrics.LoadOf(f) == "" && factor.Direction.Is(f, record.Up, record.Down) &&
			factor.Pacing.Bitrate(f) == 0
	}, factor.Direction.Of) {
		slower := worst == nil || c.Metrics[metrics.Goodput].Median < worst.Metrics[metrics.Goodput].Median
		if slower && c.Ceiling.HeaderEfficiency > 0 {
			worst = c
		}

		directions = once(directions, factor.Direction.Of(c.Factors))
	}

	if worst == nil {
		return u
	}

	rate := worst.Metrics[metrics.Goodput].Median
	u.LineBps = rate / worst.Ceiling.HeaderEfficiency
	u.Verdict = "enough for lines up to " + unit.Bitrate(u.LineBps).String()
	u.decide(worst, metrics.Goodput)
	if len(directions) == 1 {
		u.Because += ", the only direction measured: " + directions[0]
	}

	return u
}

// decide files the cell on which a verdict rests, with its number.
func (u *UseCase) decide(c *Cell, metric string) {
	u.Because = c.Label + ": " + metrics.Say(metric, c.Metrics[metric].Median)
	u.Cell = c.Factors
	u.Grade = c.Grade
	if c.Grade != evidence.GradeValid {
		u.Because += ", " + c.Grade
	}
}

// latencyUse grades the latency of the path that load raises most.
func (d *Document) latencyUse() UseCase {
	u := UseCase{
		Use:     "Games and calls while the line is full",
		Verdict: notMeasured,
		Rule: "the bufferbloat grade of the path and direction to which TCP adds most: A+ and A are good, " +
			"B is fair, the rest poor",
	}
	grades := map[string]string{}
	for i := range d.Cells {
		grades[d.Cells[i].Factors.Key()] = d.Cells[i].Grade
	}

	most := -1.0
	for _, p := range d.UnderLoad {
		for _, direction := range keys(p.Directions) {
			x := p.Directions[direction]
			if x.AddedNs == nil {
				continue
			}

			ns := *x.AddedNs
			added := "adds " + unit.Nanoseconds(ns)
			if x.AddedInNoise {
				ns = 0
				added = "adds nothing measurable"
			}

			grade := grades[x.Cell.Key()]
			better := grade == evidence.GradeValid && u.Grade != evidence.GradeValid
			worse := grade != evidence.GradeValid && u.Grade == evidence.GradeValid
			if worse || !better && ns <= most {
				continue
			}

			most = ns
			u.Cell = x.Cell
			u.Grade = grade
			u.Because = fmt.Sprintf("%s, %s: load %s, grade %s", p.Label, direction, added, x.Grade)
			u.Verdict = gradeWords(x.Grade)
		}
	}

	if u.Grade == evidence.GradeSuspect {
		u.Because += ", " + u.Grade
	}

	u.Because = strings.TrimPrefix(u.Because, ", ")
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

// packetUse names the highest rate of small packets.
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

	u.decide(c, metrics.PacketRate)
	u.Verdict = fmt.Sprintf("%s of %s bytes", unit.PacketRate(c.Metrics[metrics.PacketRate].Median),
		factor.PacketSize.Of(c.Factors))
	if loss, ok := c.Metrics[metrics.LossRatio]; ok {
		u.Because += ", " + unit.Percent(loss.Median) + " of those sent lost"
	}

	return u
}

// connectionUse names the highest rate of new connections.
func (d *Document) connectionUse() UseCase {
	u := UseCase{
		Use:     "Many short connections",
		Verdict: notMeasured,
		Rule:    "the cell with most TCP connections that were opened and completed in a second",
	}
	c := d.fastest(metrics.FlowRate, func(record.Factors) bool { return true })
	if c != nil {
		u.decide(c, metrics.FlowRate)
		u.Verdict = metrics.Say(metrics.FlowRate, c.Metrics[metrics.FlowRate].Median)
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

// hoursUse says whether a soak stayed as it began.
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
		if len(bad)+len(s.Trends) == 0 { // too few windows to find one
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

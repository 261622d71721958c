package model

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/catalogue"
	"github.com/chokepoint-lab/chokepoint/internal/unit"
)

// knobs describes the levels of the router's settings in a result. A description is empty if the level is not
// stated or is the default.
func (n Need) knobs(r catalogue.Result) (out [4]string) {
	switch r.Clock {
	case "":
	case "auto":
		out[0] = "automatic clock"
	default:
		out[0] = "clock at " + r.Clock + " MHz"
	}

	if r.Queue != "" {
		out[1] = "queue " + r.Queue
	}

	for part := range strings.SplitSeq(r.Condition, ", ") { // other parts describe the testbed
		if strings.Contains(part, "offload") {
			out[2] = part
		}
	}

	if n.otherMTU(r) {
		out[3] = fmt.Sprintf("MTU %d", r.MTU)
	}

	return out
}

// settingGroup holds the results that were measured with the same settings.
type settingGroup struct {
	knobs  [4]string
	lowBps float64
	where  []string // measured paths, as IP version and direction
}

func (g settingGroup) words() string {
	words := without(g.knobs[:], func(w string) bool { return w == "" })
	return cmp.Or(strings.Join(words, " and "), "the usual MTU")
}

// settings finds the settings with which a device is fast enough, if it is not fast enough with all settings.
// Settings count only if they were measured on all paths on which the device was measured, because the rate
// on another path may be lower.
func (a *Advice) settings(rows []catalogue.Result, n Need) {
	var groups []settingGroup
	var paths []string
	for _, r := range rows {
		knobs := n.knobs(r)
		i := slices.IndexFunc(groups, func(g settingGroup) bool { return g.knobs == knobs })
		if i < 0 {
			i = len(groups)
			groups = append(groups, settingGroup{knobs: knobs, lowBps: *r.GoodputBps})
		}

		g := &groups[i]
		g.lowBps = min(g.lowBps, *r.GoodputBps)
		path := pathWords(r)
		g.where = once(g.where, path)
		paths = once(paths, path)
	}

	usual := slices.ContainsFunc(rows, func(r catalogue.Result) bool { return !n.otherMTU(r) })
	if len(groups) < 2 && usual || len(groups) == 0 {
		return
	}

	need := n.GoodputBps()
	var nearest *Settings
	for _, g := range groups {
		s := Settings{Words: g.words(), LowBps: g.lowBps, Share: g.lowBps / need}
		open := without(paths, func(path string) bool { return slices.Contains(g.where, path) })
		switch {
		case len(open) > 0 && s.Share >= enoughShare:
			a.Missing = append(a.Missing, strings.Join(open, " and ")+" with "+s.Words)
		case len(open) > 0:
		case s.Share >= enoughShare:
			a.If = append(a.If, s)
		case s.Share >= borderlineShare && (nearest == nil || s.Share > nearest.Share):
			nearest = &s
		}
	}

	if len(a.If) == 0 {
		a.Nearest = nearest
		if !usual {
			best := slices.MaxFunc(groups, func(a, b settingGroup) int {
				return cmp.Compare(a.lowBps, b.lowBps)
			})
			a.Why += fmt.Sprintf("; measured only with %s: %s", best.words(), unit.Bitrate(best.lowBps))
		}

		return
	}

	a.Verdict = EnoughIf
	if !usual {
		a.ByModel = ""
		a.LowBps = a.If[0].LowBps
		a.HighBps = 0
		a.Why = "measured with no other MTU"
	}
}

// pathWords describes the IP version and the direction of a result, if stated.
func pathWords(r catalogue.Result) string {
	var words []string
	if r.IP != "" {
		words = append(words, "IPv"+r.IP)
	}

	if r.Direction != "" {
		words = append(words, direction(r.Direction))
	}

	return cmp.Or(strings.Join(words, " "), "a path that is not stated")
}

// calmLoads lists the loads in published power figures that count as normal operation.
var calmLoads = []string{"normal", "idle"}

// yearOf returns the energy of a device over a year from its published power figures, or nil if none are
// published.
func yearOf(c *catalogue.Catalogue, device string, n Need) *Year {
	var calm, busy []catalogue.Power
	for _, p := range c.Powers {
		switch {
		case p.Device != device || p.Low == nil:
		case slices.Contains(calmLoads, p.Load):
			calm = append(calm, p)
		default:
			busy = append(busy, p)
		}
	}

	hours := n.BusyHours
	basis := fmt.Sprintf("%g h a day at full load, else in normal operation", hours)
	switch {
	case len(calm)+len(busy) == 0:
		return nil
	case len(calm) == 0:
		hours = 24
		basis = "always at full load: its draw in normal operation is unknown"
	case len(busy) == 0:
		hours = 0
		basis = "always in normal operation: its draw at full load is unknown"
	}

	calmLow, calmHigh := drawOf(calm)
	busyLow, busyHigh := drawOf(busy)
	kWh := func(calm, busy float64) float64 { return (calm*(24-hours) + busy*hours) * 365 / 1000 }
	y := &Year{LowKWh: kWh(calmLow, busyLow), HighKWh: kWh(calmHigh, busyHigh), Basis: basis}
	y.LowCost = y.LowKWh * n.Price
	y.HighCost = y.HighKWh * n.Price
	return y
}

// drawOf returns the lowest and the highest power in watts, or 0 if there are no figures.
func drawOf(all []catalogue.Power) (low, high float64) {
	for i, p := range all {
		if i == 0 {
			low = *p.Low
		}

		low = min(low, *p.Low)
		high = max(high, *p.High)
	}
	return low, high
}

// Text describes the energy, such as "124 to 140 kWh a year", with its cost if a price was given.
func (y Year) Text() string {
	text := spanWords(y.LowKWh, y.HighKWh) + " kWh a year"
	if y.HighCost > 0 {
		text += ", which cost " + spanWords(y.LowCost, y.HighCost)
	}
	return text
}

func spanWords(low, high float64) string {
	from := unit.Significant(low, 3)
	to := unit.Significant(high, 3)
	if from == to {
		return from
	}
	return from + " to " + to
}

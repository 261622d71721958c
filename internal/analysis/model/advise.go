package model

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/chokepoint-lab/chokepoint/internal/catalogue"
	"github.com/chokepoint-lab/chokepoint/internal/factor"
	"github.com/chokepoint-lab/chokepoint/internal/overhead"
	"github.com/chokepoint-lab/chokepoint/internal/unit"
)

// Need describes what a router is needed for.
type Need struct {
	WANBps float64 `json:"wan_bps"` // line rate
	Tunnel string  `json:"tunnel"`
	MTU    int     `json:"mtu"`
	// OnlyMTU says that no other MTU would do. Else another one is a setting that may make a router enough.
	OnlyMTU   bool    `json:"only_mtu,omitempty"`
	Users     int     `json:"users"`                   // who load it at once
	BusyHours float64 `json:"busy_hours"`              // a day at full load
	Price     float64 `json:"price_per_kwh,omitempty"` // 0: not asked for
}

// Verdicts of advice, best first.
const (
	Enough     = "enough"
	EnoughIf   = "enough if"
	Borderline = "borderline"
	NotEnough  = "not enough"
	CannotTell = "cannot tell"
)

// A device suffices if it reaches enoughShare of the line's goodput, since two measurements may differ by the
// rest. Below borderlineShare it does not.
const (
	enoughShare     = .95
	borderlineShare = .8
)

// Advice holds the verdict on one device for a need.
type Advice struct {
	Device  string  `json:"device"`
	Verdict string  `json:"verdict"`
	ByModel string  `json:"by_model,omitempty"` // the model, if nothing was measured
	LowBps  float64 `json:"low_bps,omitempty"`
	HighBps float64 `json:"high_bps,omitempty"` // absent where the range has no high end
	// If lists the settings with which it is enough. Each reaches enough in all that was measured, and the
	// device with another setting does not.
	If []Settings `json:"enough_if,omitempty"`
	// Nearest is the setting that comes nearest to enough, if several were measured and none suffices.
	Nearest *Settings `json:"nearest_if,omitempty"`
	Watts   string    `json:"watts,omitempty"`
	Year    *Year     `json:"power_per_year,omitempty"` // absent where its power was not published
	Why     string    `json:"why"`
	// Impossible lists why no device can have produced some of its results, which do not count.
	Impossible []string `json:"impossible,omitempty"`
	// Uncounted says of how many results of the device nothing is concluded, and why.
	Uncounted string   `json:"not_counted,omitempty"`
	Missing   []string `json:"not_measured"`
}

// Settings are levels of what an owner can set, and the worst rate that was measured with them.
type Settings struct {
	Words  string  `json:"words"` // "clock at 1400 MHz and queue fq-codel"
	LowBps float64 `json:"low_bps"`
	Share  float64 `json:"share"` // of what is needed
}

// Year is the energy that a router takes in a year, with a number of hours a day at full load and the rest
// in normal operation.
type Year struct {
	LowKWh   float64 `json:"low_kwh"`
	HighKWh  float64 `json:"high_kwh"`
	LowCost  float64 `json:"low_cost,omitempty"` // by the price asked for
	HighCost float64 `json:"high_cost,omitempty"`
	// Basis says which published figures it rests on, and what was assumed where one is missing.
	Basis string `json:"basis"`
}

// GoodputBps returns the goodput that is needed: what the line carries of full TCP packets through the
// tunnel.
func (n Need) GoodputBps() float64 {
	return lineCeiling(n.WANBps, catalogue.Result{Tunnel: n.Tunnel, Protocol: "tcp", MTU: n.MTU})
}

// FittingMTU returns the default inner MTU of a tunnel over Ethernet.
func FittingMTU(tunnel string) int {
	if _, ok := overhead.Named(tunnel); !ok {
		return 1500
	}
	return overhead.TunnelMTU(tunnel, 4, 1500)
}

// Advise checks every device of the catalogue, the best first: by measured results, if there are any, else by
// the models.
func Advise(c *catalogue.Catalogue, n Need, scores []Errors) []Advice {
	w := world{c, c.Results}
	sound := *c
	sound.Results = slices.DeleteFunc(slices.Clone(c.Results), func(r catalogue.Result) bool {
		return w.impossible(r) != ""
	})
	var out []Advice
	for _, d := range c.Devices {
		a := advise(&sound, d, n, scores)
		a.Impossible = Impossible(c, c.Results, n.rowsOf(c, d))
		out = append(out, a)
	}

	rank := []string{Enough, EnoughIf, Borderline, NotEnough, CannotTell}
	slices.SortStableFunc(out, func(a, b Advice) int {
		return cmp.Or(cmp.Compare(slices.Index(rank, a.Verdict), slices.Index(rank, b.Verdict)),
			cmp.Compare(a.ByModel, b.ByModel), -cmp.Compare(a.HighBps, b.HighBps))
	})
	return out
}

func advise(c *catalogue.Catalogue, d catalogue.Device, n Need, scores []Errors) Advice {
	need := n.GoodputBps()
	a := Advice{
		Device:  d.Name,
		Verdict: CannotTell,
		Watts:   watts(c, d.Name),
		Year:    yearOf(c, d.Name, n),
	}
	rows := n.rowsOf(c, d)
	streams := suited(rows, n.Users)
	rows = slices.DeleteFunc(rows, func(r catalogue.Result) bool {
		return r.Streams != streams || n.OnlyMTU && n.otherMTU(r)
	})
	usual := without(rows, n.otherMTU)
	a.Missing = unmeasured(usual, n, a.Watts)
	carries := func(r catalogue.Result) bool { return *r.GoodputBps >= enoughShare*need }
	if d.PortBps() == 0 && !slices.ContainsFunc(usual, carries) {
		a.Missing = append(a.Missing, "the rate of its ports")
	}

	asked := catalogue.Result{
		Device:   d.Name,
		Tunnel:   n.Tunnel,
		Protocol: "tcp",
		Streams:  streams,
		MTU:      n.MTU,
	}
	if len(usual) > 0 {
		a.measured(usual, need)
		if a.Verdict == NotEnough && streams < n.Users {
			a.moreStreams(without(n.rowsOf(c, d), n.otherMTU), streams, need)
		}
	} else {
		a.model(c, asked, need, scores)
	}

	link := d.LinkBps()
	atLink := slices.ContainsFunc(usual, world{c, c.Results}.linkBound)
	if len(usual) == 0 { // 0: no upper end
		atLink = a.HighBps == 0 || a.HighBps >= linkShare*lineCeiling(link, asked)
	}

	if a.Verdict != Enough && atLink && link > 0 && link < n.WANBps {
		a.Verdict = CannotTell
		a.Why += fmt.Sprintf("; the study's link was %s: it cannot tell", unit.Bitrate(link))
	}

	if a.Verdict != Enough {
		a.settings(rows, n)
	}

	return a
}

// rowsOf returns the rates of a device that bear on the need.
func (n Need) rowsOf(c *catalogue.Catalogue, d catalogue.Device) []catalogue.Result {
	rows := c.Filtered(catalogue.Filter{Device: d.Name, Tunnel: n.Tunnel, Protocol: "tcp"})
	return slices.DeleteFunc(rows, func(r catalogue.Result) bool { return r.GoodputBps == nil })
}

func (n Need) otherMTU(r catalogue.Result) bool { return n.MTU > 0 && r.MTU > 0 && r.MTU != n.MTU }

// measured checks a device by its own results.
func (a *Advice) measured(rows []catalogue.Result, need float64) {
	byRate := func(a, b catalogue.Result) int { return cmp.Compare(*a.GoodputBps, *b.GoodputBps) }
	worst := slices.MinFunc(rows, byRate)
	best := slices.MaxFunc(rows, byRate)
	a.LowBps = *worst.GoodputBps
	a.HighBps = *best.GoodputBps
	a.check(need)
	a.Why = "measured " + unit.Bitrate(a.LowBps).String()
	switch {
	case len(rows) > 1:
		a.Why += fmt.Sprintf(" (%s) to %s (%s)", setting(worst), unit.Bitrate(a.HighBps), setting(best))
	case worst.Condition != "":
		a.Why += fmt.Sprintf(" (%s)", worst.Condition)
	}

	if worst.Streams > 0 {
		a.Why += " with " + unit.Count(worst.Streams, "stream")
	}
}

// moreStreams takes a verdict back that rests on fewer streams than there are users, if more were faster.
func (a *Advice) moreStreams(rows []catalogue.Result, streams int, need float64) {
	for _, r := range rows {
		if r.Streams > streams && *r.GoodputBps > a.HighBps && *r.GoodputBps >= borderlineShare*need {
			a.Verdict = Borderline
			a.HighBps = *r.GoodputBps
			a.Why += fmt.Sprintf("; %s with %s", unit.Bitrate(a.HighBps), unit.Count(r.Streams, "stream"))
		}
	}
}

func without(rows []catalogue.Result, drop func(catalogue.Result) bool) []catalogue.Result {
	return slices.DeleteFunc(slices.Clone(rows), drop)
}

// check compares a range with the need: its low end must suffice for one verdict, its high end must fall
// short for the other.
func (a *Advice) check(need float64) {
	switch {
	case a.LowBps >= enoughShare*need:
		a.Verdict = Enough
	case a.HighBps > 0 && a.HighBps < borderlineShare*need: // 0: the range has no upper end
		a.Verdict = NotEnough
	default:
		a.Verdict = Borderline
	}
}

// model asks the models if no result answers.
func (a *Advice) model(c *catalogue.Catalogue, q catalogue.Result, need float64, scores []Errors) {
	p := Predict(c, c.Results, q, scores)
	switch {
	case len(p.Estimates) > 0 && p.Estimates[0].Range() != "":
		best := p.Estimates[0]
		a.ByModel = best.Model
		a.LowBps = best.Low
		a.HighBps = best.High
		a.check(need)
		a.Why = fmt.Sprintf("model %s: %s, %s by its errors", best.From(), unit.Bitrate(best.GoodputBps),
			best.Range())
		if q.Streams > 0 {
			a.Why += " with " + unit.Count(q.Streams, "stream")
		}
	case p.AtMostBps > 0:
		a.HighBps = p.AtMostBps
		a.ByModel = "bound"
		a.Why = fmt.Sprintf("no more than %s, by %s", unit.Bitrate(p.AtMostBps), p.AtMost)
		switch {
		case q.Tunnel == "esp" && p.InSoftware:
			a.Why += "; a crypto engine may do more"
		case a.HighBps < borderlineShare*need:
			a.Verdict = NotEnough
		}
	default:
		a.Why = "neither a result nor what a model needs"
	}

	if a.Verdict == CannotTell && p.Unbound != "" {
		a.Why += "; " + p.Unbound
	}
}

// suited returns the number of streams of the results that count: the largest that does not exceed the users,
// else the smallest; 0 if no result states it.
func suited(rows []catalogue.Result, users int) int {
	best := 0
	for _, r := range rows {
		switch {
		case r.Streams == 0:
		case best == 0, r.Streams <= users && (r.Streams > best || best > users),
			r.Streams < best && best > users:
			best = r.Streams
		}
	}
	return best
}

// setting describes the conditions of a result.
func setting(r catalogue.Result) string {
	if r.IP == "" {
		return r.Conditions()
	}
	return "IPv" + r.IP + ", " + r.Conditions()
}

// watts lists all published power figures of a device.
func watts(c *catalogue.Catalogue, device string) string {
	var all catalogue.Power
	for _, p := range c.Powers {
		switch {
		case p.Device != device || p.Low == nil:
		case all.Low == nil:
			all = p
		default:
			all.Low, all.High = new(min(*all.Low, *p.Low)), new(max(*all.High, *p.High))
		}
	}
	return all.Watts()
}

// unmeasured lists what the results that count do not cover.
func unmeasured(rows []catalogue.Result, n Need, watts string) []string {
	var out []string
	open := func(name string, has func(catalogue.Result) bool) {
		if !slices.ContainsFunc(rows, has) {
			out = append(out, name)
		}
	}
	switch {
	case len(rows) == 0 && n.Tunnel == "none":
		out = append(out, "its rate")
	case len(rows) == 0:
		out = append(out, "its rate through "+n.Tunnel)
	default:
		open("IPv6", func(r catalogue.Result) bool { return r.IP == "6" })
		way := func(name string) bool {
			return slices.ContainsFunc(rows, func(r catalogue.Result) bool {
				return direction(r.Direction) == name
			})
		}
		open("both directions", func(catalogue.Result) bool { return way(factor.Up) && way(factor.Down) })
		if n.Tunnel != "none" {
			open("the inner MTU", func(r catalogue.Result) bool { return r.MTU > 0 })
		}

		open(unit.Count(n.Users, "user")+" at once", func(r catalogue.Result) bool {
			return r.Streams == n.Users
		})
	}

	out = append(out, "latency under load")
	if watts == "" {
		out = append(out, "power")
	}

	return out
}

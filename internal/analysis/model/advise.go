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

// Need describes the requirements that a router must meet.
type Need struct {
	WANBps float64 `json:"wan_bps"` // rate of the line
	Tunnel string  `json:"tunnel"`
	MTU    int     `json:"mtu"`
	// OnlyMTU reports that the router must use this MTU. Otherwise, Advise may name another MTU as a setting
	// with which a router is enough.
	OnlyMTU   bool    `json:"only_mtu,omitempty"`
	Users     int     `json:"users"`                   // simultaneous users
	BusyHours float64 `json:"busy_hours"`              // hours per day at full load
	Price     float64 `json:"price_per_kwh,omitempty"` // 0 means not given
}

// Verdicts about a device, best first.
const (
	Enough     = "enough"
	EnoughIf   = "enough if"
	Borderline = "borderline"
	NotEnough  = "not enough"
	CannotTell = "cannot tell"
)

// A device is enough if it reaches enoughShare of the line's goodput. The missing share is within the
// difference between two measurements. Below borderlineShare, a device is not enough.
const (
	enoughShare     = .95
	borderlineShare = .8
)

// Advice holds the verdict about one device for a need.
type Advice struct {
	Device  string  `json:"device"`
	Verdict string  `json:"verdict"`
	ByModel string  `json:"by_model,omitempty"` // name of the model, if there is no measurement
	LowBps  float64 `json:"low_bps,omitempty"`
	HighBps float64 `json:"high_bps,omitempty"` // upper end of the range; absent if the range has none
	// If lists the settings with which the device is enough: all rates measured with them are enough, while
	// some rates measured with other settings are not.
	If []Settings `json:"enough_if,omitempty"`
	// Nearest holds the settings with the best rate, if rates with several settings were measured and no rate
	// is enough.
	Nearest *Settings `json:"nearest_if,omitempty"`
	Watts   string    `json:"watts,omitempty"`
	Year    *Year     `json:"power_per_year,omitempty"` // absent if the device's power was not published
	Why     string    `json:"why"`
	// Impossible lists the reasons why no device can have produced some of the results. The verdict does not
	// use these results.
	Impossible []string `json:"impossible,omitempty"`
	// Uncounted describes how many results of the device the verdict does not use, and why.
	Uncounted string   `json:"not_counted,omitempty"`
	Missing   []string `json:"not_measured"`
}

// Settings describes levels that an owner can set, and the lowest rate measured with them.
type Settings struct {
	Words  string  `json:"words"` // such as "clock at 1400 MHz and queue fq-codel"
	LowBps float64 `json:"low_bps"`
	Share  float64 `json:"share"` // share of the required rate
}

// Year is the energy that a router uses in a year, if it runs some hours per day at full load and otherwise
// in normal operation.
type Year struct {
	LowKWh   float64 `json:"low_kwh"`
	HighKWh  float64 `json:"high_kwh"`
	LowCost  float64 `json:"low_cost,omitempty"` // at Need.Price
	HighCost float64 `json:"high_cost,omitempty"`
	// Basis names the published figures on which the energy is based, and the assumptions that replace
	// missing figures.
	Basis string `json:"basis"`
}

// GoodputBps returns the required goodput: what the line carries through the tunnel in full-size TCP packets.
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

// Advise returns a verdict for each device of the catalogue, best device first. It uses the measured results
// of a device or, if there are none, the models.
func Advise(c *catalogue.Catalogue, n Need, scores []Errors) []Advice {
	w := world{c, c.Results}
	sound := *c
	sound.Results = without(c.Results, func(r catalogue.Result) bool { return w.impossible(r) != "" })
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
	if len(usual) == 0 { // HighBps is 0 if the range has no upper end
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

// rowsOf returns the rates of a device that are relevant to the need.
func (n Need) rowsOf(c *catalogue.Catalogue, d catalogue.Device) []catalogue.Result {
	rows := c.Filtered(catalogue.Filter{Device: d.Name, Tunnel: n.Tunnel, Protocol: "tcp"})
	return slices.DeleteFunc(rows, func(r catalogue.Result) bool { return r.GoodputBps == nil })
}

func (n Need) otherMTU(r catalogue.Result) bool { return n.MTU > 0 && r.MTU > 0 && r.MTU != n.MTU }

// measured sets the verdict based on the device's own results.
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

// moreStreams changes the verdict to borderline if results with more streams were faster and the verdict is
// based on fewer streams than there are users.
func (a *Advice) moreStreams(rows []catalogue.Result, streams int, need float64) {
	for _, r := range rows {
		if r.Streams > streams && *r.GoodputBps > a.HighBps && *r.GoodputBps >= borderlineShare*need {
			a.Verdict = Borderline
			a.HighBps = *r.GoodputBps
			a.Why += fmt.Sprintf("; %s with %s", unit.Bitrate(a.HighBps), unit.Count(r.Streams, "stream"))
		}
	}
}

// without returns the elements that drop does not select.
func without[T any](all []T, drop func(T) bool) []T {
	return slices.DeleteFunc(slices.Clone(all), drop)
}

// once appends an element unless the list already contains it.
func once[T comparable](list []T, x T) []T {
	if slices.Contains(list, x) {
		return list
	}
	return append(list, x)
}

// check sets the verdict by comparing the range with the need. The verdict is Enough only if the low end is
// enough, and NotEnough only if the high end is too low.
func (a *Advice) check(need float64) {
	switch {
	case a.LowBps >= enoughShare*need:
		a.Verdict = Enough
	case a.HighBps > 0 && a.HighBps < borderlineShare*need: // 0 means that the range has no upper end
		a.Verdict = NotEnough
	default:
		a.Verdict = Borderline
	}
}

// model sets the verdict based on the models, for a device without suitable results.
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
		a.Why = "no published result, and too little data for a model"
	}

	if a.Verdict == CannotTell && p.Unbound != "" {
		a.Why += "; " + p.Unbound
	}
}

// suited returns the number of streams whose results the verdict should use. This is the largest number that
// does not exceed the number of users or, if there is none, the smallest number. If no result states a number
// of streams, suited returns 0.
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
			all.Low = new(min(*all.Low, *p.Low))
			all.High = new(max(*all.High, *p.High))
		}
	}
	return all.Watts()
}

// unmeasured lists the requirements that are not covered by the results on which the verdict is based.
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

package model

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/catalogue"
	"github.com/chokepoint-lab/chokepoint/internal/factor"
	"github.com/chokepoint-lab/chokepoint/internal/overhead"
	"github.com/chokepoint-lab/chokepoint/internal/unit"
)

// Names of the models, best model first. Models that use the device's own results precede models that use
// other devices.
const (
	ByNeighbours = "own neighbours"
	ByPackets    = "packet cost"
	ByStreams    = "scalability"
	ByNearest    = "nearest own result"
	ByCipher     = "cipher and forwarding"
	ByClock      = "cores and clock"
)

// Estimate is the prediction of one model.
type Estimate struct {
	Model      string  `json:"model"`
	GoodputBps float64 `json:"goodput_bps"`
	// Low and High are the range given by the measured errors of the model, extended to include the model's
	// own interval and the intervals of the results on which the estimate is based. Both are 0 if none of
	// these is known. If the model's interval has no upper end and neither the link nor the cipher limits the
	// rate, High is 0 and Low is not.
	Low     float64  `json:"low_bps"`
	High    float64  `json:"high_bps,omitempty"`
	Basis   []string `json:"basis"`       // results that were used, and parameters of the fit
	Assumes []string `json:"assumptions"` // conditions that must hold
	// OtherDevices marks an estimate that uses results of other devices.
	OtherDevices bool `json:"other_devices,omitempty"`

	spread    float64 // median, over the results used, of half the interval ÷ rate; 0 means none
	few       bool    // a spread is the range of all values, because there are too few runs
	low, high float64 // model's own interval in bit/s; 0 means none, +Inf means no upper end
}

// widen extends the range to include the interval of the model and the intervals of the results used.
func (e *Estimate) widen() {
	if e.spread == 0 && e.low == 0 {
		return
	}

	if e.spread > 0 {
		what := "intervals of"
		if e.few {
			what = "the least and most of too few runs for an interval,"
		}

		e.Basis = append(e.Basis, fmt.Sprintf("%s ±%s around these: the range is no narrower", what,
			unit.Percent(e.spread)))
	}

	if e.High == 0 {
		e.Low = e.GoodputBps
		e.High = e.GoodputBps
	}

	e.Low = min(e.Low, e.GoodputBps*max(0, 1-e.spread))
	e.High = max(e.High, e.GoodputBps*(1+e.spread), e.high)
	if e.low > 0 {
		e.Low = min(e.Low, e.low)
	}
}

// From returns the model's name, and states whether the model uses other devices.
func (e Estimate) From() string {
	if e.OtherDevices {
		return e.Model + ", from other devices"
	}
	return e.Model
}

// Range describes the range of the estimate, such as "from 33.1 Mbit/s to 44.0 Mbit/s" or "33.1 Mbit/s or
// more". It returns "" if there is none.
func (e Estimate) Range() string {
	switch {
	case e.High > 0:
		return fmt.Sprintf("from %s to %s", unit.Bitrate(e.Low), unit.Bitrate(e.High))
	case e.low > 0:
		return unit.Bitrate(e.Low).String() + " or more"
	}
	return ""
}

// Refusal explains why a model has no estimate.
type Refusal struct {
	Model  string `json:"model"`
	Reason string `json:"reason"`
}

// world is the input of the models: devices, cipher speeds, and the results that they may use.
type world struct {
	*catalogue.Catalogue
	rows []catalogue.Result
}

// models lists the models in the order in which they are tried. A query is a catalogue result without a rate.
// Attributes that are empty in the query match any level.
var models = []struct {
	name     string
	estimate func(world, catalogue.Result) (Estimate, error)
}{
	{ByNeighbours, world.byNeighbours},
	{ByPackets, world.byPackets},
	{ByStreams, world.byStreams},
	{ByNearest, world.byNearest},
	{ByCipher, world.byCipher},
	{ByClock, world.byClock},
}

// Answer is a measured result that agrees with a query in all attributes that both state.
type Answer struct {
	catalogue.Result
	Unstated   []string `json:"not_stated,omitempty"` // attributes that only the query has
	Impossible string   `json:"impossible,omitempty"` // why no device can have produced it
}

// Words describes the conditions that the answer states and the query does not, such as "streams 4, 2026,
// up".
func (a Answer) Words(q catalogue.Result) string {
	var words []string
	for _, at := range attributes {
		load := slices.Contains([]string{"streams", "mtu", "packet", "ip"}, at.name)
		level := at.of(a.Result)
		if load && level != "" && at.of(q) == "" {
			words = append(words, at.name+" "+level)
		}
	}

	others := a.Conditions()
	if others != "" {
		words = append(words, others)
	}

	return strings.Join(words, ", ")
}

// Prediction holds the measured and the estimated answers to a query.
type Prediction struct {
	Question  catalogue.Result `json:"question"`
	Measured  []Answer         `json:"measured"`
	Estimates []Estimate       `json:"estimates"` // best first
	Refused   []Refusal        `json:"refused,omitempty"`
	Bound
	Errors  []Errors `json:"errors"`            // errors of the models that gave an estimate
	Rates   int      `json:"rates"`             // number of results given to the models
	Suspect int      `json:"suspect,omitempty"` // number of suspect results among them
	// Impossible lists the reasons why no device can have produced some of the results. Models may still have
	// used these results.
	Impossible []string `json:"impossible,omitempty"`
	// Uncounted describes how many of the device's own results were withheld from the models, and why.
	Uncounted string            `json:"not_counted,omitempty"`
	Powers    []catalogue.Power `json:"powers"` // published power figures of the device
}

// Predict answers a query with the measured results that match, and with the estimate of each model. The
// range of an estimate follows from the model's errors on the catalogue.
func Predict(c *catalogue.Catalogue, rows []catalogue.Result, q catalogue.Result,
	scores []Errors) Prediction {
	w := world{c, rows}
	p := Prediction{
		Question:  q,
		Measured:  w.answers(q),
		Estimates: []Estimate{},
		Bound:     w.atMost(q),
		Errors:    []Errors{},
		Rates:     len(rows),
		Suspect:   Suspect(rows),
		Powers:    c.PowersOf(q.Device),
	}
	own := without(rows, func(r catalogue.Result) bool {
		return !agree(catalogue.Result{Device: q.Device, Tunnel: q.Tunnel, Protocol: q.Protocol}, r)
	})
	p.Impossible = Impossible(c, rows, own)
	for _, m := range models {
		e, err := m.estimate(w, q)
		if err != nil {
			p.Refused = append(p.Refused, Refusal{m.name, err.Error()})
			continue
		}

		if p.AtMostBps > 0 && e.GoodputBps > p.AtMostBps {
			e.GoodputBps = p.AtMostBps
			e.Basis = append(e.Basis, "no more than "+p.AtMost+" allows")
		}

		i := slices.IndexFunc(scores, func(s Errors) bool { return s.Model == m.name })
		if i >= 0 {
			s := scores[i]
			if s.N > 0 {
				e.Low = e.GoodputBps / (1 + s.High)
				e.High = e.GoodputBps / (1 + s.Low)
				s.Scores = nil
				p.Errors = append(p.Errors, s)
			}
		}

		if e.widen(); p.AtMostBps > 0 {
			e.Low = min(e.Low, p.AtMostBps)
			e.High = min(e.High, p.AtMostBps)
		}

		if math.IsInf(e.High, 1) {
			e.High = 0
		}

		p.Estimates = append(p.Estimates, e)
	}

	slices.SortStableFunc(p.Estimates, func(a, b Estimate) int {
		switch {
		case a.OtherDevices == b.OtherDevices:
			return 0
		case a.OtherDevices:
			return 1
		}
		return -1
	})
	return p
}

// attributes lists the attributes in which results must agree to be compared.
var attributes = []struct {
	name string
	of   func(catalogue.Result) string
}{
	{"device", func(r catalogue.Result) string { return r.Device }},
	{"tunnel", func(r catalogue.Result) string { return r.Tunnel }},
	{"protocol", func(r catalogue.Result) string { return r.Protocol }},
	{"streams", func(r catalogue.Result) string { return number(r.Streams) }},
	{"mtu", func(r catalogue.Result) string { return number(r.MTU) }},
	{"packet", func(r catalogue.Result) string { return number(r.Packet) }},
	{"ip", func(r catalogue.Result) string { return r.IP }},
	{"direction", func(r catalogue.Result) string { return direction(r.Direction) }},
	{"source", func(r catalogue.Result) string { return r.Source }},
	{"measured", func(r catalogue.Result) string { return r.Measured }},
	{"condition", func(r catalogue.Result) string { return r.Condition }},
	{"queue", func(r catalogue.Result) string { return r.Queue }},
	{"clock", func(r catalogue.Result) string { return r.Clock }},
	{"firewall", func(r catalogue.Result) string { return r.Firewall }},
}

// direction converts the direction of a study to the direction of a plan: "in" becomes down, and "out"
// becomes up.
func direction(word string) string {
	switch word {
	case "in":
		return factor.Down
	case "out":
		return factor.Up
	}
	return word
}

func number(n int) string {
	if n == 0 {
		return ""
	}
	return strconv.Itoa(n)
}

// Words describes the attributes of a result, such as "device BPI-R4, tunnel none, protocol tcp, streams 4".
func Words(r catalogue.Result) string {
	var words []string
	for _, at := range attributes {
		level := at.of(r)
		if level != "" {
			words = append(words, at.name+" "+level)
		}
	}
	return strings.Join(words, ", ")
}

// Differs returns the attributes in which two results differ, and the attributes that only one of them
// states.
func Differs(a, b catalogue.Result) (differ, onlyA, onlyB []string) {
	for _, at := range attributes {
		switch x, y := at.of(a), at.of(b); {
		case strings.EqualFold(x, y):
		case y == "":
			onlyA = append(onlyA, at.name)
		case x == "":
			onlyB = append(onlyB, at.name)
		default:
			differ = append(differ, at.name)
		}
	}
	return differ, onlyA, onlyB
}

// agree reports whether two results have the same level of each attribute that both state, except the
// attributes in except.
func agree(a, b catalogue.Result, except ...string) bool {
	for _, at := range attributes {
		x := at.of(a)
		y := at.of(b)
		if x != "" && y != "" && !strings.EqualFold(x, y) && !slices.Contains(except, at.name) {
			return false
		}
	}
	return true
}

func (w world) answers(q catalogue.Result) []Answer {
	out := []Answer{}
	for _, r := range w.rows {
		if r.GoodputBps != nil && agree(q, r) && !w.otherClock(q, r) {
			_, unstated, _ := Differs(q, r)
			out = append(out, Answer{r, unstated, w.impossible(r)})
		}
	}
	return out
}

// sweeps returns groups of results that match a query in all attributes except the swept ones. Within a
// group, the results also agree with each other in all attributes that are not swept.
func (w world) sweeps(q catalogue.Result, swept ...string) [][]catalogue.Result {
	var keys []string
	groups := map[string][]catalogue.Result{}
	for _, r := range w.rows {
		if r.GoodputBps == nil || !agree(q, r, swept...) ||
			!slices.Contains(swept, "clock") && w.otherClock(q, r) {
			continue
		}

		key := ""
		complete := true
		for _, at := range attributes {
			if slices.Contains(swept, at.name) {
				complete = complete && at.of(r) != ""
				continue
			}

			key += at.of(r) + "\x00"
		}

		if !complete {
			continue
		}

		if groups[key] == nil {
			keys = append(keys, key)
		}

		groups[key] = append(groups[key], r)
	}

	var out [][]catalogue.Result
	for _, key := range keys {
		out = append(out, groups[key])
	}

	return out
}

// tunnelOf returns the tunnel of a result or query. If no MTU is stated, the tunnel has its default MTU. The
// exception is a result of OpenVPN, which has tun-mtu 1500.
func tunnelOf(r catalogue.Result) overhead.Tunnel {
	t, _ := overhead.Named(r.Tunnel)
	t.MTU = cmp.Or(r.MTU, FittingMTU(r.Tunnel))
	if r.MTU == 0 && r.GoodputBps != nil && t.Kind == overhead.OpenVPNUDP {
		t.MTU = 1500
	}

	return t
}

// packetOf returns the length and payload of a result's inner packet, and the number of outer packets that
// carry it. If the goodput and the packet rate imply a payload close to the stated length, that length counts
// as the length of the payload.
func packetOf(r catalogue.Result) (packet, payload, outside int) {
	t := tunnelOf(r)
	packet = cmp.Or(r.Packet, t.MTU)

	ip := overhead.V4
	if r.IP == "6" {
		ip = overhead.V6
	}

	payload = packet - ip.Headers(r.Protocol == "udp")
	if r.Packet > 0 && r.PacketRate != nil && r.GoodputBps != nil {
		implied := *r.GoodputBps / 8 / *r.PacketRate
		if math.Abs(implied-float64(packet)) < math.Abs(implied-float64(payload)) {
			payload = packet
		}
	}

	return packet, payload, max(1, len(t.Fragments(packet, 1500)))
}

// linkShare is the smallest share of a port's ceiling at which the port counts as the limit of a rate.
const linkShare = .95

// lineCeiling returns the goodput of a line filled with packets like those of a result. For traffic in both
// directions, it returns the sum of both directions.
func lineCeiling(bps float64, r catalogue.Result) float64 {
	packet, payload, _ := packetOf(r)
	path := overhead.Path{Tunnel: tunnelOf(r)}
	if r.Direction == factor.Both {
		bps *= 2
	}

	return path.PacketRate(bps, packet, overhead.LayerWire) * float64(payload) * 8
}

// portCeiling returns the goodput that the ports of a result's device can carry. If the result comes from the
// study that describes the device, and the link of that study is slower than the ports, portCeiling returns
// the goodput of the link. It returns 0 if neither rate is known.
func (w world) portCeiling(r catalogue.Result) float64 {
	d, _ := w.Device(r.Device)
	bps := d.PortBps()
	if link := d.LinkBps(); link > 0 && r.Source == d.Source && (bps == 0 || link < bps) {
		bps = link
	}

	return lineCeiling(bps, r)
}

func (w world) linkBound(r catalogue.Result) bool {
	ceiling := w.portCeiling(r)
	return ceiling > 0 && *r.GoodputBps >= linkShare*ceiling
}

// BeyondLink reports whether the rate of a result exceeds the link of its device.
func BeyondLink(c *catalogue.Catalogue, r catalogue.Result) bool {
	return r.GoodputBps != nil && world{Catalogue: c}.beyondPort(r)
}

// beyondPort reports whether the rate of a result exceeds portCeiling by more than OnceWithin.
func (w world) beyondPort(r catalogue.Result) bool {
	ceiling := w.portCeiling(r)
	return ceiling > 0 && *r.GoodputBps > ceiling*(1+OnceWithin)
}

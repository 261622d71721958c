package model

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/statistics"
	"github.com/chokepoint-lab/chokepoint/internal/catalogue"
	"github.com/chokepoint-lab/chokepoint/internal/unit"
)

// gathered collects the estimates from several sweeps and the results behind them. If there is no estimate,
// reason says why: it is the first error or, if there is one, the first ErrImpossible.
type gathered struct {
	Estimate
	rates   []float64
	spreads []float64 // spreads of the results on which the estimates are based
	reason  error
}

// each adds the estimate from each sweep, which of returns with its basis.
func (g *gathered) each(sweeps [][]catalogue.Result,
	of func(sweep []catalogue.Result) (bps float64, basis string, err error)) {
	for _, sweep := range sweeps {
		bps, basis, err := of(sweep)
		switch {
		case err == nil:
			g.rates = append(g.rates, bps)
			g.Basis = append(g.Basis, basis)
		// Prefer an impossible sweep as the reason, because it says more than a sweep that is too short.
		case g.reason == nil || errors.Is(err, ErrImpossible) && !errors.Is(g.reason, ErrImpossible):
			g.reason = err
		}
	}
}

func (g *gathered) estimate(none error, model string, assumes ...string) (Estimate, error) {
	if len(g.rates) == 0 {
		return Estimate{}, cmp.Or(g.reason, none)
	}

	g.Model = model
	g.GoodputBps = statistics.Median(g.rates)
	g.Assumes = assumes
	g.spread = statistics.Median(g.spreads)
	return g.Estimate, nil
}

// spans extends the interval to include the interval that a model gives, from low to high. high may be +Inf.
func (g *gathered) spans(low, high float64) {
	if g.low == 0 || low < g.low {
		g.low = low
	}

	g.high = max(g.high, high)
}

// rests records the spreads of the results on which an estimate is based.
func (g *gathered) rests(sweep []catalogue.Result) {
	for _, r := range sweep {
		g.spreads = append(g.spreads, r.Spread)
		g.few = g.few || r.Spread > 0 && r.Runs < statistics.MinInterval
	}
}

// from describes the source of a sweep, followed by the levels of the swept attribute.
func from(sweep []catalogue.Result, swept func(catalogue.Result) int, noun string) string {
	var levels []string
	for _, r := range sweep {
		levels = append(levels, strconv.Itoa(swept(r)))
	}
	return fmt.Sprintf("%s, %s %s: ", origin(sweep), strings.Join(levels, ", "), noun)
}

// origin describes the source of a sweep, and the conditions that all its results share.
func origin(sweep []catalogue.Result) string {
	text := sweep[0].Source
	words := sweep[0].Conditions()
	if words != "" {
		text += " (" + words + ")"
	}

	return text
}

// within returns the relative tolerance of the rates in a sweep.
func within(sweep []catalogue.Result) float64 {
	share := RepeatedWithin
	for _, r := range sweep {
		if share = max(share, 2*r.Spread); r.Runs < 5 {
			share = max(share, OnceWithin)
		}
	}
	return share
}

func (w world) byPackets(q catalogue.Result) (Estimate, error) {
	size := sizeAxis(q)
	swept := size.name
	level := size.level
	if level(q) == 0 {
		return Estimate{}, errors.New("no MTU or packet size is named")
	}

	var g gathered
	g.each(w.sweeps(q, swept), func(sweep []catalogue.Result) (float64, string, error) {
		var sizes []Size
		var bad error
		for _, r := range sweep {
			packet, payload, outside := packetOf(r)
			switch {
			case outside > 1:
				bad = fmt.Errorf("packets of %d bytes are sent in %d fragments", packet, outside)
			case w.linkBound(r):
				bad = fmt.Errorf("the link bounds the rate of %d bytes", packet)
			}

			sizes = append(sizes, Size{packet, payload, *r.GoodputBps})
		}

		packet, payload, outside := packetOf(q)
		if q.Packet > 0 { // count the same headers as the results of the sweep
			payload = packet - sizes[0].Packet + sizes[0].Payload
		}

		if outside > 1 {
			bad = fmt.Errorf("packets of %d bytes are sent in %d fragments", packet, outside)
		}

		if bad != nil {
			return 0, "", bad
		}

		cost, err := FitPacketCost(sizes, within(sweep))
		if err != nil {
			return 0, "", err
		}

		bps, low, high, err := cost.At(packet, payload)
		if err != nil {
			return 0, "", err
		}

		g.rests(sweep)
		g.spans(low, high)
		text := from(sweep, level, "bytes") + cost.Text()
		switch {
		case low == high: // no interval, because the sweep has only two sizes
		case math.IsInf(high, 1):
			text += fmt.Sprintf("; 95 %% of one more: %s or more", unit.Bitrate(low))
		default:
			text += fmt.Sprintf("; 95 %% of one more: %s to %s", unit.Bitrate(low), unit.Bitrate(high))
		}

		return bps, text, nil
	})
	return g.estimate(w.noSweep(q, swept), ByPackets,
		"a packet costs a fixed time and a time per byte, at every size",
		"neither link nor fragments bound it")
}

func (w world) byStreams(q catalogue.Result) (Estimate, error) {
	if q.Streams == 0 {
		return Estimate{}, errors.New("no number of streams is named")
	}

	var g gathered
	g.each(w.sweeps(q, "streams"), func(sweep []catalogue.Result) (float64, string, error) {
		var points []statistics.ScalingPoint
		if slices.ContainsFunc(sweep, func(r catalogue.Result) bool { return r.Lab != "" }) {
			return 0, "", errors.New("client and server share the router's cores: more streams leave it less")
		}

		for _, r := range sweep {
			if !w.linkBound(r) {
				points = append(points, statistics.ScalingPoint{
					Level:      float64(r.Streams),
					GoodputBps: *r.GoodputBps,
				})
			}
		}

		if len(points) == 0 {
			return 0, "", errors.New("the link bounds all that was measured")
		}

		s, err := FitScaling(points)
		if err != nil {
			return 0, "", err
		}

		g.rests(sweep)
		bps, err := s.At(float64(q.Streams))
		return bps, from(sweep, streamAxis().level, "streams") + s.Text(), err
	})
	return g.estimate(w.noSweep(q, "streams"), ByStreams,
		"the same thing limits at every number of streams, and the link at none",
		"the streams' ends take nothing from the router")
}

// capacity returns the result in which a device had its highest rate through a tunnel. It ignores rates that
// the link limits. It also ignores rates of hardware forwarding, which does not use the processor. All other
// limits only lower a rate.
func (w world) capacity(device string, q catalogue.Result) (best catalogue.Result, ok bool) {
	like := catalogue.Result{
		Device:   device,
		Tunnel:   q.Tunnel,
		Protocol: q.Protocol,
		Streams:  q.Streams,
		MTU:      q.MTU,
		Packet:   q.Packet,
	}
	for _, r := range w.rows {
		unsaid := q.Streams > 0 && r.Streams == 0
		if !unsaid && r.GoodputBps != nil && r.Condition != "hardware offload on" && agree(like, r) &&
			!w.linkBound(r) && (!ok || *r.GoodputBps > *best.GoodputBps) {
			best = r
			ok = true
		}
	}
	return best, ok
}

// calibrated returns an estimate from the rates of other devices: the geometric mean of their rates per unit,
// such as per MHz, multiplied by the number of units of the requested device.
func calibrated(model string, units float64, per []float64, basis, assumes []string) Estimate {
	sum := 0.0
	for _, p := range per {
		sum += math.Log(p)
	}
	return Estimate{
		Model:        model,
		GoodputBps:   units * math.Exp(sum/float64(len(per))),
		Basis:        basis,
		Assumes:      assumes,
		OtherDevices: true,
	}
}

// byOwnClock estimates a rate from the device's own rates at two or more clock frequencies.
func (w world) byOwnClock(q catalogue.Result, mhz float64) (Estimate, error) {
	var g gathered
	g.each(w.sweeps(q, "clock"), func(sweep []catalogue.Result) (float64, string, error) {
		var points []Clocked
		for _, r := range sweep {
			if f, err := strconv.ParseFloat(r.Clock, 64); err == nil && !w.linkBound(r) {
				points = append(points, Clocked{f, *r.GoodputBps})
			}
		}

		e, err := Elasticity(points)
		if len(points) == 0 {
			err = errors.New("no rate at a clock in MHz that the link did not bound")
		}

		if err != nil {
			return 0, "", err
		}

		logs := 0.0 // sum of ln(rate), with each rate scaled to the requested clock
		for _, p := range points {
			logs += math.Log(p.GoodputBps) + e*math.Log(mhz/p.MHz)
		}

		g.rests(sweep)
		return math.Exp(logs / float64(len(points))), fmt.Sprintf("%s, elasticity %s", sweep[0].Source,
			unit.Significant(e, 3)), nil
	})
	return g.estimate(w.noSweep(q, "clock"), ByClock,
		"the rate goes on to move with the clock as between those measured")
}

// askedClock returns the clock that a query requests, in MHz, or 0 if it requests none.
func askedClock(q catalogue.Result) float64 {
	mhz, err := strconv.ParseFloat(q.Clock, 64)
	if err != nil || !(mhz > 0) {
		return 0
	}
	return mhz
}

// overclock returns the requested clock ÷ the published clock of the device, or 1 if one of them is unknown.
func (w world) overclock(q catalogue.Result) float64 {
	d, _ := w.Device(q.Device)
	mhz := askedClock(q)
	if mhz > 0 && d.ClockMHz > 0 {
		return mhz / float64(d.ClockMHz)
	}

	return 1
}

// otherClock reports whether result r states no clock and the query asks for a clock other than the published
// one. A result that states no clock was measured at the published clock of its device.
func (w world) otherClock(q, r catalogue.Result) bool { return r.Clock == "" && w.overclock(q) != 1 }

// noSweep explains why no results match the query in all attributes except the swept one.
func (w world) noSweep(q catalogue.Result, swept string) error {
	usual := q
	usual.Clock = ""
	if w.overclock(q) != 1 && len(w.sweeps(usual, swept)) > 0 {
		d, _ := w.Device(q.Device)
		return fmt.Errorf("its rates are at %d MHz", d.ClockMHz)
	}

	return errors.New("nothing comparable of this device was measured")
}

func (w world) byClock(q catalogue.Result) (Estimate, error) {
	asked := askedClock(q)
	var own error
	if asked > 0 {
		var e Estimate
		if e, own = w.byOwnClock(q, asked); own == nil {
			return e, nil
		}
	}

	d, known := w.Device(q.Device)
	mhz := cmp.Or(asked, float64(d.ClockMHz))
	by := w.overclock(q)
	switch {
	case !known && own != nil:
		return Estimate{}, fmt.Errorf("from its own rates: %w; and its processor is not known", own)
	case !known:
		return Estimate{}, errors.New("its processor is not known")
	case d.Cores == 0 || mhz == 0:
		return Estimate{}, errors.New("the device's cores or clock are not known")
	case by > reach || by*reach < 1:
		return Estimate{}, fmt.Errorf("%g MHz is more than a factor of %d from the %d MHz of the device", mhz,
			reach, d.ClockMHz)
	}

	var per []float64
	var basis []string
	for _, other := range w.Devices {
		if other.SoC == d.SoC || other.Family() != d.Family() || other.Cores == 0 || other.ClockMHz == 0 {
			continue
		}

		if r, ok := w.capacity(other.Name, q); ok {
			per = append(per, *r.GoodputBps/float64(other.Cores*other.ClockMHz))
			basis = append(basis, fmt.Sprintf("%s: %s by %d × %d MHz, %s per core and MHz", other.Name,
				unit.Bitrate(*r.GoodputBps), other.Cores, other.ClockMHz, unit.Bitrate(per[len(per)-1])))
		}
	}

	if len(per) == 0 {
		return Estimate{}, fmt.Errorf("no other %s device has a comparable result that its link did not "+
			"bound", d.Family())
	}

	if asked > 0 {
		basis = append(basis, fmt.Sprintf("%d × %g MHz of the device", d.Cores, mhz))
	}

	return calibrated(ByClock, float64(d.Cores)*mhz, per, basis, []string{
		"all cores of all " + d.Family() + " devices are alike, all of them work, and the processor " +
			"limits, in proportion to its clock"}), nil
}

// ciphers returns the ciphers that a tunnel may use, the default one first.
func ciphers(tunnel string) []string {
	switch tunnel {
	case "wireguard":
		return []string{"chacha20-poly1305"}
	case "openvpn", "esp":
		return []string{"aes-256-gcm", "aes-128-gcm", "aes-128-cbc", "chacha20-poly1305"}
	}
	return nil
}

// suites returns the suites that a tunnel may use: an AEAD, or a cipher and a hash, each of which processes
// every byte. It leaves out longer keys, which are slower.
func suites(tunnel string) [][]string {
	if tunnel == "wireguard" {
		return [][]string{{"chacha20-poly1305"}}
	}
	return [][]string{
		{"aes-128-gcm"},
		{"chacha20-poly1305"},
		{"aes-128-cbc", "sha1"},
		{"aes-128-cbc", "sha256"},
	}
}

// encrypting returns the number of threads of a device that a tunnel can use, or 0 if it is unknown. OpenVPN
// is a single-threaded process. All packets of an IPsec association are processed on one core.
func encrypting(d catalogue.Device, tunnel string) int {
	if tunnel == "openvpn" || tunnel == "esp" {
		return 1
	}
	return max(d.Cores, d.Threads)
}

// encryptingText describes the number that encrypting returns, such as "2 cores".
func encryptingText(d catalogue.Device, tunnel string) string {
	n := encrypting(d, tunnel)
	if n > d.Cores && d.Cores > 0 {
		return unit.Count(n, "thread")
	}
	return unit.Count(n, "core")
}

// speed returns the speed of an algorithm on one core of a device, in bytes per second, for the largest block
// size. It returns 0 if the speed is unknown.
func (w world) speed(d catalogue.Device, algorithm string) (bps float64) {
	block := -1
	for _, s := range w.Speeds {
		if s.Device == d.Name && s.Algorithm == algorithm && s.Block > block && s.Operation == "throughput" &&
			s.Value != nil {
			bps = *s.Value
			block = s.Block
		}
	}
	return bps
}

// fastest returns the fastest suite that a tunnel may use, and its speed on one core. If the speed of any
// suite is unknown, that suite may be the fastest, so fastest returns only the reason, open.
func (w world) fastest(d catalogue.Device, tunnel string) (bps float64, name, open string) {
	var missing []string
	some := false
	for _, suite := range suites(tunnel) {
		time := 0.0 // time per byte
		for _, algorithm := range suite {
			speed := w.speed(d, algorithm)
			time += 1 / speed // +Inf if the speed of the algorithm is unknown
			some = some || speed > 0
			if speed == 0 {
				missing = once(missing, algorithm)
			}
		}

		if 1/time > bps {
			bps = 1 / time
			name = strings.Join(suite, " with ")
		}
	}

	switch {
	case len(missing) == 0:
		return bps, name, ""
	case some:
		open = "its cipher gives no bound: unknown is the speed of " + strings.Join(missing, ", ")
	}

	return 0, "", open
}

// stages returns the costs of forwarding and of encryption on a device. It uses the cipher's speed with the
// largest block. ok is false if this speed or the number of encrypting cores is unknown.
func (w world) stages(d catalogue.Device, q catalogue.Result, cipher string) (s Stages, ok bool) {
	s.Cipher = w.speed(d, cipher) * float64(encrypting(d, q.Tunnel))
	plain := catalogue.Result{Tunnel: "none", Protocol: q.Protocol}
	r, measured := w.capacity(d.Name, plain)
	if measured {
		packet, payload, _ := packetOf(r)
		s.Forward = Size{packet, payload, *r.GoodputBps}.time()
	}

	// Scale to the requested clock. The numbers of cycles do not depend on the clock.
	if strings.EqualFold(d.Name, q.Device) {
		by := w.overclock(q)
		s.Cipher = s.Cipher * by
		s.Forward = s.Forward / by
	}

	return s, s.Cipher > 0
}

func (w world) byCipher(q catalogue.Result) (Estimate, error) {
	d, known := w.Device(q.Device)
	if !known {
		return Estimate{}, errors.New("its processor is not known")
	}

	if len(ciphers(q.Tunnel)) == 0 {
		return Estimate{}, errors.New("there is no tunnel with a cipher")
	}

	if encrypting(d, q.Tunnel) == 0 {
		return Estimate{}, errors.New("how many cores it has is not known")
	}

	reason := errors.New("the speed of its cipher is not in the catalogue")
	for _, cipher := range ciphers(q.Tunnel) {
		own, ok := w.stages(d, q, cipher)
		if !ok {
			continue
		}

		packet, payload, outside := packetOf(q)
		most, err := own.TunnelRate(packet, payload, outside)
		if err != nil {
			return Estimate{}, err
		}

		var per []float64
		slowest := math.Inf(1)
		quickest := 0.0
		basis := []string{fmt.Sprintf("%s on %s, %s to forward a packet: %s by these alone", cipher,
			encryptingText(d, q.Tunnel), forwarding(own.Forward), unit.Bitrate(most))}
		for _, other := range w.Devices {
			s, ok := w.stages(other, q, cipher)
			r, measured := w.capacity(other.Name, q)
			if !ok || !measured || other.SoC == d.SoC {
				continue
			}

			slowest = min(slowest, s.Cipher)
			quickest = max(quickest, s.Cipher)
			packet, payload, outside := packetOf(r)
			if bound, err := s.TunnelRate(packet, payload, outside); err == nil {
				per = append(per, *r.GoodputBps/bound)
				basis = append(basis, fmt.Sprintf("%s reaches %s of that", other.Name,
					unit.Percent(per[len(per)-1])))
			}
		}

		switch {
		case len(per) == 0:
			reason = fmt.Errorf("no other device has both the speed of %s and a comparable result", cipher)
		case own.Cipher > quickest*reach || own.Cipher*reach < slowest:
			return Estimate{}, fmt.Errorf("its %s is more than a factor of %d quicker or slower than of "+
				"those that show what else a packet costs", cipher, reach)
		default:
			assumes := []string{"forwarding and cipher work one after the other",
				"the tunnel uses " + cipher + ", as fast as it was measured in large blocks",
				"what else a packet costs takes the same share as on the others"}
			if w.overclock(q) != 1 {
				assumes = append(assumes, "both take as many cycles at "+q.Clock+" MHz")
			}
			return calibrated(ByCipher, most, per, basis, assumes), nil
		}
	}

	return Estimate{}, reason
}

func forwarding(ns float64) string {
	if ns == 0 {
		return "nothing known"
	}
	return unit.Nanoseconds(ns)
}

// Bound is the upper bound that the link, the fastest cipher and forwarding set for a rate.
type Bound struct {
	// AtMostBps is the upper bound that the link and the ciphers set; 0 means unknown.
	AtMostBps float64 `json:"at_most_bps,omitempty"`
	AtMost    string  `json:"at_most,omitempty"` // what sets the bound
	// InSoftware reports that the bound applies only to encryption in software. A crypto engine may exceed
	// the bound.
	InSoftware bool   `json:"at_most_in_software,omitempty"`
	Unbound    string `json:"no_bound,omitempty"` // why the cipher gives no bound
}

// atMost returns the lowest of the upper bounds.
func (w world) atMost(q catalogue.Result) (b Bound) {
	d, known := w.Device(q.Device)
	if !known {
		return b
	}

	lower := func(bps float64, by string) bool {
		if bps <= 0 || b.AtMostBps > 0 && b.AtMostBps <= bps {
			return false
		}

		b.AtMostBps = bps
		b.AtMost = by
		return true
	}
	link := fmt.Sprintf("its link of %s", unit.Bitrate(d.PortBps()))
	if strings.Count(d.Port, "GbE") > 1 {
		link += " (" + d.Port + ")"
	}

	if q.MTU == 0 && q.Tunnel != "none" {
		link += fmt.Sprintf(" at an MTU of %d", FittingMTU(q.Tunnel))
	}

	lower(w.portCeiling(q), link)
	if len(ciphers(q.Tunnel)) > 0 {
		speed, suite, open := w.fastest(d, q.Tunnel)
		b.Unbound = open
		packet, payload, _ := packetOf(q)
		cipher := speed * float64(encrypting(d, q.Tunnel)) * w.overclock(q)
		most, err := Stages{Cipher: cipher}.TunnelRate(packet, payload, 1) // without forwarding
		by := "openssl's " + suite + " in software on " + encryptingText(d, q.Tunnel)
		b.InSoftware = err == nil && lower(most, by)
	}

	if q.Tunnel == "esp" && lower(w.withPolicies(d.Name),
		"what it forwards unencrypted past idle IPsec policies") {
		b.InSoftware = false
	}

	return b
}

// withPolicies returns the best rate at which a device forwarded unencrypted packets while IPsec policies
// were active. It returns 0 if no such rate was measured.
func (w world) withPolicies(device string) (best float64) {
	for _, r := range w.rows {
		if r.Device == device && r.Tunnel == "none" && strings.Contains(r.Condition, "IPsec policies") &&
			r.GoodputBps != nil {
			best = max(best, *r.GoodputBps)
		}
	}
	return best
}

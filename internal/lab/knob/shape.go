package knob

import (
	"fmt"
	"slices"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/factor"
	"github.com/chokepoint-lab/chokepoint/internal/lab/kernel"
	"github.com/chokepoint-lab/chokepoint/internal/qdisc"
)

const over = "over " // prefix of the state of a port without a shaper; its queue follows

// Shape limits the rate at which a router sends through the place's port or, if there is none, its WAN port,
// to a rate such as "50M". "off" removes the limit. The shaper is an htb with one class and fq_codel. The
// state of a port without a shaper is "over QUEUE", where QUEUE has the syntax of the knob queue. Applying
// this state restores that queue.
func Shape() Knob {
	k := ofPorts(ofRouter(factor.Declaration{
		Policy:  true,
		Name:    "shape",
		Unit:    "off, or bit/s",
		Rank:    16,
		Refuses: shapeRefuses,
		Doc:     "rate of the router's shaper towards the far side (htb with fq_codel)",
		Without: without("off", "without shaper"),
		Needs:   factor.NeedsDirection,
	}), spelling[shape]{parse: parseShape, spell: spellShape, same: sameShape}, readShape, applyShape)
	k.check = func(p Place, s shape) error {
		if s.rate == 0 {
			return nil
		}
		return k.onProbeLink(p, s)
	}
	k.pick = func(p Place) string { return p.WAN }
	return k
}

// shape is a shaper or, for a port without a shaper, the queue of the port.
type shape struct {
	rate    uint64      // rate of the shaper in bit/s; 0 means that there is no shaper
	instead qdisc.Queue // queue of a port without a shaper; a queue without a kind stands for any queue
}

func parseShape(text string) (s shape, err error) {
	if queue, ok := strings.CutPrefix(text, over); ok {
		s.instead, err = qdisc.ParseOne(queue)
		return s, err
	}

	s.rate, err = parseLimit(text)
	return s, err
}

func spellShape(s shape) State {
	if s.instead.Kind != "" {
		return over + s.instead.String()
	}
	return spellLimit(s.rate)
}

// sameShape compares two states. A request for no shaper matches any queue unless the request contains a
// queue.
func sameShape(want, got shape) bool {
	if want.rate > 0 || got.instead.Kind == "" {
		return false
	}
	return want.instead.Kind == "" || qdisc.Same(want.instead, got.instead)
}

// parseLimit parses "off" or a rate in bit/s.
func parseLimit(text string) (uint64, error) {
	if text == "off" {
		return 0, nil
	}

	rate, err := qdisc.Parameter{Quantity: qdisc.BitsPerSecond, Required: true}.Parse(text)
	if err != nil {
		return 0, check.WithHint(want("off or a rate such as 50M"), check.HintOf(err))
	}

	return rate, nil
}

func spellLimit(rate uint64) State {
	if rate == 0 {
		return "off"
	}
	return qdisc.SpellScaled(rate, qdisc.RateScales(), "")
}

// burstOf returns the number of bytes that are sent in 2 ms at a rate in bit/s, but at least 128 KiB, which
// is the size of two GSO packets.
func burstOf(rate uint64) uint64 { return qdisc.Bounded(2*rate/8/1000, 128<<10) }

func readShape(dev string) (s shape, err error) {
	rate, burst, err := kernel.Shaper(dev)
	if err != nil {
		return s, err
	}

	// A shaper with another burst is not ours, and could not be restored from its rate alone.
	own := burstOf(rate)
	if rate > 0 && burst >= own-own/500 && burst <= own+own/500 {
		return shape{rate: rate}, nil
	}

	q, err := kernel.QueueAt(dev, qdisc.Queue{})
	return shape{instead: q}, err
}

func applyShape(dev string, s shape) error {
	if s.rate > 0 {
		return kernel.SetShaper(dev, s.rate, burstOf(s.rate))
	}

	if s.instead.Kind == "" {
		return kernel.ClearShaper(dev)
	}
	return kernel.SetRootQueue(dev, s.instead)
}

// shapeRefuses returns the reason why the shapers of a cell conflict with its queues, or "" if they do not. A
// shaper replaces the queue of its port.
func shapeRefuses(s factor.Shape, cell factor.Cell) string {
	var shaped, queued []factor.Port
	for place, level := range factor.Name("shape").Each(cell) {
		if level != "off" {
			shaped = append(shaped, portsAt(s, place, s.FarPorts)...)
		}
	}

	for place := range factor.Name("queue").Each(cell) {
		queued = append(queued, portsAt(s, place, s.Ports)...)
	}

	for _, p := range shaped {
		if slices.Contains(queued, p) {
			return fmt.Sprintf("a shaper has a queue of its own in the place of that of %s.%s", p.Node,
				p.Port)
		}
	}

	return ""
}

// portsAt returns the ports to which a factor at a place applies: a single port, the ports of a node, or, if
// the place is empty, the ports of all routers.
func portsAt(s factor.Shape, place string, of func(node string) []factor.Port) []factor.Port {
	if node, port, placed := strings.Cut(place, "."); placed {
		return []factor.Port{{Node: node, Port: port}}
	}

	if place != "" {
		return of(place)
	}

	var out []factor.Port
	for _, r := range s.Routers {
		out = append(out, of(r)...)
	}

	return out
}

package knob

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/factor"
	"github.com/chokepoint-lab/chokepoint/internal/lab/kernel"
)

// over precedes the queue that a port without a shaper has.
const over = "over "

// Shape is a router's shaper: what leaves by the place's port, or else by its WAN port, is held to a rate
// such as "50M" by an htb of one class, with fq_codel as its queue; "off" is without. What is read where
// there is none is "over QUEUE", with the queue in the words of Queue, and puts that back.
func Shape() Knob {
	return atPort{&perPort{
		declared: declared{&factor.Declaration{
			Name: "shape",
			Unit: "off, or bit/s", Rank: 16, Refuses: shapeRefuses,
			Doc:     "rate of the router's shaper towards the far side: htb with fq_codel; or off",
			Without: &factor.Without{Level: "off", Words: "of the same without shaper"},
			Placed:  factor.Placed,
			Needs:   factor.NeedsDirection,
		}},
		parse: parseShape, read: readShape, apply: applyShape,
		same: func(want, got State) bool { return want == "off" && strings.HasPrefix(string(got), over) },
		check: func(_ string, s State) check.Answer {
			if s == "off" || strings.HasPrefix(string(s), over) {
				return check.OK()
			}
			return answer(kernel.ProbeShaper())
		},
	}, func(p Place) string { return p.WAN }}
}

func parseShape(text string) (State, error) {
	if queue, ok := strings.CutPrefix(text, over); ok {
		s, err := parseQueueState(queue)
		if err != nil {
			return "", err
		}
		return over + s, nil
	}
	return parseLimit("shape", text)
}

// parseLimit reads "off" or a rate.
func parseLimit(name, text string) (State, error) {
	if text == "off" {
		return "off", nil
	}
	rate, err := limit(State(text))
	if err != nil {
		return "", refuse(name, text, "off or a rate such as 50M")
	}
	return spellLimit(rate), nil
}

func limit(s State) (uint64, error) {
	return parseRate(kernel.Parameter{Name: "rate", Quantity: kernel.BitsPerSecond, Required: true},
		string(s))
}

func spellLimit(rate uint64) State { return State(spellScaled(rate, rateScales(), "")) }

// burstOf is two milliseconds of a rate, but enough for a few of the 64 KiB packets that segmentation
// offload makes.
func burstOf(rate uint64) uint64 { return bounded(2*rate/8/1000, 128<<10) }

func readShape(dev string) (State, error) {
	rate, err := kernel.Shaper(dev)
	if err != nil {
		return "", err
	}
	if rate > 0 {
		return spellLimit(rate), nil
	}
	s, err := readQueue(dev)
	if err != nil {
		return "", err
	}
	return over + s, nil
}

func applyShape(dev string, s State) error {
	if s == "off" {
		return kernel.ClearShaper(dev)
	}
	if queue, ok := strings.CutPrefix(string(s), over); ok {
		return applyQueue(dev, State(queue))
	}
	rate, err := limit(s)
	if err != nil {
		return err
	}
	return kernel.SetShaper(dev, rate, burstOf(rate))
}

// atPort is a knob of one port: the place's, or else the one that it picks.
type atPort struct {
	*perPort
	pick func(p Place) string
}

// Parse refuses a list of devices: only one port is read, so that only one could be put back.
func (k atPort) Parse(text string) (State, error) {
	if strings.Contains(text, ":") {
		return "", refuse(k.Name(), text, "one value; name the port as in "+k.Name()+"@router.lan")
	}
	return k.perPort.Parse(text)
}

func (k atPort) at(p Place) (Place, error) {
	if p.Port == "" {
		p.Port = k.pick(p)
	}
	if p.Port == "" {
		return p, errors.New("set " + k.Name() + ": name the port at " + p.Node)
	}
	return p, nil
}

func (k atPort) Read(ctx context.Context, p Place) (State, error) {
	p, err := k.at(p)
	if err != nil {
		return "", err
	}
	return k.perPort.Read(ctx, p)
}

func (k atPort) Apply(ctx context.Context, p Place, s State) error {
	p, err := k.at(p)
	if err != nil {
		return err
	}
	return k.perPort.Apply(ctx, p, s)
}

func (k atPort) Check(ctx context.Context, p Place, s State) check.Answer {
	p, err := k.at(p)
	if err != nil {
		return check.Not("%v", err)
	}
	return k.perPort.Check(ctx, p, s)
}

// shapeRefuses: a shaper takes the place of its port's queue.
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

// portsAt are the ports that a factor at a place is set on: that port, those of that node, or those of each
// router.
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

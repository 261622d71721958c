package tuning

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/diagnosis"
	"github.com/chokepoint-lab/chokepoint/internal/factor"
	"github.com/chokepoint-lab/chokepoint/internal/qdisc"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/unit"
)

const (
	queueFactor = "queue"
	shapeFactor = "shape"
)

// Queues that replace a queue without a rate limit.
const (
	flowQueue = "fq_codel"
	deepFIFO  = "pfifo limit 1000"
)

// room is the time for which a queue should be able to store packets that arrive at its rate. It is long
// enough for TCP's bursts, but too short to be noticed as a delay.
const room = 20 * time.Millisecond

// minBurst is the minimum burst of a token bucket, in bytes. Packets merged by GSO or GRO need it.
const minBurst = 16 << 10

// maxLeaves is the largest number of classes of a device whose queues are replaced.
const maxLeaves = 16

// minCakeMemory is the minimum memory for the packets in cake, in bytes. It is cake's default.
const minCakeMemory = 4 << 20

// proposal is a queue that is worth trying at one place.
type proposal struct {
	levels    factor.Cell
	classes   []string // classes of limits that the queue may remove
	why, risk string
}

func byFlows(levels factor.Cell) proposal {
	return proposal{levels, []string{diagnosis.SmallQueue, diagnosis.Bufferbloat},
		"a queue for each flow holds a burst and keeps the delay low", "takes some CPU for each packet"}
}

func byLength(levels factor.Cell) proposal {
	return proposal{levels, []string{diagnosis.SmallQueue}, "a queue that holds a burst",
		"a full one delays everything behind it"}
}

func byRoom(levels factor.Cell) proposal {
	return proposal{levels, []string{diagnosis.SmallQueue, diagnosis.Bufferbloat},
		"the same rate with a queue that holds " + room.String() + " of it",
		"a full one delays everything behind it"}
}

// queueChanges returns changes to queues that are worth trying. They are based on the queues in the plan or,
// where the plan sets none, on the queues found on the router. A queue with a rate keeps the rate, and
// unknown queues are not changed.
func queueChanges(s Situation, causes []diagnosis.Cause) (out []Change) {
	for _, p := range slices.Concat(s.besidePlan(), s.besideFound()) {
		if !s.parses(p.levels) {
			continue
		}

		c := Change{Levels: p.levels, Why: p.why, Risk: p.risk}
		c.answer(causes, p.classes)
		out = append(out, c)
	}
	return out
}

// besidePlan returns replacements for the plan's queues.
func (s Situation) besidePlan() (out []proposal) {
	for _, cell := range s.Cells {
		for place, now := range factor.Queue.Each(cell) {
			queue := placedName(queueFactor, place)
			shape := placedName(shapeFactor, place)
			if q, err := qdisc.ParseOne(now); err == nil && q.Kind == "tbf" {
				if !slices.ContainsFunc(s.ports(place), func(p foundPort) bool { return p.device.Rated() }) {
					out = append(out, proposal{factor.Cell{queue: "", shape: factor.RateText(q.RateBps())},
						byRoom(nil).classes, "the same rate with a queue for each flow",
						"takes some CPU for each packet"})
				}

				longer := roomy(q)
				if longer != now {
					out = append(out, byRoom(factor.Cell{queue: longer}))
				}

				continue
			}

			if holds(now) {
				continue
			}

			for _, p := range []proposal{byFlows(factor.Cell{queue: flowQueue}),
				byLength(factor.Cell{queue: deepFIFO})} {
				if p.levels[queue] != now && s.means(queue, p.levels[queue]) {
					out = append(out, p)
				}
			}
		}
	}
	return out
}

// holds reports whether a queue level emulates a link or limits a rate. Such a queue must be kept.
func holds(level string) bool {
	all, err := qdisc.Parse(level)
	return err != nil || slices.ContainsFunc(all, func(q qdisc.Queue) bool {
		return q.Kind == "netem" || q.RateBps() > 0
	})
}

func placedName(name, place string) string { return strings.TrimSuffix(name+"@"+place, "@") }

// roomy returns the level of a token bucket with the same rate and place, but with room for bursts.
func roomy(q qdisc.Queue) string {
	bytes := uint64(q.RateBps() / 8 * room.Seconds())
	return q.With("burst", max(bytes/4, minBurst)).With("limit", max(bytes, 2*minBurst)).String()
}

// foundPort is a port of a router and the port's device before any change. device is nil if it was not read
// completely.
type foundPort struct {
	place  string // such as "router.wan"
	device *record.NetDevice
}

// ports returns the ports of the routers at a place, which is a router or one of its ports. If place is "",
// it returns all ports.
func (s Situation) ports(place string) (out []foundPort) {
	for _, t := range s.Found.Topologies {
		for _, router := range t.Routers {
			for _, p := range t.Ports(router) {
				at := p.Node + "." + p.Port
				if place != "" && place != at && place != router ||
					slices.ContainsFunc(out, func(o foundPort) bool { return o.place == at }) {
					continue
				}

				out = append(out, foundPort{at, s.found(p.Node, p.Port)})
			}
		}
	}
	return out
}

// found returns the device of a port before any change, or nil if it was not read completely.
func (s Situation) found(node, port string) *record.NetDevice {
	for _, e := range s.Found.Environment {
		if e.Node != node {
			continue
		}

		d := e.Inventory.Device(port)
		if d != nil && d.Missing == "" && len(d.Queues) > 0 {
			return d
		}
	}
	return nil
}

// planned reports whether the plan sets a queue at a place.
func (s Situation) planned(place string) bool {
	node, _, _ := strings.Cut(place, ".")
	for _, cell := range s.Cells {
		for _, name := range []factor.Name{factor.Queue, factor.Shaper} {
			for at, level := range name.Each(cell) {
				if level != "" && level != "off" && (at == "" || at == node || at == place) {
					return true
				}
			}
		}
	}
	return false
}

// besideFound returns replacements for the queues that were found on the routers' ports.
func (s Situation) besideFound() (out []proposal) {
	all := s.ports("")
	bare := func(p foundPort) bool { return p.device != nil && replaceable(p.device) && !s.planned(p.place) }
	whole := len(all) > 0 && !slices.ContainsFunc(all, func(p foundPort) bool { return !bare(p) })
	for i, p := range all {
		queue := placedName(queueFactor, p.place)
		switch {
		case p.device == nil || s.planned(p.place):
		case whole && i > 0: // a single level covers all ports
		case bare(p):
			if whole {
				queue = queueFactor
			}

			root, _ := p.device.Root()
			if root.Kind != flowQueue {
				out = append(out, byFlows(factor.Cell{queue: flowQueue}))
			}

			managed := slices.Contains([]string{flowQueue, "codel", "cake", "fq"}, root.Kind)
			if !managed && root.Level != deepFIFO {
				out = append(out, byLength(factor.Cell{queue: deepFIFO}))
			}
		default:
			out = append(out, within(queue, p.device)...)
		}
	}

	return out
}

// replaceable reports whether a device has a single queue that limits no rate and can be restored.
func replaceable(d *record.NetDevice) bool {
	root, ok := d.Root()
	unknown := root.Level == "" || root.Missing != "" || holds(root.Level)
	if !ok || d.Rated() || root.Handle != "0:" && unknown {
		return false
	}

	return !slices.ContainsFunc(d.Queues, func(q record.QueueFacts) bool {
		own := q.Handle != "0:" && q.Handle != root.Handle
		return own && q.Parent != "ingress" && q.Parent != "clsact"
	}) && !slices.ContainsFunc(d.Filters, func(f record.QueueFilter) bool { return f.Parent == root.Handle })
}

// within returns changes to the queues of a device that keep its rate limits: larger limits of a token
// bucket, another queue in each class, or more memory for cake.
func within(queue string, d *record.NetDevice) (out []proposal) {
	for _, q := range d.Queues {
		if q.Class || q.Level == "" || q.Missing != "" {
			continue
		}

		now, err := qdisc.ParseOne(q.Level)
		if err != nil {
			continue
		}

		now.Parent, _ = qdisc.ParseHandle(q.Parent) // empty for the root qdisc
		switch {
		case q.Kind == "tbf" && !ownFIFO(d, q) && q.LimitBytes < q.RateBps/8*room.Seconds():
			out = append(out, byRoom(factor.Cell{queue: roomy(now)}))
		case q.Kind == "cake" && q.LimitBytes > 0 && q.LimitBytes < minCakeMemory:
			out = append(out, byRoom(factor.Cell{queue: now.With("memlimit", minCakeMemory).String()}))
		}
	}

	var leaves []string
	for _, c := range d.Leaves() {
		if leaf, ok := leafOf(d, c); ok {
			leaves = append(leaves, leaf)
		}
	}

	if len(leaves) == 0 || len(leaves) > maxLeaves {
		return out
	}

	each := func(level string) factor.Cell {
		var parts []string
		for _, class := range leaves {
			parts = append(parts, "parent "+class+" "+level)
		}
		return factor.Cell{queue: strings.Join(parts, ", ")}
	}
	return append(out, byFlows(each(flowQueue)), byLength(each(deepFIFO)))
}

// ownFIFO reports whether the owner configured a FIFO below a token bucket. Undoing a change of the bucket
// would not restore the FIFO's length.
func ownFIFO(d *record.NetDevice, q record.QueueFacts) bool {
	major, _, _ := strings.Cut(q.Handle, ":")
	return slices.ContainsFunc(d.Queues, func(o record.QueueFacts) bool {
		return strings.HasPrefix(o.Parent, major+":") && strings.HasSuffix(o.Kind, "fifo")
	})
}

// leafOf returns the handle of a class. It returns false if the queue of the class must not be replaced
// because it is neither the kernel's default nor a FIFO that can be restored.
func leafOf(d *record.NetDevice, c record.QueueFacts) (string, bool) {
	if c.Kind != "htb" && c.Kind != "hfsc" {
		return "", false
	}

	for _, q := range d.Below(c.Handle) {
		plain := slices.Contains([]string{"pfifo", "bfifo", "pfifo_fast", "sfq"}, q.Kind)
		if q.Level == "" || q.Missing != "" || !plain {
			return "", false
		}
	}
	return c.Handle, true
}

// Undoes describes the rate limit, or the effect of rules, that a change would remove from a router. It
// returns "" if the change removes neither.
func (s Situation) Undoes(c Change) string {
	for name, level := range c.Levels {
		plain, place := factor.Split(name)
		if plain == diagnosis.FlowtableFactor && level != "" && level != factor.Off {
			why := s.flowtableLoss(place)
			if why != "" {
				return why
			}
		}

		if level == "" || plain != queueFactor && plain != shapeFactor {
			continue
		}

		for _, p := range s.ports(place) {
			if p.device == nil || !p.device.Rated() || s.planned(p.place) || plain == queueFactor &&
				keeps(p.device, level) {
				continue
			}
			return fmt.Sprintf("it would take away what holds the traffic of %s to a rate: %s", p.place,
				ratesOf(p.device))
		}
	}
	return ""
}

// flowtableLoss describes the rules that a flowtable at a place would bypass. See diagnosis.FlowtableLoss.
func (s Situation) flowtableLoss(place string) string {
	for _, p := range s.ports(place) {
		node, _, _ := strings.Cut(p.place, ".")
		facts := record.NodeFacts{Name: node}
		for _, n := range s.Found.Nodes {
			if n.Name == node {
				facts = n
			}
		}

		for _, e := range s.Found.Environment {
			if e.Node != node {
				continue
			}

			why := diagnosis.FlowtableLoss(e.Inventory, facts)
			if why != "" {
				return why
			}
		}
	}
	return ""
}

// keeps reports whether a device with the given queue level would have the same rates as before.
func keeps(d *record.NetDevice, level string) bool {
	all, err := qdisc.Parse(level)
	if err != nil {
		return false
	}

	for _, want := range all {
		for _, q := range d.Queues {
			parent, _ := qdisc.ParseHandle(q.Parent)
			if q.Class || parent != want.Parent {
				continue
			}

			now, err := qdisc.ParseOne(q.Level)
			same := err == nil && now.Kind == want.Kind && now.RateBps() == want.RateBps()
			rated := q.RateBps > 0 || q.FlowRateBps > 0 || parent == 0
			if rated && !same {
				return false
			}
		}
	}

	return true
}

// ratesOf describes the rates of a device, each with the kind of queue that sets it.
func ratesOf(d *record.NetDevice) string {
	var out []string
	for _, q := range d.Queues {
		rate := cmp.Or(q.RateBps, q.CeilBps, q.FlowRateBps)
		if rate > 0 {
			out = append(out, q.Kind+" "+unit.Bitrate(rate).String())
		}
	}
	return strings.Join(slices.Compact(out), ", ")
}

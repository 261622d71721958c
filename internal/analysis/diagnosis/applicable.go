package diagnosis

import (
	"slices"
	"strconv"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/factor"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// conditions maps the name of a condition for a remedy to a function that reports whether the condition holds
// in the trial. A remedy negates a condition with "not " before its name.
var conditions = map[string]func(*Observation) bool{
	"offloaded": func(o *Observation) bool { // a router's flowtable carries connections
		return slices.ContainsFunc(o.Routers(), func(node string) bool {
			n, _ := o.level(node, "flows", "flows_offloaded")
			return n > 0
		})
	},
	"steered": func(o *Observation) bool { // a router spreads packets over cores (RPS)
		for _, node := range o.Routers() {
			for name, mask := range o.Run.Facts(node) {
				if strings.HasSuffix(name, ":rps_cpus") && strings.Trim(mask, "0,") != "" {
					return true
				}
			}
		}
		return false
	},
	"tunnel fits":       tunnelFits,
	"window at ceiling": windowAtCeiling,
	"window unscaled":   windowUnscaled,
	"rate is set":       rateIsSet,
}

// remedies returns the remedies for a cause that still make sense in the state of the trial. If the plan sets
// the limit, it keeps only remedies that have a factor, and adds a change of the plan.
func (o *Observation) remedies(c Cause, all []Remedy) []Remedy {
	set := o.setByPlan(c)
	left := slices.DeleteFunc(slices.Clone(all), func(r Remedy) bool {
		name, not := strings.CutPrefix(r.When, "not ")
		return name != "" && conditions[name](o) == not || o.already(r) || set != "" && r.Factor == ""
	})
	if set != "" {
		left = append(left, Remedy{Do: say("change %s, which the plan sets", set)})
	}

	return left
}

// setByPlan returns the plan's level that sets the limit at a cause's place, or "" if there is none.
func (o *Observation) setByPlan(c Cause) string {
	cell := o.Row.Factors
	r, _ := RuleOf(c.Class)
	for _, wanted := range slices.Concat(r.Planted, r.Costly) {
		for _, name := range cell.Names() {
			level := cell[name]
			plain, where := factor.Split(name)
			sets := hasFault(level, wanted)
			if plain == wanted {
				_, rated := ratedQueue(level)
				sets = !o.Run.Design.Catalogue.Of(name).AtBaseline(level) && (rated || plain != "queue")
			}

			if sets && slices.Contains([]string{"", c.Node, c.Node + "." + c.Element}, where) {
				return name + "=" + level
			}
		}
	}
	return ""
}

// already reports whether the cell or a router already has a remedy's level or, for a sysctl, a value at
// least as large.
func (o *Observation) already(r Remedy) bool {
	for _, level := range factor.Name(r.Factor).Each(o.Row.Factors) {
		if level == r.Level {
			return true
		}
	}

	wanted, err := strconv.ParseFloat(r.Level, 64)
	return err == nil && strings.HasPrefix(r.Factor, "sysctl:") && slices.ContainsFunc(o.Routers(),
		func(node string) bool {
			is, err := strconv.ParseFloat(o.Run.Facts(node)[r.Factor], 64)
			return err == nil && is >= wanted
		})
}

// wireguardMTU is the largest MTU of a WireGuard tunnel over IPv6 and Ethernet.
const wireguardMTU = 1420

// tunnelFits reports whether a tunnel is known to have an MTU of at most wireguardMTU.
func tunnelFits(o *Observation) bool {
	cell := o.Row.Factors
	if factor.MTU.In(cell) && factor.MTU.Number(cell) <= wireguardMTU {
		return true
	}
	return slices.ContainsFunc(o.Run.Environments, func(e record.Environment) bool {
		return e.Inventory != nil && slices.ContainsFunc(e.Inventory.Devices, func(d record.NetDevice) bool {
			return among(d.Kind, "wireguard tun") && d.MTU > 0 && d.MTU <= wireguardMTU
		})
	})
}

// windowAtCeiling reports whether the receive buffer has grown to the kernel's maximum. If that is unknown,
// it reports whether windowUnscaled is false.
func windowAtCeiling(o *Observation) bool {
	_, receiver := o.Ends()
	_, buffer := o.buffers()
	fields := strings.Fields(o.Run.Facts(receiver)["sysctl:net.ipv4.tcp_rmem"])
	if len(fields) != 3 || buffer == 0 {
		return !windowUnscaled(o)
	}

	ceiling, err := strconv.ParseFloat(fields[2], 64)
	return err == nil && buffer >= .9*ceiling
}

// maxUnscaled is the largest window, in bytes, without the window scale option (RFC 7323).
const maxUnscaled = 65535

// windowUnscaled reports whether no more is in flight than an unscaled window allows, although the receive
// buffer has room for twice as much.
func windowUnscaled(o *Observation) bool {
	bytes, _ := o.inFlight()
	_, buffer := o.buffers()
	return bytes <= maxUnscaled && buffer >= 2*maxUnscaled-2 && !o.statesWindow()
}

// rateIsSet reports whether a queue limits the load to a configured rate, so that its link may carry more.
func rateIsSet(o *Observation) bool {
	q, why := o.held()
	return why == "" && (q.setBps > 0 || among(q.kind, shaping))
}

package diagnosis

import (
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/factor"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// Words holds the texts about a class.
type Words struct {
	Label    string // for a sentence: "one core of the router is saturated by softirq"
	Means    string // when the rule fires, with the thresholds
	Remedies []Remedy
}

// words parses the label of a class, when its rule fires, and what helps. A line such as "linux: lengthen the
// queue" names the system, or any, and begins a remedy. The following lines hold its commands, each after
// "$", its risk, the factor and level that express it in a plan, the kind of tunnel that it is for, and the
// condition under which it applies. A line that ends with a backslash continues on the next.
func words(text string) (w Words) {
	last := &Remedy{}
	for line := range strings.Lines(continued.ReplaceAllString(text, "")) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		switch key {
		case "":
		case "label:":
			w.Label = value
		case "means:":
			w.Means = value
		case "$":
			last.Commands = append(last.Commands, value)
		case "risk:":
			last.Risk = value
		case "plan:":
			last.Factor, last.Level, _ = strings.Cut(value, "=")
		case "tunnel:":
			last.Tunnel = value
		case "when:":
			last.When = value
		default:
			system := strings.TrimSuffix(key, ":")
			w.Remedies = append(w.Remedies, Remedy{System: strings.TrimPrefix(system, "any"), Do: value})
			last = &w.Remedies[len(w.Remedies)-1]
		}
	}
	return w
}

var continued = regexp.MustCompile(`\\\n\s*`)

// conditions maps names to functions that report whether a remedy still applies, given the state in the
// trial.
var conditions = map[string]func(*Observation) bool{
	"not offloaded": func(o *Observation) bool { // no flowtable of a router carries connections
		return !slices.ContainsFunc(o.Routers(), func(node string) bool {
			n, _ := o.level(node, "flows", "flows_offloaded")
			return n > 0
		})
	},
	"not " +
		"steered": func(o *Observation) bool { // no router spreads packets over cores (RPS)
		for _, node := range o.Routers() {
			for name, mask := range o.Run.Facts(node) {
				if strings.HasSuffix(name, ":rps_cpus") && strings.Trim(mask, "0,") != "" {
					return false
				}
			}
		}
		return true
	},
	"tunnel too large":  tunnelTooLarge,
	"tunnel fits":       func(o *Observation) bool { return !tunnelTooLarge(o) },
	"window at ceiling": windowAtCeiling,
	"window unscaled":   windowUnscaled,
	"rate is set":       rateIsSet,
	"rate is not set":   func(o *Observation) bool { return !rateIsSet(o) },
}

// remedies returns the remedies for a cause that are still possible in the state of the trial. What the plan
// itself sets is changed in the plan, or made up for by another of its factors.
func (o *Observation) remedies(c Cause, all []Remedy) []Remedy {
	set := o.setByPlan(c)
	left := slices.DeleteFunc(slices.Clone(all), func(r Remedy) bool {
		when := conditions[r.When]
		return when != nil && !when(o) || o.already(r) || set != "" && r.Factor == ""
	})
	if set != "" {
		left = append(left, Remedy{Do: say("change %s, which the plan sets", set)})
	}

	return left
}

// costly lists, by class, the factors whose levels cause it, although no experiment scales them.
var costly = map[string][]string{SmallSegments: {"mss", "link_mtu"}, RuleList: {"firewall"}}

// setByPlan returns the level of the plan that sets the limit at the place of a cause, "" if there is none.
func (o *Observation) setByPlan(c Cause) string {
	cell := o.Trial.Row.Factors
	for _, wanted := range slices.Concat(planted[c.Class], costly[c.Class]) {
		for _, name := range cell.Names() {
			level := cell[name]
			plain, where := factor.Split(name)
			here := slices.Contains([]string{"", c.Node, c.Node + "." + c.Element}, where)
			sets := hasFault(level, wanted)
			if plain == wanted {
				_, rated := ratedQueue(level)
				sets = !o.Run.Design.Catalogue.Of(name).AtBaseline(level) && (rated || plain != "queue")
			}

			if here && sets {
				return name + "=" + level
			}
		}
	}
	return ""
}

// already reports whether the cell or a router has a remedy's level: the same, or for a sysctl at least as
// much.
func (o *Observation) already(r Remedy) bool {
	cell := o.Trial.Row.Factors
	if r.Factor == "" {
		return false
	}

	if slices.ContainsFunc(cell.Names(), func(name string) bool {
		plain, _ := factor.Split(name)
		return plain == r.Factor && cell[name] == r.Level
	}) {
		return true
	}

	wanted, err := strconv.ParseFloat(r.Level, 64)
	return err == nil && strings.HasPrefix(r.Factor, "sysctl:") && slices.ContainsFunc(o.Routers(),
		func(node string) bool {
			is, err := strconv.ParseFloat(o.Run.Facts(node)[r.Factor], 64)
			return err == nil && is >= wanted
		})
}

// wireguardMTU fits a WireGuard tunnel over IPv6 and Ethernet.
const wireguardMTU = 1420

// tunnelTooLarge reports whether no tunnel device is known to have an MTU that fits.
func tunnelTooLarge(o *Observation) bool {
	if factor.MTU.In(o.Trial.Row.Factors) && factor.MTU.Number(o.Trial.Row.Factors) <= wireguardMTU {
		return false
	}
	return !slices.ContainsFunc(o.Run.Environments, func(e record.Environment) bool {
		return e.Inventory != nil && slices.ContainsFunc(e.Inventory.Devices, func(d record.NetDevice) bool {
			return slices.Contains([]string{"wireguard", "tun"}, d.Kind) && d.MTU > 0 && d.MTU <= wireguardMTU
		})
	})
}

// windowAtCeiling reports whether the receiver's buffer has grown to the kernel's maximum, or that is
// unknown.
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

// maxUnscaled is the largest window in bytes without the window scale option (RFC 7323).
const maxUnscaled = 65535

// windowUnscaled reports whether less is in flight than an unscaled window allows, though the buffer has room
// for twice as much.
func windowUnscaled(o *Observation) bool {
	bytes, _ := o.inFlight()
	_, buffer := o.buffers()
	return bytes <= maxUnscaled && buffer >= 2*maxUnscaled-2 && !o.statesWindow()
}

// rateIsSet reports whether a queue limits the load to a rate that someone set; its link may carry more.
func rateIsSet(o *Observation) bool {
	q, _, why := o.held()
	return why == "" && (q.setBps > 0 || slices.Contains(shaping, q.kind))
}

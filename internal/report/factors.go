package report

import (
	"slices"
	"sort"
	"strconv"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/analysis"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// factorOrder is the order in which people name the settings of a path; what is not here follows by name.
func factorOrder() []string {
	return []string{"topology", "tunnel", "tunnels", "outer_ip", "mtu", "link_mtu", "nat", "ip", "protocol",
		"packet_size", "frame_size", "streams", "direction", "rate", "queue", "shape", "policer", "firewall",
		"flowtable",
		"offload", "congestion", "engine"}
}

// varying lists the factors that differ between cells, in the usual order. A factor that some cells lack
// differs.
func varying(cells []*analysis.Cell) []string {
	levels := map[string]map[string]bool{}
	for _, c := range cells {
		for name, value := range c.Factors {
			if levels[name] == nil {
				levels[name] = map[string]bool{}
			}
			levels[name][value] = true
		}
	}
	var names []string
	for name, l := range levels {
		missing := false
		for _, c := range cells {
			if _, ok := c.Factors[name]; !ok {
				missing = true
			}
		}
		if len(l) > 1 || missing {
			names = append(names, name)
		}
	}
	order := factorOrder()
	rank := func(name string) int {
		if i := slices.Index(order, name); i >= 0 {
			return i
		}
		return len(order)
	}
	sort.Slice(names, func(i, j int) bool {
		if a, b := rank(names[i]), rank(names[j]); a != b {
			return a < b
		}
		return names[i] < names[j]
	})
	return names
}

// levelWords says a level of a factor the way people do.
func levelWords(name, value string) string {
	switch name {
	case "tunnel":
		if value == "none" {
			return "no tunnel"
		}
		return tunnelName(value)
	case "streams":
		if value == "1" {
			return "1 stream"
		}
		return value + " streams"
	case "ip":
		return "IPv" + value
	case "protocol":
		return strings.ToUpper(value)
	case "mtu":
		return "MTU " + value
	case "link_mtu":
		return "link MTU " + value
	case "packet_size":
		if value == record.IMIX {
			return "IMIX packets"
		}
		return value + "-byte packets"
	case "frame_size":
		if value == record.IMIX {
			return "IMIX frames"
		}
		return value + "-byte frames"
	case "nat":
		if value == "off" {
			return "no NAT"
		}
		return "NAT " + value
	case "direction":
		return value
	case "topology":
		return value
	case "firewall":
		number, rest, _ := strings.Cut(value, " ")
		if _, err := strconv.Atoi(number); err == nil {
			return strings.TrimSuffix(number+" firewall rules "+rest, " ")
		}
	case "tunnels":
		if value == "1" {
			return "1 tunnel"
		}
		return value + " tunnels"
	case "outer_ip":
		return "IPv" + value + " outside"
	case "idle_tunnels":
		return value + " idle tunnels"
	case "idle_policies":
		return value + " idle policies"
	}
	return name + " " + value
}

// ordinary says that a level is the plain one and needs no mention where others are named.
func ordinary(name, value string) bool {
	switch value {
	case "", "-", "off", "default", "auto":
		return true
	}
	return false
}

// independent drops the factors that follow from another one, such as the MTU that exists only with a
// tunnel: within each level of it they are fixed.
func independent(cells []*analysis.Cell, names []string, of string) []string {
	var out []string
	for _, n := range names {
		by := map[string]string{}
		fixed := of != ""
		for _, c := range cells {
			value, level := c.Factors[n], c.Factors[of]
			if seen, ok := by[level]; ok && seen != value {
				fixed = false
			}
			by[level] = value
		}
		if !fixed {
			out = append(out, n)
		}
	}
	return out
}

// implied says the factors that follow from a level of another one.
func (v *view) implied(cells []*analysis.Cell, of, level string) string {
	rest := without(varying(cells), of)
	free := independent(cells, rest, of)
	var names []string
	for _, n := range rest {
		if !slices.Contains(free, n) {
			names = append(names, n)
		}
	}
	for _, c := range cells {
		if c.Factors[of] == level {
			return strings.TrimSuffix(" · "+setWords(c.Factors, names), " · ")
		}
	}
	return ""
}

func tunnelName(value string) string {
	if rest, ok := strings.CutPrefix(value, "wireguard"); ok {
		return "WireGuard" + strings.ReplaceAll(rest, "-", ", ")
	}
	if rest, ok := strings.CutPrefix(value, "esp"); ok {
		return "IPsec ESP" + strings.Replace(rest, "-", ", ", 1)
	}
	return value
}

// setWords says the named factors of a cell.
func setWords(f record.Factors, names []string) string {
	var parts []string
	for _, n := range names {
		if value, ok := f[n]; ok && !ordinary(n, value) {
			parts = append(parts, levelWords(n, value))
		}
	}
	return strings.Join(parts, " · ")
}

// lineFactor is the factor whose levels are told apart by colour: the tunnel if it varies, or else the
// first that varies and has few levels.
func lineFactor(cells []*analysis.Cell, names []string) string {
	for _, n := range append([]string{"tunnel"}, names...) {
		if slices.Contains(names, n) {
			if l := levels(cells, n); len(l) >= 2 && len(l) <= maxColours {
				return n
			}
		}
	}
	return ""
}

// maxColours is the number of colours that stay apart in both themes and for all kinds of colour vision.
const maxColours = 5

// levels lists the levels of a factor in the order of the cells.
func levels(cells []*analysis.Cell, name string) []string {
	var out []string
	for _, c := range cells {
		if l, ok := c.Factors[name]; ok && !slices.Contains(out, l) {
			out = append(out, l)
		}
	}
	return out
}

func without(names []string, drop string) []string {
	var out []string
	for _, n := range names {
		if n != drop {
			out = append(out, n)
		}
	}
	return out
}

// skippedWords says a cell that was not run by what sets it apart from the others.
func (v *view) skippedWords(f record.Factors) string {
	all := v.cells(func(*analysis.Cell) bool { return true })
	for i := range v.Skipped {
		all = append(all, &analysis.Cell{Factors: v.Skipped[i].Factors})
	}
	if words := setWords(f, varying(all)); words != "" && len(all) > 1 {
		return words
	}
	return setWords(f, sortedFactors(f))
}

// sortedFactors are all factors of a cell in the usual order.
func sortedFactors(f record.Factors) []string {
	one := analysis.Cell{Factors: f}
	return varying([]*analysis.Cell{&one, {}})
}

func keyOf(f map[string]string) string { return record.Factors(f).Key() }

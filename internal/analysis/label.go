package analysis

import (
	"maps"
	"slices"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// labels gives every cell a short name made of the factors that vary in the run, so that a chart's legend
// is not a wall of equal words.
func labels(cells []*group) {
	varying := varyingFactors(cells)
	count := map[string]int{}
	for _, g := range cells {
		g.cell.Label = labelOf(g.factors, varying)
		count[g.cell.Label]++
	}
	for _, g := range cells {
		if count[g.cell.Label] > 1 { // cannot be told apart: say everything
			all := map[string]bool{}
			for name := range g.factors {
				all[name] = true
			}
			g.cell.Label = labelOf(g.factors, all)
		}
	}
}

// dependent factors exist only beside certain levels of others, so their presence alone is no news.
var dependent = map[string]bool{"mtu": true, "outer_ip": true, "tunnels": true, "congestion": true,
	"rate": true, "frame_size": true,
	"flow_size": true, "request_size": true, "response_size": true}

// varyingFactors are the factors with more than one level among the cells; having none counts as a level,
// except for dependent factors.
func varyingFactors(cells []*group) map[string]bool {
	first, varying := map[string]string{}, map[string]bool{}
	names := map[string]bool{}
	for _, g := range cells {
		for name := range g.factors {
			names[name] = true
		}
	}
	for name := range names {
		for _, g := range cells {
			level, ok := g.factors[name]
			if !ok && dependent[name] {
				continue
			}
			if known, seen := first[name]; !seen {
				first[name] = level
			} else if known != level {
				varying[name] = true
			}
		}
	}
	return varying
}

// leading factors come first in a label, by their bare level.
var leading = [...]string{"topology", "tunnel", "protocol", "ip", "streams", "direction"}

func labelOf(f record.Factors, show map[string]bool) string {
	var parts []string
	done := map[string]bool{"packet_size": f["frame_size"] != "" && show["frame_size"]} // they say the same
	for _, name := range leading {
		done[name] = true
		if level := f[name]; level != "" && show[name] {
			parts = append(parts, levelWords(name, level))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(f)) {
		if level := f[name]; !done[name] && show[name] && level != "off" {
			parts = append(parts, levelWords(name, level))
		}
	}
	if len(parts) == 0 {
		for _, name := range leading[1:] {
			if level := f[name]; level != "" {
				parts = append(parts, levelWords(name, level))
			}
		}
	}
	return strings.Join(parts, " · ")
}

func levelWords(name, level string) string {
	switch name {
	case "tunnel":
		if level == "none" {
			return "no tunnel"
		}
		return level
	case "protocol":
		return strings.ToUpper(level)
	case "direction", "topology":
		return level
	case "ip":
		return "IPv" + level
	case "streams":
		if level == "1" {
			return "1 stream"
		}
		return level + " streams"
	case "outer_ip":
		return "IPv" + level + " outside"
	case "tunnels":
		if level == "1" {
			return "1 tunnel"
		}
		return level + " tunnels"
	case "packet_size", "frame_size":
		switch {
		case level == record.IMIX:
			return "IMIX"
		case name == "frame_size":
			return level + " B frames"
		}
		return level + " B"
	case "nat":
		return level
	}
	return name + " " + level
}

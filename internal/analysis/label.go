package analysis

import (
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// labels gives every cell a short name made of the factors that vary in the
// run, so that a chart's legend is not a wall of equal words.
func labels(cells []*group) {
	varying := map[string]bool{}
	for _, g := range cells {
		for name := range union(g.factors, cells[0].factors) {
			if g.factors[name] != cells[0].factors[name] {
				varying[name] = true
			}
		}
	}
	for _, g := range cells {
		g.cell.Label = labelOf(g.factors, varying)
	}
}

// leading factors come first in a label, by their bare level.
var leading = [...]string{"topology", "tunnel", "protocol", "ip", "streams", "direction"}

func labelOf(f record.Factors, varying map[string]bool) string {
	var parts []string
	done := map[string]bool{"frame_size": f["packet_size"] != "" && varying["packet_size"]}
	for _, name := range leading {
		done[name] = true
		if level := f[name]; level != "" && varying[name] {
			parts = append(parts, levelWords(name, level))
		}
	}
	for _, name := range sortedKeys(f) {
		if level := f[name]; !done[name] && varying[name] && level != "off" && !follows(name, f, varying) {
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

// follows says that a factor varies only because another one does: the inner
// MTU exists only inside a tunnel, and a size that fills the path is its MTU.
func follows(name string, f record.Factors, varying map[string]bool) bool {
	switch name {
	case "congestion", "rate":
		return varying["protocol"] && (f[name] == "flat" || f["protocol"] == "tcp")
	case "mtu":
		return varying["tunnel"] && f["mtu"] == "1420"
	}
	return false
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
	case "packet_size":
		return level + " B"
	case "nat":
		return level
	}
	return name + " " + level
}

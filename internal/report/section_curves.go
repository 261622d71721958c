package report

import (
	"sort"
	"strconv"

	"github.com/chokepoint-lab/chokepoint/internal/analysis"
)

// curveSection: how does the result depend on a setting that is a number? It needs three levels; two are
// bars already.
func curveSection(v *view) Section {
	s := Section{ID: "dependence", Title: "What does it depend on?"}
	for _, k := range []struct{ factor, metric, x, y string }{
		{"packet_size", packetRate, "IP packet length, bytes", "packets that arrived"},
		{"frame_size", packetRate, "Ethernet frame with FCS, bytes", "packets that arrived"},
		{"packet_size", lossRatio, "IP packet length, bytes", "packets lost"},
		{"frame_size", lossRatio, "Ethernet frame with FCS, bytes", "packets lost"},
		{"streams", goodput, "parallel TCP streams", "goodput"},
		{"mtu", goodput, "inner MTU of the tunnel, bytes", "goodput"},
		{"link_mtu", goodput, "MTU of the link, bytes", "goodput"},
		{"firewall", goodput, "firewall rules", "goodput"},
	} {
		if f, ok := curveFigure(v, k.factor, k.metric, k.x, k.y); ok {
			s.Blocks = append(s.Blocks, f...)
		}
	}
	return s
}

func curveFigure(v *view, factor, metric, xName, yName string) ([]Block, bool) {
	cells := v.cells(func(c *analysis.Cell) bool {
		_, ok := c.Metrics[metric]
		_, err := strconv.ParseFloat(c.Factors[factor], 64)
		// The length of a packet follows from the frame's, which has its own chart.
		_, framed := c.Factors["frame_size"]
		return ok && err == nil && !(framed && factor == "packet_size")
	})
	names := lineNames(cells, factor)
	byLine := map[string][]*analysis.Cell{}
	var order []string
	for _, c := range cells {
		key := setWords(c.Factors, names)
		if byLine[key] == nil {
			order = append(order, key)
		}
		byLine[key] = append(byLine[key], c)
	}
	k := curves{Label: yName + " against " + xName, XName: xName, YName: yName, Unit: v.unitOf(metric)}
	var legend []LegendItem
	var used []*analysis.Cell
	xs := map[float64]bool{}
	for _, key := range order {
		// A line of one or two points says nothing about a shape.
		if len(byLine[key]) < 3 || len(k.Lines) == maxColours {
			continue
		}
		class := "c" + strconv.Itoa(len(k.Lines)+1)
		k.Lines = append(k.Lines, v.curveLine(byLine[key], factor, metric, class, key))
		legend = append(legend, LegendItem{"line " + class, key})
		used = append(used, byLine[key]...)
		for _, p := range k.Lines[len(k.Lines)-1].Points {
			xs[p.X] = true
		}
	}
	if len(k.Lines) == 0 {
		return nil, false
	}
	for x := range xs {
		k.X = append(k.X, x)
	}
	sort.Float64s(k.X)
	id := metric + "-by-" + factor
	if len(legend) == 1 && legend[0].Text == "" {
		legend = nil
	}
	return []Block{
		Figure{Legend: legend, ID: id, Title: upperFirst(yName) + " by " + xName, Draw: k,
			Table: v.numbers(id+"-numbers", used, metric),
			Caption: "Points: medians. Whisker: " + v.intervalsOf(used, metric) +
				". The line only joins what was measured."},
	}, true
}

// lineNames are the factors that set the lines of a curve apart: all that vary but that of the axis, and
// one that only follows from it.
func lineNames(cells []*analysis.Cell, factor string) []string {
	all := without(varying(cells), factor)
	names := without(all, map[string]string{"mtu": "link_mtu", "link_mtu": "mtu",
		"frame_size": "packet_size"}[factor])
	taken := map[string]bool{}
	for _, c := range cells {
		at := setWords(c.Factors, append([]string{factor}, names...))
		if taken[at] {
			return all // it varies by itself as well
		}
		taken[at] = true
	}
	return names
}

func (v *view) curveLine(cells []*analysis.Cell, factor, metric, class, name string) curveLine {
	l := curveLine{Class: class, Name: name}
	for _, c := range cells {
		at, err := strconv.ParseFloat(c.Factors[factor], 64)
		if err != nil {
			continue // curveFigure has asked already
		}
		x := c.Metrics[metric]
		l.Points = append(l.Points, curvePoint{X: at, Median: x.Median, Low: x.Low, High: x.High,
			Whisker: hasInterval(x), Title: c.Label + "\n" + v.sentence(metric, x)})
	}
	sort.SliceStable(l.Points, func(i, j int) bool { return l.Points[i].X < l.Points[j].X })
	return l
}

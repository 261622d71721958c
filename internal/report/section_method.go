package report

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/analysis"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/metrics"
	"github.com/chokepoint-lab/chokepoint/internal/factor"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/unit"
)

// pathSection shows which path the traffic took.
func pathSection(v *view, s *Section) {
	for _, p := range v.pictures() {
		s.add(p)
	}

	all := foundItems(v, true)
	if len(foundItems(v, false)) > 0 {
		s.list(FoundTitle, all)
	} else { // no port has a queue, rule or setting that affects packets
		s.fold(FoundTitle, listed("", all)...)
	}
}

func (v *view) pictures() []Figure {
	var out []Figure
	tunnels := map[string]string{}
	for _, c := range v.all {
		f := c.Factors
		topology := factor.Topology.Of(f)
		if !factor.Tunnel.Is(f, "", factor.NoTunnel) {
			words := v.Catalogue.Of(string(factor.Tunnel)).Words(factor.Tunnel.Of(f))
			if !strings.Contains(tunnels[topology], words) {
				tunnels[topology] = joined(", ", tunnels[topology], words)
			}
		}
	}

	for _, w := range v.Ways {
		c := chainOfWay(w, v.Topologies)
		out = append(out, Figure{
			ID:      fmt.Sprintf("path-ipv%d", w.IP),
			Path:    true,
			Draw:    c,
			Text:    c.lines(),
			Title:   fmt.Sprintf("Over IPv%d", w.IP),
			Caption: w.Words(),
		})
	}

	if len(out) > 0 || len(v.all) > 0 && every(v.all, enciphered) { // in the second case, no traffic was sent
		return out
	}

	for _, t := range v.Topologies {
		name := tunnels[t.Name]
		if name == "" && len(v.Topologies) == 1 {
			name = tunnels[""]
		}

		c, ok := chainOf(t, name)
		c.Class = v.tunnelClass(v.all)
		p := Figure{
			ID:      "path-" + t.Name,
			Path:    true,
			Title:   t.Name,
			Draw:    c,
			Text:    c.lines(),
			Caption: fmt.Sprintf("Traffic runs between %s and %s.", t.Near, t.Far),
		}
		if name != "" && c.Tunnel[0] != c.Tunnel[1] {
			p.Caption += fmt.Sprintf(" The tunnel, where a cell has one (%s), runs between %s and %s.",
				name, c.Nodes[c.Tunnel[0]].Name, c.Nodes[c.Tunnel[1]].Name)
		}

		if !ok {
			p.Caption += " Nodes beside this path are not drawn."
		}

		out = append(out, p)
	}

	return out
}

// methodSection shows how the run was measured.
func methodSection(v *view, s *Section) {
	m := v.Run.Method
	facts := Facts{Items: append(given("Measured window", durationWords(m.Duration)+" per trial",
		"Warm-up before it", durationWords(m.Warmup)+", excluded", "Repetitions", runsWords(m),
		"Order", orderWords(m), "Seed", fmt.Sprint(m.Seed)), Fact{Name: "Plan", Value: v.Run.Plan},
		Fact{Name: "Lab", Value: strings.TrimSpace(v.Run.Lab + bracket(v.Run.LabNote))})}
	for _, set := range v.Run.Set {
		facts.Items = append(facts.Items, Fact{Name: "Changed with --set", Value: set})
	}

	// The first sentence of the description is at the top of the page.
	_, more, _ := strings.Cut(strings.Join(strings.Fields(v.Run.Description), " "), ". ")
	words := Prose{once(nil, more, v.countWords(),
		"With six runs or more each median has a confidence interval (from order statistics, so it "+
			"assumes no distribution). With fewer the range from the smallest to the largest run is "+
			"shown, which is not a confidence interval. A trial that failed counts in no number.")}
	mixed := func(c *analysis.Cell) bool { return factor.PacketSize.Is(c.Factors, factor.IMIX) }
	if len(v.cells(mixed)) > 0 {
		words.Text = append(words.Text, "IMIX is FD.io CSIT's mix of sizes, in turn: of each twelve "+
			"Ethernet frames seven have 64 bytes (in IPv6 84), four 570 and one 1518. Bits are those of "+
			"the payload that each has.")
	}

	s.add(words, facts)
	var own []Block
	if len(v.Tester) > 0 {
		own = append(own, testerFacts(v))
	}

	if v.importedFrom() == "" { // chokepoint did not see the nodes of an imported run
		own = append(own, observingFacts(v))
	}

	s.fold("What the tester alone can do, and what observing cost", own...)
	if len(v.Conditions) > 0 {
		s.add(Facts{Title: "Conditions, as typed in", Items: factsOf(v.Conditions)})
	}
}

// countWords describes how the rates and round-trip times of a run were measured.
func (v *view) countWords() string {
	if v.importedFrom() != "" {
		return "Other programs measured this, each by its own method: " + v.measuredBy() + ". What their " +
			"files contain is shown; where they have bytes over time, rates were computed from these."
	}

	var words []string
	own := len(v.cells(enciphered))
	if own > 0 {
		words = append(words, "The speed of a cipher or key is what a library's own benchmark counted on "+
			"the node in the measured window, of all its threads together, divided by the time that "+
			"passed. Nothing was sent for it.")
	}

	if own == 0 || own < len(v.all) {
		words = append(words, "Goodput is application payload counted by the receiver inside the measured "+
			"window, divided by its length on the receiver's clock. Packet rates count the datagrams of the "+
			"window that arrived, identified by sequence numbers, so that sent = received + lost. "+
			"Round-trip times come from a UDP echo at a fixed rate beside the load, and on the idle path.")
	}

	return strings.Join(words, " ")
}

// factsOf converts a map to facts sorted by name.
func factsOf(values map[string]string) []Fact {
	return each(sortedKeys(values), func(k string) Fact {
		return Fact{Name: k, Value: values[k]}
	})
}

// durationWords formats a duration with a space before the unit, such as "2 s" or "400 ms".
func durationWords(d time.Duration) string {
	switch {
	case d >= 2*time.Minute:
		return unit.Seconds(d)
	case d >= time.Second:
		return decimal(d.Seconds()) + " s"
	}
	return decimal(float64(d)/1e6) + " ms"
}

func runsWords(m record.Method) string {
	a := m.Adaptive
	if a != nil {
		return fmt.Sprintf("%d to %d per cell, until the interval is at most %s of the median",
			a.Min, a.Max, unit.Percent(a.Width))
	}
	return unit.Count(m.Runs, "run") + " of each cell"
}

func orderWords(m record.Method) string {
	if m.Order == "listed" {
		return "as listed in the plan, not randomised: a drift of the machine looks like an effect"
	}
	return "randomised complete blocks: each block holds every cell once, in random order"
}

func testerFacts(v *view) Facts {
	return Facts{
		Title: "What the tester alone can do, without a router between",
		Items: each(v.Tester, func(t record.Ceiling) Fact {
			return Fact{Name: t.Kind, Value: rateText(t.Unit, t.Value) + bracket(t.Note)}
		}),
	}
}

func observingFacts(v *view) Facts {
	o := v.Observing
	items := given("All probes of all nodes", unit.Percent(o.CoreRatio),
		"The same with the interrupts that were charged to it", unit.Percent(o.ChargedRatio),
		"The five fast sources, once each", unit.Percent(o.FastRatio))
	for _, name := range sortedKeys(o.Probes) {
		items = append(items, Fact{Name: "Probe " + name, Value: unit.Percent(o.Probes[name])})
	}

	return Facts{Title: "What observing cost, of one core, by the program's own accounting", Items: items}
}

// environmentSection shows on which nodes the run was measured. Facts that all nodes share are shown once.
func environmentSection(v *view, s *Section) {
	if len(v.Environment) == 0 {
		return
	}

	all := []Facts{commonFacts(v.Environment)}
	for _, e := range v.Environment {
		own := filter(factsOfNode(e), func(f Fact) bool { return !slices.Contains(all[0].Items, f) })
		// Nodes with identical facts share an entry.
		i := slices.IndexFunc(all, func(f Facts) bool { return slices.Equal(f.Items, own) })
		if i < 0 {
			all = append(all, Facts{Title: e.Node, Items: own})
		} else {
			all[i].Title += ", " + e.Node
		}
	}

	fold := Fold{Title: unit.Count(len(v.Environment), "node") + ": kernel, settings, devices"}
	for _, f := range all {
		if len(f.Items) > 0 {
			fold.Blocks = append(fold.Blocks, f)
		}
	}

	s.add(fold)
}

// commonFacts returns the facts that all nodes share, or none if there is only one node.
func commonFacts(all []record.Environment) Facts {
	f := Facts{Title: "All nodes"}
	if len(all) < 2 {
		return f
	}

	f.Items = filter(factsOfNode(all[0]), func(fact Fact) bool {
		return !slices.ContainsFunc(all[1:], func(e record.Environment) bool {
			return !slices.Contains(factsOfNode(e), fact)
		})
	})
	return f
}

func factsOfNode(e record.Environment) []Fact {
	out := factsOf(e.Facts)
	for _, k := range sortedKeys(e.Missing) {
		out = append(out, Fact{Name: k, Missing: "unavailable: " + e.Missing[k]})
	}
	return out
}

// metricSection lists every metric of every cell.
func metricSection(v *view, s *Section) {
	if len(v.all) == 0 {
		return
	}

	out := MetricTables{
		Run: v.Run.ID,
		Empty: Table{
			ID: "metric-table",
			Columns: columns("Metric", "#Median",
				"#Low", "#High", "#n", "Interval", "Scope"),
		},
	}
	for _, c := range v.all {
		t := MetricTable{Title: c.Label, Cell: c.Factors.Key()}
		for _, name := range v.metricOrder(c) {
			x := c.Metrics[name]
			row := []any{out.name(v, name), index(&out.Words, intervalName(x)), x.N}
			for _, stat := range v.statCells(c, name, x) {
				if stat.Num != nil {
					row = append(row, stat.Text, stat.Num.Value)
				}
			}

			t.Rows = append(t.Rows, row)
		}

		for _, name := range sortedKeys(c.Missing) {
			why := printable("unavailable: " + c.Missing[name])
			t.Rows = append(t.Rows, []any{out.name(v, name), index(&out.Words, why)})
		}

		out.Tables = append(out.Tables, t)
	}

	s.add(out)
}

// name returns the index of a metric in Names.
func (m *MetricTables) name(v *view, name string) int {
	d := v.metric[name]
	return index(&m.Names, [4]string{printable(metrics.Label(name)), printable(name), printable(d.Scope),
		printable(d.Doc)})
}

// metricOrder returns the metrics of a cell in order of declaration, followed by undeclared ones.
func (v *view) metricOrder(c *analysis.Cell) []string {
	var out []string
	for _, m := range v.Metrics {
		if has(c, m.Name) {
			out = append(out, m.Name)
		}
	}

	for _, name := range sortedKeys(c.Metrics) {
		if _, ok := v.metric[name]; !ok {
			out = append(out, name)
		}
	}

	return out
}

package report

import "github.com/chokepoint-lab/chokepoint/internal/analysis"

const (
	flowRate    = "flows_per_s"
	requestRate = "requests_per_s"
)

// flowTables returns the tables of short flows and of requests, if they have rows.
func flowTables(v *view) []Table { return filled(shortFlowTable(v), requestTable(v)) }

// filled returns the tables that have rows.
func filled(tables ...Table) []Table {
	return filter(tables, func(t Table) bool { return len(t.Rows) > 0 })
}

func (v *view) with(metric string) []*analysis.Cell {
	return v.cells(func(c *analysis.Cell) bool { return has(c, metric) })
}

func shortFlowTable(v *view) Table {
	cells := v.with(flowRate)
	t := Table{
		ID:    "short-flows",
		Cards: true,
		Columns: columns("Short flows", "#Completed|per second",
			"#Handshake|p50 · p99", "#Completion|p50 · p99"),
		Caption: "Each flow has a TCP connection of its own. Its completion time runs from when it was " +
			"intended to start to the last byte of the answer; what failed or was not done by the window's " +
			"end counts as slower than all others. " +
			rateIntervals(v, cells, flowRate),
	}
	var sizes []string // the distributions of completion times by size
	for _, s := range []struct{ name, words string }{{"small", "below 100 kB"}, {"medium", "to 10 MB"},
		{"large", "larger"}} {
		stem := "flow_completion_" + s.name
		if with(v.all, stem+"_p50_ns") {
			sizes = append(sizes, stem)
			t.Columns = append(t.Columns, columns("#"+s.words+"|p50 · p99")...)
		}
	}

	t.Columns = append(t.Columns, columns("#Failed", "#Unfinished")...)
	for _, c := range cells {
		bySize := each(sizes, func(stem string) TableCell { return v.pair(c, stem) })

		t.row(cellName(c.Label, c.Factors), v.cellOf(c, flowRate),
			v.pair(c, "flow_connect"), v.pair(c, "flow_completion"), bySize,
			v.cellOf(c, "flow_failed_ratio"), v.cellOf(c, "flow_unfinished_ratio"))
	}

	t.dropEmpty()
	return t
}

func requestTable(v *view) Table {
	cells := v.with(requestRate)
	t := Table{
		ID:    "requests",
		Cards: true,
		Columns: columns("Requests", "#Completed|per second",
			"#Response after|p50 · p99", "#Response after|p99.9"),
		Caption: "One request at a time on each " +
			"connection; all connections stay open. " + rateIntervals(v, cells, requestRate),
	}
	for _, c := range cells {
		t.row(cellName(c.Label, c.Factors), v.cellOf(c, requestRate), v.pair(c, "request"),
			v.cellOf(c, "request_p999_ns"))
	}

	return t
}

func rateIntervals(v *view, cells []*analysis.Cell, metric string) string {
	return "Medians over the runs; with each rate its interval: " + v.intervalsOf(cells, metric) + "."
}

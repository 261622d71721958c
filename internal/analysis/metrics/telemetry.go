package metrics

import (
	"cmp"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/statistics"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// SamplesOf returns a probe's samples on a node, or the reason why there are none.
func SamplesOf(n record.NodeData, probe string) (*record.Table, string) {
	for _, s := range n.Samples {
		if s.Probe == "all" && s.Unavailable != "" {
			return nil, s.Unavailable
		}

		if s.Probe != probe {
			continue
		}

		if s.Table == nil {
			return nil, cmp.Or(s.Unavailable, "probe "+probe+" took no sample")
		}

		return s.Table, ""
	}
	return nil, "probe " + probe + " did not run"
}

// column is one series of a probe. Its name is Label, a slash and a stem, such as "eth0/rx_packets", where
// the label is the device. Label may be empty.
type column struct {
	Label string
	Curve statistics.Curve
}

// ColumnsOf returns the columns of a stem with their labels. The name of a column is its label, a slash and
// the stem or, without a label, the stem alone.
func ColumnsOf(t *record.Table, stem string) []column {
	if t == nil {
		return nil
	}

	var out []column
	for i, name := range t.Names {
		label, found := strings.CutSuffix(name, stem)
		label, labelled := strings.CutSuffix(label, "/")
		if found && (labelled || label == "") {
			out = append(out, column{label, statistics.NewCurve(t.T, t.V[i])})
		}
	}

	return out
}

// SeriesOf returns the columns of a probe on a node that belong to a stem. For example, the column
// "eth0/rx_packets" belongs to the stem "rx_packets". SeriesOf returns none if the probe took no sample.
func SeriesOf(n record.NodeData, probe, stem string) []column {
	table, _ := SamplesOf(n, probe)
	return ColumnsOf(table, stem)
}

// grown returns the growth of counters in the window, summed over the columns of the given stems. If keep is
// not nil, only columns count whose labels it accepts. If no counter covers the window, grown returns the
// reason.
func grown(n record.NodeData, probe string, w record.Window, keep func(label string) bool,
	stems ...string) (sum float64, why string) {
	table, why := SamplesOf(n, probe)
	if table == nil {
		return 0, why
	}

	found := false
	counted := false
	for _, stem := range stems {
		for _, c := range ColumnsOf(table, stem) {
			if keep != nil && !keep(c.Label) {
				continue
			}

			found = true
			if d, ok := c.Curve.Moved(w.Start, w.End); ok {
				sum += d
				counted = true
			}
		}
	}

	switch {
	case counted:
		return sum, ""
	case !found:
		return 0, "probe " + probe + " found nothing to count here"
	}

	return 0, "the samples of probe " + probe + " do not cover the window"
}

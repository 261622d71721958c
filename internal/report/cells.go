package report

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/analysis"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/evidence"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/metrics"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// keyMetrics returns the metrics that scripts need, in this order: rates, losses, latency, load and power. It
// omits metrics that no cell has. JSON and csv-long contain all metrics.
func (v *view) keyMetrics() []string {
	return filter([]string{
		goodput, metrics.GoodputUp, metrics.GoodputDown, packetRate,
		metrics.ThroughputNDR, metrics.ThroughputPDR, metrics.ThroughputDelay, metrics.ThroughputPaced,
		metrics.ConnectionsNDR, metrics.ConnectionsPDR, flowRate, requestRate,
		metrics.CipherRate, metrics.CipherOps, metrics.Number,
		lossRatio, retransmits, metrics.FlowFailed,
		idleP50, idleP99, loadedP50, loadedP99, rttAdded, responsiveness,
		routerCore, hostCore, powerIdle, powerLoaded, perWatt, metrics.CyclesPerByte, metrics.CyclesPerOp,
	}, func(m string) bool { return with(v.all, m) })
}

// CSV writes one line per cell. It has the cell's id, label and factors, the grade with the kinds of its
// reasons and caveats (including the caveats of the run), the number of trials, and the cause with its
// confidence (0 to 1). For each key metric, it has the median, the bounds of the interval and the number of
// trials. The values are in the base unit with which the metric's name ends. The bounds are empty if there is
// no interval. The last columns are the ratios of the rate to the baseline and to the rate at the default
// MTU. They are omitted if no cell has such a ratio. A skipped cell has the grade "skipped", and the text of
// its reason.
func CSV(d *analysis.Document) ([]byte, error) {
	v := newView(d)
	all := record.Factors{}
	cells := slices.Concat(v.all, v.skipped())
	for _, c := range cells {
		maps.Copy(all, c.Factors)
	}

	factors := v.sorted(all)
	shown := v.keyMetrics()
	head := slices.Concat([]string{"run", "cell", "label"}, factors, []string{"grade", "reasons", "caveats",
		"imported_from", "trials", "failed", "bottleneck", "confidence"})
	for _, m := range shown {
		head = append(head, m+"_median", m+"_low", m+"_high", m+"_n")
	}

	shares := v.shares()
	for _, s := range shares {
		head = append(head, s.name)
	}

	lines := [][]string{head}
	for _, c := range cells {
		line := v.cellLine(c, factors, shown)
		for _, s := range shares {
			text := ""
			if share := s.of(c); share != nil {
				text = decimal(share.Ratio)
			}

			line = append(line, text)
		}

		lines = append(lines, line)
	}

	return inCSV(lines)
}

// skipped returns the skipped cells. A reason for skipping has no kind, so its text takes the place of the
// kind.
func (v *view) skipped() []*analysis.Cell {
	return each(v.Skipped, func(k record.Skipped) *analysis.Cell {
		return &analysis.Cell{Cell: metrics.Cell{
			ID:      k.Factors.ID(),
			Factors: k.Factors,
			Label:   cmp.Or(k.Label, v.skippedWords(k.Factors)),
			Grade:   evidence.GradeSkipped,
			Reasons: []evidence.Reason{{Kind: k.Reason, Text: k.Reason}},
		}}
	})
}

func (v *view) cellLine(c *analysis.Cell, factors, shown []string) []string {
	line := []string{v.Run.ID, c.ID, c.Label}
	for _, name := range factors {
		line = append(line, c.Factors[name])
	}

	limit, confidence := "", ""
	if c.Diagnosis != nil {
		limit = c.Diagnosis.Class
		confidence = decimal(c.Diagnosis.Confidence)
	}

	line = append(line, c.Grade, strings.Join(distinct(c.Reasons, reasonKind), " "), v.kindsWith(c.Caveats),
		v.importedFrom(), strconv.Itoa(c.Runs), strconv.Itoa(c.Failed), limit, confidence)
	line = each(line, func(text string) string { return asText(printable(text)) })
	for _, m := range shown {
		median, low, high, n := cellNumbers(c, m)
		line = append(line, median, low, high, n)
	}

	return line
}

// shareColumn is a column with a share for each cell.
type shareColumn struct {
	name string
	of   func(*analysis.Cell) *analysis.Share
}

// shares returns the columns of shares. It omits columns that are empty for all cells.
func (v *view) shares() []shareColumn {
	return filter([]shareColumn{
		{"of_baseline_ratio", func(c *analysis.Cell) *analysis.Share { return c.OfBaseline }},
		{"of_default_mtu_ratio", func(c *analysis.Cell) *analysis.Share { return c.OfDefaultMTU }},
	}, func(s shareColumn) bool {
		return slices.ContainsFunc(v.all, func(c *analysis.Cell) bool { return s.of(c) != nil })
	})
}

// cellNumbers formats a cell's median, bounds of the interval and number of trials for a metric. Missing
// values are formatted as "".
func cellNumbers(c *analysis.Cell, metric string) (median, low, high, n string) {
	x, ok := c.Metrics[metric]
	if !ok {
		return "", "", "", ""
	}

	if hasInterval(x) {
		low = decimal(x.Low)
		high = decimal(x.High)
	}

	return decimal(x.Median), low, high, strconv.Itoa(x.N)
}

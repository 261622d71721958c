package analysis

import (
	"github.com/chokepoint-lab/chokepoint/internal/analysis/metrics"
	"github.com/chokepoint-lab/chokepoint/internal/factor"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// headlines lists the metrics that can represent a run, in order of preference. Results of searches come
// first, because they are the purpose of the run.
var headlines = [...]string{metrics.ThroughputNDR, metrics.ThroughputPDR, metrics.ThroughputDelay,
	metrics.ThroughputPaced, metrics.ConnectionsNDR, metrics.ConnectionsPDR, metrics.Goodput,
	metrics.PacketRate, metrics.FlowRate, metrics.CipherRate, metrics.CipherOps, metrics.Number}

// Headline returns the highest median of the first metric in headlines that a cell has, or nil if no cell has
// any of them. It uses cells without a router only if there are no others.
func (d *Document) Headline() *record.Headline {
	for _, direct := range []bool{false, true} {
		for _, metric := range headlines {
			best := d.greatest(metric, direct)
			if best != nil {
				return &record.Headline{
					Metric: metric,
					Value:  best.Metrics[metric].Median,
					Unit:   metrics.Of(metric).Unit,
					Cell:   best.Label,
					Grade:  best.Grade,
				}
			}
		}
	}
	return nil
}

// greatest returns the first cell with the highest median of a metric, or nil if no cell has the metric. For
// goodput, it skips cells that have a packet rate. It skips cells without a router unless direct is set.
func (d *Document) greatest(metric string, direct bool) (best *Cell) {
	for i := range d.Cells {
		c := &d.Cells[i]
		v, ok := c.Metrics[metric]
		_, counted := c.Metrics[metrics.PacketRate]
		switch {
		case !ok, metric == metrics.Goodput && counted, !direct && factor.Topology.Is(c.Factors, "direct"):
		case best == nil || v.Median > best.Metrics[metric].Median:
			best = c
		}
	}
	return best
}

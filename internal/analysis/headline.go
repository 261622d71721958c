package analysis

import (
	"slices"

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
	through := slices.DeleteFunc(slices.Clone(d.Cells), func(c Cell) bool {
		return factor.Topology.Is(c.Factors, "direct")
	})
	for _, cells := range [][]Cell{through, d.Cells} {
		for _, metric := range headlines {
			best := greatest(cells, metric)
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

// greatest returns the first cell with the highest median of a metric. For goodput, it skips cells that
// have a packet rate.
func greatest(cells []Cell, metric string) (best *Cell) {
	for i := range cells {
		v, ok := cells[i].Metrics[metric]
		_, counted := cells[i].Metrics[metrics.PacketRate]
		if !ok || metric == metrics.Goodput && counted {
			continue
		}

		if best == nil || v.Median > best.Metrics[metric].Median {
			best = &cells[i]
		}
	}
	return best
}

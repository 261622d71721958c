package analysis

import (
	"slices"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/metrics"
	"github.com/chokepoint-lab/chokepoint/internal/factor"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// headlines lists the metrics that a run may be known by, the first that it has. What a search found is what
// the run was for; of UDP packets the rate says more than the goodput.
var headlines = [...]string{metrics.ThroughputNDR, metrics.ThroughputPDR, metrics.ThroughputDelay,
	metrics.ThroughputPaced, metrics.ConnectionsNDR, metrics.ConnectionsPDR, metrics.Goodput,
	metrics.PacketRate, metrics.FlowRate, metrics.CipherRate, metrics.CipherOps, metrics.Number}

// Headline returns the greatest median of the first metric of headlines that a cell has, nil if none has any.
// Cells without a router count only where there are no others.
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

// greatest returns the first cell with the greatest median of a metric. The goodput of packets that are
// counted is left to their rate.
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

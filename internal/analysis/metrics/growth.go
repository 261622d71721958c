package metrics

import (
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/statistics"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// Growth is how far each counter that the probes of a trial read has grown in its window, by node, probe
// and column: "router/snmp/IpReasmReqds". Of a trial that failed before its window it is the growth over
// all samples; what the samples do not cover is left out.
func Growth(t *record.Trial) map[string]float64 {
	out := map[string]float64{}
	for node, n := range t.Nodes {
		for i := range n.Samples {
			s := &n.Samples[i]
			if s.Table == nil || len(s.Table.T) == 0 {
				continue
			}
			counters := map[string]bool{}
			for _, m := range s.Metrics {
				counters[m.Name] = m.Counter
			}
			from, to := t.Window.Start, t.Window.End
			if to == 0 {
				from, to = s.Table.T[0], s.Table.T[len(s.Table.T)-1]
			}
			for k, name := range s.Table.Names {
				if !counters[name[strings.LastIndexByte(name, '/')+1:]] {
					continue
				}
				if grown, ok := statistics.NewCurve(s.Table.T, s.Table.V[k]).Moved(from, to); ok {
					out[node+"/"+s.Probe+"/"+name] = grown
				}
			}
		}
	}
	return out
}

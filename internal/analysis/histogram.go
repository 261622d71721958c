package analysis

import (
	"cmp"
	"slices"

	"github.com/HdrHistogram/hdrhistogram-go"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/validity"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// Range of the histograms, in nanoseconds. What lies outside is counted, and not forced into the last
// bucket.
const (
	histogramLow    = 1
	histogramHigh   = 100e9
	histogramDigits = 3
)

// addDistributions puts all probes of a cell into histograms: those of its own trials, and those of the
// idle measurements of its path.
func (g *group) addDistributions(good []*validity.Judged) {
	idle := latencies(good, func(t *record.Trial) *record.Latency { return t.Idle })
	if len(idle) == 0 {
		idle = latencies(validity.LastGood(g.idle), func(t *record.Trial) *record.Latency { return t.Idle })
	}
	loaded := latencies(good, func(t *record.Trial) *record.Latency { return t.Loaded })
	for kind, all := range map[string][]*record.Latency{"idle": idle, "loaded": loaded} {
		d, ok := distribution(all)
		if !ok {
			continue
		}
		if g.cell.Latency == nil {
			g.cell.Latency = map[string]Distribution{}
		}
		g.cell.Latency[kind] = d
	}
}

func latencies(trials []*validity.Judged, of func(*record.Trial) *record.Latency) []*record.Latency {
	var out []*record.Latency
	for _, j := range trials {
		if l := of(j.Trial); l != nil && len(l.RTT) > 0 {
			out = append(out, l)
		}
	}
	return out
}

// distribution joins what several measurements saw.
func distribution(all []*record.Latency) (Distribution, bool) {
	if len(all) == 0 {
		return Distribution{}, false
	}
	d := Distribution{Probe: cmp.Or(all[0].Probe, "echo"), Spacing: cmp.Or(all[0].Spacing,
		record.Isochronous)}
	h := hdrhistogram.New(histogramLow, histogramHigh, histogramDigits)
	for _, l := range all {
		d.Stamps, d.Includes = once(d.Stamps, l.Stamps), once(d.Includes, l.Includes)
		for _, ns := range l.RTT {
			d.Sent++
			switch {
			case ns < 0:
				d.Lost++
			case ns < histogramLow || ns > histogramHigh || h.RecordValue(ns) != nil:
				d.Beyond++
			}
		}
	}
	text, err := h.Encode(hdrhistogram.V2CompressedEncodingCookieBase)
	if err != nil {
		return Distribution{}, false
	}
	d.HDR = string(text)
	return d, true
}

// once adds a text that is not there yet.
func once(list []string, text string) []string {
	if text == "" || slices.Contains(list, text) {
		return list
	}
	return append(list, text)
}

package analysis

import (
	"cmp"
	"slices"

	"github.com/HdrHistogram/hdrhistogram-go"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/validity"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// Range of the histograms, in nanoseconds. What lies outside is counted, and not forced into the last bucket.
const (
	histogramLow    = 1
	histogramHigh   = 100e9
	histogramDigits = 3
)

// addDistribution puts all probes of some trials into a histogram.
func (g *group) addDistribution(kind string, ran []*validity.Judged) {
	var all []*record.Latency
	for _, j := range ran {
		l := j.Trial.Idle
		if kind == "loaded" {
			l = j.Trial.Loaded
		}
		all = append(all, l)
	}
	if d, ok := distribution(all); ok {
		g.cell.Latency[kind] = d
	}
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

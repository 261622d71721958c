package analysis

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/evidence"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/metrics"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/statistics"
	"github.com/chokepoint-lab/chokepoint/internal/factor"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/unit"
)

// summary describes the findings of the run, most important first.
func summary(run *record.Run, d *Document) []string {
	var out []string
	for _, w := range d.Ways {
		out = append(out, w.Words())
	}

	out = append(out, opening(run))
	for _, say := range []func(*Document) []string{fastest, tunnelCost, natCost, mtuWords, smallPackets,
		latencyWords, responsivenessWords, importedWords, cipherWords, thresholdWords, unreached,
		caveatWords} {
		out = append(out, say(d)...)
	}

	return out
}

// opening returns the first sentence of the plan's description.
func opening(run *record.Run) string {
	text, _, _ := strings.Cut(strings.Join(strings.Fields(description(run)), " "), ". ")
	return sentence(capital(cmp.Or(text, "Plan "+run.Design.Name)))
}

func sentence(s string) string {
	s = strings.TrimSpace(s)
	if s == "" || strings.HasSuffix(s, ".") {
		return s
	}
	return s + "."
}

// fastest describes the TCP cell with the highest goodput, for each tunnel and without a tunnel.
func fastest(d *Document) []string {
	var kinds []string
	best := map[string]*Cell{} // by kind of tunnel
	for i := range d.Cells {
		c := &d.Cells[i]
		v, ok := c.Metrics[metrics.Goodput]
		if !ok || factor.Protocol.Is(c.Factors, factor.UDP) {
			continue
		}

		kind := factor.Tunnel.Of(c.Factors)
		if best[kind] == nil {
			kinds = append(kinds, kind)
		}

		if best[kind] == nil || v.Median > best[kind].Metrics[metrics.Goodput].Median {
			best[kind] = c
		}
	}

	var out []string
	for _, kind := range kinds {
		c := best[kind]
		v := c.Metrics[metrics.Goodput]
		where := "Without a tunnel the"
		switch {
		case kind != "" && kind != factor.NoTunnel:
			where = "Through " + d.TunnelWords(c) + " the"
		// The program that measured an imported run may not have recorded a tunnel.
		case len(d.Run.ImportedFrom) > 0 && !factor.Tunnel.In(c.Factors):
			where = "The"
		}

		median := ""
		if v.N > 1 {
			median = "a median of "
		}

		out = append(out, fmt.Sprintf("%s fastest cell carried %s%s of TCP payload (%s; %s).", where, median,
			unit.Bitrate(v.Median), spread(v, bitrate), c.Label))
	}

	return out
}

// spread formats an interval, such as "range 1.2 to 1.3 Gbit/s, n = 3".
func spread(v statistics.Value, format func(float64) string) string {
	switch v.Interval {
	case statistics.IntervalSingle:
		return "one run"
	case statistics.IntervalOrder:
		return fmt.Sprintf("%s interval %s to %s, n = %d", unit.Percent(v.Level), format(v.Low),
			format(v.High), v.N)
	}
	return fmt.Sprintf("range %s to %s, n = %d", format(v.Low), format(v.High), v.N)
}

// tunnelCost describes how much of the goodput remains inside a tunnel.
func tunnelCost(d *Document) []string { return d.remains(factor.Tunnel, "Inside ", "a tunnel") }

// natCost describes how much of the goodput remains with address translation.
func natCost(d *Document) []string { return d.remains(factor.NAT, "With ", "address translation") }

// remains describes the goodput with a factor as a share of the goodput without it, for cells with the
// default MTU. If there is more than one comparison, the parameter several replaces the name of the level.
func (d *Document) remains(of factor.Name, before, several string) []string {
	f := d.Catalogue.Of(string(of))
	if f.Without == nil {
		return nil
	}

	var ratios []float64
	name := ""
	doubt := ""
	cells := d.ByKey()
	for _, c := range d.Comparisons {
		named := c.Metric == metrics.Goodput && c.Name == f.Without.Words
		if named && d.usualMTU(cells, c.Factors, metrics.Goodput) {
			ratios = append(ratios, c.Ratio)
			name = f.Words(of.Of(c.Factors))
			doubt = cmp.Or(doubt, suspectWord(cells[c.Factors.Key()], cells[c.Against.Key()]))
		}
	}

	switch len(ratios) {
	case 0:
		return nil
	case 1:
		return []string{fmt.Sprintf("%s%s there remained %s of the goodput %s%s.", before, name,
			unit.Percent(ratios[0]), strings.Replace(f.Without.Words, "the same", "the same path", 1), doubt)}
	}

	return []string{fmt.Sprintf("%s%s there remained %s to %s of the goodput of the same path without it "+
		"(%d comparisons)%s.", before, several, unit.Percent(slices.Min(ratios)),
		unit.Percent(slices.Max(ratios)), len(ratios), doubt)}
}

// mtuWords compares the best MTU other than the default with the default MTU, for each tunnel cell.
func mtuWords(d *Document) []string {
	best := map[string]*Cell{} // by key of the cell with the default MTU
	for i := range d.Cells {
		c := &d.Cells[i]
		s := c.OfDefaultMTU
		if s == nil || !factor.MTU.In(c.Factors) || factor.MTU.Of(c.Factors) == factor.MTU.Of(s.Cell) {
			continue
		}

		key := s.Cell.Key()
		if best[key] == nil || s.Ratio > best[key].OfDefaultMTU.Ratio {
			best[key] = c
		}
	}

	var ratios []float64
	doubt := ""
	cells := d.ByKey()
	for _, key := range keys(best) {
		ratios = append(ratios, best[key].OfDefaultMTU.Ratio)
		doubt = cmp.Or(doubt, suspectWord(best[key], cells[key]))
	}

	switch len(ratios) {
	case 0:
		return nil
	case 1:
		c := best[keys(best)[0]]
		return []string{fmt.Sprintf("The best other MTU, %s, carried %s of what the %s did (%s)%s.",
			factor.MTU.Of(c.Factors), unit.Percent(ratios[0]), c.OfDefaultMTU.Of, c.Label, doubt)}
	}

	return []string{fmt.Sprintf("The best other MTU carried %s to %s of what the default one did (%d "+
		"comparisons)%s.", unit.Percent(slices.Min(ratios)), unit.Percent(slices.Max(ratios)), len(ratios),
		doubt)}
}

// suspectWord returns a remark for the text about a ratio if one of the ratio's cells is suspect.
func suspectWord(cells ...*Cell) string {
	for _, c := range cells {
		if c != nil && c.Grade == evidence.GradeSuspect {
			return ", suspect"
		}
	}
	return ""
}

// smallPackets describes the highest packet rate.
func smallPackets(d *Document) []string {
	best := d.greatest(metrics.PacketRate, true)
	if best == nil {
		return nil
	}

	v := best.Metrics[metrics.PacketRate]
	sizes := factor.PacketSize.Of(best.Factors) + " bytes"
	if factor.PacketSize.Is(best.Factors, factor.IMIX) {
		sizes = "several sizes (IMIX)"
	}

	text := fmt.Sprintf("UDP packets of %s arrived at %s (%s)", sizes,
		unit.PacketRate(v.Median), spread(v, func(x float64) string { return unit.PacketRate(x).String() }))
	if l, ok := best.Metrics[metrics.LossRatio]; ok {
		text += fmt.Sprintf(", with %s of those sent lost", unit.Percent(l.Median))
	}

	return []string{text + "."}
}

// HighestAddedRTT returns the cell whose load adds most to the median round-trip time, and the added time in
// ns. It prefers TCP cells in which this time exceeds the noise. If no cell has an added time, it returns
// nil.
func (d *Document) HighestAddedRTT() (worst *Cell, ns float64) {
	key := ""
	for _, p := range d.UnderLoad {
		for _, direction := range []string{record.Up, record.Down, record.Both} {
			w := p.Directions[direction]
			if w.AddedNs != nil && !w.AddedInNoise && (key == "" || *w.AddedNs > ns) {
				key = w.Cell.Key()
				ns = *w.AddedNs
			}
		}
	}

	worst = d.ByKey()[key]
	if key != "" && worst != nil {
		return worst, ns
	}

	worst = d.greatest(metrics.RTTAdded, true)
	if worst == nil {
		return nil, 0
	}

	return worst, worst.Metrics[metrics.RTTAdded].Median
}

// latencyWords describes the added round-trip time of the cell in which it is highest.
func latencyWords(d *Document) []string {
	worst, added := d.HighestAddedRTT()
	if worst == nil {
		return nil
	}

	idle, okIdle := worst.Metrics[metrics.RTTIdle]
	loaded, okLoaded := worst.Metrics[metrics.RTTLoaded]
	if !okIdle || !okLoaded {
		return nil
	}

	return []string{fmt.Sprintf("A round trip took %s (median) on the idle path and %s under load (%s): %s, "+
		"bufferbloat grade %s.", unit.Nanoseconds(idle.Median), unit.Nanoseconds(loaded.Median), worst.Label,
		worst.addedWords(), metrics.Bufferbloat(added))}
}

// responsivenessWords describes the responsiveness of each path, by direction.
func responsivenessWords(d *Document) []string {
	var out []string
	for _, p := range d.UnderLoad {
		var parts []string
		for _, direction := range []string{record.Up, record.Down, record.Both} {
			w := p.Directions[direction]
			if w.RPM != nil {
				sure := ""
				if w.Confidence != "" {
					sure = ", confidence " + w.Confidence
				}

				parts = append(parts, fmt.Sprintf("%s %s RPM (%s%s)", direction,
					unit.Significant(*w.RPM, 3), w.Band, sure))
			}
		}

		if len(parts) > 0 {
			out = append(out, fmt.Sprintf("Responsiveness under load, %s: %s.", p.Label,
				strings.Join(parts, "; ")))
		}
	}
	return out
}

// importedWords describes numbers of an imported run that are not in the table of results, such as goodput
// by direction and request times, for the first cells.
func importedWords(d *Document) (out []string) {
	if len(d.Run.ImportedFrom) == 0 {
		return nil
	}

	for _, c := range d.Cells {
		var words []string
		for _, x := range [...]struct {
			metric, format string
			text           func(float64) string
		}{{metrics.GoodputDown, "%s went down", bitrate}, {metrics.GoodputUp, "%s went up", bitrate},
			{metrics.RequestIdle, "a request took %s without load", unit.Nanoseconds},
			{metrics.RequestLoaded, "%s under load", unit.Nanoseconds}} {
			if v, ok := c.Metrics[x.metric]; ok {
				words = append(words, fmt.Sprintf(x.format, x.text(v.Median)))
			}
		}

		if len(words) > 0 && len(out) < maxImportedWords {
			out = append(out, c.Label+": "+strings.Join(words, ", ")+".")
		}
	}
	return out
}

// maxImportedWords is the maximum number of cells of an imported run that the summary describes.
const maxImportedWords = 8

func bitrate(bps float64) string { return unit.Bitrate(bps).String() }

// addedWords describes the time that the load adds to the median round-trip time.
func (c *Cell) addedWords() string {
	if c.AddedInNoise() {
		return "no added latency is measurable"
	}
	return "the load adds " + unit.Nanoseconds(c.Metrics[metrics.RTTAdded].Median)
}

// ThresholdCounts returns the numbers of missed and of unchecked requirements.
func (d *Document) ThresholdCounts() (missed, unchecked int) {
	for _, t := range d.Thresholds {
		switch {
		case d.Unchecked(t):
			unchecked++
		case !t.Met:
			missed++
		}
	}
	return missed, unchecked
}

func thresholdWords(d *Document) []string {
	all := len(d.Thresholds)
	missed, unchecked := d.ThresholdCounts()
	if all == 0 {
		return nil
	}

	text := fmt.Sprintf("All %d checks of the plan's requirements are met", all)
	switch {
	case missed > 0:
		text = fmt.Sprintf("%d of %d checks of the plan's requirements are missed", missed, all)
	case unchecked > 0:
		text = fmt.Sprintf("%d of %d checks of the plan's requirements are met", all-unchecked, all)
	}

	if unchecked > 0 {
		text += fmt.Sprintf("; not checked: %d", unchecked)
	}

	return []string{text + "."}
}

// unreached describes the number of cells that the run did not reach.
func unreached(d *Document) []string {
	n := 0
	why := ""
	for _, c := range d.Cells {
		if c.Grade == evidence.GradeNotReached {
			n++
		}

		for _, r := range c.Reasons {
			if r.Kind == evidence.ReasonRunEnded {
				why = r.Text
			}
		}
	}

	if n == 0 {
		return nil
	}

	return []string{fmt.Sprintf("%d of %s not reached: %s.", n, unit.Count(len(d.Cells), "cell"), why)}
}

func caveatWords(d *Document) []string {
	var out []string
	for _, c := range d.Caveats {
		if c.Kind != "cut" { // the section on the method lists cuts
			out = append(out, sentence(capital(c.Text)))
		}
	}
	return out
}

func capital(s string) string {
	_, size := utf8.DecodeRuneInString(s)
	return strings.ToUpper(s[:size]) + s[size:]
}

// addFindings adds findings for a cell without a diagnosis.
func (g *group) addFindings() {
	g.addSegments()
	c := &g.cell
	added, ok := c.Metrics[metrics.RTTAdded]
	if !ok || c.AddedInNoise() || factor.Protocol.Is(g.factors, factor.UDP) ||
		strings.HasPrefix(metrics.Bufferbloat(added.Median), "A") {
		return // nothing is wrong with the delay
	}

	c.Findings = append(c.Findings, evidence.NewFinding(evidence.FindingBufferbloat,
		"bufferbloat grade "+metrics.Bufferbloat(added.Median)+": "+c.addedWords()+
			" to the median round trip", evidence.Evidence{
			Metric: metrics.RTTAdded,
			Value:  new(added.Median),
			Low:    new(added.Low),
			High:   new(added.High),
			Text:   spread(added, unit.Nanoseconds),
		}))
}

// TunnelWords returns the name of a cell's tunnel, with its implementation if known, such as "WireGuard
// (userspace)".
func (d *Document) TunnelWords(c *Cell) string {
	kind := factor.Tunnel.Of(c.Factors)
	words := d.Catalogue.Of(string(factor.Tunnel)).Words(kind)
	r := factor.Tunnel.Of(c.Resolved)
	if r != "" && r != kind {
		r = strings.TrimPrefix(strings.TrimPrefix(r, kind+"-"), kind+" ")
		words += " (" + strings.Trim(r, "()") + ")"
	}

	return words
}

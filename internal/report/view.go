package report

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/chokepoint-lab/chokepoint/internal/analysis"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/evidence"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/metrics"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/statistics"
	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/factor"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/unit"
)

// view caches what several sections derive from a document.
type view struct {
	*analysis.Document
	metric map[string]record.Metric
	all    []*analysis.Cell
	cell   map[string]*analysis.Cell        // by key
	trials map[string][]*analysis.TrialView // key of the cell → its trials

	swept    map[string]bool // factors with at least two levels, not counting "off"
	switched record.Factors  // one level of each factor that is not "off" in every cell
	line     string          // factor that is shown by colour
	coloured []string        // "factor=level", in the order of the colours
	named    *cellNames      // nil until first used
	top      *head           // nil until first used
}

func newView(d *analysis.Document) *view {
	v := &view{
		Document: d,
		metric:   map[string]record.Metric{},
		cell:     map[string]*analysis.Cell{},
		trials:   map[string][]*analysis.TrialView{},
	}
	for i := range d.Cells {
		v.all = append(v.all, &d.Cells[i])
		v.cell[d.Cells[i].Factors.Key()] = &d.Cells[i]
	}

	v.swept, v.switched = setFactors(v.all)
	for _, m := range d.Metrics {
		v.metric[m.Name] = m
	}

	for i := range d.Trials {
		t := &d.Trials[i]
		v.trials[t.Factors.Key()] = append(v.trials[t.Factors.Key()], t)
	}

	v.line = v.lineFactor()
	for _, level := range levels(v.cells(loaded), v.line) {
		v.colour(v.line, level)
	}

	return v
}

// unitOf returns the unit of a metric as declared in the document, or else by this program.
func (v *view) unitOf(metric string) string {
	if m, ok := v.metric[metric]; ok {
		return m.Unit
	}
	return cmp.Or(metrics.Of(metric).Unit, "count")
}

func (v *view) text(metric string, x float64) string {
	return v.scale(metric, x).Text(x)
}

// scale returns the scale for numbers of a metric of which x is the largest.
func (v *view) scale(metric string, x float64) unit.Scale { return unit.ScaleOf(v.unitOf(metric), x) }

// spread formats the interval of a value briefly, in the unit of its median.
func (v *view) spread(metric string, x statistics.Value) string {
	if !hasInterval(x) {
		return ""
	}

	s := v.scale(metric, x.Median)
	return s.Number(x.Low) + "–" + s.Number(x.High)
}

// sentence describes a value in full: name, median, interval, number of trials, definition.
func (v *view) sentence(metric string, x statistics.Value) string {
	text := v.numbersOf(metric, x)
	doc := v.metric[metric].Doc
	if doc != "" && v.importedFrom() == "" { // the definition describes how chokepoint counts
		text += ". " + upperFirst(doc)
	}

	return text
}

// numbersOf is like sentence, but omits the definition.
func (v *view) numbersOf(metric string, x statistics.Value) string {
	return metrics.Label(metric) + ": median " + v.text(metric, x.Median) + ", " + v.intervalWords(metric, x)
}

// intervalWords formats the interval of a value, if any, in the unit of its median, followed by the number
// of trials.
func (v *view) intervalWords(metric string, x statistics.Value) string {
	s := v.scale(metric, x.Median)
	interval := ""
	if hasInterval(x) {
		interval = intervalName(x) + " " + s.Number(x.Low) + "–" + s.Text(x.High)
	}

	return joined(", ", interval, "n = "+strconv.Itoa(x.N))
}

func hasInterval(x statistics.Value) bool {
	return x.Interval != statistics.IntervalSingle && x.Interval != "" &&
		!(x.Interval == statistics.IntervalPooled && x.Low == 0 && x.High == 0)
}

// intervalName returns the kind of an interval, such as "95 % interval" or "range".
func intervalName(x statistics.Value) string {
	switch x.Interval {
	case statistics.IntervalRange:
		return "range"
	case statistics.IntervalOrder:
		return unit.Significant(x.Level*100, 3) + " % interval"
	case statistics.IntervalPooled:
		if x.Level > 0 {
			return unit.Significant(x.Level*100, 3) + " % interval over all probes"
		}
		return "range of the trials that carry it"
	}
	return "single value"
}

// intervalKinds lists the kinds of the intervals that cells have for a metric, and the numbers of runs on
// which they are based.
func intervalKinds(cells []*analysis.Cell, metric func(*analysis.Cell) string) (kinds []string, runs string) {
	var counts []int
	for _, c := range cells {
		x := c.Metrics[metric(c)]
		if hasInterval(x) {
			kinds = once(kinds, intervalName(x))
			counts = append(counts, x.N)
		}
	}

	if len(counts) == 0 {
		return nil, ""
	}

	low, high := slices.Min(counts), slices.Max(counts)
	if low == high {
		return kinds, strconv.Itoa(low)
	}

	return kinds, fmt.Sprintf("%d–%d", low, high)
}

// intervalsOf describes the intervals of the given metrics in all cells.
func (v *view) intervalsOf(cells []*analysis.Cell, metrics ...string) string {
	var words []string
	for _, c := range cells {
		for _, m := range metrics {
			switch x := c.Metrics[m]; x.Interval {
			case statistics.IntervalSingle:
				words = once(words, "a single run has no interval")
			case statistics.IntervalRange:
				words = once(words, fmt.Sprintf("smallest to largest of n = %d runs (a range; below n = 6 "+
					"there is no confidence interval)", x.N))
			case statistics.IntervalOrder:
				words = once(words, fmt.Sprintf("%s %% order-statistic interval of the median, n = %d",
					unit.Significant(x.Level*100, 3), x.N))
			}
		}
	}

	slices.Sort(words)
	return strings.Join(words, "; ")
}

// once appends the texts that are not in list yet.
func once(list []string, texts ...string) []string {
	for _, text := range texts {
		if text != "" && !slices.Contains(list, text) {
			list = append(list, text)
		}
	}
	return list
}

// joined joins the non-empty texts.
func joined(sep string, texts ...string) string {
	return strings.Join(slices.DeleteFunc(texts, func(s string) bool { return s == "" }), sep)
}

// bracket returns s in parentheses, after a space, or "" if s is empty.
func bracket(s string) string { return around(" (", s, ")") }

// around returns before + s + after, or "" if s is empty.
func around(before, s, after string) string {
	if s == "" {
		return ""
	}
	return before + s + after
}

// index returns the index of x in list, appending x if it is missing.
func index[T comparable](list *[]T, x T) int {
	i := slices.Index(*list, x)
	if i < 0 {
		i = len(*list)
		*list = append(*list, x)
	}
	return i
}

// filter returns the elements for which keep returns true.
func filter[T any](list []T, keep func(T) bool) (out []T) {
	for _, x := range list {
		if keep(x) {
			out = append(out, x)
		}
	}
	return out
}

// every reports whether a predicate holds for all cells.
func every(cells []*analysis.Cell, is func(*analysis.Cell) bool) bool {
	return len(filter(cells, is)) == len(cells)
}

// distinct returns the different non-empty results of a function for the elements of list.
func distinct[T any](list []T, of func(T) string) []string { return once(nil, each(list, of)...) }

// each returns the results of a function for the elements of list.
func each[T, U any](list []T, of func(T) U) []U {
	var out []U
	for _, x := range list {
		out = append(out, of(x))
	}
	return out
}

// grouped groups the elements of list by key. keys has the keys in the order of their first elements.
func grouped[T any](list []T, key func(T) string) (keys []string, by map[string][]T) {
	by = map[string][]T{}
	for _, x := range list {
		k := key(x)
		if by[k] == nil {
			keys = append(keys, k)
		}

		by[k] = append(by[k], x)
	}
	return keys, by
}

// sortedKeys returns the keys of a map in order.
func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// number returns a reference to a cell's median in the document.
func number(c *analysis.Cell, metric string) *Number {
	return median(c.Factors, metric, c.Metrics[metric].Median)
}

func median(cell record.Factors, metric string, v float64) *Number {
	return &Number{Cell: cell.Key(), Metric: metric, Stat: "median", Value: v}
}

// Names of the metrics that have a fixed place in the layout. All other metrics appear only in the table of
// every metric.
const (
	goodput     = "goodput_bps"
	packetRate  = "packet_rate_pps"
	lossRatio   = "loss_ratio"
	retransmits = "retransmits"
	idleP50     = "rtt_idle_p50_ns"
	idleP99     = "rtt_idle_p99_ns"
	loadedP50   = "rtt_loaded_p50_ns"
	loadedP99   = "rtt_loaded_p99_ns"
	rttAdded    = "rtt_added_p50_ns"
	routerCore  = "router_busiest_core_ratio"
	hostCore    = "host_busiest_core_ratio"
	powerIdle   = "power_idle_w"
	powerLoaded = "power_loaded_w"
	perWatt     = "goodput_per_watt_bps"

	responsiveness = "responsiveness_rpm"
)

// packets reports whether a cell's rate is in packets per second, as for UDP.
func packets(c *analysis.Cell) bool {
	return has(c, packetRate) || factor.Protocol.Is(c.Factors, factor.UDP)
}

// enciphered reports whether a cell measures a node's cipher and sends no traffic.
func enciphered(c *analysis.Cell) bool { return !factor.Sends(c.Factors) }

// loaded reports whether a cell has a load. Cells without one measure an idle path.
func loaded(c *analysis.Cell) bool {
	return !enciphered(c) && (has(c, goodput) || has(c, packetRate) || !has(c, idleP50))
}

// suspect reports whether a cell has the grade suspect.
func suspect(c *analysis.Cell) bool { return c.Grade == evidence.GradeSuspect }

// has reports whether a cell has a value for a metric.
func has(c *analysis.Cell, metric string) bool {
	_, ok := c.Metrics[metric]
	return ok
}

// with reports whether any of the cells has a value for a metric.
func with(cells []*analysis.Cell, metric string) bool {
	return slices.ContainsFunc(cells, func(c *analysis.Cell) bool { return has(c, metric) })
}

// whiskerWords returns the end of a caption that explains the whiskers, or "" if there are none.
func whiskerWords(words string) string { return around(" Whisker: ", words, ".") }

// core returns the metric for the load of the busiest core, and whose core it is: the router's if the cell
// has that metric, otherwise the host's, which all nodes share. whose is "" if the cell has neither metric.
func core(c *analysis.Cell) (metric, whose string) {
	switch {
	case has(c, routerCore):
		return routerCore, "router"
	case has(c, hostCore):
		whose = "shared host"
	}
	return hostCore, whose
}

func (v *view) cells(want func(*analysis.Cell) bool) []*analysis.Cell { return filter(v.all, want) }

// printable removes control characters, so that no text from a node can move a terminal's cursor or break a
// page.
func printable(s string) string { return check.Plain(s) }

func upperFirst(s string) string {
	_, size := utf8.DecodeRuneInString(s)
	return strings.ToUpper(s[:size]) + s[size:]
}

func plural(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

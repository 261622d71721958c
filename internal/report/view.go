package report

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/chokepoint-lab/chokepoint/internal/analysis"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/metrics"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/statistics"
	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/factor"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/unit"
)

// view holds a document with what several sections look up in it.
type view struct {
	*analysis.Document
	metric map[string]record.Metric
	all    []*analysis.Cell
	cell   map[string]*analysis.Cell        // by key
	trials map[string][]*analysis.TrialView // key of the cell → its trials

	swept    map[string]bool // factors with two or more levels beside "off"
	switched record.Factors  // a level of each factor that is not always "off"
	line     string          // the factor that colours distinguish
	coloured []string        // "factor=level", in the order of the colours
	named    *cellNames      // nil until asked for
	top      *head           // the same
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

// unitOf returns the unit of a metric that the document declares, or else the program.
func (v *view) unitOf(metric string) string {
	if m, ok := v.metric[metric]; ok {
		return m.Unit
	}
	return cmp.Or(metrics.Of(metric).Unit, "count")
}

func (v *view) text(metric string, x float64) string {
	return unit.ScaleOf(v.unitOf(metric), x).Text(x)
}

// spread prints the interval of a value in the unit of its median, short.
func (v *view) spread(metric string, x statistics.Value) string {
	if !hasInterval(x) {
		return ""
	}

	s := unit.ScaleOf(v.unitOf(metric), x.Median)
	return s.Number(x.Low) + "–" + s.Number(x.High)
}

// sentence prints a value in full: name, median, interval, number of trials, definition.
func (v *view) sentence(metric string, x statistics.Value) string {
	text := v.numbersOf(metric, x)
	doc := v.metric[metric].Doc
	if doc != "" && len(v.Run.ImportedFrom) == 0 { // which says how we count
		text += ". " + upperFirst(doc)
	}

	return text
}

// numbersOf prints the same without the definition.
func (v *view) numbersOf(metric string, x statistics.Value) string {
	return metrics.Label(metric) + ": median " + v.text(metric, x.Median) + ", " + v.intervalWords(metric, x)
}

// intervalWords prints the interval of a value, if it has one, in the unit of its median, and the number of
// trials.
func (v *view) intervalWords(metric string, x statistics.Value) string {
	s := unit.ScaleOf(v.unitOf(metric), x.Median)
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

// intervalName names the kind of an interval as the field does.
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

// intervalKinds lists the kinds of the intervals that a metric has in some cells, and of how many runs they
// are.
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

// intervalsOf describes the intervals that some metrics have in all cells.
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

// once adds the texts that are not there yet.
func once(list []string, texts ...string) []string {
	for _, text := range texts {
		if text != "" && !slices.Contains(list, text) {
			list = append(list, text)
		}
	}
	return list
}

// joined joins the texts that are not empty.
func joined(sep string, texts ...string) string {
	return strings.Join(slices.DeleteFunc(texts, func(s string) bool { return s == "" }), sep)
}

// bracket returns a text in brackets, to stand beside another; "" without one.
func bracket(s string) string { return around(" (", s, ")") }

// around puts texts before and after one that is not empty.
func around(before, s, after string) string {
	if s == "" {
		return ""
	}
	return before + s + after
}

// index returns the place of x in a list, to which it adds x if it is not there.
func index[T comparable](list *[]T, x T) int {
	i := slices.Index(*list, x)
	if i < 0 {
		i = len(*list)
		*list = append(*list, x)
	}
	return i
}

// filter returns what a function keeps of a list.
func filter[T any](list []T, keep func(T) bool) (out []T) {
	for _, x := range list {
		if keep(x) {
			out = append(out, x)
		}
	}
	return out
}

// every reports whether a function holds for all cells.
func every(cells []*analysis.Cell, is func(*analysis.Cell) bool) bool {
	return len(filter(cells, is)) == len(cells)
}

// distinct returns the texts that a function makes of a list, each once and without "".
func distinct[T any](list []T, of func(T) string) []string { return once(nil, each(list, of)...) }

// each returns what a function makes of each element of a list.
func each[T, U any](list []T, of func(T) U) []U {
	var out []U
	for _, x := range list {
		out = append(out, of(x))
	}
	return out
}

// number ties a cell's median to the document.
func number(c *analysis.Cell, metric string) *Number {
	return median(c.Factors, metric, c.Metrics[metric].Median)
}

func median(cell record.Factors, metric string, v float64) *Number {
	return &Number{Cell: cell.Key(), Metric: metric, Stat: "median", Value: v}
}

// Metric names that the layout gives a place of their own. All others are in the table of every metric.
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

// packets reports whether a cell measures packets per second: UDP.
func packets(c *analysis.Cell) bool {
	return has(c, packetRate) || factor.Protocol.Is(c.Factors, factor.UDP)
}

// enciphered reports whether a cell measures a node's cipher, and sends nothing.
func enciphered(c *analysis.Cell) bool { return !factor.Sends(c.Factors) }

// loaded reports whether a cell offers traffic, as against one that measures an idle path.
func loaded(c *analysis.Cell) bool {
	return !enciphered(c) && (has(c, goodput) || has(c, packetRate) || !has(c, idleP50))
}

// has reports whether a cell has a number of a metric.
func has(c *analysis.Cell, metric string) bool {
	_, ok := c.Metrics[metric]
	return ok
}

// with reports whether one of the cells has a number of a metric.
func with(cells []*analysis.Cell, metric string) bool {
	return slices.ContainsFunc(cells, func(c *analysis.Cell) bool { return has(c, metric) })
}

// whiskerWords end a caption with what the whiskers are, if there are any.
func whiskerWords(words string) string { return around(" Whisker: ", words, ".") }

// core returns the metric of the busiest core that a cell has, and whose core that is: the router's own, or
// else one of the machine that carries it.
func core(c *analysis.Cell) (metric, whose string) {
	if has(c, routerCore) {
		return routerCore, "router"
	}
	return hostCore, "shared host"
}

func (v *view) cells(want func(*analysis.Cell) bool) []*analysis.Cell { return filter(v.all, want) }

// printable drops what steers, so that nothing a node reports can move a terminal's cursor or break
// a page.
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

package analysis

import (
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/evidence"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/metrics"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/statistics"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/validity"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/unit"
)

// Thresholds of a soak. A trend is reported if its p-value is at most soakLevel (Kendall's test, two-sided)
// and it is large enough to matter.
const (
	soakWindows = 6
	soakLevel   = 0.01
	soakDrift   = 0.02             // minimum change of the rate over the whole soak, as a share
	leakMemory  = 16 * 1024 * 1024 // minimum growth over the whole soak, in bytes
	leakEntries = 100              // minimum growth over the whole soak, in tracked connections
)

// Soak describes a cell under a load that lasts for hours. The load is divided into windows, in order of
// time. Each window is a trial.
type Soak struct {
	Factors   record.Factors `json:"factors"`
	Label     string         `json:"label"`
	Windows   int            `json:"windows"`
	Hours     float64        `json:"hours"` // from the start of the first window to the end of the last one
	Metric    string         `json:"metric"`
	Throttled int            `json:"throttled"` // windows in which heat or power limits throttled a machine
	// Unwatched is the number of windows without data about heat or power, and UnwatchedWhy the reason for
	// the last of them.
	Unwatched    int      `json:"heat_unwatched,omitempty"`
	UnwatchedWhy string   `json:"heat_unwatched_why,omitempty"`
	Failed       int      `json:"failed"`
	Trends       []Trend  `json:"trends"`
	Missing      []string `json:"missing,omitempty"` // quantities without data, with the reasons
}

// Trend describes the change of one quantity over a soak (Theil–Sen slope).
type Trend struct {
	Of      string  `json:"of"` // such as "goodput_bps" or "host memory in use"
	Kind    string  `json:"kind"`
	PerHour float64 `json:"per_hour"`
	Change  float64 `json:"change"` // slope × length of the soak
	First   float64 `json:"first"`
	Last    float64 `json:"last"`
	Unit    string  `json:"unit"`
	PValue  float64 `json:"p_value"`
	Real    bool    `json:"real"` // significant, and large enough to matter
	Text    string  `json:"text"`
}

// Kinds of trends.
const (
	TrendDrift = "drift"
	TrendLeak  = "leak"
)

// soaks evaluates the cells of a run whose plan contains a soak.
func soaks(run *record.Run, cells []*group, data map[*validity.Graded]kept) []Soak {
	if run.Design.Method.Soak <= 0 {
		return nil
	}

	var out []Soak
	for _, g := range cells {
		if len(g.good()) > 0 {
			out = append(out, g.soak(data))
		}
	}

	return out
}

func (g *group) soak(data map[*validity.Graded]kept) Soak {
	good := g.good()
	first := good[0].Trial
	last := good[len(good)-1].Trial
	s := Soak{
		Factors: g.factors,
		Label:   g.cell.Label,
		Windows: len(good),
		Failed:  g.cell.Failed,
		Metric:  metrics.RateOf(g.factors),
		Trends:  []Trend{},
		Hours:   last.Started.Sub(first.Started).Hours() + float64(last.Ended-last.Origin)/3.6e12,
	}
	for _, j := range good {
		if slices.ContainsFunc(j.Reasons,
			func(r evidence.Reason) bool { return r.Kind == evidence.ReasonThrottled }) {
			s.Throttled++
		}

		for _, u := range j.Unchecked {
			if u.Kind == evidence.ReasonThrottled {
				s.Unwatched = s.Unwatched + 1
				s.UnwatchedWhy = u.Text
			}
		}
	}

	if len(good) < soakWindows {
		s.Missing = append(s.Missing, fmt.Sprintf("trends: %d windows are fewer than %d", len(good),
			soakWindows))
		return s
	}

	hours := make([]float64, len(good))
	for i, j := range good {
		hours[i] = j.Trial.Started.Sub(first.Started).Hours()
	}

	// The second argument of add is a function that returns the value of the quantity in a window, or the
	// reason why it is missing.
	add := func(t Trend, of func(*validity.Graded) (float64, string)) {
		values := make([]float64, len(good))
		why := ""
		for i := 0; i < len(good) && why == ""; i++ {
			values[i], why = of(good[i])
		}

		switch why {
		case "":
			s.Trends = append(s.Trends, t.along(hours, values, s.Hours))
		case noSuchProbe:
		default:
			s.Missing = append(s.Missing, metrics.Label(t.Of)+": "+why)
		}
	}
	metric := func(name string) func(*validity.Graded) (float64, string) {
		return func(j *validity.Graded) (float64, string) {
			return j.Metrics.Values[name], j.Metrics.Missing[name]
		}
	}
	add(Trend{Of: s.Metric, Kind: TrendDrift, Unit: metrics.Of(s.Metric).Unit}, metric(s.Metric))
	for _, node := range slices.Sorted(maps.Keys(first.Nodes)) {
		add(Trend{Of: node + " memory in use", Kind: TrendLeak, Unit: "bytes"},
			func(j *validity.Graded) (float64, string) {
				use := data[j].memory[node]
				return use.bytes, use.missing
			})
	}

	add(Trend{Of: metrics.ConntrackUsed, Kind: TrendLeak, Unit: "count"}, metric(metrics.ConntrackUsed))
	return s
}

// noSuchProbe is the reason for a missing value on a node that shares the host's memory, because only the
// host's memory is read.
const noSuchProbe = "probe memory did not run"

// memoryUse holds the memory in use during a window, or the reason why it is unknown.
type memoryUse struct {
	bytes   float64
	missing string
}

// memoryUsed returns the mean memory that was in use (total minus available) during the window.
func memoryUsed(t *record.Trial, node string) memoryUse {
	table, why := metrics.SamplesOf(t.Nodes[node], "memory")
	if table == nil {
		return memoryUse{missing: why}
	}

	mean := map[string]float64{}
	for _, stem := range []string{"total_bytes", "available_bytes"} {
		for _, c := range metrics.ColumnsOf(table, stem) {
			if v, ok := c.Curve.Mean(t.Window.Start, t.Window.End); ok {
				mean[stem] = v
			}
		}
	}

	total := mean["total_bytes"]
	available := mean["available_bytes"]
	if total == 0 || available == 0 {
		return memoryUse{missing: "no sample in the window"}
	}

	return memoryUse{bytes: total - available}
}

// along fits the trend to the values over time, and tests it. length is the length of the soak in hours.
func (t Trend) along(hours, values []float64, length float64) Trend {
	t.First = values[0]
	t.Last = values[len(values)-1]
	t.PerHour = statistics.TheilSen(hours, values)
	t.PValue = statistics.Kendall(values)
	t.Change = t.PerHour * length
	switch {
	case t.PValue > soakLevel:
	case t.Kind == TrendDrift:
		t.Real = math.Abs(t.Change) >= soakDrift*math.Abs(statistics.Median(values))
	case t.Unit == "bytes":
		t.Real = t.Change >= leakMemory
	default:
		t.Real = t.Change >= leakEntries
	}

	text := unit.ScaleOf(t.Unit, math.Abs(t.Change)).Text(t.Change)
	if t.Unit == "bytes" {
		text = fmt.Sprintf("%.1f MB", t.Change/1e6)
	}

	words := "no trend: a change of "
	switch {
	case t.Real && t.Kind == TrendLeak:
		words = "it grew by "
	case t.Real:
		words = "it changed by "
	}

	t.Text = fmt.Sprintf("%s: %s%s in %.2g h (Kendall, p = %.2g)", metrics.Label(t.Of), words, text, length,
		t.PValue)
	return t
}

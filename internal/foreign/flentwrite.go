package foreign

import (
	"cmp"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/metrics"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/statistics"
	"github.com/chokepoint-lab/chokepoint/internal/factor"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// ErrNoSeries is returned for a trial without any time series.
var ErrNoSeries = errors.New("it has no series of rates or round-trip times")

// flentStep is flent's default step on the common time axis, in seconds. If there would be more than maxSteps
// steps, a longer step is used.
const (
	flentStep = .2
	maxSteps  = 50_000
)

// sheet holds a test in flent's data model.
type sheet struct {
	name   string // name of a flent test whose plots suit the data
	zero   time.Time
	step   float64
	x      []float64
	series []curve
	raw    map[string][]rawPoint // single probes only
}

// curve is a series of values on the sheet's time axis.
type curve struct {
	name, units string
	values      []float64
}

// rawPoint is one probe.
type rawPoint struct {
	T   number `json:"t"`
	Val number `json:"val"`
	Seq int    `json:"seq"`
}

// WriteFlent writes a trial as a gzipped flent data file. A trial imported from flent keeps its series, raw
// values and metadata. Any other trial is written in version 4 of the format. The file then contains the
// goodput of each direction and round-trip times on a common axis, and raw values of the probes. The output
// is deterministic. WriteFlent returns ErrNoSeries if the trial has no series.
func WriteFlent(w io.Writer, t *record.Trial, title, note string) error {
	doc, err := flentDocument(t, title, note)
	if err != nil {
		return err
	}

	text, err := json.MarshalIndent(doc, "", "  ")
	if err != nil {
		return fmt.Errorf("encode trial %s for flent: %v", t.ID, err)
	}

	z := gzip.NewWriter(w)
	_, err = z.Write(append(text, '\n'))
	return errors.Join(err, z.Close())
}

// flentDocument returns the content of the file, for JSON.
func flentDocument(t *record.Trial, title, note string) (map[string]any, error) {
	f := t.Foreign
	if f == nil || f.Tool != "flent" {
		s := ofTrial(t)
		if s == nil || len(s.series) == 0 {
			return nil, ErrNoSeries
		}
		return s.document(t, title, note), nil
	}

	if f.Series == nil {
		return nil, ErrNoSeries
	}

	var rest flentRest
	if err := json.Unmarshal(f.Raw, &rest); err != nil {
		return nil, fmt.Errorf("raw values of trial %s: %v", t.ID, err)
	}

	results := map[string][]number{}
	for i, name := range f.Series.Names {
		results[name] = numbers(f.Series.V[i])
	}

	return map[string]any{"version": rest.Version, "x_values": rest.X, "results": results,
		"raw_values": rest.Raw, "metadata": rest.Meta}, nil
}

func numbers(values []float64) []number {
	out := make([]number, len(values))
	for i, v := range values {
		out[i] = number(v)
	}
	return out
}

// ofTrial returns the sheet of a trial that was not imported from flent, or nil if the trial's series have
// no duration.
func ofTrial(t *record.Trial) *sheet {
	from := t.Window.Start
	to := max(t.Window.Stop, t.Window.End)
	if t.Window.Begin != 0 {
		from = min(from, t.Window.Begin)
	}

	for _, l := range []*record.Latency{t.Idle, t.Loaded} {
		if l != nil && len(l.SentAt) > 0 {
			from, to = min(from, l.SentAt[0]), max(to, l.SentAt[len(l.SentAt)-1])
		}
	}

	if to <= from {
		return nil
	}

	s := &sheet{
		name: "ping",
		zero: t.Started.Add(time.Duration(from - t.Origin)),
		step: flentStep,
		raw:  map[string][]rawPoint{},
	}
	long := float64(to-from) / 1e9 / maxSteps
	if long > s.step {
		s.step = math.Ceil(long)
	}

	step := int64(s.step * 1e9)
	bins := int((to - from + step - 1) / step)
	for i := range bins {
		s.x = append(s.x, float64(int64(i+1)*step)/1e9)
	}

	if t.Traffic != nil {
		s.addRates(t.Traffic, from, step)
	}

	for _, l := range []*record.Latency{t.Idle, t.Loaded} {
		if l == nil || len(l.SentAt) != len(l.RTT) {
			continue
		}

		s.addProbes(l, from, step)
	}

	return s
}

// addRates adds a curve for each direction. The curve contains the goodput or, if the receiver recorded no
// series, the sent rate.
func (s *sheet) addRates(tr *record.Traffic, from, step int64) {
	protocol := strings.ToUpper(tr.Load.Protocol)
	s.name = map[string]string{record.Up: "tcp_upload", record.Down: "tcp_download",
		record.Both: "tcp_bidirectional"}[tr.Load.Direction]
	if tr.Load.Protocol == factor.UDP {
		s.name = "udp_flood"
	}

	series := map[string]string{record.Down: " download", record.Up: " upload"}
	for _, direction := range []string{record.Down, record.Up} {
		part := *tr
		part.Flows = nil
		for _, f := range tr.Flows {
			if f.Direction == direction {
				f.Received = cmp.Or(f.Received, f.Sent)
				part.Flows = append(part.Flows, f)
			}
		}

		curves, all := metrics.Received(&part)
		if !all || len(curves) == 0 {
			continue
		}

		rates := statistics.Rates(curves, from, from+int64(len(s.x))*step, len(s.x))
		first := int64(math.MaxInt64)
		last := int64(0)
		for _, c := range curves {
			first, last = min(first, c.T[0]), max(last, c.T[len(c.T)-1])
		}

		for i, v := range rates {
			end := from + int64(i+1)*step
			if end <= first || end-step >= last {
				v = math.NaN()
			}

			rates[i] = v * 8 / 1e6
		}

		s.series = append(s.series, curve{protocol + series[direction], "Mbits/s", rates})
	}
}

// addProbes adds round-trip times under the name of flent's ICMP series, because all of flent's combined
// plots use that name. The note in the file names the probe that was actually used.
func (s *sheet) addProbes(l *record.Latency, from, step int64) {
	if n := len(s.series); n == 0 || s.series[n-1].name != flentICMP {
		s.series = append(s.series, curve{flentICMP, "ms", slices.Repeat([]float64{math.NaN()}, len(s.x))})
	}

	values := s.series[len(s.series)-1].values
	sums := make([]float64, len(values))
	n := make([]int, len(values))
	for i, rtt := range l.RTT {
		bin := int((l.SentAt[i] - from) / step)
		if rtt >= 0 && bin >= 0 && bin < len(values) {
			sums[bin] += float64(rtt) / 1e6
			n[bin]++
		}
	}

	for i := range values {
		if n[i] > 0 {
			values[i] = sums[i] / float64(n[i])
		}
	}

	points := append([]rawPoint{}, s.raw[flentICMP]...) // not nil: if all probes were lost, JSON has []
	seq := 0
	if n := len(points); n > 0 {
		seq = points[n-1].Seq + 1
	}

	for i, rtt := range l.RTT {
		if rtt >= 0 {
			points = append(points, rawPoint{
				T:   s.at(float64(l.SentAt[i]-from+rtt) / 1e9),
				Val: number(float64(rtt) / 1e6),
				Seq: seq + i,
			})
		}
	}

	s.raw[flentICMP] = points
}

// at converts a time on the axis to seconds since 1970.
func (s *sheet) at(x float64) number { return number(float64(s.zero.UnixNano())/1e9 + x) }

// document returns the content of the file for a trial that was not imported from flent.
func (s *sheet) document(t *record.Trial, title, note string) map[string]any {
	by := "chokepoint"
	if t.Foreign != nil {
		by = t.Foreign.Tool
	}

	results := map[string][]number{}
	series := map[string]any{}
	for _, c := range s.series {
		sum, count := 0.0, 0
		for _, v := range c.values {
			if !math.IsNaN(v) {
				sum += v
				count++
			}
		}

		meta := map[string]any{"UNITS": c.units, "RUNNER": by}
		if count > 0 {
			meta["MEAN_VALUE"] = sum / float64(count)
		}

		results[c.name] = numbers(c.values)
		series[c.name] = meta
	}

	ip := 4
	if factor.IP.Is(t.Row.Factors, "6") {
		ip = 6
	}

	began := s.zero.UTC().Format("2006-01-02T15:04:05.000000Z")
	length := s.x[len(s.x)-1]
	return map[string]any{"version": 4, "x_values": numbers(s.x), "results": results, "raw_values": s.raw,
		"metadata": map[string]any{"NAME": s.name, "TITLE": title, "TIME": began, "T0": began,
			"HOST": "server", "HOSTS": []string{"server"}, "LOCAL_HOST": "client",
			"LENGTH": int(math.Ceil(length)), "TOTAL_LENGTH": length, "STEP_SIZE": s.step, "NOTE": note,
			"FLENT_VERSION": "2.1.1", "IP_VERSION": ip, "SERIES_META": series,
			"TEST_PARAMETERS": map[string]string{}, "FAILED_RUNNERS": 0,
			"DATA_FILENAME": t.Run + "-" + t.ID + ".flent.gz", "BATCH_NAME": nil, "BATCH_TIME": nil,
			"BATCH_TITLE": nil, "BATCH_UUID": nil}}
}

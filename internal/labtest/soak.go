package labtest

import (
	"fmt"
	"iter"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/registry/node"
)

// Telemetry returns telemetry of a lab's nodes as all probes would record it in the given number of
// seconds. A third of the counters grow by random amounts.
func Telemetry(r *rand.Rand, start int64, seconds int, labels ...string) map[string]record.NodeData {
	fast := map[string]bool{"cpu": true, "softirq": true, "softnet": true, "netdev": true, "qdisc": true}
	nodes := map[string]record.NodeData{}
	for _, name := range []string{"host", "client", "router", "server"} {
		var d record.NodeData
		for _, p := range node.Probes() {
			s := record.Samples{Probe: p.Name, Scope: record.ScopeNode, Metrics: p.Metrics()}
			for i := range s.Metrics {
				s.Metrics[i].Doc = "" // because the metrics of a trial have no Doc either
			}

			var columns []string
			for _, label := range labels {
				for _, m := range s.Metrics {
					columns = append(columns, label+"/"+m.Name)
				}
			}

			rows := seconds
			if fast[p.Name] {
				rows *= 10
			}

			s.Table = counters(r, columns, start, rows, int64(seconds)*1e9/int64(max(rows, 1)))
			d.Samples = append(d.Samples, s)
			d.Cost = append(d.Cost, record.Cost{Probe: p.Name, Reads: int64(rows), CPUNs: 1e6, OverNs: 1e9})
		}

		nodes[name] = d
	}

	return nodes
}

func counters(r *rand.Rand, columns []string, start int64, rows int, step int64) *record.Table {
	t := record.NewTable(columns...)
	values := make([]float64, len(columns))
	for i := range rows {
		for j := range values {
			if j%3 == 0 { // other columns stay constant
				values[j] += math.Round(math.Abs(r.NormFloat64()) * 1e4)
			}
		}

		t.Append(start+int64(i)*step+r.Int64N(1e6), values...)
	}

	return t
}

// SoakLength is the length of a soak's windows. SoakEvery is the time between the starts of successive
// windows. Both are in seconds.
const SoakLength, SoakEvery = 300, 305

// Soak returns a run with a number of windows of five minutes. Soaked returns its trials.
func Soak(windows int) record.Run {
	s := Sample{ID: "20260110-030405-aaaa", Started: time.Date(2026, 1, 10, 3, 4, 5, 0, time.UTC), Scale: 1}
	run := s.Run()
	run.Design.Method.Soak = time.Duration(windows) * SoakLength * time.Second
	return run
}

// Soaked returns the trials of a soak. unwatched is the only node without telemetry.
func Soaked(run record.Run, windows int, unwatched string) iter.Seq[record.Trial] {
	const second, length = int64(time.Second), SoakLength
	s := Sample{ID: run.ID, Started: run.Started, Scale: 1}
	r := rand.New(rand.NewPCG(24, 24))
	trial := s.Trial(record.Row{Assignment: record.Assignment{
		Kind:    record.RowLoad,
		Factors: s.Cell("none"),
		Block:   1,
	}}, 1e9)
	trial.Window = record.Window{
		Begin: second,
		Start: 2 * second,
		End:   (length + 2) * second,
		Stop:  (length + 2) * second,
	}
	trial.Origin = second
	trial.Ended = (length + 3) * second
	trial.Nodes = Telemetry(r, second, length+2, "cpu0", "cpu1", "lan", "wan")
	flow := trial.Traffic.Flows[0]
	trial.Traffic.Flows = nil
	for i := range 8 {
		flow.Stream = i/2 + 1
		flow.Direction = []string{record.Up, record.Down}[i%2]
		flow.ReceiverNs = length * second
		flow.SenderNs = length * second
		flow.Received = counters(r, []string{"bytes"}, second, 10*(length+2), second/10)
		flow.Sent = counters(r, []string{"bytes"}, second, 10*(length+2), second/10)
		flow.TCP = &record.TCP{Series: counters(r, []string{"rtt_ns", "cwnd_segments", "retransmits"}, second,
			10*(length+2), second/10)}
		trial.Traffic.Flows = append(trial.Traffic.Flows, flow)
	}

	trial.Traffic.Load.Streams = 4
	trial.Traffic.Load.Direction = record.Both
	trial.Loaded = &record.Latency{IntervalNs: 1e8, Size: 64, Stamps: "kernel"}
	for i := range int64(10 * length) {
		trial.Loaded.RTT = append(trial.Loaded.RTT, 1e6+r.Int64N(1e6))
		trial.Loaded.UserRTT = append(trial.Loaded.UserRTT, 2e6+r.Int64N(1e6))
		trial.Loaded.Late = append(trial.Loaded.Late, r.Int64N(1e5))
		trial.Loaded.SentAt = append(trial.Loaded.SentAt, 2*second+i*1e8)
	}

	delete(trial.Nodes, unwatched)
	return func(yield func(record.Trial) bool) {
		for i := range windows {
			t := movedBy(trial, int64(i)*SoakEvery*second)
			t.Row.ID = fmt.Sprintf("b%d-r01", i+1)
			t.Row.Index = i + 1
			t.Row.Block = i + 1
			t.ID = t.Row.ID + ".1"
			t.Started = s.Started.Add(time.Duration(i) * SoakEvery * time.Second)
			if !yield(t) {
				return
			}
		}
	}
}

// movedBy returns the trial shifted by d nanoseconds.
func movedBy(t record.Trial, d int64) record.Trial {
	later := func(x *record.Table) *record.Table {
		c := &record.Table{Names: x.Names, T: slices.Clone(x.T), V: x.V}
		c.Shift(d)
		return c
	}
	w := t.Window
	t.Origin, t.Ended = t.Origin+d, t.Ended+d
	t.Window = record.Window{Begin: w.Begin + d, Start: w.Start + d, End: w.End + d, Stop: w.Stop + d}
	nodes := map[string]record.NodeData{}
	for name, n := range t.Nodes {
		n.Samples = slices.Clone(n.Samples)
		for i := range n.Samples {
			n.Samples[i].Table = later(n.Samples[i].Table)
		}

		nodes[name] = n
	}

	t.Nodes = nodes
	traffic := *t.Traffic
	loaded := *t.Loaded
	traffic.Flows = slices.Clone(traffic.Flows)
	for i := range traffic.Flows {
		f := &traffic.Flows[i]
		f.Received, f.Sent = later(f.Received), later(f.Sent)
		f.TCP = &record.TCP{Series: later(f.TCP.Series)}
	}

	loaded.SentAt = slices.Clone(loaded.SentAt)
	for i := range loaded.SentAt {
		loaded.SentAt[i] += d
	}

	t.Traffic, t.Loaded = &traffic, &loaded
	return t
}

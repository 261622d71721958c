package main

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/record/store"
	"github.com/chokepoint-lab/chokepoint/internal/registry/node"
)

// telemetry is what all probes of a lab's nodes see in a window of so many seconds: most counters move, by
// amounts that nobody can foretell.
func telemetry(r *rand.Rand, start int64, seconds int, labels ...string) map[string]record.NodeData {
	fast := map[string]bool{"cpu": true, "softirq": true, "softnet": true, "netdev": true, "qdisc": true}
	nodes := map[string]record.NodeData{}
	for _, name := range []string{"host", "client", "router", "server"} {
		var d record.NodeData
		for _, p := range node.Probes() {
			s := record.Samples{Probe: p.Name(), Scope: record.ScopeNode, Metrics: p.Metrics()}
			var columns []string
			for _, label := range labels {
				for _, m := range s.Metrics {
					columns = append(columns, label+"/"+m.Name)
				}
			}
			rows := seconds
			if fast[p.Name()] {
				rows *= 10
			}
			s.Table = counters(r, columns, start, rows, int64(seconds)*1e9/int64(max(rows, 1)))
			d.Samples = append(d.Samples, s)
			d.Cost = append(d.Cost, record.Cost{Probe: p.Name(), Reads: int64(rows), CPUNs: 1e6, OverNs: 1e9})
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
			if j%3 == 0 { // the others stay as they are
				values[j] += math.Round(math.Abs(r.NormFloat64()) * 1e4)
			}
		}
		t.Append(start+int64(i)*step+r.Int64N(1e6), values...)
	}
	return t
}

// soakRun stores a soak of so many windows of five minutes.
func soakRun(t *testing.T, d dirs, windows int) string {
	t.Helper()
	const second, length = int64(time.Second), 300
	s := sample{id: "20260110-030405-aaaa", started: time.Date(2026, 1, 10, 3, 4, 5, 0, time.UTC), scale: 1}
	run := s.run()
	run.Design.Method.Soak = time.Duration(windows) * length * time.Second
	st, err := store.Open(t.Context(), d.storeFile())
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	if err := st.CreateRun(t.Context(), run); err != nil {
		t.Fatal(err)
	}
	r := rand.New(rand.NewPCG(24, 24))
	trial := s.trial(record.Row{Kind: record.RowLoad, Factors: s.cell("none"), Block: 1}, 1e9)
	trial.Window = record.Window{Begin: second, Start: 2 * second, End: (length + 2) * second,
		Stop: (length + 2) * second}
	trial.Ended = (length + 3) * second
	trial.Nodes = telemetry(r, second, length+2, "cpu0", "cpu1", "lan", "wan")
	flow := trial.Traffic.Flows[0]
	trial.Traffic.Flows = nil
	for i := range 8 {
		flow.Stream = i/2 + 1
		flow.Direction = []string{record.Up, record.Down}[i%2]
		flow.ReceiverNs, flow.SenderNs = length*second, length*second
		flow.Received = counters(r, []string{"bytes"}, second, 10*(length+2), second/10)
		flow.Sent = counters(r, []string{"bytes"}, second, 10*(length+2), second/10)
		flow.TCP = &record.TCP{Series: counters(r, []string{"rtt_ns", "cwnd_segments", "retransmits"}, second,
			10*(length+2), second/10)}
		trial.Traffic.Flows = append(trial.Traffic.Flows, flow)
	}
	trial.Traffic.Load.Streams, trial.Traffic.Load.Direction = 4, record.Both
	trial.Loaded = &record.Latency{IntervalNs: 1e8, Size: 64, Stamps: "kernel"}
	for i := range int64(10 * length) {
		trial.Loaded.RTT = append(trial.Loaded.RTT, 1e6+r.Int64N(1e6))
		trial.Loaded.UserRTT = append(trial.Loaded.UserRTT, 2e6+r.Int64N(1e6))
		trial.Loaded.Late = append(trial.Loaded.Late, r.Int64N(1e5))
		trial.Loaded.SentAt = append(trial.Loaded.SentAt, 2*second+i*1e8)
	}
	for i := range windows {
		trial.Row.ID, trial.Row.Index, trial.Row.Block = fmt.Sprintf("b%d-r01", i+1), i+1, i+1
		trial.ID = trial.Row.ID + ".1"
		trial.Started = s.started.Add(time.Duration(i) * length * time.Second)
		if err := st.AppendTrial(t.Context(), trial); err != nil {
			t.Fatal(err)
		}
	}
	err = st.EndRun(t.Context(), run.ID, record.RunDone, "", s.started.Add(run.Design.Method.Soak))
	if err != nil {
		t.Fatal(err)
	}
	return run.ID
}

// TestSizeOfARun stores a run like quick: 29 trials of two seconds, with more than a thousand series each and
// a latency probe. A store of schema 1 took 1.6 MB for a real one, of which this version makes 0.42 MB.
func TestSizeOfARun(t *testing.T) {
	const second, trials, most = int64(time.Second), 29, 500_000
	d := dirs{Data: t.TempDir()}
	st, err := store.Open(t.Context(), d.storeFile())
	if err != nil {
		t.Fatal(err)
	}
	s := samples["good"]
	if err := st.CreateRun(t.Context(), s.run()); err != nil {
		t.Fatal(err)
	}
	r := rand.New(rand.NewPCG(29, 29))
	series := 0
	for i := range trials {
		trial := s.trial(record.Row{ID: fmt.Sprintf("b1-r%02d", i+1), Index: i + 1, Kind: record.RowLoad,
			Factors: s.cell("none"), Block: 1}, 1e8)
		trial.Nodes, series = telemetry(r, int64(i)*10*second, 2, "eth0"), 0
		for _, n := range trial.Nodes {
			for _, p := range n.Samples {
				series += len(p.Table.Names)
			}
		}
		trial.Loaded = &record.Latency{IntervalNs: 5e6, Size: 64, Stamps: "kernel"}
		for i := range int64(300) {
			l, late := trial.Loaded, r.Int64N(1e4)
			l.RTT = append(l.RTT, 1e6+r.Int64N(1e5))
			l.UserRTT = append(l.UserRTT, l.RTT[i]+2e4+r.Int64N(1e4))
			l.Late, l.SentAt = append(l.Late, late), append(l.SentAt, 2*second+i*5e6+late)
			l.EchoNs = append(l.EchoNs, 1e4+r.Int64N(1e4))
		}
		if err := st.AppendTrial(t.Context(), trial); err != nil {
			t.Fatal(err)
		}
	}
	if err := st.Close(); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(d.storeFile())
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d trials of %d series: %d bytes", trials, series, info.Size())
	if info.Size() > most || series < 1000 {
		t.Errorf("%d trials of %d series took %d bytes, want %d at most", trials, series, info.Size(), most)
	}
}

// TestMemoryOfLongRuns shows and reports a soak, whose length is a day where CHOKEPOINT_LONG is set, within
// the memory that a day may take.
func TestMemoryOfLongRuns(t *testing.T) {
	windows, most := 12, 150<<20
	if os.Getenv("CHOKEPOINT_LONG") != "" {
		windows = 24 * 12
	}
	data := t.TempDir()
	d := dirs{Data: filepath.Join(data, "chokepoint")}
	if err := os.Mkdir(d.Data, 0o700); err != nil {
		t.Fatal(err)
	}
	id := soakRun(t, d, windows)
	info, err := os.Stat(d.storeFile())
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d windows of 5 minutes are %.1f MB", windows, float64(info.Size())/1e6)
	// A child's peak begins with ours, which is forgotten here (proc(5), clear_refs).
	debug.FreeOSMemory()
	if err := os.WriteFile("/proc/self/clear_refs", []byte("5"), 0); err != nil {
		t.Skipf("skip: peaks cannot be told: %v", err)
	}
	for _, command := range []string{"show latest", "show latest --json", "report latest",
		"report latest --format md"} {
		cmd := exec.Command(os.Args[0])
		cmd.Args = append([]string{"chokepoint"}, strings.Fields(command)...)
		cmd.Env = append(os.Environ(), "XDG_DATA_HOME="+data, "XDG_STATE_HOME="+data)
		var out, errs bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &errs
		if err := cmd.Run(); err != nil {
			t.Fatalf("%s: %v\n%s", command, err, errs.String())
		}
		if !strings.Contains(out.String(), id) && !strings.Contains(command, "show latest") {
			t.Errorf("%s: got no word of run %s in\n%s", command, id, out.String())
		}
		usage, _ := cmd.ProcessState.SysUsage().(*syscall.Rusage)
		peak := usage.Maxrss * 1024
		t.Logf("%s: %d MB at most, %v, %.1f MB of text", command, peak>>20,
			cmd.ProcessState.UserTime()+cmd.ProcessState.SystemTime(), float64(out.Len())/1e6)
		if peak > int64(most) {
			t.Errorf("%s: %d MB, want %d at most", command, peak>>20, most>>20)
		}
	}
}

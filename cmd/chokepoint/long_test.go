package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/labtest/apart"
	"github.com/chokepoint-lab/chokepoint/internal/plan"
	"github.com/chokepoint-lab/chokepoint/internal/progress"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/record/store"
	"github.com/chokepoint-lab/chokepoint/internal/registry/node"
	"github.com/chokepoint-lab/chokepoint/internal/trial"
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

// soakLength is a window of a soak in seconds, and soakEvery from one's begin to the next's.
const soakLength, soakEvery = 300, 305

// soak is a run of so many windows of five minutes, and soaked its trials, in which all nodes but those
// unwatched were watched.
func soak(windows int) record.Run {
	s := sample{id: "20260110-030405-aaaa", started: time.Date(2026, 1, 10, 3, 4, 5, 0, time.UTC), scale: 1}
	run := s.run()
	run.Design.Method.Soak = time.Duration(windows) * soakLength * time.Second
	return run
}

func soaked(run record.Run, windows int, unwatched string) iter.Seq[record.Trial] {
	const second, length = int64(time.Second), soakLength
	s := sample{id: run.ID, started: run.Started, scale: 1}
	r := rand.New(rand.NewPCG(24, 24))
	trial := s.trial(record.Row{Kind: record.RowLoad, Factors: s.cell("none"), Block: 1}, 1e9)
	trial.Window = record.Window{Begin: second, Start: 2 * second, End: (length + 2) * second,
		Stop: (length + 2) * second}
	trial.Origin, trial.Ended = second, (length+3)*second
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
	delete(trial.Nodes, unwatched)
	return func(yield func(record.Trial) bool) {
		for i := range windows {
			t := movedBy(trial, int64(i)*soakEvery*second)
			t.Row.ID, t.Row.Index, t.Row.Block = fmt.Sprintf("b%d-r01", i+1), i+1, i+1
			t.ID = t.Row.ID + ".1"
			t.Started = s.started.Add(time.Duration(i) * soakEvery * time.Second)
			if !yield(t) {
				return
			}
		}
	}
}

// movedBy is a trial that was so much later.
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
	traffic, loaded := *t.Traffic, *t.Loaded
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

// soakRun stores a soak.
func soakRun(t *testing.T, d dirs, run record.Run, windows int, unwatched string) {
	t.Helper()
	st, err := store.Open(t.Context(), d.storeFile())
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	if err := st.CreateRun(t.Context(), run); err != nil {
		t.Fatal(err)
	}
	for trial := range soaked(run, windows, unwatched) {
		if err := st.AppendTrial(t.Context(), trial); err != nil {
			t.Fatal(err)
		}
	}
	err = st.EndRun(t.Context(), run.ID, record.RunDone, "", run.Started.Add(run.Design.Method.Soak))
	if err != nil {
		t.Fatal(err)
	}
}

// watchedSoak writes what chokepoint-agent probe --json prints on a router during a soak: 10 kB a second.
func watchedSoak(t *testing.T, file string, run record.Run, windows int) {
	t.Helper()
	const second = int64(time.Second)
	f, err := os.Create(file)
	if err != nil {
		t.Fatal(err)
	}
	w := bufio.NewWriter(f)
	fmt.Fprintf(w, `{"format":"chokepoint-probe/1","at_ns":0,"realtime_ns":%d}`+"\n",
		run.Started.Add(5*time.Millisecond-time.Second).UnixNano())
	carried := make([]int, soakEvery) // by the second of a window
	for trial := range soaked(run, 1, "") {
		for i := range carried {
			for _, f := range trial.Traffic.Flows {
				v := f.Received.Column("bytes")
				carried[i] += int(v[max(min(10*(i-1), len(v)-1), 0)] - v[0])
			}
		}
	}
	for at := range windows * soakEvery {
		total := at/soakEvery*carried[soakEvery-1] + carried[at%soakEvery]
		for _, p := range node.Probes() {
			fmt.Fprintf(w, `{"at_ns":%d,"probe":%q,"scope":"node","values":{`, int64(at)*second, p.Name())
			comma := ""
			for i, m := range p.Metrics() {
				value := at * 1000 * (i % 3)
				if m.Name == "rx_bytes" {
					value = total
				}
				fmt.Fprintf(w, `%s"eth0/%s":%d`, comma, m.Name, value)
				comma = ","
			}
			fmt.Fprint(w, "}}\n")
		}
	}
	if err := errors.Join(w.Flush(), f.Close()); err != nil {
		t.Fatal(err)
	}
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

// TestMemoryOfLongRuns shows, reports, ends and imports into a soak, whose length is a day where
// CHOKEPOINT_LONG is set, within the memory that a day may take.
func TestMemoryOfLongRuns(t *testing.T) {
	windows := 3
	if apart.Wanted() {
		windows = 24 * 12
	}
	data := t.TempDir()
	d := dirs{Data: filepath.Join(data, "chokepoint")}
	if err := os.Mkdir(d.Data, 0o700); err != nil {
		t.Fatal(err)
	}
	run := soak(windows)
	soakRun(t, d, run, windows, "")
	pair := soak(windows)
	pair.ID, pair.Lab, pair.Status = "20260109-030405-bbbb", record.LabPair, record.RunDone
	pair.Topologies = []record.Topology{{Name: "forward", Near: "client", Far: "server",
		Routers: []string{"router"}, Nodes: []record.TopoNode{{Name: "client"},
			{Name: "router", Router: true}, {Name: "server"}}}}
	pair.Started = pair.Started.Add(-24 * time.Hour)
	soakRun(t, d, pair, windows, "router")
	watched := filepath.Join(data, "watched.jsonl")
	watchedSoak(t, watched, pair, windows)
	for _, file := range []string{d.storeFile(), watched} {
		info, err := os.Stat(file)
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%d windows of 5 minutes are %.1f MB in %s", windows, float64(info.Size())/1e6,
			filepath.Base(file))
	}
	// A child's peak begins with ours, which is forgotten here (proc(5), clear_refs).
	debug.FreeOSMemory()
	if err := os.WriteFile("/proc/self/clear_refs", []byte("5"), 0); err != nil {
		t.Skipf("skip: peaks cannot be told: %v", err)
	}
	for _, tt := range []struct{ command, want string }{
		{"show latest", "Goodput"}, {"show latest --json", run.ID}, {"report latest", run.ID},
		{"report latest --format md", run.ID}, {endSoak, "Report: "},
		{"import " + watched + " --into " + pair.ID, fmt.Sprintf("in %d of %d trials", windows, windows)},
		{"import " + watched + " --into " + pair.ID, fmt.Sprintf("in %d of %d trials", windows, windows)},
		{"show " + pair.ID, "watched.jsonl"}, {"report " + pair.ID, pair.ID},
	} {
		withinMemory(t, data, tt.command, tt.want)
	}
}

// withinMemory runs this program, which must print some text and take no more memory than a run of a day may.
func withinMemory(t *testing.T, data, command, want string) {
	t.Helper()
	const most = 150 << 20
	cmd := exec.Command(os.Args[0])
	if cmd.Args = strings.Fields(command); command != endSoak {
		cmd.Args = append([]string{"chokepoint"}, cmd.Args...)
	}
	cmd.Env = append(os.Environ(), "XDG_DATA_HOME="+data, "XDG_STATE_HOME="+data)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		t.Fatalf("%s: %v\n%s", command, err, errs.String())
	}
	if !strings.Contains(out.String(), want) {
		t.Errorf("%s: got no %q in\n%.2000s", command, want, out.String())
	}
	usage, _ := cmd.ProcessState.SysUsage().(*syscall.Rusage)
	peak := usage.Maxrss << 10
	if command == endSoak { // it says what of its peak lay in the end
		said := regexp.MustCompile(`(?m)^storing (\d+) kB, ending (\d+) kB$`).FindStringSubmatch(out.String())
		if said == nil {
			t.Fatalf("%s: told no peak:\n%s", command, out.String())
		}
		t.Logf("%s: %s kB at most while trials were made and stored", command, said[1])
		kB, _ := strconv.ParseInt(said[2], 10, 64)
		peak = kB << 10
	}
	t.Logf("%s: %d MB at most, %v, %.1f MB of text", command, peak>>20,
		cmd.ProcessState.UserTime()+cmd.ProcessState.SystemTime(), float64(out.Len())/1e6)
	if peak > most {
		t.Errorf("%s: %d MB, want %d at most", command, peak>>20, most>>20)
	}
}

// endSoak is the command of this test's own that stores a soak trial by trial, as a run does, and ends it.
const endSoak = "end-soak"

// runEndSoak is what a run does from its first trial on but for the measuring itself: it stores its trials,
// which it keeps in memory too, makes sure of them, derives the document, writes the report and prints the
// table.
func runEndSoak() error {
	ctx := context.Background()
	d := findDirs(os.Getenv, os.Geteuid())
	windows := 3
	if apart.Wanted() {
		windows = 24 * 12
	}
	run := soak(windows)
	run.ID, run.Started = "20260108-030405-cccc", run.Started.Add(-48*time.Hour)
	place := filepath.Join(d.Data, "ended.html")
	st, err := store.Open(ctx, d.storeFile())
	if err != nil {
		return err
	}
	if err := st.CreateRun(ctx, run); err != nil {
		return err
	}
	keeper := &store.Keeper{Store: st, Run: run.ID}
	for t := range soaked(run, windows, "") {
		if err := keeper.AppendTrial(ctx, t); err != nil {
			return err
		}
	}
	out, err := createOutFile(place)
	if err != nil {
		return err
	}
	x := &execution{p: &program{streams: streams{Out: os.Stdout, Err: os.Stderr}, dirs: d},
		plan: plan.New(run.Design), run: run, store: st, keeper: keeper, report: out, reportPath: place,
		campaign: &trial.Campaign{Run: run}, began: true, sink: progress.Quiet(os.Stderr)}
	stored := peakOf()
	debug.FreeOSMemory() // of what made the trials up
	if err := os.WriteFile("/proc/self/clear_refs", []byte("5"), 0); err != nil {
		return err
	}
	err = errors.Join(x.end(ctx, nil, nil), x.shut())
	fmt.Printf("storing %s kB, ending %s kB\n", stored, peakOf())
	return err
}

// peakOf is this process's largest resident size since it was last cleared, in kB.
func peakOf() string {
	status, _ := os.ReadFile("/proc/self/status")
	_, after, _ := strings.Cut(string(status), "VmHWM:")
	return strings.Fields(after)[0]
}

func endSoakMain() {
	if err := runEndSoak(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(codeError)
	}
}

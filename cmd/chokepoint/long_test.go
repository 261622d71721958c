package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/app"
	"github.com/chokepoint-lab/chokepoint/internal/labtest"
	"github.com/chokepoint-lab/chokepoint/internal/labtest/apart"
	"github.com/chokepoint-lab/chokepoint/internal/labtest/quick"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/record/store"
	"github.com/chokepoint-lab/chokepoint/internal/registry/node"
)

// soakRun stores a soak.
func soakRun(t *testing.T, d app.Dirs, run record.Run, windows int, unwatched string) {
	t.Helper()
	st, err := store.Open(t.Context(), d.StoreFile())
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	if err := st.CreateRun(t.Context(), run); err != nil {
		t.Fatal(err)
	}

	for trial := range labtest.Soaked(run, windows, unwatched) {
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
	carried := make([]int, labtest.SoakEvery) // by the second of a window
	for trial := range labtest.Soaked(run, 1, "") {
		for i := range carried {
			for _, f := range trial.Traffic.Flows {
				v := f.Received.Column("bytes")
				carried[i] += int(v[max(min(10*(i-1), len(v)-1), 0)] - v[0])
			}
		}
	}

	for at := range windows * labtest.SoakEvery {
		total := at/labtest.SoakEvery*carried[labtest.SoakEvery-1] + carried[at%labtest.SoakEvery]
		for _, p := range node.Probes() {
			fmt.Fprintf(w, `{"at_ns":%d,"probe":%q,"scope":"node","values":{`, int64(at)*second, p.Name)
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
// a latency probe. A real one takes 0.9 MB, of which this has no details of engines and tunnels.
func TestSizeOfARun(t *testing.T) {
	const second, trials, most = int64(time.Second), 29, 700_000
	d := app.Dirs{Data: t.TempDir()}
	st, err := store.Open(t.Context(), d.StoreFile())
	if err != nil {
		t.Fatal(err)
	}

	s := labtest.Samples["good"]
	if err := st.CreateRun(t.Context(), s.Run()); err != nil {
		t.Fatal(err)
	}

	r := rand.New(rand.NewPCG(29, 29))
	series := 0
	for i := range trials {
		trial := s.Trial(record.Row{
			Assignment: record.Assignment{
				Index:   i + 1,
				Kind:    record.RowLoad,
				Factors: s.Cell("none"),
				Block:   1,
			},
			ID: fmt.Sprintf("b1-r%02d", i+1),
		}, 1e8)
		trial.Nodes = labtest.Telemetry(r, int64(i)*10*second, 2, "eth0")
		series = 0
		for _, n := range trial.Nodes {
			for _, p := range n.Samples {
				series += len(p.Table.Names)
			}
		}

		trial.Loaded = &record.Latency{IntervalNs: 5e6, Size: 64, Stamps: "kernel"}
		for i := range int64(300) {
			l := trial.Loaded
			late := r.Int64N(1e4)
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

	info, err := os.Stat(d.StoreFile())
	if err != nil {
		t.Fatal(err)
	}

	t.Logf("%d trials of %d series: %d bytes", trials, series, info.Size())
	if info.Size() > most || series < 1000 {
		t.Errorf("%d trials of %d series took %d bytes, want %d at most", trials, series, info.Size(), most)
	}
}

// TestMemoryOfLongRuns shows, reports and imports into a soak, whose length is a day where
// CHOKEPOINT_LONG is set, within the memory that a day may take.
func TestMemoryOfLongRuns(t *testing.T) {
	windows := 3
	if apart.Wanted() {
		windows = 24 * 12
	}

	data := t.TempDir()
	d := app.Dirs{Data: filepath.Join(data, "chokepoint")}
	if err := os.Mkdir(d.Data, 0o700); err != nil {
		t.Fatal(err)
	}

	run := labtest.Soak(windows)
	soakRun(t, d, run, windows, "")
	pair := labtest.Soak(windows)
	pair.ID = "20260109-030405-bbbb"
	pair.Lab = record.LabPair
	pair.Status = record.RunDone
	pair.Topologies = []record.Topology{quick.Forward()}
	pair.Started = pair.Started.Add(-24 * time.Hour)
	soakRun(t, d, pair, windows, "router")
	watched := filepath.Join(data, "watched.jsonl")
	watchedSoak(t, watched, pair, windows)
	for _, file := range []string{d.StoreFile(), watched} {
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
		{"show latest", "goodput"}, {"show latest --json", run.ID}, {"report latest", run.ID},
		{"report latest --format md", run.ID},
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
	cmd.Args = append([]string{"chokepoint"}, strings.Fields(command)...)
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
	t.Logf("%s: %d MB at most, %v, %.1f MB of text", command, peak>>20,
		cmd.ProcessState.UserTime()+cmd.ProcessState.SystemTime(), float64(out.Len())/1e6)
	if peak > most {
		t.Errorf("%s: %d MB, want %d at most", command, peak>>20, most>>20)
	}
}

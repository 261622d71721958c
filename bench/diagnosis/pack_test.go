package diagnosis_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"iter"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"

	"github.com/chokepoint-lab/chokepoint/bench/rig"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/diagnosis"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/record/store"
	"github.com/chokepoint-lab/chokepoint/internal/registry"
)

// The committed recording: the list of instances, and their runs by id, reduced to what rules can read.
const (
	packedList = "testdata/mechanisms.jsonl"
	packedRuns = "testdata/mechanisms-runs.jsonl.zst"
)

// packedRun is a line of packedRuns.
type packedRun struct {
	Run    record.Run     `json:"run"`
	Trials []record.Trial `json:"trials"`
}

func (p packedRun) unpack() *aRun {
	p.Run.Design.Catalogue = registry.Catalogue()
	return &aRun{Stored: rig.Stored{Run: p.Run, Trials: p.Trials}}
}

// crop leaves of a table its first row, and what a window reads: its rows, and one before and after it.
func crop(t *record.Table, w record.Window) {
	if t == nil || len(t.T) == 0 {
		return
	}

	from := max(1, sort.Search(len(t.T), func(i int) bool { return t.T[i] > w.Start })-1)
	to := min(len(t.T), sort.Search(len(t.T), func(i int) bool { return t.T[i] >= w.End })+1)
	if from >= to {
		return
	}

	t.T = slices.Concat(t.T[:1], t.T[from:to])
	for i := range t.V {
		t.V[i] = slices.Concat(t.V[i][:1], t.V[i][from:to])
	}
}

// reduce leaves of a trial what rules can read.
func reduce(t *record.Trial) {
	const logged = 20 // lines of the kernel's log
	if t.Row.Kind == record.RowIdle {
		t.Nodes = nil
	}

	w := t.Window
	if t.Traffic != nil {
		up, down, _ := t.Traffic.Goodput()
		if up+down == 0 { // such a load is judged from its start
			w.Start = w.Begin
		}
	}

	for name, n := range t.Nodes {
		for i := range n.Samples {
			crop(n.Samples[i].Table, w)
			n.Samples[i].Metrics = nil
		}

		n.Cost = nil
		n.Log = n.Log[:min(logged, len(n.Log))]
		t.Nodes[name] = n
	}

	all := []*record.Latency{t.Idle, t.Loaded}
	for _, h := range t.Hops {
		all = append(all, h.Idle, h.Loaded)
	}

	for _, l := range all {
		if l != nil {
			l.UserRTT = nil
			l.EchoNs = nil
			if slices.Min(append(l.RTT, 0)) == 0 { // the times of lost probes show outages
				l.SentAt = nil
			}

			l.Late = nil
		}
	}

	if t.Traffic == nil {
		return
	}

	t.Traffic.Raw = nil
	for i := range t.Traffic.Flows {
		f := &t.Traffic.Flows[i]
		crop(f.Sent, w)
		crop(f.Received, w)
		if f.TCP != nil {
			crop(f.TCP.Series, w)
		}
	}
}

// anonymous takes from a run what tells of the machine's folders, and what the rules do not read.
func anonymous(run record.Run) record.Run {
	run.Command = "chokepoint run"
	run.Attached = ""
	run.BinaryHash = ""
	run.Design.Text = ""
	run.Design.Source = "suite.yaml"
	run.Design.Catalogue = nil
	return run
}

// load reads a recording: instances that were not dropped, by their runs.
func load(t testing.TB, list, stored string) iter.Seq2[*aRun, []recorded] {
	t.Helper()
	all, err := readRecorded(list)
	if err != nil {
		t.Fatal(err)
	}

	byRun := map[string][]recorded{}
	for _, r := range all {
		if r.Dropped == "" {
			byRun[r.Run] = append(byRun[r.Run], r)
		}
	}

	runs := packed()
	if stored != packedRuns {
		runs = inStore(t.Context(), stored, slices.Sorted(maps.Keys(byRun)))
	}

	return func(yield func(*aRun, []recorded) bool) {
		for x, err := range runs {
			if err != nil {
				t.Fatal(err)
			}

			of := byRun[x.ID]
			if of != nil && !yield(x, of) {
				return
			}
		}
	}
}

// inStore reads some runs of a store.
func inStore(ctx context.Context, file string, ids []string) iter.Seq2[*aRun, error] {
	return func(yield func(*aRun, error) bool) {
		st, err := store.OpenReadOnly(ctx, file)
		if err != nil {
			yield(nil, err)
			return
		}
		defer st.Close()
		for _, id := range ids {
			x, err := rig.ReadRun(ctx, st, id)
			if !yield(&aRun{Stored: x}, err) {
				return
			}
		}
	}
}

// packed reads packedRuns.
func packed() iter.Seq2[*aRun, error] {
	return func(yield func(*aRun, error) bool) {
		file, err := os.Open(packedRuns)
		if err != nil {
			yield(nil, err)
			return
		}
		defer file.Close()
		text, err := zstd.NewReader(file, zstd.WithDecoderConcurrency(1))
		if err != nil {
			yield(nil, err)
			return
		}
		defer text.Close()
		for lines := json.NewDecoder(text); ; {
			var p packedRun
			err := lines.Decode(&p)
			if errors.Is(err, io.EOF) || !yield(p.unpack(), err) {
				return
			}
		}
	}
}

// source returns where instances are read from: the folder that is given, or the committed recording.
func source(testing.TB) (list, stored string) {
	if *keepDir != "" {
		return filepath.Join(*keepDir, recordedFile), filepath.Join(*keepDir, "data", "chokepoint", "runs.db")
	}
	return packedList, packedRuns
}

var addPacked = flag.Bool("add", false, "keep the committed recording and add the packed one to it")

// TestPack writes a recording to testdata, and refuses where a diagnosis then differs.
func TestPack(t *testing.T) {
	if *keepDir == "" {
		t.Skip("skip: packs a recording: -keep says which")
	}

	list, stored := source(t)
	var before, runs bytes.Buffer
	w, err := zstd.NewWriter(&runs, zstd.WithEncoderLevel(zstd.SpeedBestCompression))
	if err != nil {
		t.Fatal(err)
	}

	var lines strings.Builder
	if *addPacked { // zstd reads frames that follow one another as one text
		for file, to := range map[string]io.Writer{packedList: &lines, packedRuns: &before} {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}

			_, _ = to.Write(text) // a buffer takes all
		}
	}

	var kept []recorded
	for x, of := range load(t, list, stored) {
		of = slices.DeleteFunc(of, x.disturbed)
		if len(of) == 0 {
			continue
		}

		was := diagnose(x, of)
		line, err := json.Marshal(x.packed(of))
		if err != nil {
			t.Fatal(err)
		}

		var read packedRun
		if err := json.Unmarshal(line, &read); err != nil {
			t.Fatal(err)
		}

		for i, now := range diagnose(read.unpack(), of) {
			why := differ(was[i].d, now.d)
			if why != "" {
				t.Errorf("%s of run %s: packed it is diagnosed otherwise: %s", now.ID, x.ID, why)
			}
		}

		if _, err := w.Write(append(line, '\n')); err != nil {
			t.Fatal(err)
		}

		kept = append(kept, of...)
	}

	if err := w.Close(); err != nil || t.Failed() {
		t.Fatal("nothing is written", err)
	}

	if err := writeRecorded(&lines, kept); err != nil {
		t.Fatal(err)
	}

	t.Logf("%d instances", len(kept))
	if err := errors.Join(os.WriteFile(packedRuns, slices.Concat(before.Bytes(), runs.Bytes()), 0o644),
		os.WriteFile(packedList, []byte(lines.String()), 0o644)); err != nil {
		t.Fatal(err)
	}
}

// packed returns a run with the trials of some instances alone, and of idle paths, reduced.
func (x *aRun) packed(of []recorded) packedRun {
	small := packedRun{Run: anonymous(x.Run)}
	for _, t := range x.Trials {
		if t.Row.Kind == record.RowIdle || slices.ContainsFunc(of, func(r recorded) bool {
			return slices.Contains(r.Trials, t.ID)
		}) {
			reduce(&t)
			small.Trials = append(small.Trials, t)
		}
	}
	return small
}

// differ says how two diagnoses differ, if they do.
func differ(a, b *diagnosis.Diagnosis) string {
	if a.Class != b.Class || math.Abs(a.Confidence-b.Confidence) > .01 || len(a.Causes) != len(b.Causes) {
		return fmt.Sprintf("%s (%.3f), was %s (%.3f)", b.Class, b.Confidence, a.Class, a.Confidence)
	}

	for i := range a.Causes {
		if a.Causes[i].Class != b.Causes[i].Class {
			return fmt.Sprintf("cause %d is %s, was %s", i+1, b.Causes[i].Class, a.Causes[i].Class)
		}
	}
	return ""
}

package watch

import (
	"context"
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/probe"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// tree makes a root of files by name: "proc/stat", "sys/class/…".
func tree(t *testing.T, files map[string]string) probe.Root {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		write(t, filepath.Join(dir, name), text)
	}

	return probe.Root{
		Proc: filepath.Join(dir, "proc"),
		Sys:  filepath.Join(dir, "sys"),
		Dev:  filepath.Join(dir, "dev"),
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}

	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// A module that is loaded after the watch has begun is seen from the next mark on.
func TestWatchFindsASourceThatAppears(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	root := tree(t, nil)
	s := opened(t, []probe.Probe{named(root, "conntrack")}, Request{})
	loop(t, s)
	collect := func(done func(record.Samples) bool) (got record.Samples) {
		t.Helper()
		// An absent source whose try cost much, by what interrupted it, is not tried at each mark.
		for ; ctx.Err() == nil; time.Sleep(20 * time.Millisecond) {
			if err := s.schedule([]int64{host.Monotonic()}); err != nil {
				t.Fatal(err)
			}

			_, err := s.collect(0, host.Monotonic(), func(r record.Samples) error { got = r; return nil })
			if err != nil {
				t.Fatal(err)
			}

			if done(got) {
				return got
			}
		}

		t.Fatalf("conntrack: got %+v", got)
		return got
	}
	collect(func(r record.Samples) bool {
		return strings.Contains(r.Unavailable, "nf_conntrack is not loaded")
	})
	write(t, filepath.Join(root.Proc, "sys/net/netfilter/nf_conntrack_count"), "12\n")
	got := collect(func(r record.Samples) bool { return r.Table != nil })
	v := got.Table.Column("entries")
	if len(v) == 0 || v[0] != 12 || got.Unavailable != "" {
		t.Errorf("after it has appeared: got %v entries, reason %q; want 12 and none", v, got.Unavailable)
	}
}

func TestNextSpacesASourceByItsSteadyCost(t *testing.T) {
	const cheap, dear = 100e3, 20e6 // 20 ms ÷ slowShare is 10 s
	tests := []struct {
		name  string
		slow  bool
		costs []int64
		want  int64 // seconds after the last read
	}{
		{"cheap", true, []int64{cheap, cheap}, 1},
		{"first read", true, []int64{dear}, 1},
		{"one charge among cheap ones", true, []int64{cheap, cheap, dear}, 1},
		{"always dear", true, []int64{dear, dear}, 10},
		{"dear for long", true, []int64{cheap, dear, dear, dear, dear, dear}, 10},
		{"cheap again", true, []int64{dear, dear, dear, dear, dear, cheap}, 1},
		{"fast", false, []int64{dear, dear}, 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := &sampling{step: 1e9}
			src := &source{probe: probe.Probe{Name: "x", Slow: tt.slow}, every: 1e9}
			var got int64
			for _, cost := range tt.costs {
				got = s.next(src, 50e9, cost)
			}

			want := 50e9 + tt.want*1e9
			if got != want {
				t.Errorf("due: got %d, want %d", got, want)
			}
		})
	}
}

// TestWatchKeepsNoTrialThatWasCollected: over hundreds of trials as much is held as over the first few.
func TestWatchKeepsNoTrialThatWasCollected(t *testing.T) {
	s := &sampling{
		sources: []*source{{
			probe:   probe.Probe{Name: "x"},
			columns: []string{"a", "b"},
			row:     make([]float64, 2),
		}},
		due: math.MaxInt64,
	} // no loop that could be late
	held := func() (n int) {
		for _, kept := range s.all() {
			n += len(kept.blocks)
		}
		return n + len(s.log) + len(s.stalls)
	}
	const second = int64(1e9)
	most := 0
	for trial := range int64(600) {
		from := trial * second
		for at := from; at < from+second; at += second / 10 {
			s.keep(s.sources[0], at, 1000)
			s.book(at, 1000)
		}

		s.log = append(s.log, record.LogLine{At: from})
		s.stalls = append(s.stalls, record.Stall{At: from})
		rows := 0
		count := func(r record.Samples) error { rows = len(r.Table.T); return nil }
		_, err := s.collect(from, from+second, count)
		if err != nil || rows < 10 {
			t.Fatalf("trial %d: got %d samples, %v, want 10 and the one before", trial, rows, err)
		}

		if trial < 20 {
			most = max(most, held())
		}
	}

	got := held()
	if got > most {
		t.Errorf("after 600 trials: got %d blocks, lines and stalls, want no more than the %d of the first "+
			"20", got, most)
	}
}

// TestADearAbsentSourceIsTriedSeldom: at the marks of short windows, a walk over all processes for virtual
// machines that do not exist cost more than all sources together.
func TestADearAbsentSourceIsTriedSeldom(t *testing.T) {
	const marks = 20
	burn := func(ns int64) {
		for end := threadTime() + ns; threadTime() < end; {
		}
	}
	tries := map[string]int{}
	absent := func(name string, cost int64) *source {
		return &source{probe: probe.Probe{
			Name: name,
			Source: func(probe.Options) (probe.Sampler, error) {
				tries[name]++
				burn(cost)
				return nil, errors.New("not here")
			},
		}}
	}
	defer lockThread()()
	s := &sampling{sources: []*source{absent("dear", 2e6), absent("cheap", 0)}}
	for mark := range int64(marks) {
		s.retry(mark * 1e9)
	}

	if tries["dear"] != 1 { // 2 ms ÷ tryShare is 20 s
		t.Errorf("dear: got %d tries in %d s, want 1", tries["dear"], marks)
	}

	if tries["cheap"] != marks {
		t.Errorf("cheap: got %d tries at %d marks, want one at each", tries["cheap"], marks)
	}

	s.retry(100e9) // in time for another look
	if tries["dear"] != 2 {
		t.Errorf("dear, much later: got %d tries, want 2", tries["dear"])
	}
}

// TestLevelsAreNotReadAtTheEndOfAWindow: what has levels alone, such as the timed loop of the clock, is read
// as a window begins; what has counters is read at both edges, since the window's are the difference.
func TestLevelsAreNotReadAtTheEndOfAWindow(t *testing.T) {
	reads := map[string]int{}
	p := func(name string, metrics ...record.Metric) probe.Probe {
		read := func() error { reads[name]++; return nil }
		return probe.Probe{
			Name:   name,
			Slow:   true,
			Stems:  metrics,
			Source: func(probe.Options) (probe.Sampler, error) { return samplerFunc(read), nil },
		}
	}
	list := []probe.Probe{p("levels", record.Metric{Name: "n"}),
		p("both", record.Metric{Name: "m"}, record.Metric{Name: "n", Counter: true})}
	s := opened(t, list, Request{})
	for window := range int64(5) {
		start := (1 + window) * 1000e9
		for _, src := range s.sources {
			src.due = start + 3600e9
		}

		s.marks = []int64{start, start + 2e9}
		s.tick(start, true)
		for _, src := range s.sources {
			src.due = start + 3600e9
		}

		s.tick(start+2e9, true)
	}

	if reads["levels"] != 5 || reads["both"] != 10 {
		t.Errorf("reads in five windows: got %v, want 5 of levels and 10 of both", reads)
	}
}

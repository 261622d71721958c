package watch

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/probe"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// fast are the sources that are sampled at 10 Hz.
func fast() []probe.Probe { return probe.All(probe.Root{})[:5] }

// settled opens a probe and follows its columns until they stay.
func settled(t testing.TB, p probe.Probe) (probe.Sampler, []float64) {
	t.Helper()
	s, err := p.Open(probe.Options{})
	if err != nil {
		t.Fatalf("open %s: %v", p.Name, err)
	}

	t.Cleanup(func() { s.Close() })
	for range 10 {
		row := make([]float64, len(s.Columns()))
		err := s.Sample(row)
		if err == nil {
			return s, row
		}

		if !errors.Is(err, probe.ErrColumns) {
			t.Fatalf("sample %s: %v", p.Name, err)
		}
	}

	t.Fatalf("%s: columns do not settle", p.Name)
	return nil, nil
}

func TestFastSourcesAreTheFive(t *testing.T) {
	for i, name := range []string{"cpu", "softirq", "softnet", "netdev", "qdisc"} {
		p := probe.All(probe.Root{})[i]
		if p.Name != name || p.Slow {
			t.Errorf("probe %d: got %s (slow %v), want %s, fast", i, p.Name, p.Slow, name)
		}
	}
}

func TestFastSourcesDoNotAllocate(t *testing.T) {
	for _, p := range fast() {
		s, row := settled(t, p)
		got := testing.AllocsPerRun(200, func() {
			if err := s.Sample(row); err != nil && !errors.Is(err, probe.ErrColumns) {
				t.Fatal(err)
			}
		})
		if got >= 1 {
			t.Errorf("%s: got %v allocations per sample, want 0", p.Name, got)
		}
	}
}

// The cost is printed, not checked: a busy machine makes it look larger. What is checked is that the
// accounting sees it, and that all samples were taken.
func TestCostOfTheFastSourcesAtTenHertz(t *testing.T) {
	const samples = 100
	release := lockThread()
	defer release()
	total := int64(0)
	for _, p := range fast() {
		s, row := settled(t, p)
		before := threadTime()
		for range samples {
			if err := s.Sample(row); err != nil && !errors.Is(err, probe.ErrColumns) {
				t.Fatal(err)
			}
		}

		cost := (threadTime() - before) / samples
		total += cost
		t.Logf("%-8s %6.1f µs per sample, %.3f %% of a core at 10 Hz", p.Name, float64(cost)/1e3,
			float64(cost)*10/1e9*100)
		if cost <= 0 {
			t.Errorf("%s: got a cost of %d ns, want more than 0", p.Name, cost)
		}
	}

	t.Logf("%-8s %6.1f µs per sample, %.3f %% of a core at 10 Hz", "all", float64(total)/1e3,
		float64(total)*10/1e9*100)
}

// The whole loop as an agent runs it: also waking up, clocks and copying.
func TestCostOfAWholeWatch(t *testing.T) {
	const length = 2 * time.Second
	list := probe.All(probe.Root{})
	s := opened(t, list, Request{})
	var loop sync.WaitGroup
	start := host.Monotonic()
	loop.Go(s.loop)
	time.Sleep(length)
	s.stop()
	loop.Wait()
	over := float64(host.Monotonic() - start)
	reads := map[string]int64{}
	rest, err := s.collect(start, host.Monotonic(), func(r record.Samples) error {
		if r.Table != nil {
			reads[r.Probe] = int64(len(r.Table.T))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}

	total := 0.0
	for _, c := range rest.Cost {
		share := float64(c.CPUNs) / over * 100
		total += share
		t.Logf("%-9s %3d reads, %7.1f µs each, %.3f %% of a core", c.Probe, c.Reads,
			float64(c.CPUNs)/float64(max(c.Reads, 1))/1e3, share)
		if n, ok := reads[c.Probe]; ok && (c.Reads != n-1 || n > 1 && c.CPUNs <= 0) {
			t.Errorf("%s: got %+v for %d samples", c.Probe, c, n)
		}
	}

	t.Logf("%-9s %.3f %% of a core; %d stalls", "all", total, len(rest.Stalls))
	if reads["cpu"] < 3*reads["memory"] {
		t.Errorf("reads of a fast and a slow source: got %d and %d, want 10 Hz and 1 Hz", reads["cpu"],
			reads["memory"])
	}
}

func BenchmarkSample(b *testing.B) {
	for _, p := range fast() {
		b.Run(p.Name, func(b *testing.B) {
			s, row := settled(b, p)
			b.ReportAllocs()
			for b.Loop() {
				if err := s.Sample(row); err != nil && !errors.Is(err, probe.ErrColumns) {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkThreadTime(b *testing.B) {
	release := lockThread()
	defer release()
	for b.Loop() {
		threadTime()
	}
}

package probe

import (
	"errors"
	"testing"
)

// fast are the sources that are sampled at 10 Hz.
func fast() []Probe { return All(Root{})[:5] }

// steady opens a probe and follows its columns until they stay.
func steady(t testing.TB, p Probe) (Sampler, []float64) {
	t.Helper()
	s := open(t, p)
	for range 10 {
		row := make([]float64, len(s.Columns()))
		err := s.Sample(row)
		if err == nil {
			return s, row
		}
		if !errors.Is(err, ErrColumns) {
			t.Fatalf("sample %s: %v", p.Name(), err)
		}
	}
	t.Fatalf("%s: columns do not settle", p.Name())
	return nil, nil
}

func TestFastSourcesAreTheFive(t *testing.T) {
	for i, name := range []string{"cpu", "softirq", "softnet", "netdev", "qdisc"} {
		if p := All(Root{})[i]; p.Name() != name || isSlow(p) {
			t.Errorf("probe %d: got %s (slow %v), want %s, fast", i, p.Name(), isSlow(p), name)
		}
	}
}

func TestFastSourcesDoNotAllocate(t *testing.T) {
	for _, p := range fast() {
		s, row := steady(t, p)
		got := testing.AllocsPerRun(200, func() {
			if err := s.Sample(row); err != nil && !errors.Is(err, ErrColumns) {
				t.Fatal(err)
			}
		})
		if got >= 1 {
			t.Errorf("%s: got %v allocations per sample, want 0", p.Name(), got)
		}
	}
}

// The cost is printed, not judged: a busy machine makes it look larger. What
// is judged is that the accounting sees it, and that all samples were taken.
func TestCostOfTheFastSourcesAtTenHertz(t *testing.T) {
	const samples = 100
	release := lockThread()
	defer release()
	total := int64(0)
	for _, p := range fast() {
		s, row := steady(t, p)
		before := threadTime()
		for range samples {
			if err := s.Sample(row); err != nil && !errors.Is(err, ErrColumns) {
				t.Fatal(err)
			}
		}
		cost := (threadTime() - before) / samples
		total += cost
		t.Logf("%-8s %6.1f µs per sample, %.3f %% of a core at 10 Hz", p.Name(), float64(cost)/1e3, float64(cost)*10/1e9*100)
		if cost <= 0 {
			t.Errorf("%s: got a cost of %d ns, want more than 0", p.Name(), cost)
		}
	}
	t.Logf("%-8s %6.1f µs per sample, %.3f %% of a core at 10 Hz", "all", float64(total)/1e3, float64(total)*10/1e9*100)
}

func BenchmarkSample(b *testing.B) {
	for _, p := range fast() {
		b.Run(p.Name(), func(b *testing.B) {
			s, row := steady(b, p)
			b.ReportAllocs()
			for b.Loop() {
				if err := s.Sample(row); err != nil && !errors.Is(err, ErrColumns) {
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

package probe

import (
	"errors"
	"io/fs"
	"os"

	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// clock measures the duration of a fixed amount of work. The duration shows a CPU's real speed if its
// frequency is unknown, as in a virtual machine. It also shows CPU time that is withheld without a trace, for
// example by a quota on the host.
func clock(root Root) Probe {
	return Probe{
		Name:  "clock",
		Scope: record.ScopeHost,
		Slow:  true,
		Stems: []record.Metric{
			level("loop_rate_hz", "Hz",
				"iterations per second of a fixed loop of dependent integer operations on this core, "+
					"including interruptions; the cores are measured in turn"),
			level("loop_rate_best_hz", "Hz",
				"the same for the fastest of the loop's short runs, which shows the core's clock"),
		},
		Source: root.openClock,
	}
}

// A sample consists of clockRuns runs of about clockRunNs each, 0.8 ms in total, which is less than 0.1 % of
// a core's time. A single run would seldom coincide with a pause that the host makes every 10 ms. Interrupts
// would distort the result of a longer run.
const (
	clockRuns  = 16
	clockRunNs = 50e3
)

type clockSampler struct {
	unopened
	rounds int
	cores  []int
	turn   int
	result uint64 // stored, so that the compiler cannot remove the work
}

func (root Root) openClock(Options) (Sampler, error) {
	// /proc lists the machine's CPUs. Without it, no CPU can be timed.
	if _, err := os.Stat(root.proc("stat")); errors.Is(err, fs.ErrNotExist) {
		return nil, absent("%v: %s", err, noStat)
	} else if err != nil {
		return nil, err
	}

	cores, err := allowedCores()
	if err != nil {
		return nil, err
	}

	s := &clockSampler{rounds: 64, cores: cores}
	for _, c := range s.cores {
		s.columns = append(s.columns, cpuLabel(c)+"/loop_rate_hz", cpuLabel(c)+"/loop_rate_best_hz")
	}

	for s.rounds < 1<<24 {
		took := min(s.run(), s.run(), s.run())
		if took >= clockRunNs {
			s.rounds = int(int64(s.rounds) * clockRunNs / took)
			break
		}

		s.rounds *= 2
	}

	return s, nil
}

// run does the work once and returns its duration in nanoseconds.
func (s *clockSampler) run() int64 {
	start := host.Monotonic()
	x := s.result | 1
	for range s.rounds {
		x ^= x << 13 // xorshift (Marsaglia 2003): each step depends on the previous one
		x ^= x >> 7
		x ^= x << 17
	}

	s.result = x
	return max(host.Monotonic()-start, 1)
}

// Sample measures the speed of one core, a different one in each call, and restores the thread's affinity.
func (s *clockSampler) Sample(dst []float64) error {
	fill(dst, nan)
	i := s.turn % len(s.cores)
	s.turn++
	return onCore(s.cores[i], func() {
		var total int64
		best := int64(1 << 62)
		for range clockRuns {
			took := s.run()
			total, best = total+took, min(best, took)
		}

		dst[2*i] = float64(s.rounds) * clockRuns / float64(total) * 1e9
		dst[2*i+1] = float64(s.rounds) / float64(best) * 1e9
	})
}

package analysis

import (
	"slices"
	"testing"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/diagnosis"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// A class is ruled out by a number that decides against it, and not by one that speaks for it: a great loss
// rules out no policer, a busy core no CPU.
func TestRuledOutByWhatSpeaksAgainst(t *testing.T) {
	lossy := func(_ *record.Run, tr *record.Trial) {
		for i := range tr.Traffic.Flows {
			f := &tr.Traffic.Flows[i]
			if f.TCP != nil {
				f.TCP.Retransmits = new(f.ReceivedBytes / int64(f.TCP.MSS))
			}
		}
	}
	// What speaks for a class from such a share on.
	speaksFor := map[string]float64{"cpu_busy_ratio": .9, "host_cpu_ratio": .9, "retransmits": .02,
		"loss_ratio": .02, "cpu_softirq_ratio": .8, "tcp_rwnd_limited_ratio": .5, "threads_ns": .9}
	for _, x := range []example{{"rule-drop", nil}, {"small-burst", nil}, {"random-loss", lossy},
		{"one-core", lossy}, {"all-cores", nil}, {"local", nil}, {"cpu-hog", nil}, {"quota", nil},
		{"receive-window", lossy}, {"policer", nil}, {"shaper", nil}, {"rules", nil}} {
		d := diagnosis.Conclude([][]diagnosis.Candidate{diagnosis.Examine(observed(t, x))})
		for _, out := range d.Excluded {
			most, isShare := speaksFor[out.By.Metric]
			if isShare && *out.By.Value >= most && out.Class != diagnosis.Healthy &&
				out.Class != diagnosis.SoftirqAllCores && // which the other core's slack rules out
				!slices.Contains(diagnosis.SymptomsOf(d.Class), out.Class) { // what the cause explains
				t.Errorf("%s: %s is ruled out by %q", x.file, out.Class, out.By.Text)
			}
		}

		if len(d.Excluded) < 5 {
			t.Errorf("%s: only %d classes are ruled out", x.file, len(d.Excluded))
		}
	}
}

// TestDropsOfADeviceAreNotDenied: where the device behind a queue drops packets, nothing says that none was
// dropped. All evidence names its trial.
func TestDropsOfADeviceAreNotDenied(t *testing.T) {
	o := observed(t, example{"wireguard-kernel", plantedQueueDrops})
	d := diagnosis.Conclude([][]diagnosis.Candidate{diagnosis.Examine(o)})
	for _, out := range d.Excluded {
		if out.By.Trial != o.Trial.ID || out.Class == diagnosis.SmallQueue {
			t.Errorf("%s is ruled out by %+v", out.Class, out.By)
		}
	}
}

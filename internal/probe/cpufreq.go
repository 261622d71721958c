package probe

import (
	"bytes"
	"errors"
	"path/filepath"
	"strconv"

	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// freqTime holds a line of time_in_state.
type freqTime struct {
	kilohertz uint64
	ticks     uint64
}

// parseTimeInState parses stats/time_in_state of a cpufreq policy: frequencies in kHz and times in units
// of 10 ms (drivers/cpufreq/cpufreq_stats.c).
func parseTimeInState(b []byte, reuse []freqTime) ([]freqTime, error) {
	times := reuse[:0]
	for l := range bytes.Lines(b) {
		k, rest := word(l)
		if len(k) == 0 {
			continue
		}

		t, _ := word(rest)
		khz, ok1 := number(k)
		ticks, ok2 := number(t)
		if !ok1 || !ok2 {
			return nil, errors.New("parse time_in_state: want lines of a frequency and a time")
		}

		times = append(times, freqTime{khz, ticks})
	}
	return times, nil
}

func cpufreq(root Root) Probe {
	return Probe{
		Name:  "cpufreq",
		Scope: record.ScopeHost,
		Slow:  true,
		Stems: []record.Metric{
			level("frequency_hz", "Hz", "present clock of the policy's CPUs, as the driver reports it "+
				"(scaling_cur_freq)"),
			level("limit_hz", "Hz",
				"highest clock allowed now; falls if the firmware or the user limits it (scaling_max_freq)"),
			level("hardware_limit_hz", "Hz", "highest clock of the hardware (cpuinfo_max_freq)"),
			counter("transitions", "count", "number of clock changes (stats/total_trans)"),
			counter("time_ns", "ns",
				"time spent at the clock in the label, in Hz, such as \"policy0@1800000000\" "+
					"(stats/time_in_state)"),
		},
		Source: root.openCPUFreq,
	}
}

type cpufreqSampler struct {
	gauges // single-number files; their columns come first
	times  []text[[]freqTime]
}

func (root Root) openCPUFreq(Options) (Sampler, error) {
	s := &cpufreqSampler{}
	var timeColumns []string
	for _, dir := range matches(root.sys("devices/system/cpu/cpufreq/policy*")) {
		policy := filepath.Base(dir)
		s.addFolder(policy, dir, []gaugeFile{
			{"frequency_hz", "scaling_cur_freq", 1e3},
			{"limit_hz", "scaling_max_freq", 1e3},
			{"hardware_limit_hz", "cpuinfo_max_freq", 1e3},
			{"transitions", "stats/total_trans", 1},
		}...)
		t, err := openText(filepath.Join(dir, "stats/time_in_state"), "", parseTimeInState)
		if err != nil || t.update() != nil {
			t.Close()
			continue
		}

		s.times = append(s.times, t)
		for _, e := range t.now {
			timeColumns = append(timeColumns, policy+"@"+strconv.FormatUint(e.kilohertz*1000, 10)+"/time_ns")
		}
	}

	_, err := s.sampler("no CPU frequency scaling on this machine (no cpufreq policy; usual in virtual " +
		"machines)")
	s.columns = append(s.columns, timeColumns...)
	return s, err
}

func (s *cpufreqSampler) Sample(dst []float64) error {
	s.gauges.Sample(dst)
	at := dst[len(s.list):]
	fill(at, nan)
	for i := range s.times {
		t := &s.times[i]
		n := len(t.now)
		if err := t.update(); err != nil {
			return err
		}

		for j, e := range t.now[:min(n, len(t.now))] {
			at[j] = float64(e.ticks) * nsPerTick
		}

		at = at[n:]
	}

	return nil
}

func (s *cpufreqSampler) Close() error {
	for _, t := range s.times {
		t.Close()
	}
	return s.gauges.Close()
}

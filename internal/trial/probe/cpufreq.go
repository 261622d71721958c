package probe

import (
	"errors"
	"path/filepath"
	"strconv"

	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// freqTime is one line of time_in_state.
type freqTime struct {
	kilohertz uint64
	ticks     uint64
}

var errTimeInState = errors.New("parse time_in_state: want lines of a frequency and a time")

// parseTimeInState reads stats/time_in_state of a cpufreq policy: kHz and time in 10 ms units
// (drivers/cpufreq/cpufreq_stats.c).
func parseTimeInState(b []byte, reuse []freqTime) ([]freqTime, error) {
	times := reuse[:0]
	for len(b) > 0 {
		var l []byte
		l, b = line(b)
		k, rest := word(l)
		if len(k) == 0 {
			continue
		}
		t, _ := word(rest)
		khz, ok1 := number(k)
		ticks, ok2 := number(t)
		if !ok1 || !ok2 {
			return nil, errTimeInState
		}
		times = append(times, freqTime{khz, ticks})
	}
	return times, nil
}

func cpufreq(root Root) Probe {
	metrics := []record.Metric{
		level(record.ScopeHost, "frequency_hz", "Hz",
			"the policy's clock now, as the driver knows it (scaling_cur_freq)"),
		level(record.ScopeHost, "limit_hz", "Hz",
			"highest clock allowed now; falls when the firmware or the user limits it (scaling_max_freq)"),
		level(record.ScopeHost, "hardware_limit_hz", "Hz",
			"highest clock that the hardware has (cpuinfo_max_freq)"),
		counter(record.ScopeHost, "transitions", "count", "changes of the clock (stats/total_trans)"),
		counter(record.ScopeHost, "time_ns", "ns",
			"time spent at the clock named in the label, \"policy0@1800000000\" in Hz (stats/time_in_state)"),
	}
	open := func() (Sampler, error) { return openCPUFreq(root) }
	return entry{name: "cpufreq", slow: true, metrics: metrics, open: open}
}

type cpufreqSampler struct {
	Sampler // the policies' single numbers
	single  int
	times   []stateTimes
	columns []string
}

// stateTimes is one policy's time_in_state.
type stateTimes struct {
	f   *file
	now []freqTime
}

func openCPUFreq(root Root) (Sampler, error) {
	var g gauges
	s := &cpufreqSampler{}
	var timeColumns []string
	for _, dir := range matches(root.sys("devices/system/cpu/cpufreq/policy*")) {
		policy := filepath.Base(dir)
		g.add(policy+"/frequency_hz", filepath.Join(dir, "scaling_cur_freq"), 1e3)
		g.add(policy+"/limit_hz", filepath.Join(dir, "scaling_max_freq"), 1e3)
		g.add(policy+"/hardware_limit_hz", filepath.Join(dir, "cpuinfo_max_freq"), 1e3)
		g.add(policy+"/transitions", filepath.Join(dir, "stats/total_trans"), 1)
		timeColumns = append(timeColumns, s.addTimes(policy, filepath.Join(dir, "stats/time_in_state"))...)
	}
	list, err := g.sampler("no CPU frequency scaling on this machine (no cpufreq policy; usual in virtual " +
		"machines)")
	if err != nil {
		return nil, err
	}
	s.Sampler, s.single = list, len(g.list)
	s.columns = append(list.Columns(), timeColumns...)
	return s, nil
}

func (s *cpufreqSampler) addTimes(policy, path string) []string {
	f, err := openFile(path, "")
	if err != nil {
		return nil
	}
	t := stateTimes{f: f}
	if err := t.parse(); err != nil {
		f.Close()
		return nil
	}
	s.times = append(s.times, t)
	var columns []string
	for _, e := range t.now {
		columns = append(columns, policy+"@"+strconv.FormatUint(e.kilohertz*1000, 10)+"/time_ns")
	}
	return columns
}

func (t *stateTimes) parse() error {
	b, err := t.f.read()
	if err != nil {
		return err
	}
	times, err := parseTimeInState(b, t.now)
	if err == nil {
		t.now = times
	}
	return err
}

func (s *cpufreqSampler) Columns() []string { return s.columns }

func (s *cpufreqSampler) Sample(dst []float64) error {
	if err := s.Sampler.Sample(dst[:s.single]); err != nil {
		return err
	}
	at := dst[s.single:]
	fill(at, nan)
	for i := range s.times {
		t := &s.times[i]
		n := len(t.now)
		if err := t.parse(); err != nil {
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
		t.f.Close()
	}
	return s.Sampler.Close()
}

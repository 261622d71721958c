package probe

import (
	"errors"
	"strconv"

	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// nsPerTick: /proc/stat counts in USER_HZ, which is 100 on every architecture that we build for
// (include/asm-generic/param.h).
const nsPerTick = 1e9 / 100

// cpuStates are the columns of a cpu line in the kernel's order (fs/proc/stat.c, show_stat; proc_stat(5)).
// Kernels before 2.6.33 lack the last ones.
var cpuStates = [...]string{"user_ns", "nice_ns", "system_ns", "idle_ns", "iowait_ns",
	"irq_ns", "softirq_ns", "steal_ns", "guest_ns", "guest_nice_ns"}

const (
	cpuIdle   = 3
	cpuIowait = 4
	cpuSteal  = 7
)

var statTotals = [...]string{"interrupts", "context_switches", "processes", "procs_running", "procs_blocked"}

// cpuLine is one "cpu…" line; id -1 is the machine's total.
type cpuLine struct {
	id    int
	n     int // states present
	ticks [len(cpuStates)]uint64
}

// statText is /proc/stat; totals are NaN where the kernel does not say.
type statText struct {
	cpus   []cpuLine
	totals [len(statTotals)]float64
}

var errStat = errors.New("parse /proc/stat: no cpu lines as in proc_stat(5)")

// parseStat reads /proc/stat, appending to reuse.
func parseStat(b []byte, reuse []cpuLine) (statText, error) {
	t := statText{cpus: reuse[:0], totals: [...]float64{nan, nan, nan, nan, nan}}
	for len(b) > 0 {
		var l []byte
		l, b = line(b)
		key, rest := word(l)
		if len(key) >= 3 && string(key[:3]) == "cpu" {
			c, ok := parseCPULine(key[3:], rest)
			if !ok {
				return statText{}, errStat
			}
			t.cpus = append(t.cpus, c)
			continue
		}
		i := statTotal(key)
		if i < 0 {
			continue
		}
		w, _ := word(rest)
		if v, ok := number(w); ok {
			t.totals[i] = float64(v)
		}
	}
	if len(t.cpus) == 0 {
		return statText{}, errStat
	}
	return t, nil
}

func parseCPULine(id, rest []byte) (cpuLine, bool) {
	c := cpuLine{id: -1}
	if len(id) > 0 {
		v, ok := number(id)
		if !ok || v > 1<<20 {
			return c, false
		}
		c.id = int(v)
	}
	for c.n < len(c.ticks) {
		var w []byte
		w, rest = word(rest)
		v, ok := number(w)
		if !ok {
			break
		}
		c.ticks[c.n] = v
		c.n++
	}
	return c, c.n >= 4
}

// statKeys are the kernel's names of statTotals.
var statKeys = [...]string{"intr", "ctxt", "processes", "procs_running", "procs_blocked"}

func statTotal(key []byte) int {
	for i := range statKeys {
		if string(key) == statKeys[i] {
			return i
		}
	}
	return -1
}

func cpu(root Root) Probe {
	const why = "no kernel statistics; is /proc mounted?"
	doc := "time of the core in this state, from /proc/stat (10 ms ticks)"
	metrics := make([]record.Metric, 0, len(cpuStates)+len(statTotals))
	for _, s := range cpuStates {
		metrics = append(metrics, counter(record.ScopeHost, s, "ns", doc))
	}
	metrics[cpuIowait].Doc += "; may step back"
	metrics[8].Doc += "; also counted in user_ns"
	metrics[9].Doc += "; also counted in nice_ns"
	for _, s := range statTotals[:3] {
		metrics = append(metrics, counter(record.ScopeHost, s, "count", "since boot, from /proc/stat"))
	}
	for _, s := range statTotals[3:] {
		metrics = append(metrics, level(record.ScopeHost, s, "count", "now, from /proc/stat"))
	}
	path := root.proc("stat")
	return entry{name: "cpu", metrics: metrics, check: fileCheck(path, why),
		open: func() (Sampler, error) { return openCPU(path, why) }}
}

type cpuSampler struct {
	f       *file
	now     []cpuLine // of the last sample
	ids     []int     // what the columns describe
	live    []cpuLine // of the last call of Cores
	columns []string
}

func openCPU(path, why string) (Sampler, error) {
	f, err := openFile(path, why)
	if err != nil {
		return nil, err
	}
	s := &cpuSampler{f: f}
	t, err := s.parse()
	if err != nil {
		f.Close()
		return nil, err
	}
	s.describe(t)
	return s, nil
}

func (s *cpuSampler) parse() (statText, error) {
	b, err := s.f.read()
	if err != nil {
		return statText{}, err
	}
	t, err := parseStat(b, s.now)
	if err == nil {
		s.now = t.cpus
	}
	return t, err
}

func (s *cpuSampler) describe(t statText) {
	s.ids, s.columns, s.live = nil, nil, nil
	for _, c := range t.cpus {
		s.ids = append(s.ids, c.id)
		for _, name := range cpuStates {
			s.columns = append(s.columns, cpuLabel(c.id)+"/"+name)
		}
	}
	s.columns = append(s.columns, statTotals[:]...)
}

// cpuLabel is "cpu3", or "cpu" for the sum over all cores.
func cpuLabel(id int) string {
	if id < 0 {
		return "cpu"
	}
	return "cpu" + strconv.Itoa(id)
}

func (s *cpuSampler) Columns() []string { return s.columns }

func (s *cpuSampler) Sample(dst []float64) error {
	t, err := s.parse()
	if err != nil {
		return err
	}
	if !s.same(t.cpus) {
		s.describe(t)
		return ErrColumns
	}
	i := 0
	for k := range t.cpus {
		c := &t.cpus[k]
		for state, ticks := range c.ticks {
			dst[i] = float64(ticks) * nsPerTick
			if state >= c.n {
				dst[i] = nan
			}
			i++
		}
	}
	copy(dst[i:], t.totals[:])
	return nil
}

func (s *cpuSampler) same(cpus []cpuLine) bool {
	if len(cpus) != len(s.ids) {
		return false
	}
	for i := range cpus {
		if cpus[i].id != s.ids[i] {
			return false
		}
	}
	return true
}

// Cores compares the last sample with the one at the last call. Time that the hypervisor took away (steal)
// counts as busy: nobody else could use it.
func (s *cpuSampler) Cores(dst []float64) []float64 {
	if len(s.live) == len(s.now) {
		for i := range s.now {
			if s.now[i].id >= 0 {
				dst = append(dst, busyShare(&s.live[i], &s.now[i]))
			}
		}
	}
	s.live = append(s.live[:0], s.now...)
	return dst
}

func busyShare(a, b *cpuLine) float64 {
	var all, idle float64
	for i := 0; i <= cpuSteal; i++ {
		if b.ticks[i] < a.ticks[i] {
			continue
		}
		d := float64(b.ticks[i] - a.ticks[i])
		all += d
		if i == cpuIdle || i == cpuIowait {
			idle += d
		}
	}
	if all == 0 {
		return 0
	}
	return (all - idle) / all
}

func (s *cpuSampler) Close() error { return s.f.Close() }

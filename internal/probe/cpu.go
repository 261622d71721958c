package probe

import (
	"bytes"
	"errors"
	"slices"
	"strconv"

	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// nsPerTick is the unit of the times in /proc/stat, in nanoseconds. USER_HZ is 100 on every supported
// architecture (include/asm-generic/param.h).
const nsPerTick = 1e9 / 100

// cpuStates lists the columns of a cpu line, in the kernel's order (fs/proc/stat.c, show_stat; proc_stat(5)).
// Kernels before 2.6.33 lack the last columns.
var cpuStates = [...]string{"user_ns", "nice_ns", "system_ns", "idle_ns", "iowait_ns",
	"irq_ns", "softirq_ns", "steal_ns", "guest_ns", "guest_nice_ns"}

const (
	cpuIdle   = 3
	cpuIowait = 4
	cpuSteal  = 7
)

// statTotals maps the keys of other lines in /proc/stat to stems.
var statTotals = [...]struct{ key, stem string }{{"intr", "interrupts"}, {"ctxt", "context_switches"},
	{"processes", "processes"}, {"procs_running", "procs_running"}, {"procs_blocked", "procs_blocked"}}

// cpuLine holds a parsed "cpu" line. id is -1 for the line with the total of all CPUs.
type cpuLine struct {
	id    int
	n     int // number of states in the line
	ticks [len(cpuStates)]uint64
}

// statText holds a parsed /proc/stat. Missing totals are NaN.
type statText struct {
	cpus   []cpuLine
	totals [len(statTotals)]float64
}

var errStat = errors.New("parse /proc/stat: no cpu lines as in proc_stat(5)")

// parseStat parses /proc/stat. It reuses the memory of the slice in reuse.
func parseStat(b []byte, reuse statText) (statText, error) {
	t := statText{cpus: reuse.cpus[:0], totals: [...]float64{nan, nan, nan, nan, nan}}
	for l := range bytes.Lines(b) {
		key, rest := word(l)
		if len(key) >= 3 && string(key[:3]) == "cpu" {
			c, ok := parseCPULine(key[3:], rest)
			if !ok {
				return statText{}, errStat
			}

			t.cpus = append(t.cpus, c)
			continue
		}

		for i := range statTotals {
			if string(key) == statTotals[i].key {
				w, _ := word(rest)
				if v, ok := number(w); ok {
					t.totals[i] = float64(v)
				}
			}
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

const noStat = "no kernel statistics; is /proc mounted?"

func cpu(root Root) Probe {
	metrics := counters("ns", "time of the core in this state, from /proc/stat (10 ms ticks)",
		cpuStates[:]...)
	metrics[cpuIowait].Doc += "; may step back"
	metrics[8].Doc += "; also counted in user_ns"
	metrics[9].Doc += "; also counted in nice_ns"
	for _, t := range statTotals[:3] {
		metrics = append(metrics, counter(t.stem, "count", "number since boot, from /proc/stat"))
	}

	for _, t := range statTotals[3:] {
		metrics = append(metrics, level(t.stem, "count", "number of tasks now, from /proc/stat"))
	}

	return Probe{
		Name:  "cpu",
		Scope: record.ScopeHost,
		Stems: metrics,
		Source: func(Options) (Sampler, error) {
			t, err := openText(root.proc("stat"), noStat, parseStat)
			return &cpuSampler{text: t}, err
		},
	}
}

type cpuSampler struct {
	columns
	text[statText]
	ids  []int     // CPUs in the order of their columns
	live []cpuLine // values at the last call of Cores
}

func (s *cpuSampler) describe() {
	s.ids = nil
	s.columns = nil
	s.live = nil
	for _, c := range s.now.cpus {
		s.ids = append(s.ids, c.id)
		for _, name := range cpuStates {
			s.columns = append(s.columns, cpuLabel(c.id)+"/"+name)
		}
	}

	for _, t := range statTotals {
		s.columns = append(s.columns, t.stem)
	}
}

// cpuLabel returns "cpu3", or "cpu" for the total of all cores.
func cpuLabel(id int) string {
	if id < 0 {
		return "cpu"
	}
	return "cpu" + strconv.Itoa(id)
}

func (s *cpuSampler) Sample(dst []float64) error {
	if err := s.update(); err != nil {
		return err
	}

	if !slices.EqualFunc(s.now.cpus, s.ids, func(c cpuLine, id int) bool { return c.id == id }) {
		s.describe()
		return ErrColumns
	}

	i := 0
	for k := range s.now.cpus {
		c := &s.now.cpus[k]
		for state, ticks := range c.ticks {
			dst[i] = float64(ticks) * nsPerTick
			if state >= c.n {
				dst[i] = nan
			}

			i++
		}
	}

	copy(dst[i:], s.now.totals[:])
	return nil
}

// Cores returns the busy share of each core between the previous call of Cores and the last sample. Time
// taken by the hypervisor (steal) counts as busy, because nothing else could use that time.
func (s *cpuSampler) Cores(dst []float64) []float64 {
	now := s.now.cpus
	if len(s.live) == len(now) {
		for i := range now {
			if now[i].id >= 0 {
				dst = append(dst, busyShare(&s.live[i], &now[i]))
			}
		}
	}

	s.live = append(s.live[:0], now...)
	return dst
}

func busyShare(a, b *cpuLine) float64 {
	var all, idle float64
	for i := range cpuSteal + 1 {
		d := float64(b.ticks[i] - min(a.ticks[i], b.ticks[i])) // count a decrease as zero
		all += d
		if i == cpuIdle || i == cpuIowait {
			idle += d
		}
	}
	return (all - idle) / max(all, 1)
}

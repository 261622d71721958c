package probe

import (
	"bytes"
	"errors"
	"slices"

	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// softirqRows lists the sampled rows, in the kernel's order (include/linux/interrupt.h, softirq_to_name;
// fs/proc/softirqs.c). BLOCK and IRQ_POLL are not sampled, because they do not concern the network.
var (
	softirqRows    = [...]string{"TIMER:", "NET_TX:", "NET_RX:", "TASKLET:", "SCHED:", "HRTIMER:", "RCU:"}
	softirqMetrics = counters("count", "softirqs of this kind that ran on the core, from /proc/softirqs",
		"timer", "net_tx", "net_rx", "tasklet", "sched", "hrtimer", "rcu")
)

// softirqText holds a parsed /proc/softirqs: the CPUs in the heading, and their counts. A count is -1 if
// its row is missing.
type softirqText struct {
	cpus   []int
	counts []float64 // indexed by cpu*len(softirqRows)+kind
}

var errSoftirqs = errors.New("parse /proc/softirqs: no header of CPU names")

// parseSoftirqs parses /proc/softirqs. It reuses the memory of the slices in reuse.
func parseSoftirqs(b []byte, reuse softirqText) (softirqText, error) {
	t := softirqText{cpus: reuse.cpus[:0], counts: reuse.counts[:0]}
	head, b := line(b)
	for {
		var w []byte
		w, head = word(head)
		if len(w) == 0 {
			break
		}

		id, ok := number(w[min(3, len(w)):])
		if !ok || id >= 1<<20 || string(w[:3]) != "CPU" {
			return softirqText{}, errSoftirqs
		}

		t.cpus = append(t.cpus, int(id))
		for range softirqRows {
			t.counts = append(t.counts, -1)
		}
	}

	if len(t.cpus) == 0 {
		return softirqText{}, errSoftirqs
	}

	for l := range bytes.Lines(b) {
		key, rest := word(l)
		kind := slices.Index(softirqRows[:], string(key))
		for c := 0; kind >= 0 && c < len(t.cpus); c++ {
			var w []byte
			w, rest = word(rest)
			v, ok := number(w)
			if !ok {
				break
			}

			t.counts[c*len(softirqRows)+kind] = float64(v)
		}
	}

	return t, nil
}

func softirq(root Root) Probe {
	return Probe{
		Name:  "softirq",
		Scope: record.ScopeHost,
		Stems: softirqMetrics,
		Source: func(Options) (Sampler, error) {
			t, err := openText(root.proc("softirqs"), "the kernel has no /proc/softirqs (before 2.6.31)",
				parseSoftirqs)
			return &softirqSampler{text: t}, err
		},
	}
}

// softirqSampler has no columns for cores that have run no softirq. The file lists all possible cores,
// including absent ones.
type softirqSampler struct {
	columns
	text[softirqText]
	ids []int
}

// of returns the counts of the core with index c, and reports whether the core has run any softirq.
func (t *softirqText) of(c int) (counts []float64, active bool) {
	counts = t.counts[c*len(softirqRows) : (c+1)*len(softirqRows)]
	return counts, slices.Max(counts) > 0
}

func (s *softirqSampler) describe() error {
	s.ids, s.columns = nil, nil
	s.add("cpu", softirqMetrics)
	for c, id := range s.now.cpus {
		_, active := s.now.of(c)
		if active {
			s.ids = append(s.ids, id)
			s.add(cpuLabel(id), softirqMetrics)
		}
	}

	return ErrColumns
}

func (s *softirqSampler) Sample(dst []float64) error {
	if err := s.update(); err != nil {
		return err
	}

	const n = len(softirqRows)
	fill(dst[:min(n, len(dst))], 0)
	at := 0
	for c, id := range s.now.cpus {
		counts, active := s.now.of(c)
		if !active {
			continue
		}

		if at >= len(s.ids) || s.ids[at] != id {
			return s.describe()
		}

		at++
		for k, v := range counts {
			if v < 0 {
				v = nan
			}

			dst[at*n+k] = v
			dst[k] += v
		}
	}

	if at != len(s.ids) || len(s.columns) == 0 {
		return s.describe()
	}

	return nil
}

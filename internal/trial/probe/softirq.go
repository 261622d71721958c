package probe

import (
	"errors"

	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// softirqKinds are the rows that we keep, in the kernel's order (include/linux/interrupt.h,
// softirq_to_name; fs/proc/softirqs.c), and their stems. Kernels before 4.5 have BLOCK_IOPOLL instead of
// IRQ_POLL; neither says anything about a network.
var softirqKinds = [...]struct{ row, stem string }{
	{"TIMER:", "timer"}, {"NET_TX:", "net_tx"}, {"NET_RX:", "net_rx"}, {"TASKLET:", "tasklet"},
	{"SCHED:", "sched"}, {"HRTIMER:", "hrtimer"}, {"RCU:", "rcu"},
}

// softirqText is /proc/softirqs: cpus holds the ids of the header, and counts one value per kind and cpu,
// -1 where a row is missing.
type softirqText struct {
	cpus   []int
	counts []float64 // [cpu*len(softirqKinds)+kind]
}

var errSoftirqs = errors.New("parse /proc/softirqs: no header of CPU names")

// parseSoftirqs reads /proc/softirqs into the reused slices.
func parseSoftirqs(b []byte, reuse softirqText) (softirqText, error) {
	t := softirqText{cpus: reuse.cpus[:0], counts: reuse.counts[:0]}
	head, b := line(b)
	for {
		var w []byte
		w, head = word(head)
		if len(w) == 0 {
			break
		}
		id, ok := cpuID(w)
		if !ok {
			return softirqText{}, errSoftirqs
		}
		t.cpus = append(t.cpus, id)
		for range softirqKinds {
			t.counts = append(t.counts, -1)
		}
	}
	if len(t.cpus) == 0 {
		return softirqText{}, errSoftirqs
	}
	for len(b) > 0 {
		var l []byte
		l, b = line(b)
		t.addRow(l)
	}
	return t, nil
}

func (t *softirqText) addRow(l []byte) {
	key, rest := word(l)
	kind := -1
	for i := range softirqKinds {
		if string(key) == softirqKinds[i].row {
			kind = i
		}
	}
	if kind < 0 {
		return
	}
	for c := range t.cpus {
		var w []byte
		w, rest = word(rest)
		v, ok := number(w)
		if !ok {
			return
		}
		t.counts[c*len(softirqKinds)+kind] = float64(v)
	}
}

func cpuID(w []byte) (int, bool) {
	if len(w) < 4 || string(w[:3]) != "CPU" {
		return 0, false
	}
	v, ok := number(w[3:])
	return int(v), ok && v < 1<<20
}

func softirq(root Root) Probe {
	const why = "the kernel has no /proc/softirqs (before 2.6.31)"
	var metrics []record.Metric
	for _, k := range softirqKinds {
		metrics = append(metrics, counter(record.ScopeHost, k.stem, "count",
			"softirqs of this kind run on the core, from /proc/softirqs"))
	}
	path := root.proc("softirqs")
	return entry{name: "softirq", metrics: metrics, check: fileCheck(path, why),
		open: func() (Sampler, error) { return openSoftirq(path, why) }}
}

// softirqSampler skips cores that never ran one: the file lists all possible cores, also those that the
// machine does not have.
type softirqSampler struct {
	f       *file
	now     softirqText
	ids     []int
	columns []string
}

func openSoftirq(path, why string) (Sampler, error) {
	f, err := openFile(path, why)
	if err != nil {
		return nil, err
	}
	s := &softirqSampler{f: f}
	if err := s.parse(); err != nil {
		f.Close()
		return nil, err
	}
	s.describe()
	return s, nil
}

func (s *softirqSampler) parse() error {
	b, err := s.f.read()
	if err != nil {
		return err
	}
	t, err := parseSoftirqs(b, s.now)
	if err != nil {
		return err
	}
	s.now = t
	return nil
}

func (s *softirqSampler) active(c int) bool {
	for _, v := range s.now.counts[c*len(softirqKinds) : (c+1)*len(softirqKinds)] {
		if v > 0 {
			return true
		}
	}
	return false
}

func (s *softirqSampler) describe() {
	s.ids, s.columns = nil, nil
	for _, k := range softirqKinds {
		s.columns = append(s.columns, "cpu/"+k.stem)
	}
	for c, id := range s.now.cpus {
		if !s.active(c) {
			continue
		}
		s.ids = append(s.ids, id)
		for _, k := range softirqKinds {
			s.columns = append(s.columns, cpuLabel(id)+"/"+k.stem)
		}
	}
}

func (s *softirqSampler) Columns() []string { return s.columns }

func (s *softirqSampler) Sample(dst []float64) error {
	if err := s.parse(); err != nil {
		return err
	}
	const n = len(softirqKinds)
	total := dst[:n]
	fill(total, 0)
	at := 0
	for c, id := range s.now.cpus {
		if !s.active(c) {
			continue
		}
		if at >= len(s.ids) || s.ids[at] != id {
			s.describe()
			return ErrColumns
		}
		at++
		for k, v := range s.now.counts[c*n : (c+1)*n] {
			if v < 0 {
				v = nan
			}
			dst[at*n+k] = v
			total[k] += v
		}
	}
	if at != len(s.ids) {
		s.describe()
		return ErrColumns
	}
	return nil
}

func (s *softirqSampler) Close() error { return s.f.Close() }

package probe

import (
	"bytes"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// workers is the prefix of the names of kernel workers. The rest of a worker's name changes with its work.
const workers = "kworker/"

// unnamed is the name of a kernel thread that has just been created (kernel/kthread.c).
const unnamed = "kthreadd"

// kthreadKinds lists the kinds of kernel threads that process or encrypt packets.
var kthreadKinds = []string{"softirqs", "napi", "wg-crypt", "irq"}

// kthreads reads the CPU time of kernel threads that process packets, by kind.
func kthreads(root Root) Probe {
	return Probe{
		Name:  "kthreads",
		Scope: record.ScopeHost,
		Slow:  true,
		Rare:  true,
		Stems: []record.Metric{
			counter("kthread_cpu_ns", "ns", "CPU time of kernel threads of one kind, since observation "+
				"began: softirqs (ksoftirqd), napi (threaded NAPI), wg-crypt (WireGuard's workers), irq "+
				"(threaded interrupts)"),
		},
		Source: func(Options) (Sampler, error) {
			s := &kthreadsSampler{
				dir:  root.proc(""),
				seen: map[int]pidStat{},
				sum: make([]float64,
					len(kthreadKinds)),
				buf: make([]byte, 4096),
			}
			// Process 2 is the parent of all kernel threads. It is visible only in the initial process
			// namespace.
			if p, err := readPidStat(filepath.Join(s.dir, "2", "stat"), s.buf); err != nil || !p.kernel {
				return nil, absent("the kernel's threads cannot be seen from inside a process namespace")
			}

			for _, kind := range kthreadKinds {
				s.columns = append(s.columns, kind+"/kthread_cpu_ns")
			}

			return s, s.Sample(make([]float64, len(s.columns)))
		},
	}
}

// kthreadsSampler walks all kernel threads. A worker serves different parts of the kernel in turn. Its CPU
// time is added to the kind that its name shows at the time of the sample.
type kthreadsSampler struct {
	unopened
	dir  string
	seen map[int]pidStat
	sum  []float64
	buf  []byte
}

func (s *kthreadsSampler) Sample(dst []float64) error {
	names, err := processes(s.dir)
	if err != nil {
		return err
	}

	first := len(s.seen) == 0
	for _, name := range names {
		pid, _ := strconv.Atoi(name)
		if old, known := s.seen[pid]; known && !old.kernel {
			continue
		}

		p, err := readPidStat(filepath.Join(s.dir, name, "stat"), s.buf)
		if err != nil {
			continue
		}

		old := s.seen[pid]
		name := nameOf(s.buf)
		i := slices.Index(kthreadKinds, kthreadKind(name))
		// Threads with other names are not read again, unless they are workers, whose names change.
		p.kernel = p.kernel && (i >= 0 || strings.HasPrefix(name, workers) || name == unnamed)
		s.seen[pid] = p
		if p.kernel && i >= 0 && !first && (old.start == 0 || old.start == p.start) {
			s.sum[i] += float64(p.ticks-min(old.ticks, p.ticks)) * nsPerTick
		}
	}

	copy(dst, s.sum)
	return nil
}

// nameOf returns the second field of /proc/<pid>/stat. It is enclosed in parentheses and may contain
// parentheses (proc_pid_stat(5)).
func nameOf(stat []byte) string {
	open := bytes.IndexByte(stat, '(')
	end := bytes.Index(stat[max(open, 0):], []byte(") "))
	if open < 0 || end < 1 {
		return ""
	}

	return string(stat[open+1 : open+end])
}

// kthreadKind returns the kind of a kernel thread by its name, or "". A worker's name includes its work:
// "kworker/1:2-wg-crypt-wg0" (kernel/workqueue.c, wq_worker_comm).
func kthreadKind(name string) string {
	switch {
	case strings.HasPrefix(name, "ksoftirqd/"):
		return "softirqs"
	case strings.HasPrefix(name, "napi/"):
		return "napi"
	case strings.HasPrefix(name, "irq/"):
		return "irq"
	case strings.HasPrefix(name, workers) && strings.Contains(name, "wg-crypt"):
		return "wg-crypt"
	}
	return ""
}

package probe

import (
	"bytes"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// workers is the prefix of a worker's name, which changes with its work.
const workers = "kworker/"

// unnamed is the name of a newly created thread (kernel/kthread.c).
const unnamed = "kthreadd"

// kthreadKinds lists the kernel's threads that process or encrypt packets, by name.
var kthreadKinds = []string{"softirqs", "napi", "wg-crypt", "irq"}

// kthreads reads the CPU time of the kernel's threads that process packets, by kind.
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
			// Process 2 is the parent of all kernel threads, and only the initial process namespace has it.
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

// kthreadsSampler walks the kernel's threads. A worker serves changing parts of the kernel: its time counts
// for the kind that its name shows when it is read.
type kthreadsSampler struct {
	columns
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
		// A named thread that is neither of a known kind nor a worker is not read again.
		p.kernel = p.kernel && (i >= 0 || strings.HasPrefix(name, workers) || name == unnamed)
		s.seen[pid] = p
		if p.kernel && i >= 0 && !first && (old.start == 0 || old.start == p.start) {
			s.sum[i] += float64(p.ticks-min(old.ticks, p.ticks)) * nsPerTick
		}
	}

	copy(dst, s.sum)
	return nil
}

func (*kthreadsSampler) Close() error { return nil }

// nameOf returns the second field of /proc/<pid>/stat, in parentheses, which may itself contain some
// (proc_pid_stat(5)).
func nameOf(stat []byte) string {
	open := bytes.IndexByte(stat, '(')
	end := bytes.Index(stat[max(open, 0):], []byte(") "))
	if open < 0 || end < 1 {
		return ""
	}

	return string(stat[open+1 : open+end])
}

// kthreadKind returns the kind of a kernel thread by its name; a worker's contains its work:
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

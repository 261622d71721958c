package probe

import (
	"bytes"
	"cmp"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/lab/kernel"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// guests reads the CPU time that each thread of the lab's virtual machines takes from the host. A guest that
// runs under emulation cannot measure this time itself.
func guests(root Root) Probe {
	return Probe{
		Name:  "guests",
		Scope: record.ScopeHost,
		Slow:  true,
		Stems: []record.Metric{
			counter("guest_cpu_ns", "ns", "CPU time of a QEMU thread: main, or vcpuN for the guest's vCPU N"),
			counter("guest_throttled_ns", "ns", "time for which a CPU quota stopped a vCPU (cpu.stat of "+
				"its cgroup)"),
		},
		Empty:  "no virtual machine of the lab runs",
		Source: root.openGuests,
	}
}

// guestThread describes a thread of an emulator.
type guestThread struct {
	label string     // "router/vcpu0"
	path  string     // path of its stat file
	start uint64     // start time of the thread, to detect a reused id
	quota *throttles // time for which a quota stopped the thread; nil without a quota
}

func (t guestThread) is(other guestThread) bool {
	return t.label == other.label && t.path == other.path && t.start == other.start
}

// throttles sums the throttled time of a thread over its successive cgroups. The count starts at zero in
// each cgroup.
type throttles struct {
	file       func() string // returns the cpu.stat file of the current cgroup
	past, last float64       // in ns: total of the previous cgroups, last value of the current one
}

func (t *throttles) read() float64 {
	now := throttledNs(t.file())
	if now != now {
		return nan
	}

	if now < t.last {
		t.past += t.last
	}

	t.last = now
	return t.past + now
}

type guestsSampler struct {
	unopened
	root    Root
	dir     string
	own     []int
	threads []guestThread
	most    int // maximum number of threads so far
	buf     []byte
}

func (root Root) openGuests(o Options) (Sampler, error) {
	own, _ := root.ownProcesses(o)
	s := &guestsSampler{root: root, dir: root.proc(""), own: own, buf: make([]byte, 4096)}
	if !s.changed() {
		return nil, absent("the lab has no virtual machine")
	}

	return s, nil
}

// Sample reads the CPU times. If a guest has ended, or a new one has taken its place, the columns change.
// While a guest is missing, Sample searches for its successor.
func (s *guestsSampler) Sample(dst []float64) error {
	if len(s.threads) < s.most && s.changed() {
		return ErrColumns
	}

	at := len(s.threads)
	for _, t := range s.threads {
		if t.quota != nil {
			dst[at] = t.quota.read()
			at++
		}
	}

	for i, t := range s.threads {
		p, err := readPidStat(t.path, s.buf)
		if err != nil || p.start != t.start {
			if s.changed() {
				return ErrColumns
			}

			dst[i] = nan
			continue
		}

		dst[i] = float64(p.ticks) * nsPerTick
	}

	return nil
}

// changed searches for the threads again and reports whether they have changed.
func (s *guestsSampler) changed() bool {
	now := s.find()
	if slices.EqualFunc(now, s.threads, guestThread.is) {
		return false
	}

	for i, t := range now {
		k := slices.IndexFunc(s.threads, t.is)
		if k >= 0 && t.quota != nil {
			now[i].quota = cmp.Or(s.threads[k].quota, t.quota)
		}
	}

	s.threads, s.most, s.columns = now, max(s.most, len(now)), nil
	for _, t := range now {
		s.columns = append(s.columns, t.label+"/guest_cpu_ns")
	}

	for _, t := range now {
		if t.quota != nil {
			s.columns = append(s.columns, t.label+"/guest_throttled_ns")
		}
	}

	return true
}

// find lists the threads of all emulators among the lab's processes, sorted by label.
func (s *guestsSampler) find() []guestThread {
	parents := map[int]int{}
	var emulators []int
	all, _ := processes(s.dir)
	for _, number := range all {
		p, err := readPidStat(s.dir+"/"+number+"/stat", s.buf)
		if err != nil {
			continue
		}

		parents[p.pid] = p.parent
		if strings.HasPrefix(nameOf(s.buf), "qemu") {
			emulators = append(emulators, p.pid)
		}
	}

	var out []guestThread
	for _, pid := range emulators {
		if s.ours(pid, parents) {
			out = append(out, s.threadsOf(pid)...)
		}
	}

	slices.SortFunc(out, func(a, b guestThread) int { return strings.Compare(a.label, b.label) })
	return out
}

func (s *guestsSampler) ours(pid int, parents map[int]int) bool {
	for depth := 0; pid > 0 && depth < maxDepth; depth++ {
		if slices.Contains(s.own, pid) {
			return true
		}

		pid = parents[pid]
	}
	return false
}

func (s *guestsSampler) threadsOf(pid int) []guestThread {
	process := filepath.Join(s.dir, strconv.Itoa(pid))
	line, _ := os.ReadFile(filepath.Join(process, "cmdline"))
	guest := cmp.Or(guestName(line), "qemu"+strconv.Itoa(pid))
	var out []guestThread
	for _, path := range matches(filepath.Join(process, "task", "*", "stat")) {
		p, err := readPidStat(path, s.buf)
		if err != nil {
			continue
		}

		comm, _ := os.ReadFile(filepath.Join(filepath.Dir(path), "comm"))
		label := threadLabel(string(bytes.TrimSpace(comm)))
		if p.pid == pid {
			label = "main"
		}

		if label != "" {
			t := guestThread{label: guest + "/" + label, path: path, start: p.start}
			if label != "main" && s.root.Proc == "" {
				// The quota of a trial moves the thread to another cgroup during the observation.
				now := func() string { return kernel.ThrottleFile(pid, p.pid) }
				if now() != "" {
					t.quota = &throttles{file: now}
				}
			}

			out = append(out, t)
		}
	}

	return out
}

// throttledNs reads the throttled time from cpu.stat. It is in nanoseconds in cgroup v1, and in
// microseconds in v2.
func throttledNs(path string) float64 {
	b, err := os.ReadFile(path)
	times := []float64{nan, nan}
	if err != nil || parsePairs(b, map[string]int{"throttled_time": 0, "throttled_usec": 1}, times) != nil {
		return nan
	}

	if times[0] == times[0] {
		return times[0]
	}

	return times[1] * 1000
}

// threadLabel returns the label of a vCPU thread from its name, such as "CPU 0/TCG" or "CPU 0/KVM". For other
// threads of QEMU, it returns "".
func threadLabel(comm string) string {
	rest, ok := strings.CutPrefix(comm, "CPU ")
	number, _, found := strings.Cut(rest, "/")
	if n, err := strconv.ParseUint(number, 10, 16); ok && found && err == nil {
		return "vcpu" + strconv.FormatUint(n, 10)
	}

	return ""
}

// guestName returns the value of QEMU's option -name in the contents of /proc/<pid>/cmdline, without
// suboptions.
func guestName(line []byte) string {
	words := strings.Split(string(line), "\x00")
	i := slices.Index(words, "-name")
	if i < 0 || i+1 >= len(words) {
		return ""
	}

	name, _, _ := strings.Cut(words[i+1], ",")
	if strings.Contains(name, "/") {
		return ""
	}

	return name
}

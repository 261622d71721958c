package traffic

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// meter reads the counters of flows on its own thread, at regular ticks from the beginning of the load until
// senders stop, and at the start and end of the window.
type meter struct {
	flows    []Flow
	interval int64
	start    Mark
	end      Mark
	lateMax  int64 // maximum delay of a tick

	scheduling string
}

// Mark holds the resource usage of the process at the start or end of the window.
type Mark struct {
	late         int64 // delay in ns with which the usage was read
	user, system int64
	threads      []int64
	cores        []int
}

func newMeter(flows []Flow, interval time.Duration) *meter {
	if interval <= 0 {
		interval = DefaultInterval
	}
	return &meter{flows: flows, interval: int64(interval) * int64(1+(len(flows)-1)/flowsAtOnce)}
}

// flowsAtOnce is the number of flows above which the interval of the series increases, to limit the total
// size of the series.
const flowsAtOnce = 512

// run reads the counters until the load stops. Ticks are aligned to the start of the window.
func (m *meter) run(p *Phases, tids []atomic.Int64) {
	OwnThread()
	m.scheduling = Raise() // the meter mostly sleeps, and its readings define the window
	due := p.Start - (p.Start-p.Begin)/m.interval*m.interval
	for due <= p.Stop {
		SleepUntil(due, &p.Abandoned)
		if p.Abandoned.Load() && Monotonic() < due {
			for _, f := range m.flows { // one sample per flow, so that the series covers the whole load
				f.Sample(Monotonic(), NoEdge)
			}
			return
		}

		m.tick(p, due, tids)
		due = m.next(p, due)
	}
}

// next returns the time of the tick that follows due. The start and the end of the window are always
// ticks. Other ticks are skipped if they are in the past.
func (m *meter) next(p *Phases, due int64) int64 {
	n := due + m.interval
	if due == p.End {
		n = p.Start + ((p.End-p.Start)/m.interval+1)*m.interval
	}

	late := Monotonic() - n
	if late > 0 {
		n += late / m.interval * m.interval
	}

	for _, e := range []int64{p.Start, p.End} {
		if due < e && n > e {
			n = e
		}
	}

	return n
}

func (m *meter) tick(p *Phases, due int64, tids []atomic.Int64) {
	at := Monotonic()
	e := NoEdge
	switch due {
	case p.Start:
		e, m.start = StartEdge, TakeMark(tids)
		m.start.late = at - due
	case p.End:
		e, m.end = EndEdge, TakeMark(tids)
		m.end.late = at - due
	}

	m.lateMax = max(m.lateMax, at-due)
	for _, f := range m.flows {
		f.Sample(Monotonic(), e)
	}

	if e == EndEdge {
		m.end.Place(tids)
	}
}

// TakeMark reads the resource usage of the process and its threads so far.
func TakeMark(tids []atomic.Int64) Mark {
	k := Mark{threads: make([]int64, len(tids)), cores: make([]int, len(tids))}
	k.user, k.system = processCPU()
	for i := range tids {
		k.cores[i] = -1
		tid := tids[i].Load()
		if tid != 0 {
			k.threads[i] = threadCPU(int(tid))
		}
	}

	return k
}

// Place adds the cores on which the threads ran last. It is not part of TakeMark, because it is slow.
func (k *Mark) Place(tids []atomic.Int64) {
	for i := range tids {
		tid := tids[i].Load()
		if tid != 0 {
			k.cores[i] = lastCPU(int(tid))
		}
	}
}

// UsageBetween returns the resource usage between two marks.
func UsageBetween(start, end Mark) record.EndUsage {
	u := record.EndUsage{
		UserNs:      end.user - start.user,
		SystemNs:    end.system - start.system,
		CPUs:        AllowedCPUs(),
		MemoryBytes: peakMemory(),
		EdgeLateNs:  max(start.late, end.late),
	}
	u.NUMANodes = numaNodes(u.CPUs)
	if !reportsThreads {
		return u
	}

	for i := range end.threads {
		u.ThreadsNs = append(u.ThreadsNs, max(0, end.threads[i]-start.threads[i]))
	}

	u.ThreadCPUs = end.cores
	return u
}

// numaNodes returns the NUMA nodes of the cores, or nil if the kernel does not list them.
func numaNodes(cpus []int) []int {
	var nodes []int
	dirs, _ := filepath.Glob("/sys/devices/system/node/node[0-9]*")
	for _, dir := range dirs {
		n, err := strconv.Atoi(strings.TrimPrefix(filepath.Base(dir), "node"))
		if err != nil {
			continue
		}

		if slices.ContainsFunc(cpus, func(cpu int) bool {
			_, err := os.Stat(filepath.Join(dir, "cpu"+strconv.Itoa(cpu)))
			return err == nil
		}) {
			nodes = append(nodes, n)
		}
	}

	slices.Sort(nodes)
	return nodes
}

// lastCPU returns the core on which a thread of this process ran last, or -1 if the kernel does not report
// it.
func lastCPU(tid int) int {
	b, _ := os.ReadFile("/proc/self/task/" + strconv.Itoa(tid) + "/stat")
	return cpuOf(string(b))
}

// cpuOf parses field 39 in a line of proc_pid_stat(5). The second field, in parentheses, may contain any
// character. It returns -1 if there is no such field.
func cpuOf(stat string) int {
	fields := strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:])
	if len(fields) < 37 {
		return -1
	}

	n, err := strconv.Atoi(fields[36])
	if err != nil || n < 0 {
		return -1
	}

	return n
}

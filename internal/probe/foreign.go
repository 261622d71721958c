package probe

import (
	"bytes"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// pidStat holds the fields of /proc/<pid>/stat that are used. ticks is the CPU time of the process.
// childTicks is the CPU time of its children that have ended and been waited for.
type pidStat struct {
	pid, parent int
	kernel      bool
	ticks       uint64
	childTicks  uint64
	start       uint64
}

// kthreadFlag is PF_KTHREAD from include/linux/sched.h.
const kthreadFlag = 0x00200000

var errPidStat = errors.New("parse process statistics: want the fields of proc_pid_stat(5)")

// parsePidStat parses /proc/<pid>/stat (fs/proc/array.c, do_task_stat). The name in parentheses may
// contain any character.
func parsePidStat(b []byte) (pidStat, error) {
	open := bytes.IndexByte(b, '(')
	end := bytes.LastIndexByte(b, ')')
	if open < 0 || end < open {
		return pidStat{}, errPidStat
	}

	pid, ok := number(trim(b[:open]))
	if !ok || pid > 1<<30 {
		return pidStat{}, errPidStat
	}

	p := pidStat{pid: int(pid)}
	rest := b[end+1:]
	for field := 3; field <= 22; field++ {
		var w []byte
		w, rest = word(rest)
		v, ok := signed(w)
		if field == 3 {
			continue // the state of the process, a letter
		}

		if !ok {
			return pidStat{}, errPidStat
		}

		switch field {
		case 4:
			p.parent = int(min(max(v, 0), 1<<30))
		case 9:
			p.kernel = v >= 0 && uint64(v)&kthreadFlag != 0
		case 14, 15:
			p.ticks += uint64(max(v, 0))
		case 16, 17:
			p.childTicks += uint64(max(v, 0))
		case 22:
			p.start = uint64(max(v, 0))
		}
	}

	return p, nil
}

// readPidStat reads the stat file of a process or thread. It avoids package os, which would register each
// file with the runtime's poller.
func readPidStat(path string, buf []byte) (pidStat, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return pidStat{}, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	defer unix.Close(fd)
	n, err := pread(fd, buf, 0)
	if err != nil {
		return pidStat{}, &fs.PathError{Op: "read", Path: path, Err: err}
	}

	return parsePidStat(buf[:n])
}

// processes lists the ids of all processes in a directory such as /proc.
func processes(dir string) ([]string, error) {
	d, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	names, err := d.Readdirnames(-1)
	return slices.DeleteFunc(names, func(n string) bool { return n[0] < '1' || n[0] > '9' }), err
}

func foreign(root Root) Probe {
	return Probe{
		Name:  "foreign",
		Scope: record.ScopeHost,
		Slow:  true,
		Rare:  true,
		Stems: []record.Metric{
			counter("foreign_cpu_ns", "ns",
				"CPU time of user processes outside the lab, since observation began"),
			counter("lab_cpu_ns", "ns", "CPU time of the lab's own processes, since observation began"),
			level("foreign_processes", "count", "user processes outside the lab"),
		},
		Source: root.openForeign,
	}
}

// foreignSampler walks all processes. A process belongs to the lab if it is this process, one of
// Options.Own, or a descendant of one of them, even if its parent has ended.
type foreignSampler struct {
	unopened
	dir     string
	own     map[int]bool
	known   map[int]*process
	round   uint64
	foreign uint64 // CPU time of processes outside the lab since the probe first read /proc, in ticks
	lab     uint64 // CPU time of the lab's processes since then
	live    int    // number of processes outside the lab
	buf     []byte
}

// kernelRounds is the number of walks after which a known kernel thread is checked again, because a process
// may have reused its id.
const kernelRounds = 30

func (root Root) openForeign(o Options) (Sampler, error) {
	s := &foreignSampler{
		unopened: unopened{columns{"foreign_cpu_ns", "lab_cpu_ns", "foreign_processes"}},
		dir:      root.proc(""),
		own:      map[int]bool{},
		known:    map[int]*process{},
		buf:      make([]byte, 4096),
	}
	own, err := root.ownProcesses(o)
	if err != nil {
		return nil, absent("%v: this machine's processes cannot be seen", err)
	}

	for _, pid := range own {
		s.own[pid] = true
	}

	if _, err := s.stat("1"); err != nil {
		return nil, absent("other users' processes are hidden here (hidepid): %v", err)
	}

	// Process 2 is the parent of all kernel threads. It is visible only in the initial process namespace.
	if p, err := s.stat("2"); err != nil || !p.kernel {
		return nil, absent("the machine's processes cannot be seen from inside a process namespace")
	}

	return s, s.Sample(make([]float64, 3))
}

// ownProcesses returns the processes that o lists, and this process if it has an id in root's namespace. It
// returns an error if root does not tell.
func (root Root) ownProcesses(o Options) ([]int, error) {
	self, err := os.Readlink(root.proc("self"))
	if pid, wrong := strconv.Atoi(self); wrong == nil {
		return append(slices.Clone(o.Own), pid), err
	}
	return o.Own, err
}

func (s *foreignSampler) stat(pid string) (pidStat, error) {
	return readPidStat(filepath.Join(s.dir, pid, "stat"), s.buf)
}

func (s *foreignSampler) Sample(dst []float64) error {
	names, err := processes(s.dir)
	if err != nil {
		return err
	}

	first := s.round == 0
	s.round++
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil || s.skip(pid) {
			continue
		}

		if now, err := s.stat(name); err == nil {
			s.see(now)
		}
	}

	s.settle(first)
	dst[0], dst[1] = float64(s.foreign)*nsPerTick, float64(s.lab)*nsPerTick
	dst[2] = float64(s.live)
	return nil
}

func (s *foreignSampler) skip(pid int) bool {
	p := s.known[pid]
	if p == nil || !p.kernel || (s.round+uint64(pid))%kernelRounds == 0 {
		return false
	}

	p.round = s.round
	return true
}

// process holds a process that the walk has seen. grown and childGrown are the increases of ticks and
// childTicks since the previous walk, before they are added to a group.
type process struct {
	pidStat
	lab               bool
	round             uint64 // number of the last walk that saw the process
	grown, childGrown uint64
}

// see records the CPU times of a process. For a new process, the increase is its whole CPU time.
func (s *foreignSampler) see(now pidStat) {
	p := s.known[now.pid]
	if p == nil || p.start != now.start {
		p = &process{lab: s.own[now.pid]}
		s.known[now.pid] = p
	}

	p.grown = now.ticks - min(now.ticks, p.ticks)
	p.childGrown = now.childTicks - min(now.childTicks, p.childTicks)
	p.pidStat = now
	p.round = s.round
}

// settle ends a walk. It adds the increase of every process to its group, except in the first walk, which
// only records initial values.
func (s *foreignSampler) settle(first bool) {
	for pid, p := range s.known {
		if p.round != s.round && !p.kernel {
			s.discount(p)
		}

		p.lab = p.lab || s.ofLab(pid, 0)
	}

	maps.DeleteFunc(s.known, func(_ int, p *process) bool { return p.round != s.round })
	s.live = 0
	for _, p := range s.known {
		if p.kernel {
			continue
		}

		ticks := &s.lab
		if !p.lab {
			ticks = &s.foreign
			s.live++
		}

		if !first {
			*ticks += p.grown + p.childGrown
		}
	}
}

// discount avoids counting an ended process twice. The CPU time of an ended process moves into the child time
// of the process that waited for it: its parent, or the ancestor that inherited it. discount subtracts the
// part that was already counted. What remains is CPU time that no walk has seen, such as that of short-lived
// processes.
func (s *foreignSampler) discount(dead *process) {
	booked := dead.ticks + dead.childTicks
	p := s.known[dead.parent]
	for depth := 0; p != nil && booked > 0 && depth < maxDepth; depth++ {
		if p.round == s.round {
			take := min(booked, p.childGrown)
			p.childGrown -= take
			booked -= take
		}

		p = s.known[p.parent]
	}
}

// maxDepth limits the walk up the process tree, because ids are reused and an outdated parent could form a
// loop.
const maxDepth = 100

func (s *foreignSampler) ofLab(pid, depth int) bool {
	p := s.known[pid]
	if p == nil || p.kernel || depth > maxDepth {
		return false
	}
	return p.lab || s.own[pid] || s.ofLab(p.parent, depth+1)
}

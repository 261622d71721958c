package probe

import "maps"

// process is one that the walk has seen. The growths are those since the walk before, not yet booked.
type process struct {
	pidStat
	lab               bool
	round             uint64 // last seen in
	grown, childGrown uint64
}

// processTime is the CPU time of a group of processes since the first walk.
type processTime struct {
	ticks uint64
	live  int
}

func (t *processTime) ns() float64 { return float64(t.ticks) * nsPerTick }

// see takes note of a process. One that is new since the walk before has grown from nothing.
func (s *foreignSampler) see(now pidStat) {
	p := s.known[now.pid]
	if p == nil || p.start != now.start {
		p = &process{lab: s.own[now.pid]}
		s.known[now.pid] = p
	}
	p.grown, p.childGrown = growth(p.ticks, now.ticks), growth(p.childTicks, now.childTicks)
	p.pidStat, p.round = now, s.round
}

func growth(before, now uint64) uint64 {
	if now < before {
		return 0
	}
	return now - before
}

// settle ends a walk: it books the growth of every process to its group. The first walk only notes where
// everything starts.
func (s *foreignSampler) settle(first bool) {
	for pid, p := range s.known {
		if p.round != s.round && !p.kernel {
			s.discount(p)
		}
		p.lab = p.lab || s.ofLab(pid, 0)
	}
	maps.DeleteFunc(s.known, func(_ int, p *process) bool { return p.round != s.round })
	s.foreign.live, s.lab.live = 0, 0
	for _, p := range s.known {
		if p.kernel {
			continue
		}
		t := &s.foreign
		if p.lab {
			t = &s.lab
		}
		t.live++
		if !first {
			t.ticks += p.grown + p.childGrown
		}
	}
}

// discount takes what a dead process had been booked for from the growth of the child time of whoever has
// waited for it: its parent, or an ancestor that it was handed to. What remains there is the time of
// processes, or of a last moment, that no walk has seen. So short-lived ones count as well.
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

// maxDepth bounds the walk up to the first process: numbers are given again, so that a stale parent could
// make a ring.
const maxDepth = 100

func (s *foreignSampler) ofLab(pid, depth int) bool {
	p := s.known[pid]
	if p == nil || p.kernel || depth > maxDepth {
		return false
	}
	return p.lab || s.own[pid] || s.ofLab(p.parent, depth+1)
}

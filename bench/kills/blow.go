package main

import (
	"math/rand/v2"
	"syscall"
	"time"
)

// Stretches of a run, in order; those of a trial are named after its phases.
const (
	atStart    = "start"      // of the process, until it says that the run has begun
	inLab      = "lab"        // building the lab and asking what it can do
	inCeiling  = "ceiling"    // measuring the tester's own ceiling
	inCommit   = "commit"     // the store has begun to write a finished trial
	inUndo     = "undo"       // putting everything back after the last trial
	inStopping = "stopping"   // putting everything back after a first signal in the window
	inReport   = "report"     // after the end of the run, until the process ends
	between    = "in between" // of two trials; not struck at
)

// moments are the stretches that the kills go round.
var moments = []string{
	atStart, inLab, inCeiling,
	"set-up", "verify-path", "idle-latency", "warm-up", "window", "drain", "collect",
	inCommit, inUndo, inStopping, inReport,
}

var signals = []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGKILL}

// blow is one planned kill.
type blow struct {
	number   int
	moment   string
	attached bool // on a lab that was there before
	signal   syscall.Signal
	again    time.Duration // 0, or after which the same signal comes a second time
	trial    float64       // which of the trials that have such a stretch: 0 the first, 1 behind the last
	within   float64       // which part of the stretch has passed
	resume   bool          // finish the run afterwards
	victim   string        // "" the run itself, else which of its processes
}

// plannedBlow makes the kills go round the moments, and the pairs of signal and lab round each moment, so
// that n kills spread as evenly as n allows.
func plannedBlow(seed uint64, i int) blow {
	r := rand.New(rand.NewPCG(seed, uint64(i)))
	p, k := i%len(moments), i/len(moments)
	b := blow{number: i + 1, moment: moments[p], signal: signals[(p+k)%3], attached: (p+k)%2 == 1}
	b.trial, b.within = r.Float64(), r.Float64()
	pause := 5*time.Millisecond + time.Duration(r.Float64()*float64(300*time.Millisecond))
	if b.signal == syscall.SIGINT && r.IntN(3) == 0 {
		b.again = pause
	}
	b.resume = r.IntN(3) == 0
	return b
}

func (b blow) name() string {
	name := map[syscall.Signal]string{syscall.SIGINT: "INT", syscall.SIGTERM: "TERM",
		syscall.SIGKILL: "KILL"}[b.signal]
	if b.again > 0 {
		name += " twice"
	}
	return name
}

func (b blow) lab() string {
	if b.attached {
		return "attached"
	}
	return "own"
}

// stretch is a part of a run that was seen: where it began and how long it was. Trials count from 1; 0 is
// outside of any.
type stretch struct {
	name  string
	trial int
	span  time.Duration
}

// aim finds the stretch of an earlier whole run that the blow is meant for.
func (b blow) aim(seen []stretch) (stretch, bool) {
	name := b.moment
	if b.victim != "" {
		name = "window"
	}
	switch name {
	case inCommit:
		name = "collect"
	case inStopping:
		name = "window"
	}
	var fit []stretch
	for _, s := range seen {
		if s.name == name {
			fit = append(fit, s)
		}
	}
	if len(fit) == 0 {
		return stretch{}, false
	}
	return fit[int(b.trial*float64(len(fit)))], true
}

package kills_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
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

// What is different where the routers are virtual machines: an image is built first, everything takes
// longer, and there are more processes that may die.
const (
	inBuild = "build" // building the image, from packages that are at hand

	// In the window dies, instead of the run:
	ofQEMU    = "QEMU"
	ofMachine = "machine" // the process that runs QEMU
	ofHolder  = "holder"  // the first process of the lab
)

// momentsOf are the stretches that the kills go round.
func momentsOf(guests bool) []string {
	moments := []string{
		atStart, inLab, inCeiling,
		"set-up", "verify-path", "idle-latency", "warm-up", "window", "drain", "collect",
		inCommit, inUndo, inStopping, inReport,
	}
	if guests {
		return append(moments, inBuild, ofQEMU, ofMachine, ofHolder)
	}
	return moments
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

// planned is the i-th kill of a series. They go round the moments, and the pairs of signal and lab round
// each moment, so that n kills spread as evenly as n allows. With guests the moments are taken in strides, so
// that a short series has some of all parts of a run.
func planned(guests bool, seed uint64, i int) blow {
	r := rand.New(rand.NewPCG(seed, uint64(i)))
	moments := momentsOf(guests)
	at := i
	if guests {
		at = 7 * i // 7 has no divisor in common with the number of moments
	}

	p := at % len(moments)
	k := i / len(moments)
	b := blow{
		number:   i + 1,
		moment:   moments[p],
		signal:   signals[(p+k)%3],
		attached: (p+k)%2 == 1,
		trial:    r.Float64(),
		within:   r.Float64(),
	}
	// The order of the draws decides what a seed means.
	if guests {
		b.resume = r.IntN(5) == 0
	}

	pause := 5*time.Millisecond + time.Duration(r.Float64()*float64(300*time.Millisecond))
	if b.signal == syscall.SIGINT && r.IntN(3) == 0 {
		b.again = pause
	}

	if !guests {
		b.resume = r.IntN(3) == 0
	}

	switch b.moment {
	case inBuild:
		b.attached = false
	case ofQEMU, ofMachine, ofHolder:
		b.victim = b.moment
		b.signal = syscall.SIGKILL
		b.again = 0
		b.attached = false
		b.resume = false
	}

	return b
}

func (b blow) name() string {
	name := strings.TrimPrefix(unix.SignalName(b.signal), "SIG")
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
	switch {
	case name == inCommit:
		name = "collect"
	case name == inStopping, b.victim != "":
		name = "window"
	}

	fit := slices.DeleteFunc(slices.Clone(seen), func(s stretch) bool { return s.name != name })
	if len(fit) == 0 {
		return stretch{}, false
	}

	return fit[int(b.trial*float64(len(fit)))], true
}

func TestBlowsCoverEveryMomentSignalAndLab(t *testing.T) {
	tests := []struct {
		kills, least, kinds int
	}{{24, 1, 24}, {84, 6, 84}, {200, 14, 84}}
	for _, tt := range tests {
		t.Run(fmt.Sprint(tt.kills), func(t *testing.T) {
			per := map[string]int{}
			kinds := map[string]bool{}
			signals := map[string]int{}
			for i := range tt.kills {
				b := planned(false, 1, i)
				per[b.moment]++
				signals[b.signal.String()]++
				kinds[fmt.Sprint(b.moment, b.signal, b.attached)] = true
				if b != planned(false, 1, i) {
					t.Errorf("blow %d: got another one the second time, want the same", i)
				}
			}

			for _, m := range momentsOf(false) {
				if per[m] < tt.least {
					t.Errorf("kills in %s: got %d, want at least %d", m, per[m], tt.least)
				}
			}

			got := len(kinds)
			if got != tt.kinds {
				t.Errorf("combinations of moment, signal and lab: got %d, want %d", got, tt.kinds)
			}

			for name, n := range signals {
				if n < tt.kills/3-1 {
					t.Errorf("kills by %s: got %d of %d, want a third", name, n, tt.kills)
				}
			}
		})
	}
}

func TestGuestBlows(t *testing.T) {
	per := map[string]int{}
	moments := momentsOf(true)
	for i := range 3 * len(moments) {
		b := planned(true, 1, i)
		per[b.moment]++
		if b.victim != "" && (b.attached || b.name() != "KILL") {
			t.Errorf("blow %d at %s: got %s on lab %s, want KILL on its own", i, b.victim, b.name(), b.lab())
		}
	}

	for _, m := range moments {
		if per[m] != 3 {
			t.Errorf("kills in %s: got %d in three rounds, want 3", m, per[m])
		}
	}
}

func TestAimFindsTheStretchOfAMoment(t *testing.T) {
	seen := []stretch{{inLab, 0, 1}, {"window", 1, 2}, {"collect", 1, 3}, {"window", 2, 4}}
	tests := []struct {
		blow blow
		want stretch
		ok   bool
	}{
		{blow{moment: inLab, trial: 0.99}, seen[0], true},
		{blow{moment: "window", trial: 0.1}, seen[1], true},
		{blow{moment: "window", trial: 0.99}, seen[3], true},
		{blow{moment: inStopping, trial: 0.5}, seen[3], true},
		{blow{moment: inCommit}, seen[2], true},
		{blow{moment: "drain"}, stretch{}, false},
	}
	for _, tt := range tests {
		if got, ok := tt.blow.aim(seen); got != tt.want || ok != tt.ok {
			t.Errorf("aim of %s %.2f: got %v and %t, want %v and %t", tt.blow.moment, tt.blow.trial, got, ok,
				tt.want, tt.ok)
		}
	}
}

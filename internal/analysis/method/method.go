// Package method decides what a search does next, and what it has found: pure functions of the trials so far.
// It touches no machine, knows no engine and keeps no state, so that a search can be resumed, repeated on
// paper and evaluated again from stored trials.
//
// The search is MLRsearch as specified by RFC 9971 (Multiple Loss Ratio Search): load classification and
// conditional throughput are those of its appendices. How loads are chosen is left to implementations; here
// it follows the heuristics that FD.io CSIT published.
package method

import (
	"fmt"
	"slices"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// Trial is one finished trial of a search: its input, load and duration, and the deciding part of its output.
type Trial struct {
	record.TrialInput
	// Effective is the trial's part in sums of durations; 0 means Duration (RFC 9971, "Trial Effective
	// Duration").
	Effective time.Duration
	Loss      float64 // trial loss ratio, 0…1; unsent frames count as lost
	// Delay is the delay that the load added, if HasDelay. Only goals with MaxDelay consider it, and for them
	// a trial without one is high-loss: it proves nothing.
	Delay    time.Duration
	HasDelay bool
}

func (t Trial) seconds() float64 {
	if t.Effective > 0 {
		return t.Effective.Seconds()
	}
	return t.Duration.Seconds()
}

// checkGoal returns an error for what RFC 9971 or this implementation does not allow.
func checkGoal(g record.Goal) error {
	bad := func(format string, args ...any) error {
		return fmt.Errorf("check goal %s: "+format, append([]any{g.Name}, args...)...)
	}
	switch {
	case g.Name == "":
		return fmt.Errorf("check goal: it has no name")
	case g.FinalDuration <= 0 || g.DurationSum <= 0 || g.InitialDuration <= 0:
		return bad("durations must be positive")
	case g.InitialDuration > g.FinalDuration:
		return bad("initial trials of %s are longer than final ones of %s", g.InitialDuration,
			g.FinalDuration)
	case g.DurationSum < g.FinalDuration:
		return bad("a duration sum of %s is less than one final trial of %s", g.DurationSum, g.FinalDuration)
	case !(g.LossRatio >= 0 && g.LossRatio < 1):
		return bad("loss ratio %v is not in [0, 1)", g.LossRatio)
	case !(g.ExceedRatio >= 0 && g.ExceedRatio < 1):
		return bad("exceed ratio %v is not in [0, 1)", g.ExceedRatio)
	case !(g.Width > 0 && g.Width < 1):
		return bad("width %v is not in (0, 1)", g.Width)
	case g.MaxDelay < 0:
		return bad("a delay of %s is less than none", g.MaxDelay)
	case g.Coarser < 0 || g.Coarser == 0 && g.InitialDuration < g.FinalDuration:
		return bad("trials cannot grow from %s to %s without a coarser target", g.InitialDuration,
			g.FinalDuration)
	case g.Coarser > 10:
		return bad("%d coarser targets are more than 10", g.Coarser)
	case g.Expansion < 2:
		return bad("an expansion of %d does not widen", g.Expansion)
	}
	return nil
}

// lossOf returns the loss ratio of a trial for the goal: one that violates the delay objective counts as a
// total loss.
func lossOf(g record.Goal, t Trial) float64 {
	if g.MaxDelay > 0 && (!t.HasDelay || t.Delay > g.MaxDelay) {
		return 1
	}
	return t.Loss
}

// Config is the input of a controller (RFC 9971, "Controller Input").
type Config struct {
	Goals   []record.Goal
	Min     float64       // minimum load of one interface, per second
	Max     float64       // maximum
	Warmup  time.Duration // one trial at Max that does not count; 0 = none
	MaxTime time.Duration // of all trials' effective durations; 0 = no limit
}

// Check returns an error if the configuration cannot be searched.
func (c Config) Check() error {
	switch {
	case len(c.Goals) == 0:
		return fmt.Errorf("check search: it has no goal")
	case !(c.Min > 0 && c.Max > c.Min):
		return fmt.Errorf("check search: loads from %v to %v are no range above zero", c.Min, c.Max)
	case c.Warmup < 0 || c.MaxTime < 0:
		return fmt.Errorf("check search: a time is negative")
	}

	seen := map[string]bool{}
	for _, g := range c.Goals {
		if err := checkGoal(g); err != nil {
			return err
		}

		if seen[g.Name] {
			return fmt.Errorf("check search: two goals are named %s", g.Name)
		}

		seen[g.Name] = true
		frames := c.Min * g.InitialDuration.Seconds()
		if frames < 1 {
			return fmt.Errorf("check search: at the least load, a trial of %s has less than one frame",
				g.InitialDuration)
		}
	}

	return nil
}

// Preset is a named set of goals.
type Preset struct {
	Name, Doc string
	Goals     []record.Goal
	Warmup    time.Duration
	// Overhead: the pauses of a trial count in its effective duration, as in FD.io CSIT.
	Overhead bool
}

// Presets lists all presets, the fastest first.
func Presets() []Preset {
	ndr := func(sum time.Duration, width float64) record.Goal { return seconds("ndr", 0, sum, width) }
	pdr := func(sum time.Duration, width float64) record.Goal { return seconds("pdr", 0.005, sum, width) }
	long := func(sum time.Duration, exceed float64) record.Goal {
		return record.Goal{
			Name:            "ndr",
			FinalDuration:   time.Minute,
			DurationSum:     sum,
			ExceedRatio:     exceed,
			Width:           0.005,
			InitialDuration: time.Second,
			Coarser:         2,
			Expansion:       2,
		}
	}
	return []Preset{
		{"smoke", "a first look: one goal of 0.5 % loss, 5 s a load, 2 % width",
			[]record.Goal{pdr(5*time.Second, 0.02)}, time.Second, true},
		{"quick", "no loss and 0.5 % loss, 11 s a load, 1 % width",
			[]record.Goal{ndr(11*time.Second, 0.01), pdr(11*time.Second, 0.01)}, time.Second, true},
		{"csit", "no loss and 0.5 % loss as FD.io CSIT searches them: 21 s a load, 0.5 % width",
			[]record.Goal{ndr(21*time.Second, 0.005), pdr(21*time.Second, 0.005)}, time.Second, true},
		{"rfc2544", "unconditionally compliant with RFC 2544, section 24: 60 s trials, no loss in any",
			[]record.Goal{long(time.Minute, 0)}, 0, false},
		{"tst009", "ETSI GS NFV-TST 009 binary search with loss verification, max(r) = 2: of two 60 s " +
			"trials one may lose", []record.Goal{long(2*time.Minute, 0.5)}, 0, false},
	}
}

// seconds returns a goal of one-second trials; half of them may exceed the loss.
func seconds(name string, loss float64, sum time.Duration, width float64) record.Goal {
	return record.Goal{
		Name:            name,
		FinalDuration:   time.Second,
		DurationSum:     sum,
		LossRatio:       loss,
		ExceedRatio:     0.5,
		Width:           width,
		InitialDuration: time.Second,
		Coarser:         1,
		Expansion:       2,
	}
}

// PresetNames lists the names of all presets.
func PresetNames() []string {
	var names []string
	for _, p := range Presets() {
		names = append(names, p.Name)
	}
	return names
}

// PresetNamed finds a preset.
func PresetNamed(name string) (Preset, bool) {
	all := Presets()
	i := slices.IndexFunc(all, func(p Preset) bool { return p.Name == name })
	if i < 0 {
		return Preset{}, false
	}

	return all[i], true
}

// Package method implements the logic of a search: it determines the next trial and the result from the
// trials so far. Its functions are pure and do not depend on machines or engines, so a search can be resumed,
// simulated, and evaluated again from stored trials.
//
// The search is MLRsearch (Multiple Loss Ratio search) as specified by RFC 9971. Load classification and
// conditional throughput follow its appendices. RFC 9971 leaves the choice of loads to implementations; this
// one follows the heuristics published by FD.io CSIT.
package method

import (
	"fmt"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// Trial is a finished trial of a search with its load, its duration, and the results that the search uses.
type Trial struct {
	record.TrialInput
	// Effective is the duration that the trial adds to sums; 0 means Duration (RFC 9971, "Trial Effective
	// Duration").
	Effective time.Duration
	Loss      float64 // trial loss ratio, 0…1; unsent frames count as lost
	// Delay is the delay that the load added, if HasDelay is set. Only goals with MaxDelay use it. For these
	// goals, a trial whose delay was not measured is high-loss.
	Delay    time.Duration
	HasDelay bool
}

func (t Trial) seconds() float64 {
	if t.Effective > 0 {
		return t.Effective.Seconds()
	}
	return t.Duration.Seconds()
}

// checkGoal returns an error for values that RFC 9971 or this implementation does not allow.
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

// lossOf returns the loss ratio of a trial for the goal. The ratio of a trial that exceeds MaxDelay is 1.
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
	Max     float64       // maximum load of one interface, per second
	Warmup  time.Duration // duration of an initial trial at Max whose result does not count; 0 means none
	MaxTime time.Duration // limit of the sum of effective durations; 0 means no limit
}

// Check returns an error if the configuration is not valid.
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
	// Overhead adds the pauses of a trial to its effective duration, as FD.io CSIT does.
	Overhead bool
}

// Presets returns all presets, fastest first.
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

// seconds returns a goal with trials of one second, half of which may exceed the loss ratio.
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

// PresetNames returns the names of all presets.
func PresetNames() []string {
	var names []string
	for _, p := range Presets() {
		names = append(names, p.Name)
	}
	return names
}

// PresetNamed returns the named preset, and false if there is none.
func PresetNamed(name string) (Preset, bool) {
	for _, p := range Presets() {
		if p.Name == name {
			return p, true
		}
	}
	return Preset{}, false
}

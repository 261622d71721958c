package method

import (
	"slices"
	"time"
)

// Preset is a named set of goals.
type Preset struct {
	Name, Doc string
	Goals     []Goal
	Warmup    time.Duration
	// Overhead says that the pauses of a trial count in its effective duration, as FD.io CSIT has it.
	Overhead bool
}

// Presets lists all, the fastest first.
func Presets() []Preset {
	ndr := func(sum time.Duration, width float64) Goal { return seconds("ndr", 0, sum, width) }
	pdr := func(sum time.Duration, width float64) Goal { return seconds("pdr", 0.005, sum, width) }
	long := func(sum time.Duration, exceed float64) Goal {
		return Goal{Name: "ndr", FinalDuration: time.Minute, DurationSum: sum, ExceedRatio: exceed,
			Width: 0.005, InitialDuration: time.Second, Coarser: 2, Expansion: 2}
	}
	return []Preset{
		{"smoke", "a first look: one goal of 0.5 % loss, 5 s a load, 2 % width",
			[]Goal{pdr(5*time.Second, 0.02)}, time.Second, true},
		{"quick", "no loss and 0.5 % loss, 11 s a load, 1 % width",
			[]Goal{ndr(11*time.Second, 0.01), pdr(11*time.Second, 0.01)}, time.Second, true},
		{"csit", "no loss and 0.5 % loss as FD.io CSIT searches them: 21 s a load, 0.5 % width",
			[]Goal{ndr(21*time.Second, 0.005), pdr(21*time.Second, 0.005)}, time.Second, true},
		{"rfc2544", "unconditionally compliant with RFC 2544, section 24: 60 s trials, no loss in any",
			[]Goal{long(time.Minute, 0)}, 0, false},
		{"tst009", "ETSI GS NFV-TST 009 binary search with loss verification, max(r) = 2: of two 60 s " +
			"trials one may lose", []Goal{long(2*time.Minute, 0.5)}, 0, false},
	}
}

// seconds is a goal of one-second trials, of which half may exceed the loss.
func seconds(name string, loss float64, sum time.Duration, width float64) Goal {
	return Goal{Name: name, FinalDuration: time.Second, DurationSum: sum, LossRatio: loss, ExceedRatio: 0.5,
		Width: width, InitialDuration: time.Second, Coarser: 1, Expansion: 2}
}

// PresetNames are the names of all.
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

package model

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/statistics"
	"github.com/chokepoint-lab/chokepoint/internal/catalogue"
	"github.com/chokepoint-lab/chokepoint/internal/unit"
)

// Observation is the rate at one combination of levels, by block; a published figure is one block.
type Observation struct {
	Levels  map[string]string
	ByBlock map[int]float64
	// Runs holds the run of each block, where the observations are of several runs; else nil.
	Runs map[int]int
	// Defaults holds the levels that these factors have here if nobody sets them.
	Defaults map[string]string
	Suspect  bool
}

// Observe converts published rates to observations, and names their factors.
func Observe(results []catalogue.Result) (out []Observation, names []string) {
	for _, at := range attributes {
		names = append(names, at.name)
	}

	for _, r := range results {
		if r.GoodputBps == nil {
			continue
		}

		o := Observation{Levels: map[string]string{}, ByBlock: map[int]float64{0: *r.GoodputBps}}
		for _, at := range attributes {
			level := at.of(r)
			if level != "" {
				o.Levels[at.name] = level
			}
		}

		out = append(out, o)
	}
	return out, names
}

// Effect is the ratio of the rate at one level of a factor to that at another: the geometric mean over all
// settings of the other factors at which every level of the factor was measured.
type Effect struct {
	Factor   string   `json:"factor"`
	Level    string   `json:"level"`
	Against  string   `json:"against"`
	Ratio    Interval `json:"ratio"`    // the median over the blocks, with its interval from six of them on
	Settings int      `json:"settings"` // of the other factors
	// Apart: no setting has all levels, this one is over those that have both. Another level of the factor
	// may be over other settings.
	Apart   bool `json:"settings_apart,omitempty"`
	Default bool `json:"against_default,omitempty"` // the level that nobody has to set
	// Blocks counts with Between runs, or runs that are compared with each other.
	Blocks int `json:"blocks"`
	// Unused blocks, out of Measured, lack a rate at one of the settings.
	Unused   int  `json:"unused_blocks,omitempty"`
	Measured int  `json:"measured_blocks,omitempty"`
	Suspect  bool `json:"suspect,omitempty"` // one of the cells is
	// Between: the levels were measured in different runs, so whatever else changed between these is part of
	// the ratio, and each run counts once, however many blocks it has.
	Between bool    `json:"between_runs,omitempty"`
	PValue  float64 `json:"p_value,omitempty"` // adjusted for all effects and interactions
	Verdict string  `json:"verdict"`

	logs map[int]float64 // by block
}

// Interaction is the ratio of the effect of one factor at a level of another factor to that at a further
// level.
type Interaction struct {
	Effect
	With         string   `json:"with"`
	At           string   `json:"at"`
	Beside       string   `json:"beside"` // the further level
	EffectAt     Interval `json:"effect_at"`
	EffectBeside Interval `json:"effect_beside"`
}

// Chart shows the rate by the levels of one factor or two.
type Chart struct {
	Factors  []string `json:"factors"`
	Settings int      `json:"settings"`     // of the other factors
	At       string   `json:"at,omitempty"` // their levels there, in words
	Bars     []Bar    `json:"bars"`
}

// Bar shows a rate: the geometric mean over the settings of the other factors that all bars share, in the
// blocks from which the chart's effect was computed.
type Bar struct {
	Levels []string `json:"levels"`
	Rate   float64  `json:"rate"` // in bit/s, or operations per second
}

// Effects holds the effects of all factors, and for each pair of factors the strongest of their interactions.
type Effects struct {
	Of           string        `json:"of,omitempty"`     // kind of load, or library and operations of ciphers
	Metric       string        `json:"metric,omitempty"` // metric of the effects, if not goodput_bps
	Main         []Effect      `json:"effects"`
	Interactions []Interaction `json:"interactions"` // the strongest first
	Charts       []Chart       `json:"charts"`       // of interactions, else of the strongest effect
	// Loads holds the effects on loads other than TCP streams, each kind by itself.
	Loads []Effects `json:"loads,omitempty"`
	// Ciphers holds the effects on the results of engine cipher in the same run, each library and purpose by
	// itself.
	Ciphers []Effects `json:"ciphers,omitempty"`
	// Runs lists the runs, where the effects are of several, with what was set by hand for each.
	Runs []EffectRun `json:"runs,omitempty"`
	// Differs lists what else differs between the runs: each is part of an effect between runs.
	Differs []string `json:"also_differs,omitempty"`
}

// EffectRun is one of several runs whose effects were computed together.
type EffectRun struct {
	Run    string            `json:"run"`
	Levels map[string]string `json:"levels,omitempty"` // of the factors that are constant in each run
}

// Parts returns the effects on the goodput of TCP, then those on each other kind of load and on each part of
// the ciphers.
func (e *Effects) Parts() []Effects { return slices.Concat([]Effects{*e}, e.Loads, e.Ciphers) }

// FindEffects computes the effects of the factors named, in that order, and their interactions. The effects
// of a factor are relative to its first level, or the first that was measured at the same settings. A block
// counts if all of its settings were measured. Factors that change together are one, "tunnel+mtu": their
// effects cannot be separated.
//
// A verdict rests on an exact test of all within runs together, or of all between runs, and on the interval,
// by the rule of every comparison: fewer than six blocks, or between runs fewer than six of these, give none.
func FindEffects(observations []Observation, names []string) Effects {
	m := matrix{observations}
	names = m.merge(names)
	out := Effects{Main: []Effect{}, Interactions: []Interaction{}, Charts: []Chart{}}
	for i, name := range names {
		out.Main = append(out.Main, m.mainEffects(name)...)
		for _, with := range names[i+1:] {
			out.Interactions = append(out.Interactions, m.interactions(name, with)...)
		}
	}

	var all []*Effect
	for i := range out.Main {
		all = append(all, &out.Main[i])
	}

	for i := range out.Interactions {
		all = append(all, &out.Interactions[i].Effect)
	}

	check(all)
	out.Interactions = strongest(out.Interactions)
	for _, x := range out.Interactions {
		if len(out.Charts) < maxCharts && (x.Found() || x.Ratio.Level == 0) {
			out.Charts = append(out.Charts, m.chart(m.settings(x.Factor, x.With), []string{
				cell(x.Level, x.At), cell(x.Level, x.Beside), cell(x.Against, x.At),
				cell(x.Against, x.Beside)}, x.Factor, x.With))
		}
	}

	if len(out.Charts) == 0 && len(out.Main) > 0 {
		x := slices.MinFunc(out.Main, bySize)
		_, settings := m.shared(x.Factor)
		out.Charts = append(out.Charts, m.chart(settings, []string{x.Level, x.Against}, x.Factor))
	}

	return out
}

const maxCharts = 3

// Several reports whether the effects of more than one factor are known.
func (e *Effects) Several() bool {
	return slices.ContainsFunc(e.Parts(), func(part Effects) bool {
		return slices.ContainsFunc(part.Main, func(x Effect) bool { return x.Factor != part.Main[0].Factor })
	})
}

// UnusedWords says how many blocks the effects and interactions leave out, and why.
func (e *Effects) UnusedWords() (out []string) {
	of := map[string][]string{} // factors
	var texts []string
	add := func(x Effect, name string) {
		if x.Unused == 0 {
			return
		}

		text := fmt.Sprintf("%d of %d blocks are not used: not every cell of the ratio has a rate there",
			x.Unused, x.Measured)
		if of[text] == nil {
			texts = append(texts, text)
		}

		if !slices.Contains(of[text], name) {
			of[text] = append(of[text], name)
		}
	}
	for _, x := range e.Main {
		add(x, x.Factor)
	}

	for _, x := range e.Interactions {
		add(x.Effect, x.Factor+" with "+x.With)
	}

	for _, text := range texts {
		out = append(out, strings.Join(of[text], ", ")+": "+text)
	}

	return out
}

// Words returns the verdict, and what weakens it.
func (e *Effect) Words() string {
	if e.Suspect {
		return e.Verdict + ", suspect"
	}
	return e.Verdict
}

// AgainstWords names the level that the effect is relative to.
func (e *Effect) AgainstWords() string {
	if e.Default {
		return e.Against + " (default)"
	}
	return e.Against
}

// Found reports whether there is an effect.
func (e *Effect) Found() bool { return e.Verdict == statistics.Different }

// Text describes what both factors together do.
func (x Interaction) Text() string {
	times := func(i Interval) string {
		if i.Level == 0 {
			return unit.Times(i.Value)
		}
		return fmt.Sprintf("%s (%s to %s)", unit.Times(i.Value), unit.Times(i.Low), unit.Times(i.High))
	}
	said := "%s and %s: whether they interact cannot be told"
	switch x.Verdict {
	case statistics.Different:
		said = "%s and %s interact"
	case statistics.SameWithin:
		said = "%s and %s do not interact"
	}

	return fmt.Sprintf(said+": %s against %s is %s at %s %s and %s at %s %s", x.Factor, x.With, x.Level,
		x.Against, times(x.EffectAt), x.With, x.At, times(x.EffectBeside), x.With, x.Beside)
}

// bySize orders effects from the strongest to the weakest.
func bySize(a, b Effect) int {
	return cmp.Compare(math.Abs(math.Log(b.Ratio.Value)), math.Abs(math.Log(a.Ratio.Value)))
}

// strongest keeps one interaction per pair of factors.
func strongest(all []Interaction) []Interaction {
	slices.SortStableFunc(all, func(a, b Interaction) int { return bySize(a.Effect, b.Effect) })
	seen := map[[2]string]bool{}
	return slices.DeleteFunc(all, func(x Interaction) bool {
		pair := [2]string{x.Factor, x.With}
		again := seen[pair]
		seen[pair] = true
		return again
	})
}

// check tests the effects within runs as one family, those between runs as another, and sets the verdicts.
func check(all []*Effect) {
	for _, between := range []bool{false, true} {
		var effects []*Effect
		var family []map[int]float64
		for _, e := range all {
			if e.Between == between {
				effects = append(effects, e)
				family = append(family, e.logs)
			}
		}

		p, _, _ := statistics.TestFamily(family)
		for i, e := range effects {
			e.PValue = p[i]
			e.Verdict = statistics.VerdictOfRatio(e.Blocks, e.Ratio.Low, e.Ratio.High, e.PValue)
		}
	}
}

// matrix holds all observations.
type matrix struct{ all []Observation }

// merge joins two factors if one has a single level at each level of the other, and drops factors that never
// change; it returns the remaining names.
func (m *matrix) merge(names []string) []string {
	all := slices.Clone(m.all)
	for i := range all {
		all[i].Levels = maps.Clone(all[i].Levels)
	}

	m.all = all
	follows := func(a, b string) bool { // b has a single level at each level of a
		at := map[string]string{}
		return !slices.ContainsFunc(all, func(o Observation) bool {
			level, seen := at[o.Levels[a]]
			at[o.Levels[a]] = o.Levels[b]
			return seen && level != o.Levels[b]
		})
	}
	var left []string
	for _, name := range names {
		if follows("", name) { // no factor has that name: its level never changes
			for _, o := range all {
				delete(o.Levels, name)
			}
			continue
		}

		i := slices.IndexFunc(left, func(other string) bool {
			return follows(other, name) || follows(name, other)
		})
		if i < 0 {
			left = append(left, name)
			continue
		}

		both := left[i] + "+" + name
		for _, o := range all {
			level := strings.Trim(o.Levels[left[i]]+"+"+o.Levels[name], "+")
			delete(o.Levels, left[i])
			delete(o.Levels, name)
			if level != "" {
				o.Levels[both] = level
			}
		}

		left[i] = both
	}

	return left
}

// levels returns the levels of a factor: numbers by size, else in order of appearance.
func (m matrix) levels(name string) (levels []string) {
	for _, o := range m.all {
		if level, ok := o.Levels[name]; ok && !slices.Contains(levels, level) {
			levels = append(levels, level)
		}
	}

	number := func(level string) float64 {
		v, err := strconv.ParseFloat(level, 64)
		if err != nil {
			return math.NaN()
		}
		return v
	}
	if !slices.ContainsFunc(levels, func(l string) bool { return math.IsNaN(number(l)) }) {
		slices.SortFunc(levels, func(a, b string) int { return cmp.Compare(number(a), number(b)) })
	}

	return levels
}

// cell returns a key of levels.
func cell(levels ...string) string { return strings.Join(levels, "\x00") }

// settings groups the observations that agree in all factors but those named, by the levels of these.
func (m matrix) settings(names ...string) (out []map[string]Observation) {
	index := map[string]int{}
	for _, o := range m.all {
		var rest, levels []string
		for name, level := range o.Levels {
			if !slices.Contains(names, name) {
				rest = append(rest, cell(name, level))
			}
		}

		for _, name := range names {
			levels = append(levels, o.Levels[name])
		}

		slices.Sort(rest)
		key := cell(rest...)
		i, ok := index[key]
		if !ok {
			i = len(out)
			index[key], out = i, append(out, map[string]Observation{})
		}

		out[i][cell(levels...)] = o
	}
	return out
}

// having returns the settings that have a rate in each of the cells.
func having(settings []map[string]Observation, cells []string) []map[string]Observation {
	return slices.DeleteFunc(slices.Clone(settings), func(there map[string]Observation) bool {
		return slices.ContainsFunc(cells, func(c string) bool { return len(there[c].ByBlock) == 0 })
	})
}

// contrasted is Σ sign × ln rate of cells, in the mean over the settings that have all of the cells.
type contrasted struct {
	logs     map[int]float64 // by block; with between by the runs that stand against each other
	settings int
	used     map[int]bool // blocks in which every setting has all of the cells
	measured int          // blocks in which one of the cells has a rate
	between  bool
	suspect  bool
}

// contrast computes a contrast by block. A run changes the rates of all its cells alike, which cancels where
// a setting has all cells in one run and their signs add up to zero. Elsewhere it is between runs.
func contrast(settings []map[string]Observation, cells []string, signs ...float64) contrasted {
	out := contrasted{used: map[int]bool{}}
	sum := map[int]float64{}
	settled := map[int]int{}
	runs := map[int]map[int]bool{} // by block, those that stand against each other
	for _, there := range having(settings, cells) {
		out.settings++
		for block := range blocksOf(there, cells) {
			v, weight := 0.0, 0.0
			var of []int // runs
			for i, c := range cells {
				v += signs[i] * math.Log(there[c].ByBlock[block]) // -Inf where it has none
				if signs[i] == 0 {
					continue
				}

				weight += signs[i]
				out.suspect = out.suspect || there[c].Suspect
				run, known := there[c].Runs[block]
				if known && !slices.Contains(of, run) {
					of = append(of, run)
				}
			}

			if len(of) > 1 || len(of) == 1 && weight != 0 {
				if runs[block] == nil {
					runs[block] = map[int]bool{}
				}

				for _, run := range of {
					runs[block][run] = true
				}
			}

			if !math.IsInf(v, 0) && !math.IsNaN(v) {
				settled[block]++
			}

			sum[block] += v
		}
	}

	out.measured = len(sum)
	out.logs = map[int]float64{}
	for block, v := range sum {
		if settled[block] == out.settings {
			out.used[block] = true
			out.logs[block] = v / float64(out.settings)
		}
	}

	if joined := byRuns(out.logs, runs); joined != nil {
		out.between = true
		out.logs = joined
	}

	return out
}

// blocksOf returns the blocks in which one of the cells has a rate.
func blocksOf(there map[string]Observation, cells []string) map[int]bool {
	all := map[int]bool{}
	for _, c := range cells {
		for block := range there[c].ByBlock {
			all[block] = true
		}
	}
	return all
}

// byRuns joins the blocks in which the same runs stand against each other, by their median; nil where none
// do.
func byRuns(logs map[int]float64, of map[int]map[int]bool) map[int]float64 {
	var runs []string
	values := map[string][]float64{}
	for _, block := range slices.Sorted(maps.Keys(logs)) {
		key := ""
		for _, run := range slices.Sorted(maps.Keys(of[block])) {
			key += cell(strconv.Itoa(run), "")
		}

		if key != "" && values[key] == nil {
			runs = append(runs, key)
		}

		values[key] = append(values[key], logs[block])
	}

	if len(runs) == 0 {
		return nil
	}

	out := map[int]float64{}
	for i, key := range runs {
		out[i] = statistics.Median(values[key])
	}

	return out
}

// effect returns the effect that a contrast shows.
func (c contrasted) effect(name, level, against string) Effect {
	e := Effect{
		Factor:   name,
		Level:    level,
		Against:  against,
		Ratio:    ratioOf(c.logs),
		Settings: c.settings,
		Blocks:   len(c.logs),
		Between:  c.between,
		Suspect:  c.suspect,
		logs:     c.logs,
	}
	if unused := c.measured - len(c.used); unused > 0 {
		e.Unused = unused
		e.Measured = c.measured
	}

	return e
}

// ratioOf converts logarithms by block, at least one, to a ratio with its interval.
func ratioOf(logs map[int]float64) Interval {
	v := statistics.Summarise(statistics.ByBlock(logs))
	if v.Level == 0 {
		v.Low, v.High = v.Median, v.Median
	}
	return Interval{math.Exp(v.Median), math.Exp(v.Low), math.Exp(v.High), v.Level}
}

// shared returns the levels of a factor, and the settings that have all of them; if there is none, all
// settings.
func (m matrix) shared(name string) (levels []string, settings []map[string]Observation) {
	levels = m.levels(name)
	settings = m.settings(name)
	if all := having(settings, levels); len(all) > 0 {
		settings = all
	}
	return levels, settings
}

// usual returns the level of a factor that nobody has to set; "" if that is not one for all observations.
func (m matrix) usual(name string) (level string) {
	for i, o := range m.all {
		if i > 0 && o.Defaults[name] != level {
			return ""
		}

		level = o.Defaults[name]
	}
	return level
}

// mainEffects covers the settings that have all levels of the factor, so that its levels can be compared with
// each other; if there is no such setting, each level covers those that have it and another one. The level
// that nobody has to set is the one to compare with, else the first.
func (m matrix) mainEffects(name string) (out []Effect) {
	levels, settings := m.shared(name)
	apart := len(having(settings, levels)) == 0 && len(levels) > 2
	usual := m.usual(name)
	for i, level := range levels {
		others := levels[:i]
		if slices.Contains(levels, usual) {
			others = append([]string{usual}, otherThan(usual, others)...)
		}

		if level == usual {
			continue
		}

		for _, against := range others {
			c := contrast(settings, []string{level, against}, 1, -1)
			if len(c.logs) > 0 {
				e := c.effect(name, level, against)
				e.Apart = apart
				e.Default = against == usual
				out = append(out, e)
				break
			}
		}
	}

	return out
}

func otherThan(level string, levels []string) []string {
	return slices.DeleteFunc(slices.Clone(levels), func(l string) bool { return l == level })
}

// interactions returns the interactions of two factors: of each pair of levels of one with each pair of the
// other.
func (m matrix) interactions(name, with string) (out []Interaction) {
	levels, others, settings := m.levels(name), m.levels(with), m.settings(name, with)
	for i, level := range levels {
		for _, against := range levels[:i] {
			for k, at := range others {
				for _, beside := range others[:k] {
					four := []string{cell(level, at), cell(against, at), cell(level, beside),
						cell(against, beside)}
					c := contrast(settings, four, 1, -1, -1, 1)
					if len(c.logs) == 0 {
						continue
					}

					out = append(out, Interaction{
						Effect:       c.effect(name, level, against),
						With:         with,
						At:           at,
						Beside:       beside,
						EffectAt:     ratioOf(contrast(settings, four, 1, -1, 0, 0).logs),
						EffectBeside: ratioOf(contrast(settings, four, 0, 0, 1, -1).logs),
					})
				}
			}
		}
	}
	return out
}

// ofBlocks returns settings with some of their blocks.
func ofBlocks(settings []map[string]Observation, blocks map[int]bool) []map[string]Observation {
	var out []map[string]Observation
	for _, there := range settings {
		some := maps.Clone(there)
		for c, o := range some {
			o.ByBlock = maps.Clone(o.ByBlock)
			maps.DeleteFunc(o.ByBlock, func(block int, _ float64) bool { return !blocks[block] })
			some[c] = o
		}

		out = append(out, some)
	}
	return out
}

// at lists the levels of the other factors in some settings: "streams 1, 4; ip 4".
func (m matrix) at(settings []map[string]Observation, in string, names []string) string {
	levels := map[string][]string{}
	for _, there := range settings {
		for name, level := range there[in].Levels {
			if !slices.Contains(names, name) && !slices.Contains(levels[name], level) {
				levels[name] = append(levels[name], level)
			}
		}
	}

	var words []string
	for _, name := range slices.Sorted(maps.Keys(levels)) {
		words = append(words, name+" "+strings.Join(levels[name], ", "))
	}

	return strings.Join(words, "; ")
}

// chart has a bar for each combination of levels of the factors, over the settings that have all cells, and
// in the blocks that an effect of these cells uses.
func (m matrix) chart(settings []map[string]Observation, cells []string, names ...string) Chart {
	settings = having(settings, cells)
	out := Chart{Factors: names, Settings: len(settings), At: m.at(settings, cells[0], names)}
	settings = ofBlocks(settings, contrast(settings, cells, slices.Repeat([]float64{1}, len(cells))...).used)
	combinations := [][]string{nil}
	for _, name := range names {
		var longer [][]string
		for _, c := range combinations {
			for _, level := range m.levels(name) {
				longer = append(longer, append(slices.Clone(c), level))
			}
		}

		combinations = longer
	}

	for _, levels := range combinations {
		c := contrast(settings, []string{cell(levels...)}, 1)
		if c.settings == len(settings) && len(c.logs) > 0 {
			out.Bars = append(out.Bars, Bar{levels, ratioOf(c.logs).Value})
		}
	}

	return out
}

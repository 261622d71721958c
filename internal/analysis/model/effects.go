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

// Observation holds the rates of one combination of levels, by block. A published figure counts as one block.
type Observation struct {
	Levels  map[string]string
	ByBlock map[int]float64
	// Runs maps each block to its run. It is nil if all blocks are from one run.
	Runs map[int]int
	// Defaults holds the default levels of the observation's factors under its conditions.
	Defaults map[string]string
	Suspect  bool
}

// Observe converts published rates to observations, and returns the names of their factors.
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

// Effect is the ratio between the rates at two levels of a factor. It is the geometric mean over all settings
// (combinations of the other factors' levels) at which every level of the factor was measured.
type Effect struct {
	Factor   string   `json:"factor"`
	Level    string   `json:"level"`
	Against  string   `json:"against"`
	Ratio    Interval `json:"ratio"`    // median over the blocks, with an interval if there are at least six
	Settings int      `json:"settings"` // number of settings of the other factors
	// Apart reports that no setting was measured with all levels of the factor. The effect then covers the
	// settings that were measured with its two levels, and effects of other levels may cover other settings.
	Apart   bool `json:"settings_apart,omitempty"`
	Default bool `json:"against_default,omitempty"` // Against is the default level
	// Blocks is the number of blocks. If Between is set, it is the number of runs, or of groups of runs.
	Blocks int `json:"blocks"`
	// Unused is the number of blocks, among the Measured ones, that lack a rate at one of the settings.
	Unused   int  `json:"unused_blocks,omitempty"`
	Measured int  `json:"measured_blocks,omitempty"`
	Suspect  bool `json:"suspect,omitempty"` // at least one cell is suspect
	// Between reports that the levels were measured in different runs. The ratio then includes everything
	// else that changed between the runs, and each run counts once, however many blocks it has.
	Between bool    `json:"between_runs,omitempty"`
	PValue  float64 `json:"p_value,omitempty"` // corrected for all effects and interactions
	Verdict string  `json:"verdict"`

	logs map[int]float64 // logarithms of the ratio by block or, between runs, by group of runs
	used map[int]bool    // blocks in which all cells of the ratio have a rate at every setting
}

// Interaction is the ratio between the effects of one factor at two levels of another factor.
type Interaction struct {
	Effect
	With         string   `json:"with"`
	At           string   `json:"at"`
	Beside       string   `json:"beside"` // level of the factor With, to which the level At is compared
	EffectAt     Interval `json:"effect_at"`
	EffectBeside Interval `json:"effect_beside"`
}

// Chart shows the rate by the levels of one or two factors.
type Chart struct {
	Factors  []string `json:"factors"`
	Settings int      `json:"settings"`     // number of settings of the other factors
	At       string   `json:"at,omitempty"` // levels of the other factors, in words
	Bars     []Bar    `json:"bars"`
}

// Bar shows one rate of a chart. The rate is the geometric mean over the settings that all bars have in
// common, and over the blocks that the effect of the chart uses.
type Bar struct {
	Levels []string `json:"levels"`
	Rate   float64  `json:"rate"` // in bit/s, or operations per second
}

// Effects holds the effects of all factors, and the strongest interaction of each pair of factors.
type Effects struct {
	Of           string        `json:"of,omitempty"`     // kind of load, or library and operation of ciphers
	Metric       string        `json:"metric,omitempty"` // metric, if not goodput_bps
	Main         []Effect      `json:"effects"`
	Interactions []Interaction `json:"interactions"` // strongest first
	Charts       []Chart       `json:"charts"`       // charts of the interactions, or of the strongest effect
	// Loads holds the effects on each kind of load other than TCP streams.
	Loads []Effects `json:"loads,omitempty"`
	// Ciphers holds the effects on cipher results of the same run, for each library and purpose.
	Ciphers []Effects `json:"ciphers,omitempty"`
	// Runs lists the runs, if there are several, with the levels that were set by hand for each.
	Runs []EffectRun `json:"runs,omitempty"`
	// Differs lists other differences between the runs. Each may be the cause of an effect between runs.
	Differs []string `json:"also_differs,omitempty"`
}

// EffectRun is one of several runs with common effects.
type EffectRun struct {
	Run    string            `json:"run"`
	Levels map[string]string `json:"levels,omitempty"` // levels of the factors that are constant within a run
}

// Parts returns the effects on TCP goodput, which e holds, followed by the effects on each other kind of load
// and on each part of the ciphers.
func (e *Effects) Parts() []Effects { return slices.Concat([]Effects{*e}, e.Loads, e.Ciphers) }

// FindEffects computes the effects and interactions of the named factors, in that order. An effect is
// relative to the default level or, without one, to the first level that was measured at the same settings. A
// block counts if all of its settings were measured. Factors that change together are merged, as in
// "tunnel+mtu", because their effects cannot be separated.
//
// The verdict combines the interval with an exact test. All effects within runs form one family of tests, and
// all effects between runs form another. As in other comparisons, a verdict needs at least six blocks or,
// between runs, six groups of runs.
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

// Several reports whether at least two factors have an effect.
func (e *Effects) Several() bool {
	return slices.ContainsFunc(e.Parts(), func(part Effects) bool {
		return slices.ContainsFunc(part.Main, func(x Effect) bool { return x.Factor != part.Main[0].Factor })
	})
}

// UnusedWords describes how many blocks were not used for the effects and interactions, and why.
func (e *Effects) UnusedWords() (out []string) {
	of := map[string][]string{} // factors to which each text applies
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

		of[text] = once(of[text], name)
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

// Words returns the verdict, with a mark if it is suspect.
func (e *Effect) Words() string {
	if e.Suspect {
		return e.Verdict + ", suspect"
	}
	return e.Verdict
}

// AgainstWords describes the level to which the effect is relative.
func (e *Effect) AgainstWords() string {
	if e.Default {
		return e.Against + " (default)"
	}
	return e.Against
}

// Found reports whether the factor has an effect.
func (e *Effect) Found() bool { return e.Verdict == statistics.Different }

// Text describes the joint effect of both factors.
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

// bySize compares effects for sorting, strongest first.
func bySize(a, b Effect) int {
	return cmp.Compare(math.Abs(math.Log(b.Ratio.Value)), math.Abs(math.Log(a.Ratio.Value)))
}

// strongest returns the strongest interaction of each pair of factors.
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

// check sets the verdicts. It tests the effects within runs as one family, and the effects between runs as
// another.
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
			e.Verdict = statistics.Verdict(1, e.Blocks, e.Ratio.Low, e.Ratio.High, e.PValue)
		}
	}
}

// matrix groups observations by the levels of their factors.
type matrix struct{ all []Observation }

// merge merges two factors if each level of either factor occurs with only one level of the other. It drops
// factors whose level never changes. It returns the names of the remaining factors.
func (m *matrix) merge(names []string) []string {
	all := slices.Clone(m.all)
	for i := range all {
		all[i].Levels = maps.Clone(all[i].Levels)
	}

	m.all = all
	follows := func(a, b string) bool { // reports whether each level of a occurs with a single level of b
		at := map[string]string{}
		return !slices.ContainsFunc(all, func(o Observation) bool {
			level, seen := at[o.Levels[a]]
			at[o.Levels[a]] = o.Levels[b]
			return seen && level != o.Levels[b]
		})
	}
	var left []string
	for _, name := range names {
		if follows("", name) { // no factor is named "", so this means that the level of name never changes
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

// levels returns the levels of a factor: numbers in ascending order, others in order of appearance.
func (m matrix) levels(name string) (levels []string) {
	for _, o := range m.all {
		if level, ok := o.Levels[name]; ok {
			levels = once(levels, level)
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

// cell returns a map key for levels.
func cell(levels ...string) string { return strings.Join(levels, "\x00") }

// settings groups the observations that agree in all factors except the named ones. Each group is a setting:
// it maps the levels of the named factors to an observation.
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
			index[key] = i
			out = append(out, map[string]Observation{})
		}

		out[i][cell(levels...)] = o
	}
	return out
}

// having returns the settings that have a rate for each of the cells.
func having(settings []map[string]Observation, cells []string) []map[string]Observation {
	return without(settings, func(there map[string]Observation) bool {
		return slices.ContainsFunc(cells, func(c string) bool { return len(there[c].ByBlock) == 0 })
	})
}

// contrast computes a contrast by block: the sum Σ sign × ln(rate) over some cells, averaged over the
// settings that have all of these cells. The conditions of a run change the rates of all cells in the run by
// the same factor. This factor cancels out if all cells of a setting were measured in one run and the signs
// add up to zero. Otherwise, the contrast is between runs.
func contrast(settings []map[string]Observation, cells []string, signs ...float64) Effect {
	out := Effect{used: map[int]bool{}, logs: map[int]float64{}}
	sum := map[int]float64{}
	settled := map[int]int{}
	runs := map[int]map[int]bool{} // by block: the runs that are compared with each other
	for _, there := range having(settings, cells) {
		out.Settings++
		for block := range blocksOf(there, cells) {
			v := 0.0
			weight := 0.0
			var of []int // runs that measured the cells of this setting
			for i, c := range cells {
				v += signs[i] * math.Log(there[c].ByBlock[block]) // -Inf if the cell has no rate
				if signs[i] == 0 {
					continue
				}

				weight += signs[i]
				out.Suspect = out.Suspect || there[c].Suspect
				run, known := there[c].Runs[block]
				if known {
					of = once(of, run)
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

	for block, v := range sum {
		if settled[block] == out.Settings {
			out.used[block] = true
			out.logs[block] = v / float64(out.Settings)
		}
	}

	unused := len(sum) - len(out.used)
	if unused > 0 {
		out.Unused = unused
		out.Measured = len(sum)
	}

	if joined := byRuns(out.logs, runs); joined != nil {
		out.Between = true
		out.logs = joined
	}

	out.Blocks = len(out.logs)
	if out.Blocks > 0 {
		out.Ratio = ratioOf(out.logs)
	}

	return out
}

// blocksOf returns the blocks of a setting in which at least one of the cells has a rate.
func blocksOf(there map[string]Observation, cells []string) map[int]bool {
	all := map[int]bool{}
	for _, c := range cells {
		for block := range there[c].ByBlock {
			all[block] = true
		}
	}
	return all
}

// byRuns returns the contrast for each group of runs, which is the median over the blocks that compare these
// runs. It returns nil if no block compares runs.
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

// ratioOf converts logarithms by block to a ratio with its interval. There must be at least one block.
func ratioOf(logs map[int]float64) Interval {
	v := statistics.Summarise(statistics.ByBlock(logs))
	if v.Level == 0 {
		v.Low = v.Median
		v.High = v.Median
	}
	return Interval{math.Exp(v.Median), math.Exp(v.Low), math.Exp(v.High), v.Level}
}

// shared returns the levels of a factor, and the settings that have all of these levels or, if there are
// none, all settings.
func (m matrix) shared(name string) (levels []string, settings []map[string]Observation) {
	levels = m.levels(name)
	settings = m.settings(name)
	if all := having(settings, levels); len(all) > 0 {
		settings = all
	}
	return levels, settings
}

// usual returns the default level of a factor, or "" if the observations do not have the same default.
func (m matrix) usual(name string) (level string) {
	for i, o := range m.all {
		if i > 0 && o.Defaults[name] != level {
			return ""
		}

		level = o.Defaults[name]
	}
	return level
}

// mainEffects returns the effects of a factor's levels, each relative to the default level or, without one,
// to the first level. They cover the settings that have all levels, so that the levels can be compared with
// each other. If there are no such settings, each effect covers the settings that have its two levels.
func (m matrix) mainEffects(name string) (out []Effect) {
	levels, settings := m.shared(name)
	apart := len(having(settings, levels)) == 0 && len(levels) > 2
	usual := m.usual(name)
	for i, level := range levels {
		others := levels[:i]
		if slices.Contains(levels, usual) {
			others = slices.Concat([]string{usual}, others)
		}

		if level == usual {
			continue
		}

		for _, against := range others {
			e := contrast(settings, []string{level, against}, 1, -1)
			if e.Blocks > 0 {
				e.Factor = name
				e.Level = level
				e.Against = against
				e.Apart = apart
				e.Default = against == usual
				out = append(out, e)
				break
			}
		}
	}

	return out
}

// interactions returns the interactions of two factors: one for each pair of levels of the first factor and
// each pair of levels of the second.
func (m matrix) interactions(name, with string) (out []Interaction) {
	levels := m.levels(name)
	others := m.levels(with)
	settings := m.settings(name, with)
	for i, level := range levels {
		for _, against := range levels[:i] {
			for k, at := range others {
				for _, beside := range others[:k] {
					four := []string{cell(level, at), cell(against, at), cell(level, beside),
						cell(against, beside)}
					e := contrast(settings, four, 1, -1, -1, 1)
					if e.Blocks == 0 {
						continue
					}

					e.Factor = name
					e.Level = level
					e.Against = against
					out = append(out, Interaction{
						Effect:       e,
						With:         with,
						At:           at,
						Beside:       beside,
						EffectAt:     contrast(settings, four, 1, -1, 0, 0).Ratio,
						EffectBeside: contrast(settings, four, 0, 0, 1, -1).Ratio,
					})
				}
			}
		}
	}
	return out
}

// ofBlocks returns copies of the settings that contain only the given blocks.
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

// at describes the levels that the other factors have in some settings, such as "streams 1, 4; ip 4".
func (m matrix) at(settings []map[string]Observation, in string, names []string) string {
	levels := map[string][]string{}
	for _, there := range settings {
		for name, level := range there[in].Levels {
			if !slices.Contains(names, name) {
				levels[name] = once(levels[name], level)
			}
		}
	}

	var words []string
	for _, name := range slices.Sorted(maps.Keys(levels)) {
		words = append(words, name+" "+strings.Join(levels[name], ", "))
	}

	return strings.Join(words, "; ")
}

// chart returns a chart with a bar for each combination of levels of the named factors. It covers the
// settings that have all cells, and the blocks that an effect of these cells uses.
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
		if c.Settings == len(settings) && c.Blocks > 0 {
			out.Bars = append(out.Bars, Bar{levels, c.Ratio.Value})
		}
	}

	return out
}

package analysis

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/ciphers"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/evidence"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/metrics"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/model"
	"github.com/chokepoint-lab/chokepoint/internal/catalogue"
	"github.com/chokepoint-lab/chokepoint/internal/cipher"
	"github.com/chokepoint-lab/chokepoint/internal/factor"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// work identifies a group of rates that may be compared with each other. The group consists of the rates of
// one kind of load, or of the rates of one cryptographic library for its ciphers, hashes or keys.
type work struct{ of, metric string }

func workOf(f record.Factors) work {
	if !factor.Sends(f) {
		a, _ := cipher.Named(cipher.AlgorithmFactor.Of(f))
		return cipherWork(cipher.LibraryFactor.Of(f), a, metrics.RateOf(f))
	}

	of := metrics.LoadOf(f)
	if of != "" {
		return work{of, metrics.RateOf(f)}
	}

	return work{}
}

func cipherWork(library string, a cipher.Algorithm, metric string) work {
	return work{library + ", " + strings.Join(a.Operations, " and "), metric}
}

// observe returns the rates of one kind of work in each cell, by block, and the names of the cells' factors
// in display order. It leaves out cells without a value. If several runs measured cells with the same levels,
// it combines their blocks.
func observe(runs []runOfEffects, w work) (out []model.Observation, names []string) {
	metric := cmp.Or(w.metric, metrics.Goodput)
	all := record.Factors{}
	places := map[string]int{}
	var nths []int
	for i, r := range runs {
		nth := 0 // number of earlier runs with the same cells; their blocks are numbered first
		for k, before := range runs[:i] {
			if before.shares(r) {
				nth = max(nth, nths[k]+1)
			}
		}

		nths = append(nths, nth)
		for _, c := range r.Cells { // cells are in the order of the design
			byBlock := r.values[c.Factors.Key()][metric]
			if byBlock == nil || workOf(c.Factors) != w {
				continue
			}

			f := maps.Clone(c.Factors)
			maps.Copy(f, r.levels)
			at, seen := places[f.Key()]
			if !seen {
				at = len(out)
				places[f.Key()] = at
				o := model.Observation{
					Levels:   f,
					ByBlock:  map[int]float64{},
					Defaults: map[string]string{},
				}
				if mtu := defaultMTU(r.Catalogue, c.Factors); mtu != "" {
					o.Defaults[string(factor.MTU)] = mtu
				}

				if len(runs) > 1 {
					o.Runs = map[int]int{}
				}

				out = append(out, o)
			}

			out[at].Suspect = out[at].Suspect || c.Grade == evidence.GradeSuspect
			o := out[at]
			for block, rate := range byBlock {
				id := nth*blocksOfRun + block
				o.ByBlock[id] = rate
				if o.Runs != nil {
					o.Runs[id] = i
				}
			}

			maps.Copy(all, f)
		}
	}

	names = all.Names()
	runs[0].Catalogue.Sort(names)
	return out, names
}

// blocksOfRun is the offset between the block numbers of two runs of the same cells. It is larger than the
// number of blocks in any run.
const blocksOfRun = 1 << 20

// runOfEffects is a run with the values of its cells, and with the levels of factors that were set by hand
// for the whole run.
type runOfEffects struct {
	*Document
	values map[string]map[string]map[int]float64 // cell → metric → block → value
	levels record.Factors
}

// shares reports whether the runs have a cell in common.
func (r runOfEffects) shares(other runOfEffects) bool {
	return maps.Equal(r.levels, other.levels) && slices.ContainsFunc(r.Cells, func(c Cell) bool {
		return other.values[c.Factors.Key()] != nil
	})
}

// EffectsOf returns the effects for a run's document, or nil if fewer than two factors have an effect.
func EffectsOf(d *Document) *model.Effects {
	const maxContrasts = 200_000 // maximum number of contrasts, to limit the time
	e := effectsOf([]runOfEffects{{Document: d, values: numbers(d)}}, maxContrasts)
	if e.Several() {
		return &e
	}

	return nil
}

// Effects returns the effects of a run's factors on the rates of each kind of load and on the speeds of its
// ciphers.
func Effects(d *Document) model.Effects {
	return effectsOf([]runOfEffects{{Document: d, values: numbers(d)}}, math.MaxInt)
}

// effectsOf returns the effects for each kind of work. It leaves out kinds of work with more than bound
// contrasts.
func effectsOf(runs []runOfEffects, bound int) model.Effects {
	all := model.FindEffects(nil, nil)
	var seen []work
	for _, r := range runs {
		for _, c := range r.Cells {
			w := workOf(c.Factors)
			if slices.Contains(seen, w) {
				continue
			}

			seen = append(seen, w)
			observations, names := observe(runs, w)
			if contrasts(observations, names) <= bound {
				add(&all, w, factor.Sends(c.Factors), model.FindEffects(observations, names))
			}
		}
	}

	return all
}

// add adds e, the effects on the work w, to the result all. traffic is set if w is a load.
func add(all *model.Effects, w work, traffic bool, e model.Effects) {
	if w == (work{}) {
		e.Loads = all.Loads
		e.Ciphers = all.Ciphers
		*all = e
		return
	}

	if len(e.Main) == 0 {
		return
	}

	e.Of = w.of
	e.Metric = w.metric
	if traffic {
		all.Loads = append(all.Loads, e)
	} else {
		all.Ciphers = append(all.Ciphers, e)
	}
}

// contrasts returns the number of contrasts to compute. For each observation, there is one for each pair of
// levels of a factor, and one for each combination of two such pairs of different factors.
func contrasts(observations []model.Observation, names []string) int {
	n := 0
	before := 0
	for _, name := range names {
		levels := map[string]bool{}
		for _, o := range observations {
			levels[o.Levels[name]] = true
		}

		pairs := len(levels) * (len(levels) - 1) / 2
		n += pairs * (1 + before)
		before += pairs
	}
	return n * len(observations)
}

// PublishedEffects returns the effects of the factors in one study, on the rates of TCP and UDP and on the
// speeds of ciphers. Ciphers are grouped by purpose.
func PublishedEffects(c *catalogue.Catalogue, source string) model.Effects {
	results := func(protocol string) model.Effects {
		return model.FindEffects(model.Observe(c.Filtered(catalogue.Filter{
			Source:   source,
			Protocol: protocol,
		})))
	}
	all := results(factor.TCP)
	add(&all, work{"UDP packets", metrics.Goodput}, true, results(factor.UDP))
	speeds := map[work][]model.Observation{}
	var seen []work
	for _, s := range c.Speeds {
		cell, ok := ciphers.CellOfPublished(s)
		if s.Source != source || !ok || s.Value == nil || !(*s.Value > 0) {
			continue
		}

		a, _ := cipher.Named(s.Algorithm)
		w := cipherWork(cell.Library, a, metrics.CipherOps)
		rate := *s.Value
		if a.Blocks() {
			w.metric = metrics.CipherRate
			rate = 8 * rate
		}

		o := model.Observation{
			ByBlock: map[int]float64{0: rate},
			Levels: map[string]string{
				"device": s.Device, "algorithm": s.Algorithm, "operation": cell.Operation},
		}
		if s.Mode != "" {
			o.Levels["mode"] = s.Mode
		}

		if s.Block > 0 {
			o.Levels["block_size"] = strconv.Itoa(s.Block)
		}

		if !slices.Contains(seen, w) {
			seen = append(seen, w)
		}

		speeds[w] = append(speeds[w], o)
	}

	for _, w := range seen {
		add(&all, w, false, model.FindEffects(speeds[w], []string{"device", "algorithm", "operation",
			"block_size", "mode"}))
	}

	return all
}

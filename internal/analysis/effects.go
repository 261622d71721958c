package analysis

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/ciphers"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/metrics"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/model"
	"github.com/chokepoint-lab/chokepoint/internal/factor"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// work is what rates are of that compare: traffic, or what one library does with ciphers, hashes or keys.
type work struct{ of, metric string }

func workOf(f record.Factors) work {
	if factor.Sends(f) {
		return work{}
	}
	a, _ := ciphers.Named(ciphers.AlgorithmFactor.Of(f))
	return work{ciphers.LibraryFactor.Of(f) + ", " + strings.Join(a.Operations, " and "), metrics.RateOf(f)}
}

// observe gives the rate of each cell of one work by block, and the names of the factors in the order of
// people; a repeated trial counts once, with its last. A cell without a value is left out.
func observe(d *Document, w work) (out []model.Observation, names []string) {
	byCell := map[string]map[int]float64{}
	for _, t := range d.Trials {
		v, ok := t.Metrics[cmp.Or(w.metric, metrics.Goodput)]
		if row := (record.Row{Kind: t.Kind}); !ok || !row.OfCell() || workOf(t.Factors) != w {
			continue
		}
		key := t.Factors.Key()
		if byCell[key] == nil {
			byCell[key] = map[int]float64{}
		}
		byCell[key][t.Block] = v
	}
	all := record.Factors{}
	for _, c := range d.Cells { // in the order of the design
		if byBlock := byCell[c.Factors.Key()]; byBlock != nil {
			out = append(out, model.Observation{Levels: c.Factors, ByBlock: byBlock})
			maps.Copy(all, c.Factors)
		}
	}
	names = all.Names()
	d.Catalogue.Sort(names)
	return out, names
}

// EffectsOf are those of the factors of a run that every reading of it computes; nil where fewer than two can
// be told.
func EffectsOf(d *Document) *model.Effects {
	const mostContrasts = 200_000 // two levels, or two by two, in each cell
	if e := Effects(d, mostContrasts); e.Several() {
		return &e
	}
	return nil
}

// Effects are those of the factors of a run on its goodput, and on what its ciphers did, where there are not
// more contrasts than the bound.
func Effects(d *Document, bound int) model.Effects {
	all := model.FindEffects(nil, nil)
	var seen []work
	for _, c := range d.Cells {
		w := workOf(c.Factors)
		if slices.Contains(seen, w) {
			continue
		}
		seen = append(seen, w)
		observations, names := observe(d, w)
		contrasts, before := 0, 0 // of all factors so far, and their pairs of levels
		for _, name := range names {
			levels := map[string]bool{}
			for _, o := range observations {
				levels[o.Levels[name]] = true
			}
			pairs := len(levels) * (len(levels) - 1) / 2
			contrasts += pairs * (1 + before)
			before += pairs
		}
		if contrasts*len(observations) > bound {
			continue
		}
		e := model.FindEffects(observations, names)
		if w == (work{}) {
			e.Ciphers, all = all.Ciphers, e
		} else if e.Of, e.Metric = w.of, w.metric; len(e.Main) > 0 {
			all.Ciphers = append(all.Ciphers, e)
		}
	}
	return all
}

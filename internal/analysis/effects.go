package analysis

import (
	"maps"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/metrics"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/model"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// Observations are what a metric, such as the goodput, is of each cell by block, and the names of the
// factors in the order of people; a repeated trial counts once, with its last. A cell without a value is
// left out.
func Observations(d *Document, metric string) (out []model.Observation, names []string) {
	byCell := map[string]map[int]float64{}
	for _, t := range d.Trials {
		v, ok := t.Metrics[metric]
		if row := (record.Row{Kind: t.Kind}); !ok || !row.OfCell() {
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

// mostContrasts bounds what every reading of a run computes: two levels, or two by two, in each cell. The
// command effects has no bound.
const mostContrasts = 200_000

// EffectsOf are those of the factors of a run; nil where fewer than two can be told, or where there are too
// many.
func EffectsOf(d *Document) *model.Effects {
	observations, names := Observations(d, metrics.Goodput)
	contrasts, before := 0, 0 // of all factors so far, and their pairs of levels
	for _, name := range names {
		levels := map[string]bool{}
		for _, c := range d.Cells {
			levels[c.Factors[name]] = true
		}
		pairs := len(levels) * (len(levels) - 1) / 2
		contrasts += pairs * (1 + before)
		before += pairs
	}
	if contrasts*len(d.Cells) > mostContrasts {
		return nil
	}
	if e := model.FindEffects(observations, names); e.Several() {
		return &e
	}
	return nil
}

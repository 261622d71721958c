package analysis

import (
	"maps"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/metrics"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/model"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// Observations are the goodput of each cell by block, and the names of the factors in the order of people; a
// repeated trial counts once, with its last.
func Observations(d *Document) (out []model.Observation, names []string) {
	byCell, all := map[string]map[int]float64{}, record.Factors{}
	for _, c := range d.Cells { // in the order of the design
		byBlock := map[int]float64{}
		byCell[c.Factors.Key()], out = byBlock, append(out, model.Observation{Levels: c.Factors,
			ByBlock: byBlock})
		maps.Copy(all, c.Factors)
	}
	for _, t := range d.Trials {
		if byBlock := byCell[t.Factors.Key()]; byBlock != nil && t.Kind == record.RowLoad {
			if rate, ok := t.Metrics[metrics.Goodput]; ok {
				byBlock[t.Block] = rate
			}
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
	observations, names := Observations(d)
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

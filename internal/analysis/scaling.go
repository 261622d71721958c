package analysis

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/metrics"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/statistics"
	"github.com/chokepoint-lab/chokepoint/internal/factor"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/unit"
)

// scalingPoints is the minimum number of levels for fitting the three parameters of the Universal Scalability
// Law.
const scalingPoints = 6

// Scaling describes how goodput grows with a number N, such as the number of streams, by the Universal
// Scalability Law (Gunther, 2007): X(N) = single × N ÷ (1 + contention × (N - 1) + coherence × N × (N - 1)).
type Scaling struct {
	Factor  string                    `json:"factor"`
	Label   string                    `json:"label"` // label made of the other factors that vary
	Factors record.Factors            `json:"factors"`
	Points  []statistics.ScalingPoint `json:"points"`
	statistics.Scaling
	Peak    float64 `json:"peak,omitempty"`
	PeakBps float64 `json:"peak_bps,omitempty"`
	R2      float64 `json:"r2"` // coefficient of determination of goodput
	Text    string  `json:"text"`
}

// scalings fits the law to each set of cells that differ in only one scaling factor, if the set has enough
// levels of the factor. show selects the factors of the labels.
func scalings(c *factor.Catalogue, cells []*group, show map[string]bool) []Scaling {
	var out []Scaling
	var names []string
	for _, g := range cells {
		for _, name := range g.factors.Names() {
			if c.Of(name).Scales && !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}

	c.Sort(names)
	for _, name := range names {
		var sets []Scaling
		for _, g := range cells {
			level, err := strconv.ParseFloat(g.factors[name], 64)
			v, ok := g.cell.Metrics[metrics.Goodput]
			if err != nil || !ok || level < 1 || factor.Protocol.Is(g.factors, factor.UDP) {
				continue
			}

			rest := factor.Name(name).With(g.factors, "")
			i := slices.IndexFunc(sets, func(s Scaling) bool { return maps.Equal(s.Factors, rest) })
			if i < 0 {
				i = len(sets)
				sets = append(sets, Scaling{Factor: name, Factors: rest, Label: labelOf(c, rest, show)})
			}

			sets[i].Points = append(sets[i].Points, statistics.ScalingPoint{
				Level:      level,
				GoodputBps: v.Median,
			})
		}

		for _, s := range sets {
			if len(s.Points) >= scalingPoints && s.fit() {
				out = append(out, s)
			}
		}
	}

	return out
}

func (s *Scaling) fit() bool {
	slices.SortFunc(s.Points, func(a, b statistics.ScalingPoint) int { return cmp.Compare(a.Level, b.Level) })
	var ok bool
	if s.Scaling, ok = statistics.FitScaling(s.Points); !ok {
		return false
	}

	mean := 0.0
	off := 0.0
	spread := 0.0
	for _, p := range s.Points {
		mean += p.GoodputBps / float64(len(s.Points))
	}

	for _, p := range s.Points {
		miss := p.GoodputBps - s.At(p.Level)
		off += miss * miss
		spread += (p.GoodputBps - mean) * (p.GoodputBps - mean)
	}

	if s.R2 = 1; spread > 0 {
		s.R2 = 1 - off/spread
	}

	if s.Peak, ok = s.Scaling.Peak(); ok {
		s.PeakBps = s.At(s.Peak)
	}

	s.Text = s.words()
	return true
}

func (s *Scaling) words() string {
	text := fmt.Sprintf("%s: one carries %s; %s of the work is serial (contention), and each costs each "+
		"other one %s (coherence)",
		s.Factor, unit.Bitrate(s.SingleBps), unit.Percent(min(s.Contention, 1)), unit.Percent(s.Coherence))
	last := s.Points[len(s.Points)-1].Level
	switch {
	case s.Peak > 0 && s.Peak <= last:
		text += fmt.Sprintf("; more than %.0f make it slower", math.Round(s.Peak))
	case s.Contention > 0.95:
		text += "; more of them carry no more"
	}

	if s.R2 < 0.8 {
		text += fmt.Sprintf("; the law describes it badly (R² = %.2f)", s.R2)
	}

	return text
}

package plan

import "github.com/chokepoint-lab/chokepoint/internal/factor"

// Vocabulary is what a plan may speak of: factors, and the full names of the metrics of thresholds. Without
// Metrics any well-formed name that ends in a known unit is taken.
type Vocabulary struct {
	*factor.Catalogue
	Metrics []string
}

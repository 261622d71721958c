package metrics

import (
	"github.com/chokepoint-lab/chokepoint/internal/analysis/evidence"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/statistics"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// Cell holds the results of all trials of one combination of levels.
type Cell struct {
	// ID is the same for the same factors in every run and version: the first ten hexadecimal digits of the
	// SHA-256 hash of the "name=level" pairs, sorted by name and joined with spaces.
	ID      string                      `json:"id"`
	Factors record.Factors              `json:"factors"`
	Label   string                      `json:"label"` // short label, made of the factors that vary
	Grade   string                      `json:"grade"`
	Reasons []evidence.Reason           `json:"reasons"`
	Metrics map[string]statistics.Value `json:"metrics"`
	Missing map[string]string           `json:"missing,omitempty"` // metric → reason why it is missing

	Blocks map[string]map[int]float64 `json:"-"` // metric → block → value
}

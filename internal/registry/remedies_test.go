package registry_test

import (
	"testing"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/diagnosis"
	"github.com/chokepoint-lab/chokepoint/internal/registry"
)

// TestRemediesAreLevels: what a rule says that tune can try is a level of a factor.
func TestRemediesAreLevels(t *testing.T) {
	c := registry.Catalogue()
	for _, r := range diagnosis.Rules() {
		for _, m := range r.Remedies {
			if m.Factor == "" {
				continue
			}

			d, ok := c.Lookup(m.Factor)
			if !ok {
				t.Errorf("rule %s: factor %s is unknown", r.Class, m.Factor)
			} else if _, err := d.Parse(m.Level); err != nil {
				t.Errorf("rule %s: %s=%s: %v", r.Class, m.Factor, m.Level, err)
			}
		}
	}
}

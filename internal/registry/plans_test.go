package registry_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/chokepoint-lab/chokepoint/internal/plan"
	"github.com/chokepoint-lab/chokepoint/internal/registry"
	"github.com/chokepoint-lab/chokepoint/internal/registry/node"
)

// TestBuiltInPlansSpeakTheRegistrysLanguage: every level of every cell of the
// built-in plans is a canonical text of its factor, and of its knob.
func TestBuiltInPlansSpeakTheRegistrysLanguage(t *testing.T) {
	v := registry.Vocabulary()
	for _, name := range plan.BuiltIns() {
		p, err := plan.ReadBuiltIn(name, v, nil)
		if err != nil {
			t.Errorf("plan %s: %v", name, err)
			continue
		}
		if len(p.Cells()) == 0 {
			t.Errorf("plan %s: got no cell, want some", name)
		}
		for _, cell := range p.Cells() {
			for factor, level := range cell {
				f, ok := v.Factor(factor)
				if !ok {
					t.Errorf("plan %s: got factor %s, want one of the vocabulary", name, factor)
					continue
				}
				if got, err := f.Parse(level); err != nil || got != level {
					t.Errorf("plan %s: %s=%s parses to %q, %v, want itself", name, factor, level, got, err)
				}
				parseByKnob(t, name, factor, level)
			}
		}
	}
}

// parseByKnob holds a level against the knob that will apply it.
func parseByKnob(t *testing.T, plan, factor, level string) {
	t.Helper()
	name, _, _ := strings.Cut(factor, "@")
	text := level
	if family, member, ok := strings.Cut(name, ":"); ok {
		name, text = family+":", member+"="+level
	}
	for _, k := range node.Knobs() {
		if k.Name() != name {
			continue
		}
		if got, err := k.Parse(text); err != nil || string(got) != text {
			t.Errorf("plan %s: knob %s parses %q to %q, %v, want itself", plan, name, text, got, err)
		}
	}
}

// TestBaseFactorsThatKnobsApply: nat and offload are base factors with a list
// of levels of their own; each level must be one of the knob's.
func TestBaseFactorsThatKnobsApply(t *testing.T) {
	want := map[string][]string{"nat": {"off", "masquerade", "forward"}, "offload": {"wire", "super"}}
	for name, levels := range want {
		f, ok := registry.Vocabulary().Factor(name)
		if !ok {
			t.Errorf("factor %s: got none, want a base factor", name)
			continue
		}
		if diff := cmp.Diff(levels, f.Levels); diff != "" {
			t.Errorf("levels of %s (-want +got):\n%s", name, diff)
		}
		for _, level := range f.Levels {
			for _, k := range node.Knobs() {
				if k.Name() != name {
					continue
				}
				if _, err := k.Parse(level); err != nil {
					t.Errorf("knob %s: parse %q: %v", name, level, err)
				}
			}
		}
	}
}

package document

import (
	"fmt"
	"maps"
	"slices"
	"testing"
)

// Greatest cost of watching, as shares of one core: the five fast sources at 10 Hz, and everything as the
// kernel charged it, interrupts included.
const (
	maxFast = .005
	maxAll  = .008
)

// TestObserving checks what watching cost under load, by the program's own accounting.
func TestObserving(t *testing.T) {
	o := read(t).Observing
	fmt.Fprintf(t.Output(), "note: observing cost %.3f %% of one core (%.3f %% charged), the fast sources "+
		"%.3f %%\n", o.CoreRatio*100, o.ChargedRatio*100, o.FastRatio*100)
	for _, name := range slices.Sorted(maps.Keys(o.Probes)) {
		fmt.Fprintf(t.Output(), "note:   %-10s %.4f %%\n", name, o.Probes[name]*100)
	}

	if len(o.Probes) == 0 || o.FastRatio <= 0 || o.CoreRatio <= 0 || o.ChargedRatio < o.CoreRatio {
		t.Errorf("observing has no figures: %+v", o)
	}

	if o.FastRatio > maxFast {
		t.Errorf("the fast sources cost %.2f %% of one core, max %.1f %%", o.FastRatio*100, maxFast*100)
	}

	if o.ChargedRatio > maxAll {
		t.Errorf("observing costs %.2f %% of one core, max %.1f %%", o.ChargedRatio*100, maxAll*100)
	}
}

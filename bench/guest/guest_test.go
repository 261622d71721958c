package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/chokepoint-lab/chokepoint/internal/plan"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/registry"
)

// TestEveryNameIsOneCell: what the claims speak of is one cell of the plan.
func TestEveryNameIsOneCell(t *testing.T) {
	p, err := plan.Read("guest.yaml", []byte(ratiosPlan), registry.Vocabulary(), nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []record.Factors{fifo, cake, fqCodel, plain, rules, offloaded, wireGuard, tooLarge, esp, crowded} {
		found := 0
		for _, c := range p.Cells() {
			if is(c, want) {
				found++
			}
		}
		if found != 1 {
			t.Errorf("cells that are %s: got %d, want 1", want.Key(), found)
		}
	}
}

func TestWithinHoldsBothBounds(t *testing.T) {
	tests := []struct {
		got, least, most float64
		ok               bool
	}{
		{2, 2, 0, true}, {1.9, 2, 0, false}, {1e9, 2, 0, true},
		{54, 54, 55, true}, {55.1, 54, 55, false}, {nan(), 0, 0, false},
	}
	for _, tt := range tests {
		var out bytes.Buffer
		err := bench{out: &out}.within("x", tt.got, tt.least, tt.most)
		if (err == nil) != tt.ok || !strings.HasPrefix(out.String(), "note: x: ") {
			t.Errorf("%v within %v and %v: got %v and %q, want ok = %v", tt.got, tt.least, tt.most, err, out.String(), tt.ok)
		}
	}
}

func nan() float64 { zero := 0.0; return zero / zero }

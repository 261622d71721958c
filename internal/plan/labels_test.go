package plan_test

import (
	"strings"
	"testing"

	"github.com/chokepoint-lab/chokepoint/internal/plan"
)

// A level may be written with what it is to be called; its own text stays what is measured.
func TestLevelsHaveLabels(t *testing.T) {
	p := read(t, "matrix:\n  streams: [1, {level: 4, label: four at once}]\n")
	d := p.Design.Catalogue.Of("streams")
	if got := d.Label("4"); got != "four at once" || p.Cells()[1]["streams"] != "4" {
		t.Errorf("4 is called %q in %v", got, p.Cells())
	}

	if got := p.Design.Labels["streams"]["4"]; got != "four at once" {
		t.Errorf("the design keeps %q", got)
	}

	for text, want := range map[string]string{
		"{level: 4}": "needs both", "{label: x}": "needs both", "{level: 4, name: x}": "no key",
		"{level: many, label: x}": "whole number", "{level: 2, label: x}, {level: 4, label: x}": "two levels",
		"{level: 2, label: x}, {level: 2, label: y}": "called both"} {
		_, err := plan.Read("x.yaml", []byte("matrix:\n  streams: ["+text+"]\n"), words(), nil)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
}

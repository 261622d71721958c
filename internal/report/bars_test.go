package report

import (
	"fmt"
	"math"
	"slices"
	"testing"
)

// TestNumbersStandAtTheirMarks: the number of a bar, of a round trip and of a ratio is centred above the mark
// of its value, wherever its whisker ends.
func TestNumbersStandAtTheirMarks(t *testing.T) {
	half := estimate{Class: "c1", Text: "5", Median: 5, Low: 1, High: 9, Whisker: true}
	b := bars{Unit: "count", Groups: []barGroup{{Name: "g", Bars: []bar{{
		estimate: half,
		Runs:     []float64{1, 5, 9},
		Idle:     1e3,
		Loaded:   1e6,
		Loaded99: 1e9,
	}}}}}
	half.Text = "500 % (100–900 %)"
	f := forest{Rows: []forestRow{{estimate: half, Name: "n", Sub: "s"}}}
	for name, tt := range map[string]struct {
		draw         Drawing
		number, mark string
	}{
		"bar":        {b, "5", "median"},
		"round trip": {b, "1.00 ms", "point c1"},
		"ratio":      {f, "500 %", "point c1"},
	} {
		k := tt.draw.Draw(wideWidth)
		find := func(is func(shape) bool) shape {
			i := slices.IndexFunc(k.shapes, is)
			if i < 0 {
				t.Fatalf("%s: not drawn", name)
			}
			return k.shapes[i]
		}
		number := find(func(s shape) bool { return s.kind == "text" && s.text == tt.number })
		mark := find(func(s shape) bool { return s.class == tt.mark })
		x, y := mark.x, mark.y
		if mark.kind == "path" {
			if _, err := fmt.Sscanf(mark.text, "M%f %f", &x, &y); err != nil {
				t.Fatal(err)
			}
		}

		above := number.y <= y && number.y > y-20
		if number.anchor != "middle" || math.Abs(number.x-x) > .1 || !above {
			t.Errorf("%s: the number stands at %v, %v (%s), its mark at %v, %v", name, number.x, number.y,
				number.anchor, x, y)
		}
	}
}

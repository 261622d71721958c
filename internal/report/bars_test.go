package report

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
)

// TestLongNamesDiffer: of names for which a chart has no room it shows what differs, and once what they
// share; short names stay whole.
func TestLongNamesDiffer(t *testing.T) {
	const begin = "queue@router.wan tbf rate 100mbit burst 32k latency 50ms at the provider's end of the line"
	b := bars{Unit: "count"}
	var f forest
	for _, name := range []string{" up · 1 stream", " up · 4 streams", " · down · 1 stream"} {
		e := estimate{Text: "5", Median: 5}
		b.Groups = append(b.Groups, barGroup{Name: begin + name, Bars: []bar{{estimate: e}}})
		f.Rows = append(f.Rows, forestRow{estimate: e, Name: begin + name})
	}

	for _, draw := range []Drawing{b, f} {
		for _, width := range []float64{wideWidth, narrowWidth} {
			svg := draw.Draw(width).svg("", "")
			for _, want := range []string{">up · 1 stream<", ">up · 4 streams<", ">down · 1 stream<",
				">all: queue@"} {
				if strings.Count(svg, want) != 1 {
					t.Errorf("%T of %v px: want %q once in %s", draw, width, want, svg)
				}
			}
		}
	}

	b.Groups[0].Name, b.Groups[1].Name, b.Groups[2].Name = "TCP up", "TCP down", "TCP both"
	svg := b.Draw(wideWidth).svg("", "")
	if !strings.Contains(svg, ">TCP down<") || strings.Contains(svg, "all:") {
		t.Errorf("short names are not whole: %s", svg)
	}
}

// TestApart: what is left differs, and one word is left of each.
func TestApart(t *testing.T) {
	for _, test := range []struct {
		labels, want []string
		shared       string
	}{
		{[]string{"a · b · 1 · up", "a · b · 4 · up"}, []string{"1", "4"}, "a · b … up"},
		{[]string{"a · b", "a · b · c"}, []string{"b", "b · c"}, "a …"},
		{[]string{"a", "b"}, []string{"a", "b"}, ""},
		{[]string{"a · b"}, []string{"a · b"}, ""},
	} {
		got, shared := Apart(test.labels)
		if !slices.Equal(got, test.want) || shared != test.shared {
			t.Errorf("%q: got %q and %q, want %q and %q", test.labels, got, shared, test.want, test.shared)
		}
	}
}

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

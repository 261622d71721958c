package report

import (
	"math"
	"strconv"
	"testing"
)

// luminance is relative luminance (WCAG 2.2).
func luminance(t *testing.T, hex string) float64 {
	t.Helper()
	v, err := strconv.ParseUint(hex[1:], 16, 32)
	if err != nil {
		t.Fatal(err)
	}

	sum := 0.0
	for i, w := range []float64{.0722, .7152, .2126} {
		c := float64(v>>(8*i)&255) / 255
		if c <= .04045 {
			c /= 12.92
		} else {
			c = math.Pow((c+.055)/1.055, 2.4)
		}

		sum += w * c
	}

	return sum
}

func contrast(t *testing.T, a, b string) float64 {
	x := luminance(t, a)
	y := luminance(t, b)
	return (math.Max(x, y) + .05) / (math.Min(x, y) + .05)
}

func TestContrast(t *testing.T) {
	p := palette()
	for theme, name := range []string{"light", "dark"} {
		for _, ground := range []string{"ground", "surface", "sunken"} {
			for _, text := range []string{"ink", "soft", "link", "good", "doubt", "bad"} {
				got := contrast(t, p[text][theme], p[ground][theme])
				if got < 4.5 {
					t.Errorf("%s: text %s on %s has contrast %.2f, want 4.5", name, text, ground, got)
				}
			}

			for _, mark := range []string{"c1", "c2", "c3", "c4", "c5", "c6", "c7", "c8", "c0",
				"heat"} {
				got := contrast(t, p[mark][theme], p[ground][theme])
				if got < 3 {
					t.Errorf("%s: mark %s on %s has contrast %.2f, want 3", name, mark, ground, got)
				}
			}
		}
	}

	if got := contrast(t, "#777777", "#ffffff"); math.Abs(got-4.478) > .001 {
		t.Errorf("contrast of a known pair = %.3f, want 4.478", got)
	}
}

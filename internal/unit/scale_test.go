package unit

import "testing"

func TestScale(t *testing.T) {
	for _, c := range []struct {
		base           string
		largest, value float64
		want           string
	}{
		{"bit/s", 5.81e9, 5.623e9, "5.62 Gbit/s"},
		{"bit/s", 5.81e9, 81e6, "0.0810 Gbit/s"},
		{"pps", 240_000, 239_870, "240 kpps"},
		{"pps", 12, 12, "12 pps"},
		{"ns", 9_100, 9_100, "9.10 µs"},
		{"ns", 2_100_000, 900_000, "0.900 ms"},
		{"ratio", 1, 0.2613, "26.1 %"},
		{"ratio", 0, 0, "0 %"},
		{"count", 12345, 12345, "12345"},
		{"count", 3, 2.5, "2.50"},
		{"W", 31, 30.97, "31.0 W"},
		{"°C", 61, 61, "61 °C"},
		{"s", 1, 0.5, "0.500 s"},
		{"cycles", 3.25, 3.25, "3.25 cycles"},
		{"cycles", 3051990, 3051990, "3,050,000 cycles"},
		{"furlong", 2, 2, "2 furlong"},
	} {
		got := ScaleOf(c.base, c.largest).Text(c.value)
		if got != c.want {
			t.Errorf("%s %g: %q, want %q", c.base, c.value, got, c.want)
		}
	}
}

package unit

import "testing"

func TestRatio(t *testing.T) {
	for ratio, want := range map[float64]string{.813: "81.3 %", .9996: "100 %", 1: "100 %",
		1.994: "199 %", 2.333: "×2.33",
		99.2: "×99.2", 123.4: "×123", 2329.24: "×2,330", 1234567: "×1,230,000", 0: "0 %"} {
		got := Ratio(ratio)
		if got != want {
			t.Errorf("%v: got %q, want %q", ratio, got, want)
		}
	}
}

func TestGrouped(t *testing.T) {
	for v, want := range map[float64]string{.813: "0.813", 3.25: "3.25", 85300: "85,300",
		899313: "899,000"} {
		got := Grouped(v)
		if got != want {
			t.Errorf("%v: got %q, want %q", v, got, want)
		}
	}

	if got, want := ScaleOf("cycles", 85340).Text(85340), "85,300 cycles"; got != want {
		t.Errorf("cycles: got %q, want %q", got, want)
	}
}

func TestArch(t *testing.T) {
	for goarch, want := range map[string]string{"mipsle": "mipsel", "mips": "mips", "amd64": "amd64"} {
		got := Arch(goarch)
		if got != want {
			t.Errorf("%s: got %q, want %q", goarch, got, want)
		}
	}
}

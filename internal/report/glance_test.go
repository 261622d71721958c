package report

import (
	"strings"
	"testing"

	"github.com/chokepoint-lab/chokepoint/internal/analysis"
)

// TestGlance: what is known is shown with its unit, within the width, and a hostile name does nothing.
func TestGlance(t *testing.T) {
	hot := 61.5
	g := &analysis.Glance{
		Node: "router",
		Cores: []analysis.CoreGlance{{Name: "cpu0", Busy: .98, Softirq: .9},
			{Name: "cpu11", Busy: .1}},
		Devices:      []analysis.DeviceGlance{{Name: "e\x1b[2Jth0", RxBps: 1e9, TxPps: 1e5}},
		TemperatureC: &hot,
		Candidate:    &analysis.GlanceCause{Text: "one core is full", Confidence: .97},
	}
	text := Glance(g, 70, false)
	for _, want := range []string{"  cpu0   ████", "98.0 %  softirq 90.0 %", "1.00 Gbit/s",
		"100000 packet/s", "61.5 °C", "candidate: one core is full, 97.0 % sure"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing in:\n%s", want, text)
		}
	}

	if strings.Contains(text, "\x1b") {
		t.Errorf("an escape sequence came through:\n%q", text)
	}

	if !strings.Contains(Glance(g, 70, true), "\x1b[31m") {
		t.Error("a full core is not shown in red")
	}

	if text := Glance(&analysis.Glance{}, 70, false); !strings.Contains(text, "no packet passes") ||
		!strings.Contains(text, "candidate: none") {
		t.Errorf("of nothing:\n%s", text)
	}
}

// TestGlanceIsCut: a line of devices that is longer than the terminal is cut, whatever stands in it, so that
// each takes one line; one that fits is whole.
func TestGlanceIsCut(t *testing.T) {
	g := &analysis.Glance{Devices: []analysis.DeviceGlance{{
		Name:       strings.Repeat("ü", 40),
		RxBps:      1.23e9,
		TxBps:      4.56e9,
		RxPps:      1e6,
		TxPps:      1e6,
		DropPs:     1e5,
		QueueBytes: 123456,
	}}}
	lines := func(width int) (all []string) {
		for _, l := range strings.Split(Glance(g, width, false), "\n") {
			if strings.Contains(l, "ü") || strings.Contains(l, "  out") {
				all = append(all, l)
			}
		}
		return all
	}
	whole := lines(400)
	if len(whole) != 2 || !strings.HasSuffix(whole[1], "kB") && !strings.HasSuffix(whole[1], "bytes") {
		t.Fatalf("got %q, want a head and a device with its queue", whole)
	}

	for i, got := range lines(80) {
		want := strings.TrimRight(string([]rune(whole[i])[:80]), " ")
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

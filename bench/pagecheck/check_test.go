package main

import (
	"math"
	"strings"
	"testing"
)

func TestParseShown(t *testing.T) {
	for _, c := range []struct {
		metric, text string
		value, half  float64
	}{
		{"goodput_bps", "5.81 Gbit/s", 5.81e9, 5e6}, {"goodput_bps", "310 Mbit/s", 310e6, 5e5},
		{"packet_rate_pps", "240 kpps", 240e3, 500}, {"rtt_idle_p50_ns", "9.10 µs", 9100, 5},
		{"rtt_idle_p50_ns", "1.20 s", 1.2e9, 5e6}, {"engine_cpu_s", "1.20 s", 1.2, .005},
		{"loss_ratio", "1.25 %", .0125, .00005}, {"retransmits", "187", 187, .5}, {"host_power_w", "31.0 W",
			31, .05},
	} {
		value, half, err := parseShown(c.metric, c.text)
		if err != nil || math.Abs(value-c.value) > 1e-9*c.value || math.Abs(half-c.half) > 1e-9*c.half {
			t.Errorf("%s %q = %v ± %v, %v, want %v ± %v", c.metric, c.text, value, half, err, c.value, c.half)
		}
	}
	for _, text := range []string{"", "–", "fast", "5 furlong", "5.81Gbit/s"} {
		if v, _, err := parseShown("goodput_bps", text); err == nil || v != 0 {
			t.Errorf("%q = %v, want an error", text, v)
		}
	}
}

func TestCompare(t *testing.T) {
	want := map[string]float64{"a=1|goodput_bps|median": 5.812e9, "a=1|goodput_bps|low": 5.5e9}
	good := shown{"a=1", "goodput_bps", "median", "5.812e+09", "5.81 Gbit/s"}
	change := func(f func(*shown)) []shown {
		s := good
		f(&s)
		return []shown{s}
	}
	for _, c := range []struct {
		name  string
		page  []shown
		fault string
	}{
		{"equal", []shown{good}, ""},
		{"wrong text", change(func(s *shown) { s.Text = "5.82 Gbit/s" }), `reads "5.82 Gbit/s"`},
		{"wrong prefix", change(func(s *shown) { s.Text = "5.81 Mbit/s" }), `reads "5.81 Mbit/s"`},
		{"wrong exact value", change(func(s *shown) { s.Value = "5.813e+09" }), "is 5.813e+09 in the page"},
		{"unknown cell", []shown{good, {"b=1", "goodput_bps", "median", "1", "1"}}, "not in the document"},
		{"missing", nil, "is not in the page"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := strings.Join(compare(c.page, want), "\n")
			if (c.fault == "") != (got == "") || !strings.Contains(got, c.fault) {
				t.Errorf("faults %q, want %q", got, c.fault)
			}
		})
	}
}

func TestFits(t *testing.T) {
	good := layout{Inner: 390, Scroll: 390}
	if got := good.fits(390, "light"); len(got) != 0 {
		t.Errorf("faults of a good page: %v", got)
	}
	for name, bad := range map[string]layout{
		"wide": {Inner: 390, Scroll: 412}, "window": {Inner: 500, Scroll: 390},
		"dark":    {Inner: 390, Scroll: 390, Dark: true},
		"element": {Inner: 390, Scroll: 390, Over: []string{"TABLE to 400"}}} {
		if len(bad.fits(390, "light")) != 1 {
			t.Errorf("%s: faults %v, want one", name, bad.fits(390, "light"))
		}
	}
}

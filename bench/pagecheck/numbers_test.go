package pagecheck

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// layout holds what the page says about itself.
type layout struct {
	Inner   int      `json:"inner"`
	Scroll  int      `json:"scroll"`
	Height  int      `json:"height"`
	Dark    bool     `json:"dark"`
	Over    []string `json:"over"`  // elements that stick out of the window
	Below   []string `json:"below"` // elements that the first screen does not hold
	Numbers []shown  `json:"numbers"`
}

// shown is one number of the page: what it claims to be, and what a reader sees.
type shown struct {
	Cell, Metric, Stat, Value, Text string
}

// probe runs in the page, with the identifiers of what the first screen must hold. Boxes that scroll by
// themselves may hold what is wider than the window.
const probe = `((wanted) => {
  const over = [];
  for (const e of document.querySelectorAll("body *")) {
    if (e.closest(".scroll, pre, svg")) continue;
    const r = e.getBoundingClientRect();
    if (r.width > 0 && r.right > innerWidth + 0.5) over.push(e.tagName + "." + e.className + " to " + r.right);
  }
  const below = [];
  for (const id of wanted) {
    const e = document.getElementById(id), r = e && e.getBoundingClientRect();
    if (!r || r.height < 20) below.push("nothing has the identifier " + id);
    else if (r.top < 0 || r.bottom > innerHeight || r.right > innerWidth)
      below.push(id + " ends at " + r.right + ", " + r.bottom + " in " + innerWidth + " × " + innerHeight);
  }
  const ground = getComputedStyle(document.body).backgroundColor.match(/\d+/g).map(Number);
  return {inner: innerWidth, scroll: document.documentElement.scrollWidth,
    height: document.documentElement.scrollHeight, dark: ground[0] < 100, over: over.slice(0, 8), below,
    numbers: [...document.querySelectorAll("[data-value]")].map(e => ({
      Cell: e.closest("[data-cell]").dataset.cell, Metric: e.dataset.metric, Stat: e.dataset.stat,
      Value: e.dataset.value, Text: e.textContent}))};
})`

// fits says what is wrong with the page's layout.
func (l layout) fits(width int, theme string, tallest int) (faults []string) {
	if l.Inner != width {
		faults = append(faults, fmt.Sprintf("the window is %d px wide, want %d", l.Inner, width))
	}

	if l.Scroll > l.Inner {
		faults = append(faults, fmt.Sprintf("the page is %d px wide in a window of %d", l.Scroll, l.Inner))
	}

	if tallest > 0 && width < 600 && l.Height > tallest {
		faults = append(faults, fmt.Sprintf("the page is %d px high, at most %d are allowed", l.Height,
			tallest))
	}

	for _, o := range l.Over {
		faults = append(faults, "sticks out: "+o)
	}

	for _, b := range l.Below {
		faults = append(faults, "first screen: "+b)
	}

	if l.Dark != (theme == "dark") {
		faults = append(faults, "the ground is not "+theme)
	}

	return faults
}

// document is the part of show --json that a page must agree with.
type document struct {
	Cells []struct {
		Factors record.Factors `json:"factors"`
		Metrics map[string]struct {
			Median float64 `json:"median"`
			Low    float64 `json:"low"`
			High   float64 `json:"high"`
		} `json:"metrics"`
	} `json:"cells"`
}

// readNumbers maps "cell|metric|stat" to its value.
func readNumbers(t *testing.T, path string) map[string]float64 {
	data, err := os.ReadFile(path)
	must(t, err)
	var d document
	must(t, json.Unmarshal(data, &d))
	out := map[string]float64{}
	for _, c := range d.Cells {
		for name, m := range c.Metrics {
			key := c.Factors.Key() + "|" + name + "|"
			out[key+"median"], out[key+"low"], out[key+"high"] = m.Median, m.Low, m.High
		}
	}

	return out
}

// compare checks each number of the page against the document, in its exact form and as a reader sees it,
// and that no median is missing.
func compare(page []shown, want map[string]float64) (faults []string) {
	seen := map[string]bool{}
	for _, n := range page {
		key := n.Cell + "|" + n.Metric + "|" + n.Stat
		seen[key] = true
		value, ok := want[key]
		if !ok {
			faults = append(faults, fmt.Sprintf("the page shows %s = %q, which is not in the document", key,
				n.Text))
			continue
		}

		if exact, err := strconv.ParseFloat(n.Value, 64); err != nil || exact != value {
			faults = append(faults, fmt.Sprintf("%s is %s in the page and %v in the document", key, n.Value,
				value))
		}

		read, half, err := parseShown(n.Metric, n.Text)
		if err != nil || math.Abs(read-value) > half*(1+1e-9) {
			faults = append(faults, fmt.Sprintf("%s reads %q and is %v in the document", key, n.Text, value))
		}
	}

	for key := range want {
		if strings.HasSuffix(key, "|median") && !seen[key] {
			faults = append(faults, key+" of the document is not in the page")
		}
	}

	slices.Sort(faults)
	return faults
}

// parseShown reads "5.81 Gbit/s" as a person would: the value in the metric's base unit, and half a unit of
// its last digit.
func parseShown(metric, text string) (value, half float64, err error) {
	number, unit, _ := strings.Cut(strings.TrimSpace(text), " ")
	v, err := strconv.ParseFloat(number, 64)
	if err != nil {
		return 0, 0, fmt.Errorf("read %q: not a number", text)
	}

	digits := 0
	i := strings.IndexByte(number, '.')
	if i >= 0 {
		digits = len(number) - i - 1
	}

	scale, ok := map[string]float64{"": 1, "%": 0.01, "ns": 1, "µs": 1e3, "ms": 1e6, "s": 1, "W": 1,
		"°C": 1}[unit]
	if unit == "s" && strings.HasSuffix(metric, "_ns") {
		scale = 1e9
	}

	if !ok {
		scale, ok = prefixed(unit)
	}

	if !ok {
		return 0, 0, fmt.Errorf("read %q: unknown unit", text)
	}

	return v * scale, scale * math.Pow(10, -float64(digits)) / 2, nil
}

func prefixed(unit string) (float64, bool) {
	for prefix, scale := range map[string]float64{"": 1, "k": 1e3, "M": 1e6, "G": 1e9} {
		switch strings.TrimPrefix(unit, prefix) {
		case "bit/s", "pps", "bytes", "Hz":
			return scale, true
		}
	}
	return 0, false
}

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
	good := layout{Inner: 390, Scroll: 390, Height: 12000}
	got := good.fits(390, "light", 12000)
	if len(got) != 0 {
		t.Errorf("faults of a good page: %v", got)
	}

	for name, bad := range map[string]layout{
		"wide": {Inner: 390, Scroll: 412}, "window": {Inner: 500, Scroll: 390},
		"tall":    {Inner: 390, Scroll: 390, Height: 12001},
		"dark":    {Inner: 390, Scroll: 390, Dark: true},
		"element": {Inner: 390, Scroll: 390, Over: []string{"TABLE to 400"}},
		"below":   {Inner: 390, Scroll: 390, Below: []string{"path ends at 390, 900"}}} {
		if len(bad.fits(390, "light", 12000)) != 1 {
			t.Errorf("%s: faults %v, want one", name, bad.fits(390, "light", 12000))
		}
	}
}

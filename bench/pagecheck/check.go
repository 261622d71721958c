package main

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"slices"
	"sort"
	"strconv"
	"strings"
)

// layout is what the page says about itself.
type layout struct {
	Inner   int      `json:"inner"`
	Scroll  int      `json:"scroll"`
	Dark    bool     `json:"dark"`
	Over    []string `json:"over"` // elements that stick out of the window
	Numbers []shown  `json:"numbers"`
}

// shown is one number of the page: what it claims to be, and what a reader sees.
type shown struct {
	Cell, Metric, Stat, Value, Text string
}

// probe runs in the page. Boxes that scroll by themselves may hold what is wider than the window.
const probe = `(() => {
  const over = [];
  for (const e of document.querySelectorAll("body *")) {
    if (e.closest(".scroll, pre, svg")) continue;
    const r = e.getBoundingClientRect();
    if (r.width > 0 && r.right > innerWidth + 0.5) over.push(e.tagName + "." + e.className + " to " + r.right);
  }
  const ground = getComputedStyle(document.body).backgroundColor.match(/\d+/g).map(Number);
  return {inner: innerWidth, scroll: document.documentElement.scrollWidth, dark: ground[0] < 100, over: over.slice(0, 8),
    numbers: [...document.querySelectorAll("[data-value]")].map(e => ({Cell: e.dataset.cell, Metric: e.dataset.metric,
      Stat: e.dataset.stat, Value: e.dataset.value, Text: e.textContent}))};
})()`

// fits says what is wrong with the page's layout.
func (l layout) fits(width int, theme string) (faults []string) {
	if l.Inner != width {
		faults = append(faults, fmt.Sprintf("the window is %d px wide, want %d", l.Inner, width))
	}
	if l.Scroll > l.Inner {
		faults = append(faults, fmt.Sprintf("the page is %d px wide in a window of %d", l.Scroll, l.Inner))
	}
	for _, o := range l.Over {
		faults = append(faults, "sticks out: "+o)
	}
	if l.Dark != (theme == "dark") {
		faults = append(faults, "the ground is not "+theme)
	}
	return faults
}

// document is the part of show --json that a page must agree with.
type document struct {
	Cells []struct {
		Factors map[string]string `json:"factors"`
		Metrics map[string]struct {
			Median float64 `json:"median"`
			Low    float64 `json:"low"`
			High   float64 `json:"high"`
		} `json:"metrics"`
	} `json:"cells"`
}

// numbers maps "cell|metric|stat" to its value.
func readNumbers(path string) (map[string]float64, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var d document
	if err := json.Unmarshal(data, &d); err != nil {
		return nil, fmt.Errorf("read document %s: %v", path, err)
	}
	out := map[string]float64{}
	for _, c := range d.Cells {
		var parts []string
		for name, value := range c.Factors {
			parts = append(parts, name+"="+value)
		}
		sort.Strings(parts)
		for name, m := range c.Metrics {
			key := strings.Join(parts, " ") + "|" + name + "|"
			out[key+"median"], out[key+"low"], out[key+"high"] = m.Median, m.Low, m.High
		}
	}
	return out, nil
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
	if i := strings.IndexByte(number, '.'); i >= 0 {
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

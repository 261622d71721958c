package foreign_test

import (
	"strings"
	"testing"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/metrics"
	"github.com/chokepoint-lab/chokepoint/internal/foreign"
	"github.com/chokepoint-lab/chokepoint/internal/labtest/expect"
)

// wgTable holds rates as people write them, and rows with none, or more than one.
const wgTable = `| Device / CPU | OS Version / Kernel | Speed | Note |
| ------------ | ------------------- | ----- | ---- |
| No Rate / R1 | OpenWrt 24.10 / 6.6 | n/a | |
| Big Board / P1* | Debian sid / 6.12 | 320 Mbits/sec | With all cores enabled |
| Big Board / P1* | Debian sid / 6.12 | 3.48 Gbits/sec | [With little cores disabled](https://example.org/a) |
| Comma / C1 | Debian 12 / 6.1 | 1,02 Gbits/sec | |
| Two / C2 | Debian 12 / 6.1 | 100 (1 stream), 200 (4) | |
| Range / C3 | Debian 12 / 6.1 | 900-950 Mbits/sec | |
| Short / C4 | Debian 12 / 6.1 | 140 Mbit/sec | |
| Shorter / C5 | Debian 12 / 6.1 | 141 Mbit/s | |
| Shortest / C6 | Debian 12 / 6.1 | 142 Mbps |
| Empty / C7 | Debian 12 / 6.1 | | |
| Bytes / C8 | Debian 12 / 6.1 | 100 MB/s | |
| Thousands / C9 | Debian 12 / 6.1 | 1,020 Mbits/sec | |
| About / C10 | Debian 12 / 6.1 | > 940 Mbits/sec | |
| Two rows |
`

// TestWGBenchRows: a rate is read as a whole or its row is left out with the reason; rows that differ in
// their note are different cells.
func TestWGBenchRows(t *testing.T) {
	all := read(t, []byte(wgTable), "")
	results, left := sorted(all)
	got := map[string]float64{}
	for _, r := range results {
		got[strings.TrimSpace(r.Factors["device"]+" "+r.Factors["note"])] = r.Foreign.Values[metrics.Goodput]
	}

	want := map[string]float64{"Big Board / P1 With all cores enabled": 320e6,
		"Big Board / P1 With little cores disabled": 3.48e9, "Comma / C1": 1.02e9, "Short / C4": 140e6,
		"Shorter / C5": 141e6, "Shortest / C6": 142e6}
	expect.Same(t, "rates", want, got)
	wantLeft := []string{`line 3, byte 108: No Rate / R1: "n/a" is no rate`, `"100 (1 stream), 200 (4)" is no rate`,
		`"900-950 Mbits/sec" is no rate`, `Empty / C7: "" is no rate`, `"100 MB/s" is no rate`,
		`"1,020 Mbits/sec" may be 1.020 or 1020`, `"> 940 Mbits/sec" is no rate`, "a row has device, system"}
	if len(left) != len(wantLeft) {
		t.Fatalf("left out are %q, want %d rows", left, len(wantLeft))
	}

	for i, want := range wantLeft {
		if !strings.Contains(left[i], want) {
			t.Errorf("left out is %q, want %q", left[i], want)
		}
	}

	d := derive(t, nil, all...)
	if len(d.Cells) != len(want) || len(d.Trials) != len(want) {
		t.Errorf("got %d cells of %d trials, want %d of each", len(d.Cells), len(d.Trials), len(want))
	}

	leftOut := 0
	for _, c := range d.Caveats {
		if c.Kind == "left-out" {
			leftOut++
		}
	}

	if leftOut != len(wantLeft) {
		t.Errorf("%d rows are said to be left out, want %d", leftOut, len(wantLeft))
	}
}

// TestWGBenchTables: the heads of several tables, with and without a line below, are no rows.
func TestWGBenchTables(t *testing.T) {
	const row = "| a | b | 5 Mbps | |\n"
	for _, tt := range []struct {
		name, text   string
		rows, others int
	}{
		{"two tables", "| D | S | Speed |\n|---|---|---|\n" + row + "\nmore:\n| D | S | Speed |\n|:--|---|--:|\n" + row, 2, 0},
		{"rows alone", row + row, 2, 0},
		{"a head without a line", "| D | S | Speed |\n" + row, 1, 1},
		{"a row of nothing above the end", row + "| a | b | - | |\n", 1, 1},
	} {
		rows, left := sorted(read(t, []byte(tt.text), ""))
		expect.Same(t, tt.name, [2]int{tt.rows, tt.others}, [2]int{len(rows), len(left)})
	}

	if _, err := foreign.ReadFile(strings.NewReader("| D | S | Speed |\n|---|---|---|\n"),
		"wg-bench"); err == nil {
		t.Error("a head alone was read")
	}
}

package foreign

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/metrics"
	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/factor"
)

// wgRate matches a table cell with a single bit rate, as written by iperf3 or by people. It does not match
// B/s, which means bytes.
var wgRate = check.Pattern(`^([0-9]+)(?:([.,])([0-9]+))? *([kKMmGgTt]?)(?:[bB]its?/s(?:ec)?|bps|b/s)$`)

// parseRate parses a rate in a table cell and returns it in bit/s. Text after the rate is an error,
// because it indicates several rates or conditions.
func parseRate(cell string) (float64, error) {
	m := wgRate().FindStringSubmatch(cell)
	if m == nil {
		return 0, fmt.Errorf("%.40q is no rate", cell)
	}

	if m[2] == "," && len(m[3]) == 3 {
		return 0, fmt.Errorf("%.40q may be %s.%s or %s%s", cell, m[1], m[3], m[1], m[3])
	}

	rate, err := strconv.ParseFloat(m[1]+"."+m[3], 64)
	rate *= map[string]float64{"": 1, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}[strings.ToUpper(m[4])]
	if err != nil || !finite(rate, maxRate) {
		return 0, fmt.Errorf("%.40q cannot be", cell)
	}

	return rate, nil
}

// wgRow splits a row of a wg-bench table into cells. ok is false for other text and for the line below a
// heading.
func wgRow(l string) (cells []string, ok bool) {
	if !strings.HasPrefix(l, "|") || strings.Trim(l, "|-: ") == "" {
		return nil, false
	}

	for cell := range strings.SplitSeq(strings.TrimSuffix(strings.TrimPrefix(l, "|"), "|"), "|") {
		cells = append(cells, plainCell(cell))
	}
	return cells, true
}

// isWGBench reports whether a line is a row with a rate.
func isWGBench(l string) bool {
	cells, ok := wgRow(l)
	if !ok || len(cells) < 3 {
		return false
	}

	_, err := parseRate(cells[2])
	return err == nil
}

// readWGBench reads the rows of wg-bench tables. The columns are: device CPU, system kernel [/ flags], rate,
// and note. Rows with different notes have different settings. A row without a rate is skipped, with the
// reason in LeftOut.
func readWGBench(text []byte) ([]Result, error) {
	var out []Result
	// the first error, and the error in the previous row, which may be a heading
	var first, head error
	results := 0
	leave := func() {
		if head != nil {
			out = append(out, Result{LeftOut: head.Error()})
			if first == nil {
				first = head
			}
		}

		head = nil
	}
	for at, l := range linesOf(text, 4096) {
		cells, ok := wgRow(l)
		if !ok {
			if strings.HasPrefix(l, "|") && strings.Contains(l, "-") {
				head = nil // the previous row was a heading
			}
			continue
		}

		leave()
		r, err := wgResult(cells)
		if err != nil {
			head = place(text, at, err)
			continue
		}

		results++
		if out = append(out, r); len(out) > maxTrials {
			return nil, place(text, at, errors.New("there are too many rows"))
		}
	}

	leave()
	if results == 0 {
		return nil, first
	}

	return out, nil
}

func wgResult(cells []string) (Result, error) {
	if len(cells) < 3 {
		return Result{}, errors.New("a row has device, system, rate and note")
	}

	rate, err := parseRate(cells[2])
	if err != nil {
		return Result{}, fmt.Errorf("%s: %w", name(cells[0]), err)
	}

	r := newResult("", oneRun, "how long and how often it was measured",
		"the implementation of WireGuard", "series", "latency")
	r.Foreign.Values[metrics.Goodput] = rate
	r.set(factor.Tunnel, "wireguard")
	r.set(factor.Protocol, "tcp")
	r.set("device", cells[0])
	r.set("system", cells[1])
	if len(cells) > 3 {
		r.set("note", cells[3])
	}

	return r, nil
}

// link matches a Markdown link. plainCell keeps its text.
var link = check.Pattern(`\[([^\]]*)\]\([^)]*\)`)

func plainCell(s string) string {
	s = link().ReplaceAllString(s, "$1")
	return strings.TrimSpace(strings.NewReplacer("`", "", "*", "", "\\", "").Replace(s))
}

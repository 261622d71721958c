package foreign

import (
	"errors"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/metrics"
	"github.com/chokepoint-lab/chokepoint/internal/factor"
)

// wgRate is a rate as iperf3 prints it for people, within the third column of a row.
var wgRate = regexp.MustCompile(`([0-9]+(?:\.[0-9]+)?) ?([KMGT]?)bits/sec`)

// readWGBench reads rows of the tables of wg-bench: device / CPU, system / kernel [/ flags], rate, note.
func readWGBench(text []byte) ([]Result, error) {
	var out []Result
	for at, l := range linesOf(text, 4096) {
		cells := strings.Split(strings.Trim(l, "|"), "|")
		if !strings.HasPrefix(l, "|") || strings.Trim(l, "|-: ") == "" {
			continue // prose, and the line below a table's head
		}
		if len(cells) < 3 {
			return nil, place(text, at, errors.New("a row has device, system, rate and note"))
		}
		m := wgRate.FindStringSubmatch(cells[2])
		if m == nil {
			if len(out) == 0 && !strings.ContainsAny(cells[2], "0123456789") {
				continue // the head
			}
			return nil, place(text, at, fmt.Errorf("%.40q is no rate", strings.TrimSpace(cells[2])))
		}
		rate, err := strconv.ParseFloat(m[1], 64)
		rate *= map[string]float64{"": 1, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}[m[2]]
		if err != nil || !finite(rate, mostRate) {
			return nil, place(text, at, fmt.Errorf("%.40q cannot be", m[0]))
		}
		r := newResult("", oneRun, "how long and how often it was measured",
			"the implementation of WireGuard", "series", "latency")
		r.Foreign.Values[metrics.Goodput] = rate
		set(r.Factors, factor.Tunnel, "wireguard")
		set(r.Factors, factor.Protocol, "tcp")
		set(r.Factors, "device", plainCell(cells[0]))
		set(r.Factors, "system", plainCell(cells[1]))
		if len(cells) > 3 {
			r.Foreign.Facts["note"] = name(plainCell(cells[3]))
		}
		if out = append(out, r); len(out) > mostTrials {
			return nil, place(text, at, errors.New("there are too many rows"))
		}
	}
	return out, nil
}

// mostlyNumbers says whether a text looks like columns of numbers, of which some may be damaged.
func mostlyNumbers(text []byte) bool {
	numbers, others := 0, 0
	for _, l := range linesOf(text, 4096) {
		if strings.HasPrefix(l, "#") {
			continue
		}
		for _, f := range strings.Fields(l) {
			if _, err := strconv.ParseFloat(f, 64); err == nil || errors.Is(err, strconv.ErrRange) {
				numbers++
			} else {
				others++
			}
		}
	}
	return numbers > others
}

func plainCell(s string) string {
	return strings.TrimSpace(strings.NewReplacer("`", "", "*", "", "\\", "").Replace(s))
}

// readMinistat reads columns of numbers, as ministat(1) does: lines of "#" are comments, a column may be
// shorter than others. In a file of report --format ministat the comments name the columns, whose numbers are
// goodput.
func readMinistat(text []byte) ([]Result, error) {
	var out []Result
	labels := map[int]string{}
	metric := metrics.Number
	for at, l := range linesOf(text, 64<<10) {
		if comment, ok := strings.CutPrefix(l, "#"); ok {
			number, label, _ := strings.Cut(comment, ":")
			if n, err := strconv.Atoi(strings.TrimSpace(number)); err == nil && len(labels) < mostTrials {
				labels[n] = label
			}
			if strings.HasPrefix(comment, " run ") && strings.Contains(comment, ", goodput in bit/s;") {
				metric = metrics.Goodput
			}
			continue
		}
		for i, f := range strings.Fields(l) {
			v, err := strconv.ParseFloat(f, 64)
			if err != nil || math.IsNaN(v) || math.IsInf(v, 0) {
				return nil, place(text, at, fmt.Errorf("%.40q is no number, in columns of numbers", f))
			}
			r := newResult("", "what was measured, and how")
			r.Foreign.Values[metric] = v
			set(r.Factors, "column", strconv.Itoa(i+1))
			if label := labels[i+1]; label != "" {
				set(r.Factors, "column", label)
			}
			if out = append(out, r); len(out) > mostTrials {
				return nil, place(text, at, fmt.Errorf("there are more than %d numbers", mostTrials))
			}
		}
	}
	if len(out) == 0 {
		return nil, errors.New("there is no number in it")
	}
	return out, nil
}

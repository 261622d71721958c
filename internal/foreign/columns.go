package foreign

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/metrics"
)

// looksNumeric reports whether a text appears to consist of columns of numbers. Some numbers may be damaged.
func looksNumeric(text []byte) bool {
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

// readMinistat reads columns of numbers as ministat(1) does. Lines that begin with "#" are comments, and
// columns may differ in length. In files written by report --format ministat, comments name the columns,
// and the numbers are goodput.
func readMinistat(text []byte) ([]Result, error) {
	if err := summary(text); err != nil {
		return nil, err
	}

	var out []Result
	labels := map[int]string{}
	metric := metrics.Number
	numbers := 0
	var began time.Time
	for at, l := range linesOf(text, 64<<10) {
		if comment, ok := strings.CutPrefix(l, "#"); ok {
			number, label, _ := strings.Cut(comment, ":")
			label, _, _ = strings.Cut(label, ": median of ") // drop the part that differs between runs
			if n, err := strconv.Atoi(strings.TrimSpace(number)); err == nil && len(labels) < maxTrials {
				labels[n] = label
			}

			if strings.HasPrefix(comment, " run ") && strings.Contains(comment, ", goodput in bit/s;") {
				metric = metrics.Goodput
				began = runTime(comment)
			}

			continue
		}

		for i, f := range strings.Fields(l) {
			if notFinite().MatchString(f) {
				why := place(text, at, fmt.Errorf("column %d has %.40q, which is no number", i+1, f))
				out = append(out, Result{LeftOut: why.Error()})
				continue
			}

			v, err := strconv.ParseFloat(f, 64)
			if err != nil {
				return nil, place(text, at, fmt.Errorf("%.40q is no number, in columns of numbers", f))
			}

			r := newResult("", "what was measured, and how")
			r.Foreign.Values[metric] = v
			r.Began = began
			r.set("column", strconv.Itoa(i+1))
			label := labels[i+1]
			if label != "" {
				r.set("column", label)
			}

			out = append(out, r)
			numbers++
		}

		if len(out) > maxTrials {
			return nil, place(text, at, fmt.Errorf("there are more than %d numbers", maxTrials))
		}
	}

	if numbers == 0 {
		return nil, errors.New("there is no number in it")
	}

	return out, nil
}

// runTime returns the start of a run, given a comment by chokepoint that contains the run's id. It returns
// the zero time if there is no valid id.
func runTime(comment string) time.Time {
	const form = "20060102-150405"
	id := strings.TrimPrefix(comment, " run ")
	t, _ := time.Parse(form, id[:min(len(id), len(form))])
	return t
}

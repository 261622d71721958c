package progress

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/unit"
)

// margin is the number of columns for the label at the start of each line.
const margin = 9

// frame returns the lines of the view at the time now. The most important line comes first, so that a
// terminal with few rows loses only the least important lines.
func (v *view) frame(now time.Time, k look) []line {
	lines := []line{v.headLine(now, k), v.nowLine(now, k), v.rateLine(k), v.coreLine(k), v.latencyLine(),
		v.causeLine(), v.warningLine()}
	lines = slices.DeleteFunc(lines, func(l line) bool { return l == nil })
	for i, r := range slices.Backward(v.last) {
		lines = append(lines, v.resultLine(r, i == len(v.last)-1))
	}

	return lines[:min(len(lines), max(1, k.height-1))]
}

func word(text string) line { return line{{pad(text, margin), faint}} }

func (v *view) headLine(now time.Time, k look) line {
	l := line{}.add(bold, v.run)
	if v.plan != "" {
		l = l.add(plain, k.separator()+v.plan)
	}

	if v.block != "" {
		l = l.add(plain, k.separator()+"block "+v.block)
	}

	if v.total > 0 {
		l = l.add(plain, k.separator()).add(bold, fmt.Sprintf("%d/%d", v.index, v.total))
		l = l.add(plain, " "+k.bar(float64(v.done())/float64(v.total), 10))
	}

	left := v.left(now)
	if left > 0 {
		l = l.add(plain, k.separator()+unit.Seconds(left.Round(time.Second))+" left")
	}

	return l
}

func (v *view) nowLine(now time.Time, k look) line {
	l := word("now")
	if !v.running {
		switch {
		case v.labText != "":
			return l.add(plain, v.labText)
		case v.ended != "":
			return l.add(plain, v.ended)
		case v.phase != "": // the run's phase; a trial's phase is cleared when the trial ends
			return l.add(plain, v.phase+" "+unit.Seconds(since(v.phaseFrom, now)))
		}
		return l.add(faint, "between trials")
	}

	l = l.add(bold, v.label)
	if v.phase != "" {
		l = l.add(plain, k.separator()+v.phase+" "+unit.Seconds(since(v.phaseFrom, now)))
	}

	before := earlierText(v.earlier[v.cell])
	if before != "" {
		l = l.add(faint, k.separator()+before)
	}

	return l
}

// earlierText lists the leading numbers of the cell's last earlier trials.
func earlierText(results []result) string {
	var each []string
	for _, r := range results[max(0, len(results)-3):] {
		each = append(each, append(r.numbers(), r.status)[0])
	}

	if len(each) == 0 {
		return ""
	}
	return "before: " + strings.Join(each, ", ")
}

func (v *view) rateLine(k look) line {
	l := word("rate")
	text := pad(cmp.Or(strings.Join(result{rate: v.rate, pps: v.pps}.numbers(), k.separator()), "–"), 14)
	l = l.add(bold, text)
	room := min(k.width-margin-columns(text)-2, 60)
	if room > 0 && len(v.rates) > 1 {
		l = l.add(green, " "+k.spark(v.rates, 0, room))
	}

	return l
}

// barCores is the maximum number of cores that are shown with a bar and a percentage each.
const barCores = 4

func (v *view) coreLine(k look) line {
	if len(v.cores) == 0 {
		return nil
	}

	l := word("cores")
	if len(v.cores) <= barCores {
		for i, share := range v.cores {
			if i > 0 {
				l = l.add(plain, "  ")
			}

			l = l.add(plain, fmt.Sprintf("%d ", i)).add(heat(share), k.bar(share, 6)).
				add(plain, fmt.Sprintf(" %3.0f %%", percent(share)))
		}
		return l
	}

	busiest := 0
	for i, share := range v.cores {
		if share > v.cores[busiest] {
			busiest = i
		}
	}

	l = l.add(heat(v.cores[busiest]), k.spark(v.cores, 1, len(v.cores)))
	return l.add(plain, fmt.Sprintf(" busiest %d: %.0f %%", busiest, percent(v.cores[busiest])))
}

func percent(share float64) float64 {
	if math.IsNaN(share) {
		return 0
	}
	return 100 * min(max(share, 0), 1)
}

// heat returns the style for a core's busy share. It highlights a core that is nearly full.
func heat(share float64) style {
	switch {
	case share >= 0.95:
		return red
	case share >= 0.75:
		return yellow
	}
	return green
}

func (v *view) latencyLine() line {
	l := word("latency")
	if v.rtt <= 0 {
		return l.add(plain, "–")
	}

	l = l.add(plain, unit.Nanoseconds(float64(v.rtt)))
	if v.rttKind != "" {
		l = l.add(faint, " "+v.rttKind)
	}

	return l
}

// causeLine names what limited the newest trial with a known cause.
func (v *view) causeLine() line {
	for _, r := range slices.Backward(v.last) {
		if r.cause != "" {
			return word("limit").add(plain, r.cause).add(faint, fmt.Sprintf(" %.0f %% sure, %s",
				percent(r.sure), r.label))
		}
	}
	return nil
}

func (v *view) warningLine() line {
	if v.warnings == 0 {
		return nil
	}
	return word("warnings").add(yellow, fmt.Sprintf("%d", v.warnings)).add(plain, "  last: "+v.warned)
}

func (v *view) resultLine(r result, newest bool) line {
	l := word("")
	if newest {
		l = word("done")
	}

	if r.failed {
		return l.add(red, "failed  ").add(plain, r.label+": "+r.why)
	}

	return l.add(green, pad(r.status, 6)+"  ").add(plain, pad(r.label, 30)+"  "+r.outcome())
}

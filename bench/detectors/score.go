package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/chokepoint-lab/chokepoint/bench/rig"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/statistics"
)

// A history has nights nights; a step comes before the night of index stepAt.
const (
	nights   = 60
	stepAt   = 40
	badShare = .04 // of the nights
)

// kind is a kind of nights.
type kind struct {
	name   string
	cells  []world // histories are drawn from each in turn
	atOnce []int   // numbers of runs of a night whose median a history gets
	real   world   // with a real step; nil: none
}

// kindsOf returns the kinds of nights, some of which need recorded runs.
func kindsOf(recorded []recordedRun) ([]kind, error) {
	var quiet, bad []recordedRun
	for _, r := range recorded {
		if len(r.Cells) != cells || slices.ContainsFunc(r.Cells, func(c recordedCell) bool {
			return len(c.Rates) != runsOfNight
		}) {
			return nil, fmt.Errorf("the run of %s lacks a cell or a block", r.Started)
		}

		if r.Busy > 0 {
			bad = append(bad, r)
		} else {
			quiet = append(quiet, r)
		}
	}

	if len(quiet) < 2 || len(bad) < 2 {
		return nil, errors.New("two recorded runs are the minimum, and two beside busy processes")
	}

	of := func(cell, slower int) world { return recordedCells{quiet, bad, cell, slower} }
	return []kind{
		{
			name:   "recorded, routers with a limit of their own",
			cells:  []world{of(cellBucket, -1), of(cellDatagrams, -1)},
			atOnce: []int{1, runsOfNight},
			real:   of(cellBucket, cellSlower),
		},
		{
			name:   "recorded, a router as fast as the machine",
			cells:  []world{of(cellFast, -1)},
			atOnce: []int{1, runsOfNight},
		},
		{name: "model, noise of 1 %", cells: []world{noiseModel{}}, atOnce: []int{1}},
		{name: "model, with two modes per boot", cells: []world{noiseModel{modes: true}}, atOnce: []int{1}},
	}, nil
}

// Cells of the recording, in the order of the plan. cellSlower is cellBucket after a real step.
const (
	cellBucket = iota
	cellSlower
	cellDatagrams
	cellFast
	cells
)

// condition describes which nights of a history are bad or changed.
type condition struct {
	name  string
	bad   bool
	share float64 // of the rate that is left after the step; 1: no step
	real  bool
}

var conditions = []condition{
	{name: "quiet", share: 1},
	{name: "with bad nights", share: 1, bad: true},
	{name: "a step of 3 %", share: .97},
	{name: "a step of 10 %", share: .9},
	{name: "the real step", share: .97, real: true},
}

// row holds the scores of a rule by condition.
type row struct {
	rule   string
	runs   int // in each night
	scores map[string]*score
}

// score counts the histories, and what a rule reports of each.
type score struct {
	histories int
	alarms    []float64 // false ones, of each history without a step
	delays    []float64 // nights until a step was found, of those found
}

// score scores all rules on nights of a kind.
func (k kind) score(ctx context.Context, o options, log io.Writer) (rows []*row, err error) {
	at := func(rule string, runs int, c condition) *score {
		i := slices.IndexFunc(rows, func(r *row) bool { return r.rule == rule && r.runs == runs })
		if i < 0 {
			i = len(rows)
			rows = append(rows, &row{rule, runs, map[string]*score{}})
		}

		s := rows[i].scores[c.name]
		if s == nil {
			s = &score{}
			rows[i].scores[c.name] = s
		}
		return s
	}
	for number, c := range conditions {
		if c.real && k.real == nil {
			continue
		}

		drawn := k.draw(rand.New(rand.NewPCG(o.seed, uint64(number))), o.series, c)
		for _, runs := range k.atOnce {
			var series [][]float64
			for _, h := range drawn {
				series = append(series, h.values(runs, c.step()))
			}

			reports, err := histories(ctx, o, series, c.step(), log)
			if err != nil {
				return nil, err
			}

			for i, byRule := range reports {
				byRule[ruleRetested] = drawn[i].retested(byRule[ruleProposed], c.step())
				for _, name := range historyRules {
					if f, ok := byRule[name]; ok {
						at(name, runs, c).add(f, series[i], c.step())
					}
				}
			}
		}

		for _, h := range drawn {
			at(ruleInterleaved, 2*runsOfNight, c).add(h.everyNight(c.step()), nil, c.step())
		}

		fmt.Fprintf(log, "%s: %s\n", k.name, c.name)
	}

	return rows, nil
}

// step returns the index of the first night after the step, nights if there is none.
func (c condition) step() int {
	if c.share == 1 {
		return nights
	}
	return stepAt
}

// drawnHistory holds the nights of a history.
type drawnHistory []night

func (k kind) draw(r *rand.Rand, n int, c condition) (drawn []drawnHistory) {
	for i := range n {
		w := k.cells[i%len(k.cells)]
		if c.real {
			w = k.real
		}

		var h drawnHistory
		for range nights {
			h = append(h, w.night(r, c.bad && r.Float64() < badShare, c.share))
		}

		drawn = append(drawn, h)
	}
	return drawn
}

// values returns the median of the first runs of each night.
func (h drawnHistory) values(runs, step int) (out []float64) {
	for i, n := range h {
		side := 0
		if i >= step {
			side = 1
		}

		out = append(out, statistics.Median(n.rates[side][:runs]))
	}
	return out
}

// historyRules lists the rules that get the values of a history, in the order of the table.
var historyRules = []string{ruleOtava, ruleJumpavg, ruleOutlier, ruleWindows, ruleProposed, ruleConfirmed,
	ruleRetested}

// histories returns what the rules report of each history. No rule is asked before there is a step that it
// could find.
func histories(ctx context.Context, o options, series [][]float64, step int,
	log io.Writer) ([]map[string]found, error) {
	from := firstNight
	if step < nights {
		from = step
	}

	reports := make([]map[string]found, len(series))
	var tasks []peerTask
	for i, values := range series {
		proposed, confirmed := make(found, nights), make(found, nights)
		far, apart := make(found, nights), make(found, nights)
		task := peerTask{Values: values}
		for night := from; night < nights; night++ {
			now := values[:night+1]
			task.Lengths = append(task.Lengths, len(now))
			far[night], apart[night] = outlier(now), windows(now)
			proposed[night], confirmed[night] = changePoints(now)
		}

		tasks = append(tasks, task)
		reports[i] = map[string]found{
			ruleOutlier:   far,
			ruleWindows:   apart,
			ruleProposed:  proposed,
			ruleConfirmed: confirmed,
		}
	}

	if o.python == "" {
		return reports, nil
	}

	answers, err := askPeers(ctx, o.python, tasks[:min(len(tasks), o.peerSeries)], log)
	for i, answer := range answers {
		for name, f := range answer {
			reports[i][name] = slices.Concat(make(found, from), f)
		}
	}

	return reports, err
}

// retested returns the proposed changes that interleaved runs of what was measured before the change, and of
// what is measured now, confirm in the same night.
func (h drawnHistory) retested(proposed found, step int) found {
	out := make(found, len(proposed))
	for night, at := range proposed {
		for _, i := range at {
			// The night i-1 may be before the step, and this one after it.
			if h[night].changed(i <= step && night >= step) {
				out[night] = append(out[night], i)
			}
		}
	}

	return out
}

// changed reports whether interleaved runs show a change: a loss, if the step lies between the two.
func (n night) changed(stepped bool) bool {
	if stepped {
		return interleaved(n.step) < 0
	}
	return interleaved(n.same) != 0
}

// everyNight returns the nights in which interleaved runs of the newest version and of the first show a
// change.
func (h drawnHistory) everyNight(step int) found {
	out := make(found, len(h))
	for i, n := range h {
		if n.changed(i >= step) {
			out[i] = []int{min(i, step)}
		}
	}
	return out
}

// nearby is the number of nights by which a reported change may be off.
const nearby = 3

// add scores what a rule reports of a history. Of a history without a step, reports of about the same night
// are one alarm. A step is found if it is reported as one, and as a loss by the values, if there are any.
func (s *score) add(f found, values []float64, step int) {
	s.histories++
	if step == nights {
		s.alarms = append(s.alarms, float64(f.alarms()))
		return
	}

	for night := step; night < len(f); night++ {
		for _, i := range f[night] {
			loss := values == nil ||
				statistics.Median(values[i:night+1]) < statistics.Median(values[:i])
			if around(i, step) && loss {
				s.delays = append(s.delays, float64(night-step+1))
				return
			}
		}
	}
}

func around(i, j int) bool { return max(i-j, j-i) <= nearby }

// alarms counts the changes that are reported.
func (f found) alarms() (n int) {
	var before []int
	for _, at := range f {
		for _, i := range at {
			if !slices.ContainsFunc(before, func(j int) bool { return around(i, j) }) {
				n++
			}

			before = append(before, i)
		}
	}
	return n
}

// falseAlarms formats the mean of alarms per history with its interval of 95 %, normal, and without an alarm
// the rule of three.
func (s *score) falseAlarms() string {
	n := float64(len(s.alarms))
	mean, variance := moments(s.alarms, func(int) float64 { return 1 })
	if mean == 0 {
		return fmt.Sprintf("0 (≤ %.3f)", 3/n)
	}

	half := 1.96 * math.Sqrt(variance/n)
	return fmt.Sprintf("%.3f (%.3f–%.3f)", mean, max(0, mean-half), mean+half)
}

// steps formats the share of steps that were found, with its interval of 95 %, and the median of the nights.
func (s *score) steps() string {
	low, high := rig.Wilson(len(s.delays), s.histories)
	share := float64(len(s.delays)) / float64(s.histories)
	text := fmt.Sprintf("%.0f %% (%.0f–%.0f)", 100*share, 100*low, 100*high)
	if len(s.delays) == 0 {
		return text + " | –"
	}

	return fmt.Sprintf("%s | %.0f", text, statistics.Median(s.delays))
}

// table prints a table of a kind.
func (k kind) table(out io.Writer, rows []*row) {
	head := []string{"rule", "n", "runs a night", "false alarms, quiet", "with bad nights"}
	for _, c := range conditions {
		if c.share < 1 && (!c.real || k.real != nil) {
			head = append(head, c.name+": found", "nights")
		}
	}

	fmt.Fprintf(out, "\n### %s\n\n| %s |\n|%s\n", k.name, strings.Join(head, " | "),
		strings.Repeat("---|", len(head)))
	slices.SortStableFunc(rows, func(a, b *row) int { return a.runs - b.runs })
	for _, r := range rows {
		runs := fmt.Sprint(r.runs)
		switch r.rule {
		case ruleInterleaved:
			runs = fmt.Sprintf("%d or %d", r.runs/2, r.runs)
		case ruleRetested:
			runs += "; retests 12 or 24"
		}

		fields := []string{r.rule, fmt.Sprint(r.scores["quiet"].histories), runs}
		for _, c := range conditions {
			s := r.scores[c.name]
			switch {
			case s == nil:
			case c.share == 1:
				fields = append(fields, s.falseAlarms())
			default:
				fields = append(fields, s.steps())
			}
		}

		fmt.Fprintf(out, "| %s |\n", strings.Join(fields, " | "))
	}
}

// describe prints the noise of the recorded cells: the spread of runs within a night, and of nights.
func describe(out io.Writer, recorded []recordedRun) {
	fmt.Fprintln(out, "\n| cell | median of its runs | standard deviation within a night | of the nights' "+
		"medians | bad nights: within | medians |\n|---|---|---|---|---|---|")
	for i, c := range recorded[0].Cells {
		spread := func(busy bool) (within, between float64) {
			var inside, middles []float64
			for _, r := range recorded {
				if busy == (r.Busy > 0) {
					inside = append(inside, rig.Deviation(r.Cells[i].Rates))
					middles = append(middles, statistics.Median(r.Cells[i].Rates))
				}
			}
			return 100 * statistics.Median(inside), 100 * rig.Deviation(middles)
		}
		var all []float64
		for _, r := range recorded {
			all = append(all, r.Cells[i].Rates...)
		}

		within, between := spread(false)
		badWithin, badBetween := spread(true)
		fmt.Fprintf(out, "| %s | %.4g | %.2f %% | %.2f %% | %.2f %% | %.2f %% |\n", c.Label,
			statistics.Median(all), within, between, badWithin, badBetween)
	}
}

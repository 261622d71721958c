package progress

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/unit"
)

// Limits of the history that the view keeps.
const (
	keepRates   = 240 // points of the sparkline; more than the width of a line
	keepResults = 4   // lines in the list of last results
)

// view is the state of a run. It depends only on the events, so the same events produce the same output.
type view struct {
	names     labeller
	run, plan string
	started   time.Time
	at        time.Time // time of the newest event
	total     int       // number of rows of the run

	index     int    // number of the current row, from 1; 0 before the first
	block     string // block in the name of the current row; "" if the name has none
	label     string // label of the current cell
	cell      string // id of the current cell
	running   bool   // a trial is in progress
	phase     string
	phaseFrom time.Time

	rate, pps float64
	rates     []float64 // rates since the trial began
	rtt       int64
	rttKind   string
	cores     []float64

	leftAt  time.Time // time of the last estimate
	leftFor time.Duration

	labText  string
	step     string // what the user is asked to do
	warnings int
	warned   string // the last warning
	last     []result
	earlier  map[string][]result // cell → finished trials with numbers
	ended    string              // final status; "" while the run is in progress
}

type result struct {
	index     int
	label     string
	status    string
	failed    bool
	why       string
	rate, pps float64
	rtt       int64
	cause     string  // what limited the trial, if that trial alone shows it
	sure      float64 // confidence of the cause, 0 to 1
}

// take updates the view with an event.
func (v *view) take(e record.Event) {
	v.general(e)
	switch e.Event {
	case RunStarted:
		v.run, v.plan, v.started = clean(e.Run), clean(e.Text), e.Time
		v.names.learn(e.Data)
	case Lab:
		v.labText = clean(e.Text)
	case Step:
		v.step = clean(e.Text)
	case Warning:
		v.warnings++
		v.warned = clean(e.Text)
	case TrialStarted:
		v.begin(e)
	case Phase:
		v.phase = clean(e.Phase)
		v.phaseFrom = e.Time
		v.labText = ""
		v.names.learn(e.Data)
	case Rate:
		v.rate = e.Rate
		v.pps = e.PPS
		// A run without bit rates shows packet rates throughout.
		v.rates = appendLast(v.rates, cmp.Or(e.Rate, e.PPS), keepRates)
	case Latency:
		v.rtt, v.rttKind = e.RTT, clean(e.Text)
	case TrialEnded:
		v.end(e)
	case RunEnded:
		if v.running { // the previous trial was cut short
			v.index--
		}

		v.ended = clean(e.Status)
		v.running = false
		v.labText = ""
	}
}

// general handles the fields that any event may have.
func (v *view) general(e record.Event) {
	v.at = e.Time
	if e.Event != Step && e.Event != Rate && e.Event != Latency {
		v.step = "" // any other event means that the user has answered
	}

	if e.Run != "" {
		v.run = clean(e.Run)
	}

	if e.Total > 0 {
		v.total = e.Total
	}

	if e.Left > 0 {
		v.leftAt = e.Time
		v.leftFor = e.Left
	}

	if len(e.Cores) > 0 {
		v.cores = append(v.cores[:0], e.Cores...)
	}
}

func (v *view) begin(e record.Event) {
	v.running, v.labText = true, ""
	v.index, v.block = e.Index, blockOf(e.Row)
	v.label, v.cell = v.names.row(e), e.Cell.Key()
	v.phase = ""
	v.phaseFrom = e.Time
	v.rate, v.pps, v.rates = 0, 0, v.rates[:0]
	v.rtt, v.rttKind = 0, ""
}

func (v *view) end(e record.Event) {
	r := result{
		index:  cmp.Or(e.Index, v.index),
		label:  v.label,
		status: clean(e.Status),
		rate:   e.Rate,
		pps:    e.PPS,
		rtt:    e.RTT,
		cause:  clean(e.Cause),
		sure:   e.Confidence,
	}
	if len(e.Cell) > 0 && (e.Cell.Key() != v.cell || !v.running) {
		r.label = v.names.row(record.Event{Row: e.Row, Cell: e.Cell})
	}

	// A failed trial has no number, whatever numbers its event carries.
	if r.status == record.TrialFailed {
		r.failed, r.why = true, clean(e.Text)
		r.rate = 0
		r.pps = 0
		r.rtt = 0
	} else if cell := e.Cell.Key(); cell != "" {
		if v.earlier == nil {
			v.earlier = map[string][]result{}
		}

		v.earlier[cell] = append(v.earlier[cell], r)
	}

	v.last = appendLast(v.last, r, keepResults)
	v.index = max(v.index, r.index)
	v.running, v.phase = false, ""
}

// left returns the remaining time. It is the sender's estimate, counted down to now, or an estimate from the
// progress so far. It is 0 if the time is unknown.
func (v *view) left(now time.Time) time.Duration {
	if v.ended != "" {
		return 0
	}

	if v.leftFor > 0 {
		return max(0, v.leftFor-since(v.leftAt, now))
	}

	done := v.done()
	if done == 0 || v.total == 0 {
		return 0
	}

	pace := since(v.started, now) / time.Duration(done)
	return pace * time.Duration(v.total-done)
}

// done returns the number of finished rows.
func (v *view) done() int {
	if v.running {
		return max(0, v.index-1)
	}
	return v.index
}

func appendLast[T any](list []T, x T, keep int) []T {
	list = append(list, x)
	return slices.Delete(list, 0, max(0, len(list)-keep))
}

// blockOf parses the block in a row's name, "b2-r07".
func blockOf(row string) string {
	head, _, ok := strings.Cut(row, "-")
	n, isBlock := strings.CutPrefix(head, "b")
	if _, err := strconv.ParseUint(n, 10, 31); !ok || !isBlock || err != nil {
		return ""
	}

	return n
}

func (r result) outcome() string {
	if r.failed {
		return strings.TrimSuffix("failed: "+r.why, ": ")
	}
	return cmp.Or(strings.Join(r.numbers(), ", "), r.status)
}

// numbers formats the results of a trial.
func (r result) numbers() []string {
	var n []string
	if r.rate > 0 {
		n = append(n, unit.Bitrate(r.rate).String())
	}

	if r.pps > 0 {
		n = append(n, unit.PacketRate(r.pps).String())
	}

	if r.rtt > 0 {
		n = append(n, "rtt "+unit.Nanoseconds(float64(r.rtt)))
	}

	return n
}

// since returns the time between two moments, at least 0.
func since(from, to time.Time) time.Duration {
	if from.IsZero() || to.Before(from) {
		return 0
	}
	return to.Sub(from)
}

package diagnosis_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/chokepoint-lab/chokepoint/bench/rig"
	"github.com/chokepoint-lab/chokepoint/internal/analysis"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/diagnosis"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/metrics"
	"github.com/chokepoint-lab/chokepoint/internal/app"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

var (
	binary  = flag.String("binary", "", "the chokepoint that makes the labs, by its whole path")
	keepDir = flag.String("keep", "", "the folder of a recording")
	only    = flag.String("only", "", "record these mechanisms alone, separated by commas")
	seed    = flag.Uint64("seed", 19, "from which parameters, furniture and loads are drawn")
)

// levels maps the factors of a cell to their levels.
type levels map[string]string

// truth names the limit of an instance; an element or node that is not given may be any.
type truth struct {
	Node    string `json:"node,omitempty"`
	Element string `json:"element,omitempty"`
	Class   string `json:"class"`
}

// at reports whether a cause is where the truth is.
func (t truth) at(c diagnosis.Cause) bool {
	return t.Node == c.Node && (t.Element == "" || t.Element == c.Element)
}

// recorded holds a planting under one load, as it was measured.
type recorded struct {
	ID        string    `json:"id"` // mechanism, number and load
	Base      levels    `json:"base"`
	Planted   *planting `json:"planted,omitempty"`
	Truths    []truth   `json:"truths,omitempty"`
	Run       string    `json:"run"`
	Trials    []string  `json:"trials"`
	Goodput   float64   `json:"goodput_bps"`
	Untouched float64   `json:"untouched_bps,omitempty"` // of the same cell without the cause
	Dropped   string    `json:"dropped,omitempty"`       // why it is no instance
	Seconds   float64   `json:"seconds,omitempty"`       // its share of the recording's time
}

// maxElsewhere bounds how much of a core other work than the lab's and the planted may take while an instance
// is measured.
const maxElsewhere = .3

// elsewhere returns how much of a core such work took.
func (x *aRun) elsewhere(r recorded) float64 {
	key, err := r.Base.key()
	if err != nil {
		return 0
	}

	for _, cell := range x.document().Cells {
		if sameCell(cell.Factors.Key(), key) {
			return cell.Metrics[record.HostNode+"_"+metrics.ForeignRatio].Median
		}
	}

	return 0
}

// bite bounds from below the share by which goodput must fall for a cause to count.
const bite = .15

// recorder measures instances, in a folder.
type recorder struct {
	t       *testing.T
	program rig.Program
	dir     string
}

const recordedFile = "instances.jsonl"

// in says whether a word is one of a list that commas separate.
func in(list, word string) bool { return slices.Contains(strings.Split(list, ","), word) }

// keep adds instances to the folder's list.
func (r *recorder) keep(all []recorded) error {
	f, err := os.OpenFile(filepath.Join(r.dir, recordedFile), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	return errors.Join(writeRecorded(f, all), f.Close())
}

func writeRecorded(to interface{ Write([]byte) (int, error) }, all []recorded) error {
	var lines bytes.Buffer
	for _, x := range all {
		line, err := json.Marshal(x)
		if err != nil {
			return err
		}

		lines.Write(append(line, '\n'))
	}

	_, err := to.Write(lines.Bytes())
	return err
}

// readRecorded reads a list of instances; a line that was cut off by a power failure is no line.
func readRecorded(file string) (all []recorded, err error) {
	text, err := os.ReadFile(file)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}

	for line := range bytes.Lines(text) {
		var x recorded
		if json.Unmarshal(line, &x) == nil {
			all = append(all, x)
		}
	}

	return all, err
}

// planOf writes a plan with these cells.
func planOf(seconds int, cells []levels) string {
	var b strings.Builder
	fmt.Fprintf(&b, "name: suite\n"+
		"method: {duration: %ds, warmup: 300ms, cooldown: 100ms, idle: 300ms, runs: 1, order: listed, "+
		"seed: 1}\n"+
		"measure: {latency_idle: block, latency_loaded: true, verify: false, telemetry: true}\n"+
		"include:\n", seconds)
	for _, c := range cells {
		text, _ := json.Marshal(c) // of strings alone
		fmt.Fprintf(&b, "  - %s\n", text)
	}

	return b.String()
}

// aRun holds a stored run.
type aRun struct {
	rig.Stored
	derived *analysis.Derivation
}

// run measures cells in a lab that is up.
func (r *recorder) run(ctx context.Context, labID string, seconds int, cells []levels) (x aRun, err error) {
	pl, err := app.ReadPlan("suite.yaml", planOf(seconds, cells), app.Peer{})
	if err != nil {
		return x, err
	}

	x.Stored, err = rig.Run(ctx, r.program.App(), pl, record.LabLocal,
		app.RunOptions{Attach: labID, Report: r.program.At("r.html")})
	return x, err
}

// key spells the identity of a cell as the program that reads plans does.
func (c levels) key() (string, error) {
	p, err := app.ReadPlan("suite.yaml", planOf(1, []levels{c}), app.Peer{})
	if err != nil {
		return "", err
	}

	if len(p.Cells()) != 1 {
		return "", fmt.Errorf("%v is no cell: %v", c, p.Skipped())
	}

	return p.Cells()[0].Key(), nil
}

// sameCell compares keys. A cell has no level of nat where the router does NAT of its own.
func sameCell(a, b string) bool {
	return strings.ReplaceAll(a, "nat=off ", "") == strings.ReplaceAll(b, "nat=off ", "")
}

// trialsOf returns the trials of a cell that ended well, or whose path was found not to carry what it should,
// and the median of their goodput; why says why there is none.
func (x *aRun) trialsOf(c levels) (ids []string, goodput float64, why string) {
	key, err := c.key()
	if err != nil {
		return nil, 0, err.Error()
	}

	for _, cell := range x.document().Cells {
		if sameCell(cell.Factors.Key(), key) {
			goodput = cell.Metrics[metrics.Goodput].Median
		}
	}

	for i := range x.Trials {
		t := &x.Trials[i]
		if t.Row.Kind != record.RowLoad || !sameCell(t.Row.Cell(), key) {
			continue
		}

		if t.Failure != nil && t.Failure.Phase != record.PhaseVerify {
			why = t.Failure.Phase + ": " + t.Failure.Error
			continue
		}

		ids = append(ids, t.ID)
	}

	if len(ids) == 0 && why == "" {
		why = "there is no trial of it"
		for _, s := range slices.Concat(x.Skipped, x.Design.Skipped) {
			if sameCell(s.Factors.Key(), key) {
				why = "skipped: " + s.Reason
			}
		}
	}

	return ids, goodput, why
}

// document derives the run's once.
func (x *aRun) document() *analysis.Document {
	if x.Document == nil {
		x.derived = analysis.Begin(x.Run, len(x.Trials))
		for _, t := range x.Trials {
			x.derived.Add(t)
		}

		x.Document = x.derived.Document()
	}
	return x.Document
}

// stop ends a command and what it started, and waits for it.
func stop(cmd *exec.Cmd) {
	_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) // it may have ended
	_ = cmd.Wait()
}

package trial_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/chokepoint-lab/chokepoint/internal/analysis"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/evidence"
	"github.com/chokepoint-lab/chokepoint/internal/labtest"
	"github.com/chokepoint-lab/chokepoint/internal/labtest/steady"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/trial"
)

func execute(t testing.TB, r *fakeCampaign) {
	t.Helper()
	if err := r.Execute(context.Background()); err != nil {
		t.Fatal(err)
	}
}

// wantPutBack: no setting and no tunnel of the campaign is left.
func wantPutBack(t testing.TB, r *fakeCampaign) {
	t.Helper()
	for topology, f := range r.Labs.Fakes {
		left := f.State()
		if len(left) > 0 {
			t.Errorf("lab %s after the campaign: got %v, want everything as it was found", topology, left)
		}
	}
}

// story returns what happened, a line each: events, and what reached the router and the engine.
func story(r *fakeCampaign) string {
	var b strings.Builder
	for _, e := range r.Events("lab", "trial-started", "phase", "note", "step", "trial-ended") {
		switch e.Event {
		case "phase":
			fmt.Fprintf(&b, "  %s\n", e.Phase)
		case "note":
			fmt.Fprintf(&b, "    %s\n", e.Text)
		case "trial-started":
			fmt.Fprintf(&b, "%s: %s\n", e.Row, e.Text)
		case "trial-ended":
			fmt.Fprintf(&b, "  %s\n", e.Status)
		default:
			fmt.Fprintf(&b, "%s: %s\n", e.Event, e.Text)
		}
	}
	return b.String()
}

// TestOrderOfEffects: what is changed, when, in which order. The second cell keeps the queue, the third
// only undoes; the last effect is the undoing.
func TestOrderOfEffects(t *testing.T) {
	r := rig(t, `
name: order
method: {runs: 1, order: listed, seed: 1}
matrix: {direction: [up]}
include:
  - {queue@router.wan: pfifo limit 50, firewall: "10"}
  - {queue@router.wan: pfifo limit 50, firewall: "20"}
measure: {latency_idle: trial, latency_loaded: true, verify: false}
steps:
  - {when: start, prompt: plug in}
  - {when: end, prompt: plug out}
`)
	r.Labs.Agentless = []string{"router"}
	r.Labs.Changed = func(router, setting, value string) {
		r.Note(fmt.Sprintf("set %s %s=%s", router, setting,
			value))
	}
	r.Labs.Engine.Watch = func(load record.Load) { r.Note("offer " + load.Protocol + " " + load.Direction) }
	r.Ask = func(_ context.Context, s record.Step) error { r.Note("asked to " + s.Prompt); return nil }
	execute(t, r)
	const trialOf = `  set-up
%s  verify-path
  idle-latency
  warm-up
    offer tcp up
  window
  drain
  collect
  ok
`
	want := "lab: lab fake-forward is up: forward\nstep: plug in\n    asked to plug in\n" +
		"b1-r01: load\n" + fmt.Sprintf(trialOf,
		"    set router lan.offload=wire\n    set router wan.offload=wire\n") +
		"b1-r02: load\n" + fmt.Sprintf(trialOf,
		"    set router wan.queue=pfifo limit 50\n    set router firewall=10\n") +
		"b1-r03: load\n" + fmt.Sprintf(trialOf, "    set router firewall=off\n    set router firewall=20\n") +
		"step: plug out\n    asked to plug out\n" +
		"    set router firewall=off\n    set router wan.queue=noqueue\n    set router lan.offload=super\n " +
		"   set router wan.offload=super\n"
	diff := cmp.Diff(want, story(r))
	if diff != "" {
		t.Errorf("order of effects (-want +got):\n%s", diff)
	}

	wantPutBack(t, r)
}

// TestFailedTrialKeepsEvidenceAndHasNoNumber: the engine dies with four streams; the cell with one is not
// touched by that.
func TestFailedTrialKeepsEvidenceAndHasNoNumber(t *testing.T) {
	r := rig(t, "name: x\nmethod: {runs: 2, seed: 1}\nmatrix: {streams: [1, 4]}\nmeasure: {latency_idle: "+
		"block, latency_loaded: true}\n")
	r.Labs.Engine.Fail = func(_ context.Context, load record.Load) error {
		if load.Streams == 4 {
			return errors.New("offer 4 streams on client: out of ports")
		}
		return nil
	}
	execute(t, r)
	if r.Outcome != (trial.Outcome{Trials: len(r.Trials), Failed: 2}) {
		t.Errorf("outcome: got %+v of %d trials, want all run and two failed", r.Outcome, len(r.Trials))
	}

	for _, tr := range r.Trials {
		failed := tr.Status == record.TrialFailed
		if failed != (tr.Row.Factors["streams"] == "4") {
			t.Errorf("trial %s with %s streams: got %s", tr.ID, tr.Row.Factors["streams"], tr.Status)
		}

		for _, p := range tr.Phases {
			if p.End < p.Start || p.Start < tr.Origin || p.End > tr.Ended {
				t.Errorf("trial %s: got phase %+v of a trial from %d to %d, want it within", tr.ID, p,
					tr.Origin, tr.Ended)
			}
		}

		if tr.Status == record.TrialOK {
			continue
		}

		want := record.Failure{Phase: record.PhaseWarmup, Error: "offer 4 streams on client: out of ports"}
		if tr.Failure == nil || *tr.Failure != want {
			t.Errorf("failure: got %+v, want %+v", tr.Failure, want)
		}

		if tr.Traffic != nil || tr.Path == nil || len(tr.Path.Counters) == 0 ||
			len(tr.Nodes["host"].Samples) == 0 {
			t.Errorf("evidence of %s: got traffic %v, path %v and %d nodes, want no traffic, the proof of "+
				"the path, and what the probes saw",
				tr.ID, tr.Traffic, tr.Path, len(tr.Nodes))
		}
	}

	for _, c := range analysis.Derive(r.Campaign.Run, r.Trials).Cells {
		_, has := c.Metrics["goodput_bps"]
		if has != (c.Factors["streams"] == "1") {
			t.Errorf("goodput with %s streams: got one: %v", c.Factors["streams"], has)
		}
	}

	wantPutBack(t, r)
}

// TestOneFailureEndsBoth: probe and engine of a trial end together, and the first cause is the one that is
// told.
func TestOneFailureEndsBoth(t *testing.T) {
	steady.Run(t, func(t *steady.Trial) {
		r := rig(t, "name: x\nmethod: {runs: 1}\nmatrix: {streams: 1}\nmeasure: {latency_idle: off, "+
			"latency_loaded: true, verify: false}\n")
		r.Plan.Design.Method.Duration = time.Minute
		r.Prober = labtest.Prober{Fail: errors.New("no socket")}
		began := time.Now()
		execute(t, r)
		tr := r.Trials[0]
		if tr.Failure == nil || tr.Failure.Error != "latency probe: no socket" {
			t.Errorf("got %+v, want the probe's failure", tr.Failure)
		}

		took := time.Since(began)
		if took > 2*time.Second {
			t.Timedf("got the probe's failure after %s, want it at once", took)
		}
	})
}

// TestATrialThatHangsTimesOut, and the next one runs.
func TestATrialThatHangsTimesOut(t *testing.T) {
	steady.Run(t, func(t *steady.Trial) {
		r := rig(t, "name: x\nmethod: {runs: 1, order: listed}\nmatrix: {streams: [1, 2]}\nmeasure: "+
			"{latency_idle: off, latency_loaded: true, verify: false}\n")
		r.Slack = 200 * time.Millisecond
		r.Labs.Engine.Fail = func(ctx context.Context, load record.Load) error {
			if load.Streams == 1 {
				<-ctx.Done()
				return context.Cause(ctx)
			}
			return nil
		}
		execute(t, r)
		if len(r.Trials) != 2 {
			t.Fatalf("got %d trials, want 2", len(r.Trials))
		}

		const tooLong = "the trial took longer than 2"
		if f := r.Trials[0].Failure; f == nil || !strings.HasPrefix(f.Error, tooLong) {
			t.Errorf("trial that hangs: got %+v, want that it took too long", f)
		}

		switch f := r.Trials[1].Failure; {
		case f != nil && strings.HasPrefix(f.Error, tooLong):
			t.Timedf("the next one: got %+v, want ok", f)
		case r.Trials[1].Status != record.TrialOK:
			t.Errorf("the next one: got %+v, want ok", f)
		}
	})
}

// TestAdaptiveStoppingOnlyRemovesRows: one cell is steady and stops at the least number; the other never
// gets narrow and runs to the end.
func TestAdaptiveStoppingOnlyRemovesRows(t *testing.T) {
	r := rig(t, `
name: x
method: {adaptive: {min: 6, max: 9, until: interval <= 5 %}, seed: 3}
matrix: {direction: [up, down]}
measure: {latency_idle: off, latency_loaded: false, verify: false}
`)
	n := 0.0
	r.Labs.Engine.Rate = func(load record.Load) float64 {
		if load.Direction == record.Up {
			return 100e6
		}

		n++
		return 100e6 * n
	}
	execute(t, r)
	ran := []string{}
	count := map[string]int{}
	for _, tr := range r.Trials {
		ran = append(ran, tr.Row.ID)
		count[tr.Row.Factors["direction"]]++
	}

	if count["up"] != 6 || count["down"] != 9 {
		t.Errorf("trials: got %v, want 6 up and 9 down", count)
	}

	var kept []string
	for _, row := range r.Plan.Rows() {
		if slices.Contains(ran, row.ID) {
			kept = append(kept, row.ID)
		}
	}

	diff := cmp.Diff(kept, ran)
	if diff != "" {
		t.Errorf("rows that ran, against the plan's own order (-plan +ran):\n%s", diff)
	}
}

// TestBudgetEndsTheCampaign: no row begins that would end behind the bound, the run says how many are
// missing,
// and what was measured before stays.
func TestBudgetEndsTheCampaign(t *testing.T) {
	t.Parallel()
	const text = `
name: x
method: {runs: 6, seed: 3}
matrix: {direction: [up, down]}
measure: {latency_idle: off, latency_loaded: false, verify: false}
`
	for name, tt := range map[string]struct {
		left time.Duration
		ran  bool
	}{"spent": {-time.Second, false}, "enough for all": {time.Hour, true}, "none": {0, true}} {
		t.Run(name, func(t *testing.T) {
			r := rig(t, text)
			if tt.left != 0 {
				r.Until = time.Now().Add(tt.left)
			}

			execute(t, r)
			want, caveats := 12, 0
			if !tt.ran {
				want, caveats = 0, 1
			}

			if len(r.Trials) != want || len(r.Caveats) != caveats {
				t.Fatalf("got %d trials and %v, want %d and %d caveats", len(r.Trials), r.Caveats, want,
					caveats)
			}

			if !tt.ran && (r.Caveats[0].Kind != "time-spent" ||
				!strings.Contains(r.Caveats[0].Text, "before the last 12 trials")) {
				t.Errorf("got %+v, want that 12 trials are missing", r.Caveats[0])
			}

			wantPutBack(t, r)
		})
	}
}

// TestInventoryBeforeAndAfter: each node that has an inventory before the first trial has one behind the
// last, which is stored once; a campaign without a trial has none.
func TestInventoryBeforeAndAfter(t *testing.T) {
	const text = `
name: x
method: {runs: 1}
matrix: {direction: [up]}
measure: {latency_idle: off, latency_loaded: false, verify: false}
`
	r := rig(t, text)
	execute(t, r)
	for _, e := range r.Campaign.Run.Environments {
		if e.Inventory == nil || e.InventoryAfter == nil || r.After[e.Node] != e.InventoryAfter {
			t.Errorf("%s: before %v, after %v, stored %v", e.Node, e.Inventory, e.InventoryAfter,
				r.After[e.Node])
		}
	}

	nodes := len(r.Campaign.Run.Environments)
	if len(r.After) != nodes || nodes == 0 {
		t.Errorf("inventories of %d nodes were stored, want %d", len(r.After), nodes)
	}

	none := rig(t, text)
	none.Until = time.Now().Add(-time.Second)
	if execute(t, none); none.After != nil {
		t.Errorf("without a trial: %v", none.After)
	}
}

// TestAdaptiveStoppingEndsWithTheLastCell: when all cells of the path are steady, it idles no more and
// nobody is asked to do anything.
func TestAdaptiveStoppingEndsWithTheLastCell(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name   string
		steady bool
		want   int
	}{{"steady", true, 6}, {"one is not", false, 9}} {
		r := rig(t, `
name: x
method: {adaptive: {min: 6, max: 9, until: interval <= 5 %}, seed: 3}
matrix: {direction: [up, down]}
measure: {latency_idle: block, latency_loaded: false, verify: false}
steps: [{when: block, prompt: let it cool}]
`)
		n := 0.0
		r.Labs.Engine.Rate = func(load record.Load) float64 {
			if tc.steady || load.Direction == record.Up {
				return 100e6
			}

			n++
			return 100e6 * n
		}
		asked, idle := 0, 0
		r.Ask = func(context.Context, record.Step) error { asked++; return nil }
		execute(t, r)
		for _, tr := range r.Trials {
			if tr.Row.Kind == record.RowIdle {
				idle++
			}
		}

		if idle != tc.want || asked != tc.want {
			t.Errorf("%s: got %d idle rows and %d steps, want %d of each", tc.name, idle, asked, tc.want)
		}
	}
}

// TestResumeSkipsWhatIsDone and tries again what failed.
func TestResumeSkipsWhatIsDone(t *testing.T) {
	const text = "name: x\nmethod: {runs: 3, seed: 5}\nmatrix: {direction: [up, down]}\nmeasure: " +
		"{latency_idle: block, latency_loaded: false, verify: true}\n"
	first := rig(t, text)
	ctx, cancel := context.WithCancelCause(context.Background())
	stop := errors.New("interrupted")
	offers := 0
	first.Labs.Engine.Fail = func(context.Context, record.Load) error {
		switch offers++; offers {
		case 3:
			return errors.New("bad luck")
		case 5:
			cancel(stop)
			<-ctx.Done()
			return context.Cause(ctx)
		}
		return nil
	}
	if err := first.Execute(ctx); !errors.Is(err, stop) {
		t.Fatalf("interrupted: got %v, want the cause", err)
	}

	wantPutBack(t, first)
	for _, tr := range first.Trials {
		if tr.Failure != nil && tr.Failure.Error != "bad luck" {
			t.Errorf("trial %s: got %+v kept, want none of the interruption", tr.ID, tr.Failure)
		}
	}

	second := rig(t, text)
	second.Done = first.Trials
	second.Marks = []record.Caveat{{Kind: "after-change", Text: "another kernel"}}
	execute(t, second)
	for _, tr := range second.Trials {
		if !slices.Contains(tr.Caveats, second.Marks[0]) {
			t.Errorf("trial %s: got %v, want it marked", tr.ID, tr.Caveats)
		}
	}

	ok := map[string]int{}
	all := map[string]int{}
	for _, tr := range append(slices.Clone(first.Trials), second.Trials...) {
		all[tr.ID]++
		if tr.Status == record.TrialOK {
			ok[tr.Row.ID]++
		}

		if tr.Attempt == 2 && tr.ID != tr.Row.ID+".2" {
			t.Errorf("second attempt: got id %s, want %s.2", tr.ID, tr.Row.ID)
		}
	}

	for _, row := range second.Plan.Rows() {
		if ok[row.ID] != 1 {
			t.Errorf("row %s: got %d good trials in both runs, want 1", row.ID, ok[row.ID])
		}
	}

	for id, n := range all {
		if n != 1 {
			t.Errorf("trial id %s: got it %d times, want once", id, n)
		}
	}
}

func TestStepsAreAskedInTheirPlaces(t *testing.T) {
	const text = `
name: x
method: {runs: 2}
matrix: {streams: 1}
measure: {latency_idle: off, latency_loaded: false, verify: false}
steps:
  - {when: end, prompt: note the power}
  - {when: block, prompt: let it cool}
  - {when: start, prompt: press reset}
`
	r := rig(t, text)
	var asked []string
	r.Ask = func(_ context.Context, s record.Step) error {
		asked = append(asked, fmt.Sprintf("%s after %d trials", s.Prompt, len(r.Trials)))
		return nil
	}
	execute(t, r)
	want := []string{"press reset after 0 trials", "let it cool after 0 trials", "let it cool after 1 trials",
		"note the power after 2 trials"}
	diff := cmp.Diff(want, asked)
	if diff != "" {
		t.Errorf("steps (-want +got):\n%s", diff)
	}

	r = rig(t, text)
	nobody := errors.New("nobody is there")
	r.Ask = func(context.Context, record.Step) error { return nobody }
	if err := r.Execute(context.Background()); !errors.Is(err, nobody) || len(r.Trials) > 0 {
		t.Errorf("a step that nobody takes: got %v after %d trials, want the error before the first", err,
			len(r.Trials))
	}
}

// TestSkipsCarryTheirReason, one of each kind, and what is not skipped runs.
func TestSkipsCarryTheirReason(t *testing.T) {
	r := rig(t, `
name: x
method: {runs: 1}
matrix: {topology: forward}
include:
  - {topology: to-router}
  - {topology: direct}
  - {topology: forward, tunnel: wireguard}
  - {topology: forward, vlan: "10"}
  - {topology: forward, streams: 7}
  - {topology: forward, engine: iperf3}
  - {topology: forward, cpus@client: masks 1 2}
measure: {latency_idle: block, latency_loaded: false, verify: true}
`)
	r.Labs.Agentless = []string{"router"}
	r.Labs.Missing = map[string]string{"direct": "the lab file has no such cable"}
	r.Labs.refuseSeven()
	execute(t, r)
	var got []string
	for _, s := range r.Campaign.Run.Skipped {
		got = append(got, s.Reason)
	}

	want := []string{
		"node router has no agent to end traffic",
		"lab fake: topology direct: the lab file has no such cable",
		"tunnel wireguard: node router has no agent to hold a tunnel's end",
		"vlan=10 on router of lab fake: router has no setting vlan: unsupported",
		"engine native: seven is too many",
		"no engine iperf3",
		`place cpus@client: read cores "masks 1 2": want a list such as 0-1,3`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("reasons (-want +got):\n%s", diff)
	}

	kinds := map[string]int{}
	for _, tr := range r.Trials {
		kinds[tr.Row.Kind]++
		if tr.Status != record.TrialOK {
			t.Errorf("trial %s: got %+v, want ok", tr.ID, tr.Failure)
		}
	}

	// One path can be run: it is verified, it idles, and one of its cells runs.
	if diff := cmp.Diff(map[string]int{record.RowVerify: 1, record.RowIdle: 1, record.RowLoad: 1},
		kinds); diff != "" {
		t.Errorf("trials by kind (-want +got):\n%s", diff)
	}
}

// TestAStoreThatIsFullEndsTheCampaign: a trial that cannot be kept is not followed by another.
func TestAStoreThatIsFullEndsTheCampaign(t *testing.T) {
	r := rig(t, "name: x\nmethod: {runs: 3}\nmatrix: {streams: 1}\nmeasure: {latency_idle: off, "+
		"latency_loaded: false, verify: false}\n")
	full := fullStore{errors.New("no space left on device")}
	r.Begin = func(context.Context, record.Run) (trial.Store, error) { return full, nil }
	if err := r.Execute(context.Background()); !errors.Is(err, full.err) || r.Outcome.Trials != 0 {
		t.Errorf("got %v and %+v, want the store's error and nothing done", err, r.Outcome)
	}

	wantPutBack(t, r)
}

type fullStore struct{ err error }

func (s fullStore) AppendTrial(context.Context, record.Trial) error { return s.err }

// TestANarrowLinkIsMeasured: TCP goes with smaller segments through a port whose MTU is too small, and its
// trials are suspect for that. UDP's packets do not fit: the failure names the port.
func TestANarrowLinkIsMeasured(t *testing.T) {
	r := rig(t, "method: {runs: 1}\nmatrix: {protocol: [tcp, udp]}\nmeasure: {latency_idle: block}\n")
	r.Begin = func(context.Context, record.Run) (trial.Store, error) {
		r.Labs.Fakes["forward"].Wire.SetMTU("router", "wan", "1300")
		wan := record.NetDevice{Name: "wan", Port: "wan", MTU: 1300}
		for i := range r.Run.Environments {
			if r.Run.Environments[i].Node == "router" {
				r.Run.Environments[i].Inventory = &record.Inventory{Devices: []record.NetDevice{wan}}
			}
		}
		return &r.Trials, nil
	}
	execute(t, r)
	for _, tr := range analysis.Derive(r.Campaign.Run, r.Trials).Trials {
		switch {
		case tr.Factors["protocol"] == "udp" && tr.Kind == record.RowLoad:
			if tr.Failure == nil || !strings.Contains(tr.Failure.Error, "wan of router has an MTU of 1300") {
				t.Errorf("%s of UDP: got failure %+v, want one that names the port", tr.Kind, tr.Failure)
			}
		case tr.Failure != nil:
			t.Errorf("%s of TCP: got failure %+v, want none", tr.Kind, tr.Failure)
		case tr.Kind == record.RowLoad && !slices.ContainsFunc(tr.Reasons, func(why evidence.Reason) bool {
			return why.Kind == evidence.ReasonWrongMTU && strings.HasSuffix(why.Text, "is 1300, wanted 1500")
		}):
			t.Errorf("%s of TCP: got reasons %+v, want the path's MTU", tr.Kind, tr.Reasons)
		}
	}
}

package trial_test

import (
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/chokepoint-lab/chokepoint/internal/lab"
	"github.com/chokepoint-lab/chokepoint/internal/labtest"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/trial"
	"github.com/chokepoint-lab/chokepoint/internal/trial/traffic"
)

// TestResumeAddsWhatIsNewlyImpossible behind what the run has skipped before, which is listed once.
func TestResumeAddsWhatIsNewlyImpossible(t *testing.T) {
	var skipped []record.Skipped
	for _, tc := range []struct {
		name    string
		missing map[string]string
		want    []string
	}{
		{"first", nil, []string{"forward 7", "direct 7"}},
		{"resumed", map[string]string{"direct": "the cable is gone"}, []string{"forward 7", "direct 7",
			"direct 1"}},
	} {
		r := rig(t, "name: x\nmethod: {runs: 1}\nmatrix: {topology: [forward, direct], streams: [1, 7]}\n")
		r.Labs.Missing = tc.missing
		r.Run.Skipped = skipped
		r.Labs.refuseSeven()
		prepare(t, r)
		skipped = r.Run.Skipped
		var got []string
		for _, s := range skipped {
			got = append(got, s.Factors["topology"]+" "+s.Factors["streams"])
		}

		diff := cmp.Diff(tc.want, got)
		if diff != "" {
			t.Errorf("%s: skipped (-want +got):\n%s", tc.name, diff)
		}
	}
}

// answering is a prober that shows one round trip as it goes.
type answering struct{ labtest.Prober }

func (p answering) Probe(ctx context.Context, near, far traffic.End, load record.Load,
	c traffic.Conductor) (*record.Latency, error) {
	c.Progress(traffic.Progress{RTT: 1e6})
	return p.Prober.Probe(ctx, near, far, load, c)
}

// TestLatencyIsToldAsWhatItIs: without load it is idle, beside it loaded.
func TestLatencyIsToldAsWhatItIs(t *testing.T) {
	r := rig(t, "name: x\nmethod: {runs: 1}\nmatrix: {streams: 1}\nmeasure: {latency_idle: trial, "+
		"latency_loaded: true, verify: false}\n")
	r.Prober = answering{}
	execute(t, r)
	var got []string
	for _, e := range r.Events("latency", "rate") {
		if e.RTT > 0 {
			got = append(got, e.Event+" "+e.Text)
		}
	}

	diff := cmp.Diff([]string{"latency idle", "latency loaded"}, got)
	if diff != "" {
		t.Errorf("round trips in the order told (-want +got):\n%s", diff)
	}
}

// TestSizesOfRouters: a cell that names the size of its routers has a lab of its own, each once.
func TestSizesOfRouters(t *testing.T) {
	r := rig(t, "matrix: {vcpus: [1, 2], memory: [256, 512], streams: [1, 4]}\n"+
		"include: [{streams: 8}, {streams: 8, mitigations: auto}]\n")
	prepare(t, r)
	want := []record.GuestSize{{CPUs: 1, MemoryMB: 256}, {CPUs: 1, MemoryMB: 512},
		{CPUs: 2, MemoryMB: 256}, {CPUs: 2, MemoryMB: 512}, {}, {Mitigations: "auto"}}
	if diff := cmp.Diff(want, r.Labs.Sizes); diff != "" {
		t.Errorf("labs (-want +got)\n%s", diff)
	}

	hard := []string{"topology", "vcpus", "memory", "mitigations"}
	if diff := cmp.Diff(hard, r.Run.Design.Hard); diff != "" {
		t.Errorf("outer blocks (-want +got)\n%s", diff)
	}
}

// TestAReasonToSkipIsToldOnce, with the number of the cells.
func TestAReasonToSkipIsToldOnce(t *testing.T) {
	r := rig(t, "name: x\nmethod: {runs: 1}\nmatrix: {topology: [forward, direct], streams: [1, 2, 7]}\n")
	r.Labs.Missing = map[string]string{"direct": "the cable is gone"}
	r.Labs.refuseSeven()
	prepare(t, r)
	want := []string{"skipped: engine native: seven is too many",
		"skipped: lab fake: topology direct: the cable is gone (3 cells)"}
	diff := cmp.Diff(want, r.Told("warning"))
	if diff != "" {
		t.Errorf("warnings (-want +got):\n%s", diff)
	}
}

// edited lends labs that take a while to come up, and are changed by a test.
type edited struct {
	*fakeLabs
	takes time.Duration
	edit  func(*lab.Node)
}

func (e edited) For(ctx context.Context, topology string, size record.GuestSize) (*lab.Lab, error) {
	time.Sleep(e.takes)
	l, err := e.fakeLabs.For(ctx, topology, size)
	if err != nil || e.edit == nil {
		return l, err
	}

	for _, name := range l.Nodes() {
		n, err := l.Node(ctx, name)
		if err != nil {
			return nil, err
		}

		e.edit(n)
	}

	return l, nil
}

// prepared is a campaign over labs after Prepare.
func prepared(t *testing.T, text string, labs trial.Labs) *fakeCampaign {
	t.Helper()
	r := rig(t, text)
	r.Campaign.Labs = labs
	prepare(t, r)
	return r
}

// prepare prepares a campaign that is closed with the test.
func prepare(t *testing.T, r *fakeCampaign) {
	t.Helper()
	if err := r.Prepare(t.Context()); err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() {
		if err := r.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
}

// TestWhatIsFixedIsToldOnce, whatever would have been set.
func TestWhatIsFixedIsToldOnce(t *testing.T) {
	r := prepared(t, "matrix: {queue: [fq_codel, cake, pfifo_fast]}\n", edited{&fakeLabs{}, 0,
		func(n *lab.Node) { n.Facts.Fixed = "nothing is changed here" }})
	want := []string{"skipped: queue on router: nothing is changed here (3 cells)"}
	diff := cmp.Diff(want, r.Told("warning"))
	if diff != "" {
		t.Errorf("warnings (-want +got):\n%s", diff)
	}
}

// TestASlowLabIsTold: a guest takes long to boot, and then somebody waits.
func TestASlowLabIsTold(t *testing.T) {
	t.Parallel()
	r := prepared(t, "matrix: {streams: 1}\n", edited{&fakeLabs{}, 1200 * time.Millisecond, nil})
	want := []string{"waiting for forward to come up", "lab fake-forward is up: forward"}
	diff := cmp.Diff(want, r.Told("lab"))
	if diff != "" {
		t.Errorf("told of the lab (-want +got):\n%s", diff)
	}
}

// TestWhatIsAheadIsWithoutTheSkipped, and the time without what is done.
func TestWhatIsAheadIsWithoutTheSkipped(t *testing.T) {
	const text = "method: {runs: 1}\nmatrix: {topology: [forward, direct], streams: [1, 2]}\n" +
		"measure: {latency_idle: off, verify: false}\n"
	var done []record.Trial
	for _, want := range [][2]int{{2, 2}, {2, 1}} {
		c := rig(t, text)
		c.Labs.Missing = map[string]string{"direct": "no cable"}
		c.Done = done
		prepare(t, c)
		var row record.Row
		for _, r := range c.Plan.Rows() {
			if r.Factors["topology"] == "forward" {
				row = r
			}
		}

		total, left, takes := c.Ahead()
		each := c.Plan.RowTime(row, 400*time.Millisecond)
		got := [2]int{total, left}
		if got != want || takes != time.Duration(left)*each {
			t.Errorf("with %d trials done: got %v rows in all and left, %s, want %v, %s each", len(done), got,
				takes, want, each)
		}

		done = append(done, record.Trial{Row: row, Status: record.TrialOK})
	}
}

// TestCountedDatagramsAreNotVerified: what the content of every load is asked for cannot be had of them.
func TestCountedDatagramsAreNotVerified(t *testing.T) {
	for verify, want := range map[string][]string{"all": {"skipped: count mode looks at no content, which " +
		"is to be verified in every load"}, "true": nil} {
		r := prepared(t, "matrix: {protocol: udp, udp_mode: [exact, count]}\nmeasure: {verify: "+verify+
			"}\n", &fakeLabs{})
		diff := cmp.Diff(want, r.Told("warning"))
		if diff != "" {
			t.Errorf("verify: %s: warnings (-want +got):\n%s", verify, diff)
		}
	}
}

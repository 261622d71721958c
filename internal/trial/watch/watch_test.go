package watch

import (
	"context"
	"errors"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/labtest/steady"
	"github.com/chokepoint-lab/chokepoint/internal/probe"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// agentOf serves handlers in this process and returns the controller's end.
func agentOf(t testing.TB, handlers map[string]host.Handler) host.Agent {
	t.Helper()
	near, far := net.Pipe()
	var served sync.WaitGroup
	served.Go(func() {
		if err := host.Serve(context.Background(), far, handlers); err != nil {
			t.Errorf("serve: %v", err)
		}
	})
	a := host.Connect(near)
	t.Cleanup(func() { a.Close(); served.Wait() })
	return a
}

// opened opens all of a list and closes it with the test.
func opened(t testing.TB, list []probe.Probe, r Request) *sampling {
	t.Helper()
	r.Probes = probe.Names(list)
	s, err := openSampling(list, r.withDefaults())
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(s.close)
	return s
}

// loop runs what samples until the test ends.
func loop(t testing.TB, s *sampling) {
	t.Helper()
	var ended sync.WaitGroup
	ended.Go(s.loop)
	t.Cleanup(func() { s.stop(); ended.Wait() })
}

// countingSampler has as its value the number of samples it has given; at the third it changes its columns.
type countingSampler struct {
	n       float64
	columns []string
}

func (s *countingSampler) Columns() []string { return s.columns }
func (s *countingSampler) Close() error      { return nil }
func (s *countingSampler) Sample(dst []float64) error {
	s.n++
	if s.n == 3 {
		s.columns = []string{"n", "more"}
		return probe.ErrColumns
	}

	dst[0] = s.n
	return nil
}

// countable is the metric of what has one column, "n".
var countable = []record.Metric{{Name: "n", Unit: "count", Counter: true}}

func countingProbe() probe.Probe {
	return probe.Probe{
		Name:  "counting",
		Scope: record.ScopeNode,
		Stems: countable,
		Source: func(probe.Options) (probe.Sampler, error) {
			return &countingSampler{columns: []string{"n"}}, nil
		},
	}
}

func absentProbe() probe.Probe {
	return probe.Probe{
		Name:   "absent",
		Scope:  record.ScopeHost,
		Slow:   true,
		Stems:  countable,
		Source: func(probe.Options) (probe.Sampler, error) { return nil, errors.New("not on this machine") },
	}
}

// named is one of the machine's own probes.
func named(root probe.Root, name string) probe.Probe {
	list := probe.All(root)
	return list[slices.Index(probe.Names(list), name)]
}

func TestWatch(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	agent := agentOf(t, map[string]host.Handler{Verb: Serve([]probe.Probe{countingProbe(), absentProbe(),
		named(probe.Root{}, "cpu")})})
	w, err := Start(ctx, agent, "n", []string{"counting", "absent", "cpu"},
		Options{Fast: 20 * time.Millisecond, Live: 20 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	from := host.Monotonic()
	time.Sleep(300 * time.Millisecond)
	d, err := w.Collect(ctx, from, host.Monotonic())
	if err != nil {
		t.Fatal(err)
	}

	if got := sampleNames(d); !slices.Equal(got, []string{"counting/node", "absent/host not on this machine",
		"cpu/host"}) {
		t.Fatalf("samples: got %q", got)
	}

	table := d.Samples[0].Table
	n := len(table.T)
	if n < 4 || n > 30 {
		t.Errorf("samples at 50 Hz in 300 ms of a busy machine: got %d", n)
	}

	if d := cmp.Diff(table.Names, []string{"n", "more"}); d != "" {
		t.Errorf("columns (-got +want):\n%s", d)
	}

	early := table.Column("more")
	if early[0] == early[0] {
		t.Errorf("column of later: got %v at first, want none", early[0])
	}

	costs := map[string]record.Cost{}
	for _, c := range d.Cost {
		costs[c.Probe] = c
	}

	if got := slices.Sorted(maps.Keys(costs)); !slices.Equal(got, []string{"counting", "cpu", "sampler"}) {
		t.Errorf("costs: got %q", got)
	}

	if c := costs["cpu"]; c.Reads != int64(len(d.Samples[2].Table.T))-1 || c.OverNs <= 0 {
		t.Errorf("cost of cpu: got %+v for %d samples", c, len(d.Samples[2].Table.T))
	}

	if got := w.Live(); len(got) == 0 {
		t.Error("live: got no core")
	}

	if d.Clock.BoundBefore <= 0 || d.Clock.BoundAfter <= 0 {
		t.Errorf("clock: got %+v, want bounds", d.Clock)
	}
}

func sampleNames(d record.NodeData) []string {
	var names []string
	for _, s := range d.Samples {
		names = append(names, strings.TrimSpace(s.Probe+"/"+s.Scope+" "+s.Unavailable))
	}
	return names
}

// Between two samples an hour apart, only marks are sampled.
func TestMarksSampleEverythingAtTheirTime(t *testing.T) { steady.Run(t, marksSampleEverything) }

func marksSampleEverything(t *steady.Trial) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	agent := agentOf(t, map[string]host.Handler{Verb: Serve([]probe.Probe{countingProbe(),
		named(probe.Root{}, "memory")})})
	w, err := Start(ctx, agent, "n", []string{"counting", "memory"}, Options{
		Fast: time.Hour,
		Slow: time.Hour,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	time.Sleep(50 * time.Millisecond) // the sample at the start
	now := host.Monotonic()
	marks := []int64{now + 80e6, now + 30e6, now - 5e9} // the last one is taken when it arrives
	if err := w.Schedule(marks...); err != nil {
		t.Fatal(err)
	}

	var times []int64
	for end := now + 5e9; len(times) < 4 && host.Monotonic() < end; time.Sleep(20 * time.Millisecond) {
		d, err := w.Collect(ctx, 0, host.Monotonic())
		if err != nil {
			t.Fatal(err)
		}

		times = d.Samples[1].Table.T // the last to be read at a mark
		first := d.Samples[0].Table.T
		if len(times) == 4 && len(first) != 4 {
			t.Errorf("got %d and %d samples, want both probes at each mark", len(first), len(times))
		}
	}

	if len(times) != 4 {
		t.Timedf("samples: got %d, want one at the start and three marks", len(times))
		return
	}

	if times[0] >= now || times[1] < now || times[2] < marks[1]-1e6 || times[3] < marks[0]-1e6 {
		t.Timedf("times after the marks were set: got %v, want after %v", times, marks)
	}
}

// A mark that falls due while a sampler reads is taken late: that is a stall of the sampler. The sampler sets
// the mark itself, so that the mark is due during the read however slowly the machine runs.
func TestASamplerThatComesLateIsAStall(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	var s *sampling
	marked := false
	during := func() error {
		if marked {
			return nil
		}

		marked = true
		defer time.Sleep(2 * stallNs)
		return s.schedule([]int64{host.Monotonic() + 1e6})
	}
	slow := probe.Probe{
		Name:   "slow",
		Scope:  record.ScopeNode,
		Stems:  countable,
		Source: func(probe.Options) (probe.Sampler, error) { return samplerFunc(during), nil },
	}
	s = opened(t, []probe.Probe{slow}, Request{FastNs: int64(time.Hour)})
	loop(t, s)
	for ; ctx.Err() == nil; time.Sleep(5 * time.Millisecond) {
		d, err := s.collect(0, host.Monotonic(), func(record.Samples) error { return nil })
		if err != nil {
			t.Fatal(err)
		}

		if len(d.Stalls) > 0 {
			if d.Stalls[0].LateNs < stallNs {
				t.Errorf("stall: got %d ns late, want at least %d", d.Stalls[0].LateNs, int64(stallNs))
			}
			return
		}
	}

	t.Error("got no stall, want the mark that fell due during a read")
}

// samplerFunc is a sampler of one column whose reads call the function.
type samplerFunc func() error

func (samplerFunc) Columns() []string        { return []string{"n"} }
func (samplerFunc) Close() error             { return nil }
func (f samplerFunc) Sample([]float64) error { return f() }

func TestWatchRefusesAnUnknownProbe(t *testing.T) {
	agent := agentOf(t, map[string]host.Handler{Verb: Serve(nil)})
	_, err := Start(context.Background(), agent, "router", []string{"nonesuch"}, Options{})
	if err == nil || !strings.Contains(err.Error(), "nonesuch") || !strings.Contains(err.Error(), "router") {
		t.Errorf("got %v, want an error that names the probe and the node", err)
	}
}

func TestCollectEndsWithTheAgent(t *testing.T) {
	agent := agentOf(t, map[string]host.Handler{Verb: Serve([]probe.Probe{countingProbe()})})
	w, err := Start(context.Background(), agent, "n", []string{"counting"}, Options{})
	if err != nil {
		t.Fatal(err)
	}

	agent.Close()
	if _, err := w.Collect(context.Background(), 0, 1); !errors.Is(err, host.ErrUnreachable) {
		t.Errorf("collect: got %v, want unreachable", err)
	}

	w.Close()
	if err := w.Schedule(1); err == nil {
		t.Error("schedule: got no error")
	}
}

// TestACollectionIsBounded: a node that samples without end is not kept without end.
func TestACollectionIsBounded(t *testing.T) {
	c := &collection{done: make(chan struct{})}
	w := &Watcher{node: "n", waiting: map[int]*collection{1: c}}
	for range 1000 {
		w.take(answer{
			ID: 1,
			Samples: &record.Samples{Table: &record.Table{
				Names: []string{"x"},
				T:     make([]int64, 1<<16),
			}},
		})
	}

	if c.err == nil || !strings.Contains(c.err.Error(), "more than 256 MiB") || c.data.Samples != nil {
		t.Errorf("got %d parts, %v, want that they are too many", len(c.data.Samples), c.err)
	}

	<-c.done
}

func TestEnvironment(t *testing.T) {
	agent := agentOf(t, Handlers(probe.Root{}))
	e, err := probe.Environment(context.Background(), agent, "router")
	if err != nil {
		t.Fatal(err)
	}

	if e.Node != "router" || e.Facts["os"] == "" || e.Facts["agent_arch"] == "" {
		t.Errorf("got %+v, want a node with its facts", e)
	}

	for name, reason := range e.Missing {
		if reason == "" || e.Facts[name] != "" {
			t.Errorf("%s: got reason %q and fact %q, want one of them", name, reason, e.Facts[name])
		}
	}
}

// TestRequestsAreWithinBounds: a controller that wants a reading each nanosecond gets as many as a node can
// bear, and cannot name times without end.
func TestRequestsAreWithinBounds(t *testing.T) {
	for _, tt := range [][2]int64{{0, defaultFastNs}, {1, minNs}, {-5, defaultFastNs}, {1 << 62, maxNs},
		{20e6, 20e6}} {
		got := (Request{FastNs: tt[0]}).withDefaults().FastNs
		if got != tt[1] {
			t.Errorf("interval %d: got %d, want %d", tt[0], got, tt[1])
		}
	}

	s := opened(t, nil, Request{})
	if err := s.schedule(make([]int64, maxMarks)); err != nil {
		t.Errorf("%d times: got %v, want nil", maxMarks, err)
	}

	many := Request{Probes: slices.Repeat([]string{"cpu"}, maxProbes+1)}
	if _, err := openSampling(probe.All(probe.Root{}), many); err == nil {
		t.Errorf("%d probes: got nil, want an error", len(many.Probes))
	}

	if err := s.schedule([]int64{0}); err == nil {
		t.Error("one time more: got nil, want an error")
	}
}

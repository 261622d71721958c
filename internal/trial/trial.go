// Package trial executes trials, and campaigns of all rows of a plan. It records data and does not compute
// results.
package trial

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/factor"
	"github.com/chokepoint-lab/chokepoint/internal/lab"
	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/trial/traffic"
)

// attempt holds the state of a trial in progress.
type attempt struct {
	*testbed // nil before it is set up
	c        *Campaign
	m        record.Method // in a search, Duration is that of the trial
	d        demand
	t        *record.Trial
	way      way
	moves    []record.CounterDelta // values of the counters before the load
}

// try executes one row. It returns a complete trial, whether or not the trial failed. It returns an error
// only if ctx was cancelled; then the trial must not be stored.
func (c *Campaign) try(ctx context.Context, row record.Row, number int,
	step *record.SearchTrial) (*record.Trial, error) {
	t := c.newTrial(row, number, step)
	m := c.Run.Design.Method
	if step != nil {
		m.Duration = step.Duration
	}

	a := &attempt{c: c, m: m, t: t}
	slack := cmp.Or(c.Slack, lab.UsualSlack)
	if b := c.testbeds[placeOf(row.Factors)]; b != nil && c.Slack == 0 {
		slack = b.lab.Slack()
	}

	limit := m.Warmup + m.Duration + m.Idle + m.Cooldown + slack
	if row.Kind == record.RowCipher {
		limit += m.Duration + time.Second // two parts are possible, and times are rounded up to seconds
	}

	within, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("the trial took longer than %s", limit))
	defer cancel()
	err := a.run(within)
	t.Ended = host.Monotonic()
	c.addMeter(t)
	if ctx.Err() != nil {
		return t, context.Cause(ctx)
	}

	if err != nil {
		t.Status = record.TrialFailed
		t.Failure = &record.Failure{
			Phase: t.Phases[len(t.Phases)-1].Name,
			Error: err.Error(),
			Hint:  check.HintOf(err),
		}
		a.evidence(ctx)
	}

	if c.rebootFor(row.Factors, err) {
		a.lab.PathDead()
	}

	return t, nil
}

// rebootFor reports whether virtual routers should be rebooted after a trial of a cell that ended with err.
// They should be rebooted if the path is dead, but only once until a trial of the cell succeeds, because the
// cell's own settings, such as a firewall, may block the path.
func (c *Campaign) rebootFor(cell record.Factors, err error) bool {
	switch key := cell.Key(); {
	case err == nil:
		delete(c.rebooted, key)
	case errors.Is(err, errDead) && !c.rebooted[key]:
		put(&c.rebooted, key, true)
		return true
	}
	return false
}

// put sets an entry of a map, which it makes first if the map is nil.
func put[K comparable, V any](m *map[K]V, key K, value V) {
	if *m == nil {
		*m = map[K]V{}
	}

	(*m)[key] = value
}

func (c *Campaign) newTrial(row record.Row, number int, step *record.SearchTrial) *record.Trial {
	return &record.Trial{
		Row: row,
		TrialHead: record.TrialHead{
			ID:      fmt.Sprintf("%s.%d", row.ID, number),
			Search:  step,
			Started: time.Now().UTC(),
			Caveats: slices.Clone(c.Marks),
		},
		Run:     c.Run.ID,
		Attempt: number,
		Origin:  host.Monotonic(),
		Status:  record.TrialOK,
	}
}

// caveat adds a caveat to the trial.
func (a *attempt) caveat(kind, text string) {
	a.t.Caveats = append(a.t.Caveats, record.Caveat{Kind: kind, Text: text})
}

// evidence stores the telemetry recorded during a failed trial.
func (a *attempt) evidence(ctx context.Context) {
	if a.testbed == nil || a.watch == nil || a.t.Nodes != nil {
		return
	}

	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	var err error
	if a.t.Nodes, err = a.watch.collect(ctx, a.t.Origin, host.Monotonic()); err != nil {
		a.caveat("evidence-incomplete", err.Error())
	}
}

func (a *attempt) run(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	var guards sync.WaitGroup
	defer guards.Wait()
	defer cancel(nil)
	kind := a.t.Row.Kind
	ciphers := kind == record.RowCipher
	idles := kind == record.RowIdle || kind == record.RowLoad && a.c.Run.Design.Measure.LatencyIdle == "trial"
	steps := []struct {
		phase string
		do    func(context.Context) error
		skip  bool
	}{
		{record.PhaseSetup, a.setUp, false},
		{record.PhaseVerify, a.verify, ciphers},
		{record.PhaseIdle, a.idle, !idles},
		{record.PhaseWarmup, a.load, kind == record.RowIdle || ciphers},
		{record.PhaseWindow, a.cipher, !ciphers},
		{record.PhaseDrain, a.drain, false},
		{record.PhaseCollect, a.collect, false},
	}
	for _, s := range steps {
		if s.skip {
			continue
		}

		a.t.Phases = append(a.t.Phases, record.Phase{Name: s.phase, Start: host.Monotonic()})
		a.c.tell(record.Event{Event: "phase", Row: a.t.Row.ID, Phase: s.phase})
		err := s.do(ctx)
		last := &a.t.Phases[len(a.t.Phases)-1]
		if last.End == 0 { // load sets the end of its window itself
			last.End = host.Monotonic()
		}

		if err != nil {
			return cmp.Or(context.Cause(ctx), err)
		}

		if s.phase == record.PhaseSetup {
			// Watch the nodes, because otherwise the endpoints would wait for a lost router until they time
			// out.
			guards.Go(func() {
				if err := a.lab.Guard(ctx); err != nil {
					cancel(err)
				}
			})
		}
	}

	return nil
}

// setUp prepares the lab. It changes only what differs from the previous row.
func (a *attempt) setUp(ctx context.Context) (err error) {
	if a.testbed, err = a.c.testbed(ctx, a.t.Row.Factors); err != nil {
		return err
	}

	row := a.t.Row
	byKnob := a.t.Search != nil && a.m.Search != nil && a.m.Search.Knob != ""
	if byKnob {
		level := strconv.FormatFloat(math.Round(a.t.Search.Load/1e3), 'f', -1, 64) + "k"
		row.Factors = factor.Name(a.m.Search.Knob).With(row.Factors, level)
	}

	if a.d, err = a.c.ask(row, a.lab.Topology, a.m); err != nil {
		return err
	}

	if byKnob {
		a.d.load.Duration = a.t.Search.Duration
	} else if a.t.Search != nil {
		if err := a.d.asks(a.t.Search); err != nil {
			return err
		}
	}

	if row.Kind != record.RowCipher {
		if why, err := a.c.fit(ctx, a.lab, &a.d); err != nil || why != "" {
			return cmp.Or(err, errors.New(why))
		}
	}

	a.d.load.Tag = a.lab.Tag(a.name())
	if found, ok := factor.FoundOf(a.t.Row.Factors); ok && a.t.Row.Kind == record.RowLoad {
		if a.d.load.RateBps, err = a.c.interim.ShareOf(found); err != nil {
			return err
		}
	}

	if err := a.c.stopIdleLoad(ctx, a.lab); err != nil {
		return err
	}

	a.t.Boots = a.c.bootsOf(ctx, a.lab)
	if a.c.anotherBoot(a.t) {
		a.caveat("another-boot", "the router was booted anew before this trial: it is another one than that "+
			"of the trials before")
		a.c.tell(record.Event{
			Event: "warning",
			Row:   row.ID,
			Text:  "the router was booted anew: nothing is concluded of trials before and after together",
		})
	}

	if err := a.lab.Reconcile(ctx, a.d.settings); err != nil || row.Kind == record.RowCipher {
		return err
	}

	if err := a.lab.AwaitReassembly(ctx); err != nil {
		return err
	}

	path, err := a.lab.Path(ctx, a.d.tunnel)
	if err != nil {
		return err
	}

	a.t.Resolved = map[string]string{"tunnel": path.Resolved}
	if factor.Firmware.In(row.Factors) {
		a.t.Resolved[firmwareFact] = a.c.version
	}

	a.follow(path.Settings)
	a.way, err = gather(ctx, a.lab, path, a.d)
	for _, r := range a.way.unwatched {
		if !a.lab.OwnNetwork() {
			continue // not added here, because it is reported once per run
		}

		a.caveat("router-not-watched", r+" has no agent: its counters and probes are missing, and that "+
			"traffic passed it is not proven by them")
	}

	return err
}

// name returns an identifier of this trial for its packets. The identifier does not protect against
// forgery; see lab.Lab.Tag.
func (a *attempt) name() string { return a.c.Run.ID + "/" + a.t.ID }

// follow records which settings of a node also apply to the node's tunnel devices.
func (a *attempt) follow(settings []lab.Followed) {
	for _, f := range settings {
		if f.Cannot == "" {
			a.t.Resolved[f.Knob+"@"+f.Node+".tunnel"] = f.Value
			continue
		}

		a.caveat("tunnel-not-set", fmt.Sprintf("%s=%s does not hold on the tunnel's device %s of %s: %s",
			f.Knob, f.Value, f.Port, f.Node, f.Cannot))
	}
}

func (a *attempt) verify(ctx context.Context) (err error) {
	if a.d.probeOpener == "" || a.way.thirdParty { // nothing would answer the path check
		a.t.Path = &record.PathEvidence{Tunnel: a.way.path.Resolved}
		if !a.way.thirdParty {
			a.caveat("no-datagrams", "no UDP gets through between the machines: latency is not measured, "+
				"and nothing proves what the path carries")
		}
		return nil
	}

	a.t.Path, err = a.way.prove(ctx, a.d.wantMTU)
	if !errors.Is(err, errTooLarge) {
		return err
	}

	mtu, err := blameMTU(err, a.c.Run.Environments, a.lab.Topology, a.t.Row.Factors, a.d.wantMTU)
	if mtu == 0 || a.t.Row.Kind != record.RowIdle && !factor.Protocol.Is(a.t.Row.Factors, factor.TCP) {
		return err
	}

	// Continue with the smaller MTU, because TCP's segments become smaller and probes are small.
	path, narrower := a.way.prove(ctx, mtu)
	if narrower != nil {
		return err
	}

	path.WantMTU = a.d.wantMTU
	a.t.Path = path
	return nil
}

func (a *attempt) idle(ctx context.Context) (err error) {
	if a.d.probeOpener == "" {
		return nil // the path's caveat reports it already
	}

	m := a.m
	con := newConductor(1, 0, m.Idle)
	con.progress = a.c.report(a.watch, a.t.Row.ID, "idle")
	if a.t.Row.Kind == record.RowIdle {
		con.fixed = func(w record.Window) error { a.t.Window = w; return a.watch.schedule(w) }
	}

	wait := a.probeHops(ctx, con, 0, m.Idle, func(h *record.Hop) **record.Latency { return &h.Idle })
	a.t.Idle, err = a.c.Prober.Probe(ctx, a.way.near, a.way.far, a.probeLoad(0, m.Idle), con)
	wait()
	return err
}

// probeLoad returns the load that describes the latency probe.
func (a *attempt) probeLoad(warmup, duration time.Duration) record.Load {
	return record.Load{
		Protocol:   "echo",
		Direction:  record.Up,
		Streams:    1,
		IP:         a.d.ip,
		PacketSize: 100,
		Opener:     a.d.probeOpener,
		Port:       a.d.ports.Echo,
		Warmup:     warmup,
		Duration:   duration,
		Interval:   a.c.Run.Design.Measure.ProbeInterval,
		Spacing:    a.c.Run.Design.Measure.ProbeSpacing,
		Tag:        a.d.load.Tag,
	}
}

// load offers the traffic and runs the latency probe. It splits the phase into warm-up and window.
func (a *attempt) load(ctx context.Context) error {
	engine := a.c.engine(a.d.engine)
	if engine == nil {
		return fmt.Errorf("no engine %q", a.d.engine)
	}

	probed := a.c.Run.Design.Measure.LatencyLoaded && a.t.Row.Kind == record.RowLoad && a.d.probeOpener != ""
	parties := 1
	if probed {
		parties = 2
	}

	var err error
	if a.moves, err = a.way.counters(ctx, false); err != nil {
		return err
	}

	con := newConductor(parties, a.d.load.Warmup, a.d.load.Duration)
	con.progress = a.c.report(a.watch, a.t.Row.ID, "loaded")
	told := func() {}
	var begun <-chan edge
	looking, stop := context.WithCancel(ctx)
	defer stop()
	con.fixed = func(w record.Window) error {
		a.t.Window = w
		told = a.c.narrate(a.t.Row.ID, w)
		begun = a.way.startEdge(looking, w)
		return a.watch.schedule(w)
	}
	err = a.offer(ctx, engine, con, probed)
	told()
	stop()
	start := edge{err: errors.New("the load did not begin")}
	if begun != nil {
		start = <-begun
	}

	a.t.Window.Stop = min(a.t.Window.Stop, host.Monotonic())
	at := a.t.Window.Start
	if err == nil || at > 0 && host.Monotonic() > at {
		// The phase covered warm-up and window, so split it at the start of the window. A failed load may not
		// have reached the end of the window.
		a.t.Phases[len(a.t.Phases)-1].End = at
		a.t.Phases = append(a.t.Phases, record.Phase{
			Name:  record.PhaseWindow,
			Start: at,
			End:   min(a.t.Window.End, host.Monotonic()),
		})
	}

	if err != nil {
		return err
	}

	moves, err := settled(ctx, func() ([]record.CounterDelta, error) {
		return a.way.moved(ctx, a.moves, "load")
	})
	window := start.ofWindow(moves, a.t.Window)
	if len(window) > 0 {
		a.t.Path.CountedFrom = start.at
	}

	a.t.Path.Counters = slices.Concat(a.t.Path.Counters, moves, window)
	return err
}

// offer runs the engine and the probe concurrently. If one fails, the other is cancelled.
func (a *attempt) offer(ctx context.Context, engine traffic.Engine, con *conductor, probed bool) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var probing sync.WaitGroup
	var probeErr, err error
	wait := func() {}
	if probed {
		wait = a.probeHops(ctx, con, a.d.load.Warmup, a.d.load.Duration,
			func(h *record.Hop) **record.Latency { return &h.Loaded })
		probing.Go(func() {
			a.t.Loaded, probeErr = a.c.Prober.Probe(ctx, a.way.near, a.way.far, a.probeLoad(a.d.load.Warmup,
				a.d.load.Duration), con)
			if probeErr != nil {
				probeErr = fmt.Errorf("latency probe: %w", probeErr)
				cancel(probeErr)
			}
		})
	}

	a.t.Traffic, err = engine.Offer(ctx, a.way.near, a.way.far, a.d.load, con)
	if err != nil {
		cancel(err)
	} else {
		a.t.Traffic.Load.Tag = a.name()     // replaced, because the tag in the packets may be secret
		if a.t.Row.Kind == record.RowLoad { // rates of rows of other kinds are irrelevant
			err = traffic.Measured(a.t.Traffic)
		}
	}

	probing.Wait()
	wait()
	if probeErr != nil && (err == nil || context.Cause(ctx) == probeErr) {
		return probeErr
	}

	return err
}

// drain waits until queues are empty before the next row begins.
func (a *attempt) drain(ctx context.Context) error {
	return host.Pause(ctx, a.c.Run.Design.Method.Cooldown)
}

func (a *attempt) collect(ctx context.Context) (err error) {
	a.t.Nodes, err = a.watch.collect(ctx, a.t.Origin, host.Monotonic())
	return cmp.Or(a.sameRouter(ctx), err)
}

func (c *Campaign) engine(name string) traffic.Engine {
	for _, e := range c.Engines {
		if e.Name() == name {
			return e
		}
	}
	return nil
}

// lead is the time between fixing the timeline and its start. It is long enough for a message to reach
// every node.
const lead = 15 * time.Millisecond

// drain limits the time to wait for packets in transit at the end of the window. Packets that arrive later
// count as lost. The endpoints stop waiting as soon as nothing is missing.
const drain = 500 * time.Millisecond

// conductor implements traffic.Conductor for the activities of a trial. It fixes the timeline when all of
// them are ready.
type conductor struct {
	warmup, duration time.Duration
	fixed            func(record.Window) error // called once, when the last activity is ready
	progress         func(traffic.Progress)

	mu      sync.Mutex
	waiting int
	window  record.Window
	err     error
	start   chan struct{} // closed when the timeline is fixed
}

func newConductor(engines int, warmup, duration time.Duration) *conductor {
	return &conductor{
		waiting:  engines,
		warmup:   warmup,
		duration: duration,
		start:    make(chan struct{}),
		fixed:    func(record.Window) error { return nil },
		progress: func(traffic.Progress) {},
	}
}

// Ready implements traffic.Conductor.
func (c *conductor) Ready(ctx context.Context) (record.Window, error) {
	c.mu.Lock()
	c.waiting--
	if c.waiting == 0 {
		c.window = traffic.NewWindow(host.Monotonic()+int64(lead), c.warmup, c.duration, drain)
		c.err = c.fixed(c.window)
		close(c.start)
	}

	c.mu.Unlock()
	return c.begun(ctx)
}

// begun waits for the timeline and returns it.
func (c *conductor) begun(ctx context.Context) (record.Window, error) {
	select {
	case <-c.start:
		return c.window, c.err
	case <-ctx.Done():
		return record.Window{}, context.Cause(ctx)
	}
}

func (c *conductor) Progress(p traffic.Progress) { c.progress(p) }

package trial

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/factor"
	"github.com/chokepoint-lab/chokepoint/internal/lab"
	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/lab/pair"
	"github.com/chokepoint-lab/chokepoint/internal/plan"
	"github.com/chokepoint-lab/chokepoint/internal/probe"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/trial/meter"
	"github.com/chokepoint-lab/chokepoint/internal/trial/traffic"
	"github.com/chokepoint-lab/chokepoint/internal/trial/traffic/ceiling"
	"github.com/chokepoint-lab/chokepoint/internal/unit"
)

// Labs provides testbeds by topology, and by the size of the routers if a cell gives one. A lab stays up
// until Close, which restores everything.
type Labs interface {
	For(ctx context.Context, topology string, size record.GuestSize) (*lab.Lab, error)
	Close(ctx context.Context) error
}

// Store keeps finished trials; each is on disk when AppendTrial returns.
type Store interface {
	AppendTrial(ctx context.Context, t record.Trial) error
}

// Interim analyses the trials so far and bases decisions on them. It belongs to one boot of the routers.
type Interim interface {
	Add(t *record.Trial)
	// Narrow reports whether the interval of a cell's rate is as narrow as the design requires.
	Narrow(cell string) bool
	// Next returns the next trial of a row's search; more is false once the search has ended.
	Next(row record.Row) (next record.SearchTrial, more bool, err error)
	// ShareOf returns the load, in payload bits per second, of a cell that takes a share of another's rate.
	ShareOf(found factor.Found) (bps float64, err error)
}

// Campaign runs a plan's rows. Its fields are fixed before Prepare.
type Campaign struct {
	Run     record.Run
	Plan    *plan.Plan
	Labs    Labs
	Engines []traffic.Engine
	Prober  traffic.Prober
	Hopper  traffic.Prober // for the routers between machines; nil: they are not probed
	Probes  []probe.Probe
	Store   Store
	Sink    func(record.Event)
	Ask     func(ctx context.Context, s record.Step) error // asks a human to do a step
	Done    []record.Trial                                 // trials of the resumed run
	// NewInterim returns an Interim without trials.
	NewInterim func(run *record.Run) Interim
	// Brief returns the numbers of a finished trial for the live view; nil: none are shown.
	Brief func(run *record.Run, t record.Trial) record.Event
	// Install makes the user install a firmware on the router, and returns once that is done; nil: there is
	// no user to do so.
	Install func(ctx context.Context, level string) error
	// InstallWait bounds the time until the router then reports its new version; 0 = 5 min.
	InstallWait time.Duration
	// Learnt stores facts about the run that became known after its head was stored; nil: nothing is stored.
	Learnt func(ctx context.Context, skipped []record.Skipped, caveats []record.Caveat) error
	// LearntAfter stores the inventories of the nodes after the last trial, by node; nil: nothing is stored.
	LearntAfter func(ctx context.Context, after map[string]*record.Inventory) error
	// Marks are caveats added to each trial made; they may still be set after Prepare.
	Marks []record.Caveat
	// Unfit reports cells that must not run any more, and is asked before each row; nil: none.
	Unfit func(cell record.Factors) bool
	// time that a trial may take beyond its own; 0 = 20 s, 60 s with guests
	Slack time.Duration
	// Until bounds the campaign: it ends before the first row that, judging by the previous rows, would end
	// later, and that is recorded in the run. Zero: no bound.
	Until time.Time

	meter        *meter.Meter // of power, while the meter is read; nil: no meter
	meterFailing bool         // it has already been reported

	mu       sync.Mutex // guards Sink: events come from several goroutines
	testbeds map[labPlace]*testbed
	// discovered holds the paths between two machines, by version of IP.
	discovered map[int]*discoveredPath
	nat        map[natPlace]bool   // whether the network of our own lab translates addresses
	mute       map[netip.Addr]bool // hops that did not answer in time
	// The router's last firmware level, its reported version, "" if unknown, and whether a step has installed
	// something.
	equipped, version string
	installed         bool
	interim           Interim           // on which later rows depend
	skip              map[string]bool   // cells
	rebooted          map[string]bool   // cells, see rebootFor
	kernels           map[string]string // boot → the first machine that has it
	boots             map[string]string // of the previous trial, see record.Trial.Boots
	attempts          map[string]int    // row → attempts in Done
	total             int
	index             int
	pace              pace
}

// labPlace is the lab that a cell needs.
type labPlace struct {
	topology string
	size     record.GuestSize
}

func placeOf(cell record.Factors) labPlace {
	return labPlace{factor.Topology.Of(cell), record.GuestSize{
		CPUs:        factor.VCPUs.Number(cell),
		MemoryMB:    factor.Memory.Number(cell),
		Mitigations: factor.Mitigations.Of(cell),
	}}
}

// Lab returns the lab of the first cell that runs, nil if none does.
func (c *Campaign) Lab() *lab.Lab {
	for _, cell := range c.Plan.Cells() {
		b := c.testbeds[placeOf(cell)]
		if b != nil && !c.skip[cell.Key()] {
			return b.lab
		}
	}
	return nil
}

type testbed struct {
	lab     *lab.Lab
	watch   *watches
	ciphers map[string]*cipherNode // by name
}

// Kinds lists the kinds of traffic of the cells that Prepare did not skip.
func (c *Campaign) Kinds() []ceiling.Kind {
	var out []ceiling.Kind
	for _, cell := range c.Plan.Cells() {
		b := c.testbeds[placeOf(cell)]
		if c.skip[cell.Key()] || b == nil || !factor.Sends(cell) {
			continue
		}

		row := record.Row{
			Assignment: record.Assignment{Kind: record.RowLoad, Factors: cell},
			ID:         "ceiling",
		}
		d, err := c.ask(row, b.lab.Topology, c.Run.Design.Method)
		if err != nil {
			continue
		}

		if c.Run.Design.Searches(row.Assignment) && record.SearchUnit(cell) == record.UnitFlows {
			d.load.ConnectionRate = 1 // the search chooses it
		}

		out = append(out, ceiling.KindOf(d.engine, d.load, record.Link{
			Offload: factor.Offload.Of(cell),
			MTU:     factor.LinkMTU.Number(cell),
		}))
	}
	return ceiling.Few(out)
}

// Outcome counts what a campaign did.
type Outcome struct{ Trials, Failed int }

func (o *Outcome) add(t *record.Trial) {
	o.Trials++
	if t.Status == record.TrialFailed {
		o.Failed++
	}
}

func (c *Campaign) tell(e record.Event) {
	e.Time = time.Now().UTC()
	e.Run = c.Run.ID
	if e.Total == 0 {
		e.Total = c.total
		e.Index = c.index
	}

	c.mu.Lock()
	defer c.mu.Unlock()
	if c.Sink != nil {
		c.Sink(e)
	}
}

// bootNotice is the time after which a lab that still comes up is reported.
const bootNotice = time.Second

// testbed brings up the lab of a cell with its watch, once.
func (c *Campaign) testbed(ctx context.Context, cell record.Factors) (*testbed, error) {
	place := placeOf(cell)
	if b := c.testbeds[place]; b != nil {
		return b, c.ensureWatch(ctx, b)
	}

	told := make(chan struct{})
	slow := time.AfterFunc(bootNotice, func() { // a guest is booting
		defer close(told)
		c.tell(record.Event{Event: "lab", Text: "waiting for " + place.topology + " to come up"})
	})
	l, err := c.Labs.For(ctx, place.topology, place.size)
	if !slow.Stop() {
		<-told
	}

	if err != nil {
		return nil, err
	}

	b := &testbed{lab: l, ciphers: map[string]*cipherNode{}}
	if err := c.ensureWatch(ctx, b); err != nil {
		return nil, err
	}

	if c.testbeds == nil {
		c.testbeds = map[labPlace]*testbed{}
	}

	c.testbeds[place] = b
	c.tell(record.Event{Event: "lab", Text: fmt.Sprintf("lab %s is up: %s", l.ID, place.topology)})
	return b, nil
}

// stopIdleLoad stops CPU-burning faults in other labs without traffic, because all labs share this machine's
// CPUs.
func (c *Campaign) stopIdleLoad(ctx context.Context, l *lab.Lab) (err error) {
	for _, b := range c.testbeds {
		if b.lab != l {
			err = errors.Join(err, b.lab.StopIdleLoad(ctx))
		}
	}
	return err
}

// ensureWatch opens the watch of a testbed unless it is open or unwanted.
func (c *Campaign) ensureWatch(ctx context.Context, b *testbed) (err error) {
	if b.watch == nil && c.Run.Design.Measure.Telemetry {
		b.watch, err = openWatch(ctx, b.lab, c.Probes)
	}
	return err
}

// ErrMachineGone means that a machine needed by the lab is gone: no further trial can succeed.
var ErrMachineGone = errors.New("a machine is gone")

// A machine that is gone is tried this many times, a second apart: the network may be back soon. If a machine
// answers but still serves our own broken connection, we wait as long as that connection can last.
const gonePatience = 5

// reconnect keeps the cause of a trial's failure from failing the next one. It adds to the failure which
// nodes were gone, and the last lines of their consoles. The error is ErrMachineGone.
func (c *Campaign) reconnect(ctx context.Context, t *record.Trial) (gone error) {
	b := c.testbeds[placeOf(t.Row.Factors)]
	if b == nil {
		return nil
	}

	ctx, cancel := context.WithTimeout(ctx, b.lab.ReconnectTime())
	defer cancel()
	fresh, found := b.lab.Reconnect(ctx)
	for try := 1; b.lab.Lost() != nil; try++ {
		enough := try >= gonePatience && !errors.Is(b.lab.Lost(), pair.ErrBusy)
		if enough || host.Pause(ctx, time.Second) != nil {
			break
		}

		again, _ := b.lab.Reconnect(ctx)
		fresh = fresh || again
	}

	why := b.lab.Lost()
	if why != nil {
		gone = fmt.Errorf("%w: %v", ErrMachineGone, why) // whose hint does not apply to a run that has begun
	}

	if b.watch != nil && (fresh || b.watch.gone()) {
		b.watch.Close() // part of it vanished with the old agents, or has ended
		b.watch = nil
	}

	if found == nil {
		return gone
	}

	for _, said := range strings.Split(found.Error(), "\n") {
		_, what, _ := strings.Cut(said, ": ")
		if !strings.Contains(t.Failure.Error, what) {
			t.Failure.Error += "; afterwards " + said
		}
	}

	return gone
}

// outset reads Done, and finds the remaining rows.
func (c *Campaign) outset() (finished int, rows []record.Row) {
	c.interim = c.NewInterim(&c.Run)
	for i := range c.Done {
		c.remember(&c.Done[i])
	}

	done := map[string]bool{}
	c.attempts = map[string]int{}
	for _, t := range c.Done {
		c.attempts[t.Row.ID] = max(c.attempts[t.Row.ID], t.Attempt)
		if t.Status == record.TrialOK {
			done[t.Row.ID] = true // a failed trial is repeated
		}
	}

	for _, t := range c.Done { // a search has many trials, and may not have ended
		if done[t.Row.ID] && c.Run.Design.Searches(t.Row.Assignment) && !c.searched(t.Row) {
			delete(done, t.Row.ID)
		}
	}

	return len(done), c.pending(done)
}

// Ahead returns how many rows the campaign has, including those in Done and excluding those that Prepare
// skipped, how many of them remain, and how long these take.
func (c *Campaign) Ahead() (total, left int, takes time.Duration) {
	done, rows := c.outset()
	for _, r := range rows {
		takes += c.Plan.RowTime(r, rowOverhead)
	}
	return done + len(rows), len(rows), takes
}

// Execute runs all rows that Prepare did not skip and Done does not contain. It returns ctx's cause if it was
// cancelled; finished trials are stored.
func (c *Campaign) Execute(ctx context.Context) (Outcome, error) {
	done, rows := c.outset()
	c.total, c.pace.plan = done+len(rows), c.Plan
	var out Outcome
	if err := c.steps(ctx, "start"); err != nil {
		return out, err
	}

	stop, err := c.startMeter(ctx)
	if err != nil {
		return out, err
	}
	defer stop()
	err = c.rows(ctx, done, rows, &out)
	lost := c.keepFirmware(ctx)
	if lost != nil {
		err = errors.Join(err, lost)
	}

	if out.Trials > 0 && ctx.Err() == nil {
		err = errors.Join(err, c.inventoriesAfter(ctx))
	}

	if err != nil {
		return out, err
	}

	return out, c.steps(ctx, "end")
}

// rows runs rows after those that are done.
func (c *Campaign) rows(ctx context.Context, done int, rows []record.Row, out *Outcome) error {
	block := 0
	for i, row := range rows {
		if c.narrowEnough(row) || row.OfCell() && c.Unfit != nil && c.Unfit(row.Factors) {
			continue
		}

		if err := c.equip(ctx, row); err != nil {
			return err
		}

		if c.skipped(row) {
			continue
		}

		if !c.Until.IsZero() && time.Now().Add(c.pace.each(row)).After(c.Until) {
			return c.endEarly(ctx, rows[i:])
		}

		if row.Block != block {
			block = row.Block
			if err := c.steps(ctx, "block"); err != nil {
				return err
			}
		}

		c.index = done + i + 1
		c.pace.begin(rows[i:])
		if err := c.row(ctx, row, out); err != nil {
			return err
		}

		c.pace.end()
	}
	return nil
}

// endEarly records in the run that its last rows were left out, because their time is used up.
func (c *Campaign) endEarly(ctx context.Context, rows []record.Row) error {
	left := record.Caveat{
		Kind: "time-spent",
		Text: fmt.Sprintf("the time of --for was spent before the last %s", unit.Count(len(rows),
			"trial")),
	}
	c.tell(record.Event{Event: "lab", Text: left.Text})
	if c.Learnt == nil {
		return nil
	}

	return c.Learnt(ctx, nil, []record.Caveat{left})
}

// stallTries bounds the attempts at a row whose ends counted nothing useful because a machine stalled. Other
// failures are likely to repeat.
const stallTries = 3

// row runs one row: a trial, or as many as its search needs.
func (c *Campaign) row(ctx context.Context, row record.Row, out *Outcome) error {
	if c.Run.Design.Searches(row.Assignment) {
		return c.search(ctx, row, out)
	}

	for range stallTries {
		t, err := c.one(ctx, row, nil)
		if err != nil {
			return err
		}

		out.add(t)
		if t.Status != record.TrialFailed || t.Traffic == nil || traffic.Measured(t.Traffic) == nil {
			break
		}
	}
	return nil
}

func (c *Campaign) pending(done map[string]bool) []record.Row {
	return slices.DeleteFunc(slices.Clone(c.Plan.Rows()), func(row record.Row) bool {
		return c.skipped(row) || done[row.ID] || row.Kind == record.RowIdle && c.silent(row)
	})
}

// one runs a trial of a row, or the next one of its search, and stores it.
func (c *Campaign) one(ctx context.Context, row record.Row, step *record.SearchTrial) (*record.Trial, error) {
	began := record.Event{
		Event: "trial-started",
		Row:   row.ID,
		Cell:  row.Factors,
		Text:  row.Kind,
		Left:  c.pace.left(false),
	}
	switch {
	case step != nil && step.Unit == record.UnitPackets:
		began.PPS = step.Load
	case step != nil && step.Unit == record.UnitBits:
		began.Rate = step.Load
	}

	c.tell(began)
	t, err := c.try(ctx, row, c.attempt(row), step)
	if err != nil {
		return nil, err
	}

	var gone error
	if t.Status == record.TrialFailed {
		gone = c.reconnect(ctx, t)
	}

	return t, cmp.Or(c.keep(ctx, row, t), gone)
}

// attempt returns the number of the next trial of a row.
func (c *Campaign) attempt(row record.Row) int {
	c.attempts[row.ID]++
	return c.attempts[row.ID]
}

// keep stores a trial, even if a signal arrives now, and reports it.
func (c *Campaign) keep(ctx context.Context, row record.Row, t *record.Trial) error {
	if err := c.Store.AppendTrial(context.WithoutCancel(ctx), *t); err != nil {
		return fmt.Errorf("store trial %s: %w", t.ID, err)
	}

	c.remember(t)
	var e record.Event
	if c.Brief != nil {
		e = c.Brief(&c.Run, *t)
	}

	e.Event, e.Row, e.Cell, e.Status, e.Left = "trial-ended", row.ID, row.Factors, t.Status, c.pace.left(true)
	if t.Failure != nil {
		e.Phase = t.Failure.Phase
		e.Text = t.Failure.Error
	}

	c.tell(e)
	return nil
}

// remember records the results on which later rows depend.
func (c *Campaign) remember(t *record.Trial) {
	if c.anotherBoot(t) {
		c.interim = c.NewInterim(&c.Run)
	}

	if len(t.Boots) > 0 {
		c.boots = t.Boots
	}

	c.interim.Add(t)
}

// steps asks the user for the steps due at this point.
func (c *Campaign) steps(ctx context.Context, when string) error {
	for _, s := range c.Run.Design.Steps {
		if s.When != when || c.Ask == nil {
			continue
		}

		c.tell(record.Event{Event: "step", Text: s.Prompt})
		if err := c.Ask(ctx, s); err != nil {
			return err
		}
	}
	return nil
}

// narrowEnough applies adaptive stopping: it only removes rows. An idle row is unnecessary if no cell of its
// path is going to run.
func (c *Campaign) narrowEnough(row record.Row) bool {
	switch {
	case c.Run.Design.Method.Adaptive == nil || row.Kind == record.RowVerify:
		return false
	case row.OfCell():
		return c.interim.Narrow(row.Cell())
	}

	wide := func(cell record.Factors) bool { return !c.interim.Narrow(cell.Key()) }
	return !slices.ContainsFunc(c.cellsOf(row), wide)
}

// report forwards progress to the live view. latency describes round-trip times: "idle" or "loaded".
func (c *Campaign) report(w *watches, row, latency string) func(traffic.Progress) {
	return func(p traffic.Progress) {
		e := record.Event{Event: "rate", Row: row, Rate: p.ReceivedBps, PPS: p.ReceivedPPS, Cores: w.cores()}
		if p.RTT > 0 {
			e.Event = "latency"
			e.RTT = p.RTT
			e.Text = latency
		}

		c.tell(e)
	}
}

// narrate reports when the load enters the window. The returned function stops that: once it returns, no more
// reports follow.
func (c *Campaign) narrate(row string, w record.Window) (end func()) {
	told := make(chan struct{})
	tell := func() {
		defer close(told)
		c.tell(record.Event{Event: "phase", Row: row, Phase: record.PhaseWindow})
	}
	timer := time.AfterFunc(time.Duration(w.Start-host.Monotonic()), tell)
	return func() {
		switch {
		case !timer.Stop():
			<-told
		case host.Monotonic() >= w.Start:
			tell()
		}
	}
}

// Close ends the watches and restores every lab.
func (c *Campaign) Close(ctx context.Context) error {
	var err error
	for _, b := range c.testbeds {
		err = errors.Join(err, b.watch.Close())
	}
	return errors.Join(err, c.Labs.Close(ctx))
}

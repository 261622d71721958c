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

// Labs provides a lab for each topology and size of the routers. A lab stays up until Close, which
// restores everything.
type Labs interface {
	For(ctx context.Context, topology string, size record.GuestSize) (*lab.Lab, error)
	Close(ctx context.Context) error
}

// Store stores finished trials. A trial is on disk when AppendTrial returns.
type Store interface {
	AppendTrial(ctx context.Context, t record.Trial) error
}

// Interim analyses the trials measured so far, to decide about later trials. If a router reboots, a new
// Interim is created.
type Interim interface {
	Add(t *record.Trial)
	// Narrow reports whether the confidence interval of the cell's rate is as narrow as the design requires.
	Narrow(cell string) bool
	// Next returns the next trial in the search of a row. more is false once the search has ended.
	Next(row record.Row) (next record.SearchTrial, more bool, err error)
	// ShareOf returns the load, in payload bit/s, for a share of another cell's measured rate.
	ShareOf(found factor.Found) (bps float64, err error)
}

// Campaign executes the rows of a plan. Its exported fields must be set before Prepare.
type Campaign struct {
	Run     record.Run
	Plan    *plan.Plan
	Labs    Labs
	Engines []traffic.Engine
	Prober  traffic.Prober
	Hopper  traffic.Prober // probe for routers between machines; nil means no probe
	Probes  []probe.Probe
	Store   Store
	Sink    func(record.Event)
	Ask     func(ctx context.Context, s record.Step) error // asks the user to perform a step
	Done    []record.Trial                                 // trials of a run that is resumed
	// NewInterim returns an Interim that does not contain any trials yet.
	NewInterim func(run *record.Run) Interim
	// Brief returns the results of a finished trial for the live view. If Brief is nil, no results are shown.
	Brief func(run *record.Run, t record.Trial) record.Event
	// Install has a firmware installed on the router, and returns when this is done. If Install is nil, no
	// firmware can be installed.
	Install func(ctx context.Context, level string) error
	// InstallWait limits the time until the router reports its new version; 0 means 5 min.
	InstallWait time.Duration
	// Learnt stores facts about the run that became known after the run's head was stored. It may be nil if
	// neither Until nor a firmware is set.
	Learnt func(ctx context.Context, skipped []record.Skipped, caveats []record.Caveat) error
	// LearntAfter, if not nil, stores the inventories of the nodes after the last trial.
	LearntAfter func(ctx context.Context, after map[string]*record.Inventory) error
	// Marks lists caveats to add to each trial. It may be set after Prepare.
	Marks []record.Caveat
	// Unfit, if not nil, is called before each row and reports whether the row's cell must not be measured
	// any more.
	Unfit func(cell record.Factors) bool
	// Slack is the time that a trial may take in addition to its planned durations; 0 means 20 s, or 60 s
	// with guests.
	Slack time.Duration
	// Until is the time limit of the campaign. Before each row, the campaign estimates from previous rows
	// when the row would end. If this is later than Until, the campaign ends and records this in the run.
	// Zero means no limit.
	Until time.Time

	meter        *meter.Meter // power meter while it is being read; may be nil
	meterFailing bool         // a failure of the meter was already reported

	mu       sync.Mutex // guards Sink, because several goroutines call it
	testbeds map[labPlace]*testbed
	// discovered holds the paths between two machines, by IP version.
	discovered map[int]*discoveredPath
	nat        map[natPlace]bool   // whether a network of our own lab translates addresses
	mute       map[netip.Addr]bool // hops that did not answer in time
	// Last firmware level, the version that the router reported ("" if unknown), and whether a step has
	// installed any firmware.
	equipped, version string
	installed         bool
	interim           Interim           // results that later rows depend on
	skip              map[string]bool   // keys of skipped cells
	rebooted          map[string]bool   // keys of cells for which routers were rebooted; see rebootFor
	kernels           map[string]string // name of the first machine for each boot id
	boots             map[string]string // boot ids in the previous trial; see record.Trial.Boots
	attempts          map[string]int    // number of attempts in Done, by row
	total             int
	index             int
	pace              pace
}

// labPlace identifies the lab that a cell needs.
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

// Lab returns the lab of the first cell that is not skipped, or nil if there is none.
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
	ciphers map[string]*cipherNode // by name of the node
}

// Kinds lists the kinds of traffic in the cells that Prepare did not skip.
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
			d.load.ConnectionRate = 1 // placeholder, because the search chooses the rate
		}

		out = append(out, ceiling.KindOf(d.engine, d.load, record.Link{
			Offload: factor.Offload.Of(cell),
			MTU:     factor.LinkMTU.Number(cell),
		}))
	}
	return ceiling.Few(out)
}

// Outcome holds the number of trials of a campaign, and of those that failed.
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

// bootNotice is the time after which the user is informed that a lab is still starting.
const bootNotice = time.Second

// testbed returns the lab of a cell and the lab's telemetry. The first call starts both.
func (c *Campaign) testbed(ctx context.Context, cell record.Factors) (*testbed, error) {
	place := placeOf(cell)
	if b := c.testbeds[place]; b != nil {
		return b, c.ensureWatch(ctx, b)
	}

	told := make(chan struct{})
	slow := time.AfterFunc(bootNotice, func() { // fires if a guest is booting
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

	put(&c.testbeds, place, b)
	c.tell(record.Event{Event: "lab", Text: fmt.Sprintf("lab %s is up: %s", l.ID, place.topology)})
	return b, nil
}

// stopIdleLoad stops CPU-burning faults in all labs other than l. Those labs have no traffic now, but
// share this machine's CPUs with l.
func (c *Campaign) stopIdleLoad(ctx context.Context, l *lab.Lab) (err error) {
	for _, b := range c.testbeds {
		if b.lab != l {
			err = errors.Join(err, b.lab.StopIdleLoad(ctx))
		}
	}
	return err
}

// ensureWatch starts the telemetry of a testbed, unless the telemetry is running or was not requested.
func (c *Campaign) ensureWatch(ctx context.Context, b *testbed) (err error) {
	if b.watch == nil && c.Run.Design.Measure.Telemetry {
		b.watch, err = openWatch(ctx, b.lab, c.Probes)
	}
	return err
}

// ErrMachineGone means that a machine that the lab needs is unreachable, so that no further trial can
// succeed.
var ErrMachineGone = errors.New("a machine is gone")

// gonePatience is the number of attempts to reach a lost machine, one second apart, because the network
// may recover. If the machine answers but still serves our own broken connection, attempts continue for as
// long as that connection can last.
const gonePatience = 5

// reconnect connects to lost nodes again after a failed trial, so that the next trial does not fail for the
// same reason. It adds the names of lost nodes, and the last lines of their consoles, to the failure. It
// returns ErrMachineGone if a node stays lost.
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
		gone = fmt.Errorf("%w: %v", ErrMachineGone, why) // the hint does not apply during a run
	}

	if b.watch != nil && (fresh || b.watch.gone()) {
		b.watch.Close() // part of the telemetry was lost with the old agents, or has ended
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

// outset evaluates Done and returns the number of finished rows, and the rows that remain.
func (c *Campaign) outset() (finished int, rows []record.Row) {
	c.interim = c.NewInterim(&c.Run)
	done := map[string]bool{}
	c.attempts = map[string]int{}
	for i := range c.Done {
		t := &c.Done[i]
		c.remember(t)
		c.attempts[t.Row.ID] = max(c.attempts[t.Row.ID], t.Attempt)
		if t.Status == record.TrialOK {
			done[t.Row.ID] = true // rows without a successful trial are repeated
		}
	}

	for _, t := range c.Done { // a search has several trials, and may not be finished
		if done[t.Row.ID] && c.Run.Design.Searches(t.Row.Assignment) && !c.searched(t.Row) {
			delete(done, t.Row.ID)
		}
	}

	return len(done), c.pending(done)
}

// Ahead returns the total number of rows, the number of remaining rows, and the time that the remaining
// rows take. total includes rows in Done, but not rows that Prepare skipped.
func (c *Campaign) Ahead() (total, left int, takes time.Duration) {
	done, rows := c.outset()
	for _, r := range rows {
		takes += c.Plan.RowTime(r, rowOverhead)
	}
	return done + len(rows), len(rows), takes
}

// Execute executes all rows except those that Prepare skipped and those in Done. If ctx is cancelled,
// Execute returns the cause. Trials that finished before are stored.
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

// rows executes the given rows. done is the number of rows that finished before.
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
		failed := out.Failed
		if err := c.row(ctx, row, out); err != nil {
			return err
		}

		c.pace.end(out.Failed > failed)
	}
	return nil
}

// endEarly records in the run that the last rows were omitted because of the time limit.
func (c *Campaign) endEarly(ctx context.Context, rows []record.Row) error {
	left := record.Caveat{
		Kind: "time-spent",
		Text: fmt.Sprintf("the time of --for was spent before the last %s", unit.Count(len(rows),
			"trial")),
	}
	c.tell(record.Event{Event: "lab", Text: left.Text})
	return c.Learnt(ctx, nil, []record.Caveat{left})
}

// stallTries limits the attempts at a row in which the endpoints could not count because a machine
// stalled. Other failures are not retried, because they would probably repeat.
const stallTries = 3

// row executes one row: a trial, or as many as its search needs.
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
		if !stalled(t) {
			break
		}
	}
	return nil
}

// stalled reports whether a trial failed although both ends reported, so that another attempt may succeed.
func stalled(t *record.Trial) bool {
	return t.Status == record.TrialFailed && t.Traffic != nil && traffic.Measured(t.Traffic) != nil
}

func (c *Campaign) pending(done map[string]bool) []record.Row {
	return slices.DeleteFunc(slices.Clone(c.Plan.Rows()), func(row record.Row) bool {
		return c.skipped(row) || done[row.ID] || row.Kind == record.RowIdle && c.silent(row)
	})
}

// one executes and stores one trial of a row, or one trial of the row's search.
func (c *Campaign) one(ctx context.Context, row record.Row, step *record.SearchTrial) (*record.Trial, error) {
	began := record.Event{
		Event: "trial-started",
		Row:   row.ID,
		Cell:  row.Factors,
		Text:  row.Kind,
		Left:  c.pace.left(),
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

// attempt returns the number of the row's next trial.
func (c *Campaign) attempt(row record.Row) int {
	c.attempts[row.ID]++
	return c.attempts[row.ID]
}

// keep stores a trial and reports it to the live view. It completes even if ctx is cancelled.
func (c *Campaign) keep(ctx context.Context, row record.Row, t *record.Trial) error {
	if err := c.Store.AppendTrial(context.WithoutCancel(ctx), *t); err != nil {
		return fmt.Errorf("store trial %s: %w", t.ID, err)
	}

	c.remember(t)
	var e record.Event
	if c.Brief != nil {
		e = c.Brief(&c.Run, *t)
	}

	e.Event, e.Row, e.Cell, e.Status, e.Left = "trial-ended", row.ID, row.Factors, t.Status,
		c.leftAfter(row, t)
	if t.Failure != nil {
		e.Phase = t.Failure.Phase
		e.Text = t.Failure.Error
	}

	c.tell(e)
	return nil
}

// leftAfter returns the remaining time after a trial of the row in progress.
func (c *Campaign) leftAfter(row record.Row, t *record.Trial) time.Duration {
	after := c.pace
	switch {
	case c.Run.Design.Searches(row.Assignment): // the row has further trials
	case stalled(t):
		c.pace.again()
		after = c.pace
	default:
		after.end(t.Status == record.TrialFailed)
	}
	return after.left()
}

// remember records results that later rows depend on.
func (c *Campaign) remember(t *record.Trial) {
	if c.anotherBoot(t) {
		c.interim = c.NewInterim(&c.Run)
	}

	if len(t.Boots) > 0 {
		c.boots = t.Boots
	}

	c.interim.Add(t)
}

// steps asks the user to perform the steps that are due at this point.
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

// narrowEnough reports whether adaptive stopping omits a row. An idle row is omitted if all cells that share
// its path are omitted.
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

// report returns a function that forwards progress to the live view. latency is the kind of the round-trip
// times: "idle" or "loaded".
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

// narrate reports to the live view when the load enters the window. Once end has returned, narrate reports
// nothing more.
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

// Close ends the telemetry and restores every lab.
func (c *Campaign) Close(ctx context.Context) error {
	var err error
	for _, b := range c.testbeds {
		err = errors.Join(err, b.watch.Close())
	}
	return errors.Join(err, c.Labs.Close(ctx))
}

// Package remote_test tests labs of real machines, which chokepoint reaches over ssh. The machines are
// network namespaces with an sshd each.
//
// TestLosses loses the contact to a router at seeded moments of runs that set something on it: the
// controller is killed or asked to end, the router's link is cut, its ssh sessions, its agent or its guard
// are killed, or it loses its power. Within the watchdog's time the router must be as it was before, or the
// run in contact with it again; then lab restore and resume must finish the campaign, with every result of
// before still there. A router that loses its power is a namespace, too: all of its processes are killed, and
// its network is made anew as at boot. No firmware, boot loader or disk has a part in it.
//
// TestFaultsOverSSH plants ten faults of the diagnosis' suite by a plan, on machines over ssh, and counts how
// many are named right.
//
//	go -C bench test ./remote -timeout 0 -v -run TestLosses -losses 100 -binary FILE -keep DIR [-lock FILE]
//	go -C bench test ./remote -timeout 0 -v -run TestFaultsOverSSH -faults -binary FILE -keep DIR
//
// What was done is kept in the folder, and not done again: a series that was stopped, or has had its time
// (-for), goes on.
package remote_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/chokepoint-lab/chokepoint/bench/rig"
	"github.com/chokepoint-lab/chokepoint/internal/lab/agent"
)

var (
	losses = flag.Int("losses", 0, "how many times to lose the contact")
	beds   = flag.Int("beds", 8, "labs at once")
	seed   = flag.Uint64("seed", 1, "decides the moments")
	binary = flag.String("binary", "",
		"the chokepoint to run, by its whole path (default: built from the source here)")
	keep     = flag.String("keep", "", "a folder for what was found (default: it is not kept)")
	lockFile = flag.String("lock", "", "a file that is locked while loads run")
	within   = flag.Duration("for", 0, "begin nothing after so long (0: no limit)")
)

// The ways in which the contact is lost.
const (
	byKill    = "kill -9 of the controller"
	byTerm    = "kill -TERM of the controller"
	byLink    = "link cut"
	bySession = "reset of the ssh sessions"
	byHelper  = "kill -9 of the agent or guard"
	byPower   = "power"
)

func kinds() []string { return []string{byKill, byTerm, byLink, bySession, byHelper, byPower} }

// loss describes one that is planned.
type loss struct {
	Number int    `json:"number"`
	Kind   string `json:"kind"`
	Driver string `json:"driver"` // of the router: agent or linux
	// Moment holds which part of an undisturbed run has passed: below startShare one of what is before the
	// first trial, else of the rest.
	Moment float64 `json:"at"`
}

// startShare gives how many of the losses fall before the first trial.
const startShare = .2

// planned are the losses of a seed: the kinds in turn, half of each with the agent.
func planned(seed uint64, n int) (all []loss) {
	r := rand.New(rand.NewPCG(seed, 1))
	for i := range n {
		all = append(all, loss{i + 1, kinds()[i%len(kinds())], []string{"agent", "linux"}[i/len(kinds())%2],
			r.Float64()})
	}
	return all
}

func TestLossesAreSpreadEvenly(t *testing.T) {
	count := map[string]int{}
	all := planned(1, 120)
	for _, l := range all {
		count[l.Kind+" "+l.Driver]++
	}

	for what, n := range count {
		if n != 10 {
			t.Errorf("%s: got %d of 120, want 10", what, n)
		}
	}

	if !slices.Equal(all[:50], planned(1, 50)) || slices.Equal(all, planned(2, 120)) {
		t.Error("a seed must mean the same losses each time, and another one others")
	}
}

// outcome holds what came of a loss.
type outcome struct {
	loss
	AfterS  float64 `json:"after_s"`  // from the start of the run
	Set     bool    `json:"set"`      // something was set on the router just then
	RevertS float64 `json:"revert_s"` // from the loss until nothing was any more, or the contact was back
	// Regained: the run had the contact again before the router was as before, and went on under it.
	Regained bool     `json:"regained"`
	Code     int      `json:"code"`   // with which the run ended, −1 by a signal
	Before   int      `json:"before"` // results at the end of the run
	Lost     int      `json:"lost"`
	Begun    bool     `json:"begun"` // the run had stored that it has begun
	Resumed  bool     `json:"resumed"`
	Failed   int      `json:"failed"`           // trials of the finished run, tried again or not
	Sampler  bool     `json:"sampler"`          // of the driver: its folder is there
	Faults   []string `json:"faults,omitempty"` // what was wrong
	Talk     string   `json:"talk,omitempty"`   // of the run
}

// margin holds what may be needed beside the watchdog's time: the guard looks every two seconds, and this
// machine has more to do than one router.
const margin = 6 * time.Second

// lossPlan sets a queue, an MTU and rules; the loads are small, since several labs share a machine.
const lossPlan = `name: losses
method: {duration: 700ms, warmup: 200ms, cooldown: 100ms, idle: 200ms, runs: 1, seed: 1}
matrix:
  direction: [up]
  ip: [4]
  pacing: [2M]
  queue@router.wan: [tbf rate 20M burst 32k limit 100k]
  link_mtu@router: [1400]
  firewall: [off, 20 stateful]
measure: {verify: false}
`

// document holds what is needed of show --json.
type document struct {
	Run    struct{ ID, Status string }
	Trials []trial
}

type trial struct {
	ID, Row, Grade string
	Metrics        map[string]float64
}

// event holds what is needed of a line of run --json.
type event struct {
	Event, Row string
	Total      int
}

// suite is a series of losses.
type suite struct {
	program rig.Program
	beds    []*bed
	file    string
	whole   map[string][2]time.Duration // until the first trial, and from there on, by driver
	rows    int
}

// TestLosses carries out what is planned and not yet done.
func TestLosses(t *testing.T) {
	if *losses == 0 {
		t.Skip("skip: losses of contact take a quarter of an hour: -losses says how many")
	}

	asked, forget := signal.NotifyContext(t.Context(), os.Interrupt, syscall.SIGTERM)
	defer forget()
	s := newSuite(t)
	done, err := s.kept()
	if err != nil {
		t.Fatal(err)
	}

	open := slices.DeleteFunc(planned(*seed, *losses), func(l loss) bool {
		return slices.ContainsFunc(done, func(o outcome) bool { return o.loss == l })
	})
	if len(open) > 0 {
		locked(t, func() { done = append(done, s.all(asked, t, open)...) })
	}

	for _, o := range done {
		for _, fault := range o.Faults {
			t.Errorf("loss %d, %s, driver %s, %.1f s after the start: %s", o.Number, o.Kind, o.Driver,
				o.AfterS, fault)
		}
	}

	if len(done) < *losses {
		t.Errorf("%d of %d losses were done; the same command goes on", len(done), *losses)
	}

	table(t, done)
}

func newSuite(t *testing.T) *suite {
	dir := cmp.Or(*keep, t.TempDir())
	work := t.TempDir()
	program, err := rig.NewProgram(work, *binary, os.Geteuid())
	s := &suite{
		program: program,
		file:    filepath.Join(dir, "losses.jsonl"),
		whole:   map[string][2]time.Duration{},
	}
	keys := filepath.Join(work, "keys")
	if err := errors.Join(err, os.MkdirAll(dir, 0o755), makeKeys(keys, machines()),
		os.WriteFile(program.At("losses.yaml"), []byte(lossPlan), 0o600)); err != nil {
		t.Fatal(err)
	}

	for i := range *beds {
		b, err := newBed(t, work, keys, i+1, program, machines())
		if err != nil {
			t.Fatal(err)
		}

		s.beds = append(s.beds, b)
	}

	return s
}

// kept are the outcomes of earlier.
func (s *suite) kept() (all []outcome, err error) {
	data, err := os.ReadFile(s.file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}

	for line := range bytes.Lines(data) {
		var o outcome
		err = errors.Join(err, json.Unmarshal(line, &o))
		all = append(all, o)
	}

	return all, err
}

func (s *suite) write(o outcome) error {
	f, err := os.OpenFile(s.file, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	return errors.Join(json.NewEncoder(f).Encode(o), f.Close())
}

// locked does something while the machine is ours.
func locked(t *testing.T, do func()) {
	unlock, err := rig.Locked(*lockFile)
	if err != nil {
		t.Fatal(err)
	}
	defer unlock()
	do()
}

// calibrate runs the plan once to its end in each bed, with the agent in one half of them: to learn how long
// that takes when all do, and because such a run must leave nothing either.
func (s *suite) calibrate(t *testing.T) {
	all := make([]*scene, len(s.beds))
	parallel(len(s.beds), func(i int) {
		all[i] = &scene{
			suite: s,
			bed:   s.beds[i],
			outcome: outcome{loss: loss{
				Driver: []string{"agent", "linux"}[i%2]}},
		}
		all[i].whole()
	})
	for i, c := range all {
		for _, fault := range c.Faults {
			t.Errorf("an undisturbed run in bed %d, driver %s: %s", i+1, c.Driver, fault)
		}

		w := s.whole[c.Driver]
		s.whole[c.Driver] = [2]time.Duration{max(w[0], c.first.Sub(c.began)), max(w[1], c.ended.Sub(c.first))}
		s.rows = max(s.rows, c.ofPlan)
	}

	if len(s.beds) == 1 {
		s.whole["linux"] = s.whole["agent"]
	}

	fmt.Fprintf(t.Output(), "note: an undisturbed run of %d rows takes %.1f s until its first trial and "+
		"%.1f s from there on with the agent, %.1f s and %.1f s without\n", s.rows,
		s.whole["agent"][0].Seconds(), s.whole["agent"][1].Seconds(), s.whole["linux"][0].Seconds(),
		s.whole["linux"][1].Seconds())
}

func parallel(n int, do func(i int)) {
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() { do(i) })
	}

	all.Wait()
}

// all carries out losses, in each bed one after the other, until there is none left or time is up.
func (s *suite) all(asked context.Context, t *testing.T, open []loss) (out []outcome) {
	began := time.Now()
	if s.calibrate(t); t.Failed() {
		return nil
	}

	var mu sync.Mutex
	next := func() (l loss, ok bool) {
		mu.Lock()
		defer mu.Unlock()
		if len(open) == 0 || asked.Err() != nil || *within > 0 && time.Since(began) > *within {
			return l, false
		}

		l = open[0]
		open = open[1:]
		return l, true
	}
	parallel(len(s.beds), func(i int) {
		for l, ok := next(); ok; l, ok = next() {
			c := &scene{suite: s, bed: s.beds[i], outcome: outcome{loss: l}}
			c.strike()
			c.await()
			c.goOn()
			c.keepTrail()
			c.clear()
			mu.Lock()
			c.print(t)
			out = append(out, c.outcome)
			if err := s.write(c.outcome); err != nil {
				t.Error(err)
			}

			mu.Unlock()
		}
	})
	return out
}

func (o outcome) print(t *testing.T) {
	fmt.Fprintf(t.Output(), "%3d %-30s %-6s after %5.1f s, set %-5v reverted in %4.1f s (contact "+
		"back %v), exit %3d, results %d, lost %d, resumed %v %s\n", o.Number, o.Kind, o.Driver, o.AfterS,
		o.Set, o.RevertS, o.Regained, o.Code, o.Before, o.Lost, o.Resumed, strings.Join(o.Faults, "; "))
}

// scene is one run on a bed, and its loss.
type scene struct {
	*suite
	*bed
	outcome
	before       []string // the router's state
	tracesBefore []string
	run          *exec.Cmd
	said, talk   string // files
	over         chan struct{}
	began, first time.Time // of the run, of its trials
	ended        time.Time
	lostAt       time.Time
	stored       document
	ofPlan       int                  // rows
	missed       int                  // how often
	holders      map[string]time.Time // at the loss
}

func (c *scene) fault(format string, args ...any) {
	c.Faults = append(c.Faults, fmt.Sprintf(format, args...))
}

func (c *scene) router() *machine { return c.machines["router"] }

// runsWithin bounds how long a run may take at most, with a loss.
const runsWithin = 6 * time.Minute

// start starts the run, in an empty store.
func (c *scene) start() bool {
	err := errors.Join(os.RemoveAll(c.At("data")), os.Mkdir(c.At("data"), 0o700))
	c.before, c.tracesBefore = nil, c.router().traces()
	if err == nil {
		c.before, err = c.router().settled()
	}

	args := slices.Concat([]string{"run", c.program.At("losses.yaml"), "--json"}, c.aboard(c.Driver))
	ctx, cancel := context.WithTimeout(context.Background(), runsWithin)
	c.run = c.command(ctx, args...)
	c.said, c.talk = c.At("tmp/said"), c.At("tmp/talk")
	out, err2 := os.Create(c.said)
	wrong, err3 := os.Create(c.talk)
	if err := errors.Join(err, err2, err3); err != nil {
		cancel()
		c.fault("start: %v", err)
		return false
	}
	defer out.Close()
	defer wrong.Close()
	c.run.Stdout, c.run.Stderr = out, wrong
	c.began = time.Now()
	if err := c.run.Start(); err != nil {
		cancel()
		c.fault("start: %v", err)
		return false
	}

	over := make(chan struct{})
	c.over = over
	run := c.run
	go func() {
		_ = run.Wait() // its state says how it ended
		cancel()
		c.ended = time.Now()
		close(over)
	}()
	return true
}

// wait waits until the run has ended.
func (c *scene) wait(limit time.Duration) bool {
	select {
	case <-c.over:
	case <-time.After(limit):
	}

	select {
	case <-c.over:
		return true
	default:
		return false
	}
}

// events returns what the run has said so far.
func (c *scene) events() (all []event) {
	for line := range bytes.Lines(read(c.said)) {
		var e event
		if json.Unmarshal(line, &e) == nil {
			all = append(all, e)
		}
	}
	return all
}

// awaitTrial waits until the first trial has begun. It says whether the run goes on.
func (c *scene) awaitTrial() bool {
	for !c.wait(50 * time.Millisecond) {
		if slices.ContainsFunc(c.events(), func(e event) bool { return e.Event == "trial-started" }) {
			c.first = time.Now()
			return true
		}
	}
	return false
}

func (c *scene) whole() {
	if !c.start() {
		return
	}

	if c.awaitTrial(); !c.wait(4 * time.Minute) {
		c.fault("it does not end")
		_ = c.run.Process.Kill()
		<-c.over
		return
	}

	finished := map[string]bool{}
	for _, e := range c.events() {
		if e.Event == "trial-ended" {
			finished[e.Row] = true
			c.ofPlan = e.Total
		}
	}

	code := c.run.ProcessState.ExitCode()
	if code != 0 || c.ofPlan == 0 || len(finished) != c.ofPlan {
		c.fault("exit code %d, %d of %d rows: %s", code, len(finished), c.ofPlan, read(c.talk))
	}

	c.settled(func(changed []string) int { return len(changed) })
}

const samplerFolder = "chokepoint-watch-"

// sampling tells the shell and the awk of a driver's sampler, or the session that keeps them: where nobody
// has told sshd that its other end is gone, the latter waits.
func sampling(trace string) bool { return strings.Contains(trace, "sample()") }

// changed lists what is other on the router than before the run.
func (c *scene) changed(but string) []string {
	now, err := c.router().state()
	if err != nil {
		return []string{err.Error()}
	}

	traces := c.router().traces()
	c.Sampler = slices.ContainsFunc(traces, func(t string) bool { return strings.Contains(t, samplerFolder) })
	return append(difference(c.before, now, but), difference(c.tracesBefore, traces, "")...)
}

// strike starts the run, and loses the contact when its moment has come, or as soon after as there is
// something to strike. A moment that misses the run is moved to the front.
func (c *scene) strike() {
	for at := c.Moment; ; at = c.sooner(at) {
		if !c.start() {
			return
		}

		span := c.suite.whole[c.Driver]
		over := false
		early := c.Moment < startShare
		if early {
			over = c.wait(time.Duration(at / startShare * float64(span[0])))
		} else {
			over = !c.awaitTrial() ||
				c.wait(time.Duration((at-startShare)/(1-startShare)*float64(span[1])))
		}

		for ; !over; over = c.wait(50 * time.Millisecond) {
			now, err := c.router().state()
			c.Set = err == nil && len(difference(c.before, now, "")) > 0
			c.holders = c.holding()
			lostAt := time.Now()
			if c.lose() {
				c.lostAt, c.AfterS = lostAt, lostAt.Sub(c.began).Seconds()
				return
			}
		}

		if c.missed++; c.missed == 6 {
			c.fault("it was missed again and again")
			return
		}
	}
}

// sooner is a moment nearer to the beginning of its part of the run.
func (c *scene) sooner(at float64) float64 {
	if c.Moment < startShare {
		return at * .6
	}
	return startShare + (at-startShare)*.6
}

// lose loses the contact. It says whether there was one.
func (c *scene) lose() bool {
	r := c.router()
	kill := func(which func(process) bool) (any bool) {
		for _, p := range r.processes() {
			if which(p) {
				any = p.kill() || any
			}
		}
		return any
	}
	switch c.Kind {
	case byKill:
		return c.run.Process.Signal(syscall.SIGKILL) == nil
	case byTerm:
		return c.run.Process.Signal(syscall.SIGTERM) == nil
	case byLink:
		return c.link("down")
	case bySession:
		return kill(process.sshd)
	case byHelper:
		return kill(func(p process) bool {
			if c.Driver == "agent" {
				return strings.HasSuffix(p.line, agent.MachineRole)
			}
			return !p.sshd() && strings.Contains(p.line, "chokepoint-guard-XXXXXX")
		})
	}

	if err := r.halt(); err != nil {
		c.fault("halt: %v", err)
		return true
	}

	time.Sleep(3 * time.Second)
	if err := r.boot(); err != nil {
		c.fault("boot: %v", err)
	}

	return true
}

// link sets the router's link to the controller down or up, at the switch.
func (c *scene) link(state string) bool {
	_, err := say("", "ip", "-n", c.controller(), "link", "set", "router-mgmt", state)
	if err != nil {
		c.fault("link %s: %v", state, err)
	}
	return true
}

// cutFor gives how long a link stays cut at least: longer than ssh waits for an answer.
const cutFor = 20 * time.Second

// await waits for the router to be as before, or for the run to have the contact again, within the watchdog's
// time; and for the end of the run.
func (c *scene) await() {
	if c.lostAt.IsZero() {
		return
	}

	but := ""
	if c.Kind == byLink {
		but = managed
	}

	changed := c.changed(but)
	for ; unset(changed) > 0; changed = c.changed(but) {
		if c.Regained = c.regained(); c.Regained || time.Since(c.lostAt) > agent.Silence+margin {
			break
		}

		time.Sleep(250 * time.Millisecond)
	}

	c.RevertS = time.Since(c.lostAt).Seconds()
	if unset(changed) > 0 && !c.Regained {
		c.fault("after %.1f s the router is not as before: %s", c.RevertS, strings.Join(changed, "; "))
	}

	if c.Kind == byLink {
		time.Sleep(time.Until(c.lostAt.Add(cutFor)))
		c.link("up")
	}

	if !c.wait(4 * time.Minute) {
		c.fault("the run does not end")
		_ = c.run.Process.Signal(syscall.SIGQUIT) // it says where it is
		if !c.wait(5 * time.Second) {
			_ = c.run.Process.Kill()
		}

		<-c.over
	}
}

// holding returns what holds on the router what is set there: agents, with the time zero, and guards, with
// the time at which somebody kept in touch with them last.
func (c *scene) holding() map[string]time.Time {
	all := map[string]time.Time{}
	for _, p := range c.router().processes() {
		if strings.HasSuffix(p.line, agent.MachineRole) {
			all[fmt.Sprintf("agent %d", p.pid)] = time.Time{}
		}
	}

	for _, trace := range c.router().traces() {
		file, ok := strings.CutPrefix(trace, "file ")
		info, err := os.Stat(fmt.Sprintf("/proc/%d/root%s/touched", c.router().pid, file))
		if ok && err == nil {
			all["guard "+file] = info.ModTime()
		}
	}

	return all
}

// regained says that the run goes on, and that all that holds something on the router is in contact with it
// since the loss: another agent than before, and none of those, or a guard that it has touched again. What
// was on its way when the contact was lost is none.
func (c *scene) regained() bool {
	now := c.holding()
	for name, at := range now {
		_, old := c.holders[name]
		if old && at.Before(c.lostAt.Add(time.Second)) {
			return false
		}
	}
	return len(now) > 0 && !c.wait(0)
}

// sessionWaits holds what a session of ssh waits in, on a machine that has not noticed yet that nobody is
// there.
const sessionWaits = "+ process cat: cat"

// unset counts the changes that are not only an idle session's.
func unset(changed []string) (n int) {
	for _, line := range changed {
		if !sampling(line) && line != sessionWaits {
			n++
		}
	}
	return n
}

// goOn restores, resumes, and finds what is wrong.
func (c *scene) goOn() {
	if c.lostAt.IsZero() {
		return
	}

	c.Code = c.run.ProcessState.ExitCode()
	talk := read(c.talk)
	c.Talk = string(talk[max(0, len(talk)-2000):])
	if said, err := c.bed.say("lab", "restore"); err != nil {
		c.fault("lab restore: %v: %s", err, said)
	}

	listed, err := c.bed.say("list", "--json")
	if err != nil {
		c.fault("%v", err)
	}

	c.Begun = strings.TrimSpace(listed) != ""
	reported := map[string]bool{}
	for _, e := range c.events() {
		if e.Event == "trial-ended" {
			reported[e.Row] = true
		}
	}

	if !c.Begun {
		if c.Lost = len(reported); c.Lost > 0 {
			c.fault("%d results were reported, and no run is stored", c.Lost)
		}

		c.settled(unset)
		return
	}

	c.stored = c.show()
	c.Before = len(c.stored.Trials)
	failed := slices.ContainsFunc(c.stored.Trials, func(t trial) bool { return t.Grade == "failed" })
	if c.stored.Run.Status != "done" || failed {
		ctx, cancel := context.WithTimeout(context.Background(), 4*time.Minute)
		defer cancel()
		cmd := c.command(ctx, "resume", c.stored.Run.ID, "--json")
		var wrong strings.Builder
		cmd.Stderr = &wrong
		if _, err := cmd.Output(); err != nil && cmd.ProcessState.ExitCode() != 3 {
			c.fault("resume: %v: %s", err, wrong.String())
		}
	}

	c.finished(c.show(), reported)
	c.settled(unset)
}

// settled finds what is left at the very end, of what counts.
func (c *scene) settled(count func(changed []string) int) {
	found := c.changed("")
	for range 60 {
		if count(found) == 0 {
			return
		}

		time.Sleep(100 * time.Millisecond)
		found = c.changed("")
	}

	c.fault("at the end the router is not as before: %s", strings.Join(found, "; "))
}

// clear removes traces from the router, for the next loss.
func (c *scene) clear() {
	for _, p := range c.router().processes() {
		if !p.sshd() {
			p.kill()
		}
	}

	for _, trace := range c.router().traces() {
		if file, ok := strings.CutPrefix(trace, "file "); ok {
			_ = os.RemoveAll(fmt.Sprintf("/proc/%d/root%s", c.router().pid, file)) // the next scene tells
		}
	}
}

func (c *scene) show() (d document) {
	said, err := c.bed.say("show", "--json", "latest")
	if err = errors.Join(err, json.Unmarshal([]byte(said), &d)); err != nil {
		c.fault("%v", err)
	}
	return d
}

// finished compares the finished run with what was stored before, and with what was reported as stored.
func (c *scene) finished(now document, reported map[string]bool) {
	rows := map[string]bool{}
	good := map[string]bool{}
	for _, t := range now.Trials {
		rows[t.Row] = true
		if t.Grade == "failed" {
			c.Failed++
		} else {
			good[t.Row] = true
		}
	}

	for row := range reported {
		if !rows[row] {
			c.Lost++
		}
	}

	for _, old := range c.stored.Trials {
		i := slices.IndexFunc(now.Trials, func(t trial) bool { return t.ID == old.ID })
		if i < 0 {
			c.Lost++
			c.fault("the result of %s is lost", old.ID)
			continue
		}

		for name, was := range old.Metrics { // another trial, such as the idle one, may add some
			is, there := now.Trials[i].Metrics[name]
			if !there || is != was {
				c.Lost++
				c.fault("%s of %s was %g, is %g (there %v)", name, old.ID, was, is, there)
			}
		}
	}

	if c.Lost > 0 {
		c.fault("%d results are lost", c.Lost)
	}

	c.Resumed = now.Run.Status == "done" && len(good) == c.suite.rows
	if !c.Resumed {
		c.fault("its status is %q, with %d of %d rows, of which %d have a number", now.Run.Status, len(rows),
			c.suite.rows, len(good))
	}
}

// keepTrail keeps, of a loss of which something was wrong, what the run and its store say.
func (c *scene) keepTrail() {
	if len(c.Faults) == 0 || *keep == "" {
		return
	}

	shown, _ := c.bed.say("show", "--json", "latest") // there may be none
	for name, data := range map[string][]byte{"said": read(c.said), "talk": read(c.talk),
		"show": []byte(shown)} {
		file := filepath.Join(*keep, fmt.Sprintf("loss%03d-%s.txt", c.Number, name))
		if err := os.WriteFile(file, data, 0o644); err != nil {
			c.fault("%v", err)
		}
	}
}

func read(file string) []byte {
	data, _ := os.ReadFile(file) // none, nothing was said
	return data
}

// table prints what was found, kind by kind.
func table(t *testing.T, all []outcome) {
	out := t.Output()
	fmt.Fprintln(out, "| contact lost by | driver | losses | of them while something was set | reverted | "+
		"contact back first | seconds, at most | results stored | lost | had begun | resumed | "+
		"failed trials | sampler left |")
	fmt.Fprintln(out, "|---|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|")
	for _, kind := range append(kinds(), "") {
		for _, driver := range []string{"agent", "linux", ""} {
			if (kind == "") != (driver == "") {
				continue
			}

			var n, set, reverted, regained, results, lost, begun, resumed, failed, sampler int
			slowest := 0.
			for _, o := range all {
				if kind != "" && (o.Kind != kind || o.Driver != driver) {
					continue
				}

				n++
				results = results + o.Before
				lost = lost + o.Lost
				failed = failed + o.Failed
				slowest = max(slowest, o.RevertS)
				for count, is := range map[*int]bool{&set: o.Set, &begun: o.Begun, &resumed: o.Resumed,
					&sampler: o.Sampler, &regained: o.Regained, &reverted: !o.Regained &&
						!strings.Contains(strings.Join(o.Faults, ""), "not as before")} {
					if is {
						*count++
					}
				}
			}

			fmt.Fprintf(out, "| %s | %s | %d | %d | %d | %d | %.1f | %d | %d | %d | %d | %d | %d |\n",
				cmp.Or(kind, "all"), driver, n, set, reverted, regained, slowest, results, lost, begun,
				resumed, failed, sampler)
		}
	}
}

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/chokepoint-lab/chokepoint/bench/rig"
)

// tries is how often a kill that fell outside of its stretch is repeated, each time sooner after the
// stretch has begun.
const tries = 3

// suite is the state of a series of kills.
type suite struct {
	o       options
	out     io.Writer
	outside inventory
	seen    map[bool][]stretch // of a whole run, by whether it was attached
	rows    int
	known   []string // runs that the store must list
	hits    map[string]map[string]int
	stops   []time.Duration // of runs that were asked to stop
	resumed int
}

// newSuite runs the plan once to its end on each kind of lab: to learn how long its stretches are, and
// because such a run must leave nothing either.
func newSuite(ctx context.Context, o options, out io.Writer) (*suite, error) {
	s := &suite{o: o, out: out, seen: map[bool][]stretch{}, hits: map[string]map[string]int{}}
	var err error
	if s.outside, err = outside(); err == nil && o.guests() {
		s.o.build, err = o.buildImage(out)
	}
	if err != nil {
		return nil, err
	}
	for _, attached := range []bool{false, true} {
		faults := s.onLab(ctx, attached, func(c *scene) []string { return c.whole(ctx) })
		if len(faults) > 0 {
			return nil, fmt.Errorf("a run to its end: %s", strings.Join(faults, "; "))
		}
	}
	return s, nil
}

// all strikes every kill of the series and says what came of it. When it is asked to stop, it first sees
// the present one to its end, so that nothing is left, but does not judge it: the program under test may
// have been asked too.
func (s *suite) all(asked context.Context) error {
	var wrong []string
	count := 0
	for i := range s.o.kills {
		if s.o.only > 0 && s.o.only != i+1 {
			continue
		}
		count++
		b := s.o.planned(i)
		began := time.Now()
		faults, hit, t := s.strike(context.WithoutCancel(asked), b)
		if asked.Err() != nil {
			wrong = append(wrong, fmt.Sprintf("stopped at number %d of %d", b.number, s.o.kills))
			break
		}
		verdict := "left nothing"
		if len(faults) > 0 {
			verdict = "WRONG: " + strings.Join(faults, "; ")
		}
		line := fmt.Sprintf("%3d %-12s %-9s %-8s hit %-12s exit %3d, stopped in %-6s in all %-6s %s",
			b.number, b.moment, b.name(), b.lab(), hit,
			t.code, t.stopped.Round(time.Millisecond), time.Since(began).Round(100*time.Millisecond), verdict)
		fmt.Fprintln(s.out, line)
		if len(faults) > 0 {
			wrong = append(wrong, line)
		}
		if s.hits[hit] == nil {
			s.hits[hit] = map[string]int{}
		}
		s.hits[hit][b.name()]++
	}
	if s.o.guests() {
		wrong = append(wrong, s.o.cacheFaults()...)
	}
	return s.summary(count, wrong)
}

func (s *suite) summary(count int, wrong []string) error {
	failed := len(wrong)
	fmt.Fprintf(s.out, "note: %-12s %5s %9s %5s %5s\n", "moment", "INT", "INT twice", "TERM", "KILL")
	for _, m := range append(slices.Clone(s.o.moments()), between, "") {
		h := s.hits[m]
		if len(h) > 0 || m != between && m != "" {
			fmt.Fprintf(s.out, "note: %-12s %5d %9d %5d %5d\n", m, h["INT"], h["INT twice"], h["TERM"],
				h["KILL"])
		}
		if len(h) == 0 && m != between && m != "" && count >= len(s.o.moments()) {
			failed++
			wrong = append(wrong, "moment "+m+" was never hit")
		}
	}
	if n := len(s.stops); n > 0 {
		slices.Sort(s.stops)
		fmt.Fprintf(s.out, "note: %d runs that were asked to stop did within %s (median), %s (longest)\n", n,
			s.stops[n/2].Round(time.Millisecond), s.stops[n-1].Round(time.Millisecond))
	}
	fmt.Fprintf(s.out, "note: %d killed runs were resumed to their end\n", s.resumed)
	for _, line := range wrong {
		fmt.Fprintln(s.out, "fail:", line)
	}
	if failed > 0 {
		fmt.Fprintf(s.out, "note: repeat one with -lab %s -n %d -seed %d -uid %d -only NUMBER\n", s.o.lab,
			s.o.kills, s.o.seed, s.o.UID)
	}
	fmt.Fprintf(s.out, "kills: %d passed, %d failed\n", max(0, count-failed), failed)
	if failed > 0 {
		return rig.ErrFailed
	}
	return nil
}

// strike carries out one blow, again where it missed its stretch.
func (s *suite) strike(ctx context.Context, b blow) (faults []string, hit string, t told) {
	scale := 1.0
	for range tries {
		faults = append(faults, s.onLab(ctx, b.attached, func(c *scene) []string {
			found := c.strike(ctx, b, scale)
			hit, t = c.w.hit, c.w.told
			return found
		})...)
		if hit == b.moment || len(faults) > 0 {
			return faults, hit, t
		}
		scale /= 4
	}
	if hit == "" {
		faults = append(faults, fmt.Sprintf("the run ended before the moment came, %d times", tries))
	}
	return faults, hit, t
}

// scene is one run on its lab, with what was there before it.
type scene struct {
	*suite
	w          *watcher
	args       []string
	lab        string // "" or the lab that was there before
	nodes      []string
	inLab      inventory
	running    inventory
	files      inventory
	namespaces map[string]bool
}

// onLab prepares the scene, plays it, and takes it down.
func (s *suite) onLab(_ context.Context, attached bool, play func(*scene) []string) []string {
	c := &scene{suite: s, args: []string{"run", s.o.At("kills.yaml"), "--json"},
		namespaces: map[string]bool{}}
	if !attached && s.o.guests() {
		c.args = append(c.args, "--lab", s.o.lab)
	}
	if attached {
		if err := c.up(); err != nil {
			return []string{err.Error()}
		}
	}
	var err error
	if c.files, err = c.strayFiles(); err == nil {
		c.running, err = s.o.running()
	}
	if err != nil {
		return []string{err.Error()}
	}
	faults := play(c)
	if c.lab == "" {
		return faults
	}
	if err := s.o.namespacesOf(c.namespaces); err != nil {
		faults = append(faults, err.Error())
	}
	if _, err := s.o.say("lab", "down", c.lab); err != nil {
		faults = append(faults, err.Error())
	}
	c.lab, c.running = "", nil
	return append(faults, prefix("after lab down: ", c.left(vanishing))...)
}

func prefix(with string, faults []string) []string {
	for i := range faults {
		faults[i] = with + faults[i]
	}
	return faults
}

// up makes the lab to attach to and looks into it.
func (c *scene) up() error {
	said, err := c.o.say("lab", "up", "--json", "--lab", c.o.lab)
	if err != nil {
		return err
	}
	var l struct {
		ID        string
		Addresses map[string][]string
	}
	if err := json.Unmarshal([]byte(said), &l); err != nil {
		return fmt.Errorf("lab up: %v", err)
	}
	c.lab, c.args = l.ID, append(c.args, "--attach", l.ID)
	for n := range l.Addresses {
		c.nodes = append(c.nodes, n)
	}
	slices.Sort(c.nodes)
	if c.inLab, err = c.settled(); err != nil {
		return err
	}
	// The agents that looked are leaving.
	settle(nil, func() (inventory, error) { return c.agents() }, vanishing)
	return nil
}

// settled looks into a new lab until the kernel has finished with it: the link-local addresses come a
// little later than the links.
func (c *scene) settled() (inventory, error) {
	was, err := c.o.lookInto(c.lab, c.nodes)
	for range 20 {
		if err != nil {
			break
		}
		time.Sleep(150 * time.Millisecond)
		var now inventory
		if now, err = c.o.lookInto(c.lab, c.nodes); slices.Equal(was, now) {
			return now, err
		}
		was = now
	}
	return nil, fmt.Errorf("lab %s does not settle: %v", c.lab, err)
}

func (c *scene) agents() (inventory, error) {
	i, err := c.o.running()
	return slices.DeleteFunc(i, func(line string) bool {
		return !strings.Contains(line,
			"chokepoint agent")
	}), err
}

// strayFiles lists the files that no lab has which is up.
func (c *scene) strayFiles() (inventory, error) {
	i, err := c.o.files()
	return slices.DeleteFunc(i, func(path string) bool {
		return c.lab != "" && strings.HasPrefix(path+"/", "run/chokepoint/labs/"+c.lab+"/")
	}), err
}

// left lists everything that is other than before the run.
func (c *scene) left(wait time.Duration) []string {
	faults := settle(c.running, c.o.running, wait)
	if c.lab == "" {
		faults = append(faults, settle(nil, func() (inventory, error) { return held(c.namespaces) }, wait)...)
	} else {
		faults = append(faults, settle(c.inLab, func() (inventory, error) {
			return c.o.lookInto(c.lab,
				c.nodes)
		}, wait)...)
	}
	if c.w != nil {
		faults = append(faults, settle(nil, func() (inventory, error) {
			return cgroupsOf(c.w.told.run,
				c.lab)
		}, wait)...)
	}
	faults = append(faults, settle(c.files, c.strayFiles, 0)...)
	return append(faults, settle(c.outside, outside, wait)...)
}

// whole runs to the end.
func (c *scene) whole(ctx context.Context) []string {
	c.w = &watcher{o: c.o, spaces: c.namespaces}
	if err := c.w.follow(ctx, c.args...); err != nil {
		return []string{err.Error()}
	}
	c.rows = c.w.told.rows
	c.seen[c.lab != ""] = c.w.seen
	faults := c.left(leaving)
	if c.w.told.code != 0 && c.w.told.code != 3 {
		faults = append(faults, fmt.Sprintf("exit code %d: %s", c.w.told.code, c.w.told.talk))
	}
	c.known = append(c.known, c.w.told.run)
	_, bad := c.o.checkStore(c.known, c.w.told)
	return append(faults, bad...)
}

// strike runs until the moment, strikes, and lists what is wrong after.
func (c *scene) strike(ctx context.Context, b blow, scale float64) []string {
	target, ok := b.aim(c.seen[b.attached])
	if b.moment == inBuild {
		target, ok = stretch{name: atStart, span: c.o.build}, true
		if err := c.o.forgetImages(); err != nil {
			return []string{err.Error()}
		}
	}
	if !ok {
		return []string{"a whole run had no such stretch"}
	}
	c.w = &watcher{o: c.o, blow: &b, target: target, scale: scale, spaces: c.namespaces}
	var faults []string
	if err := c.w.follow(ctx, c.args...); err != nil {
		faults = append(faults, err.Error())
	}
	t := c.w.told
	if b.victim != "" {
		return append(faults, c.bereaved(b, t)...)
	}
	orderly := b.signal != syscall.SIGKILL
	if orderly {
		faults = append(faults, c.stopped(b, t)...)
	}
	// A run that was asked once to stop puts everything back itself.
	if once := orderly && b.again == 0 && b.moment != inStopping; once {
		faults = append(faults, prefix("before lab restore: ", c.left(leaving))...)
	}
	if _, err := c.o.say("lab", "restore"); err != nil {
		faults = append(faults, err.Error())
	}
	faults = append(faults, c.left(vanishing)...)
	doc, bad := c.o.checkStore(c.known, t)
	faults = append(faults, bad...)
	if complete := doc.Run.Status == "done"; t.code == 0 && !complete || t.code == 130 && complete &&
		len(t.finished) < t.rows {
		faults = append(faults, fmt.Sprintf("exit code %d, but the stored status is %q", t.code,
			doc.Run.Status))
	}
	if doc.Run.ID != "" {
		c.known = append(c.known, doc.Run.ID)
	}
	if b.resume && doc.Run.ID != "" && doc.Run.Status != "done" {
		faults = append(faults, prefix("resume: ", c.resume(ctx, doc))...)
	}
	return faults
}

// stopped checks how a run ended that was asked to.
func (c *scene) stopped(b blow, t told) []string {
	if c.w.hit == "" {
		return nil
	}
	c.stops = append(c.stops, t.stopped)
	var faults []string
	if t.stopped > c.o.stop {
		faults = append(faults, fmt.Sprintf("it took %s to end, %s are allowed",
			t.stopped.Round(time.Millisecond), c.o.stop))
	}
	twice := b.again > 0 || b.moment == inStopping
	// the signal came before the program could take it
	untouched := t.code == -1 && t.run == ""
	complete := t.code == 0 && len(t.finished) == t.rows && t.rows > 0 // nothing was left to be stopped
	dirty := t.code == 5 && twice && strings.Contains(t.talk, "stopped waiting")
	if t.code != 130 && !untouched && !complete && !dirty {
		faults = append(faults, fmt.Sprintf("exit code %d, want 130: %s", t.code, t.talk))
	}
	return faults
}

func (c *scene) resume(ctx context.Context, before document) []string {
	w := &watcher{o: c.o, spaces: c.namespaces}
	if err := w.follow(ctx, "resume", before.Run.ID, "--json"); err != nil {
		return []string{err.Error()}
	}
	c.resumed++
	var faults []string
	if w.told.code != 0 && w.told.code != 3 {
		faults = append(faults, fmt.Sprintf("exit code %d: %s", w.told.code, w.told.talk))
	}
	after, err := c.o.show(before.Run.ID)
	if err != nil {
		return append(faults, err.Error())
	}
	faults = append(faults, checkResumed(before, after, c.rows)...)
	return append(faults, c.left(leaving)...)
}

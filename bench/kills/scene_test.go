package kills_test

import (
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

const (
	vanishing = 5 * time.Second // for the kernel to remove what nobody holds any more
	leaving   = time.Second     // for the agents of a lab that stays to leave once a run has hung up
)

// scene is one run on its lab, with what was there before it.
type scene struct {
	*testing.T
	*suite
	w          *watcher
	args       []string
	lab        string // "" or the lab that was there before
	nodes      []string
	inLab      inventory
	running    inventory
	strays     inventory
	namespaces map[string]bool
}

// onLab prepares the scene, plays it, and takes it down.
func (s *suite) onLab(t *testing.T, attached bool, play func(*scene)) {
	c := &scene{
		T:          t,
		suite:      s,
		args:       []string{"run", s.At("kills.yaml"), "--json"},
		namespaces: map[string]bool{},
	}
	if attached {
		defer c.down()
		c.up()
	} else if guests() {
		c.args = append(c.args, "--lab", *kind)
	}

	c.strays, c.running = s.files(t, c.lab), s.processesOf(t, "")
	play(c)
}

// up makes the lab to attach to, and looks into it until the kernel has finished with it: the link-local
// addresses come a little later than the links.
func (c *scene) up() {
	var l struct {
		ID        string
		Addresses map[string][]string
	}
	c.read(c.T, &l, "lab", "up", "--json", "--lab", *kind)
	c.lab, c.args = l.ID, append(c.args, "--attach", l.ID)
	for n := range l.Addresses {
		c.nodes = append(c.nodes, n)
	}

	slices.Sort(c.nodes)
	c.inLab = c.lookInto()
	for looks := 0; ; looks++ {
		time.Sleep(150 * time.Millisecond)
		was := c.inLab
		if c.inLab = c.lookInto(); slices.Equal(was, c.inLab) {
			break
		}

		if looks == 20 {
			c.Fatalf("lab %s does not settle", c.lab)
		}
	}

	// The agents that looked are leaving.
	settle(nil, func() inventory { return c.processesOf(c.T, "chokepoint agent") }, vanishing)
}

func (c *scene) down() {
	if c.lab == "" {
		return // it never was up
	}

	c.namespacesOf(c.T, c.namespaces)
	c.say(c.T, "lab", "down", c.lab)
	c.lab, c.running = "", nil
	c.left("after lab down: ", vanishing)
}

// left finds everything that is other than before the run.
func (c *scene) left(when string, wait time.Duration) {
	check := func(wait time.Duration, before inventory, look func() inventory) {
		wrong(c.T, when, settle(before, look, wait))
	}
	check(wait, c.running, func() inventory { return c.processesOf(c.T, "") })
	if c.lab == "" {
		check(wait, nil, func() inventory { return c.held(c.T, c.namespaces) })
	} else {
		check(wait, c.inLab, c.lookInto)
	}

	if c.w != nil {
		check(wait, nil, func() inventory { return cgroupsOf(c.T, c.w.told.run, c.lab) })
	}

	check(0, c.strays, func() inventory { return c.files(c.T, c.lab) })
	check(wait, c.outside, func() inventory { return outside(c.T) })
}

// ended refuses a run that ended otherwise than by itself. Some trials may have failed.
func (c *scene) ended(when string, t told) {
	if t.code != 0 && t.code != 3 {
		c.Errorf("%sexit code %d: %s", when, t.code, t.talk)
	}
}

// whole runs to the end.
func (c *scene) whole() {
	c.w = &watcher{scene: c}
	c.w.follow(c.args...)
	t := c.w.told
	c.rows, c.seen[c.lab != ""] = t.rows, c.w.passed
	c.left("", leaving)
	c.ended("", t)
	c.known = append(c.known, t.run)
	c.checkStore(c.T, t)
}

// struck runs until the moment, strikes, and finds what is wrong after.
func (c *scene) struck(b blow, scale float64) {
	target, ok := b.aim(c.seen[b.attached])
	if b.moment == inBuild {
		target = stretch{name: atStart, span: c.build}
		ok = true
		c.forgetImages(c.T)
	}

	c.w = &watcher{scene: c, blow: &b, target: target, scale: scale}
	if !ok {
		c.Fatal("a whole run had no such stretch")
	}

	c.w.follow(c.args...)
	t := c.w.told
	orderly := b.signal != syscall.SIGKILL
	if orderly && c.w.hit != "" {
		c.stopped(b, t)
	}

	// A run that was asked once to stop puts everything back itself, and so does one that has lost a part of
	// its lab, unless it has said that lab restore has something to put back.
	once := orderly && b.again == 0 && b.moment != inStopping
	if once || b.victim != "" && t.code != 5 {
		c.left("before lab restore: ", leaving)
	}

	var doc document
	missed := b.victim != "" && c.w.hit == ""
	if !missed {
		doc = c.checkStore(c.T, t)
	}

	again := b.resume && b.victim == "" && doc.Run.ID != "" && doc.Run.Status != "done"
	if !again { // else resume puts back what there is, and goes on
		c.say(c.T, "lab", "restore")
		c.left("", vanishing)
	}

	if missed {
		return
	}

	if b.victim != "" {
		c.known = append(c.known, t.run)
		c.bereaved(b, t, doc)
		return
	}

	complete := doc.Run.Status == "done"
	if t.code == 0 && !complete || t.code == 130 && complete &&
		len(t.finished) < t.rows {
		c.Errorf("exit code %d, but the stored status is %q", t.code, doc.Run.Status)
	}

	if doc.Run.ID == "" {
		return
	}

	c.known = append(c.known, doc.Run.ID)
	if again {
		c.resume(doc)
	}
}

// stopped checks how a run ended that was asked to.
func (c *scene) stopped(b blow, t told) {
	c.stops = append(c.stops, t.stopped)
	if _, limit := patience(); t.stopped > limit {
		c.Errorf("it took %s to end, %s are allowed", t.stopped.Round(time.Millisecond), limit)
	}

	twice := b.again > 0 || b.moment == inStopping
	// the signal came before the program could take it
	untouched := t.code == -1 && t.run == ""
	complete := t.code == 0 && len(t.finished) == t.rows && t.rows > 0 // nothing was left to be stopped
	dirty := t.code == 5 && twice && strings.Contains(t.talk, "stopped waiting")
	if t.code != 130 && !untouched && !complete && !dirty {
		c.Errorf("exit code %d, want 130: %s", t.code, t.talk)
	}
}

// bereaved checks a run that has lost a part of its lab: it goes on to its end and tells of the trial that
// failed. After the end of QEMU alone the next trial runs on a fresh guest.
func (c *scene) bereaved(b blow, t told, doc document) {
	failed, console := 0, false
	for _, trial := range doc.Trials {
		if trial.Failure != nil {
			failed++
			console = console || strings.Contains(trial.Failure.Error, "its console")
		}
	}

	switch {
	case !t.ended || t.code == 0 || t.code == -1:
		c.Errorf("the run did not go on to its end and tell: exit code %d: %s", t.code, t.talk)
	case failed == 0:
		c.Error("no trial failed")
	case b.victim == ofQEMU && failed > 1:
		c.Errorf("%d trials failed, want only the one", failed)
	case b.victim == ofQEMU && !console:
		c.Error("the failed trial does not quote the guest's console")
	}
}

// resume finishes a run that was killed, from where the kill left everything.
func (c *scene) resume(before document) {
	w := &watcher{scene: c}
	w.follow("resume", before.Run.ID, "--json")
	c.resumed++
	c.ended("resume: ", w.told)
	var after document
	c.read(c.T, &after, "show", "--json", before.Run.ID)
	wrong(c.T, "resume: ", checkResumed(before, after, c.rows))
	c.left("resume: ", leaving)
	said, _ := c.say(c.T, "lab", "restore")
	if said != "nothing to restore\n" {
		c.Errorf("resume: lab restore had something to do after it: %s", said)
	}
}

package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// What is different where the routers are virtual machines: an image is built first, everything takes
// longer, and there are more processes that may die.
const (
	inBuild = "build" // building the image, from packages that are at hand

	// In the window dies, instead of the run:
	ofQEMU    = "QEMU"
	ofMachine = "machine" // the process that runs QEMU
	ofHolder  = "holder"  // the first process of the lab
)

var guestMoments = slices.Concat(moments, []string{inBuild, ofQEMU, ofMachine, ofHolder})

// lookInGuest lists what can be changed in a guest, whose userland has no more.
const lookInGuest = "ip -o link; ip -o addr; ip route show table all; ip rule; tc qdisc show; tc filter " +
	"show dev lan; nft list ruleset; cat /proc/sys/net/ipv4/ip_forward"

// guestPlan is short, since a guest takes its time to boot. The quota makes cgroups, which takes root.
const guestPlan = `name: kills
method: {duration: 250ms, warmup: 60ms, cooldown: 40ms, idle: 150ms, runs: 1, seed: 1}
matrix:
  streams: [2]
  tunnel: [none, wireguard]
  firewall: [off, 20 stateful]
exclude:
  - {tunnel: none, firewall: off}
  - {tunnel: wireguard, firewall: 20 stateful}
measure: {verify: false}
`

func (o options) guests() bool {
	_, guests := record.GuestArch(o.lab)
	return guests
}

func (o options) plan() string {
	switch {
	case !o.guests():
		return plan
	case o.UID == 0:
		return strings.Replace(guestPlan, "matrix:\n", "matrix:\n  cpu_quota@host: [80%]\n", 1)
	}
	return guestPlan
}

func (o options) moments() []string {
	if o.guests() {
		return guestMoments
	}
	return moments
}

// patience is for a run to reach its moment.
func (o options) patience() time.Duration {
	if o.guests() {
		return 4 * time.Minute
	}
	return time.Minute
}

// planned is the i-th kill of the series.
func (o options) planned(i int) blow {
	if o.guests() {
		return plannedGuestBlow(o.seed, i)
	}
	return plannedBlow(o.seed, i)
}

// plannedGuestBlow takes the moments in strides, so that a short series has some of all parts of a run.
func plannedGuestBlow(seed uint64, i int) blow {
	r := rand.New(rand.NewPCG(seed, uint64(i)))
	const stride = 7 // has no divisor in common with the number of moments
	p, k := i*stride%len(guestMoments), i/len(guestMoments)
	b := blow{number: i + 1, moment: guestMoments[p], signal: signals[(p+k)%3], attached: (p+k)%2 == 1}
	b.trial, b.within, b.resume = r.Float64(), r.Float64(), r.IntN(5) == 0
	pause := 5*time.Millisecond + time.Duration(r.Float64()*float64(300*time.Millisecond))
	if b.signal == syscall.SIGINT && r.IntN(3) == 0 {
		b.again = pause
	}
	switch b.moment {
	case inBuild:
		b.attached = false
	case ofQEMU, ofMachine, ofHolder:
		b.victim, b.signal, b.again, b.attached, b.resume = b.moment, syscall.SIGKILL, 0, false, false
	}
	return b
}

// buildImage builds the image of the lab's guests, and again what can be built without downloading
// anything, which it times.
func (o options) buildImage(out io.Writer) (time.Duration, error) {
	arch := "amd64"
	if _, other, ok := strings.Cut(o.lab, ":"); ok {
		arch = other
	}
	began := time.Now()
	if _, err := o.say("vm", "build", "--arch", arch); err != nil {
		return 0, err
	}
	first := time.Since(began)
	if err := o.forgetImages(); err != nil {
		return 0, err
	}
	began = time.Now()
	_, err := o.say("vm", "build", "--arch", arch)
	took := time.Since(began)
	fmt.Fprintf(out, "note: the image was built in %s with downloading, in %s without\n",
		first.Round(100*time.Millisecond), took.Round(100*time.Millisecond))
	return took, err
}

// forgetImages leaves only what was downloaded.
func (o options) forgetImages() error {
	var failed error
	for _, kind := range []string{"base-*", "image-*"} {
		dirs, err := filepath.Glob(o.At("cache/chokepoint/vm/" + kind))
		failed = errors.Join(failed, err)
		for _, d := range dirs {
			failed = errors.Join(failed, os.RemoveAll(d))
		}
	}
	return failed
}

// cacheFaults: a build that was killed leaves nothing that the next one does not clear away.
func (o options) cacheFaults() []string {
	if err := o.forgetImages(); err != nil {
		return []string{err.Error()}
	}
	if _, err := o.buildImage(io.Discard); err != nil {
		return []string{err.Error()}
	}
	left, err := filepath.Glob(o.At("cache/chokepoint/vm/.work-*"))
	if err != nil {
		return []string{err.Error()}
	}
	for i, path := range left {
		left[i] = "left in the cache of images: " + filepath.Base(path)
	}
	return left
}

// killVictim kills the processes of a lab's own that the blow is meant for.
func (o options) killVictim(which string) error {
	begins := map[string]string{ofQEMU: "qemu-system-", ofMachine: "chokepoint lab-machine",
		ofHolder: "chokepoint lab-holder"}[which]
	all, err := o.processes()
	if err != nil {
		return err
	}
	err = fmt.Errorf("no process %s", which)
	for _, p := range all {
		if strings.HasPrefix(p.line, begins) {
			err = syscall.Kill(p.pid, syscall.SIGKILL)
		}
	}
	return err
}

// bereaved checks a run that has lost a part of its lab: it goes on to its end, tells of the trial that
// failed, and leaves nothing but, where it says so, what lab restore puts back. After the end of QEMU alone
// the next trial runs on a fresh guest.
func (c *scene) bereaved(b blow, t told) []string {
	var faults []string
	if t.code != 5 { // else it has said that lab restore has something to put back
		faults = prefix("before lab restore: ", c.left(leaving))
	}
	if _, err := c.o.say("lab", "restore"); err != nil {
		faults = append(faults, err.Error())
	}
	faults = append(faults, c.left(vanishing)...)
	if c.w.hit == "" {
		return faults
	}
	doc, bad := c.o.checkStore(c.known, t)
	faults = append(faults, bad...)
	c.known = append(c.known, t.run)
	failed, console := 0, false
	for _, trial := range doc.Trials {
		if trial.Failure != nil {
			failed++
			console = console || strings.Contains(trial.Failure.Error, "its console")
		}
	}
	switch {
	case !t.ended || t.code == 0 || t.code == -1:
		faults = append(faults, fmt.Sprintf("the run did not go on to its end and tell: exit code %d: %s",
			t.code, t.talk))
	case failed == 0:
		faults = append(faults, "no trial failed")
	case b.victim == ofQEMU && failed > 1:
		faults = append(faults, fmt.Sprintf("%d trials failed, want only the one", failed))
	case b.victim == ofQEMU && !console:
		faults = append(faults, "the failed trial does not quote the guest's console")
	}
	return faults
}

// cgroupsOf lists cgroups that belong to a lab of one of the names.
func cgroupsOf(names ...string) (inventory, error) {
	var i inventory
	err := filepath.WalkDir("/sys/fs/cgroup", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
				return nil // gone meanwhile, or none of this user's
			}
			return err
		}
		for _, n := range names {
			if n != "" && d.IsDir() && strings.HasPrefix(d.Name(), "chokepoint-"+n) {
				i = append(i, "cgroup "+path)
			}
		}
		return nil
	})
	return i.sorted(), err
}

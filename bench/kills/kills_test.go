// Package kills_test ends chokepoint runs by SIGINT, SIGTERM and SIGKILL at seeded moments that are spread
// over every stretch of a run, on a lab of the run's own and on one that it was attached to, and checks what
// each leaves: a run that was asked to stop has put everything back within 3 seconds; after a killed one,
// lab restore does. Then no process, namespace, link, nftables rule, queue, runtime directory or journal
// may be left, every finished trial must be readable, none twice and none torn, and resume must be able to
// finish the run, without lab restore before it. With -lab vm, where the routers are virtual machines, also
// the build of their image is struck, and QEMU, the process that runs it, and the lab's first process are
// killed instead of the run. It logs how often each stretch was hit by which signal.
//
//	go -C bench test ./kills -timeout 0 -kills 24            also: -lab vm, -binary FILE, -seed 7, -uid 1000
//	go -C bench test ./kills -kills 24 -run 'TestKills/^9-'  the ninth of them alone
package kills_test

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/chokepoint-lab/chokepoint/bench/rig"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

var (
	kills  = flag.Int("kills", 0, "how many runs to kill")
	binary = flag.String("binary", "",
		"the chokepoint to run, by its whole path (default: built from the source here)")
	seed  = flag.Uint64("seed", 1, "decides the moments")
	uid   = flag.Int("uid", os.Geteuid(), "user to run as; only root may choose")
	kind  = flag.String("lab", "local", "kind of lab, local or vm")
	limit = flag.Duration("stop", 0,
		"how long a run may take to end once it is asked to (default: 3s, with guests 5s)")
)

func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == lookRole {
		if err := look(os.Stdout); err != nil {
			log.Fatal(err)
		}
		return
	}

	m.Run()
}

// guests says that the routers are virtual machines.
func guests() bool {
	_, guests := record.GuestArch(*kind)
	return guests
}

// patience is for a run to reach its moment, and to end once it is asked to.
func patience() (start, end time.Duration) {
	if guests() {
		return 4 * time.Minute, cmp.Or(*limit, 5*time.Second)
	}
	return time.Minute, cmp.Or(*limit, 3*time.Second)
}

// suite is the state of a series of kills.
type suite struct {
	rig.Program
	look    string        // this program, for looking around inside of a lab
	build   time.Duration // what building an image from packages at hand takes
	outside inventory
	seen    map[bool][]stretch // of a whole run, by whether it was attached
	rows    int
	known   []string // runs that the store must list
	hits    map[string]map[string]int
	stops   []time.Duration // of runs that were asked to stop
	resumed int
}

// TestKills strikes every kill of the series. When it is asked to stop, it first sees the present one to
// its end, so that nothing of it is left.
func TestKills(t *testing.T) {
	switch {
	case *kills == 0:
		t.Skip("skip: kills runs for minutes: -kills says how many")
	case *kills < 0 || !record.InNamespaces(*kind) && !guests():
		t.Fatalf("a value that cannot be: -kills %d -lab %s", *kills, *kind)
	}

	asked, forget := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer forget()
	s := newSuite(t)
	struck := 0
	for i := 0; i < *kills && asked.Err() == nil; i++ {
		b := planned(guests(), *seed, i)
		t.Run(fmt.Sprintf("%d-%s-%s-%s", b.number, b.moment, b.name(), b.lab()), func(t *testing.T) {
			struck++
			s.kill(t, b)
		})
		if asked.Err() != nil {
			t.Errorf("stopped at number %d of %d", b.number, *kills)
		}
	}

	if guests() {
		s.checkCache(t)
	}

	s.summary(t, struck)
}

// newSuite runs the plan once to its end on each kind of lab: to learn how long its stretches are, and
// because such a run must leave nothing either.
func newSuite(t *testing.T) *suite {
	dir := t.TempDir()
	program, err := rig.NewProgram(dir, *binary, *uid)
	s := &suite{
		Program: program,
		look:    program.At("bin/look"),
		outside: outside(t),
		seen:    map[bool][]stretch{},
		hits:    map[string]map[string]int{},
	}
	if err := errors.Join(err, os.Chmod(filepath.Dir(dir), 0o711), // for another user
		os.WriteFile(s.At("kills.yaml"), []byte(plan()), 0o644),
		rig.CopyFile("/proc/self/exe", s.look, 0o755)); err != nil {
		t.Fatal(err)
	}

	if guests() {
		first := s.buildImage(t)
		s.forgetImages(t)
		s.build = s.buildImage(t)
		fmt.Fprintf(t.Output(), "note: the image was built in %s with downloading, in %s without\n",
			first.Round(100*time.Millisecond), s.build.Round(100*time.Millisecond))
	}

	s.onLab(t, false, (*scene).whole)
	s.onLab(t, true, (*scene).whole)
	if t.Failed() {
		t.Fatal("so ended a run to its end")
	}

	return s
}

// kill carries out one blow, again where it missed its stretch.
func (s *suite) kill(t *testing.T, b blow) {
	var hit string
	var last told
	began := time.Now()
	defer func() {
		fmt.Fprintf(t.Output(), "%3d %-12s %-9s %-8s hit %-12s exit %3d, stopped in %-6s in all %s\n",
			b.number, b.moment, b.name(), b.lab(), hit, last.code, last.stopped.Round(time.Millisecond),
			time.Since(began).Round(100*time.Millisecond))
		if s.hits[hit] == nil {
			s.hits[hit] = map[string]int{}
		}

		s.hits[hit][b.name()]++
	}()
	// A kill that fell outside of its stretch is repeated, each time sooner after the stretch has begun.
	scales := []float64{1, 1. / 4, 1. / 16}
	for _, scale := range scales {
		s.onLab(t, b.attached, func(c *scene) {
			c.struck(b, scale)
			hit = c.w.hit
			last = c.w.told
		})
		if hit == b.moment || t.Failed() {
			return
		}
	}

	if hit == "" {
		t.Errorf("the run ended before the moment came, %d times", len(scales))
	}
}

// summary logs how often each stretch was hit, and wants each to have been.
func (s *suite) summary(t *testing.T, struck int) {
	out := t.Output()
	fmt.Fprintf(out, "note: %-12s %5s %9s %5s %5s\n", "moment", "INT", "INT twice", "TERM", "KILL")
	all := momentsOf(guests())
	for _, m := range append(slices.Clone(all), between, "") {
		h := s.hits[m]
		wanted := slices.Contains(all, m)
		if len(h) > 0 || wanted {
			fmt.Fprintf(out, "note: %-12s %5d %9d %5d %5d\n", m, h["INT"], h["INT twice"], h["TERM"],
				h["KILL"])
		}

		if len(h) == 0 && wanted && struck >= len(all) {
			t.Errorf("moment %s was never hit", m)
		}
	}

	n := len(s.stops)
	if n > 0 {
		slices.Sort(s.stops)
		fmt.Fprintf(out, "note: %d runs that were asked to stop did within %s (median), %s (longest)\n", n,
			s.stops[n/2].Round(time.Millisecond), s.stops[n-1].Round(time.Millisecond))
	}

	fmt.Fprintf(out, "note: %d killed runs were resumed to their end\n", s.resumed)
	if t.Failed() {
		fmt.Fprintf(out, "note: repeat one with -lab %s -kills %d -seed %d -uid %d "+
			"-run 'TestKills/^NUMBER-'\n", *kind, *kills, *seed, *uid)
	}
}

// buildImage builds the image of the lab's guests and says how long that took.
func (s *suite) buildImage(t *testing.T) time.Duration {
	arch, _ := record.GuestArch(*kind)
	began := time.Now()
	if _, ok := s.say(t, "lab", "image", "--arch", cmp.Or(arch, "amd64")); !ok {
		t.FailNow()
	}

	return time.Since(began)
}

// cached lists the files of a kind in the cache of images.
func (s *suite) cached(t *testing.T, pattern string) []string {
	found, err := filepath.Glob(s.At("cache/chokepoint/vm/" + pattern))
	if err != nil {
		t.Error(err)
	}
	return found
}

// forgetImages leaves only what was downloaded.
func (s *suite) forgetImages(t *testing.T) {
	for _, dir := range slices.Concat(s.cached(t, "base-*"), s.cached(t, "image-*")) {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	}
}

// checkCache: a build that was killed leaves nothing that the next one does not clear away.
func (s *suite) checkCache(t *testing.T) {
	s.forgetImages(t)
	s.buildImage(t)
	for _, path := range s.cached(t, ".work-*") {
		t.Errorf("left in the cache of images: %s", filepath.Base(path))
	}
}

// say runs a short command of the program and returns what it prints.
func (s *suite) say(t *testing.T, args ...string) (said string, ok bool) {
	wait, _ := patience()
	ctx, cancel := context.WithTimeout(context.Background(), wait)
	defer cancel()
	said, err := s.Say(ctx, args...)
	if err != nil {
		t.Error(err)
	}

	return said, err == nil
}

// localPlan has two paths, and settings that are changed between trials and must be undone. The seed fixes
// the order, so that the stretches of one run are found again in the next.
const localPlan = `name: kills
method: {duration: 250ms, warmup: 60ms, cooldown: 40ms, idle: 150ms, runs: 1, seed: 1}
matrix:
  streams: [2]
  tunnel: [none, wireguard]
  nat: [off, masquerade]
  firewall: [off, 20 stateful]
  queue@router.wan: [pfifo limit 500]
exclude:
  - {tunnel: none, nat: off, firewall: off}
  - {tunnel: wireguard, nat: masquerade}
  - {nat: off, firewall: 20 stateful}
measure: {verify: false}
`

// guestPlan is short, since a guest takes its time to boot. The quota makes cgroups, which takes root.
const guestPlan = `name: kills
method: {duration: 250ms, warmup: 60ms, cooldown: 40ms, idle: 150ms, runs: 1, seed: 1}
matrix:
  cpu_quota@host: [80%]
  streams: [2]
  tunnel: [none, wireguard]
  firewall: [off, 20 stateful]
exclude:
  - {tunnel: none, firewall: off}
  - {tunnel: wireguard, firewall: 20 stateful}
measure: {verify: false}
`

func plan() string {
	switch {
	case !guests():
		return localPlan
	case *uid != 0:
		return strings.Replace(guestPlan, "  cpu_quota@host: [80%]\n", "", 1)
	}
	return guestPlan
}

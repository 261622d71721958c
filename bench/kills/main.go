// Program kills ends chokepoint runs by SIGINT, SIGTERM and SIGKILL at seeded moments that are spread over
// every stretch of a run, on a lab of the run's own and on one that it was attached to, and checks what
// each leaves: a run that was asked to stop has put everything back within 3 seconds; after a killed one,
// lab restore does. Then no process, namespace, link, nftables rule, queue, runtime directory or journal
// may be left, every finished trial must be readable, none twice and none torn, and resume must be able to
// finish the run. With -lab vm, where the routers are virtual machines, also the build of their image is
// struck, and QEMU, the process that runs it, and the lab's first process are killed instead of the run. It
// prints how often each stretch was hit by which signal, and stops at nothing: all that is wrong is listed
// at the end.
package main

import (
	"context"
	"errors"
	"flag"
	"io"
	"os"
	"time"

	"github.com/chokepoint-lab/chokepoint/bench/rig"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

func main() { os.Exit(rig.Main("kills", run)) }

type options struct {
	rig.Program
	look  string // this program, for looking around inside of a lab
	kills int
	only  int
	seed  uint64
	stop  time.Duration
	lab   string        // kind: local or vm
	build time.Duration // what building an image from packages at hand takes
}

func run(ctx context.Context, args []string, out, log io.Writer) error {
	if len(args) == 1 && args[0] == lookRole {
		return lookMain(out)
	}
	var o options
	flags := flag.NewFlagSet("kills", flag.ContinueOnError)
	binary := flags.String("binary", "", "the chokepoint to run (default: built from the source here)")
	flags.IntVar(&o.kills, "n", 24, "how many runs to kill")
	flags.IntVar(&o.only, "only", 0, "repeat the kill of this number alone")
	flags.Uint64Var(&o.seed, "seed", 1, "decides the moments")
	uid := flags.Int("uid", os.Geteuid(), "user to run as; only root may choose")
	flags.DurationVar(&o.stop, "stop", 0,
		"how long a run may take to end once it is asked to (default: 3s, with guests 5s)")
	flags.StringVar(&o.lab, "lab", "local", "kind of lab, local or vm")
	if err := rig.Parse(flags, args, log, func() bool {
		return o.kills >= 1 && o.only >= 0 && o.only <= o.kills && (record.InNamespaces(o.lab) || o.guests())
	}); err != nil {
		return err
	}
	if o.stop == 0 {
		o.stop = 3 * time.Second
		if o.guests() {
			o.stop = 5 * time.Second
		}
	}
	dir, err := os.MkdirTemp("", "chokepoint-kills-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if o.Program, err = rig.NewProgram(dir, *binary, *uid); err != nil {
		return err
	}
	o.look = o.At("bin/look")
	if err := errors.Join(os.WriteFile(o.At("kills.yaml"), []byte(o.plan()), 0o644),
		rig.CopyFile("/proc/self/exe", o.look, 0o755)); err != nil {
		return err
	}
	// A run that is asked to stop is seen to its end, so that nothing of it is left.
	s, err := newSuite(context.WithoutCancel(ctx), o, out)
	if err != nil {
		return err
	}
	return s.all(ctx)
}

// plan has two paths, and settings that are changed between trials and must be undone. The seed fixes the
// order, so that the stretches of one run are found again in the next.
const plan = `name: kills
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

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
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"
)

func main() {
	if len(os.Args) == 2 && os.Args[1] == lookRole {
		os.Exit(lookMain(os.Stdout, os.Stderr))
	}
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}

type options struct {
	program string // the one under test: a copy of its own, so that its processes can be told from all others
	look    string // this program, for looking around inside of a lab
	kills   int
	only    int
	seed    uint64
	uid     int
	stop    time.Duration
	lab     string        // kind: local or vm
	build   time.Duration // what building an image from packages at hand takes
	dir     string
}

func run(args []string, out, talk io.Writer) int {
	var o options
	var binary string
	flags := flag.NewFlagSet("kills", flag.ContinueOnError)
	flags.SetOutput(talk)
	flags.StringVar(&binary, "binary", "", "the chokepoint to run (default: built from the source here)")
	flags.IntVar(&o.kills, "n", 24, "how many runs to kill")
	flags.IntVar(&o.only, "only", 0, "repeat the kill of this number alone")
	flags.Uint64Var(&o.seed, "seed", 1, "decides the moments")
	flags.IntVar(&o.uid, "uid", os.Geteuid(), "user to run as; only root may choose")
	flags.DurationVar(&o.stop, "stop", 0,
		"how long a run may take to end once it is asked to (default: 3s, with guests 5s)")
	flags.StringVar(&o.lab, "lab", "local", "kind of lab, local or vm")
	if flags.Parse(args) != nil || flags.NArg() > 0 || o.kills < 1 || o.only < 0 || o.only > o.kills ||
		o.lab != "local" && !o.guests() {
		flags.Usage()
		return 2
	}
	if o.stop == 0 {
		o.stop = 3 * time.Second
		if o.guests() {
			o.stop = 5 * time.Second
		}
	}
	var err error
	if o.dir, err = os.MkdirTemp("", "chokepoint-kills-"); err == nil {
		defer os.RemoveAll(o.dir)
		err = prepare(&o, binary)
	}
	var s *suite
	if err == nil {
		s, err = newSuite(context.Background(), o, out)
	}
	if err != nil {
		fmt.Fprintln(talk, "kills:", err)
		return 1
	}
	asked, release := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer release()
	return s.all(asked)
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

func (o options) at(name string) string { return filepath.Join(o.dir, name) }

// prepare makes the folders of the program under test and copies it there.
func prepare(o *options, binary string) error {
	for _, d := range []string{"", "bin", "home", "data", "state", "run", "tmp", "config", "cache"} {
		path := o.at(d)
		if err := os.MkdirAll(path, 0o700); err != nil {
			return err
		}
		if err := os.Chown(path, o.uid, -1); err != nil {
			return err
		}
	}
	if err := os.WriteFile(o.at("kills.yaml"), []byte(o.plan()), 0o644); err != nil {
		return err
	}
	o.program, o.look = o.at("bin/chokepoint"), o.at("bin/look")
	if err := copyFile("/proc/self/exe", o.look, 0o755); err != nil {
		return err
	}
	if binary != "" {
		if err := o.copyAgent(filepath.Dir(binary)); err != nil {
			return err
		}
		return copyFile(binary, o.program, 0o755)
	}
	if o.guests() {
		build := exec.Command("go", "build", "-buildvcs=false", "-o", o.at("bin/chokepoint-agent"),
			"./cmd/chokepoint-agent")
		build.Env = append(os.Environ(), "CGO_ENABLED=0") // a guest has no C library
		if said, err := build.CombinedOutput(); err != nil {
			return fmt.Errorf("build chokepoint-agent: %v\n%s", err, said)
		}
	}
	build := exec.Command("go", "build", "-buildvcs=false", "-o", o.program, "./cmd/chokepoint")
	if said, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("build chokepoint: %v\n%s", err, said)
	}
	return os.Chmod(o.program, 0o755)
}

func copyFile(from, to string, mode os.FileMode) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, mode)
	if err != nil {
		return err
	}
	if _, err := io.Copy(out, in); err != nil {
		out.Close()
		return err
	}
	return out.Close()
}

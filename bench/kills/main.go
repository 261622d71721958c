// Program kills ends chokepoint runs by SIGINT, SIGTERM and SIGKILL at seeded
// moments that are spread over every phase, and checks what each leaves: after
// lab restore no namespace, link, process or nftables rule; every finished
// trial readable, none twice, none torn. It prints how often each phase was
// hit, and stops at nothing: all that is wrong is listed at the end.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

type options struct {
	program string
	kills   int
	seed    uint64
	uid     int
	dir     string
}

func run(args []string, out, talk io.Writer) int {
	var o options
	flags := flag.NewFlagSet("kills", flag.ContinueOnError)
	flags.SetOutput(talk)
	flags.StringVar(&o.program, "program", "", "the chokepoint to run")
	flags.IntVar(&o.kills, "n", 24, "how many runs to kill")
	flags.Uint64Var(&o.seed, "seed", 1, "decides the moments")
	flags.IntVar(&o.uid, "uid", 0, "user to run as, where this one may choose")
	if flags.Parse(args) != nil || o.program == "" || flags.NArg() > 0 {
		flags.Usage()
		return 2
	}
	program, err := filepath.Abs(o.program)
	if err == nil {
		o.program = program
		o.dir, err = os.MkdirTemp("", "chokepoint-kills-")
	}
	if err != nil {
		fmt.Fprintln(talk, "kills:", err)
		return 1
	}
	defer os.RemoveAll(o.dir)
	if err := prepare(o); err != nil {
		fmt.Fprintln(talk, "kills:", err)
		return 1
	}
	return killAll(o, out, talk)
}

// plan has two paths and two blocks, so that a run has trials that set up,
// that change something and that take something over.
const plan = `name: kills
method: {duration: 400ms, warmup: 100ms, cooldown: 0, idle: 200ms, runs: 2, seed: 1}
matrix:
  tunnel: [none, wireguard]
  nat: [off, masquerade]
  streams: [2]
exclude:
  - {tunnel: wireguard, nat: masquerade}
measure: {verify: false}
`

func prepare(o options) error {
	for _, d := range []string{"", "home", "data", "state", "run", "tmp", "config"} {
		path := filepath.Join(o.dir, d)
		if err := os.MkdirAll(path, 0o700); err != nil {
			return err
		}
		if o.uid != 0 {
			if err := os.Chown(path, o.uid, o.uid); err != nil {
				return err
			}
		}
	}
	return os.WriteFile(filepath.Join(o.dir, "kills.yaml"), []byte(plan), 0o644)
}

var signals = []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGKILL}

// blow is one planned kill. The moments go round the phases, and the signals
// round each phase, so that n kills spread as evenly as n allows.
type blow struct {
	number int
	phase  string
	signal syscall.Signal
	trial  int           // the trial, from 1, in which the phase is awaited
	after  time.Duration // the phase's beginning
	then   syscall.Signal
	pause  time.Duration // until then
}

func plannedBlow(seed uint64, i int) blow {
	r := rand.New(rand.NewPCG(seed, uint64(i)))
	m := moments[i%len(moments)]
	b := blow{number: i + 1, phase: m.name, signal: signals[(i/len(moments)+i)%len(signals)], trial: 1 + r.IntN(4)}
	b.after = time.Duration(r.Float64() * float64(m.span))
	if m.name == undoing {
		// The first signal asks for the undoing, the second interrupts it.
		b.then, b.signal = b.signal, syscall.SIGINT
		b.pause = time.Duration(r.Float64() * float64(300*time.Millisecond))
	}
	return b
}

func killAll(o options, out, talk io.Writer) int {
	ctx := context.Background()
	before, err := observe()
	if err != nil {
		fmt.Fprintln(talk, "kills:", err)
		return 1
	}
	hits := map[string]map[string]int{}
	var wrong []string
	for i := range o.kills {
		b := plannedBlow(o.seed, i)
		faults, hit := strike(ctx, o, b, before)
		if hit {
			if hits[b.phase] == nil {
				hits[b.phase] = map[string]int{}
			}
			hits[b.phase][b.name()]++
		} else {
			faults = append(faults, "the run ended before the moment came")
		}
		verdict := "left nothing"
		if len(faults) > 0 {
			verdict = fmt.Sprint("WRONG: ", faults)
		}
		line := fmt.Sprintf("%3d %-12s trial %d +%-8s %-16s %s", b.number, b.phase, b.trial, b.after.Round(time.Millisecond), b.name(), verdict)
		fmt.Fprintln(out, line)
		if len(faults) > 0 {
			wrong = append(wrong, line)
		}
	}
	return summary(o, hits, wrong, out)
}

func (b blow) name() string {
	if b.then != 0 {
		return short(b.signal) + "+" + short(b.then)
	}
	return short(b.signal)
}

func short(s syscall.Signal) string {
	return map[syscall.Signal]string{syscall.SIGINT: "INT", syscall.SIGTERM: "TERM", syscall.SIGKILL: "KILL"}[s]
}

func summary(o options, hits map[string]map[string]int, wrong []string, out io.Writer) int {
	total := 0
	for _, m := range moments {
		sum := 0
		for _, n := range hits[m.name] {
			sum += n
		}
		total += sum
		fmt.Fprintf(out, "note: %-12s %3d kills %v\n", m.name, sum, hits[m.name])
		if sum == 0 && o.kills >= len(moments) {
			wrong = append(wrong, "phase "+m.name+" was never hit")
		}
	}
	fmt.Fprintf(out, "note: %d kills, seed %d, uid %d: %d hit their moment, %d wrong\n", o.kills, o.seed, o.uid, total, len(wrong))
	for _, line := range wrong {
		fmt.Fprintln(out, "fail:", line)
	}
	if len(wrong) > 0 {
		return 1
	}
	return 0
}

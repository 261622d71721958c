package remote_test

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/chokepoint-lab/chokepoint/bench/rig"
)

var portable = flag.Bool("portable", false, "run with ends that say they are FreeBSD, over ssh")

const portablePlan = `name: portable
method: {duration: 1s, warmup: 200ms, cooldown: 200ms, idle: 300ms, runs: 1, seed: 1}
include:
  - {direction: up, streams: 1}
  - {direction: down, streams: 4}
  - {direction: both, streams: 2}
  - {direction: up, protocol: udp, rate: 20M}
  - {direction: down, protocol: udp, rate: 20M}
  - {direction: up, engine: flows}
  - {direction: up, mss: 1000}
`

// markFreeBSD writes the mark of FreeBSD into an ELF file, of which the kernel here takes no note
// (EI_OSABI of elf(5)).
func markFreeBSD(file string) error {
	const osABI, freeBSD = 7, 9
	f, err := os.OpenFile(file, os.O_WRONLY, 0)
	if err != nil {
		return err
	}

	_, err = f.WriteAt([]byte{freeBSD}, osABI)
	return errors.Join(err, f.Close())
}

// TestPortableEndsOverSSH: a client, a server, and both, whose uname says FreeBSD are given the agent for it,
// which here is one of Linux with the portable sides, run their cells, and keep nothing. What needs Linux at
// an end is left out with that reason.
func TestPortableEndsOverSSH(t *testing.T) {
	if !*portable {
		t.Skip("skip: it loads the machine for two minutes: -portable asks for it")
	}

	work := t.TempDir()
	program, err := rig.NewProgram(work, *binary, os.Geteuid())
	agent := program.Path + "-agent-freebsd-amd64"
	keys := filepath.Join(work, "keys")
	file := program.At("portable.yaml")
	err = errors.Join(err, makeKeys(keys, machines()), os.WriteFile(file, []byte(portablePlan), 0o600))
	if err == nil {
		err = errors.Join(rig.Build(agent, "bench/portable"), markFreeBSD(agent))
	}

	if err != nil {
		t.Fatal(err)
	}

	asked, forget := signal.NotifyContext(t.Context(), os.Interrupt, syscall.SIGTERM)
	defer forget()
	for i, ends := range [][]string{{"client"}, {"server"}, {"client", "server"}} {
		t.Run(strings.Join(ends, "+"), func(t *testing.T) {
			b, err := newBed(t, work, keys, i+1, program, machines(), ends...)
			if err != nil {
				t.Fatal(err)
			}

			checkPortable(t, b.shown(asked, t, 4*time.Minute, file,
				"portable-"+strings.Join(ends, "-")+".json"))
			for _, name := range ends {
				left := b.machines[name].traces()
				if len(left) > 0 {
					t.Errorf("left on the %s: %s", name, strings.Join(left, "; "))
				}
			}
		})
	}
}

func checkPortable(t *testing.T, said string) {
	t.Helper()
	var d struct {
		Cells []struct {
			Label        string
			Runs, Failed int
			Metrics      map[string]struct{ Median float64 }
		}
		Skipped []struct{ Reason string }
	}
	if err := json.Unmarshal([]byte(said), &d); err != nil {
		t.Fatal(err)
	}

	if len(d.Cells) != 5 || len(d.Skipped) != 2 {
		t.Errorf("%d cells and %d left out, want 5 and 2", len(d.Cells), len(d.Skipped))
	}

	for _, c := range d.Cells {
		goodput, told := c.Metrics["goodput_bps"]
		if c.Runs != 1 || c.Failed > 0 || !told || goodput.Median < 1e6 {
			t.Errorf("%s: %d runs, %d failed, %.1f Mbit/s; want one of 1 at least", c.Label, c.Runs, c.Failed,
				goodput.Median/1e6)
		}

		fmt.Fprintf(t.Output(), "%s: %.1f Mbit/s\n", c.Label, goodput.Median/1e6)
	}

	for _, s := range d.Skipped {
		fmt.Fprintf(t.Output(), "left out: %s\n", s.Reason)
		if !strings.Contains(s.Reason, "the portable engine has") {
			t.Errorf("left out: %s; want what the portable engine has", s.Reason)
		}
	}
}

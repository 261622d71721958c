package main

import (
	"math/rand/v2"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/labtest/killed"
)

// A job whose service is killed goes on where it was, and measures no trial twice. The nightly stage
// kills-bed also kills what the service needs.
func TestBedKilled(t *testing.T) {
	t.Parallel()
	root, err := scriptCondition("root")
	if err != nil {
		t.Fatal(err)
	}

	if userns, err := scriptCondition("userns"); err != nil || !root && !userns {
		t.Skip("skip: neither root nor user namespaces")
	}

	program, err := exec.LookPath("chokepoint")
	if err != nil {
		t.Fatal(err)
	}

	dir := t.TempDir()
	b := &killed.Bed{
		Dir:    dir,
		Trials: 4,
		Random: rand.New(rand.NewPCG(1, 2)),
		Pause:  3 * time.Second,
		Command: func(args ...string) *exec.Cmd {
			cmd := exec.Command(program, args...)
			cmd.Env = append(os.Environ(), "XDG_DATA_HOME="+dir, "XDG_STATE_HOME="+dir+"/state",
				"XDG_RUNTIME_DIR="+dir, "GORACE="+noExitSleep)
			return cmd
		},
	}
	b.Write(t, "name: tiny\nmethod: {duration: 200ms, warmup: 0, cooldown: 0, runs: 2}\n"+
		"matrix: {streams: [1, 2]}\n"+
		"measure: {verify: false, latency_idle: off, telemetry: false}\n", "")
	b.Kill(t, 2)
}

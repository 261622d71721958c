package main

import (
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/chokepoint-lab/chokepoint/internal/app"
	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/lab"
	"github.com/chokepoint-lab/chokepoint/internal/lab/knob"
	"github.com/chokepoint-lab/chokepoint/internal/labtest"
	"github.com/chokepoint-lab/chokepoint/internal/labtest/apart"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/record/store"
	"github.com/chokepoint-lab/chokepoint/internal/registry/node"
	"github.com/chokepoint-lab/chokepoint/internal/trial/watch"
)

// TestMain lets the test binary be the command itself: a script that runs chokepoint executes this binary
// again under that name. So do the agent of a machine, the printer, the intruder and the routers.
func TestMain(m *testing.M) {
	testscript.Main(tests{m}, map[string]func(){"chokepoint": main, "agent": main, "printer": printer,
		"intruder": intrude, "routeros": playRouterOS, "routeros-console": consoleOfRouterOS})
}

// tests lists those of this package.
type tests struct{ *testing.M }

func (m tests) Run() int {
	apart.SideBySide(64) // othersAtOnce bounds the scripts
	// A program ignores a hangup where its parent does, as under nohup. A signal that is caught here is not
	// ignored by what the tests start.
	if signal.Ignored(syscall.SIGHUP) {
		signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP)
	}
	return m.M.Run()
}

// printer does what chokepoint-agent probe --json --interval 100ms does, which is another program: until it
// is interrupted it prints what it sees.
func printer() {
	ctx, release := signal.NotifyContext(context.Background(), os.Interrupt)
	defer release()
	if err := watch.Print(ctx, os.Stdout, node.Probes(), 100*time.Millisecond, 0); err != nil {
		os.Exit(codeError)
	}
}

func TestScripts(t *testing.T) {
	if _, err := exec.LookPath("sshd"); err == nil && os.Geteuid() == 0 {
		// Their agent is built beforehand: beside the scripts that takes two minutes.
		if _, err := releasedAgent(); err != nil {
			t.Fatal(err)
		}
	}

	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		UpdateScripts:       os.Getenv("UPDATE_SCRIPTS") != "",
		Setup:               setUpScript,
		Condition:           scriptCondition,
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"exits":    exitsCommand,
			"store":    storeCommand,
			"nights":   nightsCommand,
			"exact":    exactCommand,
			"measured": measuredCommand,
			"release":  releaseCommand,
			"until":    untilCommand,
			"valid":    validCommand,
			"job":      jobCommand,
			"postgres": postgresCommand,
		},
	})
}

// untilCommand implements "until REGEXP PROGRAM…": it runs the program until that succeeds with output that
// matches, for a minute.
func untilCommand(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: until REGEXP PROGRAM…")
	}

	want, err := regexp.Compile("(?m)" + args[0])
	ts.Check(err)
	for began := time.Now(); ; time.Sleep(100 * time.Millisecond) {
		err := ts.Exec(args[1], args[2:]...)
		if err == nil && want.MatchString(ts.ReadFile("stdout")) {
			return
		}

		if time.Since(began) > time.Minute {
			ts.Fatalf("after a minute: %v, and no output that matches %q", err, args[0])
		}
	}
}

// noExitSleep keeps a race-built program from sleeping a second at its exit, which each of a lab's
// processes would do in turn.
const noExitSleep = "atexit_sleep_ms=0"

// othersAtOnce bounds the scripts that run at once. Those over ssh wait longest: they do not wait for others.
var othersAtOnce = make(chan struct{}, 10)

// setUpScript gives each script directories of its own, so that none sees another's runs or the user's.
func setUpScript(env *testscript.Env) error {
	if !strings.HasPrefix(filepath.Base(env.WorkDir), "script-ssh") {
		othersAtOnce <- struct{}{}
		env.Defer(func() { <-othersAtOnce })
	}

	for variable, dir := range map[string]string{
		"HOME": "home", "XDG_DATA_HOME": "data", "XDG_STATE_HOME": "state", "XDG_RUNTIME_DIR": "run",
	} {
		dir = filepath.Join(env.WorkDir, dir)
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return err
		}

		env.Setenv(variable, dir)
	}

	shared, err := filepath.Abs("testdata/ssh") // files of the scripts over ssh
	if err != nil {
		return err
	}

	played, err := filepath.Abs("../../internal/lab/labgrid/testdata") // plays labgrid-client
	if err != nil {
		return err
	}

	env.Setenv("SSH", shared)
	env.Setenv("LABGRID", played)
	env.Setenv("TZ", "UTC")
	env.Setenv("GORACE", noExitSleep)
	env.Defer(func() { takeLabsDown(env) })
	return nil
}

// takeLabsDown ends the labs that a failed script has left up.
func takeLabsDown(env *testscript.Env) {
	dir := app.FindDirs(env.Getenv, os.Geteuid()).Labs()
	labs, err := lab.List(dir)
	for _, i := range labs {
		if i.Alive() {
			err = errors.Join(err, lab.Down(dir, i))
		}
	}

	if err != nil {
		env.T().Log("take labs down: ", err)
	}
}

// postgresCommand implements "postgres": $DATABASE becomes the URL of a new database.
func postgresCommand(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) > 0 {
		ts.Fatalf("usage: postgres")
	}

	place, err := apart.NewDatabase()
	ts.Check(err)
	ts.Setenv("DATABASE", place)
}

// scriptCondition answers [root], [userns], [pppoe], [ip], [iperf3], [nft], [sshd], [dhcpcd],
// [openssl], [busybox], [tc], [postgres] and [long].
func scriptCondition(name string) (bool, error) {
	switch name {
	case "root":
		return os.Geteuid() == 0, nil
	case "long":
		return apart.Wanted(), nil
	case "postgres":
		return apart.HasPostgres(), nil
	case "userns":
		return exec.Command("unshare", "--user", "--map-root-user", "true").Run() == nil, nil
	case "pppoe":
		a := knob.WAN().Check(context.Background(), knob.Place{Port: "wan"}, knob.PPPoE)
		return a.State == check.Yes, nil
	case "ip", "iperf3", "nft", "sshd", "dhcpcd", "openssl", "busybox", "tc":
		_, err := exec.LookPath(name)
		return err == nil, nil
	}
	return false, fmt.Errorf("unknown condition %q", name)
}

// releaseCommand implements "release": it puts an agent for other machines where packages have it, as the
// script's program finds it.
func releaseCommand(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) > 0 {
		ts.Fatalf("usage: release")
	}

	_, err := releasedAgent()
	ts.Check(err)
}

// releasedAgent returns a static program that is the agent for this architecture. A test program that cgo has
// linked dynamically is none: for that one an agent is built, once, where packages have it.
var releasedAgent = sync.OnceValues(func() (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", err
	}

	if static, err := isStatic(self); err != nil || static {
		return self, err
	}

	program, err := exec.LookPath("chokepoint")
	if err != nil {
		return "", err
	}

	agents := filepath.Join(filepath.Dir(program), "../lib/chokepoint")
	if err := os.MkdirAll(agents, 0o755); err != nil {
		return "", err
	}

	agent := filepath.Join(agents, "chokepoint-agent-linux-"+runtime.GOARCH)
	// With the flags of a release, which other builds have compiled.
	build := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-o", agent,
		module+"/cmd/chokepoint-agent")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build %s: %w: %s", agent, err, out)
	}

	return agent, nil
})

const module = "github.com/chokepoint-lab/chokepoint"

// isStatic reports whether a program needs no dynamic linker.
func isStatic(program string) (bool, error) {
	f, err := elf.Open(program)
	if err != nil {
		return false, err
	}
	defer f.Close()
	return !slices.ContainsFunc(f.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_INTERP }), nil
}

// TestAgentOfScriptsIsStatic: whatever linked this test program, the scripts' agent runs on other machines.
func TestAgentOfScriptsIsStatic(t *testing.T) {
	agent, err := releasedAgent()
	if err != nil {
		t.Fatal(err)
	}

	if static, err := isStatic(agent); !static || err != nil {
		t.Errorf("%s: got static %v, %v, want a static program", agent, static, err)
	}
}

// exitsCommand implements "exits CODE COMMAND…": the command must end with exactly that code.
func exitsCommand(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits CODE COMMAND…")
	}

	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	got := 0
	if err := ts.Exec(args[1], args[2:]...); err != nil {
		var exit *exec.ExitError
		if !errors.As(err, &exit) {
			ts.Fatalf("%v", err)
		}

		got = exit.ExitCode()
	}

	if got != want {
		ts.Fatalf("exit code: got %d, want %d", got, want)
	}
}

// storeCommand implements "store NAME…": it writes these sample runs to the script's store.
func storeCommand(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) == 0 {
		ts.Fatalf("usage: store NAME…")
	}

	d := app.FindDirs(ts.Getenv, os.Geteuid())
	for _, name := range args {
		ts.Check(labtest.WriteSample(context.Background(), d.StoreFile(), name))
	}
}

// nightsCommand implements "nights N CHANGED FACTOR": it writes N runs to the script's store, whose rates
// have another factor from one on.
func nightsCommand(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 3 {
		ts.Fatalf("usage: nights N CHANGED FACTOR")
	}

	n, err := strconv.Atoi(args[0])
	ts.Check(err)
	changed, err := strconv.Atoi(args[1])
	ts.Check(err)
	factor, err := strconv.ParseFloat(args[2], 64)
	ts.Check(err)
	d := app.FindDirs(ts.Getenv, os.Geteuid())
	ts.Check(labtest.WriteNights(context.Background(), d.StoreFile(), n, changed, factor))
}

// measuredCommand implements "measured [N]": in the latest run, or the one N before it, a trial may fail only
// for want of its machine's time, and must have been measured when it was repeated.
func measuredCommand(ts *testscript.TestScript, neg bool, args []string) {
	before := 0
	if neg || len(args) > 1 {
		ts.Fatalf("usage: measured [N]")
	}

	if len(args) == 1 {
		var err error
		before, err = strconv.Atoi(args[0])
		ts.Check(err)
	}

	d := app.FindDirs(ts.Getenv, os.Geteuid())
	runs, err := d.Runs(context.Background())
	ts.Check(err)
	if len(runs) <= before {
		ts.Fatalf("runs: got %d, want more than %d", len(runs), before)
	}

	_, trials, err := loadRun(context.Background(), d, runs[before].ID)
	ts.Check(err)
	status := map[string]string{}
	for _, t := range trials {
		status[t.Row.ID] = t.Status
		f := t.Failure
		if f != nil && !strings.Contains(f.Error, "had no time for it") &&
			!strings.Contains(f.Error, "for its CPU") {
			ts.Fatalf("%s: failed in %s: %s", t.ID, f.Phase, f.Error)
		}
	}

	for row, s := range status {
		if s != record.TrialOK {
			ts.Fatalf("%s: %s, also when it was repeated", row, s)
		}
	}

	if len(status) == 0 {
		ts.Fatalf("%s: no trial", runs[before].ID)
	}
}

// exactCommand implements "exact N": the latest run has N trials, all measured, whose counts are those of the
// load alone.
func exactCommand(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: exact N")
	}

	_, trials, err := loadRun(context.Background(), app.FindDirs(ts.Getenv, os.Geteuid()), "latest")
	ts.Check(err)
	got := strconv.Itoa(len(trials))
	if got != args[0] {
		ts.Fatalf("trials: got %s, want %s", got, args[0])
	}

	for _, t := range trials {
		if t.Status != record.TrialOK {
			ts.Fatalf("%s: %s: %+v", t.ID, t.Status, t.Failure)
		}

		if t.Traffic == nil { // of latency alone
			continue
		}

		for _, f := range t.Traffic.Flows {
			p := f.Packets
			switch {
			case f.ReceivedBytes == 0 || f.Corrupt > 0 || t.Traffic.Load.Verify && f.Verified == 0:
				ts.Fatalf("%s: received %d bytes, of which %d had their content verified and %d were damaged",
					t.ID, f.ReceivedBytes, f.Verified, f.Corrupt)
			case p != nil && (p.Sent != p.Received+p.Lost || p.Sent == 0 || *p.Duplicates+*p.Reordered > 0):
				ts.Fatalf("%s: %d packets sent, %d received, %d lost, %d twice, %d late", t.ID, p.Sent,
					p.Received, p.Lost, *p.Duplicates, *p.Reordered)
			}

			ts.Logf("%s %s %s: %d bytes, %+v", t.ID, t.Traffic.Engine, f.Direction, f.ReceivedBytes, p)
		}
	}
}

// loadRun reads a run and its trials; name is RUN as typed.
func loadRun(ctx context.Context, d app.Dirs, name string) (run record.Run, trials []record.Trial,
	err error) {
	err = d.WithRun(ctx, name, func(st *store.Store, r record.Run) (err error) {
		run = r
		trials, err = st.Trials(ctx, run.ID)
		return err
	})
	return run, trials, err
}

package remote_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/chokepoint-lab/chokepoint/bench/rig"
)

var labgridPath = flag.String("labgrid", "", "the folder with labgrid-client, -coordinator and -exporter")

// labgridPlan has three loads, and measures the idle path before each.
const labgridTrials = 6
const labgridPlan = `name: labgrid
method: {duration: 700ms, warmup: 200ms, cooldown: 100ms, idle: 200ms, runs: 3, seed: 1}
matrix:
  direction: [up]
  ip: [4]
  pacing: [2M]
  link_mtu@router: [1400]
measure: {verify: false}
`

// The two lab files: the tags of the place name the machines. The second board never boots.
const (
	labgridFile = "ssh_config: %s/config\n" +
		"place: {tags: [device=namespace], power_before: cycle, power_after: off, boot: 30s}\n"
	deafFile   = "ssh_config: %s/config\nplace: {name: deaf, power_before: cycle, boot: 8s}\n"
	waitingLab = "ssh_config: %s/config\nplace: {name: board-7, wait: 1h}\n"
	stateLab   = "ssh_config: %s/config\nplace: {tags: [device=namespace], config: env.yaml, state: shell}\n"
)

// labgridEnv and labgridStrategy are an environment file with a strategy: state shell is a board that was
// power-cycled, with an image.
const (
	labgridEnv = `targets:
  main:
    resources:
      RemotePlace: {name: !template "$LG_PLACE"}
    drivers:
      NetworkPowerDriver: {}
      NamespaceStrategy: {image: !template "$LG_IMAGE"}
imports: [strategy.py]
`
	labgridStrategy = `import attr
from labgrid.factory import target_factory
from labgrid.strategy import Strategy


@target_factory.reg_driver
@attr.s(eq=False)
class NamespaceStrategy(Strategy):
    bindings = {"power": "PowerProtocol"}
    image = attr.ib()

    def transition(self, status):
        self.target.activate(self.power)
        self.power.cycle()
        print(f"{status} with {self.image}")
`
)

// labgridExporter exports a power port and a serial port of both boards.
const labgridExporter = `board-7:
  NetworkPowerPort: {model: rest, host: 'http://127.0.0.1:8099/{index}', index: 7}
  NetworkSerialPort: {host: 127.0.0.1, port: 8098, protocol: raw, speed: 115200}
deaf:
  NetworkPowerPort: {model: rest, host: 'http://127.0.0.1:8099/{index}', index: 8}
  NetworkSerialPort: {host: 127.0.0.1, port: 8098, protocol: raw, speed: 115200}
`

const (
	coordinatorAt = "127.0.0.1:20408"
	powerAt       = "127.0.0.1:8099"
	consoleAt     = "127.0.0.1:8098"
)

// farm is a bed whose machines belong to a place of a real labgrid coordinator. Its power port boots and
// halts the router.
type farm struct {
	*bed
	t                     *testing.T
	coordinator, exporter *exec.Cmd

	mu    sync.Mutex
	power []string       // what the power ports were told
	boots sync.WaitGroup // boots that go on
}

// TestLabgrid: however a run ends, and whatever happens to the coordinator meanwhile, no place stays acquired
// or reserved, and other users keep theirs.
func TestLabgrid(t *testing.T) {
	if *labgridPath == "" {
		t.Skip("skip: it needs labgrid: -labgrid says where")
	}

	asked, forget := signal.NotifyContext(t.Context(), os.Interrupt, syscall.SIGTERM)
	defer forget()
	t.Setenv("PATH", *labgridPath+":"+os.Getenv("PATH"))
	f := newFarm(t)
	locked(t, func() {
		for _, scene := range []struct {
			name string
			play func(ctx context.Context)
		}{
			{"lab check", f.checked},
			{"a run to its end", f.toItsEnd},
			{"SIGINT in a run", f.interrupted},
			{"kill -9 in a run", f.killed},
			{"kill -9 while waiting for another user's place", f.killedWaiting},
			{"the coordinator is restarted in a run", f.restarted},
			{"the coordinator answers no more at the end of a run", f.frozen},
			{"a board that does not boot", f.deaf},
			{"a strategy brings the board up", f.strategy},
		} {
			if asked.Err() != nil || t.Failed() {
				return
			}

			began := time.Now()
			scene.play(asked)
			f.free()
			fmt.Fprintf(t.Output(), "%-52s %5.1f s, power %s\n", scene.name, time.Since(began).Seconds(),
				strings.Join(f.told(), " "))
		}
	})
}

func newFarm(t *testing.T) *farm {
	work := t.TempDir()
	program, err := rig.NewProgram(work, *binary, os.Geteuid())
	keys := filepath.Join(work, "keys")
	if err = errors.Join(err, makeKeys(keys, machines())); err != nil {
		t.Fatal(err)
	}

	b, err := newBed(t, work, keys, 1, program, machines())
	if err != nil {
		t.Fatal(err)
	}

	f := &farm{bed: b, t: t}
	for name, text := range map[string]string{"labgrid.yaml": labgridPlan, "exporter.yaml": labgridExporter,
		"lab.yaml": fmt.Sprintf(labgridFile, keys), "deaf.yaml": fmt.Sprintf(deafFile, keys),
		"waiting.yaml": fmt.Sprintf(waitingLab, keys), "state.yaml": fmt.Sprintf(stateLab, keys),
		"env.yaml": labgridEnv, "strategy.py": labgridStrategy} {
		if err := os.WriteFile(b.At(name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}

	power, err := listenIn(b.controller(), powerAt)
	if err != nil {
		t.Fatal(err)
	}

	console, err := listenIn(b.controller(), consoleAt)
	if err != nil {
		t.Fatal(err)
	}

	served := &http.Server{Handler: http.HandlerFunc(f.switched)}
	var all sync.WaitGroup
	all.Go(func() { _ = served.Serve(power) }) // until it is closed
	all.Go(func() { babble(console) })
	t.Cleanup(func() {
		_ = served.Close()
		_ = console.Close()
		all.Wait()
		f.boots.Wait()
		f.stop()
		if router := f.machines["router"]; router.outer == nil { // what made the bed expects it to be on
			if err := router.boot(); err != nil {
				t.Error(err)
			}
		}
	})
	f.start()
	f.must("-p", "board-7", "create")
	f.must("-p", "board-7", "add-match", "bench/board-7/*")
	f.must("-p", "board-7", "set-tags", "device=namespace", "cp.client=ssh://client",
		"cp.router=ssh://router", "cp.server=ssh://server", "cp.wan-port=eth0")
	f.must("-p", "deaf", "create")
	f.must("-p", "deaf", "add-match", "bench/deaf/*")
	f.must("-p", "deaf", "set-tags", "cp.client=ssh://client", "cp.router=ssh://deaf",
		"cp.server=ssh://server")
	f.await("the coordinator has stored its places", func() bool {
		places, err := os.ReadFile(b.At("places.yaml"))
		return err == nil && strings.Contains(string(places), "ssh://deaf")
	})
	return f
}

// listenIn opens a listener in a network namespace.
func listenIn(space, address string) (l net.Listener, err error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // never unlocked, so that the thread ends with its namespace
		var ns *os.File
		if ns, err = os.Open("/run/netns/" + space); err != nil {
			return
		}
		defer ns.Close()
		if err = unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET); err == nil {
			l, err = net.Listen("tcp", address)
		}
	}()
	<-done
	return l, err
}

// switched plays the power ports. Port 7 is the router of the bed, which boots for two seconds.
func (f *farm) switched(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	f.mu.Lock()
	f.power = append(f.power, map[string]string{"0": "off", "1": "on", "": "?"}[string(body)])
	f.mu.Unlock()
	if r.URL.Path != "/7" || r.Method != http.MethodPut {
		return
	}

	f.boots.Wait()
	router := f.machines["router"]
	if string(body) == "0" && router.outer != nil {
		if err := router.halt(); err != nil {
			f.t.Error(err)
		}
	}

	if string(body) == "1" && router.outer == nil {
		f.boots.Go(func() {
			time.Sleep(2 * time.Second)
			if err := router.boot(); err != nil {
				f.t.Error(err)
			}
		})
	}
}

// told returns what the power ports were told since the last time.
func (f *farm) told() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	all := f.power
	f.power = nil
	return all
}

// babble plays a serial console, which says the same to everybody.
func babble(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return // closed
		}

		_, _ = io.WriteString(c, "U-Boot 2024.10\r\nKernel panic - not syncing: VFS\r\n")
		time.AfterFunc(time.Minute, func() { c.Close() })
	}
}

// start starts the coordinator and the exporter on the controller.
func (f *farm) start() {
	f.t.Helper()
	f.coordinator = f.service("labgrid-coordinator", "-l", coordinatorAt)
	f.await("the coordinator answers", func() bool { _, err := f.labgrid("places"); return err == nil })
	f.exporter = f.service("labgrid-exporter", "-c", coordinatorAt, "-n", "bench", f.At("exporter.yaml"))
	f.await("the exporter has exported", func() bool {
		resources, err := f.labgrid("resources")
		return err == nil && strings.Contains(resources, "bench/board-7/NetworkPowerPort") &&
			strings.Contains(resources, "bench/deaf/NetworkPowerPort")
	})
}

func (f *farm) service(name string, args ...string) *exec.Cmd {
	f.t.Helper()
	cmd := exec.Command("ip", append([]string{"netns", "exec", f.controller(), name}, args...)...)
	cmd.Dir = f.Dir
	log, err := os.OpenFile(f.At(name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		f.t.Fatal(err)
	}
	defer log.Close()
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil { // ip becomes the service
		f.t.Fatal(err)
	}

	return cmd
}

// stop kills the coordinator and the exporter.
func (f *farm) stop() {
	for _, cmd := range []*exec.Cmd{f.exporter, f.coordinator} {
		if cmd != nil {
			_ = cmd.Process.Kill()
			_ = cmd.Wait() // it was killed
		}
	}
}

func (f *farm) await(what string, done func() bool) {
	f.t.Helper()
	for range 300 {
		if done() {
			return
		}

		time.Sleep(100 * time.Millisecond)
	}

	f.t.Fatalf("after half a minute: not yet: %s", what)
}

// labgrid runs labgrid-client as another user.
func (f *farm) labgrid(args ...string) (string, error) {
	return say("", append([]string{"ip", "netns", "exec", f.controller(), "env", "LG_HOSTNAME=desk",
		"LG_USERNAME=anna", "labgrid-client", "-x", coordinatorAt}, args...)...)
}

func (f *farm) must(args ...string) string {
	f.t.Helper()
	out, err := f.labgrid(args...)
	if err != nil {
		f.t.Fatal(err)
	}

	return out
}

// holder returns who has acquired board-7.
func (f *farm) holder() string {
	f.t.Helper()
	_, after, _ := strings.Cut(f.must("-p", "board-7", "show"), "\n  acquired: ")
	who, _, _ := strings.Cut(after, "\n")
	return who
}

// free checks that no place is acquired and none reserved, and that no journal is left.
func (f *farm) free() {
	f.t.Helper()
	if places := f.must("places", "--acquired"); places != "" {
		f.t.Errorf("acquired: %s", places)
	}

	if reserved := f.must("reservations"); reserved != "" {
		f.t.Errorf("reserved: %s", reserved)
	}

	left, _ := filepath.Glob(f.At("state") + "/chokepoint/journal/*.jsonl") // the pattern is well-formed
	if len(left) > 0 {
		f.t.Errorf("journals are left: %q", left)
	}
}

// chokepoint runs a command to its end and checks its exit code. It returns what it has printed.
func (f *farm) chokepoint(ctx context.Context, want int, args ...string) string {
	f.t.Helper()
	within, cancel := context.WithTimeout(ctx, runsWithin)
	defer cancel()
	out, err := f.command(within, args...).CombinedOutput()
	var failed *exec.ExitError
	code := 0
	if errors.As(err, &failed) {
		code = failed.ExitCode()
	}

	if code != want || err != nil && failed == nil {
		f.t.Errorf("chokepoint %s: %v, want exit code %d: %s", strings.Join(args, " "), err, want, out)
	}

	return string(out)
}

func (f *farm) run() []string {
	return []string{"run", f.At("labgrid.yaml"), "--lab", f.At("lab.yaml"), "--json"}
}

// inTrial starts a run and calls do when its first trial has begun. It returns the exit code, -1 by a signal,
// and what the run has printed.
func (f *farm) inTrial(ctx context.Context, do func(run *os.Process)) (code int, said string) {
	f.t.Helper()
	within, cancel := context.WithTimeout(ctx, runsWithin)
	defer cancel()
	cmd := f.command(within, f.run()...)
	file, err := os.Create(f.At("tmp/said"))
	if err != nil {
		f.t.Fatal(err)
	}
	defer file.Close()
	cmd.Stdout, cmd.Stderr = file, file
	if err := cmd.Start(); err != nil {
		f.t.Fatal(err)
	}

	f.await("a trial has begun", func() bool {
		return strings.Contains(string(read(f.At("tmp/said"))), `"trial-started"`)
	})
	if who := f.holder(); !strings.Contains(who, ".chokepoint-") {
		f.t.Errorf("during the run, board-7 is held by %s", who)
	}

	do(cmd.Process)
	_ = cmd.Wait() // the exit code says how it ended
	return cmd.ProcessState.ExitCode(), string(read(f.At("tmp/said")))
}

func (f *farm) wants(said, want string) {
	f.t.Helper()
	if !strings.Contains(said, want) {
		f.t.Errorf("want %q in what ends with %s", want, said[max(0, len(said)-2000):])
	}
}

func (f *farm) checked(ctx context.Context) {
	said := f.chokepoint(ctx, 0, "lab", "check", "--lab", f.At("lab.yaml"))
	f.wants(said, "place board-7")
	f.wants(said, "resources: NetworkPowerPort, NetworkSerialPort")
	f.wants(said, "wan is eth0")
}

func (f *farm) toItsEnd(ctx context.Context) {
	code, said := f.inTrial(ctx, func(*os.Process) {})
	if code != 0 || strings.Count(said, `"event":"trial-ended"`) != labgridTrials {
		f.t.Errorf("exit code %d: %s", code, said)
	}
}

func (f *farm) interrupted(ctx context.Context) {
	code, said := f.inTrial(ctx, func(run *os.Process) { _ = run.Signal(os.Interrupt) })
	if code != 130 {
		f.t.Errorf("exit code %d, want 130: %s", code, said)
	}
}

func (f *farm) killed(ctx context.Context) {
	f.inTrial(ctx, func(run *os.Process) { _ = run.Kill() })
	if who := f.holder(); !strings.Contains(who, ".chokepoint-") {
		f.t.Errorf("after kill -9, board-7 is held by %s, want the run", who)
	}

	f.wants(f.chokepoint(ctx, 0, "lab", "restore"), "released place board-7\n")
	f.free()
	said := f.chokepoint(ctx, 0, "resume", "--json")
	f.wants(said, `"status":"done"`)
}

func (f *farm) killedWaiting(ctx context.Context) {
	f.must("-p", "board-7", "acquire")
	cmd := f.command(ctx, "run", f.At("labgrid.yaml"), "--lab", f.At("waiting.yaml"))
	if err := cmd.Start(); err != nil {
		f.t.Fatal(err)
	}

	f.await("the run waits for board-7", func() bool { return f.must("reservations") != "" })
	_ = cmd.Process.Kill()
	_ = cmd.Wait() // it was killed
	f.wants(f.chokepoint(ctx, 0, "lab", "restore"), "cancelled the reservation of place board-7\n")
	if who := f.holder(); who != "desk/anna" {
		f.t.Errorf("board-7 is held by %s, want desk/anna", who)
	}

	f.must("-p", "board-7", "release")
}

func (f *farm) restarted(ctx context.Context) {
	code, said := f.inTrial(ctx, func(*os.Process) {
		f.stop()
		f.start()
	})
	if code != 0 || strings.Count(said, `"event":"trial-ended"`) != labgridTrials {
		f.t.Errorf("exit code %d: %s", code, said)
	}

	f.wants(said, "place board-7 was not acquired any more at the end")
	f.wants(f.chokepoint(ctx, 0, "show", "--json", "latest"), `"kind": "place-lost"`)
}

func (f *farm) frozen(ctx context.Context) {
	code, said := f.inTrial(ctx, func(*os.Process) { _ = f.coordinator.Process.Signal(syscall.SIGSTOP) })
	if code != 5 || strings.Count(said, `"event":"trial-ended"`) != labgridTrials {
		f.t.Errorf("exit code %d, want 5, after all trials: %s", code, said)
	}

	f.wants(said, "release place board-7, which ")
	f.wants(said, "once the coordinator can be reached, chokepoint lab restore releases it")
	_ = f.coordinator.Process.Signal(syscall.SIGCONT)
	// Without its coordinator the exporter has ended, so that the board cannot be switched off.
	f.wants(f.chokepoint(ctx, 0, "lab", "restore"), "released place board-7; place board-7: power off: ")
	f.stop()
	f.start()
}

func (f *farm) deaf(ctx context.Context) {
	said := f.chokepoint(ctx, 1, "run", f.At("labgrid.yaml"), "--lab", f.At("deaf.yaml"))
	f.wants(said, "bring up place deaf: the router did not answer within 8s")
	f.wants(said, "the last lines of its console: U-Boot 2024.10 / Kernel panic - not syncing")
}

func (f *farm) strategy(ctx context.Context) {
	cmd := f.command(ctx, "run", f.At("labgrid.yaml"), "--lab", f.At("state.yaml"), "--quiet")
	cmd.Env = append(cmd.Env, "LG_IMAGE=/images/a.itb")
	out, err := cmd.CombinedOutput()
	if err != nil {
		f.t.Errorf("%v: %s", err, out)
	}

	f.wants(string(out), "shell with /images/a.itb")
}

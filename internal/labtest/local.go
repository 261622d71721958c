package labtest

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/lab"
	"github.com/chokepoint-lab/chokepoint/internal/lab/agent"
	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/lab/vm"
	"github.com/chokepoint-lab/chokepoint/internal/labtest/apart"
)

// Time is the time limit for a single step of a test in a real lab.
const Time = 20 * time.Second

// Context returns a context that is cancelled at the end of the test, or after Time.
func Context(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), Time)
	t.Cleanup(cancel)
	return ctx
}

// Up starts a real lab of namespaces and closes it at the end of the test. The test program must serve the
// lab's roles; see registry.Serve.
func Up(t testing.TB, topology string, parts lab.Parts) *lab.Lab {
	t.Helper()
	l, _ := UpIn(t, t.TempDir(), topology, parts)
	return l
}

// UpIn is like Up, but uses the given runtime directory. It also returns the lab's id, for tests that attach
// to the lab.
func UpIn(t testing.TB, dir, topology string, parts lab.Parts) (*lab.Lab, string) {
	t.Helper()
	return UpLocal(t, lab.Local{Dir: dir, Parts: parts}, topology)
}

// UpLocal is like UpIn, but the lab has the options in o, such as queues, guests or a driver.
func UpLocal(t testing.TB, o lab.Local, topology string) (*lab.Lab, string) {
	t.Helper()
	var err error
	o.Topology, err = lab.TopologyNamed(topology)
	must(t, err)
	patience := Time
	if o.Guest != nil || o.Driver != "" {
		patience = GuestTime
	}

	o.ID = "t" + strconv.Itoa(os.Getpid()) + "-" + topology
	if o.Guest != nil {
		o.ID = "t" + strconv.Itoa(os.Getpid()) + "-vm-" + topology
	}

	within, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	l, err := o.Up(within)
	Refused(t, err)
	must(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), Time)
		defer cancel()
		if err := l.Close(ctx); err != nil {
			t.Errorf("take down the lab: %v", err)
		}
	})
	return l, o.ID
}

// MustDo fails the test if err is not nil. doing and args describe the operation.
func MustDo(t testing.TB, err error, doing string, args ...any) {
	t.Helper()
	if err != nil {
		t.Fatalf(doing+": %v", append(args, err)...)
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// nodeOf returns the node with the given name.
func nodeOf(t testing.TB, l *lab.Lab, name string) *lab.Node {
	t.Helper()
	n, err := l.Node(Context(t), name)
	must(t, err)
	return n
}

// Able skips the test if a, the answer of a check, says that a function does not work on this machine. It
// fails the test if the check was inconclusive.
func Able(t testing.TB, what string, a check.Answer) {
	t.Helper()
	if a.State == check.No && a.Reason != "" {
		t.Skip("skip: " + what + ": " + a.Reason)
	} else if a.State != check.Yes {
		t.Fatalf("check: got %v (%s), want yes or a conclusive no", a.State, a.Reason)
	}
}

// Refused skips the test if err means that the kernel does not let this user create namespaces.
func Refused(t testing.TB, err error) {
	t.Helper()
	if err != nil && os.Geteuid() != 0 && (errors.Is(err, os.ErrPermission) || strings.Contains(err.Error(),
		"operation not permitted") || strings.Contains(err.Error(), "no space left")) {
		t.Skip("skip: this kernel refuses user namespaces to ordinary users")
	}
}

// Exec runs a command on a node and returns its standard output. It skips the test if the command is not
// installed.
func Exec(t testing.TB, l *lab.Lab, node string, args ...string) string {
	t.Helper()
	ctx := Context(t)
	s, err := nodeOf(t, l, node).Command(ctx, args...)
	must(t, err)
	defer s.Close()
	defer context.AfterFunc(ctx, func() { s.Close() })()
	must(t, s.Finish())
	var out, talk strings.Builder
	for {
		var o agent.ExecOutput
		err := s.Recv(&o)
		if err != nil && strings.Contains(err.Error(), "not installed") {
			t.Skip("skip: no " + args[0] + " here")
		}

		MustDo(t, err, "execute %v on %s", args, node)
		out.Write(o.Out)
		talk.Write(o.Err)
		if o.Exit == nil {
			continue
		}

		if *o.Exit != 0 {
			t.Fatalf("execute %v on %s: exit code %d: %s", args, node, *o.Exit, talk.String())
		}

		return out.String()
	}
}

// Devices lists the network devices of a node, sorted.
func Devices(t testing.TB, l *lab.Lab, node string) []string {
	t.Helper()
	var out []string
	for line := range strings.Lines(Exec(t, l, node, "cat", "/proc/net/dev")) {
		if name, _, ok := strings.Cut(line, ":"); ok {
			out = append(out, strings.TrimSpace(name))
		}
	}

	slices.Sort(out)
	return out
}

// Reach sends packets of the given sizes from the near to the far endpoint of a slot's path, and returns the
// sizes that were echoed. If beyond is not 0, Reach also tries a packet of that size, but only once, because
// it should be too large for the path.
func Reach(t testing.TB, l *lab.Lab, slot, ip, beyond int, sizes ...int) agent.Reached {
	t.Helper()
	const port = 20995
	ctx := Context(t)
	near := l.Address(slot, 0, ip)
	far := l.Address(slot, 1, ip)
	s, err := nodeOf(t, l, l.Topology.Far).Agent.Open(ctx, agent.VerbEcho,
		agent.EchoAt{Addr: far, Port: port})
	must(t, err)
	defer func() {
		s.Finish()
		for s.Recv(nil) == nil {
		}

		s.Close()
	}()
	MustDo(t, s.Recv(nil), "echo on %s at %s", l.Topology.Far, far)
	var out agent.Reached
	if err := nodeOf(t, l, l.Topology.Near).Agent.Invoke(ctx, agent.VerbReach,
		agent.Reach{From: near, To: far, Port: port, Sizes: sizes, Beyond: beyond}, &out); err != nil {
		t.Fatalf("reach %s from %s: %v", far, near, err)
	}

	return out
}

// WantReach fails the test unless packets of the given sizes are echoed and a packet of the size in beyond is
// not.
func WantReach(t testing.TB, l *lab.Lab, slot, ip, beyond int, sizes ...int) {
	t.Helper()
	got := Reach(t, l, slot, ip, beyond, sizes...)
	if !slices.Equal(got.Back, sizes) {
		t.Errorf("slot %d, IPv%d packets of %v and %d bytes: %v came back (%s), want all but the last", slot,
			ip, sizes, beyond, got.Back, got.Note)
	}
}

// Descendants lists the descendants of a process, except zombies.
func Descendants(of int) []int {
	parents := map[int]int{}
	paths, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, p := range paths {
		b, err := os.ReadFile(p)
		if err != nil {
			continue // the process ended meanwhile
		}

		_, rest, ok := strings.Cut(string(b), ") ")
		f := strings.Fields(rest)
		if !ok || len(f) < 2 || f[0] == "Z" || f[0] == "X" {
			continue
		}

		pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(p)))
		parents[pid], _ = strconv.Atoi(f[1])
	}

	var out []int
	for pid := range parents {
		for p := parents[pid]; p > 0; p = parents[p] {
			if p == of {
				out = append(out, pid)
				break
			}
		}
	}

	slices.Sort(out)
	return out
}

// Guest returns a real guest with this machine's architecture. It skips the test if long tests were not
// requested, QEMU is not installed, or the image cache does not exist.
func Guest(t testing.TB) *vm.Guest {
	t.Helper()
	apart.Long(t, "boots a guest")
	g := vm.Guest{Image: vm.Image{Arch: vm.NativeArch()}}
	_, err := host.Run(t.Context(), host.Local(), host.Command{
		Path: g.Program(),
		Args: []string{"--version"},
	})
	if g.Image.Arch == "" || err != nil {
		t.Skip("skip: no QEMU here")
	}

	cache := GuestCache(t)
	if _, err := os.Stat(cache); err != nil {
		t.Skip("skip: no image of a guest here; chokepoint lab image makes it")
	}

	say := func(text string) { t.Log(text) }
	program, err := vm.GuestProgram(t.Context(), g.Image.Arch, cache, Source(t), say)
	must(t, err)
	img, err := vm.Recipe{Arch: g.Image.Arch, Program: program, Cache: cache, Say: say}.Image(t.Context())
	must(t, err)
	g = vm.NewGuest(img)
	return &g
}

// Source returns the directory of the source tree under test.
func Source(t testing.TB) string {
	t.Helper()
	here, err := os.Getwd()
	must(t, err)
	return vm.SourceTree(here)
}

// GuestCache returns the directory of images and programs for guests.
func GuestCache(t testing.TB) string {
	t.Helper()
	cache := os.Getenv("CHOKEPOINT_VM_CACHE")
	if cache != "" {
		return cache
	}

	dir, err := os.UserCacheDir()
	must(t, err)
	return filepath.Join(dir, "chokepoint", "vm")
}

// GuestTime is the time limit for a lab of guests to boot.
const GuestTime = 90 * time.Second

package agent_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/factor"
	"github.com/chokepoint-lab/chokepoint/internal/lab/agent"
	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/lab/kernel"
	"github.com/chokepoint-lab/chokepoint/internal/lab/knob"
	"github.com/chokepoint-lab/chokepoint/internal/labtest"
	"github.com/chokepoint-lab/chokepoint/internal/labtest/expect"
)

// dial holds what a setting of a test is: a text that remembers what was done.
type dial struct {
	mu    sync.Mutex
	state knob.State
	log   []string
	turn  func(s knob.State) (knob.State, error) // what Apply makes of it; nil: s
}

func (d *dial) Name() string                          { return "dial" }
func (d *dial) Parse(text string) (knob.State, error) { return knob.State(text), nil }
func (d *dial) Same(want, got knob.State) bool        { return strings.EqualFold(string(want), string(got)) }
func (d *dial) Check(_ context.Context, _ knob.Place, s knob.State) check.Answer {
	if s == "eleven" {
		return check.Not("it goes to ten")
	}
	return check.OK()
}

func (d *dial) Factor() factor.Declaration { return factor.Declaration{Name: d.Name()} }

func (d *dial) Read(context.Context, knob.Place, knob.State) (knob.State, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.log = append(d.log, "read "+string(d.state))
	return d.state, nil
}

func (d *dial) Apply(ctx context.Context, _ knob.Place, s knob.State) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}

	d.mu.Lock()
	defer d.mu.Unlock()
	d.log = append(d.log, "apply "+string(s))
	d.state = s
	if d.turn != nil {
		var err error
		d.state, err = d.turn(s)
		return err
	}

	return nil
}

func (d *dial) did() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.log)
}

func serve(t *testing.T, p agent.Parts) host.Agent {
	t.Helper()
	a := labtest.Serve(agent.Handlers(agent.Role, p))
	t.Cleanup(func() {
		if err := a.Close(); err != nil {
			t.Errorf("agent ended with %v, want nil", err)
		}
	})
	return a
}

// hold opens a knob's session and takes its first answer.
func hold(t *testing.T, a host.Agent, want knob.State) (host.Session, agent.KnobReply) {
	t.Helper()
	s, err := a.Open(labtest.Context(t), "knob/dial", agent.KnobRequest{Want: want})
	must(t, err)
	var held agent.KnobReply
	must(t, s.Recv(&held))
	return s, held
}

// TestKnobSession: read, wait for the word, apply, read back, and put back in whatever way the session
// ends.
func TestKnobSession(t *testing.T) {
	ends := map[string]func(a host.Agent, s host.Session) error{
		"finish": func(_ host.Agent, s host.Session) error { return s.Finish() },
		"close":  func(_ host.Agent, s host.Session) error { return s.Close() },
		"death":  func(a host.Agent, _ host.Session) error { return a.Close() },
	}
	for name, end := range ends {
		t.Run(name, func(t *testing.T) {
			d := &dial{state: "five"}
			a := serve(t, agent.Parts{Knobs: []knob.Knob{d}})
			s, held := hold(t, a, "TEN")
			if held.State != "five" {
				t.Errorf("found: got %q, want five", held.State)
			}

			expect.Same(t, "before the word to go on", []string{"read five"}, d.did())
			must(t, s.Send(struct{}{}))
			if err := s.Recv(&held); err != nil || held.State != "TEN" {
				t.Errorf("read back: got %q, %v, want TEN", held.State, err)
			}

			if err := end(a, s); err != nil {
				t.Errorf("%s: %v", name, err)
			}

			want := []string{"read five", "apply TEN", "read TEN", "apply five"}
			expect.Soon(t, 2*time.Second, "effects", want, d.did)
		})
	}
}

// TestKnobSessionThatEndsBeforeTheWordChangesNothing: the controller could not write its journal.
func TestKnobSessionThatEndsBeforeTheWordChangesNothing(t *testing.T) {
	d := &dial{state: "five"}
	a := serve(t, agent.Parts{Knobs: []knob.Knob{d}})
	s, _ := hold(t, a, "ten")
	must(t, s.Finish())
	for s.Recv(nil) == nil {
	}

	expect.Same(t, "effects", []string{"read five"}, d.did())
}

// TestKnobThatDoesNotTakeIsPutBack: an error, or another state than asked.
func TestKnobThatDoesNotTakeIsPutBack(t *testing.T) {
	for _, tt := range []struct {
		name, want string
		turn       func(s knob.State) (knob.State, error)
	}{
		{"error", "stuck", func(s knob.State) (knob.State, error) {
			if s == "ten" {
				return "seven", errors.New("stuck")
			}
			return s, nil
		}},
		{"other state", "read back nine", func(s knob.State) (knob.State, error) {
			if s == "ten" {
				return "nine", nil
			}
			return s, nil
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d := &dial{state: "five", turn: tt.turn}
			s, _ := hold(t, serve(t, agent.Parts{Knobs: []knob.Knob{d}}), "ten")
			must(t, s.Send(struct{}{}))
			expect.Error(t, "the session", s.Recv(nil), tt.want)
			log := d.did()
			if log[len(log)-1] != "apply five" || d.state != "five" {
				t.Errorf("effects: got %v, want the last to put five back", log)
			}
		})
	}
}

func TestKnobRestoreIsForGood(t *testing.T) {
	d := &dial{state: "five"}
	a := serve(t, agent.Parts{Knobs: []knob.Knob{d}})
	var held agent.KnobReply
	if err := a.Invoke(labtest.Context(t), "knob/dial", agent.KnobRequest{Want: "ten", Restore: true},
		&held); err != nil || held.State != "ten" {
		t.Errorf("restore: got %q, %v, want ten", held.State, err)
	}

	expect.Same(t, "effects", []string{"apply ten", "read ten"}, d.did())
	for level, want := range map[knob.State]check.State{"ten": check.Yes, "eleven": check.No} {
		held = agent.KnobReply{}
		if err := a.Invoke(labtest.Context(t), "knob/dial", agent.KnobRequest{Want: level, Check: true},
			&held); err != nil || held.Answer == nil || held.Answer.State != want {
			t.Errorf("check %s: got %+v, %v, want %v", level, held.Answer, err, want)
		}
	}
}

// TestIsolatedVerbsLiveInAProcessEach: with the session the process ends, and what it did is undone; its
// death is an error of its session alone.
func TestIsolatedVerbsLiveInAProcessEach(t *testing.T) {
	a := serve(t, parts(nil))
	ctx := labtest.Context(t)
	var pid int
	if err := a.Invoke(ctx, "test/pid", struct{}{}, &pid); err != nil || pid == os.Getpid() {
		t.Errorf("process: got %d, %v, want one of its own", pid, err)
	}

	file := filepath.Join(t.TempDir(), "held")
	s, err := a.Open(ctx, "test/hold", file)
	must(t, err)
	must(t, s.Recv(&pid))
	expect.Error(t, "a child that dies", a.Invoke(ctx, "test/die", struct{}{}, nil),
		"its process ended unexpectedly")
	expect.Error(t, "a child that refuses", a.Invoke(ctx, "test/refuse", struct{}{}, nil),
		host.ErrUnsupported)
	if _, err := os.Stat(file); err != nil {
		t.Errorf("the other session: %v, want it to hold still", err)
	}

	must(t, s.Close())
	expect.Soon(t, 3*time.Second, "the child and what it made are gone", true, func() bool {
		_, err := os.Stat(file)
		return errors.Is(err, os.ErrNotExist) && errors.Is(syscall.Kill(pid, 0), syscall.ESRCH)
	})
}

func TestSecretsPassToAChildUnread(t *testing.T) {
	a := serve(t, parts(nil))
	s, err := a.Open(labtest.Context(t), "test/secret", struct{}{})
	must(t, err)
	defer s.Close()
	want := host.NewSecret(32)
	must(t, s.(host.SecretSession).SendSecret(want))
	got, err := s.(host.SecretSession).RecvSecret()
	must(t, err)
	if bytesOf(t, got) != bytesOf(t, want) {
		t.Error("the secret came back changed, want it as it was")
	}

	text := fmt.Sprintf("%v %+v %#v", got, got, got)
	if strings.Contains(text, bytesOf(t, want)) {
		t.Error("the secret prints itself")
	}
}

func bytesOf(t *testing.T, x host.Secret) (text string) {
	t.Helper()
	must(t, x.Use(func(b []byte) error { text = string(b); return nil }))
	return text
}

// TestReach over the loopback device: what fits comes back and is counted.
func TestReach(t *testing.T) {
	a := serve(t, agent.Parts{})
	ctx := labtest.Context(t)
	for _, addr := range []netip.Addr{netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("::1")} {
		const port = 20987
		s, err := a.Open(ctx, agent.VerbEcho, agent.EchoAt{Addr: addr, Port: port})
		must(t, err)
		if err := s.Recv(nil); err != nil {
			t.Fatalf("echo at %s: %v", addr, err)
		}

		header := 28
		if addr.Is6() {
			header = 48
		}

		var got agent.Reached
		err = a.Invoke(ctx, agent.VerbReach, agent.Reach{
			From:  addr,
			To:    addr,
			Port:  port,
			Sizes: []int{header, 100, 1500, 10},
		}, &got)
		want := agent.Reached{
			Back:  []int{header, 100, 1500},
			Bytes: int64(1600 - 2*header),
			Note:  "packet of 10 bytes: smaller than its headers",
		}
		diff := cmp.Diff(want, got)
		if diff != "" || err != nil {
			t.Errorf("reach %s: %v (-want +got)\n%s", addr, err, diff)
		}

		got = agent.Reached{}
		if err := a.Invoke(ctx, agent.VerbReach, agent.Reach{From: addr, To: addr, Port: port, Tag: "any"},
			&got); err != nil || got.Device != "lo" {
			t.Errorf("the device to %s: got %+v, %v, want lo", addr, got, err)
		}

		must(t, s.Finish())
		for s.Recv(nil) == nil {
		}

		// Nobody answers any more; a size beyond is tried only once.
		began := time.Now()
		got = agent.Reached{}
		if err := a.Invoke(ctx, agent.VerbReach, agent.Reach{From: addr, To: addr, Port: port, Beyond: 100},
			&got); err != nil || len(got.Back) > 0 || time.Since(began) > time.Second {
			t.Errorf("reach nobody at %s: got %+v, %v after %s, want nothing back soon", addr, got, err,
				time.Since(began))
		}
	}
}

// TestEchoReturnsOnlyToWhoAnswers: whoever reads the mark off the wire and writes another's address as the
// source has that one sent a few bytes for each datagram; other addresses than the one named are not
// answered at all.
func TestEchoReturnsOnlyToWhoAnswers(t *testing.T) {
	a := serve(t, agent.Parts{})
	ctx := labtest.Context(t)
	loop := netip.MustParseAddr("127.0.0.1")
	key := strings.Repeat("5", 64)
	const port = 20986
	s, err := a.Open(ctx, agent.VerbEcho, agent.EchoAt{Addr: loop, Port: port, Tag: key, From: loop})
	must(t, err)
	defer s.Close()
	must(t, s.Recv(nil))
	mark := sha256.Sum256([]byte("path check " + key))
	say := func(c *net.UDPConn, b []byte) int {
		t.Helper()
		_, err := c.Write(b)
		must(t, err)
		c.SetReadDeadline(time.Now().Add(300 * time.Millisecond))
		n, _ := c.Read(b)
		return n
	}
	open := func(from string) *net.UDPConn {
		t.Helper()
		c, err := net.DialUDP("udp", &net.UDPAddr{IP: net.ParseIP(from)},
			net.UDPAddrFromAddrPort(netip.AddrPortFrom(loop, port)))
		must(t, err)
		t.Cleanup(func() { c.Close() })
		return c
	}
	b := append(append([]byte{1}, mark[:8]...), make([]byte, 1400)...)
	one := open("127.0.0.1")
	if n := say(one, b); n != 17 {
		t.Errorf("without the cookie: %d bytes drew %d, want 17", len(b), n)
	}

	if n := say(one, b); n != len(b) { // which holds it now
		t.Errorf("with the cookie: %d bytes drew %d, want as many", len(b), n)
	}

	if n := say(open("127.0.0.1"), b); n != 17 {
		t.Errorf("with another's cookie: %d bytes drew %d, want 17", len(b), n)
	}

	if n := say(open("127.0.0.2"), b); n != 0 {
		t.Errorf("from elsewhere: %d bytes drew %d, want none", len(b), n)
	}

	var got agent.Reached
	if err := a.Invoke(ctx, agent.VerbReach, agent.Reach{
		From:  loop,
		To:    loop,
		Port:  port,
		Tag:   key,
		Sizes: []int{45, 1500, 44},
		Tries: 2,
	}, &got); err != nil || len(got.Back) != 2 {
		t.Errorf("reach: got %+v, %v, want two sizes back", got, err)
	}
}

func TestCounters(t *testing.T) {
	a := serve(t, agent.Parts{})
	var got map[string]kernel.LinkCounters
	if err := a.Invoke(labtest.Context(t), agent.VerbCounters, []string{"lo"}, &got); err != nil ||
		len(got) != 1 {
		t.Errorf("counters of lo: got %v, %v, want them", got, err)
	}

	if err := a.Invoke(labtest.Context(t), agent.VerbCounters, []string{"no-such-device"}, &got); err == nil {
		t.Error("counters of no device: got no error, want one")
	}
}

// run executes a command on the agent's node with some input.
func run(t *testing.T, input []string, args ...string) (out, talk string, code int, err error) {
	t.Helper()
	s, err := serve(t, agent.Parts{}).Open(labtest.Context(t), agent.VerbExec, agent.Exec{Args: args})
	must(t, err)
	defer s.Close()
	for _, text := range input {
		must(t, s.Send([]byte(text)))
	}

	must(t, s.Finish())
	for {
		var o agent.ExecOutput
		if err := s.Recv(&o); err != nil {
			return out, talk, 0, err
		}

		out += string(o.Out)
		talk += string(o.Err)
		if o.Exit != nil {
			return out, talk, *o.Exit, nil
		}
	}
}

func TestExec(t *testing.T) {
	if out, _, code, err := run(t, []string{"one ", "two"}, "cat"); out != "one two" || code != 0 ||
		err != nil {
		t.Errorf("cat: got %q, code %d, %v, want its input", out, code, err)
	}

	if out, talk, code, err := run(t, nil, "sh", "-c", "echo out; echo talk >&2; exit 7"); out != "out\n" ||
		talk != "talk\n" || code != 7 || err != nil {
		t.Errorf("sh: got %q, %q, code %d, %v, want out, talk and 7", out, talk, code, err)
	}

	// A command that reads no input ends although more is to come.
	if out, _, code, err := run(t, []string{strings.Repeat("x", 1<<18)}, "echo", "done"); out != "done\n" ||
		code != 0 || err != nil {
		t.Errorf("echo: got %q, code %d, %v, want done", out, code, err)
	}

	_, _, _, err := run(t, nil)
	expect.Error(t, "no command", err, "no command")
	_, _, _, err = run(t, nil, "chokepoint-has-no-such-command")
	expect.Error(t, "a command that is not there", err, host.ErrUnsupported)
}

// TestCompanionsEndWithTheSession: what uses the CPU for a fault is a process of its own, at work once the
// setting is said to hold, and gone with the session, however that ends.
func TestCompanionsEndWithTheSession(t *testing.T) {
	children := func() (out []string) {
		lines, err := filepath.Glob("/proc/self/task/*/children")
		must(t, err)
		for _, file := range lines {
			pids, _ := os.ReadFile(file)
			for pid := range strings.FieldsSeq(string(pids)) {
				line, _ := os.ReadFile("/proc/" + pid + "/cmdline")
				if strings.Contains(string(line), agent.ChildRole) {
					out = append(out, pid)
				}
			}
		}

		return out
	}
	for name, end := range map[string]func(a host.Agent, s host.Session) error{
		"finish": func(_ host.Agent, s host.Session) error { return s.Finish() },
		"close":  func(_ host.Agent, s host.Session) error { return s.Close() },
		"death":  func(a host.Agent, _ host.Session) error { return a.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			a := serve(t, agent.Parts{Knobs: []knob.Knob{knob.FaultPlant()}})
			s, err := a.Open(labtest.Context(t), "knob/fault", agent.KnobRequest{Want: "cpu_hog=2"})
			must(t, err)
			var held agent.KnobReply
			must(t, errors.Join(s.Recv(&held), s.Send(struct{}{}), s.Recv(&held)))
			got := children()
			if len(got) != 2 {
				t.Errorf("processes: got %v, want two", got)
			}

			if err := end(a, s); err != nil {
				t.Errorf("%s: %v", name, err)
			}

			expect.Soon(t, 3*time.Second, "processes", nil, children)
		})
	}
}

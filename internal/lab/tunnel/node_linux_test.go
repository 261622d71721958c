package tunnel

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/lab/kernel"
	"github.com/chokepoint-lab/chokepoint/internal/labtest/apart"
)

// asNode makes the test binary serve as a node, over its standard input and output, instead of running
// tests.
const asNode = "CHOKEPOINT_TEST_NODE"

func TestMain(m *testing.M) {
	if os.Getenv(asNode) == "" {
		apart.SideBySide(4)
		os.Exit(m.Run())
	}

	if err := serveNode(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func serveNode() error {
	handlers := map[string]host.Handler{
		"test/address":  handle(testAddress),
		"test/devices":  handle(func(struct{}) ([]string, error) { return kernel.Devices() }),
		"test/route":    handle(kernel.RouteDevice),
		"test/counters": handle(kernel.Counters),
		"test/mtu":      handle(kernel.MTU),
		"test/queue":    handle(kernel.TxQueueLen),
		"test/discard":  host.Asked(testDiscard),
		"test/send":     handle(testSend),
		"test/lengths":  handle(testLengths),
	}
	for _, t := range append(All(), cbcKinds()...) {
		handlers[host.Verb(host.FamilyTunnel, t.Name())] = t.Serve
	}
	return host.Serve(context.Background(), stdio{os.Stdin, os.Stdout}, handlers)
}

type stdio struct {
	io.ReadCloser
	io.Writer
}

func handle[In, Out any](f func(In) (Out, error)) host.Handler {
	return host.Answering(func(_ context.Context, in In) (Out, error) { return f(in) })
}

type addressRequest struct {
	Device    string
	Addresses []netip.Prefix
}

func testAddress(r addressRequest) (bool, error) {
	for _, f := range []string{"all", "default"} {
		_ = kernel.WriteSysctl("net.ipv6.conf."+f+".accept_dad", "0")
	}

	if err := kernel.Up("lo"); err != nil {
		return false, err
	}

	if err := kernel.Up(r.Device); err != nil {
		return false, err
	}

	for _, a := range r.Addresses {
		if err := kernel.AddAddress(r.Device, a); err != nil {
			return false, err
		}
	}

	return true, nil
}

// testDiscard tells its address, takes one TCP connection and says how many bytes came.
func testDiscard(_ context.Context, s host.Session, at netip.Addr) error {
	l, err := net.Listen("tcp", netip.AddrPortFrom(at, 0).String())
	if err != nil {
		return err
	}
	defer l.Close()
	if err := s.Send(l.Addr().String()); err != nil {
		return err
	}

	err = l.(*net.TCPListener).SetDeadline(time.Now().Add(5 * time.Second))
	if err != nil {
		return err
	}

	c, err := l.Accept()
	if err != nil {
		return err
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(8 * time.Second)); err != nil {
		return err
	}

	n, err := io.Copy(io.Discard, c)
	if err != nil {
		return err
	}

	return s.Send(n)
}

type sendRequest struct {
	To    string
	Bytes int
}

func testSend(r sendRequest) (bool, error) {
	c, err := net.DialTimeout("tcp", r.To, 3*time.Second)
	if err != nil {
		return false, err
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(8 * time.Second)); err != nil {
		return false, err
	}

	_, err = c.Write(make([]byte, r.Bytes))
	return err == nil, err
}

// testNode is a process in namespaces of its own with an agent's session transport.
type testNode struct {
	host.Agent
	name   string
	pid    int
	stderr *talk
	kill   func()
}

// talk holds what a process says, readable while it talks.
type talk struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *talk) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *talk) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func newNode(t *testing.T, name string) *testNode {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("skip: needs root to make a network namespace")
	}

	if _, err := os.Stat("/dev/net/tun"); err != nil {
		t.Skip("skip: needs /dev/net/tun")
	}

	cmd := exec.Command("/proc/self/exe")
	// The race detector would let every node sleep for a second at its end.
	cmd.Env = append(os.Environ(), asNode+"=1", "GORACE=atexit_sleep_ms=0")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET | syscall.CLONE_NEWNS}
	in, err := cmd.StdinPipe()
	must(t, err)
	out, err := cmd.StdoutPipe()
	must(t, err)
	n := &testNode{name: name, stderr: &talk{}}
	cmd.Stderr = n.stderr
	must(t, cmd.Start())
	n.pid = cmd.Process.Pid
	var once sync.Once
	n.kill = func() {
		once.Do(func() {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		})
	}
	n.Agent = host.Connect(pipes{out, in})
	t.Cleanup(func() {
		n.kill() // first: a node that hangs must not hang the tests
		_ = n.Close()
	})
	return n
}

type pipes struct {
	io.Reader
	io.WriteCloser
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func ask0[Out any](t *testing.T, n host.Agent, verb string, in any) Out {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	var out Out
	if err := n.Invoke(ctx, verb, in, &out); err != nil {
		t.Fatalf("%s: %v", verb, err)
	}

	return out
}

// newPair is two nodes with a virtual link between them.
func newPair(t *testing.T) (near, far *testNode) {
	t.Helper()
	near, far = newNode(t, "near"), newNode(t, "far")
	must(t, kernel.AddVeth(kernel.VethEnd{Name: "wan", PID: near.pid}, kernel.VethEnd{
		Name: "wan",
		PID:  far.pid,
	}, 1))
	for i, n := range []*testNode{near, far} {
		ask0[bool](t, n, "test/address", addressRequest{"wan", []netip.Prefix{
			netip.MustParsePrefix(fmt.Sprintf("198.18.0.%d/24", i+1)),
			netip.MustParsePrefix(fmt.Sprintf("2001:2::%d/64", i+1)),
		}})
	}

	return near, far
}

// ends are the two ends of a tunnel over a pair, with both IP versions inside and a network behind each.
func ends(near, far *testNode, outer [2]string) (End, End) {
	prefixes := func(list ...string) (out []netip.Prefix) {
		for _, p := range list {
			out = append(out, netip.MustParsePrefix(p))
		}
		return out
	}
	return End{
			Node:  "near",
			Agent: near.Agent,
			Outer: netip.MustParseAddr(outer[0]),
			Inner: prefixes("198.18.9.1/30", "2001:2:0:9::1/64"),
			Routes: prefixes("198.18.8.0/24",
				"2001:2:0:8::/64"),
		},
		End{
			Node:  "far",
			Agent: far.Agent,
			Outer: netip.MustParseAddr(outer[1]),
			Inner: prefixes("198.18.9.2/30", "2001:2:0:9::2/64"),
			Routes: prefixes("198.18.7.0/24",
				"2001:2:0:7::/64"),
		}
}

// newEnds is a new pair with the ends of a tunnel over it.
func newEnds(t *testing.T) (near, far *testNode, a, b End) {
	t.Helper()
	near, far = newPair(t)
	a, b = ends(near, far, [2]string{"198.18.0.1", "198.18.0.2"})
	return near, far, a, b
}

// newEndsFor is newEnds where a kind of tunnel can be had; else the test is skipped.
func newEndsFor(t *testing.T, kind Tunnel) (near, far *testNode, a, b End) {
	t.Helper()
	near, far, a, b = newEnds(t)
	lacks := "the kernel has no IPsec: "
	if strings.HasPrefix(kind.Name(), nameOpenVPN) {
		lacks = "no openvpn here: "
	}

	c := kind.Check(t.Context(), a, b)
	if c.State != check.Yes {
		t.Skip("skip: " + lacks + c.Reason)
	}

	return near, far, a, b
}

// wantNoDevice: nodes have no device of a tunnel.
func wantNoDevice(t *testing.T, nodes ...*testNode) {
	t.Helper()
	for _, n := range nodes {
		got := ask0[[]string](t, n, "test/devices", struct{}{})
		if !slices.Equal(got, []string{"lo", "wan"}) {
			t.Errorf("%s has devices %v afterwards, want lo and wan", n.name, got)
		}
	}
}

// transfer sends bytes by TCP from one node to an address of the other.
func transfer(t *testing.T, from, to *testNode, at string, size int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	s, err := to.Open(ctx, "test/discard", netip.MustParseAddr(at))
	must(t, err)
	defer s.Close()
	var address string
	must(t, s.Recv(&address))
	ask0[bool](t, from, "test/send", sendRequest{address, size})
	var n int
	must(t, s.Recv(&n))
	if n != size {
		t.Errorf("%d bytes arrived, want %d", n, size)
	}
}

// recorder is an agent that keeps what passes, as its controller's log would.
type recorder struct {
	host.Agent
	log *recording
}

type recording struct {
	mu      sync.Mutex
	text    bytes.Buffer
	secrets [][]byte
}

func (r *recording) add(v any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	b, _ := json.Marshal(v)
	fmt.Fprintf(&r.text, "%s %v %+v\n", b, v, v)
}

func (r recorder) Open(ctx context.Context, verb string, in any) (host.Session, error) {
	r.log.add(in)
	s, err := r.Agent.Open(ctx, verb, in)
	return recorded{s, r.log}, err
}

type recorded struct {
	host.Session
	log *recording
}

func (r recorded) Send(v any) error {
	r.log.add(v)
	return r.Session.Send(v)
}

func (r recorded) Recv(v any) error {
	err := r.Session.Recv(v)
	r.log.add(v)
	r.log.add(err)
	return err
}

func (r recorded) SendSecret(s host.Secret) error {
	r.log.add(s)
	err := s.Use(func(b []byte) error {
		r.log.secrets = append(r.log.secrets, bytes.Clone(b))
		return nil
	})
	if err != nil {
		return err
	}

	return r.Session.(host.SecretSession).SendSecret(s)
}

func (r recorded) RecvSecret() (host.Secret, error) {
	return r.Session.(host.SecretSession).RecvSecret()
}

package lab

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/lab/agent"
	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/lab/kernel"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// Roles in which this program starts itself again for a local lab. The holder is the first process of the
// lab's PID, mount and network namespaces and owns everything in it: when it ends, for whatever reason, the
// kernel kills every process inside and the links vanish with their namespaces. One anchor per node holds
// that node's namespaces and starts an agent for each connection to the node's socket.
const (
	HolderRole = "lab-holder"
	AnchorRole = "lab-anchor"
)

// holderAnswer is the single line that the holder writes to its standard output.
type holderAnswer struct {
	Error string `json:"error,omitempty"`
	Hint  string `json:"hint,omitempty"`
	// Refused: the kernel refused namespaces, or made them without privileges.
	Refused bool `json:"refused,omitempty"`
}

// answer reports the outcome of building, and returns it.
func answer(to io.Writer, err error) error {
	var a holderAnswer
	if err != nil {
		a.Error, a.Hint = err.Error(), check.HintOf(err)
		_, a.Refused = errors.AsType[*refused](err)
	}
	return errors.Join(err, json.NewEncoder(to).Encode(a))
}

// HolderMain runs the holder. It returns when its controller hangs up; a detached holder waits to be killed.
func HolderMain(stdin io.Reader, stdout io.Writer) error {
	in := bufio.NewReader(stdin)
	var o Local
	if err := readLine(in, &o); err != nil {
		return fmt.Errorf("read lab request: %w", err)
	}

	// A guest may take minutes to boot: leave as soon as nobody waits for it.
	hungUp := make(chan error, 1)
	held := make(chan error, 1)
	go func() {
		_, err := in.Peek(1) // also returns when the controller sends more
		hungUp <- err
	}()
	var anchors []*host.Child
	go func() {
		var err error
		anchors, err = o.hold()
		held <- err
	}()
	select {
	case <-hungUp:
		return nil // the kernel kills every process in our PID namespace
	case err := <-held:
		if err = answer(stdout, err); err != nil {
			return err
		}
	}
	// Their pipes must stay open as long as the holder lives: an anchor leaves when its input ends, and a
	// garbage-collected file is closed.
	defer runtime.KeepAlive(anchors)
	// The controller of a lab that stays sends another message once it has recorded this process: an
	// unrecorded lab must not stay.
	for err := <-hungUp; err == nil && o.Detached; {
		time.Sleep(time.Hour) // until killed by lab down
	}

	io.Copy(io.Discard, in) // until the controller hangs up or dies
	return nil              // the kernel kills the remaining processes in our PID namespace
}

func readLine(r *bufio.Reader, v any) error {
	b, err := r.ReadBytes('\n')
	if err != nil {
		return err
	}
	return json.Unmarshal(b, v)
}

// hold builds the lab: private mounts, anchors, links into their namespaces, then each node's addresses and
// routes.
func (o Local) hold() ([]*host.Child, error) {
	dir, err := os.Open(o.dir()) // before the mounts change
	if err != nil {
		return nil, fmt.Errorf("open lab directory: %w", err)
	}
	defer dir.Close()
	if err := mountOwn(); err != nil {
		return nil, &refused{err}
	}

	plan := layouts(o.Topology)
	anchors := make([]*host.Child, len(plan))
	c := cabling{map[string]int{}, max(o.Queues, 1), map[record.TopoPort]*os.File{}, 0}
	defer c.close()
	machine := func(l agent.Layout) bool { return o.Guest != nil && l.Router }
	for i, l := range plan {
		if machine(l) {
			continue
		}

		if anchors[i], err = startAnchor(dir, l.Node, AnchorRole, nil); err != nil {
			return nil, err
		}

		c.pids[l.Node] = anchors[i].Pid()
	}

	for _, link := range o.Topology.Links {
		if err := c.join(link); err != nil {
			return nil, fmt.Errorf("join %s and %s: %w", link.Ends[0].Node, link.Ends[1].Node, err)
		}
	}

	asked := make([]any, len(plan)) // all guests boot at the same time
	guests := 0
	for i, l := range plan {
		asked[i] = l
		if !machine(l) {
			continue
		}

		if anchors[i], err = startAnchor(dir, l.Node, MachineRole, c.of(l)); err != nil {
			return nil, err
		}

		asked[i] = machineRequest{*o.Guest, guests, consoleOf(o.dir(), l.Node), l}
		guests++
	}

	for i := range plan {
		if err := json.NewEncoder(anchors[i]).Encode(asked[i]); err != nil {
			return nil, err
		}
	}

	for i, l := range plan {
		if err := settled(anchors[i]); err != nil {
			return nil, fmt.Errorf("set up node %s: %w", l.Node, err)
		}
	}

	return anchors, nil
}

// cabling joins the nodes of a lab in the holder's namespace: two namespaces by a veth pair, a namespace
// and a machine by a tap, two machines by two taps in a bridge.
type cabling struct {
	pids    map[string]int // of the namespaces; a node without a PID is a machine
	queues  int
	taps    map[record.TopoPort]*os.File // the machines' ports
	bridges int
}

func (c *cabling) join(link record.TopoLink) error {
	a := link.Ends[0]
	b := link.Ends[1]
	pa := c.pids[a.Node]
	pb := c.pids[b.Node]
	switch {
	case pa != 0 && pb != 0:
		return kernel.AddVeth(kernel.VethEnd{Name: a.Port, PID: pa}, kernel.VethEnd{Name: b.Port, PID: pb},
			c.queues)
	case pa != 0:
		return c.tap(b, a.Port, pa)
	case pb != 0:
		return c.tap(a, b.Port, pb)
	}

	c.bridges++
	name := fmt.Sprintf("bridge%d", c.bridges)
	if err := c.tap(a, name+"a", 0); err != nil {
		return err
	}

	if err := c.tap(b, name+"b", 0); err != nil {
		return err
	}

	return kernel.AddBridge(name, name+"a", name+"b")
}

// tap makes a machine's port. Its other end is a device in the namespace of pid, or in our own.
func (c *cabling) tap(machine record.TopoPort, dev string, pid int) (err error) {
	if c.taps[machine], err = kernel.AddTap(dev); err != nil || pid == 0 {
		return err
	}
	return kernel.MoveLink(dev, pid)
}

// of returns a machine's taps in the order of its ports.
func (c *cabling) of(l agent.Layout) []*os.File {
	files := make([]*os.File, len(l.Ports))
	for i, port := range l.Ports {
		files[i] = c.taps[record.TopoPort{Node: l.Node, Port: port}]
	}
	return files
}

// close closes the taps, which the machines have by now.
func (c *cabling) close() {
	for _, f := range c.taps {
		f.Close()
	}
}

// mountOwn gives this mount namespace a /proc that shows its PID namespace.
func mountOwn() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}

	err := unix.Mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "")
	if err != nil {
		return check.WithHint(fmt.Errorf("mount /proc in the lab: %w", err),
			"a container often hides parts of /proc; run on the machine itself or in a privileged container")
	}

	return nil
}

// startAnchor makes the node's socket and the process that serves it. The socket's address goes through the
// open directory, because a path may exceed the 108 bytes that unix(7) allows.
func startAnchor(dir *os.File, node, role string, taps []*os.File) (*host.Child, error) {
	path := fmt.Sprintf("/proc/self/fd/%d/%s.sock", dir.Fd(), node)
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("listen for node %s: %w", node, err)
	}

	l.SetUnlinkOnClose(false)
	defer l.Close()
	f, err := l.File()
	if err != nil {
		return nil, fmt.Errorf("listen for node %s: %w", node, err)
	}
	defer f.Close()
	anchor, err := host.Spawn{
		Args:       []string{role, node},
		Files:      append([]*os.File{f}, taps...),
		Namespaces: unix.CLONE_NEWNET | unix.CLONE_NEWNS | unix.CLONE_NEWUTS,
	}.Start()
	if err != nil {
		return nil, &refused{err}
	}

	return anchor, nil
}

// settled waits until a process reports that it has set up what it was asked for.
func settled(p *host.Child) error {
	var a holderAnswer
	if err := json.NewDecoder(p).Decode(&a); errors.Is(err, io.EOF) {
		return errors.New("its first process ended before all stood")
	} else if err != nil {
		return fmt.Errorf("await its first process: %w", err)
	}

	if a.Error == "" {
		return nil
	}

	err := check.WithHint(errors.New(a.Error), a.Hint)
	if a.Refused {
		err = &refused{err}
	}

	return err
}

// AnchorMain runs a node's first process: it sets the node up and then starts an agent, with agentArgs, for
// each connection.
func AnchorMain(node string, stdin io.Reader, stdout io.Writer, agentArgs []string) error {
	var l agent.Layout
	return carry(node, stdin, stdout, &l, func() error {
		if err := mountNode(); err != nil {
			return err
		}
		return agent.Arrange(context.Background(), l)
	}, func(_ context.Context, c *net.UnixConn) error { return startAgent(c, agentArgs) })
}

// carry runs a process that carries a node: it reads a description into what, sets that up, reports that it
// is ready, and serves the node's socket, descriptor 3, until the holder hangs up.
func carry(node string, stdin io.Reader, stdout io.Writer, what any, stand func() error,
	attend func(context.Context, *net.UnixConn) error) error {
	listener := os.NewFile(3, "listener")
	unix.CloseOnExec(3)
	in := bufio.NewReader(stdin)
	if err := readLine(in, what); err != nil {
		return fmt.Errorf("read what node %s is to be: %w", node, err)
	}

	if err := answer(stdout, stand()); err != nil {
		return err
	}

	ln, err := net.FileListener(listener)
	if err != nil {
		return fmt.Errorf("serve node %s: %w", node, err)
	}

	listener.Close()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	context.AfterFunc(ctx, func() { ln.Close() })
	go func() {
		io.Copy(io.Discard, in) // the holder hung up
		cancel()
	}()
	return serveNode(ctx, ln.(*net.UnixListener), attend)
}

// serveNode lives as long as its listener: a connection that cannot be served is closed and reported on
// standard error, since the node, and what other agents have set in it, would end with this process.
func serveNode(ctx context.Context, ln *net.UnixListener,
	attend func(context.Context, *net.UnixConn) error) error {
	for {
		c, err := ln.AcceptUnix()
		if errors.Is(err, net.ErrClosed) {
			return nil
		}

		if err == nil {
			err = attend(ctx, c)
		}

		if err != nil {
			fmt.Fprintln(os.Stderr, "serve node:", err)
			time.Sleep(breath)
		}
	}
}

// breath prevents a persistent error, such as too many open files, from using up a core.
const breath = 10 * time.Millisecond

// startAgent starts an agent that takes over the connection.
func startAgent(c *net.UnixConn, args []string) error {
	f, err := c.File()
	c.Close()
	if err != nil {
		return fmt.Errorf("accept: %w", err)
	}
	defer f.Close()
	// Non-blocking mode is a property of the open file and would affect the agent, whose runtime detects and
	// chooses the mode of its standard input.
	agent, err := host.Spawn{Args: args, Conn: f}.Start()
	if err != nil {
		return err
	}

	go agent.Wait() // reaps it when it leaves
	return nil
}

// mountNode gives this mount namespace a /sys that shows its network namespace: a /sys shows that of the
// process that mounted it.
func mountNode() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}

	err := unix.Mount("sysfs", "/sys", "sysfs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "")
	if err != nil && !errors.Is(err, syscall.EPERM) {
		return fmt.Errorf("mount /sys in the node: %w", err)
	}

	return nil
}

// socketOf returns the path of a node's socket below an open lab directory.
func socketOf(dir *os.File, node string) string {
	return fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), filepath.Base(node)+".sock")
}

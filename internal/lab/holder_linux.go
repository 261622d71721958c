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
	"time"

	"golang.org/x/sys/unix"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/lab/agent"
	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/lab/kernel"
	"github.com/chokepoint-lab/chokepoint/internal/lab/knob"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// These are the roles in which this program starts itself for a local lab. The holder is the first process in
// the lab's PID, mount and network namespaces. When it exits, for whatever reason, the kernel kills all
// processes in these namespaces and removes the links. Each node has an anchor, which keeps the node's
// namespaces alive and starts an agent for each connection to the node's socket.
const (
	HolderRole = "lab-holder"
	AnchorRole = "lab-anchor"
)

// holderAnswer is the line that the holder writes to standard output once it is ready or has failed.
type holderAnswer struct {
	Error string `json:"error,omitempty"`
	Hint  string `json:"hint,omitempty"`
	// Refused is set if the kernel refused to create namespaces or to mount file systems in them.
	Refused bool `json:"refused,omitempty"`
}

// answer writes err, or success if err is nil, to standard output as a holderAnswer. It returns err.
func answer(err error) error {
	var a holderAnswer
	if err != nil {
		a.Error, a.Hint = err.Error(), check.HintOf(err)
		_, a.Refused = errors.AsType[*refused](err)
	}
	return errors.Join(err, json.NewEncoder(os.Stdout).Encode(a))
}

// HolderMain runs the holder. It returns when the controller closes the connection. The holder of a detached
// lab instead runs until it is killed.
func HolderMain() error {
	in := bufio.NewReader(os.Stdin)
	var o Local
	if err := readLine(in, &o); err != nil {
		return fmt.Errorf("read lab request: %w", err)
	}

	// Exit as soon as the controller is gone, even while a guest is booting, which may take minutes.
	hungUp := make(chan error, 1)
	held := make(chan error, 1)
	go func() {
		_, err := in.Peek(1) // also returns if the controller sends another message
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
		return nil // The kernel then kills all processes in our PID namespace.
	case err := <-held:
		if err = answer(err); err != nil {
			return err
		}
	}
	// Keep the anchors' pipes reachable. The garbage collector closes unreachable files, and an anchor exits
	// when its input is closed.
	defer runtime.KeepAlive(anchors)
	// The controller of a detached lab sends a second message after it has journalled this process. Until
	// then, the lab must not outlive the controller, because nothing could remove an unjournalled lab.
	for err := <-hungUp; err == nil && o.Detached; {
		time.Sleep(time.Hour) // until "lab down" kills this process
	}

	io.Copy(io.Discard, in) // returns when the controller closes the pipe or dies
	return nil              // The kernel then kills the remaining processes.
}

func readLine(r *bufio.Reader, v any) error {
	b, err := r.ReadBytes('\n')
	if err != nil {
		return err
	}
	return json.Unmarshal(b, v)
}

// hold builds the lab: private mounts, anchors, the links between nodes, and the addresses and routes of each
// node.
func (o Local) hold() ([]*host.Child, error) {
	dir, err := os.Open(o.dir()) // opened first, because the mounts hide it later
	if err != nil {
		return nil, fmt.Errorf("open lab directory: %w", err)
	}
	defer dir.Close()
	if err := privateMounts(); err != nil {
		return nil, &refused{err}
	}

	if err := mountFresh("proc", "/proc"); err != nil {
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

	// Requests to all nodes are sent first, so that guests boot in parallel.
	asked := make([]any, len(plan))
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

// cabling creates the links of a lab in the holder's namespace. A link is a veth between two namespaces, a
// tap between a namespace and a machine, or two taps with a bridge between two machines.
type cabling struct {
	pids    map[string]int // PIDs of nodes that are namespaces; other nodes are machines
	queues  int
	taps    map[record.TopoPort]*os.File // taps for the ports of machines
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

// tap creates a port of a machine. The device at its other end is in the network namespace of process pid, or
// in our own if pid is 0.
func (c *cabling) tap(machine record.TopoPort, dev string, pid int) (err error) {
	if c.taps[machine], err = kernel.AddTap(dev); err != nil || pid == 0 {
		return err
	}
	return kernel.MoveLink(dev, pid)
}

// of returns the taps of a machine in the order of its ports.
func (c *cabling) of(l agent.Layout) []*os.File {
	files := make([]*os.File, len(l.Ports))
	for i, port := range l.Ports {
		files[i] = c.taps[record.TopoPort{Node: l.Node, Port: port}]
	}
	return files
}

// close closes our copies of the taps, which the machines have inherited.
func (c *cabling) close() {
	for _, f := range c.taps {
		f.Close()
	}
}

// privateMounts makes the mounts of this process private.
func privateMounts() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	return nil
}

// mountFresh mounts a file system of the given kind that shows the namespaces of this process.
func mountFresh(kind, dir string) error {
	if err := unix.Mount(kind, dir, kind, unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return check.WithHint(fmt.Errorf("mount %s in the lab: %w", dir, err), "a container often hides "+
			"parts of "+dir+"; run on the machine itself or in a privileged container")
	}

	return nil
}

// startAnchor creates a node's socket and starts the process that serves it. The path of the socket goes
// through the descriptor of dir, because it could otherwise exceed 108 bytes (unix(7)).
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

// settled waits until process p reports that its node is set up.
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

// AnchorMain runs the first process of a node. It sets up the node, and starts an agent for each connection.
func AnchorMain(node string) error {
	var l agent.Layout
	return carry(node, &l, func() error {
		if err := privateMounts(); err != nil {
			return err
		}

		// The kernel may not permit a /sys for this network namespace.
		if err := mountFresh("sysfs", "/sys"); err != nil && !errors.Is(err, unix.EPERM) {
			return err
		}
		return agent.Arrange(context.Background(), l)
	}, func(_ context.Context, c *net.UnixConn) error {
		return startAgent(c, agent.Arguments(agent.Role, knob.OfNamespace))
	})
}

// carry runs the first process of a node. It reads the node's description into the variable what, calls the
// function stand to set up the node, and reports the outcome. Then, until the holder closes standard input,
// it calls the function attend for each connection to the node's socket, which is descriptor 3.
func carry(node string, what any, stand func() error,
	attend func(context.Context, *net.UnixConn) error) error {
	listener := os.NewFile(3, "listener")
	unix.CloseOnExec(3)
	in := bufio.NewReader(os.Stdin)
	if err := readLine(in, what); err != nil {
		return fmt.Errorf("read what node %s is to be: %w", node, err)
	}

	if err := answer(stand()); err != nil {
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
		io.Copy(io.Discard, in) // returns when the holder closes the pipe
		cancel()
	}()
	return serveNode(ctx, ln.(*net.UnixListener), attend)
}

// serveNode accepts connections until ln is closed. It reports errors to standard error and continues,
// because the node and all changes that agents have made in it would vanish with this process.
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

// breath is a pause after an error. Without it, a persistent error, such as too many open files, would keep a
// core busy.
const breath = 10 * time.Millisecond

// startAgent starts an agent that serves the connection.
func startAgent(c *net.UnixConn, args []string) error {
	f, err := c.File()
	c.Close()
	if err != nil {
		return fmt.Errorf("accept: %w", err)
	}
	defer f.Close()
	// Do not set c to non-blocking mode. This mode is a property of the open file, which is shared with the
	// agent, and the runtime of the agent chooses it.
	child, err := host.Spawn{Args: args, Conn: f}.Start()
	if err != nil {
		return err
	}

	go child.Wait() // reaps the process
	return nil
}

// socketOf returns the path of a node's socket. The path goes through the descriptor of the lab's directory.
func socketOf(dir *os.File, node string) string {
	return fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), filepath.Base(node)+".sock")
}

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

	"github.com/chokepoint-lab/chokepoint/internal/lab/agent"
	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/lab/vm"
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

// holderRequest is the first line on a holder's standard input.
type holderRequest struct {
	Topology record.Topology `json:"topology"`
	Dir      string          `json:"dir"`
	Detached bool            `json:"detached"` // stays after its input ends
	Queues   int             `json:"queues"`
	Guest    *vm.Guest       `json:"guest,omitempty"` // what the routers are; nil = namespaces
	Driver   string          `json:"driver,omitempty"`
}

// holderAnswer is the one line on its standard output.
type holderAnswer struct {
	Error string `json:"error,omitempty"`
	Hint  string `json:"hint,omitempty"`
	// Refused: the kernel made no namespaces, or only ones without power.
	Refused bool `json:"refused,omitempty"`
}

func answerOf(err error) holderAnswer {
	if err == nil {
		return holderAnswer{}
	}
	a := holderAnswer{Error: err.Error()}
	var r *refused
	a.Refused = errors.As(err, &r)
	var h interface{ Hint() string }
	if errors.As(err, &h) {
		a.Hint = h.Hint()
	}
	return a
}

// HolderMain is the holder's life. It returns when its controller hangs up; a detached holder waits to be
// killed.
func HolderMain(stdin io.Reader, stdout io.Writer) error {
	in := bufio.NewReader(stdin)
	var q holderRequest
	if err := readLine(in, &q); err != nil {
		return fmt.Errorf("read lab request: %w", err)
	}
	// A guest may take minutes to boot: we leave as soon as nobody waits for it.
	hungUp, held := make(chan error, 1), make(chan error, 1)
	go func() {
		_, err := in.Peek(1) // also says when the controller has more to say
		hungUp <- err
	}()
	var anchors []*host.Child
	go func() {
		var err error
		anchors, err = hold(q)
		held <- err
	}()
	var err error
	select {
	case <-hungUp:
		return nil // the kernel kills what there is in our PID namespace
	case err = <-held:
	}
	// Their pipes must stay open for as long as we live: an anchor leaves when its input ends, and a
	// collected file is closed.
	defer runtime.KeepAlive(anchors)
	if encErr := json.NewEncoder(stdout).Encode(answerOf(err)); encErr != nil || err != nil {
		return errors.Join(err, encErr)
	}
	err = <-hungUp
	if q.Detached {
		// The controller says so once it has written down who we are: a lab that nobody knows of must not
		// stay.
		if err != nil {
			return nil
		}
		for {
			time.Sleep(time.Hour) // until killed by lab down
		}
	}
	if err == nil {
		io.Copy(io.Discard, in) // until the controller hangs up or dies
	}
	return nil // the kernel kills what is left in our PID namespace
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
func hold(q holderRequest) ([]*host.Child, error) {
	dir, err := os.Open(q.Dir) // before the mounts change
	if err != nil {
		return nil, fmt.Errorf("open lab directory: %w", err)
	}
	defer dir.Close()
	if err := mountOwn(); err != nil {
		return nil, &refused{err}
	}
	plan := layouts(q.Topology)
	anchors := make([]*host.Child, len(plan))
	pids := map[string]int{}
	for i, l := range plan {
		if q.machine(l) {
			continue
		}
		if anchors[i], err = startAnchor(dir, l.Node, AnchorRole, nil); err != nil {
			return nil, err
		}
		pids[l.Node] = anchors[i].Pid()
	}
	c := cabling{pids: pids, queues: max(q.Queues, 1), taps: map[record.TopoPort]*os.File{}}
	defer c.close()
	for _, link := range q.Topology.Links {
		if err := c.join(link); err != nil {
			return nil, fmt.Errorf("join %s and %s: %w", link.Ends[0].Node, link.Ends[1].Node, err)
		}
	}
	asked := make([]any, len(plan)) // all machines boot at the same time
	guests := 0
	for i, l := range plan {
		asked[i] = l
		if !q.machine(l) {
			continue
		}
		if anchors[i], err = startAnchor(dir, l.Node, MachineRole, c.of(l)); err != nil {
			return nil, err
		}
		asked[i] = machineRequest{Guest: *q.Guest, Number: guests, Console: consoleOf(q.Dir, l.Node),
			Layout: l}
		guests++
	}
	for i := range plan {
		if err := ask(anchors[i], asked[i]); err != nil {
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

// machine reports whether a node is a virtual machine.
func (q holderRequest) machine(l agent.Layout) bool { return q.Guest != nil && l.Router }

// mountOwn gives this mount namespace a /proc that shows its PID namespace.
func mountOwn() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	if err := unix.Mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC,
		""); err != nil {
		return &hinted{fmt.Errorf("mount /proc in the lab: %w", err),
			"a container often hides parts of /proc; run on the machine itself or in a privileged container"}
	}
	return nil
}

// startAnchor makes the node's socket and the process that serves it. The socket's address goes through the
// open directory, because a path may be longer than the 108 bytes that unix(7) allows.
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
		Namespaces: unix.CLONE_NEWNET | unix.CLONE_NEWNS | unix.CLONE_NEWUTS,
		Files:      append([]*os.File{f}, taps...),
	}.Start()
	if err != nil {
		return nil, &refused{err}
	}
	return anchor, nil
}

// ask sends a node's first process what the node must be.
func ask(anchor *host.Child, what any) error {
	b, err := json.Marshal(what)
	if err != nil {
		return err
	}
	_, err = anchor.Write(append(b, '\n'))
	return err
}

// settled waits until the node stands.
func settled(anchor *host.Child) error {
	var a holderAnswer
	if err := json.NewDecoder(anchor).Decode(&a); err != nil {
		return fmt.Errorf("no answer: %w", err)
	}
	if a.Error != "" {
		return &hinted{errors.New(a.Error), a.Hint}
	}
	return nil
}

// AnchorMain is the life of a node's first process: it sets the node up and then starts an agent, started
// with agentArgs, for each connection.
func AnchorMain(node string, stdin io.Reader, stdout io.Writer, agentArgs []string) error {
	listener := os.NewFile(3, "listener")
	unix.CloseOnExec(3)
	var l agent.Layout
	in := bufio.NewReader(stdin)
	if err := readLine(in, &l); err != nil {
		return fmt.Errorf("read layout of node %s: %w", node, err)
	}
	err := mountNode()
	if err == nil {
		err = agent.Arrange(context.Background(), l)
	}
	if encErr := json.NewEncoder(stdout).Encode(answerOf(err)); encErr != nil || err != nil {
		return errors.Join(err, encErr)
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
	return serveNode(ln.(*net.UnixListener), agentArgs)
}

// serveNode lives as long as its listener: a connection that cannot be served is closed and said on
// standard error, since the node's namespaces, and what other agents have set in them, would end with this
// process.
func serveNode(ln *net.UnixListener, agentArgs []string) error {
	for {
		c, err := ln.AcceptUnix()
		if errors.Is(err, net.ErrClosed) {
			return nil
		}
		if err == nil {
			err = startAgent(c, agentArgs)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "serve node:", err)
			time.Sleep(breath)
		}
	}
}

// breath keeps an error that lasts, such as too many open files, from taking a whole core.
const breath = 10 * time.Millisecond

// startAgent starts an agent on the connection, which is then its own.
func startAgent(c *net.UnixConn, args []string) error {
	f, err := c.File()
	c.Close()
	if err != nil {
		return fmt.Errorf("accept: %w", err)
	}
	defer f.Close()
	// The pollable, non-blocking mode is a property of the open file and would reach the agent; it wants
	// its standard input blocking or not as its own runtime decides, which it detects.
	agent, err := host.Spawn{Args: args, Conn: f}.Start()
	if err != nil {
		return err
	}
	go agent.Wait() // reaps it when it leaves
	return nil
}

// mountNode gives this mount namespace a /sys that shows its network namespace: it shows that of whoever
// mounted it.
func mountNode() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	if err := unix.Mount("sysfs", "/sys", "sysfs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC,
		""); err != nil && !errors.Is(err, syscall.EPERM) {
		return fmt.Errorf("mount /sys in the node: %w", err)
	}
	return nil
}

// socketOf is the socket of a node below an open lab directory.
func socketOf(dir *os.File, node string) string {
	return fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), filepath.Base(node)+".sock")
}

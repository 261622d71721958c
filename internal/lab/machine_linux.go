package lab

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/lab/agent"
	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/lab/vm"
)

// MachineRole is the role of the process that runs the virtual machine of a node. Nodes that are namespaces
// have an anchor instead; see AnchorRole. The process starts QEMU, whose standard input and output are
// connected to the agent in the guest, and shares this agent among any number of controllers. The argument of
// the role is the name of the node.
const MachineRole = "lab-machine"

// These are the time limits for booting a guest. Booting takes 3 to 8 s under emulation, less than 2 s with
// KVM, and minutes on a busy machine.
const (
	bootTime = 150 * time.Second
	kvmTime  = 10 * time.Second
)

// machineRequest is the first line of a machine process's standard input.
type machineRequest struct {
	Guest   vm.Guest     `json:"guest"`
	Number  int          `json:"number"` // index of the guest in the lab
	Console string       `json:"console"`
	Layout  agent.Layout `json:"layout"`
}

// MachineMain runs the machine process. Descriptor 3 is the socket of the node. The descriptors after it are
// the taps for the ports of the guest, in the order of the layout.
func MachineMain(node string) error {
	m := machine{node: node}
	defer m.kill()
	return carry(node, &m.q, m.begin, func(ctx context.Context, c *net.UnixConn) error {
		go m.attend(ctx, c) // returns when that controller disconnects
		return nil
	})
}

// machine is a node that runs as a guest of this process. The taps outlive the guest: if the guest has ended,
// the next connection boots a new guest on them.
type machine struct {
	node string
	q    machineRequest
	taps []*os.File
	macs []net.HardwareAddr

	mu    sync.Mutex // held during boot
	guest *running   // nil if the guest failed to boot
	why   string     // reason for not trying KVM again; see bootedAs.Why
}

// running is a guest that has booted. It may have ended in the meantime.
type running struct {
	child *host.Child
	far   host.Agent
	words func() string         // returns the end of the console output, which the first call reads
	as    bootedAs              // how the guest was booted; Why is not set
	room  uint64                // bytes that the guest may write to its disk; 0 means no disk
	why   atomic.Pointer[error] // reason why the guest was killed, if it misbehaved
	ended chan struct{}         // closed when QEMU has exited
}

// begin boots the first guest.
func (m *machine) begin() error {
	m.q.Layout.Names = map[string]string{}
	m.q.Layout.Interrupts = "0" // use a fixed CPU for interrupts, because results would vary otherwise
	for i, port := range m.q.Layout.Ports {
		m.taps = append(m.taps, os.NewFile(uintptr(4+i), "tap"))
		unix.CloseOnExec(4 + i)
		m.macs = append(m.macs, vm.HardwareAddr(m.q.Number, i))
		m.q.Layout.Names[m.macs[i].String()] = port
	}

	return m.boot()
}

// attend serves a controller with the agent of the running guest. If the guest has ended or does not respond,
// attend boots a new one. If the guest ends later, requests fail with an error that contains the end of its
// console output.
func (m *machine) attend(ctx context.Context, c net.Conn) {
	g, err := m.living(ctx)
	if err != nil {
		host.Refuse(ctx, c, fmt.Errorf("%w: %w", host.ErrUnreachable, err))
		return
	}

	own := map[string]host.Handler{verbKill: func(context.Context, host.Session) error {
		g.words()
		return g.child.Kill()
	}, verbEnds: func(ctx context.Context, _ host.Session) error {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-g.ended:
			return m.epitaph(g)
		}
	}}
	host.Gateway(ctx, c, g.far, own, func(err error) error {
		if !errors.Is(err, host.ErrUnreachable) || look(ctx, g.far) == nil {
			return err
		}
		return m.epitaph(g)
	})
}

// epitaph returns an error that says how a guest has ended.
func (m *machine) epitaph(g *running) error {
	how := "has ended"
	if why := g.why.Load(); why != nil {
		how = fmt.Sprintf("was ended: %v", *why)
	}
	return fmt.Errorf("guest %s %s: %w; its console%s", m.node, how, host.ErrUnreachable, g.words())
}

// living returns the running guest. It boots a guest if necessary.
func (m *machine) living(ctx context.Context) (*running, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.guest != nil && look(ctx, m.guest.far) == nil {
		return m.guest, nil
	}

	m.kill()
	if err := m.boot(); err != nil {
		return nil, err
	}

	return m.guest, nil
}

// A guest counts as hung if it answers none of wakeTries consecutive requests within wakeTime each. Guests
// are checked at intervals of wakeEvery and for each new connection. A single unanswered request does not
// suffice, because a serial line may lose the request, and an emulated guest on a busy machine may be slow.
const (
	wakeEvery = 5 * time.Second
	wakeTime  = 5 * time.Second
	wakeTries = 2
)

// guard kills the guest if it hangs, so that controllers that wait for it get an error. It also limits the
// size of the guest's console file.
func (m *machine) guard(g *running) {
	for {
		select {
		case <-g.ended:
			return
		case <-time.After(wakeEvery):
		}

		// Ignore errors, because readers of the file also limit its size.
		_ = errors.Join(cutConsole(m.q.Console), cutConsole(m.q.Console+".qemu"))
		why := errWrote(g.child.Pid(), g.room)
		if why == nil && look(context.Background(), g.far) == errHangs {
			why = errHangs
		}

		if why != nil {
			g.words()
			g.why.Store(&why)
			g.child.Kill()
		}
	}
}

// errHangs reports that a guest runs but does not respond.
var errHangs = fmt.Errorf("it hung, no answer within %s", wakeTries*wakeTime)

// look checks whether a guest responds. It returns errHangs if the guest does not, and ErrUnreachable if the
// guest has ended.
func look(ctx context.Context, far host.Agent) error {
	for range wakeTries {
		ctx, cancel := context.WithTimeout(ctx, wakeTime)
		err := host.Answers(ctx, far)
		cancel()
		if err == nil || errors.Is(err, host.ErrUnreachable) {
			return err
		}
	}
	return errHangs
}

// kill ends the guest if there is one.
func (m *machine) kill() {
	if m.guest == nil {
		return
	}

	m.guest.words() // reads the console output before the next guest adds to it
	m.guest.child.Kill()
	m.guest.far.Close() // waits until QEMU has exited
	m.guest = nil
}

// boot boots a guest on the taps, and sets it up according to the layout.
func (m *machine) boot() error {
	may := vm.CheckKVM(m.q.Guest.Image.Arch)
	if m.why != "" {
		may = check.Not("it has not worked before")
	}

	kvm, emulated := bootTimes(&m.q.Guest)
	g, as, err := bootBest(may, kvm, emulated, m.start)
	if err != nil {
		return fmt.Errorf("boot guest %s: %w", m.node, err)
	}

	g.as.KVM, g.as.Why = as.KVM, cmp.Or(as.Why, m.why)
	m.guest = g
	m.why = g.as.Why
	if err := writeJSON(bootedFile(filepath.Dir(m.q.Console), m.node), g.as); err != nil {
		return fmt.Errorf("boot guest %s: %w", m.node, err)
	}

	go func() {
		g.child.Wait() // reaps the process
		close(g.ended)
	}()
	go m.guard(g)
	return nil
}

// bootBest boots with KVM if may is yes. If it is not, or if booting with KVM fails, bootBest boots under
// emulation.
func bootBest(may check.Answer, kvm, emulated time.Duration,
	start func(kvm bool, within time.Duration) (*running, error)) (*running, bootedAs, error) {
	var as bootedAs
	if may.State == check.Yes {
		g, err := start(true, kvm)
		if err == nil {
			return g, bootedAs{KVM: true}, nil
		}

		if _, refused := errors.AsType[*refusedLogin](err); refused || errors.Is(err, host.ErrUnsupported) {
			return nil, as, err
		}

		as.Why = fmt.Sprintf("KVM was tried first: %v", err)
	}

	g, err := start(false, emulated)
	return g, as, err
}

// start boots a guest, and waits until its agent is ready, for at most the time within.
func (m *machine) start(kvm bool, within time.Duration) (_ *running, err error) {
	if err := markConsole(m.q.Console); err != nil {
		return nil, err
	}

	g := m.q.Guest
	files := m.taps
	g.KVM = kvm
	var inside *foreign
	room := uint64(0)
	defer func() {
		if err != nil {
			inside.leave()
		}
	}()
	if g.Disk != nil {
		var system unix.Statfs_t
		if err = unix.Statfs(tempDir(), &system); err == nil {
			room, err = roomToWrite(tempDir(), system.Bavail*uint64(system.Bsize))
		}

		if err != nil {
			return nil, &refusedLogin{err} // prevents an attempt without KVM, which needs the same space
		}

		disk := *g.Disk
		inside, err = enterForeign(&disk, filepath.Dir(m.q.Console), m.q.Number, 3+len(files))
		if err != nil {
			return nil, err
		}

		g.Disk, files = &disk, slices.Concat(files, inside.files)
	}

	log, err := os.OpenFile(m.q.Console+".qemu", os.O_CREATE|os.O_WRONLY|os.O_TRUNC|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	core := 0
	if g.SingleCore() {
		if core, err = coreFor(m.q.Number); err != nil {
			return nil, err
		}
	}

	cage, err := newCage(&g, m.q.Console, 3+len(files))
	if err != nil {
		return nil, err
	}
	defer cage.close()
	child, err := host.Spawn{
		Program: g.Program(),
		Args:    append(cage.words, g.Args(m.node, m.macs, cage.console)...),
		Files:   slices.Concat(files, cage.files),
		Stderr:  log,
		Bound:   true,
		Core:    core,
		MaxFile: room,
		As:      cage.as,
	}.Start()
	inside.started()
	if errors.Is(err, host.ErrUnsupported) {
		return nil, check.WithHint(err, "install "+g.Package()+" (Debian, Ubuntu)")
	}

	if err != nil {
		return nil, err
	}

	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	r := &running{
		child: child,
		room:  room,
		ended: make(chan struct{}),
		words: sync.OnceValue(func() string { return lastWords(m.q.Console) }),
	}
	r.as.Root = cage.root
	err = r.meet(ctx, inside, m.q.Layout)
	if err != nil {
		err = cmp.Or(errWrote(child.Pid(), room), err)
		child.Kill()
		child.Close()
		return nil, fmt.Errorf("%w%s", err, lastWords(m.q.Console))
	}

	return r, nil
}

// meet waits for the agent of the guest, and sets up the guest according to the layout. In a foreign guest,
// it first starts an agent.
func (r *running) meet(ctx context.Context, inside *foreign, l agent.Layout) (err error) {
	if inside == nil {
		r.far, err = host.ConnectLine(ctx, r.child)
	} else if r.far, err = inside.connect(ctx, r.child); err == nil {
		r.as.System, r.as.Release, err = describeForeign(ctx, r.far)
	}

	if err != nil {
		return err
	}
	return r.far.Invoke(ctx, agent.VerbArrange, l, &r.as.Arranged)
}

// coreFor returns the core, counted from 1, for guest number n. It assigns the last core first, because the
// first core serves most interrupts.
func coreFor(n int) (int, error) {
	var ours unix.CPUSet
	if err := unix.SchedGetaffinity(0, &ours); err != nil {
		return 0, fmt.Errorf("choose a core: %w", err)
	}

	var cores []int
	for core := range 64 * len(ours) {
		if ours.IsSet(core) {
			cores = append(cores, core+1)
		}
	}

	return cores[len(cores)-1-n%len(cores)], nil
}

package lab

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
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

// MachineRole is the role of the process that carries a node by running a virtual machine, as an anchor
// carries one that is a namespace. It starts QEMU, whose standard input and output are the line to the
// guest's agent, and lets any number of controllers share that agent. Its argument is the node's name.
const MachineRole = "lab-machine"

// Bounds on a guest's boot. It takes 3 to 8 seconds under emulation, and less than two with KVM, where that
// works; on a busy machine it takes minutes.
const (
	bootTime = 150 * time.Second
	kvmTime  = 10 * time.Second
)

// machineRequest is the first line on the process's standard input.
type machineRequest struct {
	Guest   vm.Guest     `json:"guest"`
	Number  int          `json:"number"` // index among the lab's guests
	Console string       `json:"console"`
	Layout  agent.Layout `json:"layout"`
}

// MachineMain runs that process. Descriptor 3 is the node's socket; those from 4 on are the taps of the
// guest's ports in the layout's order.
func MachineMain(node string, stdin io.Reader, stdout io.Writer) error {
	m := machine{node: node}
	defer m.kill()
	return carry(node, stdin, stdout, &m.q, m.begin, func(ctx context.Context, c *net.UnixConn) error {
		go m.attend(ctx, c) // until that controller hangs up
		return nil
	})
}

// machine is a node that is a guest. When the guest ends, its taps stay: the next connection finds a fresh
// guest on them.
type machine struct {
	node string
	q    machineRequest
	taps []*os.File
	macs []net.HardwareAddr

	mu    sync.Mutex // held while a guest boots
	guest *running   // nil if none could be booted
	why   string     // KVM is not tried again, see bootedAs
}

// running is a guest that has booted; it may have ended since.
type running struct {
	child *host.Child
	far   host.Agent
	words func() string // the last lines of its console, at the first call
	as    bootedAs      // without the reason against KVM
	hung  atomic.Bool   // ended because it hung
	ended chan struct{} // closed when QEMU has ended
}

// begin boots the first guest.
func (m *machine) begin() error {
	m.q.Layout.Names = map[string]string{}
	m.q.Layout.Interrupts = "0" // one processor, the same at each boot
	for i, port := range m.q.Layout.Ports {
		m.taps = append(m.taps, os.NewFile(uintptr(4+i), "tap"))
		unix.CloseOnExec(4 + i)
		m.macs = append(m.macs, vm.HardwareAddr(m.q.Number, i))
		m.q.Layout.Names[m.macs[i].String()] = port
	}

	return m.boot()
}

// attend serves a controller by the running guest, or by a fresh one if that has ended or does not answer.
// Requests to a guest that ends are refused with the last output of its console.
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

// epitaph returns the error about a guest that has ended.
func (m *machine) epitaph(g *running) error {
	how := "has ended"
	if g.hung.Load() {
		how = fmt.Sprintf("hung, %v, and was ended", errHangs)
	}
	return fmt.Errorf("guest %s %s: %w; its console%s", m.node, how, host.ErrUnreachable, g.words())
}

// living returns the running guest, booting one if necessary.
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

// A guest that has not answered within wakeTime × wakeTries counts as hung. It is asked every wakeEvery, and
// at each new connection; repeatedly, because a serial line may lose a question, and an emulated guest on a
// busy machine may be slow.
const (
	wakeEvery = 5 * time.Second
	wakeTime  = 5 * time.Second
	wakeTries = 2
)

// guard ends a guest that hangs, so that whoever waits for it is notified, and bounds the size of its
// console's file.
func (m *machine) guard(g *running) {
	for {
		select {
		case <-g.ended:
			return
		case <-time.After(wakeEvery):
		}

		// If the file cannot be cut, the end of the guest is reported anyway, and quoting it reads a bounded
		// part.
		_ = errors.Join(cutConsole(m.q.Console), cutConsole(m.q.Console+".qemu"))
		if look(context.Background(), g.far) == errHangs {
			g.words()
			g.hung.Store(true)
			g.child.Kill()
		}
	}
}

// errHangs means that a guest runs but does not answer.
var errHangs = fmt.Errorf("no answer within %s", wakeTries*wakeTime)

// look asks whether a guest answers. It returns errHangs if the guest does not, and ErrUnreachable if it has
// ended.
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

// kill ends the guest, if there is one.
func (m *machine) kill() {
	if m.guest == nil {
		return
	}

	m.guest.words() // before the next guest writes there
	m.guest.child.Kill()
	m.guest.far.Close() // waits for QEMU's end
	m.guest = nil
}

// boot boots a guest on the taps and arranges it as the layout says.
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
		g.child.Wait() // reaps it when it ends
		close(g.ended)
	}()
	go m.guard(g)
	return nil
}

// bootBest boots with KVM where possible, else by emulation.
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

// start boots a guest, whose agent must be ready in time.
func (m *machine) start(kvm bool, within time.Duration) (_ *running, err error) {
	if err := markConsole(m.q.Console); err != nil {
		return nil, err
	}

	fds := make([]int, len(m.taps))
	for i := range fds {
		fds[i] = 3 + i
	}

	g := m.q.Guest
	files := m.taps
	g.KVM = kvm
	var inside *foreign
	defer func() {
		if err != nil {
			inside.leave()
		}
	}()
	if g.Disk != nil {
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
		Args: append(cage.words, g.Args(m.node, fds, m.macs,
			cage.console)...),
		Files:  slices.Concat(files, cage.files),
		Stderr: log,
		Bound:  true,
		Core:   core,
		As:     cage.as,
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
		ended: make(chan struct{}),
		words: sync.OnceValue(func() string { return lastWords(m.q.Console) }),
	}
	r.as.Root = cage.root
	if err := r.meet(ctx, inside, m.q.Layout); err != nil {
		child.Kill()
		child.Close()
		return nil, fmt.Errorf("%w%s", err, lastWords(m.q.Console))
	}

	return r, nil
}

// meet waits for the guest's agent, or installs one in a foreign guest, and makes it arrange the guest as the
// layout says.
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

// coreFor chooses a core for the n-th guest of a lab, counted from 1, starting with the last core: the first
// serves most of a machine's interrupts.
func coreFor(n int) (int, error) {
	var ours unix.CPUSet
	if err := unix.SchedGetaffinity(0, &ours); err != nil {
		return 0, fmt.Errorf("choose a core: %w", err)
	}

	skip := n % max(1, ours.Count())
	for core := 64 * len(ours); core > 0; core-- {
		if !ours.IsSet(core - 1) {
			continue
		}

		if skip == 0 {
			return core, nil
		}

		skip--
	}

	return 0, errors.New("choose a core: this process has none")
}

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

// MachineRole is the role of the process that runs a node's virtual machine, as the anchor does for a
// namespace. It starts QEMU, whose standard input and output are connected to the guest's agent, and shares
// that agent among any number of controllers. Its argument is the node's name.
const MachineRole = "lab-machine"

// Time limits for booting a guest. Booting takes 3 to 8 s under emulation, less than 2 s with KVM, and
// minutes on a busy machine.
const (
	bootTime = 150 * time.Second
	kvmTime  = 10 * time.Second
)

// machineRequest is the first line on standard input.
type machineRequest struct {
	Guest   vm.Guest     `json:"guest"`
	Number  int          `json:"number"` // index among the lab's guests
	Console string       `json:"console"`
	Layout  agent.Layout `json:"layout"`
}

// MachineMain runs the machine process. Descriptor 3 is the node's socket; the following ones are the taps of
// the guest's ports in the layout's order.
func MachineMain(node string, stdin io.Reader, stdout io.Writer) error {
	m := machine{node: node}
	defer m.kill()
	return carry(node, stdin, stdout, &m.q, m.begin, func(ctx context.Context, c *net.UnixConn) error {
		go m.attend(ctx, c) // until that controller disconnects
		return nil
	})
}

// machine is a node whose guest this process runs. The taps outlive the guest: if it has ended, the next
// connection boots a new one on them.
type machine struct {
	node string
	q    machineRequest
	taps []*os.File
	macs []net.HardwareAddr

	mu    sync.Mutex // held during boot
	guest *running   // nil if booting failed
	why   string     // reason not to try KVM again, see bootedAs.Why
}

// running is a guest that has booted. It may have ended since.
type running struct {
	child *host.Child
	far   host.Agent
	words func() string // end of its console output at the first call
	as    bootedAs      // without Why
	hung  atomic.Bool   // killed because it hung
	ended chan struct{} // closed when QEMU has exited
}

// begin boots the first guest.
func (m *machine) begin() error {
	m.q.Layout.Names = map[string]string{}
	m.q.Layout.Interrupts = "0" // a single CPU, the same after every boot
	for i, port := range m.q.Layout.Ports {
		m.taps = append(m.taps, os.NewFile(uintptr(4+i), "tap"))
		unix.CloseOnExec(4 + i)
		m.macs = append(m.macs, vm.HardwareAddr(m.q.Number, i))
		m.q.Layout.Names[m.macs[i].String()] = port
	}

	return m.boot()
}

// attend serves a controller with the running guest, or a new one if that has ended or does not answer. If
// the guest ends, requests fail with the end of its console output.
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

// epitaph returns the error for a guest that has ended.
func (m *machine) epitaph(g *running) error {
	how := "has ended"
	if g.hung.Load() {
		how = fmt.Sprintf("hung, %v, and was ended", errHangs)
	}
	return fmt.Errorf("guest %s %s: %w; its console%s", m.node, how, host.ErrUnreachable, g.words())
}

// living returns the running guest. It boots one if necessary.
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

// A guest hangs if it does not answer wakeTries requests within wakeTime each. It is checked every wakeEvery,
// and for each new connection. One unanswered request is not enough: a serial line may lose it, and an
// emulated guest on a busy machine may be slow.
const (
	wakeEvery = 5 * time.Second
	wakeTime  = 5 * time.Second
	wakeTries = 2
)

// guard kills the guest if it hangs, so that waiting controllers get an error, and limits the size of its
// console file.
func (m *machine) guard(g *running) {
	for {
		select {
		case <-g.ended:
			return
		case <-time.After(wakeEvery):
		}

		// Ignore errors: readers of the file limit its size, too.
		_ = errors.Join(cutConsole(m.q.Console), cutConsole(m.q.Console+".qemu"))
		if look(context.Background(), g.far) == errHangs {
			g.words()
			g.hung.Store(true)
			g.child.Kill()
		}
	}
}

// errHangs reports that a guest runs but does not answer.
var errHangs = fmt.Errorf("no answer within %s", wakeTries*wakeTime)

// look checks whether a guest answers. It returns errHangs if it does not, and ErrUnreachable if it has
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

// kill ends the guest, if any.
func (m *machine) kill() {
	if m.guest == nil {
		return
	}

	m.guest.words() // before the next guest writes to the console
	m.guest.child.Kill()
	m.guest.far.Close() // waits until QEMU has exited
	m.guest = nil
}

// boot boots a guest on the taps and sets it up according to the layout.
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
		g.child.Wait() // reaps it
		close(g.ended)
	}()
	go m.guard(g)
	return nil
}

// bootBest boots with KVM if may is yes, and under emulation otherwise or if that fails.
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

// start boots a guest and waits until its agent is ready, for at most within.
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

// meet waits for the guest's agent, after starting one in a foreign guest, and sets up the guest according to
// the layout.
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

// coreFor returns a core, counted from 1, for a guest with number n. It begins with the last core, because
// the first serves most interrupts.
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

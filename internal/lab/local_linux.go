package lab

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/lab/agent"
	"github.com/chokepoint-lab/chokepoint/internal/lab/driver"
	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/lab/journal"
	"github.com/chokepoint-lab/chokepoint/internal/lab/knob"
	"github.com/chokepoint-lab/chokepoint/internal/lab/vm"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// upTime is the time limit for bringing up a local lab without guests. This usually takes about 20 ms.
const upTime = 10 * time.Second

// Local describes a local lab, which consists of namespaces or guests on this machine. It is sent to the
// holder of the lab, the process that keeps the lab up.
type Local struct {
	ID       string           `json:"id"`
	Topology record.Topology  `json:"topology"`
	Dir      string           `json:"dir,omitempty"`    // runtime directory that contains all labs
	Journal  *journal.Journal `json:"-"`                // may be nil only if Detached is set
	Detached bool             `json:"detached"`         // if set, the lab stays up until Down
	Guest    *vm.Guest        `json:"guest,omitempty"`  // guests to use as routers; nil means namespaces
	Driver   string           `json:"driver,omitempty"` // driver that controls the routers; "" means agents
	Queues   int              `json:"queues,omitempty"` // transmit and receive queues per veth; 0 means 1
	State    string           `json:"state,omitempty"`  // state directory of the process that created the lab
	Parts    Parts            `json:"-"`
}

// Info describes a running local lab. It is stored, without Dir, in the directory of the lab.
type Info struct {
	Local
	Pid     int       `json:"pid"`
	Born    uint64    `json:"born"`
	Started time.Time `json:"started"`
}

const infoFile = "lab.json"

// dir returns the directory of the lab.
func (o Local) dir() string { return filepath.Join(o.Dir, o.ID) }

// Up brings up the lab. After an error, nothing of it remains.
func (o Local) Up(ctx context.Context) (*Lab, error) {
	if _, ok := driver.Named(o.Driver); o.Driver != "" && !ok {
		return nil, fmt.Errorf("make lab with driver %q: %w: it is not known", o.Driver, host.ErrUnsupported)
	}

	dir := o.dir()
	held, err := makeDir(o.Dir, dir)
	if err != nil {
		return nil, fmt.Errorf("create lab directory: %w", err)
	}

	child, err := o.startHolder(ctx, upTime)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir), held.Close())
	}

	info := Info{o, child.Pid(), bornAt(child.Pid()), time.Now().UTC()}
	info.Dir = ""
	seq, err := o.Journal.Add(journal.Entry{Kind: journal.KindLab, Lab: o.ID, Pid: info.Pid, Born: info.Born})
	if err == nil {
		err = writeJSON(filepath.Join(dir, infoFile), info)
	}

	if err == nil && o.Detached {
		_, err = child.Write([]byte("\n")) // lets the lab stay up after this process has exited
	}

	if err != nil {
		child.Kill()
		child.Close()
		left := os.RemoveAll(dir)
		if left == nil {
			left = o.Journal.Done(seq)
		}

		return nil, errors.Join(err, left, held.Close())
	}

	l := o.lab()
	if o.Detached {
		held.Close() // from now on, infoFile protects the directory from being swept
		return l, nil
	}

	l.owned = true
	l.down = func(context.Context) error {
		err := errors.Join(child.Close(), os.RemoveAll(dir), held.Close())
		if err == nil {
			err = o.Journal.Done(seq)
		}
		return err
	}
	return l, nil
}

// makeDir creates the directory dir in the directory above. It locks dir until the returned file is closed,
// so that dir is not swept. It retries, because another process may remove above while it is empty, and a
// restore may sweep dir before it is locked.
func makeDir(above, dir string) (held *os.File, err error) {
	for end := time.Now().Add(time.Second); ; {
		if err = os.MkdirAll(above, 0o700); err == nil {
			err = os.Mkdir(dir, 0o700)
		}

		if err == nil {
			held, err = holdDir(dir, 0)
		}

		if !errors.Is(err, fs.ErrNotExist) || time.Now().After(end) {
			return held, err
		}
	}
}

// holdDir locks a directory. If how includes unix.LOCK_NB, it fails if another process has locked the
// directory.
func holdDir(dir string, how int) (*os.File, error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}

	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|how); err != nil {
		f.Close()
		return nil, fmt.Errorf("lock %s: %w", dir, err)
	}

	ours, err := f.Stat()
	if err == nil {
		var there os.FileInfo
		if there, err = os.Stat(dir); err == nil && !os.SameFile(ours, there) {
			err = fs.ErrNotExist // another process removed dir before it was locked
		}
	}

	if err != nil {
		f.Close()
		return nil, err
	}

	return f, nil
}

// agentlessNote returns a note that says that routers are controlled without an agent.
func agentlessNote(who, by string) string {
	return who + " driven by driver " + by +
		": settings and counters are those that it knows, sampled once a second"
}

// lab returns the Lab for a running local lab.
func (o Local) lab() *Lab {
	l := newLab(o.ID, KindOf(o.Guest), o.Topology, o.Parts, o.Journal)
	l.carried, l.dir, l.dial = true, o.dir(), o.dial
	var notes []string
	if os.Geteuid() != 0 {
		notes = append(notes, "as an ordinary user, in a user namespace: no softirq placement (RPS, XPS), "+
			"no real-time priority, socket buffers limited by rmem_max and wmem_max, no BPF")
	}

	if o.Queues > 1 {
		notes = append(notes, fmt.Sprintf("each virtual link has %d queues", o.Queues))
	}

	if o.Guest != nil {
		l.guests = &o
		notes = append(notes, o.guestNote())
	}

	if o.Driver != "" {
		notes = append(notes, agentlessNote("routers are", o.Driver))
	}

	l.Note = strings.Join(notes, "; ")
	return l
}

// dial connects to a node. It starts an agent there or, if the lab uses a driver, returns a host for the
// commands of the driver.
func (o Local) dial(_ context.Context, node string) (n *Node, err error) {
	n = &Node{Name: node, Facts: record.NodeFacts{CPUs: record.CPUsShared, Clock: record.ClockSame}}
	if node == HostNode {
		n.Agent, err = ownAgent("")
		return n, err
	}

	d, err := os.Open(o.dir())
	if err != nil {
		return nil, err
	}
	defer d.Close()
	c, err := net.Dial("unix", socketOf(d, node))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", host.ErrUnreachable, err)
	}

	n.Agent = host.Connect(c)
	n.Sysctls = knob.OfNamespace
	if !slices.Contains(o.Topology.Nodes, record.TopoNode{Name: node, Router: true}) {
		return n, nil
	}

	if o.Guest != nil {
		o.describe(n)
		n.Sysctls = knob.OfGuest
	}

	if by, ok := driver.Named(o.Driver); ok {
		n.Driver, n.Host = driver.Permit(by, n.Sysctls), agent.NewHost(node, n.Agent)
		n.line = n.Agent
		n.Agent = nil
	}

	return n, nil
}

// startHolder starts the holder of the lab and waits until everything is up. The time limit is patience plus
// the time for booting guests.
func (o Local) startHolder(ctx context.Context, patience time.Duration) (*host.Child, error) {
	path := filepath.Join(o.dir(), "holder.log")
	log, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("create lab log: %w", err)
	}
	defer log.Close()
	s := host.Spawn{
		Args:       []string{HolderRole},
		Stderr:     log,
		Namespaces: unix.CLONE_NEWPID | unix.CLONE_NEWNS | unix.CLONE_NEWNET,
	}
	if os.Geteuid() != 0 {
		s.Namespaces |= unix.CLONE_NEWUSER
	}

	child, err := s.Start()
	if err != nil {
		return nil, noNamespaces(err)
	}

	kvm, emulated := bootTimes(o.Guest)
	patience += kvm + emulated
	within, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	wanted := context.AfterFunc(within, func() { child.Kill() })
	err = begin(child, o)
	inTime := wanted() // if false, the time limit has passed and the child is being killed
	if err == nil && inTime {
		return child, nil
	}

	child.Kill()
	child.Close()
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}

	if !inTime {
		return nil, fmt.Errorf("start lab: it was not up within %s%s", patience, o.saying())
	}

	b, _ := os.ReadFile(path)
	if len(b) > 0 {
		last := lastSaid(string(b))
		// The last line may be err itself, preceded by the name of the process that logged it.
		_, text, _ := strings.Cut(last, ": ")
		if text == "" || !strings.Contains(err.Error(), text) {
			err = fmt.Errorf("%w (%s)", err, last)
		}
	}

	if _, ok := errors.AsType[*refused](err); ok {
		err = noNamespaces(err)
	}

	return nil, err
}

// lastSaid returns the last line of a log. If the log ends with a crash, lastSaid instead returns the line
// with the cause, because the last lines then contain a register dump.
func lastSaid(log string) (last string) {
	for line := range strings.Lines(check.Plain(log)) {
		if line = strings.TrimSpace(line); line != "" {
			last = line
		}

		if strings.HasPrefix(line, "panic: ") || strings.HasPrefix(line, "fatal error: ") {
			return line
		}
	}
	return last
}

// saying quotes the end of the console output of each guest in the lab, to show how far the guest has booted.
func (o Local) saying() (said string) {
	if o.Guest == nil {
		return ""
	}

	for _, name := range o.guestNodes() {
		said += fmt.Sprintf("; the console of %s%s", name, lastWords(consoleOf(o.dir(), name)))
	}
	return said
}

// begin sends o to a holder, which then builds the lab. It waits for the holder's answer.
func begin(child *host.Child, o Local) error {
	err := json.NewEncoder(child).Encode(o)
	if err == nil {
		err = settled(child)
	}

	if err != nil {
		return fmt.Errorf("start lab: %w", err)
	}

	return nil
}

// refused wraps an error from creating namespaces or from mounting file systems in them. It distinguishes
// such an error from one that occurs while the lab is built in the namespaces.
type refused struct{ error }

func (r *refused) Unwrap() error { return r.error }

// noNamespaces adds a hint to the error if the kernel refuses to create namespaces.
func noNamespaces(err error) error {
	if os.Geteuid() == 0 || check.HintOf(err) != "" {
		return err
	}
	return check.WithHint(err, "run as root, or let ordinary users make user namespaces: "+
		"sysctl user.max_user_namespaces, kernel.unprivileged_userns_clone (Debian), "+
		"kernel.apparmor_restrict_unprivileged_userns (Ubuntu)")
}

func writeJSON(path string, v any) error {
	b, _ := json.MarshalIndent(v, "", "  ") // never returns an error for our types
	return os.WriteFile(path, append(b, '\n'), 0o600)
}

// Attach connects to a detached lab. If j is not nil, it reserves the lab for one campaign. Otherwise, the
// lab can only be inspected.
func Attach(dir, id string, parts Parts, j *journal.Journal) (*Lab, error) {
	i, err := Standing(dir, id)
	if err != nil {
		return nil, err
	}

	i.Parts, i.Journal = parts, j
	l := i.lab()
	l.Holder = i.Pid
	if j == nil {
		return l, nil
	}

	lock, err := lockLab(i.dir(), id)
	if err != nil {
		return nil, err
	}

	l.down = func(context.Context) error { return lock.Close() }
	return l, nil
}

// Standing returns the running lab with the given name, or an error if there is none.
func Standing(dir, id string) (*Info, error) {
	i, err := living(dir, id)
	if err == nil && i == nil {
		err = check.WithHint(fmt.Errorf("attach to lab %s: no such lab is up", id),
			"lab up makes one; lab list shows those that are up")
	}
	return i, err
}

// Describe records a description of the lab in run. It is for runs that attach to the lab.
func (i *Info) Describe(run *record.Run) {
	run.Attached, run.Lab, run.Driver, run.Queues = i.ID, KindOf(i.Guest), i.Driver, 0
	run.GuestSize = nil
	run.Image = nil
	run.OwnKernel = nil
	if i.Queues > 1 {
		run.Queues = i.Queues
	}

	g := i.Guest
	if g != nil {
		run.GuestSize = &record.GuestSize{CPUs: g.CPUs, MemoryMB: g.MemoryMB, Model: g.Model}
		if g.Disk != nil {
			run.Image = &record.DiskImage{File: g.Disk.File, Login: g.Disk.Login.String()}
		}
	}
}

// errHeld reports that another run is using the lab.
var errHeld = errors.New("another run is using it")

// lockLab reserves a lab for one campaign until the returned file is closed.
func lockLab(dir, id string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("attach to lab %s: %w", id, err)
	}

	if unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) != nil {
		f.Close()
		return nil, check.WithHint(fmt.Errorf("attach to lab %s: %w", id, errHeld),
			"wait for that run, or make another lab with lab up")
	}

	return f, nil
}

// List returns the labs in a runtime directory, whether running or not.
func List(dir string) ([]Info, error) {
	paths, err := filepath.Glob(filepath.Join(dir, "*", infoFile))
	if err != nil {
		return nil, fmt.Errorf("list labs: %w", err)
	}

	var out []Info
	for _, p := range paths {
		b, err := os.ReadFile(p)
		if err != nil {
			continue // the lab was taken down in the meantime
		}

		var i Info
		if json.Unmarshal(b, &i) == nil && i.ID == filepath.Base(filepath.Dir(p)) && journal.ValidID(i.ID) {
			i.Dir = dir
			out = append(out, i)
		}
	}

	return out, nil
}

// living returns the running lab with the given name, or nil if there is none.
func living(dir, id string) (*Info, error) {
	labs, err := List(dir)
	for _, i := range labs {
		if i.ID == id && i.Alive() {
			return &i, nil
		}
	}
	return nil, err
}

// Alive reports whether the holder of the lab is running.
func (i Info) Alive() bool {
	return i.Pid > 0 && i.Born != 0 && bornAt(i.Pid) == i.Born && isHolder(i.Pid)
}

// isHolder reports whether a process is the holder of a lab and belongs to this user. The check is needed
// because the PID comes from a file. isHolder accepts a process without a command line, because a holder that
// is exiting has none.
func isHolder(pid int) bool {
	words, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	facts, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	_, rest, _ := strings.Cut(string(facts), "\nUid:\t")
	uid, _, _ := strings.Cut(rest, "\t")
	return uid == strconv.Itoa(os.Geteuid()) &&
		(len(words) == 0 || strings.HasSuffix(string(words), "\x00"+HolderRole+"\x00"))
}

// Down takes down a lab by killing its holder. This also kills all processes in the lab.
func Down(dir string, i Info) error {
	if !journal.ValidID(i.ID) {
		return fmt.Errorf("take down lab %q: no lab has such a name", i.ID)
	}

	// Look up the process before Alive, because p always refers to the same process, unlike the PID.
	p, err := os.FindProcess(i.Pid)
	if err == nil && i.Alive() {
		err = p.Kill()
	}

	if err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("take down lab %s: %w", i.ID, err)
	}

	// Do not wait until a zombie is reaped, because its namespaces are already gone.
	for deadline := time.Now().Add(5 * time.Second); i.Alive(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			return fmt.Errorf("take down lab %s: its holder %d did not die: %w", i.ID, i.Pid, ErrDirty)
		}
	}

	if err := os.RemoveAll(filepath.Join(dir, i.ID)); err != nil {
		return fmt.Errorf("take down lab %s: %w", i.ID, err)
	}

	return nil
}

// bornAt returns the start time of a process in clock ticks since boot (field 22 in /proc/PID/stat, proc(5)).
// Start time and PID together identify a process. bornAt returns 0 if the process does not exist or is a
// zombie.
func bornAt(pid int) uint64 {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return 0
	}

	_, rest, ok := strings.Cut(string(b), ") ")
	f := strings.Fields(rest)
	if !ok || len(f) < 20 || f[0] == "Z" || f[0] == "X" {
		return 0
	}

	t, _ := strconv.ParseUint(f[19], 10, 64)
	return t
}

// Locals provides local labs by topology and guest size. It creates labs on first use, and takes them down in
// Close. If Attached is set, Locals provides only that lab and does not take it down.
type Locals struct {
	Local    // describes the labs; ID is the prefix of their IDs and identifies the run
	Attached *Lab
	Keep     string // directory in which consoles of guests are saved; "" means that they are not saved

	labs map[string]*Lab
}

// For returns a lab with the given topology. If size is not zero, it overrides the default size of guests.
func (o *Locals) For(ctx context.Context, topology string, size record.GuestSize) (*Lab, error) {
	up := o.Local
	key := topology
	if size != (record.GuestSize{}) {
		if o.Attached != nil || o.Guest == nil {
			return nil, noGuests(topology)
		}

		sized := *o.Guest
		sized.CPUs, sized.MemoryMB = cmp.Or(size.CPUs, sized.CPUs), cmp.Or(size.MemoryMB, sized.MemoryMB)
		most := vm.MaxCPUs(sized.Image.Arch)
		if most > 0 && sized.CPUs > most {
			return nil, &NoTopology{topology, fmt.Sprintf("a guest of %s has at most %d vCPUs",
				sized.Image.Arch, most)}
		}

		if sized.Mitigations = size.Mitigations; sized.Mitigations != "" && sized.Disk != nil {
			return nil, &NoTopology{topology, "an image that was given boots with its own mitigations"}
		}

		up.Guest, key = &sized, strings.TrimSuffix(fmt.Sprintf("%s-c%d-m%d-%s", topology, size.CPUs,
			size.MemoryMB, size.Mitigations), "-")
	}

	if o.Attached != nil {
		has := o.Attached.Topology.Name
		if has != topology {
			return nil, &NoTopology{topology, "the attached lab " + o.Attached.ID + " is " + has}
		}
		return o.Attached, nil
	}

	if l := o.labs[key]; l != nil {
		return l, nil
	}

	var err error
	up.ID += "-" + key
	if up.Topology, err = TopologyNamed(topology); err != nil {
		return nil, err
	}

	l, err := up.Up(ctx)
	if err != nil {
		return nil, err
	}

	if o.labs == nil {
		o.labs = map[string]*Lab{}
	}

	o.labs[key] = l
	return l, nil
}

// Close closes all labs. This takes down the labs that For has created.
func (o *Locals) Close(ctx context.Context) error {
	var err error
	for _, key := range slices.Sorted(maps.Keys(o.labs)) {
		l := o.labs[key]
		keep := o.Keep
		if keep != "" && key != l.Topology.Name {
			keep = filepath.Join(keep, key)
		}

		err = errors.Join(err, keepConsoles(l, keep), l.Close(ctx))
		delete(o.labs, key)
	}

	if o.Attached != nil {
		err = errors.Join(err, keepConsoles(o.Attached, o.Keep), o.Attached.Close(ctx))
	}

	return err
}

func keepConsoles(l *Lab, dir string) error {
	if l.guests == nil || dir == "" {
		return nil
	}
	return l.guests.keepConsoles(dir)
}

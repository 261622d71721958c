package lab

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/chokepoint-lab/chokepoint/internal/lab/agent"
	"github.com/chokepoint-lab/chokepoint/internal/lab/driver"
	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/lab/journal"
	"github.com/chokepoint-lab/chokepoint/internal/lab/vm"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// upTime is how long a local lab may take to come up; it takes 20 ms.
const upTime = 10 * time.Second

// Local describes a local lab to be made: namespaces of this machine.
type Local struct {
	ID       string
	Topology record.Topology
	Dir      string           // the runtime directory of all labs
	Journal  *journal.Journal // nil only for a detached lab
	Detached bool             // stays up until Down
	Guest    *vm.Guest        // what the routers are: virtual machines; nil = namespaces
	Driver   string           // by which the routers are set and watched, see package driver; "" = agents
	Queues   int              // transmit and receive queues of each veth; 0 = 1
	Parts    Parts
}

// Info is what a local lab's directory says about it.
type Info struct {
	ID       string          `json:"id"`
	Pid      int             `json:"pid"`
	Born     uint64          `json:"born"`
	Detached bool            `json:"detached"`
	Started  time.Time       `json:"started"`
	Guest    *vm.Guest       `json:"guest,omitempty"`
	Driver   string          `json:"driver,omitempty"`
	Queues   int             `json:"queues,omitempty"`
	Topology record.Topology `json:"topology"`
}

// site is where the lab is, below the runtime directory of all labs.
func (i Info) site(dir string) site {
	return site{filepath.Join(dir, i.ID), i.Topology, i.Guest, i.Driver}
}

const infoFile = "lab.json"

// Up makes the lab. On error nothing is left.
func (o Local) Up(ctx context.Context) (*Lab, error) {
	dir := filepath.Join(o.Dir, o.ID)
	at := site{dir, o.Topology, o.Guest, o.Driver}
	if err := at.checkDriver(); err != nil {
		return nil, err
	}
	held, err := makeDir(o.Dir, dir)
	if err != nil {
		return nil, fmt.Errorf("create lab directory: %w", err)
	}
	child, err := o.startHolder(ctx, dir, upTime)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir), held.Close())
	}
	info := Info{ID: o.ID, Pid: child.Pid(), Born: bornAt(child.Pid()), Detached: o.Detached,
		Started: time.Now().UTC(), Topology: o.Topology, Guest: o.Guest, Driver: o.Driver,
		Queues: o.Queues}
	seq := 0
	if o.Journal != nil {
		seq, err = o.Journal.Add(journal.Entry{Kind: journal.KindLab, Lab: o.ID, Dir: dir, Pid: info.Pid,
			Born: info.Born})
	}
	if err == nil {
		err = writeJSON(filepath.Join(dir, infoFile), info)
	}
	if err == nil && o.Detached {
		_, err = child.Write([]byte("\n")) // now it may stay
	}
	if err != nil {
		child.Kill()
		child.Close()
		left := os.RemoveAll(dir)
		if left == nil && seq > 0 {
			left = o.Journal.Done(seq)
		}
		return nil, errors.Join(err, left, held.Close())
	}
	l := at.lab(o.ID, o.Queues, o.Parts, o.Journal)
	if o.Detached {
		held.Close() // its file says that it is up
	} else {
		l.owned = true
		l.down = func(context.Context) error {
			err := errors.Join(child.Close(), os.RemoveAll(dir), held.Close())
			if err == nil && o.Journal != nil {
				err = o.Journal.Done(seq)
			}
			return err
		}
	}
	return l, nil
}

// makeDir makes dir in above and holds it against sweeping for as long as the file is open. Whoever has
// just taken down the last lab may be removing the empty folder above meanwhile, and a restore may sweep
// dir before it is held.
func makeDir(above, dir string) (held *os.File, err error) {
	for range 3 {
		if err = os.MkdirAll(above, 0o700); err != nil {
			return nil, err
		}
		if err = os.Mkdir(dir, 0o700); err == nil {
			held, err = holdDir(dir, 0)
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return held, err
		}
	}
	return nil, err
}

// holdDir locks a directory, with unix.LOCK_NB only if nobody else has it.
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
			err = fs.ErrNotExist // removed before it was locked
		}
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// site is where a local lab is, which it is enough to know to reach its nodes.
type site struct {
	dir      string
	topology record.Topology
	guest    *vm.Guest // see Local
	driver   string
}

// lab is the lab that stands there.
func (s site) lab(id string, queues int, parts Parts, j *journal.Journal) *Lab {
	l := newLab(id, KindOf(s.guest), s.topology, parts, j)
	l.carried, l.dir = true, s.dir
	l.dial = func(_ context.Context, node string) (*Node, error) { return s.dial(node) }
	var notes []string
	if os.Geteuid() != 0 {
		notes = append(notes, "as an ordinary user, in a user namespace: no softirq placement (RPS, "+
			"XPS), no "+
			"real-time priority, socket buffers limited by rmem_max and wmem_max, no BPF")
	}
	if queues > 1 {
		notes = append(notes, fmt.Sprintf("each virtual link has %d queues", queues))
	}
	if s.guest != nil {
		g := guests{s.dir, s.topology, *s.guest}
		g.supply(l)
		notes = append(notes, g.note())
	}
	if s.driver != "" {
		notes = append(notes, "routers are driven by driver "+s.driver+
			": settings and counters are those that "+
			"it knows, sampled once a second")
	}
	l.Note = strings.Join(notes, "; ")
	return l
}

func (s site) checkDriver() error {
	if _, ok := driver.Named(s.driver); s.driver != "" && !ok {
		return fmt.Errorf("make lab with driver %q: %w: it is not known", s.driver, host.ErrUnsupported)
	}
	return nil
}

// dial connects to a node, which starts an agent there, or reaches what a driver commands it by.
func (s site) dial(node string) (n *Node, err error) {
	n = &Node{Name: node, Facts: record.NodeFacts{CPUs: record.CPUsShared, Clock: record.ClockSame}}
	if node == HostNode {
		n.Agent, err = ownAgent()
		return n, err
	}
	d, err := os.Open(s.dir)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	c, err := net.Dial("unix", socketOf(d, node))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", host.ErrUnreachable, err)
	}
	a := host.Connect(c)
	router := slices.ContainsFunc(s.topology.Nodes, func(n record.TopoNode) bool {
		return n.Router && n.Name == node
	})
	if router && s.guest != nil {
		guests{s.dir, s.topology, *s.guest}.describe(n)
	}
	if by, ok := driver.Named(s.driver); ok && router {
		n.Driver, n.Host, n.line = by, agent.NewHost(node, a), a
		return n, nil
	}
	n.Agent = a
	return n, nil
}

// startHolder starts the lab's first process and waits, no longer than patience, until all stands.
func (o Local) startHolder(ctx context.Context, dir string, patience time.Duration) (*host.Child, error) {
	log, err := os.OpenFile(filepath.Join(dir, "holder.log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("create lab log: %w", err)
	}
	defer log.Close()
	s := host.Spawn{
		Args:       []string{HolderRole},
		Namespaces: unix.CLONE_NEWPID | unix.CLONE_NEWNS | unix.CLONE_NEWNET,
		Stderr:     log,
	}
	if os.Geteuid() != 0 {
		s.Namespaces |= unix.CLONE_NEWUSER
		s.MapRoot = true
	}
	child, err := s.Start()
	if err != nil {
		return nil, noNamespaces(err)
	}
	wanted := context.AfterFunc(ctx, func() { child.Kill() })
	kvm, emulated := bootTimes(o.Guest)
	patience += kvm + emulated
	late := time.AfterFunc(patience, func() { child.Kill() })
	err = begin(child, holderRequest{Topology: o.Topology, Dir: dir, Detached: o.Detached, Queues: o.Queues,
		Guest: o.Guest, Driver: o.Driver})
	// Else it is being killed, whatever it answered.
	inTime, stillWanted := late.Stop(), wanted()
	if err == nil && inTime && stillWanted {
		return child, nil
	}
	child.Kill()
	child.Close()
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if !inTime {
		return nil, fmt.Errorf("start lab: it was not up within %s%s", patience, o.saying(dir))
	}
	if said, _ := os.ReadFile(log.Name()); len(said) > 0 {
		last := lastLine(said)
		// What a process answered it has logged, too, behind its name.
		if _, text, _ := strings.Cut(last, ": "); text == "" || !strings.Contains(err.Error(), text) {
			err = fmt.Errorf("%w (%s)", err, last)
		}
	}
	var r *refused
	if errors.As(err, &r) {
		err = noNamespaces(err)
	}
	return nil, err
}

// saying quotes the consoles of a lab's guests, which tell how far each came.
func (o Local) saying(dir string) string {
	said := ""
	for _, l := range layouts(o.Topology) {
		if (holderRequest{Guest: o.Guest}).machine(l) {
			said += fmt.Sprintf("; the console of %s%s", l.Node, lastWords(consoleOf(dir, l.Node)))
		}
	}
	return said
}

func lastLine(b []byte) string {
	lines := strings.Split(strings.TrimSpace(string(b)), "\n")
	return strings.TrimSpace(lines[len(lines)-1])
}

func begin(child *host.Child, q holderRequest) error {
	b, err := json.Marshal(q)
	if err != nil {
		return err
	}
	if _, err := child.Write(append(b, '\n')); err != nil {
		return fmt.Errorf("start lab: %w", err)
	}
	line, err := bufio.NewReader(child).ReadBytes('\n')
	if err != nil {
		return fmt.Errorf("start lab: its holder ended: %w", err)
	}
	var a holderAnswer
	if err := json.Unmarshal(line, &a); err != nil {
		return fmt.Errorf("start lab: %w", err)
	}
	if a.Error == "" {
		return nil
	}
	err = &hinted{fmt.Errorf("start lab: %s", a.Error), a.Hint}
	if a.Refused {
		err = &refused{err}
	}
	return err
}

// refused is an error of making namespaces or the mounts in them, not of what is then built there.
type refused struct{ error }

func (r *refused) Unwrap() error { return r.error }

// noNamespaces adds what to do when the kernel refuses namespaces.
func noNamespaces(err error) error {
	if os.Geteuid() == 0 {
		return err
	}
	var h interface{ Hint() string }
	if errors.As(err, &h) && h.Hint() != "" {
		return err
	}
	return &hinted{err, "run as root, or let ordinary users make user namespaces: " +
		"sysctl user.max_user_namespaces, kernel.unprivileged_userns_clone (Debian), " +
		"kernel.apparmor_restrict_unprivileged_userns (Ubuntu)"}
}

func writeJSON(path string, v any) error {
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(b, '\n'), 0o600)
}

// Attach connects to a detached lab. With a journal it is for a campaign, and only one may have the lab at
// a time; without, for looking into it.
func Attach(dir, id string, parts Parts, j *journal.Journal) (*Lab, error) {
	labs, err := List(dir)
	if err != nil {
		return nil, err
	}
	for _, i := range labs {
		if i.ID != id || !i.Alive() {
			continue
		}
		l := i.site(dir).lab(i.ID, i.Queues, parts, j)
		l.Holder = i.Pid
		if j == nil {
			return l, nil
		}
		lock, err := lockLab(filepath.Join(dir, id), id)
		if err != nil {
			return nil, err
		}
		l.down = func(context.Context) error { return lock.Close() }
		return l, nil
	}
	return nil, &hinted{fmt.Errorf("attach to lab %s: no such lab is up", id),
		"lab up makes one; lab list shows those that are up"}
}

// errHeld means that a campaign has the lab.
var errHeld = errors.New("another run is using it")

// lockLab takes a lab for one campaign, for as long as the file is open.
func lockLab(dir, id string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("attach to lab %s: %w", id, err)
	}
	if unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) != nil {
		f.Close()
		return nil, &hinted{fmt.Errorf("attach to lab %s: %w", id, errHeld),
			"wait for that run, or make another lab with lab up"}
	}
	return f, nil
}

// List reads the labs below a runtime directory, living or not.
func List(dir string) ([]Info, error) {
	paths, err := filepath.Glob(filepath.Join(dir, "*", infoFile))
	if err != nil {
		return nil, fmt.Errorf("list labs: %w", err)
	}
	var out []Info
	for _, p := range paths {
		b, err := os.ReadFile(p)
		if err != nil {
			continue // taken down meanwhile
		}
		var i Info
		if json.Unmarshal(b, &i) == nil && i.ID == filepath.Base(filepath.Dir(p)) {
			out = append(out, i)
		}
	}
	return out, nil
}

// Alive reports whether the lab's holder is the process it was.
func (i Info) Alive() bool { return i.Pid > 0 && i.Born != 0 && bornAt(i.Pid) == i.Born }

// Down ends a lab: its holder is killed, and with it all inside.
func Down(dir string, i Info) error {
	if i.Alive() {
		if err := unix.Kill(i.Pid, unix.SIGKILL); err != nil && !errors.Is(err, unix.ESRCH) {
			return fmt.Errorf("take down lab %s: %w", i.ID, err)
		}
		if err := gone(i, 5*time.Second); err != nil {
			return err
		}
	}
	if err := os.RemoveAll(filepath.Join(dir, i.ID)); err != nil {
		return fmt.Errorf("take down lab %s: %w", i.ID, err)
	}
	return nil
}

// gone waits until the holder is no more (a zombie is enough: its namespaces end with it).
func gone(i Info, patience time.Duration) error {
	deadline := time.Now().Add(patience)
	for i.Alive() {
		if time.Now().After(deadline) {
			return fmt.Errorf("take down lab %s: its holder %d did not die: %w", i.ID, i.Pid, ErrDirty)
		}
		time.Sleep(2 * time.Millisecond)
	}
	return nil
}

// bornAt is a process' start time in clock ticks since boot, which together with its number identifies it
// (proc(5), stat field 22); 0 if there is no such process or it is only waiting to be reaped.
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
	t, err := strconv.ParseUint(f[19], 10, 64)
	if err != nil {
		return 0
	}
	return t
}

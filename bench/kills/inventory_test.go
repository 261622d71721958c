package kills_test

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/nftables"

	"github.com/chokepoint-lab/chokepoint/bench/rig"
	"github.com/chokepoint-lab/chokepoint/internal/lab/kernel"
	"github.com/chokepoint-lab/chokepoint/internal/qdisc"
)

// inventory holds what there is, as sorted lines.
type inventory []string

func (i inventory) sorted() inventory {
	slices.Sort(i)
	return slices.Compact(i)
}

// difference lists what came and what went.
func difference(before, now inventory) []string {
	var out []string
	for _, line := range now {
		if !slices.Contains(before, line) {
			out = append(out, "left: "+line)
		}
	}

	for _, line := range before {
		if !slices.Contains(now, line) {
			out = append(out, "gone: "+line)
		}
	}

	return out
}

// settle looks until nothing differs any more, or for a while.
func settle(before inventory, look func() inventory, wait time.Duration) []string {
	deadline := time.Now().Add(wait)
	for {
		faults := difference(before, look())
		if len(faults) == 0 || time.Now().After(deadline) {
			return faults
		}

		time.Sleep(20 * time.Millisecond)
	}
}

// process is one of the program under test, told from every other by the file that it runs, and where that
// cannot be read, by its name and user.
type process struct {
	pid  int
	line string
}

func (s *suite) processes(t *testing.T) (all []process) {
	program, err := os.Stat(s.Path)
	entries, err2 := os.ReadDir("/proc")
	emulators, err3 := kernel.Guests(s.Dir)
	if err := errors.Join(err, err2, err3); err != nil {
		t.Error(err)
		return nil
	}

	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}

		dir := "/proc/" + e.Name()
		words, err := os.ReadFile(dir + "/cmdline")
		if err != nil || len(words) == 0 {
			continue // gone in the meantime, of the kernel, or waiting to be reaped
		}

		line := strings.TrimSpace(strings.ReplaceAll(string(words), "\x00", " "))
		exe, unreadable := os.Stat(dir + "/exe")
		owner, err := os.Stat(dir)
		switch {
		case guests() && emulators[pid] != "" && strings.HasPrefix(line, "qemu-system-"):
			line, _, _ = strings.Cut(line, " ")
			line += " of the lab"
		case unreadable == nil && os.SameFile(exe, program):
		case unreadable != nil && err == nil && int(owner.Sys().(*syscall.Stat_t).Uid) == s.UID &&
			s.UID != 0 && strings.HasPrefix(line, "chokepoint "):
		default:
			continue
		}

		all = append(all, process{pid, line})
	}

	return all
}

// processesOf is the inventory of those processes of the program whose command line has a word.
func (s *suite) processesOf(t *testing.T, word string) (i inventory) {
	for _, p := range s.processes(t) {
		if strings.Contains(p.line, word) {
			i = append(i, fmt.Sprintf("process %d (%s)", p.pid, p.line))
		}
	}
	return i.sorted()
}

// killVictim kills the processes of a lab's own that a blow is meant for, and says whether it did.
func (s *suite) killVictim(t *testing.T, which string) (killed bool) {
	begins := map[string]string{ofQEMU: "qemu-system-", ofMachine: "chokepoint lab-machine",
		ofHolder: "chokepoint lab-holder"}[which]
	for _, p := range s.processes(t) {
		if strings.HasPrefix(p.line, begins) {
			killed = syscall.Kill(p.pid, syscall.SIGKILL) == nil
		}
	}
	return killed
}

// namespacesOf collects the namespaces that the program's processes are in and we are not.
func (s *suite) namespacesOf(t *testing.T, found map[string]bool) {
	for _, p := range s.processes(t) {
		for _, kind := range []string{"net", "pid", "mnt", "uts", "user"} {
			own, _ := os.Readlink("/proc/self/ns/" + kind)
			if ns, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/%s", p.pid, kind)); err == nil && ns != own {
				found[ns] = true
			}
		}
	}
}

// held lists which of the namespaces some process of the suite, open file of one or mount holds, and forgets
// the others: once a namespace is gone, its number may be given to one that another program makes.
func (s *suite) held(t *testing.T, namespaces map[string]bool) (i inventory) {
	where := map[string][]string{}
	for _, pattern := range []string{"/proc/[0-9]*/ns/*", "/proc/[0-9]*/fd/*"} {
		links, _ := filepath.Glob(pattern) // which is well-formed
		for _, l := range links {
			if ns, err := os.Readlink(l); err == nil && namespaces[ns] && !s.foreign(l) {
				where[ns] = append(where[ns], l)
			}
		}
	}

	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Error(err)
	}

	for ns := range namespaces {
		if strings.Contains(string(mounts), " "+ns+" ") {
			where[ns] = append(where[ns], "a mount")
		}

		if len(where[ns]) == 0 {
			delete(namespaces, ns)
			continue
		}

		i = append(i, fmt.Sprintf("namespace %s, held by %d, first %s", ns, len(where[ns]), where[ns][0]))
	}

	return i.sorted()
}

// foreign says that a link below /proc/PID is of a process that does not descend from the program under test:
// whatever that starts inherits the suite's directory in its environment.
func (s *suite) foreign(link string) bool {
	pid := strings.Split(link, "/")[2]
	environ, err := os.ReadFile("/proc/" + pid + "/environ")
	return err == nil && len(environ) > 0 && !strings.Contains(string(environ), s.Dir)
}

// cgroupsOf lists cgroups that belong to a lab of one of the names.
func cgroupsOf(t *testing.T, names ...string) (i inventory) {
	err := filepath.WalkDir("/sys/fs/cgroup", func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
			return nil // gone meanwhile, or none of this user's
		}

		for _, n := range names {
			if err == nil && n != "" && d.IsDir() && strings.HasPrefix(d.Name(), "chokepoint-"+n) {
				i = append(i, "cgroup "+path)
			}
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
	return i.sorted()
}

// files lists what lies in the program's folders where nothing of a run may stay: the journal, the sockets,
// temporary files, and unfinished results; without those of a lab that is up.
func (s *suite) files(t *testing.T, lab string) (i inventory) {
	for _, d := range []string{"home", "state", "run", "tmp", "config", "data"} {
		if err := filepath.WalkDir(s.At(d), func(path string, e fs.DirEntry, err error) error {
			if errors.Is(err, fs.ErrNotExist) {
				return nil // removed meanwhile
			}

			path = strings.TrimPrefix(path, s.Dir+"/")
			const labs = "run/chokepoint/labs/"
			// A folder stays of each kind; one of a lab must not.
			if err != nil || e.IsDir() && !strings.HasPrefix(path, labs) {
				return err
			}

			ofLab := lab != "" && strings.HasPrefix(path+"/", labs+lab+"/")
			if !ofLab && (d != "data" || strings.HasPrefix(filepath.Base(path), ".")) {
				i = append(i, path)
			}

			return nil
		}); err != nil {
			t.Errorf("list files: %v", err)
		}
	}
	return i.sorted()
}

// outside returns what the machine itself shows beside our processes: nothing of it may ever change, since
// labs live in namespaces of their own.
func outside(t *testing.T) inventory {
	i, err := lookAround()
	named, err2 := os.ReadDir("/run/netns")
	if errors.Is(err2, fs.ErrNotExist) {
		err2 = nil
	}

	if err := errors.Join(err, err2); err != nil {
		t.Error(err)
	}

	for _, n := range named {
		i = append(i, "named namespace "+n.Name())
	}

	return i.sorted()
}

// lookAround lists what can be changed in the network namespace of this process: by the system's own
// programs where it has them, and by what needs none.
func lookAround() (i inventory, err error) {
	links, err := net.Interfaces()
	if err != nil {
		return nil, fmt.Errorf("list links: %v", err)
	}

	for _, l := range links {
		i = append(i, fmt.Sprintf("link %s mtu %d %s %s", l.Name, l.MTU, l.Flags, l.HardwareAddr))
		addresses, err := l.Addrs()
		if err != nil {
			continue // it went in the meantime, which the next look will say
		}

		for _, a := range addresses {
			i = append(i, "address "+a.String()+" on "+l.Name)
		}
	}

	for _, name := range []string{"net/ipv4/ip_forward", "net/ipv6/conf/all/forwarding",
		"net/ipv4/tcp_congestion_control"} {
		if b, err := os.ReadFile("/proc/sys/" + name); err == nil {
			i = append(i, "sysctl "+name+" = "+strings.TrimSpace(string(b)))
		}
	}

	for _, words := range [][]string{{"nft", "list", "ruleset"}, {"tc", "qdisc", "show"},
		{"ip", "route", "show", "table", "all"}, {"ip", "-d", "link", "show"}} {
		// A program that is missing, or not allowed here, says nothing; what it could not see this user
		// could not change either.
		said, err := exec.Command(words[0], words[1:]...).Output()
		if err != nil {
			continue
		}

		for line := range strings.Lines(string(said)) {
			if line = strings.TrimSpace(line); line != "" {
				i = append(i, strings.Join(words[:2], " ")+": "+line)
			}
		}
	}

	return i, nil
}

// lookRole makes this program look around in the namespace that it is started in, and print what it sees.
const lookRole = "look"

// look adds what needs netlink.
func look(out io.Writer) error {
	i, err := lookAround()
	devices, err2 := kernel.Devices()
	if err := errors.Join(err, err2); err != nil {
		return err
	}

	for _, dev := range devices {
		queue, err := kernel.QueueAt(dev, qdisc.Queue{})
		length, err2 := kernel.TxQueueLen(dev)
		features, err3 := kernel.Features(dev)
		if err := errors.Join(err, err2, err3); err != nil {
			return err
		}

		i = append(i, fmt.Sprintf("device %s: queue %v, txqueuelen %d", dev, queue, length))
		for name, on := range features {
			if on {
				i = append(i, "device "+dev+": feature "+name)
			}
		}
	}

	filter, err := nftables.New()
	if err != nil {
		return err
	}

	tables, err := filter.ListTables()
	if err != nil {
		return fmt.Errorf("list tables of nftables: %w", err)
	}

	for _, t := range tables {
		i = append(i, fmt.Sprintf("table of nftables: %s, family %d", t.Name, t.Family))
	}

	_, err = fmt.Fprintln(out, strings.Join(i.sorted(), "\n"))
	return err
}

// lookInGuest lists what can be changed in a guest, whose userland has no more.
const lookInGuest = "ip -o link; ip -o addr; ip route show table all; ip rule; tc qdisc show; tc filter " +
	"show dev lan; nft list ruleset; cat /proc/sys/net/ipv4/ip_forward"

// lookInto lists what can be changed in the nodes of a lab that is up.
func (c *scene) lookInto() (all inventory) {
	for _, n := range c.nodes {
		look := []string{c.look, lookRole}
		if guests() && n == "router" {
			look = []string{"sh", "-c", lookInGuest}
		}

		said, ok := c.say(c.T, append([]string{"lab", "exec", n, "--attach", c.lab, "--"}, look...)...)
		if !ok {
			c.FailNow()
		}

		for line := range strings.Lines(said) {
			all = append(all, n+": "+strings.TrimSpace(line))
		}
	}
	return all.sorted()
}

func TestInventoriesSeeWhatIsThere(t *testing.T) {
	now := outside(t)
	if got := strings.Join(now, "\n"); !strings.Contains(got, "link lo mtu") {
		t.Errorf("machine: got %q, want the loopback link in it", got)
	}

	without := append(inventory{"link vanished0"}, now[1:]...)
	got := strings.Join(difference(without, now), "; ")
	for _, want := range []string{"left: " + now[0], "gone: link vanished0"} {
		if !strings.Contains(got, want) {
			t.Errorf("difference: got %q, want %q in it", got, want)
		}
	}

	began := time.Now()
	faults := settle(without, func() inventory { return outside(t) }, 30*time.Millisecond)
	if len(faults) == 0 || time.Since(began) < 30*time.Millisecond {
		t.Errorf("settle: got %q after %s, want a fault after 30 ms", faults, time.Since(began))
	}
}

func TestProcessesAreToldByTheirFile(t *testing.T) {
	s := &suite{Program: rig.Program{Path: "/proc/self/exe", UID: os.Geteuid()}}
	all := s.processes(t)
	of := func(p process) bool { return p.pid == os.Getpid() }
	i := slices.IndexFunc(all, of)
	if i < 0 || slices.ContainsFunc(all[i+1:], of) {
		t.Errorf("this process: got %v, want it in there once", all)
	}

	s.Path = filepath.Join(t.TempDir(), "other")
	if err := rig.CopyFile("/proc/self/exe", s.Path, 0o755); err != nil {
		t.Fatal(err)
	}

	if all := s.processes(t); len(all) > 0 {
		t.Errorf("processes of a copy: got %v, want none", all)
	}
}

func TestHeldFindsANamespace(t *testing.T) {
	s := &suite{Program: rig.Program{Dir: t.TempDir()}}
	own, err := os.Readlink("/proc/self/ns/net")
	if err != nil {
		t.Fatal(err)
	}

	by := func(home string) (link string) {
		c := exec.Command("sleep", "60")
		c.Env = []string{"HOME=" + home}
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}

		t.Cleanup(func() { c.Process.Kill(); c.Wait() })
		file := fmt.Sprintf("/proc/%d/environ", c.Process.Pid)
		for b, err := os.ReadFile(file); len(b) == 0 && err == nil; b, err = os.ReadFile(file) {
			time.Sleep(time.Millisecond) // the kernel lays it out after Start has been told
		}

		return fmt.Sprintf("/proc/%d/ns/net", c.Process.Pid)
	}
	if link := by(s.Dir + "/home"); s.foreign(link) {
		t.Errorf("%s: got that it is foreign, want that the program under test began it", link)
	}

	if link := by("/"); !s.foreign(link) {
		t.Errorf("%s: got that the program under test began it, want that it is foreign", link)
	}

	if got := s.held(t, map[string]bool{own: true}); len(got) == 0 {
		t.Errorf("held: got %v, want the namespace of the first of them", got)
	}

	if got := s.held(t, map[string]bool{"net:[1]": true}); len(got) != 0 {
		t.Errorf("held: got %v, want nothing", got)
	}
}

func TestFilesListsWhatMustNotStay(t *testing.T) {
	s := &suite{Program: rig.Program{Dir: t.TempDir()}}
	for path, stays := range map[string]bool{
		"data/chokepoint/runs.db": true, "data/chokepoint/runs/a/report.html": true,
		"data/chokepoint/runs/a/.chokepoint-1": false, "state/chokepoint/journal/a.jsonl": false,
		"tmp/x": false,
	} {
		if err := os.MkdirAll(filepath.Dir(s.At(path)), 0o700); err != nil {
			t.Fatal(err)
		}

		if err := os.WriteFile(s.At(path), nil, 0o600); err != nil {
			t.Fatal(err)
		}

		got := s.files(t, "")
		listed := slices.Contains(got, path)
		if listed == stays {
			t.Errorf("files: got %v, want %s in it: %t", got, path, !stays)
		}
	}
}

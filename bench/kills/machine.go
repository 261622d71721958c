package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// inventory is what there is, as sorted lines.
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
func settle(before inventory, look func() (inventory, error), wait time.Duration) []string {
	deadline := time.Now().Add(wait)
	for {
		now, err := look()
		if err != nil {
			return []string{err.Error()}
		}
		faults := difference(before, now)
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

func (o options) processes() ([]process, error) {
	program, err := os.Stat(o.Path)
	if err != nil {
		return nil, err
	}
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	var out []process
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
		if o.guests() && strings.HasPrefix(line, "qemu-system-") && strings.Contains(line, o.Dir+"/") {
			out = append(out, process{pid, line[:strings.IndexByte(line, ' ')] + " of the lab"})
			continue
		}
		if exe, err := os.Stat(dir + "/exe"); err == nil {
			if os.SameFile(exe, program) {
				out = append(out, process{pid, line})
			}
			continue
		}
		owner, err := os.Stat(dir)
		if err == nil && int(owner.Sys().(*syscall.Stat_t).Uid) == o.UID && o.UID != 0 &&
			strings.HasPrefix(line, "chokepoint ") {
			out = append(out, process{pid, line})
		}
	}
	return out, nil
}

// running is the inventory of our processes.
func (o options) running() (inventory, error) {
	var i inventory
	all, err := o.processes()
	for _, p := range all {
		i = append(i, fmt.Sprintf("process %d (%s)", p.pid, p.line))
	}
	return i.sorted(), err
}

var namespaceKinds = []string{"net", "pid", "mnt", "uts", "user"}

// namespacesOf collects the namespaces that our processes are in and we are not.
func (o options) namespacesOf(found map[string]bool) error {
	all, err := o.processes()
	for _, p := range all {
		for _, kind := range namespaceKinds {
			own, _ := os.Readlink("/proc/self/ns/" + kind)
			if ns, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/%s", p.pid, kind)); err == nil && ns != own {
				found[ns] = true
			}
		}
	}
	return err
}

// watchNamespaces collects namespaces until told that it is over.
func (o options) watchNamespaces(found map[string]bool, over <-chan struct{}) error {
	for {
		if err := o.namespacesOf(found); err != nil {
			return err
		}
		select {
		case <-over:
			return nil
		case <-time.After(30 * time.Millisecond):
		}
	}
}

// held lists which of the namespaces some process, open file or mount holds, and forgets the others: once a
// namespace is gone, its number may be given to one that another program makes.
func held(namespaces map[string]bool) (inventory, error) {
	where := map[string][]string{}
	for _, pattern := range []string{"/proc/[0-9]*/ns/*", "/proc/[0-9]*/fd/*"} {
		links, err := filepath.Glob(pattern)
		if err != nil {
			return nil, err
		}
		for _, l := range links {
			if ns, err := os.Readlink(l); err == nil && namespaces[ns] {
				where[ns] = append(where[ns], l)
			}
		}
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	var i inventory
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
	return i.sorted(), nil
}

// outside is what the machine itself shows beside our processes: nothing of it may ever change, since labs
// live in namespaces of their own.
func outside() (inventory, error) {
	i, err := lookAround()
	if err != nil {
		return nil, err
	}
	named, err := os.ReadDir("/run/netns")
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("list named namespaces: %v", err)
	}
	for _, n := range named {
		i = append(i, "named namespace "+n.Name())
	}
	return i.sorted(), nil
}

// lookAround lists what can be changed in the network namespace of this process: by the system's own
// programs where it has them, and by what needs none.
func lookAround() (inventory, error) {
	var i inventory
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
	return i.sorted(), nil
}

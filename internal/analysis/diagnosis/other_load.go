package diagnosis

import (
	"cmp"
	"slices"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/factor"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// otherLoad describes CPU work other than forwarding: other processes, management, and chokepoint's own
// sampling.
var otherLoad = rule(OtherLoad, `
	label: other processes use up the CPU
	means: processes other than forwarding and the load generator take at least 35 % of the CPU \
		time, and no core has idle time left
	traits: at-capacity busy-cores
	kind: packet
	planted: cpu_hog cpu_quota
	linux: stop the other process, or pin it to a core that forwards no packets
		$ top -b -n 1 | head -20
		$ taskset -p 2 PID
		risk: it runs slower
	openwrt: find the processes that use the CPU; stop statistics and web management while it \
		matters
		$ top -b -n 1 | head -20
		$ service collectd stop
	routeros: find the processes that use the CPU; close WinBox, stop The Dude, graphing and SNMP \
		polling
		$ /tool profile cpu=all
	freebsd: find the processes that use the CPU; stop them, or pin them to another core
		$ top -bSH 20
		$ cpuset -l 1 -p PID
`, func(o *Observation) Candidate {
	nodes := []string{record.HostNode}
	if !o.Shared() {
		nodes = slices.Clone(o.Routers())
		if len(nodes) > 0 && o.Run.Node(nodes[0]).Guest() {
			nodes = append([]string{record.HostNode}, nodes...)
		}
	}

	slices.Reverse(nodes) // if both are equal, choose the router
	return likeliest("the topology has no router", nodes, o.otherLoadAt)
})

func (o *Observation) otherLoadAt(node string) Candidate {
	s := need(o.systemAt(node))
	other, own, why := o.otherWork(s)
	needs(why == "", why)
	at := place{node, "processes"}
	cores := float64(len(s.Cores))
	j := at.candidate(requires("other-work", other/cores, .08, .35).by(
		at.fact("other_cores", other,
			"%.2g cores' worth of CPU time went to work unrelated to forwarding")),
		s.full(),
		o.readsEvenly()).
		gain(cores/max(cores-other, .1)).
		text("other work takes %.2g of %s %d cores", other, s.of(), len(s.Cores))
	if own > .1 {
		j = j.facts(fact("lab_cpu_ns", node, "observing", own, "of that, telemetry took %h of a core"))
	}

	if node != record.HostNode || o.Shared() {
		return j
	}

	g, _ := o.systemAt(o.Routers()[0])
	kept, ran := o.keptFromRunning(g, s)
	if kept > .5 {
		j = j.facts(
			at.fact(guestRan, ran, "the vCPUs of the %s ran for %h of the time in which it was busy",
				g.Node, ran))
	}

	return j
}

// guestRan is the metric for the share of a guest's busy time in which its vCPUs ran.
const guestRan = "guest_ran_ratio"

// freeVCPU is the minimum share of a guest's busy time in which an emulated vCPU runs if other work does not
// stop it.
const freeVCPU = .66

// keptFromRunning returns the certainty, from 0 to 1, that other work on the machine keeps a guest's vCPUs
// from running. ran is the share of the guest's busy time in which they ran.
func (o *Observation) keptFromRunning(guest, machine system) (kept, ran float64) {
	ns, why := o.sumOf(record.HostNode, "guests", func(label string) bool {
		return strings.HasPrefix(label, guest.Node+"/vcpu")
	}, "guest_cpu_ns")
	if why != "" || guest.Busy == 0 {
		return 0, 1
	}

	ran = o.perSecond(ns) / 1e9 / guest.Busy
	return degree(ran, freeVCPU, .52) * degree(machine.mean(), .9, .98), ran
}

// chargedSoftirq is the share of softirq time that the kernel charges to the interrupted processes.
const chargedSoftirq = .4

// otherWork returns the CPU time of work other than forwarding, in cores, and the part of that time that the
// agent used.
func (o *Observation) otherWork(s system) (other, own float64, why string) {
	foreign, why := o.cpuTime(s.Node, "foreign_cpu_ns")
	for _, c := range o.Nodes[s.Node].Cost {
		own += ratio(float64(c.CPUNs), float64(c.OverNs))
	}

	userspace := factor.InUserspace(o.tunnel())
	sharing := o.Run.KernelOf(s.Node)
	switch {
	case s.Node == record.HostNode:
		lab, _ := o.cpuTime(s.Node, "lab_cpu_ns")
		engine, known := o.Metric("engine_cpu_s")
		if known && !userspace {
			// Part of the softirq time is charged to interrupted processes.
			foreign += max(lab-o.value("guests_cpu_ratio")-o.perSecond(engine)-own-
				chargedSoftirq*s.softirq(), 0)
		}

		return foreign, own, why
	case len(sharing) > 0:
		// The user time of these cores also includes the load generators and the sampling of other nodes.
		for _, node := range sharing {
			lab, lacks := o.cpuTime(node, "lab_cpu_ns")
			why = cmp.Or(why, lacks)
			if node != s.Node {
				foreign -= lab
			}
		}
		return max(foreign, 0), own, why
	}

	user := s.User
	if userspace {
		user = max(user-s.Kernel, 0) // a tunnel's process spends half its time in system calls
	}

	// A process that copies data or starts other processes spends time in the kernel, too. Packets are
	// forwarded in softirqs or kernel threads.
	threads, lacks := o.sumOf(s.Node, "kthreads", func(kind string) bool { return kind != "softirqs" },
		"kthread_cpu_ns")
	if lacks == "" && o.tunnel() == "" {
		user += max(s.Kernel-o.perSecond(threads)/1e9, 0)
	}

	return max(user, foreign), own, ""
}

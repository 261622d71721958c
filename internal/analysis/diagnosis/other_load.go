package diagnosis

import (
	"fmt"
	"slices"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/factor"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/unit"
)

// otherLoad returns the rule for CPU work other than moving packets: other processes, management, and our own
// observing.
func otherLoad() Rule {
	return Rule{Class: OtherLoad, Label: "other work takes the CPU time",
		Means: "processes other than forwarding and the load generator take at least 35 % of the CPU " +
			"time, and no core has time left",
		Judge: func(o *Observation) Judgement {
			nodes := []string{record.HostNode}
			if !o.Shared() {
				nodes = o.Routers()
				if len(nodes) > 0 && o.Run.Node(nodes[0]).Guest() {
					nodes = append([]string{record.HostNode}, nodes...)
				}
			}
			best := missing("the topology has no router")
			for _, node := range slices.Backward(nodes) { // of two equal ones, the router counts
				best = likelier(best, o.otherLoadAt(node))
			}
			return best
		},
		Experiments: cpuDoses,
		Remedies: []Remedy{
			{System: "linux", Do: "stop it, or pin it away from the core that forwards packets",
				Commands: []string{
					"top -b -n 1 | head -20", "taskset -p 2 PID"}, Risk: "it runs slower"},
			{System: "openwrt", Do: "see what runs; stop statistics and web management while it matters",
				Commands: []string{"top -b -n 1 | head -20", "service collectd stop"}},
			{System: "routeros", Do: "see what runs; close WinBox, stop The Dude, graphing and SNMP polling",
				Commands: []string{"/tool profile cpu=all"}},
			{System: "freebsd", Do: "see what runs; stop it, or pin it to another core", Commands: []string{
				"top -bSH 20", "cpuset -l 1 -p PID"}},
		}}
}

func (o *Observation) otherLoadAt(node string) Judgement {
	s, why := o.systemAt(node)
	if why != "" {
		return missing(why)
	}
	other, own, why := o.otherWork(s)
	if why != "" {
		return missing(why)
	}
	share, guest := other/float64(len(s.Cores)), 0.0
	var starved factList
	if node == record.HostNode && !o.Shared() {
		// If a guest is itself at its limit, the machine that carries it is not, unless it keeps the guest
		// from running.
		if g, why := o.systemAt(o.Routers()[0]); why == "" {
			kept, ran := o.keptFromRunning(g, s)
			guest = (1 - kept) * degree(g.Full.Busy, .6, .9)
			if kept > .5 {
				starved = factList{fact(guestRan, node, "processes", ran, "the vCPUs of the "+g.Node+
					" ran for "+unit.Percent(ran)+" of the time in which it was busy")}
			}
		}
	}
	facts := factList{fact("other_cores", node, "processes", other,
		unit.Significant(other, 2)+" cores' worth of CPU time went to work unrelated to forwarding"),
		s.coreFact()}
	if own > .1 {
		facts = append(facts, fact("lab_cpu_ns", node, "observing", own, "of that, telemetry took "+
			unit.Percent(own)+" of a core"))
	}
	return Judgement{Node: node, Element: "processes", Facts: append(facts, starved...),
		Terms: []Term{requires("other-work", degree(share, .08, .35)).by(facts[0]),
			supports("most-work", degree(share, .35, .55)), s.full(), contradicts("full-guest", guest)},
		GainAtMost: ratio(float64(len(s.Cores)), max(float64(len(s.Cores))-other, .1)),
		Text: fmt.Sprintf("other work takes %s of %s %d cores", unit.Significant(other, 2), s.of(),
			len(s.Cores))}
}

// guestRan names the metric for the share of a guest's busy time in which its cores ran.
const guestRan = "guest_ran_ratio"

// freeVCPU is the minimum share of its guest's busy time for which an emulated vCPU runs if nothing stops it.
const freeVCPU = .66

// keptFromRunning rates from 0 to 1 how surely the machine's other work keeps a guest's vCPUs from running,
// and returns for how much of the guest's busy time they ran.
func (o *Observation) keptFromRunning(guest, machine system) (kept, ran float64) {
	ns, ok := o.Sum(record.HostNode, "guests", "guest_cpu_ns", func(label string) bool {
		return strings.HasPrefix(label, guest.Node+"/vcpu")
	})
	if !ok || guest.Busy == 0 {
		return 0, 1
	}
	ran = o.perSecond(ns) / 1e9 / guest.Busy
	return degree(ran, freeVCPU, .52) * degree(machine.Busy/float64(len(machine.Cores)), .9, .98), ran
}

// chargedSoftirq is the share of softirq time that is charged to the processes interrupted.
const chargedSoftirq = .4

// otherWork returns the time spent on work other than forwarding, in cores, and how much of it was the
// agent's.
func (o *Observation) otherWork(s system) (other, own float64, why string) {
	foreign, ok := o.cpuTime(s.Node, "foreign_cpu_ns")
	for _, c := range o.Trial.Nodes[s.Node].Cost {
		own += ratio(float64(c.CPUNs), float64(c.OverNs))
	}
	if s.Node == record.HostNode {
		if !ok {
			return 0, 0, "the CPU time of other processes was not read"
		}
		lab, _ := o.cpuTime(s.Node, "lab_cpu_ns")
		guests, _ := o.Metric("guests_cpu_ratio")
		engine, known := o.Metric("engine_cpu_s")
		if known && !factor.InUserspace(o.tunnel()) {
			// Softirqs are charged to the process they interrupt.
			foreign += max(lab-guests-o.perSecond(engine)-own-chargedSoftirq*s.softirq(), 0)
		}
		return foreign, own, ""
	}
	if sharing := o.Run.KernelOf(s.Node); len(sharing) > 0 {
		// User space on its cores also includes the ends' load and the observing of other nodes.
		if !ok {
			return 0, 0, "the CPU time of other processes was not read"
		}
		for _, node := range sharing {
			lab, known := o.cpuTime(node, "lab_cpu_ns")
			if !known {
				return 0, 0, "it shares its kernel with " + node + ", whose own processes were not told apart"
			}
			if node != s.Node {
				foreign -= lab
			}
		}
		return max(foreign, 0), own, ""
	}
	user := s.User
	if factor.InUserspace(o.tunnel()) {
		user = max(user-s.Kernel, 0) // a tunnel's process spends as long in system calls
	}
	// So does one that copies or starts others. Packets are moved in softirqs or by kernel threads.
	threads, known := o.Sum(s.Node, "kthreads", "kthread_cpu_ns", func(kind string) bool {
		return kind != "softirqs"
	})
	if known && o.tunnel() == "" {
		user += max(s.Kernel-o.perSecond(threads)/1e9, 0)
	}
	return max(user, foreign), own, ""
}

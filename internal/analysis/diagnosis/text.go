package diagnosis

import (
	"slices"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/check"
)

// Words holds what a rule's text declares about its class.
type Words struct {
	Label string // clause for a sentence, such as "one core of the router is saturated by softirq"
	Means string // conditions under which the rule fires, with their thresholds
	// Traits may be:
	//   - ends: two ends can recognise the class without telemetry from the router.
	//   - quiet: an answer that is not a fault, such as healthy, tester-limited or shared-cpu.
	//   - wasteful: the limit itself costs CPU time, such as retransmissions, so that the same rate costs
	//     less without it.
	//   - of-failed: the rule also applies to failed trials, which have a cause but no rate.
	//   - to-tester: the gain is bounded by the rate that the tester reaches without the router, unless the
	//     candidate has its own bound.
	//   - delay: the class adds delay, so that its experiments are measured by the RTT.
	//   - any-rate: the class also affects a load that reaches its set rate.
	//   - at-capacity: a CPU is saturated. If a class holds the load below the capacity of the CPUs, a
	//     saturated CPU is not the cause.
	//   - busy-cores: cores are busy, which a high cost per packet explains.
	//   - in-router: the router is saturated. If the tester is, the router's maximum was not reached.
	//   - in-guest: cores of a guest are saturated, or only look so because other work keeps them from
	//     running.
	Traits []string
	// Explains lists classes, by name or trait, that the class explains: it causes them, or keeps them from
	// being the limit. A saturated core or process forwards as much as it can, so congestion control, on
	// which loss and reordering act, is not the limit. Dropped packets cost no time on the CPUs behind the
	// place where they are dropped.
	Explains []string
	Kind     string // kind of limit, such as "rate", or "" if no experiment of a kind tests the class
	// Planted lists the faults and settings whose levels set the amount of the class's resource. Costly lists
	// factors with levels that cause the class. No experiment scales these factors.
	Planted, Costly []string
	Remedies        []Remedy
}

// Has reports whether the class has a trait.
func (w Words) Has(trait string) bool { return slices.Contains(w.Traits, trait) }

// words parses a rule's text: first the fields of Words, then the remedies. A line such as "linux: lengthen
// the queue" begins a remedy for the named system, or for any system. The following lines hold the remedy's
// commands (each after "$"), its risk, its factor and level ("plan:"), the kind of tunnel that it applies to,
// and its condition ("when:"). A backslash at the end of a line continues the line.
func words(text string) (w Words) {
	last := &Remedy{}
	for line := range strings.Lines(continued().ReplaceAllString(text, "")) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		switch key {
		case "":
		case "label:":
			w.Label = value
		case "means:":
			w.Means = value
		case "traits:":
			w.Traits = strings.Fields(value)
		case "explains:":
			w.Explains = strings.Fields(value)
		case "kind:":
			w.Kind = value
		case "planted:":
			w.Planted = strings.Fields(value)
		case "costly:":
			w.Costly = strings.Fields(value)
		case "$":
			last.Commands = append(last.Commands, value)
		case "risk:":
			last.Risk = value
		case "plan:":
			last.Factor, last.Level, _ = strings.Cut(value, "=")
		case "tunnel:":
			last.Tunnel = value
		case "when:":
			last.When = value
		default:
			system := strings.TrimPrefix(strings.TrimSuffix(key, ":"), "any")
			w.Remedies = append(w.Remedies, Remedy{System: system, Do: value})
			last = &w.Remedies[len(w.Remedies)-1]
		}
	}
	return w
}

var continued = check.Pattern(`\\\n\s*`)

// spreading holds the remedies that spread receive processing over cores, which several classes have.
const spreading = `
	linux: spread received packets over all cores (receive packet steering, RPS)
		$ for q in /sys/class/net/*/queues/rx-*/rps_cpus; do echo ff > $q; done
		risk: moving packets between cores costs CPU time; worse if every flow already has its own core
		plan: cpus=0-1
		when: not steered
	linux: give each port's interrupts their own core
		$ echo 2 > /proc/irq/N/smp_affinity
		risk: irqbalance moves them back; stop it first
		plan: irq_affinity=0-1
	linux: receive in kernel threads that the scheduler can spread (threaded NAPI)
		$ echo 1 > /sys/class/net/DEV/threaded
		risk: more latency under load
		plan: napi_threaded=on
	openwrt: enable packet steering
		$ uci set network.globals.packet_steering=1
		$ uci commit network
		$ service network reload
		risk: 1 can be worse than 0, and 2 (all cores) better than either: measure each
	routeros: spread the ports' interrupts over the cores
		$ /system resource irq print
		$ /system resource irq set N cpu=auto
	freebsd: process packets in netisr threads on all cores
		$ sysctl net.isr.dispatch=deferred
		$ echo net.isr.maxthreads=-1 >> /boot/loader.conf
		risk: with IPsec VTI it cost 55 % of the rate (netbenches)
`

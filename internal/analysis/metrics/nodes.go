package metrics

import (
	"cmp"
	"math"
	"slices"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/statistics"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

func (m *Measured) addNodes(t *record.Trial, p place) {
	if t.Cipher == nil && (t.Row.Kind != record.RowLoad || t.Traffic == nil) {
		return
	}

	w := t.Window
	if host, ok := t.Nodes[record.HostNode]; ok {
		m.addMachine(record.HostNode, host, w)
		ns, why := grown(host, "guests", w, nil, "guest_cpu_ns")
		m.setUnless(why, GuestsCPU, ns/float64(w.End-w.Start))
		// The row "cpu" is the probe's sum over all cores.
		allCores := func(label string) bool { return label == "cpu" }
		for name, stem := range map[string]string{softnetDrops: "dropped", SoftnetSqueeze: "time_squeeze"} {
			sum, why := grown(host, "softnet", w, allCores, stem)
			m.setUnless(why, name, sum)
		}
	} else {
		why := "nothing watched the host"
		if p.apart {
			why = "no machine carries all nodes"
			m.addEnds(t, p)
		}

		m.Lack(why, append(prefixed(record.HostNode, machineStems...), softnetDrops, SoftnetSqueeze,
			GuestsCPU)...)
	}

	m.addRouters(t, p)
}

// addEnds adds the metrics named by endStems for both ends of the path, which are separate machines.
func (m *Measured) addEnds(t *record.Trial, p place) {
	for _, end := range p.ends {
		one := NewMeasured()
		one.addMachine(end, t.Nodes[end], t.Window, p.sharing(t, end)...)
		for _, name := range prefixed(end, endStems...) {
			m.setUnless(one.Missing[name], name, one.Values[name])
		}
	}
}

// core holds the cumulative time of one CPU core by state, in ns.
type core struct {
	Name                        string
	busyNs, all, softirq, steal statistics.Curve
}

// busyStates lists the states in which a core works for this machine. Steal is not one of them, because the
// hypervisor gave that time to other machines. Guest time is part of user time (see proc_stat(5)).
// unclassified_ns is the busy time of routers that do not report the kind of work.
var busyStates = [...]string{"user_ns", "nice_ns", "system_ns", "irq_ns", "softirq_ns", "unclassified_ns"}

var idleStates = [...]string{"idle_ns", "iowait_ns", "steal_ns"}

// CoresOf returns the cores of a node from its cpu probe.
func CoresOf(n record.NodeData) []core {
	table, _ := SamplesOf(n, "cpu")
	if table == nil {
		return nil
	}

	index := make(map[string]int, len(table.Names))
	for i, name := range table.Names {
		index[name] = i
	}

	var cores []core
	for _, name := range table.Names {
		label, isIdle := strings.CutSuffix(name, "/idle_ns")
		if !isIdle || len(label) < 4 || !strings.HasPrefix(label, "cpu") {
			continue // "cpu" is the sum of the other rows
		}

		busy := make([]float64, len(table.T))
		add := func(to []float64, stem string) {
			if k, ok := index[label+"/"+stem]; ok {
				for j, v := range table.V[k] {
					if !math.IsNaN(v) || stem == "idle_ns" {
						to[j] += v
					}
				}
			}
		}
		for _, stem := range busyStates {
			add(busy, stem)
		}

		all := slices.Clone(busy)
		for _, stem := range idleStates {
			add(all, stem)
		}

		for j, v := range all {
			if math.IsNaN(v) { // the sample failed
				busy[j] = v
			}
		}

		curve := func(stem string) statistics.Curve {
			k, ok := index[label+"/"+stem]
			if !ok {
				return statistics.Curve{}
			}
			return statistics.NewCurve(table.T, table.V[k])
		}
		cores = append(cores, core{
			Name:    label,
			busyNs:  statistics.NewCurve(table.T, busy),
			all:     statistics.NewCurve(table.T, all),
			softirq: curve("softirq_ns"),
			steal:   curve("steal_ns"),
		})
	}

	slices.SortStableFunc(cores, func(a, b core) int { // sort cpu2 before cpu10
		return cmp.Or(cmp.Compare(len(a.Name), len(b.Name)), cmp.Compare(a.Name, b.Name))
	})
	return cores
}

// Busy returns the share of an interval for which the core was busy.
func (c core) Busy(from, to int64) (float64, bool) { return c.share(c.busyNs, from, to) }

// Softirq returns the share of an interval that the core spent in softirqs.
func (c core) Softirq(from, to int64) (float64, bool) { return c.share(c.softirq, from, to) }

// share returns the growth of one state ÷ the growth of all states. A time in /proc/stat may decrease by a
// tick, so a negative share counts as 0.
func (c core) share(state statistics.Curve, from, to int64) (float64, bool) {
	if len(state.T) < 2 || !c.all.Covers(from, to, (to-from)/5) {
		return 0, false
	}

	d := c.all.At(to) - c.all.At(from)
	if d <= 0 {
		return 0, false
	}

	return math.Min(math.Max((state.At(to)-state.At(from))/d, 0), 1), true
}

// addMachine adds the metrics named by machineStems for a node. prefix is "host", "router" or the name of an
// end.
func (m *Measured) addMachine(prefix string, n record.NodeData, w record.Window, sharing ...record.NodeData) {
	m.AddCPU(prefix, n, w)
	m.AddForeign(prefix, n, w, sharing...)
	watts, why := PowerOf(n, w.Start, w.End)
	m.setUnless(why, prefix+"_"+powerWatts, watts)
	m.addTemperature(prefix, n, w)
	m.addLoopRate(prefix, n, w)
}

// AddCPU adds the load of a node's cores. prefix is "host", "router" or the name of an end.
func (m *Measured) AddCPU(prefix string, n record.NodeData, w record.Window) {
	names := prefixed(prefix, CPURatio, busiestCore, softirqCore, StealRatio)
	cores := CoresOf(n)
	if len(cores) == 0 {
		_, why := SamplesOf(n, "cpu")
		m.Lack(why, names...)
		return
	}

	var busySum, stealSum, busyMost, softirqMost float64
	for _, c := range cores {
		busy, ok := c.Busy(w.Start, w.End)
		if !ok {
			m.Lack("the samples of probe cpu do not cover the window", names...)
			return
		}

		softirq, _ := c.share(c.softirq, w.Start, w.End)
		steal, _ := c.share(c.steal, w.Start, w.End)
		busySum += busy
		stealSum += steal
		busyMost = math.Max(busyMost, busy)
		softirqMost = math.Max(softirqMost, softirq)
	}

	count := float64(len(cores))
	for i, v := range []float64{busySum / count, busyMost, softirqMost, stealSum / count} {
		m.Set(names[i], v)
	}

	if prefix == record.HostNode {
		m.busy = busySum
	}
}

func prefixed(prefix string, stems ...string) []string {
	out := make([]string, len(stems))
	for i, s := range stems {
		out[i] = prefix + "_" + s
	}
	return out
}

// AddForeign adds the CPU time of processes outside the lab. If several nodes share a kernel, the processes
// of one node appear as foreign on the others, so their CPU time is subtracted.
func (m *Measured) AddForeign(prefix string, n record.NodeData, w record.Window, sharing ...record.NodeData) {
	ns, why := grown(n, "foreign", w, nil, "foreign_cpu_ns")
	for _, other := range sharing {
		lab, missing := grown(other, "foreign", w, nil, "lab_cpu_ns")
		if ns = max(ns-lab, 0); why == "" && missing != "" {
			why = "a node with the same kernel reported nothing about its own processes: " + missing
		}
	}

	m.setUnless(why, prefix+"_"+ForeignRatio, ns/float64(w.End-w.Start))
}

// PowerOf returns the mean power in an interval, in watts. It uses the most comprehensive source: energy
// counters of processor packages or, without these, energy counters of sensors or, without these, power
// readings. If the power is unknown, PowerOf returns the reason.
func PowerOf(n record.NodeData, from, to int64) (watts float64, why string) {
	table, why := SamplesOf(n, "power")
	if table == nil {
		return 0, why
	}

	packages, sensors := energyColumns(table)
	for _, energy := range [][]column{packages, sensors} {
		joules := 0.0
		found := false
		for _, c := range energy {
			if j, ok := c.Curve.Moved(from, to); ok {
				joules += j
				found = true
			}
		}

		if found {
			return joules * 1e9 / float64(to-from), ""
		}
	}

	why = "the samples of probe power do not cover the window"
	for _, c := range ColumnsOf(table, "power_w") {
		if v, ok := c.Curve.Mean(from, to); ok {
			watts += v
			why = ""
		}
	}

	return watts, why
}

// energyColumns selects energy counters so that nothing is counted twice. Of the RAPL counters, it selects
// the platform's counter ("psys") if there is one, and otherwise the counter of each package. Subdomains with
// two colons ("intel-rapl:0:0.core") are part of their package, and intel-rapl-mmio repeats the packages of
// intel-rapl (Documentation/power/powercap/powercap.rst).
func energyColumns(t *record.Table) (packages, sensors []column) {
	seen := map[string]bool{}
	for _, c := range ColumnsOf(t, "energy_j") {
		zone, domain, _ := strings.Cut(c.Label, ".")
		switch {
		case !strings.Contains(zone, ":"):
			sensors = append(sensors, c)
		case strings.Count(zone, ":") > 1 || seen[domain]:
		case domain == "psys":
			return []column{c}, nil
		default:
			seen[domain] = true
			packages = append(packages, c)
		}
	}
	return packages, sensors
}

// addTemperature adds the highest temperature in the window.
func (m *Measured) addTemperature(prefix string, n record.NodeData, w record.Window) {
	table, why := SamplesOf(n, "thermal")
	most := math.Inf(-1)
	for _, c := range ColumnsOf(table, "temperature_c") {
		if v, ok := c.Curve.Largest(w.Start, w.End); ok {
			most = max(most, v)
		}
	}

	if why == "" && math.IsInf(most, -1) {
		why = "no thermal zone was read in the window"
	}

	m.setUnless(why, prefix+"_"+Temperature, most)
}

// addLoopRate adds the median rate of the timed loop over all samples and cores, because a sample is short
// and may contain an interrupt.
func (m *Measured) addLoopRate(prefix string, n record.NodeData, w record.Window) {
	table, why := SamplesOf(n, "clock")
	var rates []float64
	for _, c := range ColumnsOf(table, "loop_rate_hz") {
		for i, at := range c.Curve.T {
			if w.Holds(at) {
				rates = append(rates, c.Curve.V[i])
			}
		}
	}

	if why == "" && len(rates) == 0 {
		why = "no loop was timed in the window"
	}

	m.setUnless(why, prefix+"_"+loopRate, statistics.Median(rates))
}

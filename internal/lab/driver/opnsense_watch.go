package driver

import (
	"context"
	"fmt"
	"maps"
	"math"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// OPNsenseEvery is how often OPNsense is asked for a sample: each starts programs on the router, and its top
// takes two seconds (core, scripts/system/activity.py).
const OPNsenseEvery = 5 * time.Second

// What is asked for each sample, and at both ends of a trial.
const (
	opnActivity = "diagnostics/activity/get_activity"
	opnNetisr   = "diagnostics/interface/get_netisr_statistics"
	opnPF       = "diagnostics/firewall/pf_statistics/info"
	opnStates   = "diagnostics/firewall/pf_states"
	opnHeat     = "diagnostics/system/system_temperature"
	opnPeers    = "wireguard/service/show"
)

var opnSample = []string{opnActivity, opnInterfaces, opnPF}

// Watch implements Sampling.
func (OPNsense) Watch(ctx context.Context, h host.Host, every time.Duration) (Watch, error) {
	r, repeats := h.(host.Repeater)
	if !repeats {
		return nil, fmt.Errorf("watch %s: %w: it is not reached by https", h.Name(), host.ErrUnsupported)
	}
	var limit atomic.Value // of pf's states, as it was told last
	limit.Store("")
	w := &polled{host: h, tables: opnTables,
		clock: func(ctx context.Context) (int64, error) {
			all, err := opnAsk(ctx, h, opnInterfaces)
			if err != nil {
				return 0, err
			}
			return opnTime(all)
		},
		besides: func(ctx context.Context, at int64) taken {
			// What is not told has no value.
			all, _ := opnAsk(ctx, h, opnNetisr, opnStates, opnHeat, opnMemory, opnPeers)
			limit.Store(word(all[opnStates], "limit"))
			return opnEnds(at, all)
		},
		keep: func(context.Context) {}, leave: func(context.Context) error { return nil }}
	return w.begin(ctx, func() (host.Process, error) {
		return r.Repeat(context.WithoutCancel(ctx), host.Command{Path: strings.Join(opnSample, " ")},
			max(every, OPNsenseEvery))
	}, func(line string) {
		all, err := opnAnswers([]byte(line), opnSample...)
		var s taken
		if err == nil {
			s, err = opnTaken(all)
			s.put("conntrack", "max", limit.Load().(string), 1)
		}
		w.add(s, err)
	})
}

// opnTime is the router's clock as the counters of its interfaces were read, in ns.
func opnTime(all map[string]any) (int64, error) { return bsdSeconds(word(all[opnInterfaces], "time")) }

// opnTaken reads a sample. The shares are those of the two seconds before.
func opnTaken(all map[string]any) (s taken, err error) {
	s.probes = map[string]map[string]float64{"cpu": {}, "kthreads": {}, "netdev": {}, "conntrack": {}}
	if s.at, err = opnTime(all); err != nil {
		return s, fmt.Errorf("the interfaces are told without a time: %w", err)
	}
	s.put("conntrack", "entries", word(all[opnPF], "info", "state-table", "current-entries", "total"), 1)
	s.put("conntrack", "drop", word(all[opnPF], "info", "counters", "memory", "total"), 1)
	s.put("conntrack", "insert_failed", word(all[opnPF], "info", "counters", "state-insert", "total"), 1)
	for dev, i := range opnDevices(all) {
		for _, c := range opnCounters {
			s.put("netdev", dev+"/"+c[1], word(i, c[0]), 1)
		}
	}
	cpu := s.probes["cpu"]
	cores := map[string]bool{}
	take := func(core, column string, share float64) {
		n, err := strconv.ParseUint(strings.TrimPrefix(core, "CPU"), 10, 16)
		if err != nil || n >= mostCores {
			return
		}
		name := "cpu" + strconv.FormatUint(n, 10) + "/"
		cpu[name+column] += share
		cores[name] = cores[name] || column == "idle_ns"
	}
	for _, t := range elements(within(all[opnActivity], "details")) {
		share, err := strconv.ParseFloat(strings.TrimSuffix(word(t, "WCPU"), "%"), 64)
		if err != nil || !(share >= 0) { // or no number
			continue
		}
		share = min(share, 100)
		// "[idle{idle: cpu0}]", "[idle]" of one core, "[kernel{if_io_tqg_0}]", "[intr{irq27: igc0:rxq0}]",
		// "" of programs; with one core the name ends at its first space (core, scripts/system/activity.py)
		kernel, isKernel := strings.CutPrefix(word(t, "COMMAND"), "[")
		process, thread, _ := strings.Cut(strings.TrimRight(kernel, "]}"), "{")
		if core, ok := strings.CutPrefix(thread, "idle: cpu"); ok {
			take(core, "idle_ns", share)
		} else if process == "idle" {
			take(word(t, "C"), "idle_ns", share)
		} else if core, ok := strings.CutPrefix(thread, "if_io_tqg_"); ok {
			take(core, "softirq_ns", share)
		} else if strings.HasPrefix(thread, "wg_tqg_") {
			s.probes["kthreads"]["wg-crypt/kthread_cpu_ns"] += share
		} else if isKernel && process == "intr" {
			take(word(t, "C"), "irq_ns", share)
		} else if !isKernel {
			take(word(t, "C"), "user_ns", share)
		}
	}
	maps.DeleteFunc(cpu, func(column string, _ float64) bool { // of a core whose idle time is not told
		name, _, _ := strings.Cut(column, "/")
		return !cores[name+"/"]
	})
	for name := range cores {
		if cores[name] {
			cpu[name+"irq_ns"] += 0 // threads that do nothing are not listed
			cpu[name+"user_ns"] += 0
			cpu[name+"system_ns"] = max(0, 100-cpu[name+"idle_ns"]-cpu[name+"softirq_ns"]-
				cpu[name+"irq_ns"]-cpu[name+"user_ns"])
		}
	}
	return s, nil
}

// opnEnds reads what is asked at both ends of a trial.
func opnEnds(at int64, all map[string]any) taken {
	s := taken{at, map[string]map[string]float64{"softnet": {}, "thermal": {}, "memory": {},
		wireguardProbe: {}}}
	for _, stream := range elements(within(all[opnNetisr], "netisr", "workstream")) {
		for _, work := range elements(within(stream, "work")) {
			n, err := strconv.ParseUint(word(work, "cpu"), 10, 16)
			if err != nil || n >= mostCores {
				continue
			}
			for _, c := range [][2]string{{"handled", "processed"}, {"queue-drops", "dropped"},
				{"length", "backlog"}} {
				if v, err := strconv.ParseUint(word(work, c[0]), 10, 64); err == nil {
					s.probes["softnet"]["cpu/"+c[1]] += float64(v)
					s.probes["softnet"]["cpu"+strconv.FormatUint(n, 10)+"/"+c[1]] += float64(v)
				}
			}
		}
	}
	for _, t := range elements(all[opnHeat]) {
		name, numbered := strings.CutSuffix(word(t, "device"), ".temperature") // "dev.cpu.0.temperature"
		if !numbered {
			name += word(t, "device_seq")
		}
		name = bsdSensor(name)
		if c, err := strconv.ParseFloat(word(t, "temperature"), 64); err == nil && c > 0 && c < 200 &&
			deviceLike(name) && len(s.probes["thermal"]) < mostCores {
			s.probes["thermal"][name+"/temperature_c"] = c
		}
	}
	total, err := strconv.ParseFloat(word(all[opnMemory], "memory", "total"), 64)
	used, err2 := strconv.ParseFloat(word(all[opnMemory], "memory", "used"), 64)
	if err == nil && err2 == nil && 0 <= used && used <= total && !math.IsInf(total, 0) {
		s.probes["memory"]["total_bytes"], s.probes["memory"]["free_bytes"] = total, total-used
	}
	n := map[string]int{}
	for _, p := range elements(within(all[opnPeers], "rows")) {
		dev := word(p, "if")
		if word(p, "type") != "peer" || !deviceLike(dev) || len(s.probes[wireguardProbe]) >= 3*mostDevices {
			continue
		}
		peer := fmt.Sprintf("%s.peer%d/", dev, n[dev])
		n[dev]++
		s.put(wireguardProbe, peer+"rx_bytes", word(p, "transfer-rx"), 1)
		s.put(wireguardProbe, peer+"tx_bytes", word(p, "transfer-tx"), 1)
		if since, err := bsdSeconds(word(p, "latest-handshake")); err == nil && since > 0 {
			s.probes[wireguardProbe][peer+"handshake_age_ns"] = float64(max(0, at-since))
		}
	}
	return s
}

const (
	opnNotTold = "the router does not tell it, or not for this key"
	opnAtEnds  = ", read before the first trial and after each"
)

// opnSources are the probes whose series OPNsense's API has.
var opnSources = []source{
	{"cpu", "of the core, integrated from shares of two seconds, of top's threads: idle, if_io_tqg_N " +
		"(softirq_ns), intr (irq_ns) and programs (user_ns), the latter on the core that each was on last; " +
		"system_ns is the rest", "top lists no idle threads", nil},
	{"kthreads", "CPU time of the threads wg_tqg_N, which encrypt for WireGuard, from shares of two seconds",
		"no such threads run", nil},
	{"netdev", "of the device of an interface that is assigned and enabled", opnNotTold, nil},
	{"softnet", "of the core's netisr queues, where a packet counts once for each protocol" + opnAtEnds,
		opnNotTold, nil},
	{"conntrack", "states of pf: those now, their limit as read before the first trial and after each, " +
		"packets dropped because there was no room for one (memory), and states that were there already " +
		"(state-insert)", opnNotTold, nil},
	{"thermal", "of a core or zone" + opnAtEnds, opnNotTold, nil},
	{"memory", "of the router" + opnAtEnds, opnNotTold, nil},
	ofPeers,
}

// opnTables are the series of samples as the probes record them, or why there are none.
func opnTables(samples []taken, offset int64, why string) []record.Samples {
	out := untold(tablesOf(opnSources, samples, offset, why), "OPNsense's API does not tell it", "cpufreq",
		"softirq", "snmp", "qdisc")
	return untold(out, "what the sampling costs the router is not known: the API does not tell the CPU time "+
		"of its programs", "driver opnsense")
}

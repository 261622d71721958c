package driver

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// RouterOS runs no process of ours, and appending to what it keeps would cost more with each sample. So a
// loop of the console in one session prints a sample each second, which waits here until it is asked for. It
// goes on for as long as an address is in a list of its name (see keepAddress): a controller that was killed
// leaves nothing for long.
const (
	watchPrefix = rosMark + "-watch-"
	watchKept   = 2 * time.Minute // longer than Silence: a full router takes commands late
	sampleMark  = "chokepoint-sample "
	partMark    = "chokepoint-part"
	mostSample  = 1 << 20 // bytes of one
)

// rosSample is what a sample prints behind the time, in this order.
func rosSample() [4]string {
	return [...]string{"/system/resource/print as-value", "/system/resource/cpu/print as-value",
		"/ip/firewall/connection/tracking/print as-value", interfaceStats() + " where running"}
}

// costProbe says that there is no record.Cost. WireGuard's peers are read at both ends of a trial alone,
// since a router may have thousands.
const costProbe, wireguardProbe = "driver routeros", "wireguard"

// readClock prints the router's clock, in nanoseconds.
const readClock = `[:tonsec [:timestamp]]`

// Watch implements Sampling.
func (RouterOS) Watch(ctx context.Context, h host.Host, every time.Duration) (Watch, error) {
	list := watchPrefix + strings.TrimPrefix(newGuard(every), guardPrefix)
	w := &polled{host: h, tables: rosTables,
		clock: func(ctx context.Context) (int64, error) { // which has the loop go on, too
			out, err := console(ctx, h, ":put "+readClock, keepAddress(list, watchKept))
			if err != nil {
				return 0, err
			}
			return strconv.ParseInt(strings.TrimSpace(out), 10, 64)
		},
		besides: func(ctx context.Context, at int64) taken {
			peers, _ := items(ctx, h, peersPrint) // what is not told has no value
			return rosPeers(at, peers)
		},
		// A command that fails now may be taken the next time.
		keep: func(ctx context.Context) { _, _ = console(ctx, h, keepAddress(list, watchKept)) },
		leave: func(ctx context.Context) error {
			_, err := console(ctx, h, lists+"/remove "+find(lists, "list", list))
			return err
		}}
	return w.begin(ctx, func() (host.Process, error) {
		once := []string{":put (" + quoteROS(sampleMark) + " . " + readClock + ")"}
		for _, print := range rosSample() {
			once = append(once, ":put "+quoteROS(partMark), toJSON(print))
		}
		line := strings.Join(append(once, ":put "+quoteROS(consoleDone)), "; ")
		return h.Start(context.WithoutCancel(ctx), host.Command{Path: ":while (" + kept(list) +
			" > 0) do={" + line + "; :delay " + seconds(every) + "}"})
	}, rosLines(w.add))
}

// rosLines takes the lines of the loop and hands over each sample.
func rosLines(add func(taken, error)) func(line string) {
	var partial strings.Builder
	return func(line string) {
		line = strings.TrimRight(line, "\r")
		if strings.HasPrefix(line, sampleMark) || partial.Len() > mostSample {
			partial.Reset()
		}
		if line != consoleDone {
			partial.WriteString(line + "\n")
			return
		}
		s, err := parseROSSample(partial.String())
		partial.Reset()
		add(s, err)
	}
}

// peersPrint prints what WireGuard's peers have moved, without their keys.
const peersPrint = "/interface/wireguard/peers/print as-value proplist=interface,rx,tx,last-handshake"

// rosPeers are the peers' counters as probe wireguard has them.
func rosPeers(at int64, peers []item) taken {
	s, n := taken{at, map[string]map[string]float64{wireguardProbe: {}}}, map[string]int{}
	for _, p := range peers[:min(len(peers), mostDevices)] {
		peer := fmt.Sprintf("%s.peer%d/", check.Plain(p["interface"]), n[p["interface"]])
		n[p["interface"]]++
		s.put(wireguardProbe, peer+"rx_bytes", p["rx"], 1)
		s.put(wireguardProbe, peer+"tx_bytes", p["tx"], 1)
		if age, err := parseROSTime(p["last-handshake"]); err == nil {
			s.probes[wireguardProbe][peer+"handshake_age_ns"] = float64(age)
		}
	}
	return s
}

// parseROSSample reads what the loop prints for one sample.
func parseROSSample(text string) (s taken, err error) {
	parts := strings.Split(text, partMark+"\n")
	first, ours := strings.CutPrefix(strings.TrimSpace(parts[0]), sampleMark)
	s.at, err = strconv.ParseInt(first, 10, 64)
	if err != nil || !ours || len(parts) != 1+len(rosSample()) {
		return s, fmt.Errorf("the console says %q in %d parts, want a sample in %d",
			check.Plain(text[:min(len(text), 80)]), len(parts), 1+len(rosSample()))
	}
	s.probes = map[string]map[string]float64{"cpu": {}, "netdev": {}, "memory": {}, "conntrack": {},
		"cpufreq": {}}
	for i, part := range parts[1:] {
		all, err := parseItems(part)
		if err != nil {
			return s, err
		}
		for _, it := range all {
			s.take(i, it)
		}
	}
	return s, nil
}

// take reads a part of a sample.
func (s taken) take(part int, i item) {
	put := func(probe, column, name string, scale float64) { s.put(probe, column, i[name], scale) }
	switch part {
	case 0:
		put("memory", "total_bytes", "total-memory", 1)
		put("memory", "free_bytes", "free-memory", 1)
		put("cpufreq", "cpu/frequency_hz", "cpu-frequency", 1e6)
	case 1:
		core := i["cpu"]
		if _, err := strconv.ParseUint(strings.TrimPrefix(core, "cpu"), 10, 16); err != nil {
			return
		}
		core = "cpu" + strings.TrimPrefix(core, "cpu")
		load, known := i.number("load")
		irq, told := i.number("irq")
		if !known || load > 100 {
			return
		}
		cpu := s.probes["cpu"]
		cpu[core+"/idle_ns"] = float64(100 - load)
		if told {
			cpu[core+"/irq_ns"] = float64(min(irq, load))
			load -= min(irq, load)
		}
		cpu[core+"/unclassified_ns"] = float64(load)
	case 2:
		put("conntrack", "entries", "total-entries", 1)
		put("conntrack", "max", "max-entries", 1)
	case 3:
		name := i["name"]
		if name == "" || check.Plain(name) != name {
			return
		}
		for _, c := range counted {
			put("netdev", name+"/"+c[1], c[0], 1)
		}
		put("netdev", name+"/tx_queue_dropped", "tx-queue-drop", 1)
		put("netdev", name+"/fastpath_rx_packets", "fp-rx-packet", 1)
	}
}

// rosSources are the probes whose series RouterOS has.
var rosSources = []source{
	{"cpu", "of the core, integrated from percents of about a second, /system/resource/cpu; " +
		"unclassified_ns is work whose kind is not told", notTold, nil},
	{"netdev", "from /interface/print stats", notTold, nil},
	{"memory", "from /system/resource", notTold, nil},
	{"conntrack", "connections tracked now, and at most", notTold, nil},
	{"cpufreq", "now, from /system/resource", notTold, nil},
	ofPeers,
}

// ofPeers is of WireGuard's peers, on every system.
var ofPeers = source{wireguardProbe, "of the peer, read before the first trial and after each",
	"no peer is told of", nil}

const notTold = "the router does not tell it"

// rosTables are the series of samples as the probes record them, or why there are none.
func rosTables(samples []taken, offset int64, why string) []record.Samples {
	out := tablesOf(rosSources, samples, offset, why,
		record.Metric{Name: "unclassified_ns", Unit: "ns", Counter: true},
		record.Metric{Name: "tx_queue_dropped", Unit: "count", Counter: true},
		record.Metric{Name: "fastpath_rx_packets", Unit: "count", Counter: true})
	out = untold(out, "RouterOS does not tell it", "softirq", "softnet", "snmp", "qdisc")
	return untold(out, "what the sampling costs the router is not known: RouterOS does not tell the CPU "+
		"time of a script", costProbe)
}

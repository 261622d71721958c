package driver

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// RouterOS cannot run a process of ours, and appending to stored data would take longer with each sample.
// Therefore, a console loop in a session prints a sample at every interval, and the controller buffers the
// output until Collect. The loop runs as long as a list contains an address (see keepAddress), so it ends
// soon after the controller is killed.
const (
	watchPrefix = rosMark + "-watch-"
	watchKept   = 2 * time.Minute // more than Silence, because a saturated router executes commands late
	sampleMark  = "chokepoint-sample "
	partMark    = "chokepoint-part"
	maxSample   = 1 << 20         // maximum size of a sample in bytes
	maxLine     = 4 << 20         // maximum size of a line in bytes
	maxSamples  = 2 * keptSamples // maximum number of samples kept for the next Collect
	clockDrift  = 1e9             // maximum deviation of the router's clock between two readings, in ns
)

// rosSample returns the commands whose outputs form a sample, in this order.
func rosSample() [4]string {
	return [...]string{"/system/resource/print as-value", "/system/resource/cpu/print as-value",
		"/ip/firewall/connection/tracking/print as-value", interfaceStats() + " where running"}
}

// costProbe is the name of the series that explains why there is no record.Cost. The series of wireguardProbe
// is read only before and after a trial, because a router may have thousands of peers.
const costProbe, wireguardProbe = "driver routeros", "wireguard"

// readClock is an expression for the router's clock in ns.
const readClock = `[:tonsec [:timestamp]]`

// rosWatch is the controller's side of a watch. It buffers the output of the sampling loop that runs on the
// router.
type rosWatch struct {
	watching
	list    string // address list that keeps the loop running
	killed  error  // result of killing the loop
	samples []taken
	busy    map[string]float64 // busy time of each core since the first sample in ns, by column
	trouble error              // error of the last sample, or nil if it was parsed
}

// Watch implements Sampling.
func (RouterOS) Watch(ctx context.Context, h host.Host, every time.Duration) (Watch, error) {
	w := &rosWatch{
		watching: watching{host: h},
		list:     watchPrefix + strings.TrimPrefix(newGuard(every), guardPrefix),
	}
	once := []string{":put (" + quoteROS(sampleMark) + " . " + readClock + ")"}
	for _, print := range rosSample() {
		once = append(once, ":put "+quoteROS(partMark), toJSON(print))
	}

	line := strings.Join(append(once, ":put "+quoteROS(consoleDone)), "; ")
	err := w.meet(ctx)
	if err == nil {
		w.process, err = h.Start(context.WithoutCancel(ctx), host.Command{Path: ":while (" + kept(w.list) +
			" > 0) do={" + line + "; :delay " + seconds(every) + "}"})
	}

	if err != nil {
		return nil, failed(h, "watch", err)
	}

	w.said = host.Lines(w.process.Stderr(), func(string) {})
	w.ended = host.LongLines(w.process.Stdout(), maxLine, rosLines(w.add))
	if err := w.await(ctx, math.MinInt64); err != nil {
		return nil, errors.Join(failed(h, "watch", err), w.Close(ctx))
	}

	return w, nil
}

// meet measures the offset of the router's clock, keeps the loop running, and reads the WireGuard peers.
func (w *rosWatch) meet(ctx context.Context) error {
	now, err := relate(func() (at, step int64, err error) {
		out, err := console(ctx, w.host, ":put "+readClock, keepAddress(w.list, watchKept))
		if err == nil {
			at, err = strconv.ParseInt(strings.TrimSpace(out), 10, 64)
		}
		return at, 0, err
	})
	if err != nil {
		return err
	}

	peers, _ := items(ctx, w.host, peersPrint) // error ignored: values may be missing
	w.mu.Lock()
	defer w.mu.Unlock()
	w.met(now, rosPeers(peers))
	return nil
}

// Keep implements Watch.
func (w *rosWatch) Keep(ctx context.Context) error {
	if err := w.running(); err != nil {
		return failed(w.host, "keep sampling", err)
	}

	// Ignore errors, because the next attempt may succeed.
	_, _ = console(ctx, w.host, keepAddress(w.list, watchKept))
	return nil
}

// running returns an error if the loop has ended.
func (w *rosWatch) running() error {
	select {
	case <-w.ended:
		return errors.Join(errors.New("the sampling loop has ended"), w.over())
	default:
		return nil
	}
}

// over ends the loop and returns its error.
func (w *rosWatch) over() error {
	w.once.Do(func() {
		w.killed = w.process.Kill()
		w.wait()
	})
	return w.why
}

// add appends a sample, or records the error for it.
func (w *rosWatch) add(s taken, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.trouble = err; err != nil {
		return
	}

	since := int64(0)
	n := len(w.samples)
	if n > 0 {
		since = max(0, s.at-w.samples[n-1].at)
	}

	if w.busy == nil {
		w.busy = map[string]float64{}
	}

	// Convert percentages since the previous sample to busy time since the first sample.
	for name, percent := range s.probes["cpu"] {
		w.busy[name] += percent / 100 * float64(since)
		s.probes["cpu"][name] = w.busy[name]
	}

	w.samples = append(w.samples, s)
	w.samples = w.samples[max(0, len(w.samples)-maxSamples):]
}

// await waits for a sample that was taken no earlier than at, which is a time of the router's clock.
func (w *rosWatch) await(ctx context.Context, at int64) error {
	const patience = 30 * time.Second // long because a saturated router answers late
	for begun := host.Monotonic(); ; {
		w.mu.Lock()
		n := len(w.samples)
		trouble := w.trouble
		late := n > 0 && w.samples[n-1].at >= at
		w.mu.Unlock()
		if late {
			return nil
		}

		if err := w.running(); err != nil {
			return errors.Join(err, trouble)
		}

		if host.Monotonic()-begun > int64(patience) {
			return errors.Join(errors.New("no sample comes"), trouble)
		}

		if err := host.Pause(ctx, 20*time.Millisecond); err != nil {
			return err
		}
	}
}

// Collect implements Watch.
func (w *rosWatch) Collect(ctx context.Context, from, to int64) (d record.NodeData, err error) {
	w.mu.Lock()
	before := w.related
	w.mu.Unlock()
	if err = w.running(); err == nil {
		err = w.meet(ctx)
	}

	if err == nil {
		err = w.await(ctx, to+w.offset+w.bound)
	}

	if err != nil {
		return d, failed(w.host, "collect samples", err)
	}

	w.mu.Lock()
	defer w.mu.Unlock()
	var offset int64
	d.Clock, offset = before.until(w.related)
	samples := slices.Concat(between(w.samples, from+offset, to+offset),
		between(w.peers, from+offset, to+offset))
	why := ""
	step := time.Duration(w.offset - before.offset).Abs()
	if int64(step) > before.bound+w.bound+clockDrift {
		samples, why = nil, fmt.Sprintf("the router's clock was set, by %s", step.Round(time.Millisecond))
	}

	d.Samples = rosTables(samples, offset, why)
	return d, nil
}

// Close implements Watch.
func (w *rosWatch) Close(ctx context.Context) error {
	_, err := console(ctx, w.host, remove(lists, "list", w.list))
	_ = w.over() // returns an error, because the loop was killed
	return failed(w.host, "end the watch", errors.Join(err, w.killed))
}

// rosLines returns a function that takes the lines printed by the loop and passes complete samples to add.
func rosLines(add func(taken, error)) func(line string) {
	var partial strings.Builder
	return func(line string) {
		line = strings.TrimRight(line, "\r")
		if strings.HasPrefix(line, sampleMark) || partial.Len() > maxSample {
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

// peersPrint prints the counters of WireGuard peers without their keys.
const peersPrint = "/interface/wireguard/peers/print as-value proplist=interface,rx,tx,last-handshake"

// rosPeers returns the counters of the peers by columns of probe wireguard.
func rosPeers(peers []item) values {
	out := values{}
	n := map[string]int{}
	for _, p := range peers[:min(len(peers), maxDevices)] {
		peer := fmt.Sprintf("%s.peer%d/", check.Plain(p["interface"]), n[p["interface"]])
		n[p["interface"]]++
		out.put(peer+"rx_bytes", p["rx"], 1)
		out.put(peer+"tx_bytes", p["tx"], 1)
		if age, err := parseROSTime(p["last-handshake"]); err == nil {
			out[peer+"handshake_age_ns"] = float64(age)
		}
	}

	return out
}

// parseROSSample parses the output of one sample.
func parseROSSample(text string) (s taken, err error) {
	parts := strings.Split(text, partMark+"\n")
	first, ours := strings.CutPrefix(strings.TrimSpace(parts[0]), sampleMark)
	s.at, err = strconv.ParseInt(first, 10, 64)
	if err != nil || !ours || len(parts) != 1+len(rosSample()) {
		return s, fmt.Errorf("the console printed %q in %d parts, want a sample in %d",
			told(text), len(parts), 1+len(rosSample()))
	}

	s.probes = map[string]values{"cpu": {}, "netdev": {}, "memory": {}, "conntrack": {}, "cpufreq": {}}
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

// take adds an item to the sample. part is the index of the command in rosSample that printed the item.
func (s taken) take(part int, i item) {
	put := func(probe, column, name string, scale float64) { s.probes[probe].put(column, i[name], scale) }
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

// rosSources lists the probes that RouterOS supports.
var rosSources = []source{
	{"cpu", "of the core, integrated from percents of about a second, /system/resource/cpu; " +
		"unclassified_ns is work of an unreported kind", notReported, nil},
	{"netdev", "from /interface/print stats", notReported, nil},
	{"memory", "from /system/resource", notReported, nil},
	{"conntrack", "connections tracked now, and at most", notReported, nil},
	{"cpufreq", "now, from /system/resource", notReported, nil},
	ofPeers,
}

// ofPeers is the source of the WireGuard peers' series on all systems.
var ofPeers = source{wireguardProbe, "of the peer, read before the first trial and after each",
	"no peer is reported", nil}

const notReported = "the router does not report it"

// rosTables converts samples to series of the probes. If there are no samples, why states the reason.
func rosTables(samples []taken, offset int64, why string) []record.Samples {
	counter := func(name, unit string) record.Metric {
		return record.Metric{Name: name, Unit: unit, Counter: true}
	}
	out := seriesOf(rosSources, samples, offset, why, counter("unclassified_ns", "ns"),
		counter("tx_queue_dropped", "count"), counter("fastpath_rx_packets", "count"))
	for _, name := range []string{"softirq", "softnet", "snmp", "qdisc", costProbe} {
		s := record.Samples{Probe: name, Scope: record.ScopeHost, Unavailable: "RouterOS does not report it"}
		if name == costProbe {
			s.Unavailable = "what the sampling costs the router is unknown: RouterOS does not report the " +
				"CPU time of a script"
		}

		out = append(out, s)
	}

	return out
}

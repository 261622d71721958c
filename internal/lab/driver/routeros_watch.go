package driver

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// RouterOS runs no process of ours, and appending to what it keeps would cost more with each sample. So a
// loop of the console in one session prints a sample each second, which waits here until it is asked for. It
// goes on for as long as an address is in a list of its name (see keepAddress): a controller that was killed
// leaves nothing for long. Where a session cannot go on (host.Repeater), each sample is asked for.
const (
	watchPrefix = rosMark + "-watch-"
	watchKept   = 2 * time.Minute // longer than Silence: a full router takes commands late
	sampleMark  = "chokepoint-sample "
	partMark    = "chokepoint-part"
	mostSamples = 2 * keptSamples // are held for those who ask
	mostSample  = 1 << 20         // bytes of one
	clockDrift  = 1e9             // in ns, by which the router's clock may go otherwise between two readings
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
	w := &rosWatch{host: h, list: watchPrefix + strings.TrimPrefix(newGuard(every), guardPrefix),
		busy: map[string]float64{}}
	err := w.relate(ctx)
	if err == nil {
		once := []string{":put (" + quoteROS(sampleMark) + " . " + readClock + ")"}
		for _, print := range rosSample() {
			once = append(once, ":put "+quoteROS(partMark), toJSON(print))
		}
		line := strings.Join(append(once, ":put "+quoteROS(consoleDone)), "; ")
		if r, repeats := h.(host.Repeater); repeats {
			w.loop, err = r.Repeat(context.WithoutCancel(ctx), host.Command{Path: line}, every)
		} else {
			w.loop, err = h.Start(context.WithoutCancel(ctx), host.Command{Path: ":while (" + kept(w.list) +
				" > 0) do={" + line + "; :delay " + seconds(every) + "}"})
		}
	}
	if err != nil {
		return nil, fmt.Errorf("watch %s: %w", h.Name(), err)
	}
	w.said = host.Lines(w.loop.Stderr(), func(string) {})
	w.ended = host.Lines(w.loop.Stdout(), w.hear)
	if err := w.await(ctx, math.MinInt64); err != nil {
		return nil, errors.Join(fmt.Errorf("watch %s: %w", h.Name(), err), w.Close(ctx))
	}
	return w, nil
}

// rosWatch is the controller's half.
type rosWatch struct {
	host        host.Host
	list        string
	loop        host.Process
	said, ended <-chan struct{}
	closed      bool

	mu            sync.Mutex
	offset, bound int64 // the router's clock = our CLOCK_MONOTONIC + offset, ± bound
	partial       strings.Builder
	samples       []rosTaken
	peers         []rosTaken
	busy          map[string]float64 // what each core has worked so far, by column
	trouble       error              // of the last sample that could not be read
}

// rosTaken is one sample: the columns of each probe.
type rosTaken struct {
	at     int64 // the router's clock
	probes map[string]map[string]float64
}

func (s rosTaken) when() int64 { return s.at }

// peersPrint prints what WireGuard's peers have moved, without their keys.
const peersPrint = "/interface/wireguard/peers/print as-value proplist=interface,rx,tx,last-handshake"

// relate has the loop go on, reads the router's clock between two readings of ours, and then the peers.
func (w *rosWatch) relate(ctx context.Context) error {
	before := host.Monotonic()
	out, err := console(ctx, w.host, ":put "+readClock, keepAddress(w.list, watchKept))
	after := host.Monotonic()
	at := int64(0)
	if err == nil {
		at, err = strconv.ParseInt(strings.TrimSpace(out), 10, 64)
	}
	if err != nil {
		return fmt.Errorf("relate the clock: %w", err)
	}
	peers, _ := items(ctx, w.host, peersPrint) // what is not told has no value
	w.mu.Lock()
	defer w.mu.Unlock()
	w.offset, w.bound = at-(before+(after-before)/2), (after-before)/2+1
	w.peers = append(w.peers, rosPeers(host.Monotonic()+w.offset, peers))
	w.peers = w.peers[max(0, len(w.peers)-mostSamples):]
	return nil
}

// rosPeers are the peers' counters as probe wireguard has them.
func rosPeers(at int64, peers []item) rosTaken {
	s, n := rosTaken{at, map[string]map[string]float64{wireguardProbe: {}}}, map[string]int{}
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

// Keep implements Watch. A command that fails now may be taken the next time.
func (w *rosWatch) Keep(ctx context.Context) error {
	select {
	case <-w.ended:
		return fmt.Errorf("keep %s sampled: the loop has ended", w.host.Name())
	default:
	}
	_, _ = console(ctx, w.host, keepAddress(w.list, watchKept))
	return nil
}

// hear takes a line of the loop.
func (w *rosWatch) hear(line string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	line = strings.TrimRight(line, "\r")
	if strings.HasPrefix(line, sampleMark) || w.partial.Len() > mostSample {
		w.partial.Reset()
	}
	if line != consoleDone {
		w.partial.WriteString(line + "\n")
		return
	}
	s, err := parseROSSample(w.partial.String())
	w.partial.Reset()
	if w.trouble = err; err != nil {
		return
	}
	if n := len(w.samples); n > 0 {
		w.work(s, s.at-w.samples[n-1].at)
	} else {
		w.work(s, 0)
	}
	w.samples = append(w.samples, s)
	w.samples = w.samples[max(0, len(w.samples)-mostSamples):]
}

// work turns a core's shares of the time since the sample before into what it has worked since the first.
func (w *rosWatch) work(s rosTaken, since int64) {
	cpu := s.probes["cpu"]
	for name, percent := range cpu {
		w.busy[name] += percent / 100 * float64(max(since, 0))
		cpu[name] = w.busy[name]
	}
}

// parseROSSample reads what the loop prints for one sample.
func parseROSSample(text string) (s rosTaken, err error) {
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

// put takes a value; what is not told has none.
func (s rosTaken) put(probe, column, text string, scale float64) {
	n, err := strconv.ParseFloat(strings.TrimSuffix(text, "%"), 64)
	if err == nil && n >= 0 && !math.IsInf(n, 0) {
		s.probes[probe][column] = n * scale
	}
}

// take reads a part of a sample.
func (s rosTaken) take(part int, i item) {
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
		cpu[core+"/untold_ns"] = float64(load)
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

// await waits for a sample later than a time of the router's.
func (w *rosWatch) await(ctx context.Context, at int64) error {
	const patience = 30 * time.Second // a full router answers late
	for begun := host.Monotonic(); ; {
		w.mu.Lock()
		n, trouble := len(w.samples), w.trouble
		late := n > 0 && w.samples[n-1].at >= at
		w.mu.Unlock()
		if late {
			return nil
		}
		select {
		case <-w.ended:
			return errors.Join(errors.New("the sampling loop has ended"), trouble)
		default:
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
	clock := record.Clock{OffsetBefore: w.offset, BoundBefore: w.bound}
	closed := w.closed
	w.mu.Unlock()
	if closed {
		err = errors.New("it is closed")
	} else {
		err = w.relate(ctx)
	}
	if err == nil {
		err = w.await(ctx, to+w.offset+w.bound)
	}
	if err != nil {
		return d, fmt.Errorf("collect samples of %s: %w", w.host.Name(), err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	clock.OffsetAfter, clock.BoundAfter = w.offset, w.bound
	offset := clock.OffsetBefore + (clock.OffsetAfter-clock.OffsetBefore)/2
	d.Clock = clock
	taken, why := slices.Concat(between(w.samples, rosTaken.when, from+offset, to+offset),
		between(w.peers, rosTaken.when, from+offset, to+offset)), ""
	step := time.Duration(clock.OffsetAfter - clock.OffsetBefore).Abs()
	if int64(step) > clock.BoundBefore+clock.BoundAfter+clockDrift {
		taken, why = nil, fmt.Sprintf("the router's clock was set, by %s", step.Round(time.Millisecond))
	}
	d.Samples = rosTables(taken, offset, why)
	return d, nil
}

// rosSources are the probes whose series RouterOS has.
var rosSources = []source{
	{"cpu", "of the core, integrated from percents of about a second, /system/resource/cpu; untold_ns is " +
		"work whose kind is not told", notTold, nil},
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
func rosTables(samples []rosTaken, offset int64, why string) []record.Samples {
	read := map[string]*replayed{}
	for _, x := range rosSources {
		read[x.probe] = &replayed{why: why}
	}
	for _, s := range samples {
		for name, told := range s.probes {
			var row values
			for _, column := range slices.Sorted(maps.Keys(told)) {
				row.add(column, told[column])
			}
			read[name].add(s.at-offset, row.names, row.v)
		}
	}
	out := seriesOf(rosSources, read, record.Metric{Name: "untold_ns", Unit: "ns", Counter: true},
		record.Metric{Name: "tx_queue_dropped", Unit: "count", Counter: true},
		record.Metric{Name: "fastpath_rx_packets", Unit: "count", Counter: true})
	for _, name := range []string{"softirq", "softnet", "snmp", "qdisc"} {
		out = append(out, record.Samples{Probe: name, Scope: record.ScopeHost,
			Unavailable: "RouterOS does not tell it"})
	}
	return append(out, record.Samples{Probe: costProbe, Scope: record.ScopeHost, Unavailable: "what the " +
		"sampling costs the router is not known: RouterOS does not tell the CPU time of a script"})
}

// Close implements Watch.
func (w *rosWatch) Close(ctx context.Context) error {
	w.mu.Lock()
	closed := w.closed
	w.closed = true
	w.mu.Unlock()
	if closed {
		return nil
	}
	_, err := console(ctx, w.host, lists+"/remove "+find(lists, "list", w.list))
	err = errors.Join(err, w.loop.Kill())
	<-w.ended
	<-w.said
	_, _ = w.loop.Wait() // it was killed
	if err != nil {
		return fmt.Errorf("end the watch of %s: %w", w.host.Name(), err)
	}
	return nil
}

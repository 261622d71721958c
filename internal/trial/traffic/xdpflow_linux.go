//go:build !mips && !mipsle

package traffic

import (
	"fmt"
	"strconv"
	"sync"

	"github.com/chokepoint-lab/chokepoint/internal/lab/kernel"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/trial/probe/bpf"
)

// xdpPort is the device of one end, with everything that it sends and counts.
type xdpPort struct {
	frames   *bpf.Frames
	request  request
	hop      kernel.Hop
	sends    bool
	receives bool
	core     int // of the sending thread
	close1   sync.Once

	// Owned by the meter until the run has ended.
	err     error
	sent    [][3]int64 // by flow and phase
	last    bpf.Sent
	arrived []bpf.Arrived
	device  [2]kernel.LinkCounters // at the window's edges
}

// xdpFlow is one end of one stream in one direction.
type xdpFlow struct {
	port    *xdpPort
	key     flowKey
	sends   bool
	index   int  // among those of its direction
	first   bool // of the end's flows; it does the work of all
	leads   bool // the first of those that send
	addr    string
	payload int
	perNs   float64 // frames asked for; 0 = flat out
	table   *record.Table
}

// newXDPPort loads and attaches the programs for a load whose flows have
// greeted each other, and makes the lanes' flows.
func newXDPPort(l *lanes, g *greeting) (*xdpPort, error) {
	q := l.request
	p := &xdpPort{request: q}
	load := bpf.Load{IP: q.Load.IP, Tag: tagHash("frames " + q.Load.Tag), PacketSize: q.Load.PacketSize,
		DSCP: q.Load.DSCP, PPS: ratePPS(q.Load)}
	for i, k := range l.keys {
		local, remote := g.local[i], g.remote[i]
		f := &xdpFlow{port: p, key: k, sends: k.sends(q.Side), first: i == 0, addr: local.String(),
			payload: q.Load.PacketSize - packetOverhead(q.Load.IP), table: record.NewTable("bytes", "packets")}
		f.perNs = load.PPS / float64(q.Load.Streams) / 1e9
		if f.sends {
			f.index, f.leads = len(load.Send), len(load.Send) == 0
			load.Send = append(load.Send, bpf.Tuple{From: local, To: remote})
		} else {
			f.index = len(load.Receive)
			load.Receive = append(load.Receive, bpf.Tuple{From: remote, To: local})
		}
		l.flows = append(l.flows, f)
	}
	p.sends, p.receives = len(load.Send) > 0, len(load.Receive) > 0
	p.sent = make([][3]int64, len(load.Send))
	p.arrived = make([]bpf.Arrived, len(load.Receive))
	var err error
	if p.hop, err = kernel.NextHop(g.remote[0].Addr()); err != nil {
		return nil, err
	}
	if len(p.hop.MAC) != 6 || len(p.hop.Source) != 6 {
		return nil, fmt.Errorf("send frames by %s: the layer-2 address of %v is not known", p.hop.Device, p.hop.Addr)
	}
	load.Source, load.Next, load.Shared = p.hop.Source, p.hop.MAC, p.hop.RxQueues > 1
	if p.frames, err = bpf.Open(load, p.hop.Index); err != nil {
		return nil, err
	}
	if err := p.frames.Attach(p.hop.Index); err != nil {
		p.frames.Close()
		return nil, err
	}
	if p.sends {
		l.crews = append(l.crews, xdpSender{p})
	}
	if p.receives {
		l.crews = append(l.crews, xdpSink{})
	}
	p.describe(l)
	return p, nil
}

// describe says how this end sends and counts.
func (p *xdpPort) describe(l *lanes) {
	burst, stamped := p.frames.Burst()
	p.core = -1
	if cpus := allowedCPUs(); len(cpus) > 0 {
		p.core = cpus[0]
		if p.request.Side == "near" { // both ends may send, on one machine
			p.core = cpus[len(cpus)-1]
		}
	}
	l.details["device"] = fmt.Sprintf("%s (%s), %d receive queues", p.hop.Device, p.hop.Kind, p.hop.RxQueues)
	l.details["attached"] = "XDP program in the driver of " + p.hop.Device + ", gone with the load"
	mode := "xdp: counted in the driver"
	if p.sends {
		mode = fmt.Sprintf("xdp: live frames from one thread, bursts of %d, one frame in %d with its time", burst, stamped)
		l.details["core"] = strconv.Itoa(p.core)
	}
	l.mode = func() string { return mode }
}

// xdpSender is the thread that sends for all flows of an end.
type xdpSender struct{ *xdpPort }

func (xdpSender) name() string { return "the sender of frames" }

func (s xdpSender) run(ph *phases) error {
	if err := pinThread(s.core); err != nil {
		return err
	}
	return s.frames.Send(bpf.Timeline{Begin: ph.Begin, Start: ph.Start, End: ph.End, Stop: ph.senders})
}

// xdpSink waits while the driver counts.
type xdpSink struct{}

func (xdpSink) name() string { return "the sink of frames" }

func (xdpSink) run(ph *phases) error {
	sleepUntil(min(ph.Stop, ph.senders+int64(xdpDrain)), &ph.stop)
	return nil
}

func (f *xdpFlow) unblock(urgency) {
	if f.leads {
		f.port.frames.Stop()
	}
}

// refresh reads what the programs have counted.
func (p *xdpPort) refresh() {
	if p.sends {
		s, err := p.frames.Sent()
		if err != nil {
			p.err = err
			return
		}
		for i := range s.Flows {
			for phase := range s.Flows[i] {
				var before uint32
				if i < len(p.last.Flows) {
					before = p.last.Flows[i][phase]
				}
				p.sent[i][phase] += int64(s.Flows[i][phase] - before) // modulo 2^32
			}
		}
		p.last = s
	}
	if p.receives {
		a, err := p.frames.Arrived()
		if err != nil {
			p.err = err
			return
		}
		p.arrived = a
	}
}

// windowEnd is when the sender saw that the window was over; 0 = never.
func (p *xdpPort) windowEnd() int64 {
	if t := p.last.Turned[bpf.Cooldown]; t > 0 {
		return t
	}
	return p.last.Turned[bpf.Cooldown+1]
}

func (f *xdpFlow) packets() int64 {
	if !f.sends {
		return f.port.arrived[f.index].All
	}
	s := f.port.sent[f.index]
	return s[bpf.Warmup] + s[bpf.Window] + s[bpf.Cooldown]
}

func (f *xdpFlow) sample(at int64, e edge) {
	if f.first {
		f.port.refresh()
		if e != noEdge {
			c, err := kernel.Counters(f.port.hop.Device)
			if err != nil {
				f.port.err = err
			}
			f.port.device[e-startEdge] = c
		}
	}
	n := f.packets()
	f.table.Append(at, float64(n*int64(f.payload)), float64(n))
}

// received is asked beside the meter: it reads for itself.
func (f *xdpFlow) received() (bytes, packets int64) {
	if !f.first || !f.port.receives {
		return 0, 0
	}
	all, err := f.port.frames.Arrived()
	if err != nil {
		return 0, 0
	}
	for _, a := range all {
		packets += a.All
	}
	return packets * int64(f.payload), packets
}

func (f *xdpFlow) report() flowReport {
	p := f.port
	if f.first {
		p.refresh()
	}
	r := flowReport{Sends: f.sends, Addr: f.addr, Table: f.table}
	if f.sends {
		r.Sent = p.sent[f.index][bpf.Window]
		r.Bytes = r.Sent * int64(f.payload)
		r.Ns = p.windowEnd() - p.last.Turned[bpf.Window]
		r.Unsent = max(0, int64(f.perNs*float64(r.Ns))-r.Sent)
		return r
	}
	a := p.arrived[f.index]
	r.Received, r.Lost, r.Duplicates, r.Reordered = a.Received, a.Lost, a.Duplicates, a.Reordered
	r.Bytes, r.Ns = a.Received*int64(f.payload), a.Last-a.First
	r.Highest, r.Announced = int64(a.Next), -1
	return r
}

func (f *xdpFlow) notes() map[string]int64 {
	p, notes := f.port, map[string]int64{}
	if f.sends {
		notes["frames_sent"] = f.packets() // in all phases
	} else {
		a := p.arrived[f.index]
		notes["frames_arrived"] = a.All
		notes["stray_packets"] = a.Wrong + a.Strange
		notes["ancient_packets"] = a.Ancient
		notes["contended_packets"] = a.Contended
	}
	if f.leads {
		notes["device_drops"] = int64(p.device[1].TxDropped - p.device[0].TxDropped)
	}
	return notes
}

func (f *xdpFlow) close() {
	f.port.close1.Do(func() { f.port.frames.Close() })
}

// finish completes the report, or says why it is worth nothing.
func (p *xdpPort) finish(r *endReport) error {
	if p.err != nil {
		return p.err
	}
	if p.sends && (p.last.Turned[bpf.Window] == 0 || p.windowEnd() == 0) {
		return fmt.Errorf("send frames by %s: core %d had no time for the sender at an edge of the window", p.hop.Device, p.core)
	}
	var sent int64
	for _, s := range p.sent {
		sent += s[bpf.Window]
	}
	left := int64(p.device[1].TxPackets-p.device[0].TxPackets) + int64(p.device[1].TxDropped-p.device[0].TxDropped)
	if sent > 1000 && left < sent/100 {
		return fmt.Errorf("send frames by %s: of %d sent in the window it let out %d: whatever it leads to takes no frames (it needs an XDP program or GRO)",
			p.hop.Device, sent, left)
	}
	r.Boot = bootID()
	if !p.receives {
		return nil
	}
	counts, early, err := p.frames.Delays()
	if err != nil {
		return err
	}
	if early > 0 {
		return nil // another clock
	}
	for i, n := range counts {
		if n > 0 {
			r.Delays = append(r.Delays, record.DelayCounts{FromNs: bpf.DelayBucket(i), Packets: n})
		}
	}
	return nil
}

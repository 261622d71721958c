package frames

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/lab/kernel"
	"github.com/chokepoint-lab/chokepoint/internal/probe/bpf"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/trial/traffic"
)

// xdpPort holds the device of one endpoint, with all flows that it sends and counts.
type xdpPort struct {
	frames   *bpf.Frames   // program that sends test-run frames or counts in the driver; or nil
	senders  []*xdpSender  // threads that send test-run frames
	tx       *packetSocket // socket that sends frames, or nil
	request  traffic.Request
	hop      kernel.Hop
	load     bpf.Load
	sender   choice
	sink     choice
	sending  []*xdpFlow
	counting []*xdpFlow // received flows

	began [bpf.Cooldown + 2]int64 // start of each phase, set only by the thread of a packetSocket

	// The following fields belong to the meter until the run has ended.
	err     error
	sent    [][3]int64 // test-run frames by flow and phase
	arrived []bpf.Arrived
	device  [2]kernel.LinkCounters // at the start and end of the window
	dropped [2]int64               // frames dropped by the sockets, at the start and end of the window
}

// xdpFlow is one end of a stream in one direction.
type xdpFlow struct {
	port   *xdpPort
	thread *xdpSender // thread that sends the flow's test-run frames, or nil
	sends  bool
	index  int  // index among the flows with the same direction
	first  bool // first flow of this end, which does the shared work of all flows
	sizes  traffic.Sizes
	mean   float64 // mean payload per frame, in bytes
	perNs  float64 // requested frames per ns; 0 means full rate
	table  *record.Table

	// The socket that sent the hello, and its addresses. At a listener, several flows share it.
	socket        *traffic.Socket
	local, remote netip.AddrPort

	// The following fields are for frames that a socket sends or receives. All of them except moved are used
	// only by the socket's thread.
	moved      atomic.Int64 // number of frames in all phases
	total      int64        // same number, for use by the thread
	window     int64        // number of frames sent in the window
	bytes      int64        // payload received in the window, in bytes
	sequence   traffic.Sequence
	wrong      int64 // number of frames with a wrong length, or of an unknown flow
	from, till int64
}

// newXDPPort creates the flows of an endpoint.
func newXDPPort(l *traffic.Endpoint) *xdpPort {
	q := l.Request
	p := &xdpPort{request: q}
	p.load = bpf.Load{
		IP:         q.Load.IP,
		Tag:        traffic.TagHash(traffic.TagFrames, q.Load.Tag),
		PacketSize: slices.Max(q.Load.PacketSizes()),
		Sizes:      q.Load.Sizes,
		DSCP:       q.Load.DSCP,
		PPS:        ratePPS(q.Load),
	}
	for i, k := range l.Keys {
		f := &xdpFlow{
			port:  p,
			sends: k.Sends(q.Side),
			first: i == 0,
			mean:  traffic.MeanPayload(q.Load),
			perNs: p.load.PPS / float64(q.Load.Streams) / 1e9,
			table: record.NewTable("bytes", "packets"),
		}
		of := &p.counting
		if f.sends {
			of = &p.sending
		}

		f.index = len(*of)
		f.sizes = traffic.SizesOf(q.Load, f.index)
		*of = append(*of, f)
		l.Flows = append(l.Flows, f)
	}

	l.Release = p.close
	p.sent = make([][3]int64, len(p.sending))
	p.arrived = make([]bpf.Arrived, len(p.counting))
	return p
}

// start prepares to send and count frames, after the hellos.
func (p *xdpPort) start(l *traffic.Endpoint) error {
	for _, f := range p.sending {
		p.load.Send = append(p.load.Send, bpf.Tuple{From: f.local, To: f.remote})
	}

	for _, f := range p.counting {
		p.load.Receive = append(p.load.Receive, bpf.Tuple{From: f.remote, To: f.local})
	}

	var err error
	if p.hop, err = kernel.NextHop(l.Flows[0].(*xdpFlow).remote.Addr()); err == nil {
		err = p.choose()
	}

	if err == nil {
		err = p.open()
	}

	if err != nil {
		return err
	}

	if p.tx != nil {
		l.Workers = append(l.Workers, newTxSender(p, p.sending))
	}

	for _, s := range p.senders {
		l.Workers = append(l.Workers, s)
		for i := range s.share.Send {
			p.sending[s.share.Base+i].thread = s
		}
	}

	switch p.sink.mode {
	case record.SinkDriver:
		l.Workers = append(l.Workers, xdpSink{func() (int64, error) { return arrivedOf(p.frames) }})
	case record.SinkSockets:
		l.Workers = append(l.Workers, newFrameReader(p.counting, p.load.Tag))
	}

	p.describe(l)
	l.Finish = p.finish
	return nil
}

// choose selects the modes in which this endpoint sends and counts.
func (p *xdpPort) choose() error {
	w, err := surveyDevice(p.hop)
	if err != nil {
		return err
	}

	if len(p.sending) > 0 {
		if p.sender = w.sender(p.request.Load); p.sender.mode == "" {
			return fmt.Errorf("send frames by %s: %s", p.hop.Device, p.sender.instead)
		}

		if len(p.hop.MAC) != 6 {
			return fmt.Errorf("send frames by %s: the layer-2 address of %v is not known", p.hop.Device,
				p.hop.Addr)
		}
	}

	if len(p.counting) > 0 {
		if p.sink = w.sink(p.request.Load); p.sink.mode == "" {
			return fmt.Errorf("count frames at %s: %s", p.hop.Device, p.sink.instead)
		}
	}

	return nil
}

// open loads and attaches the programs, or opens the sending socket.
func (p *xdpPort) open() error {
	p.load.Source, p.load.Next, p.load.Shared = p.hop.Source, p.hop.MAC, p.hop.RxQueues > 1
	var err error
	kernels := p.load // the part of the load that the program at the device handles
	kernels.Send = nil
	if p.sink.mode != record.SinkDriver {
		kernels.Receive = nil
	}

	switch {
	case p.sender.mode == record.FramesPacket:
		if p.tx, err = openPacket(p.hop.Index, bpf.NewWriter(p.load)); err != nil {
			return err
		}
	case p.sender.mode == record.FramesLive:
		p.senders = p.shares()
		kernels.Send = p.senders[0].share.Send
		kernels.PPS = p.senders[0].share.PPS
	}

	if len(kernels.Send)+len(kernels.Receive) == 0 {
		return nil
	}

	if p.frames, err = bpf.Open(kernels, p.hop.Index); err != nil {
		return err
	}

	for i, s := range p.senders {
		if s.frames = p.frames; i == 0 {
			continue
		}

		if s.frames, err = bpf.Open(s.share, p.hop.Index); err != nil {
			return err
		}
	}

	if err := p.frames.Attach(p.hop.Index); err != nil {
		return err
	}

	for _, s := range p.senders {
		s.enter()
	}

	for _, s := range p.senders {
		if err := s.awaitRunning(); err != nil {
			return err
		}
	}

	return nil
}

// describe records the modes in which this endpoint sends and counts.
func (p *xdpPort) describe(l *traffic.Endpoint) {
	l.Details["device"] = fmt.Sprintf("%s (%s), %d receive queues", p.hop.Device, p.hop.Kind, p.hop.RxQueues)
	if p.frames != nil {
		l.Details["attached"] = "XDP program in the driver of " + p.hop.Device + ", gone with the load"
	}

	var parts, lesser []string
	say := func(c choice, what string) {
		if c.instead != "" {
			what += " (" + c.instead + ")"
			lesser = append(lesser, what)
		}

		parts = append(parts, what)
	}
	if p.sender.mode != "" {
		l.Details["sent_by"] = p.sender.mode
		if p.tx != nil {
			_, stamped := bpf.BurstOf(p.load.PPS)
			say(p.sender, fmt.Sprintf("%s from one thread, bursts of at most %d, one frame in %d with "+
				"its time", modeNames[p.sender.mode], txBurst, stamped))
		} else {
			what, cores := describeSenders(p.senders)
			say(p.sender, what)
			l.Details["core"] = cores
		}
	}

	if p.sink.mode != "" {
		l.Details["counted_by"] = p.sink.mode
		what := modeNames[p.sink.mode]
		if p.sink.mode == record.SinkSockets {
			what += ", polled each " + traffic.ReceivePoll.String() +
				": what the receiver's stack had no time for is lost too, and no delay is known"
		}

		say(p.sink, what)
	}

	if len(lesser) > 0 {
		l.Details["fell_back"] = strings.Join(lesser, "; ")
	}

	mode := "xdp: " + strings.Join(parts, "; ")
	l.Mode = func() string { return mode }
}

// xdpSink is the worker of a receiver whose driver counts the frames. It waits until no more frames arrive.
type xdpSink struct {
	arrived func() (int64, error) // returns the number of frames of all flows and phases so far
}

func (xdpSink) Name() string { return "the sink of frames" }

func (s xdpSink) Run(ph *traffic.Phases) error {
	traffic.SleepUntil(min(ph.Senders, ph.Stop), &ph.Abandoned)
	before := int64(-1)
	last := ph.Senders
	for {
		n, err := s.arrived()
		if err != nil {
			return err
		}

		if n != before {
			before, last = n, max(last, traffic.Monotonic())
		}

		// Check the time only after reading the counters, because a thread that woke late has not yet seen
		// the frames that arrived meanwhile.
		if ph.Over(min(ph.Stop, last+int64(xdpDrain))) {
			return nil
		}

		traffic.SleepUntil(min(ph.Stop, traffic.Monotonic()+int64(xdpDrain)/3), &ph.Abandoned)
	}
}

// arrivedOf returns the number of frames that the driver has counted in all flows and phases.
func arrivedOf(frames *bpf.Frames) (n int64, err error) {
	all, err := frames.Arrived()
	for _, a := range all {
		n += a.All
	}
	return n, err
}

func (f *xdpFlow) Unblock(traffic.Urgency) {
	if f.first {
		for _, s := range f.port.senders {
			s.frames.Stop()
		}
	}
}

// refresh reads the counters of the programs.
func (p *xdpPort) refresh() {
	for _, s := range p.senders {
		if err := s.refresh(); err != nil {
			p.err = err
			return
		}
	}

	if p.sink.mode == record.SinkDriver {
		a, err := p.frames.Arrived()
		if err != nil {
			p.err = err
			return
		}

		p.arrived = a
	}
}

// sendPhases holds the times at which a sender entered each phase (0 if it did not) and at which it ended.
// For a packetSocket, the times are valid after the run.
type sendPhases struct {
	began [bpf.Cooldown + 2]int64
	ended int64
}

// window returns the duration of the window according to the sender's times, or 0 if a time is missing.
func (c sendPhases) window() int64 {
	end := c.ended // applies if the sender was still sending frames of the window
	for _, t := range c.began[bpf.Cooldown:] {
		if t > 0 {
			end = t
			break
		}
	}

	if end == 0 || c.began[bpf.Window] == 0 {
		return 0
	}

	return end - c.began[bpf.Window]
}

// sendPhases returns the times of the thread that sends the flow.
func (f *xdpFlow) sendPhases() sendPhases {
	if f.thread == nil {
		return sendPhases{began: f.port.began}
	}
	return sendPhases{f.thread.last.Began, f.thread.ended}
}

// bySocket reports whether a thread of this process counts the flow's frames.
func (f *xdpFlow) bySocket() bool {
	if f.sends {
		return f.port.tx != nil
	}
	return f.port.sink.mode == record.SinkSockets
}

func (f *xdpFlow) packets() int64 {
	if f.bySocket() {
		return f.moved.Load()
	}

	if !f.sends {
		return f.port.arrived[f.index].All
	}

	s := f.port.sent[f.index]
	return s[bpf.Warmup] + s[bpf.Window] + s[bpf.Cooldown]
}

func (f *xdpFlow) Sample(at int64, e traffic.Edge) {
	if f.first {
		f.port.refresh()
		if e != traffic.NoEdge {
			c, err := kernel.Counters(f.port.hop.Device)
			if err != nil {
				f.port.err = err
			}

			f.port.device[e-traffic.StartEdge] = c
			if f.port.sink.mode == record.SinkSockets {
				f.port.dropped[e-traffic.StartEdge] = f.port.socketDrops()
			}
		}
	}

	n := f.packets()
	f.table.Append(at, float64(f.sizes.Bytes(uint64(n))), float64(n))
}

// Received returns the counts so far. It reads the counters itself, because it may run concurrently with
// the meter.
func (f *xdpFlow) Received() (bytes, packets int64) {
	if !f.sends && f.bySocket() {
		packets = f.moved.Load()
	} else if f.first && f.port.sink.mode == record.SinkDriver {
		packets, _ = arrivedOf(f.port.frames)
	}
	return int64(float64(packets) * f.mean), packets
}

func (f *xdpFlow) Report() traffic.FlowReport {
	r := f.account()
	r.Notes = f.notes()
	return r
}

func (f *xdpFlow) account() traffic.FlowReport {
	p := f.port
	if f.first {
		p.refresh()
	}

	r := traffic.FlowReport{Sends: f.sends, Addr: f.local.String(), Table: f.table}
	if f.sends {
		r.Sent = f.window
		if p.tx == nil {
			r.Sent = p.sent[f.index][bpf.Window]
		}

		r.Bytes = f.sizes.Bytes(uint64(r.Sent))
		r.Ns = f.sendPhases().window()
		if p.tx != nil {
			r.Unsent = f.unsent(r.Sent, r.Ns)
			return r
		}

		// The number of frames due in the window includes those that were sent late.
		r.Unsent = f.unsent(r.Sent, int64(p.request.Load.Duration))
		if r.Ns > 0 && r.Unsent <= r.Sent {
			r.Ns = p.atLeastDue(r.Ns)
		}

		return r
	}

	if f.bySocket() {
		f.sequence.Finish(f.sequence.Next) // only the sender knows how many frames follow
		r.Packets, r.Highest, r.Announced = f.sequence.Packets(), int64(f.sequence.Next), -1
		r.Bytes = f.bytes
		r.Ns = f.till - f.from
		return r
	}

	a := p.arrived[f.index]
	r.Packets = record.Packets{
		Received:   a.Received,
		Lost:       a.Lost,
		Duplicates: &a.Duplicates,
		Reordered:  &a.Reordered,
	}
	r.Bytes, r.Ns = a.Bytes, p.atLeastDue(a.Last-a.First)
	r.Highest = int64(a.Next)
	r.Announced = -1
	return r
}

// unsent returns the number of frames that the rate requires in ns nanoseconds, minus the number sent.
func (f *xdpFlow) unsent(sent, ns int64) int64 { return max(0, int64(f.perNs*float64(ns))-sent) }

// atLeastDue returns the duration of the window to report, given the measured duration. With a packet rate,
// it is at least the planned duration, because a sender that began the window late has caught up.
func (p *xdpPort) atLeastDue(ns int64) int64 {
	if p.load.PPS > 0 {
		return max(ns, int64(p.request.Load.Duration))
	}
	return ns
}

func (f *xdpFlow) notes() map[string]int64 {
	p := f.port
	notes := map[string]int64{}
	switch {
	case f.sends:
		notes["frames_sent"] = f.packets() // number in all phases
		if f.index > 0 {
			break
		}

		notes["device_drops"] = int64(p.device[1].TxDropped - p.device[0].TxDropped)
		for _, s := range p.senders {
			notes["waited_ns"] = max(notes["waited_ns"], s.waited)
			if f.perNs > 0 {
				notes["late_ns"] = max(notes["late_ns"], s.last.Late)
				// The window is the first phase of a burst, because a burst has no warm-up.
				began := cmp.Or(s.last.Began[bpf.Warmup], s.last.Began[bpf.Window])
				notes["began_late_ns"] = max(notes["began_late_ns"], began-s.begin)
			}
		}
	case f.bySocket():
		notes["frames_arrived"] = f.packets()
		notes["stray_packets"] = f.wrong + f.sequence.Strange
		notes["ancient_packets"] = f.sequence.Ancient
		if f.index == 0 {
			notes["socket_drops"] = p.dropped[1] - p.dropped[0]
			notes["frames_dropped"] = p.socketDrops() // number in all phases
		}
	default:
		a := p.arrived[f.index]
		notes["frames_arrived"] = a.All
		notes["stray_packets"] = a.Wrong + a.Strange
		notes["ancient_packets"] = a.Ancient
		notes["contended_packets"] = a.Contended
	}

	return notes
}

// socketDrops returns the number of packets that the flows' sockets dropped because their buffers were
// full.
func (p *xdpPort) socketDrops() (n int64) {
	var last *traffic.Socket
	for _, f := range p.counting {
		if f.socket != last { // because the flows of a listener share a socket
			n += int64(f.socket.SocketDrops())
		}

		last = f.socket
	}
	return n
}

func (f *xdpFlow) Close() {
	if f.socket != nil {
		f.socket.Close()
	}
}

func (p *xdpPort) close() {
	for _, s := range p.senders {
		s.leave()
	}

	if p.frames != nil {
		p.frames.Close()
	}

	for _, s := range p.senders {
		if s.frames != nil && s.frames != p.frames {
			s.frames.Close()
		}
	}

	if p.tx != nil {
		p.tx.Close()
	}
}

// finish completes the report. It returns an error if the counts are unusable.
func (p *xdpPort) finish(r *traffic.EndReport) error {
	if p.err != nil {
		return p.err
	}

	if len(p.senders) > 0 {
		if err := p.checkTaken(); err != nil {
			return err
		}
	}

	r.Boot = host.BootID()
	if p.sink.mode != record.SinkDriver {
		return nil
	}

	counts, early, err := p.frames.Delays()
	if err != nil {
		return err
	}

	if early > 0 {
		return nil // not comparable, because the sender uses another clock
	}

	for i, n := range counts {
		if n > 0 {
			r.Delays = append(r.Delays, record.DelayCounts{FromNs: bpf.DelayBucket(i), Packets: n})
		}
	}

	return nil
}

// checkTaken returns an error if the device did not transmit the test-run frames. A virtual link silently
// drops frames that its other end does not accept.
func (p *xdpPort) checkTaken() error {
	var sent, taken int64
	for _, s := range p.sent {
		sent += s[bpf.Warmup] + s[bpf.Window] + s[bpf.Cooldown]
	}

	for _, s := range p.senders {
		taken = max(taken, s.taken) // maximum, because each sender counts the device's frames of all flows
	}

	if sent > 1000 && taken < sent/100 {
		return fmt.Errorf("send frames by %s: of %d sent it let out %d: whatever it leads to takes no "+
			"frames (it needs an XDP program or GRO)", p.hop.Device, sent, taken)
	}

	return nil
}

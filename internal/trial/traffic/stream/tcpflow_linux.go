package stream

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"strings"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/trial/traffic"
)

// Sizes of one system call, in bytes. Large writes save sleeps and wake-ups. A large receive size costs no
// memory, because a receive call with MSG_TRUNC copies nothing.
const (
	writeSize    = 1 << 20
	truncateSize = 4 << 20
	verifySize   = 256 << 10
)

// tcpFlow is one end of a TCP connection that carries data in one direction.
type tcpFlow struct {
	traffic.Socket
	byteStream
	mode       tcpMode
	congestion string

	// The following fields belong to the meter until Run has ended.
	series *record.Table
	info   [2]unix.TCPInfo // at the start and end of the window
	sndbuf int             // size at the end of the window, as tuned by the kernel
	rcvbuf int
}

// optionsOf lists the TCP options that both ends agreed on (TCPI_OPT_* in linux/tcp.h).
func optionsOf(i *unix.TCPInfo) []string {
	agreed := []string{}
	for bit, name := range []string{"timestamps", "sack", "wscale"} {
		if i.Options&(1<<bit) != 0 {
			agreed = append(agreed, name)
		}
	}
	return agreed
}

// tcpOptionECN is TCPI_OPT_ECN from linux/tcp.h. It means that both ends agreed on ECN in the handshake.
const tcpOptionECN = 8

// tcpBuffers holds the buffers that the streams of one end share. Without verification, senders always
// send the same bytes, and receivers store nothing.
type tcpBuffers struct{ send, trunc []byte }

func newTCPBuffers(q traffic.Request) *tcpBuffers {
	// trunc uses no memory, because it is never written to.
	b := &tcpBuffers{send: make([]byte, writeSize), trunc: make([]byte, truncateSize)}
	traffic.NewPattern(q.Load.Tag, 0).Fill(b.send, 0)
	return b
}

func (f *tcpFlow) prepare(shared *tcpBuffers) {
	switch {
	case f.verify && f.mode.pool: // the flow uses the buffer of its thread
	case f.verify:
		f.buffer = make([]byte, verifySize)
	case f.Sends:
		f.buffer = shared.send
	default:
		f.buffer = shared.trunc
	}

	if f.Sends {
		f.series = record.NewTable(strings.Fields(`
			rtt_ns rttvar_ns cwnd_segments retransmits busy_ns rwnd_limited_ns sndbuf_limited_ns
			delivery_rate_bps bytes_acked notsent_bytes min_rtt_ns
		`)...)
	}
}

// Run runs a flow that has its own thread.
func (f *tcpFlow) Run(p *traffic.Phases) error {
	if err := traffic.Bound(f.FD); err != nil {
		return fmt.Errorf("set the timeouts of %s: %w", f.Name(), err)
	}

	if !f.Sends {
		return f.receive(p)
	}

	give := f.write
	if f.mode.splice {
		g, err := newSplicer()
		if err != nil {
			return err
		}
		defer g.close()
		give = func(b []byte) (int, error) { return g.splice(p, f.FD, b) }
	}

	traffic.SleepUntil(p.Begin, &p.Abandoned)
	return f.send(p, give)
}

func (f *tcpFlow) write(b []byte) (int, error) { return traffic.Write(f.FD, b) }

// receive receives until the stream ends. In polled mode, it polls with a timer, and blocks only after
// some time without data.
func (f *tcpFlow) receive(p *traffic.Phases) error {
	patient := 0 // number of consecutive polls without data
	for !p.Abandoned.Load() {
		flags := 0
		if f.mode.polled && patient < tcpPolls {
			flags = unix.MSG_DONTWAIT
		}

		before := f.Count.Load()
		over, err := f.take(p, flags)
		if over || err != nil {
			return err
		}

		patient++
		got := f.Count.Load() - before
		if got > 0 {
			patient = 0
		}

		if f.mode.polled {
			traffic.Nap(tcpPoll)
		}
	}
	return nil
}

// Interval of the polls, and number of polls without data after which a receiver blocks.
const (
	tcpPoll  = 50 * time.Microsecond
	tcpPolls = 20
)

// take receives data with one system call. over is true if the stream has ended.
func (f *tcpFlow) take(p *traffic.Phases, flags int) (over bool, err error) {
	if !f.verify {
		flags |= unix.MSG_TRUNC
	}

	n, err := traffic.Receive(f.FD, f.held.share(f.buffer), flags)
	switch {
	case n > 0:
		f.received(f.buffer[:n])
		f.held.wait(p, n)
		return false, nil
	case err == nil:
		err = io.EOF
	case traffic.Again(err):
		return false, nil
	}

	return true, ended(p, err)
}

func (f *tcpFlow) Unblock(how traffic.Urgency) {
	switch {
	case how == traffic.AtOnce:
		f.Shutdown(unix.SHUT_RDWR)
	case f.Sends:
		f.Shutdown(unix.SHUT_WR)
	}
}

func (f *tcpFlow) Sample(at int64, e traffic.Edge) {
	n := f.Count.Load()
	info, err := unix.GetsockoptTCPInfo(f.FD, unix.IPPROTO_TCP, unix.TCP_INFO)
	if err != nil {
		info = &unix.TCPInfo{}
	}

	if f.Sends {
		n = sentBytes(info, n)
		f.appendSeries(at, info)
	}

	f.Note(at, n, e)
	if e != traffic.NoEdge {
		f.info[e-traffic.StartEdge] = *info
	}

	if e == traffic.EndEdge {
		f.sndbuf, f.rcvbuf = f.Option(unix.SOL_SOCKET, unix.SO_SNDBUF), f.Option(unix.SOL_SOCKET,
			unix.SO_RCVBUF)
	}
}

// sentBytes returns the number of payload bytes that were sent at least once. Kernels before Linux 4.19 do
// not count them; sentBytes then returns the number of bytes passed to the kernel.
func sentBytes(info *unix.TCPInfo, written int64) int64 {
	if info.Bytes_sent == 0 {
		return written
	}
	return int64(info.Bytes_sent - info.Bytes_retrans)
}

func (f *tcpFlow) appendSeries(at int64, i *unix.TCPInfo) {
	us := func(v uint64) float64 { return float64(v) * 1000 }
	rate := math.NaN()
	if !appLimited(i) {
		rate = 8 * float64(i.Delivery_rate)
	}

	f.series.Append(at, us(uint64(i.Rtt)), us(uint64(i.Rttvar)), float64(i.Snd_cwnd),
		float64(i.Total_retrans), us(i.Busy_time), us(i.Rwnd_limited), us(i.Sndbuf_limited), rate,
		float64(i.Bytes_acked), float64(i.Notsent_bytes), float64(minRTT(i)))
}

// appLimited reads a bit field that package unix does not declare, which follows the options and window
// scales. If it is set, the delivery rate reveals nothing about the path.
func appLimited(i *unix.TCPInfo) bool {
	const offset = unsafe.Offsetof(i.Options) + 2
	bits := *(*byte)(unsafe.Add(unsafe.Pointer(i), offset))
	if binary.NativeEndian.Uint16([]byte{1, 0}) == 1 {
		return bits&1 != 0
	}

	return bits&0x80 != 0
}

func minRTT(i *unix.TCPInfo) int64 {
	if i.Min_rtt == math.MaxUint32 {
		return 0
	}
	return int64(i.Min_rtt) * int64(time.Microsecond)
}

func (f *tcpFlow) Report() traffic.FlowReport {
	r := f.byteStream.Report()
	if !f.Sends {
		r.Notes = map[string]int64{"rcvbuf_bytes": int64(f.rcvbuf)}
		return r
	}

	r.Notes = map[string]int64{"sndbuf_bytes": int64(f.sndbuf)}
	s := &f.info[0]
	e := &f.info[1]
	r.TCP = &record.TCP{
		Congestion:    f.congestion,
		MSS:           int(e.Snd_mss),
		MinRTTNs:      minRTT(e),
		Series:        f.series,
		Retransmits:   new(int64(e.Total_retrans) - int64(s.Total_retrans)),
		BusyNs:        int64(e.Busy_time-s.Busy_time) * 1000,
		RwndLimitedNs: int64(e.Rwnd_limited-s.Rwnd_limited) * 1000,
		SndbufLimitNs: int64(e.Sndbuf_limited-s.Sndbuf_limited) * 1000,
		ECN:           e.Options&tcpOptionECN != 0,
		Options:       optionsOf(e),
		DeliveredCE:   int64(e.Delivered_ce) - int64(s.Delivered_ce),
		ReordSeen:     int64(e.Reord_seen) - int64(s.Reord_seen),
		DsackDups:     int64(e.Dsack_dups) - int64(s.Dsack_dups),
	}
	return r
}

// connectTCP opens one connection per flow, regardless of the flow's direction.
func connectTCP(ctx context.Context, l *traffic.Endpoint) error {
	q := l.Request
	fds, _, err := traffic.ConnectFlows(ctx, l.Part, l.Keys)
	if err != nil {
		return err
	}

	cores := len(traffic.AllowedCPUs())
	mode := tcpMode{verify: q.Load.Verify, pool: len(l.Keys) > traffic.OwnThreads}.
		with(featuresTo(q.Peer), q.Peer, threadsPerStream*len(l.Keys) <= cores)
	shared := newTCPBuffers(q)
	var pooled [2][]*tcpFlow // flows of receivers and of senders
	for i, fd := range fds {
		f, failed := newTCPFlow(fd, q, i, l.Keys[i], mode)
		if failed != nil {
			err = failed
			continue
		}

		f.prepare(shared)
		l.Flows[i] = f
		l.UsesCongestion(f.congestion)
		switch {
		case !mode.pool:
			l.Workers = append(l.Workers, f)
		case f.Sends:
			pooled[1] = append(pooled[1], f)
		default:
			pooled[0] = append(pooled[0], f)
		}
	}

	holdBack(l)
	for w, of := range pooled {
		for _, share := range traffic.Deal(of, cores) {
			l.Workers = append(l.Workers, &tcpPool{flows: share, sends: w == 1})
			held := share[0].held.of(len(share))
			for _, f := range share { // one thread serves all flows of a share
				f.held = held
			}
		}
	}

	l.Mode = mode.String
	return err
}

// holdBack gives each flow an equal share of the end's rate limits.
func holdBack(l *traffic.Endpoint) {
	held := l.Request.Load.Limits(l.Request.Side)
	for _, sends := range []bool{false, true} {
		rate := held.ReadRateBps
		if sends {
			rate = held.WriteRateBps
		}

		var flows []*tcpFlow
		for _, f := range l.Flows {
			if f, ok := f.(*tcpFlow); ok && f != nil && f.Sends == sends {
				flows = append(flows, f)
			}
		}

		for _, f := range flows {
			if rate > 0 {
				f.held = &throttle{perNs: rate / 8 / 1e9 / float64(len(flows))}
			}
		}
	}
}

func newTCPFlow(fd int, q traffic.Request, i int, k traffic.FlowKey, mode tcpMode) (f *tcpFlow, err error) {
	f = &tcpFlow{Socket: traffic.Socket{FD: fd}, mode: mode, byteStream: newByteStream(q, i, k)}
	f.Addr = f.Local()
	f.congestion, err = traffic.SetCongestion(fd, traffic.CongestionOf(q.Load, k))
	if err == nil && q.Load.RateBps > 0 && f.Sends {
		// The kernel paces the payload. Each stream has an equal share of the rate.
		bytes := q.Load.RateBps / 8 / float64(len(traffic.FlowsOf(q.Load)))
		if err = traffic.SetPacing(fd, uint64(math.Ceil(bytes))); err != nil {
			err = fmt.Errorf("pace at %.0f bytes per second: %w", bytes, err)
		}
	}

	if err != nil {
		f.Close()
		return nil, err
	}

	return f, nil
}

// poolWrite is the maximum number of bytes that a stream may send before other streams have their turn.
const poolWrite = 256 << 10

// tcpPool runs several streams with the same direction on one thread.
type tcpPool struct {
	flows []*tcpFlow
	sends bool
}

func (c *tcpPool) Name() string {
	return namesOf(&c.flows[0].ByteFlow, &c.flows[len(c.flows)-1].ByteFlow)
}

func (c *tcpPool) Run(p *traffic.Phases) error {
	ready := uint32(unix.EPOLLIN)
	fds := make([]int, len(c.flows))
	if c.sends {
		ready = unix.EPOLLOUT
	}

	for i, f := range c.flows {
		if err := unix.SetNonblock(f.FD, true); err != nil {
			return fmt.Errorf("stream %d: %w", f.Key.Stream, err)
		}

		fds[i] = f.FD
	}

	poll, err := traffic.Watch(fds, ready)
	if err != nil {
		return err
	}
	defer unix.Close(poll)
	if c.flows[0].verify {
		b := make([]byte, verifySize)
		for _, f := range c.flows {
			f.buffer = b
		}
	}

	if c.sends {
		traffic.SleepUntil(p.Begin, &p.Abandoned)
	}

	return c.serve(p, poll)
}

// serve moves data of the ready streams, one after the other.
func (c *tcpPool) serve(p *traffic.Phases, poll int) error {
	events := make([]unix.EpollEvent, min(len(c.flows), 256))
	open := len(c.flows) // number of streams that have not ended
	for open > 0 && !p.Abandoned.Load() && !(c.sends && traffic.Monotonic() >= p.Senders) {
		n, err := traffic.EpollWait(poll, events, traffic.CallTimeout)
		if err != nil && err != unix.EINTR {
			return fmt.Errorf("wait for the streams: %w", err)
		}

		for _, e := range events[:max(n, 0)] {
			f := c.flows[e.Fd]
			over, err := f.turn(p)
			if err != nil {
				return fmt.Errorf("stream %d: %w", f.Key.Stream, err)
			}

			if over {
				open--
				unix.EpollCtl(poll, unix.EPOLL_CTL_DEL, f.FD, nil)
			}
		}

		if !c.sends && n > 0 && c.flows[0].mode.polled {
			traffic.Nap(tcpPoll)
		}
	}
	return nil
}

// turn moves data with one system call. over is true if the stream has ended.
func (f *tcpFlow) turn(p *traffic.Phases) (over bool, err error) {
	if !f.Sends {
		return f.take(p, unix.MSG_DONTWAIT)
	}
	return f.sendSome(p, poolWrite, f.write)
}

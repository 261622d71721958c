package stream

import (
	"context"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/trial/traffic"
)

// connectUDP opens the flows. The listener learns the address of a flow behind NAT from the opener's
// hello, which also opens the return path. All flows use the same port of the listener, so that one port
// forward suffices. At the listener, each flow has a connected socket. If there are many flows, all of
// them share one socket, because kernels before 6.13 search all sockets of a port for each packet.
func connectUDP(ctx context.Context, l *traffic.Endpoint) error {
	q := l.Request
	u := &udpEnd{Endpoint: l, gso: map[netip.Addr]gso{}, shared: traffic.SharedSockets{}}
	if q.Listen {
		h, err := traffic.AnswerHellos(ctx, l.Part, len(l.Keys),
			func(i int, from netip.AddrPort, at *net.UDPConn) (*net.UDPConn, error) {
				return u.admit(ctx, i, from, at)
			})
		if err != nil {
			return err
		}

		l.EndSetup = func() {
			h.Close()
			for _, f := range l.Flows {
				unix.SetNonblock(f.(*udpFlow).FD, false)
			}
		}
	} else if err := traffic.OpenFlows(ctx, q, l.Keys, func(i, fd int, _, to netip.AddrPort) error {
		return u.newFlow(&traffic.Socket{FD: fd}, i, to, nil)
	}); err != nil {
		return err
	}

	l.Workers = u.workers()
	l.Mode = u.mode
	l.Details["rcvbuf_bytes"] = strconv.Itoa(u.rcvbuf) // size of each socket's buffer
	l.Details["sndbuf_bytes"] = strconv.Itoa(u.sndbuf)
	uncut := slices.ContainsFunc(slices.Collect(maps.Values(u.gso)), func(t gso) bool { return t.whole })
	l.Details["gso_uncut"] = strconv.FormatBool(uncut) // true if the first device received batches whole
	return nil
}

// udpEnd is one end of a UDP load.
type udpEnd struct {
	*traffic.Endpoint
	gso            map[netip.Addr]gso
	shared         traffic.SharedSockets // used if there are many flows
	rcvbuf, sndbuf int
}

// admit creates the flow to which a hello belongs.
func (u *udpEnd) admit(ctx context.Context, i int, from netip.AddrPort, at *net.UDPConn) (*net.UDPConn,
	error) {
	if len(u.Keys) <= traffic.OwnThreads {
		own, fd, err := traffic.OwnSocket(ctx, at, from)
		if err != nil {
			return nil, err
		}
		return own, u.newFlow(&traffic.Socket{FD: fd}, i, from, nil)
	}

	s, err := u.shared.Of(at)
	if err != nil {
		return nil, err
	}

	return nil, u.newFlow(s, i, from, traffic.NewRawAddr(from))
}

// newFlow creates a flow on a connected socket or, if to is not nil, on a shared socket with that
// destination.
func (u *udpEnd) newFlow(s *traffic.Socket, i int, peer netip.AddrPort, to *traffic.RawAddr) error {
	q := u.Request
	f := &udpFlow{Socket: s, to: to}
	f.open(q, i, u.Keys[i], len(u.Keys))
	f.Addr = s.Local()
	u.Flows[i] = f
	sockets := len(u.Keys)
	if to != nil {
		sockets = 1
	}

	u.rcvbuf, u.sndbuf = traffic.UDPRoom(s, sockets)
	f.ample = u.rcvbuf >= ampleRoom
	if err := traffic.MarkDSCP(s.FD, q.Load); err != nil {
		return err
	}

	if !f.Sends || q.Load.GSO == record.GSOOff || len(q.Load.Sizes) > 0 {
		return nil
	}

	t, known := u.gso[peer.Addr()]
	if !known {
		t = gsoBy(featuresTo(peer.Addr()), peer.Addr(), f.payload, f.count)
		u.gso[peer.Addr()] = t
	}

	f.gso = t.begin(s.FD, f.payload)
	return nil
}

// workers distributes the flows among threads. Up to traffic.OwnThreads flows have one thread each. If
// there are more flows, flows with separate sockets get one thread per core and direction, and flows that
// share a listener's socket get one thread.
func (u *udpEnd) workers() []traffic.Worker {
	parts := len(traffic.AllowedCPUs())
	if len(u.Keys) <= traffic.OwnThreads {
		parts = len(u.Keys)
	}

	var senders, receivers []*udpFlow
	shared := map[*traffic.Socket][]*udpFlow{}
	for _, f := range u.Flows {
		f := f.(*udpFlow)
		switch {
		case f.Sends:
			senders = append(senders, f)
		case f.to == nil:
			f.drops = true
			receivers = append(receivers, f)
		default:
			f.drops = shared[f.Socket] == nil
			shared[f.Socket] = append(shared[f.Socket], f)
		}
	}

	var workers []traffic.Worker
	for _, share := range traffic.Deal(senders, parts) {
		workers = append(workers, newUDPSender(share, u.Request, len(u.Keys)))
	}

	for _, share := range traffic.Deal(receivers, parts) {
		workers = append(workers, newUDPSink(share, len(u.Keys)))
	}

	for _, flows := range shared {
		workers = append(workers, newUDPSink(flows, len(u.Keys)))
	}

	return workers
}

// mode describes how this end sent and received datagrams.
func (u *udpEnd) mode() string {
	send, receive := "", ""
	polls := fmt.Sprintf("%v, or %v with ample room", traffic.ReceivePoll, amplePoll)
	for _, f := range u.Flows {
		f := f.(*udpFlow)
		switch {
		case !f.Sends:
			receive = "receive every datagram with its time, polled each " + polls
			if f.count {
				receive = "receive batches joined by the kernel (UDP_GRO), polled each " + polls
			}
		case f.gso.most > 1 && f.gso.whole:
			send = fmt.Sprintf("send UDP GSO batches of up to %d, which the first device takes uncut",
				f.gso.most)
		case f.gso.most > 1:
			send = fmt.Sprintf("send UDP GSO batches of up to %d, which the kernel cuts before the "+
				"first device", f.gso.most)
		case send == "":
			send = "send by sendmmsg"
		}
	}

	parts := slices.DeleteFunc([]string{send, receive}, func(part string) bool { return part == "" })
	return fmt.Sprintf("udp, %s mode: %s", traffic.UDPMode(u.Request.Load), strings.Join(parts, "; "))
}

// Maximum number of datagrams per system call: UDP_MAX_SEGMENTS is 128 since Linux 6.9, and 64 before.
const (
	maxGSOSegments = 128
	oldGSOSegments = 64
)

// gso describes how batches of datagrams are passed to the kernel. With UDP_SEGMENT, a batch is one large
// write that is split later. This saves most of the cost of sending.
type gso struct {
	most  int  // maximum number of datagrams per call; below 2 means no batches
	whole bool // the first device accepts whole batches
}

// gsoBy chooses the batches for a path by the features of its first device. If that device accepts whole
// batches, they cross a virtual network unsplit, so that the router does not forward real packets. Therefore
// such batches are used only in count mode, and the result contains a caveat.
//
// Kernels before 6.11 reject every datagram on a socket with UDP_SEGMENT, including short ones, if the
// device leaves checksums to the kernel, as OpenVPN's device does.
func gsoBy(features map[string]bool, to netip.Addr, payload int, count bool) gso {
	sums := "tx-checksum-ipv4"
	if to.Is6() {
		sums = "tx-checksum-ipv6"
	}

	whole, known := features["tx-udp-segmentation"]
	n := min(maxGSOSegments, (1<<16-256)/payload)
	if !features["tx-checksum-ip-generic"] && !features[sums] || !known || whole && !count || n < 2 {
		return gso{}
	}

	return gso{most: n, whole: whole}
}

// begin enables UDP GSO on a socket. If that fails, it returns the zero value, which means no batches.
func (t gso) begin(fd, payload int) gso {
	if t.most < 2 || unix.SetsockoptInt(fd, unix.SOL_UDP, unix.UDP_SEGMENT, payload) != nil {
		return gso{}
	}
	return t
}
